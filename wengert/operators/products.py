"""Products of vectors and matrices, and small matrix functions that need no decomposition."""

from collections.abc import Sequence
from typing import Any

from wengert.array.shape import axis_of, broadcast_shapes
from wengert.core.arguments import Axis, Number
from wengert.core.families import bilinear, composite
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import DTypeError, ShapeError
from wengert.operators.checks import same_dtype

__all__ = [
    "cross", "linalg_cross", "linalg_diagonal", "linalg_matmul", "linalg_multi_dot", "linalg_vander", "linalg_vecdot", "trace",
]  # fmt: skip


# ---- cross product


def _cross_spec(input: Spec, other: Spec, *, dim: int = -1) -> Spec:
    if len(input.shape) != len(other.shape):
        raise ShapeError(
            f"linalg_cross(): both tensors need the same number of dimensions, got {tuple(input.shape)} and {tuple(other.shape)}"
        )
    if not input.shape or input.shape[dim] != 3 or other.shape[dim] != 3:
        raise ShapeError(
            f"linalg_cross(): dimension {dim} must have size 3 in both tensors, got {tuple(input.shape)} and {tuple(other.shape)}"
        )
    return Spec(broadcast_shapes("linalg_cross", tuple(input.shape), tuple(other.shape)), input.dtype)

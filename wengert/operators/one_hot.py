"""Classes as rows of zeros with a single 1."""

from typing import Any

import numpy as np

from wengert.array.dtype import int64
from wengert.core.apply import execute
from wengert.core.arguments import Int, Integer
from wengert.core.batch import refuse
from wengert.core.families import composite, nondifferentiable
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.state import thread

__all__ = ["one_hot", "one_hot_rows"]


@composite(
    home="nn.functional",
    samples=lambda s: [
        s(s.array([0, 2, 1]), 3), s(s.array([[1], [0]]), num_classes=2), s(s.array(1), 4),
        s(s.array(np.zeros(0, int)), 3), s.error(ValueError, "class 3", s.array([0, 3]), 3),
        s.error(ValueError, "class -1", s.array([0, -1]), 3), s.error(ValueError, "or at least 0", s.array([0]), -2),
    ],
)  # fmt: skip
def one_hot(input: Any, num_classes: int = -1) -> Any:
    """Return int64 zeros of shape (*, num_classes) with a 1 at each index; -1 means the largest index and one.

    Raises:
        ValueError: for a negative index, or one that is not below ``num_classes``.
    """
    if num_classes == -1 and thread.state.captures is not None and input.numel():
        num_classes = int(ops.max(input).item()) + 1  # a program is of one shape
    return ops.one_hot_rows(input, num_classes)


def _one_hot_spec(input: Any, num_classes: int = -1) -> Spec:
    if num_classes < -1:
        raise ValueError(
            f"one_hot(): num_classes must be -1, the largest class and one, or at least 0, got {num_classes}"
        )
    return Spec((*input.shape, num_classes), int64)


def _one_hot_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    if values[1] == -1:
        return refuse(op, values, batched, size)
    return execute(op, values)


@nondifferentiable(
    batch=_one_hot_batch,
    spec=_one_hot_spec,
    home=(),
    samples=lambda s: [s(s.array([0, 2, 1]), 3), s.error(ValueError, "class 3", s.array([0, 3]), 3)],
)
def one_hot_rows(input: Integer, num_classes: Int = -1) -> Any:
    """Return what :func:`one_hot` does."""
    _one_hot_spec(input, num_classes)
    if num_classes == -1:
        if not input.size:
            raise ValueError("one_hot(): an empty tensor does not tell the number of classes; give num_classes")
        num_classes = int(input.max()) + 1
    bad = input[(input < 0) | (input >= num_classes)]
    if bad.size:
        raise ValueError(
            f"one_hot(): class {bad.flat[0]} is out of range for {num_classes} classes, 0 to {num_classes - 1}"
        )
    return (input[..., None] == np.arange(num_classes)).astype(np.int64)

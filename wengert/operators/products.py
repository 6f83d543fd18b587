"""Products of vectors and matrices, and small matrix functions that need no decomposition."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import dtype_of, promote_types
from wengert.array.shape import broadcast_shapes
from wengert.core import families
from wengert.core.arguments import Axis, Number
from wengert.core.families import composite
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError

__all__ = [
    "cross", "linalg_cross", "linalg_diagonal", "linalg_matmul", "linalg_multi_dot", "linalg_vander", "linalg_vecdot",
    "trace",
]  # fmt: skip


# ---- cross product


def _cross_spec(input: Spec, other: Spec, *, dim: int = -1) -> Spec:
    shapes = tuple(input.shape), tuple(other.shape)
    if len(shapes[0]) != len(shapes[1]):
        raise ShapeError(
            f"linalg_cross(): the tensors need the same number of dimensions, got {shapes[0]} and {shapes[1]}"
        )
    if not shapes[0] or shapes[0][dim] != 3 or shapes[1][dim] != 3:
        raise ShapeError(f"linalg_cross(): dimension {dim} must have size 3 in {shapes[0]} and {shapes[1]}")
    return Spec(broadcast_shapes("linalg_cross", *shapes), promote_types(input.dtype, other.dtype))


@families.bilinear(
    transpose={
        "input": lambda g, other, dim: ops.linalg_cross(ops.expand(other, g.shape), g, dim=dim),
        "other": lambda g, input, dim: ops.linalg_cross(g, ops.expand(input, g.shape), dim=dim),
    },
    promote="same",
    batch="front",
    spec=_cross_spec,
    samples=lambda s: [
        s((3,), (3,)), s((2, 3), (2, 3)), s((3, 2), (3, 2), dim=0), s((1, 3), (2, 3)), s((0, 3), (0, 3)),
        s((3,), (3,), kind="complex"), s((3,), (3,), kind="integer"),
        s.error(RuntimeError, "must have size 3", (2,), (2,)),
        s.error(RuntimeError, "same number of dimensions", (3,), (2, 3)),
    ],
)  # fmt: skip
def linalg_cross(input: Number, other: Number, *, dim: Axis = -1) -> Any:
    """Return the cross product of vectors of three elements along ``dim``; the other dimensions broadcast.

    Example:
        >>> import wengert as wg
        >>> wg.linalg.cross(wg.tensor([1.0, 0.0, 0.0]), wg.tensor([0.0, 1.0, 0.0]))
        tensor([0., 0., 1.])
    """
    _cross_spec(Spec(input.shape, dtype_of(input.dtype)), Spec(other.shape, dtype_of(other.dtype)), dim=dim)
    a, b = np.moveaxis(input, dim, 0), np.moveaxis(other, dim, 0)
    parts = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    return np.stack(parts, dim)


@composite(
    method=True,
    samples=lambda s: [
        s((2, 3), (2, 3)), s((3, 2), (3, 2)), s((3, 3), (3, 3), 1),
        s.error(RuntimeError, "no dimension of size 3", (2,), (2,)),
    ],
)  # fmt: skip
def cross(input: Any, other: Any, dim: int | None = None) -> Any:
    """Return the cross product along ``dim``, or along the first dimension of size 3.

    Prefer :func:`wengert.linalg.cross`, which takes the last dimension.
    """
    if dim is None:
        if 3 not in input.shape:
            raise ShapeError(f"cross(): input has no dimension of size 3, got shape {tuple(input.shape)}")
        dim = input.shape.index(3)
    return ops.linalg_cross(input, other, dim=dim)


# ---- products of several


@composite(
    samples=lambda s: [
        s((2, 3), (2, 3)),
        s((3,), (2, 3), dim=-1),
        s((3, 2), (3, 2), dim=0),
        s((3,), (3,), kind="complex"),
    ]
)
def linalg_vecdot(x: Any, y: Any, *, dim: int = -1) -> Any:
    """Return the sum of conj(x) · y along ``dim``; the other dimensions broadcast."""
    return ops.sum((ops.conj(x) if x.is_complex() else x) * y, dim)


@composite(samples=lambda s: [s((2, 3), (3, 2)), s((3,), (3, 2))])
def linalg_matmul(input: Any, other: Any) -> Any:
    """Return the matrix product; see :func:`wengert.matmul`."""
    return ops.matmul(input, other)


def _cheapest(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Return where to split the product of the matrices i to j, matrix k being sizes[k] by sizes[k + 1].

    Dynamic programming over all orders: Cormen et al., Introduction to algorithms, §15.2.
    """
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            prices = {k: cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)}
            split[i, j] = min(prices, key=prices.__getitem__)
            cost[i, j] = prices[split[i, j]]
    return split


@composite(
    samples=lambda s: [
        s([(2, 3), (3, 2), (2, 4)]), s([(3,), (3, 2), (2, 4)]), s([(2, 3), (3, 4), (4,)]), s([(3,), (3, 2), (2,)]),
        s([(3,), (3,)]), s([(2, 1), (1, 2), (2, 1), (1, 3)]), s.error(RuntimeError, "at least 2", [(2, 2)]),
        s.error(RuntimeError, "cannot be multiplied", [(2, 2), (3, 2)]),
        s.error(RuntimeError, "must be a matrix", [(2, 2), (2,), (2, 2)]),
    ],
)  # fmt: skip
def linalg_multi_dot(tensors: Any) -> Any:
    """Return the product of two or more matrices, multiplied in the order that takes the fewest operations.

    Args:
        tensors: matrices; the first and the last may be vectors, taken as a row and a column.

    Example:
        >>> import wengert as wg
        >>> wg.linalg.multi_dot([wg.ones(2, 3), wg.ones(3, 4), wg.ones(4)])
        tensor([12., 12.])
    """
    matrices = list(tensors)
    if len(matrices) < 2:
        raise ShapeError(f"linalg_multi_dot(): expected at least 2 tensors, got {len(matrices)}")
    first, last = matrices[0].ndim == 1, matrices[-1].ndim == 1
    if first:
        matrices[0] = ops.unsqueeze(matrices[0], 0)
    if last:
        matrices[-1] = ops.unsqueeze(matrices[-1], -1)
    _check_chain(matrices)
    split = _cheapest([m.shape[0] for m in matrices] + [matrices[-1].shape[1]])

    def product(i: int, j: int) -> Any:
        return matrices[i] if i == j else ops.matmul(product(i, split[i, j]), product(split[i, j] + 1, j))

    out = product(0, len(matrices) - 1)
    return ops.squeeze(out, tuple(d for d, gone in ((0, first), (1, last)) if gone)) if first or last else out


def _check_chain(matrices: Sequence[Any]) -> None:
    for i, matrix in enumerate(matrices):
        if matrix.ndim != 2:
            raise ShapeError(f"linalg_multi_dot(): tensor {i} must be a matrix, got shape {tuple(matrix.shape)}")
        if i and matrices[i - 1].shape[1] != matrix.shape[0]:
            raise ShapeError(
                f"linalg_multi_dot(): tensors {i - 1} and {i} of shapes {tuple(matrices[i - 1].shape)} and "
                f"{tuple(matrix.shape)} cannot be multiplied"
            )


@composite(
    home=("", "nn.functional"),
    samples=lambda s: [
        s((2, 3), (2, 2), (4, 3, 2), (4,)), s((3,), (2,), (1, 3, 2)), s((2, 1, 3), (2, 1, 2), (2, 3, 2)),
        s((0, 3), (0, 2), (2, 3, 2)), s.error(RuntimeError, "do not fit", (2, 3), (2, 3), (4, 3, 2)),
        s.error(RuntimeError, "do not fit", (2, 3), (3, 2), (4, 3, 2)),
    ],
)  # fmt: skip
def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """Return x₁ᵀ Wₖ x₂ + bₖ for each k: (*, n), (*, m) with weight (out, n, m) and bias (out,) → (*, out)."""
    lead, ends = tuple(input1.shape[:-1]), (*input1.shape[-1:], *input2.shape[-1:])
    if weight.ndim != 3 or lead != tuple(input2.shape[:-1]) or tuple(weight.shape[1:]) != ends:
        raise ShapeError(
            f"bilinear(): inputs of shapes {tuple(input1.shape)} and {tuple(input2.shape)} do not fit a weight "
            f"(out, in1, in2) of shape {tuple(weight.shape)}"
        )
    out, n, m = weight.shape
    first, second = ops.reshape(input1, (math.prod(lead), n)), ops.reshape(input2, (math.prod(lead), m))
    half = ops.reshape(first @ ops.reshape(ops.permute(weight, (1, 0, 2)), (n, out * m)), (math.prod(lead), out, m))
    found = ops.reshape(half @ ops.unsqueeze(second, -1), (*lead, out))
    return found if bias is None else found + bias


# ---- entries


@composite(
    samples=lambda s: [
        s((3,)),
        s((2, 3), N=2),
        s((2,), N=4),
        s((2,), kind="integer"),
        s.error(ValueError, "at least 1", (2,), N=0),
    ]
)
def linalg_vander(x: Any, *, N: int | None = None) -> Any:
    """Return the Vandermonde matrix of each vector (*, n): the powers 0 to N - 1 of its elements, as columns.

    Example:
        >>> import wengert as wg
        >>> wg.linalg.vander(wg.tensor([2.0, 3.0]), N=3)
        tensor([[1., 2., 4.],
                [1., 3., 9.]])
    """
    if not x.ndim:
        x = ops.reshape(x, (1,))
    count = x.shape[-1] if N is None else N
    if count < 1:
        raise ValueError(f"linalg_vander(): N must be at least 1, got {count}")
    ones = ops.unsqueeze(ops.ones_like(x), -1)
    powers = ops.cumprod(ops.expand(ops.unsqueeze(x, -1), (*x.shape, count - 1)), -1)
    return ops.cat((ones.to(powers.dtype), powers), -1)


@composite(samples=lambda s: [s((2, 3)), s((2, 3, 3), offset=1), s((2, 3, 2), dim1=0, dim2=2)])
def linalg_diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Return a view of the diagonal of each matrix; see :func:`wengert.diagonal`."""
    return ops.diagonal(A, offset, dim1, dim2)


@composite(
    method=True,
    samples=lambda s: [
        s((2, 3)),
        s((0, 0)),
        s((2, 2), kind="integer"),
        s.error(RuntimeError, "expected a matrix", (2, 2, 2)),
    ],
)
def trace(input: Any) -> Any:
    """Return the sum of the diagonal of a matrix."""
    if input.ndim != 2:
        raise ShapeError(f"trace(): expected a matrix, got shape {tuple(input.shape)}")
    return ops.sum(ops.diagonal(input))

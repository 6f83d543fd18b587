"""What operators along dimensions share: spreading a reduced tensor, blocks of rows, selected values with indices."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from wengert.array.dtype import int64
from wengert.array.shape import kept, reduced
from wengert.core.operator import Spec
from wengert.core.registry import ops

__all__ = [
    "blocks", "evenly", "from_taken", "index_spec", "mean_of_reaching", "nonempty", "places", "rank_one", "rows_along",
    "spread", "taken", "to_taken",
]  # fmt: skip


def spread(g: Any, shape: Any, dim: Any, keepdim: Any) -> Any:
    """Return a reduced tensor repeated along the dimensions that were reduced."""
    return ops.expand(g if keepdim or not g.ndim else ops.reshape(g, kept(shape, dim)), shape)


def rank_one(array: Any) -> Any:
    """Return the array; one without dimensions as a vector, so that it has an axis."""
    return array if array.shape else array.reshape(1)


def rows_along(array: Any, dim: int) -> Any:
    """Return the array as (before, size of ``dim``, after): contiguous, three-dimensional, to work along the middle."""
    shape = array.shape or (1,)
    return np.ascontiguousarray(array).reshape(math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))


def places(index: Any) -> tuple[Any, Any, Any]:
    """Return the key ``x[...]`` of one element in each line along the middle of (n, size, m); index is (n, 1, m)."""
    return np.arange(len(index))[:, None, None], index, np.arange(index.shape[2])


def positions(index: Any, size: int) -> Any:
    """Return where in the flat memory of a contiguous (n, size, m) array ``places(index)`` lies: faster to read and write."""
    n, _, m = index.shape
    if m == 1:
        return index.reshape(n) + np.arange(0, n * size, size)
    return (index.reshape(n, m) * m + np.arange(m) + np.arange(0, n * size * m, size * m)[:, None]).reshape(n * m)


BLOCK = 1 << 16  # elements: a block of float32 and its temporaries stay in a core's second-level cache


def blocks(rows: int, width: int) -> Iterator[slice]:
    """Cut ``rows`` rows of ``width`` elements into slices small enough that a few passes over one stay in cache."""
    step = max(1, BLOCK // max(1, width))
    return (slice(start, start + step) for start in range(0, rows, step))


def nonempty(name: str, shape: Any, dim: Any) -> None:
    """Refuse to choose an element along dimensions that have none.

    Raises:
        IndexError: naming the dimension of size 0.
    """
    empty = next((d for d in dim if shape and not shape[d]), None)
    if empty is not None:
        raise IndexError(
            f"{name}(): dimension {empty} of the tensor of shape {tuple(shape)} is empty: it has no element to choose"
        )


def evenly(g: Any, input: Any, out: Any, dim: Any, keepdim: Any) -> Any:
    """Share the cotangent of a selected value ``out`` evenly between the elements equal to it."""
    chosen = _reaching(input, out, dim, keepdim)
    share = spread(g, input.shape, dim, keepdim) / ops.sum(chosen, dim, keepdim=True)
    return ops.where(chosen, share, 0.0)


def _reaching(input: Any, out: Any, dim: Any, keepdim: Any) -> Any:
    extreme = spread(out, input.shape, dim, keepdim)
    return ops.logical_or(ops.eq(input, extreme), ops.logical_and(ops.isnan(input), ops.isnan(extreme)))


def mean_of_reaching(t: Any, input: Any, out: Any, dim: Any, keepdim: Any) -> Any:
    """Return the mean tangent of the elements equal to a selected value ``out``: the transpose of :func:`evenly`."""
    chosen = _reaching(input, out, dim, keepdim)
    return ops.sum(ops.where(chosen, t, 0.0), dim, keepdim) / ops.sum(chosen, dim, keepdim)


def index_spec(name: str) -> Any:
    """Return the rule of an operator that gives one (value, index) pair along ``dim``."""

    def spec(input: Spec, dim: Any, keepdim: Any = False) -> tuple[Spec, Spec]:
        nonempty(name, input.shape, (dim,))
        shape = reduced(input.shape, (dim,), keepdim)
        return Spec(shape, input.dtype), Spec(shape, int64)

    return spec


def taken(input: Any, index: Any, dim: int, keepdim: Any) -> tuple[Any, Any]:
    """Return a kernel's (values, indices): the elements at ``index``, which keeps the reduced dimension."""
    values = np.take_along_axis(rank_one(input), index, dim)
    shape = reduced(input.shape, (dim,), keepdim)
    return values.reshape(shape), index.reshape(shape)


def to_taken(g: Any, indices: Any, input_shape: Any, dim: Any, keepdim: Any) -> Any:
    """Send the cotangent of selected values to the places they were taken from: the vjp of (values, indices)."""
    if not input_shape:
        return g[0]
    shape = kept(input_shape, (dim,))
    return ops.place_along(ops.reshape(g[0], shape), dim, ops.reshape(indices, shape), input_shape[dim])


def from_taken(t: Any, indices: Any, dim: Any, keepdim: Any) -> Any:
    """Take the tangents of selected values: the jvp of (values, indices)."""
    if not t.shape:
        return t, None
    found = ops.gather(t, dim, ops.reshape(indices, kept(t.shape, (dim,))))
    return ops.reshape(found, indices.shape), None

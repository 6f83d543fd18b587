"""Searching, sorting, sets and selection: where elements are, their order, and what differs among them.

Values that are selected keep their gradients; positions and counts have none.
"""

from typing import Any, NamedTuple

from wengert.array.dtype import COMPLEX, bool_, int64
from wengert.array_api.arguments import axis_in, operand, promoted
from wengert.array_api.reductions import reduce
from wengert.core.registry import ops
from wengert.errors import ShapeError

__all__ = [
    "argmax", "argmin", "argsort", "count_nonzero", "isin", "nonzero", "searchsorted", "sort", "take",
    "take_along_axis", "unique_all", "unique_counts", "unique_inverse", "unique_values", "where",
]  # fmt: skip


# ---- searching


def _extreme(function: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
    if axis is None:
        found = function(ops.reshape(x, (-1,)), 0)
        return ops.reshape(found, [1] * x.ndim) if keepdims else found
    return function(x, axis_in(axis, x.ndim), keepdims)


def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return the place of the largest element, the first of equals; without an axis, in the flattened array."""
    return _extreme(ops.argmax, x, axis, keepdims)


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return the place of the smallest element, the first of equals; without an axis, in the flattened array."""
    return _extreme(ops.argmin, x, axis, keepdims)


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the number of elements that are not zero."""
    return reduce(ops.sum, ops.ne(x, 0), axis, keepdims, dtype=int64)


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """Return the places of the elements that are not zero, an array for each axis.

    Raises:
        ValueError: for a 0-d array.
    """
    if not x.ndim:
        raise ShapeError("nonzero() needs at least one dimension; a 0-d array has no positions")
    return tuple(ops.nonzero(x, as_tuple=True))


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """Return where to insert ``x2`` in the ascending ``x1`` so that the order is kept.

    Args:
        side: "left" of elements equal to it, or "right". sorter: the indices that sort ``x1``, if it is not sorted.
    """
    sequence, values = promoted("searchsorted", x1, x2)
    return ops.searchsorted(sequence if sorter is None else sequence[sorter], values, side=side)


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """Return the elements of ``x1`` where the condition is true, those of ``x2`` elsewhere."""
    return ops.where(condition, *promoted("where", x1, x2))


# ---- sorting


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Return the indices that sort the array along an axis; equal elements keep their order in any case."""
    return ops.argsort(x, axis_in(axis, x.ndim), descending, stable=stable)


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Return the elements sorted along an axis, NaN as the largest."""
    return ops.sort(x, axis_in(axis, x.ndim), descending, stable=stable)[0]


# ---- selection


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    """Return the slices along an axis at given places, which count from the end if negative.

    Raises:
        ValueError: if no axis is given and the array is not one-dimensional. IndexError: for a place out of range.
    """
    x = operand("take()", x)
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take(): axis must be given for an array of {x.ndim} dimensions")
        axis = 0
    return x[(slice(None),) * axis_in(axis, x.ndim) + (indices,)]


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """Return the elements at given places along an axis, in the shape of ``indices``; the other axes broadcast."""
    axis = axis_in(axis, x.ndim)
    size = x.shape[axis]
    return ops.take_along_dim(x, ops.where(ops.lt(indices, 0), indices + size, indices), axis)


# ---- sets


class UniqueAll(NamedTuple):
    """The distinct values, where each comes first, which of them each element is, and how often each occurs."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """The distinct values and how often each occurs."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """The distinct values and which of them each element is."""

    values: Any
    inverse_indices: Any


def unique_all(x: Any, /) -> UniqueAll:
    """Return the distinct elements in ascending order with their places and counts; each NaN counts as distinct.

    Returns:
        values, indices (of the first occurrences in the flattened array), inverse_indices (in the shape of ``x``) and
        counts.
    """
    flat = ops.reshape(x, (-1,))
    size = flat.shape[0]
    order = _order(flat)
    ordered = flat[order]
    begins = ops.cat((ops.ones((min(size, 1),), dtype=bool_), ops.ne(ordered[1:], ordered[:-1])), 0)
    starts = ops.nonzero(begins, as_tuple=True)[0]
    counts = ops.diff(starts, append=ops.full((1,), size))
    inverse = ops.place_along(ops.cumsum(begins, 0) - 1, 0, order, size)
    first = order[starts]
    return UniqueAll(flat[first], first, ops.reshape(inverse, tuple(x.shape)), counts)


def _order(flat: Any) -> Any:
    """Return the indices that sort a one-dimensional array; complex numbers by real, then by imaginary part."""
    if flat.dtype.category < COMPLEX:
        return ops.argsort(flat, 0, stable=True)
    by_imaginary = ops.argsort(ops.imag(flat), 0, stable=True)
    return by_imaginary[ops.argsort(ops.real(flat)[by_imaginary], 0, stable=True)]


def unique_counts(x: Any, /) -> UniqueCounts:
    """Return the distinct elements in ascending order, and how often each occurs."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Any, /) -> UniqueInverse:
    """Return the distinct elements in ascending order, and which of them each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Any, /) -> Any:
    """Return the distinct elements in ascending order; each NaN counts as distinct.

    Example:
        >>> import wengert.array_api as xp
        >>> xp.unique_values(xp.asarray([3, 1, 3]))
        tensor([1, 3])
    """
    return unique_all(x).values


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Any:
    """Return which elements of ``x1`` are among those of ``x2``, or with ``invert`` which are not."""
    elements, among = promoted("isin", x1, x2)
    return ops.isin(elements, among, invert=invert)

"""Gather and scatter: reading and writing elements, rows and regions at computed positions.

Every index is checked before anything is read or written. Repeated indices accumulate one by one, in the order in which
they stand, through ``ufunc.at`` over flat positions, NumPy's fastest way by measurement.
"""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wengert.errors import DTypeError, ShapeError
from wengert.kernels.precision import in_float32

__all__ = [
    "Reduction",
    "accumulate_rows",
    "checked_index",
    "gather",
    "identity",
    "index_add",
    "index_put",
    "index_select",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "segment_reduce",
]

Array = NDArray[Any]
Reduction = Literal["sum", "prod", "mean", "amax", "amin"]

# How many positions of rows are written out at a time.
CHUNK = 1 << 16


def checked_index(name: str, index: Array, dim: int, size: int, *, negative: bool = False) -> NDArray[np.intp]:
    """Return ``index`` as positions that lie in ``range(size)``.

    Args:
        name: the operator, for the message.
        index: array of integers.
        dim, size: the dimension that is indexed, and its size.
        negative: whether negative numbers count from the end.

    Raises:
        IndexError: naming the first index that is out of range, the dimension and its size.
        DTypeError: if ``index`` does not hold integers.
    """
    if index.dtype.kind not in "iu":
        raise DTypeError(f"{name}: an index must hold integers, got {index.dtype}")
    if index.size:
        least = -size if negative else 0
        low, high = int(index.min()), int(index.max())
        if low < least or high >= size:
            first = index[(index < least) | (index >= size)].flat[0]
            raise IndexError(f"{name}: index {first} is out of bounds for dimension {dim} with size {size}")
        if low < 0:
            return np.where(index < 0, index + size, index).astype(np.intp, copy=False)
    return index.astype(np.intp, copy=False)


def gather(x: Array, dim: int, index: Array) -> Array:
    """Return ``out[i, j, ...] = x[index[i, j, ...], j, ...]`` (for ``dim`` 0), like ``torch.gather``.

    Args:
        x: array of any shape.
        dim: the dimension that is indexed.
        index: integers, of as many dimensions as ``x`` and, apart from ``dim``, no larger than it.

    Returns:
        An array of the shape of ``index``. Its transpose is :func:`scatter_add` into zeros.

    Raises:
        IndexError: if an index is out of range; negative ones are.
        ShapeError: if the shapes do not fit.

    Example:
        >>> gather(np.array([[1, 2], [3, 4]]), 1, np.array([[0, 0], [1, 0]]))
        array([[1, 1],
               [4, 3]])
    """
    positions = _positions("gather", x.shape, dim, index)
    return np.asarray(np.ascontiguousarray(x).reshape(-1).take(positions))


def scatter(x: Array, dim: int, index: Array, src: Array) -> Array:
    """Return ``x`` with ``out[index[i, j, ...], j, ...] = src[i, j, ...]`` (for ``dim`` 0), like ``torch.scatter``.

    Args:
        x, dim, index: as in :func:`gather`.
        src: array no smaller than ``index`` in any dimension. Where indices repeat, the last one is written.

    Raises:
        IndexError, ShapeError: as :func:`gather`.

    Example:
        >>> scatter(np.zeros(4), 0, np.array([3, 1]), np.array([5.0, 6.0]))
        array([0., 6., 0., 5.])
    """
    positions = _positions("scatter", x.shape, dim, index)
    out = np.array(x, order="C")
    out.reshape(-1)[positions] = _source("scatter", src, index)
    return out


@in_float32
def scatter_add(x: Array, dim: int, index: Array, src: Array) -> Array:
    """Return ``x`` with ``out[index[i, j, ...], j, ...] += src[i, j, ...]`` (for ``dim`` 0): ``torch.scatter_add``.

    The arguments and exceptions are those of :func:`scatter`. Repeated indices add up.

    Example:
        >>> scatter_add(np.zeros(3), 0, np.array([2, 0, 2]), np.array([1.0, 2.0, 3.0]))
        array([2., 0., 4.])
    """
    positions = _positions("scatter_add", x.shape, dim, index)
    out = np.array(x, order="C")
    np.add.at(out.reshape(-1), positions.reshape(-1), _source("scatter_add", src, index).reshape(-1))
    return out


@in_float32
def scatter_reduce(x: Array, dim: int, index: Array, src: Array, reduce: Reduction, include_self: bool = True) -> Array:
    """Reduce the elements of ``src`` that go to the same place, like ``torch.scatter_reduce``.

    Args:
        x, dim, index, src: as in :func:`scatter`.
        reduce: ``"sum"``, ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``. NaN propagates; the mean of integers is
            rounded down.
        include_self: whether the element of ``x`` takes part where something is written.

    Returns:
        An array of the shape of ``x``; places that nothing goes to keep the element of ``x``.

    Raises:
        IndexError, ShapeError: as :func:`gather`.
        DTypeError: for ``amax`` and ``amin`` of complex numbers.
        ValueError: if there is no such reduction.

    Example:
        >>> scatter_reduce(np.array([9.0, 1.0]), 0, np.array([1, 1]), np.array([4.0, 7.0]), "mean")
        array([9., 4.])
    """
    ufunc = _reducer("scatter_reduce", reduce, x.dtype)
    positions = _positions("scatter_reduce", x.shape, dim, index).reshape(-1)
    out = np.array(x, order="C")
    flat = out.reshape(-1)
    if not include_self:
        flat[positions] = identity(reduce, x.dtype)
    ufunc.at(flat, positions, _source("scatter_reduce", src, index).reshape(-1))
    if reduce == "mean":
        counts = np.bincount(positions, minlength=flat.size) + int(include_self)
        _divide(out, np.maximum(counts, 1).reshape(out.shape))
    return out


def index_select(x: Array, dim: int, index: Array) -> Array:
    """Return the slices of ``x`` along ``dim`` that ``index`` names, like ``torch.index_select``.

    Args:
        x: array with at least one dimension.
        dim: the dimension that is indexed.
        index: integers of shape ``(n,)``; negative ones are out of range.

    Returns:
        An array of the shape of ``x`` with ``n`` in place of the size of ``dim``. The transpose is :func:`index_add`
        into zeros.

    Raises:
        IndexError: if an index is out of range.

    Example:
        >>> index_select(np.array([[1, 2], [3, 4]]), 0, np.array([1, 1]))
        array([[3, 4],
               [3, 4]])
    """
    dim = _normal_dim("index_select", dim, x.ndim)
    return x.take(checked_index("index_select", index, dim, x.shape[dim]), dim)


@in_float32
def index_add(x: Array, dim: int, index: Array, src: Array) -> Array:
    """Return ``x`` with the slices of ``src`` added along ``dim`` where ``index`` says, like ``torch.index_add``.

    With ``dim`` 0 and ``x`` zero this is the gradient of an embedding.

    Args:
        x: array with at least one dimension.
        dim: the dimension that is indexed.
        index: integers of shape ``(n,)``; repeated ones add up.
        src: array of the shape of ``x`` with ``n`` in place of the size of ``dim``.

    Raises:
        IndexError: if an index is out of range; negative ones are.
        ShapeError: if ``src`` does not have that shape.

    Example:
        >>> index_add(np.zeros((2, 2)), 0, np.array([1, 1]), np.ones((2, 2)))
        array([[0., 0.],
               [2., 2.]])
    """
    dim = _normal_dim("index_add", dim, x.ndim)
    expected = (*x.shape[:dim], index.size, *x.shape[dim + 1 :])
    if index.ndim != 1 or src.shape != expected:
        raise ShapeError(
            f"index_add: for x of shape {x.shape}, dim {dim} and an index of shape {index.shape}, src must have shape "
            f"{expected} and index one dimension, got src of shape {src.shape}"
        )
    rows = checked_index("index_add", index, dim, x.shape[dim])
    out = np.array(x, order="C")
    outer, width = math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :])
    if outer != 1:
        rows = (np.arange(outer)[:, None] * x.shape[dim] + rows).reshape(-1)
    accumulate_rows(np.add, out.reshape(outer * x.shape[dim], width), rows, src.reshape(rows.size, width))
    return out


@in_float32
def index_put(x: Array, indices: tuple[Any, ...], values: Array, accumulate: bool = False) -> Array:
    """Return ``x`` with ``out[indices] = values``, or ``+=`` over repeated positions, like ``torch.index_put``.

    Args:
        x: array of any shape.
        indices: anything that indexes ``x``: integers, slices, ``None``, ``...``, arrays of integers (negative ones
            count from the end) and masks. With the meaning that NumPy and PyTorch give it.
        values: array that broadcasts to the shape of ``x[indices]``.
        accumulate: add instead of writing; a position that occurs several times is added to as often. Without it, the
            last value is kept.

    Raises:
        IndexError: if an index is out of range, or a mask does not have the shape of what it selects from.

    Example:
        >>> index_put(np.zeros(3), (np.array([0, -1, 0]),), np.array([1.0, 2.0, 3.0]), accumulate=True)
        array([4., 0., 2.])
    """
    indices = tuple(np.asarray(i) if isinstance(i, list) else i for i in indices)
    out = np.array(x, order="C")
    if not accumulate:
        out[indices] = values
    elif x.ndim == 0 or not any(isinstance(i, np.ndarray) and i.dtype.kind in "iu" and i.ndim for i in indices):
        out[indices] += values  # slices and masks name no position twice
    elif len(indices) == 1:
        rows = checked_index("index_put", indices[0], 0, x.shape[0], negative=True)
        width = math.prod(x.shape[1:])
        source = np.broadcast_to(values, (*rows.shape, *x.shape[1:]))
        accumulate_rows(np.add, out.reshape(len(x), width), rows.reshape(-1), source.reshape(rows.size, width))
    else:
        positions = _indexed_positions(x.shape, indices)
        source = np.broadcast_to(values, positions.shape)
        np.add.at(out.reshape(-1), positions.reshape(-1), source.astype(out.dtype, copy=False).reshape(-1))
    return out


@in_float32
def segment_reduce(x: Array, segments: Array, count: int, reduce: Reduction) -> Array:
    """Reduce the rows of ``x`` that belong to the same segment.

    Args:
        x: array of shape ``(n, *rest)``.
        segments: the segment of each row, integers of shape ``(n,)`` in ``range(count)``, in any order.
        count: the number of segments.
        reduce: as in :func:`scatter_reduce`.

    Returns:
        An array of shape ``(count, *rest)``. An empty segment has sum 0, product 1, mean NaN (integers: 0) and the
        smallest or largest number of the dtype as ``amax`` or ``amin``.

    Raises:
        IndexError: if a segment is out of range.
        ShapeError: if ``segments`` does not have shape ``(n,)``.

    Example:
        >>> segment_reduce(np.array([1.0, 2.0, 4.0]), np.array([1, 0, 1]), 2, "sum")
        array([2., 5.])
    """
    if segments.shape != x.shape[:1] or x.ndim == 0:
        raise ShapeError(f"segment_reduce: segments of shape {segments.shape} do not fit x of shape {x.shape}")
    ufunc = _reducer("segment_reduce", reduce, x.dtype)
    rows = checked_index("segment_reduce", segments, 0, count)
    out = np.full((count, *x.shape[1:]), identity(reduce, x.dtype), x.dtype)
    width = math.prod(x.shape[1:])
    accumulate_rows(ufunc, out.reshape(count, width), rows, x.reshape(len(x), width))
    if reduce == "mean":
        counts = np.bincount(rows, minlength=count)
        _divide(out, np.maximum(counts, 1).reshape(count, *[1] * (x.ndim - 1)))
        if x.dtype.kind in "fc":
            out[counts == 0] = np.nan
    return out


def accumulate_rows(ufunc: np.ufunc, target: Array, rows: NDArray[np.intp], values: Array) -> None:
    """Apply ``target[rows[k]] = ufunc(target[rows[k]], values[k])`` for every k, a chunk of positions at a time."""
    width = target.shape[1]
    flat, columns = target.reshape(-1), np.arange(width)
    step = max(1, CHUNK // max(1, width))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        positions = rows[part, None] * width + columns
        ufunc.at(flat, positions.reshape(-1), values[part].astype(target.dtype, copy=False).reshape(-1))


def _positions(name: str, shape: tuple[int, ...], dim: int, index: Array) -> NDArray[np.intp]:
    """Return the flat positions of ``gather`` in a contiguous array of the given shape."""
    dim = _normal_dim(name, dim, len(shape))
    if max(index.ndim, 1) != max(len(shape), 1):
        raise ShapeError(f"{name}: index must have {len(shape)} dimensions, got shape {index.shape} for {shape}")
    padded, sizes = index.shape or (1,), shape or (1,)
    if any(i > s for d, (i, s) in enumerate(zip(padded, sizes, strict=True)) if d != dim) and index.size:
        raise ShapeError(
            f"{name}: index of shape {index.shape} must not be larger than {shape} apart from dimension {dim}"
        )
    strides = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
    positions = checked_index(name, index, dim, sizes[dim]) * strides[dim]
    for d, (size, stride) in enumerate(zip(index.shape, strides, strict=False)):
        if d != dim and size > 1:
            steps = np.arange(size) * stride
            positions = positions + steps.reshape(-1, *[1] * (index.ndim - 1 - d))
    return positions


def _indexed_positions(shape: tuple[int, ...], indices: tuple[Any, ...]) -> NDArray[np.intp]:
    """Return the flat positions that ``indices`` selects from a contiguous array of the given shape.

    Each coordinate is indexed as a broadcast view, so nothing of the size of the array is made.
    """
    total: Any = 0
    for dim, size in enumerate(shape):
        stride = math.prod(shape[dim + 1 :])
        coordinate = np.broadcast_to((np.arange(size) * stride).reshape(-1, *[1] * (len(shape) - 1 - dim)), shape)
        total = total + coordinate[indices]
    return np.asarray(total, np.intp)


def _source(name: str, src: Array, index: Array) -> Array:
    """Return the part of ``src`` that has an index."""
    if src.ndim != index.ndim or any(i > s for i, s in zip(index.shape, src.shape, strict=True)):
        raise ShapeError(f"{name}: src must be at least as large as index {index.shape}, got shape {src.shape}")
    return src[tuple(slice(size) for size in index.shape)]


def _normal_dim(name: str, dim: int, ndim: int) -> int:
    """Return ``dim`` counted from the front; a number counts as an array with one dimension."""
    if not -max(ndim, 1) <= dim < max(ndim, 1):
        raise IndexError(f"{name}: dimension {dim} is out of range for an array with {ndim} dimensions")
    return dim % max(ndim, 1)


def _reducer(name: str, reduce: Reduction, dtype: np.dtype[Any]) -> np.ufunc:
    ufuncs = {"sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}
    if reduce not in ufuncs:
        raise ValueError(f"{name}: reduce must be one of {', '.join(map(repr, ufuncs))}, got {reduce!r}")
    if reduce in ("amax", "amin") and dtype.kind == "c":
        raise DTypeError(f"{name}: complex numbers have no {reduce}, got {dtype}")
    return ufuncs[reduce]


def identity(reduce: Reduction, dtype: np.dtype[Any]) -> Any:
    """Return the number that changes nothing in a reduction."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if dtype.kind == "b":
        return reduce == "amin"
    if dtype.kind == "f":
        return -np.inf if reduce == "amax" else np.inf
    return np.iinfo(dtype).min if reduce == "amax" else np.iinfo(dtype).max


def _divide(total: Array, counts: NDArray[np.intp]) -> None:
    """Turn sums into means, in place; means of integers are rounded down."""
    if total.dtype.kind in "iu":
        total[...] = total // counts
    else:
        total /= counts.astype(total.real.dtype)

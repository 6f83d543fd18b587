"""Sorting of arrays by native kernels, each called like the operator of its name.

What they give is what NumPy's stable sort gives; a NaN counts as larger than every number. They give NotImplemented where
NumPy should do the work: for dtypes without kernels, and while a kernel is being made.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wengert.codegen import searching, selecting, sorting
from wengert.core.native import native
from wengert.runtime.calls import Kernels, dtype_name, kernels, or_numpy, slots
from wengert.runtime.eager import kernel
from wengert.runtime.pool import empty
from wengert.runtime.recording import ascontiguous, current
from wengert.runtime.threads import get_num_threads

__all__ = ["argsort", "kthvalue", "searchsorted", "sort", "topk", "unique"]

Array = NDArray[Any]

LARGEST: Final = 1 << 31  # a place takes half of a record of 8 bytes
LONG: Final = 150_000  # a row this long is sorted by all threads together
FEW: Final = 48  # so small a k is found by keeping candidates in one walk over a row
SEARCHES: Final = 4096  # values that a task searches
SHARES: Final = 4  # how many tasks to make for each thread


def _rows(x: Array, dim: int) -> Array:
    """Return an array as contiguous rows along ``dim``, two-dimensional."""
    moved = x if dim in (-1, x.ndim - 1) else np.moveaxis(x, dim, -1)
    return ascontiguous(moved).reshape(-1, moved.shape[-1])


def _back(rows: Array, shape: tuple[int, ...], dim: int) -> Array:
    """Return rows as an array whose ``dim`` they run along; ``shape`` is that of the input of :func:`_rows`."""
    dim %= len(shape)
    moved = rows.reshape(*shape[:dim], *shape[dim + 1 :], rows.shape[-1])
    return moved if dim == len(shape) - 1 else ascontiguous(np.moveaxis(moved, -1, dim))


def _sortable(x: Array) -> str | None:
    """Return what kernels call the dtype of an array, if they should sort it."""
    return dtype_name(x.dtype) if x.ndim and 0 < x.size < LARGEST else None


def _worthwhile(x: Array) -> bool:
    """Return whether a kernel overtakes NumPy at so many elements."""
    return x.size >= max(native.smallest if current() is None else 1, 1)


def _tasks(rows: int) -> int:
    return min(rows, SHARES * get_num_threads())


# ---- whole rows


def _sorted_rows(rows: Array, dtype: str, descending: bool, want: bool) -> tuple[Array, Array]:
    """Return the sorted values (if wanted) and the places they came from."""
    places = empty(rows.shape, np.int64)
    values = empty(rows.shape, rows.dtype) if want else rows
    count, size = rows.shape
    if size >= LONG and current() is None:
        found = kernels("fill count part finish", sorting.sort_long, dtype, descending, want)
        for row in range(count):
            _sort_long(found, dtype, rows[row], places[row], values[row])
        return values, places
    found = kernels("sort_rows", sorting.sort_rows, dtype, descending, want)
    tasks = _tasks(count)
    scratch = empty(2 * tasks * size * sorting.record_bytes(dtype), np.uint8)
    found.run("sort_rows", slots(rows, rows.strides[0], places, values, scratch, count, size, tasks), tasks)
    return values, places


def _sort_long(found: Kernels, dtype: str, row: Array, places: Array, values: Array) -> None:
    """Sort one row: part it into buckets, block by block, and sort the buckets.

    Records of 8 bytes are made where the places will be.
    """
    size, width = len(row), sorting.record_bytes(dtype)
    records = places if width == 8 else empty(size * width, np.uint8)
    parted = empty(size * width, np.uint8)
    length = -(-size // (SHARES * get_num_threads()))
    blocks = -(-size // length)
    tables, words = empty((blocks, sorting.BUCKETS), np.int64), empty(blocks, np.uint64)
    arguments = slots(row, places, values, records, parted, size, length, tables, words, 0)
    found.run("fill", arguments, blocks)
    differing = int(np.bitwise_or.reduce(words)).bit_length()
    arguments[len(arguments) - 1] = max(differing - sorting.LEADING, 0)
    found.run("count", arguments, blocks)
    sizes = tables.T.reshape(-1)
    tables[...] = (np.cumsum(sizes) - sizes).reshape(sorting.BUCKETS, blocks).T
    found.run("part", arguments, blocks)
    found.run("finish", arguments, sorting.BUCKETS, 4)


@kernel("sort")
@or_numpy
def sort(input: Array, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Any:
    """Return (values, indices): the stable order along ``dim``."""
    dtype = _sortable(input)
    if dtype is None:
        return NotImplemented
    values, places = _sorted_rows(_rows(input, dim), dtype, bool(descending), True)
    return _back(values, input.shape, dim), _back(places, input.shape, dim)


@kernel("argsort")
@or_numpy
def argsort(input: Array, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Any:
    """Return the indices of the stable order along ``dim``."""
    dtype = _sortable(input)
    if dtype is None:
        return NotImplemented
    return _back(_sorted_rows(_rows(input, dim), dtype, bool(descending), False)[1], input.shape, dim)


# ---- the first k


@kernel("topk")
@or_numpy
def topk(input: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Return (values, indices): the first ``k`` of the stable order along ``dim``, a descending one if ``largest``.

    So of equal elements at the border those that come first are taken.
    """
    dtype = _sortable(input)
    if dtype is None or not 0 < k <= input.shape[dim]:
        return NotImplemented
    values, places = _first(_rows(input, dim), dtype, k, bool(largest))
    return _back(values, input.shape, dim), _back(places, input.shape, dim)


def _first(rows: Array, dtype: str, k: int, descending: bool) -> tuple[Array, Array]:
    size = rows.shape[1]
    if 2 * k > size:
        values, places = _sorted_rows(rows, dtype, descending, True)
        return ascontiguous(values[:, :k]), ascontiguous(places[:, :k])
    if k <= FEW:
        found = kernels("choose_rows", selecting.choose_rows, dtype, descending)
        return _chosen(found, "choose_rows", rows, dtype, k, 2 * k + 16, k)
    found = kernels("part_rows", selecting.part_rows, dtype, descending, False)
    return _chosen(found, "part_rows", rows, dtype, k, size + 1, k)


def _chosen(found: Kernels, name: str, rows: Array, dtype: str, k: int, room: int, wanted: int) -> tuple[Array, Array]:
    """Return values and places of ``wanted`` elements of each row; scratch has ``room`` records, twice for each task."""
    count, size = rows.shape
    places, values, tasks = empty((count, wanted), np.int64), empty((count, wanted), rows.dtype), _tasks(count)
    scratch = empty(2 * tasks * room * sorting.record_bytes(dtype), np.uint8)
    arguments = slots(rows, rows.strides[0], places, values, scratch, count, size, tasks, k, room)
    found.run(name, arguments, tasks)
    return values, places


@kernel("kthvalue")
@or_numpy
def kthvalue(input: Array, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """Return (values, indices): the ``k``-th of the stable order along ``dim``, counted from 1."""
    dtype = _sortable(input)
    if dtype is None or not 0 < k <= input.shape[dim]:
        return NotImplemented
    rows = _rows(input, dim)
    kernel = kernels("part_rows", selecting.part_rows, dtype, False, True)
    found = (_back(a, input.shape, dim) for a in _chosen(kernel, "part_rows", rows, dtype, k, rows.shape[1] + 1, 1))
    return tuple(a if keepdim else a.squeeze(dim) for a in found)


# ---- sorted rows


@or_numpy
def unique(input: Array) -> Any:
    """Return (values, inverse, counts): the distinct elements in order, of each element the place of its value, how often.

    A NaN equals nothing, not even a NaN. ``inverse`` has the shape of ``input``.
    """
    dtype = _sortable(input)
    if dtype is None or not _worthwhile(input):
        return NotImplemented
    found = kernels("runs", searching.runs, dtype)
    values, places = _sorted_rows(np.ascontiguousarray(input).reshape(1, -1), dtype, False, True)
    distinct, starts = empty(input.size, input.dtype), empty(input.size, np.int64)
    inverse, answer = empty(input.shape, np.int64), np.empty(1, np.int64)
    found.run("runs", slots(values, places, distinct, starts, inverse, input.size, answer), 1)
    number = int(answer[0])
    return distinct[:number].copy(), inverse, np.diff(starts[:number], append=input.size)


@kernel("searchsorted")
@or_numpy
def searchsorted(
    sorted_sequence: Array, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Any = None,
) -> Any:  # fmt: skip
    """Return how many elements of a sorted row come before each value (``right`` or side "right": or equal it).

    Args:
        sorted_sequence: one row for all values, or a row, in the last dimension, for each row of values.
        input: the values, an array of the dtype of ``sorted_sequence``.
    """
    sequence, dtype = sorted_sequence, dtype_name(sorted_sequence.dtype)
    known = isinstance(input, np.ndarray) and input.dtype == sequence.dtype and _worthwhile(input)
    if dtype is None or not known or sorter is not None or side not in (None, "left", "right"):
        return NotImplemented
    if (sequence.ndim != 1 and sequence.shape[:-1] != input.shape[:-1]) or (side == "left" and right):
        return NotImplemented
    if sequence.shape[-1] == 0:
        return NotImplemented
    found = kernels("search", searching.search, dtype, bool(right) or side == "right")
    places = empty(input.shape, np.int64)
    count = input.size if sequence.ndim == 1 else input.shape[-1]
    parts = -(-count // SEARCHES)
    rows, values = ascontiguous(sequence), ascontiguous(input)
    arguments = slots(rows, sequence.shape[-1], values, count, places, SEARCHES, parts)
    found.run("search", arguments, input.size // count * parts)
    return ascontiguous(places, np.int32) if out_int32 else places

"""Rows of a table that sparse gradients change, by native kernels, where the table lies.

Called by an optimiser, they write into the table that they are given. In a program they give a new table, which a plan may let
lie where the old one was; that is copied first where it does not.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wengert.codegen import scattering
from wengert.operators.gather import check_bounds
from wengert.runtime.calls import dtype_name, kernels, or_numpy, slots
from wengert.runtime.checking import known_inside
from wengert.runtime.eager import kernel
from wengert.runtime.launch import pointer
from wengert.runtime.pool import empty
from wengert.runtime.recording import assign, current
from wengert.runtime.scattering import GRAIN, columns_of_parts, inside

__all__ = ["distinct_rows", "increase_rows", "put_rows"]

Array = NDArray[Any]

MOST: Final = 1 << 27  # rows of a table for which there may be a number each


@kernel("increase_rows")
@or_numpy
def increase_rows(table: Array, rows: Array, source: Array, factor: Array) -> Any:
    """Add ``factor`` times the rows of ``source`` to those of a table at some positions."""
    return _combined("sum", table, rows, source, factor)


@kernel("put_rows")
@or_numpy
def put_rows(table: Array, rows: Array, source: Array) -> Any:
    """Write the rows of ``source`` into a table at some positions."""
    return _combined("set", table, rows, source)


def _combined(reduce: str, table: Array, rows: Array, source: Array, *factor: Array) -> Any:
    fit = rows.dtype == np.int64 and table.dtype in (np.float32, np.float64) and table.ndim == 2
    if not fit or any(a.dtype != table.dtype for a in (source, *factor)):
        return NotImplemented
    if not all(a.flags.c_contiguous for a in (table, rows, source)):
        return NotImplemented
    size, columns = table.shape
    if current() is not None and inside(rows, size, lambda: check_bounds(f"{reduce} rows", rows, 0, size)) is None:
        return NotImplemented
    found = kernels("combine_rows", scattering.combine_rows, reduce, dtype_name(table.dtype), bool(factor))
    out = table if current() is None else _over(table)
    if not source.size:
        return out
    parts, share = columns_of_parts(columns, table.itemsize)
    arguments = slots(out, rows, source, size, rows.size, columns, share, parts, *factor)
    found.run("combine_rows", arguments, parts, max(GRAIN // (rows.size * share), 1))
    return out


def _over(table: Array) -> Array:
    """Return memory for another table, which holds the first one."""
    out = empty(table.shape, table.dtype)
    if pointer(out) != pointer(table):
        assign(out, table)
    return out


@kernel("distinct_rows")
@or_numpy
def distinct_rows(index: Array, count: int) -> Any:
    """Return which rows of a table of ``count`` an index names, and which of these each of its elements is."""
    if not index.size or count > MOST or index.dtype != np.int64 or not index.flags.c_contiguous:
        return NotImplemented
    if inside(index, count, lambda: check_bounds("distinct rows", index, 0, count)) is None:
        return NotImplemented
    found = kernels("distinct_rows", scattering.distinct_rows)
    places, groups, numbers = (
        empty(n, d) for n, d in ((index.size, np.int64), (index.size, np.int64), (count, np.int32))
    )
    found.run("distinct_rows", slots(index, index.size, numbers, places, groups), 1, 1)
    known_inside(places, count)
    return places, groups

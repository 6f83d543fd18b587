"""Rows of a table whose gradient is sparse: as many rows as were looked up, in COO, however large the table is."""

import math
from typing import Any

import numpy as np

from wengert.core.arguments import Anything
from wengert.core.interpret import has_history
from wengert.core.native import native
from wengert.core.operator import Op, Spec
from wengert.core.registry import operators, ops
from wengert.core.state import thread
from wengert.core.tensor import alias, from_array, raw
from wengert.kernels import scatter
from wengert.sparse.convert import coalesce
from wengert.sparse.pattern import Coo
from wengert.sparse.payload import apply, is_sparse, made

__all__ = ["add_into", "distinct", "looked_up", "put_into", "rows_of"]


class Lookup:
    """Which rows are read, and which of them count in the gradient (None: all)."""

    __slots__ = ("index", "kept", "pattern")

    def __init__(self, index: Any, shape: tuple[int, ...], padding: int | None) -> None:
        flat = index.astype(np.int64).reshape(-1)
        self.index, self.kept = index, None if padding is None else np.flatnonzero(flat != padding)
        self.pattern = Coo((flat if self.kept is None else flat[self.kept])[np.newaxis], shape)


def _rows(weight: Anything, lookup: Any) -> Any:
    """Return the rows of a table."""
    return ops.take_rows(alias(weight), from_array(lookup.index))


def _gradient(g: Any, lookup: Any) -> Any:
    shape = (lookup.index.size, *lookup.pattern.dense_shape)
    rows = g if g._payload.shape == shape else ops.reshape(g, shape)
    return made(rows if lookup.kept is None else ops.take_rows(rows, from_array(lookup.kept)), lookup.pattern)


LOOKUP = Op(
    _rows, "operator", name="embedding", vjp={"weight": _gradient}, jvp={}, batch="refuse", samples=(), home=(),
    spec=lambda weight, lookup: Spec((*lookup.index.shape, *weight.shape[1:]), weight.dtype),
)  # fmt: skip


def looked_up(weight: Any, index: Any, padding: int | None) -> Any:
    """Return the rows of a table at ``index``; the gradient of the table is a COO tensor of them, without ``padding``."""
    if not thread.state.grad or not has_history(weight):
        return ops.take_rows(weight, index)
    return apply(LOOKUP, weight, Lookup(raw(index, "embedding(sparse=True)"), tuple(weight.shape), padding))


looked_up.op = LOOKUP  # type: ignore[attr-defined] # what says that it is not public
setattr(ops, "looked_up", looked_up)  # noqa: B010 - the operators before this room reach it by name


# ---- what optimisers do with such gradients, outside the tape


def distinct(grad: Any) -> tuple[Any, Any]:
    """Return the rows of a gradient, each once: where they are, and the array of them, as those of a matrix."""
    found = coalesce(grad.detach())._payload
    pattern = found.pattern.coo
    return pattern.keys, found.entries._payload.reshape(pattern.count, math.prod(pattern.dense_shape))


def rows_of(array: Any, keys: Any) -> Any:
    """Return rows of an array, seen as a matrix whose rows stand at ``keys``."""
    if keys.size * array.shape[1] >= native.smallest:
        found = native.run(operators()["take_rows"], (array, keys, None, False))
        if found is not NotImplemented:
            return found
    return array[keys]


def put_into(table: Any, keys: Any, rows: Any) -> None:
    """Write rows into the memory of a matrix, each at another place."""
    if rows.size < native.smallest or native.run(PUT_INTO, (table, keys, rows)) is NotImplemented:
        table[keys] = rows


def add_into(dense: Any, added: Any, factor: float) -> None:
    """Add ``factor`` times a tensor, sparse or dense, into the memory of a dense one."""
    array = raw(dense, "a step with a sparse gradient")
    if not is_sparse(added):
        array += raw(added) * array.dtype.type(factor)
        return
    pattern, values = added._payload.pattern, added._payload.entries._payload
    if not values.size:
        return
    table = np.ascontiguousarray(array).reshape(pattern.places, -1)
    arguments = table, pattern.coo.keys, values.reshape(pattern.count, -1), factor
    if array.dtype.itemsize == 2:
        thread.state.run(_add_halves, table, *distinct(added), factor)
    elif values.size < native.smallest or native.run(ADD_INTO, arguments) is NotImplemented:
        thread.state.run(_add_into, *arguments)
    if not np.may_share_memory(table, array):
        array[...] = table.reshape(array.shape)


def _add_into(table: Any, rows: Any, source: Any, factor: Any) -> None:
    """Add rows into a table."""
    scatter.accumulate_rows(np.add, table, rows, np.multiply(source, factor, dtype=source.dtype))


def _add_halves(table: Any, rows: Any, source: Any, factor: Any) -> None:
    """Add rows, each to another place, in float32."""
    table[rows] = table[rows].astype(np.float32) + source.astype(np.float32) * np.float32(factor)


def _put_into(table: Any, rows: Any, source: Any) -> None:
    """Write rows into a table."""
    table[rows] = source


def _writer(kernel: Any, name: str) -> Op:
    """Return the name under which native code has a kernel that writes into a table."""
    return Op(kernel, "nondifferentiable", name=name, spec=lambda *given: given[0], batch="refuse", samples=(), home=())


ADD_INTO, PUT_INTO = _writer(_add_into, "add_into"), _writer(_put_into, "put_into")

"""Rows of a table whose gradient is sparse: as many rows as were looked up, in COO, however large the table is."""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import int64
from wengert.core.arguments import Anything
from wengert.core.inplace import adopt
from wengert.core.interpret import has_history
from wengert.core.native import native
from wengert.core.operator import Op, Spec
from wengert.core.registry import operators, ops
from wengert.core.state import thread
from wengert.core.tensor import alias, from_array, raw
from wengert.kernels import scatter
from wengert.sparse.captured import LookedUp, index_of
from wengert.sparse.convert import coalesce
from wengert.sparse.pattern import Coo, grouped
from wengert.sparse.payload import apply, is_sparse, made

__all__ = ["CapturedRows", "add_into", "distinct", "increase", "looked_up", "put_into", "rows_of"]


class Lookup:
    """Which rows are read, and which of them count in the gradient (None: all)."""

    __slots__ = ("index", "kept", "pattern")

    def __init__(self, index: Any, shape: tuple[int, ...], padding: int | None) -> None:
        flat = index.astype(np.int64).reshape(-1)
        self.kept = None if padding is None else from_array(np.flatnonzero(flat != padding))
        self.index = from_array(index)
        self.pattern: Any = Coo((flat if padding is None else flat[flat != padding])[np.newaxis], shape)


class CapturedLookup:
    """A lookup in a program that is captured."""

    __slots__ = ("index", "kept", "pattern")

    def __init__(self, index: Any, shape: tuple[int, ...], padding: int | None) -> None:
        if padding is not None:
            thread.state.captures.refuse(
                "padding_idx of a sparse embedding, which decides how many rows a gradient has,"
            )
        self.index, self.kept = alias(index), None
        flat = ops.reshape(ops.cast(index, int64), (-1,))
        self.pattern = LookedUp(ops.bounded_index(flat, shape[0], "embedding", 0), shape)


def _rows(weight: Anything, lookup: Any) -> Any:
    """Return the rows of a table."""
    return ops.take_rows(alias(weight), lookup.index)


def _gradient(g: Any, lookup: Any) -> Any:
    shape = (lookup.index.numel(), *lookup.pattern.dense_shape)
    rows = g if g._payload.shape == shape else ops.reshape(g, shape)
    return made(rows if lookup.kept is None else ops.take_rows(rows, lookup.kept), lookup.pattern)


LOOKUP = Op(
    _rows, "operator", name="embedding", vjp={"weight": _gradient}, jvp={}, batch="refuse", samples=(), home=(),
    spec=lambda weight, lookup: Spec((*lookup.index.shape, *weight.shape[1:]), weight.dtype),
)  # fmt: skip


def looked_up(weight: Any, index: Any, padding: int | None) -> Any:
    """Return the rows of a table at ``index``; the gradient of the table is a COO tensor of them, without ``padding``."""
    if not thread.state.grad or not has_history(weight):
        return ops.take_rows(weight, index)
    shape, captures = tuple(weight.shape), thread.state.captures
    if captures is None:
        return apply(LOOKUP, weight, Lookup(raw(index, "embedding(sparse=True)"), shape, padding))
    captures.lift_all((weight,))
    return apply(LOOKUP, weight, CapturedLookup(index, shape, padding), captured=True)


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
    if rows.size < native.smallest or native.run(PUT_ROWS, (table, keys, rows)) is NotImplemented:
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
    arguments = table, pattern.coo.keys, values.reshape(pattern.count, -1), np.asarray(factor, array.dtype)
    if values.size < native.smallest or native.run(INCREASE_ROWS, arguments) is NotImplemented:
        thread.state.run(_increase, *arguments)
    if not np.may_share_memory(table, array):
        array[...] = table.reshape(array.shape)


# ---- the same in a program that is captured


class CapturedRows:
    """The distinct rows of a sparse gradient in a program: as many as it has entries, the first of which may be others again.

    Attributes:
        places: where they are, (count,). values: the gradient of each, (count, columns).
    """

    def __init__(self, grad: Any) -> None:
        pattern = grad._payload.pattern
        self.places, groups = thread.state.captures.run(DISTINCT_ROWS, [pattern.index, pattern.shape[0]])
        self.values = ops.add_rows(grad._payload.entries, groups, pattern.count)

    def of(self, tensor: Any) -> Any:
        """Return these rows of a tensor."""
        return ops.take_rows(tensor.detach(), self.places)

    def put(self, name: str, tensor: Any, rows: Any) -> None:
        """Write them into a tensor, for what ``name`` says."""
        (written,) = thread.state.captures.run(PUT_ROWS, [tensor.detach(), self.places, rows])
        adopt(name, tensor, written)


def increase(name: str, tensor: Any, grad: Any, factor: Any) -> None:
    """Enter in a program that ``factor``, a tensor, times a sparse gradient is added to a tensor."""
    given = [tensor.detach(), index_of(grad), grad._payload.entries, factor]
    (written,) = thread.state.captures.run(INCREASE_ROWS, given)
    adopt(name, tensor, written)


# ---- operators of programs alone. Each gives another table, which native code may compute where the first one lies.


def _distinct_rows(index: Anything, count: int) -> tuple[Any, Any]:
    """Return which rows an index names, as many as it has elements, the last ones distinct, and which of these each is."""
    keys, groups = grouped(index, count)
    first = index.size - keys.size
    return np.concatenate([np.repeat(keys[-1:], first), keys]), groups + first


def _put_rows(table: Anything, rows: Anything, source: Anything) -> Any:
    """Return a table with rows written into it; of those that meet the last one stays."""
    found = np.array(table)
    found[rows] = source
    return found


def _increase_rows(table: Anything, rows: Anything, source: Anything, factor: Anything) -> Any:
    """Return a table with ``factor`` times rows added to it."""
    found = np.array(table)
    _increase(found, rows, source, factor)
    return found


def _increase(table: Any, rows: Any, source: Any, factor: Any) -> None:
    """Add ``factor`` times rows into a table: those of halves in float32."""
    if table.dtype.itemsize > 2:
        scatter.accumulate_rows(np.add, table, rows, np.multiply(source, factor, dtype=source.dtype))
        return
    keys, groups = grouped(rows, table.shape[0])
    total = np.zeros((keys.size, *table.shape[1:]), np.float32)
    scatter.accumulate_rows(np.add, total, groups, source.astype(np.float32))
    table[keys] = table[keys].astype(np.float32) + total * np.float32(factor)


def _of_rows(kernel: Any, name: str, spec: Any, outputs: Any = ("out",)) -> Op:
    return Op(kernel, "nondifferentiable", name=name, spec=spec, outputs=outputs, batch="refuse", samples=(), home=())


def _spec_of_table(*given: Any) -> Any:
    return given[0]


DISTINCT_ROWS = _of_rows(_distinct_rows, "distinct_rows", lambda index, count: (index, index), ("places", "groups"))
PUT_ROWS = _of_rows(_put_rows, "put_rows", _spec_of_table)
INCREASE_ROWS = _of_rows(_increase_rows, "increase_rows", _spec_of_table)

"""Attention of large arrays by blocks of queries and keys; see :mod:`wengert.operators.fused_attention`.

The kernels are called like the operators of their names, and give NotImplemented where NumPy should do the work.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wengert.loops.attention import QUERIES, attention, attention_backward
from wengert.loops.rows import arithmetic
from wengert.runtime.calls import dtype_name, or_numpy
from wengert.runtime.eager import kernel
from wengert.runtime.launch import Launcher, number_bits, pointer
from wengert.runtime.pool import empty
from wengert.runtime.recording import ascontiguous, assign, cast, reshaped
from wengert.runtime.rows import launcher, vector

__all__ = ["fused_attention", "fused_attention_backward"]

Array = NDArray[Any]

ROOMS: Final = (64, 128, 256)  # elements of a query or value; a block of them lies on the stack of a thread
TILE: Final = 2  # vectors of a row of a tile of sums
DTYPES: Final = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


class _Heads(NamedTuple):
    """The sizes of arrays of matrices, seen as (batch, heads, rows, columns), in the order in which kernels take them."""

    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    values: int

    def matrices(self, array: Array, dtype: Any) -> Array:
        """Return an array whose last dimension is neighbours in memory; a copy, if it is needed, is pooled."""
        rows = array.shape[-2:]
        seen = reshaped(cast(array, dtype), self.batch, self.heads, *rows)
        if seen.strides[-1] == seen.itemsize and seen.flags.aligned:
            return seen
        copy = empty(seen.shape, dtype)
        assign(copy, seen)
        return copy

    def numbers(self, array: Array) -> Array:
        """Return an array with a float64 per query."""
        return ascontiguous(array, np.float64).reshape(self.batch, self.heads, self.queries)

    def mask(self, mask: Array, lead: Sequence[int], dtype: Any) -> Array:
        """Return a mask as numbers, keys × queries, neighbours in memory; what it is broadcast along has one element."""
        own = [*(1,) * (len(lead) + 2 - mask.ndim), *mask.shape][:-2]
        if any(n != 1 for n in own[:-1]):
            own[:-1] = lead[:-1]
        turned = np.swapaxes(np.broadcast_to(mask, (*own, self.queries, self.keys)), -1, -2)
        full = empty(turned.shape, dtype)
        if mask.dtype.kind == "b":
            full.fill(-np.inf)
            np.copyto(full, 0, where=turned)
        else:
            assign(full, turned)
        flat = full.reshape(math.prod(own[:-1]), own[-1] if own else 1, self.keys, self.queries)
        return np.broadcast_to(flat, (self.batch, self.heads, self.keys, self.queries))

    def run(self, kernel: Launcher, arrays: Sequence[Array], scale: float, count: int) -> None:
        """Run a kernel on arrays as the methods above return them."""
        slots: list[int] = []
        for array in arrays:
            slots += pointer(array), *array.strides[:-1]
        kernel([*slots, *self, number_bits(scale, "f64")], count, 1)


def _heads(query: Array, value: Array) -> _Heads:
    *lead, rows, width = query.shape
    return _Heads(math.prod(lead[:-1]), lead[-1] if lead else 1, rows, value.shape[-2], width, value.shape[-1])


def _choices(query: Array, value: Array, is_causal: bool, mask: Array | None) -> tuple[Any, ...] | None:
    """Return what kernels are shaped by, or None where there is none."""
    name, widest = dtype_name(query.dtype), max(query.shape[-1], value.shape[-1])
    if name is None or not query.size or not value.size or widest > ROOMS[-1]:
        return None
    if mask is not None and dtype_name(mask.dtype) is None:
        return None
    dtype = arithmetic(name)
    room = next(r for r in ROOMS if widest <= r)
    return dtype, room, bool(is_causal), mask is not None, TILE * vector(dtype)


@kernel("fused_attention")
@or_numpy
def fused_attention(
    query: Array, key: Array, value: Array, mask: Array | None = None, scale: float = 1.0, is_causal: bool = False
) -> Any:
    """Return (softmax(scale · Q Kᵀ + mask) V, lse)."""
    choices = _choices(query, value, is_causal, mask)
    if choices is None:
        return NotImplemented
    run, heads, dtype = launcher(attention, *choices), _heads(query, value), DTYPES[choices[0]]
    out, lse = empty((*query.shape[:-1], value.shape[-1]), dtype), empty(query.shape[:-1], np.float64)
    given = [heads.matrices(a, dtype) for a in (query, key, value)]
    if mask is not None:
        given.append(heads.mask(mask, query.shape[:-2], dtype))
    blocks = heads.batch * heads.heads * -(-heads.queries // QUERIES)
    heads.run(run, [*given, heads.matrices(out, dtype), heads.numbers(lse)], scale, blocks)
    return cast(out, query.dtype), lse


@kernel("fused_attention_backward")
@or_numpy
def fused_attention_backward(
    g: Array, g_lse: Array, query: Array, key: Array, value: Array, out: Array, lse: Array, mask: Array | None = None,
    scale: float = 1.0, is_causal: bool = False,
) -> Any:  # fmt: skip
    """Return the cotangents of query, key and value."""
    choices = _choices(query, value, is_causal, mask)
    if choices is None:
        return NotImplemented
    run, heads, dtype = launcher(attention_backward, *choices), _heads(query, value), DTYPES[choices[0]]
    found = [empty(a.shape, dtype) for a in (query, key, value)]
    given = [heads.matrices(a, dtype) for a in (query, key, value)]
    if mask is not None:
        given.append(heads.mask(mask, query.shape[:-2], dtype))
    given += [*(heads.matrices(a, dtype) for a in (g, out)), *(heads.numbers(a) for a in (lse, g_lse))]
    results = [heads.matrices(a, dtype) for a in found]
    heads.run(run, [*given, *results], scale, heads.batch * heads.heads)
    return tuple(cast(a, query.dtype) for a in found)

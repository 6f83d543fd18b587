"""Attention without the matrix of scores: blocks of queries meet blocks of keys, and the softmax is kept up as they come.

The scores of a block lie with queries as neighbours (keys × queries): a product with a tile of sums in registers makes
them, the maximum and the sum over keys need no step across a vector, and as the left operand of the product with the
values they are read an element at a time anyway. Backward, they are computed again from the logarithm of their sums.

M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax" (2018); T. Dao et al., "FlashAttention" (2022).
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from wengert.loops.ir import Buffer, Fold, Kernel, Let, Loop, Param, Stage, Statement, Store, Update, bound, load, size
from wengert.loops.rows import Reduction
from wengert.loops.scalar import Scalar, cast, const, index, make, param, select, var

__all__ = ["KEYS", "QUERIES", "attention"]

ROWS: Final = 6  # rows of a tile of sums; with two vectors in each, twelve registers of sixteen
QUERIES: Final = 48  # of a block
KEYS: Final = 96  # of a block

SIZES: Final = ("batch", "heads", "queries", "keys")


def call(name: str, *args: Scalar) -> Scalar:
    """Return a function of scalars."""
    return make(name, args)


def least(a: Scalar, b: Scalar | int) -> Scalar:
    """Return the smaller of two integers."""
    return call("minimum", a, b if isinstance(b, Scalar) else const(b, "i64"))


def tile(variable: str, stop: Scalar, left: Sequence[Scalar], right: Scalar, name: str) -> tuple[Loop, list[Scalar]]:
    """Return the loop for the sums over a variable of left[r]·right, and the sums."""
    folds = [Fold(f"{name}{r}", right.dtype, "sum") for r in range(len(left))]
    updates = tuple(Update(f.name, (x * right,)) for f, x in zip(folds, left, strict=True))
    return Loop(variable, bound(0), stop, updates, tuple(folds)), [f.results[0] for f in folds]


class Attention:
    """The parts that the kernels are made of.

    Attributes:
        dtype: of all arrays but lse. width, values: the sizes of a query or key, and of a value. lanes: of a tile.
    """

    def __init__(self, dtype: str, width: int, values: int, causal: bool, masked: bool, lanes: int) -> None:
        self.dtype, self.width, self.values, self.lanes = dtype, width, values, lanes
        self.causal, self.masked = causal, masked
        self.buffers: list[Buffer] = []

    def array(self, name: str, rows: str, columns: str | int, dtype: str = "", role: str = "in") -> Buffer:
        """Add an array of matrices, whose last dimension lies in memory as neighbours."""
        dims = ("batch", "heads", rows, columns)
        self.buffers.append(Buffer(name, dtype or self.dtype, dims, (None, None, None, 1), role))
        return self.buffers[-1]

    def zero(self) -> Scalar:
        """Return 0."""
        return const(0, self.dtype)

    def number(self, value: float) -> Scalar:
        """Return a number."""
        return const(value, self.dtype)


def attention(dtype: str, width: int, values: int, causal: bool, masked: bool, lanes: int) -> Kernel:
    """(query, key, value, mask as keys × queries, if there is one) → (out, lse)."""
    a = Attention(dtype, width, values, causal, masked, lanes)
    q, k = a.array("query", "queries", width), a.array("key", "keys", width)
    v = a.array("value", "keys", values)
    mask = a.array("mask", "keys", "queries") if masked else None
    a.array("result", "queries", values, role="out")
    a.buffers.append(Buffer("lse", "f64", ("batch", "heads", "queries"), (None, None, 1), "out"))
    stages = (
        Stage("turned", dtype, const(width * QUERIES, "i64")), Stage("scores", dtype, const(KEYS * QUERIES, "i64")),
        *(Stage(n, dtype, const(QUERIES, "i64")) for n in ("top", "before", "total", "factor")),
    )  # fmt: skip
    first, block = index("first"), index("block")
    at = index("b"), index("h")
    count, seen = least(size("queries") - first, QUERIES), size("keys")
    if causal:
        seen = least(seen, first + count)
    here = least(seen - block, KEYS)
    i, j, e = index("i"), index("j"), index("e")

    def st(name: str, place: Scalar | None = None) -> Scalar:
        stage = next(s for s in stages if s.name == name)
        return load(stage, i if place is None else place)

    # ---- prepare
    pack = Loop("i", bound(0), count, (
        Loop("e", bound(0), bound(width), (
            Store("turned", (e * QUERIES + i,), load(q, *at, first + i, e) * cast(param("scale", "f64"), dtype)),)),
        Loop("e", bound(0), bound(values), (Store("result", (*at, first + i, e), a.zero()),), lanes=lanes),
        Store("top", (i,), a.number(-math.inf)), Store("total", (i,), a.zero()),
    ))  # fmt: skip

    # ---- scores
    rows = [least(block + j + r, seen - 1) for r in range(ROWS)]
    product, sums = tile("e", bound(width), [load(k, *at, row, e) for row in rows], st("turned", e * QUERIES + i), "s")
    scores: list[Scalar] = []
    for r, s in enumerate(sums):
        if mask is not None:
            s = s + load(mask, *at, rows[r], first + i)
        inside = (j + r).lt(here)
        if causal:
            inside = inside & (block + j + r).le(first + i)
        scores.append(select(inside, s, a.number(-math.inf)))
    top = st("top")
    for s in scores:
        top = select(s.gt(top), s, top)
    strip = (
        product,
        *(Store("scores", ((j + r) * QUERIES + i,), s) for r, s in enumerate(scores)),
        Store("top", (i,), top),
    )
    make_scores = Loop("j", bound(0), here, (Loop("i", bound(0), count, strip, lanes=lanes),), step=ROWS)

    # ---- weights
    keep = Loop("i", bound(0), count, (Store("before", (i,), st("top")),), lanes=lanes)
    safe = select(st("top").eq(-math.inf), a.zero(), st("top"))
    weight = call("exp", st("scores", j * QUERIES + i) - safe)
    total, p = Fold("sum", dtype, "sum"), var("p", dtype)
    factor = call("exp", st("before") - safe)
    weigh = Loop("i", bound(0), count, (
        Loop("j", bound(0), here, (Let("p", weight), Store("scores", (j * QUERIES + i,), p), Update("sum", (p,))), (total,), unroll=2),
        Store("factor", (i,), factor),
        Store("total", (i,), call("fma", st("total"), factor, total.results[0])),
    ), lanes=lanes)  # fmt: skip

    # ---- values
    places = [least(i + r, count - 1) for r in range(ROWS)]
    product, sums = tile(
        "j", here, [st("scores", j * QUERIES + i + r) for r in range(ROWS)], load(v, *at, block + j, e), "o"
    )
    stores = [
        Store("result", (*at, first + p, e),
              call("fma", load(next(b for b in a.buffers if b.name == "result"), *at, first + p, e), st("factor", p), s),
              guard=None if r == 0 else (i + r).lt(count))
        for r, (p, s) in enumerate(zip(places, sums, strict=True))
    ]  # fmt: skip
    add = Loop("i", bound(0), count, (Loop("e", bound(0), bound(values), (product, *stores), lanes=lanes),), step=ROWS)

    # ---- finish
    divisor = select(st("total").eq(0.0), const(1, dtype), st("total"))
    out = next(b for b in a.buffers if b.name == "result")
    finish = Loop("i", bound(0), count, (
        Loop("e", bound(0), bound(values), (
            Store("result", (*at, first + i, e), load(out, *at, first + i, e) / divisor),), lanes=lanes),
    ))  # fmt: skip
    logs = Loop("i", bound(0), count, (
        Store("lse", (*at, first + i), cast(st("top"), "f64") + cast(call("log", st("total")), "f64")),), lanes=lanes)  # fmt: skip
    blocks = Loop("block", bound(0), seen, (keep, make_scores, weigh, add), step=KEYS)
    body: tuple[Statement, ...] = (*stages, pack, blocks, finish, logs)
    for variable, limit, step in (("first", "queries", QUERIES), ("h", "heads", 1), ("b", "batch", 1)):
        body = (Loop(variable, bound(0), bound(limit), body, step=step, parallel=True),)
    return Kernel("attention", tuple(a.buffers), SIZES, body, (Param("scale", "f64"),))

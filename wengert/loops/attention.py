"""Attention without the matrix of scores: blocks of queries meet blocks of keys, and the softmax is kept up as they come.

The scores of a block lie with queries as neighbours (keys × queries): a product with a tile of sums in registers makes
them, the maximum and the sum over keys need no step across a vector, and as the left operand of the product with the
values they are read an element at a time anyway. Backward, they are computed again from the logarithm of their sums.

M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax" (2018); T. Dao et al., "FlashAttention" (2022).
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from wengert.loops.ir import Buffer, Fold, Kernel, Let, Loop, Param, Stage, Statement, Store, Update, bound, load, size
from wengert.loops.scalar import Scalar, cast, const, index, make, param, select, var

__all__ = ["KEYS", "QUERIES", "attention", "attention_backward"]

ROWS: Final = 6  # rows of a tile of sums; with two vectors in each, twelve registers of sixteen
QUERIES: Final = 48  # of a block
KEYS: Final = 96  # of a block

AT: Final = index("b"), index("h")
ROW, KEY, COLUMN, FIRST, BLOCK = (index(name) for name in ("i", "j", "e", "first", "block"))
SCALE: Final = Param("scale", "f64")


def exp(x: Scalar) -> Scalar:
    """Return the exponential."""
    return make("exp", (x,))


def fma(a: Scalar, b: Scalar, c: Scalar) -> Scalar:
    """Return a·b + c."""
    return make("fma", (a, b, c))


def least(a: Scalar, b: Scalar | int) -> Scalar:
    """Return the smaller of two integers."""
    return make("minimum", (a, b if isinstance(b, Scalar) else const(b, "i64")))


class Shape(NamedTuple):
    """What kernels are shaped by.

    Attributes:
        dtype: of all arrays but those of one number per query, which are float64. room: how many elements a query or a value
            may have. causal: query i sees the keys 0 to i. masked: a mask is added to the scores. lanes: of a tile.
    """

    dtype: str
    room: int
    causal: bool
    masked: bool
    lanes: int


class Blocks:
    """A block of queries and a block of keys, and what kernels do with them.

    Attributes:
        count: how many queries the block has. seen: the keys that any of them sees. here: how many keys the block has.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape, self.dtype, self.lanes = shape, shape.dtype, shape.lanes
        self.buffers: dict[str, Buffer] = {}
        self.stages: dict[str, Stage] = {}
        self.count = least(size("queries") - FIRST, QUERIES)
        self.seen = least(size("keys"), FIRST + self.count) if shape.causal else size("keys")
        self.here = least(self.seen - BLOCK, KEYS)

    # ---- memory

    def matrices(self, role: str = "in", **arrays: tuple[str, str]) -> None:
        """Add arrays of matrices: their rows and columns, which lie in memory as neighbours."""
        for name, dims in arrays.items():
            self.buffers[name] = Buffer(name, self.dtype, ("batch", "heads", *dims), (None, None, None, 1), role)

    def numbers(self, *names: str, role: str = "in") -> None:
        """Add float64 arrays with a number per query."""
        for name in names:
            self.buffers[name] = Buffer(name, "f64", ("batch", "heads", "queries"), (None, None, 1), role)

    def stage(self, **sizes: int) -> None:
        """Add memory of the block."""
        self.stages.update({name: Stage(name, self.dtype, const(n, "i64")) for name, n in sizes.items()})

    def number(self, value: float) -> Scalar:
        """Return a number."""
        return const(value, self.dtype)

    def scale(self) -> Scalar:
        """Return the factor of the scores."""
        return cast(param("scale", "f64"), self.dtype)

    def read(self, name: str, *place: Scalar) -> Scalar:
        """Return an element of memory of the block, or of a matrix of this batch and head."""
        stage = self.stages.get(name)
        return load(self.buffers[name], *AT, *place) if stage is None else load(stage, *place)

    def write(self, name: str, *place: Scalar, value: Scalar, guard: Scalar | None = None) -> Store:
        """Return the store of an element."""
        return Store(name, place if name in self.stages else (*AT, *place), value, guard)

    # ---- loops

    def queries(self, *body: Statement, lanes: int = 1, step: int = 1) -> Loop:
        """Return a loop over the queries of the block."""
        return Loop("i", bound(0), self.count, body, lanes=lanes, step=step)

    def columns(self, width: str, *body: Statement) -> Loop:
        """Return a loop over the columns of a matrix, in vectors."""
        return Loop("e", bound(0), bound(width), body, lanes=self.lanes)

    def turn(self, name: str, source: str, width: str, factor: Scalar | None = None) -> Loop:
        """Return the loop that lays rows of the block as columns."""
        value = self.read(source, FIRST + ROW, COLUMN)
        value = value if factor is None else value * factor
        return Loop("e", bound(0), bound(width), (self.write(name, COLUMN * QUERIES + ROW, value=value),))

    def sums(
        self, name: str, variable: str, stop: Scalar, left: Sequence[Scalar], right: Scalar
    ) -> tuple[Loop, list[Scalar]]:
        """Return the loop for the sums of left[r]·right over a variable, and the sums."""
        folds = [Fold(f"{name}{r}", self.dtype, "sum") for r in range(len(left))]
        updates = tuple(Update(f.name, (x * right,)) for f, x in zip(folds, left, strict=True))
        return Loop(variable, bound(0), stop, updates, tuple(folds)), [f.results[0] for f in folds]

    def keys_by_queries(
        self, name: str, source: str, turned: str, width: str, finish: Callable[[list[Scalar]], Sequence[Statement]]
    ) -> Loop:
        """Return the loops over tiles of source·turned (keys × queries); ``finish`` says what becomes of a tile's rows."""
        rows = [self.read(source, self.key(r), COLUMN) for r in range(ROWS)]
        product, sums = self.sums(name, "e", bound(width), rows, self.read(turned, COLUMN * QUERIES + ROW))
        tile = self.queries(product, *finish(sums), lanes=self.lanes)
        return Loop("j", bound(0), self.here, (tile,), step=ROWS)

    def key(self, row: int) -> Scalar:
        """Return the key of a row of a tile; the last one for rows behind it."""
        return least(BLOCK + KEY + row, self.seen - 1)

    def into_queries(self, name: str, weights: str, source: str, width: str, add: Callable[[Scalar, Scalar, Scalar], Scalar],
                     target: str) -> Loop:  # fmt: skip
        """Return the loops that put weightsᵀ·source into rows of queries: ``add(old, query, sum)`` is the new element."""
        left = [self.read(weights, KEY * QUERIES + ROW + r) for r in range(ROWS)]
        product, sums = self.sums(name, "j", self.here, left, self.read(source, BLOCK + KEY, COLUMN))
        stores = []
        for r, s in enumerate(sums):
            place = least(ROW + r, self.count - 1)
            value = add(self.read(target, FIRST + place, COLUMN), place, s)
            guard = None if r == 0 else (ROW + r).lt(self.count)
            stores.append(self.write(target, FIRST + place, COLUMN, value=value, guard=guard))
        return self.queries(self.columns(width, product, *stores), step=ROWS)

    def into_keys(self, name: str, weights: str, source: str, width: str, target: str, factor: Scalar) -> Loop:
        """Return the loops that add weights·source·factor to rows of keys."""
        left = [self.read(weights, KEY * QUERIES + ROW + r * QUERIES) for r in range(ROWS)]
        product, sums = self.sums(name, "i", self.count, left, self.read(source, FIRST + ROW, COLUMN))
        stores = [
            self.write(target, self.key(r), COLUMN, value=fma(s, factor, self.read(target, self.key(r), COLUMN)),
                       guard=None if r == 0 else (KEY + r).lt(self.here))
            for r, s in enumerate(sums)
        ]  # fmt: skip
        return Loop("j", bound(0), self.here, (self.columns(width, product, *stores),), step=ROWS)

    def scores(self, sums: Sequence[Scalar]) -> list[Scalar]:
        """Return the rows of a tile with the mask added, -inf where a key is not seen."""
        found = []
        for r, s in enumerate(sums):
            inside = (KEY + r).lt(self.here)
            if self.shape.causal:
                inside = inside & (BLOCK + KEY + r).le(FIRST + ROW)
            s = s + self.read("mask", self.key(r), FIRST + ROW) if self.shape.masked else s
            found.append(select(inside, s, self.number(-math.inf)))
        return found

    def kernel(self, name: str, body: Sequence[Statement], *, blocks: bool) -> Kernel:
        """Return the kernel that runs statements for each matrix; ``blocks``: for each block of queries, all at once."""
        statements: tuple[Statement, ...] = (*self.stages.values(), *body)
        loops = [("h", "heads", 1), ("b", "batch", 1)]
        for variable, limit, step in [("first", "queries", QUERIES), *loops] if blocks else loops:
            statements = (Loop(variable, bound(0), bound(limit), statements, step=step, parallel=True),)
        sizes = ("batch", "heads", "queries", "keys", "width", "values")
        return Kernel(name, tuple(self.buffers.values()), sizes, statements, (SCALE,))


def inputs(k: Blocks) -> None:
    """Add query, key and value."""
    k.matrices(query=("queries", "width"), key=("keys", "width"), value=("keys", "values"))
    if k.shape.masked:
        k.matrices(mask=("keys", "queries"))


def finite(top: Scalar) -> Scalar:
    """Return what to subtract from scores: 0 where all of them are -inf."""
    return select(top.eq(-math.inf), 0.0, top)


def attention(*choices: object) -> Kernel:
    """(query, key, value, mask as keys × queries if there is one) → (result, lse), of the fields of :class:`Shape`."""
    k = Blocks(Shape(*choices))  # type: ignore[arg-type]
    inputs(k)
    k.matrices("out", result=("queries", "values"))
    k.numbers("lse", role="out")
    k.stage(turned=k.shape.room * QUERIES, weights=KEYS * QUERIES)
    k.stage(**dict.fromkeys(("top", "before", "total", "factor"), QUERIES))
    start = k.queries(
        k.turn("turned", "query", "width", k.scale()),
        k.columns("values", k.write("result", FIRST + ROW, COLUMN, value=k.number(0))),
        k.write("top", ROW, value=k.number(-math.inf)), k.write("total", ROW, value=k.number(0)),
    )  # fmt: skip
    keep = k.queries(k.write("before", ROW, value=k.read("top", ROW)), lanes=k.lanes)

    def rise(sums: list[Scalar]) -> list[Statement]:
        scores, top = k.scores(sums), k.read("top", ROW)
        for s in scores:
            top = select(s.gt(top), s, top)
        return [
            *(k.write("weights", (KEY + r) * QUERIES + ROW, value=s) for r, s in enumerate(scores)),
            k.write("top", ROW, value=top),
        ]

    scores = k.keys_by_queries("s", "key", "turned", "width", rise)
    total, place, safe = Fold("sum", k.dtype, "sum"), KEY * QUERIES + ROW, finite(k.read("top", ROW))
    weight = var("p", k.dtype)
    factor = exp(k.read("before", ROW) - safe)
    weigh = k.queries(
        Loop("j", bound(0), k.here, (
            Let("p", exp(k.read("weights", place) - safe)), k.write("weights", place, value=weight), Update("sum", (weight,)),
        ), (total,), unroll=2),
        k.write("factor", ROW, value=factor),
        k.write("total", ROW, value=fma(k.read("total", ROW), factor, total.results[0])),
        lanes=k.lanes,
    )  # fmt: skip
    values = k.into_queries(
        "o", "weights", "value", "values", lambda old, i, s: fma(old, k.read("factor", i), s), "result"
    )
    blocks = Loop("block", bound(0), k.seen, (keep, scores, weigh, values), step=KEYS)
    divisor = select(k.read("total", ROW).eq(0.0), 1.0, k.read("total", ROW))
    divide = k.columns(
        "values", k.write("result", FIRST + ROW, COLUMN, value=k.read("result", FIRST + ROW, COLUMN) / divisor)
    )
    lse = cast(k.read("top", ROW), "f64") + cast(make("log", (k.read("total", ROW),)), "f64")
    logs = k.queries(k.write("lse", FIRST + ROW, value=lse), lanes=k.lanes)
    return k.kernel("attention", (start, blocks, k.queries(divide), logs), blocks=True)


def attention_backward(*choices: object) -> Kernel:
    """(query, key, value, mask, g, out, lse, g_lse) → (to_query, to_key, to_value), of the fields of :class:`Shape`.

    With P the weights, D = Σ g·out - g_lse and dS = P (g Vᵀ - D): dV = Pᵀ g, dQ = scale·dS K, dK = scale·dSᵀ Q.
    """
    k = Blocks(Shape(*choices))  # type: ignore[arg-type]
    width, values, zero, one = "width", "values", k.number(0), k.number(1)
    inputs(k)
    k.matrices(g=("queries", values), out_=("queries", values))
    k.numbers("lse", "g_lse")
    k.matrices("out", to_query=("queries", width), to_key=("keys", width), to_value=("keys", values))
    k.stage(
        turned=k.shape.room * QUERIES, turned_g=k.shape.room * QUERIES, weights=KEYS * QUERIES, slopes=KEYS * QUERIES
    )
    k.stage(**dict.fromkeys(("high", "low", "delta"), QUERIES))
    clear = (
        k.columns(n, k.write(name, KEY, COLUMN, value=zero)) for name, n in (("to_key", width), ("to_value", values))
    )
    keys = Loop("j", bound(0), size("keys"), tuple(clear))
    inner, product = (
        Fold("inner", k.dtype, "sum"),
        k.read("g", FIRST + ROW, COLUMN) * k.read("out_", FIRST + ROW, COLUMN),
    )
    lse = finite(k.read("lse", FIRST + ROW))
    start = k.queries(
        k.turn("turned", "query", width, k.scale()), k.turn("turned_g", "g", values),
        k.columns(width, k.write("to_query", FIRST + ROW, COLUMN, value=zero)),
        Loop("e", bound(0), bound(values), (Update("inner", (product,)),), (inner,), lanes=k.lanes),
        k.write("delta", ROW, value=inner.results[0] - cast(k.read("g_lse", FIRST + ROW), k.dtype)),
        k.write("high", ROW, value=cast(lse, k.dtype)),
        k.write("low", ROW, value=cast(lse - cast(cast(lse, k.dtype), "f64"), k.dtype)),
    )  # fmt: skip

    def weigh(sums: list[Scalar]) -> list[Statement]:
        terms = (exp(s - k.read("high", ROW) - k.read("low", ROW)) for s in k.scores(sums))
        return [k.write("weights", (KEY + r) * QUERIES + ROW, value=p) for r, p in enumerate(terms)]

    def slope(sums: list[Scalar]) -> list[Statement]:
        places = [(KEY + r) * QUERIES + ROW for r in range(ROWS)]
        return [
            k.write("slopes", p, value=k.read("weights", p) * (s - k.read("delta", ROW)))
            for p, s in zip(places, sums, strict=True)
        ]

    body = (
        k.keys_by_queries("s", "key", "turned", width, weigh),
        k.keys_by_queries("d", "value", "turned_g", values, slope),
        k.into_keys("v", "weights", "g", values, "to_value", one),
        k.into_keys("k", "slopes", "query", width, "to_key", k.scale()),
        k.into_queries("q", "slopes", "key", width, lambda old, i, s: fma(s, k.scale(), old), "to_query"),
    )
    blocks = Loop("block", bound(0), k.seen, body, step=KEYS)
    queries = Loop("first", bound(0), size("queries"), (start, blocks), step=QUERIES)
    return k.kernel("attention_backward", (keys, queries), blocks=False)

"""Reductions: one kernel for each way that kept and reduced dimensions can lie.

Two forms serve all of them. Where neighbours in memory are reduced, each kept element is a fold (*rows*)::

    parallel k in 0:n
      for r in 0:m by 8 lanes, unrolled 4
        fold s = sum(x[k, r])
      y[k] = s

Where neighbours are kept, blocks of them are folded row by row, so that memory is read in order (*columns*)::

    parallel block in 0:n step 1024
      for k in block:min(block + 1024, n) by 8 lanes
        y[k] = 0
      for r in 0:m
        for k in block:min(block + 1024, n) by 8 lanes
          y[k] = y[k] + x[r, k]

A reduction with few results is *split*: the outermost reduced loop is cut in parts, each of which gives results of its
own. How it is cut depends on sizes alone, so the digits do not depend on the number of threads.
"""

from collections.abc import Callable
from dataclasses import dataclass

from wengert.loops.ir import MONOIDS, Buffer, Fold, Kernel, Loop, Statement, Store, Update, bound, load, size
from wengert.loops.scalar import Scalar, cast, index, make

__all__ = ["COLUMNS", "Reduction", "reduction"]

COLUMNS = 1024  # elements of a block in the form for columns
CHUNK = 4096  # elements that are summed in float32

Element = Callable[[Scalar, Scalar], tuple[Scalar, ...]]


@dataclass(frozen=True)
class Reduction:
    """What is reduced, and how its loops lie.

    Attributes:
        monoid: its name. dtype: of the array in memory; folded: of the value that is folded. results: dtypes of the results
            in memory. loops: per loop, outermost first, whether it is reduced, the pattern (1, 0 or None) of the array in it,
            and those of the results. split: whether the outermost reduced loop is cut in parts.
    """

    monoid: str
    dtype: str
    folded: str
    results: tuple[str, ...]
    loops: tuple[tuple[bool, int | None, tuple[int | None, ...]], ...]
    split: bool
    lanes: int


def reduction(name: str, what: Reduction, element: Element) -> Kernel:
    """Return the kernel of a reduction.

    Args:
        element: from an element and its place in the only reduced loop to the state of the monoid.
    """
    rank = len(what.loops)
    dims = tuple(f"n{d}" for d in range(rank))
    kept = [d for d in range(rank) if not what.loops[d][0]]
    reduced = [d for d in range(rank) if what.loops[d][0]]
    x = Buffer("x", what.dtype, dims, tuple(p for _, p, _ in what.loops))
    lead = ("parts",) if what.split else ()
    results = zip(*(what.loops[d][2] for d in kept), strict=True) if kept else [()] * len(what.results)
    outs = tuple(
        Buffer(f"y{k}", dtype, (*lead, *(dims[d] for d in kept)), (*(None for _ in lead), *pattern), "out")
        for k, (dtype, pattern) in enumerate(zip(what.results, results, strict=True))
    )
    at = (*(index(p) for p in ("part",) if what.split), *(index(f"i{d}") for d in kept))
    columns = bool(kept) and not what.loops[-1][0]
    value = element(load(x, *(f"i{d}" for d in range(rank))), index(f"i{reduced[-1]}"))
    body = _columns(what, outs, at, value, kept, reduced) if columns else _rows(what, outs, at, value, reduced)
    for d in reversed(kept[:-1] if columns else kept):
        body = (Loop(f"i{d}", bound(0), bound(dims[d]), body, parallel=True),)
    if what.split:
        body = (Loop("part", bound(0), bound("parts"), body, parallel=True),)
    sizes = (*dims, *(("parts", "length") if what.split else ()))
    return Kernel(name, (*outs, x), sizes, body)


def _range(what: Reduction, d: int, first: int) -> tuple[Scalar, Scalar]:
    """Return the bounds of a reduced loop: those of a part, for the one that is cut."""
    if not what.split or d != first:
        return bound(0), bound(f"n{d}")
    start = index("part") * size("length")
    return start, make("minimum", (start + size("length"), size(f"n{d}")))


def _rows(
    what: Reduction, outs: tuple[Buffer, ...], at: tuple[Scalar, ...], value: tuple[Scalar, ...], reduced: list[int]
) -> tuple[Statement, ...]:
    """Fold the reduced loops one inside the other, and store what comes out."""
    inner: tuple[Statement, ...] = ()
    states, wide = value, what.folded
    for depth, d in enumerate(reversed(reduced)):
        start, stop = _range(what, d, reduced[0])
        if depth:
            fold = Fold(f"fold{depth}", wide, what.monoid)
            inner = (Loop(f"i{d}", start, stop, (*inner, Update(fold.name, states)), folds=(fold,)),)
            states = fold.results
            continue
        inner, states = _innermost(what, f"i{d}", start, stop, value)
        wide = states[0].dtype if len(states) == 1 else wide
    stores = tuple(Store(b.name, at, cast(s, b.dtype)) for b, s in zip(outs, states, strict=True))
    return (*inner, *stores)


def _innermost(
    what: Reduction, variable: str, start: Scalar, stop: Scalar, value: tuple[Scalar, ...]
) -> tuple[tuple[Statement, ...], tuple[Scalar, ...]]:
    """Fold neighbours as vectors; a float32 sum in chunks, whose sums are added in float64, so that long rows lose nothing."""
    fold = Fold("fold0", what.folded, what.monoid)
    lanes, unroll = what.lanes, 4 if len(value) == 1 else 2
    body = (Update(fold.name, value),)
    if what.monoid != "sum" or what.folded != "f32":
        return (Loop(variable, start, stop, body, (fold,), lanes=lanes, unroll=unroll),), fold.results
    chunk, total = index("chunk"), Fold("total", "f64", "sum")
    end = make("minimum", (chunk + CHUNK, stop))
    inner = Loop(variable, chunk, end, body, (fold,), lanes=lanes, unroll=unroll)
    add = Update(total.name, (cast(fold.results[0], "f64"),))
    return (Loop("chunk", start, stop, (inner, add), (total,), step=CHUNK),), total.results


def _columns(
    what: Reduction, outs: tuple[Buffer, ...], at: tuple[Scalar, ...], value: tuple[Scalar, ...], kept: list[int],
    reduced: list[int],
) -> tuple[Statement, ...]:  # fmt: skip
    """Fold blocks of kept elements in the memory of the results, row by row."""
    kind, last = MONOIDS[what.monoid], kept[-1]
    block = index("block")
    stop = make("minimum", (block + COLUMNS, size(f"n{last}")))
    there = tuple(load(b, *at) for b in outs)
    begin = tuple(Store(b.name, at, v) for b, v in zip(outs, kind.identity(what.folded), strict=True))
    found = kind.combine(there, value)
    fold = tuple(Store(b.name, at, v) for b, v in zip(outs, found, strict=True))
    body: tuple[Statement, ...] = (Loop(f"i{last}", block, stop, fold, lanes=what.lanes),)
    for d in reversed(reduced):
        start, end = _range(what, d, reduced[0])
        body = (Loop(f"i{d}", start, end, body),)
    first = Loop(f"i{last}", block, stop, begin, lanes=what.lanes)
    return (Loop("block", bound(0), bound(f"n{last}"), (first, *body), step=COLUMNS, parallel=True),)

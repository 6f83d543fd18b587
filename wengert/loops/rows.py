"""What kernels that reduce along lines have in common: how the lines lie, and folds that keep their digits.

An array is seen as (n, size, m), and a line runs along the middle. Where m is 1 its elements are neighbours in memory, and
a vector holds several of one line: it stays in cache from one pass to the next. Else neighbours belong to different
lines, and a vector holds one element of each of several lines. A kernel is written once for both.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from wengert.loops.ir import Buffer, Fold, Kernel, Loop, Param, Statement, Stride, Update, bound, load, monoid, size
from wengert.loops.monoids import lowest
from wengert.loops.scalar import Scalar, cast, index, is_float, make, select

__all__ = ["Lines", "Reduction", "arithmetic", "chunked", "largest"]

CHUNK: Final = 2048  # elements of a line whose sum is in the dtype of the elements; the sum of these sums is in float64
UNROLL: Final = 4  # vectors in flight, each with accumulators of its own

# The largest number, -inf if there is none: one instruction where "max", which hands on a NaN, takes several.
largest = monoid("largest")(lambda d: (lowest(d),), lambda a, b: (select(b[0].gt(a[0]), b[0], a[0]),))


def arithmetic(dtype: str) -> str:
    """Return the dtype in which elements of a dtype are computed: float32 for halves."""
    return dtype if dtype in ("f32", "f64") else "f32"


class Reduction(NamedTuple):
    """Something to fold along a line: the name of the result, a monoid, and the value at each element."""

    name: str
    monoid: str
    value: Scalar

    @property
    def total(self) -> str:
        """The dtype of the result: float64 for sums of floats."""
        return "f64" if self.monoid == "sum" and is_float(self.value.dtype) else self.value.dtype

    @property
    def result(self) -> Scalar:
        """The result, for use after the fold."""
        return Fold(self.name, self.total, self.monoid).results[0]


def chunked(
    variable: str, start: Scalar, stop: Scalar, reductions: Sequence[Reduction], body: Sequence[Statement] = (),
    *, chunk: int = CHUNK, lanes: int = 1, unroll: int = 1,
) -> Loop:  # fmt: skip
    """Return a loop that folds values, chunk by chunk; ``body`` runs for each element before they are taken.

    A sum of floats runs in their own dtype within a chunk, and in float64 over the chunks.
    """
    parts = [Fold(f"{r.name}_part", r.value.dtype, r.monoid) for r in reductions]
    updates = [Update(p.name, (r.value,)) for p, r in zip(parts, reductions, strict=True)]
    outer = f"{variable}_from"
    end = make("minimum", (index(outer) + chunk, stop))
    inner = Loop(variable, index(outer), end, (*body, *updates), tuple(parts), lanes=lanes, unroll=unroll)
    sums = [Update(r.name, (cast(p.results[0], r.total),)) for p, r in zip(parts, reductions, strict=True)]
    folds = tuple(Fold(r.name, r.total, r.monoid) for r in reductions)
    return Loop(outer, start, stop, (inner, *sums), folds, step=chunk)


class Lines(NamedTuple):
    """How the lines of an array of shape (n, size, m) lie.

    Attributes:
        across: whether neighbours in memory belong to different lines; if not, m is 1. lanes: elements of a vector.
    """

    across: bool
    lanes: int

    def elements(self, name: str, dtype: str, role: str = "in") -> Buffer:
        """Return a buffer with all elements."""
        strides: tuple[Stride, ...] = (None, None, 1) if self.across else (None, 1)
        return Buffer(name, dtype, ("n", "size", "m")[: len(strides)], strides, role)

    def single(self, name: str, dtype: str, role: str = "in") -> Buffer:
        """Return a buffer with one element per line."""
        strides: tuple[Stride, ...] = (None, 1) if self.across else (None,)
        return Buffer(name, dtype, ("n", "m")[: len(strides)], strides, role)

    @property
    def line(self) -> tuple[Scalar, ...]:
        """The place of a line."""
        return (index("i"), index("c")) if self.across else (index("i"),)

    def element(self, at: str | Scalar = "k") -> tuple[Scalar, ...]:
        """Return the place of an element of the line."""
        i, *c = self.line
        return i, index(at) if isinstance(at, str) else at, *c

    def read(self, buffer: Buffer, dtype: str, at: str | Scalar = "k") -> Scalar:
        """Return an element, or what a line has one of, in a dtype."""
        place = self.element(at) if "size" in buffer.dims else self.line
        return cast(load(buffer, *place), dtype)

    def fold(self, *reductions: Reduction, body: Sequence[Statement] = ()) -> Loop:
        """Return a loop that folds values along the line."""
        lanes, chunk = (1, CHUNK // 16) if self.across else (self.lanes, CHUNK)
        return chunked(
            "k", bound(0), size("size"), reductions, body, chunk=chunk, lanes=lanes, unroll=2 if self.across else UNROLL
        )

    def each(self, *body: Statement) -> Loop:
        """Return a loop over the elements of the line."""
        return Loop("k", bound(0), size("size"), body, lanes=1 if self.across else self.lanes)

    def kernel(self, name: str, buffers: Sequence[Buffer], body: Sequence[Statement], *params: Param) -> Kernel:
        """Return a kernel that runs statements for each line."""
        if self.across:
            end = make("minimum", (index("strip") + self.lanes, size("m")))
            columns = Loop("c", index("strip"), end, tuple(body), lanes=self.lanes)
            body = (Loop("strip", bound(0), size("m"), (columns,), step=self.lanes, parallel=True),)
        lines = Loop("i", bound(0), size("n"), tuple(body), parallel=True)
        sizes = ("n", "size", "m") if self.across else ("n", "size")
        return Kernel(name, tuple(buffers), sizes, (lines,), params)

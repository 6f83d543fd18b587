"""Kernels that read and combine elements at computed positions.

Arrays are seen as (outer, n, inner): the dimension that is indexed, those before it, those after it. Kernels that read
check each position; before one that combines, all are checked by a kernel of its own. What goes to one place is combined
in the order in which it stands, on one thread: the work is divided by destination.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from llvmlite import ir

from wengert.codegen.lanes import BYTE, I32, I64, POINTER, element_type
from wengert.codegen.program import Code, Program, Word
from wengert.codegen.target import host
from wengert.loops.scalar import DTYPES, is_float

__all__ = ["combine", "combine_rows", "distinct_rows", "first_outside", "gather", "take"]

_LANES: Final = 8  # positions that are compared at once
_AHEAD: Final = 8  # rows that are fetched into the cache before they are needed


def first_outside() -> str:
    """Return LLVM IR of ``first_outside``: finds positions outside [0, size), over blocks of positions.

    Slots: positions (i64), how many, positions of a block, size, an answer per block: where its first one is, or -1.
    """
    code = Program("first_outside").kernel("first_outside")
    positions, answers = code.slot(0, POINTER), code.slot(4, POINTER)
    count, length, size = (code.slot(n) for n in (1, 2, 3))
    with code.loop(code.arguments[1], code.arguments[2]) as block:
        start, found = code.cell(block * length), code.cell(code.i64(-1))
        stop = code.smaller((block + 1) * length, count)
        with code.repeat() as escape:  # as long as whole vectors are inside
            escape.when(stop.lt(start.get() + _LANES))
            inside = code.load(positions, start.get(), I64, _LANES).below(code.spread(size, _LANES))
            escape.when(code.any_of(~inside))
            start.set(start.get() + _LANES)
        with code.repeat() as escape:
            escape.when(stop.le(start.get()))
            with code.when(~code.load(positions, start.get(), I64).below(size)):
                found.set(start.get())
            escape.when(code.i64(0).le(found.get()))
            start.set(start.get() + 1)
        code.store(found.get(), answers, block)
    code.give()
    return str(code.builder.module)


@contextmanager
def _outer_and_middle(code: Code, middle: Word) -> Iterator[tuple[Word, Word]]:
    """Run the block for the steps of this call, each taken apart as ``outer * middle + j``."""
    begin, end = code.arguments[1:]
    with code.when(begin.lt(end)), code.loop(begin // middle, (end - 1) // middle + 1) as outer:
        first, past = begin - outer * middle, end - outer * middle
        with code.loop(code.select(first.lt(0), code.i64(0), first), code.smaller(past, middle)) as j:
            yield outer, j


@contextmanager
def _checked(position: Word, size: Word, shift: Word, flag: Word) -> Iterator[Word]:
    """Run the block with a position if it is inside (to negative ones the shift is added); else raise the flag."""
    code = position.code
    place = position + code.select(position.lt(0), shift, 0)
    with code.either(place.below(size)) as (inside, outside):
        with inside:
            yield place
        with outside:
            code.store(code.i64(1), flag, 0)


def take(unit: int) -> str:
    """Return LLVM IR of ``take``: ``out[o, j] = x[o, positions[j]]``, over outer × positions.

    Slots: x, positions, out, n, how many positions, bytes of a row, a word that is set if a position is outside, what is
    added to negative positions. A row is one integer of ``unit`` bytes; 0: any number.
    """
    code = Program("take").kernel("take")
    x, positions, out, flag = (code.slot(n, POINTER) for n in (0, 1, 2, 6))
    size, count, width, shift = (code.slot(n) for n in (3, 4, 5, 7))
    with (
        _outer_and_middle(code, count) as (outer, j),
        _checked(code.load(positions, j, I64), size, shift, flag) as place,
    ):
        row, target = outer * size + place, outer * count + j
        if unit:
            code.store(code.load(x, row, ir.IntType(8 * unit)), out, target)
        else:
            code.copy(code.at(out, target * width, BYTE), code.at(x, row * width, BYTE), width)
    code.give()
    return str(code.builder.module)


def gather(unit: int, single: bool) -> str:
    """Return LLVM IR of ``gather``: ``out[o, j, i] = x[o, positions[o, j, i], i]``, over outer × middle.

    Slots: x, positions, out, n, middle, inner, a word that is set if a position is outside, what is added to negative
    positions. An element has ``unit`` bytes; ``single``: inner is 1.
    """
    code = Program("gather").kernel("gather")
    kind = ir.IntType(8 * unit)
    x, positions, out, flag = (code.slot(n, POINTER) for n in (0, 1, 2, 6))
    size, middle, inner, shift = (code.slot(n) for n in (3, 4, 5, 7))
    with _outer_and_middle(code, middle) as (outer, j), _columns(code, code.i64(0), inner, single) as i:
        here = outer * middle + j if single else (outer * middle + j) * inner + i
        with _checked(code.load(positions, here, I64), size, shift, flag) as place:
            row = outer * size + place
            code.store(code.load(x, row if single else row * inner + i, kind), out, here)
    code.give()
    return str(code.builder.module)


@contextmanager
def _columns(code: Code, start: Word, stop: Word, single: bool) -> Iterator[Word]:
    if single:
        yield code.i64(0)
    else:
        with code.loop(start, stop) as i:
            yield i


class Combination:
    """How an element and one that meets it become one: "set", "sum", "prod", "amax" or "amin" of a dtype."""

    def __init__(self, reduce: str, dtype: str) -> None:
        self.reduce = reduce
        self.dtype = dtype
        self.kind = element_type(dtype)

    def __call__(self, old: Word, new: Word) -> Word:
        """Return them combined, elements or vectors; a NaN wins extremes, bools are or-ed and and-ed."""
        code = old.code
        if self.reduce == "set":
            return new
        if self.reduce in ("sum", "prod"):
            if self.dtype == "bool":
                return old | new if self.reduce == "sum" else old & new
            return old + new if self.reduce == "sum" else old * new
        if is_float(self.dtype):
            name = "maximum" if self.reduce == "amax" else "minimum"
            return code.intrinsic(name, old.llvm.type, old, new)
        a, b = (old, new) if self.reduce == "amin" else (new, old)
        return code.select(a.lt(b) if self.dtype[0] == "i" else a.below(b), old, new)


def combine(reduce: str, dtype: str, single: bool) -> str:
    """Return LLVM IR of ``combine``: ``out[o, positions[o, j, i], i]`` is combined with ``source[o, j, i]``.

    Over outer × parts of inner. Slots: out, positions, source, n, middle, inner, columns of a part, parts. ``single`` says
    that inner is 1.
    """
    code = Program("combine").kernel("combine")
    together = Combination(reduce, dtype)
    out, positions, source = (code.slot(n, POINTER) for n in range(3))
    size, middle, inner, share, parts = (code.slot(n) for n in range(3, 8))
    with code.loop(code.arguments[1], code.arguments[2]) as task:
        outer, start, stop = _part(code, task, parts, share, inner)
        with code.loop(0, middle) as j, _columns(code, start, stop, single) as i:
            row = outer * middle + j
            here = row if single else row * inner + i
            target = outer * size + code.load(positions, here, I64)
            target = target if single else target * inner + i
            code.store(
                together(code.load(out, target, together.kind), code.load(source, here, together.kind)), out, target
            )
    code.give()
    return str(code.builder.module)


def _part(code: Code, task: Word, parts: Word, share: Word, inner: Word) -> tuple[Word, Word, Word]:
    """Return (outer, first column, column after the last) of a task."""
    outer = task // parts
    start = (task - outer * parts) * share
    return outer, start, code.smaller(start + share, inner)


def combine_rows(reduce: str, dtype: str, scaled: bool = False) -> str:
    """Return LLVM IR of ``combine_rows``: ``out[o, positions[j], i]`` is combined with ``source[o, j, i]``.

    Over outer × parts of inner. Slots: out, positions, source, n, middle, inner, columns of a part, parts; and, if it is
    ``scaled``, where a factor of the elements of the source is.
    """
    code = Program("combine_rows").kernel("combine_rows")
    together = Combination(reduce, dtype)
    lanes = host().vector_bytes * 8 // max(DTYPES[dtype], 8)
    out, positions, source = (code.slot(n, POINTER) for n in range(3))
    size, middle, inner, share, parts = (code.slot(n) for n in range(3, 8))
    factor = code.load(code.slot(8, POINTER), 0, together.kind) if scaled else None
    with code.loop(code.arguments[1], code.arguments[2]) as task:
        outer, start, stop = _part(code, task, parts, share, inner)
        table, filled = code.at(out, outer * size * inner, together.kind), start + (stop - start) // lanes * lanes
        with code.loop(0, middle) as j:
            later = code.load(positions, code.smaller(j + _AHEAD, middle - 1), I64)
            _fetch(code.at(table, later * inner + start, together.kind), write=True)
            row = code.at(table, code.load(positions, j, I64) * inner, together.kind)
            given = code.at(source, (outer * middle + j) * inner, together.kind)
            for width, first, last in ((lanes, start, filled), (1, filled, stop)):
                with code.loop(first, last, width) as i:
                    old, new = (code.load(base, i, together.kind, width) for base in (row, given))
                    if factor is not None:
                        new = new * (factor if width == 1 else code.spread(factor, width))
                    code.store(together(old, new), row, i)
    code.give()
    return str(code.builder.module)


def distinct_rows() -> str:
    """Return LLVM IR of ``distinct_rows``: which values an index holds, and which of them each of its elements is.

    Values are numbered as they are met, from the last number down; the numbers that are left over stand for the first value
    again. Where a value was given a number is remembered in a table without a start: what it says counts if the value
    stands there (Briggs & Torczon, "An efficient representation for sparse sets", 1993).

    Slots: index (i64), how many, the table (i32, one for each possible value), the values (i64), their numbers (i64).
    """
    code = Program("distinct_rows").kernel("distinct_rows")
    index, table, values, numbers = (code.slot(n, POINTER) for n in (0, 2, 3, 4))
    count = code.slot(1)
    with code.loop(code.arguments[1], code.arguments[2]):
        free = code.cell(count)
        with code.loop(0, count) as j:
            value = code.load(index, j, I64)
            _fetch(code.at(table, code.load(index, code.smaller(j + _AHEAD, count - 1), I64), I32), write=True)
            said = code.load(table, value, I32).to(I64)
            number, new = code.cell(said), code.cell(code.i64(1))
            with code.when((said - free.get()).below(count - free.get())):
                new.set(code.load(values, said, I64).ne(value).to(I64))
            with code.when(new.get().ne(0)):
                free.set(free.get() - 1)
                number.set(free.get())
                code.store(value, values, free.get())
                code.store(free.get().to(I32), table, value)
            code.store(number.get(), numbers, j)
        first = code.load(values, count - 1, I64)
        with code.loop(0, free.get()) as j:
            code.store(first, values, j)
    code.give()
    return str(code.builder.module)


def _fetch(place: Word, *, write: bool) -> None:
    """Ask for the first cache lines of a row that will be used soon."""
    code = place.code
    hints = [code.constant(value, ir.IntType(32)) for value in (int(write), 3, 1)]  # keep it; data
    for line in range(2):
        code.intrinsic("prefetch", ir.VoidType(), code.at(place, 64 * line, BYTE), *hints, overloads=(POINTER,))

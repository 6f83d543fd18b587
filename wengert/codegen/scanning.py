"""Kernels of running sums, products, extremes and log-sum-exps.

The result of element k depends on all elements before it, so vectors lie across: neighbouring columns, each scanned in
its order. A row is scanned in its order too, but for a running sum, which is computed within vectors, and in a long row
block by block: each block from zero, then from the sum of what is before. The order of additions depends on neither
the number of threads nor the width of vectors.

Sums and products of float32 are accumulated in float64, and rounded where they are written.
"""

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir

from wengert.codegen.lanes import I64, POINTER, element_type, vector_of
from wengert.codegen.program import Code, Program, Word
from wengert.codegen.target import host
from wengert.loops.scalar import DTYPES, is_float

__all__ = ["BLOCK", "scan_columns", "scan_rows", "sum_rows"]

BLOCK: Final = 4096  # elements of a row that are added up from zero
_LANES: Final = 4  # of float64 and int64; fixed, since it orders the additions
_GROUP: Final = 4  # vectors that are added up before they meet the sum of those before
_DOUBLE: Final = ir.DoubleType()


class Arithmetic:
    """How elements become numbers to compute with, and results elements, one or a vector of them.

    Attributes:
        source, target: dtypes of elements read and written. kind: the LLVM type computed with.
    """

    def __init__(self, operation: str, source: str, target: str) -> None:
        self.source, self.target = source, target
        wide = operation in ("cumsum", "cumprod", "logcumsumexp")
        self.kind = (_DOUBLE if is_float(target) else I64) if wide else element_type(source)
        self.signed = source[0] == "i" or is_float(source)

    def widen(self, x: Word) -> Word:
        """Return elements as numbers to compute with."""
        kind = self._shaped(x, self.kind)
        builder = x.code.builder
        if is_float(self.source):
            return Word(x.code, builder.fpext(x.llvm, kind)) if self.kind is _DOUBLE and self.source == "f32" else x
        if self.kind is _DOUBLE:
            convert = builder.sitofp if self.signed else builder.uitofp
            return Word(x.code, convert(x.llvm, kind))
        return x.to(kind, self.signed)

    def narrow(self, x: Word) -> Word:
        """Return numbers as elements of the result."""
        if self.kind is _DOUBLE and self.target == "f32":
            return Word(x.code, x.code.builder.fptrunc(x.llvm, self._shaped(x, ir.FloatType())))
        return x

    def at_most(self, a: Word, b: Word) -> Word:
        """Return whether ``a <= b``."""
        return a.le(b) if self.signed else ~b.below(a)

    @staticmethod
    def _shaped(x: Word, kind: Any) -> Any:
        return vector_of(kind, x.llvm.type.count) if isinstance(x.llvm.type, ir.VectorType) else kind


# ---- what a scan does with one more element: (arithmetic, state, element, its place) → state

State = list[Word]


def _sum(numbers: Arithmetic, state: State, x: Word, place: Word) -> State:
    return [state[0] + x]


def _product(numbers: Arithmetic, state: State, x: Word, place: Word) -> State:
    return [state[0] * x]


def _maximum(numbers: Arithmetic, state: State, x: Word, place: Word) -> State:
    return _extreme(numbers.at_most(state[0], x), state, x, place)


def _minimum(numbers: Arithmetic, state: State, x: Word, place: Word) -> State:
    return _extreme(numbers.at_most(x, state[0]), state, x, place)


def _extreme(reached: Word, state: State, x: Word, place: Word) -> State:
    """Keep the extreme and its latest place; a NaN reaches it, and then only NaNs do."""
    if isinstance(_element(x.llvm.type), ir.FloatType | ir.DoubleType):
        reached = reached | x.ne(x)
    return [x.code.select(reached, new, old) for new, old in zip((x, place), state, strict=True)]


def _log_sum_exp(numbers: Arithmetic, state: State, x: Word, place: Word) -> State:
    """Keep the largest element and the sum of exponentials relative to it."""
    code, kind = x.code, x.llvm.type
    top, total = state
    gap = code.select(x.eq(top), x.like(0.0), code.intrinsic("fabs", kind, x - top))
    share = code.intrinsic("exp", kind, x.like(0.0) - gap)
    stays = x.le(top)
    return [code.select(stays, top, x), code.select(stays, total + share, total * share + 1.0)]


def _log_of_sum(state: State) -> Word:
    return state[0] + state[1].code.intrinsic("log", state[1].llvm.type, state[1])


_STEPS: Final[dict[str, Callable[[Arithmetic, State, Word, Word], State]]] = {
    "cumsum": _sum, "cumprod": _product, "logcumsumexp": _log_sum_exp, "cummax": _maximum, "cummin": _minimum,
}  # fmt: skip
EXTREMES: Final = ("cummax", "cummin")


def _element(kind: Any) -> Any:
    return kind.element if isinstance(kind, ir.VectorType) else kind


def _start(operation: str, code: Code, first: Word, lanes: int) -> State:
    """Return the state before any element; for extremes the first element, which reaches itself."""
    kind, places = first.llvm.type, I64 if lanes == 1 else vector_of(I64, lanes)
    if operation in EXTREMES:
        return [first, code.constant(0, places)]
    if operation == "logcumsumexp":
        return [code.constant(-float("inf"), kind), code.constant(0.0, kind)]
    return [_zero(code, kind) if operation == "cumsum" else code.constant(1, kind)]


def _zero(code: Code, kind: Any) -> Word:
    """Return what changes nothing that it is added to: of floats -0.0."""
    return code.constant(0 if isinstance(_element(kind), ir.IntType) else -0.0, kind)


# ---- one line after the other, or neighbouring columns as lanes


def _scan(
    operation: str, numbers: Arithmetic, lanes: int, source: Word, target: Word, places: Word, length: Word, step: Word
) -> None:
    """Scan lines of ``length`` elements that are ``step`` elements apart; as many as there are lanes lie side by side."""
    code, kind = source.code, element_type(numbers.source)
    first = numbers.widen(code.load(source, 0, kind, lanes))
    state = [code.cell(word) for word in _start(operation, code, first, lanes)]
    with code.loop(0, length) as i:
        here = i * step
        x = numbers.widen(code.load(source, here, kind, lanes))
        place = i if lanes == 1 else code.spread(i, lanes)
        new = _STEPS[operation](numbers, [cell.get() for cell in state], x, place)
        for cell, word in zip(state, new, strict=True):
            cell.set(word)
        value = _log_of_sum(new) if operation == "logcumsumexp" else new[0]
        code.store(numbers.narrow(value), target, here)
        if operation in EXTREMES:
            code.store(new[1], places, here)


def scan_columns(operation: str, source: str, target: str) -> str:
    """Return LLVM IR of ``scan_columns``: scans along the middle of (outer, length, inner), over outer × parts of inner.

    Slots: elements, results, places (i64; for extremes), length, inner, columns of a part, parts. All contiguous; length
    is not 0.
    """
    code = Program("scan_columns").kernel("scan_columns")
    numbers = Arithmetic(operation, source, target)
    elements, results, places = (code.slot(n, POINTER) for n in range(3))
    length, inner, share, parts = (code.slot(n) for n in range(3, 7))
    with code.loop(code.arguments[1], code.arguments[2]) as task:
        outer = task // parts
        base, start = outer * length * inner, (task - outer * parts) * share
        stop = code.smaller(start + share, inner)
        for lanes, first, last in _lanes_and_rest(start, stop, _width(operation, source)):
            with code.loop(first, last, lanes) as column:
                at = base + column
                x, out = _places(code, numbers, elements, results, at)
                _scan(operation, numbers, lanes, x, out, code.at(places, at, I64), length, inner)
    code.give()
    return str(code.builder.module)


def scan_rows(operation: str, source: str, target: str) -> str:
    """Return LLVM IR of ``scan_rows``: scans rows, over rows.

    Slots: elements, results, places (i64; for extremes), length, which is not 0. All contiguous.
    """
    code = Program("scan_rows").kernel("scan_rows")
    numbers = Arithmetic(operation, source, target)
    elements, results, places = (code.slot(n, POINTER) for n in range(3))
    length = code.slot(3)
    with code.loop(code.arguments[1], code.arguments[2]) as row:
        at = row * length
        x, out = _places(code, numbers, elements, results, at)
        _scan(operation, numbers, 1, x, out, code.at(places, at, I64), length, code.i64(1))
    code.give()
    return str(code.builder.module)


def _width(operation: str, source: str) -> int:
    """Return how many columns are scanned as lanes; exponentials are computed one by one."""
    return 1 if operation == "logcumsumexp" else max(host().vector_bytes * 8 // max(DTYPES[source], 32), 2)


def _lanes_and_rest(start: Word, stop: Word, lanes: int) -> list[tuple[int, Word, Word]]:
    """Return (lanes, start, end) of the part of a range that fills vectors, and of the rest one by one."""
    if lanes == 1:
        return [(1, start, stop)]
    middle = start + (stop - start) // lanes * lanes
    return [(lanes, start, middle), (1, middle, stop)]


# ---- running sums along rows


def sum_rows(source: str, target: str) -> str:
    """Return LLVM IR of three kernels of running sums along contiguous rows.

    Slots: elements, results, length of a row, blocks of a row (the last may be shorter than ``BLOCK``), a table.

    - ``rows``, over rows: scan whole rows.
    - ``totals``, over rows × blocks: the table gets the sum of each block.
    - ``blocks``, over rows × blocks: scan blocks; the table must hold the sum of what is before each.

    Where a block's partial sums overflow, or it holds an infinity or a NaN, it is added up one by one, so that only
    sums of prefixes can overflow.
    """
    program = Program("sum_rows")
    numbers = Arithmetic("cumsum", source, target)
    walks = {store: _define_walk(program, numbers, store) for store in (False, True)}
    _rows_kernel(program.kernel("rows"), numbers, walks[True])
    _blocks_kernel(program.kernel("totals"), numbers, walks[False], total=True)
    _blocks_kernel(program.kernel("blocks"), numbers, walks[True], total=False)
    return str(program)


def _rows_kernel(code: Code, numbers: Arithmetic, walk: Any) -> None:
    elements, results, length = code.slot(0, POINTER), code.slot(1, POINTER), code.slot(2)
    with code.loop(code.arguments[1], code.arguments[2]) as row:
        before = code.cell(_zero(code, numbers.kind))
        with code.loop(0, length, BLOCK) as start:
            at = row * length + start
            source, target = _places(code, numbers, elements, results, at)
            before.set(code.call(walk, source, target, code.smaller(length - start, BLOCK), before.get()))
    code.give()


def _blocks_kernel(code: Code, numbers: Arithmetic, walk: Any, *, total: bool) -> None:
    elements, results, table = code.slot(0, POINTER), code.slot(1, POINTER), code.slot(4, POINTER)
    length, blocks = code.slot(2), code.slot(3)
    with code.loop(code.arguments[1], code.arguments[2]) as task:
        start = (task - task // blocks * blocks) * BLOCK
        source, target = _places(code, numbers, elements, results, task // blocks * length + start)
        before = _zero(code, numbers.kind) if total else code.load(table, task, numbers.kind)
        found = code.call(walk, source, target, code.smaller(length - start, BLOCK), before)
        if total:
            code.store(found, table, task)
    code.give()


def _places(code: Code, numbers: Arithmetic, elements: Word, results: Word, at: Word) -> tuple[Word, Word]:
    return code.at(elements, at, element_type(numbers.source)), code.at(results, at, element_type(numbers.target))


def _define_walk(program: Program, numbers: Arithmetic, store: bool) -> Any:
    """Define the running sum of one block, given the sum before it; it returns the sum after it."""
    kind = numbers.kind
    code = program.function("scan_block" if store else "add_block", (POINTER, POINTER, I64, kind), kind)
    source, target, length, before = code.arguments
    step = _LANES * _GROUP
    filled, zero = length // step * step, _zero(code, kind)
    local, wrong = code.cell(zero), code.cell(code.constant(0, vector_of(kind, _LANES)))
    offset = code.spread(before, _LANES)
    with code.loop(0, filled, step) as i:
        carried = code.spread(local.get(), _LANES)
        sums = [carried + vector for vector in _prefixes(code, numbers, source, i)]
        local.set(code.lane(sums[-1], _LANES - 1))
        for number, vector in enumerate(sums):
            total = offset + vector
            wrong.set(wrong.get() + total * 0)
            if store:
                code.store(numbers.narrow(total), target, i + number * _LANES)
    written = target if store else None
    result = code.cell(_one_by_one(code, numbers, source, written, filled, length, local.get(), before))
    if numbers.source == "f64":
        with code.when(code.any_of(wrong.get().ne(0.0))):
            result.set(_one_by_one(code, numbers, source, written, code.i64(0), length, before, zero))
    code.give(result.get())
    return code.function


def _prefixes(code: Code, numbers: Arithmetic, source: Word, start: Word) -> list[Word]:
    """Return the running sums of the elements of a few vectors, by doubling the span that each lane has added up.

    Source: W. D. Hillis and G. L. Steele, "Data parallel algorithms" (1986).
    """
    zero = _zero(code, vector_of(numbers.kind, _LANES))
    vectors = []
    for number in range(_GROUP):
        x = numbers.widen(code.load(source, start + number * _LANES, element_type(numbers.source), _LANES))
        for span in (1, 2):
            x = x + code.shuffle(zero, x, [i if i < span else _LANES + i - span for i in range(_LANES)])
        vectors.append(x)
    for span in (1, 2):
        for number in range(_GROUP):
            if number & span:
                last = vectors[number // span * span - 1]
                vectors[number] = vectors[number] + code.shuffle(last, last, [_LANES - 1] * _LANES)
    return vectors


def _one_by_one(
    code: Code,
    numbers: Arithmetic,
    source: Word,
    target: Word | None,
    start: Word,
    stop: Word,
    local: Word,
    before: Word,
) -> Word:
    """Add up elements in their order, from the sum ``local``; return the last result, of which ``before`` is a part."""
    running = code.cell(local)
    with code.loop(start, stop) as i:
        running.set(running.get() + numbers.widen(code.load(source, i, element_type(numbers.source))))
        if target is not None:
            code.store(numbers.narrow(before + running.get()), target, i)
    return before + running.get()

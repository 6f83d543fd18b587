"""Pooling of images: the maximum of each window and where it is, its average, and what spreads averages over windows.

Windows that lie wholly inside a row of the input are taken several at a time, one per lane, where they move by one or two
elements; the others one by one. Rows of windows are what threads share.
"""

from collections.abc import Callable
from enum import IntEnum, auto
from typing import Any

from llvmlite import ir

from wengert.codegen.arranging import fill
from wengert.codegen.build import (
    at,
    below,
    choose,
    kernel,
    loop,
    minimum,
    minus,
    number,
    plus,
    read,
    slot,
    times,
    write,
)  # fmt: skip
from wengert.codegen.lanes import I32, I64, POINTER, splat, type_of, vector_of
from wengert.loops.scalar import size_of

__all__ = ["PoolSlot", "emit_averages", "emit_gather", "emit_maxima", "emit_scatter", "emit_spread"]

State = list[Any]


class PoolSlot(IntEnum):
    """What the argument array of a pooling holds, in order; all numbers but addresses are of elements.

    ``first`` and ``last`` bound the windows of a row that lie wholly inside the input. Where ``gap_row`` or ``gap_column`` is
    not 1, there is no padding (``low_row``, ``low_column``). ``more`` are the positions of maxima; for averages the numbers
    that sums are divided by are ``row_lengths[row] * column_lengths[column]``.
    """

    x = 0
    out = auto()
    height = auto()
    width = auto()
    rows = auto()
    columns = auto()
    kernel_row = auto()
    kernel_column = auto()
    stride_row = auto()
    stride_column = auto()
    low_row = auto()
    low_column = auto()
    gap_row = auto()
    gap_column = auto()
    first = auto()
    last = auto()
    more = auto()
    row_lengths = auto()
    column_lengths = auto()


def emit_maxima(dtype: str, lanes: int, step: int, name: str = "pool") -> str:
    """Return the LLVM IR of a kernel whose arguments are :class:`PoolSlot`, and whose range is that of the rows of windows.

    ``step`` is how far windows move along a row: 1, 2, or 0 for any distance.
    """
    return _Maxima(dtype, lanes, step, name).text()


def emit_averages(dtype: str, lanes: int, step: int, name: str = "pool") -> str:
    """Return the LLVM IR of a kernel as that of :func:`emit_maxima`."""
    return _Averages(dtype, lanes, step, name).text()


class _Pool:
    """Emits the walk through windows. A state is what is known of a window, or of one per lane."""

    def __init__(self, dtype: str, lanes: int, step: int, name: str) -> None:
        self.dtype, self.size, self.step, self.lanes = dtype, size_of(dtype), step, lanes
        self.one = type_of(dtype)
        self.b, args, self.begin, self.end = kernel(name)
        addresses = PoolSlot.x, PoolSlot.out, PoolSlot.more, PoolSlot.row_lengths, PoolSlot.column_lengths
        self.get = {s: slot(self.b, args, s, POINTER if s in addresses else I64) for s in PoolSlot}

    def kind(self, lanes: int) -> Any:
        """Return the type of the elements of some windows."""
        return vector_of(self.one, lanes) if lanes > 1 else self.one

    def start(self, b: Any, place: Any, lanes: int) -> State:
        """Return the state of windows of which nothing was seen; ``place`` is the first element that is."""
        raise NotImplementedError

    def visit(self, b: Any, state: State, value: Any, place: Any, lanes: int) -> State:
        """Return the state after an element of each window."""
        raise NotImplementedError

    def finish(self, b: Any, state: State, row: Any, column: Any, index: Any, lanes: int) -> None:
        """Emit what is stored of windows, at ``index``, in a row and from a column on."""
        raise NotImplementedError

    def text(self) -> str:
        """Emit the loop over rows of windows."""
        get, s = self.get, PoolSlot

        def rows(b: Any, index: Any, _: Any) -> None:
            plane, row = b.udiv(index, get[s.rows]), b.urem(index, get[s.rows])
            x = at(b, get[s.x], times(b, plane, times(b, times(b, get[s.height], get[s.width]), self.size)))
            top = minus(b, times(b, row, get[s.stride_row]), get[s.low_row])
            span = self._inside(b, top, get[s.kernel_row], get[s.gap_row], get[s.height])
            first = times(b, index, get[s.columns])

            def some(b: Any, column: Any, lanes: int) -> None:
                state = self._window(b, x, span, column, lanes)
                self.finish(b, state, row, column, plus(b, first, column), lanes)

            self._columns(b, some)

        loop(self.b, self.begin, self.end, rows)
        self.b.ret_void()
        return str(self.b.module)

    def _inside(self, b: Any, start: Any, count: Any, gap: Any, size: Any) -> tuple[Any, Any]:
        """Return from where to where a window lies inside of the input."""
        stop = plus(b, plus(b, start, times(b, minus(b, count, 1), gap)), 1)
        return b.select(below(b, start, 0), number(0), start), minimum(b, stop, size)

    def _columns(self, b: Any, some: Callable[[Any, Any, int], None]) -> None:
        """Emit the windows of a row: vectors of those inside, of which the last may overlap another, and the others."""
        first, last, count = (self.get[s] for s in (PoolSlot.first, PoolSlot.last, PoolSlot.columns))

        def single(b: Any, start: Any, stop: Any) -> None:
            loop(b, start, stop, lambda b, column, _: some(b, column, 1))

        def vectors(b: Any, column: Any, _: Any) -> None:
            some(b, minimum(b, column, minus(b, last, self.lanes)), self.lanes)

        def inside(b: Any) -> None:
            single(b, 0, first)
            loop(b, first, last, vectors, step=self.lanes)
            single(b, last, count)

        if self.step:
            choose(b, below(b, minus(b, last, first), self.lanes), lambda b: single(b, 0, count), inside)
        else:
            single(b, 0, count)

    def _window(self, b: Any, x: Any, span: tuple[Any, Any], column: Any, lanes: int) -> State:
        """Emit the walk through windows, row by row."""
        get, s = self.get, PoolSlot
        left = minus(b, times(b, column, get[s.stride_column]), get[s.low_column])
        near, far = self._inside(b, left, get[s.kernel_column], get[s.gap_column], get[s.width])
        if lanes > 1:
            near, far = left, plus(b, plus(b, left, times(b, minus(b, get[s.kernel_column], 1), get[s.gap_column])), 1)

        def rows(b: Any, y: Any, state: State) -> State:
            line = times(b, y, get[s.width])

            def elements(b: Any, place: Any, state: State) -> State:
                place = plus(b, line, place)
                return self.visit(b, state, self._read(b, at(b, x, times(b, place, self.size)), lanes), place, lanes)

            return loop(b, near, far, elements, step=get[s.gap_column], carry=state)

        start = self.start(b, plus(b, times(b, span[0], get[s.width]), near), lanes)
        return loop(b, *span, rows, step=get[s.gap_row], carry=start)

    def _read(self, b: Any, pointer: Any, lanes: int) -> Any:
        """Return an element of each window; where they are two apart, from two vectors that end with the last."""
        value = read(b, pointer, self.kind(lanes))
        if lanes == 1 or self.step == 1:
            return value
        other = read(b, at(b, pointer, (lanes - 1) * self.size), self.kind(lanes))
        order = [2 * i if 2 * i < lanes else 2 * i + 1 for i in range(lanes)]
        return b.shuffle_vector(value, other, ir.Constant(vector_of(I32, lanes), order))


class _Maxima(_Pool):
    """The largest element and its position: the first of equals, and the last NaN."""

    def _places(self, b: Any, place: Any, lanes: int) -> Any:
        """Return the positions of the elements of windows, in as many bits as the elements have."""
        kind = ir.IntType(8 * self.size)
        place = b.trunc(place, kind) if self.size < 8 else place
        if lanes == 1:
            return place
        return b.add(splat(b, place, lanes), ir.Constant(vector_of(kind, lanes), [self.step * i for i in range(lanes)]))

    def start(self, b: Any, place: Any, lanes: int) -> State:
        """Return nothing, found at the first element."""
        lowest = ir.Constant(self.kind(lanes), [float("-inf")] * lanes if lanes > 1 else float("-inf"))
        return [lowest, self._places(b, place, lanes)]

    def visit(self, b: Any, state: State, value: Any, place: Any, lanes: int) -> State:
        """Take an element that is larger, or NaN."""
        best, where = state
        better = b.or_(b.fcmp_ordered(">", value, best), b.fcmp_unordered("uno", value, value))
        return [b.select(better, value, best), b.select(better, self._places(b, place, lanes), where)]

    def finish(self, b: Any, state: State, row: Any, column: Any, index: Any, lanes: int) -> None:
        """Emit the stores of values and positions."""
        best, where = state
        write(b, best, at(b, self.get[PoolSlot.out], times(b, index, self.size)))
        wide = vector_of(I64, lanes) if lanes > 1 else I64
        where = b.sext(where, wide) if self.size < 8 else where
        write(b, where, at(b, self.get[PoolSlot.more], times(b, index, 8)))


class _Averages(_Pool):
    """The sum of the elements, divided by a number that depends on the row and the column."""

    def start(self, b: Any, place: Any, lanes: int) -> State:
        """Return a sum of nothing."""
        return [ir.Constant(self.kind(lanes), [0.0] * lanes if lanes > 1 else 0.0)]

    def visit(self, b: Any, state: State, value: Any, place: Any, lanes: int) -> State:
        """Add an element."""
        return [b.fadd(state[0], value)]

    def finish(self, b: Any, state: State, row: Any, column: Any, index: Any, lanes: int) -> None:
        """Emit the division and the store."""
        height = read(b, at(b, self.get[PoolSlot.row_lengths], times(b, row, self.size)), self.one)
        width = read(b, at(b, self.get[PoolSlot.column_lengths], times(b, column, self.size)), self.kind(lanes))
        divisor = b.fmul(splat(b, height, lanes) if lanes > 1 else height, width)
        write(b, b.fdiv(state[0], divisor), at(b, self.get[PoolSlot.out], times(b, index, self.size)))


def emit_spread(dtype: str, lanes: int, name: str = "spread") -> str:
    """Return the LLVM IR of the transpose of averages; its range is that of the planes.

    The arguments are :class:`PoolSlot`: ``x`` are cotangents of averages (rows, columns), ``out`` those of elements.
    """
    b, args, begin, end = kernel(name)
    addresses = PoolSlot.x, PoolSlot.out, PoolSlot.row_lengths, PoolSlot.column_lengths
    get, s = {p: slot(b, args, p, POINTER if p in addresses else I64) for p in PoolSlot}, PoolSlot
    size, one = size_of(dtype), type_of(dtype)

    def inside(b: Any, place: Any, stride: Any, low: Any, count: Any, limit: Any) -> tuple[Any, Any]:
        start = minus(b, times(b, place, stride), low)
        return b.select(below(b, start, 0), number(0), start), minimum(b, plus(b, start, count), limit)

    def plane(b: Any, index: Any, _: Any) -> None:
        elements, windows = times(b, get[s.height], get[s.width]), times(b, get[s.rows], get[s.columns])
        out = at(b, get[s.out], times(b, times(b, index, elements), size))
        g = at(b, get[s.x], times(b, times(b, index, windows), size))
        fill(b, out, elements, dtype, lanes)

        def rows(b: Any, row: Any, _: Any) -> None:
            high = read(b, at(b, get[s.row_lengths], times(b, row, size)), one)
            top, bottom = inside(b, row, get[s.stride_row], get[s.low_row], get[s.kernel_row], get[s.height])

            def columns(b: Any, column: Any, _: Any) -> None:
                wide = read(b, at(b, get[s.column_lengths], times(b, column, size)), one)
                value = read(b, at(b, g, times(b, plus(b, times(b, row, get[s.columns]), column), size)), one)
                share = b.fdiv(value, b.fmul(high, wide))
                near, far = inside(
                    b, column, get[s.stride_column], get[s.low_column], get[s.kernel_column], get[s.width]
                )

                def line(b: Any, y: Any, _: Any) -> None:
                    def element(b: Any, x: Any, _: Any) -> None:
                        place = at(b, out, times(b, plus(b, times(b, y, get[s.width]), x), size))
                        write(b, b.fadd(read(b, place, one), share), place)

                    loop(b, near, far, element)

                loop(b, top, bottom, line)

            loop(b, 0, get[s.columns], columns)

        loop(b, 0, get[s.rows], rows)

    loop(b, begin, end, plane)
    b.ret_void()
    return str(b.module)


def emit_scatter(dtype: str, lanes: int, name: str = "scatter") -> str:
    """Return the LLVM IR of a kernel that adds elements into planes of zeros at positions; its range is that of the planes.

    Arguments: addresses of the elements, positions and planes, the numbers of a plane's elements and of its positions, and the
    address of an int64 that becomes 1 if a position is outside.
    """

    def add(b: Any, value: Any, plane: Any) -> None:
        write(b, b.fadd(read(b, plane, value.type), value), plane)

    return _moved(dtype, name, add, lambda b, plane, count: fill(b, plane, count, dtype, lanes))


def emit_gather(dtype: str, name: str = "gather") -> str:
    """Return the LLVM IR of a kernel that reads planes at positions; arguments are as those of :func:`emit_scatter`."""
    return _moved(dtype, name, None, lambda b, plane, count: None)


def _moved(dtype: str, name: str, add: Callable[..., None] | None, begun: Callable[..., None]) -> str:
    b, args, begin, end = kernel(name)
    values, positions, planes = (slot(b, args, i, POINTER) for i in range(3))
    count, windows, outside = slot(b, args, 3), slot(b, args, 4), slot(b, args, 5, POINTER)
    size, one = size_of(dtype), type_of(dtype)

    def plane(b: Any, index: Any, _: Any) -> None:
        target = at(b, planes, times(b, times(b, index, count), size))
        begun(b, target, count)

        def window(b: Any, i: Any, _: Any) -> None:
            place = plus(b, times(b, index, windows), i)
            position = read(b, at(b, positions, times(b, place, 8)), I64)
            value, element = at(b, values, times(b, place, size)), at(b, target, times(b, position, size))

            def move(b: Any) -> list[Any]:
                if add is None:
                    write(b, read(b, element, one), value)
                else:
                    add(b, read(b, value, one), element)
                return []

            def complain(b: Any) -> list[Any]:
                write(b, ir.Constant(I64, 1), outside)
                return []

            choose(b, b.icmp_unsigned("<", position, count), move, complain)

        loop(b, 0, windows, window)

    loop(b, begin, end, plane)
    b.ret_void()
    return str(b.module)

"""Packing: a matrix laid out anew in panels, so that the microkernel reads it from one end to the other.

A panel holds ``width`` rows of A (or columns of B): for each k in turn the ``width`` elements, one after the other. Those
beyond the end of the matrix are of no meaning; a pair that k fills by half ends with a zero. Elements become what the
microkernel reads: bfloat16 a float32, int8 an int16 beside its neighbour along k
(:class:`wengert.codegen.microkernel.Arithmetic`). The range of the kernel is that of groups of panels, batch by batch.
"""

from copy import copy
from enum import IntEnum, auto
from typing import Any, Final

from llvmlite import ir

from wengert.codegen.build import (
    VOID,
    at,
    below,
    choose,
    divide_up,
    finish,
    function,
    kernel,
    loop,
    minimum,
    minus,
    number,
    plus,
    prefetch,
    read,
    slot,
    times,
    write,
)
from wengert.codegen.lanes import I32, I64, POINTER, element_type, vector_of
from wengert.codegen.microkernel import Arithmetic, row_pointers, widen
from wengert.loops.scalar import size_of

LINE: Final = 64  # bytes of a cache line
STEPS_AHEAD: Final = 16  # rows of B that the second cache is asked for: in the first, those a page apart collide

__all__ = ["Packing", "PanelSlot", "emit_panels", "transpose"]


class PanelSlot(IntEnum):
    """What the argument array of a packing holds, in order; strides are in bytes.

    ``across`` is the stride from row to row of A (column to column of B), ``along`` that from k to k + 1. ``count`` is how
    many there are. ``table`` is the address of the batches: per batch the address of the matrix and that of its first panel.
    If there is one batch it may be 0: the last slots are that batch.
    """

    across = 0
    along = auto()
    panel = auto()
    count = auto()
    k = auto()
    panels = auto()
    table = auto()
    batch = auto()


def emit_panels(dtype: str, how: Arithmetic, width: int, lanes: int, name: str = "panels", *, together: int = 1) -> str:
    """Return the LLVM IR of a kernel whose arguments are :class:`PanelSlot`.

    Panels are packed ``together`` at a time where rows of them are rows in memory: the range, and ``panels``, count
    such groups, the last of which may be smaller.
    """
    b, args, begin, end = kernel(name)
    pack = Packing(b.module, dtype, how, width, lanes).together(b.module, together)
    across, along, bytes_of_panel, count, k, groups, table = (slot(b, args, s) for s in list(PanelSlot)[:7])

    def group(b: Any, index: Any, _: Any) -> None:
        batch, place = b.udiv(index, groups), times(b, b.urem(index, groups), together)
        entry = at(b, b.inttoptr(table, POINTER), times(b, batch, 16))
        entry = b.select(b.icmp_signed("==", table, number(0)), at(b, args, 8 * PanelSlot.batch), entry)
        first = times(b, place, width)
        source = at(b, slot(b, entry, 0, POINTER), times(b, first, across))
        target = at(b, slot(b, entry, 1, POINTER), times(b, place, bytes_of_panel))
        b.call(pack, [source, target, across, along, minus(b, count, first), k, bytes_of_panel])

    loop(b, begin, end, group)
    return finish(b)


class Packing:
    """Emits the function that packs one panel: ``pack(source, target, across, along, count, k)``.

    ``count`` is how many rows of A (columns of B) there are from the first of the panel on. ``k`` counts elements. There
    are three ways through a panel: neighbours across are neighbours in memory, neighbours along are, or neither.
    """

    def __init__(self, module: Any, dtype: str, how: Arithmetic, width: int, lanes: int) -> None:
        self.dtype, self.how, self.width, self.lanes = dtype, how, width, lanes
        self.size = size_of(dtype)
        self.unit = I32 if how.group == 2 else element_type(how.operand)
        arguments = [POINTER, POINTER, *[I64] * 4]
        b, (source, target, across, along, count, k) = function(module, "pack", VOID, arguments, internal=True)
        self.source, self.target, self.across, self.along, self.k = source, target, across, along, k
        self.filled = minimum(b, count, width)
        self._panel(b)
        b.ret_void()
        self.function = b.function

    def together(self, module: Any, panels: int) -> Any:
        """Emit the function that packs up to some panels, side by side if rows of them are rows in memory.

        Its last argument is how many bytes the panels are apart.
        """
        arguments = [POINTER, POINTER, *[I64] * 5]
        b, (source, target, across, along, count, k, apart) = function(
            module, "together", VOID, arguments, internal=True
        )
        here = copy(self)
        here.source, here.target, here.along = source, target, along
        beside = b.icmp_signed("==", across, number(self.size))
        all_there = b.icmp_signed(">=", count, number(panels * self.width))

        def one(b: Any, j: Any, _: Any) -> None:
            place = at(b, target, times(b, b.udiv(j, number(self.width)), apart))
            b.call(self.function, [at(b, source, times(b, j, across)), place, across, along, minus(b, count, j), k])

        even = b.icmp_signed("==", b.urem(k, number(self.how.group)), number(0))  # no pair lacks its second
        with b.if_else(b.and_(b.and_(beside, all_there), even)) as (at_once, apiece):
            with at_once:
                full = b.udiv(k, number(self.how.group))
                loop(b, 0, full, lambda b, i, _: here._row(b, i, panels, apart))
            with apiece:
                loop(b, 0, minimum(b, count, panels * self.width), one, step=self.width)
        b.ret_void()
        return b.function

    def _panel(self, b: Any) -> None:
        """Emit the ways: by vectors as far as they go, the rest element by element."""
        full = b.udiv(self.k, number(self.how.group))  # steps whose elements are all there
        beside = b.icmp_signed("==", self.across, number(self.size))
        behind = b.icmp_signed("==", self.along, number(self.size))

        def by_rows(b: Any) -> list[Any]:
            whole = b.icmp_signed("==", self.filled, number(self.width))
            with b.if_else(whole) as (all_there, some):
                with all_there:
                    loop(b, 0, full, lambda b, i, _: self._row(b, i, 1))
                with some:
                    loop(b, 0, full, self._short_row)
            return [full]

        def by_blocks(b: Any) -> list[Any]:
            rows = row_pointers(b, self.source, self.across, self.width, minus(b, self.filled, 1))
            blocks = b.sub(full, b.urem(full, number(self.lanes)))
            loop(b, 0, blocks, lambda b, i, _: self._blocks(b, rows, i), step=self.lanes)
            return [blocks]

        def otherwise(b: Any) -> list[Any]:
            return choose(b, behind, by_blocks, lambda b: [number(0)])

        done = choose(b, beside, by_rows, otherwise)[0]
        loop(b, done, divide_up(b, self.k, self.how.group), self._elements)

    def _place(self, b: Any, i: Any) -> Any:
        """Return where in the panel a step along begins."""
        return at(b, self.target, times(b, i, self.width * self.how.size))

    # ---- neighbours across are neighbours in memory

    def _row(self, b: Any, i: Any, panels: int, apart: Any = 0) -> None:
        """Emit one step along of some panels."""
        line, out = at(b, self.source, times(b, times(b, i, self.how.group), self.along)), self._place(b, i)
        for offset in range(0, panels * self.width * self.size, LINE):
            prefetch(b, at(b, line, times(b, self.along, STEPS_AHEAD), offset))
        lanes = min(self.lanes, self.width)
        for start in range(0, panels * self.width, lanes):
            panel, within = divmod(start, self.width)
            write(b, self._vector(b, line, start, lanes), at(b, out, times(b, panel, apart), within * self.how.size))

    def _short_row(self, b: Any, i: Any, _: Any) -> None:
        """Emit one step along of a panel that is narrower: vectors as far as there are whole ones, then elements."""
        lanes = min(self.lanes, self.width)
        line, out = at(b, self.source, times(b, times(b, i, self.how.group), self.along)), self._place(b, i)

        def vector(b: Any, j: Any, _: Any) -> None:
            write(b, self._vector(b, line, j, lanes), at(b, out, times(b, j, self.how.size)))

        vectors = b.sub(self.filled, b.urem(self.filled, number(lanes)))
        loop(b, 0, vectors, vector, step=lanes)
        loop(b, vectors, self.filled, lambda b, j, _: self._element(b, out, i, j))

    def _vector(self, b: Any, line: Any, start: Any, lanes: int) -> Any:
        """Return neighbours across, as the microkernel reads them."""
        kind = vector_of(element_type(self.dtype), lanes)
        place = times(b, start, self.size)
        values = [read(b, at(b, line, times(b, g, self.along), place), kind) for g in range(self.how.group)]
        return self._unit(b, values, lanes)

    def _unit(self, b: Any, values: list[Any], lanes: int) -> Any:
        """Return elements, or pairs of them, as the microkernel reads them."""
        if self.how.group == 1:
            return widen(b, values[0], self.dtype, self.how.operand)
        kind = vector_of(I32, lanes) if lanes > 1 else I32
        low, high = (b.zext(self._narrow(b, value), kind) for value in values)
        shift = ir.Constant(kind, [16] * lanes if lanes > 1 else 16)
        return b.or_(low, b.shl(high, shift))

    def _narrow(self, b: Any, value: Any) -> Any:
        """Return an element of a pair as its 16 bits."""
        return widen(b, value, self.dtype, "i16") if self.dtype == "i8" else value

    # ---- neighbours along are neighbours in memory

    def _blocks(self, b: Any, rows: list[Any], i: Any) -> None:
        """Emit a turn that takes ``lanes`` steps along, of all the panel, and transposes them group by group.

        Of the next panel the same is asked for: rows are too short for the processor to see that they are walked.
        """
        group = min(self.lanes, self.width)
        out, offset = self._place(b, i), times(b, i, self.how.group * self.size)
        next_panel = times(b, self.width, self.across)
        for start in range(0, self.width, group):
            some = rows[start : start + group]
            for row in some:
                prefetch(b, at(b, row, next_panel, offset))
            values = [self._run(b, at(b, row, offset)) for row in some]
            for place, value in enumerate(transpose(b, values)):
                step, within = divmod(place * self.lanes, group)
                write(b, value, at(b, out, (step * self.width + start + within) * self.how.size))

    def _run(self, b: Any, place: Any) -> Any:
        """Return ``lanes`` steps along one row as the microkernel reads them."""
        values = read(b, place, vector_of(element_type(self.dtype), self.lanes * self.how.group))
        if self.how.group == 1:
            return widen(b, values, self.dtype, self.how.operand)
        return b.bitcast(self._narrow(b, values), vector_of(I32, self.lanes))

    # ---- element by element

    def _elements(self, b: Any, i: Any, _: Any) -> None:
        """Emit one step along, which may lack the last element of its pairs."""
        out = self._place(b, i)
        loop(b, 0, self.filled, lambda b, j, _: self._element(b, out, i, j))

    def _element(self, b: Any, out: Any, i: Any, j: Any) -> None:
        kind, zero = element_type(self.dtype), ir.Constant(element_type(self.dtype), 0)

        def element(b: Any, g: int) -> Any:
            step = plus(b, times(b, i, self.how.group), g)
            place = at(b, self.source, times(b, j, self.across), times(b, step, self.along))
            if g == 0:
                return read(b, place, kind)
            return choose(b, below(b, step, self.k), lambda b: [read(b, place, kind)], lambda b: [zero])[0]

        values = [element(b, g) for g in range(self.how.group)]
        write(b, self._unit(b, values, 1), at(b, out, times(b, j, self.how.size)))


def transpose(b: Any, rows: list[Any]) -> list[Any]:
    """Return vectors that hold, step by step, the elements of all rows: rows[0][0], rows[1][0], …, rows[0][1], …"""
    if len(rows) == 1:
        return rows
    found = []
    for x, y in zip(transpose(b, rows[0::2]), transpose(b, rows[1::2]), strict=True):
        lanes = x.type.count
        for half in (0, lanes // 2):
            order = [half + place // 2 + (lanes if place % 2 else 0) for place in range(lanes)]
            found.append(b.shuffle_vector(x, y, ir.Constant(vector_of(I32, lanes), order)))
    return found

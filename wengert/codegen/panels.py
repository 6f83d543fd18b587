"""Packing: a matrix laid out anew in panels, so that the microkernel reads it from one end to the other.

A panel holds ``width`` rows of A (or columns of B): for each k in turn the ``width`` elements, one after the other, zeros where
the matrix has ended. Elements become what the microkernel reads: bfloat16 a float32, int8 an int16 beside its neighbour
along k (:class:`wengert.codegen.microkernel.Arithmetic`). The range of the kernel is that of the panels, batch by batch.
"""

from enum import IntEnum, auto
from typing import Any, Final

from llvmlite import ir

from wengert.codegen.build import (
    at,
    below,
    choose,
    divide_up,
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
from wengert.codegen.lanes import I32, POINTER, element_type, vector_of
from wengert.codegen.microkernel import Arithmetic, widen
from wengert.loops.scalar import size_of

LINE: Final = 64  # bytes of a cache line
STEPS_AHEAD: Final = 8  # rows of B that are asked for before they are copied

__all__ = ["PanelSlot", "emit_panels", "transpose"]


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


def emit_panels(dtype: str, how: Arithmetic, width: int, lanes: int, name: str = "panels") -> str:
    """Return the LLVM IR of a kernel whose arguments are :class:`PanelSlot`."""
    return _Panels(dtype, how, width, lanes, name).text()


class _Panels:
    """Emits the three ways through a panel: neighbours across are neighbours in memory, neighbours along are, neither."""

    def __init__(self, dtype: str, how: Arithmetic, width: int, lanes: int, name: str) -> None:
        self.dtype, self.how, self.width, self.lanes = dtype, how, width, lanes
        self.size = size_of(dtype)
        self.unit = I32 if how.group == 2 else element_type(how.operand)
        self.b, self.args, self.begin, self.end = kernel(name)
        self.across, self.along = slot(self.b, self.args, PanelSlot.across), slot(self.b, self.args, PanelSlot.along)

    def text(self) -> str:
        """Emit the loop over panels."""
        b, args = self.b, self.args
        panels, k, count = (slot(b, args, s) for s in (PanelSlot.panels, PanelSlot.k, PanelSlot.count))
        steps, table = divide_up(b, k, self.how.group), slot(b, args, PanelSlot.table)

        def panel(b: Any, index: Any, _: Any) -> None:
            batch, place = b.udiv(index, panels), b.urem(index, panels)
            entry = at(b, b.inttoptr(table, POINTER), times(b, batch, 16))
            entry = b.select(b.icmp_signed("==", table, number(0)), at(b, args, 8 * PanelSlot.batch), entry)
            first = times(b, place, self.width)
            source = at(b, slot(b, entry, 0, POINTER), times(b, first, self.across))
            target = at(b, slot(b, entry, 1, POINTER), times(b, place, slot(b, args, PanelSlot.panel)))
            self._panel(b, source, target, minimum(b, minus(b, count, first), self.width), k, steps)

        loop(b, self.begin, self.end, panel)
        b.ret_void()
        return str(b.module)

    def _panel(self, b: Any, source: Any, target: Any, filled: Any, k: Any, steps: Any) -> None:
        """Emit one panel: by vectors as far as they go, the rest element by element."""
        whole = b.icmp_signed("==", filled, number(self.width))
        beside = b.and_(whole, b.icmp_signed("==", self.across, number(self.size)))
        behind = b.and_(whole, b.icmp_signed("==", self.along, number(self.size)))
        full = b.udiv(k, number(self.how.group))  # steps whose elements are all there

        def by_rows(b: Any) -> list[Any]:
            loop(b, 0, full, lambda b, i, _: self._row(b, source, target, i))
            return [full]

        def by_blocks(b: Any) -> list[Any]:
            blocks = b.sub(full, b.urem(full, number(self.lanes)))
            loop(b, 0, blocks, lambda b, i, _: self._blocks(b, source, target, i), step=self.lanes)
            return [blocks]

        def otherwise(b: Any) -> list[Any]:
            return choose(b, behind, by_blocks, lambda b: [number(0)])

        done = choose(b, beside, by_rows, otherwise)[0]
        loop(b, done, steps, lambda b, i, _: self._elements(b, source, target, filled, k, i))

    # ---- neighbours across are neighbours in memory

    def _row(self, b: Any, source: Any, target: Any, i: Any) -> None:
        line = at(b, source, times(b, times(b, i, self.how.group), self.along))
        out = at(b, target, times(b, i, self.width * self.how.size))
        for offset in range(0, self.width * self.size, LINE):
            prefetch(b, at(b, line, times(b, self.along, STEPS_AHEAD), offset))
        lanes = min(self.lanes, self.width)
        kind = vector_of(element_type(self.dtype), lanes)
        for start in range(0, self.width, lanes):
            values = [
                read(b, at(b, line, times(b, g, self.along), start * self.size), kind) for g in range(self.how.group)
            ]
            write(b, self._unit(b, values, lanes), at(b, out, start * self.how.size))

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

    def _blocks(self, b: Any, source: Any, target: Any, i: Any) -> None:
        """Emit a turn that takes ``lanes`` steps along, of all the panel, and transposes them group by group."""
        group = min(self.lanes, self.width)
        out = at(b, target, times(b, i, self.width * self.how.size))
        for start in range(0, self.width, group):
            for j in range(
                group
            ):  # of the next panel: rows are too short for the processor to see that they are walked
                place = at(
                    b, source, times(b, self.width + start + j, self.across), times(b, i, self.how.group * self.size)
                )
                prefetch(b, place)
            rows = [self._run(b, at(b, source, times(b, start + j, self.across)), i) for j in range(group)]
            for place, value in enumerate(transpose(b, rows)):
                step, within = divmod(place * self.lanes, group)
                write(b, value, at(b, out, (step * self.width + start + within) * self.how.size))

    def _run(self, b: Any, line: Any, i: Any) -> Any:
        """Return ``lanes`` steps along one row as the microkernel reads them."""
        place = at(b, line, times(b, i, self.how.group * self.size))
        values = read(b, place, vector_of(element_type(self.dtype), self.lanes * self.how.group))
        if self.how.group == 1:
            return widen(b, values, self.dtype, self.how.operand)
        return b.bitcast(self._narrow(b, values), vector_of(I32, self.lanes))

    # ---- element by element

    def _elements(self, b: Any, source: Any, target: Any, filled: Any, k: Any, i: Any) -> None:
        """Emit one step along of a panel that may be narrower, or lack the last element of its pairs."""
        out = at(b, target, times(b, i, self.width * self.how.size))
        kind, zero = element_type(self.dtype), ir.Constant(element_type(self.dtype), 0)

        def element(b: Any, j: Any, g: int) -> Any:
            step = plus(b, times(b, i, self.how.group), g)
            place = at(b, source, times(b, j, self.across), times(b, step, self.along))
            there = b.and_(below(b, j, filled), below(b, step, k))
            return choose(b, there, lambda b: [read(b, place, kind)], lambda b: [zero])[0]

        def turn(b: Any, j: Any, _: Any) -> None:
            values = [element(b, j, g) for g in range(self.how.group)]
            write(b, self._unit(b, values, 1), at(b, out, times(b, j, self.how.size)))

        loop(b, 0, self.width, turn)


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

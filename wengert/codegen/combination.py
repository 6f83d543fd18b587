"""Products of a row with a matrix whose rows are contiguous: a linear combination of its rows, several at once.

The matrix passes once, so that memory sets the pace: a few rows are walked side by side, each from one end of a block to the
other, while the sums of the block stay in the first cache. The kernel has the arguments of
:mod:`wengert.codegen.contraction`; every sum is taken in the order of k.
"""

from typing import Any, Final

from wengert.codegen.build import (
    VOID,
    at,
    first_lanes,
    function,
    loop,
    minimum,
    minus,
    number,
    plus,
    read,
    slot,
    times,
    write,
)
from wengert.codegen.contraction import Batch, Places, Product, Slot
from wengert.codegen.epilogue import Epilogue
from wengert.codegen.lanes import I64, POINTER, splat, type_of
from wengert.codegen.microkernel import Arithmetic, Tile
from wengert.codegen.operations import intrinsic

__all__ = ["emit_combination"]

SUMS: Final = 512  # vectors of sums that are held: half of the first cache
ROWS: Final = (
    4  # that are walked at once: more would fight for the same lines of the first cache where they are a page apart
)
TURN: Final = 4  # vectors of each of them in a turn


def emit_combination(how: Arithmetic, tile: Tile, epilogue: Epilogue, name: str = "product") -> str:
    """Return the LLVM IR of a kernel whose arguments are :class:`wengert.codegen.contraction.Slot`.

    The rows of B must be contiguous; ``how`` must read elements as they are. The columns of ``tile`` are those of a panel.
    """
    return _Combination(how, tile, epilogue, name).text()


class _Combination(Product):
    """The kernel with tiles that are as wide as the sums that are held."""

    def __init__(self, how: Arithmetic, tile: Tile, epilogue: Epilogue, name: str) -> None:
        self.panel_columns = tile.columns
        super().__init__(how.operand, how, Tile(1, SUMS, tile.lanes), epilogue, name)

    def _tiles(self) -> None:
        self.combine = self._combine(self._prepare())

    def _block(self, b: Any, addresses: list[Any], row: Any, column: Any) -> None:
        """Emit a block, whose panels are walked as one."""
        near, far = self._span(b, column, Slot.column_panels, self.panel_columns, slot(b, self.args, Slot.columns))

        def across(b: Any, j: Any, _: Any) -> None:
            right = at(b, addresses[Batch.right], times(b, j, self.size))
            places = self._places(b, addresses, right, number(0), j, number(1), far)
            b.call(self.combine, [self.args, *places, self.scratch])

        loop(b, near, far, across, step=self.tile.columns)

    def _combine(self, prepare: Any) -> Any:
        """Emit a tile, whose sums are in memory."""
        arguments = [*[POINTER] * 7, I64, I64, POINTER]
        b, (args, *rest, scratch) = function(self.module, "combine", VOID, arguments, internal=True)
        places, k = Places(*rest), slot(b, args, Slot.k)
        b.call(prepare, [args, places.partial, places.rows, places.columns, scratch])
        whole = b.sub(k, b.urem(k, number(ROWS)))
        columns = minimum(b, places.columns, self.tile.columns)
        loop(b, 0, whole, lambda b, i, _: self._some(b, args, places, columns, scratch, i, ROWS), step=ROWS)
        loop(b, whole, k, lambda b, i, _: self._some(b, args, places, columns, scratch, i, 1))
        b.call(self.finish, [args, *places[2:], scratch])
        b.ret_void()
        return b.function

    def _some(self, b: Any, args: Any, places: Places, columns: Any, scratch: Any, i: Any, rows: int) -> None:
        """Emit the addition of some rows, from row ``i`` on, to the sums."""
        step, lanes = slot(b, args, Slot.right_k), self.tile.lanes
        lines = [at(b, places.right, times(b, plus(b, i, r), step)) for r in range(rows)]
        along = slot(b, args, Slot.left_k)
        elements = [at(b, places.left, times(b, plus(b, i, r), along)) for r in range(rows)]
        weights = [splat(b, read(b, element, type_of(self.how.total)), lanes) for element in elements]

        def vector(b: Any, offset: Any, mask: Any = None) -> None:
            place = at(b, scratch, offset)
            total = read(b, place, self.total)
            for weight, line in zip(weights, lines, strict=True):
                total = intrinsic(
                    b, "fmuladd", self.total, [weight, read(b, at(b, line, offset), self.total, mask), total]
                )
            write(b, total, place)

        def turn(b: Any, j: Any, _: Any) -> None:
            for v in range(TURN):
                vector(b, times(b, plus(b, j, v * lanes), self.size))

        def rest(b: Any, j: Any, _: Any) -> None:
            vector(b, times(b, j, self.size), first_lanes(b, minus(b, columns, j), lanes))

        whole = b.sub(columns, b.urem(columns, number(TURN * lanes)))
        loop(b, 0, whole, turn, step=TURN * lanes)
        loop(b, whole, columns, rest, step=lanes)

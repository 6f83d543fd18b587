"""Products of a row with a matrix whose columns are contiguous: a dot product for each column, several at once.

This is how a matrix that lies row by row is multiplied by a vector. The kernel has the arguments of
:mod:`wengert.codegen.contraction`; ``k`` is not cut. A sum is taken in parts, element i going to part ``i % (2 * lanes)``, and
then over the parts, whatever the number of threads.
"""

from typing import Any, Final

from wengert.codegen.build import (
    VOID,
    at,
    choose,
    first_lanes,
    function,
    loop,
    minus,
    number,
    plus,
    read,
    slot,
    times,
    write,
)
from wengert.codegen.contraction import Places, Product, Slot
from wengert.codegen.epilogue import Epilogue
from wengert.codegen.lanes import I64, POINTER
from wengert.codegen.microkernel import Arithmetic, Tile, row_pointers, zeros
from wengert.codegen.operations import intrinsic
from wengert.codegen.panels import transpose

__all__ = ["emit_dots"]

COLUMNS: Final = (
    4  # that are walked at once: more would fight for the same lines of the first cache where k is a power of two
)
PARTS: Final = 2  # vectors of partial sums for each of them


def emit_dots(how: Arithmetic, lanes: int, epilogue: Epilogue, name: str = "product") -> str:
    """Return the LLVM IR of a kernel whose arguments are :class:`wengert.codegen.contraction.Slot`.

    The row, and the columns of B, must be contiguous along k; ``how`` must read elements as they are.
    """
    return _Dots(how.operand, how, Tile(1, 1, lanes), epilogue, name).text()


class _Dots(Product):
    """The kernel with tiles that are a vector of dot products."""

    def _tiles(self) -> None:
        self.dots = self._dots()

    def _right(self, b: Any, matrix: Any, j: Any, far: Any) -> list[Any]:
        """Return where the columns of some tiles begin, and how far apart they are."""
        return [self._panel(b, matrix, j), slot(b, self.args, Slot.right_panel)]

    def _tile(self, b: Any, places: Places) -> None:
        b.call(self.dots, [self.args, *places, self.scratch])

    def _dots(self) -> Any:
        """Emit as many dot products as a vector has lanes; columns that there are not repeat the last."""
        arguments = [*[POINTER] * 7, I64, I64, POINTER]
        b, (args, *rest, scratch) = function(self.module, "dots", VOID, arguments, internal=True)
        places, lanes = Places(*rest), self.tile.lanes
        stride = b.sdiv(slot(b, args, Slot.right_panel), number(lanes))
        pointers = row_pointers(b, places.right, stride, lanes, minus(b, places.columns, 1))
        sums: list[Any] = []
        for start in range(0, lanes, COLUMNS):
            sums += self._some(b, places.left, pointers[start : start + COLUMNS], slot(b, args, Slot.k))
        total, *others = transpose(b, sums)
        for other in others:
            total = b.fadd(total, other)
        write(b, total, scratch)
        b.call(self.finish, [args, *places[2:], scratch])
        b.ret_void()
        return b.function

    def _some(self, b: Any, left: Any, pointers: list[Any], k: Any) -> list[Any]:
        """Emit a few dot products; return them as vectors whose lanes are still to be summed."""
        lanes = self.tile.lanes
        whole = b.sub(k, b.urem(k, number(PARTS * lanes)))

        def step(b: Any, i: Any, sums: list[Any], masks: tuple[Any, ...] = (None,) * PARTS) -> list[Any]:
            found = []
            for part, mask in enumerate(masks):
                offset = times(b, plus(b, i, part * lanes), self.size)
                x = read(b, at(b, left, offset), self.total, mask)
                columns = [read(b, at(b, pointer, offset), self.total, mask) for pointer in pointers]
                mine = sums[part * len(pointers) : (part + 1) * len(pointers)]
                found += [intrinsic(b, "fmuladd", self.total, [x, y, s]) for y, s in zip(columns, mine, strict=True)]
            return found

        def rest(b: Any) -> list[Any]:
            left_over = minus(b, k, whole)
            masks = tuple(first_lanes(b, minus(b, left_over, part * lanes), lanes) for part in range(PARTS))
            return step(b, whole, sums, masks)

        start = zeros(self.how, Tile(PARTS, len(pointers), lanes))
        sums = loop(b, 0, whole, step, step=PARTS * lanes, carry=start)
        sums = choose(b, b.icmp_signed("<", whole, k), rest, lambda b: sums)
        return [b.fadd(x, y) for x, y in zip(sums[: len(pointers)], sums[len(pointers) :], strict=True)]

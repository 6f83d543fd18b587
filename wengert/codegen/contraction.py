"""Matrix products as kernels: all tiles of ranges of blocks, with what is done to a sum before it is stored.

One kernel serves every size, layout and number of batches of its dtypes and :class:`Epilogue`: operands are given by strides,
whether they are read in place or were packed into panels (:mod:`wengert.codegen.panels`). B may also be packed here, a few
panels at a time, just before they are used, so that they are read from the first caches. The range is that of the blocks
of the result, counted batch by batch, column block by column block, row block by row block. k may be cut: every part but the
last leaves its sums in ``partial``, from where the next goes on, so that cutting changes no bit of the result.
"""

from enum import IntEnum, auto
from typing import Any, Final, NamedTuple

from llvmlite import ir

from wengert.codegen.build import (
    VOID,
    at,
    choose,
    divide_up,
    first_lanes,
    function,
    kernel,
    loop,
    minimum,
    minus,
    number,
    plus,
    prefetch,
    read,
    read_first,
    slot,
    times,
    write,
    write_first,
)  # fmt: skip
from wengert.codegen.epilogue import Epilogue, Function
from wengert.codegen.lanes import BYTE, I64, POINTER, Value, element_type, type_of, vector_of
from wengert.codegen.microkernel import Arithmetic, Left, Right, Tile, multiply_add, row_pointers, zeros
from wengert.codegen.panels import Packing
from wengert.loops.scalar import size_of

__all__ = ["PANEL", "Batch", "Places", "Product", "Slot", "emit_product", "masked_reads"]

LINE: Final = 64  # bytes of a cache line
BEGINNING: Final = 4  # lines of the next panel of A: from there on the processor sees where it goes
TOGETHER: Final = 2  # panels of B that are packed at once: neighbours share lines and pages of memory
PANEL: Final = 48 * 1024  # bytes that a thread has for each of them


class Slot(IntEnum):
    """What the argument array of a product holds, in order; strides are in bytes, panels are those of a tile.

    ``packed`` is how many elements along k of B are packed before use, 0 if it is read as it is: ``right_k`` is then the step
    within a panel, ``right_panel`` that between panels before they are packed, ``across`` and ``along`` those of elements.
    ``first`` and ``last`` say whether this part of k is the first, the last. ``table`` is the address of the batches, one
    :class:`Batch` after the other. If there is one batch it may also be 0: the last slots are that batch; or 1: they say where
    its addresses are to be found.
    """

    left_row = 0
    left_k = auto()
    left_panel = auto()
    right_k = auto()
    right_panel = auto()
    packed = auto()
    across = auto()
    along = auto()
    partial_row = auto()
    out_row = auto()
    addend_row = auto()
    rows = auto()
    columns = auto()
    k = auto()
    row_blocks = auto()
    column_blocks = auto()
    row_panels = auto()  # in a block
    column_panels = auto()
    first = auto()
    last = auto()
    alpha = auto()
    beta = auto()
    table = auto()
    batch = auto()


class Batch(IntEnum):
    """The addresses of one product of a batch."""

    left = 0
    right = auto()
    partial = auto()
    out = auto()
    addend = auto()
    bias = auto()


def masked_reads(vector_bytes: int) -> bool:
    """Whether vectors are read under a mask in one instruction.

    If not, panels of B that are not full must be packed.
    """
    return vector_bytes >= 32


def emit_product(dtype: str, how: Arithmetic, tile: Tile, epilogue: Epilogue, name: str = "product") -> str:
    """Return the LLVM IR of a kernel whose arguments are :class:`Slot`; ``dtype`` is that of B before it is packed."""
    return Product(dtype, how, tile, epilogue, name).text()


class Places(NamedTuple):
    """Where the elements of one tile lie, and how many rows and columns there are from its corner on."""

    left: Any
    right: Any
    partial: Any
    out: Any
    addend: Any
    bias: Any
    rows: Any
    columns: Any


class Product:
    """Emits the kernel and the functions it calls: the full tile, the tiles at the edges, what finishes a tile."""

    def __init__(self, dtype: str, how: Arithmetic, tile: Tile, epilogue: Epilogue, name: str) -> None:
        self.dtype, self.how, self.tile, self.epilogue = dtype, how, tile, epilogue
        self.total = vector_of(type_of(how.total), tile.lanes)
        self.size, self.out_size = size_of(how.total), size_of(epilogue.dtype)
        self.b, self.args, self.begin, self.end = kernel(name)
        self.module = self.b.module
        self.scratch = self.b.alloca(self.total, tile.rows * tile.vectors)
        self.finish = self._finish()
        self._tiles()

    def _tiles(self) -> None:
        """Emit the functions for tiles, and the one that packs a panel of B."""
        self.panels = self.b.alloca(ir.ArrayType(BYTE, TOGETHER * PANEL))
        self.panels.align = LINE
        one = Packing(self.module, self.dtype, self.how, self.tile.columns, self.tile.lanes)
        self.pack = one.together(self.module, TOGETHER)
        self.edge = self._edge()
        self.full = {v: self._full(self.tile._replace(vectors=v)) for v in range(1, self.tile.vectors + 1)}

    # ---- the kernel

    def text(self) -> str:
        """Emit the loop over blocks."""
        b, args = self.b, self.args
        row_blocks, column_blocks = slot(b, args, Slot.row_blocks), slot(b, args, Slot.column_blocks)
        table = slot(b, args, Slot.table)
        tabled = b.icmp_unsigned(">", table, number(1))

        def block(b: Any, index: Any, _: Any) -> None:
            rest, row = b.udiv(index, row_blocks), b.urem(index, row_blocks)
            batch, column = b.udiv(rest, column_blocks), b.urem(rest, column_blocks)
            entry = at(b, b.inttoptr(table, POINTER), times(b, batch, 8 * len(Batch)))
            entry = b.select(tabled, entry, at(b, args, 8 * Slot.batch))
            addresses = [slot(b, entry, place, POINTER) for place in Batch]
            found = choose(
                b,
                b.icmp_signed("==", table, number(1)),
                lambda b: [slot(b, address, 0, POINTER) for address in addresses],
                lambda b: addresses,
            )
            self._block(b, found, row, column)

        loop(b, self.begin, self.end, block)
        b.ret_void()
        return str(self.module)

    def _block(self, b: Any, addresses: list[Any], row: Any, column: Any) -> None:
        """Emit the tiles of a block: a panel of B stays in the first cache while those of A pass."""
        tile, args = self.tile, self.args
        rows, columns = slot(b, args, Slot.rows), slot(b, args, Slot.columns)

        top, bottom = self._span(b, row, Slot.row_panels, tile.rows, rows)
        near, far = self._span(b, column, Slot.column_panels, tile.columns, columns)

        def group(b: Any, first: Any, _: Any) -> None:
            panels, apart = self._right(b, addresses[Batch.right], first, far)

            def across(b: Any, j: Any, _: Any) -> None:
                right = at(b, panels, times(b, b.udiv(minus(b, j, first), number(tile.columns)), apart))

                def down(b: Any, i: Any, _: Any) -> None:
                    self._tile(b, self._places(b, addresses, right, i, j, rows, columns))

                loop(b, top, bottom, down, step=tile.rows)

            loop(b, first, minimum(b, plus(b, first, TOGETHER * tile.columns), far), across, step=tile.columns)

        loop(b, near, far, group, step=TOGETHER * tile.columns)

    def _span(self, b: Any, index: Any, panels: Slot, size: int, count: Any) -> tuple[Any, Any]:
        """Return the first row (or column) of a block, and the one after its last."""
        per = times(b, slot(b, self.args, panels), size)
        start = times(b, index, per)
        return start, minimum(b, plus(b, start, per), count)

    def _panel(self, b: Any, matrix: Any, j: Any) -> Any:
        """Return where a panel of B begins."""
        index = b.udiv(j, number(self.tile.columns))
        return at(b, matrix, times(b, index, slot(b, self.args, Slot.right_panel)))

    def _right(self, b: Any, matrix: Any, j: Any, far: Any) -> list[Any]:
        """Return where some panels of B begin, packed if they are to be, and how far apart they are."""
        source = self._panel(b, matrix, j)
        along, across, count = (slot(b, self.args, s) for s in (Slot.along, Slot.across, Slot.packed))

        def packed(b: Any) -> list[Any]:
            b.call(self.pack, [source, self.panels, across, along, minus(b, far, j), count, number(PANEL)])
            return [self.panels, number(PANEL)]

        as_it_is = [source, slot(b, self.args, Slot.right_panel)]
        return choose(b, b.icmp_signed("!=", count, number(0)), packed, lambda b: as_it_is)

    def _places(self, b: Any, addresses: list[Any], right: Any, i: Any, j: Any, rows: Any, columns: Any) -> Places:
        left, _, partial, out, addend, bias = addresses

        def moved(pointer: Any, row_stride: Slot, size: int) -> Any:
            return at(b, pointer, times(b, i, slot(b, self.args, row_stride)), times(b, j, size))

        return Places(
            at(b, left, times(b, b.udiv(i, number(self.tile.rows)), slot(b, self.args, Slot.left_panel))),
            right,
            moved(partial, Slot.partial_row, self.size),
            moved(out, Slot.out_row, self.out_size),
            moved(addend, Slot.addend_row, self.out_size) if self.epilogue.addend else addend,
            at(b, bias, times(b, i if self.epilogue.bias == "row" else j, self.size)) if self.epilogue.bias else bias,
            minus(b, rows, i),
            minus(b, columns, j),
        )

    def _tile(self, b: Any, places: Places) -> None:
        """Emit the call of the function for a tile: the full one of its width, or that of the edges."""
        columns = minimum(b, places.columns, self.tile.columns)
        tall = b.icmp_signed(">=", places.rows, number(self.tile.rows))
        done = b.append_basic_block("tiled")
        for width, full in reversed(self.full.items()):
            taken, other = b.append_basic_block(f"wide{width}"), b.append_basic_block("other")
            b.cbranch(b.and_(tall, b.icmp_signed("==", columns, number(width * self.tile.lanes))), taken, other)
            b.position_at_end(taken)
            b.call(full, [self.args, *places[:6], self.scratch])
            b.branch(done)
            b.position_at_end(other)
        b.call(self.edge, [self.args, *places, self.scratch])
        b.branch(done)
        b.position_at_end(done)

    # ---- the full tile

    def _full(self, tile: Tile) -> Any:
        """Emit a tile that has all its rows, and whole vectors; its sums go from registers to the result."""
        x = Function(self.module, f"full{tile.vectors}", [POINTER] * 8)
        b = x.builder
        args, left, right, partial, out, addend, bias, scratch = x.arguments
        places = Places(left, right, partial, out, addend, bias, number(tile.rows), number(tile.columns))
        vectors = [(r, v) for r in range(tile.rows) for v in range(tile.vectors)]
        row = slot(b, args, Slot.partial_row)
        lines = [at(b, places.partial, times(b, r, row)) for r in range(tile.rows)]
        held = [at(b, lines[r], v * tile.lanes * self.size) for r, v in vectors]
        self._prefetch(b, at(b, left, slot(b, args, Slot.left_panel)), lines, row, tile)
        start = choose(
            b,
            self._flag(b, args, Slot.first),
            lambda b: zeros(self.how, tile),
            lambda b: [read(b, place, self.total) for place in held],
        )
        pointers = row_pointers(b, left, slot(b, args, Slot.left_row), tile.rows)
        sums = self._multiply(b, args, tile, pointers, Right(right, slot(b, args, Slot.right_k)), start)
        if self.epilogue.long:
            for (r, v), value in zip(vectors, sums, strict=True):
                write(b, value, at(b, scratch, (r * self.tile.vectors + v) * tile.lanes * self.size))
            b.call(self.finish, [args, *places[2:], scratch])
        else:
            self._store(x, places, tile, sums, held)
        return x.close()

    def _store(self, x: "Function", places: Places, tile: Tile, sums: list[Any], held: list[Any]) -> None:
        """Emit the end of a full tile, from registers."""
        b, args = x.builder, x.arguments[0]
        with b.if_else(self._flag(b, args, Slot.last)) as (last, more):
            with last:
                known = self._numbers(b, args)
                biases = self._column_biases(b, places, tile)
                out_row, addend_row = slot(b, args, Slot.out_row), slot(b, args, Slot.addend_row)
                for r in range(tile.rows):
                    out, addend = at(b, places.out, times(b, r, out_row)), at(b, places.addend, times(b, r, addend_row))
                    if self.epilogue.bias == "row":
                        known["bias"] = Value(read(b, at(b, places.bias, r * self.size), self.total.element), False)
                    for v in range(tile.vectors):
                        offset = v * tile.lanes * self.out_size
                        known["sum"] = Value(sums[r * tile.vectors + v], True)
                        if self.epilogue.bias == "column":
                            known["bias"] = biases[v]
                        if self.epilogue.addend:
                            known["addend"] = Value(read(b, at(b, addend, offset), self._result_type()), True)
                        done = x.value(self.epilogue.formula(self.how.total), known, tile.lanes)
                        write(b, done, at(b, out, offset))
            with more:
                for place, value in zip(held, sums, strict=True):
                    write(b, value, place)

    def _column_biases(self, b: Any, places: Places, tile: Tile) -> list[Value]:
        """Return the biases of the columns of a tile, vector by vector."""
        if self.epilogue.bias != "column":
            return []
        offsets = [v * tile.lanes * self.size for v in range(tile.vectors)]
        return [Value(read(b, at(b, places.bias, offset), self.total), True) for offset in offsets]

    def _prefetch(self, b: Any, left: Any, lines: list[Any], row: Any, tile: Tile) -> None:
        """Emit hints of what will be needed: A and the sums of the tile below."""
        for line in range(BEGINNING):
            prefetch(b, at(b, left, line * LINE))
        for address in lines:
            for offset in range(0, tile.columns * self.size, LINE):
                prefetch(b, at(b, address, times(b, row, tile.rows), offset), write=True)

    # ---- the edges

    def _edge(self) -> Any:
        """Emit a tile that lacks rows or columns: the smallest tile that covers it, on sums in memory."""
        x = Function(self.module, "edge", [*[POINTER] * 7, I64, I64, POINTER])
        b, args, scratch = x.builder, x.arguments[0], x.arguments[-1]
        places = Places(*x.arguments[1:9])
        prepare = self._prepare()
        b.call(prepare, [args, places.partial, places.rows, places.columns, scratch])
        heights = [h for h in (4, 8) if h < self.tile.rows] + [self.tile.rows]
        done = b.append_basic_block("computed")
        for height in heights:
            for width in range(1, self.tile.vectors + 1):
                part = Tile(height, width, self.tile.lanes)
                fits = b.and_(
                    b.icmp_signed("<=", minimum(b, places.rows, self.tile.rows), number(height)),
                    b.icmp_signed("<=", minimum(b, places.columns, self.tile.columns), number(part.columns)),
                )
                taken, other = b.append_basic_block(f"tile{height}x{width}"), b.append_basic_block("other")
                b.cbranch(fits, taken, other)
                b.position_at_end(taken)
                b.call(self._part(part), [args, places.left, places.right, places.rows, places.columns, scratch])
                b.branch(done)
                b.position_at_end(other)
        b.branch(done)
        b.position_at_end(done)
        b.call(self.finish, [args, *places[2:], scratch])
        return x.close()

    def _part(self, tile: Tile) -> Any:
        """Emit a smaller tile, whose sums are in memory as rows of full tiles."""
        b, (args, left, right, rows, columns, scratch) = function(
            self.module, f"part{tile.rows}x{tile.vectors}", VOID, [*[POINTER] * 3, I64, I64, POINTER], internal=True
        )
        pointers = row_pointers(b, left, slot(b, args, Slot.left_row), tile.rows, minus(b, rows, 1))
        mask = None
        if masked_reads(tile.lanes * self.size):
            mask = first_lanes(b, minus(b, columns, tile.columns - tile.lanes), tile.lanes)
        held = [
            at(b, scratch, (r * self.tile.vectors + v) * tile.lanes * self.size)
            for r in range(tile.rows)
            for v in range(tile.vectors)
        ]
        start = [read(b, place, self.total) for place in held]
        sums = self._multiply(b, args, tile, pointers, Right(right, slot(b, args, Slot.right_k), mask), start)
        for place, value in zip(held, sums, strict=True):
            write(b, value, place)
        b.ret_void()
        return b.function

    def _prepare(self) -> Any:
        """Emit the sums that a tile at the edge begins with: zeros, or what the parts of k before have left."""
        b, (args, partial, rows, columns, scratch) = function(
            self.module, "prepare", VOID, [POINTER, POINTER, I64, I64, POINTER], internal=True
        )
        first = self._flag(b, args, Slot.first)

        def turn(b: Any, r: Any, offset: Any, place: Any) -> None:
            line = at(b, partial, times(b, r, slot(b, args, Slot.partial_row)), times(b, offset, self.size))
            left = minus(b, columns, offset)
            some = b.and_(b.icmp_signed("<", r, rows), b.not_(first))
            zero = ir.Constant(self.total, [0] * self.tile.lanes)
            value = choose(b, some, lambda b: [read_first(b, line, self.total, left)], lambda b: [zero])[0]
            write(b, value, place)

        self._each_vector(b, self.tile.rows, columns, scratch, turn)
        b.ret_void()
        return b.function

    def _finish(self) -> Any:
        """Emit what becomes of sums in memory: the epilogue after the last part of k, before that they are kept."""
        x = Function(self.module, "finish", [*[POINTER] * 5, I64, I64, POINTER])
        b = x.builder
        args, partial, out, addend, bias, rows, columns, scratch = x.arguments
        last, values = self._flag(b, args, Slot.last), self._numbers(b, args)

        def turn(b: Any, r: Any, offset: Any, place: Any) -> None:
            left = minus(b, columns, offset)
            total = read(b, place, self.total)
            with b.if_else(last) as (end, more):
                with end:
                    known = {**values, "sum": Value(total, True)}
                    if self.epilogue.addend:
                        line = at(
                            b, addend, times(b, r, slot(b, args, Slot.addend_row)), times(b, offset, self.out_size)
                        )
                        known["addend"] = Value(read_first(b, line, self._result_type(), left), True)
                    if self.epilogue.bias == "row":
                        known["bias"] = Value(read(b, at(b, bias, times(b, r, self.size)), self.total.element), False)
                    elif self.epilogue.bias:
                        known["bias"] = Value(
                            read_first(b, at(b, bias, times(b, offset, self.size)), self.total, left), True
                        )
                    done = x.value(self.epilogue.formula(self.how.total), known, self.tile.lanes)
                    line = at(b, out, times(b, r, slot(b, args, Slot.out_row)), times(b, offset, self.out_size))
                    write_first(b, done, line, left)
                with more:
                    line = at(b, partial, times(b, r, slot(b, args, Slot.partial_row)), times(b, offset, self.size))
                    write_first(b, total, line, left)

        self._each_vector(b, minimum(b, rows, self.tile.rows), columns, scratch, turn)
        return x.close()

    def _each_vector(self, b: Any, rows: Any, columns: Any, scratch: Any, turn: Any) -> None:
        """Emit a loop over the vectors of a tile in memory that hold columns: ``turn(b, row, column, address)``."""
        vectors = minimum(b, divide_up(b, columns, self.tile.lanes), self.tile.vectors)

        def down(b: Any, r: Any, _: Any) -> None:
            def across(b: Any, v: Any, _: Any) -> None:
                place = plus(b, times(b, r, self.tile.vectors), v)
                address = at(b, scratch, times(b, place, self.tile.lanes * self.size))
                turn(b, r, times(b, v, self.tile.lanes), address)

            loop(b, 0, vectors, across)

        loop(b, 0, rows, down)

    # ---- parts of them

    def _multiply(
        self, b: Any, args: Any, tile: Tile, pointers: list[Any], right: Right, start: list[Any]
    ) -> list[Any]:
        left = Left(pointers, slot(b, args, Slot.left_k))
        return multiply_add(b, self.how, tile, left, right, slot(b, args, Slot.k), start)

    def _flag(self, b: Any, args: Any, which: Slot) -> Any:
        return b.icmp_signed("!=", slot(b, args, which), number(0))

    def _numbers(self, b: Any, args: Any) -> dict[str, Value]:
        kind = type_of(self.how.total)
        return {name: Value(slot(b, args, Slot[name], kind), False) for name in ("alpha", "beta")}

    def _result_type(self) -> Any:
        return vector_of(element_type(self.epilogue.dtype), self.tile.lanes)

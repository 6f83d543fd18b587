"""Convolutions of images laid out by :mod:`wengert.codegen.arranging`, without a matrix of windows.

Neighbouring windows read neighbours, and the products of a window, one for each channel and place in the kernel, are
at distances that a table holds: an output is Σ over k of ``weights[k] * x[start + table[k]]``. One kernel serves one, two
and three dimensions, every stride, dilation and number of groups, and the gradient of the input, such a sum too.

A tile of sums (output channels x neighbouring windows) stays in registers while k runs. Windows are counted along a row and on
into the next, over the few places at the end of a row where there is none: what is summed there is left out when
the sums are stored. In the gradient of the weights windows are what is summed over, and the tile is (k, output channels).
"""

from enum import IntEnum, auto
from typing import Any, Final

from llvmlite import ir

from wengert.codegen.arranging import copy
from wengert.codegen.build import (
    VOID,
    at,
    below,
    choose,
    first_lanes,
    function,
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
from wengert.codegen.lanes import BOOL, BYTE, I32, I64, POINTER, splat, type_of, vector_of
from wengert.codegen.microkernel import Arithmetic, Left, Right, Tile, multiply_add, zeros
from wengert.codegen.operations import intrinsic
from wengert.loops.scalar import size_of

__all__ = ["ConvolutionSlot", "GradientSlot", "emit_convolution", "emit_weight_dots", "emit_weight_gradient"]

LINE: Final = 64  # bytes of a cache line


class ConvolutionSlot(IntEnum):
    """What the argument array of a convolution holds, in order; strides are in bytes.

    ``depth``, ``height`` and ``width`` count windows; a block has ``rows`` x ``columns`` of them. ``panels`` is how many
    panels of weights a group has, ``some`` how many a block takes. The sums of a block are collected, ``line`` bytes for a
    channel, ``collected`` for all, before they are stored.

    What a tile reads may first be copied together, if ``copies`` is not 0: of each of the ``inputs`` channels, ``channel``
    bytes apart, so many runs of vectors. ``runs`` is the address of these: per run where it begins, where it goes, and how
    many vectors it has. ``copied`` is the bytes of a channel there, and distances in ``table`` are then those in the copy.
    """

    x = 0
    image = auto()
    group = auto()
    slice = auto()
    row = auto()
    table = auto()
    products = auto()
    weights = auto()
    panel = auto()
    out = auto()
    out_image = auto()
    out_channel = auto()
    out_slice = auto()
    out_row = auto()
    out_column = auto()
    images = auto()
    groups = auto()
    channels = auto()
    depth = auto()
    height = auto()
    width = auto()
    rows = auto()
    columns = auto()
    row_blocks = auto()
    column_blocks = auto()
    panels = auto()
    some = auto()
    line = auto()
    collected = auto()
    inputs = auto()
    channel = auto()
    copies = auto()
    runs = auto()
    copied = auto()


def emit_convolution(dtype: str, tile: Tile, name: str = "convolution") -> str:
    """Return the LLVM IR of a kernel whose arguments are :class:`ConvolutionSlot`.

    Its range is that of the blocks: (some panels, image, group, slice, rows, columns), the last counted fastest.
    """
    return _Convolution(dtype, tile, name).text()


class _Convolution:
    """Emits the kernel and the functions it calls."""

    def __init__(self, dtype: str, tile: Tile, name: str) -> None:
        self.dtype, self.tile, self.size = dtype, tile, size_of(dtype)
        self.vector = vector_of(type_of(dtype), tile.lanes)
        self.b, self.args, self.begin, self.end = kernel(name)
        self.module = self.b.module
        self.get = {s: slot(self.b, self.args, s) for s in ConvolutionSlot}
        self.x, self.weights, self.out = (
            self.b.inttoptr(self.get[s], POINTER)
            for s in (ConvolutionSlot.x, ConvolutionSlot.weights, ConvolutionSlot.out)
        )
        copied = times(self.b, self.get[ConvolutionSlot.inputs], self.get[ConvolutionSlot.copied])
        self.sums, self.copy = (self._memory(size) for size in (self.get[ConvolutionSlot.collected], copied))
        self.tiles = [self._tile(vectors) for vectors in range(1, tile.vectors + 1)]
        self.store, self.gather = self._store(), self._gather()

    def _memory(self, size: Any) -> Any:
        """Return memory for some bytes that lives as long as the call of the kernel."""
        memory = self.b.alloca(BYTE, size)
        memory.align = LINE
        return memory

    def text(self) -> str:
        """Emit the loop over blocks."""
        loop(self.b, self.begin, self.end, self._block)
        self.b.ret_void()
        return str(self.module)

    def _block(self, b: Any, index: Any, _: Any) -> None:
        get, s = self.get, ConvolutionSlot
        places = []
        for count in (s.column_blocks, s.row_blocks, s.depth, s.groups, s.images):
            places.append(b.urem(index, get[count]))
            index = b.udiv(index, get[count])
        column, row, z, group, image = places
        y, x = times(b, row, get[s.rows]), times(b, column, get[s.columns])
        height = minimum(b, get[s.rows], minus(b, get[s.height], y))
        width = minimum(b, get[s.columns], minus(b, get[s.width], x))
        source = at(
            b, self.x, times(b, image, get[s.image]), times(b, group, get[s.group]), times(b, z, get[s.slice]),
            times(b, y, get[s.row]), times(b, x, self.size),
        )  # fmt: skip
        first_channel = times(b, group, get[s.channels])
        target = at(
            b, self.out, times(b, image, get[s.out_image]), times(b, first_channel, get[s.out_channel]),
            times(b, z, get[s.out_slice]), times(b, y, get[s.out_row]), times(b, x, get[s.out_column]),
        )  # fmt: skip
        pitch = b.udiv(get[s.row], number(self.size))
        span = plus(b, times(b, minus(b, height, 1), pitch), width)
        weights = at(b, self.weights, times(b, times(b, group, get[s.panels]), get[s.panel]))
        first = times(b, index, get[s.some])

        last = minimum(b, plus(b, first, get[s.some]), get[s.panels])
        loop(
            b, 0, span, lambda b, q, _: self._across(b, source, weights, (first, last), q, span), step=self.tile.columns
        )
        channel = times(b, first, self.tile.rows)
        count = minus(b, minimum(b, times(b, last, self.tile.rows), get[s.channels]), channel)
        target = at(b, target, times(b, channel, get[s.out_channel]))

        def store(b: Any, r: Any, _: Any) -> None:
            sums, out = at(b, self.sums, times(b, r, get[s.line])), at(b, target, times(b, r, get[s.out_channel]))
            b.call(self.store, [self.args, sums, out, height, width])

        loop(b, 0, count, store)

    def _across(self, b: Any, source: Any, weights: Any, panels: tuple[Any, Any], q: Any, span: Any) -> None:
        """Emit the tiles of some panels of channels, for the windows from ``q`` on."""
        get, s, left = self.get, ConvolutionSlot, minus(b, span, q)
        sums = at(b, self.sums, times(b, q, self.size))
        x = at(b, source, times(b, q, self.size))

        def together(b: Any) -> list[Any]:
            b.call(self.gather, [self.args, x, self.copy])
            return [self.copy]

        x = choose(b, b.icmp_signed("!=", get[s.copies], number(0)), together, lambda b: [x])[0]

        def panel(b: Any, p: Any, _: Any) -> None:
            place = times(b, times(b, minus(b, p, panels[0]), self.tile.rows), get[s.line])
            given = [self.args, x, at(b, weights, times(b, p, get[s.panel])), at(b, sums, place)]
            done = b.append_basic_block("tiled")
            for vectors, call in enumerate(self.tiles[:-1], 1):
                taken, other = b.append_basic_block(f"wide{vectors}"), b.append_basic_block("other")
                b.cbranch(b.icmp_signed("<=", left, number(vectors * self.tile.lanes)), taken, other)
                b.position_at_end(taken)
                b.call(call, given)
                b.branch(done)
                b.position_at_end(other)
            b.call(self.tiles[-1], given)
            b.branch(done)
            b.position_at_end(done)

        loop(b, *panels, panel)

    def _gather(self) -> Any:
        """Emit the copy of what a tile reads."""
        b, (args, x, target) = function(self.module, "gather", VOID, [POINTER, POINTER, POINTER], internal=True)
        get, s = {p: slot(b, args, p) for p in ConvolutionSlot}, ConvolutionSlot
        runs, step = b.inttoptr(get[s.runs], POINTER), self.tile.lanes * self.size

        def channel(b: Any, c: Any, _: Any) -> None:
            origin, out = at(b, x, times(b, c, get[s.channel])), at(b, target, times(b, c, get[s.copied]))

            def run(b: Any, i: Any, _: Any) -> None:
                entry = at(b, runs, times(b, i, 24))
                start, place, count = (slot(b, entry, j) for j in range(3))

                def vector(b: Any, v: Any, _: Any) -> None:
                    offset = times(b, v, step)
                    write(b, read(b, at(b, origin, start, offset), self.vector), at(b, out, place, offset))

                loop(b, 0, count, vector)

            loop(b, 0, get[s.copies], run)

        loop(b, 0, get[s.inputs], channel)
        b.ret_void()
        return b.function

    def _tile(self, vectors: int) -> Any:
        """Emit the sums of ``tile.rows`` channels for some vectors of windows."""
        rows, lanes = self.tile.rows, self.tile.lanes
        b, (args, x, weights, sums) = function(self.module, f"tile{vectors}", VOID, [POINTER] * 4, internal=True)
        table, products, row = (
            slot(b, args, s, kind)
            for s, kind in (
                (ConvolutionSlot.table, POINTER),
                (ConvolutionSlot.products, I64),
                (ConvolutionSlot.line, I64),
            )
        )
        one = type_of(self.dtype)

        def spread(b: Any, line: Any, r: int) -> Any:
            return splat(b, read(b, at(b, line, r * self.size), one), lanes)

        def product(b: Any, k: Any, sums: list[Any]) -> list[Any]:
            start = at(b, x, read(b, at(b, table, times(b, k, 8)), I64))
            line = at(b, weights, times(b, plus(b, k, 1), rows * self.size))
            if rows >= vectors:  # keep the fewer in registers, and take the others one by one
                windows = [read(b, at(b, start, v * lanes * self.size), self.vector) for v in range(vectors)]
                pairs = (
                    (r, v, weight, windows[v])
                    for r in range(rows)
                    for weight in [spread(b, line, r)]
                    for v in range(vectors)
                )
            else:
                spreads = [spread(b, line, r) for r in range(rows)]
                pairs = (
                    (r, v, spreads[r], window)
                    for v in range(vectors)
                    for window in [read(b, at(b, start, v * lanes * self.size), self.vector)]
                    for r in range(rows)
                )
            for r, v, weight, window in pairs:
                place = r * vectors + v
                sums[place] = intrinsic(b, "fmuladd", self.vector, [weight, window, sums[place]])
            return sums

        start = [value for r in range(rows) for value in [spread(b, weights, r)] * vectors]
        for place, value in enumerate(loop(b, 0, products, product, carry=start)):
            r, v = divmod(place, vectors)
            write(b, value, at(b, sums, times(b, r, row), v * lanes * self.size))
        b.ret_void()
        return b.function

    def _store(self) -> Any:
        """Emit the way of the collected sums of one channel to where they belong."""
        b, (args, sums, out, height, width) = function(
            self.module, "store", VOID, [POINTER, POINTER, POINTER, I64, I64], internal=True
        )
        pitch, row, column = (
            slot(b, args, s) for s in (ConvolutionSlot.row, ConvolutionSlot.out_row, ConvolutionSlot.out_column)
        )

        def line(b: Any, y: Any, _: Any) -> None:
            source, target = at(b, sums, times(b, y, pitch)), at(b, out, times(b, y, row))
            copy(b, source, target, width, self.dtype, self.tile.lanes, to=column)

        loop(b, 0, height, line)
        b.ret_void()
        return b.function


class GradientSlot(IntEnum):
    """What the argument array of a gradient of weights holds, in order; strides are in bytes.

    ``g`` are the cotangents in panels of a tile's columns of output channels (:mod:`wengert.codegen.panels`), window by
    window; ``g_panels`` is the bytes of the panels of a group. ``sums`` are (share, group, k, output channel), filled up to
    whole tiles; a share of the images is ``some`` of them. ``rows`` of windows are taken at a time. ``panels`` of k are
    taken by ``panel_blocks`` blocks of ``panels_in_block``.
    """

    x = 0
    image = auto()
    group = auto()
    slice = auto()
    row = auto()
    table = auto()
    products = auto()
    g = auto()
    g_image = auto()
    g_panels = auto()
    g_panel = auto()
    column_panels = auto()
    sums = auto()
    sums_group = auto()
    sums_row = auto()
    images = auto()
    some = auto()
    groups = auto()
    depth = auto()
    height = auto()
    width = auto()
    rows = auto()
    panels = auto()
    panels_in_block = auto()
    panel_blocks = auto()


def emit_weight_gradient(how: Arithmetic, tile: Tile, name: str = "gradient") -> str:
    """Return the LLVM IR of a kernel whose arguments are :class:`GradientSlot`.

    Its range is that of (share of the images, group, block of k), the last counted fastest.
    """
    return _Gradient(how, tile, name).text()


def emit_weight_dots(how: Arithmetic, tile: Tile, name: str = "gradient") -> str:
    """Return the LLVM IR of such a kernel that sums along rows of windows, for few output channels.

    ``g`` are the cotangents as they are, a panel being an output channel; ``sums`` are filled up along k only.
    """
    return _Dots(how, tile, name).text()


class _Gradient:
    """Emits the kernel and the function for a tile."""

    def __init__(self, how: Arithmetic, tile: Tile, name: str) -> None:
        self.how, self.tile, self.size = how, tile, how.size
        self.step = self.columns * self.size  # bytes of the cotangents of a window
        self.b, self.args, self.begin, self.end = kernel(name)
        self.module = self.b.module
        self.get = {s: slot(self.b, self.args, s) for s in GradientSlot}
        self.tiled = self._tile()

    @property
    def columns(self) -> int:
        """The output channels of a tile."""
        return self.tile.columns

    def text(self) -> str:
        """Emit the loop over blocks of k: for some rows of an image at a time, all tiles of the block."""
        b, get, s = self.b, self.get, GradientSlot
        x, g, sums = (b.inttoptr(get[p], POINTER) for p in (s.x, s.g, s.sums))

        def block(b: Any, index: Any, _: Any) -> None:
            rest, place = b.udiv(index, get[s.panel_blocks]), b.urem(index, get[s.panel_blocks])
            share, group = b.udiv(rest, get[s.groups]), b.urem(rest, get[s.groups])
            near = times(b, place, get[s.panels_in_block])
            far = minimum(b, plus(b, near, get[s.panels_in_block]), get[s.panels])
            mine = at(b, sums, times(b, rest, get[s.sums_group]))
            first = times(b, share, get[s.some])

            def image(b: Any, n: Any, _: Any) -> None:
                def slices(b: Any, z: Any, _: Any) -> None:
                    def some(b: Any, y: Any, _: Any) -> None:
                        height = minimum(b, get[s.rows], minus(b, get[s.height], y))
                        source = at(
                            b,
                            x,
                            times(b, n, get[s.image]),
                            times(b, group, get[s.group]),
                            times(b, z, get[s.slice]),
                            times(b, y, get[s.row]),
                        )
                        window = times(b, plus(b, times(b, z, get[s.height]), y), get[s.width])
                        cotangent = at(
                            b,
                            g,
                            times(b, n, get[s.g_image]),
                            times(b, group, get[s.g_panels]),
                            times(b, window, self.step),
                        )
                        fresh = b.icmp_signed("==", b.or_(b.or_(minus(b, n, first), z), y), number(0))
                        self._tiles(b, source, cotangent, mine, (near, far), height, fresh)

                    loop(b, 0, get[s.height], some, step=get[s.rows])

                loop(b, 0, get[s.depth], slices)

            loop(b, first, minimum(b, plus(b, first, get[s.some]), get[s.images]), image)

        loop(b, self.begin, self.end, block)
        b.ret_void()
        return str(self.module)

    def _tiles(self, b: Any, x: Any, g: Any, sums: Any, panels: tuple[Any, Any], height: Any, fresh: Any) -> None:
        get, s = self.get, GradientSlot

        def across(b: Any, j: Any, _: Any) -> None:
            right = at(b, g, times(b, j, get[s.g_panel]))

            def down(b: Any, i: Any, _: Any) -> None:
                place = at(b, sums, times(b, times(b, i, self.tile.rows), get[s.sums_row]), times(b, j, self.step))
                b.call(self.tiled, [self.args, x, right, times(b, i, self.tile.rows), height, place, fresh])

            loop(b, *panels, down)

        loop(b, 0, get[s.column_panels], across)

    def _open(self) -> tuple[Any, list[Any], list[Any]]:
        """Open the function for a tile: return a builder, its arguments, and the first element that each k reads."""
        arguments = [POINTER, POINTER, POINTER, I64, I64, POINTER, BOOL]
        b, given = function(self.module, "tile", VOID, arguments, internal=True)
        args, x, _, first, *_ = given
        last = minus(b, slot(b, args, GradientSlot.products), 1)
        distances = slot(b, args, GradientSlot.table, POINTER)
        pointers = []
        for r in range(self.tile.rows):
            k = minimum(b, plus(b, first, r), last)
            pointers.append(at(b, x, read(b, at(b, distances, times(b, k, 8)), I64)))
        return b, given, pointers

    def _add(self, b: Any, value: Any, target: Any, fresh: Any) -> None:
        """Add a value to what is at an address, or nothing is yet."""
        nothing = ir.Constant(value.type, [0] * self.tile.lanes if isinstance(value.type, ir.VectorType) else 0)
        before = choose(b, fresh, lambda b: [nothing], lambda b: [read(b, target, value.type)])[0]
        write(b, b.fadd(before, value), target)

    def _tile(self) -> Any:
        """Emit the sums over some rows of windows, which are added to those of the rows before (``fresh``: there are none)."""
        b, (args, _, g, _, height, place, fresh), pointers = self._open()
        tile, s = self.tile, GradientSlot
        row, width, sums_row = (slot(b, args, p) for p in (s.row, s.width, s.sums_row))

        def line(b: Any, y: Any, sums: list[Any]) -> list[Any]:
            left = Left([at(b, p, times(b, y, row)) for p in pointers], self.size)
            right = Right(at(b, g, times(b, times(b, y, width), self.step)), self.step)
            return multiply_add(b, self.how, tile, left, right, width, sums)

        for index, value in enumerate(loop(b, 0, height, line, carry=zeros(self.how, tile))):
            r, v = divmod(index, tile.vectors)
            self._add(b, value, at(b, place, times(b, r, sums_row), v * tile.lanes * self.size), fresh)
        b.ret_void()
        return b.function


class _Dots(_Gradient):
    """The kernel with tiles that are dot products along rows of windows: for few output channels, as in depthwise convolution.

    The cotangents are taken as they are, a panel being an output channel.
    """

    @property
    def columns(self) -> int:
        """The output channels of a tile."""
        return 1

    def _tile(self) -> Any:
        b, (args, _, g, _, height, place, fresh), pointers = self._open()
        s, lanes = GradientSlot, self.tile.lanes
        row, width, sums_row = (slot(b, args, p) for p in (s.row, s.width, s.sums_row))
        whole = b.sub(width, b.urem(width, number(lanes)))
        kind = vector_of(type_of(self.how.total), lanes)

        def line(b: Any, y: Any, sums: list[Any]) -> list[Any]:
            starts = [at(b, p, times(b, y, row)) for p in pointers]
            cotangents = at(b, g, times(b, times(b, y, width), self.size))

            def some(b: Any, x: Any, sums: list[Any], mask: Any = None) -> list[Any]:
                offset = times(b, x, self.size)
                value = read(b, at(b, cotangents, offset), kind, mask)
                windows = (read(b, at(b, p, offset), kind, mask) for p in starts)
                return [intrinsic(b, "fmuladd", kind, [value, w, t]) for w, t in zip(windows, sums, strict=True)]

            sums = loop(b, 0, whole, some, step=lanes, carry=sums)
            mask = first_lanes(b, minus(b, width, whole), lanes)
            return choose(b, below(b, whole, width), lambda b: some(b, whole, sums, mask), lambda b: sums)

        for r, value in enumerate(loop(b, 0, height, line, carry=zeros(self.how, self.tile))):
            total = b.extract_element(value, ir.Constant(I32, 0))
            for lane in range(1, lanes):
                total = b.fadd(total, b.extract_element(value, ir.Constant(I32, lane)))
            self._add(b, total, at(b, place, times(b, r, sums_row)), fresh)
        b.ret_void()
        return b.function

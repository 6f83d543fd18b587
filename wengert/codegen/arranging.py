"""Laying images and weights out so that a convolution is sums of products at fixed distances.

An image is copied into memory with zeros around it, channel by channel. Where windows move by a stride s, every
dimension is dealt out in s *phases*, element u going to place u // s of phase u % s: neighbouring windows then read
neighbours, whatever the stride. Each element of a kernel is read at one distance from the start of its window
(:mod:`wengert.codegen.convolution`).
"""

from enum import IntEnum, auto
from typing import Any, Final

from llvmlite import ir

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
    prefetch,
    read,
    slot,
    times,
    when,
    write,
    write_first,
)  # fmt: skip
from wengert.codegen.lanes import I32, I64, POINTER, element_type, vector_of
from wengert.codegen.microkernel import row_pointers
from wengert.codegen.panels import transpose
from wengert.loops.scalar import size_of

__all__ = [
    "ImageSlot", "PhaseSlot", "TotalSlot", "WeightSlot", "copy", "emit_images", "emit_totals", "emit_weights",
]  # fmt: skip

AHEAD: Final = 32  # products whose weights are asked for before they are copied


class ImageSlot(IntEnum):
    """What the argument array of a copy of images holds, in order; strides are in bytes.

    ``low`` is how many zeros are before the elements of a dimension (negative: elements left out), ``stride`` how
    windows move along it. ``slices``, ``rows`` and ``pitch`` are the sizes of a phase, the last in elements. ``table`` is
    the address of the phases, one :class:`PhaseSlot` after the other.
    """

    source = 0
    image = auto()
    channel = auto()
    slice = auto()
    row = auto()
    column = auto()
    channels = auto()
    depth = auto()
    height = auto()
    low_slice = auto()
    low_row = auto()
    stride_slice = auto()
    stride_row = auto()
    target = auto()
    slices = auto()
    rows = auto()
    pitch = auto()
    phases = auto()
    table = auto()
    plane = auto()  # bytes from channel to channel
    filled = auto()  # bytes of a channel that phases take; the rest is zeros


class PhaseSlot(IntEnum):
    """A phase: its number by slices and by rows, the elements of a row that are not padding, where they come from, its bytes.

    ``source`` is the distance of the first of these elements from the start of its row, ``step`` that from one to the next.
    """

    slice = 0
    row = auto()
    first = auto()
    last = auto()
    source = auto()
    step = auto()
    target = auto()


def emit_images(dtype: str, lanes: int, name: str = "images") -> str:
    """Return the LLVM IR of a kernel whose arguments are :class:`ImageSlot`; its range is all channels of all images."""
    return _Images(dtype, lanes, name).text()


class _Images:
    """Emits the copy of a channel: phase by phase, slice by slice, row by row."""

    def __init__(self, dtype: str, lanes: int, name: str) -> None:
        self.dtype, self.lanes, self.size = dtype, lanes, size_of(dtype)
        self.b, args, self.begin, self.end = kernel(name)
        self.get = {s: slot(self.b, args, s) for s in ImageSlot}
        self.source, self.target, self.table = (
            self.b.inttoptr(self.get[s], POINTER) for s in (ImageSlot.source, ImageSlot.target, ImageSlot.table)
        )

    def text(self) -> str:
        """Emit the loop over channels."""
        get = self.get

        def channel(b: Any, index: Any, _: Any) -> None:
            image, channel = b.udiv(index, get[ImageSlot.channels]), b.urem(index, get[ImageSlot.channels])
            start = at(b, self.source, times(b, image, get[ImageSlot.image]), times(b, channel, get[ImageSlot.channel]))
            out = at(b, self.target, times(b, index, get[ImageSlot.plane]))
            loop(b, 0, get[ImageSlot.phases], lambda b, place, _: self._phase(b, place, start, out))
            self._zeros(b, at(b, out, get[ImageSlot.filled]), get[ImageSlot.filled], get[ImageSlot.plane])

        loop(self.b, self.begin, self.end, channel)
        self.b.ret_void()
        return str(self.b.module)

    def _zeros(self, b: Any, target: Any, start: Any, stop: Any) -> None:
        fill(b, target, b.sdiv(minus(b, stop, start), number(self.size)), self.dtype, self.lanes)

    def _phase(self, b: Any, place: Any, start: Any, out: Any) -> None:
        entry = at(b, self.table, times(b, place, 8 * len(PhaseSlot)))
        this = {s: slot(b, entry, s) for s in PhaseSlot}
        out, get = at(b, out, this[PhaseSlot.target]), self.get

        def slices(b: Any, z: Any, _: Any) -> None:
            depth = self._origin(b, z, ImageSlot.stride_slice, this[PhaseSlot.slice], ImageSlot.low_slice)
            there = b.icmp_unsigned("<", depth, get[ImageSlot.depth])
            from_slice = at(b, start, times(b, depth, get[ImageSlot.slice]))

            def rows(b: Any, y: Any, _: Any) -> None:
                height = self._origin(b, y, ImageSlot.stride_row, this[PhaseSlot.row], ImageSlot.low_row)
                found = b.and_(there, b.icmp_unsigned("<", height, get[ImageSlot.height]))
                line = plus(b, times(b, z, get[ImageSlot.rows]), y)
                to = at(b, out, times(b, times(b, line, get[ImageSlot.pitch]), self.size))
                self._row(b, at(b, from_slice, times(b, height, get[ImageSlot.row])), to, this, found)

            loop(b, 0, get[ImageSlot.rows], rows)

        loop(b, 0, get[ImageSlot.slices], slices)

    def _origin(self, b: Any, place: Any, stride: ImageSlot, phase: Any, low: ImageSlot) -> Any:
        """Return where an element comes from; outside of [0, size) it is a zero."""
        return minus(b, plus(b, times(b, place, self.get[stride]), phase), self.get[low])

    def _row(self, b: Any, source: Any, target: Any, this: dict[PhaseSlot, Any], found: Any) -> None:
        """Emit a row: zeros, elements, zeros; all zeros if there is none in the source."""
        first, last = (b.select(found, this[s], number(0)) for s in (PhaseSlot.first, PhaseSlot.last))
        fill(b, target, first, self.dtype, self.lanes)
        middle, origin = at(b, target, times(b, first, self.size)), at(b, source, this[PhaseSlot.source])
        copy(b, origin, middle, minus(b, last, first), self.dtype, self.lanes, this[PhaseSlot.step])
        after = minus(b, self.get[ImageSlot.pitch], last)
        fill(b, at(b, target, times(b, last, self.size)), after, self.dtype, self.lanes)


def _by_vectors(b: Any, count: Any, lanes: int, move: Any) -> None:
    """Emit ``move(b, place)`` for vectors that cover ``count`` elements, at least a vector; the last may overlap another."""
    last = minus(b, count, lanes)
    loop(b, 0, last, lambda b, i, _: move(b, i), step=lanes)
    move(b, last)


def fill(b: Any, target: Any, count: Any, dtype: str, lanes: int) -> None:
    """Emit code that writes zeros."""
    size, kind = size_of(dtype), element_type(dtype)
    some = vector_of(kind, lanes)

    def one(b: Any, i: Any, _: Any) -> None:
        write(b, ir.Constant(kind, 0), at(b, target, times(b, i, size)))

    def vector(b: Any, i: Any) -> None:
        write(b, ir.Constant(some, [0] * lanes), at(b, target, times(b, i, size)))

    with b.if_else(below(b, count, lanes)) as (few, many):
        with few:
            loop(b, 0, count, one)
        with many:
            _by_vectors(b, count, lanes, vector)


def copy(
    b: Any, source: Any, target: Any, count: Any, dtype: str, lanes: int, step: Any = None, to: Any = None
) -> None:
    """Emit code that copies elements, ``step`` bytes apart where they are and ``to`` bytes where they go (None: neighbours)."""
    size, kind = size_of(dtype), element_type(dtype)
    some = vector_of(kind, lanes)

    def one(b: Any, i: Any, _: Any) -> None:
        value = read(b, at(b, source, times(b, i, size if step is None else step)), kind)
        write(b, value, at(b, target, times(b, i, size if to is None else to)))

    def vector(b: Any, i: Any) -> None:
        offset = times(b, i, size)
        write(b, read(b, at(b, source, offset), some), at(b, target, offset))

    def every_second(b: Any, i: Any) -> None:
        start = at(b, source, times(b, i, 2 * size))
        two = [read(b, at(b, start, v * (lanes - 1) * size), some) for v in range(2)]  # they end with the last element
        order = [2 * lane + (2 * lane >= lanes) for lane in range(lanes)]
        value = b.shuffle_vector(*two, ir.Constant(vector_of(I32, lanes), order))
        write(b, value, at(b, target, times(b, i, size)))

    def apart(b: Any) -> None:
        if step is None or to is not None:
            loop(b, 0, count, one)
            return
        pairs = b.and_(b.icmp_signed("==", step, number(2 * size)), b.icmp_signed(">=", count, number(lanes)))
        with b.if_else(pairs) as (two, others):
            with two:
                _by_vectors(b, count, lanes, every_second)
            with others:
                loop(b, 0, count, one)

    few = below(b, count, lanes)
    for stride in (step, to):
        if stride is not None:
            few = b.or_(few, b.icmp_signed("!=", stride, number(size)))
    with b.if_else(few) as (single, many):
        with single:
            apart(b)
        with many:
            _by_vectors(b, count, lanes, vector)


class WeightSlot(IntEnum):
    """What the argument array of a packing of weights holds, in order; strides are in bytes.

    A panel holds ``rows`` output channels: first their biases (zeros, if the address ``bias`` is 0), then for each product
    the weights, which ``table`` says the distances of from the first of the channel. Channels that there are not are zeros.
    """

    source = 0
    group = auto()
    channel = auto()
    channels = auto()  # of a group
    panels = auto()  # of a group
    table = auto()
    products = auto()
    bias = auto()
    target = auto()
    panel = auto()


def emit_weights(dtype: str, rows: int, name: str = "weights") -> str:
    """Return the LLVM IR of a kernel whose arguments are :class:`WeightSlot`; its range is that of the panels of all groups."""
    b, args, begin, end = kernel(name)
    get = {s: slot(b, args, s) for s in WeightSlot}
    source, target, table = (
        b.inttoptr(get[s], POINTER) for s in (WeightSlot.source, WeightSlot.target, WeightSlot.table)
    )
    size, kind = size_of(dtype), element_type(dtype)
    biased = b.icmp_signed("!=", get[WeightSlot.bias], number(0))

    def panel(b: Any, index: Any, _: Any) -> None:
        group, place = b.udiv(index, get[WeightSlot.panels]), b.urem(index, get[WeightSlot.panels])
        first, last = times(b, place, rows), minus(b, get[WeightSlot.channels], 1)
        start = at(b, source, times(b, group, get[WeightSlot.group]))
        out = at(b, target, times(b, index, get[WeightSlot.panel]))
        channels = [plus(b, first, r) for r in range(rows)]
        there = [b.icmp_signed("<=", number(c), last) for c in channels]
        pointers = [at(b, start, times(b, minimum(b, c, last), get[WeightSlot.channel])) for c in channels]
        bias = b.inttoptr(get[WeightSlot.bias], POINTER)
        zero = ir.Constant(kind, 0)
        for r, (channel, real) in enumerate(zip(channels, there, strict=True)):
            number_ = plus(b, times(b, group, get[WeightSlot.channels]), channel)
            value = choose(
                b, b.and_(biased, real),
                lambda b, n=number_: [read(b, at(b, bias, times(b, n, size)), kind)],  # type: ignore[misc]
                lambda b: [zero],
            )[0]  # fmt: skip
            write(b, value, at(b, out, r * size))

        def product(b: Any, k: Any, _: Any) -> None:
            later = minimum(b, plus(b, k, AHEAD), minus(b, get[WeightSlot.products], 1))
            prefetch(b, at(b, pointers[0], read(b, at(b, table, times(b, later, 8)), I64)))
            offset = read(b, at(b, table, times(b, k, 8)), I64)
            line = at(b, out, times(b, plus(b, k, 1), rows * size))
            for r, (pointer, real) in enumerate(zip(pointers, there, strict=True)):
                write(b, b.select(real, read(b, at(b, pointer, offset), kind), zero), at(b, line, r * size))

        loop(b, 0, get[WeightSlot.products], product)

    loop(b, begin, end, panel)
    b.ret_void()
    return str(b.module)


class TotalSlot(IntEnum):
    """What the argument array of a sum of shares holds, in order; strides are in bytes.

    ``sums`` are (share, group, k, channel), ``share`` and ``row`` bytes from share to share and from k to k + 1, with channels
    filled up to whole vectors; ``out`` is (group, channel, k).
    """

    sums = 0
    shares = auto()
    share = auto()
    group = auto()
    row = auto()
    products = auto()
    channels = auto()
    blocks = auto()  # of a vector of channels, in a group
    out = auto()


def emit_totals(dtype: str, lanes: int, name: str = "totals") -> str:
    """Return the LLVM IR of a kernel that adds shares of sums and turns them; its range is the blocks of all groups.

    Its arguments are :class:`TotalSlot`.
    """
    b, args, begin, end = kernel(name)
    get = {s: slot(b, args, s) for s in TotalSlot}
    sums, out = (b.inttoptr(get[s], POINTER) for s in (TotalSlot.sums, TotalSlot.out))
    size, kind = size_of(dtype), vector_of(element_type(dtype), lanes)
    line = times(b, get[TotalSlot.products], size)

    def block(b: Any, index: Any, _: Any) -> None:
        group, place = b.udiv(index, get[TotalSlot.blocks]), b.urem(index, get[TotalSlot.blocks])
        channel = times(b, place, lanes)
        start = at(b, sums, times(b, group, get[TotalSlot.group]), times(b, channel, size))
        target = at(b, out, times(b, plus(b, times(b, group, get[TotalSlot.channels]), channel), line))
        count = minimum(b, lanes, minus(b, get[TotalSlot.channels], channel))

        def some(b: Any, k: Any, _: Any) -> None:
            left = minus(b, get[TotalSlot.products], k)
            rows = row_pointers(
                b, at(b, start, times(b, k, get[TotalSlot.row])), get[TotalSlot.row], lanes, minus(b, left, 1)
            )

            def add(b: Any, share: Any, totals: list[Any]) -> list[Any]:
                offset = times(b, share, get[TotalSlot.share])
                return [
                    b.fadd(total, read(b, at(b, row, offset), kind)) for total, row in zip(totals, rows, strict=True)
                ]

            totals = loop(b, 1, get[TotalSlot.shares], add, carry=[read(b, row, kind) for row in rows])
            for c, value in enumerate(transpose(b, totals)):
                place = at(b, target, times(b, k, size), times(b, line, c))
                when(b, below(b, c, count), lambda b, value=value, place=place: write_first(b, value, place, left))  # type: ignore[misc]

        loop(b, 0, get[TotalSlot.products], some, step=lanes)

    loop(b, begin, end, block)
    b.ret_void()
    return str(b.module)

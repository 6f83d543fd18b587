"""Convolution, and its gradients in input and weights, of large arrays; they are called like the operators of their names.

The input is copied once into memory with zeros around it, the weights into panels, and the kernels of
:mod:`wengert.codegen.convolution` do the rest; kernels of one element without stride and padding are products of matrices.
They give NotImplemented where NumPy should do the work: for integers, complex numbers, mixed dtypes and empty arrays, while
a kernel is being made, and for what the operator is to refuse. Results do not depend on the number of threads.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wengert.codegen.arranging import emit_totals, emit_weights
from wengert.codegen.convolution import emit_convolution, emit_weight_dots, emit_weight_gradient
from wengert.codegen.microkernel import Tile, arithmetic
from wengert.codegen.panels import emit_panels
from wengert.codegen.target import host
from wengert.kernels.precision import is_narrow
from wengert.runtime.arranging import (
    SHARES,
    Axis,
    Copies,
    Images,
    Triple,
    axis,
    empty_images,
    five,
    grain,
    is_channels_last,
    run,
    strides_of,
    three,
)  # fmt: skip
from wengert.runtime.calls import Absent, Kernels, dtype_name, kernels, or_numpy
from wengert.runtime.contraction import matmul
from wengert.runtime.convolution_tiles import block, fitting, gradient_tile, sums_tile
from wengert.runtime.eager import kernel
from wengert.runtime.launch import pointer
from wengert.runtime.pool import empty
from wengert.runtime.recording import assign, cast, is_lasting, keep, lasting_empty, paused, pin
from wengert.runtime.reduction import total
from wengert.runtime.rows import contiguous
from wengert.runtime.threads import get_num_threads

__all__ = ["conv", "conv_input", "conv_weight"]

Array = NDArray[Any]
Sizes = Sequence[int]

PLANS: Final = 512  # that are kept
WEIGHTS: Final = 192 * 1024  # bytes of panels that are read for every block of windows: less than the second cache
SPAN: Final = 512  # windows whose sums are collected before they are stored
COLLECTED: Final = 64 * 1024  # bytes of these sums, of all channels
COPIED: Final = 40 * 1024  # bytes that a tile reads, at most, to be copied together (both lie on a thread's stack)
AGAIN: Final = 3  # panels of weights that must read what was copied
COTANGENTS: Final = 24 * 1024  # bytes of cotangents that are read again for every k: less than the first cache
PARTS: Final = 16  # blocks that a gradient of weights is cut into, whatever the number of threads
PANELS: Final = 8  # of k in such a block, which share the cotangents in the first cache
FEW: Final = 4  # times the output channels of a group that fill no vector: their gradient is one of dot products
DOTS: Final = range(8, 13)  # sums that such a tile may have: enough to keep a processor busy, few enough for it


# ---- sums over windows


class Weights(NamedTuple):
    """Where the weights of a convolution lie, in bytes: of the products of a channel, of channels, of groups."""

    table: NDArray[np.int64]
    channel: int
    group: int


class Results(NamedTuple):
    """Where the results of a convolution go: how many in each dimension, strides and the start in bytes."""

    counts: Triple
    strides: Sizes
    start: int


class Sums:
    """Sums over the windows of images that are laid out.

    Args:
        channels: of the images, and of the results, of each group. reads: what the first window reads in each dimension.
    """

    def __init__(
        self, this: "Problem", images: Images, channels: tuple[int, int], reads: tuple[Sizes, Sizes, Sizes],
        weights: Weights, results: Results, threads: int,
    ) -> None:  # fmt: skip
        (inputs, outputs), groups, products = channels, this.groups, len(weights.table)
        self.start, size, tile = results.start, images.size, sums_tile(this.name, outputs)
        panels, self.panel = -(-outputs // tile.rows), (products + 1) * tile.rows * size
        self.panels, self.each = groups * panels, self.panel // size
        self.pack = kernels("weights", emit_weights, this.name, tile.rows)
        self.kernel = kernels("convolution", emit_convolution, this.name, tile)
        depth, height, width = results.counts
        some = min(panels, max(1, WEIGHTS // self.panel))
        most = max(2 * tile.columns, min(SPAN, COLLECTED // (some * tile.rows * size)) - tile.columns)
        rows, columns = block(results.counts, images.row // size, most, tile)
        row_blocks, column_blocks = -(-height // rows), -(-width // columns)
        blocks = this.shape[0] * groups * depth * row_blocks * column_blocks
        while some > 1 and blocks * -(-panels // some) < SHARES * threads:
            some = -(-some // 2)
        self.count = blocks * -(-panels // some)
        self.grain = grain(self.count, rows * columns * some * tile.rows * max(1, products))
        span = (rows - 1) * (images.row // size) + columns
        line = -(-span // tile.columns) * tile.columns * size
        copies = Copies(images, reads, tile.columns * size, tile.lanes * size)
        together = some >= AGAIN and inputs * copies.nbytes <= COPIED
        table = copies.table(inputs) if together else images.table_of(inputs, reads)
        self.tables = table, weights.table, copies.runs
        self.packing = weights.group, weights.channel, outputs, panels, pointer(weights.table), products
        self.before = images.image, inputs * images.plane, images.slice, images.row, pointer(table), products
        self.after = (
            *results.strides, this.shape[0], groups, outputs, *results.counts, rows, columns, row_blocks, column_blocks,
            panels, some, line, some * tile.rows * line, inputs, images.plane, len(copies.runs) * together,
            pointer(copies.runs), copies.nbytes * together,
        )  # fmt: skip

    def __call__(self, x: Array, w: Array, bias: Array | None, out: Array) -> None:
        once = is_lasting(w) and (bias is None or is_lasting(bias))
        packed = (lasting_empty if once else empty)(self.panels * self.panel, np.uint8)
        with paused() if once else nullcontext():
            run(
                self.pack, "weights", self.panels, grain(self.panels, self.each),
                pointer(w), *self.packing, 0 if bias is None else pointer(bias), pointer(packed), self.panel,
            )  # fmt: skip
        run(
            self.kernel, "convolution", self.count, self.grain,
            pointer(x), *self.before, pointer(packed), self.panel, pointer(out) + self.start, *self.after,
        )  # fmt: skip


class Problem(NamedTuple):
    """What shapes a convolution or a gradient of one: never the arrays.

    ``shape`` and ``strides`` are those of the images that are laid out: the input, or for its gradient the cotangent.
    ``weight`` is the shape of the kernels. ``last`` says that the result has its channels last in memory.
    """

    dtype: np.dtype[Any]
    shape: Sizes
    strides: Sizes
    weight: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    groups: int
    last: bool = False

    @property
    def name(self) -> str:
        """What kernels call the dtype."""
        return dtype_name(self.dtype) or ""

    @property
    def reads(self) -> tuple[Sizes, Sizes, Sizes]:
        """The elements that the first window reads, counted with the zeros before them."""
        a, b, c = ([t * d for t in range(k)] for k, d in zip(three(self.weight[2:]), three(self.dilation), strict=True))
        return a, b, c

    @property
    def counts(self) -> Triple:
        """The number of windows that fit into the images."""
        given = zip(self.shape[2:], three(self.padding, 0), self.reads, three(self.stride), strict=True)
        a, b, c = ((size + 2 * p - r[-1] - 1) // s + 1 for size, p, r, s in given)
        return a, b, c

    def images(self, counts: Triple) -> Images:
        """Return the layout of the images for some windows."""
        given = zip(self.shape[2:], three(self.padding, 0), three(self.stride), self.reads, counts, strict=True)
        a, b, c = (axis(*each) for each in given)
        return Images(self.shape, self.strides, (a, b, c), self.dtype)


def problem(images: Array, weight: Sizes, stride: Any, padding: Any, dilation: Any, groups: int) -> Problem:
    """Return the problem of some arrays."""
    shape, strides = five(images)
    given = tuple(weight), tuple(stride), tuple(padding), tuple(dilation)
    return Problem(images.dtype, shape, strides, *given, groups, is_channels_last(images))


class Convolution:
    """A plan of a convolution, or of the gradient of its input: images are laid out, and sums over windows taken.

    Attributes:
        shape: of the result. parts: the sums, each of which gives every some-th element in each dimension.
    """

    def __init__(self, this: Problem, images: Images, shape: Sizes, parts: Sequence[Sums]) -> None:
        self.dtype, self.last, self.images, self.shape, self.parts = this.dtype, this.last, images, tuple(shape), parts

    def __call__(self, images: Array, weight: Array, bias: Array | None = None) -> Array:
        keep(self)
        out = empty_images(self.shape, self.dtype, self.last)
        laid_out = self.images.laid_out(images)
        for part in self.parts:
            part(laid_out, weight, bias, out)
        return out


@functools.lru_cache(maxsize=PLANS)
def forward(this: Problem, threads: int) -> Convolution:
    """Return the plan of a convolution."""
    count, outputs, products, size = this.shape[0], this.weight[0], math.prod(this.weight[1:]), this.dtype.itemsize
    counts = this.counts
    images = this.images(counts)
    part = outputs // this.groups
    weights = Weights(np.arange(products) * size, products * size, part * products * size)
    results = Results(counts, tuple(strides_of((count, outputs, *counts), size, this.last)), 0)
    sums = Sums(this, images, (this.weight[1], part), this.reads, weights, results, threads)
    return Convolution(this, images, (count, outputs, *counts[3 - len(this.stride) :]), [sums])


class Phase(NamedTuple):
    """In one dimension, the elements of an input at places that a stride apart, and what their gradient is a sum of.

    Attributes:
        first: the first of these elements. number: how many there are. taps: the places in the kernel that see them.
        reads: per tap the cotangent that the first element takes; those of the next are neighbours.
    """

    first: int
    number: int
    taps: Sizes
    reads: Sizes


PHASES = 256  # parts of an input with gradients of their own, past which a stride is not worth a kernel


def phases(size: int, kernel: int, stride: int, padding: int, dilation: int) -> list[Phase]:
    """Return the phases of a dimension.

    Element a * stride + phase - padding is read by window a + (phase - tap * dilation) / stride.
    """
    found = []
    for phase in sorted((first + padding) % stride for first in range(min(size, stride))):
        a = -(-(padding - phase) // stride)
        first = a * stride + phase - padding
        taps = [t for t in reversed(range(kernel)) if (phase - t * dilation) % stride == 0]  # reads rise
        if first < size:
            reads = [a + (phase - t * dilation) // stride for t in taps]
            found.append(Phase(first, (size - 1 - first) // stride + 1, taps, reads))
    return found


def _covering(count: int, found: Sequence[Phase]) -> Axis:
    """Return the layout of cotangents from which all phases read."""
    reads = [(read, phase.number) for phase in found for read in phase.reads] or [(0, 1)]
    low = -min(read for read, _ in reads)
    return Axis(count, low, 1, (0,), max(read + n for read, n in reads) + low)


@functools.lru_cache(maxsize=PLANS)
def input_gradient(this: Problem, size: Sizes, threads: int) -> Convolution:
    """Return the plan of the gradient of an input of spatial shape ``size``."""
    count, (outputs, inputs, *_) = this.shape[0], this.weight
    part, unit, taps = outputs // this.groups, this.dtype.itemsize, three(this.weight[2:])
    given = zip(three(size), taps, three(this.stride), three(this.padding, 0), three(this.dilation), strict=True)
    if math.prod(min(n, s) for n, s in zip(three(size), three(this.stride), strict=True)) > PHASES:
        raise Absent
    found = [phases(*each) for each in given]
    deep, high, wide = (_covering(n, each) for n, each in zip(this.shape[2:], found, strict=True))
    images = Images(this.shape, this.strides, (deep, high, wide), this.dtype)
    shape = (count, inputs * this.groups, *three(size))
    strides = strides_of(shape, unit, this.last)
    channel, parts = math.prod(taps) * unit, []
    for place in itertools.product(*found):
        z, y, x = ([read + a.low for read in phase.reads] for phase, a in zip(place, images.axes, strict=True))
        places = [(t * taps[1] + u) * taps[2] + v for t, u, v in itertools.product(*(p.taps for p in place))]
        table = np.arange(part)[:, None] * (inputs * channel) + np.array(places, np.int64) * unit
        weights = Weights(table.reshape(-1), channel, part * inputs * channel)
        start = sum(p.first * s for p, s in zip(place, strides[2:], strict=True))
        steps = [s * step for s, step in zip(strides[2:], three(this.stride), strict=True)]
        counts = place[0].number, place[1].number, place[2].number
        results = Results(counts, (*strides[:2], *steps), start)
        parts.append(Sums(this, images, (part, inputs), (z, y, x), weights, results, threads))
    return Convolution(this, images, (*shape[:2], *size), parts)


# ---- the gradient of the weights


class Cotangents:
    """Cotangents in panels of a tile's columns of output channels, window by window.

    Attributes:
        numbers: strides in bytes of images, groups and panels, and the panels of a group.
    """

    def __init__(self, this: Problem, windows: int, part: int, tile: Tile) -> None:
        size, count, how = this.dtype.itemsize, this.shape[0] * this.groups, arithmetic(this.name, host())
        self.kernel = kernels("panels", emit_panels, this.name, how, tile.columns, tile.lanes)
        panels, panel = -(-part // tile.columns), windows * tile.columns * size
        self.numbers = this.groups * panels * panel, panels * panel, panel, panels
        self.count, self.each, self.nbytes = count * panels, windows * tile.columns, count * panels * panel
        self.packing = windows * size, size, panel, part, windows, panels
        self.steps = np.arange(count)[:, None] * np.array([part * windows * size, panels * panel])

    def packed(self, g: Array) -> Array:
        """Return the memory with the panels."""
        out = empty(self.nbytes, np.uint8)
        addresses = self.steps + np.array([pointer(g), pointer(out)])
        pin(g, out)
        run(
            self.kernel, "panels", self.count, grain(self.count, self.each), *self.packing, pointer(addresses), 0, 0
        )  # fmt: skip
        return out


class Apart:
    """Cotangents as they are, every output channel a panel."""

    def __init__(self, this: Problem, windows: int, part: int) -> None:
        panel = windows * this.dtype.itemsize
        self.numbers = this.groups * part * panel, part * panel, panel, part

    def packed(self, g: Array) -> Array:
        """Return the cotangents."""
        return g


class WeightGradient:
    """A plan of the gradient of the weights, for cotangents of shape (n, channels, *counts)."""

    def __init__(self, this: Problem, counts: Triple) -> None:
        groups, (outputs, inputs, *_), size, count = this.groups, this.weight, this.dtype.itemsize, this.shape[0]
        how, part, windows = arithmetic(this.name, host()), outputs // groups, math.prod(counts)
        self.dtype, self.shape, self.groups, self.part = this.dtype, this.weight, groups, part
        self.images = this.images(counts)
        self.table = self.images.table_of(inputs, this.reads)
        self.products = products = len(self.table)
        self.cotangents: Cotangents | Apart
        self.totals: Kernels | None
        tile = gradient_tile(this.name, part)
        if part * FEW <= tile.lanes:
            tile, columns = Tile(fitting(products, DOTS), 1, tile.lanes), 1
            self.cotangents, self.totals = Apart(this, windows, part), None
            self.kernel = kernels("gradient", emit_weight_dots, how, tile)
        else:
            columns = tile.columns
            self.totals = kernels("totals", emit_totals, this.name, tile.lanes)
            self.cotangents = Cotangents(this, windows, part, tile)
            self.kernel = kernels("gradient", emit_weight_gradient, how, tile)
        rows, self.lanes = -(-products // tile.rows), tile.lanes
        in_block = -(-rows // min(-(-rows // PANELS), -(-PARTS // groups)))
        blocks = -(-rows // in_block)
        some = -(-count // min(count, -(-PARTS // (groups * blocks))))
        shares, width = -(-count // some), self.cotangents.numbers[-1] * columns
        self.sums, self.count = (shares, groups, rows * tile.rows, width), shares * groups * blocks
        lines = min(counts[1], max(1, COTANGENTS // (counts[2] * columns * size)))
        images = self.images
        self.before = images.image, inputs * images.plane, images.slice, images.row, pointer(self.table), products
        self.after = (
            rows * tile.rows * width * size, width * size, count, some, groups, *counts, lines, rows, in_block, blocks,
        )  # fmt: skip

    def __call__(self, g: Array, images: Array) -> Array:
        keep(self)
        laid_out = self.images.laid_out(images)
        g = contiguous(g)
        cotangents = self.cotangents.packed(g)
        sums = empty(self.sums, self.dtype)
        run(
            self.kernel, "gradient", self.count, 1, pointer(laid_out), *self.before, pointer(cotangents),
            *self.cotangents.numbers, pointer(sums), *self.after,
        )  # fmt: skip
        out = empty((self.groups, self.part, self.products), self.dtype)
        if self.totals is None:
            assign(out, total(sums[:, :, : self.products]).swapaxes(1, 2))
        else:
            shares, share, group, row = len(sums), *sums.strides[:3]
            blocks = -(-self.part // self.lanes)
            run(
                self.totals, "totals", self.groups * blocks, 1, pointer(sums), shares, share, group, row, self.products,
                self.part, blocks, pointer(out),
            )  # fmt: skip
        return out.reshape(self.shape)


@functools.lru_cache(maxsize=PLANS)
def weight_gradient(this: Problem, counts: Triple) -> WeightGradient:
    """Return the plan of the gradient of the weights."""
    return WeightGradient(this, counts)


# ---- operators


def _served(x: Array, y: Array, *geometry: Sizes) -> bool:
    """Whether kernels take arrays of these dtypes and dimensions; what the operator is to refuse they do not."""
    same = x.dtype == y.dtype and x.dtype in (np.float32, np.float64) and x.dtype.isnative
    dims = 3 <= x.ndim == y.ndim <= 5 and all(len(values) == x.ndim - 2 for values in geometry)
    return bool(same and dims and x.size and y.size and x.flags.aligned)


def _fits(x: Sizes, w: Sizes, counts: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> bool:
    """Whether input, kernels and parameters fit together, and at least so many windows fit into the input."""
    if groups < 1 or w[0] % groups or x[1] != w[1] * groups or min(counts) < 1:
        return False
    if min(padding) < 0 or min(*stride, *dilation) < 1:
        return False
    given = zip(x[2:], w[2:], counts, stride, padding, dilation, strict=True)
    return all((n - 1) * s + d * (k - 1) < size + 2 * p for size, k, n, s, p, d in given)


def _is_product(x: Array, w: Array, stride: Sizes, padding: Sizes, groups: int) -> bool:
    """Whether a convolution is a product of matrices as they lie in memory."""
    plain = groups == 1 and math.prod(w.shape[2:]) == 1 and max(stride) == 1 and max(padding) == 0
    return plain and x.flags.c_contiguous and w.flags.c_contiguous


def _in_float32(function: Any) -> Any:
    """Let a function compute halves in float32."""

    @functools.wraps(function)
    def run(x: Array, y: Array, *rest: Any, **named: Any) -> Any:
        if not is_narrow(x.dtype) or x.dtype != y.dtype:
            return function(x, y, *rest, **named)
        wide = [cast(a, np.float32) if isinstance(a, np.ndarray) else a for a in (x, y, *rest)]
        found = function(*wide, **named)
        return found if found is NotImplemented else cast(found, x.dtype)

    return run


@kernel("conv")
@_in_float32
@or_numpy
def conv(
    input: Array, weight: Array, bias: Array | None = None, stride: Any = (), padding: Any = (), dilation: Any = (),
    groups: int = 1,
) -> Any:  # fmt: skip
    """Correlate images with kernels and add a bias per channel."""
    if not _served(input, weight, stride, padding, dilation):
        return NotImplemented
    if bias is not None and (bias.shape != weight.shape[:1] or bias.dtype != input.dtype):
        return NotImplemented
    if not _fits(input.shape, weight.shape, (1,) * len(stride), stride, padding, dilation, groups):
        return NotImplemented
    if _is_product(input, weight, stride, padding, groups):
        left, right = weight.reshape(len(weight), -1), input.reshape(*input.shape[:2], -1)
        out = matmul(left, right, bias=None if bias is None else bias.reshape(-1, 1))
        return out.reshape(len(input), len(weight), *input.shape[2:])
    this = problem(input, weight.shape, stride, padding, dilation, groups)
    plan = forward(this, get_num_threads())
    return plan(input, contiguous(weight), None if bias is None else contiguous(bias))


@kernel("conv_input")
@_in_float32
@or_numpy
def conv_input(
    g: Array, weight: Array, size: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:  # fmt: skip
    """Return the gradient of an input of spatial shape ``size``."""
    if not _served(g, weight, size, stride, padding, dilation) or min(size) < 1 or g.shape[1] != len(weight):
        return NotImplemented
    shape = (len(g), weight.shape[1] * groups, *size)
    if not _fits(shape, weight.shape, g.shape[2:], stride, padding, dilation, groups):
        return NotImplemented
    if _is_product(g, weight, stride, padding, groups):
        left, right = weight.reshape(len(weight), -1).T, g.reshape(*g.shape[:2], -1)
        return matmul(left, right).reshape(shape)
    this = problem(g, weight.shape, stride, padding, dilation, groups)
    return input_gradient(this, tuple(size), get_num_threads())(g, contiguous(weight))


@kernel("conv_weight")
@_in_float32
@or_numpy
def conv_weight(g: Array, input: Array, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Return the gradient of kernels of spatial shape ``size``."""
    if not _served(input, g, size, stride, padding, dilation) or groups < 1 or len(g) != len(input) or min(size) < 1:
        return NotImplemented
    shape = (g.shape[1], input.shape[1] // groups, *size)
    if not _fits(input.shape, shape, g.shape[2:], stride, padding, dilation, groups):
        return NotImplemented
    this = problem(input, shape, stride, padding, dilation, groups)
    a, b, c = five(g)[0][2:]
    return weight_gradient(this, (a, b, c))(g, input)

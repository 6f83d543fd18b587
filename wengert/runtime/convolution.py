"""Convolution, and its gradients in input and weights, of large arrays; they are called like the operators of their names.

The input is copied once into memory with zeros around it, the weights into panels, and the kernels of
:mod:`wengert.codegen.convolution` do the rest. Results do not depend on the number of threads.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wengert.codegen.arranging import emit_images, emit_weights
from wengert.codegen.convolution import BLOCK, emit_convolution, emit_weight_gradient
from wengert.codegen.microkernel import Tile, arithmetic, tile_of
from wengert.codegen.panels import emit_panels
from wengert.codegen.target import host
from wengert.kernels.precision import is_narrow
from wengert.runtime.calls import Kernels, dtype_name, kernels, or_numpy
from wengert.runtime.eager import kernel
from wengert.runtime.launch import pointer
from wengert.runtime.pool import empty
from wengert.runtime.rows import contiguous
from wengert.runtime.threads import get_num_threads
from wengert.runtime.workers import launch

__all__ = ["conv", "conv_input", "conv_weight"]

Array = NDArray[Any]
Sizes = Sequence[int]
Triple = tuple[int, int, int]

PLANS: Final = 512  # that are kept
LINE: Final = 64  # bytes of a cache line
WEIGHTS: Final = 192 * 1024  # bytes of panels that are read again for every block of windows: less than the second cache
COTANGENTS: Final = 24 * 1024  # bytes of cotangents that are read again for every k: less than the first cache
TASK: Final = 100_000  # products that make a chunk worth while
SHARES: Final = 8  # chunks per thread, so that one who is late does not keep the others waiting
PARTS: Final = 16  # blocks that a gradient of weights is cut into, whatever the number of threads


# ---- geometry: always three dimensions, of which the first may be single


def _three(values: Sizes, single: int = 1) -> Triple:
    """Return one number for each of three dimensions."""
    a, b, c = (*[single] * (3 - len(values)), *values)
    return a, b, c


def _five(array: Array) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and strides of (n, channels, *spatial) as of (n, channels, slices, rows, columns)."""
    lacking = 5 - array.ndim
    shape, strides = array.shape, array.strides
    return (*shape[:2], *[1] * lacking, *shape[2:]), (*strides[:2], *[0] * lacking, *strides[2:])


class Axis(NamedTuple):
    """How elements of one dimension are laid out.

    Attributes:
        size: how many there are. low: how many zeros come before them (negative: elements left out). stride: element u,
            counted with the zeros, has place u // stride of phase u % stride. phases: those that are read. length: places.
    """

    size: int
    low: int
    stride: int
    phases: tuple[int, ...]
    length: int

    def span(self, phase: int) -> tuple[int, int]:
        """Return the first place that holds an element, and the one after the last."""
        ends = (-(-(u - phase) // self.stride) for u in (self.low, self.low + self.size))
        first, last = (min(max(end, 0), self.length) for end in ends)
        return first, last

    @property
    def shared(self) -> int:
        """How many zeros before a row may be those after the one before it."""
        return min(min(first, self.length - last) for first, last in map(self.span, self.phases))


def axis(size: int, low: int, stride: int, reads: Sizes, count: int) -> Axis:
    """Return the layout for ``count`` windows of which the first reads these elements."""
    phases = tuple(sorted({u % stride for u in reads}))
    return Axis(size, low, stride, phases, max(u // stride for u in reads) + count)


class Images:
    """A layout of images; see :mod:`wengert.codegen.arranging`.

    Attributes:
        image, plane, slice, row: strides in bytes. nbytes: with what a tile may read after the last window.
    """

    def __init__(self, shape: Sizes, strides: Sizes, axes: tuple[Axis, Axis, Axis], dtype: np.dtype[Any]) -> None:
        (images, channels, *sizes), size = shape, dtype.itemsize
        deep, high, wide = axes
        self.axes, self.size, self.count = axes, size, images * channels
        pitch = wide.length - wide.shared
        self.row = pitch * size
        self.slice = high.length * self.row
        self.phase = deep.length * self.slice
        phases = list(itertools.product(*(a.phases for a in axes)))
        filled = len(phases) * self.phase
        self.plane = (filled // LINE + 1 | 1) * LINE  # an odd number of lines: channels meet in no set of the cache
        self.image = channels * self.plane
        self.slack = (wide.shared + 1) * size + 16 * LINE
        self.nbytes = images * self.image + self.slack
        table = []
        for number, (z, y, x) in enumerate(phases):
            first, last = wide.span(x)
            start = (first * wide.stride + x - wide.low) * strides[4]
            table.append((z, y, first, last, start, wide.stride * strides[4], number * self.phase))
        self.table = np.array(table, np.int64)
        self.kernel = kernels("images", emit_images, dtype_name(dtype), host().vector_bytes // size)
        self.numbers = (
            *strides, channels, *sizes[:2], deep.low, high.low, deep.stride, high.stride,
        ), (deep.length, high.length, pitch, len(phases), pointer(self.table), self.plane, filled)  # fmt: skip

    def distance(self, *reads: int) -> int:
        """Return the distance of the place that the first window reads an element from."""
        number, place = 0, 0
        for a, u, step in zip(self.axes, reads, (self.slice, self.row, self.size), strict=True):
            number = number * len(a.phases) + a.phases.index(u % a.stride)
            place += u // a.stride * step
        return number * self.phase + place

    def table_of(self, channels: int, reads: tuple[Sizes, Sizes, Sizes]) -> NDArray[np.int64]:
        """Return the distances of the products of a window: channel by channel, and in each in the order of the kernel."""
        places = np.array([self.distance(*u) for u in itertools.product(*reads)], np.int64)
        return (np.arange(channels)[:, None] * self.plane + places).reshape(-1)

    def laid_out(self, x: Array) -> Array:
        """Return the memory with a copy of images."""
        out = empty(self.nbytes, np.uint8)
        out[-self.slack :] = 0
        before, after = self.numbers
        _run(self.kernel, "images", self.count, _grain(self.count, self.plane // self.size), pointer(x), *before, pointer(out), *after)
        return out


@functools.lru_cache(maxsize=64)
def _packer(count: int) -> Any:
    return Struct(f"{count}q").pack


def _run(made: Kernels, name: str, count: int, grain: int, *numbers: int) -> None:
    launch(_packer(len(numbers) + 3)(made.addresses[name], count, grain, *numbers))


def _grain(count: int, each: int) -> int:
    """Return how many steps make a chunk, given the work of one."""
    return max(1, min(-(-TASK // max(1, each)), -(-count // (SHARES * get_num_threads()))), TASK // 4 // max(1, each))


def _fitting(count: int, sizes: Sequence[int]) -> int:
    """Return the size that leaves the least of ``count`` in a part that is not full; of equally good ones the largest."""
    return min(sizes, key=lambda n: (-(-count // n) * n, -n))


def sums_tile(dtype: str, channels: int) -> Tile:
    """Return the tile for a number of output channels: as many rows as fit them, and vectors to fill the registers."""
    most = tile_of(arithmetic(dtype, host()), host())
    rows = _fitting(channels, range(1, most.rows + 1))
    return Tile(rows, min(8, most.rows * most.vectors // rows), most.lanes)


def gradient_tile(dtype: str, channels: int) -> Tile:
    """Return the tile for a number of output channels, which are its columns."""
    most = tile_of(arithmetic(dtype, host()), host())
    vectors = _fitting(-(-channels // most.lanes), range(1, most.vectors + 1))
    return Tile(most.rows * most.vectors // vectors, vectors, most.lanes)


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
        self.tables, self.start, size = (images.table_of(inputs, reads), weights.table), results.start, images.size
        tile = sums_tile(this.name, outputs)
        panels, self.panel = -(-outputs // tile.rows), (products + 1) * tile.rows * size
        self.panels, self.each = groups * panels, self.panel // size
        self.pack = kernels("weights", emit_weights, this.name, tile.rows)
        self.kernel = kernels("convolution", emit_convolution, this.name, tile)
        self.packing = weights.group, weights.channel, outputs, panels, pointer(weights.table), products
        depth, height, width = results.counts
        rows, columns = _block(results.counts, images.row // size, tile)
        row_blocks, column_blocks = -(-height // rows), -(-width // columns)
        blocks = this.shape[0] * groups * depth * row_blocks * column_blocks
        some = min(panels, max(1, WEIGHTS // self.panel))
        while some > 1 and blocks * -(-panels // some) < SHARES * threads:
            some = -(-some // 2)
        self.count = blocks * -(-panels // some)
        self.grain = _grain(self.count, rows * columns * some * tile.rows * max(1, products))
        self.before = images.image, inputs * images.plane, images.slice, images.row, pointer(self.tables[0]), products
        self.after = (
            *results.strides, this.shape[0], groups, outputs, *results.counts, rows, columns, row_blocks, column_blocks,
            panels, some,
        )  # fmt: skip

    def __call__(self, x: Array, w: Array, bias: Array | None, out: Array) -> None:
        packed = empty(self.panels * self.panel, np.uint8)
        _run(
            self.pack, "weights", self.panels, _grain(self.panels, self.each),
            pointer(w), *self.packing, 0 if bias is None else pointer(bias), pointer(packed), self.panel,
        )  # fmt: skip
        _run(
            self.kernel, "convolution", self.count, self.grain,
            pointer(x), *self.before, pointer(packed), self.panel, pointer(out) + self.start, *self.after,
        )  # fmt: skip


def _block(shape: Triple, pitch: int, tile: Tile) -> tuple[int, int]:
    """Return the rows and columns of windows that are taken at a time."""
    _, height, width = shape
    if width > BLOCK:
        return 1, BLOCK // tile.columns * tile.columns
    most = min(height, max(1, (BLOCK - width) // pitch + 1))
    return -(-height // -(-height // most)), width


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
        a, b, c = ([t * d for t in range(k)] for k, d in zip(_three(self.weight[2:]), _three(self.dilation), strict=True))
        return a, b, c

    @property
    def counts(self) -> Triple:
        """The number of windows that fit into the images."""
        given = zip(self.shape[2:], _three(self.padding, 0), self.reads, _three(self.stride), strict=True)
        a, b, c = ((size + 2 * p - r[-1] - 1) // s + 1 for size, p, r, s in given)
        return a, b, c

    def images(self, counts: Triple) -> Images:
        """Return the layout of the images for some windows."""
        given = zip(self.shape[2:], _three(self.padding, 0), _three(self.stride), self.reads, counts, strict=True)
        a, b, c = (axis(*each) for each in given)
        return Images(self.shape, self.strides, (a, b, c), self.dtype)


def problem(images: Array, weight: Sizes, stride: Any, padding: Any, dilation: Any, groups: int) -> Problem:
    """Return the problem of some arrays."""
    shape, strides = _five(images)
    given = tuple(weight), tuple(stride), tuple(padding), tuple(dilation)
    return Problem(images.dtype, shape, strides, *given, groups, _is_channels_last(images))


class Convolution:
    """A plan of a convolution, or of the gradient of its input: images are laid out, and sums over windows taken.

    Attributes:
        shape: of the result. parts: the sums, each of which gives every some-th element in each dimension.
    """

    def __init__(self, this: Problem, images: Images, shape: Sizes, parts: Sequence[Sums]) -> None:
        self.dtype, self.last, self.images, self.shape, self.parts = this.dtype, this.last, images, tuple(shape), parts

    def __call__(self, images: Array, weight: Array, bias: Array | None = None) -> Array:
        out = _empty(self.shape, self.dtype, self.last)
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
    results = Results(counts, tuple(_strides((count, outputs, *counts), size, this.last)), 0)
    sums = Sums(this, images, (this.weight[1], part), this.reads, weights, results, threads)
    return Convolution(this, images, (count, outputs, *counts[3 - len(this.stride) :]), [sums])


class Phase(NamedTuple):
    """In one dimension, the elements of an input at places that a stride apart, and what their gradient is a sum of.

    Attributes:
        first: the first of these elements. count: how many there are. taps: the places in the kernel that see them.
        reads: per tap the cotangent that the first element takes; those of the next are neighbours.
    """

    first: int
    count: int
    taps: Sizes
    reads: Sizes


def phases(size: int, kernel: int, stride: int, padding: int, dilation: int) -> list[Phase]:
    """Return the phases of a dimension: element a * stride + phase - padding sees window a + (phase - tap * dilation) / stride."""
    found = []
    for phase in range(stride):
        a = -(-(padding - phase) // stride)
        first = a * stride + phase - padding
        taps = [t for t in reversed(range(kernel)) if (phase - t * dilation) % stride == 0]  # reads rise
        if first < size:
            reads = [a + (phase - t * dilation) // stride for t in taps]
            found.append(Phase(first, (size - 1 - first) // stride + 1, taps, reads))
    return found


def _covering(count: int, found: Sequence[Phase]) -> Axis:
    """Return the layout of cotangents from which all phases read."""
    reads = [(read, phase.count) for phase in found for read in phase.reads] or [(0, 1)]
    low = -min(read for read, _ in reads)
    return Axis(count, low, 1, (0,), max(read + n for read, n in reads) + low)


@functools.lru_cache(maxsize=PLANS)
def input_gradient(this: Problem, size: Sizes, threads: int) -> Convolution:
    """Return the plan of the gradient of an input of spatial shape ``size``."""
    count, (outputs, inputs, *_) = this.shape[0], this.weight
    part, unit, taps = outputs // this.groups, this.dtype.itemsize, _three(this.weight[2:])
    given = zip(_three(size), taps, _three(this.stride), _three(this.padding, 0), _three(this.dilation), strict=True)
    found = [phases(*each) for each in given]
    deep, high, wide = (_covering(n, each) for n, each in zip(this.shape[2:], found, strict=True))
    images = Images(this.shape, this.strides, (deep, high, wide), this.dtype)
    shape = (count, inputs * this.groups, *_three(size))
    strides = _strides(shape, unit, this.last)
    channel, parts = math.prod(taps) * unit, []
    for three in itertools.product(*found):
        z, y, x = ([read + a.low for read in phase.reads] for phase, a in zip(three, images.axes, strict=True))
        places = [(t * taps[1] + u) * taps[2] + v for t, u, v in itertools.product(*(p.taps for p in three))]
        table = np.arange(part)[:, None] * (inputs * channel) + np.array(places, np.int64) * unit
        weights = Weights(table.reshape(-1), channel, part * inputs * channel)
        start = sum(p.first * s for p, s in zip(three, strides[2:], strict=True))
        steps = [s * step for s, step in zip(strides[2:], _three(this.stride), strict=True)]
        counts = three[0].count, three[1].count, three[2].count
        results = Results(counts, (*strides[:2], *steps), start)
        parts.append(Sums(this, images, (part, inputs), (z, y, x), weights, results, threads))
    return Convolution(this, images, (*shape[:2], *size), parts)


# ---- the gradient of the weights


class WeightGradient:
    """A plan of the gradient of the weights, for cotangents of shape (n, channels, *counts)."""

    def __init__(self, this: Problem, counts: Triple, threads: int) -> None:
        groups, (outputs, inputs, *_), size = this.groups, this.weight, this.dtype.itemsize
        part, windows, count = outputs // groups, math.prod(counts), this.shape[0]
        self.dtype, self.shape, self.groups, self.part = this.dtype, tuple(this.weight), groups, part
        self.images = this.images(counts)
        self.table = self.images.table_of(inputs, this.reads)
        self.products = products = len(self.table)
        tile, how = gradient_tile(this.name, part), arithmetic(this.name, host())
        self.kernel = kernels("gradient", emit_weight_gradient, how, tile)
        self.panels = kernels("panels", emit_panels, this.name, how, tile.columns, tile.lanes)
        columns, rows = -(-part // tile.columns), -(-products // tile.rows)
        panel = windows * tile.columns * size
        self.panel_bytes = count * groups * columns * panel
        self.packing = (windows * size, size, panel, part, windows, columns)
        self.steps = np.arange(count * groups)[:, None] * np.array([part * windows * size, columns * panel])
        self.pack_count, self.pack_each = count * groups * columns, windows * tile.columns
        blocks = min(rows, max(1, PARTS // groups))
        some = -(-count // min(count, max(1, PARTS // (groups * blocks))))
        self.shares, self.rows, self.columns = -(-count // some), rows * tile.rows, columns * tile.columns
        in_block = -(-rows // blocks)
        blocks = -(-rows // in_block)
        self.count = self.shares * groups * blocks
        self.before = (
            self.images.image, inputs * self.images.plane, self.images.slice, self.images.row, pointer(self.table), products,
        )  # fmt: skip
        lines = min(counts[1], max(1, COTANGENTS // (counts[2] * tile.columns * size)))
        self.middle = groups * columns * panel, columns * panel, panel, columns
        self.after = (
            self.rows * self.columns * size, self.columns * size, count, some, groups, *counts, lines, rows, in_block, blocks,
        )  # fmt: skip

    def __call__(self, g: Array, images: Array) -> Array:
        laid_out = self.images.laid_out(images)
        g = contiguous(g)
        packed = empty(self.panel_bytes, np.uint8)
        addresses = self.steps + np.array([pointer(g), pointer(packed)])
        grain = _grain(self.pack_count, self.pack_each)
        _run(self.panels, "panels", self.pack_count, grain, *self.packing, pointer(addresses), 0, 0)
        sums = empty((self.shares, self.groups, self.rows, self.columns), self.dtype)
        _run(
            self.kernel, "gradient", self.count, 1,
            pointer(laid_out), *self.before, pointer(packed), *self.middle, pointer(sums), *self.after,
        )  # fmt: skip
        total = sums[0] if self.shares == 1 else sums.sum(0)
        out = empty((self.groups, self.part, self.products), self.dtype)
        out[...] = total[:, : self.products, : self.part].swapaxes(1, 2)
        return out.reshape(self.shape)


@functools.lru_cache(maxsize=PLANS)
def weight_gradient(this: Problem, counts: Triple, threads: int) -> WeightGradient:
    """Return the plan of the gradient of the weights."""
    return WeightGradient(this, counts, threads)


def _strides(shape: Sizes, size: int, last: bool) -> list[int]:
    """Return the strides of a new array (n, channels, *spatial), which may have channels last."""
    order = [0, *range(2, len(shape)), 1] if last else range(len(shape))
    found, step = [0] * len(shape), size
    for d in reversed(order):
        found[d] = step
        step *= shape[d]
    return found


def _empty(shape: Sizes, dtype: Any, last: bool) -> Array:
    if last:
        return np.moveaxis(empty((shape[0], *shape[2:], shape[1]), dtype), -1, 1)
    return empty(tuple(shape), dtype)


def _is_channels_last(x: Array) -> bool:
    return bool(x.shape[1] > 1 and not x.flags.c_contiguous and np.moveaxis(x, 1, -1).flags.c_contiguous)


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


def _in_float32(function: Any) -> Any:
    """Let a function compute halves in float32."""

    @functools.wraps(function)
    def run(x: Array, y: Array, *rest: Any, **named: Any) -> Any:
        if not is_narrow(x.dtype) or x.dtype != y.dtype:
            return function(x, y, *rest, **named)
        wide = [a.astype(np.float32) if isinstance(a, np.ndarray) else a for a in (x, y, *rest)]
        found = function(*wide, **named)
        return found if found is NotImplemented else found.astype(x.dtype)

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
    a, b, c = _five(g)[0][2:]
    return weight_gradient(this, (a, b, c), get_num_threads())(g, input)

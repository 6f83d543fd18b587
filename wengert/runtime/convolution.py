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

    def __init__(self, shape: Sizes, strides: Sizes, axes: tuple[Axis, Axis, Axis], dtype: str, size: int) -> None:
        images, channels, *sizes = shape
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
        self.kernel = kernels("images", emit_images, dtype, host().vector_bytes // size)
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


class Sums:
    """A convolution of images that are laid out, into an array or every some-th element of it.

    Attributes:
        start: distance in bytes of the first result.
    """

    def __init__(
        self, images: Images, count: int, groups: int, channels: Sizes, reads: tuple[Sizes, Sizes, Sizes], shape: Triple,
        out: Sizes, start: int, weights: tuple[NDArray[np.int64], int, int], dtype: str,
    ) -> None:  # fmt: skip
        inputs, outputs = channels
        table, channel, group = weights
        self.tables = images.table_of(inputs, reads), table
        self.start, self.size, products = start, images.size, len(table)
        tile = sums_tile(dtype, outputs)
        panels, panel = -(-outputs // tile.rows), (products + 1) * tile.rows * images.size
        self.weight_bytes, self.panels = groups * panels * panel, groups * panels
        self.pack = kernels("weights", emit_weights, dtype, tile.rows)
        self.kernel = kernels("convolution", emit_convolution, dtype, tile)
        self.packing = (group, channel, outputs, panels, pointer(table), products)
        self.panel = panel
        rows, columns = _block(shape, images.row // images.size, tile)
        row_blocks, column_blocks = -(-shape[1] // rows), -(-shape[2] // columns)
        blocks = count * groups * shape[0] * row_blocks * column_blocks
        some = min(panels, max(1, WEIGHTS // panel))
        while some > 1 and blocks * -(-panels // some) < SHARES * get_num_threads():
            some = -(-some // 2)
        self.count = blocks * -(-panels // some)
        self.grain = _grain(self.count, rows * columns * some * tile.rows * max(1, products))
        self.before = (images.image, inputs * images.plane, images.slice, images.row, pointer(self.tables[0]), products)
        self.after = (
            *out, count, groups, outputs, *shape, rows, columns, row_blocks, column_blocks, panels, some,
        )  # fmt: skip

    def __call__(self, x: Array, w: Array, bias: Array | None, out: Array) -> None:
        packed = empty(self.weight_bytes, np.uint8)
        _run(
            self.pack, "weights", self.panels, _grain(self.panels, self.panel // self.size),
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


class Forward:
    """A convolution of arrays of given shapes and strides."""

    def __init__(self, x: tuple[Sizes, Sizes], w: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int, dtype: str, last: bool) -> None:
        size = np.dtype(_DTYPES[dtype]).itemsize
        steps, pads, gaps, taps = _three(stride), _three(padding, 0), _three(dilation), _three(w[2:])
        reads = tuple([t * d for t in range(k)] for k, d in zip(taps, gaps, strict=True))
        (count, inputs, *sizes), strides = x
        shape = tuple((n + 2 * p - r[-1] - 1) // s + 1 for n, p, r, s in zip(sizes, pads, reads, steps, strict=True))
        axes = tuple(axis(*given) for given in zip(sizes, pads, steps, reads, shape, strict=True))
        self.images = Images(x[0], strides, axes, dtype, size)
        self.shape = (count, w[0], *shape[3 - len(stride) :])
        self.last = last
        products = math.prod(w[1:])
        weights = np.arange(products) * size, products * size, w[0] // groups * products * size
        out = _strides((count, w[0], *shape), size, last)
        channels = w[1], w[0] // groups
        self.sums = Sums(self.images, count, groups, channels, reads, shape, out, 0, weights, dtype)

    def __call__(self, x: Array, w: Array, bias: Array | None) -> Array:
        out = _empty(self.shape, x.dtype, self.last)
        self.sums(self.images.laid_out(x), w, bias, out)
        return out


_DTYPES: Final = {"f32": np.float32, "f64": np.float64}


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


@functools.lru_cache(maxsize=PLANS)
def _forward(*given: Any) -> Forward:
    return Forward(*given[:-1])


@kernel("conv")
@or_numpy
def conv(input: Array, weight: Array, bias: Array | None = None, stride: Any = (), padding: Any = (), dilation: Any = (), groups: Any = 1) -> Any:
    """Correlate images with kernels."""
    w = np.ascontiguousarray(weight)
    plan = _forward(_five(input), w.shape, tuple(stride), tuple(padding), tuple(dilation), groups, dtype_name(input.dtype), _is_channels_last(input), get_num_threads())
    return plan(input, w, None if bias is None else np.ascontiguousarray(bias))

"""Images laid out for convolutions: where each element goes, and the launch of the kernels that work on them.

There are always three spatial dimensions, of which the first ones may be single; strides are in bytes.
"""

import bisect
import functools
import itertools
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wengert.codegen.arranging import emit_images
from wengert.codegen.target import host
from wengert.runtime.calls import Kernels, dtype_name, kernels
from wengert.runtime.launch import pointer
from wengert.runtime.pool import empty
from wengert.runtime.recording import assign
from wengert.runtime.threads import get_num_threads
from wengert.runtime.workers import launch

__all__ = [
    "SHARES", "Axis", "Copies", "Images", "Triple", "axis", "empty_images", "five", "grain", "is_channels_last", "run",
    "strides_of", "three",
]  # fmt: skip

Array = NDArray[Any]
Sizes = Sequence[int]
Triple = tuple[int, int, int]

LINE: Final = 64  # bytes of a cache line
TASK: Final = 100_000  # products that make a chunk worth while
SHARES: Final = 8  # chunks per thread, so that one who is late does not keep the others waiting


def three(values: Sizes, single: int = 1) -> Triple:
    """Return one number for each of three dimensions."""
    a, b, c = (*[single] * (3 - len(values)), *values)
    return a, b, c


def five(array: Array) -> tuple[tuple[int, ...], tuple[int, ...]]:
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
        assign(out[-self.slack :], np.zeros((), np.uint8))
        before, after = self.numbers
        run(
            self.kernel,
            "images",
            self.count,
            grain(self.count, self.plane // self.size),
            pointer(x),
            *before,
            pointer(out),
            *after,
        )
        return out


class Copies:
    """How what a tile reads of a channel is copied together: windows overlap, and rows are far apart.

    Attributes:
        runs: where each run of vectors begins, where it goes, and how many vectors it has. nbytes: of all runs.
    """

    def __init__(self, images: Images, reads: tuple[Sizes, Sizes, Sizes], tile: int, vector: int) -> None:
        distances = [images.distance(*u) for u in itertools.product(*reads)]
        runs: list[list[int]] = []
        for start in sorted(distances):
            if runs and start <= runs[-1][1]:
                runs[-1][1] = start + tile
            else:
                runs.append([start, start + tile])
        counts = [-(-(stop - start) // vector) for start, stop in runs]
        places = [0, *itertools.accumulate(count * vector for count in counts)]
        self.nbytes = places[-1]
        self.runs = np.array([(r[0], p, n) for r, p, n in zip(runs, places, counts, strict=False)], np.int64)
        starts = [start for start, _ in runs]
        within = [bisect.bisect_right(starts, d) - 1 for d in distances]
        self.places = np.array([places[i] + d - starts[i] for i, d in zip(within, distances, strict=True)], np.int64)

    def table(self, channels: int) -> NDArray[np.int64]:
        """Return the distances of the products of a window in the copy."""
        return (np.arange(channels)[:, None] * self.nbytes + self.places).reshape(-1)


@functools.lru_cache(maxsize=64)
def _packer(count: int) -> Any:
    return Struct(f"{count}q").pack


def run(made: Kernels, name: str, count: int, grain: int, *numbers: int) -> None:
    """Run a kernel over [0, count) in chunks of ``grain``, with numbers in its slots."""
    launch(_packer(len(numbers) + 3)(made.addresses[name], count, grain, *numbers))


def grain(count: int, each: int) -> int:
    """Return how many steps make a chunk, given the work of one."""
    return max(1, min(-(-TASK // max(1, each)), -(-count // (SHARES * get_num_threads()))), TASK // 4 // max(1, each))


def strides_of(shape: Sizes, size: int, last: bool) -> list[int]:
    """Return the strides of a new array (n, channels, *spatial), which may have channels last."""
    order = [0, *range(2, len(shape)), 1] if last else range(len(shape))
    found, step = [0] * len(shape), size
    for d in reversed(order):
        found[d] = step
        step *= shape[d]
    return found


def empty_images(shape: Sizes, dtype: Any, last: bool) -> Array:
    """Return an unset array (n, channels, *spatial), which may have channels last in memory."""
    if last:
        return np.moveaxis(empty((shape[0], *shape[2:], shape[1]), dtype), -1, 1)
    return empty(tuple(shape), dtype)


def is_channels_last(x: Array) -> bool:
    """Whether the channels of (n, channels, *spatial) are what is contiguous in memory."""
    return bool(x.shape[1] > 1 and not x.flags.c_contiguous and np.moveaxis(x, 1, -1).flags.c_contiguous)

"""Pooling of large arrays over one or two dimensions; kernels are called like the operators of their names.

They give NotImplemented where NumPy should do the work: for other dtypes than float32 and float64, arrays that are not
contiguous, padding together with dilation, and what the operator is to refuse.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wengert.codegen.pooling import emit_averages, emit_gather, emit_maxima, emit_scatter, emit_spread
from wengert.codegen.target import host
from wengert.kernels.pooling import pool_count
from wengert.runtime.arranging import run
from wengert.runtime.calls import dtype_name, kernels, or_numpy
from wengert.runtime.eager import kernel
from wengert.runtime.launch import pointer
from wengert.runtime.pool import empty
from wengert.runtime.recording import current
from wengert.runtime.reduction import mean

__all__ = [
    "adaptive_avg_pool", "adaptive_avg_pool_transpose", "adaptive_max_pool", "avg_pool", "avg_pool_transpose", "max_pool",
    "pool_gather", "pool_scatter",
]  # fmt: skip

Array = NDArray[Any]
Sizes = Sequence[int]

GRAIN: Final = 16384  # elements that a thread takes at a time
PLANS: Final = 512  # that are kept


class Windows(NamedTuple):
    """Windows over the last one or two dimensions, always as two: (rows, columns)."""

    sizes: tuple[int, int]
    counts: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def step(self) -> int:
        """How far windows move along a row, as kernels are told it."""
        return self.stride[1] if self.stride[1] <= 2 else 0


@functools.lru_cache(maxsize=PLANS)
def _numbers(windows: Windows) -> tuple[int, ...]:
    """Return the slots of a kernel, from sizes to the windows of a row that lie wholly inside."""
    width, (_, count), reach = windows.sizes[1], windows.counts, windows.dilation[1] * (windows.kernel[1] - 1)
    step, low = windows.stride[1], windows.padding[1]
    first = min(-(-low // step), count)
    last = min(max((width - 1 - reach + low) // step + 1, first), count)
    return (*(number for pair in windows for number in pair), first, last)


@functools.lru_cache(maxsize=PLANS)
def _lengths(windows: Windows, dtype: np.dtype[Any], include: bool, override: int | None) -> tuple[Array, Array]:
    """Return the numbers by whose products sums are divided."""
    if override is not None:
        return np.full(windows.counts[0], override, dtype), np.ones(windows.counts[1], dtype)
    found = []
    for size, count, k, s, p in zip(*windows[:5], strict=True):
        start = np.arange(count) * s - p
        stop = np.minimum(start + k, size + p if include else size)
        found.append((stop - (start if include else np.maximum(start, 0))).astype(dtype))
    return found[0], found[1]


@functools.lru_cache(maxsize=PLANS)
def _windows(
    sizes: Sizes, ceil: bool, kernel_: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes
) -> Windows | None:
    """Return windows that kernels take; None for others, and for what the operator refuses."""
    given = sizes, kernel_, stride, padding, dilation
    if not 1 <= len(kernel_) <= 2 or any(len(values) != len(kernel_) for values in given):
        return None
    if min(*sizes, *kernel_, *stride, *dilation) < 1 or min(padding) < 0 or math.prod(sizes) >= 1 << 31:
        return None
    if max(padding) and max(dilation) > 1:
        return None
    if any(2 * p > d * (k - 1) + 1 for k, p, d in zip(kernel_, padding, dilation, strict=True)):
        return None
    counts = [pool_count(*each, ceil) for each in zip(*given, strict=True)]
    if min(counts) < 1:
        return None

    def two(values: Sizes, single: int = 1) -> tuple[int, int]:
        a, b = values if len(values) == 2 else (single, *values)
        return a, b

    return Windows(two(sizes), two(counts), two(kernel_), two(stride), two(padding, 0), two(dilation))


def _served(x: Array) -> bool:
    """Whether kernels take an array."""
    return bool(
        x.dtype in (np.float32, np.float64) and x.dtype.isnative and x.size and x.flags.c_contiguous and x.flags.aligned
    )


def _lanes(x: Array) -> int:
    return host().vector_bytes // x.itemsize


def _pooled(build: Any, x: Array, windows: Windows, out: Array, *more: int) -> None:
    """Run a kernel over the rows of windows."""
    made = kernels("pool", build, dtype_name(x.dtype), _lanes(x), windows.step)
    count = out.size // windows.counts[1]
    grain = max(1, GRAIN // (windows.counts[1] * math.prod(windows.kernel)))
    run(made, "pool", count, grain, pointer(x), pointer(out), *_numbers(windows), *more)


@kernel("max_pool")
@or_numpy
def max_pool(input: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any) -> Any:
    """Return the maximum of each window and its flat position; of equal ones the first, and the last NaN before all."""
    lead, sizes = input.shape[: input.ndim - len(kernel)], input.shape[input.ndim - len(kernel) :]
    windows = (
        _windows(sizes, bool(ceil_mode), *map(tuple, (kernel, stride, padding, dilation))) if _served(input) else None
    )
    if windows is None:
        return NotImplemented
    shape = *lead, *windows.counts[2 - len(kernel) :]
    values, indices = empty(shape, input.dtype), empty(shape, np.int64)
    _pooled(emit_maxima, input, windows, values, pointer(indices), 0, 0)
    return values, indices


@kernel("avg_pool")
@or_numpy
def avg_pool(
    input: Array, kernel: Any, stride: Any, padding: Any, ceil_mode: Any, count_include_pad: Any = True,
    divisor_override: Any = None,
) -> Any:  # fmt: skip
    """Return the average of each window."""
    lead, sizes = input.shape[: input.ndim - len(kernel)], input.shape[input.ndim - len(kernel) :]
    windows = (
        _windows(sizes, bool(ceil_mode), *map(tuple, (kernel, stride, padding)), (1,) * len(kernel))
        if _served(input)
        else None
    )
    if windows is None or divisor_override == 0:
        return NotImplemented
    out = empty((*lead, *windows.counts[2 - len(kernel) :]), input.dtype)
    high, wide = _lengths(windows, input.dtype, bool(count_include_pad), divisor_override)
    _pooled(emit_averages, input, windows, out, 0, pointer(high), pointer(wide))
    return out


@kernel("avg_pool_transpose")
@or_numpy
def avg_pool_transpose(
    input: Array, size: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: Any, count_include_pad: Any = True,
    divisor_override: Any = None,
) -> Any:  # fmt: skip
    """Spread averages evenly over their windows."""
    if not _served(input) or len(size) != len(kernel):
        return NotImplemented
    windows = _windows(tuple(size), bool(ceil_mode), *map(tuple, (kernel, stride, padding)), (1,) * len(kernel))
    lead, counts = input.shape[: input.ndim - len(kernel)], input.shape[input.ndim - len(kernel) :]
    if windows is None or divisor_override == 0 or counts != windows.counts[2 - len(kernel) :]:
        return NotImplemented
    out = empty((*lead, *size), input.dtype)
    high, wide = _lengths(windows, input.dtype, bool(count_include_pad), divisor_override)
    made = kernels("spread", emit_spread, dtype_name(input.dtype), _lanes(input))
    grain = max(1, GRAIN // math.prod((*size, *windows.kernel)))
    run(
        made, "spread", math.prod(lead), grain, pointer(input), pointer(out), *_numbers(windows), 0, pointer(high),
        pointer(wide),
    )  # fmt: skip
    return out


# ---- parts of equal size


def _even(sizes: Sizes, parts: Sizes) -> tuple[int, ...] | None:
    """Return the windows that divide spatial dimensions into parts, if all are of one size."""
    if min(parts, default=0) < 1 or any(n % k for n, k in zip(sizes, parts, strict=True)):
        return None
    return tuple(n // k for n, k in zip(sizes, parts, strict=True))


@kernel("adaptive_avg_pool")
def adaptive_avg_pool(input: Array, size: Any) -> Any:
    """Return averages over ``size`` parts of each spatial dimension, where they are equally large."""
    if all(n == 1 for n in size):
        return mean(input, tuple(range(input.ndim - len(size), input.ndim)), True)
    windows = _even(input.shape[input.ndim - len(size) :], size)
    if windows is None:
        return NotImplemented
    return avg_pool(input, windows, windows, (0,) * len(size), False)


@kernel("adaptive_avg_pool_transpose")
def adaptive_avg_pool_transpose(input: Array, size: Any) -> Any:
    """Spread averages evenly over parts of spatial shape ``size`` that are equally large."""
    windows = _even(size, input.shape[input.ndim - len(size) :])
    if windows is None:
        return NotImplemented
    return avg_pool_transpose(input, size, windows, windows, (0,) * len(size), False)


@kernel("adaptive_max_pool")
def adaptive_max_pool(input: Array, size: Any) -> Any:
    """Return the maxima of ``size`` parts of each spatial dimension that are equally large, and their flat positions."""
    windows = _even(input.shape[input.ndim - len(size) :], size)
    if windows is None:
        return NotImplemented
    return max_pool(input, windows, windows, (0,) * len(size), (1,) * len(size), False)


# ---- elements at positions


def _by_positions(made: Any, name: str, values: Array, indices: Array, planes: Array, count: int) -> bool:
    """Run a kernel for every plane; return whether all positions are inside."""
    outside, windows = np.zeros(1, np.int64), indices.size * count // max(planes.size, 1)
    grain = max(1, GRAIN // max(count, windows))
    run(
        made,
        name,
        planes.size // count,
        grain,
        *map(pointer, (values, indices, planes)),
        count,
        windows,
        pointer(outside),
    )
    mine = current()
    if mine is None:
        return not outside[0]
    mine.kept.append(outside)
    mine.require(outside, lambda: _refuse_outside(outside))
    return True


def _refuse_outside(outside: Array) -> None:
    """Raise IndexError, for a kernel that met a position outside its plane."""
    outside[0] = 0
    raise IndexError("a position of a pooled element is outside the plane that it is to be taken from or added to")


def _positions(indices: Array) -> bool:
    return bool(indices.dtype == np.int64 and indices.dtype.isnative and indices.size and indices.flags.c_contiguous)


@kernel("pool_scatter")
@or_numpy
def pool_scatter(input: Array, indices: Array, size: Any) -> Any:
    """Add elements into zeros of spatial shape ``size`` at flat positions."""
    if not _served(input) or not _positions(indices) or indices.shape != input.shape or min(size) < 1:
        return NotImplemented
    out = empty((*input.shape[: input.ndim - len(size)], *size), input.dtype)
    made = kernels("scatter", emit_scatter, dtype_name(input.dtype), _lanes(input))
    inside = _by_positions(made, "scatter", input, indices, out, math.prod(size))
    return out if inside else NotImplemented


@kernel("pool_gather")
@or_numpy
def pool_gather(input: Array, indices: Array, dims: Any) -> Any:
    """Take the elements at flat positions of the last ``dims`` dimensions."""
    batch = input.ndim - dims
    if not _served(input) or not _positions(indices) or indices.shape[:batch] != input.shape[:batch]:
        return NotImplemented
    if indices.ndim != input.ndim:
        return NotImplemented
    out = empty(indices.shape, input.dtype)
    made = kernels("gather", emit_gather, dtype_name(input.dtype))
    inside = _by_positions(made, "gather", out, indices, input, math.prod(input.shape[batch:]))
    return out if inside else NotImplemented

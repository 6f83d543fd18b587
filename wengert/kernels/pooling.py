"""Maximum and average pooling over sliding windows, with their transposes.

Spatial dimensions are the last ones; any number of dimensions may stand before them. The indices that maximum pooling
returns are flat positions in the spatial dimensions of the input, as PyTorch's are.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wengert.errors import DTypeError, ShapeError
from wengert.kernels.precision import in_float32
from wengert.kernels.scatter import checked_index, identity
from wengert.kernels.windows import along, check_geometry, taps

__all__ = [
    "avg_pool",
    "avg_pool_input_grad",
    "check_divisor",
    "check_places",
    "check_taken",
    "divided",
    "max_pool",
    "max_pool_gather",
    "max_pool_input_grad",
    "max_unpool",
    "pool_count",
    "pool_counts",
]

Array = NDArray[Any]

# How much of the input is pooled at a time, in bytes, so that what is kept beside it stays in the cache.
BLOCK_BYTES = 1 << 21


def pool_count(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Return the number of windows along a dimension, by PyTorch's rule.

    With ``ceil_mode`` a last window may go over the end, but it has to start inside the input or the padding before it.

    Example:
        >>> pool_count(5, kernel=2, stride=2, padding=0, dilation=1, ceil_mode=False)
        2
        >>> pool_count(5, kernel=2, stride=2, padding=0, dilation=1, ceil_mode=True)
        3
    """
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return span // stride + 1
    count = -(-span // stride) + 1
    return count - 1 if (count - 1) * stride >= size + padding else count


@in_float32
def max_pool(
    x: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool = False,
) -> tuple[Array, NDArray[np.int64]]:
    """Return the maximum of each window and where it is, like ``torch.nn.functional.max_pool2d``.

    Args:
        x: real array of shape ``(*batch, *spatial)``.
        kernel, stride, padding, dilation: one number for each spatial dimension. Padding is never the maximum.
        ceil_mode: whether a last window may go over the end, see :func:`pool_count`.

    Returns:
        The values and the indices, both of shape ``(*batch, *counts)``. The first of equal maxima is found, and the
        last NaN, if there is one.

    Raises:
        ShapeError: if a parameter is out of range, a padding is more than half of its window, or no window fits.
        DTypeError: if ``x`` is complex.

    Example:
        >>> max_pool(np.array([1.0, 3.0, 2.0, 5.0]), [2], [2], [0], [1])
        (array([3., 5.]), array([1, 3]))
    """
    counts = pool_counts("max_pool", x.shape, kernel, stride, padding, dilation, ceil_mode)
    if x.dtype.kind == "c":
        raise DTypeError(f"max_pool: complex numbers have no maximum, got {x.dtype}")
    n = len(kernel)
    sizes, shape = x.shape[x.ndim - n :], (*x.shape[: x.ndim - n], *counts)
    spans = [(count - 1) * s + d * (k - 1) + 1 for count, k, s, d in zip(counts, kernel, stride, dilation, strict=True)]
    pads = [(p, max(0, span - size - p)) for span, size, p in zip(spans, sizes, padding, strict=True)]
    padded_sizes = [size + sum(pair) for size, pair in zip(sizes, pads, strict=True)]
    found = [elements for _, _, elements in taps(padded_sizes, counts, kernel, stride, [0] * n, dilation)]
    first, base, offsets = _numbering(sizes, counts, kernel, stride, padding, dilation)
    values, indices = np.empty_like(x, shape=shape), np.empty_like(x, np.int64, shape=shape)
    for block in _blocks(x, n):
        part = _padded(x[block], pads, identity("amax", x.dtype))
        top, number = _first_maximum(part, found, first, nan=False)
        if x.dtype.kind == "f" and np.isnan(top).any():
            top, number = _first_maximum(part, found, first, nan=True)
        values[block] = top
        np.add(offsets[number], base, out=indices[block])
    if any(padding) and any(d > 1 for d in dilation):  # a window may miss the input altogether
        np.minimum(indices, math.prod(sizes) - 1, out=indices)
    return values, indices


@in_float32
def max_pool_input_grad(g: Array, indices: Array, spatial_shape: Sequence[int]) -> Array:
    """Add ``g`` into zeros at ``indices``: the transpose of :func:`max_pool` near a given input.

    Args:
        g: cotangent of shape ``(*batch, *counts)``.
        indices: flat positions in ``spatial_shape``, of the same shape.
        spatial_shape: spatial shape of the result.

    Returns:
        An array of shape ``(*batch, *spatial_shape)``. Its transpose is :func:`max_pool_gather`.

    Raises:
        IndexError: if an index is out of range.

    Example:
        >>> max_pool_input_grad(np.array([1.0, 2.0]), np.array([1, 3]), [4])
        array([0., 1., 0., 2.])
    """
    positions = _plane_positions("max_pool_input_grad", g, indices, spatial_shape)
    out = np.zeros((*g.shape[: g.ndim - len(spatial_shape)], *spatial_shape), g.dtype)
    np.add.at(out.reshape(-1), positions, g.reshape(-1))
    return out


def max_pool_gather(x: Array, indices: Array, spatial_dims: int) -> Array:
    """Return the elements of ``x`` at ``indices``: the derivative of :func:`max_pool` near a given input.

    Args:
        x: array of shape ``(*batch, *spatial)``.
        indices: flat positions in the spatial dimensions, of shape ``(*batch, *counts)``.
        spatial_dims: the number of spatial dimensions.

    Raises:
        IndexError: if an index is out of range.

    Example:
        >>> max_pool_gather(np.array([1.0, 3.0, 2.0, 5.0]), np.array([1, 3]), 1)
        array([3., 5.])
    """
    batch = x.ndim - spatial_dims
    check_taken(x.shape, indices.shape, spatial_dims)
    positions = _plane_positions("max_pool_gather", indices, indices, x.shape[batch:])
    return np.ascontiguousarray(x).reshape(-1).take(positions).reshape(indices.shape)


def max_unpool(x: Array, indices: Array, spatial_shape: Sequence[int]) -> Array:
    """Write ``x`` into zeros at ``indices``, like ``torch.nn.functional.max_unpool2d``.

    The arguments and exceptions are those of :func:`max_pool_input_grad`; of repeated indices the last one is written.

    Example:
        >>> max_unpool(np.array([3.0, 5.0]), np.array([1, 3]), [4])
        array([0., 3., 0., 5.])
    """
    positions = _plane_positions("max_unpool", x, indices, spatial_shape)
    out = np.zeros((*x.shape[: x.ndim - len(spatial_shape)], *spatial_shape), x.dtype)
    out.reshape(-1)[positions] = x.reshape(-1)
    return out


@in_float32
def avg_pool(
    x: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Return the average of each window, like ``torch.nn.functional.avg_pool2d``.

    Args:
        x: array of shape ``(*batch, *spatial)``.
        kernel, stride, padding: one number for each spatial dimension.
        ceil_mode: whether a last window may go over the end, see :func:`pool_count`.
        count_include_pad: whether the zeros of the padding are counted.
        divisor_override: divide by this number instead of the number of elements.

    Returns:
        An array of shape ``(*batch, *counts)``; averages of integers are rounded towards zero.

    Raises:
        ShapeError: as :func:`max_pool`.
        ValueError: if ``divisor_override`` is 0.

    Example:
        >>> avg_pool(np.array([1.0, 3.0, 2.0, 6.0]), [2], [2], [1])
        array([0.5, 2.5, 3. ])
    """
    counts = pool_counts("avg_pool", x.shape, kernel, stride, padding, [1] * len(kernel), ceil_mode)
    batch = x.ndim - len(kernel)
    divisors = _divisors(x.shape[batch:], counts, kernel, stride, padding, count_include_pad, divisor_override)
    sums = x
    for axis, count, k, s, p in zip(itertools.count(batch), counts, kernel, stride, padding, strict=False):
        out = np.zeros_like(sums, shape=(*sums.shape[:axis], count, *sums.shape[axis + 1 :]))
        for _, (windows,), (elements,) in taps([x.shape[axis]], [count], [k], [s], [p], [1]):
            out[along(axis, windows)] += sums[along(axis, elements)]
        sums = out
    return divided(sums, divisors)


@in_float32
def avg_pool_input_grad(
    g: Array,
    spatial_shape: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Transpose of :func:`avg_pool`, for an input of shape ``(*batch, *spatial_shape)``.

    Raises:
        ShapeError: if ``g`` does not have the shape of the average.

    Example:
        >>> avg_pool_input_grad(np.array([1.0, 2.0]), [5], [2], [2], [0])
        array([0.5, 0.5, 1. , 1. , 0. ])
    """
    batch = g.ndim - len(kernel)
    x_shape = (*g.shape[:batch], *spatial_shape)
    counts = pool_counts("avg_pool_input_grad", x_shape, kernel, stride, padding, [1] * len(kernel), ceil_mode)
    if g.shape[batch:] != counts:
        raise ShapeError(
            f"avg_pool_input_grad: expected a cotangent of shape {(*g.shape[:batch], *counts)}, got {g.shape}"
        )
    out = divided(g, _divisors(spatial_shape, counts, kernel, stride, padding, count_include_pad, divisor_override))
    for axis in reversed(range(batch, g.ndim)):
        size, k, s, p = (v[axis - batch] for v in (spatial_shape, kernel, stride, padding))
        spread = np.zeros_like(out, shape=(*out.shape[:axis], size, *out.shape[axis + 1 :]))
        for _, (windows,), (elements,) in taps([size], [out.shape[axis]], [k], [s], [p], [1]):
            spread[along(axis, elements)] += out[along(axis, windows)]
        out = spread
    return out


def _first_maximum(x: Array, found: Sequence[Any], first: Array, *, nan: bool) -> tuple[Array, Array]:
    """Return the maxima over the taps and the numbers of the taps that have them.

    Args:
        x: padded array of shape ``(*batch, *spatial)``.
        found: slices that select each tap in all windows.
        first: the number of the first tap of each window that is not padding.
        nan: whether to look for NaN, which is the maximum wherever it is.
    """
    values = x[(..., *found[0])].copy("K")
    number, candidate = np.empty_like(values, first.dtype), np.empty_like(values)
    number[...] = first
    for tap, elements in enumerate(found[1:], 1):
        candidate[...] = x[(..., *elements)]  # contiguous, which makes what follows fast
        better = candidate > values
        if nan:
            better |= candidate != candidate
        np.maximum(candidate, values, out=values)
        # The numbers rise from tap to tap: the larger one is that of the tap that was better last.
        np.maximum(number, np.multiply(better.view(np.uint8), first.dtype.type(tap)), out=number)
    return values, number


def _padded(x: Array, pads: Sequence[tuple[int, int]], value: Any) -> Array:
    """Return ``x`` in its memory order with ``value`` around its last dimensions."""
    if not any(after or before for before, after in pads):
        return x
    batch = x.ndim - len(pads)
    sizes = [size + sum(pair) for size, pair in zip(x.shape[batch:], pads, strict=True)]
    out = np.full_like(x, value, shape=(*x.shape[:batch], *sizes))
    inside: list[Any] = [slice(before, size - after) for size, (before, after) in zip(sizes, pads, strict=True)]
    out[(..., *inside)] = x
    return out


def _numbering(
    sizes: Sequence[int],
    counts: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
    """Return what turns numbers of taps into flat positions.

    Returns:
        The number of the first tap inside the input for each window, the position where each window starts, and the
        position of each tap from the start of its window.
    """
    first, base, offsets = [], [], []
    for dim, (count, k, s, p, d) in enumerate(zip(counts, kernel, stride, padding, dilation, strict=True)):
        step = math.prod(sizes[dim + 1 :])
        starts = np.arange(count) * s - p
        first.append(np.minimum(-(np.minimum(starts, 0) // d), k - 1) * math.prod(kernel[dim + 1 :]))
        base.append(starts * step)
        offsets.append(np.arange(k) * d * step)
    number = np.min_scalar_type(math.prod(kernel) - 1)
    outer_sum = functools.partial(functools.reduce, np.add.outer)
    return outer_sum(first).astype(number), outer_sum(base), outer_sum(offsets).reshape(-1)


def _blocks(x: Array, spatial_dims: int) -> Iterator[tuple[slice, ...]]:
    """Divide the first dimension of the batch into parts of about `BLOCK_BYTES`."""
    if x.ndim == spatial_dims:
        yield ()
        return
    step = max(1, BLOCK_BYTES // max(1, x.nbytes // max(1, len(x))))
    for start in range(0, len(x), step):
        yield (slice(start, start + step),)


def _plane_positions(name: str, x: Array, indices: Array, spatial_shape: Sequence[int]) -> NDArray[np.intp]:
    """Return the flat positions of ``indices`` in an array of shape ``(*batch, *spatial_shape)``, in one row."""
    check_places(name, x.shape, indices.shape, spatial_shape)
    batch, size = x.ndim - len(spatial_shape), math.prod(spatial_shape)
    planes = math.prod(x.shape[:batch])
    positions = checked_index(name, indices, batch, size).reshape(planes, math.prod(x.shape[batch:]))
    return (positions + (np.arange(planes) * size)[:, None]).reshape(-1)


def check_taken(shape: Sequence[int], indices_shape: Sequence[int], spatial_dims: int) -> None:
    """Raise ShapeError unless indices have the dimensions of an array, with other spatial sizes.

    Example:
        >>> check_taken((2, 3), (2, 5), 1)
    """
    batch = len(shape) - spatial_dims
    if len(indices_shape) != len(shape) or tuple(indices_shape[:batch]) != tuple(shape[:batch]):
        raise ShapeError(
            f"max_pool_gather: indices of shape {tuple(indices_shape)} do not fit x of shape {tuple(shape)}"
        )


def check_places(name: str, shape: Sequence[int], indices_shape: Sequence[int], spatial_shape: Sequence[int]) -> None:
    """Raise ShapeError unless there is an index for each element, and a size for each spatial dimension.

    Example:
        >>> check_places("max_unpool", (2, 3), (2, 3), (4,))
    """
    if tuple(indices_shape) != tuple(shape):
        raise ShapeError(f"{name}: indices of shape {tuple(indices_shape)} do not fit an array of shape {tuple(shape)}")
    if any(n < 0 for n in spatial_shape) or len(spatial_shape) > len(shape):
        raise ShapeError(f"{name}: {tuple(spatial_shape)} is no spatial shape for an array of shape {tuple(shape)}")


def check_divisor(divisor_override: int | None) -> None:
    """Raise ValueError for a number that nothing can be divided by.

    Example:
        >>> check_divisor(3)
    """
    if divisor_override == 0:
        raise ValueError("avg_pool: divisor_override must not be 0")


def _divisors(
    sizes: Sequence[int],
    counts: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    count_include_pad: bool,
    divisor_override: int | None,
) -> NDArray[np.intp]:
    """Return the number that each sum is divided by."""
    if divisor_override is not None:
        check_divisor(divisor_override)
        return np.asarray(divisor_override)
    lengths = []
    for size, count, k, s, p in zip(sizes, counts, kernel, stride, padding, strict=True):
        start = np.arange(count) * s - p
        stop = np.minimum(start + k, size + p if count_include_pad else size)
        lengths.append(stop - (start if count_include_pad else np.maximum(start, 0)))
    return np.asarray(functools.reduce(np.multiply.outer, lengths))


def divided(sums: Array, divisors: NDArray[np.intp]) -> Array:
    """Return averages; those of integers are rounded towards zero."""
    if sums.dtype.kind in "iu":
        quotients = sums // divisors
        return np.asarray(quotients + ((quotients < 0) & (sums % divisors != 0)), sums.dtype)
    return np.asarray(sums / divisors.astype(sums.real.dtype))


def pool_counts(
    name: str,
    shape: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> tuple[int, ...]:
    """Return the number of windows in each spatial dimension, all positive.

    Args:
        name: of the kernel, for messages. shape: of the array. The others are as in :func:`max_pool`.

    Raises:
        ShapeError: as :func:`max_pool`.

    Example:
        >>> pool_counts("max_pool", (1, 5), [2], [2], [0], [1], ceil_mode=True)
        (3,)
    """
    check_geometry(name, len(kernel), kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    if len(shape) < len(kernel):
        raise ShapeError(f"{name}: input must have at least {len(kernel)} dimensions, got shape {tuple(shape)}")
    sizes = shape[len(shape) - len(kernel) :]
    for k, p, d in zip(kernel, padding, dilation, strict=True):
        if 2 * p > d * (k - 1) + 1:
            raise ShapeError(f"{name}: padding {p} is more than half of a window of {k} with dilation {d}")
    counts = tuple(
        pool_count(*given, ceil_mode) for given in zip(sizes, kernel, stride, padding, dilation, strict=True)
    )
    if any(count < 1 for count in counts) or any(size < 1 for size in sizes):
        raise ShapeError(
            f"{name}: no window of {tuple(kernel)} with padding {tuple(padding)} and dilation {tuple(dilation)} fits "
            f"into spatial shape {tuple(sizes)}"
        )
    return counts

"""Sliding windows: where they start, how many fit, and the strided view that shows them all without a copy."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from wengert.errors import ShapeError

__all__ = ["along", "check_geometry", "taps", "window_count", "windows"]


def window_count(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Return how many dilated windows fit into ``size`` elements with ``padding`` more on both sides.

    Example:
        >>> window_count(28, kernel=3, stride=2, padding=1, dilation=1)
        14
    """
    return max(0, (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1)


def windows(
    x: NDArray[Any], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], counts: Sequence[int]
) -> NDArray[Any]:
    """Return a read-only view of the windows over the last dimensions of ``x``.

    Args:
        x: array of shape ``(*batch, *spatial)``, padded already.
        kernel, stride, dilation: one number for each spatial dimension.
        counts: how many windows to show in each spatial dimension; they must fit.

    Returns:
        A view of shape ``(*batch, *counts, *kernel)``.

    Example:
        >>> windows(np.arange(5), [2], [1], [1], [4]).tolist()
        [[0, 1], [1, 2], [2, 3], [3, 4]]
    """
    batch = x.ndim - len(kernel)
    for size, k, s, d, count in zip(x.shape[batch:], kernel, stride, dilation, counts, strict=True):
        if count and (count - 1) * s + d * (k - 1) + 1 > size:
            raise ShapeError(f"{count} windows of {k} with stride {s} and dilation {d} do not fit into {size} elements")
    steps = x.strides[batch:]
    strides = (
        *x.strides[:batch],
        *(step * s for step, s in zip(steps, stride, strict=True)),
        *(step * d for step, d in zip(steps, dilation, strict=True)),
    )
    return as_strided(x, (*x.shape[:batch], *counts, *kernel), strides, writeable=False)


def taps(
    sizes: Sequence[int],
    counts: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...], tuple[Any, ...]]]:
    """Yield, for each position in the kernel, which windows have it inside the input, and where it lies there.

    Args:
        sizes: spatial shape of the input, without padding.
        counts: how many windows there are in each spatial dimension.
        kernel, stride, padding, dilation: one number for each spatial dimension.

    Yields:
        The position in the kernel, slices over the windows and slices over the input, of equal lengths. Positions that
        only meet padding are left out.

    Example:
        >>> for tap, outputs, inputs in taps([4], [4], [3], [1], [1], [1]):
        ...     print(tap, outputs, inputs)
        (0,) (slice(1, 4, None),) (slice(0, 3, 1),)
        (1,) (slice(0, 4, None),) (slice(0, 4, 1),)
        (2,) (slice(0, 3, None),) (slice(1, 4, 1),)
    """
    spans = [
        [_span(t * d - p, size, count, s) for t in range(k)]
        for size, count, k, s, p, d in zip(sizes, counts, kernel, stride, padding, dilation, strict=True)
    ]
    for tap in itertools.product(*map(range, kernel)):
        found = [spans[dim][t] for dim, t in enumerate(tap)]
        if all(outputs.stop > outputs.start for outputs, _ in found):
            yield tap, tuple(outputs for outputs, _ in found), tuple(inputs for _, inputs in found)


def _span(offset: int, size: int, count: int, stride: int) -> tuple[slice, slice]:
    """Return the windows ``o`` with ``0 <= o * stride + offset < size``, and the elements ``o * stride + offset``."""
    first = max(0, -(offset // stride))
    last = min(count, (size - 1 - offset) // stride + 1)
    if last <= first:
        return slice(0, 0), slice(0, 0)
    return slice(first, last), slice(first * stride + offset, (last - 1) * stride + offset + 1, stride)


def along(axis: int, index: Any) -> tuple[Any, ...]:
    """Return what applies ``index`` to one dimension and leaves the others whole.

    Example:
        >>> np.arange(6).reshape(2, 3)[along(1, slice(2, 3))].tolist()
        [[2], [5]]
    """
    return (slice(None),) * axis + (index,)


def check_geometry(name: str, dimensions: int, **parameters: Sequence[int]) -> None:
    """Raise unless each parameter has one number per spatial dimension, positive (``padding``: not negative).

    Raises:
        ShapeError: naming the function, the parameter and what was given.
    """
    for parameter, values in parameters.items():
        least = 0 if parameter == "padding" else 1
        if len(values) != dimensions or any(value < least for value in values):
            kind = "non-negative" if least == 0 else "positive"
            raise ShapeError(f"{name}: {parameter} must be {dimensions} {kind} integers, got {tuple(values)}")

"""Sliding windows: where they start, how many fit, and the strided view that shows them all without a copy."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from wengert.errors import ShapeError

__all__ = ["check_geometry", "taps", "window_count", "windows"]


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
    kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], counts: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
    """Yield each position in the kernel with the slices that select it in every window at once.

    Example:
        >>> [(tap, where) for tap, where in taps([2], [3], [1], [4])]
        [((0,), (slice(0, 10, 3),)), ((1,), (slice(1, 11, 3),))]
    """
    for tap in itertools.product(*map(range, kernel)):
        starts = [t * d for t, d in zip(tap, dilation, strict=True)]
        yield (
            tap,
            tuple(
                slice(start, start + (count - 1) * s + 1 if count else start, s)
                for start, s, count in zip(starts, stride, counts, strict=True)
            ),
        )


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

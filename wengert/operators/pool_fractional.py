"""Fractional max-pooling: maxima over windows whose places are drawn at random (Graham, 2014).

Of n windows of k elements in a dimension of s, window i starts at ⌊(i + u) α⌋ - ⌊u α⌋ with α = (s - k) / (n - 1) and u
drawn from [0, 1); the last one ends where the dimension does.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import int64
from wengert.core.arguments import Floating, Real
from wengert.core.batch import folded
from wengert.core.families import composite, nondifferentiable
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.operators.checks import batched, per_dim

__all__ = [
    "fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices", "fractional_maxima",
]  # fmt: skip

Sizes = Sequence[int]


def _starts(u: Any, size: int, kernel: int, count: int) -> Any:
    """Return where the windows of a dimension start, for each element of ``u``."""
    alpha = (size - kernel) / (count - 1) if count > 1 else 0.0
    starts = ((np.arange(count) + u[..., np.newaxis]) * alpha).astype(np.int64)
    starts -= (u * alpha).astype(np.int64)[..., np.newaxis]
    starts[..., count - 1 :] = size - kernel
    return starts


@nondifferentiable(
    batch=folded("input", "samples"),
    spec=lambda input, samples, kernel, size: Spec((*input.shape[:2], *size), int64),
    home=(),
    samples=lambda s: [
        s((1, 2, 4, 5), s.tensor((1, 2, 2), low=0.0, high=0.99), kernel=(2, 2), size=(2, 3)),
        s((0, 1, 4, 5), (0, 1, 2), kernel=(2, 2), size=(2, 3)),
        s(s.array([[[[0.0, np.nan, 1.0]]]]), s.array([[[0.3, 0.4]]]), kernel=(1, 2), size=(1, 2)),
    ],
)
def fractional_maxima(input: Real, samples: Floating, kernel: Any, size: Any) -> Any:
    """Return the flat position of the first maximum (or of NaN) of each window, ``size`` windows per dimension."""
    sizes, dims = input.shape[2:], len(kernel)
    # PyTorch gives the first number of a plane to the last dimension of an image, but to the first of a volume.
    order = range(dims) if dims == 3 else reversed(range(dims))
    starts = [_starts(samples[..., k], n, w, c) for k, n, w, c in zip(order, sizes, kernel, size, strict=True)]
    planes = np.ascontiguousarray(input).reshape(*input.shape[:2], math.prod(sizes))
    best = where = None
    for tap in itertools.product(*map(range, kernel)):
        position: Any = 0
        for d, (start, offset) in enumerate(zip(starts, tap, strict=True)):
            along = start.reshape(*start.shape[:2], *(size[d] if k == d else 1 for k in range(dims)))
            position = position * sizes[d] + along + offset
        value = np.take_along_axis(planes, position.reshape(*position.shape[:2], math.prod(size)), -1).reshape(
            position.shape
        )
        if best is None:
            best, where = value, position
        else:
            better = (value > best) | (np.isnan(value) & ~np.isnan(best))
            best, where = np.where(better, value, best), np.where(better, position, where)
    return where


def _pooled_size(name: str, sizes: Sizes, kernel: Sizes, output_size: Any, output_ratio: Any) -> tuple[int, ...]:
    if (output_size is None) == (output_ratio is None):
        raise ValueError(f"{name}(): give either output_size or output_ratio, got {output_size} and {output_ratio}")
    dims = len(sizes)
    if any(k < 1 for k in kernel):
        raise ShapeError(f"{name}(): kernel_size must be at least 1, got {tuple(kernel)}")
    if output_ratio is None:
        found = per_dim(name, "output_size", output_size, dims)
    else:
        ratios = output_ratio if isinstance(output_ratio, Sequence) else (output_ratio,) * dims
        found = tuple(int(n * r) for n, r in zip(sizes, ratios, strict=True))
    if any(c < 1 or c + k - 1 > n for n, k, c in zip(sizes, kernel, found, strict=True)):
        raise ShapeError(f"{name}(): {found} windows of {tuple(kernel)} do not fit into spatial shape {tuple(sizes)}")
    return found


def _pool(dims: int, input: Any, kernel_size: Any, output_size: Any, output_ratio: Any, random_samples: Any) -> Any:
    name = f"fractional_max_pool{dims}d"
    kernel = per_dim(name, "kernel_size", kernel_size, dims)

    def run(x: Any) -> Any:
        size = _pooled_size(name, x.shape[2:], kernel, output_size, output_ratio)
        shape = (*x.shape[:2], dims)
        samples = ops.rand(shape, dtype=x.dtype) if random_samples is None else random_samples
        if tuple(samples.shape) != shape:
            raise ShapeError(f"{name}(): _random_samples must have shape {shape}, got {tuple(samples.shape)}")
        indices = ops.fractional_maxima(x.detach(), samples.detach(), kernel, size)
        return ops.pool_gather(x, indices, dims), indices

    return batched(name, dims, input, run)


_SAMPLES_2D = [[[0.3, 0.7], [0.9, 0.1]]]
_SAMPLES_3D = [[[0.3, 0.7, 0.5]]]


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((1, 2, 5, 4), 2, 2, _random_samples=s.array(_SAMPLES_2D)),
        s((2, 5, 4), 2, output_ratio=0.6, _random_samples=s.array(_SAMPLES_2D)),
        s((1, 2, 5, 4), 2, [3, 1], return_indices=True, _random_samples=s.array(_SAMPLES_2D)),
        s.error(RuntimeError, "do not fit", (1, 1, 3, 3), 2, 3),
        s.error(ValueError, "either output_size", (1, 1, 3, 3), 2),
        s.error(RuntimeError, "at least 1", (1, 1, 3, 3), 0, 1),
    ],
)  # fmt: skip
def fractional_max_pool2d(
    input: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:  # fmt: skip
    """Return maxima over windows at random places of (N, C, H, W) or (C, H, W).

    Args:
        kernel_size: an int or two. output_size: how many windows, or output_ratio: which share of the sizes, below 1.
        return_indices: return (maxima, flat positions).
        _random_samples: numbers in [0, 1), (N, C, 2), that determine the places; drawn if None.

    Raises:
        RuntimeError: if the windows do not fit.
    """
    found = _pool(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


@composite(home="nn.functional", samples=lambda s: [s((1, 1, 4, 3, 4), 2, 2, _random_samples=s.array(_SAMPLES_3D))])
def fractional_max_pool3d(
    input: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:  # fmt: skip
    """Return maxima over windows at random places of volumes; see ``fractional_max_pool2d``."""
    found = _pool(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


@composite(home="nn.functional", samples=lambda s: [s((1, 2, 5, 4), 2, 2, _random_samples=s.array(_SAMPLES_2D))])
def fractional_max_pool2d_with_indices(
    input: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = True,
    _random_samples: Any = None,
) -> Any:  # fmt: skip
    """Return maxima over windows at random places of images, and their flat positions."""
    return _pool(2, input, kernel_size, output_size, output_ratio, _random_samples)


@composite(home="nn.functional", samples=lambda s: [s((1, 1, 4, 3, 4), 2, 2, _random_samples=s.array(_SAMPLES_3D))])
def fractional_max_pool3d_with_indices(
    input: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = True,
    _random_samples: Any = None,
) -> Any:  # fmt: skip
    """Return maxima over windows at random places of volumes, and their flat positions."""
    return _pool(3, input, kernel_size, output_size, output_ratio, _random_samples)

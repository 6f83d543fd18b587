"""Resizing by interpolation, one dimension after the other, with its transpose.

Each element of the result is a weighted sum of a few elements ("taps") of the input. The transpose is a sum of the same
kind, whose taps are those of the forward map read from the other side. Positions and weights are PyTorch's.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wengert.errors import DTypeError, ShapeError
from wengert.kernels.adaptive_pooling import adaptive_avg_pool, adaptive_avg_pool_input_grad
from wengert.kernels.precision import in_float32

__all__ = [
    "InterpolationMode",
    "Taps",
    "check_resize",
    "cubic_slopes",
    "cubic_weights",
    "interpolate",
    "interpolate_input_grad",
    "resize_taps",
]

Array = NDArray[Any]
InterpolationMode = Literal["nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"]
Kind = Literal["nearest", "nearest-exact", "linear", "cubic"]

# The number of spatial dimensions that a mode is for (0: any) and what it does in each of them.
MODES: dict[str, tuple[int, Kind | None]] = {
    "nearest": (0, "nearest"),
    "nearest-exact": (0, "nearest-exact"),
    "linear": (1, "linear"),
    "bilinear": (2, "linear"),
    "trilinear": (3, "linear"),
    "bicubic": (2, "cubic"),
    "area": (0, None),
}


class Taps(NamedTuple):
    """``out[i] = sum over t of weights[t, i] * x[indices[t, i]]``; a weight of 0 is no tap at all."""

    indices: NDArray[np.intp]
    weights: NDArray[np.float64]

    def transposed(self, size: int) -> "Taps":
        """Return the taps of the transpose, whose result has ``size`` elements."""
        tap, output = np.nonzero(self.weights)
        order = np.argsort(self.indices[tap, output], kind="stable")
        tap, output = tap[order], output[order]
        source = self.indices[tap, output]
        counts = np.bincount(source, minlength=size)
        rank = np.arange(source.size) - np.repeat(np.cumsum(counts) - counts, counts)
        taps = Taps(np.zeros((int(counts.max(initial=0)), size), np.intp), np.zeros((int(counts.max(initial=0)), size)))
        taps.indices[rank, source] = output
        taps.weights[rank, source] = self.weights[tap, output]
        return taps


@in_float32
def interpolate(
    x: Array,
    size: Sequence[int],
    mode: InterpolationMode,
    align_corners: bool = False,
    scales: Sequence[float | None] | None = None,
    antialias: bool = False,
) -> Array:
    """Resize the last dimensions of ``x``, like ``torch.nn.functional.interpolate``.

    Args:
        x: array of shape ``(*batch, *spatial)``.
        size: the new spatial shape.
        mode: ``"nearest"``, ``"nearest-exact"``, ``"linear"``, ``"bilinear"``, ``"trilinear"``, ``"bicubic"`` or
            ``"area"``.
        align_corners: whether the centres of the first and last elements stay where they are, instead of the borders.
        scales: the factors to compute positions with, as the user gave them; None computes them from the sizes.
        antialias: whether to widen the filter when shrinking (linear and cubic modes).

    Returns:
        An array of shape ``(*batch, *size)``. Linear and cubic modes take ``uint8`` as the only integers,
            and round them (half up) after each dimension.

    Raises:
        ShapeError: if a size is not positive, or the mode is for another number of dimensions.
        DTypeError: for integers other than ``uint8``, except in nearest modes.
        ValueError: if there is no such mode, or it has no antialiasing.

    Example:
        >>> interpolate(np.array([1.0, 2.0]), [4], "linear")
        array([1.  , 1.25, 1.75, 2.  ])
    """
    kind = check_resize("interpolate", mode, x.shape, size, antialias, x.dtype)
    if kind is None:
        return adaptive_avg_pool(x, size)
    taps = _all_taps(x.shape[x.ndim - len(size) :], size, kind, align_corners, scales, antialias, x.dtype)
    if x.dtype != np.uint8 or kind not in ("linear", "cubic"):
        return _apply_all(x, taps)
    for axis in reversed(range(x.ndim - len(size), x.ndim)):
        wide = _apply(x.astype(np.float32), axis, taps[axis - x.ndim])
        x = np.clip(np.floor(wide + 0.5), 0, 255).astype(np.uint8)
    return x


@in_float32
def interpolate_input_grad(
    g: Array,
    spatial_shape: Sequence[int],
    mode: InterpolationMode,
    align_corners: bool = False,
    scales: Sequence[float | None] | None = None,
    antialias: bool = False,
) -> Array:
    """Transpose of :func:`interpolate`, for an input of shape ``(*batch, *spatial_shape)``.

    Example:
        >>> interpolate_input_grad(np.ones(4), [2], "linear")
        array([2., 2.])
    """
    batch = g.ndim - len(spatial_shape)
    x_shape = (*g.shape[:batch], *spatial_shape)
    kind = check_resize("interpolate_input_grad", mode, x_shape, g.shape[batch:], antialias, g.dtype)
    if kind is None:
        return adaptive_avg_pool_input_grad(g, spatial_shape)
    taps = _all_taps(spatial_shape, g.shape[batch:], kind, align_corners, scales, antialias, g.dtype)
    return _apply_all(g, [t.transposed(size) for t, size in zip(taps, spatial_shape, strict=True)])


@functools.lru_cache(maxsize=256)
def resize_taps(
    kind: Kind,
    size: int,
    new_size: int,
    scale: float | None = None,
    align_corners: bool = False,
    antialias: bool = False,
    double: bool = False,
) -> Taps:
    """Return the taps of one dimension, which must not be changed: they are kept for the next call.

    Args:
        kind: ``"nearest"``, ``"nearest-exact"``, ``"linear"`` or ``"cubic"``.
        size, new_size: size of the dimension before and after.
        scale: the factor to compute positions with; None for ``new_size / size``.
        align_corners, antialias: as in :func:`interpolate`.
        double: whether the numbers are float64, for which PyTorch computes the nearest positions in float64.

    Example:
        >>> resize_taps("nearest", 4, 2).indices
        array([[0, 2]])
    """
    if kind in ("nearest", "nearest-exact"):
        return _nearest_taps(kind, size, new_size, scale, double)
    if align_corners:
        step = (size - 1) / (new_size - 1) if new_size > 1 else 0.0
    else:
        step = 1 / scale if scale else size / new_size
    if antialias:
        return _antialiased_taps(kind, size, new_size, step)
    position = np.arange(new_size) * step if align_corners else (np.arange(new_size) + 0.5) * step - 0.5
    if kind == "linear":
        position = np.maximum(position, 0)
    index = np.minimum(np.floor(position), size - 1).astype(np.intp)
    t = np.clip(position - index, 0, 1)
    if kind == "linear":
        return Taps(np.minimum(np.stack([index, index + 1]), size - 1), np.stack([1 - t, t]))
    return Taps(np.clip(index + np.arange(-1, 3)[:, None], 0, size - 1), cubic_weights(t))


def _nearest_taps(kind: Kind, size: int, new_size: int, scale: float | None, double: bool) -> Taps:
    """Return the nearest elements, rounded where PyTorch rounds: on a tie that decides which one is nearest."""
    step = 1 / scale if scale else size / new_size
    if not double:
        step = float(np.float32(step if scale else np.float32(size) / np.float32(new_size)))
    shift = 0.5 if kind == "nearest-exact" else 0.0
    position = ((np.arange(new_size) + shift) * step - shift).astype(np.float32) + np.float32(shift)
    return Taps(np.minimum(np.floor(position).astype(np.intp), size - 1)[None], np.ones((1, new_size)))


def cubic_weights(t: Array) -> Array:
    """Return the weights of the elements at -1, 0, 1 and 2 for a position ``t`` in [0, 1] (Keys 1981, with a = -3/4).

    Example:
        >>> cubic_weights(np.array(0.5))
        array([-0.09375,  0.59375,  0.59375, -0.09375])
    """
    return np.stack([_keys(np.abs(t - offset), -0.75) for offset in (-1, 0, 1, 2)])


def cubic_slopes(t: Array) -> Array:
    """Return the derivatives of :func:`cubic_weights` in ``t``.

    Example:
        >>> cubic_slopes(np.array(0.5))
        array([ 0.1875, -1.3125,  1.3125, -0.1875])
    """
    a, parts = -0.75, []
    for offset in (-1, 0, 1, 2):
        distance = np.abs(t - offset)
        near = (3 * (a + 2) * distance - 2 * (a + 3)) * distance
        far = ((3 * distance - 10) * distance + 8) * a
        parts.append(np.where(distance <= 1, near, far) * (1 if offset < 1 else -1))
    return np.stack(parts)


def _keys(distance: Array, a: float) -> Array:
    """The cubic convolution kernel of Keys (1981), equation 4."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def _triangle(distance: Array) -> Array:
    return np.asarray(np.maximum(1 - distance, 0))


def _antialiased_taps(kind: Kind, size: int, new_size: int, step: float) -> Taps:
    """Return taps of a filter that is as wide as ``step`` elements of the input if that is more than one."""
    radius = 1 if kind == "linear" else 2
    weigh: Callable[[Array], Array] = _triangle if kind == "linear" else functools.partial(_keys, a=-0.5)
    width = max(step, 1.0)
    centre = (np.arange(new_size) + 0.5) * step
    start = np.maximum((centre - radius * width + 0.5).astype(np.intp), 0)
    stop = np.minimum((centre + radius * width + 0.5).astype(np.intp), size)
    index = start + np.arange(int((stop - start).max(initial=0)))[:, None]
    weight = np.where(index < stop, weigh(np.abs(index - centre + 0.5) / width), 0)
    return Taps(np.minimum(index, size - 1), np.asarray(weight / weight.sum(0)))


def _all_taps(
    sizes: Sequence[int],
    new_sizes: Sequence[int],
    kind: Kind,
    align_corners: bool,
    scales: Sequence[float | None] | None,
    antialias: bool,
    dtype: np.dtype[Any],
) -> list[Taps]:
    given = scales or [None] * len(sizes)
    return [
        resize_taps(kind, size, new_size, scale, align_corners, antialias, dtype == np.float64)
        for size, new_size, scale in zip(sizes, new_sizes, given, strict=True)
    ]


def _apply_all(x: Array, taps: Sequence[Taps]) -> Array:
    """Apply taps to the last dimensions, those first that shrink the array most."""
    first = x.ndim - len(taps)
    for axis in sorted(
        range(first, x.ndim), key=lambda axis: (taps[axis - first].indices.shape[1] / x.shape[axis], -axis)
    ):
        x = _apply(x, axis, taps[axis - first])
    return x


def _apply(x: Array, axis: int, taps: Taps) -> Array:
    shape = (-1, *[1] * (x.ndim - 1 - axis))
    out: Array | None = None
    for index, weight in zip(*taps, strict=True):
        part = x.take(index, axis)
        if np.any(weight != 1):
            part *= weight.astype(x.dtype).reshape(shape)
            if not weight.all():  # no tap: whatever stands there, be it NaN, plays no part
                np.copyto(part, 0, where=(weight == 0).reshape(shape))
        out = part if out is None else np.add(out, part, out=out)
    if out is None:
        return np.zeros((*x.shape[:axis], taps.indices.shape[1], *x.shape[axis + 1 :]), x.dtype)
    return out


def check_resize(
    name: str, mode: str, shape: Sequence[int], size: Sequence[int], antialias: bool, dtype: np.dtype[Any]
) -> Kind | None:
    """Return what a mode does in each dimension; None stands for the average over areas.

    Args:
        name: of the kernel, for messages. mode, antialias: as in :func:`interpolate`.
        shape, dtype: of the array. size: the new spatial shape.

    Raises:
        ShapeError, DTypeError, ValueError: as :func:`interpolate`.

    Example:
        >>> check_resize("interpolate", "bilinear", (1, 2, 3), (4, 6), False, np.dtype(float))
        'linear'
    """
    if mode not in MODES:
        raise ValueError(f"{name}: mode must be one of {', '.join(map(repr, MODES))}, got {mode!r}")
    dims, kind = MODES[mode]
    if dims not in (0, len(size)) or len(shape) < len(size):
        raise ShapeError(
            f"{name}: mode {mode!r} is for {dims or len(size)} spatial dimensions, got {len(size)} in {shape}"
        )
    if any(n < 1 for n in (*size, *shape[len(shape) - len(size) :])):
        raise ShapeError(f"{name}: sizes must be positive, got shape {tuple(shape)} and new size {tuple(size)}")
    if antialias and kind not in ("linear", "cubic"):
        raise ValueError(f"{name}: mode {mode!r} has no antialiasing, only linear and cubic modes do")
    if kind not in ("nearest", "nearest-exact") and dtype.kind in "iub" and (dtype != np.uint8 or kind is None):
        raise DTypeError(
            f"{name}: mode {mode!r} takes floating-point numbers{' or uint8' if kind else ''}, got {dtype}"
        )
    return kind

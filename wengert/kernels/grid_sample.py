"""Sampling at the positions of a grid: bilinear, nearest and bicubic, in two and three dimensions.

A sample is a weighted sum over a few elements around its position, and its weights are products of weights per
dimension. The sums over channels run along memory: what is sampled is laid out with the channels last.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wengert.errors import ShapeError
from wengert.kernels.precision import in_float32
from wengert.kernels.resize import cubic_slopes, cubic_weights
from wengert.kernels.scatter import accumulate_rows

__all__ = [
    "PaddingMode",
    "SampleMode",
    "check_sampling",
    "grid_sample",
    "grid_sample_grid_grad",
    "grid_sample_input_grad",
]

Array = NDArray[Any]
SampleMode = Literal["bilinear", "nearest", "bicubic"]
PaddingMode = Literal["zeros", "border", "reflection"]


class Taps(NamedTuple):
    """The elements of one dimension that the samples are made of; each array has shape ``(taps, N, points)``."""

    indices: NDArray[np.intp]
    inside: NDArray[np.bool_]  # whether the element exists; if not, it is 0
    weights: Array
    slopes: Array  # derivatives of the weights in the coordinate of the grid


@in_float32
def grid_sample(
    x: Array,
    grid: Array,
    mode: SampleMode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    align_corners: bool = False,
) -> Array:
    """Sample ``x`` at the positions in ``grid``, like ``torch.nn.functional.grid_sample``.

    Args:
        x: array of shape ``(N, C, H, W)`` or ``(N, C, D, H, W)``.
        grid: positions of shape ``(N, *points, 2)`` or ``(N, *points, 3)``. The last dimension has x, y (, z): the last
            dimension of ``x`` comes first. -1 and 1 are the borders of the image, or with ``align_corners`` the centres
            of its first and last elements.
        mode: ``"bilinear"`` (trilinear for volumes), ``"nearest"`` (half to even) or ``"bicubic"`` (images only).
        padding_mode: what stands outside: ``"zeros"``, the ``"border"``, or the ``"reflection"`` at the border.
        align_corners: see ``grid``.

    Returns:
        An array of shape ``(N, C, *points)``.

    Raises:
        ShapeError: if the shapes do not fit together.
        ValueError: if there is no such mode.

    Example:
        >>> grid_sample(np.array([[[[1.0, 3.0]]]]), np.array([[[[0.0, 0.0]]]]))
        array([[[[2.]]]])
    """
    all_taps = _all_taps("grid_sample", x.shape, grid, mode, padding_mode, align_corners)
    rows, out = _rows(x), np.zeros((grid[..., 0].size, x.shape[1]), x.dtype)
    for position, inside, chosen in _neighbours(all_taps, x.shape[2:]):
        weight = _product([taps.weights[t] for taps, t in zip(all_taps, chosen, strict=True)])
        out += _taken(rows, position, inside) * weight[:, None]
    return _channels_first(out, len(x), grid.shape[1:-1])


@in_float32
def grid_sample_input_grad(
    g: Array,
    grid: Array,
    spatial_shape: Sequence[int],
    mode: SampleMode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    align_corners: bool = False,
) -> Array:
    """Transpose of :func:`grid_sample` in ``x``, for an ``x`` of shape ``(N, C, *spatial_shape)``.

    Args:
        g: cotangent of shape ``(N, C, *points)``.
        grid, mode, padding_mode, align_corners: as in :func:`grid_sample`.
        spatial_shape: spatial shape of the result.

    Example:
        >>> grid_sample_input_grad(np.array([[[[4.0]]]]), np.array([[[[0.0, 0.0]]]]), (1, 2))
        array([[[[2., 2.]]]])
    """
    x_shape = (*g.shape[:2], *spatial_shape)
    all_taps = _all_taps("grid_sample_input_grad", x_shape, grid, mode, padding_mode, align_corners, g.shape)
    rows = _rows(g)
    out = np.zeros((len(g) * math.prod(spatial_shape), g.shape[1]), g.dtype)
    for position, inside, chosen in _neighbours(all_taps, spatial_shape):
        weight = _product([taps.weights[t] for taps, t in zip(all_taps, chosen, strict=True)])
        accumulate_rows(np.add, out, position[inside], rows[inside] * weight[inside, None])
    return _channels_first(out, len(g), spatial_shape)


@in_float32
def grid_sample_grid_grad(
    g: Array,
    x: Array,
    grid: Array,
    mode: SampleMode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    align_corners: bool = False,
) -> Array:
    """Derivative of ``<g, grid_sample(x, grid)>`` in ``grid``, an array of its shape.

    It is 0 in nearest mode, and where a position was moved to the border. On an element, where the derivative jumps, it
    is that of the side of larger coordinates.

    Args:
        g: cotangent of shape ``(N, C, *points)``.
        x, grid, mode, padding_mode, align_corners: as in :func:`grid_sample`.

    Example:
        >>> grid_sample_grid_grad(np.array([[[[1.0]]]]), np.array([[[[1.0, 3.0]]]]), np.array([[[[0.0, 0.0]]]]))
        array([[[[ 2., -1.]]]])
    """
    all_taps = _all_taps("grid_sample_grid_grad", x.shape, grid, mode, padding_mode, align_corners, g.shape)
    rows, cotangents, dims = _rows(x), _rows(g), len(all_taps)
    out = np.zeros((dims, len(cotangents)), g.dtype)
    if mode != "nearest":
        for position, inside, chosen in _neighbours(all_taps, x.shape[2:]):
            along = np.einsum("pc,pc->p", cotangents, _taken(rows, position, inside))
            for dim in range(dims):
                factors = [
                    taps.slopes[t] if d == dim else taps.weights[t]
                    for d, (taps, t) in enumerate(zip(all_taps, chosen, strict=True))
                ]
                out[dims - 1 - dim] += along * _product(factors)
    return np.ascontiguousarray(out.T).reshape(grid.shape)


def check_sampling(
    name: str,
    shape: Sequence[int],
    grid_shape: Sequence[int],
    mode: SampleMode,
    padding_mode: PaddingMode,
    g_shape: Sequence[int] | None = None,
) -> None:
    """Raise what :func:`grid_sample` raises, for arrays of some shapes.

    Args:
        name: of the kernel, for messages. shape, grid_shape: of the image and of the grid.
        mode, padding_mode: as in :func:`grid_sample`. g_shape: of a cotangent of the samples, if there is one.

    Example:
        >>> check_sampling("grid_sample", (1, 3, 4, 4), (1, 2, 2, 2), "bicubic", "border")
    """
    dims = len(shape) - 2
    if mode not in ("bilinear", "nearest", "bicubic") or padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"{name}: there is no mode {mode!r} with padding_mode {padding_mode!r}")
    if dims not in (2, 3) or len(grid_shape) != dims + 2 or grid_shape[-1] != dims or grid_shape[0] != shape[0]:
        raise ShapeError(
            f"{name}: x (N, C, H, W) takes a grid (N, h, w, 2), x (N, C, D, H, W) a grid (N, d, h, w, 3); "
            f"got {tuple(shape)} and {tuple(grid_shape)}"
        )
    if mode == "bicubic" and dims != 2:
        raise ShapeError(f"{name}: mode 'bicubic' is for images, got x of shape {tuple(shape)}")
    if any(size < 1 for size in shape[2:]):
        raise ShapeError(f"{name}: cannot sample from an empty array, got shape {tuple(shape)}")
    expected = (*shape[:2], *grid_shape[1:-1])
    if g_shape is not None and tuple(g_shape) != expected:
        raise ShapeError(f"{name}: expected a cotangent of shape {expected}, got {tuple(g_shape)}")


def _all_taps(
    name: str,
    shape: Sequence[int],
    grid: Array,
    mode: SampleMode,
    padding_mode: PaddingMode,
    align_corners: bool,
    g_shape: Sequence[int] | None = None,
) -> list[Taps]:
    """Check the arguments and return the taps of each spatial dimension."""
    check_sampling(name, shape, grid.shape, mode, padding_mode, g_shape)
    dims = len(shape) - 2
    flat = grid.reshape(len(grid), math.prod(grid.shape[1:-1]), dims)
    return [
        _taps(flat[..., dims - 1 - dim], size, mode, padding_mode, align_corners) for dim, size in enumerate(shape[2:])
    ]


def _taps(coordinate: Array, size: int, mode: SampleMode, padding_mode: PaddingMode, align_corners: bool) -> Taps:
    """Return the taps of one dimension for coordinates of shape ``(N, points)``."""
    if align_corners:
        position, scale = (coordinate + 1) / 2 * (size - 1), (size - 1) / 2
    else:
        position, scale = ((coordinate + 1) * size - 1) / 2, size / 2
    slope = np.full_like(position, scale)
    if mode != "bicubic" and padding_mode != "zeros":
        position, factor = _bounded(position, size, padding_mode, align_corners)
        slope *= factor
    start = np.rint(position) if mode == "nearest" else np.floor(position)
    t = position - start
    # What is beyond the range of integers is far outside. What is not finite has weight NaN, or nothing if nearest.
    first = np.nan_to_num(np.clip(start, -(2.0**30), 2.0**30), nan=0.0 if mode != "nearest" else -1.0).astype(np.intp)
    if mode == "nearest":
        index, weight, weight_slope = first[None], np.ones_like(t)[None], np.zeros_like(t)[None]
    elif mode == "bilinear":
        index, weight = np.stack([first, first + 1]), np.stack([1 - t, t])
        weight_slope = np.stack([-np.ones_like(t), np.ones_like(t)])
    else:
        index, weight, weight_slope = first + np.arange(-1, 3)[:, None, None], cubic_weights(t), cubic_slopes(t)
        if padding_mode != "zeros":
            index = _bounded(index.astype(np.float64), size, padding_mode, align_corners)[0].astype(np.intp)
    inside = (index >= 0) & (index < size)
    return Taps(np.clip(index, 0, size - 1), inside, weight.astype(t.dtype), (weight_slope * slope).astype(t.dtype))


def _bounded(position: Array, size: int, padding_mode: PaddingMode, align_corners: bool) -> tuple[Array, Array]:
    """Move positions into ``[0, size - 1]``; return them with the derivative of the move."""
    factor = np.ones_like(position)
    if padding_mode == "reflection":
        low = 0.0 if align_corners else -0.5
        span = size - 1 - 2 * low
        distance = position - low
        factor = np.where(distance < 0, -factor, factor)
        distance = np.abs(distance)
        if span == 0:
            return np.zeros_like(position), np.zeros_like(position)
        odd = np.floor(distance / span) % 2 == 1
        rest = np.fmod(distance, span)
        position = np.where(odd, span - rest, rest) + low
        factor = np.where(odd, -factor, factor)
    factor = np.where((position <= 0) | (position >= size - 1), 0, factor)
    return np.nan_to_num(np.clip(position, 0, size - 1), nan=0.0), factor


def _neighbours(
    all_taps: Sequence[Taps], sizes: Sequence[int]
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.bool_], tuple[int, ...]]]:
    """Yield, for each choice of a tap per dimension, the rows of the elements, whether they exist, and the choice."""
    images = len(all_taps[0].indices[0])
    offset = (np.arange(images) * math.prod(sizes))[:, None]
    for chosen in itertools.product(*[range(len(taps.indices)) for taps in all_taps]):
        position, inside = offset, np.ones((1, 1), np.bool_)
        for dim, (taps, t) in enumerate(zip(all_taps, chosen, strict=True)):
            position = position + taps.indices[t] * math.prod(sizes[dim + 1 :])
            inside = inside & taps.inside[t]
        yield position.reshape(-1), inside.reshape(-1), chosen


def _taken(rows: Array, position: NDArray[np.intp], inside: NDArray[np.bool_]) -> Array:
    taken = rows.take(position, 0)
    if not inside.all():
        taken[~inside] = 0
    return taken


def _product(factors: Sequence[Array]) -> Array:
    return np.asarray(functools.reduce(np.multiply, factors)).reshape(-1)


def _rows(x: Array) -> Array:
    """Return ``(N, C, *spatial)`` as one row of channels per element."""
    return np.moveaxis(x, 1, -1).reshape(len(x) * math.prod(x.shape[2:]), x.shape[1])


def _channels_first(rows: Array, images: int, spatial: Sequence[int]) -> Array:
    return np.ascontiguousarray(np.moveaxis(rows.reshape(images, *spatial, rows.shape[1]), -1, 1))

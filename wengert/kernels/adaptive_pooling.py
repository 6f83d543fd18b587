"""Adaptive pooling: each spatial dimension is divided into a given number of parts, which may overlap by an element.

Part ``i`` of ``n`` parts of a dimension is ``floor(i size / n)`` to ``ceil((i + 1) size / n)``. Spatial dimensions are
the last ones; any number of dimensions may stand before them.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wengert.errors import DTypeError, ShapeError
from wengert.kernels.pooling import divided
from wengert.kernels.precision import in_float32
from wengert.kernels.scatter import identity
from wengert.kernels.windows import along

__all__ = ["adaptive_avg_pool", "adaptive_avg_pool_input_grad", "adaptive_max_pool"]

Array = NDArray[Any]


@in_float32
def adaptive_avg_pool(x: Array, output_size: Sequence[int]) -> Array:
    """Return averages over ``output_size`` parts of each spatial dimension, like ``torch.nn.functional``'s.

    Args:
        x: array of shape ``(*batch, *spatial)``.
        output_size: the number of parts of each spatial dimension.

    Returns:
        An array of shape ``(*batch, *output_size)``.

    Raises:
        ShapeError: if a spatial dimension is empty, or a number of parts is negative.

    Example:
        >>> adaptive_avg_pool(np.array([1.0, 2.0, 3.0]), [2])
        array([1.5, 2.5])
    """
    batch = _check_parts("adaptive_avg_pool", x.shape, output_size)
    if all(parts == 1 for parts in output_size):
        sums = np.asarray(x.sum(tuple(range(batch, x.ndim)), dtype=x.dtype, keepdims=True))
    else:
        sums = x
        for axis, parts in enumerate(output_size, batch):
            sums = _part_sums(sums, axis, parts)
    return divided(sums, _part_volumes(x.shape[batch:], output_size))


@in_float32
def adaptive_avg_pool_input_grad(g: Array, spatial_shape: Sequence[int]) -> Array:
    """Transpose of :func:`adaptive_avg_pool`, for an input of shape ``(*batch, *spatial_shape)``.

    Element ``h`` of ``size`` lies in the parts ``floor(h n / size)`` to ``ceil((h + 1) n / size)``: what spreads the
    averages is the same sum over parts, with the two sizes exchanged.

    Example:
        >>> adaptive_avg_pool_input_grad(np.array([2.0, 4.0]), [3])
        array([1., 3., 2.])
    """
    batch = g.ndim - len(spatial_shape)
    _check_parts("adaptive_avg_pool_input_grad", (*g.shape[:batch], *spatial_shape), g.shape[batch:])
    out = divided(g, _part_volumes(spatial_shape, g.shape[batch:]))
    for axis, size in enumerate(spatial_shape, batch):
        out = _part_sums(out, axis, size)
    return out


@in_float32
def adaptive_max_pool(x: Array, output_size: Sequence[int]) -> tuple[Array, NDArray[np.int64]]:
    """Return maxima over the parts of :func:`adaptive_avg_pool`, and where they are.

    The arguments, results and exceptions are those of :func:`adaptive_avg_pool` and :func:`max_pool`.

    Example:
        >>> adaptive_max_pool(np.array([1.0, 2.0, 3.0]), [2])
        (array([2., 3.]), array([1, 2]))
    """
    batch = _check_parts("adaptive_max_pool", x.shape, output_size)
    if x.dtype.kind == "c":
        raise DTypeError(f"adaptive_max_pool: complex numbers have no maximum, got {x.dtype}")
    sizes = x.shape[batch:]
    values = np.full((*x.shape[:batch], *output_size), identity("amax", x.dtype), x.dtype)
    indices = np.zeros(values.shape, np.int64)
    bounds = [_parts(size, parts) for size, parts in zip(sizes, output_size, strict=True)]
    lengths = [int((stop - start).max(initial=0)) for start, stop in bounds]
    for step, tap in enumerate(itertools.product(*map(range, lengths))):
        # Beyond the end of a shorter part its last element is looked at again, which changes nothing.
        place: tuple[Any, ...] = np.ix_(
            *[np.minimum(start + t, stop - 1) for (start, stop), t in zip(bounds, tap, strict=True)]
        )
        candidate = x[(..., *place)]
        better = (candidate > values) | (candidate != candidate) | (step == 0)
        np.copyto(values, candidate, where=better)
        np.copyto(indices, np.ravel_multi_index(place, sizes), where=better)
    return values, indices


def _parts(size: int, parts: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where the parts of a dimension start and stop."""
    part = np.arange(parts)
    return part * size // max(parts, 1), -(-(part + 1) * size // max(parts, 1))


def _part_volumes(sizes: Sequence[int], output_size: Sequence[int]) -> NDArray[np.intp]:
    bounds = [_parts(size, parts) for size, parts in zip(sizes, output_size, strict=True)]
    return np.asarray(functools.reduce(np.multiply.outer, [stop - start for start, stop in bounds]))


def _part_sums(x: Array, axis: int, parts: int) -> Array:
    """Return the sums over the parts of one dimension."""
    size = x.shape[axis]
    if parts and size % parts == 0:
        split = x.reshape(*x.shape[:axis], parts, size // parts, *x.shape[axis + 1 :])
        return np.asarray(split.sum(axis + 1, dtype=x.dtype))
    start, stop = _parts(size, parts)
    out = np.zeros((*x.shape[:axis], parts, *x.shape[axis + 1 :]), x.dtype)
    for t in range(int((stop - start).max(initial=0))):
        inside = np.flatnonzero(start + t < stop)
        where: Any = slice(None) if len(inside) == parts else inside
        out[along(axis, where)] += x.take(start[inside] + t, axis)
    return out


def _check_parts(name: str, shape: Sequence[int], output_size: Sequence[int]) -> int:
    """Return the number of dimensions before the spatial ones."""
    batch = len(shape) - len(output_size)
    if batch < 0 or any(size < 1 for size in shape[batch:]) or any(parts < 0 for parts in output_size):
        raise ShapeError(f"{name}: cannot divide shape {tuple(shape)} into {tuple(output_size)} parts")
    return batch

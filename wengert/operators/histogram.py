"""Histograms and counts. They carry no gradient to the counted values."""

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import float32, float64, int64
from wengert.core.apply import as_tensor
from wengert.core.arguments import Floating, Int
from wengert.core.batch import Body
from wengert.core.families import composite, nondifferentiable
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, from_array, raw
from wengert.errors import DTypeError, ShapeError
from wengert.operators.checks import all_values, anywhere

__all__ = ["bincount", "histc", "histogram", "histogramdd"]


def _histc_spec(input: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Spec:
    if bins <= 0:
        raise ValueError(f"histc(): bins must be positive, got {bins}")
    if max < min:
        raise ValueError(f"histc(): max must not be smaller than min, got min={min} and max={max}")
    if min != max:
        _check_range(min, max)
    return Spec((bins,), input.dtype)


def _check_range(low: Any, high: Any) -> None:
    if not np.isfinite([float(low), float(high)]).all():
        raise ValueError(f"histc(): the range from {low} to {high} is not finite; give min and max")


def _histc_body(input: Any, bins: int, min: Any, max: Any) -> Any:
    _histc_spec(input, bins, min, max)
    x = ops.reshape(input, (-1,))
    low, high = _extent(x) if min == max and x.numel() else (min, max)
    return _counted([x], [_even("histc", low, high, bins, 1.0, x.dtype)], None, False, x.dtype)


@nondifferentiable(
    batch=Body(_histc_body),
    spec=_histc_spec,
    samples=lambda s: [
        s((6,), 4), s((2, 3), 4, -1, 1), s(s.array([0.0, 1.0, 2.0, 3.0]), 3), s(s.array([1.0, 1.0]), 2),
        s(s.array([0.5, np.nan, 2.0]), 2, 0, 2), s((0,), 3),
        s.error(ValueError, "max must not be smaller", (3,), 4, 2, 1),
        s.error(ValueError, "bins must be positive", (3,), 0),
        s.error(ValueError, "from 0 to inf is not finite", (3,), 4, 0, float("inf")),
        s.error(ValueError, "not finite", s.array([0.0, np.inf])),
    ],
)  # fmt: skip
def histc(input: Floating, bins: Int = 100, min: Any = 0, max: Any = 0) -> Any:
    """Return how many elements lie in each of ``bins`` equal bins from ``min`` to ``max``; others are not counted.

    If ``min`` equals ``max``, the bins reach from the smallest to the largest element (if equal, one less and more).
    """
    _histc_spec(input, bins, min, max)
    low, high = float(min), float(max)
    if low == high and input.size:
        low, high = float(input.min()), float(input.max())
    if low == high:
        low, high = low - 1, high + 1
    _check_range(low, high)
    counted = input[(input >= low) & (input <= high)]
    return np.histogram(counted, bins, (low, high))[0].astype(input.dtype)


def _edges(name: str, x: Any, bins: Any, range: Any) -> Any:
    """Return the edges of the bins of a vector as a tensor."""
    if isinstance(bins, Tensor):
        if bins.ndim != 1:
            raise ShapeError(f"{name}(): bin edges must be 1-dimensional, got shape {tuple(bins.shape)}")
        if anywhere(ops.lt(ops.diff(bins), 0)):
            raise ValueError(f"{name}(): bin edges must not fall, got {all_values(bins).tolist()}")
        return ops.cast(bins, x.dtype)
    if isinstance(bins, bool) or not isinstance(bins, int) or bins <= 0:
        raise ValueError(f"{name}(): bins must be a positive int or a tensor of edges, got {bins!r}")
    if range is not None and range[0] > range[1]:
        raise ValueError(f"{name}(): the range must not fall, got {tuple(range)}")
    if range is None and not x.numel():
        range = (0.0, 1.0)
    low, high = _extent(x) if range is None else range
    return _even(name, low, high, bins, 0.5, x.dtype)


def _extent(x: Any) -> tuple[Any, Any]:
    return ops.cast(ops.amin(x), float64), ops.cast(ops.amax(x), float64)


def _finite(end: Any) -> bool:
    return not anywhere(ops.logical_not(ops.isfinite(end)))


def _even(name: str, low: Any, high: Any, bins: int, margin: float, dtype: Any) -> Any:
    """Return the edges of equal bins from ``low`` to ``high``; where these are equal, from ``margin`` below to above."""
    low, high = (e if isinstance(e, Tensor) else ops.full((), e, dtype=float64) for e in (low, high))
    if not all(map(_finite, (low, high))):
        raise ValueError(f"{name}(): the range from {all_values(low)} to {all_values(high)} is not finite; give one")
    same = ops.eq(low, high)
    low, high = ops.where(same, low - margin, low), ops.where(same, high + margin, high)
    steps = ops.arange(bins + 1, dtype=float64)
    return ops.cast(ops.where(ops.eq(steps, bins), high, low + steps * ((high - low) / bins)), dtype)


def _bins_of(x: Any, edges: Any) -> tuple[Any, Any]:
    """Return the bin of each element of a vector, and whether it lies in one; the last bin has its upper edge."""
    count = edges.shape[0] - 1
    low, high = ops.narrow(edges, 0, 0, 1), ops.narrow(edges, 0, count, 1)
    inside = ops.logical_and(ops.ge(x, low), ops.le(x, high))
    place = ops.where(ops.eq(x, high), count - 1, ops.searchsorted(edges, x, right=True) - 1)
    return ops.where(inside, place, 0), inside


def _counted(columns: Sequence[Any], edges: Sequence[Any], weight: Any, density: bool, dtype: Any) -> Any:
    """Return the histogram of points given by their coordinates, vectors of one length."""
    shape = tuple(e.shape[0] - 1 for e in edges)
    places: Any = 0
    weights: Any = ops.ones_like(columns[0], dtype=float64) if weight is None else ops.cast(weight, float64)
    for x, edge, size in zip(columns, edges, shape, strict=True):
        place, inside = _bins_of(x, edge)
        places = places * size + place
        weights = ops.where(inside, weights, 0.0)
    found = ops.scatter_add(ops.zeros(math.prod(shape), dtype=float64), 0, places, weights)
    found = ops.reshape(found, shape)
    if density:
        found = found / ops.sum(found)
        for d, edge in enumerate(edges):
            width = ops.diff(ops.cast(edge, float64))
            found = found / ops.reshape(width, (-1, *(1,) * (len(shape) - 1 - d)))
    return ops.cast(found, dtype)


@composite(
    method=True,
    samples=lambda s: [
        s((6,), 4), s((2, 3), 4, range=(-1.0, 1.0)), s((6,), s.array([-1.0, 0.0, 0.5, 2.0])),
        s((6,), 3, weight=s.tensor((6,), low=0.1)), s((6,), 3, density=True),
        s.error(ValueError, "positive int", (3,), 0), s.error(ValueError, "weight", (3,), 2, weight=s.tensor((2,))),
    ],
)  # fmt: skip
def histogram(input: Any, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False) -> Any:
    """Return (hist, bin_edges) of a float tensor.

    Args:
        bins: the number of equal bins, or a tensor of rising edges. range: (lowest, highest) edge for a number of bins.
        weight: of the input's shape: what each element counts. density: scale to an integral of 1.
    """
    x = as_tensor(input).detach()
    if not x.is_floating_point():
        raise DTypeError(f"histogram(): input must be a floating tensor, got {x.dtype}")
    if weight is not None and weight.shape != input.shape:
        raise ShapeError(f"histogram(): weight has shape {tuple(weight.shape)}, the input {tuple(input.shape)}")
    x = ops.reshape(x, (-1,))
    edges = _edges("histogram", x, bins, range)
    counted = None if weight is None else ops.reshape(weight.detach(), (-1,))
    return _counted([x], [edges], counted, density, x.dtype), ops.clone(edges) if edges is bins else edges


def _axis_edges(points: Any, bins: Any, range: Any) -> list[Any]:
    """Return the edges of the bins of each dimension of points (M, N)."""
    dims = points.shape[1]
    wanted = list(bins) if isinstance(bins, Sequence) else [bins] * dims
    if len(wanted) != dims:
        raise ValueError(f"histogramdd(): bins for {len(wanted)} dimensions do not fit points of {dims} coordinates")
    if range is not None and len(range) != 2 * dims:
        raise ValueError(f"histogramdd(): range must hold 2 numbers for each of {dims} dimensions, got {len(range)}")
    ends = [None if range is None else (range[2 * d], range[2 * d + 1]) for d in builtins.range(dims)]
    return [_edges("histogramdd", ops.select(points, 1, d), wanted[d], ends[d]) for d in builtins.range(dims)]


@composite(
    samples=lambda s: [
        s((4, 2), [2, 3]), s((4, 2), 2, range=[-1.0, 1.0, -2.0, 2.0]), s((2, 3, 1), [s.array([-1.0, 0.0, 2.0])]),
        s((4, 2), 2, weight=s.tensor((4,), low=0.1)), s((4, 2), [2, 2], density=True),
        s.error(ValueError, "do not fit", (4, 2), [2]), s.error(TypeError, "at least 2", (4,), [2]),
    ],
)  # fmt: skip
def histogramdd(
    input: Any, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False
) -> tuple[Any, tuple[Any, ...]]:
    """Return (hist, bin_edges) of points (…, N): an N-dimensional histogram and the edges along each dimension.

    Args:
        bins: the number of equal bins, one for each dimension, or a vector of rising edges for each.
        range: the lowest and highest edge of each dimension, 2 N numbers. weight: of the shape (…): what each point counts.
        density: scale to an integral of 1.
    """
    points = as_tensor(input)
    if points.ndim < 2 or not points.is_floating_point():
        raise DTypeError(
            f"histogramdd(): input must be a floating tensor of at least 2 dimensions, got {points.dtype} of shape "
            f"{tuple(points.shape)}"
        )
    if weight is not None and tuple(weight.shape) != tuple(points.shape[:-1]):
        raise ShapeError(
            f"histogramdd(): weight has shape {tuple(weight.shape)}, the points {tuple(points.shape[:-1])}"
        )
    x = ops.reshape(points.detach(), (math.prod(points.shape[:-1]), points.shape[-1]))
    edges = _axis_edges(x, bins, range)
    counted = None if weight is None else ops.reshape(weight.detach(), (-1,))
    columns = [ops.select(x, 1, d) for d in builtins.range(x.shape[1])]
    return _counted(columns, edges, counted, density, x.dtype), tuple(edges)


@composite(
    method=True,
    batch="refuse",
    samples=lambda s: [
        s(s.array([0, 2, 2, 1])), s(s.array([0, 2]), minlength=5), s(s.array([0, 2, 2]), s.tensor((3,))),
        s(s.array(np.zeros(0, int)), minlength=2), s(s.array([1, 1]), s.array([1, 2])),
        s.error(ValueError, "negative", s.array([0, -1])), s.error(ValueError, "1-dimensional", s.array([[0]])),
        s.error(TypeError, "integer", (2,)), s.error(ValueError, "weights", s.array([0, 1]), (3,)),
    ],
)  # fmt: skip
def bincount(input: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Return how often each of 0, 1, 2, … occurs in a vector of non-negative integers, or the sum of their weights.

    Args:
        weights: of the input's shape. minlength: the least length of the result.
    """
    x = raw(as_tensor(input), "bincount()")
    if x.dtype.kind not in "iu":
        raise DTypeError(f"bincount(): input must be an integer tensor, got {as_tensor(input).dtype}")
    if x.ndim != 1:
        raise ShapeError(f"bincount(): input must be 1-dimensional, got shape {x.shape}")
    if x.size and x.min() < 0:
        raise ValueError(f"bincount(): input has the negative element {x.min()}")
    if minlength < 0:
        raise ValueError(f"bincount(): minlength must not be negative, got {minlength}")
    if weights is None:
        return from_array(np.bincount(x, minlength=minlength).astype(int64.numpy))
    if weights.shape != input.shape:
        raise ShapeError(f"bincount(): weights have shape {tuple(weights.shape)}, the input {tuple(input.shape)}")
    dtype = float32 if weights.dtype is float32 else float64
    return from_array(np.bincount(x, raw(weights, "bincount()").astype(np.float64), minlength).astype(dtype.numpy))

"""Histograms and counts. They carry no gradient to the counted values."""

from typing import Any

import numpy as np

from wengert.array.dtype import float32, float64, int64
from wengert.core.apply import as_tensor
from wengert.core.arguments import Floating, Int
from wengert.core.families import composite, nondifferentiable
from wengert.core.operator import Spec
from wengert.core.tensor import Tensor, from_array
from wengert.errors import DTypeError, ShapeError

__all__ = ["bincount", "histc", "histogram"]


@nondifferentiable(
    spec=lambda input, bins=100, min=0, max=0: Spec((bins,), input.dtype),
    samples=lambda s: [
        s((6,), 4), s((2, 3), 4, -1, 1), s(s.array([0.0, 1.0, 2.0, 3.0]), 3), s(s.array([1.0, 1.0]), 2),
        s(s.array([0.5, np.nan, 2.0]), 2, 0, 2), s((0,), 3),
        s.error(ValueError, "max must not be smaller", (3,), 4, 2, 1),
        s.error(ValueError, "bins must be positive", (3,), 0),
    ],
)  # fmt: skip
def histc(input: Floating, bins: Int = 100, min: Any = 0, max: Any = 0) -> Any:
    """Return how many elements lie in each of ``bins`` equal bins from ``min`` to ``max``; others are not counted.

    If ``min`` equals ``max``, the bins reach from the smallest to the largest element (if equal, one less and more).
    """
    if bins <= 0:
        raise ValueError(f"histc(): bins must be positive, got {bins}")
    if max < min:
        raise ValueError(f"histc(): max must not be smaller than min, got min={min} and max={max}")
    low, high = float(min), float(max)
    if low == high and input.size:
        low, high = float(input.min()), float(input.max())
    if low == high:
        low, high = low - 1, high + 1
    if not np.isfinite([low, high]).all():
        raise ValueError(f"histc(): the range from {low} to {high} is not finite; give min and max")
    counted = input[(input >= low) & (input <= high)]
    return np.histogram(counted, bins, (low, high))[0].astype(input.dtype)


def _edges(input: Any, bins: Any, range: Any) -> Any:
    """Return the edges of the bins as an array."""
    if isinstance(bins, Tensor):
        if bins.ndim != 1:
            raise ShapeError(f"histogram(): bin edges must be 1-dimensional, got shape {tuple(bins.shape)}")
        return bins._payload
    if isinstance(bins, bool) or not isinstance(bins, int) or bins <= 0:
        raise ValueError(f"histogram(): bins must be a positive int or a tensor of edges, got {bins!r}")
    return np.histogram_bin_edges(input, bins, range).astype(input.dtype)


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
    x = as_tensor(input)._payload
    if not as_tensor(input).is_floating_point():
        raise DTypeError(f"histogram(): input must be a floating tensor, got {as_tensor(input).dtype}")
    if weight is not None and weight.shape != input.shape:
        raise ShapeError(f"histogram(): weight has shape {tuple(weight.shape)}, the input {tuple(input.shape)}")
    edges = _edges(x, bins, range)
    hist, _ = np.histogram(x, edges, weights=None if weight is None else weight._payload, density=density)
    return from_array(hist.astype(x.dtype)), from_array(np.array(edges, x.dtype))


@composite(
    method=True,
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
    x = as_tensor(input)._payload
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
    return from_array(np.bincount(x, weights._payload.astype(np.float64), minlength).astype(dtype.numpy))

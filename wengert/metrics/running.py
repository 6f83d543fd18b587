"""Means over batches."""

import math
from typing import Any

import numpy as np

from wengert.metrics.metric import Metric, array_of, scores_of

__all__ = ["Mean", "Perplexity"]


class Mean(Metric):
    """The mean of numbers, such as the losses of batches, each with a weight.

    ``update(value, weight=1)`` takes a number, or a tensor of several, and weights that broadcast to it.

    Raises:
        ValueError: for a negative weight; by ``compute`` if the weights sum to 0.

    Example:
        >>> import wengert as wg
        >>> loss = wg.metrics.Mean()
        >>> loss.update(wg.tensor(1.0), weight=3)
        >>> loss.update(5.0)
        >>> loss.compute()
        2.0
    """

    totals = ("total", "weight")

    def reset(self) -> None:
        """Forget all batches."""
        self.total = self.weight = 0.0

    def update(self, value: Any, weight: Any = 1.0) -> None:
        """Add a number, or several."""
        values = np.asarray(array_of(value), dtype=np.float64)
        weights = np.broadcast_to(np.asarray(array_of(weight), dtype=np.float64), values.shape)
        if (weights < 0).any():
            raise ValueError(f"Mean: weights must not be negative, got {weight}")
        self.total += float((values * weights).sum())
        self.weight += float(weights.sum())

    def compute(self) -> float:
        """Return the mean."""
        if not self.weight:
            raise ValueError("Mean was given no number, or only weights of 0")
        return self.total / self.weight


class Perplexity(Metric):
    """exp of the mean of -log p(target), in float64: between how many equal choices a model of language wavers.

    ``update(scores, targets)`` takes logits (N, C, ...) and targets (N, ...), as ``cross_entropy``.

    Args:
        ignore_index: targets that do not count.

    Raises:
        ValueError: for shapes that do not fit, targets that are no class; by ``compute`` if no target counts.

    Example:
        >>> import wengert as wg
        >>> perplexity = wg.metrics.Perplexity()
        >>> perplexity.update(wg.zeros(2, 7), wg.tensor([3, 6]))
        >>> round(perplexity.compute(), 12)
        7.0
    """

    totals = ("total", "count")
    options = ("ignore_index",)

    def __init__(self, ignore_index: int | None = -100) -> None:
        self.ignore_index = ignore_index
        super().__init__()

    def reset(self) -> None:
        """Forget all batches."""
        self.total, self.count = 0.0, 0

    def update(self, scores: Any, targets: Any) -> None:
        """Add a batch."""
        rows, right = scores_of("Perplexity", scores, targets, self.ignore_index)
        rows = rows.astype(np.float64)
        rows -= rows.max(axis=1, keepdims=True)
        own = np.take_along_axis(rows, right[:, None], axis=1)[:, 0]
        self.total += float((np.log(np.exp(rows).sum(axis=1)) - own).sum())
        self.count += len(right)

    def compute(self) -> float:
        """Return the perplexity; inf where exp overflows."""
        if not self.count:
            raise ValueError("Perplexity was given no target that counts")
        mean = self.total / self.count
        return math.inf if mean > math.log(np.finfo(np.float64).max) else math.exp(mean)

"""Metrics of predicted classes."""

from typing import Any, Literal

import numpy as np

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.metrics.metric import Metric, array_of, check_classes, labels_of, scores_of

__all__ = ["F1", "Accuracy", "ConfusionMatrix", "Precision", "Recall"]

Average = Literal["micro", "macro", "weighted", "binary"] | None


class Accuracy(Metric):
    """The share of samples whose class is among the ``top_k`` with the highest scores; of equal scores the first count.

    ``update(predictions, targets)`` takes scores (N, C, ...), or for ``top_k=1`` classes (N, ...), and targets (N, ...).

    Args:
        top_k: how many guesses there are. ignore_index: targets that do not count.

    Raises:
        ValueError: for ``top_k`` below 1; shapes that do not fit; targets that are no class.

    Example:
        >>> import wengert as wg
        >>> accuracy = wg.metrics.Accuracy()
        >>> accuracy.update(wg.tensor([[0.1, 0.9], [0.8, 0.2]]), wg.tensor([1, 1]))
        >>> accuracy.update(wg.tensor([1, 0]), wg.tensor([1, 0]))
        >>> accuracy.compute()
        0.75
    """

    totals = ("correct", "count")
    options = ("top_k", "ignore_index")

    def __init__(self, top_k: int = 1, ignore_index: int | None = None) -> None:
        if not isinstance(top_k, int) or top_k < 1:
            raise ValueError(f"top_k must be an int of 1 or more, got {top_k!r}")
        self.top_k, self.ignore_index = top_k, ignore_index
        super().__init__()

    def reset(self) -> None:
        """Forget all batches."""
        self.correct = self.count = 0

    def update(self, predictions: Any, targets: Any) -> None:
        """Add a batch."""
        found = array_of(predictions)
        if found.ndim == array_of(targets).ndim + 1:
            rows, right = scores_of("Accuracy", found, targets, self.ignore_index)
            own = np.take_along_axis(rows, right[:, None], axis=1)
            before = np.arange(rows.shape[1]) < right[:, None]
            ahead = ~(rows <= own) | ((rows == own) & before)  # a NaN is ahead of all, and behind all as the right one
            hits = ahead.sum(axis=1) < self.top_k
        elif self.top_k == 1:
            classes, right = labels_of("Accuracy", found, targets, self.ignore_index)
            hits = classes == right
        else:
            raise ValueError(f"Accuracy(top_k={self.top_k}) needs scores of shape (N, C, ...), got {found.shape}")
        self.correct += int(hits.sum())
        self.count += len(hits)

    def compute(self) -> float:
        """Return the share, 0 to 1."""
        if not self.count:
            raise ValueError("Accuracy was given no sample")
        return self.correct / self.count


class ConfusionMatrix(Metric):
    """How often samples of class i (row) were taken for class j (column).

    ``update(predictions, targets)`` takes scores (N, C, ...) or classes (N, ...), and targets (N, ...).

    Args:
        classes: how many there are. ignore_index: targets that do not count.

    Raises:
        ValueError: for shapes that do not fit; predictions and targets that are no class.

    Example:
        >>> import wengert as wg
        >>> confusion = wg.metrics.ConfusionMatrix(2)
        >>> confusion.update(wg.tensor([0, 1, 1]), wg.tensor([0, 0, 1]))
        >>> confusion.compute()
        tensor([[1, 1],
                [0, 1]])
    """

    totals: tuple[str, ...] = ("counts",)
    options: tuple[str, ...] = ("classes", "ignore_index")

    def __init__(self, classes: int, ignore_index: int | None = None) -> None:
        if not isinstance(classes, int) or classes < 2:
            raise ValueError(f"classes must be an int of 2 or more, got {classes!r}")
        self.classes, self.ignore_index = classes, ignore_index
        super().__init__()

    def reset(self) -> None:
        """Forget all batches."""
        self.counts = np.zeros((self.classes, self.classes), dtype=np.int64)

    def update(self, predictions: Any, targets: Any) -> None:
        """Add a batch."""
        what = type(self).__name__
        found, right = labels_of(what, predictions, targets, self.ignore_index)
        for values in (found, right):
            check_classes(what, values, self.classes)
        cells = np.bincount(right * self.classes + found, minlength=self.classes**2)
        self.counts = self.counts + cells.reshape(self.counts.shape)

    def compute(self) -> Any:
        """Return the counts, int64 of shape (classes, classes)."""
        return ops.tensor(self.counts)


class _Score(ConfusionMatrix):
    """A score of each class, from how often it was found rightly, found wrongly and missed; and its average."""

    options = ("classes", "average", "zero_division", "ignore_index")

    def __init__(
        self, classes: int = 2, average: Average = "macro", zero_division: float = 0.0, ignore_index: int | None = None
    ) -> None:
        if average not in ("micro", "macro", "weighted", "binary", None):
            raise ValueError(f"average must be 'micro', 'macro', 'weighted', 'binary' or None, got {average!r}")
        if average == "binary" and classes != 2:
            raise ValueError(f"average='binary' is the score of class 1 of 2, got classes={classes}")
        self.average, self.zero_division = average, zero_division
        super().__init__(classes, ignore_index)

    def ratio(self, right: Any, wrong: Any, missed: Any) -> tuple[Any, Any]:
        """Return numerator and denominator of the score."""
        raise NotImplementedError

    def compute(self) -> float | Tensor:
        """Return the average, or the scores of all classes (float64) for ``average=None``."""
        if not self.counts.sum():
            raise ValueError(f"{type(self).__name__} was given no sample")
        right = np.diagonal(self.counts)
        wrong, missed = self.counts.sum(axis=0) - right, self.counts.sum(axis=1) - right
        if self.average == "micro":
            right, wrong, missed = (np.array([v.sum()]) for v in (right, wrong, missed))
        above, below = self.ratio(right, wrong, missed)
        scores = np.where(below > 0, above / np.maximum(below, 1), self.zero_division)
        if self.average is None:
            return ops.tensor(scores)
        if self.average == "binary":
            return float(scores[1])
        return float(np.average(scores, weights=right + missed if self.average == "weighted" else None))


class Precision(_Score):
    """The share of the samples taken for a class that are of it: right / (right + wrongly found).

    Args:
        classes: how many there are.
        average: "macro", the mean over the classes; "weighted", that by how many samples each has; "micro", the score of
            all classes counted together; "binary", the score of class 1 of two; None, each class's score as a tensor.
        zero_division: the score of a class that has none. ignore_index: targets that do not count.

    Raises:
        ValueError: as :class:`ConfusionMatrix`, which is also updated alike; for another average.

    Example:
        >>> import wengert as wg
        >>> precision = wg.metrics.Precision(3, average=None)
        >>> precision.update(wg.tensor([0, 1, 1, 2]), wg.tensor([0, 0, 1, 2]))
        >>> precision.compute()
        tensor([1.0000, 0.5000, 1.0000], dtype=wengert.float64)
    """

    def ratio(self, right: Any, wrong: Any, missed: Any) -> tuple[Any, Any]:
        """Return numerator and denominator of the score."""
        return right, right + wrong


class Recall(_Score):
    """The share of the samples of a class that were taken for it: right / (right + missed).

    Arguments and errors as of :class:`Precision`.

    Example:
        >>> import wengert as wg
        >>> recall = wg.metrics.Recall(average="binary")
        >>> recall.update(wg.tensor([1, 0, 0]), wg.tensor([1, 1, 0]))
        >>> recall.compute()
        0.5
    """

    def ratio(self, right: Any, wrong: Any, missed: Any) -> tuple[Any, Any]:
        """Return numerator and denominator of the score."""
        return right, right + missed


class F1(_Score):
    """The harmonic mean of precision and recall: 2 right / (2 right + wrongly found + missed).

    Arguments and errors as of :class:`Precision`.

    Example:
        >>> import wengert as wg
        >>> f1 = wg.metrics.F1(average="binary")
        >>> f1.update(wg.tensor([1, 1, 1]), wg.tensor([1, 1, 0]))
        >>> f1.compute()
        0.8
    """

    def ratio(self, right: Any, wrong: Any, missed: Any) -> tuple[Any, Any]:
        """Return numerator and denominator of the score."""
        return 2 * right, 2 * right + wrong + missed

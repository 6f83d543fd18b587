"""Metrics of the order that scores give."""

from typing import Any

import numpy as np

from wengert.metrics.metric import Array, Metric, array_of, check_classes, scores_of, targets_of

__all__ = ["AUROC"]


class AUROC(Metric):
    """The area under the ROC curve: how probably a sample of the class has a higher score than one of another class.

    Exact, from the ranks of all scores, of which ties count half (Hanley, McNeil: The meaning and use of the area under a
    receiver operating characteristic curve, Radiology 143, 1982); so all scores are kept until ``reset``.

    ``update(scores, targets)`` takes scores (N,) and targets (N,) of 0 and 1; with ``classes``, scores (N, C, ...) and
    targets (N, ...), of which the mean over the classes, each against the rest, is taken.

    Args:
        classes: how many there are; None for two, with one score.

    Raises:
        ValueError: for scores that are NaN, shapes that do not fit, targets that are no class; by ``compute`` if a class
            has no sample, or all.

    Example:
        >>> import wengert as wg
        >>> auroc = wg.metrics.AUROC()
        >>> auroc.update(wg.tensor([0.1, 0.4, 0.35, 0.8]), wg.tensor([0, 0, 1, 1]))
        >>> auroc.compute()
        0.75
    """

    totals = ("scores", "targets")
    options = ("classes",)

    def __init__(self, classes: int | None = None) -> None:
        if classes is not None and (not isinstance(classes, int) or classes < 2):
            raise ValueError(f"classes must be None or an int of 2 or more, got {classes!r}")
        self.classes = classes
        super().__init__()

    def reset(self) -> None:
        """Forget all batches."""
        self.scores: list[Array] = []
        self.targets: list[Array] = []

    def update(self, scores: Any, targets: Any) -> None:
        """Add a batch."""
        if self.classes is None:
            rows, right = array_of(scores), targets_of("AUROC", targets)
            if rows.shape != right.shape:
                raise ValueError(f"AUROC: scores of shape {rows.shape} do not fit targets of shape {right.shape}")
            rows, right = rows.reshape(-1, 1), right.reshape(-1)
            check_classes("AUROC", right, 2)
        else:
            rows, right = scores_of("AUROC", scores, targets)
            if rows.shape[1] != self.classes:
                raise ValueError(f"AUROC({self.classes}) takes that many scores of a sample, got {rows.shape[1]}")
        if np.isnan(rows).any():
            raise ValueError("AUROC: the scores have NaN")
        self.scores.append(np.array(rows))
        self.targets.append(right)

    def compute(self) -> float:
        """Return the area, 0 to 1."""
        if not self.scores:
            raise ValueError("AUROC was given no sample")
        scores, targets = np.concatenate(self.scores), np.concatenate(self.targets)
        kinds = [1] if self.classes is None else range(self.classes)
        return float(np.mean([_area(scores[:, i], targets == kind, kind) for i, kind in enumerate(kinds)]))


def _area(scores: Array, inside: Array, kind: int) -> float:
    """The area of one class, from the sum of its ranks (the U of Mann and Whitney)."""
    count, rest = int(inside.sum()), int((~inside).sum())
    if not count or not rest:
        raise ValueError(f"AUROC needs samples of class {kind} and others, got {count} and {rest}")
    _, place, ties = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(ties) - (ties - 1) / 2  # the mean rank of each distinct score, from 1 on
    return float((middle[place][inside].sum() - count * (count + 1) / 2) / (count * rest))

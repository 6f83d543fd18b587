"""Margin losses of classification: the right classes are to score higher than the others by a margin."""

from typing import Any

import numpy as np

from wengert.array.dtype import bool_
from wengert.core.arguments import Integer
from wengert.core.families import composite, nondifferentiable
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.operators.class_targets import check_scores, class_targets
from wengert.operators.reduction import check_reduction, reduce_loss

__all__ = ["label_places", "multi_margin_loss", "multilabel_margin_loss"]


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 3), s.array([0, 2])), s((2, 3), s.array([0, 2]), p=2), s((2, 3), s.array([0, 2]), 1, 0.5, (3,)),
        s((3,), s.array(1)), s((), s.array(0)), s((3,), s.array([1]), reduction="none"),
        s((2, 3), s.array([0, 2]), 2, 0.5, (3,), reduction="none"),
        s((2, 3), s.array([0, 2]), reduction="sum"),
        s.error(ValueError, "p must be 1 or 2", (2, 3), s.array([0, 2]), 3),
        s.error(IndexError, "target 3 is out of range", (2, 3), s.array([0, 3])),
        s.error(ValueError, "one class index", (2, 3), s.array([0])),
        s.error(ValueError, "one number for each", (2, 3), s.array([0, 2]), 1, 1.0, (2,)),
    ],
)  # fmt: skip
def multi_margin_loss(
    input: Any, target: Any, p: int = 1, margin: float = 1.0, weight: Any = None, size_average: Any = None,
    reduce: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """Return Σ_{i≠y} w_y max(0, margin - x_y + x_i)^p / C for each sample.

    Args:
        input: scores of shape (N, C) or (C). target: class indices y of shape (N) or ().
        p: 1 or 2. weight: one per class.

    Raises:
        DTypeError: for scores that are not floating-point, or targets that are not integers.
    """
    check_reduction("multi_margin_loss", reduction, size_average, reduce)
    check_scores("multi_margin_loss", input)
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss(): p must be 1 or 2, got {p}")
    if not input.ndim or (input.ndim == 1 and tuple(target.shape) == (1,)):  # one class; or one sample's scores alone
        input = ops.reshape(input, (1,) if not target.ndim else (1, -1))
    if input.ndim not in (1, 2) or target.shape != input.shape[:-1]:
        raise ShapeError(
            "multi_margin_loss(): takes scores of shape (N, C) or (C) and one class index for each sample, got "
            f"{tuple(input.shape)} and {tuple(target.shape)}"
        )
    target, classes = class_targets("multi_margin_loss", target), input.shape[-1]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ShapeError(f"multi_margin_loss(): weight must hold one number for each of {classes} classes, "
                         f"got shape {tuple(weight.shape)}")  # fmt: skip
    index = ops.unsqueeze(ops.class_index(target, classes, None), -1)
    excess = ops.clamp_min(margin - ops.gather(input, -1, index) + input, 0.0)
    terms = ops.where(ops.eq(ops.arange(classes), index), 0.0, excess if p == 1 else ops.square(excess))
    loss = ops.sum(terms, -1) / classes
    return reduce_loss(loss if weight is None else loss * weight[target], reduction)


def _places(target: Any) -> Any:
    """Return which entries of each row come before the first negative one."""
    return np.logical_and.accumulate(target >= 0, axis=-1)


@nondifferentiable(
    outputs=("listed", "is_label"),
    batch="front",
    spec=lambda target: (Spec(target.shape, bool_), Spec(target.shape, bool_)),
    home=(),
    samples=lambda s: [
        s(s.array([[2, 0, -1], [1, -1, 2]])), s(s.array([0, 1, 2])),
        s.error(IndexError, "label 3", s.array([[3, -1, 0]])),
    ],
)  # fmt: skip
def label_places(target: Integer) -> Any:
    """Return which entries of rows that end at the first negative one are labels, and which classes they name."""
    listed = _places(target)
    classes = target.shape[-1]
    bad = target[listed & (target >= classes)]
    if bad.size:
        raise IndexError(f"multilabel_margin_loss(): label {bad.flat[0]} is out of range for {classes} classes")
    named = np.zeros((*target.shape[:-1], classes + 1), np.bool_)
    np.put_along_axis(named, np.where(listed, target, classes), True, -1)
    return listed, named[..., :-1]


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 3), s.array([[2, 0, -1], [1, -1, 2]])), s((3,), s.array([1, -1, 0])), s((), s.array(0)),
        s((2, 3), s.array([[2, 0, -1], [-1, 1, 2]]), reduction="none"),
        s((2, 3), s.array([[2, 0, 1], [1, -1, 2]]), reduction="sum"),
        s.error(ValueError, "same shape", (2, 3), s.array([[0, 1], [1, 0]])),
        s.error(IndexError, "label 3", (1, 3), s.array([[3, -1, 0]])),
    ],
)  # fmt: skip
def multilabel_margin_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:  # fmt: skip
    """Return Σ_j Σ_i max(0, 1 - x_j + x_i) / C for each sample, j over its labels and i over the other classes.

    Args:
        input: scores of shape (N, C) or (C).
        target: of the same shape; the labels of a row end at its first negative entry.

    Raises:
        DTypeError: for scores that are not floating-point, or labels that are not integers.
    """
    check_reduction("multilabel_margin_loss", reduction, size_average, reduce)
    check_scores("multilabel_margin_loss", input)
    target = class_targets("multilabel_margin_loss", target)
    if not input.ndim and not target.ndim:
        input, target = ops.reshape(input, (1,)), ops.reshape(target, (1,))
    if input.ndim not in (1, 2) or input.shape != target.shape:
        raise ShapeError(
            "multilabel_margin_loss(): takes scores and labels of the same shape (N, C) or (C), got "
            f"{tuple(input.shape)} and {tuple(target.shape)}"
        )
    listed, is_label = ops.label_places(target)
    own = ops.gather(input, -1, ops.where(listed, target, 0))
    excess = ops.clamp_min(1 - ops.unsqueeze(own, -1) + ops.unsqueeze(input, -2), 0.0)
    pairs = ops.logical_and(ops.unsqueeze(listed, -1), ops.logical_not(ops.unsqueeze(is_label, -2)))
    loss = ops.sum(ops.where(pairs, excess, 0.0), (-2, -1)) / input.shape[-1]
    return reduce_loss(loss, reduction)

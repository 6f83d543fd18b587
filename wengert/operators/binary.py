"""Binary cross-entropy, of probabilities and of logits, and its sum over several labels.

Of a logit x, with s(x) = log(1 + exp(x)), the loss is y s(-x) + (1 - y) s(x): both terms are positive, so nothing
cancels, however certain and right (or wrong) the model is.
"""

from typing import Any

import numpy as np

from wengert.core.arguments import Floating, FloatingOrScalar
from wengert.core.families import composite, elementwise
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.operators.reduction import check_reduction, reduce_loss

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "binary_loss", "binary_loss_of_logits",
    "multilabel_soft_margin_loss",
]  # fmt: skip

SMALLEST_LOG = -100.0  # PyTorch's bound on log p and log(1 - p): a loss stays finite at p = 0 and 1
SMALLEST_SPREAD = 1e-12  # and on p (1 - p) in the gradient


def _same_shape(name: str, input: Any, target: Any) -> None:
    if input.shape != target.shape:
        raise ShapeError(
            f"{name}(): input has shape {tuple(input.shape)}, target {tuple(target.shape)}; they must be equal"
        )


def _weighed(loss: Any, weight: Any, reduction: str) -> Any:
    return reduce_loss(loss if weight is None else loss * weight, reduction)


def _log_ratio(g: Any, input: Any) -> Any:
    """Return g (log(1 - p) - log p), both bounded: the slope in the target."""
    low = ops.clamp_min(ops.log(input), SMALLEST_LOG)
    return g * (ops.clamp_min(ops.log1p(-input), SMALLEST_LOG) - low)


@elementwise(
    derivative={
        "input": lambda g, input, target: g * ((input - target) / ops.clamp_min(input * (1 - input), SMALLEST_SPREAD)),
        "target": _log_ratio,
    },
    home=(),
    inplace=False,
    samples=lambda s: [
        s((2, 3), (2, 3), low=0.1, high=0.9), s((2, 3), (3,), low=0.1, high=0.9), s((), (), low=0.1, high=0.9),
        s(s.array([0.0, 0.0, 1.0, 1.0]), s.array([0.0, 1.0, 0.0, 1.0]), grad=False),
        s.error(RuntimeError, "between 0 and 1, got 1.5", s.array([0.5, 1.5]), s.array([0.0, 1.0])),
    ],
)  # fmt: skip
def binary_loss(input: Floating, target: Floating) -> Any:
    """Return -(y log p + (1 - y) log(1 - p)), the logarithms not below -100."""
    outside = ~((input >= 0) & (input <= 1)) & ~np.isnan(input)
    if outside.any():
        raise RuntimeError(
            f"binary_cross_entropy(): input must be probabilities between 0 and 1, got {input[outside].flat[0]}; "
            "for logits use binary_cross_entropy_with_logits()"
        )
    low = np.maximum(np.log(input), SMALLEST_LOG)
    return -(target * low + (1 - target) * np.maximum(np.log1p(-input), SMALLEST_LOG))


def _probabilities(s: Any) -> list[Any]:
    bounds: Any = {"low": 0.1, "high": 0.9}
    return [
        s((2, 3), (2, 3), **bounds), s((2, 3), (2, 3), reduction="sum", **bounds),
        s((2, 3), (2, 3), (3,), reduction="none", **bounds), s((2, 3), (2, 3), (2, 1), **bounds), s((), (), **bounds),
        s.error(ValueError, "must be equal", (2,), (3,)),
        s.error(TypeError, "reduction=", (2,), (2,), size_average=True),
    ]  # fmt: skip


@composite(home="nn.functional", samples=_probabilities)
def binary_cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:  # fmt: skip
    """Return -(y log p + (1 - y) log(1 - p)) for probabilities p, the logarithms not below -100.

    Args:
        input, target: probabilities of the same shape. weight: broadcast to it.

    Raises:
        RuntimeError: for an input outside [0, 1].
    """
    check_reduction("binary_cross_entropy", reduction, size_average, reduce)
    _same_shape("binary_cross_entropy", input, target)
    return _weighed(ops.binary_loss(input, target), weight, reduction)


@elementwise(
    derivative={
        "input": lambda g, input, target, pos_weight: (
            g * ((1 - target) * ops.sigmoid(input) - pos_weight * target * ops.sigmoid(-input))
        ),
        "target": lambda g, input, pos_weight: g * (ops.logsigmoid(-input) - pos_weight * ops.logsigmoid(input)),
        "pos_weight": lambda g, input, target: -g * target * ops.logsigmoid(input),
    },
    home=(),
    inplace=False,
    samples=lambda s: [
        s((2, 3), (2, 3)), s((2, 3), (2, 3), (3,), low=0.1), s((2, 3), (3,), 2.0), s((), ()),
        s(s.array([40.0, -40.0, 1e4, -1e4, 0.0]), s.array([1.0, 0.0, 0.0, 1.0, 0.5]), grad=False),
        s(s.array([np.inf, -np.inf]), s.array([1.0, 0.0]), grad=False),
    ],
)  # fmt: skip
def binary_loss_of_logits(input: Floating, target: Floating, pos_weight: FloatingOrScalar = 1.0) -> Any:
    """Return pos_weight · y log(1 + exp(-x)) + (1 - y) log(1 + exp(x)), 0 where a factor is."""
    tail = np.log1p(np.exp(-np.abs(input)))
    positive = pos_weight * target * (tail + np.maximum(-input, 0))
    negative = (1 - target) * (tail + np.maximum(input, 0))
    return np.where(target == 0, 0, positive) + np.where(target == 1, 0, negative)


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 3), (2, 3)), s((2, 3), (2, 3), reduction="sum"), s((2, 3), (2, 3), (3,), reduction="none"),
        s((2, 3), (2, 3), pos_weight=s.tensor((3,))), s((2, 3), (2, 3), (2, 1), pos_weight=s.tensor((3,))), s((), ()),
        s(s.array([40.0, -40.0, 1e4, -1e4]), s.array([1.0, 0.0, 0.0, 1.0]), grad=False),
        s.error(ValueError, "must be equal", (2,), (3,)), s.error(TypeError, "reduction=", (2,), (2,), reduce=True),
    ],
)  # fmt: skip
def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
    pos_weight: Any = None,
) -> Any:  # fmt: skip
    """Return -(y log σ(x) + (1 - y) log(1 - σ(x))) for logits x, accurate in both tails.

    Args:
        input: logits. target: probabilities of the same shape. weight: broadcast to it.
        pos_weight: the weight of positive targets, broadcast to them.
    """
    check_reduction("binary_cross_entropy_with_logits", reduction, size_average, reduce)
    _same_shape("binary_cross_entropy_with_logits", input, target)
    loss = ops.binary_loss_of_logits(input, target, 1.0 if pos_weight is None else pos_weight)
    return _weighed(loss, weight, reduction)


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 3), (2, 3)), s((2, 3), (2, 3), (3,), reduction="none"), s((2, 3), (2, 3), reduction="sum"),
        s((3,), (3,)), s(s.array([[1e4, -1e4]]), s.array([[1.0, 0.0]]), grad=False),
        s.error(ValueError, "must be equal", (2, 3), (3,)),
    ],
)  # fmt: skip
def multilabel_soft_margin_loss(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:  # fmt: skip
    """Return the mean over the labels (the last dimension) of the binary cross-entropy with logits.

    Args:
        input, target: of shape (N, C) or (C); labels may be integers. weight: one per label.
    """
    check_reduction("multilabel_soft_margin_loss", reduction, size_average, reduce)
    _same_shape("multilabel_soft_margin_loss", input, target)
    labels = target if target.is_floating_point() else ops.cast(target, input.dtype)
    loss = ops.binary_loss_of_logits(input, labels)
    return reduce_loss(ops.mean(loss if weight is None else loss * weight, -1), reduction)

"""Losses of regression, ranking and embedding. Classification has its own file, as has CTC.

Every loss takes ``reduction``: ``"none"`` for the loss of each element, ``"mean"`` or ``"sum"`` over them.
"""

import math
import warnings
from typing import Any

import numpy as np

from wengert.core.arguments import Real
from wengert.core.families import composite, elementwise
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.errors import ShapeError
from wengert.operators.checks import anywhere
from wengert.operators.reduction import check_reduction, reduce_loss

__all__ = [
    "cosine_embedding_loss", "gaussian_nll_loss", "hinge_embedding_loss", "huber", "huber_loss", "kl_div", "l1_loss",
    "margin_ranking_loss", "mse_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]  # fmt: skip


def _weighed(name: str, loss: Any, weight: Any) -> Any:
    if weight is None:
        return loss
    if tuple(weight.shape) != tuple(loss.shape):
        raise ShapeError(f"{name}(): weight must have the losses' shape {tuple(loss.shape)}, got {tuple(weight.shape)}")
    return loss * weight


def _weighted_mean(name: str, loss: Any, weight: Any, reduction: str) -> Any:
    """Reduce the losses of elements; with weights, a mean is divided by the sum of the weights."""
    weighed = _weighed(name, loss, weight)
    if weight is None or reduction != "mean":
        return reduce_loss(weighed, reduction)
    return ops.sum(weighed) / ops.sum(weight)


def _pairs(s: Any) -> list[Any]:
    return [
        s((2, 3), (2, 3)), s((2, 3), (2, 3), reduction="sum"), s((2, 3), (2, 3), reduction="none"), s((), ()),
        s((0, 2), (0, 2), reduction="sum"),
        s.error(ValueError, "'none', 'mean' or 'sum'", (2,), (2,), reduction="max"),
    ]  # fmt: skip


def _legacy(s: Any) -> list[Any]:
    return [*_pairs(s), s.error(TypeError, "reduction=", (2,), (2,), size_average=False)]


# ---- regression


@composite(
    home="nn.functional",
    samples=lambda s: [
        *_legacy(s), s((2, 3), (2, 3), weight=s.tensor((2, 3), low=0.5)),
        s((2, 3), (2, 3), weight=s.tensor((2, 3)), reduction="sum"),
    ],
)  # fmt: skip
def mse_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", weight: Any = None
) -> Any:  # fmt: skip
    """Return the squared differences (input - target)²; a mean with ``weight`` is divided by the sum of the weights."""
    check_reduction("mse_loss", reduction, size_average, reduce)
    return _weighted_mean("mse_loss", ops.square(_difference("mse_loss", input, target)), weight, reduction)


def _difference(name: str, input: Any, target: Any) -> Any:
    """Return input - target; warn if they only fit by broadcasting, which is rarely meant."""
    if input.shape != target.shape:
        warnings.warn(
            f"{name}(): the target's shape {tuple(target.shape)} differs from the input's {tuple(input.shape)}; "
            "they are broadcast, which is likely not what was meant",
            UserWarning, stacklevel=3,
        )  # fmt: skip
    return input - target


@composite(
    home="nn.functional",
    samples=lambda s: [
        *_legacy(s), s((2, 3), (2, 3), weight=s.tensor((2, 3), low=0.5)),
        s((2,), (2,), weight=s.tensor((2,)), reduction="none"),
    ],
)  # fmt: skip
def l1_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", weight: Any = None
) -> Any:  # fmt: skip
    """Return the absolute differences |input - target|; a mean with ``weight`` is divided by the sum of the weights."""
    check_reduction("l1_loss", reduction, size_average, reduce)
    return _weighted_mean("l1_loss", ops.abs(_difference("l1_loss", input, target)), weight, reduction)


def _huber_slope(g: Any, input: Any, target: Any, delta: Any) -> Any:
    return g * ops.clamp(input - target, -delta, delta)


@elementwise(
    derivative={
        "input": _huber_slope,
        "target": lambda g, input, target, delta: -_huber_slope(g, input, target, delta),
    },
    promote="float",
    home=(),
    inplace=False,
    samples=lambda s: [
        s((2, 3), (2, 3), 1.0), s((2, 3), (3,), 0.5), s(s.array([1e30, 0.5]), s.array([0.0, 0.0]), 1.0, grad=False),
        s((3,), (3,), 1.0, kind="integer"),
    ],
)  # fmt: skip
def huber(input: Real, target: Real, delta: Any) -> Any:
    """Return d²/2 where |d| < delta, else delta (|d| - delta/2), for d = input - target."""
    size = np.abs(input - target)
    inner = np.minimum(size, size.dtype.type(delta))
    return inner * (size - inner / 2)


@composite(
    home="nn.functional",
    samples=lambda s: [
        *_legacy(s), s((2, 3), (2, 3), beta=0.5), s((2, 3), (2, 3), beta=0.0),
        s.error(ValueError, "beta", (2,), (2,), beta=-1.0),
    ],
)  # fmt: skip
def smooth_l1_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", beta: float = 1.0
) -> Any:  # fmt: skip
    """Return d²/(2 beta) where |d| < beta, else |d| - beta/2, for d = input - target; with beta = 0, |d|.

    Source: Girshick, "Fast R-CNN" (2015), equation 3.
    """
    check_reduction("smooth_l1_loss", reduction, size_average, reduce)
    if beta < 0:
        raise ValueError(f"smooth_l1_loss(): beta must not be negative, got {beta}")
    if beta == 0:
        return ops.l1_loss(input, target, reduction=reduction)
    _difference("smooth_l1_loss", input, target)
    return reduce_loss(ops.huber(input, target, beta) / beta, reduction)


@composite(
    home="nn.functional",
    samples=lambda s: [
        *_pairs(s), s((2, 3), (2, 3), delta=0.5), s((2, 3), (2, 3), weight=s.tensor((2, 3), low=0.5)),
        s.error(ValueError, "delta", (2,), (2,), delta=0.0),
    ],
)  # fmt: skip
def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None) -> Any:
    """Return d²/2 where |d| < delta, else delta (|d| - delta/2), for d = input - target.

    Args:
        weight: of the losses' shape; a mean is over the weighted losses.

    Source: Huber, "Robust Estimation of a Location Parameter" (1964).
    """
    check_reduction("huber_loss", reduction)
    if delta <= 0:
        raise ValueError(f"huber_loss(): delta must be positive, got {delta}")
    _difference("huber_loss", input, target)
    return reduce_loss(_weighed("huber_loss", ops.huber(input, target, delta), weight), reduction)


# ---- likelihoods


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 3), (2, 3), reduction="batchmean", kind="positive"),
        s((2, 3), (2, 3), reduction="batchmean", log_target=True),
        s((2, 3), (2, 3), reduction="none", log_target=True), s((2, 3), (2, 3), reduction="sum", kind="positive"),
        s.error(ValueError, "batchmean", (2,), (2,), reduction="max"),
        s.error(TypeError, "reduction=", (2,), (2,), reduce=True),
    ],
)  # fmt: skip
def kl_div(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
    log_target: bool = False,
) -> Any:  # fmt: skip
    """Return target (log target - input), the terms of the Kullback-Leibler divergence; ``input`` holds logarithms.

    Args:
        reduction: also ``"batchmean"``, the sum divided by the size of the first dimension: the divergence itself.
        log_target: the target holds logarithms too.
    """
    if reduction != "batchmean" and reduction not in ("none", "mean", "sum"):
        raise ValueError(f"kl_div(): reduction must be 'none', 'batchmean', 'mean' or 'sum', got {reduction!r}")
    check_reduction("kl_div", "sum", size_average, reduce)
    if log_target:
        terms = ops.exp(target) * (target - input)
    else:
        terms = ops.xlogy(target, target) - target * input
    if reduction == "batchmean":
        return ops.sum(terms) / input.shape[0] if input.ndim else terms
    return reduce_loss(terms, reduction)


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 3), (2, 3), kind="positive"), s((2, 3), (2, 3), log_input=False, kind="positive"),
        s((2, 3), s.array([[0, 1, 2], [3, 1, 5]]), full=True), s((2, 3), (2, 3), reduction="sum", kind="positive"),
        s((2,), (2,), reduction="none", kind="positive"), s.error(TypeError, "reduction=", (2,), (2,), reduce=True),
    ],
)  # fmt: skip
def poisson_nll_loss(
    input: Any, target: Any, log_input: bool = True, full: bool = False, size_average: Any = None, eps: float = 1e-8,
    reduce: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """Return exp(x) - y x, or x - y log(x + eps) without ``log_input``: the negative log-likelihood of Poisson counts.

    Args:
        full: add Stirling's approximation y log y - y + log(2 π y)/2 of log y!, where y > 1.
    """
    check_reduction("poisson_nll_loss", reduction, size_average, reduce)
    loss = ops.exp(input) - target * input if log_input else input - target * ops.log(input + eps)
    if full:
        large = ops.gt(target, 1)
        count = ops.where(large, target, 2.0)  # away from log 0, whose gradient would not be finite
        stirling = count * ops.log(count) - count + 0.5 * ops.log(2 * math.pi * count)
        loss = loss + ops.where(large, stirling, 0.0)
    return reduce_loss(loss, reduction)


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 3), (2, 3), s.tensor((2, 3), low=0.5)), s((2, 3), (2, 3), s.tensor((2,), low=0.5)),
        s((2, 3), (2, 3), s.tensor((2, 1), low=0.5), full=True), s((2, 3), (2, 3), s.tensor((1, 3), low=0.5)),
        s((2, 3), (2, 3), 0.5, reduction="sum"),
        s((2, 3), (2, 3), s.array([[1e-9, 1.0, 2.0], [0.0, 1.0, 2.0]]), reduction="none", grad=False),
        s.error(ValueError, "negative", (2, 3), (2, 3), -1.0),
        s.error(ValueError, "var of shape", (2, 3), (2, 3), s.tensor((3,), low=0.5)),
    ],
)  # fmt: skip
def gaussian_nll_loss(
    input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    """Return (log v + (input - target)²/v)/2, v = max(var, eps): the negative log-likelihood of Gaussian targets.

    Args:
        var: variances of the input's shape, of that shape without its last dimension or with one of size 1, or a number.
        full: add log(2 π)/2. eps: the bound on variances; it takes no part in the gradient.

    Source: Nix & Weigend, "Estimating the mean and variance of the target probability distribution" (1994).
    """
    check_reduction("gaussian_nll_loss", reduction)
    if not isinstance(var, Tensor):
        var = ops.full_like(input, var)
    shape = tuple(input.shape)
    if tuple(var.shape) == shape[:-1] and var.shape != shape:
        var = ops.unsqueeze(var, -1)
    shared = [size for size, own in zip(shape, var.shape, strict=False) if size != own]
    if var.ndim != len(shape) or len(shared) > 1 or any(var.shape[i] not in (1, n) for i, n in enumerate(shape)):
        raise ShapeError(f"gaussian_nll_loss(): var of shape {tuple(var.shape)} does not fit an input of shape {shape}")
    if anywhere(ops.lt(var, 0)):
        raise ValueError("gaussian_nll_loss(): var has a negative element")
    bounded = var + (ops.clamp_min(var, eps) - var).detach()
    loss = 0.5 * (ops.log(bounded) + ops.square(input - target) / bounded)
    return reduce_loss(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


# ---- margins


def _signs(s: Any) -> list[Any]:
    y = s.array([[1, -1, 1], [-1, -1, 1]])
    return [
        s((2, 3), y), s((2, 3), y, reduction="sum"), s((2, 3), y, reduction="none"),
        s.error(TypeError, "reduction=", (2, 3), y, reduce=True),
    ]  # fmt: skip


@composite(home="nn.functional", samples=lambda s: [*_signs(s), s((2, 3), s.array([1, -1, 1]), margin=0.5)])
def hinge_embedding_loss(
    input: Any, target: Any, margin: float = 1.0, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:  # fmt: skip
    """Return x where the target is 1 and max(0, margin - x) where it is -1."""
    check_reduction("hinge_embedding_loss", reduction, size_average, reduce)
    apart = ops.where(ops.ne(target, 1), ops.clamp_min(margin - input, 0.0), 0.0)
    together = ops.where(ops.ne(target, -1), input, 0.0)
    return reduce_loss(apart + together, reduction)


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((3,), (3,), s.array([1, -1, 1])), s((2, 3), (2, 3), s.array([[1, -1, 1]]), 0.5, reduction="none"),
        s((3,), (3,), s.array([1, -1, 1]), reduction="sum"),
        s.error(ValueError, "same number of dimensions", (2, 3), (3,), s.array([1.0, 1.0, 1.0])),
    ],
)  # fmt: skip
def margin_ranking_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0, size_average: Any = None, reduce: Any = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """Return max(0, -y (x1 - x2) + margin): 0 if x1 is ranked above x2 (y = 1), or below (y = -1), by the margin."""
    check_reduction("margin_ranking_loss", reduction, size_average, reduce)
    if input1.ndim != input2.ndim:
        raise ShapeError(
            f"margin_ranking_loss(): inputs must have the same number of dimensions, got {tuple(input1.shape)} and "
            f"{tuple(input2.shape)}"
        )
    return reduce_loss(ops.clamp_min(-target * (input1 - input2) + margin, 0.0), reduction)


@composite(home="nn.functional", samples=_signs)
def soft_margin_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:
    """Return log(1 + exp(-y x)), computed without overflow."""
    check_reduction("soft_margin_loss", reduction, size_average, reduce)
    return reduce_loss(-ops.logsigmoid(target * input), reduction)


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 3), (2, 3), s.array([1, -1])), s((2, 3), (2, 3), s.array([1, -1]), margin=-0.5, reduction="none"),
        s((3,), (3,), s.array(-1)), s((2, 3), (2, 3), s.array([-1, -1]), reduction="sum"),
        s.error(ValueError, "targets of shape", (2, 3), (2, 3), s.array([1, 1, 1])),
    ],
)  # fmt: skip
def cosine_embedding_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0, size_average: Any = None, reduce: Any = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """Return 1 - cos(x1, x2) where the target is 1 and max(0, cos(x1, x2) - margin) where it is -1.

    Args:
        input1, input2: of shape (N, D) or (D). target: of shape (N) or ().
    """
    check_reduction("cosine_embedding_loss", reduction, size_average, reduce)
    if input1.shape != input2.shape or input1.ndim not in (1, 2) or target.shape != input1.shape[:-1]:
        raise ShapeError(
            "cosine_embedding_loss(): takes two inputs of shape (N, D) and targets of shape (N), or (D) and (), got "
            f"{tuple(input1.shape)}, {tuple(input2.shape)} and {tuple(target.shape)}"
        )
    cos = ops.cosine_similarity(input1, input2, dim=-1)
    loss = ops.where(ops.eq(target, 1), 1 - cos, 0.0)
    apart = ops.clamp_min(cos - margin, 0.0)
    return reduce_loss(loss + ops.where(ops.eq(target, -1), apart, 0.0), reduction)


def _triplets(s: Any) -> list[Any]:
    return [
        s((2, 3), (2, 3), (2, 3)), s((2, 3), (2, 3), (2, 3), margin=5.0, swap=True),
        s((3,), (3,), (3,), margin=5.0, reduction="sum"), s((2, 3), (2, 3), (2, 3), margin=5.0, reduction="none"),
        s.error(ValueError, "same number of dimensions", (2, 3), (3,), (2, 3)),
    ]  # fmt: skip


def _triplet(to_positive: Any, to_negative: Any, across: Any, margin: float, reduction: str) -> Any:
    nearest = to_negative if across is None else ops.minimum(to_negative, across)
    return reduce_loss(ops.clamp_min(margin + to_positive - nearest, 0.0), reduction)


def _check_triplet(name: str, anchor: Any, positive: Any, negative: Any, margin: float) -> None:
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            f"{name}(): anchor, positive and negative must have the same number of dimensions, got "
            f"{tuple(anchor.shape)}, {tuple(positive.shape)} and {tuple(negative.shape)}"
        )
    if margin <= 0:
        raise ValueError(f"{name}(): margin must be positive, got {margin}")


@composite(
    home="nn.functional",
    samples=lambda s: [
        *_triplets(s),
        s((2, 3), (2, 3), (2, 3), p=1.0),
        s.error(ValueError, "margin", (2, 3), (2, 3), (2, 3), margin=0),
    ],
)
def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2, eps: float = 1e-6, swap: bool = False,
    size_average: Any = None, reduce: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """Return max(0, d(a, p) - d(a, n) + margin), d the distance of order ``p`` along the last dimension.

    Args:
        swap: take the nearer of d(a, n) and d(p, n).

    Source: Balntas et al., "Learning shallow convolutional feature descriptors with triplet losses" (2016).
    """
    check_reduction("triplet_margin_loss", reduction, size_average, reduce)
    _check_triplet("triplet_margin_loss", anchor, positive, negative, margin)
    across = ops.pairwise_distance(positive, negative, p, eps) if swap else None
    to_positive = ops.pairwise_distance(anchor, positive, p, eps)
    return _triplet(to_positive, ops.pairwise_distance(anchor, negative, p, eps), across, margin, reduction)


@composite(home="nn.functional", samples=_triplets)
def triplet_margin_with_distance_loss(
    anchor: Any, positive: Any, negative: Any, *, distance_function: Any = None, margin: float = 1.0,
    swap: bool = False, reduction: str = "mean",
) -> Any:  # fmt: skip
    """Return max(0, d(a, p) - d(a, n) + margin) for a distance of one's own; see :func:`triplet_margin_loss`."""
    check_reduction("triplet_margin_with_distance_loss", reduction)
    _check_triplet("triplet_margin_with_distance_loss", anchor, positive, negative, margin)
    distance = ops.pairwise_distance if distance_function is None else distance_function
    across = distance(positive, negative) if swap else None
    return _triplet(distance(anchor, positive), distance(anchor, negative), across, margin, reduction)

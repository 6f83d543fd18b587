"""Losses between two tensors of the same shape (regression) and between pairs and triples of vectors.

``reduction`` is ``"mean"``, ``"sum"`` or ``"none"`` (one value per element). Losses of classes are in
:mod:`wengert.nn.classification_loss`.
"""

from collections.abc import Callable
from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.module import Module
from wengert.nn.sizes import number

__all__ = [
    "CosineEmbeddingLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss",
    "MarginRankingLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]  # fmt: skip


class Loss(Module):
    """What all losses share: the reduction."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        if size_average is not None or reduce is not None:
            raise TypeError(
                f"{type(self).__name__} takes reduction='mean', 'sum' or 'none', not size_average or reduce"
            )
        if not isinstance(reduction, str) or reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
        self.reduction = reduction


class WeightedLoss(Loss):
    """A loss with a weight per class, kept as a buffer."""

    weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(Loss):
    """|x - y|.

    Example:
        >>> import wengert as wg
        >>> wg.nn.L1Loss()(wg.tensor([1.0, 4.0]), wg.tensor([0.0, 1.0]))
        tensor(2.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.l1_loss(input, target, reduction=self.reduction)


class MSELoss(Loss):
    """(x - y)².

    Example:
        >>> import wengert as wg
        >>> wg.nn.MSELoss()(wg.tensor([1.0, 3.0]), wg.tensor([0.0, 0.0]))
        tensor(5.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(Loss):
    """(x - y)² / (2·beta) where |x - y| < beta, else |x - y| - beta/2 (Girshick, ICCV 2015).

    Example:
        >>> import wengert as wg
        >>> wg.nn.SmoothL1Loss()(wg.tensor([1.0, 3.0]), wg.tensor([0.0, 0.0]))
        tensor(1.5000)
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(Loss):
    """(x - y)² / 2 where |x - y| ≤ delta, else delta · (|x - y| - delta/2) (Huber, 1964).

    Example:
        >>> import wengert as wg
        >>> wg.nn.HuberLoss(delta=2.0)(wg.tensor([1.0, 3.0]), wg.tensor([0.0, 0.0]))
        tensor(2.2500)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class KLDivLoss(Loss):
    """y · (log y - x) for a target y and an input x = log q; with ``log_target`` the target is log y too.

    ``reduction="batchmean"`` divides the sum by the batch size, which is the divergence per sample.

    Example:
        >>> import wengert as wg
        >>> p = wg.tensor([[0.5, 0.5]])
        >>> wg.nn.KLDivLoss(reduction="batchmean")(p.log(), p)
        tensor(0.)
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
        log_target: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, "mean" if reduction == "batchmean" else reduction)
        self.reduction = reduction
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(Loss):
    """exp(x) - y·x, or x - y·log(x + eps) with ``log_input=False``; ``full`` adds Stirling's term for y > 1.

    Example:
        >>> import wengert as wg
        >>> wg.nn.PoissonNLLLoss()(wg.tensor([0.0]), wg.tensor([2.0]))
        tensor(1.)
    """

    def __init__(
        self, log_input: bool = True, full: bool = False, size_average: bool | None = None, eps: float = 1e-8,
        reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class GaussianNLLLoss(Loss):
    """(log v + (x - y)² / v) / 2 with v = max(var, eps); ``full`` adds log(2π) / 2.

    Example:
        >>> import wengert as wg
        >>> wg.nn.GaussianNLLLoss()(wg.tensor([2.0]), wg.tensor([0.0]), wg.tensor([1.0]))
        tensor(2.)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        """Return the loss for mean ``input``, observation ``target`` and variance ``var``."""
        return ops.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class SoftMarginLoss(Loss):
    """log(1 + exp(-y·x)) for targets y of ±1.

    Example:
        >>> import wengert as wg
        >>> wg.nn.SoftMarginLoss()(wg.tensor([0.0]), wg.tensor([1.0]))
        tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.soft_margin_loss(input, target, reduction=self.reduction)


class HingeEmbeddingLoss(Loss):
    """x where y = 1, max(0, margin - x) where y = -1.

    Example:
        >>> import wengert as wg
        >>> wg.nn.HingeEmbeddingLoss()(wg.tensor([0.5, 0.25]), wg.tensor([1, -1]))
        tensor(0.6250)
    """

    def __init__(
        self, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(Loss):
    """max(0, -y·(x1 - x2) + margin): y = 1 wants x1 above x2, y = -1 below.

    Example:
        >>> import wengert as wg
        >>> wg.nn.MarginRankingLoss()(wg.tensor([1.0]), wg.tensor([3.0]), wg.tensor([1.0]))
        tensor(2.)
    """

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(Loss):
    """1 - cos(x1, x2) where y = 1, max(0, cos(x1, x2) - margin) where y = -1.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor([[1.0, 0.0]])
        >>> wg.nn.CosineEmbeddingLoss()(x, -x, wg.tensor([1.0]))
        tensor(2.)
    """

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class TripletMarginLoss(Loss):
    """max(‖a - p‖ - ‖a - n‖ + margin, 0) for anchors, positives and negatives (Balntas et al., BMVC 2016).

    Args:
        p, eps: of the norm. swap: use the distance from positive to negative where it is the smaller one.

    Raises:
        ValueError: unless ``margin`` is positive.

    Example:
        >>> import wengert as wg
        >>> a = wg.zeros(1, 2)
        >>> wg.nn.TripletMarginLoss()(a, a, a)
        tensor(1.)
    """

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
        size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        if number(margin, "margin") <= 0:
            raise ValueError(f"margin must be greater than 0, got {margin}")
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Return the loss."""
        return ops.triplet_margin_loss(
            anchor, positive, negative, margin=self.margin, p=self.p, eps=self.eps, swap=self.swap,
            reduction=self.reduction,
        )  # fmt: skip


class TripletMarginWithDistanceLoss(Loss):
    """max(d(a, p) - d(a, n) + margin, 0) for any distance d (default: :func:`pairwise_distance`).

    Raises:
        ValueError: unless ``margin`` is positive.

    Example:
        >>> import wengert as wg
        >>> a = wg.zeros(1, 2)
        >>> wg.nn.TripletMarginWithDistanceLoss(distance_function=lambda x, y: (x - y).abs().sum(-1))(a, a, a)
        tensor(1.)
    """

    def __init__(
        self, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0,
        swap: bool = False, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(reduction=reduction)
        if number(margin, "margin") <= 0:
            raise ValueError(f"margin must be greater than 0, got {margin}")
        self.distance_function: Callable[..., Any] = distance_function or ops.pairwise_distance
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Return the loss."""
        return ops.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function, margin=self.margin, swap=self.swap,
            reduction=self.reduction,
        )  # fmt: skip

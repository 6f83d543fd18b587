"""Losses of classes: scores or probabilities against class numbers, class probabilities or labels."""

import math
from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.linear import Linear
from wengert.nn.loss import Loss, WeightedLoss
from wengert.operators.linear_cross_entropy import LinearCrossEntropyOptions

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CrossEntropyLoss", "LinearCrossEntropyLoss",
    "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "NLLLoss2d",
]  # fmt: skip


class NLLLoss(WeightedLoss):
    """-w_y · x_y for log-probabilities x (N, C, *) and class numbers y (N, *).

    Args:
        weight: one weight per class; the mean is then the weighted mean. ignore_index: a target that is left out.

    Example:
        >>> import wengert as wg
        >>> wg.nn.NLLLoss()(wg.tensor([[-1.0, -2.0]]), wg.tensor([1]))
        tensor(2.)
    """

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
        reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class NLLLoss2d(NLLLoss):
    """:class:`NLLLoss` of images, under the name of older programs.

    Example:
        >>> import wengert as wg
        >>> wg.nn.NLLLoss2d()(wg.full((1, 2, 1, 1), -1.0), wg.tensor([[[0]]]))
        tensor(1.)
    """


class CrossEntropyLoss(WeightedLoss):
    """-log softmax(x)_y for scores x (N, C, *) and class numbers y (N, *) or class probabilities (N, C, *).

    Args:
        weight, ignore_index: as :class:`NLLLoss`.
        label_smoothing: the share of the target spread evenly over all classes (Szegedy et al., CVPR 2016).

    Example:
        >>> import wengert as wg
        >>> wg.nn.CrossEntropyLoss()(wg.tensor([[0.0, 1000.0]]), wg.tensor([0]))
        tensor(1000.)
    """

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
        reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.cross_entropy(
            input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )  # fmt: skip


class LinearCrossEntropyLoss(WeightedLoss):
    """:class:`CrossEntropyLoss` of a linear layer's scores, which need not exist all at once.

    Args:
        in_features: D, of the input (N, D). num_classes: C. out_features: further dimensions of the loss, (d_1, …).
        bias: whether the linear layer adds one. weight: one per class. ignore_index: -100 by default, for class numbers.
        label_smoothing: as :class:`CrossEntropyLoss`. options: a :class:`LinearCrossEntropyOptions`, for parts at a time.

    Shape:
        input (N, D) or (D,); target class numbers (N, d_1, …) or probabilities (N, C, d_1, …).
        ``linear.weight`` is (C · d_1 · …, D).

    Raises:
        RuntimeError: for a weight of another shape, or ``label_smoothing`` outside [0, 1].

    Example:
        >>> import wengert as wg
        >>> loss = wg.nn.LinearCrossEntropyLoss(3, 4)
        >>> loss(wg.zeros(2, 3), wg.tensor([1, 0])).detach()
        tensor(1.3863)
    """

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (), bias: bool = False,
        device: Any = None, dtype: Any = None, reduction: str = "mean", weight: Tensor | None = None,
        ignore_index: int | None = None, label_smoothing: float = 0.0, options: LinearCrossEntropyOptions | None = None,
    ) -> None:  # fmt: skip
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"weight must have shape {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"label_smoothing must lie between 0 and 1, got {label_smoothing}")
        super().__init__(weight, None, None, reduction)
        self.num_classes = num_classes
        self.out_features = tuple(out_features)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.linear = Linear(in_features, math.prod(out_features, start=num_classes), bias, device, dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        shape, bias = (self.num_classes, *self.out_features), self.linear.bias
        return ops.linear_cross_entropy(
            input, ops.reshape(self.linear.weight, (*shape, self.linear.in_features)), target,
            linear_bias=None if bias is None else ops.reshape(bias, shape), weight=self.weight,
            reduction=self.reduction, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing,
            options=self.options,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Sizes and settings."""
        shown = {
            "in_features": self.linear.in_features, "num_classes": self.num_classes, "out_features": self.out_features,
            "bias": self.linear.bias is not None, "reduction": self.reduction, "ignore_index": self.ignore_index,
            "label_smoothing": self.label_smoothing, "options": self.options,
        }  # fmt: skip
        return ", ".join(f"{name}={value}" for name, value in shown.items())


class BCELoss(WeightedLoss):
    """-w · (y·log x + (1 - y)·log(1 - x)) for probabilities x and y; the logarithms are kept above -100.

    Prefer :class:`BCEWithLogitsLoss`, which stays exact where a sigmoid saturates.

    Example:
        >>> import wengert as wg
        >>> wg.nn.BCELoss()(wg.tensor([0.5]), wg.tensor([1.0]))
        tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(Loss):
    """:class:`BCELoss` of sigmoid(x), computed from the scores x without overflow.

    Args:
        weight: per element. pos_weight: factor of the positive term, one per class.

    Example:
        >>> import wengert as wg
        >>> wg.nn.BCEWithLogitsLoss()(wg.tensor([-1000.0]), wg.tensor([1.0]))
        tensor(1000.)
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean", pos_weight: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class MultiMarginLoss(WeightedLoss):
    """Σ_i max(0, margin - x_y + x_i)^p / C over i ≠ y, for scores x (N, C) and class numbers y (N,).

    Raises:
        ValueError: unless p is 1 or 2.

    Example:
        >>> import wengert as wg
        >>> wg.nn.MultiMarginLoss()(wg.tensor([[0.0, 1.0]]), wg.tensor([0]))
        tensor(1.)
    """

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: bool | None = None,
        reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError(f"MultiMarginLoss supports p = 1 and p = 2, got {p}")
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.multi_margin_loss(
            input, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction
        )


class MultiLabelMarginLoss(Loss):
    """Σ max(0, 1 - (x_j - x_i)) / C over labels j and other classes i; targets list labels, ended by -1.

    Example:
        >>> import wengert as wg
        >>> wg.nn.MultiLabelMarginLoss()(wg.tensor([[0.0, 1.0]]), wg.tensor([[0, -1]]))
        tensor(1.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(WeightedLoss):
    """The mean over classes of -w · (y·log σ(x) + (1 - y)·log σ(-x)).

    Example:
        >>> import wengert as wg
        >>> wg.nn.MultiLabelSoftMarginLoss()(wg.zeros(1, 2), wg.ones(1, 2))
        tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return ops.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class CTCLoss(Loss):
    """-log of the probability of a label sequence, summed over its alignments (Graves et al., ICML 2006).

    Args:
        blank: the number of the blank label. zero_infinity: give 0, not ∞, where no alignment is possible.

    Shape:
        log-probabilities (T, N, C) or (T, C); targets (N, S) or all of them joined; lengths (N,).

    Example:
        >>> import wengert as wg
        >>> log_probs = wg.full((2, 1, 2), 0.5).log()
        >>> wg.nn.CTCLoss()(log_probs, wg.tensor([[1]]), wg.tensor([2]), wg.tensor([1]))
        tensor(0.2877)
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        """Return the loss."""
        return ops.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )

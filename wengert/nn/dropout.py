"""Dropout: in training some elements are set to zero at random and the rest scaled up; evaluation changes nothing."""

import math
from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.module import Module
from wengert.nn.sizes import number

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


_SATURATION = -1.7580993408473766  # SELU at minus infinity: -scale · alpha


class _Dropout(Module):
    _shown = ("p", "inplace")

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0.0 <= number(p, "p") <= 1.0:
            raise ValueError(f"the probability of dropout must lie between 0 and 1, got {p}")
        self.p = p
        self.inplace = inplace

    def _drop(self, operator: Any, input: Tensor) -> Tensor:
        return operator(input, self.p, True, self.inplace) if self.training else input


class Dropout(_Dropout):
    """Sets each element to zero with probability ``p`` and divides the others by 1 - p (Srivastava et al., JMLR 2014).

    Raises:
        ValueError: unless 0 ≤ p ≤ 1.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Dropout(0.5).eval()(wg.ones(3))
        tensor([1., 1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with elements dropped."""
        return self._drop(ops.dropout, input)


class Dropout1d(_Dropout):
    """Sets whole channels of (N, C, L) or (C, L) to zero.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Dropout1d(1.0)(wg.ones(1, 2, 3)).sum()
        tensor(0.)
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with channels dropped."""
        return self._drop(ops.dropout1d, input)


class Dropout2d(_Dropout):
    """Sets whole channels of (N, C, H, W) or (C, H, W) to zero (Tompson et al., CVPR 2015).

    Example:
        >>> import wengert as wg
        >>> wg.nn.Dropout2d(1.0)(wg.ones(1, 2, 3, 3)).sum()
        tensor(0.)
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with channels dropped."""
        return self._drop(ops.dropout2d, input)


class Dropout3d(_Dropout):
    """Sets whole channels of (N, C, D, H, W) or (C, D, H, W) to zero.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Dropout3d(1.0)(wg.ones(1, 2, 3, 3, 3)).sum()
        tensor(0.)
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with channels dropped."""
        return self._drop(ops.dropout3d, input)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean 0 and variance 1, for networks of SELU (Klambauer et al., NeurIPS 2017).

    Example:
        >>> import wengert as wg
        >>> wg.nn.AlphaDropout(0.5).eval()(wg.ones(3))
        tensor([1., 1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with elements sent to SELU's negative saturation."""
        return self._drop(ops.alpha_dropout, input)


class FeatureAlphaDropout(_Dropout):
    """:class:`AlphaDropout` of whole channels: dropped ones get the value α of SELU's negative saturation.

    With m = 1 for kept and 0 for dropped channels the result is a · (x · m + α · (1 - m)) + b, where a and b restore
    variance and mean (Klambauer et al., NeurIPS 2017, section 2).

    Example:
        >>> import wengert as wg
        >>> wg.nn.FeatureAlphaDropout(0.5).eval()(wg.ones(1, 3))
        tensor([[1., 1., 1.]])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with channels sent to SELU's negative saturation."""
        return self._drop(_feature_alpha_dropout, input)


def _feature_alpha_dropout(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    scale = 0.0 if p == 1.0 else 1 / math.sqrt((1 - p) * (1 + p * _SATURATION**2))
    kept = (ops.feature_dropout(ops.ones_like(input), p, training) != 0).to(input.dtype)
    shift = (1 - kept) * (scale * _SATURATION) - scale * _SATURATION * p
    factor = kept * scale
    return ops.add_(ops.mul_(input, factor), shift) if inplace else ops.add(ops.mul(input, factor), shift)

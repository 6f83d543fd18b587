"""Normalisation within one sample: over trailing dimensions, over groups of channels, across channels."""

from collections.abc import Sequence
from typing import Any

from wengert.array.shape import as_int, size_of
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn import init
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter, unset

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class LayerNorm(Module):
    """(x - mean) / √(variance + eps) · weight + bias over the last dimensions (Ba et al., 2016).

    Args:
        normalized_shape: the sizes of the dimensions normalised over (an int for the last one).
        eps: added to the biased variance. elementwise_affine: learn a weight and (``bias``) a bias per element.

    Example:
        >>> import wengert as wg
        >>> wg.nn.LayerNorm(2)(wg.tensor([1.0, 3.0])).tolist()
        [-0.9999949932098389, 0.9999949932098389]
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", unset(self.normalized_shape, device, dtype, elementwise_affine))
        self.register_parameter("bias", unset(self.normalized_shape, device, dtype, elementwise_affine and bias))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start the weight at 1 and the bias at 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input."""
        return ops.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The shape and settings."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """x / √(mean(x²) + eps) · weight over the last dimensions (Zhang & Sennrich, NeurIPS 2019).

    Args:
        normalized_shape: as :class:`LayerNorm`. eps: None takes the machine epsilon of the input's dtype.
        elementwise_affine: learn a weight per element.

    Example:
        >>> import wengert as wg
        >>> wg.nn.RMSNorm(2, eps=0.0)(wg.tensor([3.0, 3.0])).tolist()
        [1.0, 1.0]
    """

    weight: Parameter | None

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", unset(self.normalized_shape, device, dtype, elementwise_affine))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start the weight at 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input."""
        return ops.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """The shape and settings."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalises groups of channels of (N, C, *) to mean 0 and variance 1 (Wu & He, ECCV 2018).

    Args:
        num_groups: how many groups; it divides ``num_channels``. affine: learn a weight and (``bias``) a bias per
            channel.

    Raises:
        ValueError: if ``num_groups`` does not divide ``num_channels``.

    Example:
        >>> import wengert as wg
        >>> wg.nn.GroupNorm(2, 4)(wg.zeros(1, 4, 3)).shape
        wengert.Size([1, 4, 3])
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if as_int(num_groups, "num_groups") <= 0 or as_int(num_channels, "num_channels") % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.register_parameter("weight", unset(num_channels, device, dtype, affine))
        self.register_parameter("bias", unset(num_channels, device, dtype, affine and bias))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start the weight at 1 and the bias at 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input."""
        return ops.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Groups, channels and settings."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """x / (k + alpha · mean of x² over ``size`` neighbouring channels)^beta for (N, C, *) (Krizhevsky et al., 2012).

    Example:
        >>> import wengert as wg
        >>> wg.nn.LocalResponseNorm(1, alpha=3.0, beta=1.0)(wg.ones(1, 2, 1)).flatten()
        tensor([0.2500, 0.2500])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input."""
        return ops.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """The settings."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """:class:`LocalResponseNorm` for (N, C, H, W), under the name of older programs.

    Example:
        >>> import wengert as wg
        >>> wg.nn.CrossMapLRN2d(1, alpha=3.0, beta=1.0)(wg.ones(1, 1, 1, 1)).item()
        0.25
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return size_of(normalized_shape, "normalized_shape")

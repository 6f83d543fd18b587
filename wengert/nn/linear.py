"""Linear and bilinear maps."""

import math
from typing import Any

from wengert.array.shape import as_int
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn import init
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter, unset

__all__ = ["Bilinear", "Identity", "Linear"]


class Identity(Module):
    """Returns its input; any arguments are accepted and ignored.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Identity(54, unused=True)(wg.ones(2))
        tensor([1., 1.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input``."""
        return input


class Linear(Module):
    """y = x Wᵀ + b.

    Args:
        in_features, out_features: sizes of the last dimension of input and output.
        bias: whether to add b.

    Shape:
        input (*, in_features), output (*, out_features). ``weight`` is (out_features, in_features), ``bias``
        (out_features,); both start uniform on [-1/√in_features, 1/√in_features].

    Example:
        >>> import wengert as wg
        >>> wg.nn.Linear(3, 2)(wg.ones(5, 3)).shape
        wengert.Size([5, 2])
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.register_parameter("weight", unset((out_features, in_features), device, dtype))
        self.register_parameter("bias", unset(out_features, device, dtype, bias))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new starting values."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input @ weight.T + bias``."""
        return ops.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes, and whether there is a bias."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """y_k = x1ᵀ A_k x2 + b_k.

    Args:
        in1_features, in2_features, out_features: sizes of the last dimensions. bias: whether to add b.

    Shape:
        inputs (*, in1_features) and (*, in2_features), output (*, out_features); ``weight`` is
        (out_features, in1_features, in2_features).

    Raises:
        ValueError: if ``in1_features`` is not positive.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Bilinear(3, 4, 2)(wg.ones(5, 3), wg.ones(5, 4)).shape
        wengert.Size([5, 2])
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if as_int(in1_features, "in1_features") <= 0:
            raise ValueError(f"in1_features must be positive, got {in1_features}")
        super().__init__()
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.register_parameter("weight", unset((out_features, in1_features, in2_features), device, dtype))
        self.register_parameter("bias", unset(out_features, device, dtype, bias))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new starting values, uniform on [-1/√in1_features, 1/√in1_features]."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """Return the bilinear form of ``input1`` and ``input2``."""
        return ops.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes, and whether there is a bias."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )

"""Non-linearities applied element by element. The formulas are in each docstring; x is the input.

Every layer takes an input of any shape and returns one of the same shape. With ``inplace=True`` the result is written
into the input's memory.
"""

from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.nn.sizes import number
from wengert.tape.modes import no_grad

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
    "LogSigmoid", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SiLU", "Sigmoid", "Softplus", "Softshrink", "Softsign",
    "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class _Inplace(Module):
    """A layer whose only setting is ``inplace``."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        """``inplace=True``, if it is."""
        return "inplace=True" if self.inplace else ""


class ReLU(_Inplace):
    """max(x, 0). The gradient at 0 is 0.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ReLU()(wg.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return max(input, 0)."""
        return ops.relu(input, True) if self.inplace else ops.relu(input)


class ReLU6(_Inplace):
    """min(max(x, 0), 6).

    Example:
        >>> import wengert as wg
        >>> wg.nn.ReLU6()(wg.tensor([-1.0, 2.0, 7.0]))
        tensor([0., 2., 6.])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input clipped to [0, 6]."""
        return ops.relu6(input, self.inplace)


class SELU(_Inplace):
    """1.0507 · (max(x, 0) + min(0, 1.6733 · (exp(x) - 1))) (Klambauer et al., NeurIPS 2017).

    Example:
        >>> import wengert as wg
        >>> wg.nn.SELU()(wg.tensor([0.0, 1.0]))
        tensor([0.0000, 1.0507])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return SELU of the input."""
        return ops.selu(input, self.inplace)


class SiLU(_Inplace):
    """x · sigmoid(x), also called swish.

    Example:
        >>> import wengert as wg
        >>> wg.nn.SiLU()(wg.tensor([0.0, 1.0]))
        tensor([0.0000, 0.7311])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return input · sigmoid(input)."""
        return ops.silu(input, self.inplace)


class Mish(_Inplace):
    """x · tanh(softplus(x)) (Misra, BMVC 2020).

    Example:
        >>> import wengert as wg
        >>> wg.nn.Mish()(wg.tensor([0.0, 1.0]))
        tensor([0.0000, 0.8651])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return input · tanh(softplus(input))."""
        return ops.mish(input, self.inplace)


class Hardsigmoid(_Inplace):
    """min(max(x / 6 + 1/2, 0), 1).

    Example:
        >>> import wengert as wg
        >>> wg.nn.Hardsigmoid()(wg.tensor([-4.0, 0.0]))
        tensor([0.0000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the piecewise linear sigmoid."""
        return ops.hardsigmoid(input, self.inplace)


class Hardswish(_Inplace):
    """x · hardsigmoid(x) (Howard et al., ICCV 2019).

    Example:
        >>> import wengert as wg
        >>> wg.nn.Hardswish()(wg.tensor([-4.0, 3.0])).tolist()
        [-0.0, 3.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return input · hardsigmoid(input)."""
        return ops.hardswish(input, self.inplace)


class Threshold(Module):
    """x where x > threshold, else ``value``.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Threshold(0.5, 9.0)(wg.tensor([0.0, 1.0]))
        tensor([9., 1.])
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the thresholded input."""
        return ops.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        """The two numbers."""
        return f"threshold={self.threshold}, value={self.value}" + (", inplace=True" if self.inplace else "")


class Hardtanh(Module):
    """min(max(x, min_val), max_val).

    Raises:
        ValueError: unless ``min_val < max_val``.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Hardtanh(-1.0, 1.0)(wg.tensor([-3.0, 0.0, 3.0]))
        tensor([-1.,  0.,  1.])
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        if number(max_val, "max_val") <= number(min_val, "min_val"):
            raise ValueError(f"Hardtanh needs min_val < max_val, got {min_val} and {max_val}")
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the clipped input."""
        return ops.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        """The two bounds."""
        return f"min_val={self.min_val}, max_val={self.max_val}" + (", inplace=True" if self.inplace else "")


class RReLU(Module):
    """Leaky ReLU whose negative slope is drawn from [lower, upper] in training and is their mean in evaluation.

    Example:
        >>> import wengert as wg
        >>> wg.nn.RReLU(0.25, 0.75).eval()(wg.tensor([-2.0, 2.0]))
        tensor([-1.,  2.])
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the randomly leaky input."""
        return ops.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        """The range of slopes."""
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class ELU(Module):
    """x where x > 0, else alpha · (exp(x) - 1) (Clevert et al., ICLR 2016).

    Example:
        >>> import wengert as wg
        >>> wg.nn.ELU()(wg.tensor([-1.0, 1.0]))
        tensor([-0.6321,  1.0000])
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return ELU of the input."""
        return ops.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """The scale of the negative side."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(Module):
    """max(x, 0) + min(0, alpha · (exp(x / alpha) - 1)) (Barron, 2017).

    Example:
        >>> import wengert as wg
        >>> wg.nn.CELU(2.0)(wg.tensor([-2.0, 1.0]))
        tensor([-1.2642,  1.0000])
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return CELU of the input."""
        return ops.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """The scale of the negative side."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class LeakyReLU(Module):
    """x where x ≥ 0, else negative_slope · x.

    Example:
        >>> import wengert as wg
        >>> wg.nn.LeakyReLU(0.5)(wg.tensor([-2.0, 2.0]))
        tensor([-1.,  2.])
    """

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the leaky input."""
        return ops.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        """The slope."""
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class PReLU(Module):
    """x where x ≥ 0, else w · x with a learned w, one for all channels or one for each (He et al., ICCV 2015).

    Args:
        num_parameters: 1, or the number of channels (dimension 1). init: the starting value of w.

    Example:
        >>> import wengert as wg
        >>> wg.nn.PReLU()(wg.tensor([-4.0, 4.0])).tolist()
        [-1.0, 4.0]
    """

    weight: Parameter
    _shown = ("num_parameters",)

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(ops.full((num_parameters,), init, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Set the starting value again."""
        with no_grad():
            self.weight.fill_(self.init)

    def forward(self, input: Tensor) -> Tensor:
        """Return the leaky input."""
        return ops.prelu(input, self.weight)


class GELU(Module):
    """x · Φ(x), Φ the normal distribution function; with ``approximate="tanh"`` its tanh approximation
    (Hendrycks & Gimpel, 2016).

    Example:
        >>> import wengert as wg
        >>> wg.nn.GELU()(wg.tensor([0.0, 1.0]))
        tensor([0.0000, 0.8413])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Return GELU of the input."""
        return ops.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """Which formula."""
        return f"approximate={self.approximate!r}"


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    Example:
        >>> import wengert as wg
        >>> wg.nn.Sigmoid()(wg.tensor([0.0]))
        tensor([0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the logistic function of the input."""
        return ops.sigmoid(input)


class LogSigmoid(Module):
    """log(sigmoid(x)), without overflow or loss of digits for large |x|.

    Example:
        >>> import wengert as wg
        >>> wg.nn.LogSigmoid()(wg.tensor([-1000.0])).item()
        -1000.0
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the logarithm of the sigmoid."""
        return ops.logsigmoid(input)


class Tanh(Module):
    """tanh(x).

    Example:
        >>> import wengert as wg
        >>> wg.nn.Tanh()(wg.tensor([0.0, 1.0]))
        tensor([0.0000, 0.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return tanh of the input."""
        return ops.tanh(input)


class Tanhshrink(Module):
    """x - tanh(x).

    Example:
        >>> import wengert as wg
        >>> wg.nn.Tanhshrink()(wg.tensor([0.0, 1.0]))
        tensor([0.0000, 0.2384])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return input - tanh(input)."""
        return ops.tanhshrink(input)


class Softsign(Module):
    """x / (1 + |x|).

    Example:
        >>> import wengert as wg
        >>> wg.nn.Softsign()(wg.tensor([1.0]))
        tensor([0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return input / (1 + |input|)."""
        return ops.softsign(input)


class Softplus(Module):
    """log(1 + exp(beta · x)) / beta; x itself where beta · x > threshold.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Softplus()(wg.tensor([0.0, 100.0])).tolist()
        [0.6931471824645996, 100.0]
    """

    _shown = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """Return the softplus of the input."""
        return ops.softplus(input, self.beta, self.threshold)


class Hardshrink(Module):
    """x where |x| > lambd, else 0.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Hardshrink()(wg.tensor([-2.0, 0.3]))
        tensor([-2.,  0.])
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """Return the shrunk input."""
        return ops.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """The threshold."""
        return f"{self.lambd}"


class Softshrink(Module):
    """x - lambd where x > lambd, x + lambd where x < -lambd, else 0.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Softshrink()(wg.tensor([-2.0, 0.3]))
        tensor([-1.5000,  0.0000])
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """Return the shrunk input."""
        return ops.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """The threshold."""
        return f"{self.lambd}"


class GLU(Module):
    """a · sigmoid(b), a and b the two halves of the input along ``dim`` (Dauphin et al., ICML 2017).

    Example:
        >>> import wengert as wg
        >>> wg.nn.GLU()(wg.tensor([4.0, 0.0]))
        tensor([2.])
    """

    _shown = ("dim",)

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the gated half."""
        return ops.glu(input, self.dim)

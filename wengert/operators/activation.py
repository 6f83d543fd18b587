"""Activation functions of neural networks, element by element.

Written so that neither they nor their derivatives of any order overflow: exponentials are taken of negative numbers
only, or where an infinite one gives the right limit.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.array.shape import axis_of
from wengert.core.arguments import Anything, Floating, FloatingOrScalar, Inexact, Real
from wengert.core.families import composite, elementwise
from wengert.core.registry import ops
from wengert.errors import DTypeError, ShapeError
from wengert.kernels.blocks import Unary
from wengert.kernels.special import normal_distribution

__all__ = [
    "celu", "elu", "glu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish", "prelu", "relu", "relu6",
    "rrelu", "selu", "sigmoid", "silu", "softplus", "threshold",
]  # fmt: skip

SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def common(s: Any) -> list[Any]:
    """The samples that every activation gets."""
    inf, nan = math.inf, math.nan
    return [
        s((2, 3)), s(()), s((0,)), s((2,), low=20.0, high=90.0), s((2,), low=-90.0, high=-20.0),
        s(s.array([0.0, nan]), grad=False), s(s.array([inf, -inf]), grad=False),
    ]  # fmt: skip


def kinked(s: Any) -> list[Any]:
    """The samples of activations of real numbers."""
    return [*common(s), s.error(TypeError, "tensor", (2,), kind="complex")]


def smooth(s: Any) -> list[Any]:
    """The samples of activations of real numbers without kinks."""
    return [*kinked(s), s(s.array([0.0, -1e-9]))]


def _no_bool(name: str, array: Any) -> None:
    if array.dtype.kind == "b":
        raise DTypeError(f"{name}(): not defined for bool tensors; convert with .to(wengert.float32)")


def switchable(function: Callable[..., Any]) -> Any:
    """Let ``inplace=True`` choose the in-place twin of an activation, as in ``torch.nn.functional``."""
    op: Any = function.op  # type: ignore[attr-defined]
    writer, place = getattr(ops, f"{op.name}_"), op.signature.index["inplace"]

    @functools.wraps(function)
    def activation(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not args and not kwargs:
            return function(input)
        inplace = args[place - 1] if len(args) >= place else kwargs.pop("inplace", False)
        return (writer if inplace else function)(input, *args[: place - 1], **kwargs)

    op.function = activation
    setattr(ops, op.name, activation)
    return activation


# ---- rectifiers


@switchable
@elementwise(
    Unary(functools.partial(np.maximum, 0)),
    derivative={"input": lambda g, out: ops.where(out <= 0, 0, g)},
    home=("", "nn.functional"),
    samples=lambda s: [*kinked(s), s((3,), kind="integer"), s.error(TypeError, "bool", (2,), kind="boolean")],
)
def relu(input: Real, inplace: bool = False) -> Any:
    """Return ``max(input, 0)``, element by element. The gradient at 0 is 0."""
    _no_bool("relu", input)
    return np.maximum(input, 0, dtype=input.dtype)


def _clipped_slope(g: Any, input: Any, min_val: Any, max_val: Any) -> Any:
    return ops.where(ops.logical_or(input <= min_val, input >= max_val), 0, g)


@switchable
@elementwise(
    derivative={"input": _clipped_slope},
    home=("nn.functional",),
    samples=lambda s: [
        *kinked(s), s((2, 3), -0.5, 0.25), s((3,), kind="integer"), s.error(ValueError, "min_val", (2,), 1.0, -1.0),
    ],
)  # fmt: skip
def hardtanh(input: Real, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    """Return the elements clipped to ``[min_val, max_val]``. The gradient at the bounds is 0."""
    _no_bool("hardtanh", input)
    if min_val > max_val:
        raise ValueError(f"hardtanh(): min_val={min_val} must not exceed max_val={max_val}")
    return np.clip(input, input.dtype.type(min_val), input.dtype.type(max_val))


@switchable
@elementwise(
    derivative={"input": lambda g, input: _clipped_slope(g, input, 0, 6)},
    home=("nn.functional",),
    samples=lambda s: [*kinked(s), s((2, 3), low=-3.0, high=9.0)],
)
def relu6(input: Real, inplace: bool = False) -> Any:
    """Return ``min(max(input, 0), 6)``, element by element."""
    _no_bool("relu6", input)
    return np.clip(input, input.dtype.type(0), input.dtype.type(6))


@switchable
@elementwise(
    derivative={"input": lambda g, input, negative_slope: ops.where(input > 0, g, g * negative_slope)},
    home=("nn.functional",),
    samples=lambda s: [*kinked(s), s((2, 3), 0.2), s((2, 3), negative_slope=-0.5)],
)
def leaky_relu(input: Floating, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """Return the positive elements, and the others times ``negative_slope``."""
    return np.where(input > 0, input, input * input.dtype.type(negative_slope))


@elementwise(
    derivative={
        "input": lambda g, input, weight: ops.where(input > 0, g, g * weight),
        "weight": lambda g, input: ops.where(input > 0, 0, g * ops.where(input > 0, 0, input)),
    },
    home=(),
    inplace=False,
    samples=lambda s: [
        s((2, 3), (3,)), s((2, 3), ()), s((0,), ()), s(s.array([0.0, math.inf, -2.0]), s.array([0.5]), grad=False),
    ],
)  # fmt: skip
def sloped(input: Floating, weight: FloatingOrScalar) -> Any:
    """Return the positive elements, and the others times a slope of their own: what prelu and rrelu are made of."""
    return np.where(input > 0, input, input * weight)


@composite(
    method=True,
    home=("", "nn.functional"),
    samples=lambda s: [
        s((2, 3), (1,)), s((2, 3), (3,)), s((2, 3, 2), (3,)), s((3,), (1,)), s((2, 3), ()),
        s.error(ValueError, "weight", (2, 3), (2,)),
    ],
)  # fmt: skip
def prelu(input: Any, weight: Any) -> Any:
    """Return the positive elements, and the others times a learned slope.

    Args:
        weight: one slope, or one for each channel (dimension 1 of ``input``).
    """
    if weight.ndim > 1 or (weight.numel() != 1 and (input.ndim < 2 or weight.numel() != input.shape[1])):
        raise ShapeError(f"prelu(): weight of shape {tuple(weight.shape)} must hold one slope, or one for each channel "
                         f"(dimension 1) of the input of shape {tuple(input.shape)}")  # fmt: skip
    if weight.numel() != 1:
        weight = ops.reshape(weight, (-1,) + (1,) * (input.ndim - 2))
    elif input.ndim == 0:
        weight = ops.reshape(weight, ())
    return ops.sloped(input, weight)


@composite(
    inplace=True,
    home=("", "nn.functional"),
    samples=lambda s: [s((2, 3)), s((2, 3), 0.1, 0.3), s.error(ValueError, "lower", (2,), 0.5, 0.1)],
)
def rrelu(
    input: Any, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Any:
    """Return the positive elements, and the others times a slope (B. Xu et al., arXiv 1505.00853).

    Args:
        lower, upper: bounds of the slopes. training: draw a slope for each element; otherwise all have their mean.
    """
    if lower > upper:
        raise ValueError(f"rrelu(): lower={lower} must not exceed upper={upper}")
    if inplace:
        return ops.rrelu_(input, lower, upper, training)
    if not training:
        return ops.leaky_relu(input, (lower + upper) / 2)
    return ops.sloped(input, ops.rand(input.shape, dtype=input.dtype) * (upper - lower) + lower)


# ---- exponential units


def _elu(x: Any, alpha: float, rate: float = 1.0) -> Any:
    kind = x.dtype.type
    return np.where(x > 0, x, kind(alpha) * np.expm1(np.minimum(x, 0) * kind(rate)))


def _elu_slope(g: Any, x: Any, factor: Any, rate: Any = 1) -> Any:
    """Return g for positive x, g · factor · exp(rate · x) for the others; no positive number is exponentiated."""
    return ops.where(x > 0, g, g * (ops.exp(ops.clamp(x, max=0) * rate) * factor))


@switchable
@elementwise(
    derivative={"input": lambda g, input, alpha: _elu_slope(g, input, alpha)},
    flops=12,
    home=("nn.functional",),
    samples=lambda s: [*kinked(s), s((2, 3), 2.5), s((2, 3), alpha=-0.5)],
)
def elu(input: Floating, alpha: float = 1.0, inplace: bool = False) -> Any:
    """Return the positive elements, and ``alpha * (exp(input) - 1)`` for the others."""
    return _elu(input, alpha)


@switchable
@elementwise(
    derivative={"input": lambda g, input: SELU_SCALE * _elu_slope(g, input, SELU_ALPHA)},
    flops=13,
    home=("", "nn.functional"),
    samples=kinked,
)
def selu(input: Floating, inplace: bool = False) -> Any:
    """Return ``scale * elu(input, alpha)`` with self-normalising constants (G. Klambauer et al., arXiv 1706.02515)."""
    return input.dtype.type(SELU_SCALE) * _elu(input, SELU_ALPHA)


@switchable
@elementwise(
    derivative={"input": lambda g, input, alpha: _elu_slope(g, input, 1, 1 / alpha)},
    flops=13,
    home=("", "nn.functional"),
    samples=lambda s: [*kinked(s), s((2, 3), 2.5), s.error(ValueError, "alpha", (2,), 0.0)],
)
def celu(input: Floating, alpha: float = 1.0, inplace: bool = False) -> Any:
    """Return the positive elements, ``alpha * (exp(input / alpha) - 1)`` for the others (arXiv 1704.07483)."""
    if alpha == 0:
        raise ValueError("celu(): alpha must not be 0")
    return _elu(input, alpha, 1 / alpha)


# ---- sigmoid and what is made of it


def _sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)): where the exponential overflows the quotient is 0, as it should be."""
    if x.dtype.kind == "c":  # there it would be nan
        falling = x.real < 0
        power = np.exp(np.where(falling, x, -x))
        return np.where(falling, power, 1) / (1 + power)
    out = np.negative(x, np.empty_like(x))
    np.exp(out, out)
    np.add(out, 1, out)
    return np.divide(1, out, out)


@elementwise(
    Unary(_sigmoid),
    lowering="sigmoid", derivative={"input": lambda g, out: g * (out * (1 - out))},
    promote="float",
    flops=12,
    home=("", "nn.functional"),
    aliases=("special_expit",),
    samples=lambda s: [
        *common(s), s(s.array([0.0, -1e-9])), s((2,), kind="complex"), s((2,), kind="integer"),
        s((2,), kind="boolean"), s(s.array([-900 + 1j, 900 + 1j, -1 + 3j])),
    ],
)  # fmt: skip
def sigmoid(input: Anything) -> Any:
    """Return ``1 / (1 + exp(-input))``, element by element. Derivative: s(1 - s)."""


def _log_sigmoid(x: Any) -> Any:
    """Return min(x, 0) - log(1 + exp(-|x|))."""
    out = np.abs(x, np.empty_like(x))
    np.log1p(np.exp(np.negative(out, out), out), out)
    return np.subtract(np.minimum(x, 0), out, out)


@elementwise(
    Unary(_log_sigmoid),
    lowering="log_sigmoid",
    derivative={"input": lambda g, input: g * ops.sigmoid(-input)},
    flops=20,
    home=("nn.functional",),
    aliases=("log_sigmoid",),
    inplace=False,
    samples=smooth,
)
def logsigmoid(input: Floating) -> Any:
    """Return ``log(sigmoid(input))`` without overflow. Derivative: sigmoid(-x)."""


def _silu_slope(g: Any, input: Any) -> Any:
    s = ops.sigmoid(input)
    return g * (s * (1 + input * (1 - s)))


@switchable
@elementwise(
    Unary(lambda x: np.multiply(x, _sigmoid(x))),
    lowering=lambda inplace: "silu",
    derivative={"input": _silu_slope},
    flops=13,
    home=("nn.functional",),
    samples=lambda s: [*common(s), s(s.array([0.0, -1e-9])), s((2,), kind="complex")],
)
def silu(input: Inexact, inplace: bool = False) -> Any:
    """Return ``input * sigmoid(input)``, also named swish."""
    return input * _sigmoid(input)


def _soft_tanh(x: Any) -> Any:
    """Return tanh(log(1 + eˣ)): with e = exp(-|x|), (1+2e) / (1+2e+2e²) for x ≥ 0, (e²+2e) / (e²+2e+2) below."""
    e = np.exp(-np.abs(x))
    square = e * e
    top = np.where(x >= 0, 1, square) + 2 * e
    return top / (top + 2 * np.where(x >= 0, square, 1))


def _mish_slope(g: Any, input: Any) -> Any:
    t = ops.tanh(ops.softplus(input))
    return g * (t + input * ops.sigmoid(input) * (1 - t * t))


@switchable
@elementwise(derivative={"input": _mish_slope}, flops=25, home=("nn.functional",), samples=smooth)
def mish(input: Floating, inplace: bool = False) -> Any:
    """Return ``input * tanh(softplus(input))`` (D. Misra, arXiv 1908.08681)."""
    return input * _soft_tanh(input)


def _soft_plus(x: Any) -> Any:
    """Return max(x, 0) + log(1 + exp(-|x|))."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@elementwise(
    derivative={
        "input": lambda g, input, beta, threshold: ops.where(
            input * beta > threshold, g, g * ops.sigmoid(input * beta)
        ),
    },
    flops=20,
    home=("nn.functional",),
    inplace=False,
    samples=lambda s: [
        *smooth(s), s((2, 3), 2.0), s((2, 3), beta=0.5, threshold=0.25), s.error(ValueError, "beta", (2,), 0.0),
    ],
)  # fmt: skip
def softplus(input: Floating, beta: float = 1, threshold: float = 20) -> Any:
    """Return ``log(1 + exp(beta * input)) / beta``, and the input itself where ``beta * input > threshold``."""
    if beta == 0:
        raise ValueError("softplus(): beta must not be 0")
    scaled = input * input.dtype.type(beta)
    return np.where(scaled > threshold, input, _soft_plus(scaled) / input.dtype.type(beta))


def _gelu_slope(g: Any, input: Any, approximate: str) -> Any:
    if approximate == "none":
        density = ops.exp(input * input * -0.5) * (1 / math.sqrt(2 * math.pi))
        return g * (ops.special_ndtr(input) + input * density)
    x = ops.clamp(input, -20, 20)  # beyond, s is 0 or 1 to the last bit, and x³ must not overflow
    s = ops.sigmoid(_gelu_phase(x))
    return g * (s + x * s * (1 - s) * (2 * _GELU_SCALE) * (1 + 3 * _GELU_CUBE * x * x))


_GELU_SCALE, _GELU_CUBE = math.sqrt(2 / math.pi), 0.044715


def _gelu_phase(x: Any) -> Any:
    return x * (2 * _GELU_SCALE) * (1 + _GELU_CUBE * x * x)


@elementwise(
    lowering=lambda approximate: "gelu" if approximate == "none" else "gelu_tanh", derivative={"input": _gelu_slope},
    flops=25,
    home=("nn.functional",),
    inplace=False,
    samples=lambda s: [
        *smooth(s), s((2, 3), approximate="tanh"), s((2,), low=20.0, high=90.0, approximate="tanh"),
        s((2,), low=-90.0, high=-20.0, approximate="tanh"), s.error(ValueError, "approximate", (2,), approximate="erf"),
    ],
)  # fmt: skip
def gelu(input: Floating, *, approximate: str = "none") -> Any:
    """Return ``input * Φ(input)``, Φ the normal distribution function (D. Hendrycks, K. Gimpel, arXiv 1606.08415).

    Args:
        approximate: ``"none"``, or ``"tanh"`` for Φ(x) ≈ ½ (1 + tanh(√(2/π) (x + 0.044715 x³))).
    """
    if approximate == "none":
        return input * normal_distribution(input)
    if approximate != "tanh":
        raise ValueError(f"gelu(): approximate must be 'none' or 'tanh', got {approximate!r}")
    return input * _sigmoid(_gelu_phase(input))


# ---- hard and soft versions


@switchable
@elementwise(
    derivative={"input": lambda g, input: ops.where(ops.logical_and(input > -3, input < 3), g * (1 / 6), 0)},
    home=("nn.functional",),
    samples=lambda s: [*kinked(s), s((2, 3), low=-5.0, high=5.0)],
)
def hardsigmoid(input: Floating, inplace: bool = False) -> Any:
    """Return ``min(max(input + 3, 0), 6) / 6``."""
    return np.clip(input + 3, 0, 6) / 6


@switchable
@elementwise(
    derivative={"input": lambda g, input: ops.where(input <= -3, 0, ops.where(input < 3, g * (input / 3 + 0.5), g))},
    home=("nn.functional",),
    samples=lambda s: [*kinked(s), s((2, 3), low=-5.0, high=5.0)],
)
def hardswish(input: Floating, inplace: bool = False) -> Any:
    """Return ``input * hardsigmoid(input)`` (A. Howard et al., arXiv 1905.02244)."""
    return input * np.clip(input + 3, 0, 6) / 6


@switchable
@elementwise(
    derivative={"input": lambda g, input, threshold: ops.where(input <= threshold, 0, g)},
    home=("", "nn.functional"),
    method=False,
    samples=lambda s: [
        s((2, 3), 0.1, 20.0), s((2, 3), threshold=0.1, value=-1), s((3,), 0, 5, kind="integer"), s((0,), 0.0, 1.0),
        s(s.array([1.0, math.nan]), 1.0, 3.0, grad=False),
    ],
)  # fmt: skip
def threshold(input: Real, threshold: float, value: float, inplace: bool = False) -> Any:
    """Return the elements above ``threshold``, and ``value`` in place of the others."""
    _no_bool("threshold", input)
    return np.where(input <= threshold, input.dtype.type(value), input)


@composite(
    home=("nn.functional",),
    samples=lambda s: [s((2, 4)), s((4, 3), 0), s((2, 4, 2), dim=1), s((0, 2)), s.error(ValueError, "even", (2, 3))],
)
def glu(input: Any, dim: int = -1) -> Any:
    """Return the first half of the tensor times the sigmoid of the second, split along ``dim`` (arXiv 1612.08083).

    Raises:
        ShapeError: if the size of the dimension is odd, or there is none.
    """
    axis = axis_of(dim, input.ndim)
    if not input.ndim or input.shape[axis] % 2:
        raise ShapeError(f"glu(): the size of dim {dim} must be even, got shape {tuple(input.shape)}")
    half = input.shape[axis] // 2
    return ops.narrow(input, axis, 0, half) * ops.sigmoid(ops.narrow(input, axis, half, half))

"""Elementary functions: roots, exponentials, logarithms, trigonometric and hyperbolic functions.

Integers become floats. Complex arguments take the principal branch, as in NumPy.
"""

import math
from typing import Any

import numpy as np

from wengert.core.arguments import Anything, FloatingOrScalar, InexactOrScalar, Real, RealOrScalar
from wengert.core.families import elementwise
from wengert.core.registry import ops
from wengert.core.tensor import Tensor

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "deg2rad",
    "exp",
    "exp2",
    "expm1",
    "hypot",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logaddexp2",
    "rad2deg",
    "rsqrt",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]  # fmt: skip


def _everywhere(s: Any) -> list[Any]:
    """The samples of functions defined on the whole plane."""
    return [
        s((2, 3)), s(()), s((0, 2)), s((2,), kind="complex"), s((3,), kind="integer", low=-2, high=3),
        s((2,), kind="boolean"), s(s.array([0.0, -0.0, 30.0, -30.0])),
        s(s.array([float("inf"), float("-inf"), float("nan")]), grad=False),
    ]  # fmt: skip


def _positive(s: Any) -> list[Any]:
    """The samples of functions of positive numbers."""
    return [
        s((2, 3), kind="positive"), s((), kind="positive"), s((0, 2)), s((2,), kind="complex"),
        s((3,), kind="integer", low=1), s((2,), kind="boolean"),
        s(s.array([0.0, -1.0, float("inf"), float("nan")]), grad=False),
    ]  # fmt: skip


def _interval(s: Any) -> list[Any]:
    """The samples of functions on (-1, 1)."""
    return [
        s((2, 3), low=-0.9, high=0.9), s((), low=-0.9, high=0.9), s((0,)), s((2,), kind="complex"),
        s((2,), kind="boolean"), s(s.array([1.0, -1.0, 2.0, float("nan")]), grad=False),
    ]  # fmt: skip


def _ratio(a: Any, b: Any) -> Any:
    """Return a / b, and 0 where b is 0, in every order of derivative."""
    zero = b == 0
    return ops.where(zero, 0, a / ops.where(zero, 1, b))


def _over_square(a: Any, r: Any) -> Any:
    """Return a / r² without forming r², which under- or overflows long before the quotient does."""
    return _ratio(_ratio(a, r), r)


# ---- roots, exponentials, logarithms


@elementwise(np.sqrt, derivative={"input": lambda g, out: g / (2 * out)}, promote="float", samples=_positive)
def sqrt(input: Anything) -> Any:
    """Return the square root of each element; nan for negative numbers. Derivative: 1 / (2√x)."""


@elementwise(
    derivative={"input": lambda g, out: g * (-0.5 * out * out * out)}, promote="float", flops=2, samples=_positive
)
def rsqrt(input: Anything) -> Any:
    """Return ``1 / sqrt(input)``, element by element. Derivative: -½ x^(-3/2)."""
    return np.true_divide(1, np.sqrt(input), dtype=input.dtype)


@elementwise(np.exp, derivative={"input": lambda g, out: g * out}, promote="float", flops=10, samples=_everywhere)
def exp(input: Anything) -> Any:
    """Return e to the power of each element."""


@elementwise(
    np.exp2,
    derivative={"input": lambda g, out: g * (out * math.log(2))},
    promote="float",
    flops=10,
    aliases=("special_exp2",),
    samples=_everywhere,
)
def exp2(input: Anything) -> Any:
    """Return 2 to the power of each element."""


@elementwise(
    np.expm1,
    derivative={"input": lambda g, out: g * (out + 1)},
    promote="float",
    flops=10,
    aliases=("special_expm1",),
    samples=_everywhere,
)
def expm1(input: Anything) -> Any:
    """Return exp(x) - 1, exact to rounding near 0."""


@elementwise(np.log, derivative={"input": lambda g, input: g / input}, promote="float", flops=10, samples=_positive)
def log(input: Anything) -> Any:
    """Return the natural logarithm of each element."""


@elementwise(
    np.log2,
    derivative={"input": lambda g, input: g / (input * math.log(2))},
    promote="float",
    flops=10,
    samples=_positive,
)
def log2(input: Anything) -> Any:
    """Return the logarithm to base 2 of each element."""


@elementwise(
    np.log10,
    derivative={"input": lambda g, input: g / (input * math.log(10))},
    promote="float",
    flops=10,
    samples=_positive,
)
def log10(input: Anything) -> Any:
    """Return the logarithm to base 10 of each element."""


@elementwise(
    np.log1p,
    derivative={"input": lambda g, input: g / (input + 1)},
    promote="float",
    flops=10,
    aliases=("special_log1p",),
    samples=lambda s: [*_positive(s), s(s.array([1e-12, -1e-12, -0.5]), grad=False), s(s.array([-1.0]), grad=False)],
)
def log1p(input: Anything) -> Any:
    """Return log(1 + x), exact to rounding near 0."""


def _log_pairs(s: Any) -> list[Any]:
    inf = math.inf
    return [
        s((2, 3), (2, 3)), s((2, 1), (3,)), s((), (2,)), s((0,), (1,)), s((2,), 0.5), s(-1.5, (2,)),
        s(s.array([800.0, -800.0]), s.array([799.0, -801.0])),
        s(s.array([-inf, -inf, inf, inf, math.nan]), s.array([-inf, 1.0, inf, 1.0, 0.0]), grad=False),
        s.error(TypeError, "(floating|inexact) tensor", (2,), (2,), kind="integer"),
    ]  # fmt: skip


def _share(input: Any, other: Any) -> Any:
    """Return exp(x) / (exp(x) + exp(y)), and 0 where both are the same infinity."""
    return ops.sigmoid(ops.where(ops.logical_and(ops.isinf(input), input == other), -math.inf, input - other))


def log_sum_of_two(x: Any, y: Any) -> Any:
    """Return log(exp(x) + exp(y)) of arrays; of complex ones on the branch of the larger real part, as x + log1p(…)."""
    if x.dtype.kind != "c":
        return np.logaddexp(x, y)
    larger = x.real >= y.real
    far, near = np.where(larger, x, y), np.where(larger, y, x)
    infinite = np.isinf(far.real) & ~np.isnan(near)
    return np.where(infinite, far, far + np.log1p(np.exp(near - np.where(infinite, 0, far))))


@elementwise(
    np.logaddexp,
    derivative={
        "input": lambda g, input, other: g * _share(input, other),
        "other": lambda g, input, other: g * _share(other, input),
    },
    flops=20,
    samples=lambda s: [
        *_log_pairs(s), s((2, 3), (3,), kind="complex"),
        s(s.array([900 + 1j, -900 + 2j]), s.array([900 - 1j, 900 + 4j])),
        s(s.array([-math.inf + 0j, -math.inf, math.inf]), s.array([-math.inf + 0j, 1 + 1j, 1j]), grad=False),
    ],
)  # fmt: skip
def logaddexp(input: InexactOrScalar, other: InexactOrScalar) -> Any:
    """Return log(exp(input) + exp(other)) without overflow."""
    return log_sum_of_two(input, other)


@elementwise(
    np.logaddexp2,
    derivative={
        "input": lambda g, input, other: g * _share(input * math.log(2), other * math.log(2)),
        "other": lambda g, input, other: g * _share(other * math.log(2), input * math.log(2)),
    },
    flops=20,
    samples=_log_pairs,
)
def logaddexp2(input: FloatingOrScalar, other: FloatingOrScalar) -> Any:
    """Return log2(2**input + 2**other) without overflow."""


# ---- trigonometric functions


@elementwise(
    np.sin, derivative={"input": lambda g, input: g * ops.cos(input)}, promote="float", flops=10, samples=_everywhere
)
def sin(input: Anything) -> Any:
    """Return the sine of each element (radians)."""


@elementwise(
    np.cos, derivative={"input": lambda g, input: g * -ops.sin(input)}, promote="float", flops=10, samples=_everywhere
)
def cos(input: Anything) -> Any:
    """Return the cosine of each element (radians)."""


@elementwise(
    np.tan, derivative={"input": lambda g, out: g * (1 + out * out)}, promote="float", flops=10, samples=_everywhere
)
def tan(input: Anything) -> Any:
    """Return the tangent of each element (radians). Derivative: 1 + tan²."""


@elementwise(
    np.arcsin,
    derivative={"input": lambda g, input: g * ops.rsqrt((1 - input) * (1 + input))},
    promote="float",
    flops=10,
    aliases=("arcsin",),
    samples=_interval,
)
def asin(input: Anything) -> Any:
    """Return the angle in [-π/2, π/2] with the given sine. Derivative: 1 / √(1 - x²)."""


@elementwise(
    np.arccos,
    derivative={"input": lambda g, input: g * -ops.rsqrt((1 - input) * (1 + input))},
    promote="float",
    flops=10,
    aliases=("arccos",),
    samples=_interval,
)
def acos(input: Anything) -> Any:
    """Return the angle in [0, π] with the given cosine. Derivative: -1 / √(1 - x²)."""


@elementwise(
    np.arctan,
    derivative={"input": lambda g, input: g / (1 + input * input)},
    promote="float",
    flops=10,
    aliases=("arctan",),
    samples=_everywhere,
)
def atan(input: Anything) -> Any:
    """Return the angle in [-π/2, π/2] with the given tangent. Derivative: 1 / (1 + x²)."""


def _radius(g: Any, input: Any, other: Any) -> Any:
    """Return the length of (input, other), of which one may be integers, in the dtype of the cotangent."""
    return ops.hypot(
        *(ops.cast(v, g.dtype) if isinstance(v, Tensor) and v.dtype != g.dtype else v for v in (input, other))
    )


@elementwise(
    np.arctan2,
    derivative={
        "input": lambda g, input, other: g * _over_square(other, _radius(g, input, other)),
        "other": lambda g, input, other: -g * _over_square(input, _radius(g, input, other)),
    },
    promote="float",
    flops=15,
    aliases=("arctan2",),
    samples=lambda s: [
        s((2, 3), (2, 3)), s((2, 1), (3,)), s((), (2,)), s((2,), 0.5), s(-1.5, (2,)),
        s((3,), (3,), kind="integer", low=1), s((0,), (1,)),
        s(s.array([0.0, -0.0, 0.0, -0.0, 1.0]), s.array([1.0, 1.0, -1.0, -1.0, 0.0]), grad=False),
        s(s.array([0.0]), s.array([0.0]), grad=False),
    ],
)  # fmt: skip
def atan2(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return the angle in [-π, π] of the point (other, input). The gradient at the origin is 0."""


# ---- hyperbolic functions


@elementwise(
    np.sinh, derivative={"input": lambda g, input: g * ops.cosh(input)}, promote="float", flops=10, samples=_everywhere
)
def sinh(input: Anything) -> Any:
    """Return the hyperbolic sine of each element."""


@elementwise(
    np.cosh, derivative={"input": lambda g, input: g * ops.sinh(input)}, promote="float", flops=10, samples=_everywhere
)
def cosh(input: Anything) -> Any:
    """Return the hyperbolic cosine of each element."""


@elementwise(
    np.tanh,
    derivative={"input": lambda g, out: g * (1 - out * out)},
    promote="float",
    flops=10,
    home=("", "nn.functional"),
    samples=_everywhere,
)
def tanh(input: Anything) -> Any:
    """Return the hyperbolic tangent of each element. Derivative: 1 - tanh(x)²."""


@elementwise(
    np.arcsinh,
    derivative={"input": lambda g, input: g * ops.rsqrt(input * input + 1)},
    promote="float",
    flops=10,
    aliases=("arcsinh",),
    samples=_everywhere,
)
def asinh(input: Anything) -> Any:
    """Return the inverse hyperbolic sine of each element. Derivative: 1 / √(x² + 1)."""


def _acosh_slope(g: Any, input: Any) -> Any:
    """Return g / √(x² - 1), by two roots for complex numbers: √z·√w is not √(zw)."""
    if input.is_complex():
        return g * (ops.rsqrt(input - 1) * ops.rsqrt(input + 1))
    return g * ops.rsqrt((input - 1) * (input + 1))


@elementwise(
    np.arccosh,
    derivative={"input": _acosh_slope},
    promote="float",
    flops=10,
    aliases=("arccosh",),
    samples=lambda s: [
        s((2, 3), low=1.1, high=4.0), s((), low=1.1, high=4.0), s((3,), kind="complex"), s((2,), kind="integer", low=2),
        s((0,)), s(s.array([1.0, 0.5, math.inf]), grad=False),
    ],
)  # fmt: skip
def acosh(input: Anything) -> Any:
    """Return the inverse hyperbolic cosine of each element; nan below 1. Derivative: 1 / √(x² - 1)."""


@elementwise(
    np.arctanh,
    derivative={"input": lambda g, input: g / ((1 - input) * (1 + input))},
    promote="float",
    flops=10,
    aliases=("arctanh",),
    samples=_interval,
)
def atanh(input: Anything) -> Any:
    """Return the inverse hyperbolic tangent of each element; nan outside [-1, 1]. Derivative: 1 / (1 - x²)."""


# ---- lengths, degrees, sinc


@elementwise(
    np.hypot,
    derivative={
        "input": lambda g, input, out: g * _ratio(input, out),
        "other": lambda g, other, out: g * _ratio(other, out),
    },
    flops=10,
    samples=lambda s: [
        s((2, 3), (2, 3)), s((2, 1), (3,)), s((), (2,)), s((2,), 0.5), s(-1.5, (2,)), s((0,), (1,)),
        s(s.array([3e30, 0.0]), s.array([4e30, 2.0]), grad=False), s(s.array([0.0]), s.array([0.0]), grad=False),
        s.error(TypeError, "floating tensor", (2,), (2,), kind="integer"),
    ],
)  # fmt: skip
def hypot(input: FloatingOrScalar, other: FloatingOrScalar) -> Any:
    """Return √(input² + other²) without overflow. The gradient at the origin is 0."""


@elementwise(
    np.deg2rad, derivative={"input": lambda g: g * (math.pi / 180)}, promote="float",
    samples=lambda s: [s((2, 3)), s(()), s((3,), kind="integer"), s((0,))],
)  # fmt: skip
def deg2rad(input: Real) -> Any:
    """Return angles given in degrees in radians."""


@elementwise(
    np.rad2deg, derivative={"input": lambda g: g * (180 / math.pi)}, promote="float",
    samples=lambda s: [s((2, 3)), s(()), s((3,), kind="integer"), s((0,))],
)  # fmt: skip
def rad2deg(input: Real) -> Any:
    """Return angles given in radians in degrees."""


def _sinc_slope(g: Any, input: Any) -> Any:
    """Return g · d/dx [sin(πx) / (πx)]: near 0, where the closed form cancels, by its Taylor series."""
    near = ops.abs(input) < 0.25
    x = ops.where(near, input, 0)
    square, series = x * x, 0.0
    for k in reversed(range(9)):
        series = series * square + (-1) ** (k + 1) * 2 * (k + 1) * math.pi ** (2 * k + 2) / math.factorial(2 * k + 3)
    far = ops.where(near, 1, input)
    closed = (ops.cos(math.pi * far) - ops.sin(math.pi * far) / (math.pi * far)) / far
    return g * ops.where(near, x * series, closed)


@elementwise(
    derivative={"input": _sinc_slope},
    promote="float",
    flops=15,
    aliases=("special_sinc",),
    samples=lambda s: [
        s((2, 3)), s((), low=-0.2, high=0.2), s((2,), kind="complex"), s(s.array([0.0, 1e-9, 1.0, -2.0])),
        s((3,), kind="integer"), s((0,)),
    ],
)  # fmt: skip
def sinc(input: Anything) -> Any:
    """Return sin(πx) / (πx), and 1 at 0."""
    angle = np.where(input == 0, 1, input) * math.pi
    return np.where(input == 0, 1, np.sin(angle) / angle)

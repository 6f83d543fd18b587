"""Elementary functions: roots, exponentials, logarithms, trigonometric and hyperbolic functions.

Integers become floats. Complex arguments take the principal branch, as in NumPy.
"""

import math
from typing import Any

import numpy as np

from wengert.core.arguments import Anything, AnythingOrScalar, Real, RealOrScalar
from wengert.core.families import composite, elementwise
from wengert.core.registry import ops

__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "deg2rad", "exp", "exp2", "expm1", "hypot",
    "log", "log10", "log1p", "log2", "logaddexp", "logaddexp2", "rad2deg", "rsqrt", "sin", "sinc", "sinh", "sqrt", "tan", "tanh",
]  # fmt: skip


def _everywhere(s: Any) -> list[Any]:
    """The samples of functions defined on the whole plane."""
    return [
        s((2, 3)), s(()), s((0, 2)), s((2,), kind="complex"), s((3,), kind="integer", low=-2, high=3), s((2,), kind="boolean"),
        s(s.array([0.0, -0.0, 30.0, -30.0])), s(s.array([float("inf"), float("-inf"), float("nan")]), grad=False),
    ]  # fmt: skip


def _positive(s: Any) -> list[Any]:
    """The samples of functions of positive numbers."""
    return [
        s((2, 3), kind="positive"), s((), kind="positive"), s((0, 2)), s((2,), kind="complex"), s((3,), kind="integer", low=1),
        s((2,), kind="boolean"), s(s.array([0.0, -1.0, float("inf"), float("nan")]), grad=False),
    ]  # fmt: skip


def _interval(s: Any) -> list[Any]:
    """The samples of functions on (-1, 1)."""
    return [
        s((2, 3), low=-0.9, high=0.9), s((), low=-0.9, high=0.9), s((0,)), s((2,), kind="complex"), s((2,), kind="boolean"),
        s(s.array([1.0, -1.0, 2.0, float("nan")]), grad=False),
    ]  # fmt: skip


# ---- roots, exponentials, logarithms


@elementwise(np.sqrt, derivative={"input": lambda g, out: g / (2 * out)}, promote="float", samples=_positive)
def sqrt(input: Anything) -> Any:
    """Return the square root of each element; nan for negative numbers. Derivative: 1 / (2√x)."""


@elementwise(derivative={"input": lambda g, out: g * (-0.5 * out * out * out)}, promote="float", flops=2, samples=_positive)
def rsqrt(input: Anything) -> Any:
    """Return ``1 / sqrt(input)``, element by element. Derivative: -½ x^(-3/2)."""
    return np.true_divide(1, np.sqrt(input), dtype=input.dtype)


@elementwise(np.exp, derivative={"input": lambda g, out: g * out}, promote="float", flops=10, samples=_everywhere)
def exp(input: Anything) -> Any:
    """Return e to the power of each element."""


@elementwise(np.log, derivative={"input": lambda g, input: g / input}, promote="float", flops=10, samples=_positive)
def log(input: Anything) -> Any:
    """Return the natural logarithm of each element."""

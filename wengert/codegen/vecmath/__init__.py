"""Mathematical functions as expressions of machine operations, for float32 and float64.

``EXPANSIONS[name](*arguments)`` returns what computes a function of ``UNARY_MATH`` or ``BINARY_MATH``; :func:`expand`
does it for a node. Every operation is IEEE arithmetic with true fused multiply-adds: results do not depend on the width
of vectors. ``python -m wengert.testing.ulp`` measures the errors.
"""

from collections.abc import Callable
from functools import wraps
from typing import Final

from wengert.codegen.vecmath import (
    activations,
    error_function,
    exponential,
    gamma,
    hyperbolic,
    logarithm,
    power,
    powers,
    quantile,
    trigonometric,
)  # fmt: skip
from wengert.codegen.vecmath.parts import format_of
from wengert.loops.scalar import Scalar

__all__ = ["EXPANSIONS", "expand"]

FAMILIES: Final = {
    exponential: ("exp", "exp2", "expm1"),
    logarithm: ("log", "log2", "log10", "log1p"),
    trigonometric: ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinc"),
    hyperbolic: ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    error_function: ("erf", "erfc", "ndtr", "gelu"),
    gamma: ("lgamma", "digamma"),
    quantile: ("erfinv",),
    activations: ("sigmoid", "log_sigmoid", "softplus", "silu", "gelu_tanh", "logaddexp"),
    powers: ("rsqrt", "cbrt", "hypot", "fmod"),
}


def _checked(function: Callable[..., Scalar]) -> Callable[..., Scalar]:
    """Return a function that refuses what is not float32 or float64."""

    @wraps(function)
    def expansion(*arguments: Scalar) -> Scalar:
        for argument in arguments:
            format_of(argument)
        return function(*arguments)

    return expansion


EXPANSIONS: Final[dict[str, Callable[..., Scalar]]] = {
    name: _checked(getattr(family, name)) for family, names in FAMILIES.items() for name in names
} | {"pow": _checked(power.power)}


def expand(node: Scalar) -> Scalar:
    """Return what computes a node of a mathematical function.

    Raises:
        TypeError: for operands that are not float32 or float64.

    Example:
        >>> from wengert.loops.scalar import make, var
        >>> expand(make("rsqrt", (var("x", "f32"),)))
        div.f32(const.f32(1.0), sqrt.f32(var.f32(('x', 0))))
    """
    return EXPANSIONS[node.op](*node.args)

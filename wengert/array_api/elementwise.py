"""Element-wise functions of the standard: each calls the operator of that meaning, and is differentiable as it is.

Of two operands one may be a Python number, which takes the dtype of the array as far as its kind allows.
"""

from typing import Any

from wengert.array.dtype import COMPLEX, FLOAT
from wengert.array_api.arguments import operand, own, promoted
from wengert.core.registry import ops

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
]  # fmt: skip


# ---- arithmetic


def abs(x: Any, /) -> Any:
    """Return the absolute value of each element; of a complex one, its modulus."""
    return ops.abs(x)


def add(x1: Any, x2: Any, /) -> Any:
    """Return the sum x1 + x2."""
    return ops.add(*promoted("add", x1, x2))


def divide(x1: Any, x2: Any, /) -> Any:
    """Return the quotient x1 / x2; of integers in the default floating-point dtype."""
    return ops.div(*promoted("divide", x1, x2))


def floor_divide(x1: Any, x2: Any, /) -> Any:
    """Return the quotient x1 / x2 rounded to the next integer below; that of or by an infinity is no NaN, unlike ``//``."""
    x1, x2 = promoted("floor_divide", x1, x2)
    whole = ops.floor_divide(x1, x2)
    if x1.dtype.category < FLOAT:
        return whole
    return ops.where(ops.logical_or(ops.isinf(x1), ops.isinf(x2)), ops.floor(ops.div(x1, x2)), whole)


def multiply(x1: Any, x2: Any, /) -> Any:
    """Return the product x1 · x2."""
    return ops.mul(*promoted("multiply", x1, x2))


def negative(x: Any, /) -> Any:
    """Return -x."""
    return ops.neg(x)


def positive(x: Any, /) -> Any:
    """Return +x."""
    return ops.positive(x)


def pow(x1: Any, x2: Any, /) -> Any:
    """Return x1 to the power x2."""
    return ops.pow(*promoted("pow", x1, x2))


def reciprocal(x: Any, /) -> Any:
    """Return 1 / x."""
    return ops.reciprocal(x)


def remainder(x1: Any, x2: Any, /) -> Any:
    """Return what is left of x1 after division by x2, with the sign of x2."""
    return ops.remainder(*promoted("remainder", x1, x2))


def square(x: Any, /) -> Any:
    """Return x²."""
    return ops.square(x)


def sqrt(x: Any, /) -> Any:
    """Return the principal square root."""
    return own(ops.sqrt(x))


def subtract(x1: Any, x2: Any, /) -> Any:
    """Return the difference x1 - x2."""
    return ops.sub(*promoted("subtract", x1, x2))


# ---- exponentials and logarithms


def exp(x: Any, /) -> Any:
    """Return e to the power x."""
    return ops.exp(x)


def expm1(x: Any, /) -> Any:
    """Return exp(x) - 1, exact near 0; at the complex 0 and infinities, what the standard says of exp."""
    x = operand("expm1()", x)
    if x.dtype.category < COMPLEX:
        return ops.expm1(x)
    special = ops.logical_or(ops.eq(x, 0), ops.logical_not(ops.isfinite(x)))
    return ops.where(special, ops.exp(ops.where(special, x, 0)) - 1, ops.expm1(ops.where(special, 1, x)))


def log(x: Any, /) -> Any:
    """Return the natural logarithm."""
    return ops.log(x)


def log1p(x: Any, /) -> Any:
    """Return log(1 + x), exact near 0."""
    return ops.log1p(x)


def log2(x: Any, /) -> Any:
    """Return the logarithm to base 2."""
    return ops.log2(x)


def log10(x: Any, /) -> Any:
    """Return the logarithm to base 10."""
    return ops.log10(x)


def logaddexp(x1: Any, x2: Any, /) -> Any:
    """Return log(exp(x1) + exp(x2)), computed without overflow."""
    return ops.logaddexp(*promoted("logaddexp", x1, x2))


# ---- circular and hyperbolic functions


def acos(x: Any, /) -> Any:
    """Return the principal inverse cosine."""
    return ops.acos(x)


def acosh(x: Any, /) -> Any:
    """Return the principal inverse hyperbolic cosine."""
    return ops.acosh(x)


def asin(x: Any, /) -> Any:
    """Return the principal inverse sine."""
    return ops.asin(x)


def asinh(x: Any, /) -> Any:
    """Return the principal inverse hyperbolic sine."""
    return ops.asinh(x)


def atan(x: Any, /) -> Any:
    """Return the principal inverse tangent."""
    return ops.atan(x)


def atan2(x1: Any, x2: Any, /) -> Any:
    """Return the angle, in (-π, π], of the point with abscissa x2 and ordinate x1."""
    return ops.atan2(*promoted("atan2", x1, x2))


def atanh(x: Any, /) -> Any:
    """Return the principal inverse hyperbolic tangent."""
    return ops.atanh(x)


def cos(x: Any, /) -> Any:
    """Return the cosine."""
    return ops.cos(x)


def cosh(x: Any, /) -> Any:
    """Return the hyperbolic cosine."""
    return ops.cosh(x)


def hypot(x1: Any, x2: Any, /) -> Any:
    """Return √(x1² + x2²), computed without overflow."""
    return ops.hypot(*promoted("hypot", x1, x2))


def sin(x: Any, /) -> Any:
    """Return the sine."""
    return ops.sin(x)


def sinh(x: Any, /) -> Any:
    """Return the hyperbolic sine."""
    return ops.sinh(x)


def tan(x: Any, /) -> Any:
    """Return the tangent."""
    return ops.tan(x)


def tanh(x: Any, /) -> Any:
    """Return the hyperbolic tangent; at a complex infinity ±1, with a zero of the imaginary part's sign beside it."""
    x = operand("tanh()", x)
    if x.dtype.category < COMPLEX:
        return ops.tanh(x)
    a, b = ops.real(x), ops.imag(x)
    far = ops.isinf(a)
    ends = ops.complex(ops.copysign(ops.ones_like(a), a), ops.copysign(ops.zeros_like(b), b))
    return ops.where(far, ends, ops.tanh(ops.where(far, 0, x)))


# ---- rounding, signs, bounds


def _by_parts(function: Any, x: Any) -> Any:
    """Apply a real function to the parts of a complex array, or to a real array."""
    if x.dtype.category < COMPLEX:
        return function(x)
    return ops.complex(function(ops.real(x)), function(ops.imag(x)))


def ceil(x: Any, /) -> Any:
    """Return the next integer above."""
    return ops.ceil(x)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Return each element, or the bound that it exceeds; bounds are arrays, numbers or None."""
    if min is not None:
        x = ops.maximum(*promoted("clip", x, min))
    if max is not None:
        x = ops.minimum(*promoted("clip", x, max))
    return ops.positive(x) if min is None and max is None else x


def copysign(x1: Any, x2: Any, /) -> Any:
    """Return |x1| with the sign of x2."""
    return ops.copysign(*promoted("copysign", x1, x2))


def floor(x: Any, /) -> Any:
    """Return the next integer below."""
    return ops.floor(x)


def maximum(x1: Any, x2: Any, /) -> Any:
    """Return the larger of each two elements; NaN where one is."""
    return ops.maximum(*promoted("maximum", x1, x2))


def minimum(x1: Any, x2: Any, /) -> Any:
    """Return the smaller of each two elements; NaN where one is."""
    return ops.minimum(*promoted("minimum", x1, x2))


def nextafter(x1: Any, x2: Any, /) -> Any:
    """Return the next number after x1 towards x2 that the dtype holds."""
    return ops.nextafter(*promoted("nextafter", x1, x2))


def round(x: Any, /) -> Any:
    """Return the nearest integer, of two equally near the even one; of a complex element, by parts."""
    x = operand("round()", x)
    return _by_parts(ops.round, x)


def sign(x: Any, /) -> Any:
    """Return x / |x|, 0 at 0, NaN at NaN."""
    x = operand("sign()", x)
    if x.dtype.category < FLOAT:
        return ops.sign(x)
    return ops.where(ops.isnan(x), x, ops.sgn(x))


def signbit(x: Any, /) -> Any:
    """Return whether the sign bit is set: for negative numbers, -0 and some NaN."""
    return ops.signbit(x)


def trunc(x: Any, /) -> Any:
    """Return the next integer towards 0."""
    return ops.trunc(x)


# ---- complex numbers


def conj(x: Any, /) -> Any:
    """Return the complex conjugate."""
    return ops.conj(x)


def imag(x: Any, /) -> Any:
    """Return the imaginary part; of a real array, zeros."""
    x = operand("imag()", x)
    return ops.imag(x) if x.dtype.category == COMPLEX else ops.zeros_like(x)


def real(x: Any, /) -> Any:
    """Return the real part."""
    return ops.real(x)


# ---- bits


def bitwise_and(x1: Any, x2: Any, /) -> Any:
    """Return the bits set in both operands."""
    return ops.bitwise_and(*promoted("bitwise_and", x1, x2))


def bitwise_invert(x: Any, /) -> Any:
    """Return the bits that are not set."""
    return ops.bitwise_not(x)


def bitwise_left_shift(x1: Any, x2: Any, /) -> Any:
    """Return x1 shifted x2 bits to the left."""
    return ops.bitwise_left_shift(*promoted("bitwise_left_shift", x1, x2))


def bitwise_or(x1: Any, x2: Any, /) -> Any:
    """Return the bits set in some operand."""
    return ops.bitwise_or(*promoted("bitwise_or", x1, x2))


def bitwise_right_shift(x1: Any, x2: Any, /) -> Any:
    """Return x1 shifted x2 bits to the right, with the sign bit filled in."""
    return ops.bitwise_right_shift(*promoted("bitwise_right_shift", x1, x2))


def bitwise_xor(x1: Any, x2: Any, /) -> Any:
    """Return the bits set in just one operand."""
    return ops.bitwise_xor(*promoted("bitwise_xor", x1, x2))


# ---- comparisons and truth


def equal(x1: Any, x2: Any, /) -> Any:
    """Return where x1 = x2."""
    return ops.eq(*promoted("equal", x1, x2))


def greater(x1: Any, x2: Any, /) -> Any:
    """Return where x1 > x2."""
    return ops.gt(*promoted("greater", x1, x2))


def greater_equal(x1: Any, x2: Any, /) -> Any:
    """Return where x1 ≥ x2."""
    return ops.ge(*promoted("greater_equal", x1, x2))


def isfinite(x: Any, /) -> Any:
    """Return where elements are neither infinite nor NaN."""
    return ops.isfinite(x)


def isinf(x: Any, /) -> Any:
    """Return where elements are infinite."""
    return ops.isinf(x)


def isnan(x: Any, /) -> Any:
    """Return where elements are NaN."""
    return ops.isnan(x)


def less(x1: Any, x2: Any, /) -> Any:
    """Return where x1 < x2."""
    return ops.lt(*promoted("less", x1, x2))


def less_equal(x1: Any, x2: Any, /) -> Any:
    """Return where x1 ≤ x2."""
    return ops.le(*promoted("less_equal", x1, x2))


def logical_and(x1: Any, x2: Any, /) -> Any:
    """Return where both operands are true."""
    return ops.logical_and(*promoted("logical_and", x1, x2))


def logical_not(x: Any, /) -> Any:
    """Return where elements are not true."""
    return ops.logical_not(x)


def logical_or(x1: Any, x2: Any, /) -> Any:
    """Return where some operand is true."""
    return ops.logical_or(*promoted("logical_or", x1, x2))


def logical_xor(x1: Any, x2: Any, /) -> Any:
    """Return where just one operand is true."""
    return ops.logical_xor(*promoted("logical_xor", x1, x2))


def not_equal(x1: Any, x2: Any, /) -> Any:
    """Return where x1 ≠ x2."""
    return ops.ne(*promoted("not_equal", x1, x2))

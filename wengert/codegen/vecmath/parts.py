"""What the functions of vector mathematics are made of: formats, fused polynomials, exponents, pairs of floats.

A pair (high, low) is an unevaluated sum of two floats, |low| at most half a unit in the last place of ``high``
(T. J. Dekker, A floating-point technique for extending the available precision, 1971; J.-M. Muller et al., Handbook of
Floating-Point Arithmetic, 2nd ed., chapters 4 and 14).
"""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from wengert.loops.scalar import Scalar, as_scalar, bits, make, select

__all__ = [
    "Format",
    "Pair",
    "above",
    "absolute",
    "add_pair",
    "below",
    "fast_two_sum",
    "flip_sign",
    "fma",
    "format_of",
    "is_nan",
    "mul_pair",
    "nearest",
    "polynomial",
    "power_of_two",
    "rint",
    "scale",
    "sign_bits",
    "sqrt",
    "two_product",
    "two_sum",
]  # fmt: skip


class Format(NamedTuple):
    """A floating-point format.

    Attributes:
        name: its dtype. integer: the signed integer of its width. digits: the bits of the fraction that are stored.
        bias: of the exponent. tiny: the least normal number. huge: the largest number.
        magic: 1.5 · 2^digits: adding it leaves the nearest integer in the low bits of the sum.
    """

    name: str
    integer: str
    digits: int
    bias: int
    tiny: float
    huge: float
    magic: float


FORMATS: Final = {
    "f32": Format("f32", "i32", 23, 127, 2.0**-126, 2.0**128 - 2.0**104, 1.5 * 2.0**23),
    "f64": Format("f64", "i64", 52, 1023, 2.0**-1022, math.ldexp(2 - 2.0**-52, 1023), 1.5 * 2.0**52),
}


class Pair(NamedTuple):
    """An unevaluated sum of two floats."""

    high: Scalar
    low: Scalar


def format_of(x: Scalar) -> Format:
    """Return the format of a float32 or float64 expression.

    Raises:
        TypeError: for another dtype.
    """
    if x.dtype not in FORMATS:
        raise TypeError(f"vector mathematics computes in f32 and f64, got {x.dtype}; cast the argument first")
    return FORMATS[x.dtype]


def fma(a: Any, b: Any, c: Any) -> Scalar:
    """Return a·b + c, rounded once; numbers take the dtype of the expressions."""
    dtype = next(v.dtype for v in (a, b, c) if isinstance(v, Scalar))
    return make("fma", (as_scalar(a, dtype), as_scalar(b, dtype), as_scalar(c, dtype)))


def sqrt(x: Scalar) -> Scalar:
    """Return the square root."""
    return make("sqrt", (x,))


def rint(x: Scalar) -> Scalar:
    """Return the nearest integer."""
    return make("rint", (x,))


def absolute(x: Scalar) -> Scalar:
    """Return |x|."""
    return make("abs", (x,))


def polynomial(x: Scalar, coefficients: Sequence[Any]) -> Scalar:
    """Return Σ coefficients[k] · x^k by Horner's rule."""
    result = as_scalar(coefficients[-1], x.dtype)
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, coefficient)
    return result


def above(x: Scalar, bound: float) -> Scalar:
    """Return x, raised to the bound where it is below; a NaN stays."""
    return select(x.lt(bound), bound, x)


def below(x: Scalar, bound: float) -> Scalar:
    """Return x, lowered to the bound where it is above; a NaN stays."""
    return select(x.gt(bound), bound, x)


def is_nan(x: Scalar) -> Scalar:
    """Return whether x is not a number."""
    return x.ne(x)


def sign_bits(x: Scalar) -> Scalar:
    """Return the sign of x in the highest bit of an integer, the other bits 0."""
    form = format_of(x)
    return bits(x, form.integer) ^ bits(absolute(x), form.integer)


def flip_sign(x: Scalar, sign: Scalar) -> Scalar:
    """Return x, negated where the highest bit of the integer ``sign`` is set."""
    return bits(bits(x, sign.dtype) ^ sign, x.dtype)


def nearest(x: Scalar, factor: float) -> tuple[Scalar, Scalar]:
    """Return the integer n nearest to x · factor, as a float and in the low bits of an integer.

    |n| must be below 2^(digits - 1). The high bits of the integer are arbitrary but for the lowest nine (eleven in
    float64) above the fraction's, which vanish when it is shifted to the place of the exponent.
    """
    form = format_of(x)
    shifted = fma(x, factor, form.magic)
    return shifted - form.magic, bits(shifted, form.integer)


def power_of_two(n: Scalar, form: Format) -> Scalar:
    """Return 2^n for an integer n in the range of normal exponents (high bits as :func:`nearest` leaves them)."""
    return bits((n << form.digits) + (form.bias << form.digits), form.name)


def scale(x: Scalar, n: tuple[Scalar, Scalar]) -> Scalar:
    """Return x · 2^n, rounded once where the result is subnormal; |n| may be twice the largest exponent, x near 1.

    ``n`` is a float and its low bits, as :func:`nearest` returns them. The power is applied in two halves.
    """
    form = format_of(x)
    half = nearest(n[0], 0.5)[1] << form.digits
    rest = (n[1] << form.digits) - half
    first = bits(bits(x, form.integer) + half, form.name)
    return first * bits(rest + (form.bias << form.digits), form.name)


def two_sum(a: Scalar, b: Scalar) -> Pair:
    """Return a + b exactly."""
    high = a + b
    part = high - a
    return Pair(high, (a - (high - part)) + (b - part))


def fast_two_sum(a: Scalar, b: Scalar) -> Pair:
    """Return a + b exactly where |a| ≥ |b| or a = 0."""
    high = a + b
    return Pair(high, b - (high - a))


def two_product(a: Scalar, b: Scalar) -> Pair:
    """Return a · b exactly (but for underflow)."""
    high = a * b
    return Pair(high, fma(a, b, -high))


def add_pair(a: Pair, b: Pair) -> Pair:
    """Return the sum of two pairs, with a relative error near 2^-(2·precision) where they do not cancel."""
    high, low = two_sum(a.high, b.high)
    return fast_two_sum(high, low + (a.low + b.low))


def mul_pair(a: Pair, b: Pair) -> Pair:
    """Return the product of two pairs."""
    high, low = two_product(a.high, b.high)
    return fast_two_sum(high, low + fma(a.high, b.low, a.low * b.high))

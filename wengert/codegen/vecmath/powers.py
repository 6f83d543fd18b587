"""rsqrt, cbrt, hypot, fmod.

cbrt takes Newton's steps for z^(-1/3), which need no division, and corrects z·(z^(-1/3))² by its exact residual. fmod is
exact: where the quotient is no exact integer, x = M·2^k·u and y = N·u with integers M, N, and 2^k mod N comes from k's
binary digits by squaring, each product modulo N being exact as the sum of two floats.

Worst errors measured, in ulp: rsqrt 1.5, cbrt 0.6, hypot 1.2, fmod 0.
"""

import math

from wengert.codegen.vecmath.coefficients import CBRT
from wengert.codegen.vecmath.logarithm import exponent_as_float
from wengert.codegen.vecmath.parts import (
    absolute,
    flip_sign,
    fma,
    format_of,
    nearest,
    polynomial,
    power_of_two,
    rint,
    sign_bits,
    sqrt,
    two_product,
)  # fmt: skip
from wengert.loops.scalar import Scalar, bits, cast, const, make, rarely, select

__all__ = ["cbrt", "fmod", "hypot", "rsqrt"]


def rsqrt(x: Scalar) -> Scalar:
    """1 / √x."""
    return const(1.0, x.dtype) / sqrt(x)


def cbrt(x: Scalar) -> Scalar:
    """The cube root: x = 2^(3k)·z with z in [1, 8)."""
    form = format_of(x)
    size = absolute(x)
    lift = form.digits // 3 + 1
    small = size.lt(form.tiny)
    whole = select(small, size * 2.0 ** (3 * lift), size)
    count = nearest(exponent_as_float(whole, form) - 1.0, 1 / 3)[1]
    shift = count << form.digits
    z = bits(bits(whole, form.integer) - (shift + (shift << 1)), x.dtype)
    y = polynomial(z, CBRT[x.dtype])
    for _ in range(1 if x.dtype == "f32" else 2):
        y = fma(y * fma(-(z * y), y * y, 1.0), 1 / 3, y)
    slope = y * y
    root = z * slope
    square = two_product(root, root)
    left = fma(-square.high, root, z) - square.low * root
    root = fma(left * slope, 1 / 3, root) * power_of_two(count, form)
    root = select(small, root * 2.0**-lift, root)
    return select(size.gt(0.0) & size.le(form.huge), flip_sign(root, sign_bits(x)), x)


def hypot(x: Scalar, y: Scalar) -> Scalar:
    """√(x² + y²); infinite if either is."""
    a, b = absolute(x), absolute(y)
    if x.dtype == "f32":
        wide_a, wide_b = cast(a, "f64"), cast(b, "f64")
        length = cast(sqrt(fma(wide_a, wide_a, wide_b * wide_b)), "f32")
    else:
        larger = select(a.gt(b), a, b)
        big, little = larger.gt(2.0**500), larger.lt(2.0**-500)
        unit = select(big, 2.0**-600, select(little, 2.0**600, const(1.0, "f64")))
        back = select(big, 2.0**600, select(little, 2.0**-600, const(1.0, "f64")))
        a_unit, b_unit = a * unit, b * unit
        length = sqrt(fma(a_unit, a_unit, b_unit * b_unit)) * back
    return select(a.eq(math.inf) | b.eq(math.inf), math.inf, length)


def fmod(x: Scalar, y: Scalar) -> Scalar:
    """The remainder of x / y rounded towards zero, exactly, with the sign of x."""
    form = format_of(x)
    a, b = absolute(x), absolute(y)
    quotient = make("trunc", (a / b,))
    rest = fma(-quotient, b, a)
    rest = select(rest.lt(0.0), rest + b, select(rest.ge(b), rest - b, rest))
    usual = quotient.le(2.0**form.digits) & b.le(form.huge)
    far = cast(fmod(cast(a, "f64"), cast(b, "f64")), "f32") if x.dtype == "f32" else _far_remainder(a, b)
    return flip_sign(rarely(~usual, far, rest), sign_bits(x))


def _far_remainder(a: Scalar, b: Scalar) -> Scalar:
    """Return a mod b for a ≥ 2^52·b > 0; also the special cases of fmod."""
    form = format_of(a)
    lift = form.digits + 2
    small = b.lt(form.tiny)
    divisor = select(small, b * 2.0**lift, b)
    unit = exponent_as_float(divisor, form)
    power = exponent_as_float(a, form) - unit + select(small, float(lift), const(0.0, "f64"))
    m, n = _whole_fraction(a), _whole_fraction(divisor)
    rest = _times_modulo(_modulo(m, n), _power_modulo(nearest(power, 1.0)[1], n), n)
    rest = select(rest.lt(0.0), rest + n, rest) * 2.0**-form.digits
    value = rest * power_of_two(nearest(unit, 1.0)[1], form)
    value = select(small, value * 2.0**-lift, value)
    return select(a.le(form.huge) & b.gt(0.0), select(b.eq(math.inf), a, value), const(math.nan, "f64"))


def _whole_fraction(x: Scalar) -> Scalar:
    """Return the fraction of a positive float as an integer in [2^52, 2^53)."""
    form = format_of(x)
    fraction = bits(x, form.integer) & ((1 << form.digits) - 1)
    return bits(fraction | ((form.bias + form.digits) << form.digits), x.dtype)


def _modulo(x: Scalar, n: Scalar) -> Scalar:
    """Return x less the nearest multiple of n."""
    return fma(-rint(x / n), n, x)


def _times_modulo(a: Scalar, b: Scalar, n: Scalar, factor: Scalar | None = None) -> Scalar:
    """Return a·b·factor modulo n for |a|, |b| ≤ n/2 and a factor of 1 or 2, in [-n/2, n/2]."""
    product = two_product(a, b)
    rest = _modulo(product.high, n) + product.low
    return _modulo(rest if factor is None else rest * factor, n)


def _power_modulo(k: Scalar, n: Scalar) -> Scalar:
    """Return 2^k modulo n for 0 ≤ k < 4096 in the low bits of k."""
    result = const(1.0, n.dtype)
    for place in reversed(range(12)):
        digit = (k << (63 - place)).lt(0)
        result = _times_modulo(result, result, n, select(digit, 2.0, const(1.0, n.dtype)))
    return result

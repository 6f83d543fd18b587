"""pow, with the special cases of C99 (annex F.9.4.4).

For float32 2^(y·log2 x) in float64. For float64 the logarithm is a pair of floats, with a relative error near 2^-64, and
so is the exponent y·log x (as in P. Markstein, IA-64 and Elementary Functions, 2000, chapter 12, without tables).

Worst error measured: 1.5 ulp, in float32 0.51.
"""

import math
from typing import Final

from wengert.codegen.vecmath.coefficients import EXP2, LOG2, LOG_PAIR
from wengert.codegen.vecmath.exponential import HIGHEST, LOWEST, power_part, reduce
from wengert.codegen.vecmath.logarithm import LN2, Split, split
from wengert.codegen.vecmath.parts import (
    Pair,
    above,
    absolute,
    below,
    fast_two_sum,
    flip_sign,
    fma,
    format_of,
    nearest,
    polynomial,
    power_of_two,
    rint,
    scale,
    sign_bits,
    two_product,
    two_sum,
)  # fmt: skip
from wengert.loops.scalar import Scalar, cast, const, rarely, select

__all__ = ["log_pair", "power"]

TWO_THIRDS: Final = (0.6666666666666666, 3.700743415417188e-17)
LARGEST_EXPONENT: Final = 2.0**65  # with it every number but 1 is beyond the range


def log_pair(parts: Split) -> Pair:
    """Return e·ln 2 + log(1 + f) as a pair, by log(1 + f) = 2s + 2s³/3 + …, s = f / (2 + f)."""
    under = two_sum(const(2.0, "f64"), parts.f)
    inverse = 1.0 / under.high
    s = parts.f * inverse
    s_low = fma(-s, under.low, fma(-s, under.high, parts.f)) * inverse
    z = two_product(s, s)
    z_low = fma(s * 2.0, s_low, z.low)
    third = two_product(z.high, const(TWO_THIRDS[0], "f64"))
    tail = z.high * z.high * polynomial(z.high, LOG_PAIR["f64"])
    factor = fast_two_sum(third.high, fma(z.high, TWO_THIRDS[1], fma(z_low, TWO_THIRDS[0], third.low)) + tail)
    cube = two_product(s, factor.high)
    head = fast_two_sum(s * 2.0, cube.high)
    low = fma(s_low, 2.0, fma(s, factor.low, fma(s_low, factor.high, cube.low))) + head.low
    whole = two_product(parts.e, const(LN2["f64"][0], "f64"))
    total = fast_two_sum(whole.high, head.high)
    return fast_two_sum(total.high, total.low + (fma(parts.e, LN2["f64"][1], whole.low) + low))


def exp_of_pair(x: Pair) -> Scalar:
    """Return exp(high + low), for ``low`` small also beside 1."""
    n, r, low = reduce(above(below(x.high, HIGHEST["f64"]), LOWEST["f64"]))
    head = fast_two_sum(const(1.0, "f64"), r)
    rest = power_part(r)
    return scale(head.high + fma(x.low + low, head.high + rest, head.low + rest), n)


def _power_of_split(parts: Split, y: Scalar) -> Scalar:
    """Return x^y for a positive x."""
    y = above(below(y, LARGEST_EXPONENT), -LARGEST_EXPONENT)
    logarithm = log_pair(parts)
    product = two_product(y, logarithm.high)
    low = select(absolute(product.high).lt(800.0), fma(y, logarithm.low, product.low), 0.0)
    return exp_of_pair(Pair(product.high, low))


def _power_single(x: Scalar, y: Scalar) -> Scalar:
    """Return x^y to float32's precision, in float64, for a positive, normal x."""
    parts = split(x)
    s = parts.f / (parts.f + 2.0)
    exponent = above(below(y * fma(s, polynomial(s * s, LOG2["wide"]), parts.e), 160.0), -160.0)
    n, whole = nearest(exponent, 1.0)
    r = exponent - n
    head, _, *rest = EXP2["wide"]
    return fma(r, polynomial(r, [head, *rest]), 1.0) * power_of_two(whole, format_of(x))


def _special(x: Scalar, y: Scalar, usual: Scalar) -> Scalar:
    """Return x^y for any arguments, given |x|^y where |x| and y are finite and not 0."""
    size = absolute(x)
    whole = rint(y).eq(y)
    half = y * 0.5
    odd = whole & rint(half).ne(half)
    grows = size.gt(1.0).eq(y.gt(0.0))  # |x|^y is infinite where |x| or y is an end of its range
    ends = select(grows, math.inf, const(0.0, x.dtype))
    at_end = size.eq(0.0) | size.eq(math.inf) | absolute(y).eq(math.inf)
    value = select(at_end, ends, usual)
    value = select(x.lt(0.0) & ~whole & ~at_end, math.nan, value)
    value = select(odd, flip_sign(value, sign_bits(x)), value)
    value = select(x.ne(x) | y.ne(y), x + y, value)
    one = y.eq(0.0) | x.eq(1.0) | (x.eq(-1.0) & absolute(y).eq(math.inf))
    return select(one, 1.0, value)


def power(x: Scalar, y: Scalar) -> Scalar:
    """x^y."""
    form = format_of(x)
    size = absolute(x)
    plain = x.le(form.huge) & absolute(y).le(form.huge)
    if x.dtype == "f32":
        value = cast(_power_single(cast(size, "f64"), cast(y, "f64")), "f32")
        return rarely(~(plain & x.gt(0.0)), _special(x, y, value), value)
    small = size.lt(form.tiny)
    lifted = split(select(small, size * 2.0**54, size))
    lifted = lifted._replace(e=select(small, lifted.e - 54.0, lifted.e))
    value = _power_of_split(split(size), y)
    return rarely(~(plain & x.ge(form.tiny)), _special(x, y, _power_of_split(lifted, y)), value)

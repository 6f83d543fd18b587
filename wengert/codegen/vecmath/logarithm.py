"""log, log2, log10, log1p.

A positive x is 2^e·(1 + f) with 1 + f between √½ and √2, and log(1 + f) = f + g with g small beside f: in float32 a
polynomial in f, in float64 by s = f / (2 + f), for which log(1 + f) = log((1 + s) / (1 - s)) has a short series in s²
(K.-C. Ng's arrangement f - (f²/2 - s·(f²/2 + R)), fdlibm, 1993). Subnormal, zero, negative and not finite arguments are
computed apart, in the vectors that have some.

Worst errors measured, in ulp: log 0.9, log2 1.0, log10 1.0, log1p 1.5.
"""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from wengert.codegen.vecmath.coefficients import LOG, LOG_STRAIGHT
from wengert.codegen.vecmath.parts import Format, Pair, fma, format_of, polynomial, two_sum
from wengert.loops.scalar import Scalar, bits, const, make, rarely, select

__all__ = ["LN2", "Split", "log", "log1p", "log1p_of_pair", "log2", "log10", "log_rest", "split"]

SQRT_HALF: Final = {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}  # as bits

# Numbers as the sum of two floats.
LN2: Final = {"f32": (0.6931471824645996, -1.9046542121259336e-09), "f64": (0.6931471805599453, 2.3190468138462996e-17)}
LOG10_2: Final = {
    "f32": (0.3010300099849701, -1.432098883924482e-08),
    "f64": (0.3010299956639812, -2.8037281277851704e-18),
}
LOG2_E: Final = {
    "f32": (1.4426950216293335, 1.925963033500011e-08),
    "f64": (1.4426950408889634, 2.0355273740931033e-17),
}
LOG10_E: Final = {
    "f32": (0.4342944920063019, -1.0103049952192578e-08),
    "f64": (0.4342944819032518, 1.098319650216765e-17),
}


class Split(NamedTuple):
    """x = 2^e·(1 + f): e as a float, f, and 2^-e as bits that are added to a float's (shifted to the exponent)."""

    e: Scalar
    f: Scalar
    shift: Scalar


def split(x: Scalar) -> Split:
    """Return exponent and fraction of a positive, normal x."""
    form = format_of(x)
    one = form.bias << form.digits
    places = bits(x, form.integer) + (one - SQRT_HALF[x.dtype])
    shift = one - (places & (-1 << form.digits))
    return Split(exponent_as_float(places, form), bits(bits(x, form.integer) + shift, x.dtype) - 1.0, shift)


def exponent_as_float(x: Scalar, form: Format) -> Scalar:
    """Return the exponent of a positive float, given by its bits, as a float."""
    base = 2.0**form.digits
    field = bits(bits(x, "u" + form.integer[1:]) >> form.digits, form.integer)
    return bits(field | bits(const(base, form.name), form.integer), form.name) - (base + form.bias)


def log_rest(f: Scalar) -> Scalar:
    """Return log(1 + f) - f for 1 + f between √½ and √2."""
    square = f * f
    if f.dtype == "f32":
        return square * fma(f, polynomial(f, LOG_STRAIGHT["f32"]), -0.5)
    s = f / (f + 2.0)
    half = square * 0.5
    z = s * s
    return fma(s, fma(z, polynomial(z, LOG["f64"]), half), -half)


def natural(parts: Split) -> Scalar:
    """Return e·ln 2 + log(1 + f)."""
    high, low = LN2[parts.f.dtype]
    return fma(parts.e, high, parts.f + fma(parts.e, low, log_rest(parts.f)))


def binary(parts: Split) -> Scalar:
    """Return e + log2(1 + f)."""
    high, low = LOG2_E[parts.f.dtype]
    return fma(parts.f, high, fma(parts.f, low, log_rest(parts.f) * high)) + parts.e


def decimal(parts: Split) -> Scalar:
    """Return e·log10(2) + log10(1 + f)."""
    high, low = LOG10_E[parts.f.dtype]
    step, step_low = LOG10_2[parts.f.dtype]
    rest = fma(parts.f, low, fma(log_rest(parts.f), high, parts.e * step_low))
    return fma(parts.e, step, fma(parts.f, high, rest))


def everywhere(x: Scalar, combine: Callable[[Split], Scalar]) -> Scalar:
    """Return a logarithm of any x: subnormal and special arguments apart."""
    form = format_of(x)
    lifted = split(x * 2.0 ** (form.digits + 1))
    small = combine(lifted._replace(e=lifted.e - (form.digits + 1.0)))
    ends = select(x.eq(0.0), -math.inf, select(x.lt(0.0), math.nan, x))  # inf and nan stay
    odd = select(x.gt(0.0) & x.lt(form.tiny), small, ends)
    usual = x.ge(form.tiny) & x.le(form.huge)
    return rarely(~usual, odd, combine(split(x)))


def log(x: Scalar) -> Scalar:
    """The natural logarithm."""
    return everywhere(x, natural)


def log2(x: Scalar) -> Scalar:
    """The logarithm to base 2; exact for powers of 2."""
    return everywhere(x, binary)


def log10(x: Scalar) -> Scalar:
    """The logarithm to base 10."""
    return everywhere(x, decimal)


def log1p_of_pair(x: Pair) -> Scalar:
    """Return log(1 + high + low) for a finite sum above -1; ``low`` may be far below the rounding of ``high``."""
    whole = two_sum(const(1.0, x.high.dtype), x.high)
    parts = split(whole.high)
    form = format_of(x.high)
    low = (whole.low + x.low) * bits(parts.shift + (form.bias << form.digits), form.name)
    return natural(parts._replace(f=parts.f + low))


def log1p(x: Scalar) -> Scalar:
    """log(1 + x), with the sign of x."""
    last = 2.0 ** (format_of(x).bias - 1)  # behind it 2^-e has no place, and the 1 no weight
    usual = x.gt(-1.0) & x.lt(last)
    ends = select(x.eq(-1.0), -math.inf, select(x.ge(last), log(x), math.nan))
    value = make("copysign", (log1p_of_pair(Pair(x, const(0.0, x.dtype))), x))
    return rarely(~usual, ends, value)

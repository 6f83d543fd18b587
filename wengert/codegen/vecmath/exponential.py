"""exp, exp2, expm1.

The argument is n·ln 2 + r with |r| ≤ ln 2 / 2 (W. J. Cody and W. Waite, Software Manual for the Elementary Functions,
1980, chapter 6; ln 2 in two parts whose first product is exact with a fused multiply-add), exp(r) is a polynomial, and
2^n goes into the exponent, in two halves so that subnormal results are rounded once.

Worst errors measured, in ulp: exp 1.0, exp2 0.9, expm1 1.1.
"""

import math
from typing import Final, NamedTuple

from wengert.codegen.vecmath.coefficients import EXP, EXP2
from wengert.codegen.vecmath.parts import (
    above,
    below,
    fast_two_sum,
    fma,
    format_of,
    nearest,
    polynomial,
    power_of_two,
    scale,
)  # fmt: skip
from wengert.loops.scalar import Scalar, make, select

__all__ = ["bounded", "exp", "exp2", "expm1", "growth", "power_part", "reduce"]

LOG2_E: Final = 1 / math.log(2)

# ln 2 in two parts. exp overflows above the first bound and rounds to 0 below the second.
LN2: Final = {
    "f32": (0.693147182464599609375, -1.904654323148236017e-09),
    "f64": (0.6931471805599453, 2.3190468138462996e-17),
}
HIGHEST: Final = {"f32": 89.0, "f64": 710.0}
LOWEST: Final = {"f32": -104.0, "f64": -746.0}


class Reduced(NamedTuple):
    """x = n·ln 2 + r + low: n as a float and in the low bits of an integer, |r| ≤ ln 2 / 2, and what rounding r lost."""

    n: tuple[Scalar, Scalar]
    r: Scalar
    low: Scalar


def reduce(x: Scalar) -> Reduced:
    """Return n and r for an x that the bounds of exp hold."""
    high, low = LN2[x.dtype]
    n = nearest(x, LOG2_E)
    rest = fma(n[0], -high, x)  # exact
    r = fma(n[0], -low, rest)
    return Reduced(n, r, fma(n[0], -low, rest - r))


def power_part(r: Scalar) -> Scalar:
    """Return exp(r) - 1 - r for |r| ≤ ln 2 / 2."""
    return r * r * polynomial(r, EXP[r.dtype])


def growth(r: Scalar) -> Scalar:
    """Return exp(r) - 1 for |r| ≤ ln 2 / 2, where its error matters beside 1."""
    return fma(r * r, polynomial(r, EXP[r.dtype]), r)


def bounded(x: Scalar) -> Scalar:
    """Return x inside the bounds beyond which exp is 0 or infinite."""
    return above(below(x, HIGHEST[x.dtype]), LOWEST[x.dtype])


def exp(x: Scalar) -> Scalar:
    """exp(x)."""
    n, r, _ = reduce(bounded(x))
    return scale(growth(r) + 1.0, n)


def exp2(x: Scalar) -> Scalar:
    """2^x; exact for whole x."""
    form = format_of(x)
    x = above(below(x, form.bias + 1.5), -(form.bias + form.digits + 2.0))
    n = nearest(x, 1.0)
    r = x - n[0]
    head, correction, *rest = EXP2[x.dtype]
    return scale(fma(r, head, fma(r, correction, r * r * polynomial(r, rest))) + 1.0, n)


def expm1(x: Scalar) -> Scalar:
    """exp(x) - 1, with the sign of x."""
    form = format_of(x)
    n, r, low = reduce(above(below(x, HIGHEST[x.dtype]), -0.7 * form.digits - 3.0))
    rest = power_part(r) + low
    half = power_of_two(n[1] - 1, form)  # 2^(n - 1), as 2^n may overflow where exp(x) does not
    far = fast_two_sum(half - 0.5, half * r)
    value = select(n[0].eq(0.0), r + rest, (far.high + fma(half, rest, far.low)) * 2.0)
    return make("copysign", (value, x))

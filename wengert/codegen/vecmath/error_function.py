"""erf, erfc, ndtr, gelu.

The tails are exp(-h)·g with h = a² or y²/2 exactly, as a pair, and a smooth g = exp(h)·erfc (W. J. Cody, Rational
Chebyshev approximations for the error function, 1969; the map (a - 4) / (a + 4) of the whole half-line after
M. M. Shepherd and J. G. Laframboise, Chebyshev approximation of (1 + 2x) exp(x²) erfc x, 1981). For float64 all factors
are pairs; tails in float32 are computed in float64, with fewer terms.

Worst errors measured, in ulp: erf 1.0, erfc 1.4, ndtr 1.8, gelu 1.8; the last three 0.54 in float32.
"""

import math
from typing import Final, NamedTuple

from wengert.codegen.vecmath.coefficients import (
    ERF_FAR,
    ERF_FAR64,
    ERF_NEAR,
    ERFC,
    ERFC_SLOPE,
    ERFCX,
    EXP,
    NDTR,
    NDTR_SLOPE,
)
from wengert.codegen.vecmath.exponential import LOG2_E, power_part, reduce
from wengert.codegen.vecmath.parts import (
    Pair,
    absolute,
    below,
    fast_two_sum,
    flip_sign,
    fma,
    format_of,
    nearest,
    polynomial,
    power_of_two,
    scale,
    sign_bits,
    two_product,
)  # fmt: skip
from wengert.loops.scalar import Scalar, cast, const, select

__all__ = ["erf", "erfc", "gelu", "ndtr"]

ONE_FROM: Final = {"f32": 3.95, "f64": 5.95}  # where erf rounds to 1
ZERO_FROM: Final = 27.3  # where erfc rounds to 0
NORMAL_ZERO_FROM: Final = 39.0  # where the tail of the normal distribution does


def erf(x: Scalar) -> Scalar:
    """x·p(x²) below 1, 1 - exp(-p(|x|)) above."""
    size = absolute(x)
    square = size * size
    head, correction, *rest = ERF_NEAR[x.dtype]
    near = fma(size, head, size * fma(square, polynomial(square, rest), correction))
    far = (ERF_FAR if x.dtype == "f32" else ERF_FAR64)[x.dtype]
    n, r, _ = reduce(-polynomial(below(size, ONE_FROM[x.dtype]), far))
    power = power_of_two(n[1], format_of(x))
    tail = fma(-power, r + power_part(r), 1.0 - power)
    return flip_sign(select(size.lt(1.0), near, tail), sign_bits(x))


def _tail_single(h: Scalar, a: Scalar) -> Scalar:
    """Return exp(-h) exp(a²) erfc(a) for 0 ≤ a < 20 to float32's precision, in float64."""
    t = 1.0 / fma(a, 0.4, 1.0)
    n, whole = nearest(h, -LOG2_E)
    r = fma(n, -math.log(2), -h)
    power = fma(r * r, polynomial(r, EXP["wide"]), r) + 1.0
    return power * power_of_two(whole, format_of(h)) * (t * polynomial(t, ERFCX["wide"]))


class Tail(NamedTuple):
    """How g = exp(h)·erfc is computed: p(q) / (1 + slope·a) with q = (a - centre) / (a + centre), and p' roughly."""

    centre: float
    slope: float
    table: tuple[float, ...]
    derivative: tuple[float, ...]


ERFC_TAIL: Final = Tail(4.0, 2.0, ERFC["f64"], ERFC_SLOPE["f64"])
NDTR_TAIL: Final = Tail(6.0, 1.5, NDTR["f64"], NDTR_SLOPE["f64"])


def _smooth(a: Scalar, by: Tail) -> Pair:
    """Return g at a ≥ 0 as a pair."""
    inverse = 1.0 / (a + by.centre)
    q = (a - by.centre) * inverse
    lost = fma(-a, q, fma(q + 1.0, -by.centre, a)) * inverse  # what rounding took from q
    head, correction, *rest = by.table
    slope = fma(lost, polynomial(q, by.derivative), correction)
    over = fast_two_sum(const(head, "f64"), fma(q, polynomial(q, rest), slope))
    under = fma(a, by.slope, 1.0)
    under_low = fma(a, by.slope, 1.0 - under)
    inverse = 1.0 / under
    quotient = over.high * inverse
    return Pair(quotient, (fma(-quotient, under, over.high) + fma(-quotient, under_low, over.low)) * inverse)


def _tail(h: Pair, a: Scalar, by: Tail) -> tuple[Pair, tuple[Scalar, Scalar]]:
    """Return exp(-h)·g(a) as a pair and an exponent to scale it by."""
    g = _smooth(a, by)
    n, r, low = reduce(-h.high)
    rest = power_part(r)
    power = fast_two_sum(const(1.0, "f64"), r + (rest + fma(-h.low, (r + rest) + 1.0, low)))
    product = two_product(g.high, power.high)
    return Pair(product.high, product.low + fma(g.high, power.low, g.low * power.high)), n


def erfc(x: Scalar) -> Scalar:
    """1 - erf(x), without cancellation."""
    if x.dtype == "f32":
        a = absolute(cast(x, "f64"))
        bounded = below(a, 15.0)
        value = _tail_single(bounded * bounded, bounded)
        return cast(select(cast(x, "f64").lt(0.0), 2.0 - value, value), "f32")
    a = below(absolute(x), ZERO_FROM)
    pair, n = _tail(two_product(a, a), a, ERFC_TAIL)
    value = scale(pair.high + pair.low, n)
    return select(x.lt(0.0), 2.0 - value, value)


def _ndtr_single(x: Scalar) -> Scalar:
    """Return Φ(x) to float32's precision, in float64."""
    size = absolute(x)
    y = below(size, 20.0)
    tail = _tail_single(y * y * 0.5, y * math.sqrt(0.5)) * 0.5
    tail = select(size.gt(20.0), 0.0, tail)
    return select(x.lt(0.0), tail, 1.0 - tail)


def _ndtr_tail(x: Scalar) -> tuple[Pair, tuple[Scalar, Scalar]]:
    """Return Φ(-|x|) as a pair and an exponent to scale it by."""
    y = below(absolute(x), NORMAL_ZERO_FROM)
    return _tail(two_product(y, y * 0.5), y, NDTR_TAIL)


def ndtr(x: Scalar) -> Scalar:
    """The normal distribution, Φ(x) = erfc(-x / √2) / 2."""
    if x.dtype == "f32":
        return cast(_ndtr_single(cast(x, "f64")), "f32")
    tail, n = _ndtr_tail(x)
    value = scale(tail.high + tail.low, n)
    return select(x.lt(0.0), value, 1.0 - value)


def gelu(x: Scalar) -> Scalar:
    """x·Φ(x)."""
    if x.dtype == "f32":
        wide = cast(x, "f64")
        return cast(wide * _ndtr_single(wide), "f32")
    tail, n = _ndtr_tail(x)
    product = two_product(x, tail.high)
    small = scale(product.high + fma(x, tail.low, product.low), n)  # x·Φ(-|x|)
    left = select(x.lt(-NORMAL_ZERO_FROM), x * 0.0, small)
    right = select(x.gt(NORMAL_ZERO_FROM), x, x - small)
    return select(x.lt(0.0), left, right)

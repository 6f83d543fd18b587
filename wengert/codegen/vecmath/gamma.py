"""lgamma and digamma, computed in float64 with pairs of floats; float32 is rounded from that.

Between 1/2 and 4 the recurrences lead to polynomials around 2 (lgamma) and on [1, 2] (digamma, by its zero), behind 4 to
the asymptotic series, whose rest is a polynomial in 1/x², below 0 to the reflections (NIST Digital Library of Mathematical
Functions, §5.5 and §5.11). Below 0 both functions have zeros where two terms cancel: there the error is at most 2 units
in the last place of the larger of the result and of the terms, log Γ(|x|) or ψ(|x|) + 1/|x|.

Worst errors measured, in ulp: lgamma 1.4, digamma 1.4; 0.51 in float32.
"""

import math
from typing import Final

from wengert.codegen.vecmath.coefficients import COTANGENT, DIGAMMA, DIGAMMA_FAR, LGAMMA, LGAMMA_FAR, SINC
from wengert.codegen.vecmath.logarithm import log, split
from wengert.codegen.vecmath.parts import (
    Pair,
    absolute,
    add_pair,
    fast_two_sum,
    fma,
    mul_pair,
    polynomial,
    rint,
    two_product,
    two_sum,
)  # fmt: skip
from wengert.codegen.vecmath.power import log_pair
from wengert.loops.scalar import Scalar, cast, const, make, rarely, select

__all__ = ["digamma", "lgamma"]

FAR: Final = 4.0  # where the asymptotic series begins
LGAMMA_TO: Final = 2.5563481638716906e305  # lgamma is infinite behind it
TINY: Final = 2.0**-200  # before it log Γ(x) is -log |x|, and digamma -1 / x
STIRLING: Final = (0.4189385332046727, 1.6728209650585413e-17)  # log(2π)/2 - 1/2
ROOT: Final = (0.46163214496836236, -1.5522348162858677e-17)  # the zero of digamma, less 1


def _number(value: float) -> Scalar:
    return const(value, "f64")


def _choose(condition: Scalar, a: Pair, b: Pair) -> Pair:
    return Pair(select(condition, a.high, b.high), select(condition, a.low, b.low))


def _leading(x: Scalar, table: tuple[float, ...]) -> Pair:
    """Return a polynomial of x as a pair, its constant term being the largest."""
    head, correction, *rest = table
    return fast_two_sum(_number(head), fma(x, polynomial(x, rest), correction))


def _times(x: Scalar, pair: Pair) -> Pair:
    product = two_product(x, pair.high)
    return Pair(product.high, fma(x, pair.low, product.low))


def _quotient(over: Pair, under: Pair) -> Pair:
    """Return over / under as a pair; infinite where it overflows."""
    inverse = 1.0 / under.high
    q = over.high * inverse
    low = (fma(-q, under.high, over.high) + fma(-q, under.low, over.low)) * inverse
    return Pair(q, select(absolute(inverse).lt(math.inf), low, 0.0))


def _log(x: Pair) -> Pair:
    """Return the logarithm of a positive pair, also of one near 0."""
    small = x.high.lt(2.0**-200)
    unit = select(small, 2.0**900, _number(1.0))
    high = x.high * unit
    parts = split(high)
    whole = log_pair(parts._replace(e=select(small, parts.e - 900.0, parts.e)))
    return fast_two_sum(whole.high, whole.low + x.low * unit / high)


def _lgamma_positive(x: Scalar) -> Pair:
    """Return log Γ(x) for x > 0 as a pair."""
    far = x.ge(FAR)
    # x = k + t with |t| ≤ 1/2: Γ(x) is Γ(2 + t) times or divided by a product of neighbours
    k = rint(x)
    near = _times(x - k, _leading(x - k, LGAMMA["f64"]))
    square = two_product(x, x)
    rising = fast_two_sum(x, square.high)
    falling = two_product(x - 1.0, select(k.ge(4.0), x - 2.0, 1.0))
    neighbours = _choose(k.lt(1.0), Pair(rising.high, rising.low + square.low), falling)
    neighbours = _choose(far | k.eq(1.0), Pair(x, _number(0.0)), neighbours)
    neighbours = _choose(k.eq(2.0), Pair(_number(1.0), _number(0.0)), neighbours)
    logarithm = _log(neighbours)
    divided = k.lt(2.0)
    signed = Pair(*(select(divided, -part, part) for part in logarithm))
    return _choose(far, _stirling(x, logarithm), add_pair(signed, near))


def _stirling(x: Scalar, logarithm: Pair) -> Pair:
    """Return (x - 1/2)·(log x - 1) + log(2π)/2 - 1/2 + rest."""
    inverse = 1.0 / x
    rest = inverse * polynomial(inverse * inverse, LGAMMA_FAR["f64"])
    rate = two_sum(logarithm.high, _number(-1.0))
    factor = x - 0.5
    product = two_product(factor, rate.high)
    product = Pair(product.high, fma(factor, rate.low + logarithm.low, product.low))
    return add_pair(product, fast_two_sum(_number(STIRLING[0]), rest + STIRLING[1]))


def _sine_ratio(r: Scalar) -> Pair:
    """Return sin(πr) / (πr) for |r| ≤ 1/2 as a pair."""
    t = r * r
    return fast_two_sum(_number(1.0), t * polynomial(t, SINC["f64"]))


def _lgamma_reflected(size: Scalar) -> Scalar:
    """Return log |Γ(-size)| = -log |size · sin(π size) / π| - log Γ(size)."""
    r = absolute(size - rint(size))
    product = mul_pair(two_product(size, r), _sine_ratio(r))
    positive = _lgamma_positive(size)
    value = add_pair(_log(product), positive)
    finite = select(size.lt(TINY), positive.high, -(value.high + value.low))
    return select(r.eq(0.0), math.inf, finite)


def lgamma(x: Scalar) -> Scalar:
    """log |Γ(x)|; infinite at 0 and the negative integers."""
    wide = cast(x, "f64")
    size = absolute(wide)
    positive = _lgamma_positive(size)
    value = rarely(~wide.gt(0.0), _lgamma_reflected(size), positive.high + positive.low)
    return cast(select(size.eq(0.0) | size.gt(LGAMMA_TO), math.inf, value), x.dtype)


def _digamma_positive(x: Scalar, first: float) -> Pair:
    """Return ψ(x) for x > 0 as a pair; below 1, ψ(1 + x) + first / x."""
    inverse = 1.0 / x
    square = inverse * inverse
    rest = fma(square, polynomial(square, DIGAMMA_FAR["f64"]), inverse * 0.5)
    far = fast_two_sum(log(x), -rest)
    # ψ(x) is ψ(1 + u), u = x - ⌊x⌋, and the reciprocals of x - 1, …, or less 1 / x
    k = make("floor", (x,))
    u = x - k
    distance = two_sum(u, _number(-ROOT[0]))
    root = mul_pair(Pair(distance.high, distance.low - ROOT[1]), _leading(u - 0.5, DIGAMMA["f64"]))
    under = two_product(select(k.lt(1.0), x, x - 1.0), select(k.ge(3.0), x - 2.0, 1.0))
    over = select(k.ge(3.0), fma(x, 2.0, -3.0), 1.0)
    over = select(k.lt(1.0), first, select(k.lt(2.0), 0.0, over))
    under = _choose(k.eq(1.0), Pair(_number(1.0), _number(0.0)), under)
    near = add_pair(root, _quotient(Pair(over, _number(0.0)), under))
    return _choose(x.ge(FAR), far, near)


def _digamma_reflected(size: Scalar) -> Scalar:
    """Return ψ(-size) = ψ(size) + 1 / size + π·cot(π·size)."""
    r = size - rint(size)
    cotangent = mul_pair(two_sum(_number(1.0), r * 2.0), two_sum(_number(1.0), r * -2.0))
    cotangent = _quotient(mul_pair(cotangent, _leading(r * r, COTANGENT["f64"])), Pair(r, _number(0.0)))
    one = Pair(select(size.lt(1.0), 0.0, _number(1.0)), _number(0.0))
    base = add_pair(_digamma_positive(size, 0.0), _quotient(one, Pair(size, _number(0.0))))
    value = add_pair(cotangent, base)
    return select(
        r.eq(0.0), math.nan, select(absolute(cotangent.high).eq(math.inf), cotangent.high, value.high + value.low)
    )


def digamma(x: Scalar) -> Scalar:
    """The derivative of log Γ(x); -∞ at 0, ∞ at -0, not a number at the negative integers."""
    wide = cast(x, "f64")
    size = absolute(wide)
    positive = _digamma_positive(size, -1.0)
    usual = select(size.lt(TINY), -1.0 / size, select(size.eq(math.inf), size, positive.high + positive.low))
    value = rarely(~wide.gt(0.0), _digamma_reflected(size), usual)
    pole = make("copysign", (_number(math.inf), -wide))
    return cast(select(size.eq(0.0), pole, value), x.dtype)

"""sin, cos, tan, sinc and the inverse functions asin, acos, atan, atan2.

After the reduction of ``reduction`` the functions are polynomials on [-π/4, π/4]. asin and acos use
asin(x) = π/2 - 2·asin(√((1 - x) / 2)) above 1/2, atan uses atan(x) = π/4 + atan((x - 1) / (x + 1)) and
π/2 - atan(1 / x), with one division in all (J.-M. Muller, Elementary Functions, 3rd ed., chapter 11).

Worst errors measured, in ulp: sin and cos 1.5, tan 1.4 (float32 0.51), asin, acos and atan 1.2, atan2 1.5, sinc 1.8.
"""

import math

from wengert.codegen.vecmath.coefficients import ASIN, ATAN, COS, SIN, SINC, TAN
from wengert.codegen.vecmath.parts import (
    Pair,
    absolute,
    fast_two_sum,
    flip_sign,
    fma,
    format_of,
    polynomial,
    rint,
    sign_bits,
    sqrt,
)  # fmt: skip
from wengert.codegen.vecmath.reduction import HALF_PI, LIMIT, Reduced, reduce, reduce_huge, reduce_pair
from wengert.loops.scalar import Scalar, bits, cast, const, rarely, select, width

__all__ = ["acos", "asin", "atan", "atan2", "cos", "sin", "sinc", "tan"]


def _odd(n: Scalar) -> Scalar:
    """Return whether the lowest bit is set."""
    return (n << (width(n.dtype) - 1)).lt(0)


def _half_turn(n: Scalar) -> Scalar:
    """Return the second bit in the place of the sign."""
    return (n & 2) << (width(n.dtype) - 2)


def _sine(r: Scalar, n: Scalar) -> Scalar:
    """Return sin(n·π/2 + r)."""
    t = r * r
    sine = fma(t * r, polynomial(t, SIN[r.dtype]), r)
    cosine = fma(t, fma(t, polynomial(t, COS[r.dtype]), -0.5), 1.0)
    return flip_sign(select(_odd(n), cosine, sine), _half_turn(n))


def _huge_sine(size: Scalar, quarter: int) -> Scalar:
    """Return sin(size + quarter·π/2) for any size ≥ 0."""
    large = reduce_huge(cast(size, "f64"))
    return cast(_sine(large.r, large.n + quarter), size.dtype)


def _sine_of(size: Scalar, quarter: int) -> Scalar:
    n, r = reduce(size)
    return rarely(~size.le(LIMIT[size.dtype]), _huge_sine(size, quarter), _sine(r, n + quarter))


def sin(x: Scalar) -> Scalar:
    """The sine."""
    return flip_sign(_sine_of(absolute(x), 0), sign_bits(x))


def cos(x: Scalar) -> Scalar:
    """The cosine."""
    return _sine_of(absolute(x), 1)


def _tangent_single(x: Reduced) -> Scalar:
    """Return the tangent to float32's precision, in float64."""
    t = x.r * x.r
    tangent = fma(t * x.r, polynomial(t, TAN["wide"]), x.r)
    return select(_odd(x.n), -1.0, tangent) / select(_odd(x.n), tangent, 1.0)


def _tangent(x: Reduced) -> Scalar:
    """Return sine over cosine or -cosine over sine, each as a pair, the quotient corrected."""
    t = x.r * x.r
    lost = fma(x.r, x.r, -t)
    sine = fast_two_sum(x.r, fma(t * x.r, polynomial(t, SIN["f64"]), x.low))
    small = fma(t * t, polynomial(t, COS["f64"]), fma(lost, -0.5, -x.r * x.low))
    cosine = fast_two_sum(const(1.0, "f64"), fma(t, -0.5, small))
    odd = _odd(x.n)
    over = Pair(select(odd, -cosine.high, sine.high), select(odd, -cosine.low, sine.low))
    under = Pair(select(odd, sine.high, cosine.high), select(odd, sine.low, cosine.low))
    inverse = 1.0 / under.high
    q = over.high * inverse
    left = fma(-q, under.high, over.high) + fma(-q, under.low, over.low)
    return fma(left, inverse, q)


def tan(x: Scalar) -> Scalar:
    """The tangent; for float32 computed in float64."""
    size = absolute(cast(x, "f64"))
    tangent = _tangent_single if x.dtype == "f32" else _tangent
    value = rarely(~size.le(LIMIT["f64"]), tangent(reduce_huge(size)), tangent(reduce_pair(size)))
    return flip_sign(cast(value, x.dtype), sign_bits(x))


def sinc(x: Scalar) -> Scalar:
    """sin(πx) / (πx), and 1 at 0: with r = x - n the product (r / x)·(sin(πr) / (πr)), with the sign of (-1)^n."""
    n = rint(x)
    r = x - n
    t = r * r
    ratio = select(n.eq(0.0), 1.0, r / x)
    value = fma(ratio * t, polynomial(t, SINC[x.dtype]), ratio)
    half = n * 0.5
    return select(half.eq(rint(half)), value, -value)


def _arcsine_rest(s: Scalar, z: Scalar) -> Scalar:
    """Return asin(s) - s for z = s² ≤ 1/4."""
    return s * z * polynomial(z, ASIN[z.dtype])


def asin(x: Scalar) -> Scalar:
    """The arcsine."""
    size = absolute(x)
    high, low = HALF_PI[x.dtype][:2]
    large = size.gt(0.5)
    z = select(large, fma(size, -0.5, 0.5), size * size)
    s = select(large, sqrt(z), size)
    rest = _arcsine_rest(s, z)
    head = fast_two_sum(const(high, x.dtype), s * -2.0)
    above = head.high + (head.low - fma(rest, 2.0, -low))
    return flip_sign(select(large, above, s + rest), sign_bits(x))


def acos(x: Scalar) -> Scalar:
    """The arccosine."""
    size = absolute(x)
    high, low = HALF_PI[x.dtype][:2]
    large = size.gt(0.5)
    z = select(large, fma(size, -0.5, 0.5), size * size)
    s = select(large, sqrt(z), x)
    rest = _arcsine_rest(s, z)
    right = (-s + high) - (rest - low)
    angle = select(large & x.gt(0.0), s + rest, right)
    return select(large, angle * 2.0, angle)


# Where atan changes its form: below 1/2 in value for the first, so that the result has one unit less.
STEP, FAR = 0.55, 1.82


def _arctangent(t: Scalar) -> Scalar:
    z = t * t
    return t * z * polynomial(z, ATAN[t.dtype])


def atan(x: Scalar) -> Scalar:
    """The arctangent."""
    size = absolute(x)
    high, low = HALF_PI[x.dtype][:2]
    step, far = size.gt(STEP), size.gt(FAR)
    over = select(far, -1.0, select(step, size - 1.0, size))
    under = select(far, size, select(step, size + 1.0, const(1.0, x.dtype)))
    base = select(far, high, select(step, high / 2, const(0.0, x.dtype)))
    base_low = select(far, low, select(step, low / 2, const(0.0, x.dtype)))
    t = over / under
    return flip_sign(base + (t + (_arctangent(t) + base_low)), sign_bits(x))


def atan2(y: Scalar, x: Scalar) -> Scalar:
    """The angle of the point (x, y), as C's atan2 gives it for zeros and infinities."""
    form = format_of(x)
    width_, height = absolute(x), absolute(y)
    steep = height.gt(width_)
    shorter, longer = select(steep, width_, height), select(steep, height, width_)
    # scaled so that sums do not overflow and products are not subnormal
    unit = select(
        longer.gt(form.huge / 4), 0.25, select(longer.lt(form.tiny * 16), 2.0**form.digits, const(1.0, x.dtype))
    )
    a, b = shorter * unit, longer * unit
    step = a.gt(b * STEP) | a.eq(math.inf)
    over = select(step, select(a.eq(b), 0.0, a - b), a)
    under = select(step, a + b, select(b.eq(0.0), 1.0, b))
    t = over / under
    angle = t + _arctangent(t)
    # the angle is eighths·π/4 ± atan(t)
    eighths = select(step, 1.0, const(0.0, x.dtype))
    eighths = select(steep, 2.0 - eighths, eighths)
    left = bits(x, form.integer).lt(0)
    eighths = select(left, 4.0 - eighths, eighths)
    high, low = HALF_PI[x.dtype][0] / 2, HALF_PI[x.dtype][1] / 2
    base = eighths * high
    base_low = fma(eighths, low, fma(eighths, high, -base))
    mirrored = select(steep, -angle, angle)
    value = base + (select(left, -mirrored, mirrored) + base_low)
    return flip_sign(value, sign_bits(y))

"""sinh, cosh, tanh and their inverses: by exp(x) - 1 and log(1 + x), arranged so that nothing cancels.

The arrangements are in W. Kahan, Branch cuts for complex elementary functions (1987), and in fdlibm (1993).
"""

from typing import Final

from wengert.codegen.vecmath.coefficients import SINH
from wengert.codegen.vecmath.exponential import HIGHEST, power_part, reduce
from wengert.codegen.vecmath.parts import (
    absolute, below, fast_two_sum, flip_sign, fma, format_of, polynomial, power_of_two, sign_bits, two_sum,
)  # fmt: skip
from wengert.loops.scalar import Scalar, const, select

__all__ = ["cosh", "sinh", "tanh"]

ONE_FROM: Final = {"f32": 10.0, "f64": 20.0}  # where tanh rounds to 1


def tanh(x: Scalar) -> Scalar:
    """h / (1 + h) with h = (exp(2 |x|) - 1) / 2, and the sign of x.

    The quotient is corrected by what its rounding and that of 1 + h left; 1 / (1 + h) is 1 - tanh |x|.
    """
    n, r, low = reduce(below(absolute(x), ONE_FROM[x.dtype]) * 2.0)
    power = power_of_two(n[1] - 1, format_of(x))
    head = fast_two_sum(power - 0.5, power * r)
    h = head.high + fma(power, power_part(r) + low, head.low)
    whole = two_sum(const(1.0, x.dtype), h)
    q = h / whole.high
    left = fma(-q, whole.low, fma(-q, whole.high, h))
    return flip_sign(below(fma(left, 1.0 - q, q), 1.0), sign_bits(x))


def half_exp(x: Scalar) -> Scalar:
    """Return exp(x) / 2 for x ≥ 0, also where exp(x) overflows and the half does not."""
    n, r, low = reduce(below(x, HIGHEST[x.dtype] + 1.0))
    return ((r + (power_part(r) + low)) + 1.0) * power_of_two(n[1] - 2, format_of(x)) * 2.0


def sinh(x: Scalar) -> Scalar:
    """A polynomial below 1, (exp(x) - exp(-x)) / 2 above."""
    size = absolute(x)
    square = size * size
    near = fma(size * square, polynomial(square, SINH[x.dtype]), size)
    half = half_exp(size)
    return flip_sign(select(size.lt(1.0), near, half - 0.25 / half), sign_bits(x))


def cosh(x: Scalar) -> Scalar:
    """(exp(x) + exp(-x)) / 2."""
    half = half_exp(absolute(x))
    return half + 0.25 / half

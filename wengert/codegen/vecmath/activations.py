"""sigmoid, silu, softplus, log_sigmoid, logaddexp: functions of exp(-|x|), which is at most 1."""

from typing import Final

from wengert.codegen.vecmath.exponential import LOWEST, power_part, reduce
from wengert.codegen.vecmath.parts import absolute, above, fast_two_sum, fma, format_of, power_of_two, scale
from wengert.loops.scalar import Scalar, const, rarely, select

__all__ = ["sigmoid", "sigmoid_times", "silu"]

NORMAL_FROM: Final = {"f32": -87.0, "f64": -708.0}  # exp(x) is a normal number


def sigmoid_times(factor: Scalar | None, x: Scalar) -> Scalar:
    """Return factor · sigmoid(x) = factor · (1 or e) / (1 + e), with e = exp(-|x|); no factor is 1.

    The quotient is corrected by what its rounding and that of 1 + e left. Where e is subnormal its power of two comes
    last, so that the result is rounded once.
    """
    size = -absolute(x)
    n, r, low = reduce(size)
    e = ((r + (power_part(r) + low)) + 1.0) * power_of_two(n[1], format_of(x))
    high, low = fast_two_sum(const(1.0, x.dtype), e)
    numerator = select(x.lt(0.0), e, 1.0)
    q = numerator / high
    inverse = fma(high, -8 / 17, 24 / 17)  # of a number in [1, 2], within 1/17
    correction = fma(-q, low, fma(-q, high, numerator)) * inverse
    usual = q + correction if factor is None else fma(factor, q, factor * correction)
    return rarely(size.lt(NORMAL_FROM[x.dtype]), tail(const(1.0, x.dtype) if factor is None else factor, x), usual)


def tail(factor: Scalar, x: Scalar) -> Scalar:
    """Return factor · exp(x) for x ≪ 0, rounded once; and the factor for x ≫ 0."""
    lowest = LOWEST[x.dtype] * 1.2
    n, r, low = reduce(above(x, lowest))
    small = scale(factor * ((r + (power_part(r) + low)) + 1.0), n)
    return select(x.gt(0.0), factor, select(x.lt(lowest), factor * 0.0, small))


def sigmoid(x: Scalar) -> Scalar:
    """1 / (1 + exp(-x))."""
    return sigmoid_times(None, x)


def silu(x: Scalar) -> Scalar:
    """x / (1 + exp(-x))."""
    return sigmoid_times(x, x)

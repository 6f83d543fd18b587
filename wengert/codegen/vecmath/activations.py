"""sigmoid, silu, softplus, log_sigmoid, logaddexp: functions of exp(-|x|), which is at most 1.

Worst errors measured, in ulp: sigmoid 1.5, silu 1.7, softplus and log_sigmoid 1.6, gelu_tanh 1.4, logaddexp 1.9 (see there).
"""

import math
from typing import Final

from wengert.codegen.vecmath.exponential import LOWEST, growth, power_part, reduce
from wengert.codegen.vecmath.logarithm import log1p_of_pair
from wengert.codegen.vecmath.parts import (
    Pair,
    above,
    absolute,
    fast_two_sum,
    fma,
    format_of,
    power_of_two,
    scale,
    two_product,
    two_sum,
)  # fmt: skip
from wengert.loops.scalar import Scalar, cast, const, rarely, select

__all__ = ["gelu_tanh", "log_sigmoid", "logaddexp", "sigmoid", "silu", "softplus"]

NORMAL_FROM: Final = {"f32": -87.0, "f64": -708.0}  # exp(x) is a normal number


def _sigmoid_times(factor: Scalar | None, x: Scalar, extra: Scalar | None = None) -> Scalar:
    """Return factor · sigmoid(x + extra) = factor · (1 or e) / (1 + e), with e = exp(-|x + extra|); no factor is 1.

    The quotient is corrected by what its rounding and that of 1 + e left. Where e is subnormal its power of two comes
    last, so that the result is rounded once.
    """
    size, negative = -absolute(x), x.lt(0.0)
    n, r, low = reduce(size)
    grown = growth(r) if extra is None else _growth(r, low, select(negative, extra, -extra))
    power = power_of_two(n[1], format_of(x))
    e = fma(grown, power, power)
    high, low = fast_two_sum(const(1.0, x.dtype), e)
    numerator = select(negative, e, 1.0)
    q = numerator / high
    inverse = fma(high, -8 / 17, 24 / 17)  # of a number in [1, 2], within 1/17
    residual = fma(-q, low, fma(-q, high, numerator))
    usual = fma(residual, inverse, q) if factor is None else fma(factor, q, factor * residual * inverse)
    limit = const(1.0, x.dtype) if factor is None else factor
    return rarely(size.lt(NORMAL_FROM[x.dtype]), select(x.gt(0.0), limit, _tail(limit, x, extra)), usual)


def _growth(r: Scalar, low: Scalar, extra: Scalar | None) -> Scalar:
    """Return exp(r + low + extra) - 1 for a tiny ``low`` and a small ``extra``; no ``extra`` is 0."""
    rest = power_part(r)
    return r + (rest + (low if extra is None else fma(extra, (r + rest) + 1.0, low)))


def _tail(factor: Scalar, x: Scalar, extra: Scalar | None = None) -> Scalar:
    """Return factor · exp(x + extra) for x ≪ 0, rounded once where it is subnormal."""
    lowest = LOWEST[x.dtype] * 1.2
    n, r, low = reduce(above(x, lowest))
    small = scale(factor * (_growth(r, low, extra) + 1.0), n)
    return select(x.lt(lowest), factor * 0.0, small)


def sigmoid(x: Scalar) -> Scalar:
    """1 / (1 + exp(-x))."""
    return _sigmoid_times(None, x)


def silu(x: Scalar) -> Scalar:
    """x / (1 + exp(-x))."""
    return _sigmoid_times(x, x)


def _log1p_exp(x: Scalar, extra: Scalar | None = None) -> Scalar:
    """Return log(1 + exp(x + extra)) for x ≤ 0; the exponential is a pair."""
    n, r, low = reduce(x)
    e = fast_two_sum(const(1.0, x.dtype), _growth(r, low, extra))
    power = power_of_two(n[1], format_of(x))
    usual = log1p_of_pair(Pair(e.high * power, e.low * power))
    return rarely(x.lt(NORMAL_FROM[x.dtype]), _tail(const(1.0, x.dtype), x, extra), usual)


def softplus(x: Scalar) -> Scalar:
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))."""
    return _log1p_exp(-absolute(x)) + above(x, 0.0)


def log_sigmoid(x: Scalar) -> Scalar:
    """-log(1 + exp(-x))."""
    return -softplus(-x)


def logaddexp(a: Scalar, b: Scalar) -> Scalar:
    """log(exp(a) + exp(b)) = max(a, b) + log(1 + exp(-|a - b|)), in float64.

    In float64 the error is at most 2 units in the last place of the larger of the result and |max(a, b)|: the two terms
    may cancel.
    """
    x, y = cast(a, "f64"), cast(b, "f64")
    larger, smaller = select(x.gt(y), x, y), select(x.gt(y), y, x)
    gap, low = two_sum(smaller, -larger)
    infinite = absolute(gap).eq(math.inf) | x.eq(y)
    gap = select(x.eq(y), 0.0, gap)
    return cast(larger + _log1p_exp(gap, select(infinite, 0.0, low)), a.dtype)


# gelu_tanh(x) = x·sigmoid(x·(SLOPE + CUBE·x²)): 2·√(2/π), and 0.044715 times that, as pairs.
SLOPE: Final = {"f32": (1.5957691669464111, -4.534068054340423e-08), "f64": (1.5957691216057308, -9.96930880911092e-17)}
CUBE: Final = {
    "f32": (0.07135481387376785, 2.3988324659995897e-09),
    "f64": (0.07135481627260025, -6.175149918155315e-19),
}


def gelu_tanh(x: Scalar) -> Scalar:
    """x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) / 2."""
    slope, factor = SLOPE[x.dtype], CUBE[x.dtype]
    square = two_product(x, x)
    cube = two_product(square.high, const(factor[0], x.dtype))
    cube_low = fma(square.high, factor[1], fma(square.low, factor[0], cube.low))
    rate = two_sum(const(slope[0], x.dtype), cube.high)
    phase = two_product(x, rate.high)
    return _sigmoid_times(x, phase.high, fma(x, rate.low + (cube_low + slope[1]), phase.low))

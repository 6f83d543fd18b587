"""The monoids that kernels reduce with."""

import math

from wengert.loops.ir import monoid
from wengert.loops.scalar import DTYPES, Scalar, const, is_float, make, select

__all__ = ["highest", "lowest"]

State = tuple[Scalar, ...]


def lowest(dtype: str) -> Scalar:
    """Return the smallest value of a dtype (-inf for floats)."""
    if dtype == "bool":
        return const(False, dtype)
    if is_float(dtype):
        return const(-math.inf, dtype)
    return const(-(1 << DTYPES[dtype] - 1) if dtype[0] == "i" else 0, dtype)


def highest(dtype: str) -> Scalar:
    """Return the largest value of a dtype (inf for floats)."""
    if dtype == "bool":
        return const(True, dtype)
    if is_float(dtype):
        return const(math.inf, dtype)
    return const((1 << DTYPES[dtype] - (dtype[0] == "i")) - 1, dtype)


def _first(better: str) -> "object":
    """Combine (value, place): the better value, the earlier of equals, a NaN before all."""

    def combine(a: State, b: State) -> State:
        (x, i), (y, j) = a, b
        wins = make(better, (y, x)) | (y.eq(x) & j.lt(i))
        if is_float(x.dtype):
            nan_x, nan_y = x.ne(x), y.ne(y)
            wins = select(nan_x, nan_y & j.lt(i), wins | nan_y)
        return select(wins, y, x), select(wins, j, i)

    return combine


def _welford(a: State, b: State) -> State:
    """Combine (count, mean, sum of squared deviations); T. Chan, G. Golub, R. LeVeque (1979), equation 2.1."""
    (n, mean, square), (m, other, rest) = a, b
    total = n + m
    share = select(total.eq(0), total, m / total)
    gap = other - mean
    return total, mean + gap * share, square + rest + gap * gap * n * share


def _log_sum_exp(a: State, b: State) -> State:
    """Combine (largest, Σ exp(x - largest))."""
    (top, total), (other, more) = a, b
    best = make("maximum", (top, other))
    finite = select(best.eq(-math.inf), 0.0, best)
    return best, total * make("exp", (top - finite,)) + more * make("exp", (other - finite,))


sum_ = monoid("sum")(lambda d: (const(0, d),), lambda a, b: (a[0] + b[0],))
prod = monoid("prod")(lambda d: (const(1, d),), lambda a, b: (a[0] * b[0],))
max_ = monoid("max")(lambda d: (lowest(d),), lambda a, b: (make("maximum", (a[0], b[0])),))
min_ = monoid("min")(lambda d: (highest(d),), lambda a, b: (make("minimum", (a[0], b[0])),))
any_ = monoid("any")(lambda d: (const(False, "bool"),), lambda a, b: (a[0] | b[0],))
all_ = monoid("all")(lambda d: (const(True, "bool"),), lambda a, b: (a[0] & b[0],))
argmax = monoid("argmax", parts=2, dtypes=lambda d: (d, "i64"))(lambda d: (lowest(d), highest("i64")), _first("gt"))
argmin = monoid("argmin", parts=2, dtypes=lambda d: (d, "i64"))(lambda d: (highest(d), highest("i64")), _first("lt"))
welford = monoid("welford", parts=3)(lambda d: (const(0, d),) * 3, _welford)
log_sum_exp = monoid("log_sum_exp", parts=2)(lambda d: (const(-math.inf, d), const(0, d)), _log_sum_exp)

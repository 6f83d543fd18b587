"""Classical orthogonal polynomials of any order, by their three-term recurrences.

A. Gil, J. Segura, N. M. Temme, "Numerical methods for special functions", 2007, §4.5: upwards the recurrences are
stable for the polynomials. Values too large for float64 on the way are kept with an exponent of their own, so that only
results overflow. Coefficients: NIST Digital Library of Mathematical Functions, §18.9(i).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.kernels.blocks import in_blocks

__all__ = [
    "MAX_ORDER", "chebyshev_t", "chebyshev_v", "chebyshev_w", "gegenbauer", "hermite_h", "hermite_he", "laguerre",
]  # fmt: skip

MAX_ORDER = 100_000  # a recurrence takes a pass over the array per order: a second for a few numbers
_LARGE = 2.0**400
_FARTHEST = 2.0**513  # from here on every polynomial of order 2 and more overflows

Step = Callable[[int, Any, Any, Any], Any]


def _evaluated(x: Any, n: Any, first: Any, step: Step) -> Any:
    """Return pₙ(x) with p₀ = 1, p₁ = ``first`` and pₖ₊₁ = step(k, x, pₖ, pₖ₋₁), element by element; 0 for n < 0.

    Raises:
        ValueError: for an order beyond ``MAX_ORDER``.
    """
    order = np.trunc(n)
    known = np.isfinite(order)
    last = int(np.max(order, initial=0, where=known))
    if last > MAX_ORDER:
        raise ValueError(f"orthogonal polynomials are computed up to order {MAX_ORDER}, got order {last}")
    out = np.where(order == 0, np.where(np.isnan(x), x, 1.0), np.where(order == 1, first, 0.0))
    wanted = set(np.unique(order[known]).tolist())
    before, now, exponent = np.ones_like(x), first, np.zeros(x.shape, np.int64)
    x = np.clip(x, -_FARTHEST, _FARTHEST)
    now = np.clip(now, -2 * _FARTHEST, 2 * _FARTHEST)
    for k in range(1, last):
        large = np.abs(now) > _LARGE
        if large.any():
            shift = np.where(large, np.frexp(now)[1], 0)
            before, now, exponent = np.ldexp(before, -shift), np.ldexp(now, -shift), exponent + shift
        before, now = now, step(k, x, now, before)
        if k + 1 in wanted:
            at = order == k + 1
            out[at] = np.ldexp(now[at], np.minimum(exponent[at], 4000))
    return np.where(known, out, np.nan)


@in_blocks
def chebyshev_t(x: Any, n: Any) -> Any:
    """Return the Chebyshev polynomial of the first kind Tₙ(x)."""
    return _evaluated(x, n, x, _chebyshev)


def _chebyshev(k: int, x: Any, now: Any, before: Any) -> Any:
    return 2 * x * now - before


@in_blocks
def chebyshev_v(x: Any, n: Any) -> Any:
    """Return the Chebyshev polynomial of the third kind Vₙ(x), Uₙ(x) - Uₙ₋₁(x)."""
    return _evaluated(x, n, 2 * x - 1, _chebyshev)


@in_blocks
def chebyshev_w(x: Any, n: Any) -> Any:
    """Return the Chebyshev polynomial of the fourth kind Wₙ(x), Uₙ(x) + Uₙ₋₁(x)."""
    return _evaluated(x, n, 2 * x + 1, _chebyshev)


def gegenbauer(x: Any, n: Any, order: float) -> Any:
    """Return the Gegenbauer polynomial Cₙ(x) of parameter λ = ``order`` > 0: Legendre's for ½, Chebyshev's U for 1."""

    def step(k: int, x: Any, now: Any, before: Any) -> Any:
        return (2 * (k + order) / (k + 1)) * x * now - ((k + 2 * order - 1) / (k + 1)) * before

    return in_blocks(lambda x, n: _evaluated(x, n, 2 * order * x, step))(x, n)


def laguerre(x: Any, n: Any, order: int) -> Any:
    """Return the Laguerre polynomial Lₙ(x) of parameter α = ``order``."""

    def step(k: int, x: Any, now: Any, before: Any) -> Any:
        return ((2 * k + 1 + order - x) * now - (k + order) * before) / (k + 1)

    return in_blocks(lambda x, n: _evaluated(x, n, 1 + order - x, step))(x, n)


@in_blocks
def hermite_h(x: Any, n: Any) -> Any:
    """Return the physicists' Hermite polynomial Hₙ(x)."""
    return _evaluated(x, n, 2 * x, lambda k, x, now, before: 2 * x * now - 2 * k * before)


@in_blocks
def hermite_he(x: Any, n: Any) -> Any:
    """Return the probabilists' Hermite polynomial Heₙ(x)."""
    return _evaluated(x, n, x, lambda k, x, now, before: x * now - k * before)

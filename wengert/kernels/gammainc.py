"""The regularised incomplete gamma functions P(a, x) and Q(a, x) = 1 - P.

Where a is large and x near it: Temme's uniform expansion around the error function, its coefficients by backward
recurrence (A. Gil, J. Segura, N. M. Temme, "Efficient and accurate algorithms for the computation and inversion of the
incomplete gamma function ratios", SIAM J. Sci. Comput. 34, 2012, §2.5). Elsewhere the Taylor series for P (x < a) or
Legendre's continued fraction for Q (NIST Digital Library of Mathematical Functions, §8.7 and §8.9).
"""

import math
from typing import Any

import numpy as np

from wengert.kernels.blocks import in_blocks, pieces
from wengert.kernels.gamma import lgamma_positive
from wengert.kernels.special import erfc

__all__ = ["gammainc", "gammaincc"]

_EPS = 2.0**-53
_STEPS = 2000  # a bound far above what any argument needs; the loops stop when nothing changes any more
# η / (λ - 1) as a power series in η, where η²/2 = λ - 1 - log λ
_TEMME = (
    1.0, -0.3333333333333333, 0.08333333333333333, -0.014814814814814815, 0.0011574074074074073,
    0.0003527336860670194, -0.0001787551440329218, 3.919263178522438e-05, -2.185448510679992e-06,
    -1.85406221071516e-06, 8.296711340953087e-07, -1.7665952736826078e-07, 6.707853543401498e-09,
    1.0261809784240309e-08, -4.382036018453353e-09, 9.14769958223679e-10, -2.5514193994946248e-11,
    -5.830772132550426e-11, 2.4361948020667415e-11, -5.0276692801141755e-12, 1.1004392031956135e-13,
    3.371763262400985e-13, -1.392388722418162e-13, 2.8534893807047445e-14, -5.139111834242572e-16,
    -1.9752288294349442e-15, 8.099521156704561e-16, -1.6522531216398162e-16,
)  # fmt: skip
# log Γ(a + 1) = ½ log 2πa + a log a - a + Σ cₖ / a²ᵏ⁺¹
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


def _excess(mu: Any) -> Any:
    """Return μ - log(1 + μ), near 0 by the series of atanh: log(1 + μ) = 2 atanh w with w = μ / (2 + μ)."""

    def near(mu: Any) -> Any:
        w = mu / (2 + mu)
        square, total = w * w, np.zeros_like(w)
        for k in range(17, 0, -1):
            total = (total + 2 / (2 * k + 1)) * square
        return w * (mu - total)

    return pieces(np.abs(mu) < 0.5, near, lambda mu: mu - np.log1p(mu), mu)


def _leading(a: Any, x: Any) -> Any:
    """Return xᵃ e⁻ˣ / Γ(a + 1)."""

    def small(a: Any, x: Any) -> Any:
        return np.exp(a * np.log(x) - x - lgamma_positive(a + 1))

    def large(a: Any, x: Any) -> Any:
        square, tail = a * a, np.zeros_like(a)
        for c in reversed(_STIRLING):
            tail = tail / square + c
        return np.exp(-a * _excess((x - a) / a) - tail / a) / np.sqrt(2 * math.pi * a)

    return pieces(a < 12, small, large, a, x)


def _series(a: Any, x: Any) -> Any:
    """Return P(a, x) by its Taylor series, all of whose terms are positive."""
    term, total = np.ones_like(a), np.ones_like(a)
    for n in range(1, _STEPS):
        term *= x / (a + n)
        total += term
        if not (term > _EPS * total).any():
            break
    return total * _leading(a, x)


def _complement_series(a: Any, x: Any) -> Any:
    """Return Q(a, x) = 1 - (xᵃ / Γ(a + 1)) (1 + a Σ (-x)ⁿ / (n! (a + n))) for small x, also where it is small."""
    term, total = np.ones_like(a), np.zeros_like(a)
    for n in range(1, _STEPS):
        term *= -x / n
        step = term / (a + n)
        total += step
        if not (np.abs(step) > _EPS * np.abs(total)).any():
            break
    log_power = a * np.log(x) - lgamma_positive(a + 1)
    return -np.expm1(log_power) - np.exp(log_power) * a * total


def _fraction(a: Any, x: Any) -> Any:
    """Return Q(a, x) by Legendre's continued fraction, evaluated by the modified method of Lentz."""
    b = x + 1 - a
    c, d = np.full_like(b, 1e300), 1 / b
    value = d.copy()
    for n in range(1, _STEPS):
        weight = n * (a - n)
        b += 2
        d = 1 / (weight * d + b)
        c = b + weight / c
        value *= c * d
        if not (np.abs(c * d - 1) > 2 * _EPS).any():
            break
    return value * _leading(a, x) * a


def _by_series(a: Any, x: Any) -> tuple[Any, Any]:
    lower = _series(a, x)
    return lower, 1 - lower


def _by_fraction(a: Any, x: Any) -> tuple[Any, Any]:
    upper = _fraction(a, x)
    return 1 - upper, upper


def _by_both_series(a: Any, x: Any) -> tuple[Any, Any]:
    return _series(a, x), _complement_series(a, x)


def _uniform(a: Any, x: Any) -> tuple[Any, Any]:
    """Return P and Q for a ≥ 12 and x near a: the error function and Temme's correction, β by backward recurrence."""
    mu = (x - a) / a
    half_square = _excess(mu)
    eta = np.copysign(np.sqrt(2 * half_square), mu)
    total, beta, after = np.zeros_like(a), np.zeros_like(a), np.zeros_like(a)
    for n in range(len(_TEMME) - 2, -1, -1):
        beta, after = _TEMME[n + 1] + (n + 2) / a * after, beta
        total = total * eta + beta
    correction = np.exp(-a * half_square) / np.sqrt(2 * math.pi * a) * total * a / (a + after)
    z = eta * np.sqrt(0.5 * a)
    return 0.5 * erfc(-z) - correction, 0.5 * erfc(z) + correction


def _ratios(a: Any, x: Any) -> tuple[Any, Any]:
    """Return P and Q for positive finite a and x."""
    near = (a >= 12) & (x > 0.3 * a) & (x < 2.35 * a)
    small = ~near & (x >= a) & (x <= 1.1)
    below = ~near & (x < a)
    lower, upper = np.empty_like(a), np.empty_like(a)
    methods = ((near, _uniform), (small, _by_both_series), (below, _by_series), (~(near | small | below), _by_fraction))
    for where, method in methods:
        if where.any():
            lower[where], upper[where] = method(a[where], x[where])
    return lower, upper


def _regularised(which: int, a: Any, x: Any) -> Any:
    """Return P (``which`` 0) or Q (1), with the limits at 0 and infinity and nan outside the domain."""
    inside = (a > 0) & (x > 0) & (a < np.inf) & (x < np.inf)
    found = _ratios(np.where(inside, a, 1.0), np.where(inside, x, 1.0))[which]
    at_zero = ((x == 0) & (a > 0)) | ((a == np.inf) & (x < np.inf))
    at_one = ((a == 0) & (x > 0)) | ((x == np.inf) & (a < np.inf))
    limit = np.where(at_zero, which, np.where(at_one, 1 - which, np.nan))
    return np.where(inside, found, np.where((a >= 0) & (x >= 0), limit, np.nan))


@in_blocks
def gammainc(a: Any, x: Any) -> Any:
    """Return P(a, x) = 1/Γ(a) ∫₀ˣ tᵃ⁻¹ e⁻ᵗ dt; nan for negative arguments."""
    return _regularised(0, a, x)


@in_blocks
def gammaincc(a: Any, x: Any) -> Any:
    """Return Q(a, x) = 1 - P(a, x), exact to rounding where it is small; nan for negative arguments."""
    return _regularised(1, a, x)

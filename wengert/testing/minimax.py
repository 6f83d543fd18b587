"""Polynomials of least largest error: how the coefficients of ``wengert.codegen.vecmath`` were made.

What is fitted stands in ``wengert.testing.fits``.

The method is Remez's exchange (E. Ya. Remez, 1934; J.-M. Muller, Elementary Functions, 3rd ed., chapter 3) on a fine
grid of Chebyshev points, in mpmath. The coefficients are rounded to their format one by one, from the constant term up,
and those behind make up for the rounding as well as they can in least squares (N. Brisebarre and S. Chevillard,
Efficient polynomial L∞-approximations, ARITH 2007, search further).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import numpy as np
from mpmath import mp, mpf

__all__ = ["Function", "Spec", "fit", "largest_error"]

Function = Callable[[Any], Any]


class Spec(NamedTuple):
    """A polynomial in t to be fitted to ``function`` on [low, high].

    Attributes:
        function: of t, with values that do not vanish unless ``weight`` is given.
        low, high: the interval.
        terms: format to the number of coefficients; "f32" and "f64" round them to that format, and "wide" is a
            polynomial with float64 coefficients for results in float32.
        weight: what the error is multiplied by; without it the relative error is made small.
        parts: how many coefficients, from the constant up, are given as two numbers, the second a correction.
    """

    function: Function
    low: Any
    high: Any
    terms: dict[str, int]
    weight: Function | None = None
    parts: int = 0


def _horner(falling: Any, t: Any) -> Any:
    """Return the value at ``t`` of a polynomial whose coefficients are given highest power first."""
    value = mpmath.mpf(0)
    for coefficient in falling:
        value = value * t + coefficient
    return value


def _rounded(value: Any, kind: str) -> float:
    return float(np.float32(float(value))) if kind == "f32" else float(value)


def _grid(low: Any, high: Any, count: int) -> list[Any]:
    middle, half = (mpf(low) + high) / 2, (mpf(high) - low) / 2
    return [middle - half * mpmath.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]


def _extrema(errors: list[Any], count: int) -> list[int]:
    """Return the places of ``count`` alternating extrema of the error: the largest of each run of one sign."""
    runs: list[int] = []
    for k, error in enumerate(errors):
        if runs and (error >= 0) == (errors[runs[-1]] >= 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = k
        else:
            runs.append(k)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs


def _remez(points: list[Any], values: list[Any], weights: list[Any], terms: int) -> list[Any]:
    """Return the coefficients of the polynomial with the least largest weighted error on the points."""
    count = len(points)
    chosen = [round((count - 1) * (1 - math.cos(math.pi * k / terms)) / 2) for k in range(terms + 1)]
    best: tuple[Any, list[Any]] | None = None
    for _ in range(24):
        matrix = mpmath.matrix(terms + 1)
        for row, k in enumerate(chosen):
            for column in range(terms):
                matrix[row, column] = points[k] ** column * weights[k]
            matrix[row, terms] = (-1) ** row
        solution = mpmath.lu_solve(matrix, mpmath.matrix([values[k] * weights[k] for k in chosen]))
        coefficients = [solution[k] for k in range(terms)]
        falling = coefficients[::-1]
        errors = [(v - _horner(falling, t)) * w for t, v, w in zip(points, values, weights, strict=True)]
        worst = max(map(abs, errors))
        if best is None or worst < best[0]:
            best = (worst, coefficients)
        if worst <= abs(solution[terms]) * mpf("1.0005"):
            break
        extrema = _extrema(errors, terms + 1)
        if len(extrema) < terms + 1:
            break
        chosen = extrema
    assert best is not None
    return best[1]


def _making_up(points: list[Any], weights: list[Any], k: int, terms: int) -> list[float]:
    """Return the coefficients of t^(k + 1), …, t^(terms - 1) with which they come nearest to t^k."""
    size = max(abs(t) for t in points)
    t = np.array([float(v / size) for v in points])
    columns = t[:, None] ** np.arange(k, terms) * np.array([float(w) for w in weights])[:, None]
    found = np.linalg.lstsq(columns[:, 1:], columns[:, 0], rcond=None)[0]
    return [float(c) * float(size) ** -(j + 1) for j, c in enumerate(found)]


def fit(spec: Spec, kind: str) -> tuple[float, ...]:
    """Return the coefficients for a format, constant term first; those with a correction as two numbers."""
    terms = spec.terms[kind]
    with mp.workdps(60):
        points = _grid(spec.low, spec.high, 24 * (terms + 2))
        values = [spec.function(t) for t in points]
        weights = [spec.weight(t) if spec.weight else 1 / abs(v) for t, v in zip(points, values, strict=True)]
        exact = _remez(points, values, weights, terms)
        found: list[float] = []
        for k in range(terms):
            pieces = [_rounded(exact[k], kind)]
            if k < spec.parts:
                pieces.append(_rounded(exact[k] - pieces[0], kind))
            found += pieces
            lost = exact[k] - sum(map(mpf, pieces))
            for j, c in enumerate(_making_up(points, weights, k, terms)):
                exact[k + 1 + j] += lost * c
    return tuple(found)


def largest_error(spec: Spec, coefficients: tuple[float, ...], count: int = 500) -> float:
    """Return the largest weighted error of a polynomial on the interval, computed exactly."""
    with mp.workdps(60):
        pieces = [mpf(c) for c in coefficients]
        heads = [pieces[2 * k] + pieces[2 * k + 1] for k in range(spec.parts)]
        falling = [*heads, *pieces[2 * spec.parts :]][::-1]
        worst = mpf(0)
        for t in _grid(spec.low, spec.high, count):
            value = spec.function(t)
            weight = spec.weight(t) if spec.weight else 1 / abs(value)
            worst = max(worst, abs(_horner(falling, t) - value) * weight)
        return float(worst)

"""The polynomials of vector mathematics are what ``wengert.testing.fits`` says, and the numbers beside them are right."""

import math

import mpmath
import numpy as np
import pytest

from wengert.codegen.vecmath import activations, coefficients, exponential, gamma, logarithm, power, reduction
from wengert.testing.fits import SPECS, source
from wengert.testing.minimax import Spec, fit, largest_error

BITS = {"f32": 24, "wide": 27, "f64": 53}
FEWER = {"CBRT": 8, "ERFC_SLOPE": 4, "NDTR_SLOPE": 4}  # beginnings of iterations, and what only corrects


@pytest.mark.parametrize("name", SPECS)
def test_a_polynomial_is_as_near_as_its_format_needs(name: str) -> None:
    spec = SPECS[name]
    for kind, table in getattr(coefficients, name).items():
        assert len(table) == spec.terms[kind] + spec.parts
        assert largest_error(spec, table, 40) < 2.0 ** -FEWER.get(name, BITS[kind])


def test_the_coefficients_are_those_that_are_printed() -> None:
    text = source("SIN")
    namespace: dict[str, object] = {}
    exec(text.replace(": Final", ""), namespace)
    for kind, table in coefficients.SIN.items():
        np.testing.assert_allclose(namespace["SIN"][kind], table, rtol=1e-6)


def test_a_fit_is_near_the_best_there_is() -> None:
    """The least largest error of degree n - 1 for 1 / (2 - x) on [-1, 1] is known in closed form (Chebyshev, 1892)."""
    found = fit(Spec(lambda x: 1 / (2 - x), -1, 1, {"f64": 8}, lambda x: 1), "f64")
    root = math.sqrt(3)
    best = (2 - root) ** 7 / 3
    assert largest_error(Spec(lambda x: 1 / (2 - x), -1, 1, {"f64": 8}, lambda x: 1), found) == pytest.approx(
        best, 1e-3
    )


PAIRS = {
    "ln 2": (lambda: mpmath.ln2, exponential.LN2),
    "ln 2 of the logarithm": (lambda: mpmath.ln2, logarithm.LN2),
    "log10 2": (lambda: mpmath.log10(2), logarithm.LOG10_2),
    "log2 e": (lambda: 1 / mpmath.ln2, logarithm.LOG2_E),
    "log10 e": (lambda: 1 / mpmath.ln10, logarithm.LOG10_E),
    "π/2": (lambda: mpmath.pi / 2, reduction.HALF_PI),
    "2/3": (lambda: mpmath.mpf(2) / 3, {"f64": power.TWO_THIRDS}),
    "log √2π - 1/2": (lambda: mpmath.log(2 * mpmath.pi) / 2 - 0.5, {"f64": gamma.STIRLING}),
    "root of digamma": (lambda: mpmath.findroot(mpmath.digamma, 1.46) - 1, {"f64": gamma.ROOT}),
    "2√(2/π)": (lambda: 2 * mpmath.sqrt(2 / mpmath.pi), activations.SLOPE),
    "0.08943√(2/π)": (
        lambda: 2 * mpmath.sqrt(2 / mpmath.pi) * mpmath.mpf("0.044715"),
        activations.CUBE,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_numbers_in_parts(name: str) -> None:
    exact, parts = PAIRS[name]
    with mpmath.workdps(90):
        for dtype, numbers in parts.items():
            digits = (24 if dtype == "f32" else 53) * len(numbers)
            assert abs(sum(map(mpmath.mpf, numbers)) / exact() - 1) < mpmath.mpf(2) ** -digits


def test_digits_of_two_over_pi() -> None:
    with mpmath.workprec(1400):
        assert int(mpmath.floor(mpmath.ldexp(2 / mpmath.pi, 1200))) == reduction.DIGITS

"""The special functions beside mpmath, in units in the last place, and at their edges."""

import math

import mpmath
import numpy as np
import pytest

from wengert.kernels import bessel, gamma, gammainc, special

INF, NAN = math.inf, math.nan
RNG = np.random.default_rng(20)
LINE = np.concatenate([RNG.uniform(-6, 6, 60), RNG.uniform(-1, 1, 30), 10.0 ** RNG.uniform(-300, 0, 10)])
HALF_LINE = np.concatenate([RNG.uniform(0, 4, 60), RNG.uniform(4, 40, 30), 10.0 ** RNG.uniform(-300, 300, 20)])
TINY = 10.0 ** RNG.uniform(-300, -1, 20)


@pytest.fixture(autouse=True)
def exact():
    """Work with 40 digits, and as kernels run: without NumPy's floating-point warnings."""
    with mpmath.workdps(40), np.errstate(all="ignore"):
        yield


def normal(x):
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def quantile(p):
    with mpmath.workdps(340):
        return +mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1)


FUNCTIONS = {
    "erf": (special.erf, mpmath.erf, LINE, 4),
    "erfc": (special.erfc, mpmath.erfc, np.concatenate([LINE, RNG.uniform(5, 26.4, 40)]), 8),
    "erfcx": (
        special.erfcx,
        lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
        np.concatenate([LINE, RNG.uniform(-26, 90, 40)]),
        8,
    ),
    "ndtr": (special.ndtr, normal, np.concatenate([LINE, RNG.uniform(-37, 0, 40)]), 8),
    "log_ndtr": (special.log_ndtr, lambda x: mpmath.log(normal(x)), RNG.uniform(-90, 6, 80), 8),
    "ndtri": (special.ndtri, quantile, np.concatenate([RNG.uniform(0, 1, 40), 10.0 ** RNG.uniform(-300, -1, 12)]), 8),
    "erfinv": (
        special.erfinv,
        mpmath.erfinv,
        np.concatenate([RNG.uniform(-1, 1, 60), 1 - 10.0 ** RNG.uniform(-15, -1, 20), TINY]),
        8,
    ),
    "lgamma": (gamma.lgamma, mpmath.loggamma, HALF_LINE, 8),
    "lgamma near its zeros": (
        gamma.lgamma,
        mpmath.loggamma,
        np.concatenate([1 + RNG.uniform(-1e-6, 1e-6, 9), 2 + RNG.uniform(-1e-6, 1e-6, 9)]),
        4,
    ),
    "digamma": (gamma.digamma, mpmath.digamma, HALF_LINE, 8),
    "digamma near its zero": (gamma.digamma, mpmath.digamma, 1.4616321449683623 + RNG.uniform(-1e-6, 1e-6, 9), 4),
    "trigamma": (
        lambda x: gamma.polygamma(1, x),
        lambda x: mpmath.polygamma(1, x),
        np.concatenate([HALF_LINE[:90], -RNG.uniform(0.1, 8, 20)]),
        12,
    ),
    "polygamma 5": (lambda x: gamma.polygamma(5, x), lambda x: mpmath.polygamma(5, x), HALF_LINE[:90], 12),
    "zeta 3.7": (
        lambda q: gamma.zeta(np.full_like(q, 3.7), q),
        lambda q: mpmath.zeta(mpmath.mpf(3.7), q),
        HALF_LINE[:90],
        12,
    ),
    "zeta 60": (lambda q: gamma.zeta(np.full_like(q, 60.0), q), lambda q: mpmath.zeta(60, q), HALF_LINE[:90], 12),
    "i0": (bessel.i0, lambda x: mpmath.besseli(0, x), np.concatenate([LINE, RNG.uniform(6, 60, 40)]), 8),
    "i0e": (
        bessel.i0e,
        lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(0, x),
        np.concatenate([LINE, RNG.uniform(6, 600, 40)]),
        8,
    ),
    "i1": (bessel.i1, lambda x: mpmath.besseli(1, x), np.concatenate([LINE, RNG.uniform(6, 60, 40)]), 8),
    "i1e": (
        bessel.i1e,
        lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x),
        np.concatenate([LINE, RNG.uniform(6, 600, 40)]),
        8,
    ),
    "j1 near 0": (bessel.j1, lambda x: mpmath.besselj(1, x), TINY, 4),
    "y0 near 0": (bessel.y0, lambda x: mpmath.bessely(0, x), TINY, 4),
    "y1 near 0": (bessel.y1, lambda x: mpmath.bessely(1, x), TINY, 4),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_is_good_to_a_few_units_in_the_last_place(name):
    kernel, reference, points, ulps = FUNCTIONS[name]
    for x, got in zip(points, kernel(points), strict=True):
        want = reference(mpmath.mpf(float(x)))
        if abs(want) < 1e308:
            assert abs(mpmath.mpf(float(got)) - want) <= ulps * float(np.spacing(abs(float(want)))), (
                x,
                got,
                float(want),
            )


@pytest.mark.parametrize(
    ("kernel", "reference", "order"),
    [
        (bessel.j0, mpmath.besselj, 0),
        (bessel.j1, mpmath.besselj, 1),
        (bessel.y0, mpmath.bessely, 0),
        (bessel.y1, mpmath.bessely, 1),
    ],
)
def test_oscillating_functions_are_good_relative_to_their_amplitude(kernel, reference, order):
    points = np.concatenate([RNG.uniform(0.5, 8, 60), RNG.uniform(8, 300, 60)])
    for x, got in zip(points, kernel(points), strict=True):
        amplitude = min(1, math.sqrt(2 / (math.pi * x)))
        assert abs(mpmath.mpf(float(got)) - reference(order, mpmath.mpf(float(x)))) < 3e-15 * amplitude, x


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_reflected_values_are_good_to_1e14(name):
    points = -RNG.uniform(0, 20, 60)
    reference = {"lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))), "digamma": mpmath.digamma}[name]
    want = np.array([float(reference(mpmath.mpf(float(x)))) for x in points])
    np.testing.assert_allclose(getattr(gamma, name)(points), want, rtol=1e-13, atol=2e-14)


@pytest.mark.parametrize(("low", "high"), [(-2, 0), (0, 1), (1, 2), (2, 3)])
def test_incomplete_gamma_functions(low, high):
    a = 10.0 ** RNG.uniform(low, high, 30)
    x = a * np.concatenate([10.0 ** RNG.uniform(-1, 1, 15), np.abs(1 + RNG.standard_normal(15) / np.sqrt(a[:15]))])
    for p, q, first, second in zip(gammainc.gammainc(a, x), gammainc.gammaincc(a, x), a, x, strict=True):
        lower = mpmath.gammainc(mpmath.mpf(first), 0, mpmath.mpf(second), regularized=True)
        upper = mpmath.gammainc(mpmath.mpf(first), mpmath.mpf(second), mpmath.inf, regularized=True)
        for got, want in ((p, lower), (q, upper)):
            allowed = 2e-14 * max(1, abs(float(mpmath.log(want)))) if want > 0 else 0
            assert abs(got - want) <= allowed * want + 1e-300, (first, second, got, float(want))


EDGES = {
    "erf": (special.erf, [0.0, -0.0, INF, -INF, NAN, 1e300, 5e-324], [0.0, -0.0, 1.0, -1.0, NAN, 1.0, 5e-324]),
    "erfc": (special.erfc, [0.0, INF, -INF, NAN, 1e300, -1e300], [1.0, 0.0, 2.0, NAN, 0.0, 2.0]),
    "erfcx": (special.erfcx, [0.0, INF, -INF, NAN], [1.0, 0.0, INF, NAN]),
    "ndtr": (special.ndtr, [0.0, INF, -INF, NAN], [0.5, 1.0, 0.0, NAN]),
    "log_ndtr": (special.log_ndtr, [INF, -INF, NAN], [-0.0, -INF, NAN]),
    "ndtri": (special.ndtri, [0.0, 1.0, 0.5, -0.1, 1.1, NAN], [-INF, INF, 0.0, NAN, NAN, NAN]),
    "erfinv": (special.erfinv, [0.0, 1.0, -1.0, 1.1, NAN], [0.0, INF, -INF, NAN, NAN]),
    "lgamma": (gamma.lgamma, [0.0, -0.0, 1.0, 2.0, -1.0, INF, -INF, NAN], [INF, INF, 0.0, 0.0, INF, INF, INF, NAN]),
    "digamma": (gamma.digamma, [0.0, -0.0, -1.0, INF, NAN], [-INF, INF, NAN, INF, NAN]),
    "trigamma": (lambda x: gamma.polygamma(1, x), [0.0, -1.0, INF, NAN], [INF, INF, 0.0, NAN]),
    "i0": (bessel.i0, [0.0, INF, -INF, NAN], [1.0, INF, INF, NAN]),
    "i1": (bessel.i1, [0.0, -0.0, INF, -INF, NAN], [0.0, -0.0, INF, -INF, NAN]),
    "i0e": (bessel.i0e, [0.0, INF, -INF, NAN], [1.0, 0.0, 0.0, NAN]),
    "j0": (bessel.j0, [0.0, INF, -INF, NAN], [1.0, 0.0, 0.0, NAN]),
    "j1": (bessel.j1, [0.0, -0.0, INF, NAN], [0.0, -0.0, 0.0, NAN]),
    "y0": (bessel.y0, [0.0, -1.0, INF, NAN], [-INF, NAN, 0.0, NAN]),
    "y1": (bessel.y1, [0.0, -1.0, INF, NAN], [-INF, NAN, 0.0, NAN]),
}


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_edges(name, dtype):
    kernel, points, want = EDGES[name]
    got = kernel(np.array(points, dtype))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.array(want, dtype))
    numbers = ~np.isnan(got)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(np.array(want, dtype))[numbers])


def test_edges_of_two_arguments():
    s, q = np.array([1.0, 0.5, 2.0, 2.0, NAN, 2.5, 2.0]), np.array([1.0, 1.0, 0.0, -1.0, 1.0, -0.5, INF])
    np.testing.assert_array_equal(gamma.zeta(s, q), [INF, NAN, INF, INF, NAN, NAN, 0.0])
    a = np.array([0.0, 0.0, 1.0, INF, INF, 2.0, -1.0, 1.0, NAN])
    x = np.array([0.0, 1.0, 0.0, 1.0, INF, INF, 1.0, -1.0, 1.0])
    np.testing.assert_array_equal(gammainc.gammainc(a, x), [NAN, 1.0, 0.0, 0.0, NAN, 1.0, NAN, NAN, NAN])
    np.testing.assert_array_equal(gammainc.gammaincc(a, x), [NAN, 0.0, 1.0, 1.0, NAN, 0.0, NAN, NAN, NAN])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_is_the_rounded_value(name):
    kernel, _, points, _ = FUNCTIONS[name]
    single = points[np.abs(points) > 1e-30].astype(np.float32)
    want = kernel(single.astype(np.float64))
    np.testing.assert_allclose(kernel(single), want.astype(np.float32), rtol=1e-6, atol=1e-45)


def test_erf_in_float32_stays_within_one():
    x = np.linspace(-6, 6, 20001).astype(np.float32)
    assert np.abs(special.erf(x)).max() == 1
    np.testing.assert_allclose(special.normal_distribution(x), special.ndtr(x.astype(np.float64)), rtol=0, atol=2e-7)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (3, 4), (20000,), (100, 300)])
def test_shapes_and_layouts(shape):
    x = RNG.uniform(-3, 3, shape)
    x = np.asarray(x)
    got = special.erf(x)
    assert got.shape == shape
    flat = np.array([math.erf(v) for v in x.ravel()]).reshape(shape)
    np.testing.assert_allclose(got, flat, rtol=1e-14)
    if x.ndim == 2:
        np.testing.assert_array_equal(special.erf(x.T), got.T)
        np.testing.assert_array_equal(special.erf(x[:, ::-2]), got[:, ::-2])

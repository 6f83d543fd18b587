"""Special functions beside 60 digits: between and at the seams of their pieces, at zeros, at the ends of their domains."""

import math

import mpmath
import numpy as np
import pytest

import wengert as wg

INF, NAN = math.inf, math.nan
S = wg.special


def leaf(values, dtype=wg.float64):
    return wg.tensor(values, dtype=dtype, requires_grad=True)


def gradient(y, x):
    return wg.autograd.grad(y.sum(), x, create_graph=True)[0]


def exactly(function, points):
    """Return an mpmath function at floats, rounded at the end."""
    with mpmath.workdps(60):
        return np.array([float(function(mpmath.mpf(float(p)))) for p in points])


# ---- Bessel and Airy functions


def k_derivative(n, order, x):
    """The derivatives of K: (-1/2)^order times the sum of K_{n - order + 2j} with binomial weights (DLMF 10.29.5)."""
    terms = [mpmath.binomial(order, j) * mpmath.besselk(n - order + 2 * j, x) for j in range(order + 1)]
    return (-mpmath.mpf(1) / 2) ** order * sum(terms)


def scaled_k_derivative(n, order, x):
    return mpmath.exp(x) * sum(mpmath.binomial(order, j) * k_derivative(n, j, x) for j in range(order + 1))


def airy_derivative(order, x):
    """Ai, Ai', and from there on y'' = x y."""
    value, slope = (mpmath.airyai(x, derivative=m) for m in (0, 1))
    return [value, slope, x * value, value + x * slope][order]


FUNCTIONS = {  # the functions of (order of the derivative, x)
    "modified_bessel_k0": lambda order, x: k_derivative(0, order, x),
    "modified_bessel_k1": lambda order, x: k_derivative(1, order, x),
    "scaled_modified_bessel_k0": lambda order, x: scaled_k_derivative(0, order, x),
    "scaled_modified_bessel_k1": lambda order, x: scaled_k_derivative(1, order, x),
    "airy_ai": airy_derivative,
}
DECAYING = [1e-9, 0.3, 0.999999, 1.0, 1.000001, 7.0, 300.0]
WAVES = [-30.0, -2.338107410459767, -2.09, -2.08, -2.07, -1.018792971647471, 0.0, 1e-9, 2.07, 2.08, 2.09, 50.0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_two_derivatives_at_seams_and_zeros(name):
    points = WAVES if name == "airy_ai" else DECAYING
    x = leaf(points)
    y = getattr(S, name)(x)
    first = gradient(y, x)
    found = np.stack([t.detach().numpy() for t in (y, first, gradient(first, x))])
    want = np.stack([exactly(lambda x, m=order: FUNCTIONS[name](m, x), points) for order in range(4)])
    # An error of half a unit in the argument's last place cannot be told from one of the result: it is allowed. The slopes
    # of the scaled functions are differences of such functions.
    room = 2e-16 * np.abs(points) * np.abs(want[1:]) + 1e-15 * np.abs(want[0])
    wrong = np.abs(found - want[:3]) > 1e-13 * np.abs(want[:3]) + room
    assert not wrong.any(), (found[wrong], want[:3][wrong])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_random_points_are_good_to_a_few_units(name):
    rng = np.random.default_rng(3)
    if name == "airy_ai":
        points = np.concatenate([rng.uniform(-2.3, 2.3, 60), rng.uniform(2, 100, 40), -(10 ** rng.uniform(0.3, 4, 40))])
    else:
        points = np.concatenate([10 ** rng.uniform(-300, 0, 40), rng.uniform(0, 3, 60), rng.uniform(3, 700, 40)])
    found = getattr(S, name)(wg.tensor(points)).numpy()
    want = exactly(lambda x: FUNCTIONS[name](0, x), points)
    scale = np.abs(want)
    if name == "airy_ai":  # of a wave, the height counts
        scale = np.where(points < -2, np.maximum(np.abs(points), 1) ** -0.25, scale)
    assert np.max(np.abs(found - want) / scale) < 1e-15


@pytest.mark.parametrize(
    ("function", "points", "values"),
    [
        (S.modified_bessel_k0, [0.0, -1.0, INF, NAN, 1e4], [INF, NAN, 0, NAN, 0]),
        (S.modified_bessel_k1, [0.0, -1.0, INF, NAN, 1e4], [INF, NAN, 0, NAN, 0]),
        (S.scaled_modified_bessel_k0, [0.0, -1.0, INF, 1e300], [INF, NAN, 0, math.sqrt(math.pi / 2e300)]),
        (S.scaled_modified_bessel_k1, [0.0, -1.0, INF, 1e300], [INF, NAN, 0, math.sqrt(math.pi / 2e300)]),
        (S.airy_ai, [INF, -INF, NAN, 200.0, 1e300], [0, 0, NAN, 0, 0]),
        (S.zeta, [INF, 2.0], [1, math.pi**2 / 6]),
    ],
)
def test_limits(function, points, values):
    extra = (1.0,) if function is S.zeta else ()
    with np.errstate(all="raise", under="ignore"):
        found = function(wg.tensor(points, dtype=wg.float64), *extra)
    np.testing.assert_allclose(found.numpy(), values, rtol=1e-14)


def test_the_zeta_function_of_an_infinite_exponent():
    found = S.zeta(wg.tensor([INF] * 5), wg.tensor([0.5, 1.0, 2.0, 0.0, -3.0]))
    assert found.tolist() == [INF, 1, 0, INF, INF]


def test_single_precision_is_rounded_once():
    x = np.linspace(0.1, 20, 12).astype(np.float32)
    for name in FUNCTIONS:
        found, want = getattr(S, name)(wg.tensor(x)).numpy(), exactly(lambda x, name=name: FUNCTIONS[name](0, x), x)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, want, rtol=6e-8)


# ---- orthogonal polynomials


def u(n, x):
    """The sum of 2 Tⱼ over the j up to n of n's parity, T₀ once (DLMF 18.18.33); mpmath's own does not converge below -1."""
    return sum((2 if j else 1) * mpmath.chebyt(j, x) for j in range(n % 2, n + 1, 2)) if n >= 0 else mpmath.mpf(0)


def laguerre(n, x):
    with mpmath.extradps(40 + int(mpmath.sqrt(abs(n * x)))):
        return sum(mpmath.binomial(n, k) * (-x) ** k / mpmath.factorial(k) for k in range(n + 1))


POLYNOMIALS = {
    "chebyshev_polynomial_t": mpmath.chebyt,
    "chebyshev_polynomial_u": u,
    "chebyshev_polynomial_v": lambda n, x: u(n, x) - u(n - 1, x),
    "chebyshev_polynomial_w": lambda n, x: u(n, x) + u(n - 1, x),
    "shifted_chebyshev_polynomial_t": lambda n, x: mpmath.chebyt(n, 2 * x - 1),
    "shifted_chebyshev_polynomial_u": lambda n, x: u(n, 2 * x - 1),
    "shifted_chebyshev_polynomial_v": lambda n, x: u(n, 2 * x - 1) - u(n - 1, 2 * x - 1),
    "shifted_chebyshev_polynomial_w": lambda n, x: u(n, 2 * x - 1) + u(n - 1, 2 * x - 1),
    "legendre_polynomial_p": mpmath.legendre,
    "laguerre_polynomial_l": laguerre,
    "hermite_polynomial_h": mpmath.hermite,
    "hermite_polynomial_he": lambda n, x: mpmath.hermite(n, x / mpmath.sqrt(2)) / mpmath.mpf(2) ** (mpmath.mpf(n) / 2),
}


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_and_two_derivatives_also_at_the_ends(name):
    orders, points = [0, 1, 2, 3, 6, 11], [-1.0, -0.3, 0.0, 0.25, 1.0, 1.5]
    n, x = np.meshgrid(orders, points)
    argument = leaf(x)
    y = getattr(S, name)(argument, wg.tensor(n))
    first = gradient(y, argument)
    found = [y, first, gradient(first, argument)]

    def derivative(k, order):
        return lambda x: mpmath.diff(lambda t: POLYNOMIALS[name](k, t), x, order)

    for order, t in enumerate(found):
        want = np.stack([exactly(derivative(k, order), points) for k in orders], -1)
        np.testing.assert_allclose(t.detach().numpy(), want, rtol=1e-11, atol=1e-11 * np.abs(want).max())


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_large_orders_are_as_good_as_their_argument(name):
    for n, x in [(200, 0.123456789), (200, -0.99), (64, 1.1), (500, 0.5)]:
        found = getattr(S, name)(wg.tensor(x, dtype=wg.float64), n).item()
        with mpmath.workdps(60):
            point, step = mpmath.mpf(x), mpmath.mpf(2) ** -53
            want = POLYNOMIALS[name](n, point)
            room = abs(want) + max(abs(POLYNOMIALS[name](n, point + s * step) - want) for s in (-1, 1)) / step
        if abs(want) > 1.7e308:
            assert found == math.copysign(INF, float(mpmath.sign(want)))
        else:
            assert abs(found - float(want)) < 1e-14 * float(room)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_of_other_orders_and_arguments(name):
    function = getattr(S, name)
    assert function(wg.tensor([0.5, NAN]), wg.tensor([-1, -7])).tolist() == [0, 0]
    assert function(wg.tensor([0.3]), 2.9).tolist() == function(wg.tensor([0.3]), 2).tolist()
    assert function(wg.tensor(0.3), wg.tensor([-0.5, 0.5])).tolist() == [1, 1]
    assert np.isnan(function(wg.tensor(0.3), wg.tensor([NAN, INF])).numpy()).all()
    assert np.isnan(function(wg.tensor([NAN]), wg.tensor([0, 1, 2])).numpy()).all()
    assert np.isinf(function(wg.tensor([1e200, INF], dtype=wg.float64), 40).numpy()).all()
    assert tuple(function(wg.zeros(2, 0), 3).shape) == (2, 0)
    with pytest.raises(ValueError, match="up to order 100000, got order 2000000"):
        function(wg.ones(1), 2_000_000)


def test_overflow_on_the_way_is_not_overflow_of_the_result():
    """Laguerre polynomials of a large argument grow beyond 1e308 before they come back."""
    x, n = 1500.0, 900
    found = S.laguerre_polynomial_l(wg.tensor(x, dtype=wg.float64), n).item()
    want = laguerre(n, mpmath.mpf(x))
    largest = max(abs(laguerre(k, mpmath.mpf(x))) for k in range(0, n, 50))
    assert largest > mpmath.mpf("1e308")
    assert found == pytest.approx(float(want), rel=1e-8)


def test_an_order_that_wants_a_gradient_is_refused():
    with pytest.raises(RuntimeError, match="no derivative with respect to 'n'"):
        S.legendre_polynomial_p(wg.ones(2), wg.tensor([1.0, 2.0], requires_grad=True))


# ---- under their names in torch.special


def test_aliases():
    x = wg.tensor([[0.3, -1.0], [2.0, 0.5]])
    assert S.softmax(x, 1).tolist() == wg.softmax(x, 1).tolist()
    assert S.log_softmax(x, 0, dtype=wg.float64).dtype is wg.float64
    assert S.logsumexp(x, (0, 1), keepdim=True).tolist() == wg.logsumexp(x, (0, 1), True).tolist()
    y = wg.ones(2, requires_grad=True)
    z = y * 2
    assert z.polygamma_(1) is z
    z.sum().backward()
    np.testing.assert_allclose(y.grad.numpy(), 2 * wg.polygamma(2, wg.tensor([2.0, 2.0])).numpy(), rtol=1e-6)

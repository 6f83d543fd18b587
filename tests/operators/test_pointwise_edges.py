"""Element-wise operators at the edges: values and derivatives beside mpmath, limits, masked lanes, kinks and ties."""

import math

import mpmath
import numpy as np
import pytest

import wengert as wg
import wengert.nn.functional as F

INF, NAN = math.inf, math.nan


def leaf(values, dtype=wg.float64):
    return wg.tensor(values, dtype=dtype, requires_grad=True)


def gradient(y, x):
    return wg.autograd.grad(y.sum(), x, create_graph=True)[0]


# ---- value, first and second derivative beside 50 digits

SMOOTH = {
    "sigmoid": (wg.sigmoid, lambda x: 1 / (1 + mpmath.exp(-x)), [-700, -40, -1, 0, 1, 30]),
    "logsigmoid": (F.logsigmoid, lambda x: -mpmath.log1p(mpmath.exp(-x)), [-700, -40, -1, 0, 1, 30]),
    "softplus": (F.softplus, lambda x: mpmath.log1p(mpmath.exp(x)), [-700, -40, -1e-9, 0, 1, 19]),
    "silu": (F.silu, lambda x: x / (1 + mpmath.exp(-x)), [-40, -1, 0, 1e-9, 30]),
    "mish": (F.mish, lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))), [-40, -1, 0, 1e-9, 15]),
    "gelu": (F.gelu, lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2, [-30, -5, -1, 0, 1e-9, 3]),
    "tanh": (wg.tanh, mpmath.tanh, [-15, -1e-9, 0, 1]),
    "expm1": (wg.expm1, mpmath.expm1, [-40, -1e-12, 0, 1e-12, 2]),
    "log1p": (wg.log1p, mpmath.log1p, [-0.9, -1e-12, 0, 1e-12, 1e12]),
    "sinc": (wg.sinc, lambda x: mpmath.sincpi(x), [1e-9, 1e-4, 0.1, 0.2499, 0.25, 1, 2.5]),
    "sin": (wg.sin, mpmath.sin, [1e-9, 1e5, 1e16, 1e22]),
    "cos": (wg.cos, mpmath.cos, [0, 1e5, 1e16, 1e22]),
    "tan": (wg.tan, mpmath.tan, [1e-9, 1.5, 1e5]),
    "asin": (wg.asin, mpmath.asin, [-0.999999, 0, 1e-9, 0.999999]),
    "acos": (wg.acos, mpmath.acos, [-0.999999, 0, 0.999999]),
    "atanh": (wg.atanh, mpmath.atanh, [-0.999999, 1e-9, 0.5]),
    "acosh": (wg.acosh, mpmath.acosh, [1.000001, 2, 1e10]),
    "asinh": (wg.asinh, mpmath.asinh, [-1e10, -1e-9, 0, 2]),
    "logit": (wg.logit, lambda x: mpmath.log(x / (1 - x)), [1e-12, 0.3, 0.5, 0.5000001, 0.9]),
    "erf": (wg.erf, mpmath.erf, [-5, 1e-9, 0.5, 2]),
    "erfc": (wg.erfc, mpmath.erfc, [-3, 0, 1, 10, 25]),
    "erfcx": (wg.special.erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x), [-3, 0, 1, 5]),
    "erfinv": (wg.erfinv, mpmath.erfinv, [-0.999, 1e-9, 0.5, 0.99999]),
    "ndtr": (wg.special.ndtr, lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2, [-30, -1, 0, 3]),
    "log_ndtr": (wg.special.log_ndtr, lambda x: mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2), [-30, -1, 0, 3]),
    "lgamma": (wg.lgamma, lambda x: mpmath.log(abs(mpmath.gamma(x))), [0.1, 1, 1.5, 2, 30, -0.5]),
    "digamma": (wg.digamma, mpmath.digamma, [0.1, 1, 1.4616, 30, -0.5]),
    "i0": (wg.i0, lambda x: mpmath.besseli(0, x), [-3, 0.5, 7.9, 8.1, 30]),
    "i1": (wg.special.i1, lambda x: mpmath.besseli(1, x), [-3, 0.5, 7.9, 8.1, 30]),
    "bessel_j0": (wg.special.bessel_j0, lambda x: mpmath.besselj(0, x), [-3, 0.5, 4.9, 5.1, 30]),
    "bessel_j1": (wg.special.bessel_j1, lambda x: mpmath.besselj(1, x), [-3, 0.5, 4.9, 5.1, 30]),
    "bessel_y0": (wg.special.bessel_y0, lambda x: mpmath.bessely(0, x), [0.5, 4.9, 5.1, 30]),
    "bessel_y1": (wg.special.bessel_y1, lambda x: mpmath.bessely(1, x), [0.5, 4.9, 5.1, 30]),
    "entr": (wg.special.entr, lambda x: -x * mpmath.log(x), [1e-9, 0.3, 5]),
    "pow 2.5": (lambda x: x**2.5, lambda x: x ** mpmath.mpf("2.5"), [1e-3, 1, 7]),
    "2.5 pow": (lambda x: 2.5**x, lambda x: mpmath.mpf("2.5") ** x, [-3, 0, 7]),
    "rsqrt": (wg.rsqrt, lambda x: 1 / mpmath.sqrt(x), [1e-3, 1, 7]),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_value_and_two_derivatives(name):
    function, reference, points = SMOOTH[name]
    x = leaf([float(p) for p in points])
    y = function(x)
    first = gradient(y, x)
    found = np.stack([t.detach().numpy() for t in (y, first, gradient(first, x))])
    with mpmath.workdps(60):
        want = [[float(mpmath.diff(reference, mpmath.mpf(float(p)), order)) for p in points] for order in range(3)]
    want = np.array(want)
    # An error of half a unit in the argument's last place cannot be told from one of the result: it is allowed.
    room = 2e-16 * np.abs(np.array(points, float)) * np.abs(np.vstack([want[1:], want[2:]]))
    wrong = np.abs(found - want) > 1e-12 * np.abs(want) + room + np.array([[1e-300], [5e-15], [5e-15]])
    assert not wrong.any(), (found[wrong], want[wrong])


# ---- limits

LIMITS = [
    (wg.sigmoid, [INF, -INF], [1, 0], [0, 0]),
    (F.logsigmoid, [INF, -INF, -1e300], [0, -INF, -1e300], [0, 1, 1]),
    (F.softplus, [1e300, -1e300], [1e300, 0], [1, 0]),
    (wg.tanh, [INF, -INF], [1, -1], [0, 0]),
    (wg.abs, [0.0, -0.0], [0, 0], [0, 0]),
    (wg.square, [0.0], [0], [0]),
    (wg.erf, [INF, -INF], [1, -1], [0, 0]),
    (wg.special.entr, [0.0], [0], [INF]),
    (lambda x: x**0, [0.0, 3.0, INF], [1, 1, 1], [0, 0, 0]),
    (lambda x: x**1, [0.0, -3.0], [0, -3], [1, 1]),
    (lambda x: x**2, [0.0, -3.0], [0, 9], [0, -6]),
    (lambda x: x**3, [0.0, -3.0], [0, -27], [0, 27]),
    (lambda x: x**0.5, [0.0, 4.0], [0, 2], [INF, 0.25]),
    (lambda x: 0.0**x, [0.0, 1.0, 2.0], [1, 0, 0], [0, 0, 0]),
    (lambda x: wg.hypot(x, x), [0.0, 3e200], [0, 3e200 * math.sqrt(2)], [0, math.sqrt(2)]),
    (lambda x: wg.atan2(x, x), [0.0], [0], [0]),
    (lambda x: wg.xlogy(x, x), [0.0, 1.0], [0, 0], [0, 1]),
    (lambda x: wg.special.xlog1py(x, -1 + x), [0.0], [0], [0]),
    (lambda x: wg.logaddexp(x, x), [-INF, 1e308, -1e308], [-INF, 1e308, -1e308], [0, 1, 1]),
    (lambda x: wg.where(x > 0, wg.sqrt(wg.where(x > 0, x, 1)), 0), [0.0, -1.0, 4.0], [0, 0, 2], [0, 0, 0.25]),
    (lambda x: wg.clamp(x, 0, 1), [0.0, 1.0, -0.5, 1.5, NAN], [0, 1, 0, 1, NAN], [1, 1, 0, 0, 0]),
    (lambda x: wg.clamp(x, 2, 1), [0.0, 1.5, 3.0], [1, 1, 1], [0, 0, 0]),
    (F.elu, [1e4, -1e4, 0.0], [1e4, -1, 0], [1, 0, 1]),
    (F.gelu, [40.0, -40.0], [40, 0], [1, 0]),
    (lambda x: F.gelu(x, approximate="tanh"), [1e200, -1e200], [1e200, 0], [1, 0]),
    (wg.nan_to_num, [NAN, INF, 1.0], [0, np.finfo(float).max, 1], [0, 0, 1]),
    (lambda x: wg.special.zeta(2.0, x), [INF], [0], [0]),
]


@pytest.mark.parametrize("case", range(len(LIMITS)))
def test_value_and_gradient_have_their_limits(case):
    function, points, values, slopes = LIMITS[case]
    x = leaf(points)
    y = function(x)
    y.sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), values, rtol=1e-14, atol=1e-300)
    np.testing.assert_allclose(x.grad.numpy(), slopes, rtol=1e-14, atol=1e-200)


PAIRS = [
    (wg.pow, [0.0, 0.0, 0.0, 2.0, -2.0], [0.0, 1.0, 2.0, 3.0, 2.0], [0, 1, 0, 12, -4], [0, 0, 0, 8 * math.log(2), NAN]),
    (wg.maximum, [1.0, 2.0, 0.0], [1.0, 1.0, 1.0], [0.5, 1, 0], [0.5, 0, 1]),
    (wg.minimum, [1.0, 2.0, 0.0], [1.0, 1.0, 1.0], [0.5, 0, 1], [0.5, 1, 0]),
    (wg.fmax, [1.0, NAN], [1.0, 3.0], [1, 0], [0, 1]),
    (wg.hypot, [0.0, 3.0], [0.0, 4.0], [0, 0.6], [0, 0.8]),
    (wg.atan2, [0.0, 1.0], [0.0, 1.0], [0, 0.5], [0, -0.5]),
    (wg.xlogy, [0.0, 0.0, 2.0], [0.0, 2.0, 4.0], [0, math.log(2), math.log(4)], [0, 0, 0.5]),
    (wg.logaddexp, [-INF, 0.0, 800.0], [-INF, 0.0, -800.0], [0, 0.5, 1], [0, 0.5, 0]),
]


@pytest.mark.parametrize("case", range(len(PAIRS)))
def test_gradients_of_two_arguments_at_ties_and_zeros(case):
    function, first, second, slope_first, slope_second = PAIRS[case]
    x, y = leaf(first), leaf(second)
    function(x, y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), slope_first, rtol=1e-14)
    np.testing.assert_allclose(y.grad.numpy(), slope_second, rtol=1e-14)


@pytest.mark.parametrize("dtype", [wg.uint8, wg.bool])
def test_the_gradient_of_an_angle_beside_what_cannot_be_negated(dtype):
    y = leaf([2.0, 1.0])
    wg.atan2(wg.tensor([1, 0], dtype=dtype), y).sum().backward()
    np.testing.assert_allclose(y.grad.numpy(), [-0.2, 0], rtol=1e-14)


def test_mixed_second_derivative_of_a_power_at_base_zero_is_finite():
    x, n = leaf([0.0, 0.0]), leaf([2.0, 3.0])
    slope = gradient(x**n, x)
    for found in (gradient(slope, x), gradient(slope, n)):
        assert np.isfinite(found.detach().numpy()).all()


def test_powers_with_exponent_zero_have_the_mixed_derivative_one_over_x():
    x, n = leaf([2.0]), leaf([0.0])
    assert gradient(gradient(x**n, x), n).item() == 0.5


# ---- masked lanes: what was not chosen does not leak

MASKED = [
    lambda x: wg.where(x > 1, wg.log(x - 1), x),
    lambda x: wg.where(x > 1, 1 / (x - 1), x),
    lambda x: wg.where(x > 1, wg.lgamma(x - 1), x),
]


@pytest.mark.parametrize("case", range(len(MASKED)))
def test_where_gives_the_other_branch_no_gradient(case):
    x = leaf([3.0, 2.5])
    MASKED[case](x).sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.parametrize("special", [INF, -INF, NAN])
def test_selected_branch_survives_special_values_in_the_other(special):
    x, other = leaf([1.0, 2.0]), leaf([special, special])
    wg.where(wg.tensor([True, False]), x, other * 2).sum().backward()
    assert x.grad.tolist() == [1, 0]
    assert other.grad.tolist() == [0, 2]


@pytest.mark.parametrize(("first", "second"), [(1.5, 2), (2, 1.5), (True, 2), (1, 2j)])
def test_where_of_two_numbers_promotes_them(first, second):
    assert wg.where(wg.tensor([True, False]), first, second).tolist() == [first, second]


def test_where_under_no_grad_equals_where_while_recording():
    mask = wg.tensor([[True], [False]])
    for a, b in ((leaf([1.0, 2.0]), 0), (0.5, leaf([1.0, 2.0])), (leaf([1.0, 2.0]), leaf([[3.0]]))):
        recorded = wg.where(mask, a, b)
        with wg.no_grad():
            plain = wg.where(mask, a, b)
        assert plain.tolist() == recorded.tolist()
        assert plain.dtype is recorded.dtype
        assert not plain.requires_grad
    with wg.no_grad(), pytest.raises(ValueError, match="broadcast"):
        wg.where(wg.tensor([True, False, True]), leaf([1.0, 2.0]), 0.0)


# ---- integers

INTEGERS = [
    (lambda: wg.tensor([7, -7]) // 2, [3, -4]),
    (lambda: wg.tensor([7, -7]) % 3, [1, 2]),
    (lambda: wg.fmod(wg.tensor([7, -7]), 3), [1, -1]),
    (lambda: wg.div(wg.tensor([7, -7]), 2, rounding_mode="trunc"), [3, -3]),
    (lambda: wg.div(wg.tensor([2**62 + 1]), 1, rounding_mode="floor"), [2**62 + 1]),
    (lambda: wg.tensor([2, -3]) ** 3, [8, -27]),
    (lambda: wg.tensor([2, -3]) ** 0.5, [math.sqrt(2), NAN]),
    (lambda: wg.round(wg.tensor([2, 3])), [2, 3]),
    (lambda: wg.gcd(wg.tensor([12, 0]), wg.tensor([18, 0])), [6, 0]),
    (lambda: wg.clamp(wg.tensor([1, 5]), 2), [2, 5]),
    (lambda: wg.true_divide(wg.tensor([1, 2]), 0), [INF, INF]),
    (lambda: ~wg.tensor([5, -1]), [-6, 0]),
    (lambda: wg.tensor([1, 1]) << wg.tensor([63, 64]), [-(2**63), 0]),
    (lambda: wg.tensor([-8, 8]) >> 70, [-1, 0]),
    (lambda: wg.relu(wg.tensor([-2, 3])), [0, 3]),
]


@pytest.mark.parametrize("case", range(len(INTEGERS)))
def test_integers(case):
    function, want = INTEGERS[case]
    np.testing.assert_allclose(function().numpy(), want, rtol=1e-6)


REFUSED = [
    (lambda: wg.tensor([1]) // 0, ZeroDivisionError, "by zero"),
    (lambda: wg.tensor([1]) % wg.tensor([0]), ZeroDivisionError, "by zero"),
    (lambda: wg.tensor([2]) ** -1, RuntimeError, "negative"),
    (lambda: wg.tensor([True]) - wg.tensor([True]), TypeError, "number tensor"),
    (lambda: -wg.tensor([True]), TypeError, "number tensor"),
    (lambda: ~wg.tensor([1.0]), TypeError, "integral"),
    (lambda: wg.tensor([1.0]) & wg.tensor([1.0]), TypeError, "integral"),
    (lambda: wg.tensor([1j]) < wg.tensor([1j]), TypeError, "real"),
    (lambda: wg.tensor([1.0]) < 1j, TypeError, "order"),
    (lambda: wg.add(wg.tensor([1]), wg.tensor([1]), alpha=0.5), TypeError, "alpha"),
    (lambda: wg.clamp(wg.tensor([1.0])), ValueError, "at least one"),
    (lambda: wg.div(wg.tensor([1.0]), 2, rounding_mode="up"), ValueError, "rounding_mode"),
    (lambda: wg.where(wg.tensor([True]), wg.tensor([1.0])), TypeError, "both"),
    (lambda: wg.where(wg.tensor([1.0]), wg.tensor([1.0]), 0.0), TypeError, "boolean"),
    (lambda: wg.polygamma(-1, wg.tensor([1.0])), ValueError, "negative"),
    (lambda: wg.imag(wg.tensor([1.0])), TypeError, "complex"),
    (lambda: wg.ones(2, 4)[:, ::2].T.imag, TypeError, "complex"),
    (lambda: wg.view_as_complex(wg.ones(2, 3)), ValueError, "size 2|side by side"),
    (lambda: wg.view_as_complex(wg.ones(2, 2).T), ValueError, "side by side"),
    (lambda: wg.ones(2) + wg.ones(3), ValueError, "broadcast"),
    (lambda: wg.igamma(leaf([1.0]), wg.tensor([1.0])), RuntimeError, "no derivative"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refusals_say_why(case):
    function, error, match = REFUSED[case]
    with pytest.raises(error, match=match):
        function()


# ---- in-place activations

SWITCHES = [
    (F.relu, (), [-1.0, 2.0]), (F.relu6, (), [-1.0, 7.0]), (F.leaky_relu, (0.1,), [-1.0, 2.0]),
    (F.elu, (2.0,), [-1.0, 2.0]), (F.selu, (), [-1.0, 2.0]), (F.celu, (2.0,), [-1.0, 2.0]), (F.silu, (), [-1.0, 2.0]),
    (F.mish, (), [-1.0, 2.0]), (F.hardtanh, (-0.5, 0.5), [-1.0, 2.0]), (F.hardsigmoid, (), [-1.0, 2.0]),
    (F.hardswish, (), [-1.0, 2.0]), (F.threshold, (0.5, 9.0), [-1.0, 2.0]), (F.rrelu, (0.1, 0.3), [-1.0, 2.0]),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(SWITCHES)))
def test_inplace_argument_is_honoured(case):
    function, options, values = SWITCHES[case]
    x = wg.tensor(values)
    want = function(x, *options)
    assert x.tolist() == values
    assert function(x, *options, inplace=True) is x
    np.testing.assert_array_equal(x.numpy(), want.numpy())


@pytest.mark.parametrize("case", [c for c in range(len(SWITCHES)) if SWITCHES[c][0] is not F.rrelu])
def test_inplace_gradient_equals_the_functional_one(case):
    function, options, values = SWITCHES[case]
    grads = []
    for inplace in (False, True):
        x = leaf(values)
        function(x * 1.5, *options, inplace=inplace).sum().backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1]


def test_a_leaf_is_not_changed_in_place():
    with pytest.raises(RuntimeError, match="leaf"):
        F.relu(leaf([1.0]), inplace=True)


def test_rrelu_draws_its_slopes_while_training():
    x = -wg.ones(1000)
    slopes = -F.rrelu(x, 0.25, 0.75, training=True).numpy()
    assert F.rrelu(x, 0.25, 0.75, training=True, inplace=True) is x
    assert len(set(x.tolist())) > 900
    assert slopes.min() >= 0.25
    assert slopes.max() < 0.75
    assert slopes.std() > 0.1


# ---- questions


X = wg.tensor([1.0, NAN])
QUESTIONS = [
    (lambda: wg.equal(wg.ones(2), wg.ones(2)), True),
    (lambda: wg.equal(wg.ones(2), wg.ones(1)), False),
    (lambda: wg.equal(X, X), False),
    (lambda: wg.allclose(wg.ones(2), wg.ones(2) + 1e-9), True),
    (lambda: wg.allclose(X, X), False),
    (lambda: wg.allclose(X, X, equal_nan=True), True),
    (lambda: wg.is_complex(X), False),
    (lambda: wg.is_floating_point(X), True),
    (lambda: wg.is_nonzero(wg.tensor(2)), True),
    (lambda: X.is_conj(), False),
    (lambda: wg.is_neg(X), False),
]


@pytest.mark.parametrize("case", range(len(QUESTIONS)))
def test_questions_answer_with_a_bool(case):
    question, want = QUESTIONS[case]
    assert question() is want

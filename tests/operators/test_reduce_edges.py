"""Reductions at their edges: expected values from mpmath, or by hand."""

import math

import mpmath
import numpy as np
import pytest

import wengert as wg
from wengert.nn import functional as F

INF, NAN = math.inf, math.nan
mpmath.mp.dps = 700


def t(data, dtype=wg.float64):
    return wg.tensor(data, dtype=dtype, requires_grad=True)


def gradient(out, *inputs):
    """Return the gradient of the sum of a result, as arrays."""
    found = wg.autograd.grad(out.sum(), inputs, retain_graph=True)
    arrays = [g.to(wg.float64).numpy() for g in found]
    return arrays[0] if len(arrays) == 1 else arrays


def values(x):
    return x.detach().to(wg.float64).numpy()


def exact_logsumexp(row):
    return float(mpmath.log(sum(mpmath.exp(mpmath.mpf(v)) for v in row)))


ROWS = [
    [0.0, -40.0],
    [0.0, -700.0, -745.0],
    [1e4, 1e4],
    [-1e4, -1e4 + 1],
    [1e308, 1e308],
    [-math.log(2), -math.log(2) - 30],
    [3.0],
]


# ---- logsumexp and softmax


@pytest.mark.parametrize("row", ROWS)
def test_logsumexp_keeps_its_digits(row):
    np.testing.assert_allclose(values(wg.logsumexp(t(row), 0)), exact_logsumexp(row), rtol=2e-15)


@pytest.mark.parametrize("row", ROWS)
def test_softmax_and_its_logarithm(row):
    total = sum(mpmath.exp(mpmath.mpf(v)) for v in row)
    weights = [mpmath.exp(mpmath.mpf(v)) / total for v in row]
    np.testing.assert_allclose(values(wg.softmax(t(row), 0)), [float(w) for w in weights], rtol=1e-14)
    logs = [float(mpmath.log(w)) for w in weights]
    np.testing.assert_allclose(values(wg.log_softmax(t(row), 0)), logs, rtol=4e-15)
    x = t(row)
    np.testing.assert_allclose(gradient(wg.logsumexp(x, 0), x), [float(w) for w in weights], rtol=1e-13)


@pytest.mark.parametrize(
    ("row", "value", "slope"),
    [
        ([-INF, -INF], -INF, [0.0, 0.0]),
        ([-INF, 1.5], 1.5, [0.0, 1.0]),
        ([INF, 0.0], INF, [1.0, 0.0]),
        ([-INF, 0.0, 0.0], math.log(2), [0.0, 0.5, 0.5]),
    ],
)
def test_logsumexp_of_infinities(row, value, slope):
    x = t(row)
    out = wg.logsumexp(x, 0)
    np.testing.assert_allclose(values(out), value, rtol=1e-15)
    np.testing.assert_allclose(gradient(out, x), slope, rtol=1e-15)


def test_second_derivative_of_logsumexp_beside_a_row_of_minus_infinity():
    x = t([[-INF, -INF], [0.0, 1.0]])
    (g,) = wg.autograd.grad(wg.logsumexp(x, 1).sum(), (x,), create_graph=True)
    p = 1 / (1 + math.exp(-1))
    np.testing.assert_allclose(gradient(g[1, 1], x), [[0.0, 0.0], [-p * (1 - p), p * (1 - p)]], rtol=1e-14)


@pytest.mark.parametrize("dtype", [wg.float16, wg.bfloat16, wg.float32, wg.float64])
def test_softmax_at_large_offsets(dtype):
    x = t([[1e4, 1e4 - 512.0], [-1e4, -1e4]], dtype)
    np.testing.assert_allclose(values(wg.softmax(x, 1)), [[1.0, 0.0], [0.5, 0.5]], atol=1e-200)
    np.testing.assert_allclose(gradient(wg.softmax(x, 1)[:, 0], x), [[0.0, 0.0], [0.25, -0.25]], atol=1e-200)


def test_softmax_of_masked_entries():
    x = t([[-INF, 0.0, 0.0], [-INF, -INF, 5.0]])
    out = wg.softmax(x, 1)
    np.testing.assert_array_equal(values(out), [[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    np.testing.assert_array_equal(gradient(out[:, 2], x), [[0.0, -0.25, 0.25], [0.0, 0.0, 0.0]])
    assert np.isnan(values(wg.softmax(t([-INF, -INF]), 0))).all()


def test_logcumsumexp_starts_from_minus_infinity():
    x = t([-INF, -INF, 1.0, -INF, 2.0])
    out = wg.logcumsumexp(x, 0)
    total = exact_logsumexp([1.0, 2.0])
    np.testing.assert_allclose(values(out), [-INF, -INF, 1.0, 1.0, total], rtol=1e-15)
    p = math.exp(2 - total)
    np.testing.assert_allclose(gradient(out[2:], x), [0.0, 0.0, 2 + (1 - p), 0.0, p], rtol=1e-14)


# ---- sums, means and products


@pytest.mark.parametrize("dtype", [wg.float16, wg.bfloat16])
def test_halves_are_summed_in_float32(dtype):
    ones = wg.ones(4096, dtype=dtype)
    assert wg.sum(ones).item() == 4096
    assert wg.sum(ones, dtype=wg.float32).dtype is wg.float32
    assert wg.cumsum(ones, 0)[-1].item() == 4096
    assert wg.mean(wg.full((5,), 4e4, dtype=dtype)).item() == wg.tensor(4e4, dtype=dtype).item()
    assert wg.nanmean(wg.full((5,), 4e4, dtype=dtype)).item() == wg.tensor(4e4, dtype=dtype).item()


def test_small_integers_are_summed_in_int64():
    x = wg.full((300,), 255, dtype=wg.uint8)
    assert wg.sum(x).item() == 76500
    assert wg.sum(x).dtype is wg.cumsum(x, 0).dtype is wg.prod(x).dtype is wg.int64
    assert wg.sum(wg.tensor([True, True])).item() == 2


def test_reductions_of_nothing():
    empty = wg.zeros((0, 3))
    assert wg.sum(empty).item() == 0
    assert wg.prod(empty).item() == 1
    assert math.isnan(wg.mean(empty).item())
    assert wg.all(empty).item() is True
    assert wg.any(empty).item() is False
    np.testing.assert_array_equal(wg.logsumexp(empty, 0).numpy(), [-INF] * 3)
    for reduce in (wg.amax, wg.argmax, wg.max, wg.median):
        with pytest.raises((IndexError, RuntimeError), match=r"no element|is empty"):
            reduce(empty)


@pytest.mark.parametrize(
    ("row", "first", "second"),
    [
        ([4.0, 0.0], [0.0, 4.0], [[0.0, 1.0], [1.0, 0.0]]),
        ([0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [[0.0, 0.0, 2.0], [0.0, 0.0, 0.0], [2.0, 0.0, 0.0]]),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [[0.0] * 3] * 3),
        ([2.0, 3.0, 5.0], [15.0, 10.0, 6.0], [[0.0, 5.0, 3.0], [5.0, 0.0, 2.0], [3.0, 2.0, 0.0]]),
    ],
)
def test_derivatives_of_products_with_zeros(row, first, second):
    x = t(row)
    (g,) = wg.autograd.grad(wg.prod(x), (x,), create_graph=True)
    np.testing.assert_array_equal(values(g), first)
    hessian = [gradient(g[i], x) if g.requires_grad else np.zeros(len(row)) for i in range(len(row))]
    np.testing.assert_array_equal(hessian, second)


def test_derivatives_of_running_products_with_zeros():
    x = t([2.0, 0.0, 3.0, 0.0, 5.0])
    jacobian = [gradient(wg.cumprod(x, 0)[i], x) for i in range(5)]
    expected = [[1.0, 0, 0, 0, 0], [0.0, 2, 0, 0, 0], [0.0, 6, 0, 0, 0], [0.0] * 5, [0.0] * 5]
    np.testing.assert_array_equal(jacobian, expected)


# ---- extremes and order


def test_ties_share_the_gradient_unless_an_index_is_returned():
    row = [3.0, 1.0, 3.0]
    x = t(row)
    np.testing.assert_array_equal(gradient(wg.amax(x), x), [0.5, 0.0, 0.5])
    np.testing.assert_array_equal(gradient(wg.max(x), x), [0.5, 0.0, 0.5])
    np.testing.assert_array_equal(gradient(wg.max(x, 0).values, x), [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(gradient(wg.aminmax(x).max, x), [0.5, 0.0, 0.5])
    y = t([2.0, 1.0, 2.0, 2.0])
    np.testing.assert_array_equal(gradient(wg.median(y), y), [1 / 3, 0.0, 1 / 3, 1 / 3])


def test_nan_wins_and_takes_the_gradient():
    x = t([1.0, NAN, 3.0])
    for reduce in (wg.amax, wg.amin, wg.max, wg.median):
        out = reduce(x)
        assert math.isnan(out.item())
        np.testing.assert_array_equal(gradient(out, x), [0.0, 1.0, 0.0])
    assert wg.argmax(x).item() == wg.argmin(x).item() == 1
    assert wg.nanmedian(x).item() == 1.0
    assert wg.nansum(x).item() == 4.0
    np.testing.assert_array_equal(gradient(wg.nansum(x), x), [1.0, 0.0, 1.0])


def test_results_are_named_tuples():
    found = wg.max(wg.tensor([[1.0, 3.0], [5.0, 4.0]]), dim=1)
    assert found.values.tolist() == [3.0, 5.0]
    assert found.indices.tolist() == [1, 0]
    values_, indices = wg.sort(wg.tensor([2, 1]))
    assert (values_.tolist(), indices.tolist()) == ([1, 2], [1, 0])
    assert wg.aminmax(wg.tensor([2, 1])).min.item() == 1


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_is_stable_with_nan_as_the_largest(descending):
    x = wg.tensor([2.0, NAN, 1.0, 2.0, NAN, 1.0, -INF, INF])
    order = wg.argsort(x, descending=descending, stable=True).tolist()
    assert order == ([1, 4, 7, 0, 3, 2, 5, 6] if descending else [6, 2, 5, 0, 3, 7, 1, 4])


def test_search_with_nan_as_the_largest():
    assert wg.searchsorted(wg.tensor([1.0, NAN]), wg.tensor([NAN, 2.0, 0.0])).tolist() == [1, 1, 0]


# ---- variance and norms


@pytest.mark.parametrize("function", [wg.var, wg.std])
def test_variance_of_one_element(function):
    x = t([[1.0]])
    out = function(x)
    assert math.isnan(out.item())
    slope = gradient(out, x)
    assert slope.shape == (1, 1)
    assert np.isnan(slope).all()
    np.testing.assert_array_equal(gradient(function(x, correction=0), x), [[0.0]])


def test_standard_deviation_of_equal_elements_has_gradient_zero():
    x = t([[2.0, 2.0], [1.0, 3.0]])
    out = wg.std(x, dim=1)
    np.testing.assert_allclose(values(out), [0.0, math.sqrt(2)], rtol=1e-15)
    np.testing.assert_allclose(gradient(out, x), [[0.0, 0.0], [-math.sqrt(0.5), math.sqrt(0.5)]], rtol=1e-15)


def test_variance_of_numbers_far_from_zero():
    row = [1e8 + k for k in range(8)]
    np.testing.assert_allclose(values(wg.var(t(row))), 6.0, rtol=1e-15)


@pytest.mark.parametrize("p", [1, 2, 3, 2.5, 0.5, INF])
@pytest.mark.parametrize("row", [[1e200, 1e200], [3e-200, 4e-200], [1e300, 1e-300], [3e-320, 4e-320], [-5.0, 12.0]])
def test_norms_neither_overflow_nor_underflow(p, row):
    size = [abs(mpmath.mpf(v)) for v in row]
    exact = max(size) if p == INF else sum(v ** mpmath.mpf(p) for v in size) ** (1 / mpmath.mpf(p))
    if exact > mpmath.mpf(np.finfo(np.float64).max):
        pytest.skip("the norm itself overflows")
    x = t(row)
    out = wg.linalg.vector_norm(x, p)
    coarse = min(size) < 1e-307  # subnormal numbers have few digits
    np.testing.assert_allclose(values(out), float(exact), rtol=0.02 if coarse else 1e-14)
    if p not in (INF, 0.5) and not coarse:
        slope = [float(mpmath.sign(v) * (abs(mpmath.mpf(v)) / exact) ** (p - 1)) for v in row]
        np.testing.assert_allclose(gradient(out, x), slope, rtol=1e-13, atol=1e-300)


@pytest.mark.parametrize("p", [0.5, 1, 2, 3, 2.5, INF, -INF, -1, 0])
def test_norms_at_zero_have_gradient_zero(p):
    x = t([0.0, 0.0])
    out = wg.linalg.vector_norm(x, p)
    assert out.item() == 0
    np.testing.assert_array_equal(gradient(out, x), [0.0, 0.0])


def test_norm_of_float32_beyond_the_square_root_of_its_range():
    x = t([3e30, 4e30], wg.float32)
    out = wg.norm(x)
    np.testing.assert_allclose(values(out), 5e30, rtol=1e-6)
    np.testing.assert_allclose(gradient(out, x), [0.6, 0.8], rtol=1e-6)


def test_normalize_and_cosine_similarity_of_zeros_and_huge_vectors():
    x = t([[0.0, 0.0], [3e200, 4e200]])
    np.testing.assert_allclose(values(F.normalize(x)), [[0.0, 0.0], [0.6, 0.8]], rtol=1e-15)
    np.testing.assert_allclose(values(F.cosine_similarity(x, t([[1.0, 0.0], [1e200, 0.0]]))), [0.0, 0.6], rtol=1e-15)
    y = t([[0.0, 0.0, 0.2]])
    np.testing.assert_allclose(gradient(F.normalize(y, p=1.0), y), [[5.0, 5.0, 0.0]], rtol=1e-12, atol=1e-12)


def test_a_named_order_and_a_narrower_dtype_are_refused():
    with pytest.raises(TypeError, match="'ord' must be a number"):
        wg.linalg.vector_norm(wg.ones(2), "fro")
    with pytest.raises(TypeError, match="does not hold"):
        wg.linalg.vector_norm(wg.ones(2, dtype=wg.float64), dtype=wg.float32)

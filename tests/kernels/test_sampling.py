"""The distributions against SciPy at fixed keys, against their formulas, and against themselves."""

import math
from functools import partial

import ml_dtypes
import numpy as np
import pytest
from scipy import special, stats

from wengert.errors import DTypeError, ShapeError
from wengert.kernels import philox, sampling
from wengert.kernels.sampling import continuous, discrete, rejection

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float16), BFLOAT16, np.dtype(np.float32), np.dtype(np.float64)]
SIGNIFICAND = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
INF, NAN = math.inf, math.nan
N = 20_000

# name, drawing function of (key, offset, shape, dtype), dtypes
DRAWS = {
    "uniform": (sampling.uniform, [*FLOATS, np.dtype(np.complex64), np.dtype(np.complex128)]),
    "uniform scaled": (partial(sampling.uniform, low=-3.0, high=5.0), FLOATS),
    "normal": (sampling.normal, [*FLOATS, np.dtype(np.complex64), np.dtype(np.complex128)]),
    "normal scaled": (partial(sampling.normal, mean=2.0, std=0.5), FLOATS),
    "log_normal": (partial(sampling.log_normal, mean=0.1, std=0.3), FLOATS),
    "exponential": (partial(sampling.exponential, rate=3.0), FLOATS),
    "cauchy": (partial(sampling.cauchy, median=1.0, sigma=2.0), FLOATS),
    "geometric": (partial(sampling.geometric, p=0.2), [*FLOATS, np.dtype(np.int64), np.dtype(np.uint8)]),
    "bernoulli": (partial(sampling.bernoulli, p=0.3), [*FLOATS, np.dtype(bool), np.dtype(np.int64)]),
    "integers": (partial(sampling.integers, low=-5, high=20), [*FLOATS, np.dtype(np.int8), np.dtype(np.int64)]),
    "integers wide": (partial(sampling.integers, low=-(2**62), high=2**63), [np.dtype(np.int64)]),
    "gamma": (partial(sampling.gamma, concentration=0.7), FLOATS),
    "poisson few": (partial(sampling.poisson, rate=2.5), [*FLOATS, np.dtype(np.int64)]),
    "poisson many": (partial(sampling.poisson, rate=25.0), [*FLOATS, np.dtype(np.int64)]),
    "binomial few": (partial(sampling.binomial, count=7, probability=0.4), [*FLOATS, np.dtype(np.int64)]),
    "binomial many": (partial(sampling.binomial, count=90, probability=0.7), [*FLOATS, np.dtype(np.int64)]),
    "truncated_normal": (partial(sampling.truncated_normal, low=0.5, high=4.0), FLOATS),
}
CASES = [pytest.param(draw, dtype, id=f"{name}-{dtype}") for name, (draw, dtypes) in DRAWS.items() for dtype in dtypes]


@pytest.mark.parametrize(("draw", "dtype"), CASES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5,), (2, 3, 4)])
def test_shape_dtype_and_words_used(draw, dtype, shape):
    values, used = draw(9, 3, shape, dtype)
    assert isinstance(values, np.ndarray)
    assert values.shape == shape
    assert values.dtype == dtype
    assert values.flags.c_contiguous
    assert values.flags.writeable
    assert (used == 0) == (values.size == 0)
    assert isinstance(used, int)


@pytest.mark.parametrize(("draw", "dtype"), CASES)
def test_a_longer_draw_begins_with_a_shorter_one(draw, dtype):
    whole, used = draw(5, 11, (1003,), dtype)
    np.testing.assert_array_equal(draw(5, 11, (1003,), dtype)[0], whole)
    for count in (1, 2, 7, 1000):
        np.testing.assert_array_equal(draw(5, 11, (count,), dtype)[0], whole[:count])
    first, spent = draw(5, 11, (500,), dtype)
    np.testing.assert_array_equal(np.concatenate([first, draw(5, 11 + spent, (503,), dtype)[0]]), whole)
    assert spent < used
    assert not np.array_equal(draw(6, 11, (1003,), dtype)[0], whole)


@pytest.fixture
def small_pieces(monkeypatch):
    """A function after whose call all work is cut in small pieces."""

    def cut():
        philox._page.cache_clear()
        for module, name, size in [
            (philox, "_CHUNK", 24),
            (philox, "_PAGE", 8),
            (philox, "_RETRY_CHUNK", 40),
            (continuous, "_CHUNK", 32),
        ]:
            monkeypatch.setattr(module, name, size)

    yield cut
    philox._page.cache_clear()


@pytest.mark.parametrize(("draw", "dtype"), CASES)
def test_the_cut_of_the_work_does_not_show(draw, dtype, small_pieces):
    whole = draw(5, 11, (1003,), dtype)[0]
    small_pieces()
    np.testing.assert_array_equal(draw(5, 11, (1003,), dtype)[0], whole)


CONTINUOUS = {
    "uniform": (sampling.uniform, {}, stats.uniform()),
    "uniform scaled": (sampling.uniform, {"low": -3.0, "high": 5.0}, stats.uniform(-3, 8)),
    "normal": (sampling.normal, {}, stats.norm()),
    "normal scaled": (sampling.normal, {"mean": 2.0, "std": 0.5}, stats.norm(2, 0.5)),
    "log_normal": (sampling.log_normal, {}, stats.lognorm(2.0, scale=math.e)),
    "exponential": (sampling.exponential, {"rate": 3.0}, stats.expon(scale=1 / 3)),
    "cauchy": (sampling.cauchy, {"median": 1.0, "sigma": 2.0}, stats.cauchy(1, 2)),
    **{f"gamma {a:g}": (sampling.gamma, {"concentration": a}, stats.gamma(a)) for a in (0.5, 1.0, 1.5, 20.0, 1e4)},
    **{
        f"truncated_normal {low:g} {high:g}": (
            sampling.truncated_normal,
            {"low": low, "high": high},
            stats.truncnorm(low, high),
        )
        for low, high in [
            (-2.0, 2.0),
            (-0.3, 0.4),
            (-0.1, 9.0),
            (0.2, 0.3),
            (0.5, 5.0),
            (3.0, INF),
            (-INF, -6.0),
            (-INF, INF),
            (8.0, 8.1),
            (-3.0, -2.9),
            (0.0, INF),
        ]
    },
    "truncated_normal scaled": (
        sampling.truncated_normal,
        {"mean": 3.0, "std": 2.0, "low": 0.0, "high": 4.0},
        stats.truncnorm(-1.5, 0.5, 3, 2),
    ),
}


@pytest.mark.parametrize(("draw", "parameters", "expected"), CONTINUOUS.values(), ids=CONTINUOUS.keys())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_continuous_distribution(draw, parameters, expected, dtype):
    for key in (1, 2):
        values = draw(key, 0, (N,), dtype, **parameters)[0].astype(np.float64)
        assert stats.kstest(values, expected.cdf).pvalue > 0.01


@pytest.mark.parametrize("concentration", [0.05, 1e10])
def test_gamma_that_only_float64_resolves(concentration):
    values = sampling.gamma(1, 0, (N,), np.float64, concentration)[0]
    assert stats.kstest(values, stats.gamma(concentration).cdf).pvalue > 0.01


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16])
@pytest.mark.parametrize("name", ["normal", "exponential", "gamma 20", "truncated_normal 0.5 5"])
def test_half_precision_is_the_rounded_distribution(name, dtype):
    """The distance of a rounded sample from the law: rounding moves a value by at most one unit in the last place."""
    draw, parameters, expected = CONTINUOUS[name]
    values = draw(1, 0, (N,), dtype, **parameters)[0].astype(np.float64)
    unit = 2.0 ** (1 - SIGNIFICAND[dtype.name]) * np.abs(values)
    empirical = stats.rankdata(values, "max") / N
    noise = 1.63 / math.sqrt(N)  # the 1 % point of Kolmogorov's statistic
    assert (empirical <= expected.cdf(values + unit) + noise).all()
    assert (empirical >= expected.cdf(values - unit) - noise).all()


DISCRETE = {
    **{f"geometric {p:g}": (sampling.geometric, {"p": p}, stats.geom(p)) for p in (0.01, 0.3, 0.9)},
    **{f"poisson {r:g}": (sampling.poisson, {"rate": r}, stats.poisson(r)) for r in (0.05, 3.0, 9.99, 10.0, 40.0, 1e6)},
    **{
        f"binomial {n} {p:g}": (sampling.binomial, {"count": n, "probability": p}, stats.binom(n, p))
        for n, p in [(1, 0.5), (12, 0.3), (20, 0.5), (25, 0.4), (100, 0.05), (1000, 0.99), (500, 0.6), (10**9, 0.3)]
    },
    "integers": (sampling.integers, {"low": -3, "high": 10}, stats.randint(-3, 10)),
    "integers two words": (sampling.integers, {"low": -(2**40), "high": 2**41}, stats.randint(-(2**40), 2**41)),
    "integers rejecting": (sampling.integers, {"low": 0, "high": 3 << 30}, stats.randint(0, 3 << 30)),
}


@pytest.mark.parametrize(("draw", "parameters", "expected"), DISCRETE.values(), ids=DISCRETE.keys())
def test_discrete_distribution(draw, parameters, expected):
    edges = np.unique(np.floor(expected.ppf(np.linspace(0.0, 1.0, 40)[1:-1])))  # about 500 values a cell
    chances = np.diff(np.concatenate([[0.0], expected.cdf(edges), [1.0]]))
    for key in (1, 2):
        values = draw(key, 0, (N,), np.int64, **parameters)[0]
        found = np.bincount(np.searchsorted(edges, values), minlength=len(chances))
        kept = chances > 0
        assert found[~kept].sum() == 0
        assert stats.chisquare(found[kept], N * chances[kept]).pvalue > 0.005


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_is_a_grid_of_the_words(dtype):
    digits = SIGNIFICAND[dtype.name]
    values, used = sampling.uniform(3, 5, (1000,), dtype)
    bits = philox.bits64(3, 5, 1000) if digits == 53 else philox.words(3, 5, 1000)
    width = 64 if digits == 53 else 32
    assert used == 1000 * width // 32
    assert values.astype(np.float64).tolist() == [(b >> (width - digits)) / 2**digits for b in bits.tolist()]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (1.0, 1.0625), (-1.0, 1000.0), (0.1, 0.3), (-1e-5, 1e-5)])
def test_uniform_stays_below_high(dtype, low, high):
    """With all bits set, the largest number of the grid; and over a sample, which in half precision meets it often."""
    values = sampling.uniform(1, 0, (50_000,), dtype, low, high)[0]
    assert (values >= dtype.type(low)).all()
    assert (values < dtype.type(high)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_of_all_ones_is_below_high(dtype, monkeypatch):
    monkeypatch.setattr(philox, "words", lambda key, offset, count: np.full(count, 2**32 - 1, np.uint32))
    for low, high in [(0.0, 1.0), (1.0, 2.0), (-7.0, 0.1), (1000.0, 1100.0)]:
        assert sampling.uniform(0, 0, (1,), dtype, low, high)[0][0] < dtype.type(high)


def test_uniform_of_an_empty_interval_is_its_end():
    assert (sampling.uniform(0, 0, (4,), np.float32, 2.5, 2.5)[0] == 2.5).all()


def test_normal_is_box_muller_of_the_words():
    words = philox.words(3, 5, 6).astype(np.float64)
    radius = np.sqrt(-2 * np.log(np.floor(words[0::2] / 2) * 2.0**-31 + 2.0**-32))
    angle = 2 * np.pi * words[1::2] / 2.0**32
    expected = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()
    values, used = sampling.normal(3, 5, (5,), np.float32)
    assert used == 6
    np.testing.assert_allclose(values, expected[:5], rtol=1e-5, atol=1e-6)
    bits = philox.bits64(3, 5, 6).astype(np.float64)
    radius, angle = np.sqrt(-2 * np.log(bits[0::2] * 2.0**-64)), 2 * np.pi * bits[1::2] / 2.0**64
    expected = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()
    values, used = sampling.normal(3, 5, (6,), np.float64)
    assert used == 12
    np.testing.assert_allclose(values, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16, np.float32, np.float64])
@pytest.mark.parametrize("word", [0, 1, 2**31, 2**32 - 1])
def test_tails_are_finite(dtype, word, monkeypatch):
    monkeypatch.setattr(philox, "words", lambda key, offset, count: np.full(count, word, np.uint32))
    normal = sampling.normal(0, 0, (2,), dtype)[0].astype(np.float64)
    assert np.isfinite(normal).all()
    assert np.abs(normal).max() < (9.5 if dtype == np.float64 else 6.7)
    exponential = sampling.exponential(0, 0, (1,), dtype)[0].astype(np.float64)
    assert 0 <= exponential[0] < 37
    assert sampling.geometric(0, 0, (1,), np.int64, 0.5)[0][0] >= 1
    if dtype == np.float64:
        assert exponential[0] > 0
        assert np.isfinite(sampling.cauchy(0, 0, (1,), dtype)[0]).all()


def test_normal_moments_and_pairs():
    z = sampling.normal(1, 0, (200_000,), np.float64)[0]
    tolerance = 5 / math.sqrt(z.size)
    assert abs(z.mean()) < tolerance
    assert abs((z**2).mean() - 1) < tolerance * math.sqrt(2)
    assert abs((z**3).mean()) < tolerance * math.sqrt(15)
    assert abs((z**4).mean() - 3) < tolerance * math.sqrt(96)
    assert abs((z[0::2] * z[1::2]).mean()) < tolerance * math.sqrt(2)
    assert abs((z[0::2] ** 2 * z[1::2] ** 2).mean() - 1) < tolerance * 4


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_normal_splits_its_variance(dtype):
    z = sampling.normal(1, 0, (50_000,), dtype, 1 + 2j, 3.0)[0] - (1 + 2j)
    for part in (z.real, z.imag):
        assert stats.kstest(part.astype(np.float64) / 3, stats.norm(0, math.sqrt(0.5)).cdf).pvalue > 0.01
    assert abs((z.real * z.imag).mean()) < 5 * 4.5 / math.sqrt(z.size)


def test_array_parameters_broadcast():
    mean, std = np.array([[0.0], [100.0]]), np.array([1.0, 2.0, 0.0])
    values, used = sampling.normal(2, 0, (2, 3), np.float64, mean, std)
    standard = sampling.normal(2, 0, (2, 3), np.float64)[0]
    assert used == 12
    np.testing.assert_allclose(values, standard * std + mean)
    half = sampling.normal(2, 0, (2, 3), BFLOAT16, mean.astype(BFLOAT16), np.float32(2.0))[0]
    np.testing.assert_allclose(half.astype(np.float64), standard_float32(2, (2, 3)) * 2 + mean, rtol=2.0**-8)
    rates = np.array([1e-3, 1.0, 1e3])
    np.testing.assert_allclose(
        sampling.exponential(2, 0, (2, 3), np.float64, rates)[0] * rates,
        sampling.exponential(2, 0, (2, 3), np.float64)[0],
    )
    chances = np.array([0.0, 1.0, 0.5])
    ones = sampling.bernoulli(2, 0, (500, 3), np.float32, chances)[0]
    assert ones[:, 0].sum() == 0
    assert ones[:, 1].sum() == 500
    assert 200 < ones[:, 2].sum() < 300
    counts = sampling.poisson(2, 0, (2000, 4), np.float32, np.array([0.0, 1.0, 20.0, 1e8]))[0]
    np.testing.assert_allclose(counts.mean(0, dtype=np.float64), [0.0, 1.0, 20.0, 1e8], rtol=0.1)
    hits = sampling.binomial(2, 0, (2000, 4), np.int64, np.array([0, 10, 100, 100]), np.array([0.5, 1.0, 0.5, 0.01]))[0]
    assert (hits[:, :2] == [0, 10]).all()
    np.testing.assert_allclose(hits[:, 2:].mean(0), [50.0, 1.0], rtol=0.1)
    alphas = np.array([0.01, 1.0, 100.0])
    np.testing.assert_allclose(
        sampling.gamma(2, 0, (20_000, 3), np.float64, alphas)[0].mean(0), alphas, rtol=5 * 10 / math.sqrt(20_000)
    )


def standard_float32(key, shape):
    return sampling.normal(key, 0, shape, np.float32)[0].astype(np.float64)


def test_an_element_keeps_its_number_whatever_its_neighbours_are():
    """Sub-streams: other parameters elsewhere change how often others retry, never this element."""
    calm, wild = np.full(1000, 3.0), np.full(1000, 3.0)
    wild[::2] = 50.0
    for draw in (sampling.gamma, sampling.poisson):
        a, b = draw(8, 0, (1000,), np.float64, calm)[0], draw(8, 0, (1000,), np.float64, wild)[0]
        np.testing.assert_array_equal(a[1::2], b[1::2])
        assert not np.array_equal(a[::2], b[::2])
    a = sampling.binomial(8, 0, (1000,), np.float64, 100, calm / 10)[0]
    b = sampling.binomial(8, 0, (1000,), np.float64, 100, np.where(wild == 3.0, 0.3, 0.9))[0]
    np.testing.assert_array_equal(a[1::2], b[1::2])


@pytest.mark.parametrize("p", [0.0, 1.0, 0.25, 0.1, 1e-3])
def test_bernoulli_compares_the_words(p):
    words = philox.words(4, 2, 3000).tolist()
    values, used = sampling.bernoulli(4, 2, (3000,), bool, p)
    assert used == 3000
    assert values.tolist() == [word < p * 2**32 for word in words]


def test_bernoulli_resolves_ties_beyond_32_bits():
    """`p` agrees with the first 32 bits of an element's word, so the rest of it decides: true with chance 3/4."""
    offsets = range(0, 4000)
    words = philox.words(4, 0, len(offsets)).astype(np.float64)
    ties = sampling.bernoulli(4, 0, (4000,), bool, (words + 0.75) / 2.0**32)[0]
    assert abs(ties.mean() - 0.75) < 5 * math.sqrt(0.75 * 0.25 / 4000)
    rest = (philox.element_bits(4, philox.element_positions(0, 4000), 0)[:, 0] >> np.uint64(11)) / 2.0**53
    np.testing.assert_array_equal(ties, rest < 0.75)
    assert not sampling.bernoulli(4, 0, (4000,), bool, words / 2.0**32)[0].any()


INTEGER_RANGES = [
    (np.int64, -(2**63), 2**63),
    (np.int64, -(2**63), -(2**63) + 1),
    (np.int64, 2**63 - 1, 2**63),
    (np.int64, -(2**63), 2**63 - 1),
    (np.uint64, 0, 2**64),
    (np.uint64, 2**64 - 1, 2**64),
    (np.int32, -(2**31), 2**31),
    (np.uint8, 0, 256),
    (np.int8, -128, 128),
    (np.bool_, 0, 2),
    (np.float32, -(2**24), 2**24 + 1),
    (np.float16, -(2**11), 2**11 + 1),
    (BFLOAT16, -256, 257),
    (np.float64, -(2**53), 2**53 + 1),
    (np.int64, 0, 2**32),
    (np.int64, -5, 2**32 - 5),
    (np.int64, 0, 2**32 + 1),
    (np.int64, 0, 1),
]


@pytest.mark.parametrize(("dtype", "low", "high"), INTEGER_RANGES)
def test_integers_are_the_words_modulo_the_span(dtype, low, high):
    values, used = sampling.integers(7, 1, (2000,), dtype, low, high)
    span = high - low
    bits, states = (philox.words(7, 1, 2000), 2**32) if span <= 2**32 else (philox.bits64(7, 1, 2000), 2**64)
    assert used == 2000 * (1 if states == 2**32 else 2)
    expected = [low + b % span if b < states - states % span else None for b in bits.tolist()]
    found = [int(v) for v in values]
    assert all(e is None or e == f for e, f in zip(expected, found, strict=True))
    assert min(found) >= low
    assert max(found) < high


def test_integers_draw_again_instead_of_favouring_small_ones():
    """With a span of 3/4 of 2**64, a quarter of all words is refused; modulo alone would favour the lowest third."""
    values = sampling.integers(7, 0, (N,), np.uint64, 0, 3 << 62)[0]
    thirds = np.bincount((values >> np.uint64(62)).astype(np.int64), minlength=3)
    assert stats.chisquare(thirds).pvalue > 0.01
    bits = philox.bits64(7, 0, N)
    refused = np.flatnonzero(bits >= np.uint64(3 << 62))
    assert 0.2 * N < refused.size < 0.3 * N
    again = philox.element_bits(7, (2 * refused).astype(np.uint64), 1)[:, 0]
    first_try = again < np.uint64(3 << 62)
    np.testing.assert_array_equal(values[refused][first_try], again[first_try])


@pytest.mark.parametrize("size", [0, 1, 2, 3, 17, 1000, 70_000])
def test_permutation_is_the_stable_argsort_of_its_keys(size):
    order, used = sampling.permutation(3, 5, size)
    assert order.dtype == np.int64
    assert used == 2 * size
    np.testing.assert_array_equal(order, np.argsort(philox.bits64(3, 5, size), kind="stable"))


@pytest.mark.parametrize("kinds", [1, 2, 50])
@pytest.mark.parametrize("shift", [0, 7, 60])
def test_stable_argsort_with_ties(kinds, shift):
    keys = (np.random.default_rng(0).integers(0, kinds, 3000).astype(np.uint64)) << np.uint64(shift % 58)
    np.testing.assert_array_equal(discrete._stable_argsort(keys), np.argsort(keys, kind="stable"))


def test_permutations_are_equally_likely():
    orders = np.stack([sampling.permutation(1, 6 * 1 * i, 3)[0] for i in range(3000)])
    counts = np.unique(orders @ [9, 3, 1], return_counts=True)[1]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 0.01


@pytest.mark.parametrize("dtype", [np.float32, np.float64, BFLOAT16, np.int64])
def test_multinomial_with_replacement(dtype):
    weights = np.array([[0, 1, 0, 3, 4, 0], [2, 0, 0, 0, 0, 6]]).astype(dtype)
    values, used = sampling.multinomial(1, 0, weights, N, replacement=True)
    assert values.shape == (2, N)
    assert values.dtype == np.int64
    assert used == 4 * N
    for row, chances in zip(values, weights.astype(np.float64) / 8, strict=True):
        found = np.bincount(row, minlength=6)
        assert found[chances == 0].sum() == 0
        assert stats.chisquare(found[chances > 0], N * chances[chances > 0]).pvalue > 0.01


def test_multinomial_without_replacement_is_one_draw_after_the_other():
    weights = np.tile([0.0, 1.0, 2.0, 5.0], (N, 1))
    values, used = sampling.multinomial(1, 0, weights, 3)
    assert used == 2 * weights.size
    assert (np.sort(values, axis=1) == [1, 2, 3]).all()
    chances = {
        (i, j): weights[0, i] / 8 * weights[0, j] / (8 - weights[0, i]) for i in (1, 2, 3) for j in (1, 2, 3) if i != j
    }
    found = [int(((values[:, 0] == i) & (values[:, 1] == j)).sum()) for i, j in chances]
    assert stats.chisquare(found, N * np.array(list(chances.values()))).pvalue > 0.01
    np.testing.assert_array_equal(sampling.multinomial(1, 0, weights, 1)[0], values[:, :1])


@pytest.mark.parametrize(
    ("weights", "count", "replacement", "possible"),
    [
        ([1.0, 1e-320, 0.0], 2, False, {0, 1}),
        ([1e308, 1e308, 0.0], 50, True, {0, 1}),
        ([0.0, 5e-324], 20, True, {1}),
        ([0.0, 0.0, 7.0], 1, False, {2}),
        ([1e-300, 1.0, 0.0], 100, True, {1}),
    ],
)
def test_multinomial_extreme_weights(weights, count, replacement, possible):
    values = sampling.multinomial(0, 0, np.array(weights), count, replacement)[0]
    assert set(values.tolist()) == possible


def test_multinomial_shapes():
    assert sampling.multinomial(0, 0, np.ones((2, 3, 4)), 2)[0].shape == (2, 3, 2)
    assert sampling.multinomial(0, 0, np.ones((0, 4)), 2)[0].shape == (0, 2)
    assert sampling.multinomial(0, 0, np.ones((0, 4)), 9, replacement=True)[0].shape == (0, 9)
    wide = np.ones(1000)
    assert sorted(sampling.multinomial(0, 0, wide, 1000)[0].tolist()) == list(range(1000))


@pytest.mark.parametrize("columns", [1, 2, 3, 8, 9])
def test_row_search_is_searchsorted(columns):
    random = np.random.default_rng(columns)
    rows = np.cumsum(random.integers(0, 3, (20, columns)), axis=1).astype(np.float64)
    targets = random.integers(-1, rows.max() + 1, (20, 50)).astype(np.float64)
    expected = [np.searchsorted(row, target, side="right") for row, target in zip(rows, targets, strict=True)]
    np.testing.assert_array_equal(discrete._first_above(rows, targets), expected)


@pytest.mark.parametrize(("bits", "expected"), [(1 << 63, 2.0**53 / math.pi), ((1 << 63) - 1, -(2.0**53) / math.pi)])
def test_cauchy_tails_are_exact(bits, expected, monkeypatch):
    monkeypatch.setattr(philox, "bits64", lambda key, offset, count: np.full(count, bits, np.uint64))
    assert sampling.cauchy(0, 0, (1,), np.float64)[0][0] == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (partial(sampling.geometric, p=1e-300), 127),
        (partial(sampling.poisson, rate=1e6), 127),
        (partial(sampling.binomial, count=10**6, probability=0.5), 127),
        (partial(sampling.geometric, p=1.0), 1),
        (partial(sampling.poisson, rate=0.0), 0),
        (partial(sampling.binomial, count=0, probability=0.5), 0),
        (partial(sampling.binomial, count=9, probability=1.0), 9),
        (partial(sampling.binomial, count=9, probability=0.0), 0),
    ],
)
def test_counts_at_the_ends_of_their_parameters(draw, expected):
    assert (draw(0, 0, (50,), np.int8)[0] == expected).all()


def test_walks_end_where_rounding_leaves_the_sum_below_the_largest_unit(monkeypatch):
    monkeypatch.setattr(philox, "element_bits", lambda key, at, draw: np.full((len(at), 2), 2**64 - 1, np.uint64))
    rates = np.linspace(0.0, 9.99, 500)
    counts = sampling.poisson(0, 0, (500,), np.float64, rates)[0]
    assert (stats.poisson(rates).sf(counts - 1) > 2.0**-60).all()
    for n in (1, 3, 19):
        hits = sampling.binomial(0, 0, (200,), np.float64, n, np.linspace(0.01, 0.5, 200))[0]
        assert (hits <= n).all()


def test_geometric_saturates_below_the_limit_of_int64():
    assert (sampling.geometric(0, 0, (5,), np.int64, 1e-300)[0] > 2**62).all()


@pytest.mark.parametrize("rate", [2.0**40, 2.0**53, 2.0**63])
def test_large_poisson_rates_keep_their_spread(rate):
    values = (sampling.poisson(1, 0, (N,), np.float64, rate)[0] - rate) / math.sqrt(rate)
    assert stats.kstest(values, stats.norm.cdf).pvalue > 0.01


def test_large_binomial_counts_keep_their_spread():
    n, p = 2.0**53, 0.3
    values = (sampling.binomial(1, 0, (N,), np.float64, n, p)[0] - n * p) / math.sqrt(n * p * (1 - p))
    assert stats.kstest(values, stats.norm.cdf).pvalue > 0.01


@pytest.mark.parametrize("dtype", FLOATS)
def test_gamma_never_vanishes(dtype):
    values = sampling.gamma(1, 0, (1000,), dtype, 1e-4)[0]
    assert (values > 0).all()
    assert np.isfinite(np.log(values.astype(np.float64))).all()
    assert (sampling.gamma(1, 0, (9,), dtype, 5e-324)[0] > 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("mean", "std", "low", "high"),
    [
        (0.0, 1.0, -2.0, 2.0),
        (0.0, 0.02, -0.04, 0.04),
        (5.0, 0.1, 5.05, 5.06),
        (0.0, 1.0, 60.0, 61.0),
        (0.0, 1.0, -1e4, -99.0),
    ],
)
def test_truncated_normal_stays_in_its_interval(dtype, mean, std, low, high):
    values = sampling.truncated_normal(1, 0, (3000,), dtype, mean, std, low, high)[0]
    assert (values >= dtype.type(low)).all()
    assert (values <= dtype.type(high)).all()


def test_truncated_normal_far_tails():
    """Beyond x = 1e5 the overshoot times x is exponential; an interval of one float is that float."""
    x = 1e5
    beyond = (sampling.truncated_normal(1, 0, (N,), np.float64, low=x, high=INF)[0] - x) * x
    assert stats.kstest(beyond, stats.expon.cdf).pvalue > 0.01
    narrow = sampling.truncated_normal(1, 0, (9,), np.float64, low=1.0, high=np.nextafter(1.0, 2.0))[0]
    assert ((narrow >= 1.0) & (narrow <= np.nextafter(1.0, 2.0))).all()
    assert (sampling.truncated_normal(1, 0, (9,), np.float64, low=1e200, high=INF)[0] == 1e200).all()


def test_log_factorial_rest_against_scipy():
    k = np.concatenate([np.arange(1.0, 200.0), 10.0 ** np.arange(3, 8)])
    expected = special.gammaln(k + 1) - k * np.log(k) + k
    np.testing.assert_allclose(rejection._log_factorial_rest(k), expected, rtol=0, atol=1e-7)
    np.testing.assert_allclose(rejection._log_factorial_rest(k[:150]), expected[:150], rtol=0, atol=1e-12)
    assert rejection._log_factorial_rest(np.zeros(1))[0] == 0.0


def test_masses_against_scipy():
    k = np.arange(0.0, 300.0)
    log_mass = -rejection._deviance(k, 100.0) - rejection._log_factorial_rest(k)
    np.testing.assert_allclose(log_mass, stats.poisson(100).logpmf(k), rtol=1e-12, atol=1e-11)


FLOAT = (0, 0, (3,), np.float32)
REFUSED = [
    (lambda: sampling.uniform(*FLOAT, low=2.0, high=1.0), "uniform.*low=2.0, high=1.0"),
    (lambda: sampling.uniform(*FLOAT, low=NAN), "uniform.*low=nan"),
    (lambda: sampling.uniform(*FLOAT, low=-3e38, high=3e38), "uniform.*finite in float32"),
    (lambda: sampling.uniform(0, 0, (3,), np.float16, high=1e5), "uniform.*finite in float16"),
    (lambda: sampling.normal(*FLOAT, std=-1.0), "normal.*std must be at least 0, got -1.0"),
    (lambda: sampling.normal(*FLOAT, std=[1.0, NAN, 2.0]), "std must be at least 0, got nan"),
    (lambda: sampling.log_normal(*FLOAT, std=-0.5), "log_normal.*std must be at least 0, got -0.5"),
    (lambda: sampling.exponential(*FLOAT, rate=0.0), "exponential.*rate must be positive and finite, got 0.0"),
    (lambda: sampling.exponential(*FLOAT, rate=[1.0, INF, 1.0]), "rate must be positive and finite, got inf"),
    (lambda: sampling.cauchy(*FLOAT, sigma=0.0), "cauchy.*sigma must be positive, got 0.0"),
    (lambda: sampling.geometric(*FLOAT, p=0.0), "geometric.*p must be in \\(0, 1\\], got 0.0"),
    (lambda: sampling.geometric(*FLOAT, p=1.5), "geometric.*got 1.5"),
    (lambda: sampling.bernoulli(*FLOAT, p=-0.1), "bernoulli.*p must be in \\[0, 1\\], got -0.1"),
    (lambda: sampling.bernoulli(*FLOAT, p=[0.5, 1.25, 0.1]), "bernoulli.*got 1.25"),
    (lambda: sampling.bernoulli(*FLOAT, p=NAN), "bernoulli.*got nan"),
    (lambda: sampling.integers(0, 0, (3,), np.int64, 4, 4), "integers.*low=4, high=4"),
    (lambda: sampling.integers(0, 0, (3,), np.int8, 0, 129), "integers.*<= 128 for int8"),
    (lambda: sampling.integers(0, 0, (3,), np.uint8, -1, 9), "integers.*expected 0 <= low"),
    (lambda: sampling.integers(0, 0, (3,), np.float16, 0, 4000), "integers.*for float16"),
    (lambda: sampling.permutation(0, 0, -1), "permutation.*got -1"),
    (lambda: sampling.gamma(*FLOAT, concentration=0.0), "gamma.*concentration must be positive and finite, got 0.0"),
    (lambda: sampling.gamma(*FLOAT, concentration=NAN), "gamma.*got nan"),
    (lambda: sampling.poisson(*FLOAT, rate=-1.0), "poisson.*rate must be in"),
    (lambda: sampling.poisson(*FLOAT, rate=INF), "poisson.*got inf"),
    (lambda: sampling.binomial(*FLOAT, count=2.5, probability=0.5), "binomial.*count must be a whole number"),
    (lambda: sampling.binomial(*FLOAT, count=-1, probability=0.5), "binomial.*count .* got -1"),
    (lambda: sampling.binomial(*FLOAT, count=2, probability=1.5), "binomial.*probability .* got 1.5"),
    (lambda: sampling.truncated_normal(*FLOAT, low=1.0, high=1.0), "truncated_normal.*low=1.0, high=1.0"),
    (lambda: sampling.truncated_normal(*FLOAT, std=0.0), "truncated_normal.*std positive"),
    (lambda: sampling.truncated_normal(*FLOAT, mean=NAN), "truncated_normal.*mean must be finite"),
    (lambda: sampling.truncated_normal(*FLOAT, std=1e-300, low=1e100, high=2e100), "too many deviations"),
    (lambda: sampling.multinomial(0, 0, np.array([0.5, -0.5]), 1), "multinomial.*at least 0, got -0.5"),
    (lambda: sampling.multinomial(0, 0, np.array([0.5, NAN]), 1), "multinomial.*finite .* got nan"),
    (lambda: sampling.multinomial(0, 0, np.array([0.5, INF]), 1, True), "multinomial.*finite .* got inf"),
    (lambda: sampling.multinomial(0, 0, np.zeros((2, 3)), 1, True), "sums to 0"),
    (lambda: sampling.multinomial(0, 0, np.array([1.0, 0.0]), 2), "cannot draw 2 samples without replacement from 1"),
    (lambda: sampling.multinomial(0, 0, np.ones(2), 3), "cannot draw 3 samples without replacement from 2"),
    (lambda: sampling.multinomial(0, 0, np.ones(2), 0), "must be positive, got 0"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_parameters_out_of_range_are_named(call, message):
    with pytest.raises(sampling.ParameterError, match=message) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sampling.uniform(0, 0, (2, -1), np.float32), ShapeError, "negative"),
        (lambda: sampling.normal(0, 0, (2,), np.float32, np.zeros(3)), ShapeError, r"mean of shape \(3,\).*\(2,\)"),
        (lambda: sampling.multinomial(0, 0, np.array(1.0), 1), ShapeError, "classes"),
        (lambda: sampling.multinomial(0, 0, np.ones((2, 0)), 1), ShapeError, "classes"),
        (lambda: sampling.uniform(0, 0, (2,), np.int64), DTypeError, "uniform.*floating-point.*int64"),
        (lambda: sampling.log_normal(0, 0, (2,), np.complex64), DTypeError, "log_normal.*complex64"),
        (lambda: sampling.exponential(0, 0, (2,), bool), DTypeError, "exponential.*bool"),
        (lambda: sampling.gamma(0, 0, (2,), np.complex64, 1.0), DTypeError, "gamma.*complex64"),
        (lambda: sampling.poisson(0, 0, (2,), bool, 1.0), DTypeError, "poisson.*bool"),
        (lambda: sampling.integers(0, 0, (2,), np.complex64, 0, 2), DTypeError, "integers.*complex64"),
        (lambda: sampling.normal(0, 0, (2,), np.float32, 1j), DTypeError, "mean of dtype complex128.*float32"),
        (lambda: sampling.multinomial(0, 0, np.ones(2, complex), 1), DTypeError, "multinomial.*complex128"),
        (lambda: sampling.uniform(-1, 0, (2,), np.float32), ValueError, "key must be in"),
        (lambda: sampling.gamma(0, 2**64, (2,), np.float32, 1.0), ValueError, "offset must be in"),
        (lambda: sampling.gamma(0, 2**64 - 1, (2,), np.float32, 1.0), ValueError, "ends after"),
    ],
)
def test_shapes_dtypes_and_keys_are_checked(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_numpy_scalars_are_parameters_too():
    for value in (np.float64(0.5), np.float32(0.5), np.array(0.5), BFLOAT16.type(0.5)):
        np.testing.assert_array_equal(
            sampling.bernoulli(1, 0, (100,), bool, value)[0], sampling.bernoulli(1, 0, (100,), bool, 0.5)[0]
        )
        np.testing.assert_array_equal(
            sampling.normal(1, 0, (100,), np.float32, value, value)[0],
            sampling.normal(1, 0, (100,), np.float32, 0.5, 0.5)[0],
        )

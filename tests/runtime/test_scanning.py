"""Native running sums, products, extremes and log-sum-exps against NumPy's, and against exact sums."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.runtime.samples import DTYPES, IDS, equal, is_float, sample
from wengert.array.dtype import float32, float64, int64
from wengert.codegen.scanning import BLOCK
from wengert.operators.scan import _running
from wengert.runtime import scanning
from wengert.runtime.threads import get_num_threads, set_num_threads
from wengert.testing.opcheck_native import natively

SHAPES = [(1,), (7,), (17,), (3, 16), (9, 33), (5, 3, 7), (2, 40, 70), (3, BLOCK + 4), (4, 1), (2 * BLOCK + 37,)]
NAMES = ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"]
FLOATS = [dtype for dtype in DTYPES if is_float(dtype)]


@pytest.fixture(autouse=True)
def _native() -> Iterator[None]:
    with natively(), np.errstate(all="ignore"):
        yield


def known(name: str, x: Any, dim: int) -> Any:
    """Return what NumPy gives in float64 (or int64), rounded; extremes exactly."""
    if name in ("cummax", "cummin"):
        values, places = _running(
            np.maximum if name == "cummax" else np.minimum, x.astype(np.float32) if x.dtype.kind == "V" else x, dim
        )
        return values.astype(x.dtype), places
    wide = np.dtype(np.float64 if is_float(x.dtype) else np.int64)
    ufunc = {"cumsum": np.add, "cumprod": np.multiply, "logcumsumexp": np.logaddexp}[name]
    found = ufunc.accumulate(x.astype(wide), axis=dim)
    return found.astype(x.dtype) if is_float(x.dtype) else found


@pytest.mark.parametrize("dtype", DTYPES, ids=IDS)
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_extremes(name: str, dtype: Any) -> None:
    for shape in SHAPES:
        for dim in range(len(shape)):
            x = sample(shape, dtype, dim)
            got, want = getattr(scanning, name)(x, dim), known(name, x, dim)
            assert equal(got[0], want[0]), (shape, dim)
            np.testing.assert_array_equal(got[1], want[1], err_msg=f"{shape} {dim}")


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if not is_float(dtype)], ids=str)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_integers_exactly(name: str, dtype: Any) -> None:
    for shape in SHAPES:
        for dim in range(len(shape)):
            x = sample(shape, dtype, dim)
            assert equal(getattr(scanning, name)(x, dim), known(name, x, dim)), (shape, dim)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
def test_floats(name: str, dtype: Any) -> None:
    """Within a few rounding errors of the running sum of magnitudes."""
    epsilon = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-22, "float64": 2.0**-46}[dtype.name]
    for shape in SHAPES:
        for dim in range(len(shape)):
            x = (np.random.default_rng(dim).random(shape) * 2 - 0.5).astype(dtype)
            got, want = (a.astype(np.float64) for a in (getattr(scanning, name)(x, dim), known(name, x, dim)))
            scale = np.cumsum(np.abs(x.astype(np.float64)), dim) if name == "cumsum" else np.abs(want)
            assert (np.abs(got - want) <= epsilon * (scale + (name == "logcumsumexp")) + 1e-40).all(), (shape, dim)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
def test_infinities_and_nan(name: str, dtype: Any) -> None:
    for shape in SHAPES:
        for dim in range(len(shape)):
            x = sample(shape, dtype, dim)
            got, want = getattr(scanning, name)(x, dim), known(name, x, dim)
            finite = np.isfinite(want)
            np.testing.assert_array_equal(got[~finite], want[~finite])
            assert np.isfinite(got[finite]).all()


def test_float32_sums_are_rounded_once() -> None:
    x = np.random.default_rng(0).standard_normal(3 * BLOCK).astype(np.float32)
    got = scanning.cumsum(x, 0)
    for k in (10, 999, 2 * BLOCK + 5):
        exact = math.fsum(map(float, x[: k + 1]))
        assert abs(float(got[k]) - exact) <= 2.0**-24 * abs(exact) + 1e-12


@pytest.mark.parametrize("length", [40, 3 * BLOCK])
def test_only_sums_of_prefixes_overflow(length: int) -> None:
    for start in ([-1e308, 1e308, 1e308, -1e308, 1e308], [0.0] * 15 + [-1.7e308, 1e308, 1e308]):
        row = np.array(start + [0.0] * (length - len(start)))
        x = np.stack([row, np.roll(row, length // 2)])
        np.testing.assert_array_equal(scanning.cumsum(x, 1), np.cumsum(x, 1))
        np.testing.assert_array_equal(scanning.cumsum(x[1], 0), np.cumsum(x[1]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
def test_zeros_keep_their_signs(dtype: Any) -> None:
    row = np.array([-0.0] * 40 + [0.0] + [-0.0] * 3 * BLOCK, dtype)
    for x, dim in ((row, 0), (row[:40].reshape(4, 10), 0), (row[None], 1)):
        np.testing.assert_array_equal(np.signbit(scanning.cumsum(x, dim)), np.signbit(np.cumsum(x, dim)))


def test_log_sum_exp_of_infinities() -> None:
    x = np.array([-np.inf, -np.inf, 1.0, -np.inf, np.inf, 3.0, np.inf, np.nan, 1.0])
    np.testing.assert_allclose(scanning.logcumsumexp(x, 0), np.logaddexp.accumulate(x), rtol=1e-15)
    far = np.array([1000.0, -1000.0, 1000.0])
    np.testing.assert_allclose(scanning.logcumsumexp(far, 0), 1000.0 + np.log([1, 1, 2]), rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32], ids=str)
@pytest.mark.parametrize("special", [None, np.inf, 1e308])
def test_any_number_of_threads_gives_the_same_bits(dtype: Any, special: Any) -> None:
    x, before = (np.random.default_rng(0).standard_normal(50_001) * 100).astype(dtype), get_num_threads()
    if special is not None and dtype is np.float64:
        x[20_000:20_004] = special
    found = []
    try:
        for threads in (1, 2, 5):
            set_num_threads(threads)
            found.append(scanning.cumsum(x, 0).tobytes())
    finally:
        set_num_threads(before)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name", NAMES)
def test_any_layout(name: str) -> None:
    base = np.random.default_rng(0).random((6, 7, 8))
    for x in (base.transpose(2, 0, 1), base[::-1, :, ::-2], np.broadcast_to(base[:1], base.shape)):
        for dim in range(3):
            got, want = getattr(scanning, name)(x, dim), known(name, x, dim)
            pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
            for g, w in pairs:
                np.testing.assert_allclose(g, w, rtol=1e-13)


def test_dtypes_of_results() -> None:
    x = np.arange(100, dtype=np.int16)
    assert equal(scanning.cumsum(x, 0, dtype=float32), np.cumsum(x).astype(np.float32))
    assert equal(scanning.cumprod(x[1:10], 0, dtype=float64), np.cumprod(x[1:10], dtype=np.float64))
    assert equal(scanning.cumsum(x.astype(np.float16), 0, dtype=float64), np.cumsum(x, dtype=np.float64))
    assert equal(scanning.cumsum(x > 50, 0), np.cumsum(x > 50))
    z = np.arange(60).reshape(3, 20) * (1 + 2j)
    for dim in (0, 1):
        assert equal(scanning.cumsum(z, dim), np.cumsum(z, dim))


@pytest.mark.parametrize(
    "call",
    [
        lambda: scanning.cumsum(np.zeros((0, 3)), 0), lambda: scanning.cumsum(np.array(1.0), 0),
        lambda: scanning.cumprod(np.zeros(3, np.complex64), 0), lambda: scanning.cumsum(np.ones(3), 0, dtype=int64),
        lambda: scanning.cummax(np.zeros(3, ">f4"), 0),
    ],
)  # fmt: skip
def test_what_is_left_to_numpy(call: Any) -> None:
    assert call() is NotImplemented

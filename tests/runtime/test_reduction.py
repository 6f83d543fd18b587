"""Native reductions beside NumPy's in float64, over every way that kept and reduced dimensions can lie."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.core.native import native
from wengert.core.tensor import from_array
from wengert.runtime import reduction
from wengert.runtime.threads import get_num_threads, set_num_threads
from wengert.testing.opcheck_native import natively


@pytest.fixture(autouse=True)
def _native() -> Iterator[None]:
    native.loaded()
    with natively():
        yield


def numbers(*shape: int, dtype: Any = np.float32) -> Any:
    return (np.random.default_rng(len(shape)).standard_normal(shape) * 8).astype(dtype)


SHAPES = [(40,), (5, 37), (37, 5), (3, 18, 21), (2, 3, 4, 33), (33, 4, 3, 2), (1, 64), (64, 1)]
DIMS = [
    (shape, dims)
    for shape in SHAPES
    for count in range(1, len(shape) + 1)
    for dims in itertools.combinations(range(len(shape)), count)
]


@pytest.mark.parametrize(("shape", "dims"), DIMS)
def test_any_dimensions(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    x = numbers(*shape)
    for order in itertools.permutations(range(len(shape))):
        array = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
        t = from_array(array)
        exact = x.astype(np.float64)
        np.testing.assert_allclose(t.sum(dims).numpy(), exact.sum(dims), rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(
            t.mean(dims, keepdim=True).numpy(), exact.mean(dims, keepdims=True), rtol=1e-5, atol=1e-5
        )
        np.testing.assert_array_equal(t.amax(dims).numpy(), x.max(dims))
        np.testing.assert_array_equal(t.amin(dims, keepdim=True).numpy(), x.min(dims, keepdims=True))
        np.testing.assert_array_equal(
            (t > 5).any(dims).numpy() if len(dims) == 1 else (x > 5).any(dims), (x > 5).any(dims)
        )


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(37, 5), (5, 37), (3, 18, 21)])
def test_places_of_extremes(shape: tuple[int, ...], dtype: Any) -> None:
    x = numbers(*shape, dtype=dtype)
    x.reshape(-1)[::5] = 3  # ties: the first one counts
    t = from_array(x)
    for dim in range(len(shape)):
        np.testing.assert_array_equal(t.argmax(dim).numpy(), x.argmax(dim))
        np.testing.assert_array_equal(t.argmin(dim).numpy(), x.argmin(dim))
        values, places = t.max(dim)
        np.testing.assert_array_equal(values.numpy(), x.max(dim))
        np.testing.assert_array_equal(places.numpy(), x.argmax(dim))


def test_a_nan_is_the_largest_and_the_smallest() -> None:
    x = numbers(6, 40)
    x[2, 17] = x[2, 30] = x[4, 0] = np.nan
    t = from_array(x)
    np.testing.assert_array_equal(t.amax(1).numpy(), x.max(1))
    np.testing.assert_array_equal(t.amin(0).numpy(), x.min(0))
    np.testing.assert_array_equal(t.argmax(1).numpy(), x.argmax(1))
    np.testing.assert_array_equal(t.argmin(1).numpy(), x.argmin(1))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.bool_])
def test_sums_of_integers_are_exact(dtype: Any) -> None:
    x = (np.random.default_rng(0).integers(0, 100, (50, 700))).astype(dtype)
    for dim in (None, 0, 1):
        found = from_array(x).sum(dim) if dim is not None else from_array(x).sum()
        assert found.dtype is wg.int64
        np.testing.assert_array_equal(found.numpy(), x.sum(dim, dtype=np.int64))


@pytest.mark.parametrize("shape", [(200_000,), (100_000, 3), (3, 100_000), (2, 70_000, 2)])
def test_few_results_are_cut_and_the_cut_does_not_depend_on_threads(shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    before = get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            found.append(
                [from_array(x).sum(d).numpy().tobytes() for d in range(len(shape))] + [from_array(x).sum().item()]
            )
    finally:
        set_num_threads(before)
    assert found[0] == found[1] == found[2]
    np.testing.assert_allclose(found[0][-1], x.astype(np.float64).sum(), rtol=1e-4, atol=0.5)


def test_sums_are_as_accurate_as_numpy() -> None:
    x = (np.random.default_rng(1).random(1_000_000) + 1).astype(np.float32)
    exact = float(x.astype(np.float64).sum())
    assert abs(from_array(x).sum().item() - exact) <= 2 * abs(float(x.sum()) - exact) + 1e-7 * exact


def test_half_sums_are_folded_in_float32() -> None:
    x = np.full((4, 5000), 0.1, np.float16)
    np.testing.assert_array_equal(from_array(x).sum(1).numpy(), x.astype(np.float32).sum(1).astype(np.float16))


def test_what_is_left_to_numpy() -> None:
    assert reduction.reduce(np.zeros((0, 3)), 0, "sum", np.dtype(float), reduction._value("f64"), "v") is NotImplemented
    assert from_array(np.zeros((0, 3))).sum(0).numpy().tolist() == [0, 0, 0]
    with pytest.raises(IndexError):
        from_array(np.zeros((3, 3))).sum(2)


def test_long_rows_are_as_accurate_as_numpys() -> None:
    x = (np.random.default_rng(2).random((9, 300_000)) + 1).astype(np.float32)
    exact = x.astype(np.float64).sum(1)
    assert (abs(from_array(x).sum(1).numpy() - exact) / exact).max() < 1.3e-7

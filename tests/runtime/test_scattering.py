"""Native reads and combinations at computed positions against the NumPy kernels."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.runtime.samples import DTYPES, equal, sample
from wengert.kernels import scatter as numpy_kernels
from wengert.runtime import scattering
from wengert.runtime.threads import get_num_threads, set_num_threads
from wengert.testing.opcheck_native import natively

COMPLEX = [np.dtype(np.complex64), np.dtype(np.complex128)]
SHAPES = [(7,), (600,), (5, 3), (4, 64), (3, 5, 7), (2, 9, 100)]
COUNTS = (1, 6, 300)


@pytest.fixture(autouse=True)
def _native() -> Iterator[None]:
    with natively(), np.errstate(all="ignore"):
        yield


def numbers(shape: Any, dtype: Any, seed: int = 0) -> Any:
    if dtype.kind == "c":
        rng = np.random.default_rng(seed)
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return sample(shape, dtype, seed)


def cases(dtype: Any) -> Iterator[tuple[Any, int, Any, Any]]:
    """Yield (array, dim, vector of positions, slices for them)."""
    rng = np.random.default_rng(1)
    for shape in SHAPES:
        for dim, size in enumerate(shape):
            for count in COUNTS:
                slices = numbers((*shape[:dim], count, *shape[dim + 1 :]), dtype, count)
                yield numbers(shape, dtype, dim), dim, rng.integers(0, size, count), slices


@pytest.mark.parametrize("dtype", DTYPES + COMPLEX, ids=str)
def test_slices(dtype: Any) -> None:
    for x, dim, index, slices in cases(dtype):
        size, zeros = x.shape[dim], np.zeros_like(x)
        assert equal(scattering.index_read(x, [index - size], [dim]), x.take(index, dim))
        assert equal(scattering.index_add(x, dim, index, slices), numpy_kernels.index_add(x, dim, index, slices))
        got = scattering.index_transpose(slices, [index - size], [dim], x.shape)
        assert equal(got, numpy_kernels.index_add(zeros, dim, index, slices))


@pytest.mark.parametrize("dtype", DTYPES + COMPLEX, ids=str)
def test_rows_of_a_table(dtype: Any) -> None:
    for shape in ((9,), (50, 3), (20, 64), (6, 2, 33)):
        x, index = numbers(shape, dtype), np.random.default_rng(0).integers(0, shape[0], (7, 11), np.int32)
        assert equal(scattering.take_rows(x, index), x[index])
        rows = numbers((7, 11, *shape[1:]), dtype, 3)
        flat = rows.reshape(77, *shape[1:])
        want = numpy_kernels.index_add(np.zeros_like(x), 0, index.reshape(-1), flat)
        assert equal(scattering.add_rows(rows, index, shape[0]), want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements(dtype: Any) -> None:
    for x, dim, index, slices in cases(dtype):
        wide = np.random.default_rng(2).integers(0, x.shape[dim], slices.shape)
        larger = np.concatenate([slices, slices], -1)
        assert equal(scattering.gather(x, dim, wide), numpy_kernels.gather(x, dim, wide))
        want = numpy_kernels.scatter_add(x, dim, wide, slices)
        assert equal(scattering.scatter_add(x, dim, wide, slices), want)
        assert equal(scattering.scatter_add(x, dim, wide, larger), want)
        for reduce in ("sum", "prod", "mean", "amax", "amin"):
            for include_self in (True, False):
                if dtype.kind == "b" and reduce == "mean":
                    continue
                got = scattering.scatter_reduce(x, dim, wide, slices, reduce, include_self=include_self)
                known: Any = numpy_kernels.scatter_reduce(x, dim, wide, slices, reduce, include_self)
                assert equal(got, known), (x.shape, dim, len(index), reduce, include_self)


def test_repeated_positions_add_up_in_their_order() -> None:
    """Sums of floats show the order, on any number of threads."""
    rng, before = np.random.default_rng(0), get_num_threads()
    rows = (rng.standard_normal((5000, 40)) * 10.0 ** rng.integers(-8, 8, (5000, 1))).astype(np.float32)
    index = rng.integers(0, 3, 5000)
    want = np.zeros((3, 40), np.float32)
    for place, row in zip(index, rows, strict=True):
        want[place] += row
    try:
        for threads in (1, 2, 4):
            set_num_threads(threads)
            np.testing.assert_array_equal(scattering.add_rows(rows, index, 3), want)
            wide = np.broadcast_to(index[:, None], rows.shape)
            np.testing.assert_array_equal(scattering.scatter_add(np.zeros_like(want), 0, wide, rows), want)
    finally:
        set_num_threads(before)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 100, 16384, 40000])
@pytest.mark.parametrize("wrong", [-1, 5, 1 << 62, -(1 << 63)])
def test_the_first_position_outside(count: int, wrong: int) -> None:
    positions = np.random.default_rng(0).integers(0, 5, count)
    assert scattering.first_outside(positions, 5) is None
    for place in (count - 1, count // 2, 0):
        positions[place] = wrong
        assert scattering.first_outside(positions, 5) == place


@pytest.mark.parametrize("wrong", [-1, 6, 1 << 40, -(1 << 40)])
def test_a_position_outside_is_left_to_numpy_and_nothing_is_written(wrong: int) -> None:
    x, ones = np.zeros((6, 4)), np.ones((500, 4))
    index = np.zeros((500, 4), np.int64)
    index[300, 2] = wrong
    column, before = np.ascontiguousarray(index[:, 2]), x.copy()
    assert scattering.gather(x, 0, index) is NotImplemented
    assert scattering.scatter_add(x, 0, index, ones) is NotImplemented
    assert scattering.scatter_reduce(x, 0, index, ones, "amax") is NotImplemented
    assert scattering.take_rows(x, column) is NotImplemented
    assert scattering.index_add(x, 0, column, ones) is NotImplemented
    if wrong != -1:
        assert scattering.index_read(x, [column], [0]) is NotImplemented
        assert scattering.index_transpose(ones, [column], [0], (6, 4)) is NotImplemented
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, np.uint32], ids=str)
def test_indices_of_other_integers(dtype: Any) -> None:
    x, index = np.arange(12.0).reshape(4, 3), np.array([3, 0, 3], dtype)
    assert equal(scattering.take_rows(x, index), x[index])
    assert equal(scattering.scatter_add(x, 1, np.tile(index % 3, (4, 1)), np.ones((4, 3))), x + np.array([3.0, 0, 0]))
    narrow = index.astype(np.int64)[:, None]
    assert equal(scattering.gather(x, 0, narrow), np.take_along_axis(x[:, :1], narrow, 0))
    strided = np.repeat(index, 2)[::2]
    assert equal(scattering.take_rows(np.asfortranarray(x), strided), x[index])


@pytest.mark.parametrize(
    "call",
    [
        lambda: scattering.take_rows(np.zeros((3, 2)), np.zeros(0, np.int64)),
        lambda: scattering.take_rows(np.zeros((0, 2)), np.zeros(4, np.int64)),
        lambda: scattering.take_rows(np.array(1.0), np.zeros(4, np.int64)),
        lambda: scattering.take_rows(np.zeros((3, 2)), np.zeros(4, np.uint64)),
        lambda: scattering.gather(np.zeros((3, 2)), 0, np.zeros((3, 3), np.int64)),
        lambda: scattering.gather(np.array(1.0), 0, np.array(0)),
        lambda: scattering.scatter_add(np.zeros(3), 0, np.zeros(2, np.int64), np.zeros(2, np.float32)),
        lambda: scattering.scatter_reduce(np.zeros(3, bool), 0, np.zeros(2, np.int64), np.zeros(2, bool), "mean"),
        lambda: scattering.index_read(np.zeros((3, 3)), [np.zeros(2, np.int64)] * 2, [0, 1]),
        lambda: scattering.index_add(np.zeros((3, 2)), 0, np.zeros(2, np.int64), np.zeros((3, 2))),
    ],
)  # fmt: skip
def test_what_is_left_to_numpy(call: Any) -> None:
    assert call() is NotImplemented

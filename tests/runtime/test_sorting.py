"""Native sorting against NumPy's stable sort: every dtype, order and length, long rows, selections, distinct elements."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.runtime.samples import DTYPES, IDS, bits, equal, is_float, sample
from wengert.operators.order import stable_order
from wengert.runtime import sorting
from wengert.runtime.threads import get_num_threads, set_num_threads
from wengert.testing.opcheck_native import natively

LENGTHS = (1, 2, 3, 7, 31, 64, 65, 128, 129, 500, 5000)  # around the limits between methods


@pytest.fixture(autouse=True)
def _native() -> Iterator[None]:
    with natively():
        yield


def wide(x: Any) -> Any:
    """Return an array in a dtype that NumPy sorts right."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and is_float(x.dtype) else x


def order_of(x: Any, dim: int, descending: bool) -> Any:
    return stable_order(wide(x), dim, descending)


def check(found: Any, x: Any, order: Any, dim: int = -1) -> None:
    """Check (values, indices), the values by their bits: zeros keep their signs and NaNs their bits."""
    values, indices = found
    assert (values.dtype, indices.dtype) == (x.dtype, np.int64)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(bits(values), bits(np.take_along_axis(x, order, dim)))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=IDS)
def test_rows_of_any_length(dtype: Any, descending: bool) -> None:
    for length in LENGTHS:
        x = sample((3, length), dtype, length)
        order = order_of(x, 1, descending)
        check(sorting.sort(x, 1, descending), x, order)
        np.testing.assert_array_equal(sorting.argsort(x, -1, descending), order)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=IDS)
def test_a_long_row(dtype: Any, descending: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "LONG", 1)
    for length in (1, 3, 100, 5000):
        x = sample((2, length), dtype, length)
        check(sorting.sort(x, 1, descending), x, order_of(x, 1, descending))


def test_every_short_row() -> None:
    """All rows of up to 6 elements out of 4 values."""
    values = np.array([-0.0, 0.0, 1.0, np.nan])
    for length in range(1, 7):
        grid = np.meshgrid(*[values] * length, indexing="ij")
        x = np.stack(grid, -1).reshape(-1, length)
        for dtype in (np.float32, np.float64):
            for descending in (False, True):
                given = x.astype(dtype)
                check(sorting.sort(given, 1, descending), given, order_of(given, 1, descending))


@pytest.mark.parametrize(
    "row",
    [
        np.arange(20000.0), np.arange(20000.0)[::-1], np.full(20000, 7.0), np.arange(20000) % 2,
        np.arange(20000) << 40, np.repeat(np.arange(200), 100) - 100, np.array([-(2**63), 2**63 - 1] * 3000),
        np.array([0, 1 << 63, (1 << 64) - 1] * 2000, np.uint64), 2.0 ** np.arange(-1000, 1000).repeat(7),
    ],
    ids=["rising", "falling", "equal", "bits", "high bits", "runs", "limits", "unsigned limits", "exponents"],
)  # fmt: skip
@pytest.mark.parametrize("long", [1, 1 << 40])
def test_special_rows(row: Any, long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "LONG", long)
    for descending in (False, True):
        check(sorting.sort(row, 0, descending), row, order_of(row, 0, descending))


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_any_dimension_and_layout(dim: int) -> None:
    base = sample((9, 10, 11), np.float32)
    for x in (base, base.transpose(2, 0, 1), base[::-1, :, ::-2], np.asfortranarray(base)):
        check(sorting.sort(x, dim), x, order_of(x, dim, False), dim)
        order = order_of(x, dim, True)
        found = sorting.topk(x, 4, dim)
        np.testing.assert_array_equal(found[1], np.take(order, range(4), dim))
        assert all(a.flags.c_contiguous for a in found)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=IDS)
def test_the_first_k(dtype: Any, largest: bool) -> None:
    for length in (1, 5, 90, 1000, 6000):
        x = sample((3, length), dtype, length)
        order = order_of(x, 1, largest)
        for k in sorted({1, 2, 10, 48, 49, length // 9, length // 2, length} & set(range(1, length + 1))):
            check(sorting.topk(x, k, 1, largest), x, order[:, :k])


@pytest.mark.parametrize("row", [np.arange(50000.0), np.arange(50000.0)[::-1], np.zeros(50000)])
def test_the_first_k_of_rows_that_keep_offering_candidates(row: Any) -> None:
    for k in (1, 13, 48, 60, 2000):
        for largest in (False, True):
            check(sorting.topk(row, k, 0, largest), row, order_of(row, 0, largest)[:k])


@pytest.mark.parametrize("dtype", DTYPES, ids=IDS)
def test_kth_value(dtype: Any) -> None:
    for length in (1, 8, 1000):
        x = sample((4, length), dtype, length)
        order = order_of(x, 1, False)
        for k in sorted({1, length // 3 + 1, length}):
            check(sorting.kthvalue(x, k, 1, True), x, order[:, k - 1 : k])
            values, indices = sorting.kthvalue(x, k, 1)
            np.testing.assert_array_equal(indices, order[:, k - 1])
            assert values.shape == (4,)


@pytest.mark.parametrize("dtype", DTYPES, ids=IDS)
def test_unique(dtype: Any) -> None:
    for shape in ((1,), (300,), (40, 50)):
        x = sample(shape, dtype)
        values, inverse, counts = sorting.unique(x)
        known = np.unique(wide(x), return_inverse=True, return_counts=True, equal_nan=False)
        assert equal(wide(values), known[0])
        np.testing.assert_array_equal(counts, known[2])
        assert (inverse.shape, counts.sum()) == (x.shape, x.size)
        assert equal(wide(values[inverse]), wide(x))


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=IDS)
def test_searchsorted(dtype: Any, right: bool) -> None:
    side: Any = "right" if right else "left"
    for length in (1, 2, 7, 1000):
        rows = np.sort(wide(sample((3, length), dtype, length)), -1)
        values = wide(sample((3, 1001), dtype, 5))
        one = sorting.searchsorted(rows[0].astype(dtype), values.astype(dtype), right=right)
        np.testing.assert_array_equal(one, np.searchsorted(rows[0], values, side))
        each = sorting.searchsorted(rows.astype(dtype), values.astype(dtype), side=side, out_int32=True)
        assert each.dtype == np.int32
        for row in range(3):
            np.testing.assert_array_equal(each[row], np.searchsorted(rows[row], values[row], side))


def test_any_number_of_threads_gives_the_same() -> None:
    x, before = sample((2, 200_000), np.float32), get_num_threads()
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            check(sorting.sort(x), x, order_of(x, 1, False))
            check(sorting.topk(x.reshape(400, -1), 5), x.reshape(400, -1), order_of(x.reshape(400, -1), 1, True)[:, :5])
    finally:
        set_num_threads(before)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sorting.sort(np.zeros((0, 3))), lambda: sorting.sort(np.zeros((3, 0))), lambda: sorting.sort(np.array(1.0)),
        lambda: sorting.sort(np.zeros(3, np.complex64)), lambda: sorting.sort(np.zeros(3, ">f4")),
        lambda: sorting.topk(np.zeros(3), 0), lambda: sorting.topk(np.zeros(3), 4), lambda: sorting.kthvalue(np.zeros(3), 0),
        lambda: sorting.unique(np.zeros(0)), lambda: sorting.searchsorted(np.zeros(0), np.zeros(3)),
        lambda: sorting.searchsorted(np.zeros(3), np.zeros(3, np.float32)),
        lambda: sorting.searchsorted(np.zeros((2, 3)), np.zeros((3, 3))),
        lambda: sorting.sort(np.frombuffer(bytes(17), np.uint8)[1:].view(np.float32)),
    ],
)  # fmt: skip
def test_what_is_left_to_numpy(call: Any) -> None:
    assert call() is NotImplemented


@pytest.mark.parametrize("name", ["sort", "argsort", "topk", "kthvalue", "searchsorted"])
def test_operators_run_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = wg.tensor(np.tile([3.0, 1.0, 2.0, 1.0], 10))
    arguments = {"topk": (x, 3), "kthvalue": (x, 3), "searchsorted": (wg.sort(x).values, x)}.get(name, (x,))
    got = getattr(wg, name)(*arguments)
    with natively(1 << 62):
        want = getattr(wg, name)(*arguments)
    pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
    for place, (g, w) in enumerate(pairs):
        if name == "kthvalue" and place == 1:
            assert x[g] == x[w]  # of equals NumPy takes any
        elif name == "topk" and place == 1:
            assert g.tolist() == [0, 4, 8]
        else:
            assert g.tolist() == w.tolist()

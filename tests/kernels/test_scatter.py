"""Gather and scatter against loops over the elements, and against the properties that define transposes."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.support import Array, assert_transposed, inner, normal
from wengert.errors import DTypeError, ShapeError
from wengert.kernels import scatter as module
from wengert.kernels.scatter import (
    checked_index,
    gather,
    index_add,
    index_put,
    index_select,
    scatter,
    scatter_add,
    scatter_reduce,
    segment_reduce,
)

# Shape of x, dim, shape of index.
CASES: list[Any] = [
    ((5,), 0, (9,)),
    ((5,), -1, (3,)),
    ((4, 3), 0, (6, 3)),
    ((4, 3), 1, (4, 7)),
    ((4, 3), 0, (6, 2)),
    ((3, 4, 5), 1, (2, 9, 4)),
    ((3, 4, 5), 2, (3, 4, 1)),
    ((3, 4, 5), 0, (1, 1, 1)),
    ((3, 4, 5), 1, (3, 0, 5)),
    ((4, 0), 0, (2, 0)),
    ((), 0, (4,)),
    ((), 0, ()),
    ((6,), 0, ()),
]
REDUCTIONS: list[Any] = ["sum", "prod", "mean", "amax", "amin"]
FOLDS = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min}


def positions(shape: tuple[int, ...], dim: int, index_shape: tuple[int, ...], seed: int = 5) -> Array:
    size = (shape or (1,))[dim]
    return np.random.default_rng(seed).integers(0, max(size, 1), index_shape)


def places(shape: tuple[int, ...], dim: int, index: Array) -> list[tuple[Any, Any]]:
    """Return pairs (place in the index, place in the array)."""
    pairs = []
    for place in np.ndindex(index.shape):
        if not shape:
            pairs.append((place, ()))
        else:
            there = list(place) or [0]
            there[dim] = int(index[place])
            pairs.append((place, tuple(there)))
    return pairs


@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.int16, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("shape", "dim", "index_shape"), CASES)
def test_gather(shape: Any, dim: int, index_shape: Any, dtype: Any) -> None:
    x, index = normal(shape).astype(dtype), positions(shape, dim, index_shape)
    result = gather(x, dim, index)
    assert result.shape == index.shape
    assert result.dtype == x.dtype
    for place, there in places(shape, dim, index):
        assert result[place] == x[there]


@pytest.mark.parametrize(("shape", "dim", "index_shape"), CASES)
def test_gather_and_scatter_add_are_transposes(shape: Any, dim: int, index_shape: Any) -> None:
    index = positions(shape, dim, index_shape)
    for dtype in (np.float64, np.float32, np.complex128, np.int64):
        assert_transposed(
            lambda x: gather(x, dim, index),
            lambda g: scatter_add(np.zeros(shape, g.dtype), dim, index, g),
            normal(shape, dtype),
        )


@pytest.mark.parametrize(("shape", "dim", "index_shape"), CASES)
def test_scatter_writes_the_last_one(shape: Any, dim: int, index_shape: Any) -> None:
    x, index, src = normal(shape), positions(shape, dim, index_shape), normal(index_shape, seed=3)
    expected = x.copy()
    for place, there in places(shape, dim, index):
        expected[there] = src[place]
    before = x.copy()
    np.testing.assert_array_equal(scatter(x, dim, index, src), expected)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8])
@pytest.mark.parametrize(("shape", "dim", "index_shape"), CASES)
def test_scatter_reduce(shape: Any, dim: int, index_shape: Any, dtype: Any, reduce: Any, include_self: bool) -> None:
    x, index, src = normal(shape, dtype), positions(shape, dim, index_shape), normal(index_shape, dtype, seed=3)
    groups: dict[Any, list[Any]] = {}
    for place, there in places(shape, dim, index):
        groups.setdefault(there, [x[there]] if include_self else []).append(src[place])
    expected = x.copy()
    for there, group in groups.items():
        # The mean of integers is rounded down; products wrap around as the dtype does.
        value = FOLDS[reduce](np.array(group, dtype if reduce != "mean" else None))
        expected[there] = (
            np.floor(value) if reduce == "mean" and dtype is not np.float64 else np.array(value).astype(dtype)
        )
    result = scatter_reduce(x, dim, index, src, reduce, include_self)
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    assert result.dtype == x.dtype


def test_a_src_larger_than_the_index_is_used_in_part() -> None:
    src = np.arange(12.0).reshape(3, 4)
    index = np.array([[0, 1], [1, 1]])
    np.testing.assert_array_equal(scatter_add(np.zeros((2, 4)), 0, index, src), [[0, 0, 0, 0], [4, 6, 0, 0]])


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_nan_propagates(reduce: Any) -> None:
    src = np.array([1.0, np.nan, 2.0, 3.0])
    result = scatter_reduce(np.ones(2), 0, np.array([0, 0, 0, 1]), src, reduce, include_self=False)
    assert np.isnan(result[0])
    assert result[1] == 3


@pytest.mark.parametrize(("shape", "dim", "n"), [((5,), 0, 9), ((4, 3), 0, 6), ((4, 3), -1, 5), ((2, 3, 4), 1, 7)])
def test_index_select_and_index_add_are_transposes(shape: Any, dim: int, n: int) -> None:
    index = positions(shape, dim, (n,))
    x = normal(shape)
    np.testing.assert_array_equal(index_select(x, dim, index), np.concatenate([x.take([i], dim) for i in index], dim))
    for dtype in (np.float64, np.float32, np.complex128, np.int64):
        assert_transposed(
            lambda x: index_select(x, dim, index),
            lambda g: index_add(np.zeros(shape, g.dtype), dim, index, g),
            normal(shape, dtype),
        )


@pytest.mark.parametrize("chunk", [1, 5, 1 << 16])
def test_index_add_in_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    index = positions((6,), 0, (50,))
    x, src = normal((6, 3)), normal((50, 3), seed=1)
    expected = x.copy()
    for row, values in zip(index, src, strict=True):
        expected[row] += values
    np.testing.assert_allclose(index_add(x, 0, index, src), expected, rtol=1e-12, atol=1e-12)


def test_index_add_of_nothing() -> None:
    x = normal((3, 0, 2))
    assert index_add(x, 0, np.array([1, 1]), np.zeros((2, 0, 2))).shape == (3, 0, 2)
    np.testing.assert_array_equal(index_add(np.ones((3, 2)), 0, np.array([], int), np.zeros((0, 2))), 1)


A, B, MASK = np.array([0, 2, -1, 0]), np.array([1, -2, 1, 1]), np.array([True, False, True])
INDICES: list[Any] = [
    ((3,), (A,)),
    ((3, 4), (A,)),
    ((3, 4), (A.reshape(2, 2),)),
    ((3, 4), (A, B)),
    ((3, 4), (A[:, None], B)),
    ((3, 4), (slice(None), B)),
    ((3, 4), (slice(None, None, 2), B)),
    ((3, 4, 5), (A, slice(1, 4), B)),
    ((3, 4, 5), (..., B)),
    ((3, 4, 5), (None, A, 2)),
    ((3, 4, 5), (1, slice(None), B)),
    ((3, 4), (MASK,)),
    ((3, 4), (MASK, slice(1, 3))),
    ((3, 4), (MASK, np.array([1, 1]))),
    ((3, 4), (normal((3, 4)) > 0,)),
    ((3, 4), ([0, 0, 2],)),
    ((3, 4), (slice(0, 2), 1)),
    ((3, 4), (1,)),
    ((), ()),
    ((), (np.array(True),)),
    ((3, 4), (np.zeros(0, int),)),
]


@pytest.mark.parametrize(("shape", "indices"), INDICES)
def test_index_put_accumulates(shape: Any, indices: Any) -> None:
    x = normal(shape)
    values = normal(np.asarray(x[indices]).shape, seed=2)
    expected = x.copy()
    np.add.at(expected, indices, values)
    before = x.copy()
    np.testing.assert_allclose(index_put(x, indices, values, True), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(x, before)
    assert_transposed(
        lambda x: np.array(x[indices]), lambda g: index_put(np.zeros(shape, g.dtype), indices, g, True), x
    )
    scalar = np.array(2.0)
    expected = x.copy()
    np.add.at(expected, indices, scalar)
    np.testing.assert_allclose(index_put(x, indices, scalar, True), expected, rtol=1e-12)


@pytest.mark.parametrize(("shape", "indices"), INDICES)
def test_index_put_writes(shape: Any, indices: Any) -> None:
    x = normal(shape)
    expected = x.copy()
    expected[indices] = 3.0
    np.testing.assert_array_equal(index_put(x, indices, np.array(3.0)), expected)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("rest", [(), (3,), (2, 2)])
def test_segment_reduce(rest: tuple[int, ...], reduce: Any) -> None:
    segments = np.array([2, 0, 2, 4, 0, 2])
    x = normal((6, *rest))
    result = segment_reduce(x, segments, 5, reduce)
    empty = {"sum": 0, "prod": 1, "mean": np.nan, "amax": -np.inf, "amin": np.inf}[reduce]
    for segment in range(5):
        members = x[segments == segment]
        expected = FOLDS[reduce](members, axis=0) if len(members) else np.full(rest, empty)
        np.testing.assert_allclose(result[segment], expected, rtol=1e-12)


def test_segment_reduce_of_integers() -> None:
    x, segments = np.array([[5], [-8], [2]]), np.array([0, 0, 2])
    smallest = np.iinfo(np.int64).min
    for reduce, expected in [("sum", [-3, 0, 2]), ("mean", [-2, 0, 2]), ("amax", [5, smallest, 2])]:
        np.testing.assert_array_equal(segment_reduce(x, segments, 3, reduce)[:, 0], expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_accumulated_in_float32(dtype: Any) -> None:
    """In float16 alone 2048 + 1 is 2048: adding ones one by one would stop there."""
    ones, index = np.ones(4096, dtype), np.zeros(4096, int)
    assert scatter_add(np.zeros(1, dtype), 0, index, ones)[0] == 4096
    assert index_add(np.zeros((1, 1), dtype), 0, index, ones[:, None])[0, 0] == 4096
    assert index_put(np.zeros(1, dtype), (index,), ones, True).dtype == dtype


@pytest.mark.parametrize("bad", [-1, 3, 100])
@pytest.mark.parametrize("index_dtype", [np.int64, np.int8, np.uint8])
def test_an_index_out_of_range_is_refused(bad: int, index_dtype: Any) -> None:
    index = np.array([0, bad]).astype(index_dtype)
    found = int(index[1])
    message = rf"index {found} is out of bounds for dimension 0 with size 3"
    x, src = np.zeros(3), np.ones(2)
    calls: list[Any] = [
        lambda: gather(x, 0, index),
        lambda: scatter(x, 0, index, src),
        lambda: scatter_add(x, 0, index, src),
        lambda: scatter_reduce(x, 0, index, src, "amax"),
        lambda: index_select(x, 0, index),
        lambda: index_add(x, 0, index, src),
        lambda: segment_reduce(src, index, 3, "sum"),
    ]
    for call in calls:
        with pytest.raises(IndexError, match=message):
            call()
    np.testing.assert_array_equal(x, 0)


@pytest.mark.parametrize("bad", [-4, 3])
@pytest.mark.parametrize("accumulate", [True, False])
def test_index_put_refuses_an_index_out_of_range(bad: int, accumulate: bool) -> None:
    for indices in ((np.array([0, bad]),), (slice(None), np.array([bad])), (np.array([bad]), np.array([0]))):
        with pytest.raises(IndexError, match=f"index {bad} is out of bounds for .* with size 3"):
            index_put(np.zeros((3, 3)), indices, np.array(1.0), accumulate)
    with pytest.raises(IndexError):
        index_put(np.zeros((3, 3)), (np.array([True, False]),), np.array(1.0), accumulate)


def test_what_does_not_fit_is_refused() -> None:
    x, index = np.zeros((2, 3)), np.zeros((2, 2), int)
    refused: list[Any] = [
        (ShapeError, "2 dimensions", lambda: gather(x, 0, index[0])),
        (ShapeError, "apart from dimension 1", lambda: gather(x, 1, np.zeros((3, 2), int))),
        (ShapeError, "at least as large as index", lambda: scatter(x, 1, index, np.zeros((2, 1)))),
        (ShapeError, "at least as large as index", lambda: scatter_add(x, 1, index, np.zeros(2))),
        (ShapeError, r"src must have shape \(2, 3\)", lambda: index_add(x, 0, np.zeros(2, int), np.zeros((2, 2)))),
        (ShapeError, "index one dimension", lambda: index_add(x, 0, index, np.zeros((2, 3)))),
        (ShapeError, "do not fit x", lambda: segment_reduce(x, np.zeros(3, int), 2, "sum")),
        (IndexError, "dimension 2 is out of range", lambda: gather(x, 2, index)),
        (IndexError, "dimension -3 is out of range", lambda: index_select(x, -3, index[0])),
        (DTypeError, "must hold integers, got float64", lambda: gather(x, 0, index.astype(float))),
        (DTypeError, "must hold integers, got bool", lambda: index_select(x, 0, np.array([True, False]))),
        (DTypeError, "complex numbers have no amax", lambda: segment_reduce(x + 0j, np.zeros(2, int), 2, "amax")),
        (ValueError, "'median'", lambda: scatter_reduce(x, 0, index, np.zeros((2, 2)), "median")),  # type: ignore[arg-type]
    ]
    for error, message, call in refused:
        with pytest.raises(error, match=message):
            call()


def test_checked_index_counts_negative_ones_from_the_end() -> None:
    np.testing.assert_array_equal(checked_index("f", np.array([-3, 2, -1]), 0, 3, negative=True), [0, 2, 2])
    assert checked_index("f", np.array([], np.uint8), 0, 0).dtype == np.intp


def test_arrays_in_any_memory_order() -> None:
    x, index = normal((4, 6)), positions((4, 6), 1, (4, 9))
    turned = np.asfortranarray(x)
    np.testing.assert_array_equal(gather(turned, 1, index), gather(x, 1, index))
    src = normal((4, 18), seed=1)[:, ::2]
    np.testing.assert_array_equal(scatter_add(turned, 1, index, src), scatter_add(x, 1, index, src.copy()))
    assert inner(scatter_add(np.zeros_like(x), 1, index, src), x) == pytest.approx(inner(src, gather(x, 1, index)))

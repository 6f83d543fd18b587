"""Pooling against loops over the windows, and its transposes against the property that defines them."""

import itertools
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.support import Array, assert_transposed, normal
from wengert.errors import DTypeError, ShapeError
from wengert.kernels import pooling as module
from wengert.kernels.adaptive_pooling import adaptive_avg_pool, adaptive_avg_pool_input_grad, adaptive_max_pool
from wengert.kernels.pooling import (
    avg_pool,
    avg_pool_input_grad,
    max_pool,
    max_pool_gather,
    max_pool_input_grad,
    max_unpool,
    pool_count,
)


class Case(NamedTuple):
    """The shape of the input and the parameters of the windows."""

    shape: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool = False


CASES: list[Case] = [
    Case((2, 3, 8), (2,), (2,), (0,), (1,)),
    Case((9,), (3,), (2,), (1,), (1,)),
    Case((2, 9), (3,), (2,), (1,), (1,), True),
    Case((2, 3, 6, 8), (2, 2), (2, 2), (0, 0), (1, 1)),
    Case((2, 3, 7, 9), (2, 2), (2, 2), (0, 0), (1, 1), True),
    Case((2, 3, 7, 9), (3, 2), (2, 3), (1, 1), (1, 1), True),
    Case((2, 3, 7, 9), (3, 3), (2, 2), (1, 1), (1, 1)),
    Case((2, 3, 7, 9), (3, 3), (1, 1), (1, 1), (1, 1)),
    Case((2, 3, 7, 9), (2, 3), (1, 2), (1, 1), (2, 2)),
    Case((2, 3, 7, 9), (3, 2), (4, 5), (0, 0), (1, 1), True),
    Case((1, 2, 6, 6), (6, 6), (1, 1), (0, 0), (1, 1)),
    Case((1, 2, 3, 3), (1, 1), (1, 1), (0, 0), (1, 1)),
    Case((2, 1, 4, 5, 6), (2, 2, 3), (2, 1, 2), (1, 0, 1), (1, 1, 1), True),
    Case((1, 1, 20, 20), (17, 18), (1, 1), (8, 9), (1, 1)),
    Case((0, 3, 6, 6), (2, 2), (2, 2), (0, 0), (1, 1)),
    Case((3, 0, 6, 6), (2, 2), (2, 2), (1, 1), (1, 1)),
]
UNDILATED = [case for case in CASES if all(d == 1 for d in case.dilation)]


def counts(case: Case) -> list[int]:
    """Return the number of windows by looking at one start after the other."""
    found = []
    for size, k, s, p, d in zip(case.shape[-len(case.kernel) :], *case[1:5], strict=True):
        starts = itertools.takewhile(
            lambda start, size=size, k=k, p=p, d=d: start < size if case.ceil_mode else start + d * (k - 1) < size + p,
            itertools.count(-p, s),
        )
        n = len(list(starts))
        if case.ceil_mode:
            # A window that goes over the end starts only after one that does not reach the end of the padding.
            whole = max(0, size + 2 * p - d * (k - 1) - 1)
            n = min(n, -(-whole // s) + 1)
        found.append(n)
    return found


def elements(case: Case, position: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the places of a window's elements that lie inside of the input, in row-major order."""
    sizes = case.shape[-len(case.kernel) :]
    ranges = [
        [q for q in (i * s - p + t * d for t in range(k)) if 0 <= q < size]
        for i, size, k, s, p, d in zip(position, sizes, *case[1:5], strict=True)
    ]
    return list(itertools.product(*ranges))


def planes(x: Array, dims: int) -> Array:
    return x.reshape(int(np.prod(x.shape[: x.ndim - dims])), *x.shape[x.ndim - dims :])


def reference_max(x: Array, case: Case) -> tuple[Array, Array]:
    dims = len(case.kernel)
    shape = (*x.shape[: x.ndim - dims], *counts(case))
    values, indices = np.zeros(shape, x.dtype), np.zeros(shape, np.int64)
    for position in np.ndindex(*shape[x.ndim - dims :]):
        places = elements(case, position)
        for plane, v, i in zip(planes(x, dims), planes(values, dims), planes(indices, dims), strict=True):
            best = places[0]
            for place in places:
                if plane[place] > plane[best] or plane[place] != plane[place]:
                    best = place
            v[position], i[position] = plane[best], np.ravel_multi_index(best, plane.shape)
    return values, indices


def tied(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return small integers, so that many maxima are equal."""
    return np.random.default_rng(1).integers(0, 4, shape).astype(dtype)


def channels_last(x: Array) -> Array:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1) if x.ndim > 2 else x


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8, np.bool_]
)
@pytest.mark.parametrize("case", CASES)
def test_max_pool(case: Case, dtype: Any) -> None:
    for x in (normal(case.shape).astype(dtype), tied(case.shape, dtype)):
        expected_values, expected_indices = reference_max(x, case)
        for given in (x, channels_last(x)):
            values, indices = max_pool(given, *case[1:])
            np.testing.assert_array_equal(values, expected_values)
            np.testing.assert_array_equal(indices, expected_indices)
            assert values.dtype == x.dtype
            assert indices.dtype == np.int64


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("special", [[np.nan], [-np.inf], [np.nan, -np.inf, np.inf]])
def test_max_pool_of_special_numbers(case: Case, special: list[float]) -> None:
    generator = np.random.default_rng(2)
    x = normal(case.shape)
    x[generator.random(case.shape) < 0.4] = generator.choice(special)
    values, indices = max_pool(x, *case[1:])
    expected_values, expected_indices = reference_max(x, case)
    np.testing.assert_array_equal(values, expected_values)
    np.testing.assert_array_equal(indices, expected_indices)


@pytest.mark.parametrize("case", CASES)
def test_a_window_of_the_smallest_numbers_names_one_of_them(case: Case) -> None:
    for x in (np.full(case.shape, -np.inf), np.full(case.shape, -128, np.int8)):
        values, indices = max_pool(x, *case[1:])
        expected_values, expected_indices = reference_max(x, case)
        np.testing.assert_array_equal(values, expected_values)
        np.testing.assert_array_equal(indices, expected_indices)


def test_a_dilated_window_may_miss_the_input() -> None:
    values, indices = max_pool(np.ones((1, 1)), [2, 2], [1, 1], [1, 1], [2, 2])
    np.testing.assert_array_equal(values, -np.inf)
    np.testing.assert_array_equal(indices, 0)


@pytest.mark.parametrize("case", CASES)
def test_max_pool_in_blocks(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(case.shape)
    whole = max_pool(x, *case[1:])
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    for one, other in zip(whole, max_pool(x, *case[1:]), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", CASES)
def test_max_pool_has_its_derivative_and_transpose(case: Case) -> None:
    dims = len(case.kernel)
    x = normal(case.shape)
    values, indices = max_pool(x, *case[1:])
    np.testing.assert_array_equal(max_pool_gather(x, indices, dims), values)
    for dtype in (np.float64, np.float32, np.complex128, np.int64):
        assert_transposed(
            lambda x: max_pool_gather(x, indices, dims),
            lambda g: max_pool_input_grad(g, indices, case.shape[-dims:]),
            normal(case.shape, dtype),
        )


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.bool_])
def test_max_unpool(dtype: Any) -> None:
    x = normal((2, 3, 6, 8)).astype(dtype)
    values, indices = max_pool(x, [2, 2], [2, 2], [0, 0], [1, 1])
    back = max_unpool(values, indices, [6, 8])
    assert back.dtype == x.dtype
    np.testing.assert_array_equal(max_pool_gather(back, indices, 2), values)
    assert np.count_nonzero(back) == np.count_nonzero(values)
    np.testing.assert_array_equal(back[back != 0], x[back != 0])


@pytest.mark.parametrize("bad", [-1, 48, 1 << 40])
def test_an_index_out_of_range_is_refused(bad: int) -> None:
    g, indices = np.ones((2, 3, 2, 2)), np.zeros((2, 3, 2, 2), np.int64)
    indices[1, 2, 0, 1] = bad
    calls: list[Any] = [
        lambda: max_pool_input_grad(g, indices, [6, 8]),
        lambda: max_unpool(g, indices, [6, 8]),
        lambda: max_pool_gather(np.ones((2, 3, 6, 8)), indices, 2),
    ]
    for call in calls:
        with pytest.raises(IndexError, match=f"index {bad} is out of bounds for dimension 2 with size 48"):
            call()


def reference_avg(x: Array, case: Case, include: bool, divisor: int | None) -> Array:
    dims = len(case.kernel)
    sizes = x.shape[x.ndim - dims :]
    out = np.zeros((*x.shape[: x.ndim - dims], *counts(case)), x.dtype)
    for position in np.ndindex(*out.shape[x.ndim - dims :]):
        places = elements(case, position)
        padded = 1
        for i, size, k, s, p in zip(position, sizes, *case[1:4], strict=True):
            padded *= min(i * s - p + k, size + p) - (i * s - p)
        number = divisor or (padded if include else len(places))
        for plane, o in zip(planes(x, dims), planes(out, dims), strict=True):
            total = sum(plane[place] for place in places)
            o[position] = int(total / number) if x.dtype.kind == "i" else total / number
    return out


@pytest.mark.parametrize("divisor", [None, 3, -2])
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int64])
@pytest.mark.parametrize("case", UNDILATED)
def test_avg_pool(case: Case, dtype: Any, include: bool, divisor: int | None) -> None:
    x = normal(case.shape, dtype)
    parameters: Any = (*case[1:4], case.ceil_mode, include, divisor)
    expected = reference_avg(x, case, include, divisor)
    for given in (x, channels_last(x)):
        result = avg_pool(given, *parameters)
        eps = np.finfo(dtype).eps if np.dtype(dtype).kind != "i" else 0
        np.testing.assert_allclose(result, expected, rtol=300 * eps, atol=300 * eps)
    if np.dtype(dtype).kind != "i":
        assert_transposed(
            lambda x: avg_pool(x, *parameters),
            lambda g: avg_pool_input_grad(g, x.shape[-len(case[1]) :], *parameters),
            x,
        )


ADAPTIVE: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3, 6, 8), (3, 2)),
    ((2, 3, 6, 8), (1, 1)),
    ((2, 3, 7, 5), (3, 2)),
    ((2, 3, 7, 5), (7, 5)),
    ((2, 3, 2, 3), (5, 6)),
    ((2, 3, 4, 3), (9, 5)),
    ((2, 10), (4,)),
    ((11,), (3,)),
    ((2, 4, 5, 6), (2, 1, 4)),
    ((2, 3, 7, 5), (0, 2)),
    ((0, 3, 7, 5), (3, 2)),
]


def parts(size: int, n: int) -> list[range]:
    return [range(int(np.floor(i * size / n)), int(np.ceil((i + 1) * size / n))) for i in range(n)]


@pytest.mark.parametrize(("shape", "output_size"), ADAPTIVE)
def test_adaptive_avg_pool(shape: Any, output_size: Any) -> None:
    dims, x = len(output_size), normal(shape)
    expected = np.zeros((*shape[: len(shape) - dims], *output_size))
    ranges = [parts(size, n) for size, n in zip(shape[-dims:], output_size, strict=True)]
    for position in np.ndindex(*output_size):
        block = x[(..., *np.ix_(*[r[i] for r, i in zip(ranges, position, strict=True)]))]
        expected[(..., *position)] = block.mean(tuple(range(x.ndim - dims, x.ndim)))
    np.testing.assert_allclose(adaptive_avg_pool(x, output_size), expected, rtol=1e-12, atol=1e-12)
    for dtype in (np.float64, np.float32, np.complex128):
        assert_transposed(
            lambda x: adaptive_avg_pool(x, output_size),
            lambda g: adaptive_avg_pool_input_grad(g, shape[-dims:]),
            normal(shape, dtype),
        )


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32])
@pytest.mark.parametrize(("shape", "output_size"), ADAPTIVE)
def test_adaptive_max_pool(shape: Any, output_size: Any, dtype: Any) -> None:
    dims = len(output_size)
    specials = normal(shape)
    specials[np.random.default_rng(2).random(shape) < 0.3] = np.nan
    for x in (normal(shape, dtype), tied(shape, dtype), *([specials.astype(dtype)] if dtype is not np.int32 else [])):
        values, indices = adaptive_max_pool(x, output_size)
        assert values.dtype == x.dtype
        ranges = [parts(size, n) for size, n in zip(shape[-dims:], output_size, strict=True)]
        for position in np.ndindex(*output_size):
            places = list(itertools.product(*[r[i] for r, i in zip(ranges, position, strict=True)]))
            for plane, v, i in zip(planes(x, dims), planes(values, dims), planes(indices, dims), strict=True):
                best = places[0]
                for place in places:
                    if plane[place] > plane[best] or plane[place] != plane[place]:
                        best = place
                np.testing.assert_array_equal(v[position], plane[best])
                assert i[position] == np.ravel_multi_index(best, plane.shape)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "dilation", "floor", "ceil"),
    [
        (5, 2, 2, 0, 1, 2, 3),
        (4, 2, 2, 0, 1, 2, 2),
        (6, 2, 4, 0, 1, 2, 2),
        (5, 2, 4, 0, 1, 1, 2),  # the second window starts at 4, inside
        (4, 2, 4, 0, 1, 1, 1),  # it would start at 4, outside
        (3, 3, 2, 1, 1, 2, 2),
        (2, 2, 2, 1, 1, 2, 2),
        (1, 3, 1, 1, 1, 1, 1),
        (9, 2, 3, 1, 3, 3, 4),  # the fourth window starts at 8
        (10, 2, 3, 1, 3, 3, 4),
    ],
)
def test_pool_count(size: int, kernel: int, stride: int, padding: int, dilation: int, floor: int, ceil: int) -> None:
    assert pool_count(size, kernel, stride, padding, dilation, False) == floor
    assert pool_count(size, kernel, stride, padding, dilation, True) == ceil


def test_what_does_not_fit_is_refused() -> None:
    x = np.zeros((2, 4, 4))
    one: Any = ([2, 2], [2, 2], [0, 0])
    refused: list[Any] = [
        (ShapeError, "kernel must be 2 positive", lambda: max_pool(x, [2, 0], [1, 1], [0, 0], [1, 1])),
        (ShapeError, "stride must be 2 positive", lambda: max_pool(x, [2, 2], [1], [0, 0], [1, 1])),
        (ShapeError, "more than half of a window", lambda: max_pool(x, [2, 2], [1, 1], [2, 0], [1, 1])),
        (ShapeError, "no window of", lambda: max_pool(x, [5, 2], [1, 1], [0, 0], [1, 1])),
        (ShapeError, "no window of", lambda: avg_pool(np.zeros((2, 0, 4)), [2, 2], [1, 1], [1, 1])),
        (ShapeError, "at least 2 dimensions", lambda: avg_pool(np.zeros(4), *one)),
        (ValueError, "divisor_override", lambda: avg_pool(x, *one, divisor_override=0)),
        (DTypeError, "complex64", lambda: max_pool(x.astype(np.complex64), *one, [1, 1])),
        (DTypeError, "complex128", lambda: adaptive_max_pool(x + 0j, [2, 2])),
        (ShapeError, r"expected a cotangent of shape \(2, 2, 2\)", lambda: avg_pool_input_grad(x, [4, 4], *one)),
        (ShapeError, "cannot divide", lambda: adaptive_avg_pool(x, [2, -1])),
        (ShapeError, "cannot divide", lambda: adaptive_max_pool(np.zeros((2, 0)), [2])),
        (ShapeError, "do not fit", lambda: max_pool_input_grad(x, np.zeros((2, 4, 3), int), [8, 8])),
        (ShapeError, "do not fit", lambda: max_unpool(x, np.zeros((4, 4), int), [8, 8])),
        (ShapeError, "do not fit", lambda: max_pool_gather(x, np.zeros((3, 4, 4), int), 2)),
    ]
    for error, message, call in refused:
        with pytest.raises(error, match=message):
            call()

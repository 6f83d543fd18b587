"""Resizing against the formulas of its modes, and its transpose against the property that defines it."""

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.support import assert_transposed, normal
from wengert.errors import DTypeError, ShapeError
from wengert.kernels.resize import Taps, cubic_slopes, cubic_weights, interpolate, interpolate_input_grad, resize_taps

KINDS: list[Any] = ["nearest", "nearest-exact", "linear", "cubic"]
SIZES = [1, 2, 3, 5, 8, 13]
# Mode, shape, new size.
CASES: list[Any] = [
    (mode, shape, size)
    for mode, shapes in {
        "linear": [((2, 3, 5), (8,)), ((2, 3, 5), (2,)), ((7,), (1,)), ((1,), (4,)), ((2, 5), (5,))],
        "bilinear": [((2, 3, 4, 5), (8, 10)), ((2, 3, 7, 5), (3, 9)), ((0, 3, 4, 5), (2, 2))],
        "trilinear": [((2, 3, 4, 5), (6, 3, 7))],
        "bicubic": [((2, 3, 4, 5), (8, 10)), ((2, 3, 7, 5), (3, 9)), ((1, 2), (5, 4))],
        "nearest": [((2, 3, 5), (8,)), ((2, 3, 7, 5), (3, 9)), ((2, 3, 4, 5), (6, 3, 7))],
        "nearest-exact": [((2, 3, 5), (8,)), ((2, 3, 7, 5), (3, 9)), ((2, 3, 4, 5), (6, 3, 7))],
        "area": [((2, 3, 5), (8,)), ((2, 3, 7, 5), (3, 9)), ((2, 3, 4, 5), (2, 3, 1))],
    }.items()
    for shape, size in shapes
]


def cubic(distance: float, a: float) -> float:
    d = abs(distance)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def matrix(kind: str, size: int, new: int, align_corners: bool = False) -> np.ndarray:
    """Return the matrix of one dimension, row by row from the definition of the mode."""
    rows = np.zeros((new, size))
    for i in range(new):
        if kind == "nearest":
            rows[i, min(i * size // new, size - 1)] = 1
        elif kind == "nearest-exact":
            rows[i, min((2 * i + 1) * size // (2 * new), size - 1)] = 1
        else:
            if align_corners:
                at = i * (size - 1) / (new - 1) if new > 1 else 0.0
            else:
                at = (i + 0.5) * size / new - 0.5
            if kind == "linear":
                at = max(at, 0)
            base = int(np.floor(at))
            for j in range(base - 1, base + 3):
                weight = max(0.0, 1 - abs(at - j)) if kind == "linear" else cubic(at - j, -0.75)
                rows[i, min(max(j, 0), size - 1)] += weight
    return rows


def dense(taps: Taps, size: int) -> np.ndarray:
    """Return the matrix that taps stand for."""
    rows = np.zeros((taps.indices.shape[1], size))
    for index, weight in zip(*taps, strict=True):
        rows[np.arange(len(rows)), index] += weight
    return rows


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_taps_are_the_definition(kind: Any, align_corners: bool) -> None:
    for size, new in itertools.product(SIZES, SIZES):
        taps = resize_taps(kind, size, new, None, align_corners, double=True)
        expected = matrix(kind, size, new, align_corners)
        np.testing.assert_allclose(dense(taps, size), expected, atol=1e-12, err_msg=f"{size} to {new}")
        np.testing.assert_allclose(dense(taps.transposed(size), new), expected.T, atol=1e-12)


@pytest.mark.parametrize("kind", ["linear", "cubic"])
def test_antialiased_taps(kind: Any) -> None:
    """Growing, the filter is the usual one; shrinking, it averages over as many elements as become one."""
    for size, new in itertools.product(SIZES, SIZES):
        rows = dense(resize_taps(kind, size, new, antialias=True), size)
        np.testing.assert_allclose(rows.sum(1), 1, atol=1e-12)
        step = size / new
        for i in range(new):
            centre, width = (i + 0.5) * step, max(step, 1)
            distances = np.abs(np.arange(size) + 0.5 - centre) / width
            weights = [max(0.0, 1 - d) if kind == "linear" else cubic(d, -0.5) for d in distances]
            np.testing.assert_allclose(rows[i], np.array(weights) / np.sum(weights), atol=1e-12)


def test_a_given_scale_decides_about_positions() -> None:
    taps = resize_taps("linear", 4, 9, 2.3)
    position = np.clip((np.arange(9) + 0.5) / 2.3 - 0.5, 0, None)
    np.testing.assert_allclose(dense(taps, 4) @ np.arange(4), np.minimum(position, 3), rtol=1e-12)
    x = np.arange(4.0)
    assert not np.allclose(interpolate(x, [9], "linear", scales=[2.3]), interpolate(x, [9], "linear"))


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(("mode", "shape", "size"), CASES)
def test_interpolate_is_separable(mode: Any, shape: Any, size: Any, align_corners: bool) -> None:
    x = expected = normal(shape)
    kind = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    for axis, new in enumerate(size, x.ndim - len(size)):
        if mode == "area":
            old = x.shape[axis]
            rows = np.zeros((new, old))
            for i in range(new):
                part = slice(i * old // new, -(-(i + 1) * old // new))
                rows[i, part] = 1 / (part.stop - part.start)
        else:
            rows = matrix(kind, x.shape[axis], new, align_corners)
        expected = np.moveaxis(np.tensordot(rows, expected, (1, axis)), 0, axis)
    result = interpolate(x, size, mode, align_corners)
    np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("align_corners", "antialias"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(("mode", "shape", "size"), CASES)
def test_interpolate_has_its_transpose(mode: Any, shape: Any, size: Any, align_corners: bool, antialias: bool) -> None:
    if antialias and mode not in ("linear", "bilinear", "trilinear", "bicubic"):
        with pytest.raises(ValueError, match="no antialiasing"):
            interpolate(normal(shape), size, mode, align_corners, antialias=True)
        return
    for dtype in (np.float64, np.float32, np.complex128):
        assert_transposed(
            lambda x: interpolate(x, size, mode, align_corners, None, antialias),
            lambda g: interpolate_input_grad(g, shape[-len(size) :], mode, align_corners, None, antialias),
            normal(shape, dtype),
        )


def test_scales_are_transposed_too() -> None:
    parameters: Any = ("bilinear", False, [1.7, None])
    assert_transposed(
        lambda x: interpolate(x, (8, 3), *parameters),
        lambda g: interpolate_input_grad(g, (5, 4), *parameters),
        normal((2, 5, 4)),
    )


def test_linear_functions_are_kept_and_constants_too() -> None:
    x = np.arange(6.0)
    for mode, dims in [("linear", 1), ("bilinear", 2), ("bicubic", 2)]:
        ramp = np.broadcast_to(x, (6,) * dims)
        result = interpolate(np.array(ramp), (11,) * dims, mode, align_corners=True)  # type: ignore[arg-type]
        middle = slice(2, -2)  # the cubic filter has no linear precision where it repeats the border
        np.testing.assert_allclose(result[..., middle], np.broadcast_to(np.arange(11) / 2, result.shape)[..., middle])
        np.testing.assert_allclose(interpolate(np.ones((6,) * dims), (4,) * dims, mode), 1)  # type: ignore[arg-type]


def test_what_has_no_weight_plays_no_part() -> None:
    x = np.array([1.0, np.nan, 3.0, np.inf])
    np.testing.assert_array_equal(interpolate(x, [4], "linear"), x)
    g = np.array([np.nan, 1.0])
    np.testing.assert_array_equal(interpolate_input_grad(g, [4], "nearest"), [np.nan, 0, 1, 0])


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_, np.float16, ml_dtypes.bfloat16])
def test_nearest_takes_every_dtype(dtype: Any) -> None:
    x = normal((3, 4)).astype(dtype)
    result = interpolate(x, [8], "nearest")
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, np.repeat(x, 2, 1))


def test_bytes_are_rounded() -> None:
    x = np.array([0, 255, 3], np.uint8)
    assert interpolate(x, [6], "linear").tolist() == [0, 64, 191, 192, 66, 3]
    assert interpolate(x[None], [1, 30], "bicubic").dtype == np.uint8


def test_cubic_weights_and_their_slopes() -> None:
    t = np.linspace(0, 1, 21)
    np.testing.assert_allclose(cubic_weights(t), [[cubic(v - o, -0.75) for v in t] for o in (-1, 0, 1, 2)], atol=1e-14)
    step = 1e-6
    inner = t[1:-1]
    difference = (cubic_weights(inner + step) - cubic_weights(inner - step)) / (2 * step)
    np.testing.assert_allclose(cubic_slopes(inner), difference, atol=1e-8)


def test_what_does_not_fit_is_refused() -> None:
    x = np.zeros((2, 3, 4))
    refused: list[Any] = [
        (ValueError, "'cubic'", lambda: interpolate(x, [3], "cubic")),  # type: ignore[arg-type]
        (ShapeError, "for 2 spatial dimensions", lambda: interpolate(x, [3], "bilinear")),
        (ShapeError, "for 1 spatial dimensions", lambda: interpolate(x, [3, 3], "linear")),
        (ShapeError, "must be positive", lambda: interpolate(x, [0], "linear")),
        (ShapeError, "must be positive", lambda: interpolate(np.zeros((2, 0)), [2], "nearest")),
        (DTypeError, "or uint8, got int64", lambda: interpolate(x.astype(np.int64), [3], "linear")),
        (DTypeError, "floating-point numbers, got uint8", lambda: interpolate(x.astype(np.uint8), [3], "area")),
    ]
    for error, message, call in refused:
        with pytest.raises(error, match=message):
            call()

"""Sampling against its definition, one position at a time; derivatives against transposition and differences."""

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.support import Array, assert_transposed, inner, normal
from wengert.errors import ShapeError
from wengert.kernels.grid_sample import grid_sample, grid_sample_grid_grad, grid_sample_input_grad

MODES: list[Any] = ["bilinear", "nearest", "bicubic"]
PADDING: list[Any] = ["zeros", "border", "reflection"]
# Shape of x, shape of the points.
SHAPES: list[Any] = [
    ((2, 3, 4, 5), (3, 4)),
    ((1, 2, 1, 5), (2, 7)),
    ((2, 1, 3, 3), (1, 1)),
    ((1, 0, 3, 3), (2, 2)),
    ((0, 2, 3, 3), (2, 2)),
    ((2, 2, 3, 3), (0, 2)),
    ((2, 3, 3, 4, 5), (2, 3, 2)),
    ((1, 2, 1, 1, 2), (2, 1, 3)),
]
CASES: list[Any] = [
    (x, p, m, pad, a)
    for (x, p), m, pad, a in itertools.product(SHAPES, MODES, PADDING, [False, True])
    if m != "bicubic" or len(x) == 4
]


def positions(x_shape: Any, points: Any, seed: int = 0) -> Array:
    """Return positions inside and outside of the image."""
    return np.random.default_rng(seed).uniform(-2.2, 2.2, (x_shape[0], *points, len(points)))


def moved(at: float, size: int, padding: str, align_corners: bool) -> float:
    """Return where a position is looked up, by going back and forth between the borders."""
    low, high = (0, size - 1) if align_corners else (-0.5, size - 0.5)
    if padding == "reflection":
        if low == high:
            return 0.0
        while not low <= at <= high:
            at = 2 * low - at if at < low else 2 * high - at
    return at if padding == "zeros" else min(max(at, 0), size - 1)


def taps(at: float, size: int, mode: str, padding: str, align_corners: bool) -> list[tuple[int, float]]:
    """Return elements and weights of one dimension."""
    at = ((at + 1) / 2 * (size - 1)) if align_corners else ((at + 1) * size - 1) / 2
    if mode != "bicubic":
        at = moved(at, size, padding, align_corners)
    base = int(np.floor(at))
    if mode == "nearest":
        found = [(int(np.rint(at)), 1.0)]
    elif mode == "bilinear":
        found = [(base, base + 1 - at), (base + 1, at - base)]
    else:
        found = []
        for i in range(base - 1, base + 3):
            d = abs(at - i)
            weight = 1.25 * d**3 - 2.25 * d**2 + 1 if d <= 1 else -0.75 * (d**3 - 5 * d**2 + 8 * d - 4)
            found.append((int(moved(i, size, padding, align_corners)), weight))
    return [(i, w) for i, w in found if 0 <= i < size]


def reference(x: Array, grid: Array, mode: str, padding: str, align_corners: bool) -> Array:
    out = np.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    for n, *point in np.ndindex(*grid[..., 0].shape):
        dims = [
            taps(at, size, mode, padding, align_corners)
            for at, size in zip(grid[(n, *point)][::-1], x.shape[2:], strict=True)
        ]
        for chosen in itertools.product(*dims):
            where, weights = zip(*chosen, strict=True)
            out[(n, slice(None), *point)] += np.prod(weights) * x[(n, slice(None), *where)]
    return out


@pytest.mark.parametrize(("x_shape", "points", "mode", "padding", "align_corners"), CASES)
def test_grid_sample(x_shape: Any, points: Any, mode: Any, padding: Any, align_corners: bool) -> None:
    x, grid = normal(x_shape), positions(x_shape, points)
    expected = reference(x, grid, mode, padding, align_corners)
    np.testing.assert_allclose(grid_sample(x, grid, mode, padding, align_corners), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("x_shape", "points", "mode", "padding", "align_corners"), CASES)
def test_derivatives(x_shape: Any, points: Any, mode: Any, padding: Any, align_corners: bool) -> None:
    x, grid = normal(x_shape), positions(x_shape, points)
    assert_transposed(
        lambda x: grid_sample(x, grid, mode, padding, align_corners),
        lambda g: grid_sample_input_grad(g, grid, x_shape[2:], mode, padding, align_corners),
        x,
    )
    g = normal((*x_shape[:2], *points), seed=3)
    slope = grid_sample_grid_grad(g, x, grid, mode, padding, align_corners)
    assert slope.shape == grid.shape
    assert slope.dtype == grid.dtype
    direction, step = normal(grid.shape, seed=4), 1e-7
    ahead = grid_sample(x, grid + step * direction, mode, padding, align_corners)
    behind = grid_sample(x, grid - step * direction, mode, padding, align_corners)
    difference = inner(g, (ahead - behind) / (2 * step))
    assert inner(slope, direction) == pytest.approx(difference, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_the_identity_grid_gives_the_image(mode: Any) -> None:
    x = normal((1, 2, 4, 5))
    for align_corners in (False, True):
        rows, columns = (
            np.linspace(-1, 1, n) if align_corners else (np.arange(n) * 2 + 1) / n - 1 for n in x.shape[2:]
        )
        grid = np.stack(np.meshgrid(columns, rows), -1)[None]
        np.testing.assert_allclose(grid_sample(x, grid, mode, "zeros", align_corners), x, atol=1e-12)


def test_nearest_takes_the_even_one_on_a_tie() -> None:
    x = np.arange(4.0).reshape(1, 1, 1, 4)
    grid = np.zeros((1, 1, 3, 2))
    grid[0, 0, :, 0] = np.array([0.5, 1.5, 2.5]) * 2 / 3 - 1
    assert grid_sample(x, grid, "nearest", "zeros", True).ravel().tolist() == [0, 2, 2]


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("mode", MODES)
def test_wild_positions_do_no_harm(mode: Any, padding: Any) -> None:
    """Infinite, huge and undefined coordinates read nothing outside of the image, and write nothing."""
    x = normal((1, 2, 3, 4))
    wild = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 1e19, -3e9])
    grid = np.stack(np.meshgrid(wild, wild), -1)[None]
    result = grid_sample(x, grid, mode, padding)
    back = grid_sample_input_grad(np.ones(result.shape), grid, (3, 4), mode, padding)
    slope = grid_sample_grid_grad(np.ones(result.shape), x, grid, mode, padding)
    assert back.shape == x.shape
    assert slope.shape == grid.shape
    if padding == "zeros":
        finite = np.isfinite(grid).all(-1)
        np.testing.assert_array_equal(result[:, :, finite[0]], 0)
    elif mode != "bicubic":
        assert np.isin(result[0, 0], x[0, 0]).sum() > 20


def test_what_is_outside_plays_no_part() -> None:
    x = np.full((1, 1, 2, 2), np.nan)
    grid = np.full((1, 1, 1, 2), 5.0)
    for mode in MODES:
        assert grid_sample(x, grid, mode, "zeros") == 0
        back = grid_sample_input_grad(np.full((1, 1, 1, 1), np.nan), grid, (2, 2), mode, "zeros")
        np.testing.assert_array_equal(back, 0)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_the_dtype_is_kept(dtype: Any) -> None:
    x, grid = normal((1, 2, 3, 4), dtype), positions((1,), (2, 2)).astype(dtype)
    result = grid_sample(x, grid)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, grid_sample(x.astype(np.float32), grid.astype(np.float32)).astype(dtype))
    assert grid_sample_input_grad(result, grid, (3, 4)).dtype == dtype
    assert grid_sample_grid_grad(result, x, grid).dtype == dtype


def test_what_does_not_fit_is_refused() -> None:
    x, grid = np.zeros((2, 3, 4, 5)), np.zeros((2, 6, 7, 2))
    volume, volume_grid = np.zeros((2, 3, 4, 5, 6)), np.zeros((2, 1, 1, 1, 3))
    refused: list[Any] = [
        (ValueError, "'cubic'", lambda: grid_sample(x, grid, "cubic")),  # type: ignore[arg-type]
        (ValueError, "'reflect'", lambda: grid_sample(x, grid, "nearest", "reflect")),  # type: ignore[arg-type]
        (ShapeError, "takes a grid", lambda: grid_sample(x, grid[:1])),
        (ShapeError, "takes a grid", lambda: grid_sample(x, np.zeros((2, 6, 7, 3)))),
        (ShapeError, "takes a grid", lambda: grid_sample(volume, grid)),
        (ShapeError, "takes a grid", lambda: grid_sample(x[0], grid[0])),
        (ShapeError, "for images", lambda: grid_sample(volume, volume_grid, "bicubic")),
        (ShapeError, "empty", lambda: grid_sample(x[:, :, :0], grid)),
        (ShapeError, r"cotangent of shape \(2, 3, 6, 7\)", lambda: grid_sample_input_grad(x, grid, (4, 5))),
        (ShapeError, r"cotangent of shape \(2, 3, 6, 7\)", lambda: grid_sample_grid_grad(x, x, grid)),
    ]
    for error, message, call in refused:
        with pytest.raises(error, match=message):
            call()

"""Interpolation and its gradient beside PyTorch's."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.kernels.support import normal
from wengert.kernels.resize import interpolate, interpolate_input_grad

SHAPES = {1: (2, 3, 7), 2: (2, 3, 7, 5), 3: (1, 2, 4, 7, 5)}
MODES: list[Any] = [
    ("nearest", 1), ("nearest", 2), ("nearest", 3), ("nearest-exact", 1), ("nearest-exact", 2), ("nearest-exact", 3),
    ("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2), ("area", 1), ("area", 2), ("area", 3),
]  # fmt: skip
CORNERS: list[Any] = [("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)]
SIZES = [(1, 1, 1), (3, 9, 4), (8, 14, 10), (5, 3, 2), (4, 7, 5), (13, 6, 11)]


def compare(x: np.ndarray, ours: dict[str, Any], theirs: dict[str, Any], rtol: float = 1e-11) -> None:
    tx = torch.from_numpy(x).requires_grad_()
    ty = F.interpolate(tx, **theirs)
    result = interpolate(x, ty.shape[2:], **ours)
    np.testing.assert_allclose(result, ty.detach().numpy(), rtol=rtol, atol=rtol)
    g = normal(result.shape, x.dtype, seed=1)
    (tg,) = torch.autograd.grad(ty, tx, torch.from_numpy(g))
    np.testing.assert_allclose(interpolate_input_grad(g, x.shape[2:], **ours), tg.numpy(), rtol=rtol, atol=10 * rtol)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("mode", "dims"), MODES)
def test_sizes(mode: str, dims: int, size: Any) -> None:
    compare(normal(SHAPES[dims]), {"mode": mode}, {"mode": mode, "size": size[:dims]})


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("mode", "dims"), CORNERS)
def test_align_corners(mode: str, dims: int, size: Any) -> None:
    given = {"mode": mode, "align_corners": True}
    compare(normal(SHAPES[dims]), given, {**given, "size": size[:dims]})


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("scale", [0.4, 0.7, 1.0, 1.3, 2.0, 2.6])
@pytest.mark.parametrize(("mode", "dims"), MODES)
def test_scale_factors(mode: str, dims: int, scale: float, recompute: bool) -> None:
    scales = [scale, 1.5, 0.6][:dims]
    theirs = {"mode": mode, "scale_factor": scales, "recompute_scale_factor": recompute}
    compare(normal(SHAPES[dims]), {"mode": mode, "scales": None if recompute else scales}, theirs)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialias(mode: str, size: Any, align_corners: bool) -> None:
    given = {"mode": mode, "antialias": True, "align_corners": align_corners}
    compare(normal(SHAPES[2]), given, {**given, "size": size[:2]})


@pytest.mark.parametrize(("mode", "dims"), MODES)
def test_float32(mode: str, dims: int) -> None:
    compare(normal(SHAPES[dims], np.float32), {"mode": mode}, {"mode": mode, "size": (9, 11, 3)[:dims]}, rtol=2e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_the_nearest_element_is_the_same_one(mode: Any, dtype: Any) -> None:
    """Positions on a tie are decided by rounding: every size up to 50 to every size up to 100, and odd factors."""
    for size in range(1, 51):
        x = np.arange(size).astype(dtype)[None, None]
        tx = torch.from_numpy(x)
        for new in range(1, 101):
            np.testing.assert_array_equal(interpolate(x, [new], mode), F.interpolate(tx, size=new, mode=mode).numpy())
        for scale in (1 / 3, 0.7, 1.1, 1.7, 2.3, 3.3):
            if int(size * scale):
                ty = F.interpolate(tx, scale_factor=scale, mode=mode).numpy()
                np.testing.assert_array_equal(interpolate(x, ty.shape[2:], mode, scales=[scale]), ty)


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes(mode: Any, size: Any) -> None:
    """PyTorch interpolates bytes with weights of 16 bits, so what is near a half may be rounded either way."""
    x = np.random.default_rng(0).integers(0, 256, SHAPES[2]).astype(np.uint8)
    peer = F.interpolate(torch.from_numpy(x), size=size[:2], mode=mode).numpy()
    difference = np.abs(interpolate(x, size[:2], mode).astype(int) - peer)
    assert difference.max() <= 1
    assert np.mean(difference > 0) < 0.1

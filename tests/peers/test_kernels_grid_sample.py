"""Sampling and its two gradients beside PyTorch's."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.kernels.support import normal
from wengert.kernels.grid_sample import grid_sample, grid_sample_grid_grad, grid_sample_input_grad

SHAPES: list[Any] = [
    ((2, 3, 4, 5), (3, 4)),
    ((1, 2, 1, 5), (2, 7)),
    ((2, 3, 3, 4, 5), (2, 3, 2)),
    ((0, 2, 3, 3), (2, 2)),
]
CASES: list[Any] = [
    (x, p, m, pad, a)
    for (x, p), m, pad, a in itertools.product(
        SHAPES, ["bilinear", "nearest", "bicubic"], ["zeros", "border", "reflection"], [False, True]
    )
    if m != "bicubic" or len(x) == 4
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("x_shape", "points", "mode", "padding", "align_corners"), CASES)
def test_grid_sample(x_shape: Any, points: Any, mode: Any, padding: Any, align_corners: bool, dtype: Any) -> None:
    x = normal(x_shape, dtype)
    grid = np.random.default_rng(0).uniform(-2.5, 2.5, (x_shape[0], *points, len(points))).astype(dtype)
    tx, tgrid = torch.from_numpy(x).requires_grad_(), torch.from_numpy(grid).requires_grad_()
    ty = F.grid_sample(tx, tgrid, mode, padding, align_corners)
    g = normal(ty.shape, dtype, seed=1)
    tgrads = torch.autograd.grad(ty, (tx, tgrid), torch.from_numpy(g))
    results = (
        grid_sample(x, grid, mode, padding, align_corners),
        grid_sample_input_grad(g, grid, x_shape[2:], mode, padding, align_corners),
        grid_sample_grid_grad(g, x, grid, mode, padding, align_corners),
    )
    tolerance = 1e-11 if dtype is np.float64 else 1e-4
    for result, peer in zip(results, (ty.detach(), *tgrads), strict=True):
        np.testing.assert_allclose(result, peer.numpy(), rtol=tolerance, atol=tolerance)

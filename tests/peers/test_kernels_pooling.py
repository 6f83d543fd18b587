"""Pooling beside PyTorch's, with both gradients."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.kernels.support import normal
from wengert.kernels.adaptive_pooling import adaptive_avg_pool, adaptive_avg_pool_input_grad, adaptive_max_pool
from wengert.kernels.pooling import avg_pool, avg_pool_input_grad, max_pool, max_pool_input_grad, max_unpool

SHAPES = {1: (2, 3, 11), 2: (2, 3, 9, 11), 3: (1, 2, 6, 7, 5)}
# Kernel, stride, padding and dilation, the same in each dimension.
WINDOWS = [
    (2, 2, 0, 1),
    (3, 2, 1, 1),
    (3, 1, 1, 1),
    (2, 3, 1, 1),
    (2, 1, 1, 2),
    (3, 2, 1, 2),
    (4, 3, 2, 1),
    (1, 2, 0, 1),
]


def special(shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers with ties, infinities and NaN among them."""
    x = np.round(normal(shape))
    chosen = np.random.default_rng(4).random(shape)
    x[chosen < 0.05] = np.nan
    x[chosen > 0.9] = -np.inf
    return x


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), WINDOWS)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_max_pool(dims: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> None:
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[dims - 1]
    parameters: Any = [[v] * dims for v in (kernel, stride, padding, dilation)]
    for x in (normal(SHAPES[dims]), special(SHAPES[dims])):
        tx = torch.from_numpy(x).requires_grad_()
        ty, tindices = pool(tx, kernel, stride, padding, dilation, ceil_mode, return_indices=True)
        values, indices = max_pool(x, *parameters, ceil_mode)
        np.testing.assert_array_equal(values, ty.detach().numpy())
        np.testing.assert_array_equal(indices, tindices.numpy())
        g = normal(values.shape, seed=1)
        (tg,) = torch.autograd.grad(ty, tx, torch.from_numpy(g))
        np.testing.assert_allclose(max_pool_input_grad(g, indices, x.shape[2:]), tg.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int16])
def test_max_pool_of_integers(dtype: Any) -> None:
    x = normal((2, 3, 7, 8), dtype)
    for parameters in [([2, 2], [2, 2], [0, 0], [1, 1]), ([3, 3], [2, 2], [1, 1], [1, 1])]:
        ty, tindices = F.max_pool2d(torch.from_numpy(x), *parameters, return_indices=True)
        values, indices = max_pool(x, *parameters)
        np.testing.assert_array_equal(values, ty.numpy())
        np.testing.assert_array_equal(indices, tindices.numpy())


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_max_unpool(dims: int) -> None:
    x = normal(SHAPES[dims])
    values, indices = max_pool(x, [2] * dims, [2] * dims, [0] * dims, [1] * dims)
    unpool = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[dims - 1]
    peer = unpool(torch.from_numpy(values), torch.from_numpy(indices), 2, output_size=x.shape)
    np.testing.assert_array_equal(max_unpool(values, indices, x.shape[2:]), peer.numpy())


# PyTorch's avg_pool1d has no divisor_override.
AVERAGES = [
    (dims, ceil_mode, include, divisor)
    for dims, ceil_mode, include, divisor in itertools.product([1, 2, 3], [False, True], [False, True], [None, 5])
    if dims > 1 or divisor is None
]


@pytest.mark.parametrize(("dims", "ceil_mode", "include", "divisor"), AVERAGES)
@pytest.mark.parametrize(("kernel", "stride", "padding"), [w[:3] for w in WINDOWS if w[3] == 1])
def test_avg_pool(
    dims: int, kernel: int, stride: int, padding: int, ceil_mode: bool, include: bool, divisor: int | None
) -> None:
    x = normal(SHAPES[dims])
    tx = torch.from_numpy(x).requires_grad_()
    pool: Any = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[dims - 1]
    rest = () if dims == 1 else (divisor,)
    ty = pool(tx, kernel, stride, padding, ceil_mode, include, *rest)
    parameters: Any = (*([v] * dims for v in (kernel, stride, padding)), ceil_mode, include, divisor)
    result = avg_pool(x, *parameters)
    np.testing.assert_allclose(result, ty.detach().numpy(), rtol=1e-12, atol=1e-13)
    g = normal(result.shape, seed=1)
    (tg,) = torch.autograd.grad(ty, tx, torch.from_numpy(g))
    np.testing.assert_allclose(avg_pool_input_grad(g, x.shape[2:], *parameters), tg.numpy(), rtol=1e-12, atol=1e-13)


def test_avg_pool_of_integers() -> None:
    x = normal((2, 3, 7, 8), np.int64)
    peer = F.avg_pool2d(torch.from_numpy(x), 3, 2, 1)
    np.testing.assert_array_equal(avg_pool(x, [3, 3], [2, 2], [1, 1]), peer.numpy())


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 13, 0])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_adaptive(dims: int, size: int) -> None:
    output_size = [size, *[4, 3][: dims - 1]]
    x = normal(SHAPES[dims])
    tx = torch.from_numpy(x).requires_grad_()
    average = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[dims - 1]
    maximum = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[dims - 1]
    ty = average(tx, output_size)
    result = adaptive_avg_pool(x, output_size)
    np.testing.assert_allclose(result, ty.detach().numpy(), rtol=1e-12, atol=1e-13)
    g = normal(result.shape, seed=1)
    if size:
        (tg,) = torch.autograd.grad(ty, tx, torch.from_numpy(g))
        np.testing.assert_allclose(adaptive_avg_pool_input_grad(g, x.shape[2:]), tg.numpy(), rtol=1e-12, atol=1e-13)
    for given in (x, special(x.shape)):
        values, indices = adaptive_max_pool(given, output_size)
        tvalues, tindices = maximum(torch.from_numpy(given), output_size, return_indices=True)
        np.testing.assert_array_equal(values, tvalues.numpy())
        np.testing.assert_array_equal(indices, tindices.numpy())

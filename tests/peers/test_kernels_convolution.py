"""Convolution, its two gradients, fold and unfold beside PyTorch's."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.kernels.support import Array, normal
from wengert.kernels.convolution import convolution, convolution_input_grad, convolution_weight_grad, fold, unfold

# Input shape, weight shape, stride, padding, dilation, groups.
CASES: list[Any] = [
    ((2, 3, 11), (5, 3, 3), [1], [0], [1], 1),
    ((2, 4, 11), (6, 2, 4), [2], [3], [2], 2),
    ((4, 1, 28, 28), (8, 1, 3, 3), [1, 1], [1, 1], [1, 1], 1),
    ((4, 8, 13, 13), (16, 8, 3, 3), [1, 1], [0, 0], [1, 1], 1),
    ((2, 3, 15, 17), (4, 3, 5, 5), [2, 2], [2, 2], [1, 1], 1),
    ((2, 3, 15, 17), (4, 3, 2, 5), [3, 1], [0, 2], [2, 3], 1),
    ((2, 16, 7, 7), (8, 16, 1, 1), [1, 1], [0, 0], [1, 1], 1),
    ((2, 16, 7, 7), (8, 16, 1, 1), [2, 2], [0, 0], [1, 1], 1),
    ((2, 12, 9, 8), (6, 4, 3, 3), [1, 2], [1, 1], [1, 1], 3),
    ((2, 6, 9, 8), (12, 1, 3, 3), [2, 1], [1, 1], [1, 2], 6),
    ((2, 3, 5, 6, 7), (4, 3, 3, 2, 3), [1, 1, 1], [1, 0, 1], [1, 1, 1], 1),
    ((1, 4, 7, 6, 8), (6, 2, 3, 3, 2), [2, 1, 3], [1, 1, 1], [1, 2, 1], 2),
    ((0, 3, 5, 5), (4, 3, 3, 3), [1, 1], [1, 1], [1, 1], 1),
]
TOLERANCE = {np.float32: 2e-5, np.float64: 1e-12, np.complex128: 1e-12}


def torched(*arrays: Array) -> list[torch.Tensor]:
    """Return the arrays as tensors that require grad."""
    return [torch.from_numpy(a.copy()).requires_grad_() for a in arrays]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize(("x_shape", "w_shape", "stride", "padding", "dilation", "groups"), CASES)
def test_convolution(
    x_shape: Any, w_shape: Any, stride: Any, padding: Any, dilation: Any, groups: int, dtype: Any
) -> None:
    x, w = normal(x_shape, dtype), normal(w_shape, dtype, seed=1)
    tx, tw = torched(x, w)
    conv = (F.conv1d, F.conv2d, F.conv3d)[len(stride) - 1]
    ty = conv(tx, tw, None, stride, padding, dilation, groups)
    g = normal(ty.shape, dtype, seed=2)
    # PyTorch's gradients are conjugated transposes.
    tg = torch.autograd.grad(ty, (tx, tw), torch.from_numpy(g.conj()))
    parameters = (stride, padding, dilation, groups)
    results = (
        convolution(x, w, *parameters),
        convolution_input_grad(g, w, x_shape[2:], *parameters),
        convolution_weight_grad(g, x, w_shape[2:], *parameters),
    )
    expected = (ty.detach(), *(t.resolve_conj().conj().resolve_conj() for t in tg))
    for result, peer in zip(results, expected, strict=True):
        scale = 1 + (float(peer.abs().max()) if peer.numel() else 0)
        np.testing.assert_allclose(result, peer.numpy(), rtol=0, atol=TOLERANCE[dtype] * scale)
        assert result.dtype == dtype


@pytest.mark.parametrize(
    ("g_shape", "w_shape", "stride", "padding", "extra", "dilation", "groups"),
    [
        ((2, 4, 5), (4, 3, 3), [2], [1], [1], [1], 1),
        ((2, 4, 5, 6), (4, 3, 3, 3), [2, 3], [1, 0], [1, 2], [1, 1], 1),
        ((2, 4, 5, 6), (4, 3, 3, 2), [1, 1], [2, 1], [0, 0], [2, 1], 1),
        ((2, 4, 5, 6), (4, 3, 3, 2), [1, 1], [1, 1], [1, 1], [2, 2], 1),
        ((2, 4, 5, 6), (4, 8, 3, 2), [1, 1], [1, 1], [1, 1], [2, 2], 2),
        ((1, 4, 3, 4, 3), (4, 2, 2, 3, 2), [2, 1, 2], [0, 1, 0], [1, 0, 1], [1, 1, 1], 2),
    ],
)
def test_transposed_convolution(
    g_shape: Any, w_shape: Any, stride: Any, padding: Any, extra: Any, dilation: Any, groups: int
) -> None:
    g, w = normal(g_shape), normal(w_shape, seed=1)
    conv = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(stride) - 1]
    peer = conv(torch.from_numpy(g), torch.from_numpy(w), None, stride, padding, extra, groups, dilation)
    result = convolution_input_grad(g, w, peer.shape[2:], stride, padding, dilation, groups)
    np.testing.assert_allclose(result, peer.numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "kernel", "dilation", "padding", "stride"),
    [
        ((2, 3, 6, 7), (2, 3), (1, 1), (0, 0), (1, 1)),
        ((2, 3, 6, 7), (3, 2), (2, 1), (2, 1), (2, 3)),
        ((1, 1, 8, 8), (8, 8), (1, 1), (0, 0), (1, 1)),
    ],
)
def test_fold_and_unfold(shape: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> None:
    x = normal(shape)
    parameters: Any = (kernel, dilation, padding, stride)
    columns = F.unfold(torch.from_numpy(x), *parameters)
    np.testing.assert_array_equal(unfold(x, *parameters), columns.numpy())
    y = normal(columns.shape, seed=1)
    np.testing.assert_allclose(
        fold(y, shape[2:], *parameters), F.fold(torch.from_numpy(y), shape[2:], *parameters).numpy(), rtol=1e-12
    )

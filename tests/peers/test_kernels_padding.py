"""Padding and its transpose beside PyTorch's."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.kernels.support import normal
from wengert.kernels.padding import pad_constant, pad_edges, pad_edges_transpose

CASES: list[Any] = [
    ((2, 3, 5), [(2, 3)]),
    ((2, 3, 5), [(4, 0)]),
    ((2, 3, 5), [(-1, 2)]),
    ((2, 3, 5), [(2, -1)]),
    ((2, 3, 4, 5), [(1, 3), (4, 2)]),
    ((2, 3, 4, 5), [(1, -2), (-1, -2)]),
    ((1, 2, 3, 4, 5), [(1, 2), (0, 3), (4, 1)]),
]


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize(("shape", "pads"), CASES)
def test_padding(shape: Any, pads: Any, mode: Any) -> None:
    x = normal(shape)
    tx = torch.from_numpy(x).requires_grad_()
    ty = F.pad(tx, [p for pair in reversed(pads) for p in pair], mode=mode)
    result = pad_constant(x, pads) if mode == "constant" else pad_edges(x, pads, mode)
    np.testing.assert_array_equal(result, ty.detach().numpy())
    if mode != "constant":
        g = normal(result.shape, seed=1)
        (tg,) = torch.autograd.grad(ty, tx, torch.from_numpy(g))
        np.testing.assert_allclose(pad_edges_transpose(g, pads, mode), tg.numpy(), rtol=1e-12, atol=1e-12)

"""scan and associative_scan against PyTorch's: where outputs are stacked, in which order, and the gradients."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan as torch_associative_scan
from torch._higher_order_ops.scan import _fake_scan as torch_scan

import wengert as wg
from wengert.transforms.control_associative import associative_scan
from wengert.transforms.control_scan import scan

DIRECTIONS = list(itertools.product((0, 1, -1), (False, True)))
XS = np.random.default_rng(0).uniform(0.5, 1.5, (2, 3, 4))


def leaves(tree: Any) -> list[Any]:
    return [v for part in tree for v in leaves(part)] if isinstance(tree, tuple | list) else [tree]


def compare(call: Any, peer: Any) -> None:
    """Values of the results, and the gradient of a function of all of them, of calls on the same input."""
    x, y = wg.tensor(XS, requires_grad=True), torch.tensor(XS, requires_grad=True)
    found, expected = leaves(call(x)), leaves(peer(y))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.detach(), b.detach().numpy(), rtol=1e-13)
        assert tuple(a.shape) == tuple(b.shape)
    sum((v.sin() * v).sum() for v in found).backward()
    sum((v.sin() * v).sum() for v in expected).backward()
    np.testing.assert_allclose(x.grad, y.grad.numpy(), rtol=1e-11)


def body(s: Any, x: Any) -> Any:
    return s * 0.5 + x.sum(), (x * s, s * 2)


@pytest.mark.parametrize(("dim", "reverse"), DIRECTIONS)
def test_scan(dim: int, reverse: bool) -> None:
    compare(
        lambda x: scan(body, wg.ones((), dtype=wg.float64), x, dim=dim, reverse=reverse),
        lambda x: torch_scan(body, torch.ones((), dtype=torch.float64), x, dim=dim, reverse=reverse),
    )


@pytest.mark.parametrize(("dim", "reverse"), DIRECTIONS)
def test_associative_scan(dim: int, reverse: bool) -> None:
    def combine(a: Any, b: Any) -> Any:
        return a[0] * b[0], a[1] * b[0] + b[1]

    compare(
        lambda x: associative_scan(combine, (x, x + 1), dim, reverse),
        lambda x: torch_associative_scan(combine, (x, x + 1), dim, reverse, "generic"),
    )

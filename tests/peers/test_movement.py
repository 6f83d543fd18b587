"""New tensors, shapes, joins and cuts beside PyTorch's: values, dtypes, strides, gradients, refusals."""

from typing import Any

import numpy as np
import pytest
import torch

import wengert as wg

pytestmark = pytest.mark.filterwarnings("ignore:Creating a tensor from a list:UserWarning")

A = np.arange(12.0).reshape(2, 3, 2)

# Expressions run with T as either library and x as the same tensor, which requires grad in the second list.
CREATED = """
T.tensor(1.) | T.tensor(True) | T.tensor(1j) | T.tensor([]) | T.tensor([True, 2]) | T.tensor([1, 2.5])
T.tensor([1, 2j]) | T.tensor([True, 2.5]) | T.tensor([np.float64(1), 2.]) | T.tensor([np.float32(1)])
T.tensor(np.int32(1)) | T.tensor(a) | T.tensor([a, a]) | T.tensor([1, 2], dtype=T.bfloat16)
T.tensor([1.7, -1.7], dtype=T.int32) | T.tensor([1.], dtype=float) | T.tensor([T.tensor(1), T.tensor(2.)])
T.zeros(()) | T.zeros(0) | T.zeros(size=(2, 3)) | T.full((2,), 3) | T.full((2,), 3.) | T.full((2,), True)
T.full((2,), 1j) | T.full_like(T.ones(2, dtype=T.int64), 3.7) | T.ones_like(T.ones(2), dtype=T.float64) | T.eye(3)
T.eye(2, 3) | T.arange(5) | T.arange(5.) | T.arange(1, 5, 2) | T.arange(5, 1, -2) | T.arange(0, 1, 0.1)
T.arange(0.5, 3) | T.arange(start=1, end=4) | T.arange(1, 4, step=2) | T.arange(3, dtype=T.float16)
T.arange(-3, 3, 0.7) | T.arange(T.tensor(4)) | T.arange(1, 10, 3.0) | T.linspace(0, 1, 5) | T.linspace(-3, 10, 7)
T.linspace(0, 10, 4, dtype=T.int64) | T.linspace(0, 1 + 1j, 3) | T.logspace(0, 3, 4, base=2) | T.tril_indices(3, 4)
T.tril_indices(3, 3, -1) | T.triu_indices(3, 4, 1) | T.scalar_tensor(3) | T.as_tensor([1, 2])
T.as_tensor(a, dtype=T.float32) | T.asarray([1, 2.]) | T.from_numpy(a) | T.hann_window(5)
T.hamming_window(6, False, alpha=0.5, beta=0.3) | T.blackman_window(7) | T.bartlett_window(6) | T.kaiser_window(8)
T.kaiser_window(8, periodic=False, beta=5.) | T.zeros(2, dtype=T.int32).new_full((2,), 3.5)
T.zeros(2, dtype=T.int64).new_tensor([1.5, 2]) | T.zeros(2).new_ones(2, 3) | T.ones(3).to('cpu', T.int32)
T.ones(3).to(int) | T.ones(3).to(T.ones(1, dtype=T.int16)) | T.ones(3).to(T.float64, copy=True) | T.ones(3).cfloat()
T.ones(3).view(T.int32) | T.ones(4).view(T.float64) | T.ones(2, 2).view(T.int16) | T.nonzero(T.tensor(3))
T.nonzero(T.tensor(0)) | T.argwhere(T.tensor(3)) | T.zeros(7, 3).fill_diagonal_(2, wrap=True)
T.ones(2, 3, dtype=T.int32).copy_(T.tensor([1.5, 2.5, -3.5])) | T.zeros(3, dtype=T.uint8).fill_(-1)
T.arange(4).masked_fill(T.tensor([True, False, True, False]), 9.5) | T.repeat_interleave(T.tensor([1, 2, 3]))
T.cat([T.ones(2, dtype=T.int32), T.tensor([1.5])]) | T.ones(2, 3).resize_(3, 1) | T.vander(T.tensor([1, 2, 3]), 4)
T.cartesian_prod(T.tensor([1, 2]), T.tensor([4, 5])) | T.block_diag() | T.block_diag(T.ones(2))
"""

MOVED = """
x.reshape(3, -1) | x.view(3, 4) | x.view((-1, 2)) | x.flatten(1) | x.flatten(0, -2) | x.unflatten(1, (3, -1))
x.ravel() | x.squeeze() | x[:, :1].squeeze((0, 1)) | x.unsqueeze(-3) | x.permute([2, 0, 1]) | x.transpose(-1, 0)
x.movedim((0, 1), (2, 0)) | x.moveaxis(0, -1) | x.swapaxes(0, 1) | x.mT | x.mH | x[0].T | x[0].t() | x[0].H
x.expand(4, -1, 3, 2) | x[0].expand_as(x) | x.select(1, -1) | x.narrow(1, -2, 2) | x.unbind(1) | x.split(2, 1)
x.split([1, 2], 1) | x.chunk(2, 1) | x.tensor_split(2, 1) | x.tensor_split((1, 2), 1) | x.hsplit(3) | x.vsplit(2)
x.dsplit((1,)) | x.diagonal(1) | x.diagonal(-1, 2, 1) | x.unfold(1, 2, 1) | x.as_strided((3, 2), (3, 1), 1)
x.as_strided((2, 2, 2), (1, 1, 1)) | x[1:].as_strided((2,), (1,)) | x.repeat(2, 1, 2, 1) | x.tile((2,))
x.repeat_interleave(2) | x.repeat_interleave(T.tensor([1, 0, 2]), dim=1) | x.flip(0, 2) | x.flip(()) | x.roll(5)
x.roll((1, 2), (0, 1)) | x.rot90() | x.rot90(3, (1, 0)) | x.rot90(-2, (1, 2)) | x.tril() | x.triu(1) | x[0].diag(-1)
x[0, 0].diag(1) | x[0].diagflat(1) | x.diag_embed(1, 0, 2) | T.block_diag(x[0], x[1, 0]) | T.cat([x, x[:1]])
T.cat([x, x], -1) | T.stack([x, x], -2) | T.cat([T.zeros(0), x[0]], 1) | T.hstack([x, x]) | T.vstack([x, x])
T.dstack([x, x]) | T.column_stack([x[:, 0, 0], x[:, 1]]) | T.atleast_3d(x[0]) | T.atleast_2d([x[0, 0], x])
T.broadcast_tensors(x[:, :1], x[0]) | T.meshgrid(x[0, 0], x[1, :, 0], indexing='xy')
T.meshgrid(x[0, 0], x[1, :, 0], indexing='ij') | x.select_scatter(x[:, 0] * 2, 1, 2)
x.slice_scatter(x[:, :1] * 2, 1, 1, 2) | x.diagonal_scatter(x[0, :2] * 3) | x.double().float() | x.type_as(T.ones(1))
x.contiguous() | x.transpose(0, 1).contiguous() | T.fill(x, 2.) | T.fill(x, x.sum()) | x.squeeze(1) | x[0][1][0]
x[:, 1:, ::2] | x[..., None, 0] | x.detach()
"""

REFUSED = """
x.reshape(5, -1) | x.reshape(-1, -1) | x.mT.view(12) | x.permute(0) | x.permute(0, 0, 1) | x.permute(())
x.transpose(0, 3) | x.unsqueeze(4) | x.flatten(1, 0) | x.unflatten(0, (2, 2)) | x.expand(3, 3, 2) | x.select(0, 2)
x.narrow(1, 2, 2) | x.t() | x.movedim((0, 0), (1, 0)) | x.diagonal(0, 1, 1) | x.unfold(0, 3, 1) | x.split(0)
x.split([1, 2]) | x.chunk(0) | x.hsplit(2) | x.as_strided((13,), (1,)) | x.as_strided((2,), (-1,)) | x.repeat(2)
x.roll((1, 2)) | x.rot90(1, (0, 0)) | x[0, 0].tril() | x.diag() | T.cat([]) | T.stack([]) | T.cat([x, x[0]])
T.stack([x, x[0]]) | T.cat([x.sum(), x.sum()]) | x[0, 0].mT | T.zeros(-1) | T.arange() | T.arange(3, 1)
T.arange(3, 1, 0) | T.linspace(0, 1, -1) | T.tensor([[1, 2], [3]]) | T.tensor('a') | T.tensor(2 ** 70)
x.copy_(x[0, 0]) | T.full((1,), float('nan'), dtype=T.int32) | T.ones(2).fill_(T.ones(2))
T.zeros(3).fill_diagonal_(1) | T.ones(3).view(T.float64) | T.from_numpy([1]) | T.tensor(1.).view(T.float64)
T.ones(3).to('nowhere') | x.expand(2, 3, 2, 2).add_(1) | x.unsqueeze_(0)
"""


def expressions(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split("|")]


def run(library: Any, expression: str, x: Any) -> list[Any]:
    found = eval(expression, {"T": library, "np": np, "a": A, "x": x})
    return list(found) if isinstance(found, tuple | list) else [found]


def array(tensor: Any) -> Any:
    tensor = tensor.detach()
    tensor = tensor.float() if str(tensor.dtype).endswith("bfloat16") else tensor
    return (tensor.resolve_conj() if isinstance(tensor, torch.Tensor) else tensor).numpy()


def agree(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs)
    for got, want in zip(ours, theirs, strict=True):
        assert got.dtype.name == str(want.dtype).removeprefix("torch.")
        assert tuple(got.shape) == tuple(want.shape)
        np.testing.assert_allclose(array(got), array(want), rtol=2e-6, atol=1e-7)
        assert got.requires_grad == want.requires_grad
        assert got.is_leaf == want.is_leaf


@pytest.mark.parametrize("expression", expressions(CREATED))
def test_created(expression: str) -> None:
    agree(run(wg, expression, None), run(torch, expression, None))


@pytest.mark.parametrize("expression", expressions(MOVED))
def test_moved(expression: str) -> None:
    x, y = wg.tensor(A, dtype=wg.float32, requires_grad=True), torch.tensor(A, dtype=torch.float32, requires_grad=True)
    ours, theirs = run(wg, expression, x), run(torch, expression, y)
    agree(ours, theirs)
    for got, want in zip(ours, theirs, strict=True):
        if want._base is y:  # what is a view there is one here, laid out alike
            assert got._base is not None
            assert [s for s, n in zip(got.stride(), got.shape, strict=True) if n > 1] == [
                s for s, n in zip(want.stride(), want.shape, strict=True) if n > 1
            ]
    if theirs[0].requires_grad:
        weights = [np.cos(np.arange(t.numel())).reshape(tuple(t.shape)) for t in theirs]
        sum((g * wg.tensor(w, dtype=g.dtype)).sum() for g, w in zip(ours, weights, strict=True)).backward()
        sum((g * torch.tensor(w, dtype=g.dtype)).sum() for g, w in zip(theirs, weights, strict=True)).backward()
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("expression", expressions(REFUSED))
def test_refused_by_both(expression: str) -> None:
    x, y = wg.tensor(A, requires_grad=True), torch.tensor(A, requires_grad=True)
    with pytest.raises((RuntimeError, ValueError, TypeError, IndexError)):
        run(torch, expression, y)
    with pytest.raises((RuntimeError, ValueError, TypeError, IndexError)) as caught:
        run(wg, expression, x)
    assert str(caught.value)
    np.testing.assert_array_equal(x.numpy(force=True), A)

"""Indexing, joining and taking apart: sparse tensors give what dense ones give, and stay sparse."""

import numpy as np
import pytest

import wengert as wg
from tests.sparse.test_rules import KINDS, close, sparse
from wengert.errors import ShapeError, SparseError

ROWS = [2, 0, 0, -1]

# What is done with a tensor (dense or sparse), and the layout that a CSR matrix becomes; "dense" for numbers.
MOVES = {
    "a row": (lambda t: t[1], "coo"), "the last row": (lambda t: t[-1], "coo"), "a column": (lambda t: t[:, 2], "coo"),
    "with an ellipsis": (lambda t: t[..., 0], "coo"), "an element": (lambda t: t[1, 2], "dense"),
    "some rows": (lambda t: t[1:], "csr"), "every other column": (lambda t: t[:, 1::2], "csr"),
    "a block": (lambda t: t[:2, 1:3], "csr"), "no row": (lambda t: t[3:], "csr"), "a new axis": (lambda t: t[None], "coo"),
    "a new axis inside": (lambda t: t[1, None, 1:], "csr"), "rows by number": (lambda t: t[wg.tensor(ROWS)], "csr"),
    "rows in a list": (lambda t: t[[1, 0]], "csr"), "rows by a mask": (lambda t: t[wg.tensor([True, False, True])], "csr"),
    "index_select": (lambda t: t.index_select(1, wg.tensor([3, 1, 1])), "csr"), "select": (lambda t: t.select(1, 3), "coo"),
    "narrow": (lambda t: t.narrow(1, 1, 2), "csr"), "unsqueeze": (lambda t: t.unsqueeze(1), "coo"),
    "unsqueeze at the end": (lambda t: t.unsqueeze(-1), "coo"), "squeeze": (lambda t: t[:, 1:2].squeeze(1), "coo"),
    "squeeze of nothing": (lambda t: t.squeeze(0), "csr"), "cat": (lambda t: wg.cat([t, t[:1], t]), "csr"),
    "cat of columns": (lambda t: wg.cat([t[:, :1], t], 1), "csr"), "stack": (lambda t: wg.stack([t, t * 2], 1), "coo"),
    "vstack": (lambda t: wg.vstack([t, t]), "csr"), "hstack": (lambda t: wg.hstack([t, t]), "csr"),
    "the second of its rows": (lambda t: t.unbind(0)[1], "coo"), "its last column": (lambda t: t.unbind(1)[-1], "coo"),
    "its rows in turn": (lambda t: list(t)[2], "coo"), "the first part": (lambda t: t.split(2)[0], "csr"),
    "the last chunk": (lambda t: t.chunk(2, 1)[1], "csr"), "t": (lambda t: t.transpose(0, 1), "csr"),
    "t twice": (lambda t: t.transpose(0, 1).transpose(0, 1), "csr"), "sum kept": (lambda t: t.sum(1, keepdim=True), "csr"),
    "sum of all, kept": (lambda t: t.sum(tuple(range(t.ndim)), keepdim=True), "dense"),
    "sum kept 0": (lambda t: t.sum(0, keepdim=True), "csr"), "nan_to_num": (lambda t: (t / 0).nan_to_num(posinf=7), "csr"),
    "numbers inside the last dimension": (lambda t: t.index_select(t.ndim - 1, wg.tensor([1, 1, 0])), "csr"),
    "the last dimension in parts": (lambda t: t[..., :2], "csr"), "joined there": (lambda t: wg.cat([t, t], -1), "csr"),
    "stacked there": (lambda t: wg.stack([t, t], -1), "coo"), "copy_": (lambda t: (t * 0).copy_(t), "csr"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MOVES)
def test_what_a_dense_tensor_gives(name, kind):
    tensor, array = KINDS[kind]()
    function, layout = MOVES[name]
    want = function(wg.tensor(array)) if name != "nan_to_num" else wg.tensor(np.where(array > 0, 7.0, 0.0))
    found = function(tensor)
    assert tuple(found.shape) == tuple(want.shape)
    close(found, want.numpy())
    if kind == "csr":
        assert str(found.layout) == {"coo": "wengert.sparse_coo", "csr": "wengert.sparse_csr"}.get(
            layout, "wengert.strided"
        )
    elif layout != "dense":
        assert found.is_sparse
        if found.is_coalesced():
            rising = np.diff(
                np.ravel_multi_index(tuple(found.indices().numpy()), tuple(found.shape[: found.sparse_dim()]))
            )
            assert (rising > 0).all()


@pytest.mark.parametrize("name", [n for n in MOVES if n not in ("nan_to_num", "copy_")])
@pytest.mark.parametrize("kind", ["coo", "csr", "hybrid"])
def test_gradients_reach_the_entries(name, kind):
    made, _ = KINDS[kind]()
    made = made.coalesce() if made.is_sparse else made
    entries = made.values().detach().clone().requires_grad_()
    function = MOVES[name][0]

    def build(values):
        if kind == "csr":
            return wg.sparse_csr_tensor(made.crow_indices(), made.col_indices(), values, made.shape)
        return wg.sparse_coo_tensor(made.indices(), values, made.shape)

    def loss(values, sparse):
        found = function(build(values) if sparse else build(values).to_dense())
        found = found.to_dense() if sparse else found
        return (found**2 * wg.arange(1.0, found.numel() + 1, dtype=wg.float64).reshape(found.shape)).sum()

    (got,) = wg.autograd.grad(loss(entries, True), entries, allow_unused=True, materialize_grads=True)
    (want,) = wg.autograd.grad(loss(entries, False), entries, allow_unused=True, materialize_grads=True)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", ["coo", "csr"])
def test_a_linear_layer_with_a_sparse_weight_or_input(name):
    tensor, array = KINDS[name]()
    rng = np.random.default_rng(3)
    x, bias, weight = rng.normal(size=(2, 5, 4)), rng.normal(size=3), rng.normal(size=(6, 4))
    linear = wg.nn.functional.linear
    close(linear(wg.tensor(x), tensor, wg.tensor(bias)), x @ array.T + bias)
    close(linear(wg.tensor(x[0, 0]), tensor), x[0, 0] @ array.T)
    close(linear(tensor, wg.tensor(weight)), array @ weight.T)


def test_no_dense_tensor_is_made():
    size = 2**31
    tensor = wg.sparse_coo_tensor([[0, 5, size - 1], [7, 5, size // 2]], [1.0, 2.0, 3.0], (size, size))
    assert tensor[size - 1]._nnz() == 1
    assert tensor[:, 5:8]._nnz() == 2
    assert tensor.index_select(0, wg.tensor([5, 5]))._nnz() == 2
    assert tensor.unsqueeze(0).shape == (1, size, size)
    assert tensor[5, 5] == 2.0


@pytest.mark.parametrize(("call", "error", "says"), [
    (lambda t: wg.cat([t, t.to_dense()]), SparseError, "sparse tensors or dense ones, not both"),
    (lambda t: wg.stack([t, t.to_dense()]), SparseError, "not both"),
    (lambda t: wg.cat([t, t[:, :2]]), ShapeError, r"\(3, 4\) with 2, \(3, 2\) with 2"),
    (lambda t: wg.cat([t, wg.ones(3, 4).to_sparse(1)]), ShapeError, "sparse_dim"),
    (lambda t: t[3], IndexError, "out of bounds"), (lambda t: t[[0, 3]], IndexError, "index 3 is out of bounds"),
    (lambda t: t[wg.tensor([[0, 1]])], SparseError, "to_dense"),
    (lambda t: t[wg.tensor([0]), wg.tensor([1])], SparseError, "to_dense"),
    (lambda t: wg.nn.functional.linear(t, t), SparseError, "to_dense"),
])  # fmt: skip
def test_refused(call, error, says):
    with pytest.raises(error, match=says):
        call(sparse()[0])

"""Sparse tensors, the gradients of embeddings, and steps with them, beside PyTorch's."""

from typing import Any

import numpy as np
import pytest
import torch

import wengert as wg

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]
RNG = np.random.default_rng(0)
POSITIONS, ENTRIES = np.array([[0, 1, 1, 2, 0], [2, 0, 0, 1, 3]]), RNG.uniform(0.5, 1.5, 5)
RIGHT, SAME = RNG.normal(size=(4, 2)), RNG.normal(size=(3, 4))
TABLE, BATCHES = RNG.normal(size=(6, 3)), [RNG.integers(0, 6, 4) for _ in range(8)]


def coo(framework: Any, values: Any = ENTRIES) -> Any:
    return framework.sparse_coo_tensor(framework.tensor(POSITIONS), framework.tensor(values), (3, 4))


def parts(tensor: Any) -> dict[str, Any]:
    """Return what a tensor is, for comparison."""
    found = {
        "layout": str(tensor.layout).split(".")[1],
        "shape": tuple(tensor.shape),
        "dtype": str(tensor.dtype).split(".")[1],
    }
    if found["layout"] == "sparse_coo":
        tensor = tensor.coalesce()
        found |= {"indices": tensor.indices(), "values": tensor.values()}
    elif found["layout"] == "sparse_csr":
        found |= {"crow": tensor.crow_indices(), "col": tensor.col_indices(), "values": tensor.values()}
    else:
        found |= {"values": tensor}
    return {k: v.detach().numpy() if hasattr(v, "detach") else v for k, v in found.items()}


FUNCTIONS = {
    "itself": lambda m, s: s, "coalesce": lambda m, s: s.coalesce(), "to_dense": lambda m, s: s.to_dense(),
    "csr": lambda m, s: s.to_sparse_csr(), "csr and back": lambda m, s: s.to_sparse_csr().to_sparse_coo(),
    "t": lambda m, s: s.t(), "transpose": lambda m, s: s.transpose(0, 1), "permute": lambda m, s: s.permute(1, 0),
    "neg": lambda m, s: -s, "twice": lambda m, s: s * 2, "half": lambda m, s: s / 2, "sum of two": lambda m, s: s + s,
    "abs": lambda m, s: (-s).abs(), "sqrt": lambda m, s: s.sqrt(), "relu": lambda m, s: s.relu(), "sin": lambda m, s: s.sin(),
    "power": lambda m, s: s.pow(2), "isnan": lambda m, s: s.isnan(), "float32": lambda m, s: s.to(m.float32),
    "dense plus": lambda m, s: m.tensor(SAME) + s, "in place": lambda m, s: m.tensor(SAME).add_(s, alpha=-2),
    "times dense": lambda m, s: s.coalesce() * m.tensor(SAME), "product": lambda m, s: s.coalesce() * s.coalesce(),
    "matmul": lambda m, s: s @ m.tensor(RIGHT), "mm": lambda m, s: m.sparse.mm(s, m.tensor(RIGHT)),
    "mv": lambda m, s: s.mv(m.tensor(RIGHT[:, 0])), "dense times": lambda m, s: m.tensor(RIGHT.T[:, :3].copy()) @ s,
    "sparse times sparse": lambda m, s: m.sparse.mm(s, s.t()),
    "addmm": lambda m, s: m.sparse.addmm(m.tensor(SAME[:, :2].copy()), s, m.tensor(RIGHT), beta=2.0, alpha=0.5),
    "sum": lambda m, s: m.sparse.sum(s), "sum 0": lambda m, s: m.sparse.sum(s, 0), "sum 1": lambda m, s: s.sum(1),
    "softmax": lambda m, s: m.sparse.softmax(s, 1), "log_softmax": lambda m, s: m.sparse.log_softmax(s, 0),
    "norm": lambda m, s: s.norm(), "mask": lambda m, s: m.tensor(SAME).sparse_mask(s.coalesce()),
    "zeros_like": lambda m, s: m.zeros_like(s), "zeros_like dtype": lambda m, s: m.zeros_like(s, dtype=m.int64),
    "zeros_like dense": lambda m, s: m.zeros_like(s, layout=m.strided), "empty_like": lambda m, s: m.empty_like(s),
    "csr zeros_like": lambda m, s: m.zeros_like(s.to_sparse_csr()),
    "csr ones_like": lambda m, s: m.ones_like(s.to_sparse_csr()),
    "csr full_like": lambda m, s: m.full_like(s.to_sparse_csr(), 3.0, dtype=m.float32),
    "bmm": lambda m, s: m.bmm(m.stack([s, s * 2]).coalesce(), m.tensor(np.stack([RIGHT, RIGHT**2]))),
    "zero_": lambda m, s: s.clone().zero_(), "mul_": lambda m, s: s.clone().mul_(3),
    "to_sparse": lambda m, s: m.tensor(SAME).to_sparse(), "to_sparse 1": lambda m, s: m.tensor(SAME).to_sparse(1),
    "csr mm": lambda m, s: s.to_sparse_csr() @ m.tensor(RIGHT), "csr twice": lambda m, s: s.to_sparse_csr() * 2,
    "csr plus csr": lambda m, s: s.to_sparse_csr() + s.to_sparse_csr(), "csr sum": lambda m, s: s.to_sparse_csr().sum(),
    "empty": lambda m, s: m.sparse_coo_tensor((2, 3), dtype=m.float64),
    "row": lambda m, s: s[1], "column": lambda m, s: s[:, -1], "element": lambda m, s: s[1, 0], "None": lambda m, s: s[None],
    "index_select": lambda m, s: s.index_select(1, m.tensor([3, 0, 3])), "unsqueeze": lambda m, s: s.unsqueeze(-1),
    "cat": lambda m, s: m.cat([s, s * 2], 1), "stack": lambda m, s: m.stack([s, s], 1), "unbind": lambda m, s: s.unbind(1)[0],
    "sum kept": lambda m, s: s.sum(0, keepdim=True), "csr sum kept": lambda m, s: s.to_sparse_csr().sum(1, keepdim=True),
    "csr row": lambda m, s: s.to_sparse_csr()[1], "csr element": lambda m, s: s.to_sparse_csr()[1, 0],
    "linear": lambda m, s: m.nn.functional.linear(m.tensor(SAME), s),
    "csr linear": lambda m, s: m.nn.functional.linear(m.tensor(SAME), s.to_sparse_csr()),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    got, want = (parts(FUNCTIONS[name](m, coo(m))) for m in (wg, torch))
    assert got.keys() == want.keys()
    for key, value in want.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_allclose(got[key], value, rtol=1e-12, err_msg=key)
        else:
            assert got[key] == value


@pytest.mark.parametrize(
    "name", ["mm", "addmm", "bmm", "to_dense", "sum 0", "times dense", "half", "t", "softmax", "dense plus"]
)
def test_gradients_of_entries(name: str) -> None:
    found = []
    for m in (wg, torch):
        values = m.tensor(ENTRIES).requires_grad_()
        tensor = m.sparse_coo_tensor(m.tensor(POSITIONS), values, (3, 4))
        FUNCTIONS[name](m, tensor).to_dense().square().sum().backward()
        found.append(values.grad.to_dense().numpy())
    np.testing.assert_allclose(*found, rtol=1e-12)


@pytest.mark.parametrize(("name", "arguments"), [
    ("ones_like", ()), ("full_like", (2.0,)), ("rand_like", ()), ("randn_like", ()), ("randint_like", (5,)),
])  # fmt: skip
def test_what_would_be_dense_is_refused_by_both(name: str, arguments: tuple[Any, ...]) -> None:
    for m in (wg, torch):
        with pytest.raises(NotImplementedError):
            getattr(m, name)(coo(m), *arguments)
        if name in ("rand_like", "randint_like"):
            with pytest.raises(NotImplementedError):
                getattr(m, name)(coo(m).to_sparse_csr(), *arguments)
    if name not in ("rand_like", "randint_like"):
        shapes = {tuple(getattr(m, name)(coo(m).to_sparse_csr(), *arguments).values().shape) for m in (wg, torch)}
        assert shapes == {(4,)}


@pytest.mark.parametrize("name", ["itself", "coalesce", "csr", "float32", "empty"])
def test_they_print_alike(name: str) -> None:
    got, want = (str(FUNCTIONS[name](m, coo(m, np.arange(5, dtype=np.float32)))) for m in (wg, torch))
    assert got.replace("wengert", "torch") == want


@pytest.mark.parametrize("options", [
    {}, {"padding_idx": 1}, {"bag": "sum"}, {"bag": "mean"}, {"bag": "mean", "padding_idx": 1},
], ids=str)  # fmt: skip
def test_gradients_of_embeddings(options: dict[str, Any]) -> None:
    index, grads = np.array([[1, 4, 1], [5, 1, 0]]), []
    for m in (wg, torch):
        given = dict(options)
        mode = given.pop("bag", None)
        kind, extra = (m.nn.Embedding, {}) if mode is None else (m.nn.EmbeddingBag, {"mode": mode})
        layer = kind(6, 3, sparse=True, dtype=m.float64, **extra, **given)
        with m.no_grad():
            layer.weight.copy_(m.tensor(TABLE))
        for _ in range(2):
            layer(m.tensor(index)).square().sum().backward()
        grads.append(layer.weight.grad)
    assert grads[0]._indices().tolist() == grads[1]._indices().tolist()
    np.testing.assert_allclose(grads[0]._values().numpy(), grads[1]._values().numpy(), rtol=1e-12)


@pytest.mark.parametrize(("name", "options"), [
    ("SGD", {}), ("SGD", {"momentum": 0.9}), ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("SGD", {"momentum": 0.9, "dampening": 0.3}), ("SGD", {"maximize": True}), ("Adagrad", {}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.2}), ("SparseAdam", {}),
    ("SparseAdam", {"maximize": True, "betas": (0.5, 0.9), "eps": 1e-3}),
], ids=str)  # fmt: skip
def test_trajectories(name: str, options: dict[str, Any]) -> None:
    found = []
    for m in (wg, torch):
        layer = m.nn.Embedding(6, 3, sparse=True, dtype=m.float64)
        with m.no_grad():
            layer.weight.copy_(m.tensor(TABLE))
        optimizer = getattr(m.optim, name)(layer.parameters(), lr=0.1, **options)
        for batch in BATCHES:
            optimizer.zero_grad()
            layer(m.tensor(batch)).square().sum().backward()
            optimizer.step()
        found.append(layer.weight.detach().numpy())
    np.testing.assert_allclose(*found, rtol=1e-12)

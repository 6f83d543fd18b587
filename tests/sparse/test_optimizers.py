"""Steps with sparse gradients: what the formulas say of the rows that have one, and nothing of the others."""

import numpy as np
import pytest

import wengert as wg
from wengert.sparse.rows import add_into

RNG = np.random.default_rng(4)
TABLE = RNG.normal(size=(6, 3))
BATCHES = [np.array([1, 4, 1]), np.array([0, 1]), np.array([5]), np.array([4, 4, 4, 2])]

# SGD and Adagrad change nothing where a gradient is zero (momentum apart, which is in the sparse velocity): with a sparse
# gradient they do what they do with the dense one.
ALIKE = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.4}), ("SGD", {"lr": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "maximize": True}), ("Adagrad", {"lr": 0.1}), ("Adagrad", {"maximize": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.2, "initial_accumulator_value": 0.3, "eps": 1e-3}),
]  # fmt: skip


def trained(name, options, sparse, table=TABLE, dtype=wg.float64):
    layer = wg.nn.Embedding(*table.shape, sparse=sparse, dtype=dtype)
    with wg.no_grad():
        layer.weight.copy_(wg.tensor(table))
    optimizer = getattr(wg.optim, name)(layer.parameters(), **options)
    for batch in BATCHES * 2:
        optimizer.zero_grad()
        layer(wg.tensor(batch)).square().sum().backward()
        optimizer.step()
    return layer.weight.detach().numpy(), optimizer


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "bfloat16"])
@pytest.mark.parametrize(("name", "options"), ALIKE, ids=str)
def test_trajectories_are_those_of_dense_gradients(name, options, dtype):
    if dtype == "complex128":
        found = [complex_steps(name, options, sparse) for sparse in (True, False)]
    else:
        found = [trained(name, options, sparse, dtype=getattr(wg, dtype))[0] for sparse in (True, False)]
    rtol = {"float32": 1e-5, "bfloat16": 0.05}.get(dtype, 1e-12)
    np.testing.assert_allclose(found[0].astype(complex), found[1].astype(complex), rtol=rtol, atol=rtol)


def complex_steps(name, options, sparse):
    table = wg.nn.Parameter(wg.tensor(TABLE + 1j * TABLE[::-1]))
    optimizer = getattr(wg.optim, name)([table], **options)
    for batch in BATCHES:
        rows = wg.tensor(RNG_STEPS[: len(batch)])
        grad = wg.sparse_coo_tensor(batch[None], rows, table.shape)
        table.grad = grad if sparse else grad.to_dense()
        optimizer.step()
    return table.detach().numpy()


RNG_STEPS = RNG.normal(size=(4, 3)) + 1j * RNG.normal(size=(4, 3))


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam"])
def test_large_tables_and_small_ones_step_alike(name, monkeypatch):
    """Native kernels do the large ones."""
    size, width, count = 500, 64, 400
    table, index = RNG.normal(size=(size, width)), RNG.integers(0, size, count)
    for dtype in (wg.float32, wg.float64):
        found = []
        for smallest in (wg.core.native.native.smallest, 1 << 60):
            monkeypatch.setattr(wg.core.native.native, "smallest", smallest)
            weight = wg.nn.Parameter(wg.tensor(table, dtype=dtype))
            optimizer = getattr(wg.optim, name)([weight], lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                wg.nn.functional.embedding(wg.tensor(index), weight, sparse=True).square().sum().backward()
                optimizer.step()
            found.append(weight.detach().numpy())
            monkeypatch.undo()
        np.testing.assert_allclose(found[0], found[1], rtol=1e-5 if dtype is wg.float32 else 1e-12)


def sparse_adam(table, lr, beta1, beta2, eps, maximize=False):
    """The steps of lazy Adam, row by row."""
    p, m, v = table.copy(), np.zeros_like(table), np.zeros_like(table)
    for t, batch in enumerate(BATCHES * 2, 1):
        grad = np.zeros_like(p)
        np.add.at(grad, batch, 2 * p[batch])
        rows = np.unique(batch)
        g = -grad[rows] if maximize else grad[rows]
        m[rows] = beta1 * m[rows] + (1 - beta1) * g
        v[rows] = beta2 * v[rows] + (1 - beta2) * g * g
        p[rows] -= lr * np.sqrt(1 - beta2**t) / (1 - beta1**t) * m[rows] / (np.sqrt(v[rows]) + eps)
    return p


@pytest.mark.parametrize(("betas", "eps", "maximize"), [((0.9, 0.999), 1e-8, False), ((0.5, 0.9), 1e-3, True)])
def test_sparse_adam_follows_its_formula(betas, eps, maximize):
    options = {"lr": 0.1, "betas": betas, "eps": eps, "maximize": maximize}
    found, optimizer = trained("SparseAdam", options, True)
    np.testing.assert_allclose(found, sparse_adam(TABLE, 0.1, *betas, eps, maximize), rtol=1e-12)
    state = next(iter(optimizer.state.values()))
    assert state["step"].item() == 8
    assert not state["exp_avg"][3].any()


def test_the_velocity_is_sparse_and_is_saved_with_the_state(tmp_path):
    _, optimizer = trained("SGD", {"lr": 0.1, "momentum": 0.9}, True)
    velocity = next(iter(optimizer.state.values()))["momentum_buffer"]
    assert velocity.is_sparse
    assert velocity._nnz() == 5
    wg.save(optimizer.state_dict(), tmp_path / "state")
    other = wg.optim.SGD([wg.nn.Parameter(wg.tensor(TABLE))], lr=0.1, momentum=0.9)
    other.load_state_dict(wg.load(tmp_path / "state"))
    restored = next(iter(other.state.values()))["momentum_buffer"]
    np.testing.assert_array_equal(restored.to_dense().numpy(), velocity.to_dense().numpy())


def test_gradients_of_both_layouts():
    weight = wg.nn.Parameter(wg.tensor(TABLE))
    optimizer = wg.optim.SGD([weight], lr=0.1, momentum=0.9)
    sparse = wg.sparse_coo_tensor([[1, 1]], wg.ones(2, 3, dtype=wg.float64), (6, 3))
    expected, velocity = TABLE.copy(), np.zeros_like(TABLE)
    for grad in (sparse.to_dense(), sparse, sparse.to_dense()):
        weight.grad = grad
        optimizer.step()
        velocity = 0.9 * velocity + sparse.to_dense().numpy()
        expected -= 0.1 * velocity
    np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-12)
    other = wg.optim.SGD([weight], lr=0.1, momentum=0.9)
    weight.grad = sparse
    other.step()
    weight.grad = sparse.to_dense()
    with pytest.raises(NotImplementedError, match="the momentum_buffer of sparse gradients"):
        other.step()


def test_no_rows_and_tables_that_do_not_lie_in_rows():
    for name in ("SGD", "Adagrad", "SparseAdam"):
        weight = wg.nn.Parameter(wg.tensor(TABLE.T.copy()).t())
        optimizer = getattr(wg.optim, name)([weight], lr=0.1)
        weight.grad = wg.sparse_coo_tensor(wg.zeros(1, 0, dtype=wg.int64), wg.zeros(0, 3, dtype=wg.float64), (6, 3))
        optimizer.step()
        np.testing.assert_array_equal(weight.detach().numpy(), TABLE)
        weight.grad = wg.sparse_coo_tensor([[1]], wg.ones(1, 3, dtype=wg.float64), (6, 3))
        optimizer.step()
        assert (weight.detach().numpy() != TABLE).any(1).tolist() == [False, True, False, False, False, False]


def test_entries_of_two_dimensions_are_updated():
    weight = wg.nn.Parameter(wg.tensor(TABLE))
    weight.grad = wg.sparse_coo_tensor([[0, 5, 0], [1, 2, 1]], wg.ones(3, dtype=wg.float64), (6, 3))
    wg.optim.SGD([weight], lr=1.0).step()
    change = TABLE - weight.detach().numpy()
    assert np.isclose(change[0, 1], 2)
    assert np.isclose(change[5, 2], 1)
    assert np.count_nonzero(change) == 2
    add_into(weight, weight.grad, 1.0)
    np.testing.assert_allclose(weight.detach().numpy(), TABLE, rtol=1e-12)


# ---- what refuses them

OTHERS = [
    "ASGD", "Adadelta", "Adafactor", "Adam", "AdamW", "Adamax", "Lion", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop",
]  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_optimisers_refuse_them(name):
    weight = wg.nn.Parameter(wg.tensor(TABLE))
    weight.grad = wg.sparse_coo_tensor([[1]], wg.ones(1, 3, dtype=wg.float64), (6, 3))
    optimizer = getattr(wg.optim, name)([weight])
    with pytest.raises(RuntimeError, match=f"^{name} does not support sparse gradients"):
        optimizer.step()
    assert not optimizer.state[weight]
    np.testing.assert_array_equal(weight.detach().numpy(), TABLE)


@pytest.mark.parametrize("name", ["SGD", "Adagrad"])
def test_weight_decay_would_touch_every_row(name):
    weight = wg.nn.Parameter(wg.tensor(TABLE))
    weight.grad = wg.sparse_coo_tensor([[1]], wg.ones(1, 3, dtype=wg.float64), (6, 3))
    with pytest.raises(RuntimeError, match="weight_decay option is not compatible with sparse gradients"):
        getattr(wg.optim, name)([weight], lr=0.1, weight_decay=0.1).step()


def test_sparse_adam_refuses_dense_ones():
    weight = wg.nn.Parameter(wg.tensor(TABLE))
    weight.grad = wg.ones(6, 3, dtype=wg.float64)
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients, please consider Adam instead"):
        wg.optim.SparseAdam([weight]).step()


def test_lbfgs_takes_them_as_dense_ones():
    weight = wg.nn.Parameter(wg.tensor(TABLE))
    optimizer = wg.optim.LBFGS([weight], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = wg.nn.functional.embedding(wg.arange(6), weight, sparse=True).square().sum()
        loss.backward()
        return loss

    before = closure().item()
    optimizer.step(closure)
    assert closure().item() < 1e-3 * before

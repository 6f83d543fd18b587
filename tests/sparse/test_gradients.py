"""Gradients of and through sparse tensors, of any order, and what transforms and the compiler say of them."""

import numpy as np
import pytest

import wengert as wg

RNG = np.random.default_rng(2)
POSITIONS = np.array([[0, 1, 1, 2, 0], [2, 0, 0, 1, 2]])  # two of them twice
BATCH = np.array([[0, 0, 1, 1, 0], [0, 1, 1, 0, 0], [2, 0, 3, 1, 2]])
OTHERS = np.array([[0, 1, 2], [0, 0, 1]])


def leaf(*shape):
    return wg.tensor(RNG.uniform(0.5, 1.5, shape)).requires_grad_()


def coo(values, positions=POSITIONS, shape=(3, 4)):
    return wg.sparse_coo_tensor(positions, values, shape)


# Functions of entries in a pattern (or two), and of a dense matrix.
FUNCTIONS = {
    "to_dense": lambda v, w, d: coo(v).to_dense(),
    "coalesce": lambda v, w, d: coo(v).coalesce().values(),
    "times dense": lambda v, w, d: coo(v) @ d,
    "dense times": lambda v, w, d: d.t() @ coo(v).t(),
    "times a vector": lambda v, w, d: coo(v).mv(d[:, 0]),
    "vector times": lambda v, w, d: d[:3, 0] @ coo(v),
    "of csr": lambda v, w, d: coo(v).to_sparse_csr() @ d,
    "sparse times sparse": lambda v, w, d: (coo(v) @ coo(w, OTHERS).t()).to_dense(),
    "csr times csr": lambda v, w, d: (coo(v).to_sparse_csr() @ coo(w, OTHERS).t().to_sparse_csr()).to_dense(),
    "batch times batch": lambda v, w, d: wg.bmm(coo(v, BATCH, (2, 2, 4)), wg.stack((d, d.square()))),
    "dense batch times": lambda v, w, d: wg.bmm(wg.stack((d.t(), 1 - d.t())), coo(v, BATCH, (2, 2, 4)).transpose(1, 2)),
    "sum of two": lambda v, w, d: (coo(v) + coo(w, OTHERS) * 2).to_dense(),
    "difference to dense": lambda v, w, d: d.t()[:, :4].new_ones(3, 4).sub(coo(v), alpha=2),
    "product of two": lambda v, w, d: (coo(v) * coo(w, OTHERS)).to_dense(),
    "product with dense": lambda v, w, d: (coo(v, shape=(4, 3)) * d[:, :3]).to_dense(),
    "twice the same": lambda v, w, d: coo(v) @ d + coo(v).square() @ d,
    "one tensor, used twice": lambda v, w, d: (lambda s: s @ d + s.to_dense().sin() @ d)(coo(v)),
    "sum": lambda v, w, d: coo(v).sin().sum(),
    "sum over rows": lambda v, w, d: wg.sparse.sum(coo(v), 0).to_dense(),
    "norm": lambda v, w, d: coo(v).norm(),
    "softmax": lambda v, w, d: wg.sparse.softmax(coo(v), 1).to_dense(),
    "log_softmax": lambda v, w, d: wg.sparse.log_softmax(coo(v), 0).to_dense(),
    "addmm": lambda v, w, d: wg.sparse.addmm(d[:3], coo(v), d, beta=0.5, alpha=2),
    "sampled": lambda v, w, d: wg.sparse.sampled_addmm(coo(v, shape=(3, 3)), d[:3], d[1:].t()).to_dense(),
    "mask": lambda v, w, d: (d @ d.t())[:3].sparse_mask(coo(v).coalesce()).to_dense(),
    "to_sparse": lambda v, w, d: (d.to_sparse() * 3).to_dense(),
    "power": lambda v, w, d: (coo(v) ** 3).to_dense(),
    "float32 and back": lambda v, w, d: (coo(v) / 2).to(wg.float64).t().clone().to_dense(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_first_and_second_order(name):
    inputs = leaf(5), leaf(3), leaf(4, 3)

    def function(*given):
        return FUNCTIONS[name](*given) + 0 * sum(x.sum() for x in given)

    assert wg.autograd.gradcheck(function, inputs)
    assert wg.autograd.gradgradcheck(function, inputs)


def test_the_gradient_of_a_sparse_leaf_lies_on_its_pattern_each_position_once():
    values, dense = RNG.normal(size=5), RNG.normal(size=(4, 2))
    tensor = coo(wg.tensor(values)).requires_grad_()
    assert tensor.is_leaf
    assert tensor.requires_grad
    for count in (1, 2):
        (tensor @ wg.tensor(dense)).square().sum().backward()
        matrix = np.zeros((3, 4))
        np.add.at(matrix, tuple(POSITIONS), values)
        full = 2 * (matrix @ dense) @ dense.T
        there = np.zeros((3, 4))
        there[tuple(POSITIONS)] = 1
        assert tensor.grad.is_sparse
        assert tensor.grad._nnz() == there.sum()
        np.testing.assert_allclose(tensor.grad.to_dense().numpy(), count * full * there, rtol=1e-12)


def test_a_dense_factor_gets_a_dense_gradient():
    dense = leaf(4, 2)
    (coo(wg.ones(5, dtype=wg.float64)) @ dense).sum().backward()
    np.testing.assert_array_equal(dense.grad.numpy(), [[2, 2], [1, 1], [2, 2], [0, 0]])


def test_gradients_of_transforms_are_sparse():
    tensor, dense = coo(wg.ones(5)), wg.ones(4, 2)
    found = wg.func.grad(lambda s: (s @ dense).sum())(tensor)
    np.testing.assert_array_equal(found.to_dense().numpy(), [[0, 0, 2, 0], [2, 0, 0, 0], [0, 2, 0, 0]])
    value, pull = wg.func.vjp(lambda v: coo(v) @ dense, wg.ones(5))
    assert pull(wg.ones_like(value))[0].tolist() == [2.0] * 5


def test_writes_to_a_tensor_change_nothing_that_was_saved():
    values = leaf(5)
    tensor = coo(values)
    loss = tensor.coalesce().square().sum()
    tensor.mul_(3)
    loss.backward()
    want = 2 * coo(values).to_dense()
    np.testing.assert_allclose(values.grad.numpy(), want.detach().numpy()[tuple(POSITIONS)], rtol=1e-12)
    (g,) = wg.autograd.grad(tensor.sum(), values)
    assert g.tolist() == [3.0] * 5


def test_writes_to_entries_that_were_saved_are_noticed():
    tensor = coo(leaf(5)).coalesce()
    loss = tensor.square().sum()
    with wg.no_grad():
        tensor.values().mul_(2)
    with pytest.raises(wg.errors.InplaceError, match="changed"):
        loss.backward()


# ---- what says that it cannot

INSIDE = [
    (lambda: wg.func.jvp(lambda v: coo(v).to_dense(), (wg.ones(5),), (wg.ones(5),)), "forward mode"),
    (lambda: wg.func.vmap(lambda v: coo(v).to_dense())(wg.ones(2, 5)), "vmap"),
    (lambda: wg.func.jvp(lambda d: coo(wg.ones(5)) @ d, (wg.ones(4),), (wg.ones(4),)), "forward mode"),
    (lambda: wg.func.vmap(lambda d: coo(wg.ones(5)) @ d)(wg.ones(2, 4)), "vmap"),
    (lambda: wg.func.jvp(lambda s: s.to_dense(), (coo(wg.ones(5)),), (coo(wg.ones(5)),)), "forward mode"),
    (lambda: wg.func.vmap(lambda s: s.to_dense())(coo(wg.ones(5))), "vmap"),
]


@pytest.mark.parametrize(("call", "name"), INSIDE)
def test_forward_mode_and_batches_refuse_them(call, name):
    with pytest.raises(wg.errors.TransformError, match=f"cannot be used inside {name}"):
        call()


def test_the_compiler_runs_such_a_function_as_it_is():
    def function(v):
        return (coo(v) @ wg.ones(4)).sum()

    with pytest.warns(RuntimeWarning, match="run as it is, not compiled: sparse_coo_tensor"):
        found = wg.compile(function)(wg.ones(5))
    assert found == function(wg.ones(5))
    with pytest.raises(wg.errors.CaptureError, match="cannot be captured"):
        wg.compile(function, fullgraph=True)(wg.ones(5))

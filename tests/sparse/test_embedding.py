"""Sparse gradients of embeddings: they equal the dense ones, and the table of them is never made."""

import copy
import tracemalloc

import numpy as np
import pytest

import wengert as wg
import wengert.nn.functional as F

RNG = np.random.default_rng(3)
TABLE, INDEX = RNG.normal(size=(6, 3)), np.array([[1, 4, 1], [5, 1, 0]])

LOOKUPS = {
    "embedding": lambda t, **o: F.embedding(wg.tensor(INDEX), t, **o),
    "one row": lambda t, **o: F.embedding(wg.tensor(2), t, **o),
    "no rows": lambda t, **o: F.embedding(wg.zeros(0, dtype=wg.int64), t, **o),
    "int32": lambda t, **o: F.embedding(wg.tensor(INDEX, dtype=wg.int32), t, **o),
    "padding": lambda t, **o: F.embedding(wg.tensor(INDEX), t, padding_idx=1, **o),
    "sums": lambda t, **o: F.embedding_bag(wg.tensor(INDEX), t, mode="sum", **o),
    "means": lambda t, **o: F.embedding_bag(wg.tensor(INDEX), t, mode="mean", **o),
    "offsets": lambda t, **o: F.embedding_bag(wg.tensor(INDEX.ravel()), t, wg.tensor([0, 0, 4]), mode="mean", **o),
    "weighed": lambda t, **o: F.embedding_bag(
        wg.tensor(INDEX), t, mode="sum", per_sample_weights=wg.tensor([[1.0, 2.0, -1.0], [0.5, 3.0, 0.0]]).double(), **o
    ),
    "padded sums": lambda t, **o: F.embedding_bag(wg.tensor(INDEX), t, mode="sum", padding_idx=1, **o),
}


def gradient(name, sparse, times=1):
    table = wg.tensor(TABLE).requires_grad_()
    for _ in range(times):
        found = LOOKUPS[name](table, sparse=sparse)
        (found * wg.arange(found.numel()).reshape(found.shape).double().sin()).sum().backward()
    return table.grad


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("name", LOOKUPS)
def test_the_sparse_gradient_equals_the_dense_one(name, times):
    sparse, dense = gradient(name, True, times), gradient(name, False, times)
    assert sparse.is_sparse
    assert (sparse.sparse_dim(), sparse.dense_dim()) == (1, 1)
    np.testing.assert_allclose(sparse.to_dense().numpy(), dense.numpy(), rtol=1e-12, atol=1e-15)


def test_a_sparse_gradient_is_added_to_a_dense_one_where_it_lies():
    table = wg.nn.Parameter(wg.zeros(4, 2))
    table.grad = held = wg.ones(4, 2)
    memory = held.data_ptr()
    F.embedding(wg.tensor([1, 1]), table, sparse=True).sum().backward()
    assert table.grad is held
    assert held.data_ptr() == memory
    assert held.tolist() == [[1, 1], [3, 3], [1, 1], [1, 1]]


def test_gradients_that_accumulate_are_joined():
    table = wg.tensor(TABLE).requires_grad_()
    for index in ([1, 1], [4]):
        F.embedding(wg.tensor(index), table, sparse=True).sum().backward()
    assert table.grad._indices().tolist() == [[1, 1, 4]]
    assert table.grad.coalesce().values().tolist() == [[2.0] * 3, [1.0] * 3]


def test_a_padding_row_is_not_in_the_gradient():
    assert gradient("padding", True)._indices().tolist() == [[4, 5, 0]]
    assert 1 not in gradient("padded sums", True)._indices().tolist()[0]


@pytest.mark.parametrize("order", ["sparse first", "dense first", "at once"])
def test_with_a_dense_gradient_it_becomes_dense(order):
    table = wg.tensor(TABLE).requires_grad_()
    parts = [lambda: F.embedding(wg.tensor([1, 1]), table, sparse=True).sum(), lambda: (table * 2).sum()]
    if order == "at once":
        (parts[0]() + parts[1]()).backward()
    else:
        for part in parts if order == "sparse first" else parts[::-1]:
            part().backward()
    assert not table.grad.is_sparse
    np.testing.assert_array_equal(table.grad.numpy(), 2 + 2 * (np.arange(6) == 1)[:, None] * np.ones(3))


def test_it_passes_through_what_leads_to_the_table():
    weight = wg.tensor(TABLE).requires_grad_()
    F.embedding(wg.tensor([1, 1, 3]), weight * 2, sparse=True).sum().backward()
    np.testing.assert_array_equal(weight.grad.to_dense().numpy()[[1, 3]], [[4] * 3, [2] * 3])


def test_gradients_of_gradients():
    def penalty(sparse):
        table = wg.tensor(TABLE).requires_grad_()
        rows = F.embedding(wg.tensor(INDEX), table, sparse=sparse)
        (g,) = wg.autograd.grad((rows**3).sum(), table, create_graph=True)
        assert g.is_sparse is sparse
        assert g.requires_grad
        (g.to_dense() ** 2).sum().backward()
        return table.grad.to_dense().numpy()

    np.testing.assert_allclose(penalty(True), penalty(False), rtol=1e-12)


def test_hooks_see_the_sparse_gradient():
    layer, seen = wg.nn.Embedding(6, 3, sparse=True), []
    layer.weight.register_hook(lambda g: seen.append(g.layout) or g * 2)
    layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad._nnz()))
    layer(wg.tensor([1, 1])).sum().backward()
    assert seen == [wg.sparse_coo, 2]
    assert layer.weight.grad._values().tolist() == [[2.0] * 3] * 2


def test_gradients_are_set_cleared_and_copied():
    layer = wg.nn.Embedding(6, 3, sparse=True)
    layer.weight.grad = wg.sparse_coo_tensor([[2]], [[1.0, 2.0, 3.0]], (6, 3))
    held = copy.deepcopy(layer.weight.grad)
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad.is_sparse
    assert layer.weight.grad._nnz() == 0
    assert held._nnz() == 1
    with pytest.raises(RuntimeError, match="shape"):
        layer.weight.grad = wg.sparse_coo_tensor([[2]], [[1.0]], (6, 1))


def test_layers_say_that_they_are_sparse():
    assert repr(wg.nn.Embedding(6, 3, sparse=True)) == "Embedding(6, 3, sparse=True)"
    layer = wg.nn.EmbeddingBag.from_pretrained(wg.tensor(TABLE), freeze=False, mode="sum", sparse=True)
    layer(wg.tensor(INDEX)).sum().backward()
    assert layer.weight.grad.is_sparse
    assert wg.nn.Embedding(6, 3, sparse=True).state_dict().keys() == {"weight"}


def test_what_has_no_sparse_gradient_says_so():
    table = wg.tensor(TABLE).requires_grad_()
    with pytest.raises(NotImplementedError, match="scale_grad_by_freq"):
        F.embedding(wg.tensor([1]), table, scale_grad_by_freq=True, sparse=True)
    with pytest.raises(ValueError, match="max"):
        F.embedding_bag(wg.tensor([[1]]), table, mode="max", sparse=True)


@pytest.mark.parametrize("norm", [1.0, 2.0, np.inf])
def test_norms_are_clipped(norm):
    sparse, dense = (wg.nn.Parameter(wg.tensor(TABLE)) for _ in range(2))
    sparse.grad, dense.grad = gradient("embedding", True), gradient("embedding", False)
    totals = [wg.nn.utils.clip_grad_norm_(p, 0.5, norm) for p in (sparse, dense)]
    np.testing.assert_allclose(totals[0].item(), totals[1].item(), rtol=1e-12)
    np.testing.assert_allclose(sparse.grad.to_dense().numpy(), dense.grad.numpy(), rtol=1e-12)
    for p in (sparse, dense):
        wg.nn.utils.clip_grad_value_(p, 0.1)
    assert dense.grad.abs().max() == 0.1
    np.testing.assert_allclose(sparse.grad.to_dense().numpy(), dense.grad.numpy(), rtol=1e-12)


def test_a_scaler_scales_them():
    layer = wg.nn.Embedding(6, 3, sparse=True)
    scaler, optimizer = wg.amp.GradScaler(init_scale=4.0), wg.optim.SGD(layer.parameters(), lr=1.0)
    before = layer.weight.detach().clone()
    scaler.scale(layer(wg.tensor([1, 1])).sum()).backward()
    scaler.unscale_(optimizer)
    assert layer.weight.grad.coalesce().values().tolist() == [[2.0] * 3]
    scaler.step(optimizer)
    np.testing.assert_allclose((before - layer.weight).detach().numpy()[1], [2.0] * 3, rtol=1e-6)


def test_the_table_of_gradients_is_never_made():
    layer = wg.nn.Embedding(200_000, 8, sparse=True)
    optimizers = [wg.optim.SGD(layer.parameters(), lr=0.1), wg.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)]
    index = wg.tensor(RNG.integers(0, 200_000, 50))
    for optimizer in (*optimizers, wg.optim.Adagrad(layer.parameters()), wg.optim.SparseAdam(layer.parameters())):
        for step in range(2):
            optimizer.zero_grad()
            if step:  # the first one makes the state
                tracemalloc.start()
            layer(index).square().sum().backward()
            optimizer.step()
            if step:
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                assert peak < 200_000, (
                    f"{type(optimizer).__name__} used {peak} bytes, the table has {layer.weight.nbytes}"
                )


def test_the_compiler_runs_the_lookup_as_it_is():
    wg.manual_seed(0)  # the numbers do not add up to nearly nothing
    layer = wg.nn.Embedding(6, 3, sparse=True)
    index = wg.tensor([1, 1])
    with pytest.warns(RuntimeWarning, match="compile the whole step"):
        wg.compile(lambda i: layer(i).sum())(index).backward()
    assert layer.weight.grad.is_sparse
    with wg.no_grad():  # no gradient, so nothing is sparse
        np.testing.assert_allclose(
            wg.compile(lambda i: layer(i).sum(), fullgraph=True)(index), layer(index).sum(), rtol=1e-6
        )


def test_examples_in_a_batch_share_a_table_that_needs_no_gradient():
    table = wg.tensor(TABLE)
    found = wg.func.vmap(lambda i: F.embedding(i, table, sparse=True))(wg.tensor(INDEX))
    np.testing.assert_array_equal(found.numpy(), TABLE[INDEX])
    with pytest.raises(wg.errors.TransformError, match="vmap"):
        wg.func.vmap(lambda i: F.embedding(i, table.requires_grad_(), sparse=True))(wg.tensor(INDEX))

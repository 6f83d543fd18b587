"""Sparse tensors themselves: how they are made, what they hold, how they print, and what they are as dense arrays."""

import copy
import pickle

import numpy as np
import pytest

import wengert as wg

RNG = np.random.default_rng(0)
POSITIONS, ENTRIES = np.array([[0, 1, 1], [2, 0, 0]]), np.array([3.0, 4.0, 5.0])
DENSE = np.array([[0.0, 0.0, 3.0], [9.0, 0.0, 0.0]])


def coo(**options):
    return wg.sparse_coo_tensor(POSITIONS, wg.tensor(ENTRIES), (2, 3), **options)


def csr():
    return wg.sparse_csr_tensor([0, 1, 2], [2, 0], wg.tensor([3.0, 9.0], dtype=wg.float64), (2, 3))


def same(got, want):
    np.testing.assert_array_equal(got.detach().numpy(), want)


# ---- what they are


def test_the_parts_of_a_coo_tensor():
    tensor = coo()
    assert (tensor.shape, tensor.dtype, tensor.ndim, tensor.numel()) == ((2, 3), wg.float64, 2, 6)
    assert (tensor.layout, tensor.is_sparse, tensor.is_sparse_csr) == (wg.sparse_coo, True, False)
    assert (tensor.sparse_dim(), tensor.dense_dim(), tensor._nnz(), tensor.is_coalesced()) == (2, 0, 3, False)
    same(tensor._indices(), POSITIONS)
    same(tensor._values(), ENTRIES)
    same(tensor.to_dense(), DENSE)


def test_coalescing_sums_entries_at_one_position():
    tensor = coo().coalesce()
    assert tensor.is_coalesced()
    assert tensor.coalesce() is tensor
    same(tensor.indices(), [[0, 1], [2, 0]])
    same(tensor.values(), [3.0, 9.0])
    same(tensor.to_dense(), DENSE)


def test_the_parts_of_a_csr_tensor():
    tensor = csr()
    assert (tensor.layout, tensor.is_sparse, tensor.is_sparse_csr, tensor._nnz()) == (wg.sparse_csr, False, True, 2)
    same(tensor.crow_indices(), [0, 1, 2])
    same(tensor.col_indices(), [2, 0])
    same(tensor.values(), [3.0, 9.0])
    same(tensor.to_dense(), DENSE)


def test_a_dense_tensor_is_strided():
    tensor = wg.ones(2, 3)
    assert (tensor.layout, tensor.is_sparse, tensor.sparse_dim(), tensor.dense_dim()) == (wg.strided, False, 0, 2)
    assert tensor.to_dense() is tensor


def test_entries_may_have_dimensions_and_a_shape_may_be_inferred():
    tensor = wg.sparse_coo_tensor([[3, 1]], wg.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert (tensor.shape, tensor.sparse_dim(), tensor.dense_dim()) == ((4, 2), 1, 1)
    same(tensor.to_dense(), [[0, 0], [3, 4], [0, 0], [1, 2]])


def test_a_tensor_without_entries():
    tensor = wg.sparse_coo_tensor((2, 3))
    assert tensor._nnz() == 0
    assert tensor.is_coalesced()
    same(tensor.to_dense(), np.zeros((2, 3)))
    same(wg.sparse_coo_tensor([[], []], [], (2, 3)).to_dense(), np.zeros((2, 3)))
    same(wg.zeros(2, 3).to_sparse().to_dense(), np.zeros((2, 3)))
    same(wg.zeros(2, 3).to_sparse_csr().to_dense(), np.zeros((2, 3)))


def test_entries_share_the_memory_of_the_tensor_they_were_made_of():
    values = wg.tensor(ENTRIES)
    tensor = wg.sparse_coo_tensor(POSITIONS, values, (2, 3))
    values[0] = 7.0
    assert tensor.to_dense()[0, 2] == 7.0
    tensor._values().mul_(2)
    assert values[0] == 14.0


# ---- between layouts

SHAPES = [((4,), None), ((3, 4), None), ((3, 4), 1), ((2, 3, 4), None), ((2, 3, 4), 2), ((0, 3), None), ((), None)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "complex128", "bfloat16", "float16"])
@pytest.mark.parametrize(("shape", "sparse_dim"), SHAPES, ids=str)
def test_to_sparse_keeps_every_element(shape, sparse_dim, dtype):
    array = RNG.integers(-1, 2, shape)
    dense = wg.tensor(array).to(getattr(wg, dtype))
    sparse = dense.to_sparse(sparse_dim)
    assert sparse.dtype is dense.dtype
    assert sparse.is_coalesced()
    if sparse_dim is None:
        assert sparse._nnz() == np.count_nonzero(array)
    same(sparse.to_dense().to(wg.complex128), dense.to(wg.complex128).numpy())
    if len(shape) == 2 and sparse_dim is None:
        same(
            dense.to_sparse_csr().to_sparse_coo().to_sparse_csr().to_dense().to(wg.complex128),
            dense.to(wg.complex128).numpy(),
        )


def test_a_layout_may_be_named():
    dense = wg.tensor(DENSE)
    assert dense.to_sparse(layout=wg.sparse_csr).is_sparse_csr
    assert dense.to_sparse(layout=wg.sparse_coo).is_sparse
    assert coo().to_sparse_csr().col_indices().tolist() == [2, 0]


def test_a_mask_chooses_positions():
    dense = wg.tensor(np.arange(6.0).reshape(2, 3))
    masked = dense.sparse_mask(coo().coalesce())
    same(masked.values(), [2.0, 3.0])
    other = wg.sparse_coo_tensor([[0, 0], [0, 2]], wg.tensor([8.0, 7.0], dtype=wg.float64), (2, 3))
    same(other.sparse_mask(coo().coalesce()).values(), [7.0, 0.0])


# ---- copies


@pytest.mark.parametrize("copied", [lambda t: t.clone(), copy.deepcopy], ids=["clone", "deepcopy"])
@pytest.mark.parametrize("make", [coo, csr], ids=["coo", "csr"])
def test_copies_have_memory_of_their_own(make, copied):
    tensor = make()
    other = copied(tensor)
    other._values().zero_()
    same(tensor.to_dense(), DENSE)
    same(other.to_dense(), np.zeros((2, 3)))


def test_writes_leave_aliases_as_they_are():
    tensor = coo()
    alias = tensor.detach()
    tensor.mul_(2)
    same(tensor.to_dense(), 2 * DENSE)
    same(alias.to_dense(), DENSE)
    tensor.zero_()
    assert tensor._nnz() == 0


def test_files_hold_them(tmp_path):
    wg.save({"a": coo(), "b": [csr()], "c": coo().coalesce()}, tmp_path / "x.wg")
    found = wg.load(tmp_path / "x.wg")
    assert [found["a"].is_coalesced(), found["c"].is_coalesced(), found["b"][0].layout] == [False, True, wg.sparse_csr]
    for tensor in (found["a"], found["b"][0], found["c"]):
        same(tensor.to_dense(), DENSE)


@pytest.mark.parametrize("again", [lambda t: pickle.loads(pickle.dumps(t)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("make", [coo, csr, lambda: coo().coalesce()])
def test_pickles_and_copies_hold_them(make, again):
    tensor = make().requires_grad_()
    found = again(tensor)
    assert (found.layout, found.requires_grad, found.dtype) == (tensor.layout, True, tensor.dtype)
    same(found.to_dense(), DENSE)
    assert str(found) == str(tensor)
    found.to_dense().sum().backward()
    assert tensor.grad is None


def test_what_does_not_hold_them_says_so(tmp_path):
    with pytest.raises(TypeError, match=r"'a' is a wengert\.sparse_coo tensor, which safetensors"):
        wg.save_file({"a": coo()}, tmp_path / "x.safetensors")
    with pytest.raises(TypeError, match=r"numpy\(\) needs all elements.*to_dense"):
        coo().numpy()


# ---- printing

PRINTED = [
    (
        coo,
        "tensor(indices=tensor([[0, 1, 1],\n                       [2, 0, 0]]),\n       values=tensor([3., 4., 5.]),\n"
        "       size=(2, 3), nnz=3, dtype=wengert.float64, layout=wengert.sparse_coo)",
    ),
    (
        csr,
        "tensor(crow_indices=tensor([0, 1, 2]),\n       col_indices=tensor([2, 0]),\n       values=tensor([3., 9.]), "
        "size=(2, 3), nnz=2, dtype=wengert.float64,\n       layout=wengert.sparse_csr)",
    ),
    (
        lambda: wg.sparse_coo_tensor([[0]], [[1.0, 2.0]], (2, 2)).requires_grad_(),
        "tensor(indices=tensor([[0]]),\n       values=tensor([[1., 2.]]),\n       size=(2, 2), nnz=1, "
        "layout=wengert.sparse_coo, requires_grad=True)",
    ),
    (
        lambda: wg.sparse_coo_tensor((2, 3)),
        "tensor(indices=tensor([], size=(2, 0)),\n       values=tensor([], size=(0,)),\n       size=(2, 3), nnz=0, "
        "layout=wengert.sparse_coo)",
    ),
]


@pytest.mark.parametrize(("make", "text"), PRINTED)
def test_they_print_as_pytorchs(make, text):
    assert repr(make()) == text


# ---- what is refused

WRONG = [
    (lambda: wg.sparse_coo_tensor([[0], [0]], [1.0], (2**40, 2**40)), RuntimeError, r"more than 2\*\*63 - 1 elements"),
    (lambda: wg.sparse_coo_tensor((2**40, 2**40)), RuntimeError, r"more than 2\*\*63 - 1 elements"),
    (
        lambda: wg.sparse_csr_tensor([0, 1], [2**63 - 2], [1.0], (1, 2**63)),
        RuntimeError,
        r"more than 2\*\*63 - 1 elements",
    ),
    (lambda: wg.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,)), ValueError, "does not hold all indices"),
    (lambda: wg.sparse_coo_tensor([[0, -1]], [1.0, 2.0], (3,)), ValueError, "does not hold all indices"),
    (lambda: wg.sparse_coo_tensor([[0, 1]], [1.0], (3,)), RuntimeError, "same nnz"),
    (lambda: wg.sparse_coo_tensor([[0.5, 1.0]], [1.0, 2.0], (3,)), TypeError, "indices must be integers"),
    (lambda: wg.sparse_coo_tensor([0, 1], [1.0, 2.0], (3,)), RuntimeError, "must have 2 dimensions"),
    (lambda: wg.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3, 2)), RuntimeError, "one size for each"),
    (lambda: wg.sparse_coo_tensor([[1, 0]], [1.0, 2.0], (3,), is_coalesced=True), ValueError, "do not rise"),
    (lambda: wg.sparse_csr_tensor([0, 1], [0, 1], [1.0, 2.0], (2, 2)), RuntimeError, "crow_indices"),
    (lambda: wg.sparse_csr_tensor([0, 2, 1], [0, 1], [1.0, 2.0], (2, 2)), RuntimeError, "crow_indices"),
    (lambda: wg.sparse_csr_tensor([0, 1, 2], [0, 5], [1.0, 2.0], (2, 2)), RuntimeError, "col_indices must be"),
    (lambda: wg.sparse_csr_tensor([0, 2, 2], [1, 0], [1.0, 2.0], (2, 2)), RuntimeError, "rise in each row"),
    (lambda: wg.sparse_csr_tensor([0, 1], [0], [1.0, 2.0], (1, 2)), RuntimeError, "one length"),
    (lambda: coo().indices(), RuntimeError, "not coalesced"),
    (lambda: coo().values(), RuntimeError, "not coalesced"),
    (lambda: csr().indices(), NotImplementedError, "sparse_coo tensors, this one is wengert.sparse_csr"),
    (lambda: coo().crow_indices(), NotImplementedError, "sparse_csr tensors, this one is wengert.sparse_coo"),
    (lambda: wg.ones(2).values(), NotImplementedError, "got a dense one"),
    (lambda: wg.ones(2)._nnz(), NotImplementedError, "got a dense one"),
    (lambda: wg.ones(2).coalesce(), NotImplementedError, "this one is wengert.strided"),
    (lambda: wg.ones(2).to_sparse_csr(), RuntimeError, "takes a matrix"),
    (lambda: wg.ones(2).to_sparse(2), ValueError, "sparse_dim must be"),
    (lambda: wg.ones(2, 2).to_sparse(layout=wg.strided), NotImplementedError, "there are wengert.sparse_coo"),
    (lambda: wg.ones(2).sparse_mask(coo()), RuntimeError, "takes a sparse tensor of shape"),
    (lambda: coo().stride(), NotImplementedError, "to_dense"),
    (lambda: coo().add_(wg.ones(2, 3, dtype=wg.float64)), NotImplementedError, "dense tensor cannot be written"),
    (lambda: wg.ones(2, 3).copy_(coo()), NotImplementedError, "to_dense"),
    (lambda: coo().new_zeros(2), NotImplementedError, "would be dense"),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG)
def test_wrong_arguments_are_named(call, error, text):
    with pytest.raises(error, match=text):
        call()

"""Tensors like sparse ones: which are sparse too, and which would be dense, and say so."""

from typing import Any

import numpy as np
import pytest

import wengert as wg

MAKERS: dict[str, tuple[Any, ...]] = {
    "zeros_like": (), "ones_like": (), "empty_like": (), "full_like": (2,), "rand_like": (), "randn_like": (),
    "randint_like": (5,),
}  # fmt: skip


def coo() -> Any:
    return wg.sparse_coo_tensor([[0, 1, 1], [1, 0, 0]], [1.0, 2.0, 3.0], (2, 3), dtype=wg.float64)


def csr() -> Any:
    return coo().coalesce().to_sparse_csr()


def hybrid() -> Any:
    return wg.sparse_coo_tensor([[0, 2]], np.ones((2, 4)), (3, 4), requires_grad=True)


@pytest.mark.parametrize(
    ("name", "source"),
    [("zeros_like", coo), ("zeros_like", csr), ("zeros_like", hybrid), ("empty_like", coo), ("empty_like", hybrid)],
)
@pytest.mark.parametrize("options", [{}, {"dtype": wg.int16}, {"requires_grad": True}, {"device": "cpu"}], ids=str)
def test_what_has_no_entries(name: str, options: dict[str, Any], source: Any) -> None:
    tensor = source()
    found = getattr(wg, name)(tensor, **options)
    assert (found.layout, found.shape, found._nnz()) == (tensor.layout, tensor.shape, 0)
    assert (found.sparse_dim(), found.dense_dim()) == (tensor.sparse_dim(), tensor.dense_dim())
    assert found.dtype is options.get("dtype", wg.float64)
    assert found.requires_grad is options.get("requires_grad", False)
    assert not found.to_dense().any()
    assert tensor._nnz() > 0
    if source is not csr:
        assert found.is_coalesced()


@pytest.mark.parametrize(
    ("name", "wanted"), [("ones_like", 1), ("full_like", 2), ("empty_like", None), ("randn_like", None)]
)
def test_what_keeps_the_pattern_of_compressed_rows(name: str, wanted: int | None) -> None:
    tensor = csr()
    found = getattr(wg, name)(tensor, *MAKERS[name], dtype=wg.float32, requires_grad=True)
    assert (found.layout, found.dtype, found.requires_grad) == (wg.sparse_csr, wg.float32, True)
    assert found.crow_indices().tolist() == tensor.crow_indices().tolist() == [0, 1, 2]
    assert found.col_indices().tolist() == tensor.col_indices().tolist() == [1, 0]
    assert wanted is None or found.values().tolist() == [wanted, wanted]
    assert tensor.values().tolist() == [1.0, 5.0]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("source", [coo, csr], ids=lambda f: f.__name__)
def test_dense_ones_are_made_where_they_are_asked_for(name: str, source: Any) -> None:
    found = getattr(wg, name)(source(), *MAKERS[name], layout=wg.strided)
    assert (found.layout, found.shape, found.dtype) == (wg.strided, (2, 3), wg.float64)


HUGE = (1 << 31, 1 << 31)  # of which no dense one could be made


@pytest.mark.parametrize("name", MAKERS)
def test_what_would_be_dense_is_refused_before_it_is_made(name: str) -> None:
    tensor = wg.sparse_coo_tensor(HUGE)
    if name in ("zeros_like", "empty_like"):
        assert getattr(wg, name)(tensor).shape == HUGE
        return
    given = [tensor] if name in ("ones_like", "full_like", "randn_like") else [tensor, csr()]
    for one in given:
        with pytest.raises(
            NotImplementedError, match=rf"^{name}\(\) of a tensor with layout {one.layout} would be dense; give"
        ):
            getattr(wg, name)(one, *MAKERS[name])


@pytest.mark.parametrize(("call", "text"), [
    (lambda: wg.zeros_like(coo(), memory_format=wg.contiguous_format), "memory_format is for dense tensors"),
    (lambda: wg.zeros_like(coo(), layout=wg.sparse_csr), "of a tensor with layout wengert.sparse_coo cannot have"),
    (lambda: wg.ones_like(wg.ones(2), layout=wg.sparse_coo), r"ones_like\(\) of a tensor with layout wengert.strided cannot"),
    (lambda: wg.rand_like(wg.ones(2), layout=wg.sparse_coo), r"rand_like\(\) of a tensor with layout wengert.strided cannot"),
])  # fmt: skip
def test_layouts_that_they_cannot_have(call: Any, text: str) -> None:
    with pytest.raises(NotImplementedError, match=text):
        call()


def test_what_is_no_tensor_is_named() -> None:
    with pytest.raises(TypeError, match=r"rand_like\(\): input must be a tensor, got list"):
        wg.rand_like([1.0])


def test_the_gradient_of_what_is_filled_is_without_entries() -> None:
    values = wg.tensor([1.0, 2.0], requires_grad=True)
    tensor = wg.sparse_coo_tensor([[0, 1]], values, (2,)) * 1
    tensor.zero_()
    (tensor + wg.sparse_coo_tensor([[1]], values[:1], (2,))).to_dense().sum().backward()
    assert values.grad.tolist() == [1.0, 0.0]

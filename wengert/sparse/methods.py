"""What sparse tensors add to every tensor: their parts, their layout, and the ways between layouts."""

from typing import Any

from wengert.array.layout import sparse_coo, sparse_csr, strided
from wengert.core.methods import attach
from wengert.core.tensor import alias, from_array
from wengert.errors import SparseError
from wengert.sparse import convert
from wengert.sparse.pattern import Csr
from wengert.sparse.payload import entries, is_sparse, refuse_dense

__all__: list[str] = []


def _csr_of(name: str, tensor: Any) -> Csr:
    pattern = tensor._payload.pattern if is_sparse(tensor) else None
    if not isinstance(pattern, Csr):
        found = strided if pattern is None else pattern.layout
        raise SparseError(f"{name}() is for wengert.sparse_csr tensors, this one is {found}; use .to_sparse_csr()")
    return pattern


def layout(self: Any) -> Any:
    """How its elements are stored: ``wengert.strided``, ``wengert.sparse_coo`` or ``wengert.sparse_csr``."""
    return self._payload.pattern.layout if is_sparse(self) else strided


def is_coalesced(self: Any) -> bool:
    """Return True for a COO tensor whose positions are known to rise, each occurring once."""
    return convert.coo_of("is_coalesced", self).coalesced


def indices(self: Any) -> Any:
    """Return the positions of a coalesced COO tensor, (sparse dimensions, nnz)."""
    _check_coalesced("indices", self)
    return _indices(self)


def values(self: Any) -> Any:
    """Return the entries of a sparse tensor, (nnz, *dense dimensions), on its memory; gradients flow through them.

    Raises:
        RuntimeError: for a COO tensor that is not coalesced.
    """
    refuse_dense("values", self)
    if not isinstance(self._payload.pattern, Csr):
        _check_coalesced("values", self)
    return entries(self)


def _check_coalesced(name: str, tensor: Any) -> None:
    if not convert.coo_of(name, tensor).coalesced:
        raise RuntimeError(f"{name}() of a tensor that is not coalesced; call .coalesce() first, or use ._{name}()")


def _indices(self: Any) -> Any:
    """Return the positions of a COO tensor, coalesced or not."""
    return from_array(convert.coo_of("_indices", self).positions.copy())


def _values(self: Any) -> Any:
    """Return the entries of a COO tensor, coalesced or not, on its memory and without history."""
    refuse_dense("_values", self)
    return alias(self._payload.entries)


def crow_indices(self: Any) -> Any:
    """Return where the rows of a CSR matrix start among its entries, and where the last one ends."""
    return from_array(_csr_of("crow_indices", self).starts.copy())


def col_indices(self: Any) -> Any:
    """Return the column of each entry of a CSR matrix."""
    return from_array(_csr_of("col_indices", self).columns.copy())


def sparse_dim(self: Any) -> int:
    """Return how many dimensions are indexed: 0 for a dense tensor."""
    return int(self._payload.pattern.sparse_dim) if is_sparse(self) else 0


def dense_dim(self: Any) -> int:
    """Return how many dimensions each entry has: all, for a dense tensor."""
    return self.ndim - sparse_dim(self)


def _nnz(self: Any) -> int:
    """Return how many entries a sparse tensor has."""
    refuse_dense("_nnz", self)
    return int(self._payload.pattern.count)


for _method in (
    indices, values, _indices, _values, crow_indices, col_indices, is_coalesced, sparse_dim, dense_dim, _nnz,
    convert.coalesce, convert.to_dense, convert.to_sparse, convert.to_sparse_coo, convert.to_sparse_csr, convert.sparse_mask,
):  # fmt: skip
    attach(_method.__name__, _method)
attach("layout", property(layout))
attach("is_sparse", property(lambda self: layout(self) is sparse_coo, doc="Whether it is a COO tensor."))
attach("is_sparse_csr", property(lambda self: layout(self) is sparse_csr, doc="Whether it is a CSR tensor."))

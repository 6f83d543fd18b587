"""From dense tensors to sparse ones and back, and between layouts. Gradients pass through."""

from typing import Any

import numpy as np

from wengert.array.dtype import bool_, int64, to_dtype
from wengert.array.layout import layout, sparse_coo, sparse_csr, strided
from wengert.core.registry import ops
from wengert.core.tensor import from_array, raw
from wengert.errors import ShapeError, SparseError
from wengert.sparse.pattern import Coo
from wengert.sparse.payload import entries, is_sparse, made, read

__all__ = ["coalesce", "sparse_mask", "summed_entries", "to_dense", "to_sparse", "to_sparse_coo", "to_sparse_csr"]


def coalesce(self: Any) -> Any:
    """Return a COO tensor in which positions rise and occur once: entries at one position are summed.

    A tensor that is coalesced is returned itself.

    Example:
        >>> import wengert as wg
        >>> wg.sparse_coo_tensor([[1, 0, 1]], [1.0, 2.0, 3.0], (3,)).coalesce()
        tensor(indices=tensor([[0, 1]]),
               values=tensor([2., 4.]),
               size=(3,), nnz=2, layout=wengert.sparse_coo)
    """
    pattern = coo_of("coalesce", self)
    if pattern.coalesced:
        return self
    merged, groups = pattern.merged
    return made(summed_entries(entries(self), groups, merged.count), merged)


def summed_entries(values: Any, groups: Any, count: int) -> Any:
    """Return the sums of the entries that go to each of ``count`` places."""
    if values.dtype is bool_:
        return ops.cast(ops.add_rows(ops.cast(values, int64), from_array(groups), count), bool_)
    return ops.add_rows(values, from_array(groups), count)


def coo_of(name: str, tensor: Any) -> Coo:
    """Return the pattern of a COO tensor.

    Raises:
        SparseError: for any other.
    """
    pattern = tensor._payload.pattern if is_sparse(tensor) else None
    if pattern is not None and pattern.captured:
        return pattern.coo
    if not isinstance(pattern, Coo):
        found = strided if pattern is None else pattern.layout
        raise SparseError(f"{name}() is for wengert.sparse_coo tensors, this one is {found}; use .to_sparse()")
    return pattern


def to_dense(self: Any, dtype: Any = None, *, masked_grad: bool | None = None) -> Any:
    """Return a sparse tensor with all its elements in one block; a dense one itself.

    Args:
        dtype: of the result, if it is to be another one. masked_grad: accepted for PyTorch's sake; the gradient always lies
            on the pattern.

    Example:
        >>> import wengert as wg
        >>> wg.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2)).to_dense()
        tensor([[0., 1.],
                [2., 0.]])
    """
    found = self
    if is_sparse(self):
        pattern = self._payload.pattern
        found = ops.reshape(summed_entries(entries(self), pattern.coo.keys, pattern.places), pattern.shape)
    return found if dtype is None else found.to(to_dtype(dtype))


def to_sparse(self: Any, sparse_dim: int | None = None, *, layout: layout | None = None, **blocks: Any) -> Any:
    """Return the elements that are not zero, as a sparse tensor.

    Args:
        sparse_dim: how many dimensions, the first ones, are indexed; an entry is kept if any of it is not zero.
        layout: ``wengert.sparse_coo``, the default, or ``wengert.sparse_csr``.

    Raises:
        NotImplementedError: for another layout. ValueError: for a ``sparse_dim`` that the tensor does not have.

    Example:
        >>> import wengert as wg
        >>> wg.tensor([[0.0, 3.0], [0.0, 0.0]]).to_sparse()
        tensor(indices=tensor([[0],
                               [1]]),
               values=tensor([3.]),
               size=(2, 2), nnz=1, layout=wengert.sparse_coo)
    """
    if layout is sparse_csr:
        return to_sparse_csr(self)
    if layout not in (None, sparse_coo) or any(v is not None for v in blocks.values()):
        raise NotImplementedError(
            f"to_sparse(): there are wengert.sparse_coo and wengert.sparse_csr, got {layout or blocks}"
        )
    if is_sparse(self):
        pattern = self._payload.pattern
        return self if isinstance(pattern, Coo) else made(entries(self), pattern.coo)
    ndim = self.ndim if sparse_dim is None else sparse_dim
    if not 0 <= ndim <= self.ndim or (not ndim and self.ndim):
        raise ValueError(f"to_sparse(): sparse_dim must be from 1 to {self.ndim}, got {sparse_dim}")
    there = raw(self, "to_sparse(), which looks for elements that are not zero,") != 0
    kept = there.any(tuple(range(ndim, self.ndim))) if ndim < self.ndim else there
    positions = np.array(np.nonzero(kept), np.int64) if ndim else np.zeros((0, int(kept)), np.int64)
    pattern = Coo(positions, tuple(self.shape), True)
    return made(read(self, pattern), pattern)


def to_sparse_coo(self: Any) -> Any:
    """Return the tensor as a COO tensor; see :meth:`to_sparse`."""
    return to_sparse(self)


def to_sparse_csr(self: Any, dense_dim: int | None = None) -> Any:
    """Return a matrix in compressed rows (CSR).

    Raises:
        ShapeError: for a tensor that is no matrix of numbers.

    Example:
        >>> import wengert as wg
        >>> wg.tensor([[0.0, 3.0], [4.0, 0.0]]).to_sparse_csr()
        tensor(crow_indices=tensor([0, 1, 2]),
               col_indices=tensor([1, 0]),
               values=tensor([3., 4.]), size=(2, 2), nnz=2, layout=wengert.sparse_csr)
    """
    if self.ndim != 2 or dense_dim or (is_sparse(self) and self._payload.pattern.sparse_dim != 2):
        raise ShapeError(
            f"to_sparse_csr() takes a matrix all of whose dimensions are sparse, got shape {tuple(self.shape)}"
        )
    if is_sparse(self) and self._payload.pattern.layout is sparse_csr:
        return self
    found = coalesce(to_sparse(self))
    return made(entries(found), found._payload.pattern.csr)


def sparse_mask(self: Any, mask: Any) -> Any:
    """Return the elements of the tensor at the positions of a sparse ``mask`` of its shape, as a sparse tensor."""
    if not is_sparse(mask) or tuple(mask.shape) != tuple(self.shape):
        raise ShapeError(f"sparse_mask() takes a sparse tensor of shape {tuple(self.shape)}, got {mask!r}")
    pattern = mask._payload.pattern
    return made(read(self, pattern), pattern)

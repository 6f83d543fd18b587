"""Sparse tensors from positions and entries."""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import dtype_of, to_dtype
from wengert.array.shape import size_of
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, raw
from wengert.errors import DTypeError, ShapeError
from wengert.operators.create import creation
from wengert.sparse.pattern import Coo, Csr
from wengert.sparse.payload import made

__all__ = ["assembled", "sparse_coo_tensor", "sparse_csr_tensor"]

_MOST_PLACES = 2**63 - 1


def _positions(name: str, what: str, given: Any, ndim: int) -> Any:
    """Return positions as an int64 array of its own."""
    array = raw(given, f"{name}()") if isinstance(given, Tensor) else np.asarray(given)
    if not array.size:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise DTypeError(f"{name}(): {what} must be integers, got {dtype_of(array.dtype)}")
    if array.ndim != ndim:
        raise ShapeError(f"{name}(): {what} must have {ndim} dimension{'s' * (ndim > 1)}, got shape {array.shape}")
    return array.astype(np.int64)


def _values(values: Any, dtype: Any, device: Any) -> Any:
    """Return entries as a tensor; that of a user is used itself, with its history."""
    found = values if isinstance(values, Tensor) else ops.tensor(values, dtype=dtype, device=device)
    found = found if device is None else found.to(device)
    return found if dtype is None else found.to(to_dtype(dtype))


def _check_size(name: str, shape: Any) -> None:
    """Refuse shapes in which positions cannot be counted."""
    if math.prod(shape) > _MOST_PLACES:
        raise ShapeError(f"{name}(): size {tuple(shape)} has more than 2**63 - 1 elements, with and without entries")


def _finished(tensor: Any, requires_grad: bool) -> Any:
    return tensor.requires_grad_() if requires_grad else tensor


@creation
def sparse_coo_tensor(
    indices: Any, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None, is_coalesced: bool | None = None,
) -> Any:  # fmt: skip
    """Return a sparse tensor with entries at coordinates; entries at one position are summed where it matters.

    Args:
        indices: the coordinates, (sparse dimensions, nnz). Alone, ``sparse_coo_tensor(size)``: a tensor without entries.
        values: the entries, (nnz, *dense dimensions). A tensor is used itself: gradients flow to it.
        size: the shape; without it, the smallest that holds all coordinates.
        is_coalesced: whether coordinates rise, each occurring once; that is checked.

    Raises:
        ShapeError: for numbers or shapes that do not fit, and coordinates outside of ``size``. DTypeError: for coordinates
            that are no integers.

    Example:
        >>> import wengert as wg
        >>> wg.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
        tensor(indices=tensor([[0, 1],
                               [2, 0]]),
               values=tensor([3., 4.]),
               size=(2, 3), nnz=2, layout=wengert.sparse_coo)
    """
    if values is None:
        shape = size_of(indices, "size")
        _check_size("sparse_coo_tensor", shape)
        empty = ops.zeros((0,), dtype=dtype, device=device)
        return _finished(made(empty, Coo(np.zeros((len(shape), 0), np.int64), tuple(shape), True)), requires_grad)
    positions, found = _positions("sparse_coo_tensor", "indices", indices, 2), _values(values, dtype, device)
    if found.ndim < 1 or found.shape[0] != positions.shape[1]:
        raise ShapeError(
            f"sparse_coo_tensor(): indices and values must have the same nnz, got indices of shape {positions.shape} and "
            f"values of shape {tuple(found.shape)}"
        )
    dense = tuple(found.shape[1:])
    largest = tuple(int(n) for n in positions.max(1, initial=-1))
    shape = (*(n + 1 for n in largest), *dense) if size is None else tuple(size_of(size, "size"))
    if len(shape) != len(largest) + len(dense) or shape[len(largest) :] != dense:
        raise ShapeError(
            f"sparse_coo_tensor(): size {shape} must be one size for each of the {len(largest)} rows of indices and then "
            f"{dense}, the shape of an entry"
        )
    if positions.min(initial=0) < 0 or any(n >= m for n, m in zip(largest, shape, strict=False)):
        raise ShapeError(f"sparse_coo_tensor(): size {shape} does not hold all indices; the largest are {largest}, the "
                         f"smallest {tuple(int(n) for n in positions.min(1))}")  # fmt: skip
    _check_size("sparse_coo_tensor", shape)
    pattern = Coo(positions, shape, bool(is_coalesced))
    if is_coalesced and np.any(np.diff(pattern.keys) <= 0):
        raise ShapeError("sparse_coo_tensor(): is_coalesced=True, but indices do not rise, or some occur twice")
    return _finished(made(found, pattern), requires_grad)


@creation
def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> Any:  # fmt: skip
    """Return a sparse matrix in compressed rows: those of row i are from ``crow_indices[i]`` to ``crow_indices[i + 1]``.

    Args:
        crow_indices: (rows + 1,). col_indices: (nnz,), rising in each row. values: (nnz,); a tensor is used itself.
        size: the shape; without it, the smallest that holds all entries.

    Raises:
        ShapeError: for what is no such matrix.

    Example:
        >>> import wengert as wg
        >>> wg.sparse_csr_tensor([0, 1, 2], [1, 0], [3.0, 4.0], (2, 2)).to_dense()
        tensor([[0., 3.],
                [4., 0.]])
    """
    name = "sparse_csr_tensor"
    starts, columns = _positions(name, "crow_indices", crow_indices, 1), _positions(name, "col_indices", col_indices, 1)
    found = _values(values, dtype, device)
    if tuple(found.shape) != columns.shape:
        raise ShapeError(f"{name}(): col_indices of shape {columns.shape} and values of shape {tuple(found.shape)} must be "
                         "two vectors of one length")  # fmt: skip
    width = int(columns.max(initial=-1)) + 1
    shape = (starts.size - 1, width) if size is None else tuple(size_of(size, "size"))
    if len(shape) != 2 or starts.size != shape[0] + 1 or starts[0] != 0 or starts[-1] != columns.size:
        raise ShapeError(
            f"{name}(): crow_indices must be one more number than there are rows, from 0 to nnz; got {starts.tolist()[:8]} for "
            f"size {shape} and {columns.size} entries"
        )
    if np.any(np.diff(starts) < 0) or width > shape[1] or columns.min(initial=0) < 0:
        raise ShapeError(f"{name}(): crow_indices must not fall, and col_indices must be from 0 to {shape[1] - 1}")
    _check_size(name, shape)
    pattern = Csr(starts, columns, shape)
    if not pattern.coo.coalesced:
        raise ShapeError(f"{name}(): col_indices must rise in each row, each occurring once")
    return _finished(made(found, pattern), requires_grad)


def assembled(name: str, shape: tuple[int, ...], coalesced: bool, *parts: Any) -> Any:
    """Return a sparse tensor of the layout ``name`` from its parts as a file has them, which are checked.

    Raises:
        ValueError: for what is no such tensor.
    """
    if name == "sparse_coo":
        return sparse_coo_tensor(*parts, shape, is_coalesced=coalesced)
    if name == "sparse_csr":
        return sparse_csr_tensor(*parts, shape)
    raise ValueError(f"there is no layout {name!r}")

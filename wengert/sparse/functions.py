"""The functions of ``torch.sparse``."""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import to_dtype
from wengert.array.shape import axis_of
from wengert.core.registry import ops
from wengert.core.tensor import from_array
from wengert.errors import ShapeError
from wengert.sparse import products
from wengert.sparse.convert import coalesce, coo_of
from wengert.sparse.pattern import grouped
from wengert.sparse.payload import entries, is_sparse, made, refuse_dense
from wengert.sparse.rules import summed

__all__ = ["addmm", "log_softmax", "mm", "sampled_addmm", "softmax", "sum"]


def mm(mat1: Any, mat2: Any) -> Any:
    """Return the product of two matrices one of which, at least, is sparse; it is sparse if both are.

    Gradients flow to both. That of a sparse matrix lies on its pattern.

    Raises:
        SparseError: if both are dense. ShapeError, DTypeError: for matrices that do not fit.

    Example:
        >>> import wengert as wg
        >>> a = wg.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2))
        >>> wg.sparse.mm(a, wg.tensor([[1.0, 4.0], [5.0, 6.0]]))
        tensor([[10., 12.],
                [ 3., 12.]])
    """
    if mat1.ndim != 2 or mat2.ndim != 2:
        raise ShapeError(f"sparse.mm() takes two matrices, got shapes {tuple(mat1.shape)} and {tuple(mat2.shape)}")
    if not is_sparse(mat2):
        refuse_dense("sparse.mm", mat1)
    return ops.matmul(mat1, mat2)


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """Return ``beta * mat + alpha * (mat1 @ mat2)``, ``mat1`` a sparse matrix; the gradients are those of :func:`mm`.

    Example:
        >>> import wengert as wg
        >>> a = wg.sparse_coo_tensor([[0], [1]], [2.0], (1, 2))
        >>> wg.sparse.addmm(wg.tensor([[1.0]]), a, wg.tensor([[3.0], [4.0]]))
        tensor([[9.]])
    """
    refuse_dense("sparse.addmm", mat1)
    return products.addmm(mat, mat1, mat2, beta, alpha)


def sampled_addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """Return ``beta * input + alpha * (mat1 @ mat2)`` at the positions of a sparse matrix ``input`` alone.

    Example:
        >>> import wengert as wg
        >>> mask = wg.sparse_coo_tensor([[0], [1]], [1.0], (1, 2))
        >>> wg.sparse.sampled_addmm(mask, wg.tensor([[2.0]]), wg.tensor([[3.0, 4.0]])).to_dense()
        tensor([[0., 9.]])
    """
    refuse_dense("sparse.sampled_addmm", input)
    given = coalesce(input) if input.is_sparse else input
    pattern = given._payload.pattern
    shapes = [tuple(t.shape) for t in (given, mat1, mat2)]
    if (
        [len(s) for s in shapes] != [2, 2, 2]
        or shapes[0] != (shapes[1][0], shapes[2][1])
        or shapes[1][1] != shapes[2][0]
    ):
        raise ShapeError(f"sparse.sampled_addmm() takes matrices that fit, got shapes {', '.join(map(str, shapes))}")
    return made(entries(given) * beta + products.sampled(pattern, mat1, mat2) * alpha, pattern)


def sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """Return the sum of all elements or, over some dimensions, a sparse tensor (dense, once no sparse dimension is left).

    Example:
        >>> import wengert as wg
        >>> wg.sparse.sum(wg.sparse_coo_tensor([[0, 1], [2, 2]], [3.0, 4.0], (2, 3)), 0).to_dense()
        tensor([0., 0., 7.])
    """
    refuse_dense("sparse.sum", input)
    dims = None if dim is None else tuple(axis_of(d, input.ndim) for d in ((dim,) if isinstance(dim, int) else dim))
    return summed(input, dims, False, None if dtype is None else to_dtype(dtype))


def _softmax(name: str, input: Any, dim: int, dtype: Any) -> tuple[Any, Any, Any]:
    """Return the coalesced tensor, its entries less the largest one in each slice, and the log of the sum of their exp."""
    coo_of(name, input)
    given = coalesce(input)
    pattern, dim = given._payload.pattern, axis_of(dim, input.ndim)
    values = entries(given) if dtype is None else ops.cast(entries(given), to_dtype(dtype))
    if dim >= pattern.sparse_dim:
        shifted = values - ops.amax(values, dim - pattern.sparse_dim + 1, True).detach()
        return given, shifted, ops.logsumexp(shifted, dim - pattern.sparse_dim + 1, True)
    rest = [d for d in range(pattern.sparse_dim) if d != dim]
    keys = np.zeros(pattern.count, np.int64)
    for d in rest:
        keys = keys * pattern.shape[d] + pattern.positions[d]
    found, groups = grouped(keys, math.prod(pattern.shape[d] for d in rest))
    index = from_array(groups)
    held = values.detach()
    largest = ops.full((found.size, *pattern.dense_shape), -np.inf, dtype=held.dtype)
    largest = ops.index_reduce(largest, 0, index, held, "amax")
    shifted = values - ops.take_rows(largest, index)
    return given, shifted, ops.take_rows(ops.log(ops.add_rows(ops.exp(shifted), index, found.size)), index)


def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Return the softmax along ``dim`` of the elements that are stored, as if all others were -inf.

    Example:
        >>> import wengert as wg
        >>> wg.sparse.softmax(wg.sparse_coo_tensor([[0, 0], [0, 2]], [1.0, 1.0], (1, 3)), 1).to_dense()
        tensor([[0.5000, 0.0000, 0.5000]])
    """
    given, shifted, total = _softmax("sparse.softmax", input, dim, dtype)
    return made(ops.exp(shifted - total), given._payload.pattern)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Return the logarithm of :func:`softmax`.

    Example:
        >>> import wengert as wg
        >>> wg.sparse.log_softmax(wg.sparse_coo_tensor([[0], [0]], [5.0], (1, 3)), 1).values()
        tensor([0.])
    """
    given, shifted, total = _softmax("sparse.log_softmax", input, dim, dtype)
    return made(shifted - total, given._payload.pattern)

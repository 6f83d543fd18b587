"""Products with sparse matrices. Each entry of the matrix is read, and meets one row of the other one."""

from typing import Any

import numpy as np

from wengert.core.registry import ops
from wengert.core.tensor import from_array
from wengert.errors import DTypeError, ShapeError, SparseError
from wengert.sparse.convert import coalesce
from wengert.sparse.pattern import Coo
from wengert.sparse.payload import entries, is_sparse, made

__all__ = ["addmm", "linear", "matmul", "sampled"]


def _check(input: Any, other: Any) -> None:
    shapes = tuple(input.shape), tuple(other.shape)
    batched = len(shapes[0]) == len(shapes[1]) == 3
    for tensor in (input, other):
        if is_sparse(tensor) and (tensor.ndim != 2 + batched or tensor._payload.pattern.sparse_dim != tensor.ndim):
            raise SparseError(
                "matmul() takes sparse matrices, or a batch of them and a dense one, all of whose dimensions are sparse, got "
                f"shapes {shapes[0]} and {shapes[1]}; use .to_dense()"
            )
    if batched and is_sparse(input) and is_sparse(other):
        raise SparseError(
            f"matmul() of two sparse batches, of shapes {shapes[0]} and {shapes[1]}; use .to_dense() on one"
        )
    fits = shapes[0][0] == shapes[1][0] and shapes[0][2] == shapes[1][1] if batched else shapes[0][-1:] == shapes[1][:1]
    if not fits or (not batched and not {len(shapes[0]), len(shapes[1])} <= {1, 2}):
        raise ShapeError(
            f"matmul(): a sparse matrix cannot be multiplied so, the shapes are {shapes[0]} and {shapes[1]}"
        )
    if input.dtype is not other.dtype:
        raise DTypeError(f"matmul(): both must have the same dtype, got {input.dtype} and {other.dtype}")


def matmul(input: Any, other: Any) -> Any:
    """Return the product of a sparse matrix and a dense matrix or vector, or the other way round, or of two sparse ones.

    A batch of sparse matrices and a batch of dense ones, of equally many, are multiplied pair by pair.
    """
    _check(input, other)
    if input.ndim == 3:
        return _batched(input, other)
    if not is_sparse(input):
        rows, columns = other._payload.pattern.coo.positions
        swapped = ops.transpose(input, 0, 1) if input.ndim == 2 else input
        found = _combined(entries(other), columns, rows, swapped, other.shape[1])
        return ops.transpose(found, 0, 1) if input.ndim == 2 else found
    rows, columns = input._payload.pattern.coo.positions
    if is_sparse(other):
        return _both(input, other)
    return _combined(entries(input), rows, columns, other, input.shape[0])


def _batched(input: Any, other: Any) -> Any:
    """Return the products of two batches one of which is sparse: that of a matrix with the former as blocks on its diagonal."""
    sparse = is_sparse(input)
    given, dense = (input, other) if sparse else (other, ops.transpose(input, 1, 2))
    batch, rows, columns = given._payload.pattern.positions
    count, height, width = given.shape
    if not sparse:
        rows, columns, height, width = columns, rows, width, height
    flat = ops.reshape(dense, (count * width, dense.shape[2]))
    found = _combined(entries(given), batch * height + rows, batch * width + columns, flat, count * height)
    found = ops.reshape(found, (count, height, dense.shape[2]))
    return found if sparse else ops.transpose(found, 1, 2)


def _combined(values: Any, rows: Any, columns: Any, dense: Any, count: int) -> Any:
    """Return a matrix with ``values`` at (rows, columns), times a dense matrix or vector."""
    read = ops.take_rows(dense, from_array(columns))
    return ops.add_rows(read * (values if dense.ndim == 1 else ops.unsqueeze(values, 1)), from_array(rows), count)


def _both(input: Any, other: Any) -> Any:
    """Return the product of two sparse matrices: each entry (i, k) of the first meets row k of the second (Gustavson, 1978)."""
    layouts = {input._payload.pattern.layout, other._payload.pattern.layout}
    other = coalesce(made(entries(other), other._payload.pattern.coo))
    rows, columns = input._payload.pattern.coo.positions
    right = other._payload.pattern
    starts = right.csr.starts
    counts = np.diff(starts)[columns]
    first = np.repeat(np.arange(rows.size), counts)
    second = np.arange(first.size) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(starts[columns], counts)
    values = ops.take_rows(entries(input), from_array(first)) * ops.take_rows(entries(other), from_array(second))
    positions = np.stack([rows[first], right.positions[1][second]])
    found = coalesce(made(values, Coo(positions, (input.shape[0], other.shape[1]))))
    return found if len(layouts) > 1 or right.layout in layouts else made(entries(found), found._payload.pattern.csr)


def addmm(input: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return ``beta * input + alpha * (mat1 @ mat2)`` of matrices some of which are sparse."""
    product = matmul(mat1, mat2) if is_sparse(mat1) or is_sparse(mat2) else ops.matmul(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return ops.add(input if beta == 1 else input * beta, product)


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """Return ``input @ weight.T + bias``, the input or the weight a sparse matrix."""
    if is_sparse(input):
        if is_sparse(weight):
            return NotImplemented
        found = matmul(input, ops.transpose(weight, 0, 1))
    else:
        rows = ops.reshape(input, (-1, input.shape[-1]))
        found = ops.transpose(matmul(weight, ops.transpose(rows, 0, 1)), 0, 1)
        found = ops.reshape(found, (*input.shape[:-1], weight.shape[0]))
    return found if bias is None else ops.add(found, bias)


def sampled(pattern: Any, mat1: Any, mat2: Any) -> Any:
    """Return the elements of ``mat1 @ mat2`` at the positions of a pattern alone."""
    rows, columns = pattern.coo.positions
    right = ops.take_rows(ops.transpose(mat2, 0, 1), from_array(columns))
    return ops.sum(ops.take_rows(mat1, from_array(rows)) * right, 1)

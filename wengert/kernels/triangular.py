"""Triangular systems and LU factors of matrices and batches of matrices, mostly by products of blocks.

NumPy offers neither, and SciPy's routines work on one matrix at a time.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["lu_factor", "permutation", "solve_triangular"]

Array = NDArray[Any]

BLOCK = 48  # columns that are worked on one by one before a matrix product takes them together


def solve_triangular(a: Array, b: Array, upper: bool, unit: bool) -> Array:
    """Solve ``a @ x = b`` for triangular ``a``, of which only that triangle is read.

    Args:
        a: shape ``(*batch, n, n)``. b: shape ``(*batch, n, k)``; the batches broadcast.
        upper: which triangle. unit: take the diagonal as ones.

    Returns:
        ``x`` of the shape of ``b``. A zero on the diagonal gives infinities or NaN, as in LAPACK.

    Example:
        >>> solve_triangular(np.array([[2.0, 0.0], [1.0, 4.0]]), np.array([[2.0], [9.0]]), upper=False, unit=False)
        array([[1.],
               [2.]])
    """
    n = a.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.array(np.broadcast_to(b, (*batch, *b.shape[-2:])), np.result_type(a, b), order="C")
    starts = range(0, n, BLOCK)
    for start in reversed(starts) if upper else starts:
        rows = slice(start, min(start + BLOCK, n))
        x[..., rows, :] = _solve_block(a[..., rows, rows], x[..., rows, :], upper, unit)
        rest = slice(0, start) if upper else slice(rows.stop, n)
        if rest.stop > rest.start:
            x[..., rest, :] -= a[..., rest, rows] @ x[..., rows, :]
    return x


def _solve_block(a: Array, b: Array, upper: bool, unit: bool) -> Array:
    """Solve with one diagonal block.

    LAPACK's general solver exchanges no rows of an upper triangular matrix, so it is back substitution; a lower one read
    backwards is upper. It refuses zeros on the diagonal, which substitution row by row divides by.
    """
    order = slice(None) if upper else slice(None, None, -1)
    triangle = np.triu(a[..., order, order])
    if unit:
        np.einsum("...ii->...i", triangle)[...] = 1
    x = b[..., order, :]
    try:
        return np.asarray(np.linalg.solve(triangle, x)[..., order, :])
    except np.linalg.LinAlgError:
        return _substitute(triangle, x)[..., order, :]


def _substitute(a: Array, b: Array) -> Array:
    """Solve with upper triangular ``a``, row by row."""
    x = np.array(np.broadcast_to(b, (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:])))
    for i in reversed(range(a.shape[-1])):
        x[..., i, :] -= (a[..., i : i + 1, i + 1 :] @ x[..., i + 1 :, :])[..., 0, :]
        x[..., i, :] /= a[..., i, i, np.newaxis]
    return x


def lu_factor(a: Array, pivot: bool = True) -> tuple[Array, NDArray[np.int32], NDArray[np.int32]]:
    """Factor ``a = P L U`` by Gaussian elimination with partial pivoting.

    Args:
        a: shape ``(*batch, m, n)``. pivot: exchange rows; without, a zero on the diagonal gives infinities.

    Returns:
        L (its diagonal of ones left out) and U packed in one array of the shape of ``a``; LAPACK's pivots, of shape
        ``(*batch, min(m, n))``: row i was exchanged with row ``pivots[i]``, counted from 1; and for each matrix the
        number of the first zero on U's diagonal, counted from 1, or 0.

    Example:
        >>> lu, pivots, info = lu_factor(np.array([[1.0, 2.0], [4.0, 4.0]]))
        >>> lu
        array([[4.  , 4.  ],
               [0.25, 1.  ]])
        >>> pivots
        array([2, 2], dtype=int32)
    """
    *batch, m, n = a.shape
    k = min(m, n)
    lu = np.array(a, order="C").reshape(math.prod(batch), m, n)
    pivots = np.tile(np.arange(1, k + 1, dtype=np.int32), (len(lu), 1))
    for start in range(0, k, BLOCK):
        stop = min(start + BLOCK, k)
        for j in range(start, stop):
            if pivot:
                pivots[:, j] = _exchange(lu, j)
            _eliminate(lu, j, stop, pivot)
        rows, rest = slice(start, stop), slice(stop, n)
        if stop < n:
            lu[:, rows, rest] = solve_triangular(lu[:, rows, rows], lu[:, rows, rest], upper=False, unit=True)
            lu[:, stop:, rest] -= lu[:, stop:, rows] @ lu[:, rows, rest]
    zero = np.diagonal(lu, 0, -2, -1) == 0
    info = np.where(zero.any(-1), zero.argmax(-1) + 1, 0) if k else np.zeros(len(lu), np.int32)
    return lu.reshape(a.shape), pivots.reshape(*batch, k), info.astype(np.int32).reshape(batch)


def _exchange(lu: Array, j: int) -> Any:
    """Bring the largest element of column ``j`` below the diagonal onto it, in each matrix; return its row, from 1."""
    column = lu[:, j:, j]
    size = np.abs(column.real) + np.abs(column.imag) if column.dtype.kind == "c" else np.abs(column)
    chosen = j + size.argmax(-1)
    every = np.arange(len(lu))
    lu[:, j], lu[every, chosen] = lu[every, chosen], lu[:, j].copy()
    return chosen + 1


def _eliminate(lu: Array, j: int, stop: int, pivot: bool) -> None:
    """Subtract row ``j`` from the rows below, in the columns up to ``stop``."""
    head = lu[:, j, j]
    if pivot:  # a zero is the largest element then: all below are zeros and stay so
        head = np.where(head == 0, 1, head)
    below = lu[:, j + 1 :, j]
    below /= head[:, np.newaxis]
    lu[:, j + 1 :, j + 1 : stop] -= below[:, :, np.newaxis] * lu[:, j, np.newaxis, j + 1 : stop]


def permutation(pivots: NDArray[Any], m: int, dtype: Any) -> Array:
    """Return the matrices P, of shape ``(*batch, m, m)``, that LAPACK's pivots stand for.

    Example:
        >>> permutation(np.array([2, 2]), 2, np.float64)
        array([[0., 1.],
               [1., 0.]])
    """
    *batch, k = pivots.shape
    flat = pivots.reshape(math.prod(batch), k)
    order = np.tile(np.arange(m), (len(flat), 1))
    every = np.arange(len(flat))
    for i in range(k):
        chosen = flat[:, i] - 1
        order[every, i], order[every, chosen] = order[every, chosen], order[every, i].copy()
    out = np.zeros((len(flat), m, m), dtype)
    np.put_along_axis(out, order[:, np.newaxis, :], 1, axis=1)
    return out.reshape(*batch, m, m)

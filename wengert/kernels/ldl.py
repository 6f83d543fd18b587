"""Factors A = P L D Lᴴ of Hermitian (or symmetric) matrices that need not be positive definite, for batches of them.

Bunch, Kaufman, "Some stable methods for calculating inertia and solving symmetric linear systems", 1977, with the choice
of pivots and the packed result of LAPACK's sytrf and hetrf. NumPy has none of them. The columns of a block are worked on
one by one, in all matrices of the batch at once; what they change in the columns behind is one product per block.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ldl_factor", "ldl_order"]

Array = NDArray[Any]

BLOCK = 48
ALPHA = (1 + math.sqrt(17)) / 8  # what bounds the growth of the elements the best


class _Elimination:
    """A batch of matrices on the way: what is left to factor, the changes a block still owes it, and the result.

    ``rest - left @ right.mT`` is the part that is not factored yet; ``second`` marks the matrices whose current column
    belongs to a 2 by 2 pivot that began one column before.
    """

    def __init__(self, a: Array, hermitian: bool) -> None:
        lower = np.tril(a, -1)
        diagonal = np.einsum("...ii->...i", a)
        self.hermitian = hermitian
        self.rest = lower + self.adjoint(lower.mT)
        np.einsum("...ii->...i", self.rest)[...] = diagonal.real if hermitian else diagonal
        count, n = a.shape[:2]
        self.packed = np.zeros_like(a)
        self.pivots = np.zeros((count, n), np.int32)
        self.info = np.zeros(count, np.int32)
        self.second = np.zeros(count, bool)

    def adjoint(self, x: Array) -> Array:
        return x.conj() if self.hermitian else x

    def block(self, start: int, stop: int) -> None:
        """Factor the columns from ``start`` to ``stop``."""
        shape = (*self.rest.shape[:2], stop - start + 1)  # a 2 by 2 pivot may reach one column further
        self.left, self.right = np.zeros(shape, self.rest.dtype), np.zeros(shape, self.rest.dtype)
        for j in range(start, stop):
            active = np.flatnonzero(~self.second)
            self.second[:] = False
            if len(active):
                self.column(active, j, j - start)
        self.rest[:, stop:, stop:] -= self.left[:, stop:] @ self.right[:, stop:].mT

    def current(self, which: Array, j: int, at: Any, done: int) -> Array:
        """Return the elements from ``j`` on of column ``at`` of what is left, for some of the matrices."""
        found: Array = self.rest[which, j:, at]
        if done:
            found -= (self.left[which, j:, :done] @ self.right[which, at, :done, np.newaxis])[..., 0]
        return found

    def sizes(self, columns: Array) -> Array:
        """Return the absolute values LAPACK compares."""
        if columns.dtype.kind != "c":
            return np.abs(columns)
        return np.abs(columns.real) + np.abs(columns.imag)

    def column(self, active: Array, j: int, done: int) -> None:
        """Choose the pivot of column ``j`` in the matrices ``active`` and eliminate with it."""
        column = self.current(active, j, j, done)
        if self.hermitian:
            column[:, 0] = column[:, 0].real
        size = self.sizes(column)
        largest = size[:, 1:].max(-1, initial=0)
        chosen = j + (1 + size[:, 1:].argmax(-1) if size.shape[1] > 1 else np.zeros(len(active), np.int64))
        dead = (np.maximum(size[:, 0], largest) == 0) | np.isnan(size[:, 0])
        self.info[active[dead & (self.info[active] == 0)]] = j + 1
        other = np.flatnonzero(~dead & (size[:, 0] < ALPHA * largest))
        single, double = np.ones(len(active), bool), np.zeros(len(active), bool)
        if len(other):
            second = self.current(active[other], j, chosen[other], done)
            keep, moves = self.compare(size[other, 0], largest[other], second, chosen[other] - j)
            chosen[other[keep]] = j
            single[other], double[other] = keep | moves, ~(keep | moves)
            column[other[moves]] = second[moves]
        still = np.ones(len(active), bool)
        still[other] = False
        chosen[still] = j
        self.one(active[single], j, chosen[single], column[single], done, dead[single])
        if double.any():
            pair = np.stack([column[double], second[double[other]]], -1)
            self.two(active[double], j, chosen[double], pair, done)

    def compare(self, head: Array, largest: Array, second: Array, at: Array) -> tuple[Array, Array]:
        """Return where the diagonal element stays the pivot, and where that of column ``at`` takes its place."""
        every, size = np.arange(len(at)), self.sizes(second)
        if self.hermitian:
            second[every, at] = second[every, at].real
            size[every, at] = np.abs(second[every, at].real)
        diagonal = size[every, at].copy()
        size[every, at] = 0
        in_row = size.max(-1)
        keep = head >= ALPHA * largest * (largest / in_row)
        return keep, ~keep & (diagonal >= ALPHA * in_row)

    def exchange(self, which: Array, j: int, first: int, chosen: Array, columns: Array) -> None:
        """Exchange rows and columns ``first`` and ``chosen`` in what is left, and in the given columns from ``j`` on."""
        moved = chosen != first
        which, chosen, every = which[moved], chosen[moved], np.flatnonzero(moved)
        for x in (self.rest, self.rest.mT, self.left, self.right):
            x[which, first], x[which, chosen] = x[which, chosen], x[which, first]
        columns[every, first - j], columns[every, chosen - j] = columns[every, chosen - j], columns[every, first - j]

    def one(self, which: Array, j: int, chosen: Array, column: Array, done: int, dead: Array) -> None:
        """Eliminate with pivots of one element."""
        self.exchange(which, j, j, chosen, column)
        pivot, below = column[:, :1], column[:, 1:]
        factor = below / np.where(dead[:, np.newaxis], 1, pivot)
        self.packed[which, j, j] = pivot[:, 0]
        self.packed[which, j + 1 :, j] = factor
        self.left[which, j + 1 :, done] = factor
        self.right[which, j + 1 :, done] = self.adjoint(below)
        self.pivots[which, j] = chosen + 1

    def two(self, which: Array, j: int, chosen: Array, pair: Array, done: int) -> None:
        """Eliminate with pivots of two rows and columns."""
        self.exchange(which, j, j + 1, chosen, pair)
        a, c, b = pair[:, 0, 0, np.newaxis], pair[:, 1, 0, np.newaxis], pair[:, 1, 1, np.newaxis]
        scale = np.abs(c) if self.hermitian else c
        over = scale * ((a / scale) * (b / scale) - 1)  # the determinant without overflow
        first, second = pair[:, 2:, 0], pair[:, 2:, 1]
        factors = np.stack([(first * (b / scale) - second * (c / scale)) / over,
                            (second * (a / scale) - first * (self.adjoint(c) / scale)) / over], -1)  # fmt: skip
        self.packed[which, j, j], self.packed[which, j + 1, j] = a[:, 0], c[:, 0]
        self.packed[which, j + 1, j + 1] = b[:, 0]
        self.packed[which, j + 2 :, j : j + 2] = factors
        self.left[which, j + 2 :, done : done + 2] = factors
        self.right[which, j + 2 :, done : done + 2] = self.adjoint(pair[:, 2:])
        self.pivots[which, j] = self.pivots[which, j + 1] = -(chosen + 1)
        self.second[which] = True


def ldl_factor(a: Array, hermitian: bool) -> tuple[Array, NDArray[np.int32], NDArray[np.int32]]:
    """Factor Hermitian matrices, or symmetric ones if not ``hermitian``; only the lower triangle is read.

    Args:
        a: shape ``(*batch, n, n)``.

    Returns:
        D and L packed in the lower triangle as LAPACK does; its pivots, counted from 1, of shape ``(*batch, n)``: a
        positive one exchanged row i with row ``pivots[i]``, a pair of equal negative ones marks a 2 by 2 block of D,
        whose second row was exchanged with row ``-pivots[i]``; and for each matrix the number of the first 1 by 1
        block of D that is zero, or 0.

    Example:
        >>> packed, pivots, info = ldl_factor(np.array([[4.0, 0.0], [2.0, 3.0]]), hermitian=True)
        >>> packed
        array([[4. , 0. ],
               [0.5, 2. ]])
    """
    *batch, n, _ = a.shape
    work = _Elimination(a.reshape(math.prod(batch), n, n), hermitian and a.dtype.kind == "c")
    for start in range(0, n, BLOCK):
        work.block(start, min(start + BLOCK, n))
    return work.packed.reshape(a.shape), work.pivots.reshape(*batch, n), work.info.reshape(batch)


def ldl_order(pivots: NDArray[Any]) -> tuple[Array, Array, Array]:
    """Return what LAPACK's pivots mean.

    Returns:
        The order of the rows, Pᵀ A = A[order], of shape ``(*batch, n)``; for each element of L the row of the packed
        matrix it is found in, in the same column, since LAPACK exchanges no rows of the columns it is done with,
        ``(*batch, n, n)``; and where a 2 by 2 block of D begins, ``(*batch, n)``.

    Example:
        >>> order, rows, blocks = ldl_order(np.array([2, 2]))
        >>> order
        array([1, 0])
    """
    *batch, n = pivots.shape
    flat = pivots.reshape(math.prod(batch), n)
    order = np.tile(np.arange(n), (len(flat), 1))
    rows = np.tile(np.arange(n)[:, np.newaxis], (len(flat), 1, n))
    begins, second = np.zeros(flat.shape, bool), np.zeros(len(flat), bool)
    every = np.arange(len(flat))
    for j in range(n):
        begins[:, j] = (flat[:, j] < 0) & ~second
        first = np.where(begins[:, j], min(j + 1, n - 1), j)
        chosen = np.where(second, first, np.abs(flat[:, j]) - 1)
        for x in (order, rows[:, :, :j]):
            x[every, first], x[every, chosen] = x[every, chosen], x[every, first].copy()
        second = begins[:, j].copy()
    return order.reshape(pivots.shape), rows.reshape(*pivots.shape, n), begins.reshape(pivots.shape)

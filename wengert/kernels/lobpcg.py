"""A few of the largest or smallest eigenvalues of Hermitian matrices, by locally optimal preconditioned conjugate gradients.

A. V. Knyazev, "Toward the optimal preconditioned eigensolver: locally optimal block preconditioned conjugate gradient
method", 2001. Of the ways to keep it stable that Duersch, Shao, Yang, Gu, "A robust and efficient implementation of LOBPCG",
2018, compare, the basis of each step is made orthonormal by Householder reflections, which never break down.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Progress", "lobpcg"]

Array = NDArray[Any]


class Progress:
    """What an iteration has reached.

    Attributes:
        X, E, R, S: the approximate vectors and values, the residuals A X - B X E and the basis of the last step.
        errors: the size of each residual relative to its terms. step: the number of steps done.
        converged: how many of the first pairs have errors below the tolerance (in every matrix of a batch).
    """

    def __init__(self, X: Array, E: Array, R: Array, S: Array, errors: Array, step: int, converged: int) -> None:
        self.X, self.E, self.R, self.S, self.errors, self.step, self.converged = X, E, R, S, errors, step, converged


def _size(x: Array, axis: Any) -> Array:
    return np.asarray(np.sqrt(np.sum(np.abs(x) ** 2, axis)))


def _ritz(a: Array, b: Array | None, basis: Array, count: int, largest: bool) -> tuple[Array, Array]:
    """Return the best values and, in the basis, the vectors that the spanned space offers (Rayleigh and Ritz)."""
    adjoint = basis.conj().mT
    inner = adjoint @ (a @ basis)
    if b is None:
        values, vectors = np.linalg.eigh(inner)
    else:
        factor = np.linalg.cholesky(adjoint @ (b @ basis))
        half = np.linalg.solve(factor, np.linalg.solve(factor, inner).conj().mT)
        values, vectors = np.linalg.eigh(half)
        vectors = np.linalg.solve(factor.conj().mT, vectors)
    if largest:
        values, vectors = values[..., ::-1], vectors[..., ::-1]
    return values[..., :count], vectors[..., :count]


def lobpcg(
    a: Array, b: Array | None, x: Array, preconditioner: Array | None, *, k: int, niter: int, tol: float, largest: bool,
    tracker: Callable[[Progress], bool] | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the k largest (smallest) eigenvalues λ and vectors v of ``a v = λ b v``.

    Args:
        a: Hermitian, shape ``(*batch, m, m)``. b: Hermitian positive definite, or None for the identity.
        x: the vectors to start from, ``(*batch, m, n)`` with k ≤ n ≤ m / 3. preconditioner: what residuals are
            multiplied by, near the inverse of ``a``.
        niter: the most steps. tol: the error of residuals relative to their terms at which it stops.
        tracker: called after each step; it ends the iteration by returning True.

    Returns:
        Values ``(*batch, k)`` and vectors ``(*batch, m, k)`` with ``vᴴ b v = 1``.
    """
    n = x.shape[-1]
    scale = _size(x, (-2, -1))[..., np.newaxis]
    a_size = _size(a @ x, (-2, -1))[..., np.newaxis] / scale
    b_size = 1.0 if b is None else _size(b @ x, (-2, -1))[..., np.newaxis] / scale
    basis = np.linalg.qr(x).Q
    values, inside = _ritz(a, b, basis, n, largest)
    x, moved = basis @ inside, x[..., :0]
    for step in range(niter + 1):
        residual = a @ x - (x if b is None else b @ x) * values[..., np.newaxis, :]
        terms = _size(x, -2) * (a_size + np.abs(values) * b_size)
        errors = _size(residual, -2) / np.maximum(terms, np.finfo(values.dtype).tiny)
        done = (errors < tol).all(tuple(range(errors.ndim - 1)))
        converged = int(np.cumprod(done).sum())
        stop = tracker is not None and tracker(Progress(x, values, residual, basis, errors, step, converged))
        if stop or converged >= k or step == niter:
            break
        improved = residual if preconditioner is None else preconditioner @ residual
        basis = np.linalg.qr(np.concatenate([x, improved, moved], -1)).Q  # its first n columns span x
        values, inside = _ritz(a, b, basis, n, largest)
        x, moved = basis @ inside, basis[..., n:] @ inside[..., n:, :]
    return values[..., :k], x[..., :k]

"""Approximate singular value decompositions of matrices of low rank, by random projections.

Halko, Martinsson, Tropp, "Finding structure with randomness: probabilistic algorithms for constructing approximate matrix
decompositions", 2011, algorithms 4.4 and 5.1.
"""

from typing import Any

from wengert.array.shape import as_int
from wengert.core.families import composite
from wengert.core.registry import ops
from wengert.operators.matrices import matrix_shape

__all__ = ["pca_lowrank", "svd_lowrank"]


def _steps(name: str, niter: Any) -> int:
    count = as_int(niter, f"{name}(): niter")
    if count < 0:
        raise ValueError(f"{name}(): niter must not be negative, got {count}")
    return count


def _basis(A: Any, q: int, niter: int) -> Any:
    """Return an orthonormal basis (*, m, q) of nearly the range of A, by subspace iteration from a random one."""
    Q = ops.linalg_qr(A @ ops.randn(A.shape[-1], q, dtype=A.dtype)).Q
    for _ in range(niter):
        Q = ops.linalg_qr(A @ ops.linalg_qr(A.mH @ Q).Q).Q
    return Q


@composite(
    samples=lambda s: [
        s((4, 3), 0), s((2, 3, 5), 0, niter=0), s((0, 3), 0), s((3, 3), 0, kind="complex"),  # signs are drawn
        s.error(ValueError, "niter", (3, 3), 2, niter=-1),
        s.error(RuntimeError, "matrix or a batch", (3,)), s.error(ValueError, "q must lie between", (3, 3), -1),
    ],
)  # fmt: skip
def svd_lowrank(A: Any, q: Any = 6, niter: Any = 2, M: Any = None) -> Any:
    """Return U, S and V with A ≈ U S Vᴴ (A - M if M is given), for matrices of rank little above or below q.

    Args:
        A: (*, m, n). q: the number of singular values, a little more than the rank; 6 if None.
        niter: the number of subspace iterations. M: what is subtracted from A; it broadcasts.

    Returns:
        (U, S, V), of shapes (*, m, q), (*, q) and (*, n, q); with q beyond min(m, n), that many. The gradient is that of
        these steps. It exists where q is at most the rank of A.

    Example:
        >>> import wengert as wg
        >>> wg.svd_lowrank(wg.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 1.0]]), q=2)[1].round(decimals=3)
        tensor([2., 1.])
    """
    m, n = matrix_shape("svd_lowrank", A.shape)
    count = 6 if q is None else as_int(q, "svd_lowrank(): q")
    if count < 0:
        raise ValueError(f"svd_lowrank(): q must lie between 0 and the size of the matrix, got {count}")
    steps = _steps("svd_lowrank", niter)
    if M is not None:
        A = A - M
    X = A.mH if m < n else A
    Q = _basis(X, count, steps)
    U, S, Vh = ops.linalg_svd(Q.mH @ X, False)
    U, V = Q @ U, Vh.mH
    return (V, S, U) if m < n else (U, S, V)


@composite(
    samples=lambda s: [
        s((4, 3), 0), s((2, 3, 5), 0, center=False), s((0, 3)),
        s.error(ValueError, "between 0 and 3", (4, 3), 4), s.error(ValueError, "niter", (3, 3), 2, niter=-1),
    ],
)  # fmt: skip
def pca_lowrank(A: Any, q: Any = None, center: bool = True, niter: Any = 2) -> Any:
    """Return U, S and V of the principal components of the rows of A: the columns of V are their directions.

    Args:
        A: (*, m, n), m samples of n features. q: the number of components; min(6, m, n) if None.
        center: subtract the mean of the samples. niter: the number of subspace iterations.

    See :func:`wengert.svd_lowrank`.
    """
    m, n = matrix_shape("pca_lowrank", A.shape)
    count = min(6, m, n) if q is None else as_int(q, "pca_lowrank(): q")
    if not 0 <= count <= min(m, n):
        raise ValueError(f"pca_lowrank(): q must lie between 0 and {min(m, n)} for shape {tuple(A.shape)}, got {count}")
    steps = _steps("pca_lowrank", niter)
    return ops.svd_lowrank(A - ops.mean(A, -2, keepdim=True) if center else A, count, steps)

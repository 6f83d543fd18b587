"""The singular value decomposition A = U S Vᴴ.

Derivatives: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation", 2008
(values); Townsend, "Differentiating the singular value decomposition", 2016 (vectors); Wan, Zhang, "Automatic
differentiation for complex valued SVD", 2019 (their phases). What :mod:`wengert.operators.spectral` says of equal
eigenvalues and of phases holds here too, and vectors have no derivative where a singular value is zero.
"""

from typing import Any, NamedTuple

import numpy as np

from wengert.array.dtype import real_of
from wengert.core.arguments import Inexact
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.operators.matrices import checked, columns_of, matrix_shape, off_diagonal, quotient, rows_of

__all__ = ["linalg_svd", "linalg_svdvals", "svd"]

_A3 = [[1.0, 2.0, -0.5], [3.0, 1.0, 1.0], [-1.0, 0.2, 2.5]]
_TALL = [[1.0, 2.0], [3.0, -1.0], [0.5, 1.5]]
_BATCH = [[[3.0, 1.0], [-1.0, 2.0]], [[0.5, -2.0], [1.5, 1.0]]]
_COMPLEX = [[3.0 + 1j, 1.0 - 2j], [-1.0 + 0.5j, 2.0]]


def _gaps(S: Any) -> Any:
    """Return sⱼ² - sᵢ² for row i and column j, as a product that keeps the digits of close values."""
    return (columns_of(S) - rows_of(S)) * (columns_of(S) + rows_of(S))


def _skew(x: Any) -> Any:
    return x - x.mH


def _diagonal(x: Any) -> Any:
    return ops.diagonal(x, 0, -2, -1)


def _leading(X: Any, k: int) -> tuple[Any, Any]:
    """Return the first k columns, and the others (None if there are none)."""
    rest = X.shape[-1] - k
    return (X, None) if not rest else (ops.narrow(X, -1, 0, k), ops.narrow(X, -1, k, rest))


def _onto_leading(g: Any, X: Any, k: int) -> Any:
    """Return the cotangent of the first k columns of X; the others span what these do not: dX₂ = -X₁ dX₁ᴴ X₂."""
    (first, rest), (g_first, g_rest) = _leading(X, k), _leading(g, k)
    return g_first if rest is None else g_first - rest @ (g_rest.mH @ first)


def _svd_vjp(g: Any, U: Any, S: Any, Vh: Any) -> Any:
    k = S.shape[-1]
    V = Vh.mH
    gU, gS, gV = _onto_leading(g[0], U, k), g[1], _onto_leading(g[2].mH, V, k)
    U, V = _leading(U, k)[0], _leading(V, k)[0]
    Xu, Xv = U.mH @ gU, V.mH @ gV
    inner = ops.diag_embed(gS.to(U.dtype))
    if U.is_complex():
        Xv = ops.phase_free(Xu + Xv, "linalg_svd") - Xu
        inner = inner + ops.diag_embed(quotient(ops.imag(_diagonal(Xu - Xv)), 2 * S) * 1j)
    gaps = _gaps(S)
    inner = inner + off_diagonal(_skew(Xu), gaps) * columns_of(S) + rows_of(S) * off_diagonal(_skew(Xv), gaps)
    found = U @ inner @ V.mH
    if U.shape[-2] > k:
        found = found + quotient(gU - U @ Xu, columns_of(S)) @ V.mH
    if V.shape[-2] > k:
        found = found + U @ quotient(gV - V @ Xv, columns_of(S)).mH
    return found


def _with_rest(dX: Any, X: Any, k: int) -> Any:
    """Return the tangent of all columns from that of the first k."""
    first, rest = _leading(X, k)
    return dX if rest is None else ops.cat((dX, -(first @ (dX.mH @ rest))), -1)


def _svd_jvp(t: Any, U: Any, S: Any, Vh: Any) -> tuple[Any, Any, Any]:
    k = S.shape[-1]
    all_U, all_V = U, Vh.mH
    U, V = _leading(all_U, k)[0], _leading(all_V, k)[0]
    inner = U.mH @ t @ V
    gaps = _gaps(S)
    turn_u = off_diagonal(inner * columns_of(S) + rows_of(S) * inner.mH, gaps)
    turn_v = off_diagonal(rows_of(S) * inner + inner.mH * columns_of(S), gaps)
    if U.is_complex():
        phases = ops.diag_embed(quotient(ops.imag(_diagonal(inner)), 2 * S) * 1j)
        turn_u, turn_v = turn_u + phases, turn_v - phases
    dU, dV = U @ turn_u, V @ turn_v
    if U.shape[-2] > k:
        dU = dU + quotient(t @ V - U @ inner, columns_of(S))
    if V.shape[-2] > k:
        dV = dV + quotient(t.mH @ U - V @ inner.mH, columns_of(S))
    return _with_rest(dU, all_U, k), ops.real(_diagonal(inner)), _with_rest(dV, all_V, k).mH


def _svd_spec(A: Spec, full_matrices: Any = True, *, driver: Any = None) -> tuple[Spec, Spec, Spec]:
    m, n = matrix_shape("linalg_svd", A.shape)
    _no_driver("linalg_svd", driver)
    k, lead = min(m, n), tuple(A.shape[:-2])
    u, v = (m, n) if full_matrices else (k, k)
    return Spec((*lead, m, u), A.dtype), Spec((*lead, k), real_of(A.dtype)), Spec((*lead, v, n), A.dtype)


def _no_driver(name: str, driver: Any) -> None:
    if driver is not None:
        raise RuntimeError(f"{name}(): driver= chooses among routines of CUDA; on the CPU there is one, leave it out")


@operator(
    outputs=("U", "S", "Vh"),
    vjp={"A": _svd_vjp},
    jvp={"A": _svd_jvp},
    batch="front",
    spec=_svd_spec,
    samples=lambda s: [
        s(s.array(_A3)), s(s.array(_TALL)), s(s.array(np.transpose(_TALL))), s(s.array(_TALL), False),
        s(s.array(np.transpose(_TALL)), False), s(s.array(_BATCH), full_matrices=False),
        s(s.array(_COMPLEX), grad=False), s((0, 0)), s((0, 2)), s((2, 0), False), s((0, 2, 2)), s((1, 1)),
        s((3, 1), False), s(s.array(np.eye(2)), grad=False), s.error(RuntimeError, "matrix or a batch", (2,)),
        s.error(RuntimeError, "leave it out", (2, 2), driver="gesvd"),
        s.error(RuntimeError, "matrix 1 of the batch: it holds infinities or NaN", s.array([[[1.0]], [[np.nan]]])),
    ],
)  # fmt: skip
def linalg_svd(A: Inexact, full_matrices: Any = True, *, driver: Any = None) -> Any:
    """Return U, the singular values S in descending order, and Vᴴ, with A = U S Vᴴ.

    Args:
        A: (*, m, n). full_matrices: U is (*, m, m) and Vᴴ (*, n, n); without, (*, m, k) and (*, k, n), k = min(m, n).

    The gradient of the vectors exists where the singular values are positive and differ; elsewhere it is infinite or
    NaN, unless nothing is asked of these vectors. That of the values is finite everywhere.

    Raises:
        LinAlgError: (a RuntimeError) naming a matrix with infinities or NaN.

    Example:
        >>> import wengert as wg
        >>> wg.linalg.svd(wg.tensor([[0.0, 2.0], [1.0, 0.0]])).S
        tensor([2., 1.])
    """
    matrix_shape("linalg_svd", A.shape)
    _no_driver("linalg_svd", driver)
    return tuple(checked("linalg_svd", lambda a: np.linalg.svd(a, bool(full_matrices)), A))


def _svdvals_vjp(g: Any, A: Any) -> Any:
    U, _, Vh = ops.linalg_svd(A, False)
    return (U * columns_of(g)) @ Vh


def _svdvals_jvp(t: Any, A: Any) -> Any:
    U, _, Vh = ops.linalg_svd(A, False)
    return ops.real(ops.sum(ops.conj(U) * (t @ Vh.mH), -2))


def _svdvals_spec(A: Spec, *, driver: Any = None) -> Spec:
    m, n = matrix_shape("linalg_svdvals", A.shape)
    _no_driver("linalg_svdvals", driver)
    return Spec((*A.shape[:-2], min(m, n)), real_of(A.dtype))


@operator(
    vjp={"A": _svdvals_vjp},
    jvp={"A": _svdvals_jvp},
    batch="front",
    spec=_svdvals_spec,
    samples=lambda s: [
        s(s.array(_A3)), s(s.array(_TALL)), s(s.array(np.transpose(_TALL))), s(s.array(_BATCH)), s(s.array(_COMPLEX)),
        s((0, 2)), s((0, 2, 2)), s(s.array(np.eye(2)), grad=False), s.error(RuntimeError, "matrix or a batch", (2,)),
        s.error(RuntimeError, "leave it out", (2, 2), driver="gesvd"),
    ],
)  # fmt: skip
def linalg_svdvals(A: Inexact, *, driver: Any = None) -> Any:
    """Return the singular values of each matrix in descending order; see :func:`wengert.linalg.svd`."""
    matrix_shape("linalg_svdvals", A.shape)
    _no_driver("linalg_svdvals", driver)
    return checked("linalg_svdvals", lambda a: np.linalg.svd(a, compute_uv=False), A)


class Decomposition(NamedTuple):
    """Left singular vectors, singular values and right singular vectors (not transposed)."""

    U: Any
    S: Any
    V: Any


@composite(
    method=True,
    samples=lambda s: [s(s.array(_TALL)), s(s.array(_A3), some=False), s(s.array(_TALL), compute_uv=False, grad=False)],
)
def svd(input: Any, some: bool = True, compute_uv: bool = True) -> Any:
    """Return U, S and V with input = U S Vᴴ; :func:`wengert.linalg.svd` is its successor.

    Args:
        some: only as many vectors as there are values. compute_uv: without, U and V are zeros.
    """
    if compute_uv:
        U, S, Vh = ops.linalg_svd(input, not some)
        return Decomposition(U, S, Vh.mH)
    m, n = matrix_shape("svd", input.shape)
    lead = tuple(input.shape[:-2])
    return Decomposition(
        ops.zeros(*lead, m, m, dtype=input.dtype), ops.linalg_svdvals(input), ops.zeros(*lead, n, n, dtype=input.dtype)
    )

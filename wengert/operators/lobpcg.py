"""A few extreme eigenvalues and vectors of a Hermitian matrix, or of a pair of them: A v = λ B v.

Derivatives: de Leeuw, "Derivatives of generalized eigen systems with applications", 2007. What lies in the span of the
computed vectors follows from their eigenvalues; the rest w of each tangent solves (A - λB) w = -(dA - λ dB) v with
Vᴴ B w = 0, one bordered linear system per vector, so that no other vector is needed. PyTorch has the first derivative in
A alone.
"""

from typing import Any

import numpy as np

from wengert.array.dtype import finfo, real_of
from wengert.array.shape import as_int
from wengert.core.arguments import Inexact
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import from_array
from wengert.errors import ShapeError
from wengert.kernels import lobpcg as kernel
from wengert.operators.checks import same_dtype
from wengert.operators.matrices import (
    checked,
    columns_of,
    failure,
    hermitian_part,
    matrix_shape,
    off_diagonal,
    rows_of,
    square_shape,
)

__all__ = ["lobpcg", "lobpcg_pairs"]

_A6 = np.diag([1.0, 2.0, 4.0, 7.0, 11.0, 16.0]) + 0.3
_B6 = np.eye(6) + 0.1
_X6 = np.array([[1.0, 0.2], [0.5, -1.0], [-0.3, 0.7], [0.8, 0.1], [0.4, 0.6], [-0.9, 0.5]])


# ---- derivatives


def _product(B: Any, V: Any) -> Any:
    return V if B is None else B @ V


def _outside(A: Any, B: Any, E: Any, V: Any, X: Any) -> Any:
    """Return the columns W with (A - λᵢ B) wᵢ = xᵢ up to the span of B V, and Vᴴ B W = 0."""
    m, k = V.shape[-2:]
    BV = _product(B, V)
    mass = ops.eye(m, dtype=A.dtype) if B is None else B
    shifted = ops.unsqueeze(A, -3) - rows_of(rows_of(E)) * ops.unsqueeze(mass, -3)
    border = ops.expand(ops.unsqueeze(BV, -3), (*shifted.shape[:-1], k))
    corner = ops.zeros((*shifted.shape[:-2], k, k), dtype=A.dtype)
    system = ops.cat((ops.cat((shifted, border), -1), ops.cat((border.mH, corner), -1)), -2)
    right = ops.pad(X.mT, (0, k))
    return ops.narrow(ops.squeeze(ops.linalg_solve(system, rows_of(right)), -1), -1, 0, m).mT


def _gaps(E: Any) -> Any:
    """Return λⱼ - λᵢ for each row i and column j."""
    return columns_of(E) - rows_of(E)


def _real_diagonal(x: Any) -> Any:
    return ops.real(ops.diagonal(x, 0, -2, -1))


def _lobpcg_jvp(tangents: Any, A: Any, B: Any, eigenvalues: Any, eigenvectors: Any) -> tuple[Any, Any]:
    E, V = eigenvalues, eigenvectors
    a, b = (0 * V if tangents[name] is None else hermitian_part(tangents[name]) @ V for name in ("A", "B"))
    moved = a - b * columns_of(E)
    inner = V.mH @ moved
    turn = off_diagonal(inner, _gaps(E)) - ops.diag_embed(0.5 * _real_diagonal(V.mH @ b)).to(V.dtype)
    return _real_diagonal(inner), V @ turn - _outside(A, B, E, V, moved)


def _lobpcg_vjp(g: Any, A: Any, B: Any, eigenvalues: Any, eigenvectors: Any, needs: Any) -> tuple[Any, ...]:
    E, V = eigenvalues, eigenvectors
    gE, gV = g
    inner = ops.phase_free(V.mH @ gV, "lobpcg")
    gN = V @ (off_diagonal(inner, _gaps(E)) + ops.diag_embed(gE).to(V.dtype)) - _outside(A, B, E, V, gV)
    gA = hermitian_part(gN @ V.mH) if needs[0] else None
    if not needs[2]:
        return gA, None, None, None
    return gA, None, -hermitian_part((gN * columns_of(E) + V * columns_of(0.5 * _real_diagonal(inner))) @ V.mH), None


# ---- the operator


def _pairs_spec(
    A: Spec, X: Spec, B: Any = None, iK: Any = None, *, k: Any, niter: Any, tol: Any, largest: Any, tracker: Any
) -> tuple[Spec, Spec]:
    m = square_shape("lobpcg", A.shape)
    lead = tuple(A.shape[:-2])
    return Spec((*lead, k), real_of(A.dtype)), Spec((*lead, m, k), A.dtype)


def _pairs_samples(s: Any) -> list[Any]:
    options = {"k": 2, "niter": 60, "tol": 1e-13, "tracker": None, "grad": False}
    return [
        s(s.array(_A6), s.array(_X6), largest=True, **options),
        s(s.array(_A6), s.array(_X6), s.array(_B6), largest=False, **options),
        s(s.array([_A6, _A6]), s.array([_X6, _X6]), None, s.array([np.eye(6)] * 2), largest=True, **options),
        s(s.array(_A6 + 0j), s.array(_X6 + 0j), largest=True, **options),
    ]  # fmt: skip


# Where A must be Hermitian, differences along any other direction say nothing: grad=False.
@operator(
    outputs=("eigenvalues", "eigenvectors"),
    vjp=_lobpcg_vjp,
    jvp=_lobpcg_jvp,
    batch="front",
    spec=_pairs_spec,
    home=(),
    samples=_pairs_samples,
)
def lobpcg_pairs(
    A: Inexact, X: Inexact, B: Inexact = None, iK: Inexact = None, *, k: Any, niter: Any, tol: float, largest: Any,
    tracker: Any,
) -> Any:  # fmt: skip
    """Return k eigenvalues and vectors, from the vectors X on."""
    for name, matrix in (("A", A), ("B", B)):
        if matrix is not None and not np.isfinite(matrix).all():
            raise failure("lobpcg", ~np.isfinite(matrix).all((-2, -1)), f"{name} holds infinities or NaN")
    try:
        return kernel.lobpcg(A, B, X, iK, k=k, niter=niter, tol=tol, largest=bool(largest), tracker=tracker)
    except np.linalg.LinAlgError:
        if B is not None:
            checked("lobpcg", np.linalg.cholesky, B, "B is not positive definite")
        raise


class Worker:
    """What a tracker is called with, under the names of PyTorch's.

    Attributes:
        A, B, iK, X, E, R, S: the matrices, approximate vectors and values, residuals and the basis of the last step.
        ivars: ``istep`` and ``converged_count``. tvars: ``rerr``, the relative errors.
        bvars: ``force_stop``, to be set to True to end the iteration.
    """

    def __init__(self, A: Any, B: Any, iK: Any, progress: kernel.Progress) -> None:
        self.A, self.B, self.iK = A, B, iK
        self.X, self.E, self.R, self.S = (
            from_array(x.copy()) for x in (progress.X, progress.E, progress.R, progress.S)
        )
        self.ivars = {"istep": progress.step, "converged_count": progress.converged}
        self.tvars = {"rerr": from_array(progress.errors)}
        self.bvars = {"force_stop": False}


def _tracking(tracker: Any, A: Any, B: Any, iK: Any) -> Any:
    if tracker is not None and not callable(tracker):
        raise TypeError(f"lobpcg(): tracker must be a function or None, got {tracker!r}")
    if tracker is None:
        return None

    def track(progress: kernel.Progress) -> bool:
        worker = Worker(A, B, iK, progress)
        tracker(worker)
        return bool(worker.bvars["force_stop"])

    return track


def _check(A: Any, B: Any, X: Any, iK: Any, k: int, n: int) -> None:
    m, given = square_shape("lobpcg", A.shape), {"A": A, "B": B, "X": X, "iK": iK}
    same_dtype("lobpcg", **given)
    if m < 3 * n:
        raise ValueError(
            f"lobpcg(): A needs at least 3 times as many rows as there are vectors, got {m} rows and {n} vectors; use "
            "wengert.linalg.eigh"
        )
    if not 1 <= k <= n:
        raise ValueError(f"lobpcg(): k must lie between 1 and the {n} vectors of the iteration, got {k}")
    for name, matrix in (("B", B), ("iK", iK)):
        if matrix is not None and tuple(matrix.shape) != tuple(A.shape):
            raise ShapeError(f"lobpcg(): {name} must have A's shape {tuple(A.shape)}, got {tuple(matrix.shape)}")
    if X is not None and (matrix_shape("lobpcg", X.shape) != (m, n) or X.shape[:-2] != A.shape[:-2]):
        raise ShapeError(f"lobpcg(): X must have shape {(*A.shape[:-1], n)}, got {tuple(X.shape)}")


@composite(
    samples=lambda s: [
        s(s.array(_A6), 2, X=s.array(_X6), grad=False), s(s.array(_A6), 1, X=s.array(_X6), largest=False, grad=False),
        s(s.array(_A6), 1, s.array(_B6), s.array(_X6), niter=30, grad=False),
        s.error(ValueError, "3 times as many rows", (5, 5), 2), s.error(RuntimeError, "square", (5, 4), 1),
        s.error(ValueError, "k must lie between", s.array(_A6), 3, n=2), s.error(ValueError, "method", (6, 6), method="best"),
        s.error(TypeError, "tracker must be", s.array(_A6), 1, tracker=3),
        s.error(TypeError, "'tol' must be a real number", s.array(_A6), 1, tol="small"),
        s.error(RuntimeError, "A holds infinities", s.array(np.full((3, 3), np.nan)), 1),
        s.error(RuntimeError, "not positive definite", s.array(_A6), 1, s.array(-_B6)),
    ],
)  # fmt: skip
def lobpcg(
    A: Any, k: Any = None, B: Any = None, X: Any = None, n: Any = None, iK: Any = None, niter: Any = None, tol: Any = None,
    largest: Any = None, method: Any = None, tracker: Any = None, ortho_iparams: Any = None, ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> Any:  # fmt: skip
    """Return the k largest (or smallest) eigenvalues and their vectors of Hermitian matrices: A v = λ v, or A v = λ B v.

    It multiplies by A alone, and is faster than :func:`wengert.linalg.eigh` where k is small and A large.

    Args:
        A: (*, m, m), Hermitian. B: (*, m, m), Hermitian positive definite. k: how many; 1, or as many as X has columns.
        X: (*, m, n), what to start from; random if None. n: how many vectors to iterate with, k ≤ n ≤ m / 3.
        iK: (*, m, m), a preconditioner, near A⁻¹. niter: the most steps, 1000 if None.
        tol: the relative error of a residual to stop at; the root of ε if None. largest: True if None.
        method: ``"basic"`` or ``"ortho"``, which mean the same here: the basis of a step is always made orthonormal.
        tracker: called after every step with an object of PyTorch's attribute names; it can set
            ``bvars["force_stop"]``.

    Returns:
        (values, vectors), of shapes (*, k) and (*, m, k). Both have derivatives in A and B, which are Hermitian and as
        exact as the vectors: choose ``tol`` accordingly. Where two of the values are equal, the vectors have none.

    Raises:
        ValueError: if m < 3 n. LinAlgError: (a RuntimeError) for infinities, or B that is not positive definite.

    Example:
        >>> import wengert as wg
        >>> values, vectors = wg.lobpcg(wg.diag(wg.arange(1.0, 7.0)), 1)
        >>> round(values.item(), 4)
        6.0
    """
    if method not in (None, "basic", "ortho"):
        raise ValueError(f"lobpcg(): method must be 'basic' or 'ortho', got {method!r}")
    for name, value in (("iparams", ortho_iparams), ("fparams", ortho_fparams), ("bparams", ortho_bparams)):
        if value:
            raise ValueError(
                f"lobpcg(): ortho_{name} tune how PyTorch makes a basis orthonormal; here nothing is to tune"
            )
    k = as_int((1 if X is None else X.shape[-1]) if k is None else k, "lobpcg(): k")
    n = as_int((k if X is None else X.shape[-1]) if n is None else n, "lobpcg(): n")
    _check(A, B, X, iK, k, n)
    X = ops.randn(*A.shape[:-1], n, dtype=A.dtype) if X is None else X.detach()
    found = ops.lobpcg_pairs(
        A, X, B, iK, k=k, niter=1000 if niter is None else as_int(niter, "lobpcg(): niter"),
        tol=finfo(A.dtype).eps ** 0.5 if tol is None else tol, largest=largest is None or bool(largest),
        tracker=_tracking(tracker, A, B, iK),
    )  # fmt: skip
    return found.eigenvalues, found.eigenvectors

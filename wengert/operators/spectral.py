"""Eigenvalues and eigenvectors.

Derivatives: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation",
2008; Boeddeker et al., "On the computation of complex-valued gradients with application to statistically optimum
beamforming", 2017 (complex vectors of length 1).

Vectors are determined up to a factor: a sign, or a phase e^{iφ} if they are complex. A loss that depends on the phase
has no derivative, which is found out in the backward pass. Where eigenvalues are equal, the derivative of their vectors
does not exist; it is infinite or NaN there, unless the cotangent is zero.
"""

from typing import Any

import numpy as np

from wengert.array.dtype import real_of
from wengert.core.arguments import Inexact
from wengert.core.families import operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.operators.complex import complex_of
from wengert.operators.matrices import checked, columns_of, hermitian_part, off_diagonal, rows_of, square_shape

__all__ = ["linalg_eig", "linalg_eigh", "linalg_eigvals", "linalg_eigvalsh", "phase_free"]

_SYMMETRIC = [[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 2.0]]
_SYMMETRIC_BATCH = [[[2.0, 0.5], [0.5, 1.0]], [[1.0, -0.3], [-0.3, 3.0]]]
_HERMITIAN = [[3.0, 1.0 - 1j], [1.0 + 1j, 2.0]]
_A3 = [[1.0, 2.0, -0.5], [3.0, 1.0, 1.0], [-1.0, 0.2, 2.5]]
_BATCH = [[[3.0, 1.0], [-1.0, 2.0]], [[0.5, -2.0], [1.5, 1.0]]]
_COMPLEX = [[3.0 + 1j, 1.0 - 2j], [-1.0 + 0.5j, 2.0]]


# ---- shared by the rules


def _phase_spec(x: Spec, owner: str) -> Spec:
    return x


@operator(
    vjp={"x": lambda g: g},
    jvp={"x": lambda t: t},
    batch="front",
    spec=_phase_spec,
    home=(),
    samples=lambda s: [
        s((2, 2), owner="linalg_eigh"), s(s.array([[1.0, 1j], [1j, 2.0]]), owner="linalg_eigh"),
        s.error(RuntimeError, "phase of the vectors", s.array([[1.0 + 1j]]), owner="linalg_eigh"),
    ],
)  # fmt: skip
def phase_free(x: Inexact, owner: Any) -> Any:
    """Return Vᴴ gV, whose diagonal must be real: its imaginary part is the derivative along the phases of the vectors.

    Raises:
        RuntimeError: if it is not, because the loss then depends on what the decomposition leaves open.
    """
    if x.dtype.kind == "c":
        along = np.abs(np.diagonal(x, 0, -2, -1).imag)
        if np.any(along > 1e-2 * (1 + np.abs(x).max(initial=0))):
            raise RuntimeError(
                f"{owner}(): the loss depends on the phase of the vectors, which the decomposition leaves open (each "
                "may be multiplied by e^{iφ}), so it has no derivative; use a function that does not, such as abs()"
            )
    return x.copy()


def _gaps(values: Any) -> Any:
    """Return λⱼ - λᵢ for each row i and column j."""
    return columns_of(values) - rows_of(values)


def _diagonal(x: Any) -> Any:
    return ops.diagonal(x, 0, -2, -1)


# ---- Hermitian matrices


def _eigh_vjp(g: Any, eigenvalues: Any, eigenvectors: Any) -> Any:
    gL, gV = g
    V = eigenvectors
    inner = off_diagonal(ops.phase_free(V.mH @ gV, "linalg_eigh"), _gaps(eigenvalues))
    return hermitian_part(V @ (inner @ V.mH)) + (V * columns_of(gL)) @ V.mH


def _eigh_jvp(t: Any, eigenvalues: Any, eigenvectors: Any) -> tuple[Any, Any]:
    V = eigenvectors
    inner = V.mH @ hermitian_part(t) @ V
    return ops.real(_diagonal(inner)), V @ off_diagonal(inner, _gaps(eigenvalues))


def _uplo(name: str, UPLO: Any) -> Any:
    if UPLO not in ("L", "U", "l", "u"):
        raise ValueError(f"{name}(): UPLO must be 'L' or 'U', got {UPLO!r}")
    return UPLO.upper()


def _values_spec(name: str) -> Any:
    def spec(A: Spec, UPLO: Any = "L") -> Spec:
        square_shape(name, A.shape)
        _uplo(name, UPLO)
        return Spec(A.shape[:-1], real_of(A.dtype))

    return spec


def _hermitian_samples(s: Any) -> list[Any]:
    return [
        s(s.array(_SYMMETRIC), grad=False), s(s.array(_SYMMETRIC_BATCH), "U", grad=False),
        s(s.array(_HERMITIAN), grad=False), s((0, 0)), s((0, 2, 2)), s((1, 1)), s(s.array(np.eye(2)), grad=False),
        s.error(RuntimeError, "square", (2, 3)), s.error(ValueError, "'L' or 'U'", (2, 2), UPLO="lower"),
        s.error(RuntimeError, "infinities or NaN", s.array([[np.nan, 0.0], [0.0, np.inf]])),
    ]  # fmt: skip


# Where A must be Hermitian, differences along any other direction say nothing: grad=False.
@operator(
    outputs=("eigenvalues", "eigenvectors"),
    vjp={"A": _eigh_vjp},
    jvp={"A": _eigh_jvp},
    batch="front",
    spec=lambda A, UPLO="L": (_values_spec("linalg_eigh")(A, UPLO), A),
    samples=_hermitian_samples,
)
def linalg_eigh(A: Inexact, UPLO: Any = "L") -> Any:
    """Return the eigenvalues of each Hermitian matrix in ascending order, and its eigenvectors as columns: A = V Λ Vᴴ.

    Args:
        A: (*, n, n), Hermitian. UPLO: which triangle is read, ``"L"`` or ``"U"``.

    The gradient is Hermitian. That of the eigenvectors exists where the eigenvalues differ; where two are equal it is
    infinite or NaN, unless nothing is asked of these vectors. That of the eigenvalues is finite everywhere.

    Raises:
        LinAlgError: (a RuntimeError) for a matrix with infinities or NaN.

    Example:
        >>> import wengert as wg
        >>> wg.linalg.eigh(wg.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
        tensor([1., 2.])
    """
    square_shape("linalg_eigh", A.shape)
    which = _uplo("linalg_eigh", UPLO)
    return tuple(checked("linalg_eigh", lambda a: np.linalg.eigh(a, which), A))


def _eigvalsh_jvp(t: Any, A: Any, UPLO: Any) -> Any:
    V = ops.linalg_eigh(A, UPLO).eigenvectors
    return ops.real(ops.sum(ops.conj(V) * (hermitian_part(t) @ V), -2))


def _eigvalsh_vjp(g: Any, A: Any, UPLO: Any) -> Any:
    V = ops.linalg_eigh(A, UPLO).eigenvectors
    return (V * columns_of(g)) @ V.mH


@operator(
    vjp={"A": _eigvalsh_vjp},
    jvp={"A": _eigvalsh_jvp},
    batch="front",
    spec=_values_spec("linalg_eigvalsh"),
    samples=_hermitian_samples,
)
def linalg_eigvalsh(A: Inexact, UPLO: Any = "L") -> Any:
    """Return the eigenvalues of each Hermitian matrix in ascending order; see :func:`wengert.linalg.eigh`."""
    square_shape("linalg_eigvalsh", A.shape)
    which = _uplo("linalg_eigvalsh", UPLO)
    return checked("linalg_eigvalsh", lambda a: np.linalg.eigvalsh(a, which), A)


# ---- general matrices


def _eig_vjp(g: Any, eigenvalues: Any, eigenvectors: Any, A_dtype: Any) -> Any:
    gL, gV = g
    V = eigenvectors
    inner = ops.phase_free(V.mH @ gV, "linalg_eig")
    inner = inner - (V.mH @ V) * columns_of(ops.real(_diagonal(inner)))  # what keeps the columns at length 1
    inner = off_diagonal(inner, ops.conj(_gaps(eigenvalues))) + ops.diag_embed(gL)
    found = ops.linalg_solve(V.mH, inner @ V.mH)
    return found if A_dtype.is_complex else ops.real(found)


def _eig_jvp(t: Any, eigenvalues: Any, eigenvectors: Any) -> tuple[Any, Any]:
    V = eigenvectors
    inner = ops.linalg_solve(V, t.to(V.dtype) @ V)
    moved = V @ off_diagonal(inner, _gaps(eigenvalues))
    return _diagonal(inner), moved - V * columns_of(ops.real(_diagonal(V.mH @ moved)))


def _complex_spec(name: str) -> Any:
    def spec(A: Spec) -> Spec:
        square_shape(name, A.shape)
        return Spec(A.shape[:-1], A.dtype if A.dtype.is_complex else complex_of(A.dtype))

    return spec


def _as_complex(array: Any) -> Any:
    """Return eigenvalues or eigenvectors as complex numbers, which NumPy does only where it must."""
    return array.astype(np.result_type(array.dtype, np.complex64), copy=False)


def _general_samples(s: Any, grad: bool) -> list[Any]:
    return [
        s(s.array(_A3), grad=grad), s(s.array(_BATCH), grad=grad), s(s.array(_COMPLEX), grad=grad), s((0, 0)),
        s((0, 2, 2)), s((1, 1), grad=grad), s.error(RuntimeError, "square", (2, 3)),
        s.error(RuntimeError, "infinities or NaN", s.array([[np.nan, 0.0], [0.0, 1.0]])),
    ]  # fmt: skip


@operator(
    outputs=("eigenvalues", "eigenvectors"),
    vjp={"A": _eig_vjp},
    jvp={"A": _eig_jvp},
    batch="front",
    spec=lambda A: (_complex_spec("linalg_eig")(A), Spec(A.shape, _complex_spec("linalg_eig")(A).dtype)),
    samples=lambda s: _general_samples(s, grad=False),
)
def linalg_eig(A: Inexact) -> Any:
    """Return the eigenvalues of each square matrix, in no order, and its eigenvectors, the columns of V: A V = V Λ.

    Both are complex. The vectors have length 1. Their gradient exists where the eigenvalues differ, for functions that
    do not depend on the phase of the vectors.

    Raises:
        LinAlgError: (a RuntimeError) for a matrix with infinities or NaN.

    Example:
        >>> import wengert as wg
        >>> wg.linalg.eig(wg.tensor([[0.0, -1.0], [1.0, 0.0]])).eigenvalues
        tensor([0.+1.j, 0.-1.j])
    """
    square_shape("linalg_eig", A.shape)
    return tuple(_as_complex(x) for x in checked("linalg_eig", np.linalg.eig, A))


def _eigvals_vjp(g: Any, A: Any, A_dtype: Any) -> Any:
    V = ops.linalg_eig(A).eigenvectors
    found = ops.linalg_solve(V.mH, rows_of(g) * V.mH)
    return found if A_dtype.is_complex else ops.real(found)


@operator(
    vjp={"A": _eigvals_vjp},
    jvp={"A": lambda t, A: _eig_jvp(t, *ops.linalg_eig(A))[0]},
    batch="front",
    spec=_complex_spec("linalg_eigvals"),
    samples=lambda s: _general_samples(s, grad=True),
)
def linalg_eigvals(A: Inexact) -> Any:
    """Return the eigenvalues of each square matrix, complex and in no order; see :func:`wengert.linalg.eig`."""
    square_shape("linalg_eigvals", A.shape)
    return _as_complex(checked("linalg_eigvals", np.linalg.eigvals, A))

"""Householder reflections: the factor Q of a QR decomposition in LAPACK's form, as vectors vᵢ and numbers τᵢ.

The product of the reflections I - τᵢ vᵢ vᵢᴴ is I - V T Vᴴ with an upper triangular T (Schreiber, Van Loan, "A
storage-efficient WY representation for products of Householder transformations", 1989). T = (I + D S)⁻¹ D, where D holds
the τᵢ and S is the strict upper triangle of Vᴴ V (Joffrain et al., "Accumulating Householder transformations, revisited",
2006), so that a product is a few matrix products and a triangular system, and has its derivatives from them.
"""

from typing import Any

import numpy as np

from wengert.array.shape import broadcast_shapes
from wengert.core.arguments import Inexact
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.operators.checks import same_dtype
from wengert.operators.matrices import matrix_shape, rows_of

__all__ = ["geqrf", "linalg_householder_product", "orgqr", "ormqr"]

_A3 = [[1.0, 2.0, -0.5], [3.0, 1.0, 1.0], [-1.0, 0.2, 2.5]]
_TALL = [[1.0, 2.0], [3.0, -1.0], [0.5, 1.5]]
_COMPLEX = [[3.0 + 1j, 1.0 - 2j], [-1.0 + 0.5j, 2.0]]


def _geqrf_spec(input: Spec) -> tuple[Spec, Spec]:
    m, n = matrix_shape("geqrf", input.shape)
    return input, Spec((*input.shape[:-2], min(m, n)), input.dtype)


@operator(
    outputs=("a", "tau"),
    vjp={},
    jvp={},
    batch="front",
    spec=_geqrf_spec,
    samples=lambda s: [
        s(s.array(_A3), grad=False), s(s.array(_TALL), grad=False), s(s.array(np.transpose(_TALL)), grad=False),
        s(s.array([_COMPLEX, _COMPLEX]), grad=False), s((0, 2), grad=False), s((2, 0), grad=False),
        s((0, 2, 2), grad=False), s.error(RuntimeError, "matrix or a batch", (2,)),
        s.error(TypeError, "inexact", (2, 2), kind="integer"),
    ],
)  # fmt: skip
def geqrf(input: Inexact) -> Any:
    """Return the QR decomposition of each matrix as LAPACK leaves it: R above reflections, and their numbers τ.

    Args:
        input: (*, m, n). ``a`` has R on and above its diagonal and the vectors vᵢ below; ``tau`` is (*, min(m, n)).

    Q is ``wengert.linalg.householder_product(a, tau)``. It has no derivative; :func:`wengert.linalg.qr` has.

    Example:
        >>> import wengert as wg
        >>> a, tau = wg.geqrf(wg.tensor([[3.0, 1.0], [4.0, 2.0]]))
        >>> tau
        tensor([1.6000, 0.0000])
    """
    matrix_shape("geqrf", input.shape)
    packed, tau = np.linalg.qr(input, mode="raw")
    return np.ascontiguousarray(packed.mT), tau


# ---- products with the reflections


def _reflections(name: str, A: Any, tau: Any) -> tuple[Any, Any]:
    """Return V (*, m, k), unit lower trapezoidal, and D S (*, k, k)."""
    m, n = matrix_shape(name, A.shape)
    same_dtype(name, input=A, tau=tau)
    k = tau.shape[-1] if tau.ndim else -1
    if not 0 <= k <= min(m, n) or tuple(tau.shape[:-1]) != tuple(A.shape[:-2]):
        raise ShapeError(
            f"{name}(): tau must have shape (*, k) with k at most {min(m, n)} for reflections of shape "
            f"{tuple(A.shape)}, got {tuple(tau.shape)}"
        )
    vectors = ops.tril(ops.narrow(A, -1, 0, k), -1) + ops.eye(m, k, dtype=A.dtype)
    return vectors, rows_of(tau) * ops.triu(vectors.mH @ vectors, 1)


def _reflected(x: Any, y: Any, V: Any, tau: Any, inner: Any, adjoint: bool) -> Any:
    """Return X - V T Y, or X - V Tᴴ Y."""
    if adjoint:
        moved = ops.conj(rows_of(tau)) * ops.linalg_solve_triangular(inner.mH, y, upper=False, unitriangular=True)
    else:
        moved = ops.linalg_solve_triangular(inner, rows_of(tau) * y, upper=True, unitriangular=True)
    return x - V @ moved


@composite(
    samples=lambda s: [
        s((3, 2), (2,)), s((3, 3), (1,)), s((2, 3, 2), (2, 2)), s((2, 2), (2,), kind="complex"), s((3, 2), (0,)),
        s((0, 3, 2), (0, 2)), s((0, 0), (0,)), s.error(RuntimeError, "at least as many rows", (2, 3), (2,)),
        s.error(RuntimeError, "tau must have shape", (3, 2), (3,)), s.error(RuntimeError, "tau must have shape", (3, 2), ()),
    ],
)  # fmt: skip
def linalg_householder_product(A: Any, tau: Any) -> Any:
    """Return the first n columns of the product of the reflections I - τᵢ vᵢ vᵢᴴ, i = 1 … k.

    Args:
        A: (*, m, n), m ≥ n; below its diagonal, column i holds vᵢ, whose i-th element is 1 and those before it 0.
        tau: (*, k), k ≤ n.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor([[3.0, 1.0], [4.0, 2.0]])
        >>> bool(wg.allclose(wg.linalg.householder_product(*wg.geqrf(x)), wg.linalg.qr(x).Q, atol=1e-6))
        True
    """
    name = "linalg_householder_product"
    m, n = matrix_shape(name, A.shape)
    if m < n:
        raise ShapeError(f"{name}(): A needs at least as many rows as columns, got {tuple(A.shape)}")
    vectors, inner = _reflections(name, A, tau)
    return _reflected(ops.eye(m, n, dtype=A.dtype), ops.narrow(vectors, -2, 0, n).mH, vectors, tau, inner, False)


@composite(method=True, samples=lambda s: [s((3, 2), (2,))])
def orgqr(input: Any, tau: Any) -> Any:
    """Return the product of reflections; see :func:`wengert.linalg.householder_product`."""
    return ops.linalg_householder_product(input, tau)


@composite(
    method=True,
    samples=lambda s: [
        s((3, 2), (2,), (3, 4)), s((3, 2), (2,), (3, 1), transpose=True), s((3, 3), (2,), (2, 3), left=False),
        s((3, 2), (2,), (2, 3), False, True), s((2, 3, 2), (2, 2), (2, 3, 1)), s((3, 2), (0,), (3, 1)),
        s((3, 2), (2,), (3, 2), kind="complex"), s((3, 2), (2,), (2, 3), kind="complex", left=False, transpose=True),
        s((0, 0), (0,), (0, 2)), s.error(RuntimeError, "3 rows", (3, 2), (2,), (2, 3)),
        s.error(RuntimeError, "3 columns", (3, 2), (2,), (3, 2), left=False),
    ],
)  # fmt: skip
def ormqr(input: Any, tau: Any, other: Any, left: bool = True, transpose: bool = False) -> Any:
    """Return the product of the whole Q, m by m, with a matrix, without making Q.

    Args:
        input, tau: (*, m, n) and (*, k): reflections as :func:`wengert.geqrf` gives them.
        other: (*, m, p), or (*, p, m) if not ``left``.
        left: Q other; else other Q. transpose: Qᴴ in the place of Q.
    """
    vectors, inner = _reflections("ormqr", input, tau)
    same_dtype("ormqr", input=input, other=other)
    m = input.shape[-2]
    if matrix_shape("ormqr", other.shape)[0 if left else 1] != m:
        raise ShapeError(
            f"ormqr(): reflections of shape {tuple(input.shape)} with left={left} need an other with {m} "
            f"{'rows' if left else 'columns'}, got shape {tuple(other.shape)}"
        )
    broadcast_shapes("ormqr", input.shape[:-2], other.shape[:-2])
    if left:
        return _reflected(other, vectors.mH @ other, vectors, tau, inner, transpose)
    columns = other.mH
    return _reflected(columns, vectors.mH @ columns, vectors, tau, inner, not transpose).mH

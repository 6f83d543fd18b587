"""LU factors with partial pivoting, A = P L U, and linear systems solved with them.

L and U are kept packed in one matrix, as LAPACK does; everything else is made from that by operators. Derivative: Walter,
Lehmann, "Algorithmic differentiation of linear algebra functions with application in optimum experimental design", 2010,
and for matrices that are not square the rest of L or U follows from the square part by a triangular system.
"""

from collections import namedtuple
from typing import Any

from wengert.array.dtype import int32
from wengert.core.arguments import Inexact, Integer
from wengert.core.families import composite, nondifferentiable, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.kernels import triangular
from wengert.operators.matrices import LinAlgError, failure, matrix_shape, square_shape

__all__ = [
    "linalg_inv_ex", "linalg_lu", "linalg_lu_factor", "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_solve_ex", "lu",
    "lu_permutation", "lu_solve", "lu_unpack",
]  # fmt: skip

_A3 = [[1.0, 2.0, -0.5], [3.0, 1.0, 1.0], [-1.0, 0.2, 2.5]]
_TALL = [[1.0, 2.0], [3.0, -1.0], [0.5, 1.5]]
_WIDE = [[1.0, 3.0, 0.5], [2.0, -1.0, 1.5]]
_BATCH = [[[3.0, 1.0], [-1.0, 2.0]], [[0.5, -2.0], [1.5, 1.0]]]
_COMPLEX = [[3.0 + 1j, 1.0 - 2j], [-1.0 + 0.5j, 2.0]]
_SINGULAR = [[1.0, 2.0], [2.0, 4.0]]


# ---- the factorisation


def _block(x: Any, rows: slice, columns: slice) -> Any:
    return ops.narrow(ops.narrow(x, -2, rows.start, rows.stop - rows.start), -1, columns.start, columns.stop - columns.start)


def _blocks(x: Any) -> tuple[Any, Any, Any]:
    """Return the square part of a matrix, what lies below it and what lies right of it (one of the two is empty)."""
    m, n = x.shape[-2:]
    head = slice(0, min(m, n))
    return _block(x, head, head), _block(x, slice(head.stop, m), head), _block(x, head, slice(head.stop, n))


def _unit_lower(x: Any) -> Any:
    return ops.tril(x, -1) + ops.eye(x.shape[-1], dtype=x.dtype)


def _solve_l(L: Any, x: Any) -> Any:
    """Return L⁻¹ X."""
    return ops.linalg_solve_triangular(L, x, upper=False, unitriangular=True)


def _solve_lh(L: Any, x: Any) -> Any:
    """Return L⁻ᴴ X."""
    return ops.linalg_solve_triangular(L.mH, x, upper=True, unitriangular=True)


def _over_u(x: Any, U: Any) -> Any:
    """Return X U⁻¹."""
    return ops.linalg_solve_triangular(U, x, upper=True, left=False)


def _over_uh(x: Any, U: Any) -> Any:
    """Return X U⁻ᴴ."""
    return ops.linalg_solve_triangular(U.mH, x, upper=False, left=False)


def _lu_vjp(g: Any, LU: Any, pivots: Any) -> Any:
    square, below, right = _blocks(LU)
    g_square, g_below, g_right = _blocks(g[0])
    L, U = _unit_lower(square), ops.triu(square)
    gL, gU = ops.tril(g_square, -1), ops.triu(g_square)
    m, n = LU.shape[-2:]
    if m > n:  # L's lower part is A₂ U⁻¹
        below_a = _over_uh(g_below, U)
        gU = gU - ops.triu(below.mH @ below_a)
    if m < n:  # U's right part is L⁻¹ A₂
        right_a = _solve_lh(L, g_right)
        gL = gL - ops.tril(right_a @ right.mH, -1)
    first = _over_uh(_solve_lh(L, ops.tril(L.mH @ gL, -1) + ops.triu(gU @ U.mH)), U)
    whole = ops.cat((first, below_a), -2) if m > n else ops.cat((first, right_a), -1) if m < n else first
    return ops.lu_permutation(pivots, m, LU.dtype) @ whole


def _lu_jvp(t: Any, LU: Any, pivots: Any) -> tuple[Any, None, None]:
    m, n = LU.shape[-2:]
    square, below, right = _blocks(LU)
    t_square, t_below, t_right = _blocks(ops.lu_permutation(pivots, m, LU.dtype).mT @ t)
    L, U = _unit_lower(square), ops.triu(square)
    inner = _over_u(_solve_l(L, t_square), U)
    dL, dU = L @ ops.tril(inner, -1), ops.triu(inner) @ U
    whole = dL + dU
    if m > n:
        whole = ops.cat((whole, _over_u(t_below - below @ dU, U)), -2)
    if m < n:
        whole = ops.cat((whole, _solve_l(L, t_right - dL @ right)), -1)
    return whole, None, None


def _lu_spec(A: Spec, *, pivot: Any = True) -> tuple[Spec, Spec, Spec]:
    m, n = matrix_shape("linalg_lu_factor", A.shape)
    lead = tuple(A.shape[:-2])
    return A, Spec((*lead, min(m, n)), int32), Spec(lead, int32)


@operator(
    outputs=("LU", "pivots", "info"),
    vjp={"A": _lu_vjp},
    jvp={"A": _lu_jvp},
    spec=_lu_spec,
    home=(),
    samples=lambda s: [
        s(s.array(_A3)), s(s.array(_TALL)), s(s.array(_WIDE)), s(s.array(_BATCH)), s(s.array(_COMPLEX)), s((0, 0)), s((2, 0)),
        s((0, 2, 2)), s((3, 4)), s((4, 2)), s(s.array(_A3), pivot=False), s(s.array(_SINGULAR), grad=False),
        s.error(RuntimeError, "matrix or a batch", (2,)),
    ],
)  # fmt: skip
def lu_packed(A: Inexact, *, pivot: Any = True) -> Any:
    """Return L and U packed in one matrix, LAPACK's pivots, and the number of the first zero on U's diagonal, or 0."""
    matrix_shape("linalg_lu_factor", A.shape)
    return triangular.lu_factor(A, bool(pivot))


@nondifferentiable(
    spec=lambda pivots, m, dtype: Spec((*pivots.shape[:-1], m, m), dtype),
    home=(),
    samples=lambda s: [s(s.array([2, 2], ), m=3, dtype="float64") for _ in ()] or [],
)
def lu_permutation(pivots: Integer, m: Any, dtype: Any) -> Any:
    """Return the permutation matrices (*, m, m) that LAPACK's pivots (*, k) stand for."""
    return triangular.permutation(pivots, m, dtype.numpy)

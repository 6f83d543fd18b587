"""LU factors with partial pivoting, A = P L U, and linear systems solved with them.

L and U are kept packed in one matrix, as LAPACK does; everything else is made from that by operators. Derivative:
Walter, Lehmann, "Algorithmic differentiation of linear algebra functions with application in optimum experimental
design", 2010; where A is not square, the rest of L or U follows from the square part by a triangular system.
"""

from typing import Any, NamedTuple

import numpy as np

from wengert.array.dtype import int32
from wengert.core.arguments import DTypeOrNone, Inexact, Integer
from wengert.core.families import composite, nondifferentiable, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.kernels import triangular
from wengert.operators.matrices import failure, is_vector, matrix_shape, square_shape

__all__ = [
    "linalg_inv_ex", "linalg_lu", "linalg_lu_factor", "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_solve_ex", "lu",
    "lu_packed", "lu_permutation", "lu_solve", "lu_unpack", "refuse_failures",
]  # fmt: skip

_A3 = [[1.0, 2.0, -0.5], [3.0, 1.0, 1.0], [-1.0, 0.2, 2.5]]
_TALL = [[1.0, 2.0], [3.0, -1.0], [0.5, 1.5]]
_WIDE = [[1.0, 3.0, 0.5], [2.0, -1.0, 1.5]]
_BATCH = [[[3.0, 1.0], [-1.0, 2.0]], [[0.5, -2.0], [1.5, 1.0]]]
_COMPLEX = [[3.0 + 1j, 1.0 - 2j], [-1.0 + 0.5j, 2.0]]
_SINGULAR = [[1.0, 2.0], [2.0, 4.0]]
_PACKED = [[2.0, 1.0, -0.5], [0.5, 3.0, 1.0], [-0.5, 0.2, 2.5]]
_PIVOTS = np.array([2, 3, 3], np.int32)


# ---- the factorisation


def _block(x: Any, rows: slice, columns: slice) -> Any:
    return ops.narrow(
        ops.narrow(x, -2, rows.start, rows.stop - rows.start), -1, columns.start, columns.stop - columns.start
    )


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
    batch="front",
    spec=_lu_spec,
    home=(),
    samples=lambda s: [
        s(s.array(_A3)), s(s.array(_TALL)), s(s.array(_WIDE)), s(s.array(_BATCH)), s(s.array(_COMPLEX)), s((0, 0)),
        s((2, 0)), s((0, 2, 2)), s((3, 4)), s((4, 2)), s(s.array(_A3), pivot=False), s(s.array(_SINGULAR), grad=False),
        s.error(RuntimeError, "matrix or a batch", (2,)),
    ],
)  # fmt: skip
def lu_packed(A: Inexact, *, pivot: Any = True) -> Any:
    """Return L and U packed in one matrix, LAPACK's pivots, and the number of the first zero on U's diagonal, or 0."""
    matrix_shape("linalg_lu_factor", A.shape)
    return triangular.lu_factor(A, bool(pivot))


def _permutation_spec(pivots: Spec, m: int, dtype: Any) -> Spec:
    if not pivots.shape:
        raise ShapeError("lu_permutation(): pivots must be vectors (*, k), got a 0-d tensor")
    if pivots.shape[-1] > m:
        raise ShapeError(
            f"lu_permutation(): a matrix of {m} rows has at most {m} pivots, got shape {tuple(pivots.shape)}"
        )
    return Spec((*pivots.shape[:-1], m, m), dtype)


@nondifferentiable(
    batch="front",
    spec=_permutation_spec,
    home=(),
    samples=lambda s: [
        s(s.array(_PIVOTS), m=3, dtype="float64"), s(s.array([[2], [1]]), m=2, dtype="complex64"),
        s(s.tensor((0,), kind="integer"), m=2, dtype="float32"),
        s.error(RuntimeError, "at most 2 pivots", s.array([1, 2, 2]), m=2, dtype="float32"),
    ],
)  # fmt: skip
def lu_permutation(pivots: Integer, m: Any, dtype: DTypeOrNone) -> Any:
    """Return the permutation matrices (*, m, m) that LAPACK's pivots (*, k) stand for."""
    _permutation_spec(pivots, m, dtype)
    if pivots.size and not (pivots.min() >= 1 and pivots.max() <= m):
        raise IndexError(f"lu_permutation(): the pivots of a matrix of {m} rows must lie between 1 and {m}, as lu_factor() "
                         f"gives them; they reach from {pivots.min()} to {pivots.max()}")  # fmt: skip
    return triangular.permutation(pivots, m, dtype.numpy)


class Factors(NamedTuple):
    """Packed factors and their pivots."""

    LU: Any
    pivots: Any


class Unpacked(NamedTuple):
    """Permutation, unit lower triangular and upper triangular factor."""

    P: Any
    L: Any
    U: Any


class Inverse(NamedTuple):
    """Inverses, and per matrix 0 or the number of the first zero pivot."""

    inverse: Any
    info: Any


class Solution(NamedTuple):
    """Solutions, and per matrix 0 or the number of the first zero pivot."""

    result: Any
    info: Any


@nondifferentiable(
    spec=lambda info, owner, why: info,
    batch="front",
    home=(),
    samples=lambda s: [
        s(s.array([0, 0]), owner="linalg_lu_factor", why="singular"),
        s.error(RuntimeError, "matrix 1 of the batch: element 2 is zero", s.array([0, 2]), owner="f", why="element {} is zero"),
    ],
)  # fmt: skip
def refuse_failures(info: Integer, owner: Any, why: Any) -> Any:
    """Return what LAPACK says of each matrix: 0, or where it failed.

    It is an operator because only a kernel sees the numbers inside of a transform.

    Raises:
        LinAlgError: naming the first matrix that failed; ``why`` says so, with the number in it.
    """
    if info.any():
        raise failure(owner, info != 0, why.format(info.ravel()[np.flatnonzero(info.ravel())[0]]))
    return info.copy()


def _check_info(name: str, info: Any) -> None:
    """Refuse matrices with a zero pivot; LinAlgError names the first."""
    ops.refuse_failures(info, name, "it is singular: element {} of U's diagonal is zero")


@composite(
    samples=lambda s: [
        s(s.array(_A3)),
        s(s.array(_SINGULAR), grad=False),
        s.error(RuntimeError, "element 2", s.array(_SINGULAR), check_errors=True),
    ]
)
def linalg_lu_factor_ex(A: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """Return packed factors, pivots and, per matrix, the number of the first zero on U's diagonal or 0.

    Raises:
        LinAlgError: (a RuntimeError) for a singular matrix, if ``check_errors``.
    """
    found = ops.lu_packed(A, pivot=pivot)
    if check_errors:
        _check_info("linalg_lu_factor_ex", found.info)
    return found


@composite(
    samples=lambda s: [
        s(s.array(_A3)), s(s.array(_TALL)), s(s.array(_BATCH)),
        s.error(RuntimeError, "matrix 0 of the batch: it is singular: element 2", s.array([_SINGULAR])),
    ],
)  # fmt: skip
def linalg_lu_factor(A: Any, *, pivot: bool = True) -> Any:
    """Return L and U of A = P L U packed in one matrix, L without its diagonal of ones, and LAPACK's pivots.

    Raises:
        LinAlgError: (a RuntimeError) for a singular matrix, for which :func:`wengert.linalg.lu_solve` would not work.
    """
    found = ops.lu_packed(A, pivot=pivot)
    _check_info("linalg_lu_factor", found.info)
    return Factors(found.LU, found.pivots)


@composite(method=True, samples=lambda s: [s(s.array(_A3)), s(s.array(_A3), get_infos=True)])
def lu(A: Any, pivot: bool = True, get_infos: bool = False) -> Any:
    """Return packed factors and pivots, and the infos if asked; see :func:`wengert.linalg.lu_factor`."""
    found = ops.lu_packed(A, pivot=pivot)
    return tuple(found) if get_infos else Factors(found.LU, found.pivots)


@composite(
    samples=lambda s: [
        s(s.array(_A3), s.array(_PIVOTS)), s(s.array(_TALL), s.array(_PIVOTS[:2])),
        s(s.array(_WIDE), s.array(np.array([1, 2], np.int32))), s(s.array(_A3), s.array(_PIVOTS), unpack_pivots=False),
    ],
)  # fmt: skip
def lu_unpack(LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """Return P, L and U from packed factors and pivots; what is not unpacked is an empty tensor."""
    m, n = matrix_shape("lu_unpack", LU_data.shape)
    k = min(m, n)
    nothing = ops.zeros(0, dtype=LU_data.dtype)
    P = ops.lu_permutation(LU_pivots, m, LU_data.dtype) if unpack_pivots else nothing
    if not unpack_data:
        return Unpacked(P, nothing, nothing)
    L = ops.tril(ops.narrow(LU_data, -1, 0, k), -1) + ops.eye(m, k, dtype=LU_data.dtype)
    return Unpacked(P, L, ops.triu(ops.narrow(LU_data, -2, 0, k)))


@composite(
    samples=lambda s: [
        s(s.array(_A3)), s(s.array(_TALL)), s(s.array(_WIDE)), s(s.array(_BATCH)), s(s.array(_COMPLEX)),
        s(s.array(_SINGULAR), grad=False), s((0, 0)), s(s.array(_A3), pivot=False),
    ],
)  # fmt: skip
def linalg_lu(A: Any, *, pivot: bool = True) -> Any:
    """Return P, L and U with A = P L U: a permutation, a unit lower and an upper triangular matrix.

    Args:
        A: (*, m, n); P is (*, m, m), L (*, m, k) and U (*, k, n), k = min(m, n).
        pivot: exchange rows; without, P is empty and a zero on the diagonal gives infinities.

    Example:
        >>> import wengert as wg
        >>> P, L, U = wg.linalg.lu(wg.tensor([[1.0, 2.0], [4.0, 4.0]]))
        >>> U
        tensor([[4., 4.],
                [0., 1.]])
    """
    found = ops.lu_packed(A, pivot=pivot)
    return ops.lu_unpack(found.LU, found.pivots, True, pivot)


# ---- solving with the factors


@composite(
    samples=lambda s: [
        s(s.array(_PACKED), s.array(_PIVOTS), (3, 2)), s(s.array(_PACKED), s.array(_PIVOTS), (3, 1), adjoint=True),
        s(s.array(_PACKED), s.array(_PIVOTS), (2, 3), left=False),
        s(s.array(_PACKED), s.array(_PIVOTS), (2, 3), left=False, adjoint=True),
        s(s.array(_PACKED), s.array(_PIVOTS), (2, 3, 1)),
    ],
)  # fmt: skip
def linalg_lu_solve(LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    """Return X with A X = B (X A = B if not ``left``; Aᴴ in the place of A if ``adjoint``), from the factors of A.

    Args:
        LU, pivots: from :func:`wengert.linalg.lu_factor`. B: (*, n, k), or (*, k, n) on the right.
    """
    if not left:
        return ops.linalg_lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    P = ops.lu_permutation(pivots, square_shape("linalg_lu_solve", LU.shape), LU.dtype)
    if adjoint:
        return P @ _solve_lh(LU, ops.linalg_solve_triangular(LU.mH, B, upper=False))
    return ops.linalg_solve_triangular(LU, _solve_l(LU, P.mT @ B), upper=True)


@composite(method=True, samples=lambda s: [s((3, 2), s.array(_PACKED), s.array(_PIVOTS))])
def lu_solve(b: Any, LU_data: Any, LU_pivots: Any) -> Any:
    """Return X with A X = b, from the factors of A; see :func:`wengert.linalg.lu_solve`."""
    return ops.linalg_lu_solve(LU_data, LU_pivots, b)


@composite(
    samples=lambda s: [
        s(s.array(_A3)),
        s(s.array(_SINGULAR), grad=False),
        s.error(RuntimeError, "singular", s.array(_SINGULAR), check_errors=True),
    ]
)
def linalg_inv_ex(A: Any, *, check_errors: bool = False) -> Any:
    """Return inverses and, per matrix, 0 or the number of the first zero pivot, where the inverse is not finite.

    Raises:
        LinAlgError: (a RuntimeError) for a singular matrix, if ``check_errors``.
    """
    n = square_shape("linalg_inv_ex", A.shape)
    found = ops.lu_packed(A)
    if check_errors:
        _check_info("linalg_inv_ex", found.info)
    return Inverse(ops.linalg_lu_solve(found.LU, found.pivots, ops.eye(n, dtype=A.dtype)), found.info)


@composite(
    samples=lambda s: [
        s(s.array(_A3), (3, 2)), s(s.array(_A3), (3,)), s(s.array(_A3), (2, 3), left=False),
        s(s.array(_SINGULAR), (2,), grad=False),
        s.error(RuntimeError, "singular", s.array(_SINGULAR), (2,), check_errors=True),
    ],
)  # fmt: skip
def linalg_solve_ex(A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """Return X with A X = B and, per matrix, 0 or the number of the first zero pivot, where X is not finite.

    Raises:
        LinAlgError: (a RuntimeError) for a singular matrix, if ``check_errors``.
    """
    square_shape("linalg_solve_ex", A.shape)
    found = ops.lu_packed(A)
    if check_errors:
        _check_info("linalg_solve_ex", found.info)
    if is_vector(A, B):
        solved = ops.squeeze(ops.linalg_lu_solve(found.LU, found.pivots, ops.unsqueeze(B, -1)), -1)
    else:
        solved = ops.linalg_lu_solve(found.LU, found.pivots, B, left=left)
    return Solution(solved, found.info)

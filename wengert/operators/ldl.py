"""Factors A = P L D Lᴴ Pᵀ of Hermitian and symmetric matrices, and linear systems solved with them.

D and L are kept packed in one matrix, as LAPACK does. The derivative is that of L and D while the pivots stay as they
are: with W = L⁻¹ Pᵀ dA P L⁻ᴴ, the blocks of dD are those on W's diagonal, and dL = L M, where M D is what lies below them
(as for LU factors: Walter, Lehmann, "Algorithmic differentiation of linear algebra functions with application in optimum
experimental design", 2010). PyTorch has none.
"""

from typing import Any, NamedTuple

import numpy as np

from wengert.array.dtype import bool_, int32, int64
from wengert.core.arguments import Inexact, Integer
from wengert.core.families import composite, nondifferentiable, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.kernels import ldl as kernel
from wengert.operators.checks import same_dtype
from wengert.operators.matrices import columns_of, matrix_shape, rows_of, square_shape

__all__ = ["ldl_order", "ldl_packed", "linalg_ldl_factor", "linalg_ldl_factor_ex", "linalg_ldl_solve"]

_INDEFINITE = [[0.0, 1.0, 2.0], [1.0, 0.5, -1.0], [2.0, -1.0, 0.2]]
_BATCH = [[[2.0, 0.5], [0.5, -1.0]], [[0.0, -0.3], [-0.3, 0.0]]]
_HERMITIAN = [[0.1, 1.0 - 1j], [1.0 + 1j, 2.0]]
_PACKED, _PIVOTS = [[2.0, 0.0, 0.0], [0.5, 0.1, 0.0], [-0.5, 1.2, 0.3]], np.array([3, -3, -3], np.int32)


# ---- what the packed matrix holds


def _order_spec(pivots: Spec) -> tuple[Spec, Spec, Spec]:
    shape = tuple(pivots.shape)
    return Spec(shape, int64), Spec((*shape, shape[-1]), int64), Spec((*shape, shape[-1]), bool_)


@nondifferentiable(
    outputs=("order", "rows", "same"),
    batch="front",
    spec=_order_spec,
    home=(),
    samples=lambda s: [
        s(s.array(_PIVOTS)), s(s.array([[2, 2], [-2, -2]])), s(s.array(np.zeros((0, 2), np.int32))),
        s.error(IndexError, "between 1 and 2", s.array([1, 3])), s.error(IndexError, "come in pairs", s.array([1, -2])),
    ],
)  # fmt: skip
def ldl_order(pivots: Integer) -> Any:
    """Return the order of the rows, where each element of L is found, and which elements lie in the blocks of D."""
    n, size = pivots.shape[-1], np.abs(pivots)
    if pivots.size and not (size.min() >= 1 and size.max() <= n):
        raise IndexError(
            f"linalg_ldl_solve(): the pivots of a matrix of {n} rows must lie between 1 and {n}, or be negative, as "
            f"ldl_factor() gives them; they reach from {pivots.min()} to {pivots.max()}"
        )
    order, rows, begins = kernel.ldl_order(pivots)
    if begins[..., -1:].any():
        raise IndexError("linalg_ldl_solve(): negative pivots come in pairs, as ldl_factor() gives them")
    block = np.cumsum(~np.roll(begins, 1, -1), -1)  # the second row of a block does not begin another
    return order, rows, block[..., :, np.newaxis] == block[..., np.newaxis, :]


class _Parts:
    """Pᵀ, the unit lower triangular L, D⁻¹, and for rules where elements of L are found and which belong to D."""

    def __init__(self, LD: Any, pivots: Any, hermitian: bool) -> None:
        order, self.rows, self.same = ops.ldl_order(pivots)
        n = LD.shape[-1]
        self.hermitian = hermitian
        self.PT = ops.eq(rows_of(order), ops.arange(n)).to(LD.dtype)
        lower = ops.tril(ops.gather(LD, -2, self.rows))
        self.L = ops.where(self.same, ops.eye(n, dtype=LD.dtype), lower)
        self.D_inverse = self._inverse(ops.where(self.same, lower, 0.0))

    def adjoint(self, x: Any) -> Any:
        """Return Xᴴ, or Xᵀ for symmetric matrices."""
        return x.mH if self.hermitian else x.mT

    def symmetric(self, x: Any) -> Any:
        """Return the Hermitian (or symmetric) part."""
        return (x + self.adjoint(x)) * 0.5

    def _inverse(self, lower: Any) -> Any:
        """Return D⁻¹ from D's lower triangle: 1 / d, or that of a 2 by 2 block divided by its other element first."""
        d, below = ops.diagonal(lower, 0, -2, -1), ops.tril(lower, -1)
        c = ops.sum(below, -1) + ops.sum(below, -2)  # one of the two holds the element
        others = ops.logical_and(self.same, ops.eye(d.shape[-1], dtype=bool_).logical_not())
        partner = ops.sum(ops.where(others, columns_of(d), 0.0), -1)
        paired = ops.any(others, -1)
        c = ops.where(paired, c, 1.0)
        scale = ops.abs(c).to(c.dtype) if self.hermitian else c
        over = ops.where(paired, scale * ((d / scale) * (partner / scale) - 1), 1.0)
        diagonal = ops.where(paired, partner / scale / over, 1 / ops.where(paired, 1.0, d))
        outside = ops.tril(ops.where(others, columns_of(-(c / scale) / over), 0.0), -1)
        return ops.diag_embed(diagonal) + outside + self.adjoint(outside)


# ---- the factorisation


def _ldl_jvp(t: Any, LD: Any, pivots: Any, hermitian: Any) -> tuple[Any, None, None]:
    f = _Parts(LD, pivots, hermitian)
    moved = f.PT @ f.symmetric(t) @ f.PT.mT
    half = ops.linalg_solve_triangular(f.L, moved, upper=False, unitriangular=True)
    W = ops.linalg_solve_triangular(f.adjoint(f.L), half, upper=True, left=False, unitriangular=True)
    dL = f.L @ (ops.where(f.same, 0.0, ops.tril(W)) @ f.D_inverse)
    return ops.gather(ops.where(f.same, ops.tril(W), dL), -2, ops.argsort(f.rows, -2)), None, None


def _ldl_vjp(g: Any, LD: Any, pivots: Any, hermitian: Any) -> Any:
    f = _Parts(LD, pivots, hermitian)
    found = ops.tril(ops.gather(g[0], -2, f.rows))
    inner = ops.tril((f.L.mH @ ops.where(f.same, 0.0, found)) @ f.D_inverse.mH)
    half = ops.linalg_solve_triangular(f.L.mH, ops.where(f.same, found, inner), upper=True, unitriangular=True)
    other = f.L if hermitian else ops.conj(f.L)
    moved = ops.linalg_solve_triangular(other, half, upper=False, left=False, unitriangular=True)
    return f.symmetric(f.PT.mT @ moved @ f.PT)


def _ldl_spec(A: Spec, *, hermitian: Any = False) -> tuple[Spec, Spec, Spec]:
    square_shape("linalg_ldl_factor", A.shape)
    return A, Spec(tuple(A.shape[:-1]), int32), Spec(tuple(A.shape[:-2]), int32)


# Where A must be Hermitian, differences along any other direction say nothing: grad=False.
@operator(
    outputs=("LD", "pivots", "info"),
    vjp={"A": _ldl_vjp},
    jvp={"A": _ldl_jvp},
    batch="front",
    spec=_ldl_spec,
    home=(),
    samples=lambda s: [
        s(s.array(_INDEFINITE), grad=False), s(s.array(_BATCH), hermitian=True, grad=False), s((0, 0)), s((0, 2, 2)),
        s(s.array(_HERMITIAN), hermitian=True, grad=False), s(s.array(_HERMITIAN), grad=False), s((1, 1), kind="positive"),
        s(s.array([[0.0, 0.0], [0.0, 0.0]]), grad=False), s.error(RuntimeError, "square", (2, 3)),
    ],
)  # fmt: skip
def ldl_packed(A: Inexact, *, hermitian: Any = False) -> Any:
    """Return D and L packed in one matrix, LAPACK's pivots, and the number of the first zero block of D, or 0."""
    square_shape("linalg_ldl_factor", A.shape)
    return kernel.ldl_factor(A, bool(hermitian))


class Factors(NamedTuple):
    """Packed factors and their pivots."""

    LD: Any
    pivots: Any


@composite(
    samples=lambda s: [
        s(s.array(_INDEFINITE), grad=False), s(s.array(_HERMITIAN), hermitian=True, grad=False),
        s(s.array([[0.0]]), grad=False), s.error(RuntimeError, "element 1", s.array([[0.0]]), check_errors=True),
    ],
)  # fmt: skip
def linalg_ldl_factor_ex(A: Any, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """Return packed factors, pivots and, per matrix, the number of the first zero block of D, or 0.

    Raises:
        LinAlgError: (a RuntimeError) for a matrix with such a block, which is singular, if ``check_errors``.
    """
    found = ops.ldl_packed(A, hermitian=hermitian)
    if check_errors:
        _check_info("linalg_ldl_factor_ex", found.info)
    return found


def _check_info(name: str, info: Any) -> None:
    """Refuse matrices with a zero block in D; LinAlgError names the first."""
    ops.refuse_failures(info, name, "it is singular: element {} of D's diagonal is zero")


@composite(
    samples=lambda s: [
        s(s.array(_INDEFINITE), grad=False), s(s.array(_BATCH), grad=False),
        s.error(RuntimeError, "matrix 0 of the batch: it is singular: element 1", s.array([[[0.0]]])),
    ],
)  # fmt: skip
def linalg_ldl_factor(A: Any, *, hermitian: bool = False) -> Any:
    """Return D and L of A = P L D Lᴴ Pᵀ packed in one matrix, and LAPACK's pivots.

    It is what Cholesky factors are for matrices that are not positive definite. D has blocks of one and two rows.

    Args:
        A: (*, n, n), Hermitian if ``hermitian`` (real matrices are that anyhow), else symmetric: A = P L D Lᵀ Pᵀ. The
            lower triangle is read. The gradient is Hermitian (symmetric).

    Raises:
        LinAlgError: (a RuntimeError) for a singular matrix with a zero block in D.

    Example:
        >>> import wengert as wg
        >>> a = wg.tensor([[0.0, 2.0], [2.0, 0.0]])
        >>> wg.linalg.ldl_solve(*wg.linalg.ldl_factor(a), wg.tensor([[2.0], [4.0]]))
        tensor([[2.],
                [1.]])
    """
    found = ops.ldl_packed(A, hermitian=hermitian)
    _check_info("linalg_ldl_factor", found.info)
    return Factors(found.LD, found.pivots)


@composite(
    samples=lambda s: [
        s(s.array(_PACKED), s.array(_PIVOTS), (3, 2)), s(s.array(_PACKED), s.array([1, 3, 3]), (2, 3, 1)),
        s(s.array([_PACKED, _PACKED]), s.array([_PIVOTS, _PIVOTS]), (3, 1)),
        s(s.array(np.multiply(_PACKED, 1 + 1j)), s.array(_PIVOTS), s.tensor((3, 1), kind="complex")),
        s(s.array(np.add(_PACKED, 0j)), s.array(_PIVOTS), s.tensor((3, 1), kind="complex"), hermitian=True, grad=False),
        s((0, 0), s.array(np.zeros(0, np.int32)), (0, 2)),
        s.error(RuntimeError, "3 rows", s.array(_PACKED), s.array(_PIVOTS), (2, 2)),
        s.error(RuntimeError, "pivots of shape", s.array(_PACKED), s.array([1, 2]), (3, 1)),
        s.error(RuntimeError, "matrix or a batch", s.array(_PACKED), s.array(_PIVOTS), (3,)),
    ],
)  # fmt: skip
def linalg_ldl_solve(LD: Any, pivots: Any, B: Any, *, hermitian: bool = False) -> Any:
    """Return X with A X = B from the factors of A that :func:`wengert.linalg.ldl_factor` gives.

    Args:
        LD: (*, n, n). pivots: (*, n). B: (*, n, k). hermitian: as it was for the factors.
    """
    name = "linalg_ldl_solve"
    n = square_shape(name, LD.shape)
    same_dtype(name, LD=LD, B=B)
    if tuple(pivots.shape) != tuple(LD.shape[:-1]):
        raise ShapeError(f"{name}(): LD of shape {tuple(LD.shape)} needs pivots of shape {tuple(LD.shape[:-1])}, "
                         f"got {tuple(pivots.shape)}")  # fmt: skip
    if matrix_shape(name, B.shape)[0] != n:
        raise ShapeError(f"{name}(): LD of shape {tuple(LD.shape)} needs B with {n} rows, got shape {tuple(B.shape)}")
    f = _Parts(LD, pivots, hermitian)
    half = f.D_inverse @ ops.linalg_solve_triangular(f.L, f.PT @ B, upper=False, unitriangular=True)
    return f.PT.mT @ ops.linalg_solve_triangular(f.adjoint(f.L), half, upper=True, unitriangular=True)

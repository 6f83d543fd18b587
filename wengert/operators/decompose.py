"""Triangular factors: Cholesky and QR.

Derivatives: Murray, "Differentiation of the Cholesky decomposition", 2016; Seeger et al., "Auto-differentiating linear
algebra", 2017 (QR; with a real diagonal of R for complex matrices).
"""

from typing import Any, NamedTuple

import numpy as np

from wengert.array.dtype import dtype_of, int32
from wengert.core.apply import execute
from wengert.core.arguments import Inexact
from wengert.core.batch import in_front
from wengert.core.families import composite, nondifferentiable, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.operators.matrices import (
    LinAlgError,
    failure,
    halved,
    hermitian_part,
    matrix_shape,
    same_spec,
    square_shape,
)

__all__ = [
    "bad_minors", "cholesky", "leading_minor", "linalg_cholesky", "linalg_cholesky_ex", "linalg_qr", "qr",
]  # fmt: skip

_POSITIVE = [[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 2.0]]
_POSITIVE_BATCH = [[[2.0, 0.5], [0.5, 1.0]], [[1.0, -0.3], [-0.3, 3.0]]]
_HERMITIAN = [[3.0, 1.0 - 1j], [1.0 + 1j, 2.0]]
_A3 = [[1.0, 2.0, -0.5], [3.0, 1.0, 1.0], [-1.0, 0.2, 2.5]]
_TALL = [[1.0, 2.0], [3.0, -1.0], [0.5, 1.5]]
_BATCH = [[[3.0, 1.0], [-1.0, 2.0]], [[0.5, -2.0], [1.5, 1.0]]]
_COMPLEX = [[3.0 + 1j, 1.0 - 2j], [-1.0 + 0.5j, 2.0]]


# ---- Cholesky


def _cholesky_vjp(g: Any, out: Any, upper: Any) -> Any:
    L, gL = (out.mH, g.mH) if upper else (out, g)
    inner = hermitian_part(halved(L.mH @ gL))
    left = ops.linalg_solve_triangular(L.mH, inner, upper=True)
    return ops.linalg_solve_triangular(L, left, upper=False, left=False)


def _cholesky_jvp(t: Any, out: Any, upper: Any) -> Any:
    L = out.mH if upper else out
    half = ops.linalg_solve_triangular(L, hermitian_part(t), upper=False)
    moved = L @ halved(ops.linalg_solve_triangular(L.mH, half, upper=True, left=False))
    return moved.mH if upper else moved


_NOT_POSITIVE = "it is not positive definite (its leading minor of order {} is not)"


def _not_positive(name: str, order: Any) -> LinAlgError:
    """Return the error for the first matrix that has a leading minor which is not positive definite."""
    first = order.ravel()[np.flatnonzero(order.ravel())[0]] if order.any() else 0
    return failure(name, order != 0, _NOT_POSITIVE.format(first))


def leading_minor(a: Any) -> Any:
    """Return, for each matrix, the order of the smallest leading minor that is not positive definite; 0 if none is."""
    orders = np.zeros(a.shape[:-2], np.int32)
    if _factors(a):
        return orders
    for index in np.ndindex(a.shape[:-2]):
        good, bad = 0, a.shape[-1] + 1  # the minor of order 0 is positive definite; bisect between the two
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if _factors(a[index][:middle, :middle]) else (good, middle)
        orders[index] = bad % (a.shape[-1] + 1)
    return orders


def _factors(a: Any) -> bool:
    try:
        np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return False
    return True


# Where A must be Hermitian, differences along any other direction say nothing: grad=False.
@operator(
    vjp={"A": _cholesky_vjp},
    jvp={"A": _cholesky_jvp},
    batch="front",
    spec=same_spec("linalg_cholesky"),
    samples=lambda s: [
        s(s.array(_POSITIVE), grad=False), s(s.array(_POSITIVE), upper=True, grad=False),
        s(s.array(_POSITIVE_BATCH), grad=False), s(s.array(_HERMITIAN), grad=False), s((0, 0)), s((0, 2, 2)),
        s((1, 1), kind="positive"), s.error(RuntimeError, "square", (2, 3)),
        s.error(RuntimeError, "order 2 is not", s.array([[1.0, 2.0], [2.0, 1.0]])),
        s.error(RuntimeError, "matrix 1 of the batch", s.array([[[1.0]], [[-1.0]]])),
    ],
)  # fmt: skip
def linalg_cholesky(A: Inexact, *, upper: Any = False) -> Any:
    """Return the lower triangular L with A = L Lᴴ for Hermitian positive definite A; if ``upper``, Lᴴ.

    Only one triangle of A is read. The gradient is Hermitian.

    Raises:
        LinAlgError: (a RuntimeError) naming the first matrix that is not positive definite, and its first bad minor.

    Example:
        >>> import wengert as wg
        >>> wg.linalg.cholesky(wg.tensor([[4.0, 2.0], [2.0, 5.0]]))
        tensor([[2., 0.],
                [1., 2.]])
    """
    square_shape("linalg_cholesky", A.shape)
    try:
        return np.linalg.cholesky(A, upper=bool(upper))
    except np.linalg.LinAlgError:
        raise _not_positive("linalg_cholesky", leading_minor(A)) from None


@composite(
    method=True, samples=lambda s: [s(s.array(_POSITIVE), grad=False), s(s.array(_POSITIVE), upper=True, grad=False)]
)
def cholesky(input: Any, upper: bool = False) -> Any:
    """Return the Cholesky factor of each matrix; see :func:`wengert.linalg.cholesky`."""
    return ops.linalg_cholesky(input, upper=upper)


@nondifferentiable(
    batch="front",
    spec=lambda A: Spec(A.shape[:-2], int32),
    home=(),
    samples=lambda s: [
        s(s.array(_POSITIVE_BATCH)),
        s(s.array([[[1.0, 2.0], [2.0, 1.0]], [[-1.0, 0.0], [0.0, 1.0]]])),
        s((0, 2, 2)),
    ],
)
def bad_minors(A: Inexact) -> Any:
    """Return the order of each matrix's smallest leading minor that is not positive definite; 0 if there is none."""
    return leading_minor(A)


class Factored(NamedTuple):
    """Cholesky factors, and per matrix 0 or the order of the first leading minor that is not positive definite."""

    L: Any
    info: Any


@composite(
    samples=lambda s: [
        s(s.array(_POSITIVE), grad=False), s(s.array([[[1.0, 2.0], [2.0, 1.0]], [[4.0, 2.0], [2.0, 5.0]]]), grad=False),
        s.error(RuntimeError, "order 2 is not", s.array([[1.0, 2.0], [2.0, 1.0]]), check_errors=True),
    ],
)  # fmt: skip
def linalg_cholesky_ex(A: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    """Return Cholesky factors and, per matrix, 0 or the order of the first leading minor that is not positive definite.

    A matrix that has no factor gets NaN.

    Raises:
        LinAlgError: (a RuntimeError) for such a matrix, if ``check_errors``.
    """
    n = square_shape("linalg_cholesky_ex", A.shape)
    info = ops.bad_minors(A)
    if check_errors:
        ops.refuse_failures(info, "linalg_cholesky_ex", _NOT_POSITIVE)
    bad = ops.reshape(info != 0, (*info.shape, 1, 1))
    found = ops.linalg_cholesky(ops.where(bad, ops.eye(n, dtype=A.dtype), A), upper=upper)
    return Factored(ops.where(bad, np.nan, found), info)


# ---- QR


def _tall_qr_vjp(gQ: Any, gR: Any, Q: Any, R: Any) -> Any:
    """Return the cotangent of A, which has no more columns than rows."""
    inner = halved((gR @ R.mH - Q.mH @ gQ).mH)
    return ops.linalg_solve_triangular(R.mH, gQ + Q @ (inner + inner.mH), upper=False, left=False)


def _tall_qr_jvp(t: Any, Q: Any, R: Any) -> tuple[Any, Any]:
    """Return the tangents of Q and R: Qᴴ dQ is skew-Hermitian and dR R⁻¹ upper triangular with a real diagonal."""
    moved = ops.linalg_solve_triangular(R, t, upper=True, left=False)
    inner = Q.mH @ moved
    upper = halved(inner + inner.mH).mH
    return moved - Q @ upper, upper @ R


def _parts(R: Any) -> tuple[Any, Any]:
    """Return the square part of a wide matrix and the rest."""
    k, n = R.shape[-2:]
    return ops.narrow(R, -1, 0, k), ops.narrow(R, -1, k, n - k)


def _check_differentiable(Q: Any, R: Any, mode: str) -> None:
    if mode == "r":
        raise RuntimeError("linalg_qr(): mode='r' has no derivative, because it computes no Q; use mode='reduced'")
    if mode == "complete" and Q.shape[-1] > R.shape[-1]:
        raise RuntimeError(
            f"linalg_qr(): mode='complete' has no derivative for {Q.shape[-1]} rows and {R.shape[-1]} columns, because "
            "the last columns of Q are arbitrary; use mode='reduced'"
        )


def _qr_vjp(g: Any, Q: Any, R: Any, mode: Any) -> Any:
    _check_differentiable(Q, R, mode)
    gQ, gR = g
    if R.shape[-1] <= R.shape[-2]:
        return _tall_qr_vjp(gQ, gR, Q, R)
    (square, rest), (g_square, g_rest) = _parts(R), _parts(gR)  # rest = Qᴴ Y for the last columns Y = Q rest
    first = _tall_qr_vjp(gQ + Q @ (rest @ g_rest.mH), g_square, Q, square)
    return ops.cat((first, Q @ g_rest), -1)


def _qr_jvp(t: Any, Q: Any, R: Any, mode: Any) -> tuple[Any, Any]:
    _check_differentiable(Q, R, mode)
    if R.shape[-1] <= R.shape[-2]:
        return _tall_qr_jvp(t, Q, R)
    k = R.shape[-2]
    square, rest = _parts(R)
    t_square, t_rest = ops.narrow(t, -1, 0, k), ops.narrow(t, -1, k, R.shape[-1] - k)
    dQ, dR = _tall_qr_jvp(t_square, Q, square)
    return dQ, ops.cat((dR, dQ.mH @ (Q @ rest) + Q.mH @ t_rest), -1)


def _qr_spec(A: Spec, mode: str = "reduced") -> tuple[Spec, Spec]:
    m, n = matrix_shape("linalg_qr", A.shape)
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"linalg_qr(): mode must be 'reduced', 'complete' or 'r', got {mode!r}")
    k = m if mode == "complete" else min(m, n)
    lead = tuple(A.shape[:-2])
    return Spec((0,) if mode == "r" else (*lead, m, k), A.dtype), Spec((*lead, k, n), A.dtype)


def _qr_batch(op: Any, values: list[Any], batched: Any, size: int) -> tuple[Any, Any]:
    Q, R = execute(op, in_front(op, values, batched, size))
    return (ops.expand(Q, (size, 0)), R) if values[1] == "r" else (Q, R)


@operator(
    outputs=("Q", "R"),
    vjp={"A": _qr_vjp},
    jvp={"A": _qr_jvp},
    batch=_qr_batch,
    spec=_qr_spec,
    samples=lambda s: [
        s(s.array(_A3)), s(s.array(_TALL)), s(s.array(np.transpose(_TALL))), s(s.array(_BATCH)), s(s.array(_COMPLEX)),
        s(s.array(np.transpose(_TALL)), "complete"), s(s.array(_TALL), mode="complete", grad=False),
        s(s.array(_TALL), mode="r", grad=False), s((0, 2)), s((2, 0)), s((0, 2, 2)), s((1, 3)),
        s.error(ValueError, "'reduced', 'complete' or 'r'", (2, 2), "full"),
        s.error(RuntimeError, "matrix or a batch", (2,)),
    ],
)  # fmt: skip
def linalg_qr(A: Inexact, mode: Any = "reduced") -> Any:
    """Return Q with orthonormal columns and upper triangular R, with A = Q R.

    Args:
        A: (*, m, n).
        mode: ``"reduced"``: Q (*, m, k) and R (*, k, n) with k = min(m, n); ``"complete"``: k = m; ``"r"``: Q is empty.

    The derivative exists where the first k columns are linearly independent; not for ``"r"``, nor for ``"complete"``
    with m > n.

    Example:
        >>> import wengert as wg
        >>> q, r = wg.linalg.qr(wg.tensor([[3.0, 1.0], [4.0, 2.0]]))
        >>> bool(wg.allclose(q @ r, wg.tensor([[3.0, 1.0], [4.0, 2.0]]), atol=1e-6))
        True
    """
    _qr_spec(Spec(A.shape, dtype_of(A.dtype)), mode)
    return (np.empty(0, A.dtype), np.linalg.qr(A, mode="r")) if mode == "r" else tuple(np.linalg.qr(A, mode=mode))


@composite(method=True, samples=lambda s: [s(s.array(_A3)), s(s.array(np.transpose(_TALL)), some=False)])
def qr(input: Any, some: bool = True) -> Any:
    """Return Q and R with input = Q R; see :func:`wengert.linalg.qr`."""
    return ops.linalg_qr(input, "reduced" if some else "complete")

"""Determinants. The gradient of a determinant is the cofactor matrix, which singular matrices have too.

Giles (2008, §2.2.4) writes it as det(A) A⁻ᵀ. With A = U S Vᴴ that is det(U) det(Vᴴ) U* diag(Πₖ≠ᵢ sₖ) Vᵀ: products of
singular values that leave one of them out, and two of them in the second derivative. Nothing is divided.
"""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import real_of
from wengert.core.arguments import Inexact
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.operators.matrices import checked, square_shape, trace_of

__all__ = ["cofactor", "cofactor_push", "det", "linalg_det", "linalg_slogdet", "logdet", "slogdet"]

_A3 = [[4.0, 1.0, -0.5], [0.5, 3.0, 1.0], [-1.0, 0.2, 2.5]]
_BATCH = [[[3.0, 1.0], [-1.0, 2.0]], [[0.5, -2.0], [1.5, 1.0]]]
_COMPLEX = [[3.0 + 1j, 1.0 - 2j], [-1.0 + 0.5j, 2.0]]
_RANK_1 = [[1.0, 2.0], [2.0, 4.0]]
_RANK_2 = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]


def _det_spec(A: Spec) -> Spec:
    square_shape("linalg_det", A.shape)
    return Spec(A.shape[:-2], A.dtype)


def _each(values: Any) -> Any:
    """Return one number per matrix with two dimensions of size 1 behind, to scale matrices by."""
    return ops.unsqueeze(ops.unsqueeze(values, -1), -1)


@operator(
    vjp={"A": lambda g, A: _each(g) * ops.cofactor(A)},
    jvp={"A": lambda t, A: ops.sum(ops.cofactor(A) * t, (-2, -1))},
    holomorphic=True,
    batch="front",
    spec=_det_spec,
    samples=lambda s: [
        s(s.array(_A3)), s((4, 4)), s(s.array(_BATCH)), s(s.array(_COMPLEX)), s(s.array(_RANK_1)), s(s.array(_RANK_2)),
        s(s.array([[0.0, 0.0], [0.0, 0.0]])), s((0, 0)), s((0, 2, 2)), s((1, 1)),
        s.error(RuntimeError, "square", (2, 3)), s.error(TypeError, "inexact tensor", (2, 2), kind="integer"),
    ],
)  # fmt: skip
def linalg_det(A: Inexact) -> Any:
    """Return the determinant of each square matrix. Singular matrices have their exact gradient, the cofactors.

    Example:
        >>> import wengert as wg
        >>> wg.linalg.det(wg.tensor([[2.0, 1.0], [1.0, 3.0]]))
        tensor(5.)
    """
    square_shape("linalg_det", A.shape)
    return np.linalg.det(A)


def _without_one(s: Any) -> Any:
    """Return, for each number of the last dimension, the product of the others."""
    ones = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([ones, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([ones, s[..., :0:-1]], -1), -1)[..., ::-1]
    return before * after


def _without_two(s: Any) -> Any:
    """Return the matrix of the products of all numbers but the i-th and the j-th, with zeros on the diagonal."""
    n = s.shape[-1]
    upper = np.triu(np.ones((n, n), bool), 1)
    ones = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([ones, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([ones, s[..., :0:-1]], -1), -1)[..., ::-1]
    through = np.cumprod(np.where(upper, s[..., np.newaxis, :], 1), -1)  # of the numbers from i + 1 to j
    between = np.concatenate([np.ones_like(through[..., :1]), through[..., :-1]], -1)
    found = np.where(upper, before[..., :, np.newaxis] * between * after[..., np.newaxis, :], 0)
    return found + found.mT


def _factors(name: str, a: Any) -> tuple[Any, Any, Any, Any]:
    """Return det(U) det(Vᴴ), and U, S, Vᴴ."""
    u, s, vh = checked(name, np.linalg.svd, a)
    return (np.linalg.det(u) * np.linalg.det(vh))[..., np.newaxis, np.newaxis], u, s, vh


@operator(
    vjp={"A": lambda g, A: ops.cofactor_push(A, g)},
    jvp={"A": lambda t, A: ops.cofactor_push(A, t)},
    holomorphic=True,
    batch="front",
    spec=lambda A: A,
    home=(),
    samples=lambda s: [
        s(s.array(_A3)), s((4, 4)), s(s.array(_BATCH)), s(s.array(_COMPLEX)), s((1, 1)), s((0, 0)),
        s((3, 3), kind="complex"), s(s.array(_RANK_1), grad=False),
    ],
)  # fmt: skip
def cofactor(A: Inexact) -> Any:
    """Return ∂ det(A) / ∂A = det(A) A⁻ᵀ, computed without a division."""
    unit, u, s, vh = _factors("cofactor", A)
    return unit * ((u.conj() * _without_one(s)[..., np.newaxis, :]) @ vh.conj())


def _cofactor_third(g: Any, A: Any, t: Any) -> Any:
    """Return the gradient of D² det(A)[g, t], for invertible A: the six products of a third derivative."""
    x = ops.linalg_inv(A)
    xg, xt = x @ g, x @ t
    a, b = trace_of(xg), trace_of(xt)
    both, other = xg @ xt, xt @ xg
    found = (a * b - trace_of(both)) * x - (a * xt + b * xg - both - other) @ x
    return (_each(ops.linalg_det(A)) * found).mT


@operator(
    vjp={"A": _cofactor_third, "t": lambda g, A: ops.cofactor_push(A, g)},
    jvp={"A": _cofactor_third, "t": lambda d, A: ops.cofactor_push(A, d)},
    holomorphic=True,
    batch="front",
    spec=lambda A, t: A,
    home=(),
    samples=lambda s: [
        s(s.array(_A3), (3, 3)), s(s.array(_BATCH), (2, 2, 2)), s(s.array(_COMPLEX), s.tensor((2, 2), kind="complex")),
        s((1, 1), (1, 1)), s((0, 0), (0, 0)), s(s.array(_RANK_1), (2, 2), grad=False),
        s((3, 3), (3, 3), kind="complex"),
    ],
)  # fmt: skip
def cofactor_push(A: Inexact, t: Inexact) -> Any:
    """Return the derivative of ``cofactor`` at A along t; it is symmetric, so this is its transpose too."""
    unit, u, s, vh = _factors("cofactor_push", A)
    inner = u.conj().mT @ t @ vh.conj().mT
    pairs = _without_two(s)
    found = -pairs * inner.mT
    diagonal = (pairs @ np.diagonal(inner, 0, -2, -1)[..., np.newaxis])[..., 0]
    n = np.arange(s.shape[-1])
    found[..., n, n] = diagonal
    return unit * (u.conj() @ found @ vh.conj())


def _slogdet_spec(A: Spec) -> tuple[Spec, Spec]:
    square_shape("linalg_slogdet", A.shape)
    return Spec(A.shape[:-2], A.dtype), Spec(A.shape[:-2], real_of(A.dtype))


def _slogdet_vjp(g: Any, A: Any, sign: Any) -> Any:
    weight = g[1]
    if A.is_complex():
        weight = ops.complex(weight, -ops.imag(ops.conj(g[0]) * sign))
    return _each(weight) * ops.linalg_inv(A).mH


def _slogdet_jvp(t: Any, A: Any, sign: Any) -> tuple[Any, Any]:
    moved = ops.sum(ops.linalg_inv(A).mT * t, (-2, -1))
    if A.is_complex():
        return sign * ops.imag(moved) * 1j, ops.real(moved)
    return ops.zeros_like(sign), moved


@operator(
    outputs=("sign", "logabsdet"),
    vjp={"A": _slogdet_vjp},
    jvp={"A": _slogdet_jvp},
    batch="front",
    spec=_slogdet_spec,
    samples=lambda s: [
        s(s.array(_A3)), s(s.array(_BATCH)), s(s.array(_COMPLEX)), s((0, 0)), s((0, 2, 2)), s((1, 1)),
        s(s.array(_RANK_1), grad=False), s(s.array([[1e-200, 0.0], [0.0, -1e-200]]), grad=False),
        s.error(RuntimeError, "square", (2, 3)),
    ],
)  # fmt: skip
def linalg_slogdet(A: Inexact) -> Any:
    """Return the sign of each determinant (of a complex one det / |det|) and the logarithm of its absolute value.

    It neither overflows nor underflows. A singular matrix has sign 0 and logarithm -inf, and no gradient.

    Example:
        >>> import wengert as wg
        >>> sign, log = wg.linalg.slogdet(wg.tensor([[1e30, 0.0], [0.0, -1e30]]))
        >>> sign.item(), round(log.item(), 3)
        (-1.0, 138.155)
    """
    square_shape("linalg_slogdet", A.shape)
    return tuple(np.linalg.slogdet(A))


@composite(method=True, samples=lambda s: [s(s.array(_A3)), s(s.array(_RANK_1)), s(s.array(_BATCH))])
def det(input: Any) -> Any:
    """Return the determinant of each square matrix; see :func:`wengert.linalg.det`."""
    return ops.linalg_det(input)


@composite(method=True, samples=lambda s: [s(s.array(_A3)), s(s.array(_BATCH))])
def slogdet(input: Any) -> Any:
    """Return the sign and log |det| of each square matrix; see :func:`wengert.linalg.slogdet`."""
    return ops.linalg_slogdet(input)


@composite(
    method=True,
    samples=lambda s: [
        s(s.array(_A3)), s(s.array(_BATCH)), s(s.array(_COMPLEX)), s(s.array(_RANK_1), grad=False),
        s(s.array([[0.0, 1.0], [1.0, 0.0]]), grad=False),
    ],
)  # fmt: skip
def logdet(input: Any) -> Any:
    """Return the logarithm of each determinant: -inf where it is zero, NaN where it is negative.

    Example:
        >>> import wengert as wg
        >>> wg.logdet(wg.eye(3))
        tensor(0.)
    """
    sign, logabsdet = ops.linalg_slogdet(input)
    if input.is_complex():
        return ops.log(sign) + logabsdet
    return ops.where(sign < 0, math.nan, logabsdet)

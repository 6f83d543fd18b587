"""Solving linear systems: inverses, triangular systems, powers, and what is made of them.

Derivatives: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation",
2008.
The names A, B, X, L are those of ``torch.linalg``.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import bool_
from wengert.array.shape import as_int, broadcast_shapes
from wengert.core.arguments import Inexact
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.kernels import triangular
from wengert.kernels.matrix_exp import matrix_exp as matrix_exp_kernel
from wengert.operators.checks import same_dtype
from wengert.operators.matrices import invertible, is_vector, matrix_shape, same_spec, square_shape

__all__ = [
    "cholesky_inverse", "cholesky_solve", "inverse", "linalg_inv", "linalg_matrix_exp", "linalg_matrix_power",
    "linalg_solve", "linalg_solve_triangular", "linalg_tensorinv",
    "linalg_tensorsolve", "matrix_exp", "matrix_power", "solve_matrices", "triangular_solve",
]  # fmt: skip

# Well-conditioned matrices for samples.
_A2 = [[3.0, 1.0], [-1.0, 2.0]]
_A3 = [[4.0, 1.0, -0.5], [0.5, 3.0, 1.0], [-1.0, 0.2, 2.5]]
_BATCH = [[[3.0, 1.0], [-1.0, 2.0]], [[0.5, -2.0], [1.5, 1.0]]]
_COMPLEX = [[3.0 + 1j, 1.0 - 2j], [-1.0 + 0.5j, 2.0]]
_SINGULAR = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 4.0]]]


# ---- inverse


@operator(
    vjp={"A": lambda g, out: -(out.mH @ (g @ out.mH))},
    jvp={"A": lambda t, out: -(out @ (t @ out))},
    batch="front",
    spec=same_spec("linalg_inv"),
    samples=lambda s: [
        s(s.array(_A3)), s(s.array(_BATCH)), s(s.array(_COMPLEX)), s((0, 0)), s((0, 2, 2)), s(s.array([[2.0]])),
        s.error(RuntimeError, "matrix 1 of the batch: it is singular", s.array(_SINGULAR)),
        s.error(RuntimeError, "expected square matrices", (2, 3)), s.error(RuntimeError, r"\(\*, m, n\)", (2,)),
        s.error(TypeError, "inexact tensor", (2, 2), kind="integer"),
    ],
)  # fmt: skip
def linalg_inv(A: Inexact) -> Any:
    """Return the inverse of each matrix of (*, n, n).

    Raises:
        LinAlgError: (a RuntimeError) naming the first singular matrix.

    Example:
        >>> import wengert as wg
        >>> wg.linalg.inv(wg.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.2500]])
    """
    square_shape("linalg_inv", A.shape)
    return invertible("linalg_inv", np.linalg.inv, A)


@composite(method=True, samples=lambda s: [s(s.array(_A2)), s(s.array(_BATCH))])
def inverse(input: Any) -> Any:
    """Return the inverse of each matrix; see :func:`wengert.linalg.inv`."""
    return ops.linalg_inv(input)


# ---- linear systems


def _solve_spec(A: Spec, B: Spec) -> Spec:
    same_dtype("linalg_solve", A=A, B=B)
    n = square_shape("linalg_solve", A.shape)
    rows, columns = matrix_shape("linalg_solve", B.shape)
    if rows != n:
        raise ShapeError(
            f"linalg_solve(): A of shape {tuple(A.shape)} needs B with {n} rows, got shape {tuple(B.shape)}"
        )
    return Spec((*broadcast_shapes("linalg_solve", A.shape[:-2], B.shape[:-2]), n, columns), A.dtype)


def _solve_vjp(g: Any, A: Any, out: Any, needs: Any) -> tuple[Any, Any]:
    right = ops.solve_matrices(A.mH, g)
    return -(right @ out.mH) if needs[0] else None, right


def _solve_jvp(tangents: Any, A: Any, out: Any) -> Any:
    a, b = tangents["A"], tangents["B"]
    right = b if a is None else -(a @ out) if b is None else b - a @ out
    return ops.solve_matrices(A, ops.expand(right, out.shape))


@operator(
    vjp=_solve_vjp,
    jvp=_solve_jvp,
    batch="broadcast",
    spec=_solve_spec,
    home=(),
    samples=lambda s: [
        s(s.array(_A3), (3, 2)), s(s.array(_BATCH), (2, 2, 1)), s(s.array(_A2), (3, 2, 2)), s(s.array(_BATCH), (2, 3)),
        s(s.array(_COMPLEX), s.tensor((2, 1), kind="complex")), s((0, 0), (0, 3)), s((2, 2), (2, 0)),
        s.error(RuntimeError, "matrix 1 of the batch: it is singular", s.array(_SINGULAR), (2, 1)),
        s.error(RuntimeError, "needs B with 2 rows", s.array(_A2), (3, 1)),
    ],
)  # fmt: skip
def solve_matrices(A: Inexact, B: Inexact) -> Any:
    """Return X with A X = B, for matrices A (*, n, n) and B (*, n, k)."""
    _solve_spec(A, B)
    return invertible("linalg_solve", np.linalg.solve, A, B)


@composite(
    samples=lambda s: [
        s(s.array(_A2), (2, 3)), s(s.array(_A2), (2,)), s(s.array(_BATCH), (2, 2)), s(s.array(_A2), (3, 2), left=False),
        s(s.array(_BATCH), (2,)), s(s.array(_COMPLEX), s.tensor((3, 2), kind="complex"), left=False),
        s.error(RuntimeError, "left=False needs a matrix", s.array(_A2), (2,), left=False),
    ],
)  # fmt: skip
def linalg_solve(A: Any, B: Any, *, left: bool = True) -> Any:
    """Return X with A X = B (or X A = B if ``left`` is False).

    Args:
        A: (*, n, n), invertible. B: (*, n, k) or (*, n): matrices or vectors; the batches broadcast.

    Raises:
        LinAlgError: (a RuntimeError) naming the first singular matrix.

    Example:
        >>> import wengert as wg
        >>> wg.linalg.solve(wg.tensor([[2.0, 0.0], [0.0, 4.0]]), wg.tensor([2.0, 2.0]))
        tensor([1.0000, 0.5000])
    """
    square_shape("linalg_solve", A.shape)
    if is_vector(A, B):
        if not left:
            raise ShapeError(f"linalg_solve(): left=False needs a matrix B, got shape {tuple(B.shape)}")
        return ops.squeeze(ops.solve_matrices(A, ops.unsqueeze(B, -1)), -1)
    return ops.solve_matrices(A, B) if left else ops.solve_matrices(A.mT, B.mT).mT


def _triangle(x: Any, upper: bool, unitriangular: bool) -> Any:
    return ops.triu(x, int(unitriangular)) if upper else ops.tril(x, -int(unitriangular))


def _triangular_spec(A: Spec, B: Spec, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Spec:
    name = "linalg_solve_triangular"
    same_dtype(name, A=A, B=B)
    n, shape = square_shape(name, A.shape), matrix_shape(name, B.shape)
    if shape[0 if left else 1] != n:
        raise ShapeError(
            f"{name}(): A of shape {tuple(A.shape)} with left={left} needs B with {n} {'rows' if left else 'columns'}, "
            f"got shape {tuple(B.shape)}"
        )
    return Spec((*broadcast_shapes(name, A.shape[:-2], B.shape[:-2]), *shape), A.dtype)


def _triangular_vjp(g: Any, A: Any, out: Any, upper: Any, left: Any, unitriangular: Any, needs: Any) -> tuple[Any, Any]:
    right = ops.linalg_solve_triangular(A.mH, g, upper=not upper, left=left, unitriangular=unitriangular)
    if not needs[0]:
        return None, right
    return -_triangle(right @ out.mH if left else out.mH @ right, upper, unitriangular), right


def _triangular_jvp(tangents: Any, A: Any, out: Any, upper: Any, left: Any, unitriangular: Any) -> Any:
    a, b = tangents["A"], tangents["B"]
    if a is not None:
        a = _triangle(a, upper, unitriangular)
        moved = a @ out if left else out @ a
        b = -moved if b is None else b - moved
    return ops.linalg_solve_triangular(A, ops.expand(b, out.shape), upper=upper, left=left, unitriangular=unitriangular)


@operator(
    vjp=_triangular_vjp,
    jvp=_triangular_jvp,
    batch="broadcast",
    spec=_triangular_spec,
    samples=lambda s: [
        s(s.array(_A3), (3, 2), upper=True), s(s.array(_A3), (3, 2), upper=False),
        s(s.array(_BATCH), (2, 1), upper=True), s(s.array(_A2), (2, 3, 2), upper=True, left=False),
        s(s.array(_A3), (2, 3), upper=False, left=False, unitriangular=True),
        s(s.array(_A2), (2, 1), upper=True, unitriangular=True),
        s(s.array(_COMPLEX), s.tensor((2, 1), kind="complex"), upper=False), s((0, 0), (0, 2), upper=True),
        s(s.array([[0.0, 1.0], [0.0, 1.0]]), (2, 1), upper=True, grad=False),
        s.error(RuntimeError, "needs B with 2 columns", s.array(_A2), (2, 3), upper=True, left=False),
    ],
)  # fmt: skip
def linalg_solve_triangular(A: Inexact, B: Inexact, *, upper: Any, left: Any = True, unitriangular: Any = False) -> Any:
    """Return X with A X = B (X A = B if ``left`` is False) for triangular A, of which only that triangle is read.

    Args:
        A: (*, n, n). B: (*, n, k), or (*, k, n) on the right.
        upper: which triangle. unitriangular: take its diagonal as ones.

    Returns:
        X of B's shape. A zero on the diagonal gives infinities or NaN, not an error.
    """
    _triangular_spec(A, B, upper=upper, left=left, unitriangular=unitriangular)
    if left:
        return triangular.solve_triangular(A, B, bool(upper), bool(unitriangular))
    return triangular.solve_triangular(A.mT, B.mT, not upper, bool(unitriangular)).mT


@composite(
    method=True,
    samples=lambda s: [
        s((2, 1), s.array(_A2)),
        s((2, 1), s.array(_A2), transpose=True),
        s((2, 1), s.array(_A2), upper=False),
    ],
)
def triangular_solve(b: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    """Return X with A X = b (Aᵀ X = b) and a copy of A; :func:`wengert.linalg.solve_triangular` is its successor."""
    matrix = A.mT if transpose else A
    solved = ops.linalg_solve_triangular(matrix, b, upper=upper != transpose, unitriangular=unitriangular)
    return solved, ops.clone(A)


_L2 = [[2.0, 0.0], [-0.5, 1.5]]


@composite(method=True, samples=lambda s: [s((2, 3), s.array(_L2)), s((2, 3), s.array(np.transpose(_L2)), upper=True)])
def cholesky_solve(B: Any, L: Any, upper: bool = False) -> Any:
    """Return X with A X = B, from the Cholesky factor of A: A = L Lᴴ, or Lᴴ L if ``upper``."""
    half = ops.linalg_solve_triangular(L.mH if upper else L, B, upper=False)
    return ops.linalg_solve_triangular(L if upper else L.mH, half, upper=True)


@composite(method=True, samples=lambda s: [s(s.array(_L2)), s(s.array(np.transpose(_L2)), upper=True)])
def cholesky_inverse(L: Any, upper: bool = False) -> Any:
    """Return the inverse of A, from its Cholesky factor: A = L Lᴴ, or Lᴴ L if ``upper``."""
    return ops.cholesky_solve(ops.eye(square_shape("cholesky_inverse", L.shape), dtype=L.dtype), L, upper)


# ---- powers and the exponential


@composite(
    samples=lambda s: [
        s(s.array(_A2), 3), s(s.array(_A2), 0), s(s.array(_A2), 1), s(s.array(_BATCH), -2), s(s.array(_A3), 5),
        s((0, 0), 2), s(s.array([[1.0, 2.0], [2.0, 4.0]]), 2), s.error(RuntimeError, "square", (2, 3), 2),
        s.error(RuntimeError, "singular", s.array([[1.0, 2.0], [2.0, 4.0]]), -1),
    ],
)  # fmt: skip
def linalg_matrix_power(A: Any, n: int) -> Any:
    """Return the n-th power of each square matrix, by repeated squaring; a negative power is one of the inverse.

    Raises:
        LinAlgError: (a RuntimeError) for a negative power of a singular matrix.
    """
    size = square_shape("linalg_matrix_power", A.shape)
    count = as_int(n, "n")
    if count == 0:  # the identity, with a gradient of zeros
        return ops.where(ops.zeros((), dtype=bool_), A, ops.eye(size, dtype=A.dtype))
    if count == 1:
        return ops.clone(A)
    base = ops.linalg_inv(A) if count < 0 else A
    power = None
    for bit in bin(abs(count))[:1:-1]:
        if bit == "1":
            power = base if power is None else power @ base
        base = base @ base
    return power


@composite(method=True, samples=lambda s: [s(s.array(_A2), 3), s(s.array(_BATCH), -1)])
def matrix_power(input: Any, n: int) -> Any:
    """Return the n-th power of each square matrix; see :func:`wengert.linalg.matrix_power`."""
    return ops.linalg_matrix_power(input, n)


def _exp_push(A: Any, E: Any) -> Any:
    """Return the derivative of exp at A along E: the upper right block of exp [[A, E], [0, A]] (Mathias, 1996)."""
    n = A.shape[-1]
    top, bottom = ops.cat((A, E), -1), ops.cat((ops.zeros_like(A), A), -1)
    whole = ops.linalg_matrix_exp(ops.cat((top, bottom), -2))
    return ops.narrow(ops.narrow(whole, -2, 0, n), -1, n, n)


@operator(
    vjp={"A": lambda g, A: _exp_push(A.mH, g)},
    jvp={"A": lambda t, A: _exp_push(A, t)},
    batch="front",
    spec=same_spec("linalg_matrix_exp"),
    samples=lambda s: [
        s(s.array(_A2)), s(s.array(_BATCH)), s((2, 2), kind="complex"), s((0, 0)), s((0, 2, 2)), s((1, 1)),
        s(s.array([[0.0, 1.0], [0.0, 0.0]])), s(s.array([[[0.0, 12.0], [-12.0, 0.0]], [[1e-9, 0.0], [0.0, 1e-9]]])),
        s.error(RuntimeError, "square", (2, 3)),
    ],
)  # fmt: skip
def linalg_matrix_exp(A: Inexact) -> Any:
    """Return the exponential Σ Aᵏ / k! of each square matrix.

    It is computed by scaling, a Padé approximant and squaring (Higham, 2005).

    Example:
        >>> import wengert as wg
        >>> wg.linalg.matrix_exp(wg.tensor([[0.0, 1.0], [0.0, 0.0]]))
        tensor([[1., 1.],
                [0., 1.]])
    """
    square_shape("linalg_matrix_exp", A.shape)
    return matrix_exp_kernel(A)


@composite(method=True, samples=lambda s: [s(s.array(_A2)), s(s.array(_BATCH))])
def matrix_exp(input: Any) -> Any:
    """Return the exponential of each square matrix; see :func:`wengert.linalg.matrix_exp`."""
    return ops.linalg_matrix_exp(input)


# ---- tensors as matrices


@composite(
    samples=lambda s: [
        s(s.array(np.reshape([4.0, 1, 0, 1, 3, 1, 0, -1, 2], (3, 1, 3))), ind=1),
        s(s.array(np.reshape(_BATCH[0], (2, 1, 2))), ind=2), s.error(RuntimeError, "the same number", (2, 3), ind=1),
    ],
)  # fmt: skip
def linalg_tensorinv(A: Any, ind: int = 2) -> Any:
    """Return the inverse of a tensor as the map from its dimensions after ``ind`` to those before.

    ``tensordot(tensorinv(A, ind), A, ind)`` is the identity.
    """
    if ind < 1:
        raise ValueError(f"linalg_tensorinv(): ind must be at least 1, got {ind}")
    rows, columns = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    n = _as_square("linalg_tensorinv", A, rows, columns)
    return ops.reshape(ops.linalg_inv(ops.reshape(A, (n, n))), (*columns, *rows))


def _as_square(name: str, A: Any, rows: Sequence[int], columns: Sequence[int]) -> int:
    n = math.prod(columns)
    if math.prod(rows) != n:
        raise ShapeError(
            f"{name}(): the dimensions {tuple(rows)} and {tuple(columns)} of A, of shape {tuple(A.shape)}, must hold "
            f"the same number of elements, got {math.prod(rows)} and {n}"
        )
    return n


@composite(
    samples=lambda s: [
        s(s.array(np.reshape(_A2, (2, 1, 2))), (2, 1)), s(s.array(np.reshape(_A3, (3, 3))), (3,)),
        s(s.array(np.reshape(_A2, (2, 2, 1))), (2,), dims=(1,)), s.error(RuntimeError, "the same number", (2, 3), (2,)),
    ],
)  # fmt: skip
def linalg_tensorsolve(A: Any, B: Any, dims: Any = None) -> Any:
    """Return X with ``tensordot(A, X, X.ndim) = B``.

    Args:
        A: of shape (*B.shape, *X.shape). dims: dimensions of A to move to its end first.
    """
    if dims is not None:
        A = ops.movedim(A, tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    rows, columns = tuple(A.shape[: B.ndim]), tuple(A.shape[B.ndim :])
    n = _as_square("linalg_tensorsolve", A, rows, columns)
    solved = ops.linalg_solve(ops.reshape(A, (n, n)), ops.reshape(B, (-1,)))
    return ops.reshape(solved, columns)

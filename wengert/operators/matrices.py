"""What the operators of linear algebra share: shape checks, errors that name the matrix, small helpers for rules."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError

__all__ = [
    "LinAlgError", "checked", "columns_of", "failure", "halved", "hermitian_part", "invertible", "is_vector",
    "matrix_shape", "off_diagonal", "quotient", "rows_of", "same_spec", "square_shape", "trace_of",
]  # fmt: skip


class LinAlgError(RuntimeError, np.linalg.LinAlgError):
    """A matrix that has no inverse, no factor, or whose decomposition does not converge; the message says which one."""


# ---- shapes


def matrix_shape(name: str, shape: Sequence[int]) -> tuple[int, int]:
    """Return the rows and columns of a matrix, or of a batch of them.

    Raises:
        ShapeError: if there are fewer than two dimensions.
    """
    if len(shape) < 2:
        raise ShapeError(f"{name}(): expected a matrix or a batch of matrices (*, m, n), got shape {tuple(shape)}")
    return shape[-2], shape[-1]


def square_shape(name: str, shape: Sequence[int]) -> int:
    """Return the size of a square matrix.

    Raises:
        ShapeError: if it is not square.
    """
    rows, columns = matrix_shape(name, shape)
    if rows != columns:
        raise ShapeError(
            f"{name}(): expected square matrices (*, n, n), got {rows} by {columns} in shape {tuple(shape)}"
        )
    return rows


def same_spec(name: str) -> Callable[..., Spec]:
    """Return the rule of an operator of one square matrix that gives another."""

    def spec(A: Spec, *args: Any, **kwargs: Any) -> Spec:
        square_shape(name, A.shape)
        return A

    return spec


def is_vector(A: Any, B: Any) -> bool:
    """True if B holds one right side per matrix of A, and not matrices: PyTorch's rule."""
    return B.ndim == 1 or (A.ndim - 1 == B.ndim and tuple(B.shape) == tuple(A.shape[:-1]))


# ---- errors


def failure(name: str, bad: Any, why: str) -> LinAlgError:
    """Return the error for the first matrix of a batch that ``bad`` (an array of booleans) marks."""
    if not np.ndim(bad):
        return LinAlgError(f"{name}(): {why}")
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    return LinAlgError(f"{name}(): matrix {index[0] if len(index) == 1 else index} of the batch: {why}")


def checked(name: str, routine: Callable[..., Any], a: Any, why: str = "the decomposition does not converge") -> Any:
    """Run a NumPy routine on one or many matrices; say which of them failed if one does.

    Raises:
        LinAlgError: naming the first matrix that the routine does not accept.
    """
    finite = np.isfinite(a).all((-2, -1))
    if not finite.all():  # asked first: LAPACK's singular values of an infinity are a loop that never ends
        raise failure(name, ~finite, "it holds infinities or NaN")
    try:
        return routine(a)
    except np.linalg.LinAlgError:
        raise failure(name, _failing(routine, a), why) from None


def _failing(routine: Callable[..., Any], a: Any) -> Any:
    """Return which matrices a routine fails for, by trying each."""
    bad = np.zeros(a.shape[:-2], bool)
    for index in np.ndindex(a.shape[:-2]):
        try:
            routine(a[index])
        except np.linalg.LinAlgError:
            bad[index] = True
    return bad


def invertible(name: str, routine: Callable[..., Any], a: Any, *rest: Any) -> Any:
    """Run a NumPy routine that inverts ``a``.

    Raises:
        LinAlgError: naming the first singular matrix.
    """
    try:
        return routine(a, *rest)
    except np.linalg.LinAlgError:
        singular = np.linalg.slogdet(a)[0] == 0
        raise failure(name, singular, "it is singular (its determinant is 0), so it has no inverse") from None


# ---- for rules


def hermitian_part(x: Any) -> Any:
    """Return (X + Xᴴ) / 2."""
    return (x + x.mH) * 0.5


def halved(x: Any) -> Any:
    """Return the lower triangle with half of the diagonal: Φ of Murray (2016)."""
    return (ops.tril(x) + ops.tril(x, -1)) * 0.5


def trace_of(x: Any) -> Any:
    """Return the trace of each matrix, with its two dimensions kept at size 1."""
    return ops.unsqueeze(ops.sum(ops.diagonal(x, 0, -2, -1), -1, keepdim=True), -1)


def columns_of(values: Any) -> Any:
    """Return one value per column, to scale the columns of a matrix by."""
    return ops.unsqueeze(values, -2)


def rows_of(values: Any) -> Any:
    """Return one value per row, to scale the rows of a matrix by."""
    return ops.unsqueeze(values, -1)


def quotient(x: Any, divisor: Any) -> Any:
    """Return x / divisor, and 0 with no derivative where both are 0: nothing was asked of what does not exist."""
    nothing = (x == 0) & (divisor == 0)
    return ops.where(nothing, 0.0, x / ops.where(nothing, 1.0, divisor))


def off_diagonal(x: Any, divisor: Any) -> Any:
    """Return x / divisor off the diagonal and 0 on it, as :func:`quotient` does."""
    outside = 1 - ops.eye(x.shape[-1], dtype=divisor.dtype)
    return quotient(x * outside, divisor)

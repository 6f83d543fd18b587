"""Linear algebra: the four functions of the main namespace and the extension ``linalg``.

Matrices lie in the last two axes, the axes before are a batch.
"""

from collections.abc import Sequence
from typing import Any

from wengert.array.shape import as_int
from wengert.array_api.arguments import axes_in, axes_or_all, axis_in, own, promoted
from wengert.array_api.reductions import sum_dtype
from wengert.core.registry import ops
from wengert.errors import ShapeError

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals",
    "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


# ---- products


def matmul(x1: Any, x2: Any, /) -> Any:
    """Return the matrix product; a vector is a row on the left and a column on the right.

    Raises:
        ValueError: for shapes that do not fit.
    """
    return ops.matmul(*promoted("matmul", x1, x2))


def matrix_transpose(x: Any, /) -> Any:
    """Return each matrix transposed.

    Raises:
        ValueError: for an array of fewer than two dimensions.
    """
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose() needs at least two dimensions, got shape {tuple(x.shape)}")
    return ops.transpose(x, -2, -1)


def outer(x1: Any, x2: Any, /) -> Any:
    """Return the products of each element of one vector with each of another."""
    return ops.outer(*promoted("outer", x1, x2))


def tensordot(x1: Any, x2: Any, /, *, axes: int | Sequence[Sequence[int]] = 2) -> Any:
    """Return the products summed over the last ``axes`` axes of ``x1`` and first of ``x2``, or over pairs of named ones."""
    x1, x2 = promoted("tensordot", x1, x2)
    if not isinstance(axes, Sequence):
        return ops.tensordot(x1, x2, as_int(axes, "axes"))
    if len(axes) != 2 or not all(isinstance(part, Sequence) for part in axes) or len(axes[0]) != len(axes[1]):
        raise ValueError(f"tensordot(): axes must be an int or two sequences of equally many axes, got {axes!r}")
    left, right = axes_in(tuple(axes[0]), x1.ndim), axes_in(tuple(axes[1]), x2.ndim)
    return ops.tensordot(x1, x2, (list(left), list(right)))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Return the products Σ x̄1 x2 along an axis counted from the end; the other axes broadcast.

    Raises:
        ValueError: if the axis has another size in ``x1`` than in ``x2``, even if one of them is 1.
    """
    x1, x2 = _vectors("vecdot", x1, x2, axis)
    return ops.sum(ops.mul(ops.conj(x1), x2), axis, dtype=x1.dtype)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Return the cross products of vectors of three elements along an axis counted from the end.

    Raises:
        ValueError: if the axis does not have size 3 in both.
    """
    return ops.linalg_cross(*ops.broadcast_tensors(*_vectors("cross", x1, x2, axis)), dim=axis)


def _vectors(name: str, x1: Any, x2: Any, axis: int) -> tuple[Any, Any]:
    x1, x2 = promoted(name, x1, x2)
    if axis >= 0 and x1.ndim != x2.ndim:
        raise ValueError(
            f"{name}(): axis must be negative for arrays of {x1.ndim} and {x2.ndim} dimensions, got {axis}"
        )
    sizes = x1.shape[axis_in(axis, x1.ndim)], x2.shape[axis_in(axis, x2.ndim)]
    if sizes[0] != sizes[1]:
        raise ShapeError(f"{name}(): axis {axis} must have the same size in both arrays, got {sizes[0]} and {sizes[1]}")
    return x1, x2


def matrix_power(x: Any, n: int, /) -> Any:
    """Return each square matrix to the integer power ``n``: its inverse's if n < 0."""
    return ops.linalg_matrix_power(x, n)


# ---- parts and numbers of a matrix


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Return the diagonal of each matrix that lies ``offset`` above the main one."""
    return ops.linalg_diagonal(x, offset=offset)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Return the sum of that diagonal; of integers in int64 or uint64 unless ``dtype`` names another."""
    return ops.sum(ops.linalg_diagonal(x, offset=offset), -1, dtype=sum_dtype(x, dtype))


def det(x: Any, /) -> Any:
    """Return the determinant of each matrix."""
    return ops.linalg_det(x)


def slogdet(x: Any, /) -> Any:
    """Return (sign, logabsdet): the sign, or phase, of each determinant and the logarithm of its modulus."""
    return ops.linalg_slogdet(x)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """Return how many singular values of each matrix exceed ``rtol`` (max(M, N) · eps) times the largest."""
    return ops.linalg_matrix_rank(x, rtol=rtol)


# ---- norms


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Return a norm of each matrix: "fro", "nuc", or the induced 1, 2, inf norm (-1, -2, -inf: the minima in their place)."""
    return ops.linalg_matrix_norm(x, ord, (-2, -1), keepdims)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Return (Σ |x|^ord)^(1/ord) over some axes (None: all); for 0 the number of nonzero elements, for ±inf the extreme."""
    axes = axes_or_all(axis, x.ndim)
    if x.ndim and not axes:
        return ops.abs(x)
    return own(ops.linalg_vector_norm(x, ord, axes, keepdims))


# ---- equations and inverses


def inv(x: Any, /) -> Any:
    """Return the inverse of each square matrix."""
    return ops.linalg_inv(x)


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """Return the pseudo-inverse of each matrix, singular values up to ``rtol`` times the largest taken as 0."""
    return ops.linalg_pinv(x, rtol=rtol)


def solve(x1: Any, x2: Any, /) -> Any:
    """Return the solution X of x1 X = x2, in which a one-dimensional ``x2`` is one column for all matrices."""
    x1, x2 = promoted("solve", x1, x2)
    if x2.ndim == 1:
        return ops.squeeze(ops.linalg_solve(x1, ops.unsqueeze(x2, -1)), -1)
    batch = ops.broadcast_tensors(x1[..., :1, :1], x2[..., :1, :1])[1].shape[:-2]
    return ops.linalg_solve(x1, ops.broadcast_to(x2, (*batch, *x2.shape[-2:])))


# ---- decompositions


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """Return the triangular factor L of x = L Lᴴ, or with ``upper`` U of x = Uᴴ U."""
    return ops.linalg_cholesky(x, upper=upper)


def eig(x: Any, /) -> Any:
    """Return (eigenvalues, eigenvectors) of each square matrix, complex, the vectors in columns."""
    return ops.linalg_eig(x)


def eigvals(x: Any, /) -> Any:
    """Return the eigenvalues of each square matrix, complex."""
    return ops.linalg_eigvals(x)


def eigh(x: Any, /) -> Any:
    """Return (eigenvalues, eigenvectors) of each Hermitian matrix, in ascending order, the vectors in columns."""
    return ops.linalg_eigh(x)


def eigvalsh(x: Any, /) -> Any:
    """Return the eigenvalues of each Hermitian matrix in ascending order."""
    return ops.linalg_eigvalsh(x)


def qr(x: Any, /, *, mode: str = "reduced") -> Any:
    """Return (Q, R) of each matrix: orthonormal columns and an upper triangle; "reduced" or "complete".

    Raises:
        ValueError: for another mode.
    """
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr(): mode must be 'reduced' or 'complete', got {mode!r}")
    return ops.linalg_qr(x, mode)


def svd(x: Any, /, *, full_matrices: bool = True) -> Any:
    """Return (U, S, Vh) of each matrix, the singular values in descending order."""
    found = ops.linalg_svd(x, full_matrices)
    return type(found)(*map(own, found))


def svdvals(x: Any, /) -> Any:
    """Return the singular values of each matrix in descending order."""
    return ops.linalg_svdvals(x)

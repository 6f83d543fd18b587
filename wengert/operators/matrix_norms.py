"""Norms of matrices, and what depends on which singular values count as zero: rank, pseudo-inverse, least squares.

Derivative of the pseudo-inverse: Golub, Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares
problems whose variables separate", 1973; it holds while the rank does not change.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wengert.array.dtype import dtype_of, finfo, real_of, to_dtype
from wengert.array.shape import axis_of
from wengert.core.apply import execute, write_out
from wengert.core.arguments import Inexact, RealOrScalar
from wengert.core.batch import aligned, expanded
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import operators, ops
from wengert.core.tensor import Tensor
from wengert.errors import ShapeError
from wengert.operators.checks import known
from wengert.operators.matrices import checked, is_vector, matrix_shape, square_shape

__all__ = [
    "frobenius_norm", "linalg_cond", "linalg_lstsq", "linalg_matrix_norm", "linalg_matrix_rank", "linalg_norm",
    "linalg_pinv", "nuclear_norm", "pinverse", "pseudo_inverse",
]  # fmt: skip

_A3 = [[1.0, 2.0, -0.5], [3.0, 1.0, 1.0], [-1.0, 0.2, 2.5]]
_TALL = [[1.0, 2.0], [3.0, -1.0], [0.5, 1.5]]
_BATCH = [[[3.0, 1.0], [-1.0, 2.0]], [[0.5, -2.0], [1.5, 1.0]]]
_COMPLEX = [[3.0 + 1j, 1.0 - 2j], [-1.0 + 0.5j, 2.0]]
_RANK_1 = [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0]]
_SYMMETRIC = [[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 2.0]]


# ---- norms


def _written(name: str, out: Any, result: Any) -> Any:
    return result if out is None else write_out(operators()[name], out, result)


def _largest_or_smallest(values: Any, dim: int, order: float, keepdim: bool = False) -> Any:
    """Return the largest or smallest of sizes; the largest of none is 0."""
    if order > 0 and not values.shape[dim]:
        return ops.sum(values, dim, keepdim)
    return (ops.amax if order > 0 else ops.amin)(values, dim, keepdim)


@composite(
    samples=lambda s: [
        s(s.array(_A3)), *[s((3, 2), ord) for ord in ("nuc", 2, -2, 1, -1, math.inf, -math.inf)],
        s((2, 3, 2), dim=(0, 1)), s((2, 3, 2), 2, dim=(2, 0), keepdim=True), s((2, 3, 2), 1, dim=(0, 2), keepdim=True),
        s(s.array(_COMPLEX), "nuc"), s((0, 2)), s((0, 2), "nuc"), s((0, 2), 2), s((0, 2), math.inf),
        s((2, 2), of="float32", dtype="float64", grad=False),
        s.error(ValueError, "ord must be", (2, 2), 3), s.error(RuntimeError, "two different", (2, 2), dim=(0, 0)),
        s.error(RuntimeError, "two different", (2, 2), dim=0),
    ],
)  # fmt: skip
def linalg_matrix_norm(
    A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Any:
    """Return a norm of each matrix over the two dimensions ``dim``.

    Args:
        ord: ``"fro"``, the square root of the sum of squares; ``"nuc"``, the sum of the singular values; 2 or -2, the
            largest or smallest singular value; inf or -inf, the largest or smallest sum of |a| in a row; 1 or -1, in a
            column.

    Example:
        >>> import wengert as wg
        >>> wg.linalg.matrix_norm(wg.tensor([[3.0, 0.0], [4.0, 1.0]]), 1)
        tensor(7.)
    """
    if not isinstance(dim, Sequence) or len({axis_of(d, A.ndim) for d in dim}) != 2 or len(dim) != 2:
        raise ShapeError(f"linalg_matrix_norm(): dim must be two different dimensions, got {dim!r}")
    _check_order("linalg_matrix_norm", ord)
    rows, columns = (axis_of(d, A.ndim) for d in dim)
    A = A if dtype is None else A.to(to_dtype(dtype))
    if ord == "fro":
        found = ops.linalg_vector_norm(A, 2, (rows, columns), keepdim)
    elif ord in ("nuc", 2, -2):
        found = _singular_norm(ops.movedim(A, (rows, columns), (-2, -1)), ord)
        found = _keep(found, rows, columns) if keepdim else found
    else:
        summed, rest = (rows, columns) if ord in (1, -1) else (columns, rows)
        found = _largest_or_smallest(ops.sum(ops.abs(A), summed, True), rest, ord, True)
        found = found if keepdim else ops.squeeze(found, (rows, columns))
    return _written("linalg_matrix_norm", out, found)


def _check_order(name: str, ord: Any) -> None:
    if ord not in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise ValueError(f"{name}(): ord must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, got {ord!r}")


def _singular_norm(A: Any, ord: Any) -> Any:
    values = ops.linalg_svdvals(A)
    return ops.sum(values, -1) if ord == "nuc" else _largest_or_smallest(values, -1, ord)


def _keep(x: Any, rows: int, columns: int) -> Any:
    """Put dimensions of size 1 back where two were."""
    first, second = sorted((rows, columns))
    return ops.unsqueeze(ops.unsqueeze(x, first), second)


@composite(
    samples=lambda s: [
        s((2, 3, 2)), s((2, 3), 2), s((3,), 1), s((2, 3, 2), 1, dim=1), s((2, 3, 2), "fro", dim=(0, 1)),
        s((2, 3, 2), dim=(0, 1)), s((2, 3), math.inf, keepdim=True), s((2, 3), dim=1, keepdim=True), s((3,), 0),
        s((), None), s((2, 2), kind="complex"), s((2, 2), of="float32", dtype="float64", grad=False),
        s.error(RuntimeError, "needs dim", (2, 2, 2), 2),
        s.error(RuntimeError, "one or two dimensions", (2, 2, 2), dim=(0, 1, 2)),
        s.error(ValueError, "norm of matrices", (3,), "fro"),
    ],
)  # fmt: skip
def linalg_norm(
    A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Any:
    """Return the norm of vectors or of matrices, by the number of dimensions in ``dim``.

    Args:
        ord: an order of :func:`wengert.linalg.vector_norm` or :func:`wengert.linalg.matrix_norm`; None is 2 for all
            elements together.
        dim: one dimension for vectors, two for matrices; None is the whole tensor, of one or two dimensions if ``ord``
            is given.

    Example:
        >>> import wengert as wg
        >>> wg.linalg.norm(wg.tensor([3.0, 4.0]))
        tensor(5.)
    """
    dims = None if dim is None else tuple(dim) if isinstance(dim, Sequence) else (dim,)
    if dims is not None and len(dims) not in (1, 2):
        raise ShapeError(f"linalg_norm(): dim must be one or two dimensions, got {dims}")
    if dims is None and ord is not None:
        if A.ndim not in (1, 2):
            raise ShapeError(
                f"linalg_norm(): ord={ord!r} of a tensor of {A.ndim} dimensions needs dim, one or two of them"
            )
        dims = tuple(range(A.ndim))
    if ord is not None and dims is not None and len(dims) == 2:
        return ops.linalg_matrix_norm(A, ord, dims, keepdim, dtype=dtype, out=out)
    if isinstance(ord, str):
        raise ValueError(f"linalg_norm(): ord={ord!r} is a norm of matrices, over two dimensions; got dim={dim}")
    wanted = None if dtype is None else to_dtype(dtype)
    return ops.linalg_vector_norm(A, 2 if ord is None else ord, dims, keepdim, dtype=wanted, out=out)


@composite(
    samples=lambda s: [
        s(s.array(_A3)), *[s(s.array(_A3), p) for p in (2, -2, 1, -1, "fro", "nuc", math.inf, -math.inf)],
        s(s.array(_TALL)), s(s.array([[[3.0, 1.0], [-1.0, 2.5]], [[0.5, -2.0], [1.7, 1.0]]]), 1),
        s(s.array([[[1.0, 2.0], [2.0, 4.0]], [[3.0, 1.0], [0.0, 1.0]]]), "fro", grad=False),
        s((0, 0)), s((2, 0, 3)), s((0, 0), 1), s.error(RuntimeError, "square", (2, 3), 1),
        s.error(ValueError, "ord must be", (0, 0), "two"),
    ],
)  # fmt: skip
def linalg_cond(A: Any, p: Any = None) -> Any:
    """Return the condition number ‖A‖ ‖A⁻¹‖ of each matrix; infinite if it is singular, 0 if it is empty.

    Args:
        A: (*, n, n); with p None, 2 or -2 also (*, m, n). p: an order of :func:`wengert.linalg.matrix_norm`; None is 2.
    """
    _check_order("linalg_cond", 2 if p is None else p)
    if not math.prod(matrix_shape("linalg_cond", A.shape)):
        return ops.sum(ops.abs(A), (-2, -1))
    if p is None or p in (2, -2):
        values = ops.linalg_svdvals(A)
        largest, smallest = ops.select(values, -1, 0), ops.select(values, -1, values.shape[-1] - 1)
        return smallest / largest if p == -2 else largest / smallest
    n = square_shape("linalg_cond", A.shape)
    singular = ops.lu_packed(A.detach()).info != 0
    regular = ops.where(ops.reshape(singular, (*singular.shape, 1, 1)), ops.eye(n, dtype=A.dtype), A)
    both = ops.linalg_matrix_norm(A, p) * ops.linalg_matrix_norm(ops.linalg_inv(regular), p)
    return ops.where(singular, math.inf, both)


@composite(samples=lambda s: [s(s.array(_A3)), s((2, 3, 2), dim=(0, 2), keepdim=True)])
def nuclear_norm(input: Any, dim: Any = (-2, -1), keepdim: bool = False) -> Any:
    """Return the sum of the singular values; :func:`wengert.linalg.matrix_norm` is its successor."""
    return ops.linalg_matrix_norm(input, "nuc", dim, keepdim)


@composite(samples=lambda s: [s((2, 3), dim=(0, 1)), s((2, 3), 1), s((2, 3), dim=(-1,), keepdim=True)])
def frobenius_norm(input: Any, dim: Any, keepdim: bool = False) -> Any:
    """Return the square root of the sum of squares; :func:`wengert.linalg.vector_norm` is its successor."""
    return ops.linalg_vector_norm(input, 2, dim, keepdim)


# ---- rank and pseudo-inverse


def _tolerances(A: Any, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """Return both tolerances, numbers or tensors: by default max(m, n) ε, relative to the largest singular value."""
    if rtol is None:
        default = max(A.shape[-2:]) * finfo(A.dtype).eps
        if isinstance(atol, Tensor):
            rtol = ops.where(atol > 0, 0.0, ops.full((), default, dtype=real_of(A.dtype)))
        else:
            rtol = default if atol is None or atol <= 0 else 0.0
    return 0.0 if atol is None else atol, rtol


def _threshold(values: Any, atol: Any, rtol: Any) -> Any:
    """Return the size up to which singular values count as zero, with a last dimension of size 1."""
    largest = np.max(values, -1, initial=0)
    return np.maximum(np.asarray(atol), np.asarray(rtol) * largest)[..., np.newaxis]


@composite(
    samples=lambda s: [
        s(s.array(_RANK_1)), s(s.array(_A3)), s(s.array(_BATCH)), s(s.array(_SYMMETRIC), hermitian=True),
        s(s.array(_A3), 2.5), s(s.array(_A3), atol=2.5), s(s.array(_A3), rtol=0.7), s((0, 2)), s((2, 0, 2)),
        s.error(RuntimeError, "matrix or a batch", (2,)),
    ],
)  # fmt: skip
def linalg_matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Any:
    """Return the number of singular values of each matrix that are larger than max(atol, rtol · σ₁).

    Args:
        atol, rtol: numbers or tensors; rtol is max(m, n) ε if neither is given. tol: another name of ``atol``.
        hermitian: take A as Hermitian, which is faster.
    """
    matrix_shape("linalg_matrix_rank", A.shape)
    if tol is not None and atol is None:
        atol, rtol = tol, 0.0 if rtol is None else rtol
    atol, rtol = _tolerances(A, atol, rtol)
    matrix = A.detach()
    values = ops.abs(ops.linalg_eigvalsh(matrix)) if hermitian else ops.linalg_svdvals(matrix)
    largest = ops.amax(values, -1) if values.shape[-1] else ops.sum(values, -1)
    threshold = ops.maximum(largest * rtol, ops.full_like(largest, 0.0) + atol)
    return ops.sum(ops.gt(values, ops.unsqueeze(threshold, -1)), -1)


def _pinv_vjp(g: Any, A: Any, out: Any) -> Any:
    X, Xh, gh = out, out.mH, g.mH
    left, right = (gh @ X) @ Xh, Xh @ (X @ gh)
    return left - A @ (X @ left) + right - (right @ X) @ A - Xh @ g @ Xh


def _pinv_jvp(t: Any, A: Any, out: Any) -> Any:
    X, Xh, th = out, out.mH, t.mH
    left, right = X @ (Xh @ th), (th @ Xh) @ X
    return left - (left @ A) @ X + right - X @ (A @ right) - X @ t @ X


def _pinv_spec(A: Spec, atol: Any, rtol: Any, hermitian: Any = False) -> Spec:
    m, n = matrix_shape("linalg_pinv", A.shape)
    if hermitian:
        square_shape("linalg_pinv", A.shape)
    return Spec((*A.shape[:-2], n, m), A.dtype)


def _spectrum(a: Any, hermitian: bool) -> tuple[Any, Any, Any]:
    """Return U, S and Vᴴ with a = U S Vᴴ; of a Hermitian matrix S may be negative."""
    if not hermitian:
        return tuple(np.linalg.svd(a, full_matrices=False))  # type: ignore[return-value]
    values, vectors = np.linalg.eigh(a)
    return vectors, values, vectors.conj().mT


def _pinv_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Batching rule of the pseudo-inverse: tolerances, too, may be one for each matrix."""
    A = values[0] if batched[0] else expanded(values[0], size)
    tolerances = [aligned(v, A.ndim - 3) if b else v for v, b in zip(values[1:3], batched[1:3], strict=True)]
    return execute(op, [A, *tolerances, values[3]])


@operator(
    vjp={"A": _pinv_vjp},
    jvp={"A": _pinv_jvp},
    batch=_pinv_batch,
    spec=_pinv_spec,
    home=(),
    samples=lambda s: [
        s(s.array(_A3), atol=0.0, rtol=1e-12), s(s.array(_TALL), atol=0.0, rtol=1e-12),
        s(s.array(np.transpose(_TALL)), atol=0.0, rtol=1e-12), s(s.array(_BATCH), atol=0.0, rtol=1e-12),
        s(s.array(_COMPLEX), atol=0.0, rtol=1e-12), s((0, 2), atol=0.0, rtol=1e-12),
        s((3, 2), kind="complex", atol=0.0, rtol=1e-12), s(s.array(_RANK_1), atol=0.0, rtol=1e-6, grad=False),
        s(s.array(_SYMMETRIC), atol=0.0, rtol=1e-12, hermitian=True, grad=False),
        s(s.array(_BATCH), s.array([0.1, 2.2]), s.array(1e-3), grad=False),
    ],
)  # fmt: skip
def pseudo_inverse(A: Inexact, atol: RealOrScalar, rtol: RealOrScalar, hermitian: Any = False) -> Any:
    """Return the pseudo-inverse, singular values up to max(atol, rtol σ₁) taken as zero."""
    _pinv_spec(Spec(A.shape, dtype_of(A.dtype)), atol, rtol, hermitian)
    U, S, Vh = checked("linalg_pinv", lambda a: _spectrum(a, bool(hermitian)), A)
    size = np.abs(S)
    large = size > _threshold(size, atol, rtol)
    inverse = np.where(large, 1 / np.where(large, S, 1), 0).astype(S.dtype)
    return (Vh.conj().mT * inverse[..., np.newaxis, :]) @ U.conj().mT


@composite(
    samples=lambda s: [
        s(s.array(_A3)), s(s.array(_TALL)), s(s.array(_BATCH), rtol=1e-3), s(s.array(_RANK_1), grad=False),
        s(s.array(_A3), 1e-3), s(s.array(_A3), atol=2.5, grad=False),
        s(s.array(_SYMMETRIC), hermitian=True, grad=False), s((0, 3)), s.error(RuntimeError, "matrix or a batch", (2,)),
    ],
)  # fmt: skip
def linalg_pinv(A: Any, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Any:
    """Return the Moore-Penrose pseudo-inverse of each matrix.

    Args:
        A: (*, m, n). atol, rtol: singular values up to max(atol, rtol · σ₁) count as zero; numbers or tensors; rtol is
            max(m, n) ε if neither is given. rcond: another name of ``rtol``. hermitian: take A as Hermitian.

    The gradient holds while the rank does not change.

    Example:
        >>> import wengert as wg
        >>> wg.linalg.pinv(wg.tensor([[2.0, 0.0], [0.0, 0.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.0000]])
    """
    matrix_shape("linalg_pinv", A.shape)
    tolerances = _tolerances(A, atol, rcond if rtol is None else rtol)
    return ops.pseudo_inverse(A, *(t.detach() if isinstance(t, Tensor) else t for t in tolerances), hermitian)


@composite(method=True, samples=lambda s: [s(s.array(_TALL)), s(s.array(_A3), rcond=1e-3)])
def pinverse(input: Any, rcond: float = 1e-15) -> Any:
    """Return the pseudo-inverse of each matrix; see :func:`wengert.linalg.pinv`."""
    return ops.linalg_pinv(input, rtol=rcond)


# ---- least squares


class LeastSquares(NamedTuple):
    """What :func:`wengert.linalg.lstsq` returns."""

    solution: Any
    residuals: Any
    rank: Any
    singular_values: Any


def _residuals(off: Any, full: Any, empty: Any) -> Any:
    """Return the squared norm of each column where every matrix has full rank, else ``empty``."""
    found, ranks = ops.sum(ops.square(ops.abs(off)), -2), known(full)
    if ranks is None:  # the examples of a batch differ
        return ops.where(ops.unsqueeze(full, -1), found, math.nan)
    return found if ranks.all() else empty


_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@composite(
    samples=lambda s: [
        s(s.array(_TALL), (3, 2)), s(s.array(_A3), (3, 1)), s(s.array(np.transpose(_TALL)), (2, 2)),
        s(s.array(_BATCH), (2, 2, 1)), s(s.array(_TALL), (3, 1), driver="gelsd"),
        s(s.array(_TALL), (3, 1), driver="gels"), s(s.array(_TALL), (3, 2), driver="gelss"),
        s(s.array(_RANK_1), (2, 1), grad=False), s(s.array(_COMPLEX), s.tensor((2, 1), kind="complex")),
        s(s.array(_TALL), (3,)), s.error(RuntimeError, "as many rows", s.array(_TALL), (2, 1)),
        s.error(ValueError, "driver", s.array(_TALL), (3, 1), driver="svd"),
    ],
)  # fmt: skip
def linalg_lstsq(A: Any, B: Any, rcond: Any = None, *, driver: Any = None) -> Any:
    """Return X with the least ‖A X - B‖, of the least ‖X‖ among those, by the pseudo-inverse.

    Args:
        A: (*, m, n). B: (*, m, k), or (*, m).
        rcond: singular values up to rcond · σ₁ count as zero; max(m, n) ε if None.
        driver: the LAPACK routine whose extra results are wanted. All are solved alike: ``"gelsy"`` (the default) has
            no singular values; ``"gels"`` has neither those nor ranks; ``"gelsd"`` and ``"gelss"`` have both.

    Returns:
        (solution, residuals, rank, singular_values). The residuals, ‖A X - B‖² per column, are empty unless m > n,
        every A has full rank, and the driver is not ``"gelsy"``; under vmap, those of a lower rank are NaN.

    Example:
        >>> import wengert as wg
        >>> wg.linalg.lstsq(wg.tensor([[1.0], [1.0]]), wg.tensor([[1.0], [3.0]])).solution
        tensor([[2.0000]])
    """
    m, n = matrix_shape("linalg_lstsq", A.shape)
    chosen = "gelsy" if driver is None else driver
    if chosen not in _DRIVERS:
        raise ValueError(f"linalg_lstsq(): driver must be one of {', '.join(_DRIVERS)}, got {driver!r}")
    vector = is_vector(A, B)
    columns = ops.unsqueeze(B, -1) if vector else B
    if columns.shape[-2] != m:
        raise ShapeError(
            f"linalg_lstsq(): B must have as many rows as A, got shapes {tuple(A.shape)} and {tuple(B.shape)}"
        )
    solution = ops.linalg_pinv(A, rtol=rcond) @ columns
    rank = ops.linalg_matrix_rank(A, rtol=rcond)
    residuals = ops.reshape(ops.real(ops.narrow(solution, -1, 0, 0)), (0,))  # empty, with the history of the solution
    if chosen != "gelsy" and m > n:
        residuals = _residuals(A @ solution - columns, rank == n, residuals)
    values = ops.linalg_svdvals(A.detach()) if chosen in ("gelsd", "gelss") else ops.zeros(0, dtype=real_of(A.dtype))
    if chosen == "gels":
        rank = ops.zeros(0, dtype=rank.dtype)
    return LeastSquares(ops.squeeze(solution, -1) if vector else solution, residuals, rank, values)

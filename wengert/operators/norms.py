"""Vector norms and distances: finite where the squares of the entries are not, with the subgradient 0 at 0.

With n = ‖x‖_p, ∂n/∂x_i = sgn(x_i) (|x_i| / n)^(p-1): the quotient is taken first, so nothing overflows.
"""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import DType, dtype_of, promote_types, real_of, to_dtype
from wengert.array.shape import reduced
from wengert.core.arguments import Axes, DTypeOrNone, Inexact
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import from_array
from wengert.errors import DTypeError, ShapeError
from wengert.operators.along import nonempty

__all__ = [
    "cdist", "cosine_similarity", "dist", "linalg_vector_norm", "norm", "normalize", "pairwise_distance", "pdist",
    "renorm",
]  # fmt: skip

COMPUTE_MODES = (
    None,
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


def _norm_dtype(given: DType, dtype: DType | None) -> DType:
    if dtype is None:
        return real_of(given)
    if promote_types(given, dtype) is not dtype:
        raise DTypeError(f"linalg_vector_norm(): {dtype} does not hold every number of {given}; cast the input first")
    return real_of(dtype)


def _order(ord: Any) -> float:
    """Return the order of a norm as a number.

    Raises:
        TypeError: for an order that is not a number.
    """
    if isinstance(ord, bool) or not isinstance(ord, int | float):
        raise TypeError(f"linalg_vector_norm(): ord must be a number, inf or -inf, got {ord!r}")
    return float(ord)


def _norm_spec(x: Spec, ord: Any = 2, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Spec:
    if _order(ord) < 0:
        nonempty("linalg_vector_norm", x.shape, dim)
    return Spec(reduced(x.shape, dim, keepdim), _norm_dtype(x.dtype, dtype))


# ---- kernel


def _power_norm(size: Any, p: float, dim: Any) -> Any:
    """Return (Σ size^p)^(1/p), the dimensions kept."""
    if p == 2:
        return np.sqrt(np.add.reduce(np.square(size), axis=dim, keepdims=True))
    if p == 1:
        return np.add.reduce(size, axis=dim, keepdims=True)
    return np.power(np.add.reduce(np.power(size, p), axis=dim, keepdims=True), 1 / p)


def _scaled_norm(size: Any, p: float, dim: Any) -> Any:
    """The same for entries whose powers leave the range of the dtype: divided by the largest (p < 0: the smallest)."""
    bound = np.minimum if p < 0 else np.maximum
    scale = bound.reduce(size, axis=dim, keepdims=True, initial=np.inf if p < 0 else 0)
    usable = np.where((scale > 0) & np.isfinite(scale), scale, 1).astype(size.dtype)
    return np.where(usable == scale, usable * _power_norm(size / usable, p, dim), scale)


def _vector_norm(size: Any, p: float, dim: Any) -> Any:
    if p == math.inf:
        return np.maximum.reduce(size, axis=dim, keepdims=True, initial=0)
    if p == -math.inf:
        return np.minimum.reduce(size, axis=dim, keepdims=True)
    if p == 0:
        return np.add.reduce(size != 0, axis=dim, keepdims=True, dtype=size.dtype)
    if p not in (1, 2):
        return _scaled_norm(size, p, dim)
    found = _power_norm(size, p, dim)
    info = np.finfo(size.dtype)
    safe = (found > math.sqrt(info.tiny) / info.eps) & (found < math.sqrt(info.max))
    return found if safe.all() else np.where(np.isnan(found), found, _scaled_norm(size, p, dim))


# ---- rules


def _unit(x: Any, out: Any, p: float, dim: Any) -> Any:
    """Return the derivative of the norm, of the shape of x; ``out`` keeps the dimensions."""
    size = ops.abs(x)
    if p == 0:
        return ops.zeros_like(x)
    if p == 1:
        return ops.sgn(x)
    zero = ops.logical_or(ops.eq(out, 0), ops.isinf(out))
    safe = ops.where(zero, 1.0, out)
    if math.isinf(p):
        reached = ops.eq(size, out)
        return ops.sgn(x) * (ops.cast(reached, size.dtype) / ops.sum(reached, dim, keepdim=True))
    if p == 2:
        return ops.where(zero, 0.0, x / safe)
    flat = ops.logical_or(zero, ops.eq(size, 0))  # where |x|^(p-1) is 0 or, for p < 1, infinite
    ratio = ops.where(flat, 1.0, size / safe)
    return ops.where(flat, 0.0, ops.sgn(x) * ratio ** (p - 1))


def _norm_vjp(g: Any, x: Any, out: Any, ord: Any, dim: Any, keepdim: Any) -> Any:
    shape = tuple(1 if i in dim else n for i, n in enumerate(x.shape))
    return ops.reshape(g, shape) * _unit(x, ops.reshape(out, shape), _order(ord), dim)


def _norm_jvp(t: Any, x: Any, out: Any, ord: Any, dim: Any, keepdim: Any) -> Any:
    shape = tuple(1 if i in dim else n for i, n in enumerate(x.shape))
    product = t * ops.conj(_unit(x, ops.reshape(out, shape), _order(ord), dim))
    return ops.sum(ops.real(product), dim, keepdim)


@operator(
    vjp={"x": _norm_vjp},
    jvp={"x": _norm_jvp},
    batch="front",
    spec=_norm_spec,
    widen=False,
    method=False,
    samples=lambda s: [
        s((2, 3)), s((2, 3), dim=1), s((2, 3), dim=-2, keepdim=True), s((2, 3, 2), dim=(0, -1)), s(()),
        s((0, 3), dim=1), s((0, 3), grad=False), s((2, 3), 1, dim=1), s((2, 3), 3, dim=1), s((2, 3), 2.5, dim=1),
        s((2, 3), 0.5, dim=1), s((2, 3), -1, dim=1), s((2, 3), math.inf, dim=1), s((2, 3), -math.inf, dim=1),
        s((2, 3), 0, dim=1), s((2, 3), kind="complex"), s((2, 3), 3, dim=1, kind="complex"),
        s((2, 3), 1, dim=0, kind="complex"), s((2, 3), dim=1, of="float32", dtype="float64", grad=False),
        s.error(TypeError, "does not hold", (2, 3), dtype="float32"),
        s(s.array([[0.0, 0.0], [3.0, 4.0]]), dim=1, grad=False),
        s.error(TypeError, "'ord' must be a number", (2, 3), "fro"), s.error(TypeError, "inexact", (2,), kind="integer"),
    ],
)  # fmt: skip
def linalg_vector_norm(
    x: Inexact, ord: Any = 2, dim: Axes = None, keepdim: Any = False, *, dtype: DTypeOrNone = None
) -> Any:
    """Return the vector norm (Σ |x|^p)^(1/p), p = ``ord``, over all dimensions or along ``dim``.

    Args:
        ord: any number; inf and -inf give the largest and the smallest |x|, 0 the number of nonzero elements.
        dtype: compute in it.

    It overflows only if the norm itself does. At x = 0 its gradient is 0.
    """
    p = _order(ord)
    if p < 0:
        nonempty("linalg_vector_norm", x.shape, dim)
    _norm_dtype(dtype_of(x.dtype), dtype)
    size = np.abs(x if dtype is None else x.astype(dtype.numpy))
    wide = size.astype(np.float32) if size.dtype.itemsize == 2 else size
    return _vector_norm(wide, p, dim).reshape(reduced(x.shape, dim, keepdim)).astype(size.dtype, copy=False)


@composite(
    method=True,
    samples=lambda s: [
        s((2, 3)), s((2, 3), dim=1), s((2, 3), p=1, dim=0, keepdim=True), s((2, 3), "fro", [0, 1]),
        s((2, 3), p=math.inf), s((2, 3), of="float32", dtype="float64", grad=False), s((2, 3), p=0),
        s((2, 3), kind="complex"), s.error(ValueError, "'fro', 'nuc' or a number", (2, 3), p="max"),
    ],
)  # fmt: skip
def norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None) -> Any:
    """Return the norm of all elements, or along ``dim``: the vector norm of order ``p``.

    Args:
        p: a number, inf, -inf; ``"fro"`` for the square root of the sum of squares; ``"nuc"`` for the sum of the
            singular values of matrices over two dimensions.
    """
    if p == "nuc":
        return ops.linalg_matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype, out=out)
    if isinstance(p, str) and p != "fro":
        raise ValueError(f"norm(): p must be 'fro', 'nuc' or a number, got {p!r}")
    order = 2 if p == "fro" or p is None else p
    return ops.linalg_vector_norm(input, order, dim, keepdim, dtype=None if dtype is None else to_dtype(dtype), out=out)


@composite(
    method=True, samples=lambda s: [s((2, 3), (2, 3)), s((2, 3), (3,), 1), s((), ()), s((2, 3), (2, 1), math.inf)]
)
def dist(input: Any, other: Any, p: Any = 2) -> Any:
    """Return the norm of order ``p`` of ``input - other``, over all elements."""
    return ops.linalg_vector_norm(input - other, p)


@composite(
    method=True,
    inplace=True,
    samples=lambda s: [
        s((2, 3), 2, 0, 1.0), s((2, 3), 1, -1, 0.5), s((2, 2, 2), 2, 1, 100.0),
        s(s.array([[0.0, 0.0], [3.0, 4.0]]), 2, 0, 1.0, grad=False),
        s.error(ValueError, "at least 2 dimensions", (2,), 2, 0, 1.0),
        s.error(ValueError, "maxnorm", (2, 3), 2, 0, -1.0),
    ],
)  # fmt: skip
def renorm(input: Any, p: float, dim: int, maxnorm: float) -> Any:
    """Return the tensor with each slice along ``dim`` scaled down to the norm ``maxnorm`` if its norm is larger."""
    if input.ndim < 2:
        raise ShapeError(f"renorm(): input must have at least 2 dimensions, got shape {tuple(input.shape)}")
    if maxnorm < 0 or p <= 0:
        raise ValueError(
            f"renorm(): maxnorm must not be negative and p must be positive, got maxnorm={maxnorm} and p={p}"
        )
    others = [i for i in range(input.ndim) if i != dim % input.ndim]
    size = ops.linalg_vector_norm(input, p, others, True)
    return input * ops.where(ops.gt(size, maxnorm), maxnorm / (size + 1e-7), 1.0)


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 3)), s((2, 3), 1.0), s((2, 3), dim=0), s((2, 3, 2), 3.0, 2), s((2, 3), eps=10.0),
        s(s.array([[0.0, 0.0, 0.2]]), 1.0, grad=False), s(s.array([[0.0, 0.0], [3.0, 4.0]]), grad=False),
    ],
)  # fmt: skip
def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Any:
    """Return ``input / max(‖input‖_p, eps)``, the norm taken along ``dim``."""
    size = ops.clamp_min(ops.linalg_vector_norm(input, p, dim, True), eps)
    return ops.true_divide(input, size, out=out)


@composite(
    home=("", "nn.functional"),
    samples=lambda s: [
        s((2, 3), (2, 3)), s((2, 3), (3,), dim=-1), s((2, 1, 3), (2, 3), dim=2), s((3,), (3,), dim=0),
    ],
)  # fmt: skip
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """Return x1 · x2 / (max(‖x1‖, eps) max(‖x2‖, eps)) along ``dim``, broadcasting the two."""
    x1, x2 = ops.broadcast_tensors(x1, x2)
    first, second = ops.normalize(x1, 2.0, dim, eps), ops.normalize(x2, 2.0, dim, eps)
    return ops.sum(first * second, dim)


@composite(
    home=("", "nn.functional"),
    samples=lambda s: [
        s((2, 3), (2, 3)), s((2, 3), (2, 3), 1.0, keepdim=True), s((2, 3), (3,)), s((3,), (3,)),
        s((2, 3), (2, 3), 3.0, eps=0.1),
    ],
)  # fmt: skip
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    """Return ‖x1 - x2 + eps‖_p along the last dimension, broadcasting the two."""
    return ops.linalg_vector_norm(x1 - x2 + eps, p, -1, keepdim)


@composite(
    samples=lambda s: [
        s((3, 2), (4, 2)), s((2, 3, 2), (1, 4, 2), 1.0), s((3, 2), (4, 2), 3.0), s((0, 2), (4, 2)),
        s((3, 2), (4, 2), math.inf), s((3, 2), (4, 2), compute_mode="donot_use_mm_for_euclid_dist"),
        s.error(ValueError, "same number of columns", (3, 2), (4, 3)),
        s.error(ValueError, "compute_mode", (3, 2), (4, 2), compute_mode="mm"),
    ],
)  # fmt: skip
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary") -> Any:
    """Return the distance of order ``p`` between every row of ``x1`` (…, P, M) and every row of ``x2`` (…, R, M).

    Args:
        compute_mode: accepted as PyTorch names it. The differences themselves are always summed, never a product of
            matrices, so near points keep their digits.
    """
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            "cdist(): takes two tensors of rows with the same number of columns, got shapes "
            f"{tuple(x1.shape)} and {tuple(x2.shape)}"
        )
    if compute_mode not in COMPUTE_MODES:
        raise ValueError(f"cdist(): compute_mode must be one of {COMPUTE_MODES}, got {compute_mode!r}")
    return ops.linalg_vector_norm(ops.unsqueeze(x1, -2) - ops.unsqueeze(x2, -3), p, -1)


@composite(
    home=("", "nn.functional"),
    samples=lambda s: [s((4, 2)), s((3, 2), 1.0), s((3, 2), 3.0), s((1, 2)), s.error(ValueError, r"\(N, M\)", (3,))],
)
def pdist(input: Any, p: float = 2.0) -> Any:
    """Return the distances of order ``p`` between all pairs i < j of the rows of (N, M), in the order of i, then j."""
    if input.ndim != 2:
        raise ShapeError(f"pdist(): input must be (N, M), got shape {tuple(input.shape)}")
    first, second = np.triu_indices(input.shape[0], 1)
    rows = [ops.index_select(input, 0, from_array(place)) for place in (first, second)]
    return ops.linalg_vector_norm(rows[0] - rows[1], p, -1)

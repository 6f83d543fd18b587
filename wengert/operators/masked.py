"""Reductions and normalisations of the elements that a mask lets through: PyTorch's ``torch.masked``.

A mask is boolean, True for the elements that count, and is broadcast to the tensor. The others are replaced by the
value that changes nothing: 0 in a sum, 1 in a product, -inf in a maximum; their gradient is 0.
"""

import builtins
import math
from typing import Any

from wengert.array.dtype import FLOAT, bool_, float32, iinfo, int64, to_dtype
from wengert.array.shape import axes_of, axis_of
from wengert.core.families import composite
from wengert.core.registry import ops
from wengert.errors import DTypeError, ShapeError
from wengert.operators.checks import anywhere

__all__: list[str] = []

MASK = [[True, False, True], [False, True, True]]


def _samples(s: Any, *given: Any, **options: Any) -> list[Any]:
    """Return calls with masks and without; ``given`` are the arguments after the first."""
    mask = s.array(MASK)
    return [
        s((2, 3), *given, **options), s((2, 3), *given, mask=mask, **options),
        s((2, 3), *given, mask=s.array([True, True, False]), **options),
    ]  # fmt: skip


def _reductions(s: Any, *given: Any) -> list[Any]:
    """Return calls of a reduction: over everything, along dimensions, kept or not."""
    mask = s.array(MASK)
    return [
        *_samples(s, *given), s((2, 3), *given, dim=1, mask=mask), s((2, 3), *given, dim=(0, -1), keepdim=True, mask=mask),
        s(()), s((2, 3), *given, dim=0, mask=mask, dtype="float32", grad=False),
    ]  # fmt: skip


def _mask_of(name: str, input: Any, mask: Any) -> Any:
    """Return the mask as booleans in the shape of ``input``."""
    if mask.ndim > input.ndim:
        raise ShapeError(
            f"{name}(): a mask of {mask.ndim} dimensions cannot be broadcast to a tensor of shape {tuple(input.shape)}"
        )
    return ops.expand(mask.to(bool_), input.shape)


def _let_through(name: str, input: Any, mask: Any, value: Any) -> Any:
    """Return ``input`` with ``value`` where the mask is False."""
    return input if mask is None else ops.where(_mask_of(name, input, mask), input, value)


def _as(result: Any, input: Any, dtype: Any) -> Any:
    return result.to(input.dtype if dtype is None else to_dtype(dtype))


def _least(input: Any) -> Any:
    return -math.inf if input.dtype.category >= FLOAT else False if input.dtype is bool_ else iinfo(input.dtype).min


def _greatest(input: Any) -> Any:
    return math.inf if input.dtype.category >= FLOAT else True if input.dtype is bool_ else iinfo(input.dtype).max


# ---- reductions


@composite(home="masked", samples=_reductions)
def masked_sum(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """Return the sum of the elements whose mask is True; that of none is 0."""
    return ops.sum(_let_through("masked.sum", input, mask, 0), dim, keepdim, dtype=dtype)


@composite(home="masked", samples=_reductions)
def masked_prod(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """Return the product of the elements whose mask is True; that of none is 1."""
    x = _let_through("masked.prod", input, mask, 1)
    axes = sorted(axes_of(dim, x.ndim), reverse=True)
    kind = input.dtype if dtype is None else to_dtype(dtype)
    kind = int64 if dtype is None and kind.category < FLOAT else kind
    if not axes:
        return ops.prod(x, dtype=kind)
    for axis in axes:
        x = ops.prod(x, axis, keepdim, dtype=kind)
    return x


@composite(home="masked", samples=lambda s: [*_samples(s, 0), *_samples(s, -1)])
def masked_cumsum(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Return the running sum along ``dim`` in which elements whose mask is False count as 0."""
    return _as(ops.cumsum(_let_through("masked.cumsum", input, mask, 0), dim, dtype=dtype), input, dtype)


@composite(home="masked", samples=lambda s: [*_samples(s, 0), *_samples(s, -1)])
def masked_cumprod(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Return the running product along ``dim`` in which elements whose mask is False count as 1."""
    return _as(ops.cumprod(_let_through("masked.cumprod", input, mask, 1), dim, dtype=dtype), input, dtype)


@composite(home="masked", samples=_reductions)
def masked_amax(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """Return the largest of the elements whose mask is True; that of none is -inf, or the least integer."""
    x = _let_through("masked.amax", input, mask, _least(input))
    return _as(ops.amax(x, () if dim is None else dim, keepdim), input, dtype)


@composite(home="masked", samples=_reductions)
def masked_amin(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """Return the smallest of the elements whose mask is True; that of none is inf, or the greatest integer."""
    x = _let_through("masked.amin", input, mask, _greatest(input))
    return _as(ops.amin(x, () if dim is None else dim, keepdim), input, dtype)


@composite(home="masked", samples=lambda s: [*_samples(s), *_samples(s, 1), s((2, 3), 0, keepdim=True)])
def masked_argmax(
    input: Any, dim: int | None = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Any:
    """Return the place of the largest of the elements whose mask is True, in the dtype of ``input`` unless one is given."""
    x = _let_through("masked.argmax", input, mask, _least(input))
    return _as(ops.argmax(x, dim, keepdim), input, dtype)


@composite(home="masked", samples=lambda s: [*_samples(s), *_samples(s, 1), s((2, 3), 0, keepdim=True)])
def masked_argmin(
    input: Any, dim: int | None = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Any:
    """Return the place of the smallest of the elements whose mask is True, in the dtype of ``input`` unless one is given."""
    x = _let_through("masked.argmin", input, mask, _greatest(input))
    return _as(ops.argmin(x, dim, keepdim), input, dtype)


def _count(input: Any, mask: Any, dim: Any, keepdim: bool) -> Any:
    """Return how many elements count: a number without a mask, else a tensor of integers."""
    if mask is None:
        return math.prod(input.shape[i] for i in axes_of(dim, input.ndim))
    return ops.sum(mask, dim, keepdim)


def _inexact(name: str, input: Any, dtype: Any) -> Any:
    kind = input.dtype if dtype is None else to_dtype(dtype)
    if kind.category < FLOAT:
        raise DTypeError(
            f"{name}(): the result of {kind} would not be {kind}; pass dtype=, for instance wengert.float32"
        )
    return kind


@composite(home="masked", samples=_reductions)
def masked_mean(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """Return the mean of the elements whose mask is True; that of none is nan."""
    kind = _inexact("masked.mean", input, dtype)
    shown = None if mask is None else _mask_of("masked.mean", input, mask)
    count = _count(input, shown, dim, keepdim)
    return ops.div(ops.masked_sum(input, dim, keepdim=keepdim, dtype=kind, mask=shown), count)


@composite(home="masked", samples=lambda s: [*_samples(s), *_samples(s, 0)[:2], s((2, 3), 0, keepdim=True)])
def masked_median(input: Any, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """Return the lower median of the elements along ``dim`` whose mask is True and that are not nan; that of none is nan.

    Raises:
        ValueError: for a row of integers in which no mask is True.
    """
    wide = input if input.dtype.category >= FLOAT else input.to(float32)
    found = ops.nanmedian(_let_through("masked.median", wide, mask, math.nan), dim, keepdim).values
    if wide is input:
        return found
    if anywhere(ops.isnan(found)):
        raise ValueError("masked.median(): a row of integers in which no mask is True has no median")
    return _as(found, input, dtype)


@composite(
    home="masked",
    samples=lambda s: [*_reductions(s), *_samples(s, 1.0, 1), *_samples(s, math.inf, 0), *_samples(s, -math.inf, 1)],
)
def masked_norm(
    input: Any, ord: Any = 2.0, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Any:
    """Return the norm of order ``ord`` of the elements whose mask is True; that of none is 0 (inf for order -inf)."""
    x = _let_through("masked.norm", input, mask, math.inf if ord == -math.inf else 0)
    return ops.linalg_vector_norm(x if dtype is None else x.to(dtype), ord, dim, keepdim)


def _variance(
    name: str, input: Any, dim: Any, unbiased: bool | None, correction: Any, keepdim: bool, dtype: Any, mask: Any
) -> Any:
    if unbiased is not None and correction is not None:
        raise ValueError(f"{name}(): give either unbiased or correction")
    less = (1 if unbiased is None else int(unbiased)) if correction is None else correction
    kind = float32 if dtype is None and input.dtype.category < FLOAT else _inexact(name, input, dtype)
    shown = None if mask is None else _mask_of(name, input, mask)
    x = input.to(kind)
    off = x - ops.masked_mean(x, dim, keepdim=True, mask=shown)
    squares = ops.real(off * ops.conj(off)).to(kind) if kind.is_complex else ops.square(off)
    total = ops.masked_sum(squares, dim, keepdim=keepdim, mask=shown)
    count = _count(input, shown, dim, keepdim)
    return ops.div(total, ops.clamp_min(count - less, 0) if mask is not None else builtins.max(count - less, 0))


@composite(
    home="masked",
    samples=lambda s: [
        *_samples(s),
        *_samples(s, 1)[:2],
        s((2, 3), 1, False),
        s((2, 3), correction=0, mask=s.array(MASK)),
        s((), grad=False),
    ],
)
def masked_var(
    input: Any, dim: Any = None, unbiased: bool | None = None, *, correction: Any = None, keepdim: bool = False,
    dtype: Any = None, mask: Any = None,
) -> Any:  # fmt: skip
    """Return the variance of the elements whose mask is True, divided by their number less ``correction`` (1)."""
    return _variance("masked.var", input, dim, unbiased, correction, keepdim, dtype, mask)


@composite(home="masked", samples=lambda s: [*_samples(s), s((2, 3), 1, False), s((2, 3), correction=0)])
def masked_std(
    input: Any, dim: Any = None, unbiased: bool | None = None, *, correction: Any = None, keepdim: bool = False,
    dtype: Any = None, mask: Any = None,
) -> Any:  # fmt: skip
    """Return the square root of :func:`masked_var`."""
    return ops.sqrt(_variance("masked.std", input, dim, unbiased, correction, keepdim, dtype, mask))


@composite(home="masked", samples=_reductions)
def masked_logsumexp(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """Return log(Σ exp(x)) of the elements whose mask is True; that of none is -inf."""
    x = _let_through("masked.logsumexp", input, mask, _least(input))
    return _as(ops.logsumexp(x, () if dim is None else dim, keepdim), input, dtype)


@composite(
    home="masked",
    samples=lambda s: [
        s((2, 3), (2, 3)),
        s((2, 3), (3,), input_mask=s.array(MASK)),
        s((2, 3), (2, 3), input_mask=s.array([True, False, True]), other_mask=s.array([True, True, False])),
    ],
)
def masked_logaddexp(
    input: Any, other: Any, *, dtype: Any = None, input_mask: Any = None, other_mask: Any = None
) -> Any:
    """Return log(exp(input) + exp(other)); an element whose mask is False counts as -inf."""
    a = _let_through("masked.logaddexp", input, input_mask, -math.inf)
    b = _let_through("masked.logaddexp", other, other_mask, -math.inf)
    return _as(ops.logaddexp(a, b), input, dtype)


# ---- normalisations


@composite(home="masked", samples=lambda s: [*_samples(s, 0)[:2], *_samples(s, -1)])
def masked_softmax(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Return the softmax along ``dim`` over the elements whose mask is True; the others are 0, a row of none nan."""
    return ops.softmax(_let_through("masked.softmax", input, mask, -math.inf), dim, dtype=dtype)


@composite(home="masked", samples=lambda s: [*_samples(s, 0)[:1], *_samples(s, -1, grad=False)])
def masked_log_softmax(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Return the logarithm of :func:`masked_softmax`."""
    return ops.log_softmax(_let_through("masked.log_softmax", input, mask, -math.inf), dim, dtype=dtype)


@composite(home="masked", samples=lambda s: [*_samples(s, 0)[:2], *_samples(s, -1)])
def masked_softmin(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Return the softmax of ``-input`` along ``dim`` over the elements whose mask is True."""
    return ops.softmin(_let_through("masked.softmin", input, mask, math.inf), dim, dtype=dtype)


@composite(
    home="masked", samples=lambda s: [*_samples(s, 2.0, 0), *_samples(s, 1.0, -1), *_samples(s, 2.0, 1, eps=5.0)]
)
def masked_normalize(
    input: Any, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Any = None
) -> Any:
    """Return the elements whose mask is True divided by their norm along ``dim`` (at least ``eps``), the others as 0."""
    length = ops.masked_norm(input, ord, axis_of(dim, input.ndim), keepdim=True, dtype=dtype, mask=mask)
    return _let_through("masked.normalize", input, mask, 0) / ops.clamp_min(length, eps)

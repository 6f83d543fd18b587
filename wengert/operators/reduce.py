"""Reductions: one value from many, along some dimensions or over all of them.

Sums of float16 and bfloat16 are accumulated in float32, and those of bools and integers in int64.
"""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT, DType, bool_, dtype_of, float32, int64, uint8
from wengert.array.shape import reduced
from wengert.core.arguments import Anything, Axes, Axis, DTypeOrNone
from wengert.core.families import composite, linear, nondifferentiable, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import DTypeError
from wengert.operators.along import spread
from wengert.settings import settings

__all__ = ["all", "any", "count_nonzero", "logsumexp", "mean", "nanmean", "nansum", "prod", "prod_dim", "sum"]


# ---- sums


def summed_dtype(given: DType, dtype: DType | None) -> DType:
    """Return the dtype of a sum or product: as asked for, else int64 for bools and integers, else the tensor's."""
    if dtype is not None:
        return dtype
    return int64 if given.category < FLOAT else given


def _total(input: Any, dim: Any, keepdim: Any, dtype: DType) -> Any:
    """Sum in ``dtype``, or in float32 if that is a half."""
    total = np.add.reduce(input, axis=dim, dtype=(float32 if dtype.is_half else dtype).numpy, keepdims=keepdim)
    return total.astype(dtype.numpy) if dtype.is_half else total


@linear(
    transpose=lambda g, input_shape, dim, keepdim: spread(g, input_shape, dim, keepdim),
    batch="front",
    spec=lambda input, dim=None, keepdim=False, *, dtype=None: Spec(
        reduced(input.shape, dim, keepdim), summed_dtype(input.dtype, dtype)
    ),
    widen=False,
    samples=lambda s: [
        s((2, 3)), s((2, 3), dim=1), s((2, 3), dim=-2, keepdim=True), s((2, 3, 2), dim=(0, -1)), s((2, 3), dim=()),
        s(()), s((), dim=0), s((0, 3)), s((0, 3), dim=1), s((0, 3), dim=0), s((1, 3), dim=0), s((3,), kind="complex"),
        s((3, 2), dim=0, kind="integer"), s((5,), kind="boolean"), s((3,), kind="integer", of="uint8", low=0),
        s((3,), kind="integer", dtype="float32"), s((2, 3), kind="integer", dim=1, dtype="float16"),
        s((4,), of="float16", dtype="float64", grad=False),
        s.error(IndexError, "dim=2 is out of range", (2, 3), dim=2),
        s.error(RuntimeError, "twice", (2, 3), dim=(1, -1)),
    ],
)  # fmt: skip
def sum(input: Anything, dim: Axes = None, keepdim: Any = False, *, dtype: DTypeOrNone = None) -> Any:
    """Return the sum of the elements, over all dimensions or along ``dim`` (an int or several).

    Example:
        >>> import wengert as wg
        >>> wg.sum(wg.tensor([[1, 2], [3, 4]]), dim=0)
        tensor([4, 6])
    """
    return _total(input, dim, keepdim, summed_dtype(dtype_of(input.dtype), dtype))


def _mean_dtype(given: DType, dtype: DType | None) -> DType:
    found = given if dtype is None else dtype
    if found.category < FLOAT:
        raise DTypeError(f"mean(): a mean of {found} is not a whole number; pass dtype=, for instance wengert.float32")
    return found


def _count(shape: tuple[int, ...], dim: tuple[int, ...]) -> int:
    return math.prod(shape[i] for i in dim)


def _mean_transpose(g: Any, input_shape: Any, dim: Any, keepdim: Any) -> Any:
    count = _count(input_shape, dim)
    return spread(g * (1 / count if count else math.inf), input_shape, dim, keepdim)


@linear(
    transpose=_mean_transpose,
    batch="front",
    spec=lambda input, dim=None, keepdim=False, *, dtype=None: Spec(
        reduced(input.shape, dim, keepdim), _mean_dtype(input.dtype, dtype)
    ),
    widen=False,
    samples=lambda s: [
        s((2, 3)), s((2, 3), dim=1), s((2, 3), dim=-2, keepdim=True), s((2, 3, 2), dim=(0, -1)), s(()), s((), dim=-1),
        s((0, 3), grad=False), s((0, 3), dim=1), s((0, 3), dim=0, grad=False), s((3,), kind="complex"),
        s((3,), kind="integer", dtype="float64"), s((2, 3), dim=1, dtype="float32", grad=False),
        s(s.array(np.full(3, 4e4, np.float16)), grad=False), s.error(TypeError, "pass dtype=", (3,), kind="integer"),
    ],
)  # fmt: skip
def mean(input: Anything, dim: Axes = None, keepdim: Any = False, *, dtype: DTypeOrNone = None) -> Any:
    """Return the mean of the elements, over all dimensions or along ``dim``; NaN where there are none.

    Raises:
        TypeError: for integers, unless ``dtype`` names a float dtype to compute in.
    """
    found = _mean_dtype(dtype_of(input.dtype), dtype)
    wide = float32 if found.is_half else found
    total = np.add.reduce(input, axis=dim, dtype=wide.numpy, keepdims=keepdim)
    return np.true_divide(total, _count(input.shape, dim)).astype(found.numpy, copy=False)


@composite(
    method=True,
    samples=lambda s: [
        s(s.array([1.0, np.nan, 3.0]), grad=False), s((2, 3), dim=1),
        s(s.array([[np.nan, np.nan], [1.0, np.nan]]), dim=1, keepdim=True, grad=False), s((3,), kind="integer"),
        s((2, 3), dim=(0, 1)), s(()), s((2, 3), dim=0, dtype="float32", grad=False),
    ],
)  # fmt: skip
def nansum(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Any:
    """Return the sum with NaN counted as zero; a NaN receives no gradient."""
    return ops.sum(_without_nan(input), dim, keepdim, dtype=dtype, out=out)


def _without_nan(input: Any) -> Any:
    return ops.where(ops.isnan(input), 0.0, input) if input.dtype.category >= FLOAT else input


@composite(
    method=True,
    samples=lambda s: [
        s(s.array([1.0, np.nan, 3.0]), grad=False), s((2, 3), dim=1),
        s(s.array([[2.0, np.nan], [1.0, np.nan]]), dim=1, grad=False), s((2, 3), dim=(0, -1), keepdim=True), s(()),
        s.error(TypeError, "dtype=", (3,), kind="integer"),
    ],
)  # fmt: skip
def nanmean(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Return the mean of the elements that are not NaN; NaN where there are none."""
    found = _mean_dtype(input.dtype, dtype)
    count = ops.sum(ops.logical_not(ops.isnan(input)), dim, keepdim)
    total = ops.nansum(input, dim, keepdim, dtype=float32 if found.is_half else found)
    return ops.cast(total / count, found)


# ---- products


def _others(input: Any, dim: int) -> Any:
    """Return, for each element, the product of the others along ``dim``: exact with any number of zeros."""
    before = _exclusive(input, dim)
    after = ops.flip(_exclusive(ops.flip(input, (dim,)), dim), (dim,))
    return before * after


def _exclusive(input: Any, dim: int) -> Any:
    """Return the product of the elements that come before each one."""
    size = input.shape[dim]
    if size == 0:
        return input
    ones = ops.ones_like(ops.narrow(input, dim, 0, 1))
    return ops.cat((ones, ops.cumprod(ops.narrow(input, dim, 0, size - 1), dim)), dim)


def _prod_vjp(g: Any, input: Any, dim: Any, keepdim: Any) -> Any:
    if not input.shape:
        return g
    return spread(g, input.shape, (dim,), keepdim) * ops.conj(_others(input, dim))


def _prod_jvp(t: Any, input: Any, dim: Any, keepdim: Any) -> Any:
    return ops.sum(t * _others(input, dim), dim, keepdim) if input.shape else t


@operator(
    vjp={"input": _prod_vjp},
    batch="front",
    jvp={"input": _prod_jvp},
    spec=lambda input, dim, keepdim=False, *, dtype=None: Spec(
        reduced(input.shape, (dim,), keepdim), summed_dtype(input.dtype, dtype)
    ),
    widen=False,
    home=(),
    samples=lambda s: [
        s((2, 3), dim=1), s((2, 3), dim=-2, keepdim=True), s((), dim=0), s((0, 3), dim=0), s((0, 3), dim=1),
        s((2, 1), dim=1), s(s.array([[4.0, 0, 5], [0, 0, 3], [2, 3, 4]]), dim=1), s((3, 2), dim=0, kind="complex"),
        s((3,), dim=0, kind="integer"), s((2, 2), dim=0, dtype="float32", grad=False), s((3,), dim=0, kind="boolean"),
    ],
)  # fmt: skip
def prod_dim(input: Anything, dim: Axis, keepdim: Any = False, *, dtype: DTypeOrNone = None) -> Any:
    """Return the product of the elements along ``dim``; ∂/∂x_i is the product of the others."""
    found = summed_dtype(dtype_of(input.dtype), dtype)
    wide = (float32 if found.is_half else found).numpy
    axis = dim if input.shape else ()
    return np.multiply.reduce(input, axis=axis, dtype=wide, keepdims=keepdim).astype(found.numpy, copy=False)


@composite(
    method=True,
    samples=lambda s: [
        s((2, 3)), s((2, 3), dim=1), s((2, 3), dim=-2, keepdim=True), s(()), s((0,)), s(s.array([4.0, 0.0])),
        s(s.array([0.0, 2.0, 0.0])), s((3,), kind="integer"), s((3,), kind="integer", dtype="float64"),
        s((2, 2), kind="complex"),
    ],
)  # fmt: skip
def prod(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Any:
    """Return the product of the elements, over all of them or along the dimension ``dim``."""
    if dim is None:
        input, dim = ops.reshape(input, (-1,)), 0
    return ops.prod_dim(input, dim, keepdim, dtype=dtype, out=out)


# ---- truth and counts


def _truth_spec(input: Spec, dim: Any = None, keepdim: Any = False) -> Spec:
    return Spec(reduced(input.shape, dim, keepdim), uint8 if input.dtype is uint8 else bool_)


def _truth(ufunc: Any, input: Any, dim: Any, keepdim: Any) -> Any:
    found = ufunc.reduce(input != 0 if input.dtype.kind != "b" else input, axis=dim, keepdims=keepdim)
    return found.astype(np.uint8) if input.dtype == np.uint8 else found


def _truths(s: Any) -> list[Any]:
    return [
        s((2, 3), kind="boolean"), s((2, 3), kind="boolean", dim=1),
        s((2, 3), kind="integer", dim=(0, 1), keepdim=True), s(()), s((0,)), s((0, 2), dim=0),
        s(s.array([0.0, np.nan])), s((3,), kind="complex"), s((3,), kind="integer", of="uint8", low=0),
    ]  # fmt: skip


@nondifferentiable(spec=_truth_spec, batch="front", samples=_truths)
def all(input: Anything, dim: Axes = None, keepdim: Any = False) -> Any:
    """Return whether every element is nonzero, over all dimensions or along ``dim``; True where there are none."""
    return _truth(np.logical_and, input, dim, keepdim)


@nondifferentiable(spec=_truth_spec, batch="front", samples=_truths)
def any(input: Anything, dim: Axes = None, keepdim: Any = False) -> Any:
    """Return whether some element is nonzero, over all dimensions or along ``dim``; False where there are none."""
    return _truth(np.logical_or, input, dim, keepdim)


@nondifferentiable(
    spec=lambda input, dim=None: Spec(reduced(input.shape, dim, False), int64),
    batch="front",
    samples=lambda s: [
        s((2, 3), kind="integer"),
        s((2, 3), kind="boolean", dim=1),
        s(()),
        s((0, 2), dim=(0, 1)),
        s(s.array([0.0, np.nan, 2.0])),
    ],
)
def count_nonzero(input: Anything, dim: Axes = None) -> Any:
    """Return the number of nonzero elements, over all dimensions or along ``dim``."""
    return np.asarray(np.count_nonzero(input, axis=dim), np.int64) if input.shape else np.int64(bool(input))


# ---- logsumexp


def _log_weights(input: Any, out: Any, dim: Any, keepdim: Any) -> Any:
    """Return the softmax: 0 throughout a row of -inf, and shared by the infs of a row that has some.

    The weights exp(x - out) are divided by their sum, which is 1 but for the rounding of ``out``.
    """
    total = spread(out, input.shape, dim, keepdim)
    infinite = ops.isinf(total)
    weights = ops.exp(ops.where(infinite, 0.0, input - total))
    weights = ops.where(infinite, ops.cast(ops.eq(input, math.inf), weights.dtype), weights)
    sums = ops.sum(weights, dim, True)
    return weights / ops.where(ops.eq(sums, 0), 1.0, sums)


def _logsumexp_vjp(g: Any, input: Any, out: Any, dim: Any, keepdim: Any) -> Any:
    return spread(g, input.shape, dim, keepdim) * _log_weights(input, out, dim, keepdim)


def _logsumexp_jvp(t: Any, input: Any, out: Any, dim: Any, keepdim: Any) -> Any:
    return ops.sum(t * _log_weights(input, out, dim, keepdim), dim, keepdim)


@operator(
    vjp={"input": _logsumexp_vjp},
    batch="front",
    jvp={"input": _logsumexp_jvp},
    promote="float",
    spec=lambda input, dim, keepdim=False: Spec(
        reduced(input.shape, dim, keepdim), input.dtype if input.dtype.category >= FLOAT else settings.default_dtype
    ),
    samples=lambda s: [
        s((2, 3), dim=1), s((2, 3), dim=-2, keepdim=True), s((2, 3, 2), dim=(0, -1)), s((), dim=0), s((2, 1), dim=1),
        s((0, 3), dim=0, grad=False), s((2, 3), dim=1, low=900.0, high=901.0),
        s((2, 3), dim=1, low=-901.0, high=-900.0), s((3,), dim=0, kind="integer"),
        s(s.array([[-np.inf, 1.0], [-np.inf, 1.5]]), dim=1, grad=False), s((2, 3), dim=1, kind="complex"),
        s((3,), dim=0, kind="complex", low=900.0, high=902.0), s(s.array([-np.inf + 0j, -np.inf]), dim=0, grad=False),
    ],
    holomorphic=True,
)  # fmt: skip
def logsumexp(input: Anything, dim: Axes, keepdim: Any = False) -> Any:
    """Return log(Σ exp(x)) along ``dim``, computed without overflow; -inf, with gradient 0, where every x is -inf.

    With m the largest x, it is m + log1p(Σ exp(x - m)), the sum over the others: a small result keeps its digits.
    """
    rows = np.moveaxis(input, dim, range(-len(dim), 0))
    kept = rows.ndim - len(dim)
    rows = rows.reshape(*rows.shape[:kept], math.prod(rows.shape[kept:]))
    return _logsumexp_rows(rows).reshape(reduced(input.shape, dim, keepdim))


def _logsumexp_rows(rows: Any) -> Any:
    if not rows.shape[-1]:
        return np.full(rows.shape[:-1], -np.inf, rows.dtype)
    if rows.dtype.kind == "c":
        peak = rows.real.max(-1, keepdims=True)
        shift = np.where(np.isfinite(peak), peak, 0)
        total = np.log(np.add.reduce(np.exp(rows - shift), axis=-1, keepdims=True)) + shift
        return np.where(np.isinf(peak), peak, total)
    first = rows.argmax(-1, keepdims=True)
    peak = np.take_along_axis(rows, first, -1)
    terms = np.exp(rows - peak)
    np.put_along_axis(terms, first, 0, -1)
    total = peak + np.log1p(np.add.reduce(terms, axis=-1, keepdims=True))
    return np.where(np.isfinite(peak), total, peak)

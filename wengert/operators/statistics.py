"""Statistics: variance and standard deviation, medians, modes and quantiles."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.array.dtype import real_of
from wengert.array.shape import axis_of, reduced
from wengert.core.arguments import Axes, Axis, Inexact, Real
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.operators.along import (
    evenly,
    from_taken,
    index_spec,
    mean_of_reaching,
    nonempty,
    rank_one,
    spread,
    taken,
    to_taken,
)
from wengert.operators.checks import wrong_values
from wengert.operators.order import stable_order

__all__ = [
    "deviation", "median", "median_all", "median_dim", "mode", "nanmedian", "nanmedian_all", "nanmedian_dim",
    "nanquantile", "quantile", "std", "std_mean", "var", "var_mean", "variance",
]  # fmt: skip


# ---- variance


def _freedom(shape: Any, dim: Any, correction: Any) -> Any:
    """Return the number of elements less ``correction``, not below 0."""
    return max(0, math.prod(shape[i] for i in dim) - correction)


def _per_freedom(value: Any, freedom: Any) -> Any:
    """Divide by the degrees of freedom; without any, 0/0 is NaN and the rest infinite."""
    return value / freedom if freedom else value * math.inf


def _variance_spec(input: Spec, dim: Any, correction: Any, keepdim: Any) -> Spec:
    return Spec(reduced(input.shape, dim, keepdim), real_of(input.dtype))


def _deviations(input: Any, dim: Any) -> Any:
    return input - ops.mean(input, dim, True)


def _variance_kernel(input: Any, dim: Any, correction: Any, keepdim: Any) -> Any:
    """Σ |x - mean|² / (n - correction), in two passes."""
    count = math.prod(input.shape[i] for i in dim)
    off = input - np.add.reduce(input, axis=dim, keepdims=True) / input.real.dtype.type(count)
    squares = np.square(off.real) + np.square(off.imag) if off.dtype.kind == "c" else np.square(off)
    total = np.add.reduce(squares, axis=dim, keepdims=keepdim)
    return total / squares.dtype.type(_freedom(input.shape, dim, correction))


def _variance_vjp(g: Any, input: Any, dim: Any, correction: Any, keepdim: Any) -> Any:
    slope = _per_freedom(2 * _deviations(input, dim), _freedom(input.shape, dim, correction))
    return spread(g, input.shape, dim, keepdim) * slope


def _variance_jvp(t: Any, input: Any, dim: Any, correction: Any, keepdim: Any) -> Any:
    product = ops.real(ops.conj(_deviations(input, dim)) * t)
    return _per_freedom(2 * ops.sum(product, dim, keepdim), _freedom(input.shape, dim, correction))


def _variance_samples(s: Any) -> list[Any]:
    return [
        s((2, 3), None, 1, False), s((2, 3), 1, 1, False), s((2, 3), -2, 0, True), s((2, 3, 2), [0, 2], 1, False),
        s((2, 3), 1, 0.5, False), s((), None, 0, False, grad=False), s((1, 3), 0, 0, False, grad=False),
        s((1, 3), 0, 1, False, grad=False), s((3,), None, 1, False, kind="complex"), s((0, 3), 1, 1, False),
        s((2, 3), 0, 5, False, grad=False),
    ]  # fmt: skip


@operator(
    vjp={"input": _variance_vjp},
    jvp={"input": _variance_jvp},
    batch="front",
    spec=_variance_spec,
    home=(),
    samples=_variance_samples,
)
def variance(input: Inexact, dim: Axes, correction: float, keepdim: Any) -> Any:
    """Return Σ |x - mean|² / max(0, n - correction) along ``dim``; NaN where that is 0/0."""
    return _variance_kernel(input, dim, correction, keepdim)


def _unit_deviations(input: Any, out: Any, dim: Any, correction: Any, keepdim: Any) -> Any:
    """Return (x - mean) / ((n - correction) std), 0 where the deviation is 0."""
    scale = spread(out, input.shape, dim, keepdim)
    none = ops.eq(scale, 0)
    unit = _deviations(input, dim) / ops.where(none, 1.0, scale)
    return _per_freedom(ops.where(none, 0.0, unit), _freedom(input.shape, dim, correction))


def _deviation_vjp(g: Any, input: Any, out: Any, dim: Any, correction: Any, keepdim: Any) -> Any:
    return spread(g, input.shape, dim, keepdim) * _unit_deviations(input, out, dim, correction, keepdim)


def _deviation_jvp(t: Any, input: Any, out: Any, dim: Any, correction: Any, keepdim: Any) -> Any:
    unit = _unit_deviations(input, out, dim, correction, keepdim)
    return ops.sum(ops.real(ops.conj(unit) * t), dim, keepdim)


@operator(
    vjp={"input": _deviation_vjp},
    jvp={"input": _deviation_jvp},
    batch="front",
    spec=_variance_spec,
    home=(),
    samples=lambda s: [*_variance_samples(s), s(s.array([[2.0, 2.0], [1.0, 3.0]]), 1, 1, False, grad=False)],
)
def deviation(input: Inexact, dim: Axes, correction: float, keepdim: Any) -> Any:
    """Return the square root of the variance; where it is 0, so is its gradient."""
    return np.sqrt(_variance_kernel(input, dim, correction, keepdim))


def _forms(dim: Any, unbiased: Any, correction: Any, name: str) -> tuple[Any, Any]:
    """Return dim and correction from PyTorch's three forms: (unbiased), (dim, unbiased) and (dim, correction=)."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError(f"{name}(): give unbiased or correction, not both (unbiased=True means correction=1)")
    if unbiased is not None:
        correction = 1 if unbiased else 0
    return dim, 1 if correction is None else correction


def _spread_samples(s: Any) -> list[Any]:
    return [
        s((2, 3)), s((2, 3), False), s((2, 3), 1), s((2, 3), 0, False), s((2, 3), -1, True, True),
        s((2, 3), dim=[0, 1], correction=0), s((2, 3), dim=1, keepdim=True, correction=2), s((2, 3), unbiased=False),
        s((3,), kind="complex"), s((1, 1), correction=0, grad=False),
        s.error(TypeError, "not both", (2,), unbiased=True, correction=1),
        s.error(TypeError, "'correction' must be a real number", (2,), correction="one"),
        s.error(TypeError, "inexact", (3,), kind="integer"),
    ]  # fmt: skip


@composite(method=True, samples=_spread_samples)
def var(
    input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None, out: Any = None
) -> Any:
    """Return the variance Σ |x - mean|² / max(0, n - correction), over all elements or along ``dim``.

    Args:
        dim: an int or several; None for all. unbiased: True (the default) means ``correction=1``, False 0.
        correction: what is taken from the number of elements n. Of one element the variance is NaN.

    Example:
        >>> import wengert as wg
        >>> wg.var(wg.tensor([1.0, 2.0, 3.0]))
        tensor(1.)
    """
    dim, correction = _forms(dim, unbiased, correction, "var")
    return ops.variance(input, dim, correction, keepdim, out=out)


@composite(method=True, samples=_spread_samples)
def std(
    input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None, out: Any = None
) -> Any:
    """Return the standard deviation, the square root of :func:`var`. Where it is 0, its gradient is 0."""
    dim, correction = _forms(dim, unbiased, correction, "std")
    return ops.deviation(input, dim, correction, keepdim, out=out)


@composite(samples=_spread_samples)
def var_mean(
    input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> tuple[Any, Any]:
    """Return (variance, mean); see :func:`var`."""
    dim, correction = _forms(dim, unbiased, correction, "var_mean")
    return ops.variance(input, dim, correction, keepdim), ops.mean(input, dim, keepdim)


@composite(samples=_spread_samples)
def std_mean(
    input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> tuple[Any, Any]:
    """Return (standard deviation, mean); see :func:`std`."""
    dim, correction = _forms(dim, unbiased, correction, "std_mean")
    return ops.deviation(input, dim, correction, keepdim), ops.mean(input, dim, keepdim)


# ---- medians


def _median_places(x: Any, dim: int, ignore_nan: bool) -> Any:
    """Return the places of the lower medians along ``dim``; of a NaN, if there is one that counts."""
    order = stable_order(x, dim, False)
    numbers = np.sum(x == x, axis=dim, keepdims=True)  # only NaN differs from itself; the order has them last
    middle = np.maximum(numbers - 1, 0) // 2
    if not ignore_nan:
        middle = np.where(numbers < x.shape[dim], numbers, middle)
    return np.take_along_axis(order, middle, dim)


def _all_vjp(g: Any, input: Any, out: Any, dim: Any) -> Any:
    return evenly(g, input, out, dim, False)


def _all_jvp(t: Any, input: Any, out: Any, dim: Any) -> Any:
    return mean_of_reaching(t, input, out, dim, False)


def _whole_spec(input: Spec, dim: Any = None) -> Spec:
    nonempty("median", input.shape, dim)
    return Spec(reduced(input.shape, dim, False), input.dtype)


def _median_of_all(input: Any, dim: Any, ignore_nan: bool) -> Any:
    nonempty("median", input.shape, dim)
    rows = np.moveaxis(input, dim, range(-len(dim), 0))
    kept = rows.shape[: rows.ndim - len(dim)]
    rows = rows.reshape(*kept, math.prod(input.shape[d] for d in dim))
    return np.take_along_axis(rows, _median_places(rows, -1, ignore_nan), -1)[..., 0]


def _whole_samples(s: Any) -> list[Any]:
    return [
        s((2, 3)), s((5,)), s(()), s((4,), kind="integer"), s(s.array([1.0, np.nan, 3.0]), grad=False),
        s(s.array([2.0, 1.0, 2.0, 2.0]), grad=False), s((2, 3, 2), dim=(0, -1)), s.error(IndexError, "is empty", (0,)),
    ]  # fmt: skip


@operator(
    vjp={"input": _all_vjp}, jvp={"input": _all_jvp}, batch="front", spec=_whole_spec, home=(), samples=_whole_samples
)
def median_all(input: Real, dim: Axes = None) -> Any:
    """Return the median of all elements together, or of those along ``dim``, the lower of two middle ones.

    Equal elements share the gradient.
    """
    return _median_of_all(input, dim, False)


@operator(
    vjp={"input": _all_vjp}, jvp={"input": _all_jvp}, batch="front", spec=_whole_spec, home=(), samples=_whole_samples
)
def nanmedian_all(input: Real, dim: Axes = None) -> Any:
    """Return the median of the elements that are not NaN; see ``median_all``."""
    return _median_of_all(input, dim, True)


def _along_samples(s: Any) -> list[Any]:
    return [
        s((2, 3), 1), s((2, 4), -1, True), s((2, 3), 0), s((), 0), s((4,), 0, kind="integer"),
        s(s.array([[1.0, np.nan, 3.0, 2.0], [4.0, 3.0, 2.0, 1.0]]), 1, grad=False),
        s.error(IndexError, "is empty", (2, 0), 1),
    ]  # fmt: skip


@operator(
    outputs=("values", "indices"),
    vjp={"input": to_taken},
    jvp={"input": from_taken},
    batch="front",
    spec=index_spec("median"),
    home=(),
    samples=_along_samples,
)
def median_dim(input: Real, dim: Axis, keepdim: Any = False) -> Any:
    """Return (values, indices) of the medians along ``dim``."""
    nonempty("median", input.shape, (dim,))
    return taken(input, _median_places(rank_one(input), dim, False), dim, keepdim)


@operator(
    outputs=("values", "indices"),
    vjp={"input": to_taken},
    jvp={"input": from_taken},
    batch="front",
    spec=index_spec("nanmedian"),
    home=(),
    samples=_along_samples,
)
def nanmedian_dim(input: Real, dim: Axis, keepdim: Any = False) -> Any:
    """Return (values, indices) of the medians along ``dim`` of the elements that are not NaN."""
    nonempty("nanmedian", input.shape, (dim,))
    return taken(input, _median_places(rank_one(input), dim, True), dim, keepdim)


def _median_samples(s: Any) -> list[Any]:
    return [
        s((2, 3)), s((2, 4), 1), s((2, 4), -2, True), s(()), s((5,), kind="integer"),
        s(s.array([1.0, np.nan, 3.0]), grad=False),
        s(s.array([[1.0, np.nan, 3.0, 2.0], [4.0, 3.0, 2.0, 1.0]]), 1, grad=False),
    ]  # fmt: skip


@composite(method=True, samples=_median_samples)
def median(input: Any, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the median, the lower of two middle elements; with ``dim``, (values, indices) along it. NaN wins.

    Without ``dim``, elements equal to the median share the gradient evenly.
    """
    return ops.median_all(input, out=out) if dim is None else ops.median_dim(input, dim, keepdim, out=out)


@composite(method=True, samples=_median_samples)
def nanmedian(input: Any, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Return the median of the elements that are not NaN; with ``dim``, (values, indices) along it."""
    return ops.nanmedian_all(input, out=out) if dim is None else ops.nanmedian_dim(input, dim, keepdim, out=out)


@operator(
    outputs=("values", "indices"),
    vjp={"input": to_taken},
    jvp={"input": from_taken},
    batch="front",
    spec=index_spec("mode"),
    samples=lambda s: [
        s((2, 3)), s((2, 3), 0, True), s(()), s(s.array([[1, 2, 2, 1, 3], [5, 5, 5, 1, 1]])),
        s(s.array([2.0, 1.0, 2.0]), grad=False), s.error(IndexError, "is empty", (2, 0)),
    ],
)  # fmt: skip
def mode(input: Real, dim: Axis = -1, keepdim: Any = False) -> Any:
    """Return (values, indices): the commonest value along ``dim``, the smallest of several, and its last place."""
    nonempty("mode", input.shape, (dim,))
    x = np.moveaxis(rank_one(input), dim, -1)
    order = stable_order(x, -1, False)
    ranked = np.take_along_axis(x, order, -1)
    place = np.arange(x.shape[-1])
    starts = np.concatenate((np.ones_like(ranked[..., :1], np.bool_), ranked[..., 1:] != ranked[..., :-1]), -1)
    length = place - np.maximum.accumulate(np.where(starts, place, 0), axis=-1)
    best = np.take_along_axis(order, length.argmax(-1, keepdims=True), -1)
    return taken(input, np.moveaxis(best, -1, dim), dim, keepdim)


# ---- quantiles


BETWEEN: dict[str, Callable[[Any, Any, Any], Any]] = {
    "linear": lambda low, high, weight: ops.lerp(low, high, weight),
    "lower": lambda low, high, weight: low,
    "higher": lambda low, high, weight: high,
    "midpoint": lambda low, high, weight: ops.lerp(low, high, ops.full_like(weight, 0.5)),
    "nearest": lambda low, high, weight: low,
}


def _quantile(name: str, input: Any, q: Any, dim: Any, keepdim: bool, interpolation: str, ignore_nan: bool) -> Any:
    if interpolation not in BETWEEN:
        raise ValueError(f"{name}(): interpolation must be one of {', '.join(BETWEEN)}, got {interpolation!r}")
    many = isinstance(q, Tensor) and q.ndim == 1
    q = ops.reshape(q, (-1,)) if isinstance(q, Tensor) else ops.full((1,), float(q), dtype=input.dtype)
    if not input.is_floating_point() or q.dtype is not input.dtype:
        raise TypeError(f"{name}(): input and q must be floating tensors of one dtype, got {input.dtype} and {q.dtype}")
    bad = wrong_values(q, lambda rates: (rates < 0) | (rates > 1))
    if bad.size:
        raise ValueError(f"{name}(): q must lie between 0 and 1, got {bad[0]}")
    shape = reduced(input.shape, tuple(range(input.ndim)) if dim is None else (axis_of(dim, input.ndim),), keepdim)
    rows = ops.reshape(input, (-1,)) if dim is None or not input.ndim else ops.movedim(input, dim, -1)
    nonempty(name, rows.shape, (rows.ndim - 1,))
    ranked = ops.sort(rows, -1).values
    found = ops.movedim(_at_ranks(ranked, _ranks(ranked, q, ignore_nan), interpolation), -1, 0)
    found = ops.reshape(found, (q.numel(), *shape))
    return found if many else ops.reshape(found, shape)


def _ranks(ranked: Any, q: Any, ignore_nan: bool) -> Any:
    """Return the fractional place of each quantile in the sorted rows, where NaN comes last."""
    last = ranked.shape[-1] - 1
    if not ignore_nan:
        return ops.where(ops.isnan(ops.narrow(ranked, -1, last, 1)), float(last), q * last)
    numbers = ops.sum(ops.logical_not(ops.isnan(ranked)), -1, True)
    return q * ops.cast(ops.clamp_min(numbers - 1, 0), q.dtype)


def _at_ranks(ranked: Any, ranks: Any, interpolation: str) -> Any:
    if interpolation == "nearest":
        ranks = ops.round(ranks)
    below = ops.floor(ranks.detach())
    low = ops.gather(ranked, -1, below.long())
    high = ops.gather(ranked, -1, ops.ceil(ranks.detach()).long())
    return BETWEEN[interpolation](low, high, ranks - below)


def _quantile_samples(s: Any) -> list[Any]:
    return [
        s((5,), 0.3), s((2, 4), 0.25, 1), s((2, 4), 0.25, -2, True), s((2, 3), 0.5, keepdim=True), s((), 0.5),
        s((2, 4), s.array([0.0, 0.4, 1.0]), 1, grad=False), s((2, 4), s.array([0.1, 0.4]), 1),
        s((2, 4), s.array(0.4), 1), s((4,), 0.4, interpolation="lower"), s((4,), 0.4, interpolation="higher"),
        s((4,), 0.4, interpolation="midpoint"), s((4,), 0.4, interpolation="nearest"),
        s(s.array([[1.0, np.nan, 3.0], [2.0, 1.0, 0.0]]), 0.5, 1, grad=False),
        s(s.array([[np.nan, np.nan]]), 0.5, 1, grad=False), s.error(ValueError, "between 0 and 1", (3,), 1.5),
        s.error(ValueError, "interpolation", (3,), 0.5, interpolation="cubic"),
        s.error(IndexError, "is empty", (0,), 0.5), s.error(TypeError, "one dtype", (3,), 0.5, kind="integer"),
    ]  # fmt: skip


@composite(method=True, samples=_quantile_samples)
def quantile(input: Any, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear") -> Any:
    """Return the ``q``-quantiles of all elements, or along ``dim``. A row with a NaN gives NaN.

    Args:
        q: a number between 0 and 1, or a vector of them, which then is the first dimension of the result.
        interpolation: ``"linear"``, ``"lower"``, ``"higher"``, ``"midpoint"`` or ``"nearest"``: what lies between two
            elements.
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


@composite(method=True, samples=_quantile_samples)
def nanquantile(input: Any, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear") -> Any:
    """Return the ``q``-quantiles of the elements that are not NaN; see :func:`quantile`."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)

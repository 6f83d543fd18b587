"""Scans: running sums, products and extremes along one dimension, and differences and integrals along it.

The derivatives of products and of log-sum-exp are first-order linear recurrences, s_k = x_k + a_k s_{k-1}; written so,
they need no division, so zeros and -inf are no special cases.
"""

from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT, DType, dtype_of, float32, int64
from wengert.core.arguments import Anything, Axis, DTypeOrNone, Inexact, Real
from wengert.core.families import linear, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.operators.along import rank_one
from wengert.operators.elementary import log_sum_of_two

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "linear_recurrence", "logcumsumexp"]


def _scan_dtype(given: DType, dtype: DType | None) -> DType:
    if dtype is not None:
        return dtype
    return int64 if given.category < FLOAT else given


def _scan_spec(input: Spec, dim: Any, *, dtype: Any = None) -> Spec:
    return Spec(input.shape, _scan_dtype(input.dtype, dtype))


def _accumulated(ufunc: Any, input: Any, dim: int, dtype: DType | None) -> Any:
    """Accumulate in the result's dtype, or in float32 if that is a half."""
    found = _scan_dtype(dtype_of(input.dtype), dtype)
    wide = (float32 if found.is_half else found).numpy
    out = ufunc.accumulate(rank_one(input), axis=dim, dtype=wide)
    return out.reshape(input.shape).astype(found.numpy, copy=False)


def _scannable(shape: Any, dim: int) -> bool:
    """Return whether there is more than one element to scan along ``dim``."""
    return bool(shape) and shape[dim] > 1


def _before(x: Any, dim: int, first: float) -> Any:
    """Return the element before each one along ``dim``; ``first`` before the first."""
    if not x.shape or not x.shape[dim]:
        return ops.full_like(x, first)
    start = ops.full_like(ops.narrow(x, dim, 0, 1), first)
    return ops.cat((start, ops.narrow(x, dim, 0, x.shape[dim] - 1)), dim)


def _after(x: Any, dim: int) -> Any:
    """Return the element after each one along ``dim``; 0 after the last."""
    if not x.shape or not x.shape[dim]:
        return ops.zeros_like(x)
    end = ops.zeros_like(ops.narrow(x, dim, 0, 1))
    return ops.cat((ops.narrow(x, dim, 1, x.shape[dim] - 1), end), dim)


# ---- sums and products


def _cumsum_transpose(g: Any, dim: Any) -> Any:
    return ops.flip(ops.cumsum(ops.flip(g, (dim,)), dim), (dim,)) if _scannable(g.shape, dim) else g


@linear(
    transpose=_cumsum_transpose,
    batch="front",
    spec=_scan_spec,
    widen=False,
    inplace=True,
    samples=lambda s: [
        s((2, 3), 1), s((2, 3), -2), s((), 0), s((0, 3), 1), s((3, 0), 1), s((2, 1), 1), s((3,), 0, kind="complex"),
        s((3,), 0, kind="integer"), s((3,), 0, kind="boolean"), s((3,), 0, kind="integer", dtype="float64"),
        s((3,), 0, dtype="float32", grad=False), s.error(IndexError, "out of range", (2, 3), 2),
    ],
)  # fmt: skip
def cumsum(input: Anything, dim: Axis, *, dtype: DTypeOrNone = None) -> Any:
    """Return the running sum along ``dim``; that of bools and integers is int64."""
    return _accumulated(np.add, input, dim, dtype)


def _recurrence_vjp(h: Any, needs: Any, decay: Any, out: Any, dim: Any, reverse: Any) -> Any:
    beyond, previous = (
        (_before(decay, dim, 0.0), _after(out, dim)) if reverse else (_after(decay, dim), _before(out, dim, 0.0))
    )
    back = ops.linear_recurrence(ops.conj(beyond), h, dim, not reverse)
    return back * ops.conj(previous) if needs[0] else None, back


def _recurrence_jvp(tangents: Any, decay: Any, out: Any, dim: Any, reverse: Any) -> Any:
    pushed, slope = tangents["input"], tangents["decay"]
    if slope is not None:
        term = slope * (_after(out, dim) if reverse else _before(out, dim, 0.0))
        pushed = term if pushed is None else pushed + term
    return ops.linear_recurrence(decay, pushed, dim, reverse)


@operator(
    vjp=_recurrence_vjp,
    jvp=_recurrence_jvp,
    promote="same",
    batch="front",
    spec=lambda decay, input, dim, reverse=False: input,
    home=(),
    samples=lambda s: [
        s((2, 3), (2, 3), 1), s((2, 3), (2, 3), -2, True), s((5,), (5,), 0), s((5,), (5,), 0, True), s((), (), 0),
        s((0, 3), (0, 3), 0), s((2, 1), (2, 1), 1), s((3,), (3,), 0, kind="complex"),
        s((3,), (3,), 0, True, kind="complex"), s(s.array([0.0, 2.0, 0.0, 3.0]), (4,), 0),
    ],
)  # fmt: skip
def linear_recurrence(decay: Inexact, input: Inexact, dim: Axis, reverse: Any = False) -> Any:
    """Return s along ``dim``, where s_k = input_k + decay_k · s_{k-1} (with ``reverse``, s_{k+1}) and s is 0 outside.

    The pairs (a, b) of maps s ↦ a s + b are composed in log2(n) doubling passes over the whole tensor.
    """
    step = slice(None, None, -1) if reverse else slice(None)
    a = np.moveaxis(rank_one(decay), dim, 0)[step].copy()
    b = np.moveaxis(rank_one(input), dim, 0)[step].copy()
    span = 1
    while span < len(b):
        b[span:] += a[span:] * b[:-span]
        a[span:] = a[span:] * a[:-span]
        span *= 2
    return np.moveaxis(b[step], 0, dim).reshape(input.shape)


def _cumprod_vjp(g: Any, input: Any, out: Any, dim: Any) -> Any:
    later = ops.linear_recurrence(ops.conj(_after(input, dim)), g, dim, True)
    return later * ops.conj(_before(out, dim, 1.0))


@operator(
    vjp={"input": _cumprod_vjp},
    jvp={"input": lambda t, input, out, dim: ops.linear_recurrence(input, t * _before(out, dim, 1.0), dim)},
    batch="front",
    spec=_scan_spec,
    widen=False,
    inplace=True,
    samples=lambda s: [
        s((2, 3), 1), s((2, 3), -2), s((), 0), s((0, 3), 1), s((3, 0), 1), s((2, 1), 1),
        s(s.array([[2.0, 0, 3], [0, 0, 4]]), 1), s((3,), 0, kind="complex"), s((3,), 0, kind="integer"),
        s((3,), 0, kind="integer", dtype="float64"), s((3,), 0, dtype="float32", grad=False),
    ],
)  # fmt: skip
def cumprod(input: Anything, dim: Axis, *, dtype: DTypeOrNone = None) -> Any:
    """Return the running product along ``dim``; that of bools and integers is int64.

    With P the running product, ∂L/∂x_k = P_{k-1} s_k, where s_k = g_k + x_{k+1} s_{k+1}.
    """
    return _accumulated(np.multiply, input, dim, dtype)


# ---- log-sum-exp


def _shares(input: Any, out: Any, dim: Any) -> tuple[Any, Any]:
    """Return what share of exp(out_k) came from out_{k-1} and from x_k; the latter is 0 while nothing but -inf came."""
    before = _before(out, dim, -np.inf)
    ahead = ops.where(ops.eq(before, input), 0.0, before - input)
    return ops.sigmoid(ahead), ops.where(ops.eq(out, -np.inf), 0.0, ops.sigmoid(-ahead))


def _logcumsumexp_vjp(g: Any, input: Any, out: Any, dim: Any) -> Any:
    old, new = _shares(input, out, dim)
    return ops.linear_recurrence(_after(old, dim), g, dim, True) * new


def _logcumsumexp_jvp(t: Any, input: Any, out: Any, dim: Any) -> Any:
    old, new = _shares(input, out, dim)
    return ops.linear_recurrence(old, t * new, dim)


@operator(
    vjp={"input": _logcumsumexp_vjp},
    jvp={"input": _logcumsumexp_jvp},
    batch="front",
    spec=lambda input, dim: input,
    samples=lambda s: [
        s((2, 3), 1), s((2, 3), -2), s((), 0), s((0, 3), 0), s((2, 1), 1), s((4,), 0, low=900.0, high=902.0),
        s((4,), 0, low=-902.0, high=-900.0), s((2, 3), 1, kind="complex"), s((), 0, kind="complex"),
        s((4,), 0, kind="complex", low=-902.0, high=-900.0),
    ],
    holomorphic=True,
)  # fmt: skip
def logcumsumexp(input: Inexact, dim: Axis) -> Any:
    """Return log(Σ_{j≤k} exp(x_j)) along ``dim``, computed without overflow.

    ∂L/∂x_k = exp(x_k - out_k) s_k, where s_k = g_k + exp(out_k - out_{k+1}) s_{k+1}; the factors are sigmoids of
    out_{k-1} - x_k, which keeps them accurate at any offset.
    """
    x = rank_one(input)
    if x.dtype.kind != "c":
        return np.logaddexp.accumulate(x, axis=dim).reshape(input.shape)
    out = np.array(x, order="C")
    lines = np.moveaxis(out, dim, 0)
    for k in range(1, len(lines)):  # NumPy's ufunc has no complex loop to accumulate with
        lines[k] = log_sum_of_two(lines[k], lines[k - 1])
    return out.reshape(input.shape)


# ---- extremes


def _to_extremes(g: Any, indices: Any, dim: Any) -> Any:
    if not g[0].shape:
        return g[0]
    return ops.scatter_add(ops.zeros_like(g[0]), dim, indices, g[0])


def _from_extremes(t: Any, indices: Any, dim: Any) -> Any:
    return (ops.gather(t, dim, indices) if t.shape else t), None


def _running(ufunc: Any, input: Any, dim: int) -> tuple[Any, Any]:
    """Return the running extreme and the index of the latest element that reached it (NaN counts as reaching)."""
    x = rank_one(input)
    values = ufunc.accumulate(x, axis=dim)
    places = np.arange(x.shape[dim]).reshape([-1 if i == dim else 1 for i in range(x.ndim)])
    reached = (x == values) | (x != x)  # only NaN differs from itself
    indices = np.maximum.accumulate(np.where(reached, places, 0), axis=dim)
    return values.reshape(input.shape), indices.reshape(input.shape)


def _extreme_samples(s: Any) -> list[Any]:
    return [
        s((2, 3), 1), s((2, 3), -2), s((), 0), s((0, 3), 0), s((3, 0), 1), s((2, 1), 1), s((4,), 0, kind="integer"),
        s(s.array([1.0, 3.0, 3.0, 2.0, 3.0]), 0, grad=False),
        s(s.array([1.0, np.nan, 3.0, np.nan, 2.0]), 0, grad=False),
    ]  # fmt: skip


@operator(
    outputs=("values", "indices"),
    vjp={"input": _to_extremes},
    jvp={"input": _from_extremes},
    batch="front",
    spec=lambda input, dim: (input, Spec(input.shape, int64)),
    samples=_extreme_samples,
)
def cummax(input: Real, dim: Axis) -> Any:
    """Return (values, indices): the running maximum along ``dim`` and where it was last reached."""
    return _running(np.maximum, input, dim)


@operator(
    outputs=("values", "indices"),
    vjp={"input": _to_extremes},
    jvp={"input": _from_extremes},
    batch="front",
    spec=lambda input, dim: (input, Spec(input.shape, int64)),
    samples=_extreme_samples,
)
def cummin(input: Real, dim: Axis) -> Any:
    """Return (values, indices): the running minimum along ``dim`` and where it was last reached."""
    return _running(np.minimum, input, dim)

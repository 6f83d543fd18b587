"""Softmax and its logarithm along one dimension, computed without overflow: exp(x - max) / Σ exp(x - max).

The kernels take a block of rows at a time, so that their passes run in cache. A row of -inf alone gives NaN, as 0/0
does; single entries of -inf get weight 0 and gradient 0.
"""

from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT, DType, dtype_of, float32
from wengert.core.arguments import Anything, Axis, DTypeOrNone, Floating
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import DTypeError
from wengert.operators.along import blocks, places, rows_along

__all__ = ["log_softmax", "log_softmax_backward", "softmax", "softmax_backward", "softmin"]


def _result_dtype(name: str, given: DType, dtype: DType | None) -> DType:
    found = given if dtype is None else dtype
    if found.category != FLOAT:
        raise DTypeError(
            f"{name}(): the result of {found} would not be {found}; pass dtype=, for instance wengert.float32"
        )
    return found


def _softmax_spec(name: str) -> Any:
    return lambda input, dim, dtype=None: Spec(input.shape, _result_dtype(name, input.dtype, dtype))


def _along(name: str, kernel: Any, input: Any, dim: int, dtype: DType | None) -> Any:
    """Run a kernel of (before, size, after) arrays in at least float32 and return its result in the input's shape."""
    found = _result_dtype(name, dtype_of(input.dtype), dtype)
    wide = (float32 if found.is_half else found).numpy
    input = input.real if input.dtype.kind == "c" else input
    rows = rows_along(input.astype(wide, copy=False), dim)
    out = np.empty_like(rows)
    if rows.size:
        for block in blocks(rows.shape[0], rows[0].size):
            kernel(rows[block], out[block])
    return out.reshape(input.shape).astype(found.numpy, copy=False)


def _softmax_block(x: Any, out: Any) -> None:
    np.subtract(x, np.maximum.reduce(x, axis=1, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, np.add.reduce(out, axis=1, keepdims=True), out=out)


def _log_softmax_block(x: Any, out: Any) -> None:
    """x - m - log1p(Σ exp(x - m)), the sum without the largest element: results near 0 keep their digits."""
    first = places(x.argmax(axis=1)[:, None])
    np.subtract(x, x[first], out=out)
    terms = np.exp(out)
    terms[first] = 0
    np.subtract(out, np.log1p(np.add.reduce(terms, axis=1, keepdims=True)), out=out)


def _as(t: Any, out: Any) -> Any:
    """Return a tangent in the result's dtype, which may be asked for."""
    return t if t.dtype is out.dtype else ops.cast(t, out.dtype)


def _pairs(s: Any) -> list[Any]:
    return [s((2, 3), (2, 3), 1), s((2, 3), (2, 3), -2), s((), (), 0), s((0, 3), (0, 3), 1), s((2, 3, 2), (2, 3, 2), 1)]


def _weighted_excess(g: Any, result: Any, dim: Any) -> Any:
    return g - ops.sum(g * result, dim, keepdim=True)


@operator(
    vjp={
        "g": lambda h, result, dim: ops.softmax_backward(h, result, dim),
        "result": lambda h, g, result, dim: (
            h * _weighted_excess(g, result, dim) - g * ops.sum(h * result, dim, keepdim=True)
        ),
    },
    jvp={
        "g": lambda t, result, dim: ops.softmax_backward(t, result, dim),
        "result": lambda t, g, result, dim: (
            t * _weighted_excess(g, result, dim) - result * ops.sum(g * t, dim, keepdim=True)
        ),
    },
    promote="same",
    batch="front",
    spec=lambda g, result, dim: g,
    home=(),
    samples=_pairs,
)
def softmax_backward(g: Floating, result: Floating, dim: Axis) -> Any:
    """Return result · (g - Σ g · result): the vjp, and the jvp, of softmax at the result ``result``."""
    cotangent, y = rows_along(g, dim), rows_along(result, dim)
    found = np.empty_like(cotangent)
    for block in blocks(y.shape[0], y.shape[1] * y.shape[2]):
        np.multiply(cotangent[block], y[block], out=found[block])
        total = np.add.reduce(found[block], axis=1, keepdims=True)
        found[block] -= y[block] * total
    return found.reshape(g.shape)


@operator(
    vjp={
        "g": lambda h, result, dim: h - ops.sum(h * ops.exp(result), dim, keepdim=True),
        "result": lambda h, g, result, dim: -h * ops.exp(result) * ops.sum(g, dim, keepdim=True),
    },
    jvp={
        "g": lambda t, result, dim: ops.log_softmax_backward(t, result, dim),
        "result": lambda t, g, result, dim: -t * ops.exp(result) * ops.sum(g, dim, keepdim=True),
    },
    promote="same",
    batch="front",
    spec=lambda g, result, dim: g,
    home=(),
    samples=_pairs,
)
def log_softmax_backward(g: Floating, result: Floating, dim: Axis) -> Any:
    """Return g - exp(result) · Σ g: the vjp of log_softmax at the result ``result``."""
    cotangent, y = rows_along(g, dim), rows_along(result, dim)
    found = np.empty_like(cotangent)
    for block in blocks(y.shape[0], y.shape[1] * y.shape[2]):
        np.exp(y[block], out=found[block])
        found[block] *= -np.add.reduce(cotangent[block], axis=1, keepdims=True)
        found[block] += cotangent[block]
    return found.reshape(g.shape)


def _samples(s: Any) -> list[Any]:
    return [
        s((2, 3), dim=1), s((2, 3), dim=-2), s((2, 3, 2), dim=1), s((), dim=0), s((2, 1), dim=1), s((0, 3), dim=1),
        s((3, 0), dim=1), s((2, 3), dim=1, low=9999.0, high=10001.0), s((2, 3), dim=0, low=-1e4, high=1e4),
        s((3,), dim=0, kind="integer", dtype="float64"), s((2, 3), dim=1, dtype="float32", grad=False),
        s((3,), dim=0, of="float16", dtype="float32", grad=False), s((2, 3), dim=1, kind="complex", dtype="float64"),
        s(s.array([[-np.inf, 0.5, 1.0], [-np.inf, -np.inf, 2.0]]), dim=1, grad=False),
        s(s.array([-np.inf, -np.inf]), dim=0, grad=False),
        s.error(TypeError, "pass dtype=", (3,), dim=0, kind="integer"),
        s.error(IndexError, "out of range", (2, 3), dim=2),
    ]  # fmt: skip


@operator(
    vjp={"input": lambda g, out, dim: ops.softmax_backward(g, out, dim)},
    jvp={"input": lambda t, out, dim: ops.softmax_backward(_as(t, out), out, dim)},
    batch="front",
    spec=_softmax_spec("softmax"),
    widen=False,
    home=("", "nn.functional"),
    samples=_samples,
)
def softmax(input: Anything, dim: Axis, dtype: DTypeOrNone = None) -> Any:
    """Return exp(x) / Σ exp(x) along ``dim``, computed without overflow.

    Args:
        input: of any shape. dim: the dimension that sums to one. dtype: compute in it, and give the result in it
            (of complex numbers their real parts count).

    Example:
        >>> import wengert as wg
        >>> wg.softmax(wg.tensor([1000.0, 1000.0]), dim=0)
        tensor([0.5000, 0.5000])
    """
    return _along("softmax", _softmax_block, input, dim, dtype)


def _log_softmax_jvp(t: Any, out: Any, dim: Any) -> Any:
    t = _as(t, out)
    return t - ops.sum(t * ops.exp(out), dim, keepdim=True)


@operator(
    vjp={"input": lambda g, out, dim: ops.log_softmax_backward(g, out, dim)},
    jvp={"input": _log_softmax_jvp},
    batch="front",
    spec=_softmax_spec("log_softmax"),
    widen=False,
    home=("", "nn.functional"),
    samples=_samples,
)
def log_softmax(input: Anything, dim: Axis, dtype: DTypeOrNone = None) -> Any:
    """Return x - log(Σ exp(x)) along ``dim``, computed without overflow, underflow or lost digits.

    Example:
        >>> import wengert as wg
        >>> wg.log_softmax(wg.tensor([0.0, -1000.0]), dim=0)
        tensor([    0., -1000.])
    """
    return _along("log_softmax", _log_softmax_block, input, dim, dtype)


@composite(home="nn.functional", samples=_samples)
def softmin(input: Any, dim: int, dtype: Any = None) -> Any:
    """Return the softmax of ``-input`` along ``dim``."""
    return ops.softmax(-input, dim, dtype)

"""Element-wise choice: ``where``, the larger and the smaller, bounds."""

from typing import Any

import numpy as np

from wengert.array.dtype import DType, result_dtype
from wengert.core.arguments import Anything, Boolean, Real, RealOrScalar
from wengert.core.families import composite, elementwise
from wengert.core.methods import attach
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, from_array
from wengert.errors import DTypeError
from wengert.settings import settings

__all__ = ["choose", "clamp", "clamp_max", "clamp_min", "fmax", "fmin", "maximum", "minimum", "where"]

F32, F64, BOOL = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.bool_)


@elementwise(
    derivative={
        "input": lambda g, condition: ops.where(condition, g, 0),
        "other": lambda g, condition: ops.where(condition, 0, g),
    },
    holomorphic=False,
    promote=None,
    widen=False,
    home=(),
    inplace=False,
    samples=lambda s: [
        s(s.tensor((2, 3), kind="boolean"), (2, 3), (3,)), s(s.tensor((), kind="boolean"), (2,), ()),
        s(s.tensor((2,), kind="boolean"), (2,), (2,), kind="complex"),
        s(s.tensor((0, 2), kind="boolean"), (2,), (1, 2)),
    ],
)  # fmt: skip
def choose(condition: Boolean, input: Anything, other: Anything) -> Any:
    """Return ``input`` where the condition holds and ``other`` elsewhere; the two have one dtype."""
    return np.where(condition, input, other)


def _agreed(input: Any, other: Any) -> tuple[Any, Any]:
    """Return two tensors, arrays or numbers as tensors of their common dtype."""
    pair = [from_array(x) if isinstance(x, np.ndarray) else x for x in (input, other)]
    dims = [x.dtype for x in pair if isinstance(x, Tensor) and x.ndim]
    zeros = [x.dtype for x in pair if isinstance(x, Tensor) and not x.ndim]
    dtype = result_dtype(dims, zeros, [x for x in pair if not isinstance(x, Tensor)], settings.default_dtype)
    return _lifted(pair[0], dtype), _lifted(pair[1], dtype)


def _lifted(value: Any, dtype: DType) -> Any:
    if not isinstance(value, Tensor):
        return from_array(np.asarray(value, dtype.numpy))
    return value if value.dtype is dtype else ops.cast(value, dtype)


@composite(
    samples=lambda s: [
        s(s.tensor((2, 3), kind="boolean"), (2, 3), (3,)), s(s.tensor((2, 3), kind="boolean"), (3,), 0),
        s(s.tensor((2,), kind="boolean"), 1, 2.5), s(s.tensor((), kind="boolean"), (2,), 1j),
        s(s.array([True, False]), s.array([1, 2]), s.array(2.5)),
    ],
)  # fmt: skip
def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """Return ``input`` where the condition holds and ``other`` elsewhere, broadcasting the three.

    Args:
        condition: a bool tensor. input, other: tensors or numbers, cast to their common dtype. Without both, the
            result is the tuple of indices where the condition holds: ``nonzero(condition, as_tuple=True)``.

    The gradient goes to the chosen one alone; nan or inf in the other does not leak.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor([-1.0, 2.0])
        >>> wg.where(x > 0, x, 0.0)
        tensor([0., 2.])
    """
    if input is None and other is None:
        return ops.nonzero(condition, as_tuple=True)
    if input is None or other is None:
        raise TypeError("where(): give both input and other, or neither")
    state = thread.state
    if not state.grad and not state.slow:
        chosen = _chosen(state, condition, input, other)
        if chosen is not None:
            return chosen
    if not (isinstance(input, Tensor) and isinstance(other, Tensor) and input.dtype is other.dtype):
        input, other = _agreed(input, other)
    return ops.choose(condition, input, other)


def _chosen(state: Any, condition: Any, input: Any, other: Any) -> Any:
    """Return ``where`` of float tensors of one dtype, or one and a number, with nothing recorded; None for other calls.

    Every backward rule with a kink makes such a call.
    """
    a = input._payload if isinstance(input, Tensor) else input
    b = other._payload if isinstance(other, Tensor) else other
    dtype = getattr(b if a is input else a, "dtype", None)
    if (dtype is not F32 and dtype is not F64) or not isinstance(condition, Tensor):
        return None
    for operand in (a, b):
        if type(operand) not in (int, float) and getattr(operand, "dtype", None) is not dtype:
            return None
    if condition._payload.dtype is not BOOL:
        return None
    try:
        return from_array(np.asarray(state.run(np.where, condition._payload, a, b)))
    except ValueError:
        return None  # the general way explains shapes that do not broadcast


def _where_method(self: Any, condition: Any, other: Any) -> Any:
    """Return this tensor where the condition holds and ``other`` elsewhere; see :func:`wengert.where`."""
    return ops.where(condition, self, other)


_where_method.__name__ = _where_method.__qualname__ = "where"
attach("where", _where_method)


# ---- the larger and the smaller


def _pairs(s: Any) -> list[Any]:
    """The samples of operators that choose between two tensors."""
    nan = float("nan")
    return [
        s((2, 3), (2, 3)), s((2, 1), (3,)), s((), (2,)), s((3,), (3,), kind="integer"), s((2,), (2,), kind="boolean"),
        s((0,), (1,)), s(s.array([1.0, nan, nan, 2.0]), s.array([nan, 1.0, nan, 3.0]), grad=False),
        s(s.array([1.0, -0.5]), s.array([1.0, -0.5]), grad=False),
        s((2, 3), 0.5), s(0, (2,)), s.error(TypeError, "real tensor", (2,), (2,), kind="complex"),
        s.error(TypeError, "order", (2,), 1j),
    ]  # fmt: skip


def _ordered(name: str, ufunc: Any, *arrays: Any) -> Any:
    """Call a ufunc that orders its arguments, which complex numbers are not."""
    if arrays[0].dtype.kind == "c":
        raise DTypeError(f"{name}(): complex numbers have no order; compare their .real, .imag or .abs()")
    return ufunc(*arrays)


def _half(chosen: Any, tied: Any, g: Any) -> Any:
    """Return g where an argument was chosen, g / 2 at ties, 0 elsewhere."""
    return ops.where(tied, g * 0.5, ops.where(chosen, g, 0))


def _wins(before: Any, other: Any) -> Any:
    """Return where the first of two is chosen: it comes before the other, or the other is nan (unequal to itself)."""
    return ops.logical_or(before, other != other)


@elementwise(
    np.maximum,
    derivative={
        "input": lambda g, input, other: _half(ops.logical_not(input < other), input == other, g),
        "other": lambda g, input, other: _half(ops.logical_not(input > other), input == other, g),
    },
    inplace=False,
    samples=_pairs,
)
def maximum(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return the larger of the two, element by element; nan if one is nan. At ties each gets half the gradient."""
    return _ordered("maximum", np.maximum, input, other)


@elementwise(
    np.minimum,
    derivative={
        "input": lambda g, input, other: _half(ops.logical_not(input > other), input == other, g),
        "other": lambda g, input, other: _half(ops.logical_not(input < other), input == other, g),
    },
    inplace=False,
    samples=_pairs,
)
def minimum(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return the smaller of the two, element by element; nan if one is nan. At ties each gets half the gradient."""
    return _ordered("minimum", np.minimum, input, other)


@elementwise(
    np.fmax,
    derivative={
        "input": lambda g, input, other: ops.where(_wins(input >= other, other), g, 0),
        "other": lambda g, input, other: ops.where(_wins(input >= other, other), 0, g),
    },
    inplace=False,
    samples=_pairs,
)
def fmax(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return the larger of the two, if one is nan the other. At ties ``input`` gets the gradient."""
    return _ordered("fmax", np.fmax, input, other)


@elementwise(
    np.fmin,
    derivative={
        "input": lambda g, input, other: ops.where(_wins(input <= other, other), g, 0),
        "other": lambda g, input, other: ops.where(_wins(input <= other, other), 0, g),
    },
    inplace=False,
    samples=_pairs,
)
def fmin(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return the smaller of the two, if one is nan the other. At ties ``input`` gets the gradient."""
    return _ordered("fmin", np.fmin, input, other)


# ---- bounds


def _inside(g: Any, input: Any, min: Any, max: Any) -> Any:
    """Return g where the input lies within its bounds (they included), 0 elsewhere."""
    if min is None:
        return ops.where(input <= max, g, 0)
    if max is None:
        return ops.where(input >= min, g, 0)
    return ops.where(ops.logical_and(input >= min, input <= max), g, 0)


def _at_min(g: Any, input: Any, min: Any, max: Any) -> Any:
    """Return g where the lower bound was taken."""
    return ops.where(input < min if max is None else ops.logical_and(input < min, min < max), g, 0)


def _at_max(g: Any, input: Any, min: Any, max: Any) -> Any:
    """Return g where the upper bound was taken."""
    return ops.where(input > max if min is None else ops.logical_or(input > max, max < min), g, 0)


@elementwise(
    derivative={"input": _inside, "min": _at_min, "max": _at_max},
    aliases=("clip",),
    samples=lambda s: [
        s((2, 3), -0.5, 0.7), s((2, 3), min=0.1), s((2, 3), max=0.1), s((2, 3), (3,), (2, 1)), s((2, 3), (3,), None),
        s((2,), None, ()), s((3,), 0, 1, kind="integer"), s((3,), 0.5, kind="integer"), s((0,), 0, 1),
        s((2, 3), 0.5, -0.5), s(s.array([-1.0, 0.0, 1.0, float("nan")]), -1.0, 1.0, grad=False),
        s.error(ValueError, "at least one", (2,)), s.error(TypeError, "real tensor", (2,), 0, 1, kind="complex"),
    ],
)  # fmt: skip
def clamp(input: Real, min: RealOrScalar = None, max: RealOrScalar = None) -> Any:
    """Return the elements brought into ``[min, max]``; ``max`` where ``min > max``; nan stays nan.

    The gradient passes at the bounds themselves, and goes to a bound where it was taken.

    Args:
        min, max: tensors, numbers or None (no bound).
    """
    if min is None and max is None:
        raise ValueError("clamp(): give at least one of min and max")
    if min is None:
        return _ordered("clamp", np.minimum, input, max)
    return _ordered("clamp", np.maximum, input, min) if max is None else _ordered("clamp", np.clip, input, min, max)


@composite(
    method=True,
    inplace=True,
    samples=lambda s: [s((2, 3), 0.2), s((2, 3), (3,)), s((2,), 1, kind="integer")],
)
def clamp_min(input: Any, min: Any) -> Any:
    """Return the elements, those below ``min`` replaced by it."""
    return ops.clamp(input, min)


@composite(
    method=True,
    inplace=True,
    samples=lambda s: [s((2, 3), 0.2), s((2, 3), (3,)), s((2,), 1, kind="integer")],
)
def clamp_max(input: Any, max: Any) -> Any:
    """Return the elements, those above ``max`` replaced by it."""
    return ops.clamp(input, None, max)

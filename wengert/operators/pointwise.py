"""Element-wise arithmetic: a NumPy ufunc and its partial derivatives.

Integers divide by zero with a ``ZeroDivisionError`` and take no negative powers; floats follow IEEE 754.
"""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT, complex128, float64
from wengert.core.arguments import (
    Anything,
    AnythingOrScalar,
    Inexact,
    InexactOrScalar,
    Number,
    NumberOrScalar,
    RealOrScalar,
)  # fmt: skip
from wengert.core.families import composite, elementwise
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, from_array
from wengert.errors import DTypeError

__all__ = [
    "abs", "add", "addcdiv", "addcmul", "div", "float_power", "floor_divide", "fmod", "lerp", "mul", "neg", "positive",
    "pow", "reciprocal", "remainder", "rsub", "sgn", "square", "sub", "true_divide", "trunc_divide",
]  # fmt: skip


def _scaled(name: str, array: Any, factor: Any, what: str = "alpha") -> Any:
    """Return ``array * factor`` in the array's dtype, which must be able to hold the factor."""
    fits = "fc" if isinstance(factor, float) else "c" if isinstance(factor, complex) else "biufc"
    if array.dtype.kind not in fits:
        raise DTypeError(f"{name}(): {what}={factor!r} does not fit {array.dtype} tensors; use a number of that kind")
    return array if factor == 1 else np.multiply(array, array.dtype.type(factor))


@elementwise(
    np.add,
    derivative={"input": lambda g: g, "other": lambda g, alpha: g if alpha == 1 else g * alpha},
    samples=lambda s: [
        s((2, 3), (2, 3)), s((2, 1), (3,), alpha=2.5), s((), (2,)), s((2, 3), 2.0), s(1.5, (2, 3)), s((0, 3), (3,)),
        s((2, 2), (2, 1), kind="complex", alpha=1 + 2j), s((3,), (3,), kind="integer", alpha=2),
        s((3,), 1, kind="boolean"), s((2,), (2,), kind="boolean"),
        s.error(TypeError, "alpha", (2,), (2,), kind="integer", alpha=0.5),
        s.error(ValueError, "broadcast", (2,), (3,)),
    ],
)  # fmt: skip
def add(input: AnythingOrScalar, other: AnythingOrScalar, *, alpha: Any = 1) -> Any:
    """Return ``input + alpha * other``, element by element, broadcasting the two."""
    return np.add(input, _scaled("add", other, alpha))


@elementwise(
    np.subtract,
    derivative={"input": lambda g: g, "other": lambda g, alpha: -g if alpha == 1 else g * -alpha},
    aliases=("subtract",),
    samples=lambda s: [
        s((2, 3), (2, 3)), s((2, 1), (3,), alpha=2.5), s((2, 3), 2.0), s(1, (2,)), s((3,), (), kind="integer", alpha=2),
        s((2,), (2,), kind="complex", alpha=1j), s.error(TypeError, "number tensor", (2,), (2,), kind="boolean"),
    ],
)  # fmt: skip
def sub(input: NumberOrScalar, other: NumberOrScalar, *, alpha: Any = 1) -> Any:
    """Return ``input - alpha * other``, element by element, broadcasting the two."""
    return np.subtract(input, _scaled("sub", other, alpha))


@composite(
    method=True,
    samples=lambda s: [s((2, 3), (3,)), s((2,), 3.0), s((2,), (2,), alpha=2), s((2,), 1, kind="integer")],
)
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Return ``other - alpha * input``, element by element."""
    return ops.sub(other, input, alpha=alpha)


@elementwise(
    np.multiply,
    derivative={"input": lambda g, other: g * other, "other": lambda g, input: g * input},
    aliases=("multiply",),
    samples=lambda s: [
        s((2, 3), (2, 3)), s((2, 1), (3,)), s((2, 3), -0.5), s(2, (2,)), s((2,), (2,), kind="complex"), s((0,), (1,)),
        s((3,), 2.5, kind="integer"), s((3,), (3,), kind="boolean"),
        s(s.tensor((2,)), s.tensor((3, 2), kind="complex")),
    ],
)  # fmt: skip
def mul(input: AnythingOrScalar, other: AnythingOrScalar) -> Any:
    """Return ``input * other``, element by element, broadcasting the two."""


@elementwise(
    np.negative,
    derivative={"input": lambda g: -g},
    aliases=("negative",),
    samples=lambda s: [
        s((2, 3)), s(()), s((0,)), s((2,), kind="complex"), s((3,), kind="integer"),
        s.error(TypeError, "number tensor", (2,), kind="boolean"),
    ],
)  # fmt: skip
def neg(input: Number) -> Any:
    """Return ``-input``, element by element."""


@composite(
    method=True,
    samples=lambda s: [
        s((2, 3)), s((2,), kind="integer"), s.error(TypeError, "bool", (2,), kind="boolean"),
    ],
)  # fmt: skip
def positive(input: Any) -> Any:
    """Return ``input`` itself: what ``+input`` means."""
    if input.dtype.category == 0:
        raise DTypeError("positive(): + is not defined for a bool tensor; convert it with .to(wengert.int64)")
    return input


# ---- division


@elementwise(
    np.true_divide,
    derivative={"input": lambda g, other: g / other, "other": lambda g, input, other: -g * (input / other / other)},
    promote="float",
    samples=lambda s: [
        s((2, 3), (2, 3), kind="positive"), s((2, 1), (3,), low=-2.0, high=-0.5), s((2, 3), 4.0), s(2.0, (2,), low=0.5),
        s((3,), (3,), kind="integer", low=1), s((2,), (2,), kind="complex"), s((2,), 2, kind="boolean"),
        s(s.array([1.0, -1.0, 0.0]), s.array([0.0, 0.0, 0.0]), grad=False),
    ],
)  # fmt: skip
def true_divide(input: AnythingOrScalar, other: AnythingOrScalar) -> Any:
    """Return the exact quotient ``input / other``, element by element; integers become floats."""


def _no_zero(name: str, divisor: Any) -> None:
    if divisor.dtype.kind in "iu" and not np.all(divisor):
        raise ZeroDivisionError("integer division by zero; convert to a float dtype to get inf or nan")
    if divisor.dtype.kind == "b":
        raise DTypeError(f"{name}(): not defined for bool tensors; convert one of them with .to(wengert.int64)")


def _quotients(s: Any) -> list[Any]:
    """The samples of divisions that round."""
    return [
        s((2, 3), (2, 3), kind="positive"), s(s.array([7.5, -7.5, 7.5, -7.5]), s.array([2.0, 2.0, -2.0, -2.0])),
        s((3,), 0.7), s(s.array([7, -7, 7, -7]), s.array([2, 2, -2, -2])), s(s.array([-7, 7]), 2),
        s(7, s.array([2, -2])), s(s.array([5, 6]), 2.5), s(s.array([1.0, -1.0, 0.0]), 0.0, grad=False), s((0,), (1,)),
        s.error(ZeroDivisionError, "by zero", s.array([1, 2]), 0),
        s.error(TypeError, "bool", (2,), (2,), kind="boolean"),
    ]  # fmt: skip


@elementwise(
    np.floor_divide,
    derivative={"input": lambda g: ops.zeros_like(g), "other": lambda g: ops.zeros_like(g)},
    samples=_quotients,
)
def floor_divide(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return the quotient rounded down, as Python's ``//``. Its derivative is zero.

    Raises:
        ZeroDivisionError: if an integer divisor is zero.
    """
    _no_zero("floor_divide", other)
    return np.floor_divide(input, other)


@elementwise(
    derivative={"input": lambda g: ops.zeros_like(g), "other": lambda g: ops.zeros_like(g)},
    home=(),
    samples=_quotients,
)
def trunc_divide(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return the quotient rounded towards zero: ``div`` with ``rounding_mode="trunc"``.

    Raises:
        ZeroDivisionError: if an integer divisor is zero.
    """
    _no_zero("trunc_divide", other)
    if input.dtype.kind in "iu":
        return (input - np.fmod(input, other)) // other
    return np.trunc(np.true_divide(input, other))


_ROUNDED = {None: "true_divide", "floor": "floor_divide", "trunc": "trunc_divide"}


@composite(
    method=True,
    inplace=True,
    aliases=("divide",),
    samples=lambda s: [
        s((2, 3), (3,), kind="positive"), s((2,), 2), s(s.array([7.5, -7.5]), 2.0, rounding_mode="floor"),
        s(s.array([7, -7]), 2, rounding_mode="trunc"), s(s.array([7, -7]), 2, rounding_mode="floor"),
        s(s.array([7, -7]), 2), s.error(ValueError, "rounding_mode", (2,), 2.0, rounding_mode="up"),
    ],
)  # fmt: skip
def div(input: Any, other: Any, *, rounding_mode: Any = None) -> Any:
    """Return ``input / other``, element by element, broadcasting the two.

    Args:
        rounding_mode: None for the exact quotient (integers become floats), ``"trunc"`` to round it towards zero,
            ``"floor"`` to round it down; rounded quotients of integers are integers and have derivative zero.
    """
    if rounding_mode not in _ROUNDED:
        raise ValueError(f"div(): rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")
    return getattr(ops, _ROUNDED[rounding_mode])(input, other)


@elementwise(
    np.remainder,
    derivative={"input": lambda g: g, "other": lambda g, input, other: -g * ops.floor_divide(input, other)},
    samples=lambda s: [
        s((2, 3), (2, 3), kind="positive"), s(s.array([7.5, -7.5, 7.5, -7.5]), s.array([2.0, 2.0, -2.0, -2.0])),
        s((3,), 0.7), s(s.array([7, -7, 7, -7]), s.array([2, 2, -2, -2])), s(2.5, (2,), kind="positive"),
        s(s.array([5, 6]), 2.5), s(s.array([1.0]), 0.0, grad=False),
        s.error(ZeroDivisionError, "by zero", s.array([1, 2]), 0),
        s.error(TypeError, "bool", (2,), (2,), kind="boolean"),
    ],
)  # fmt: skip
def remainder(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return ``input - other * floor(input / other)``, with the sign of the divisor, as Python's ``%``.

    Raises:
        ZeroDivisionError: if an integer divisor is zero.
    """
    _no_zero("remainder", other)
    return np.remainder(input, other)


@elementwise(
    np.fmod,
    derivative={"input": lambda g: g, "other": lambda g, input, other: -g * ops.trunc_divide(input, other)},
    samples=lambda s: [
        s((2, 3), (2, 3), kind="positive"), s(s.array([7.5, -7.5, 7.5, -7.5]), s.array([2.0, 2.0, -2.0, -2.0])),
        s((3,), 0.7), s(s.array([7, -7, 7, -7]), s.array([2, 2, -2, -2])),
        s.error(ZeroDivisionError, "by zero", s.array([1, 2]), 0),
    ],
)  # fmt: skip
def fmod(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return ``input - other * trunc(input / other)``, with the sign of the dividend, as C's ``fmod``.

    Raises:
        ZeroDivisionError: if an integer divisor is zero.
    """
    _no_zero("fmod", other)
    return np.fmod(input, other)


@elementwise(
    derivative={"input": lambda g, out: -g * (out * out)},
    promote="float",
    samples=lambda s: [
        s((2, 3), kind="positive"), s((2,), kind="complex"), s((3,), kind="integer", low=1), s(()),
        s(s.array([0.0, -0.0]), grad=False),
    ],
)  # fmt: skip
def reciprocal(input: Anything) -> Any:
    """Return ``1 / input``, element by element; integers become floats."""
    return np.true_divide(1, input, dtype=input.dtype)


# ---- powers


class _Power:
    """``np.power`` for the fast lanes; squares and cubes by a whole number are products, many times faster."""

    nin = 2

    def __call__(self, x: Any, y: Any, *out: Any) -> Any:
        if type(y) is int or type(y) is float:
            if y == 2:
                return np.square(x, *out)
            if y == 3:
                return np.multiply(np.square(x), x, *out)
        return np.power(x, y, *out)


def _as_float(tensor: Any, like: Any) -> Any:
    """Return an integer tensor in the dtype of ``like``."""
    return tensor if tensor.dtype.category >= FLOAT else ops.cast(tensor, like.dtype)


def _power_slope(g: Any, input: Any, exponent: Any) -> Any:
    """Return g · n · xⁿ⁻¹, and 0 for exponent 0 even at base 0."""
    if isinstance(exponent, Tensor):
        exponent = _as_float(exponent, g)
        flat = ops.logical_and(exponent == 0, input == 0)
        return g * (exponent * input ** ops.where(flat, 1, exponent - 1))
    if exponent == 0:
        return ops.zeros_like(g)
    return g * (exponent * (input if exponent == 2 else input ** (exponent - 1)))


def _exponent_slope(g: Any, input: Any, exponent: Any, out: Any) -> Any:
    """Return g · xⁿ · log x, and 0 at base 0 unless the exponent is negative."""
    if not isinstance(input, Tensor):
        if not isinstance(input, complex) and input > 0:
            return g * (out * math.log(input))
        input = from_array(np.asarray(input, out.dtype.numpy))
    elif input.dtype is not out.dtype:
        input = ops.cast(input, out.dtype)
    flat = ops.logical_and(input == 0, ops.real(exponent) >= 0)
    return g * (out * ops.log(ops.where(flat, 1, input)))


@elementwise(
    _Power(),
    derivative={"input": _power_slope, "exponent": _exponent_slope},
    flops=20,
    samples=lambda s: [
        s((2, 3), 2), s((2, 3), 3), s((2, 3), -1.0, kind="positive"), s((2, 3), 1.7, kind="positive"), s((2,), 0),
        s((2,), 1), s((2, 3), (3,), kind="positive"), s(2.5, (2, 3)), s(2, (2,)), s(s.array([0.0, -2.0, 1.5]), 3),
        s(s.array([-2.0, 0.0, 3.0]), s.array([2, 2, 0])), s((2,), (2,), kind="complex"), s((2,), 2, kind="complex"),
        s(1 + 2j, (2,)), s((3,), (3,), kind="integer", low=0), s((3,), 2, kind="integer"),
        s((3,), 0.5, kind="integer", low=1), s((2,), 2, kind="boolean"), s((0,), 2),
        s(s.array([0.0, 0.0, 0.0, 0.0]), s.array([0.0, 1.0, 2.0, 0.5]), grad=False),
        s(s.array([-1.5, -1.0]), s.array([0.5, 2.0]), grad=False), s(0.0, s.array([0.0, 1.0, -1.0]), grad=False),
        s.error(RuntimeError, "negative", s.array([2, 3]), -1), s((2,), (2,), kind="boolean"),
    ],
)  # fmt: skip
def pow(input: AnythingOrScalar, exponent: AnythingOrScalar) -> Any:
    """Return ``input ** exponent``, element by element. Derivatives: n·xⁿ⁻¹ and xⁿ·log x.

    Negative bases with fractional exponents give nan, as in IEEE 754; complex dtypes give the principal value.

    Raises:
        RuntimeError: for integers with negative integer exponents; convert one of them to a float dtype.
    """
    if input.dtype.kind == "b":
        return np.logical_or(input, np.logical_not(exponent))
    if input.dtype.kind == "i" and np.any(exponent < 0):
        raise DTypeError(
            "pow(): integers to negative integer powers are no integers; convert one of them to a float dtype"
        )
    return np.power(input, exponent)


@composite(
    method=True,
    inplace=True,
    samples=lambda s: [
        s((2,), 2, kind="integer"), s(2, (2,), kind="integer"), s((2,), (2,), kind="positive"),
        s((2,), 2, kind="complex"),
    ],
)  # fmt: skip
def float_power(input: Any, exponent: Any) -> Any:
    """Return ``input ** exponent`` computed in float64 (complex128 for complex arguments), whatever their dtypes."""
    complex_given = any(x.is_complex() if isinstance(x, Tensor) else isinstance(x, complex) for x in (input, exponent))
    target = complex128 if complex_given else float64
    wide = [ops.cast(x, target) if isinstance(x, Tensor) and x.dtype is not target else x for x in (input, exponent)]
    return ops.pow(*wide)


@elementwise(np.square, derivative={"input": lambda g, input: g * (2 * input)},
             samples=lambda s: [
                 s((2, 3)), s(()), s((2,), kind="complex"), s((3,), kind="integer"), s(s.array([0.0])),
             ],
)  # fmt: skip
def square(input: Number) -> Any:
    """Return ``input * input``, element by element."""


# ---- sums of products


@elementwise(
    derivative={
        "input": lambda g: g,
        "tensor1": lambda g, tensor2, value: g * (tensor2 if value == 1 else tensor2 * value),
        "tensor2": lambda g, tensor1, value: g * (tensor1 if value == 1 else tensor1 * value),
    },
    flops=3,
    samples=lambda s: [
        s((2, 3), (2, 3), (3,)), s((3,), (2, 1), (3,), value=-0.5), s((), (2,), (2,)),
        s((2,), (2,), (2,), kind="integer", value=2), s((2,), (2,), (2,), kind="complex", value=1j),
        s.error(TypeError, "value", (2,), (2,), (2,), kind="integer", value=0.5),
    ],
)  # fmt: skip
def addcmul(input: Anything, tensor1: Anything, tensor2: Anything, *, value: Any = 1) -> Any:
    """Return ``input + value * tensor1 * tensor2``, element by element."""
    return input + _scaled("addcmul", tensor1 * tensor2, value, "value")


@elementwise(
    derivative={
        "input": lambda g: g,
        "tensor1": lambda g, tensor2, value: g * (value / tensor2),
        "tensor2": lambda g, tensor1, tensor2, value: -g * (value * (tensor1 / tensor2) / tensor2),
    },
    flops=3,
    samples=lambda s: [
        s((2, 3), (2, 3), (3,), kind="positive"), s((3,), (2, 1), (3,), kind="positive", value=-0.5),
        s((2,), (2,), (2,), kind="complex", value=2), s.error(TypeError, "int64", (2,), (2,), (2,), kind="integer"),
    ],
)  # fmt: skip
def addcdiv(input: Anything, tensor1: Anything, tensor2: Anything, *, value: Any = 1) -> Any:
    """Return ``input + value * tensor1 / tensor2``, element by element.

    Raises:
        TypeError: for integer or bool tensors; convert one of them to a float dtype.
    """
    if input.dtype.kind not in "fc":
        raise DTypeError(f"addcdiv(): not defined for {input.dtype} tensors; convert one of them to a float dtype")
    return input + _scaled("addcdiv", tensor1, value, "value") / tensor2


@elementwise(
    derivative={
        "input": lambda g, weight: g * (1 - weight),
        "end": lambda g, weight: g * weight,
        "weight": lambda g, input, end: g * (end - input),
    },
    flops=3,
    samples=lambda s: [
        s((2, 3), (2, 3), 0.3), s((2, 3), (3,), 0.7), s((2, 1), (3,), (2, 3)), s((), (2,), 1.0),
        s((2,), (2,), (2,), kind="complex"), s(s.array([1.0, 2.0]), s.array([5.0, 6.0]), s.array([0.0, 1.0])),
        s((0,), (0,), 0.5), s.error(TypeError, "inexact", (2,), (2,), 0.5, kind="integer"),
    ],
)  # fmt: skip
def lerp(input: Inexact, end: Inexact, weight: InexactOrScalar) -> Any:
    """Return ``input + weight * (end - input)``, element by element; exact at weight 0 and 1."""
    step = end - input
    return np.where(np.abs(weight) < 0.5, input + weight * step, end - step * (1 - weight))


# ---- magnitude and sign


def _abs_tangent(t: Any, input: Any) -> Any:
    return ops.real(t * ops.conj(ops.sgn(input))) if input.is_complex() else t * ops.sgn(input)


@elementwise(
    np.absolute,
    derivative={"input": _abs_tangent},
    vjp={"input": lambda g, input: g * ops.sgn(input)},
    result="real",
    aliases=("absolute",),
    samples=lambda s: [
        s((2, 3)), s(()), s((0,)), s((3,), kind="integer"), s((2,), kind="complex"),
        s(s.array([0.0, -0.0, float("-inf"), float("nan")]), grad=False), s(s.array([0j, 1j]), grad=False),
        s.error(TypeError, "number tensor", (2,), kind="boolean"),
    ],
)  # fmt: skip
def abs(input: Number) -> Any:
    """Return the absolute value of each element (real for complex ones). The gradient at 0 is 0."""


def _sgn_slope(g: Any, input: Any, out: Any) -> Any:
    """Return the part of g that turns a complex number, over its modulus; 0 for real numbers and at 0."""
    if not input.is_complex():
        return ops.zeros_like(g)
    size = ops.abs(input)
    turn = g - out * ops.real(ops.conj(out) * g)
    return ops.where(size == 0, 0, turn / ops.where(size == 0, 1, size))


@elementwise(
    np.sign,
    derivative={"input": _sgn_slope},
    holomorphic=False,
    samples=lambda s: [
        s((2, 3)), s(()), s((2,), kind="complex"), s((3,), kind="integer"), s((2,), kind="boolean"),
        s(s.array([0.0, -0.0, float("nan")]), grad=False), s(s.array([0j, 1j]), grad=False),
    ],
)  # fmt: skip
def sgn(input: Anything) -> Any:
    """Return the sign of each real element, and z / |z| (0 at 0) of each complex one."""
    return input.copy() if input.dtype.kind == "b" else np.sign(input)

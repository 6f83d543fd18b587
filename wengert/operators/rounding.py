"""Rounding, signs, and the bits of floating-point numbers."""

from typing import Any

import numpy as np

from wengert.array.dtype import dtype_of, finfo, int32
from wengert.core.arguments import Anything, Floating, FloatingOrScalar, Integer, Real, RealOrScalar
from wengert.core.families import composite, elementwise, nondifferentiable, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import DTypeError

__all__ = [
    "ceil", "copysign", "floor", "frac", "frexp", "gcd", "heaviside", "lcm", "ldexp", "nan_to_num", "nextafter",
    "round", "sign", "signbit", "trunc",
]  # fmt: skip


def _flat(g: Any) -> Any:
    """The derivative of a step function: 0 everywhere, also at the steps."""
    return ops.zeros_like(g)


def _no_bool(name: str, array: Any) -> None:
    if array.dtype.kind == "b":
        raise DTypeError(f"{name}(): not defined for bool tensors; convert with .to(wengert.int64)")


def _steps(s: Any) -> list[Any]:
    """The samples of functions that round."""
    return [
        s((2, 3)), s(()), s((0,)), s((3,), kind="integer"), s(s.array([0.5, 1.5, 2.5, -0.5, -1.5, -0.0]), grad=False),
        s(s.array([float("inf"), float("nan"), 1e30]), grad=False), s.error(TypeError, "bool", (2,), kind="boolean"),
        s.error(TypeError, "real tensor", (2,), kind="complex"),
    ]  # fmt: skip


@elementwise(np.ceil, derivative={"input": _flat}, samples=_steps)
def ceil(input: Real) -> Any:
    """Return the smallest whole number not below each element. Its derivative is 0."""
    _no_bool("ceil", input)
    return np.ceil(input)


@elementwise(np.floor, derivative={"input": _flat}, samples=_steps)
def floor(input: Real) -> Any:
    """Return the largest whole number not above each element. Its derivative is 0."""
    _no_bool("floor", input)
    return np.floor(input)


@elementwise(np.trunc, derivative={"input": _flat}, aliases=("fix",), samples=_steps)
def trunc(input: Real) -> Any:
    """Return each element rounded towards zero. Its derivative is 0."""
    _no_bool("trunc", input)
    return np.trunc(input)


@elementwise(
    np.rint,
    derivative={"input": _flat},
    aliases=("special_round",),
    samples=lambda s: [*_steps(s), s((2, 3), decimals=1), s(s.array([1234.5, -15.0]), decimals=-2, grad=False)],
)
def round(input: Real, *, decimals: int = 0) -> Any:
    """Return each element rounded to ``decimals`` decimal places, halves to the even neighbour. Its derivative is 0."""
    _no_bool("round", input)
    if input.dtype.kind in "iu":
        if decimals:
            raise DTypeError(f"round(): decimals={decimals} is not defined for integers; convert them to a float dtype")
        return input.copy()
    return np.round(input, decimals)


@elementwise(
    derivative={"input": lambda g: g},
    samples=lambda s: [
        s((2, 3)), s(()), s((0,)), s(s.array([2.75, -2.75])),
        s.error(TypeError, "floating tensor", (2,), kind="integer"),
    ],
)  # fmt: skip
def frac(input: Floating) -> Any:
    """Return the part of each element after the point, with its sign."""
    return input - np.trunc(input)


# ---- signs


@elementwise(
    np.sign,
    derivative={"input": _flat},
    samples=lambda s: [
        s((2, 3)), s(()), s((3,), kind="integer"), s((2,), kind="boolean"),
        s(s.array([0.0, -0.0, float("nan")]), grad=False), s.error(TypeError, "real tensor", (2,), kind="complex"),
    ],
)  # fmt: skip
def sign(input: Real) -> Any:
    """Return -1, 0 or 1 by the sign of each element; nan stays nan. Its derivative is 0.

    For complex numbers see :func:`wengert.sgn`.
    """
    return input.copy() if input.dtype.kind == "b" else np.sign(input)


@nondifferentiable(
    np.signbit, result="bool",
    samples=lambda s: [s((2, 3)), s((3,), kind="integer"), s((2,), kind="boolean"), s(s.array([0.0, -0.0])), s((0,))],
)  # fmt: skip
def signbit(input: Real) -> Any:
    """Return whether the sign bit is set: True for negative numbers and for -0.0."""
    return np.zeros(input.shape, np.bool_) if input.dtype.kind == "b" else np.signbit(input)


def _copysign_slope(g: Any, input: Any, out: Any) -> Any:
    """Return ±g by whether the sign was kept, and 0 at 0."""
    kept = ops.where(ops.signbit(input) == ops.signbit(out), g, -g)
    return ops.where(input == 0, 0, kept)


@elementwise(
    np.copysign,
    derivative={"input": _copysign_slope, "other": _flat},
    promote="float",
    samples=lambda s: [
        s((2, 3), (2, 3)), s((2, 1), (3,)), s((2,), -1.0), s((3,), (3,), kind="integer", low=1), s((0,), (1,)),
        s(s.array([1.0, -0.0]), s.array([-0.0, 1.0]), grad=False),
    ],
)  # fmt: skip
def copysign(input: Real, other: RealOrScalar) -> Any:
    """Return the magnitude of ``input`` with the sign of ``other``, element by element."""


@nondifferentiable(
    promote="same", result="same", inplace=True,
    samples=lambda s: [
        s((2, 3), (2, 3)), s(s.array([-1.0, 0.0, 2.0, float("nan")]), s.array([0.5])), s((3,), (3,), kind="integer"),
        s((0,), (1,)),
    ],
)  # fmt: skip
def heaviside(input: Real, values: Real) -> Any:
    """Return 0 for negative elements, 1 for positive ones, ``values`` at 0."""
    step = np.where(input == 0, values, (input > 0).astype(input.dtype))
    return np.where(np.isnan(input), input, step) if input.dtype.kind == "f" else step


# ---- the bits of numbers


@elementwise(
    np.nextafter, widen=False,
    derivative={
        "input": lambda g, input, other: ops.where(ops.eq(input, other), 0, g),
        "other": lambda g: ops.zeros_like(g),
    },
    samples=lambda s: [
        s((2, 3), (2, 3)), s(s.array([0.0, 1.0, float("inf")]), s.array([1.0, 1.0, 0.0]), grad=False), s((0,), (1,)),
        s((2,), (2,), of="float32", grad=False),
    ],
)  # fmt: skip
def nextafter(input: Floating, other: FloatingOrScalar) -> Any:
    """Return the next representable number after ``input`` in the direction of ``other``, element by element."""
    return np.nextafter(input, other)


@operator(
    outputs=("mantissa", "exponent"),
    vjp={"input": lambda g, exponent: g[0] / ops.exp2(exponent)},
    jvp={"input": lambda t, exponent: (t / ops.exp2(exponent), None)},
    spec=lambda input: (input, Spec(input.shape, int32)),
    batch="broadcast",
    samples=lambda s: [s((2, 3)), s(()), s((0,)), s(s.array([0.0, 1.0, -8.0, 0.75]), grad=False)],
)
def frexp(input: Floating) -> Any:
    """Return ``(mantissa, exponent)`` with input = mantissa · 2**exponent and the mantissa's magnitude in [0.5, 1)."""
    mantissa, exponent = np.frexp(input)
    return mantissa, exponent.astype(np.int32)


@composite(
    method=True, inplace=True,
    samples=lambda s: [
        s((2, 3), s.array([1, -1, 3])), s((2,), s.array(2)), s((2,), (2,)), s((2,), s.array([1, 2]), kind="integer"),
    ],
)  # fmt: skip
def ldexp(input: Any, other: Any) -> Any:
    """Return ``input * 2**other``, element by element."""
    return ops.mul(input, ops.pow(2.0, other))


@nondifferentiable(
    promote="same", result="same", inplace=True,
    samples=lambda s: [
        s((2, 3), (3,), kind="integer", low=-12, high=13), s(s.array([12, 0, -4]), s.array([18, 0, 6])),
        s((0,), (1,), kind="integer"), s.error(TypeError, "integer tensor", (2,), (2,)),
    ],
)  # fmt: skip
def gcd(input: Integer, other: Integer) -> Any:
    """Return the greatest common divisor, element by element; gcd(0, 0) is 0."""
    return np.gcd(input, other)


@nondifferentiable(
    promote="same", result="same", inplace=True,
    samples=lambda s: [
        s((2, 3), (3,), kind="integer", low=-12, high=13), s(s.array([12, 0, -4]), s.array([18, 0, 6])),
        s((0,), (1,), kind="integer"), s.error(TypeError, "integer tensor", (2,), (2,)),
    ],
)  # fmt: skip
def lcm(input: Integer, other: Integer) -> Any:
    """Return the least common multiple, element by element."""
    return np.lcm(input, other)


def _replaced(array: Any, nan: Any, posinf: Any, neginf: Any) -> None:
    """Replace what is not finite, in place."""
    limits = finfo(dtype_of(array.dtype))
    array[np.isnan(array)] = 0.0 if nan is None else nan
    array[array == np.inf] = limits.max if posinf is None else posinf
    array[array == -np.inf] = limits.min if neginf is None else neginf


@elementwise(
    derivative={"input": lambda g, input: ops.where(ops.isfinite(input), g, 0)},
    holomorphic=False,
    widen=False,
    samples=lambda s: [
        s((2, 3)), s(()), s((0,)), s((3,), kind="integer"), s((2,), kind="complex"), s((2,), kind="boolean"),
        s(s.array([float("nan"), float("inf"), float("-inf"), 1.0]), grad=False),
        s(s.array([float("nan"), float("inf"), float("-inf")]), nan=1.0, posinf=2.0, neginf=-3.0, grad=False),
        s(s.array([complex(float("nan"), 1.0), complex(0.0, float("inf"))]), grad=False),
        s.error(TypeError, "'nan' must be a real number", (2,), nan="0"),
    ],
)  # fmt: skip
def nan_to_num(
    input: Anything, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """Return the elements with nan replaced by ``nan`` (0), and infinities by ``posinf`` and ``neginf``.

    Args:
        posinf, neginf: None for the largest and the lowest finite number of the dtype.
    """
    out = np.array(input)
    if out.dtype.kind == "c":
        _replaced(out.real, nan, posinf, neginf)
        _replaced(out.imag, nan, posinf, neginf)
    elif out.dtype.kind in "fV":
        _replaced(out, nan, posinf, neginf)
    return out

"""Comparisons, predicates and logical operators: results are bool tensors and carry no gradient."""

from typing import Any

import numpy as np

from wengert.core.arguments import Anything, AnythingOrScalar, Real, RealOrScalar
from wengert.core.families import composite, nondifferentiable
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.errors import DTypeError

__all__ = [
    "allclose", "eq", "equal", "ge", "gt", "isclose", "isfinite", "isin", "isinf", "isnan", "isneginf", "isposinf", "isreal",
    "le", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "ne", "signbit",
]  # fmt: skip


def _pairs(s: Any) -> list[Any]:
    """The samples of operators that compare any two tensors."""
    tied = s.array([1.0, 2.0, float("nan"), float("inf"), -0.0])
    return [
        s((2, 3), (2, 3)), s((2, 1), (3,)), s(tied, s.array([1.0, 3.0, float("nan"), float("inf"), 0.0])), s(tied, 1), s((), 0.5),
        s((3,), (3,), kind="integer"), s((3,), 1.5, kind="integer"), s((2,), (2,), kind="boolean"), s((0,), (1,)),
        s(s.tensor((3,)), s.tensor((3,), kind="integer")), s.error(ValueError, "broadcast", (2,), (3,)),
    ]  # fmt: skip


def _ordered_pairs(s: Any) -> list[Any]:
    return [*_pairs(s), s.error(TypeError, "real tensor", (2,), (2,), kind="complex"), s.error(TypeError, "order", (2,), 1j)]


def _ordered(name: str, ufunc: Any, input: Any, other: Any) -> Any:
    if input.dtype.kind == "c":
        raise DTypeError(f"{name}(): complex numbers have no order; compare their .real, .imag or .abs()")
    return ufunc(input, other)


@nondifferentiable(np.equal, promote="same", result="bool", inplace=True,
                   samples=lambda s: [*_pairs(s), s((2,), (2,), kind="complex"), s((2,), 1j)])  # fmt: skip
def eq(input: AnythingOrScalar, other: AnythingOrScalar) -> Any:
    """Return whether the elements are equal (nan equals nothing)."""


@nondifferentiable(np.not_equal, promote="same", result="bool", inplace=True, aliases=("not_equal",),
                   samples=lambda s: [*_pairs(s), s((2,), (2,), kind="complex"), s((2,), 1j)])  # fmt: skip
def ne(input: AnythingOrScalar, other: AnythingOrScalar) -> Any:
    """Return whether the elements differ (nan differs from everything)."""


@nondifferentiable(np.less, promote="same", result="bool", inplace=True, aliases=("less",), samples=_ordered_pairs)
def lt(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return ``input < other``, element by element."""
    return _ordered("lt", np.less, input, other)


@nondifferentiable(np.less_equal, promote="same", result="bool", inplace=True, aliases=("less_equal",), samples=_ordered_pairs)
def le(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return ``input <= other``, element by element."""
    return _ordered("le", np.less_equal, input, other)


@nondifferentiable(np.greater, promote="same", result="bool", inplace=True, aliases=("greater",), samples=_ordered_pairs)
def gt(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return ``input > other``, element by element."""
    return _ordered("gt", np.greater, input, other)


@nondifferentiable(
    np.greater_equal, promote="same", result="bool", inplace=True, aliases=("greater_equal",), samples=_ordered_pairs
)
def ge(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return ``input >= other``, element by element."""
    return _ordered("ge", np.greater_equal, input, other)


# ---- logic: every nonzero number, nan included, is true


@nondifferentiable(np.logical_and, promote="same", result="bool", inplace=True, samples=_pairs)
def logical_and(input: Anything, other: Anything) -> Any:
    """Return whether both elements are nonzero."""


@nondifferentiable(np.logical_or, promote="same", result="bool", inplace=True, samples=_pairs)
def logical_or(input: Anything, other: Anything) -> Any:
    """Return whether one of the elements is nonzero."""


@nondifferentiable(np.logical_xor, promote="same", result="bool", inplace=True, samples=_pairs)
def logical_xor(input: Anything, other: Anything) -> Any:
    """Return whether exactly one of the elements is nonzero."""


@nondifferentiable(np.logical_not, result="bool", inplace=True, samples=lambda s: [s((2, 3)), s((3,), kind="integer"), s((2,), kind="boolean"), s((2,), kind="complex"), s((0,))])  # fmt: skip
def logical_not(input: Anything) -> Any:
    """Return whether the element is zero."""


@nondifferentiable(np.isnan, result="bool", samples=lambda s: [s((2, 3)), s(s.array([0.0, float("nan")])), s((3,), kind="integer"), s((2,), kind="complex")])  # fmt: skip
def isnan(input: Anything) -> Any:
    """Return whether the element is nan (for complex ones: a part of it)."""

"""Comparisons, predicates and logical operators: results are bool tensors and carry no gradient."""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import bool_
from wengert.core.apply import as_tensor, execute
from wengert.core.arguments import Anything, AnythingOrScalar, Real, RealOrScalar
from wengert.core.families import nondifferentiable
from wengert.core.methods import attach
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, raw
from wengert.errors import DTypeError

__all__ = [
    "allclose", "eq", "equal", "ge", "gt", "is_complex", "is_conj", "is_floating_point", "is_neg", "is_nonzero",
    "isclose", "isfinite", "isin", "isinf", "isnan", "isneginf", "isposinf", "isreal", "le", "logical_and",
    "logical_not", "logical_or", "logical_xor", "lt", "ne",
]  # fmt: skip


def _pairs(s: Any) -> list[Any]:
    """The samples of operators that compare any two tensors."""
    tied = s.array([1.0, 2.0, float("nan"), float("inf"), -0.0])
    return [
        s((2, 3), (2, 3)), s((2, 1), (3,)), s(tied, s.array([1.0, 3.0, float("nan"), float("inf"), 0.0])), s(tied, 1),
        s((), 0.5), s((3,), (3,), kind="integer"), s((3,), 1.5, kind="integer"), s((2,), (2,), kind="boolean"),
        s((0,), (1,)), s(s.tensor((3,)), s.tensor((3,), kind="integer")), s.error(ValueError, "broadcast", (2,), (3,)),
    ]  # fmt: skip


def _ordered_pairs(s: Any) -> list[Any]:
    return [
        *_pairs(s),
        s.error(TypeError, "real tensor", (2,), (2,), kind="complex"),
        s.error(TypeError, "order", (2,), 1j),
    ]


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


@nondifferentiable(
    np.less_equal, promote="same", result="bool", inplace=True, aliases=("less_equal",), samples=_ordered_pairs
)
def le(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return ``input <= other``, element by element."""
    return _ordered("le", np.less_equal, input, other)


@nondifferentiable(
    np.greater, promote="same", result="bool", inplace=True, aliases=("greater",), samples=_ordered_pairs
)
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
def logical_and(input: AnythingOrScalar, other: AnythingOrScalar) -> Any:
    """Return whether both elements are nonzero."""


@nondifferentiable(np.logical_or, promote="same", result="bool", inplace=True, samples=_pairs)
def logical_or(input: AnythingOrScalar, other: AnythingOrScalar) -> Any:
    """Return whether one of the elements is nonzero."""


@nondifferentiable(np.logical_xor, promote="same", result="bool", inplace=True, samples=_pairs)
def logical_xor(input: AnythingOrScalar, other: AnythingOrScalar) -> Any:
    """Return whether exactly one of the elements is nonzero."""


def _kinds(s: Any) -> list[Any]:
    """The samples of predicates of one tensor."""
    inf, nan = math.inf, math.nan
    return [
        s((2, 3)), s(()), s((0,)), s(s.array([0.0, nan, inf, -inf])), s((3,), kind="integer"), s((2,), kind="boolean"),
    ]  # fmt: skip


def _complex_kinds(s: Any) -> list[Any]:
    inf, nan = math.inf, math.nan
    return [*_kinds(s), s((2,), kind="complex"), s(s.array([complex(nan, 0), complex(0, inf), complex(-inf, nan), 1j]))]


@nondifferentiable(np.logical_not, result="bool", inplace=True, samples=_complex_kinds)
def logical_not(input: Anything) -> Any:
    """Return whether the element is zero."""


@nondifferentiable(np.isnan, result="bool", samples=_complex_kinds)
def isnan(input: Anything) -> Any:
    """Return whether the element is nan (of a complex one: some part is)."""


@nondifferentiable(np.isinf, result="bool", samples=_complex_kinds)
def isinf(input: Anything) -> Any:
    """Return whether the element is infinite (of a complex one: some part is)."""


@nondifferentiable(np.isfinite, result="bool", samples=_complex_kinds)
def isfinite(input: Anything) -> Any:
    """Return whether the element is neither nan nor infinite (of a complex one: no part is)."""


@nondifferentiable(result="bool", samples=_kinds)
def isposinf(input: Real) -> Any:
    """Return whether the element is +inf."""
    return input == np.inf if input.dtype.kind == "f" else np.zeros(input.shape, np.bool_)


@nondifferentiable(result="bool", samples=_kinds)
def isneginf(input: Real) -> Any:
    """Return whether the element is -inf."""
    return input == -np.inf if input.dtype.kind == "f" else np.zeros(input.shape, np.bool_)


@nondifferentiable(result="bool", samples=_complex_kinds)
def isreal(input: Anything) -> Any:
    """Return whether the imaginary part is zero."""
    return np.isreal(input)


# ---- closeness and membership


@nondifferentiable(
    promote="same",
    result="bool",
    samples=lambda s: [
        *_pairs(s)[:3], s(s.array([1.0, 1.0, math.nan, math.inf]), s.array([1.0 + 1e-9, 1.1, math.nan, math.inf])),
        s((2,), (2,), kind="complex"),
        s(s.array([1.0, math.nan]), s.array([1.04, math.nan]), rtol=0.05, equal_nan=True),
        s((3,), (3,), kind="integer"), s(s.array([1, 100]), s.array([2, 101]), rtol=0.02, atol=0.0),
        s.error(ValueError, "rtol", (2,), (2,), rtol=-1.0),
    ],
)  # fmt: skip
def isclose(
    input: AnythingOrScalar, other: AnythingOrScalar, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Any:
    """Return whether ``|input - other| <= atol + rtol * |other|``, element by element; equal infinities are close.

    Args:
        equal_nan: whether two nan are close.
    """
    if rtol < 0 or atol < 0:
        raise ValueError(f"isclose(): rtol and atol must not be negative, got rtol={rtol} and atol={atol}")
    same = input == other
    if equal_nan and input.dtype.kind in "fc":
        same |= np.isnan(input) & np.isnan(other)
    if input.dtype.kind in "biu":
        input, other = input.astype(np.float64), other.astype(np.float64)
    distance = np.abs(input - other)
    return same | np.isfinite(distance) & (distance <= atol + np.abs(rtol * other))


def _member_spec(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Spec:
    return Spec(elements.shape if isinstance(elements, Spec) else (), bool_)


def _member_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Compare every pair where each example has test elements of its own."""
    if not batched[1]:
        return execute(op, values)
    elements, tests, _, invert = values
    shape = tuple(elements.shape)[bool(batched[0]) :] if isinstance(elements, Tensor) else ()
    each = ops.reshape(elements, (size if batched[0] else 1, -1, 1)) if isinstance(elements, Tensor) else elements
    same = ops.eq(each, ops.reshape(tests, (size, 1, math.prod(tests.shape[1:]))))
    found = ops.reshape(ops.any(same, -1), (size, *shape))
    return ops.logical_not(found) if invert else found


@nondifferentiable(
    promote="same",
    result="bool",
    batch=_member_batch,
    spec=_member_spec,
    method=False,
    samples=lambda s: [
        s(s.array([[1, 2], [3, 4]]), s.array([2, 4, 7])), s(s.array([1.5, 2.0]), s.array([2.0])), s(s.array([1, 2]), 2),
        s(2, s.array([1, 2])), s(s.array([1, 2, 3]), s.array([[2]]), invert=True), s((0,), (2,)), s((2,), (0,)),
        s(s.array([1, 2]), s.array([2, 3]), assume_unique=True),
    ],
)  # fmt: skip
def isin(
    elements: AnythingOrScalar, test_elements: AnythingOrScalar, *, assume_unique: bool = False, invert: bool = False
) -> Any:
    """Return whether each of ``elements`` occurs in ``test_elements`` (``invert``: does not occur).

    Args:
        assume_unique: both have no repeated values; only a hint that saves time.
    """
    return np.isin(elements, test_elements, assume_unique=assume_unique and elements.ndim > 0, invert=invert)


# ---- questions answered with a Python bool


def equal(input: Any, other: Any) -> bool:
    """Return whether two tensors have the same shape and the same elements (nan differs from itself)."""
    first, second = as_tensor(input), as_tensor(other)
    return first.shape == second.shape and bool(raw(ops.eq(first, second)).all())


def allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Return whether all elements are close, broadcasting the two; see :func:`wengert.isclose`."""
    return bool(raw(ops.isclose(input, other, rtol, atol, equal_nan)).all())


def is_complex(input: Any) -> bool:
    """Return whether the dtype is complex."""
    return bool(input.is_complex())


def is_floating_point(input: Any) -> bool:
    """Return whether the dtype is a real floating-point dtype."""
    return bool(input.is_floating_point())


def is_nonzero(input: Any) -> bool:
    """Return whether the only element of a tensor is nonzero.

    Raises:
        RuntimeError: if it does not have exactly one element.
    """
    return bool(input.item())


def is_conj(input: Any) -> bool:
    """Return False: conjugates are computed at once, no tensor carries a conjugate bit."""
    return False


def is_neg(input: Any) -> bool:
    """Return False: negatives are computed at once, no tensor carries a negative bit."""
    return False


for _question in (equal, allclose, is_nonzero, is_conj, is_neg):
    setattr(ops, _question.__name__, _question)
    attach(_question.__name__, _question)
for _question in (is_complex, is_floating_point):
    setattr(ops, _question.__name__, _question)

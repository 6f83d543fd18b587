"""Dtypes in the standard's terms: casts, what casts to what, kinds, and machine limits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wengert.array import dtype as dtypes
from wengert.array.device import to_device
from wengert.array.dtype import BOOL, COMPLEX, FLOAT, INTEGER, DType, promote_types, real_of, to_dtype
from wengert.array_api.arguments import NUMBERS, operand
from wengert.core.tensor import Tensor
from wengert.errors import DTypeError
from wengert.operators.to_dtype import converted
from wengert.settings import settings

__all__ = ["KINDS", "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
REAL = ("float32", "float64")
COMPLEXES = ("complex64", "complex128")
KINDS = {
    "bool": ("bool",), "signed integer": SIGNED, "unsigned integer": UNSIGNED, "integral": SIGNED + UNSIGNED,
    "real floating": REAL, "complex floating": COMPLEXES, "numeric": SIGNED + UNSIGNED + REAL + COMPLEXES,
}  # fmt: skip
_MEMBERS: dict[str, Callable[[DType], bool]] = {
    "bool": lambda d: d.category == BOOL,
    "signed integer": lambda d: d.category == INTEGER and d.is_signed,
    "unsigned integer": lambda d: d.category == INTEGER and not d.is_signed,
    "integral": lambda d: d.category == INTEGER,
    "real floating": lambda d: d.category == FLOAT,
    "complex floating": lambda d: d.category == COMPLEX,
    "numeric": lambda d: d.category != BOOL,
}


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """Return the array in another dtype; gradients pass through. It is copied, unless ``copy`` is false and it fits.

    Raises:
        TypeError: for complex numbers to be made real; take ``real`` or ``abs`` of them.
    """
    to_device(device)
    x, target = operand("astype()", x), to_dtype(dtype)
    if x.dtype.category == COMPLEX and target.category in (INTEGER, FLOAT):
        raise DTypeError(f"astype(): {x.dtype} cannot be cast to {target}: take real(x), imag(x) or abs(x) first")
    return converted(x, target, copy)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Return whether every number of a dtype (or of an array's) has a place in the dtype ``to``, by promotion.

    Example:
        >>> import wengert.array_api as xp
        >>> xp.can_cast(xp.int8, xp.int16), xp.can_cast(xp.float64, xp.float32)
        (True, False)
    """
    source, target = _dtype(from_), to_dtype(to)
    try:
        return promote_types(source, target) is target
    except DTypeError:
        return False


def _dtype(value: Any) -> DType:
    return value.dtype if isinstance(value, Tensor) else to_dtype(value)


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """Limits of a real floating-point dtype (of a complex one: of its parts)."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True, slots=True)
class IntegerLimits:
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> FloatLimits:
    """Return the limits of a floating-point dtype, or of an array's: bits, eps, max, min, smallest_normal, dtype.

    Raises:
        TypeError: for a dtype that is not floating-point.
    """
    found = dtypes.finfo(_dtype(type))
    return FloatLimits(found.bits, found.eps, found.max, found.min, found.smallest_normal, real_of(_dtype(type)))


def iinfo(type: Any, /) -> IntegerLimits:
    """Return the limits of an integer dtype, or of an array's: bits, max, min, dtype.

    Raises:
        TypeError: for a dtype that is no integer dtype.
    """
    found = dtypes.iinfo(_dtype(type))
    return IntegerLimits(found.bits, found.max, found.min, _dtype(type))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether a dtype is ``kind``, is of the kind named so, or is (of) one of several in a tuple.

    Kinds are "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric".

    Raises:
        ValueError: for an unknown name of a kind.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if not isinstance(kind, str):
        return to_dtype(dtype) is to_dtype(kind)
    if kind not in _MEMBERS:
        raise ValueError(f"isdtype(): unknown kind {kind!r}; kinds are {', '.join(map(repr, _MEMBERS))}")
    return _MEMBERS[kind](to_dtype(dtype))


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the dtype that arrays, dtypes and Python numbers have in common.

    Raises:
        ValueError: if there is neither an array nor a dtype among them.

    Example:
        >>> import wengert.array_api as xp
        >>> xp.result_type(xp.float32, xp.ones(2, dtype=xp.float64), 1j)
        wengert.complex128
    """
    numbers = [v for v in arrays_and_dtypes if isinstance(v, NUMBERS)]
    found = [_dtype(v) for v in arrays_and_dtypes if not isinstance(v, NUMBERS)]
    if not found:
        raise ValueError("result_type() needs at least one array or dtype")
    return dtypes.result_dtype(found, [], numbers, settings.default_dtype)

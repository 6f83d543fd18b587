"""What the distributions share: how shapes, dtypes and parameters are read, checked and refused."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wengert.errors import DTypeError, ShapeError

__all__ = [
    "SIGNIFICAND",
    "Array",
    "DTypeLike",
    "Drawn",
    "Inexact",
    "ParameterError",
    "Shape",
    "element_count",
    "inexact",
    "parameter",
    "real_dtype",
    "rounded",
]

Array = npt.NDArray[Any]
DTypeLike = np.dtype[Any] | type[Any] | str
Drawn = tuple[Array, int]
Shape = Sequence[int]

SIGNIFICAND = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
"""The floating-point dtypes, and the bits of their significands."""


class ParameterError(RuntimeError, ValueError):
    """A parameter outside the range of its distribution; the message names both."""


class Inexact(NamedTuple):
    """A floating-point or complex dtype, as far as drawing is concerned."""

    dtype: np.dtype[Any]
    part: np.dtype[Any]  # of the real and the imaginary part; `dtype` itself where it is real
    compute: np.dtype[Any]  # float32 or float64
    digits: int

    @property
    def is_complex(self) -> bool:
        """Whether the dtype has an imaginary part."""
        return self.part is not self.dtype


@lru_cache(maxsize=64)
def inexact(function: str, dtype: np.dtype[Any]) -> Inexact:
    """Describe `dtype`; raises DTypeError unless it is floating-point or complex."""
    complex_parts = {"complex64": np.float32, "complex128": np.float64}
    part = np.dtype(complex_parts[dtype.name]) if dtype.name in complex_parts else real_dtype(function, dtype)
    return Inexact(dtype, part, np.dtype(np.float64 if part == np.float64 else np.float32), SIGNIFICAND[part.name])


def real_dtype(function: str, dtype: DTypeLike, integers: bool = False) -> np.dtype[Any]:
    """`dtype` as a NumPy dtype; raises DTypeError unless it is floating-point (or, if `integers`, an integer)."""
    dtype = np.dtype(dtype)
    if dtype.name in SIGNIFICAND or (integers and dtype.kind in "iu"):
        return dtype
    kinds = "floating-point or integer" if integers else "floating-point"
    raise DTypeError(f"{function}(): expected a {kinds} dtype, got {dtype}")


def element_count(shape: Shape) -> int:
    """The number of elements of `shape`; raises ShapeError for a negative length."""
    if shape and min(shape) < 0:
        raise ShapeError(f"lengths must not be negative, got shape {tuple(shape)}")
    return math.prod(shape)


def parameter(
    function: str,
    name: str,
    value: Any,
    shape: Shape,
    wanted: str = "",
    valid: Callable[[Any], Any] | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> Any:
    """`value` as a Python number where it is a scalar, else as a flat array of `dtype`, broadcast to `shape`.

    Raises:
        ParameterError: where ``valid(value)`` is false; the message says what is `wanted`.
        ShapeError: if `value` does not broadcast to `shape`.
        DTypeError: if `value` cannot be had in `dtype`, as a complex number cannot in a real one.
    """
    if isinstance(value, (int, float)):
        values: Any = float(value)
    else:
        array = np.asarray(value)
        if not np.can_cast(array.dtype, dtype, "same_kind") and array.dtype.name not in SIGNIFICAND:
            raise DTypeError(f"{function}(): {name} of dtype {array.dtype} cannot be had in {np.dtype(dtype)}")
        values = array.astype(dtype)
        values = values if values.ndim else values.item()
    if valid is not None and (fine := valid(values)) is not True and not np.all(fine):
        refused = np.extract(np.logical_not(fine), values)[0]
        raise ParameterError(f"{function}(): {name} must be {wanted}, got {refused}")
    if not isinstance(values, np.ndarray):
        return values
    try:
        return np.broadcast_to(values, shape).reshape(-1)
    except ValueError:
        raise ShapeError(f"{function}(): {name} of shape {values.shape} does not broadcast to {tuple(shape)}") from None


def rounded(values: Array, dtype: np.dtype[Any]) -> Array:
    """`values` in `dtype`; what is too large becomes infinite, or the largest integer of an integer dtype."""
    if values.dtype == dtype:
        return values
    if dtype.kind in "iu":
        values = np.minimum(values, np.nextafter(float(np.iinfo(dtype).max) + 1.0, 0.0))
    with np.errstate(over="ignore"):
        return values.astype(dtype)

"""LLVM types and values of kernels: one element, or a vector of them.

A value that does not depend on the vectorised loop variable stays one element (*uniform*), and is spread over the
lanes only where it meets a vector.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from wengert.loops.scalar import DTYPES, is_float

__all__ = [
    "BOOL",
    "BYTE",
    "I32",
    "I64",
    "POINTER",
    "Lanes",
    "Value",
    "constant",
    "element_type",
    "splat",
    "type_of",
    "vector_of",
]

BOOL, BYTE, I32, I64, POINTER = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.PointerType()
_FLOATS = {"f32": ir.FloatType(), "f64": ir.DoubleType()}


class Value(NamedTuple):
    """An LLVM value, and whether it is a vector (one element per lane) or uniform."""

    llvm: Any
    vector: bool


class Lanes(NamedTuple):
    """The vectorised loop that code stands in.

    Attributes:
        variable: its variable. width: the number of lanes. mask: those that are on (None: all), which are the first ``left``.
        step: how much the variable grows from lane to lane.
    """

    variable: str
    width: int
    mask: Any
    left: Any = None
    step: int = 1


def type_of(dtype: str) -> Any:
    """Return the LLVM type that values of a dtype are computed in; halves are their bits."""
    return _FLOATS.get(dtype) or ir.IntType(DTYPES[dtype])


def element_type(dtype: str) -> Any:
    """Return the LLVM type of an element in memory: that of its value, a byte for a bool."""
    return BYTE if dtype == "bool" else type_of(dtype)


def vector_of(kind: Any, width: int) -> Any:
    """Return the vector type of a type."""
    return ir.VectorType(kind, width)


def constant(value: Any, dtype: str) -> Any:
    """Return an LLVM constant of a dtype."""
    kind = type_of(dtype)
    if dtype in ("f16", "bf16"):
        return ir.Constant(kind, _half_bits(float(value), dtype))
    return ir.Constant(kind, float(value) if is_float(dtype) else int(value))


def _half_bits(value: float, dtype: str) -> int:
    """Return the bits of a number rounded to a half."""
    with np.errstate(over="ignore"):
        if dtype == "f16":
            return int(np.float16(value).view(np.uint16))
        bits = int(np.float32(value).view(np.uint32))
    if value != value:
        return bits >> 16 | 0x40
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


def splat(builder: Any, llvm: Any, width: int) -> Any:
    """Return a vector whose lanes all hold a value."""
    kind = vector_of(llvm.type, width)
    if isinstance(llvm, ir.Constant) and llvm.constant is not ir.Undefined:
        return ir.Constant(kind, [llvm.constant] * width)
    empty = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(empty, llvm, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(vector_of(I32, width), [0] * width))

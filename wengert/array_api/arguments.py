"""What the functions of the standard share: promotion of operands, numbers beside arrays, axes.

PyTorch's promotion, which the operators follow, lets a 0-d tensor yield to one with dimensions. The standard treats
all arrays alike, so operands are brought to their common dtype here, before an operator sees them.
"""

from typing import Any

import numpy as np

from wengert.array.dtype import DType, promote_types, result_dtype
from wengert.array.shape import as_int
from wengert.core.apply import as_tensor
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.operators.to_dtype import converted
from wengert.settings import settings

__all__ = ["axes_in", "axes_or_all", "axis_in", "common_dtype", "number_like", "operand", "own", "promoted", "together"]

NUMBERS = (bool, int, float, complex)


def operand(what: str, x: Any) -> Any:
    """Return an array; one of NumPy's as one of this namespace.

    Raises:
        TypeError: for anything else; ``what`` then says who took it.
    """
    if isinstance(x, np.ndarray | np.generic):
        return as_tensor(x)
    if not isinstance(x, Tensor):
        raise TypeError(f"{what} takes an array, got {type(x).__name__}; make it one with asarray()")
    return x


def common_dtype(arrays: Any, numbers: Any = ()) -> DType:
    """Return the dtype that arrays, whatever their dimensions, and Python numbers have in common.

    Raises:
        DTypeError: for uint64 beside a signed integer, which no integer dtype holds.
    """
    return result_dtype([a.dtype for a in arrays], [], numbers, settings.default_dtype)


def number_like(value: Any, other: Any) -> Any:
    """Return a Python number as a 0-d tensor of the dtype it takes beside the tensor ``other``."""
    return ops.full((), value, dtype=common_dtype((other,), (value,)))


def promoted(name: str, x1: Any, x2: Any) -> tuple[Any, Any]:
    """Return both operands as tensors of their common dtype; one of them may be a Python number.

    Raises:
        TypeError: if neither is an array, or one of them is neither array nor number.
    """
    if isinstance(x1, Tensor) and isinstance(x2, Tensor):
        if x1.dtype is x2.dtype:
            return x1, x2
        dtype = promote_types(x1.dtype, x2.dtype)
        return converted(x1, dtype), converted(x2, dtype)
    if isinstance(x1, NUMBERS) and isinstance(x2, NUMBERS):
        raise TypeError(f"{name}() needs at least one array, got the numbers {x1!r} and {x2!r}")
    if isinstance(x1, NUMBERS):
        x2 = operand(f"{name}()", x2)
        return promoted(name, number_like(x1, x2), x2)
    x1 = operand(f"{name}()", x1)
    return promoted(name, x1, number_like(x2, x1) if isinstance(x2, NUMBERS) else operand(f"{name}()", x2))


def together(name: str, arrays: Any) -> list[Any]:
    """Return a sequence of arrays as tensors of their common dtype.

    Raises:
        ValueError: for an empty sequence.
    """
    tensors = [as_tensor(a) for a in arrays]
    if not tensors:
        raise ValueError(f"{name}() needs at least one array, got none")
    dtype = common_dtype(tensors)
    return [converted(t, dtype) for t in tensors]


def axis_in(axis: Any, ndim: int) -> int:
    """Return an axis counted from the front.

    Raises:
        IndexError: if there is no such axis; unlike a PyTorch function, the standard gives a 0-d array none.
    """
    found = as_int(axis, "axis")
    if not -ndim <= found < ndim:
        allowed = f"use {-ndim} to {ndim - 1}" if ndim else "it has none"
        raise IndexError(f"axis={found} is out of range for an array of {ndim} dimensions: {allowed}")
    return found % ndim


def axes_in(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return one or several axes as a tuple counted from the front.

    Raises:
        TypeError: for something else than ints. IndexError: for an axis that is not there. ValueError: for one given twice.
    """
    axes = tuple(axis_in(a, ndim) for a in (axis if isinstance(axis, tuple | list) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ValueError(f"axis={axis} names the same axis twice")
    return axes


def axes_or_all(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return axes as :func:`axes_in`; None means all of them, ``()`` none."""
    return tuple(range(ndim)) if axis is None else axes_in(axis, ndim)


def own(result: Any) -> Any:
    """Return a result that its own derivative is computed from as a copy, if it will be.

    SciPy and scikit-learn write into what they have computed, a 1 over a zero norm for instance.
    """
    return ops.clone(result) if result.requires_grad else result

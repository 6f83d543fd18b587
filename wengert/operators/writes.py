"""In-place twins of operators that are a copy of their first argument into which something is written.

Such an operator, ``index_add`` say, is two functions: ``write(array, ...)`` changes an array, and the kernel is that
function on a copy. The in-place twin runs ``write`` on the tensor's own memory and, if a gradient is wanted, records
the operator as if it had been called and gives the tensor its history.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from wengert.array.dtype import INTEGER, float64
from wengert.core.apply import bind, execute, specs
from wengert.core.inplace import adopt, check_view, check_writable, rehistory
from wengert.core.methods import attach
from wengert.core.place import here
from wengert.core.record import record
from wengert.core.registry import operators, ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, from_array, refresh, version_of
from wengert.errors import DTypeError, ShapeError
from wengert.operators.checks import wrong_values

__all__ = [
    "check_target",
    "computed",
    "inplace_writer",
    "number_as",
    "publish_method",
    "recording",
    "write_recorded",
    "written",
]


def recording(*values: Any) -> bool:
    """True if an operator on these values would be recorded (or if one is a view whose base has history)."""
    if not thread.state.grad:
        return False
    for value in values:
        if isinstance(value, Tensor):
            view = value._view
            if (value._node if view is None else refresh(value)) is not None:
                return True
            if view is not None and view.base._node is not None:
                return True
    return False


def computed(*values: Any) -> bool:
    """True if an in-place write must go through an operator: it is recorded, watched, or a transform runs it."""
    state = thread.state
    return bool(state.watchers or state.captures) or not all(_holds_arrays(v) for v in values) or recording(*values)


def number_as(name: str, value: Any, dtype: Any) -> Any:
    """Return a number (or the only element of an array) as a 0-d array of a NumPy dtype.

    Raises:
        DTypeError: for a complex number where elements are real, and for what an integer dtype cannot hold.
    """
    if isinstance(value, np.ndarray):
        if value.ndim:
            raise ShapeError(f"{name}() takes a number or a 0-d tensor, got shape {value.shape}")
        value = float(value) if value.dtype.kind == "V" else value.item()
    if not issubclass(type(value), bool | int | float | complex | np.generic):
        raise TypeError(f"{name}() takes a number or a 0-d tensor, got {type(value).__name__}")
    if isinstance(value, complex) and dtype.kind != "c":
        raise complex_misfit(name, dtype)
    if dtype.kind not in "iu":
        return np.asarray(value, dtype)
    limits = np.iinfo(dtype)
    low = limits.min if dtype.kind == "i" else -int(limits.max)  # negative numbers wrap around, as in PyTorch
    if not (math.isfinite(value) and low <= value <= limits.max):
        raise DTypeError(f"{name}(): the number {value} does not fit elements of {dtype}")
    return np.asarray(int(value)).astype(dtype)


def complex_misfit(name: str, dtype: Any) -> DTypeError:
    """Return the error of a complex number where elements are real."""
    return DTypeError(f"{name}(): a complex number does not fit real elements of {dtype}")


def check_numbers(name: str, value: Any, dtype: Any) -> None:
    """Refuse a tensor of numbers, one for each example, if :func:`number_as` refuses one of them for a NumPy dtype."""
    if value.dtype.is_complex and dtype.kind != "c" and value.numel():
        raise complex_misfit(name, dtype)
    if dtype.kind not in "iu" or value.dtype.category < INTEGER:
        return
    limits = np.iinfo(dtype)
    low: Any = limits.min if dtype.kind == "i" else -int(limits.max)
    high: Any = int(limits.max)
    if value.dtype.is_floating_point:
        value = ops.cast(value, float64)
        if high >> 53:  # the highest numbers of eight bytes are none of float64, which has the one after them
            high = np.nextafter(high + 1.0, 0)
    else:
        own = np.iinfo(value.dtype.numpy)
        low, high = max(low, int(own.min)), min(high, int(own.max))
    bad = wrong_values(value, lambda values: ~((values >= low) & (values <= high)))
    if bad.size:
        number_as(name, np.asarray(bad[0]), dtype)


def written(name: str, tensor: Any) -> Any:
    """Note that ``tensor`` was written by ``name`` where nothing is recorded; return it."""
    version_of(tensor).bump(name, here(2))
    return tensor


def publish_method(function: Callable[..., Any], name: str | None = None, public: bool = True) -> None:
    """Enter an in-place function in ``ops`` and make it a method."""
    function.__name__ = function.__qualname__ = name = name or function.__name__
    setattr(ops, name, function)
    if public:
        attach(name, function)


def inplace_writer(name: str, write: Callable[..., Any], public: bool = True) -> Callable[..., Any]:
    """Publish ``name_`` for the operator whose kernel is ``write`` on a copy of its first argument."""
    op = operators()[name]

    def function(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_target(name + "_", self)
        return write_recorded(op, write, bind(op, (self, *args), kwargs), name + "_")

    function.__doc__ = f"In-place version of :func:`wengert.{name}`."
    publish_method(function, name + "_", public)
    return function


def check_target(name: str, value: Any) -> None:
    """Refuse to write into what is no tensor or may not be written."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}() writes into a tensor, got {type(value).__name__}")
    check_writable(name, value)


def write_recorded(op: Any, write: Callable[..., Any], values: list[Any], name: str) -> Any:
    """Run ``write`` on the memory of the first of the bound values, recorded as a call of ``op``; return it."""
    tensor = values[0]
    if thread.state.watchers or thread.state.captures or not all(_holds_arrays(v) for v in values):
        return adopt(name, tensor, execute(op, values))
    result = _result(op, values, name) if recording(*values) else None
    arrays = [_array(v) for v in values]
    at, names = op.signature.positional, op.signature.names
    try:
        thread.state.run(partial(write, *arrays[:at], **dict(zip(names[at:], arrays[at:], strict=True))))
    except (ValueError, IndexError) as error:
        kind = ShapeError if type(error) is ValueError else type(error)
        text = str(error)
        raise kind(text if "(): " in text else f"{name}(): {text}") from None
    version_of(tensor).bump(name, here(1))
    if result is not None:
        rehistory(tensor, result)
    return tensor


def _holds_arrays(value: Any) -> bool:
    """True if no tensor among the values belongs to a transform."""
    if isinstance(value, tuple):
        return all(_holds_arrays(v) for v in value)
    return not isinstance(value, Tensor) or isinstance(value._payload, np.ndarray)


def _result(op: Any, values: list[Any], name: str) -> Any:
    """Record a call of ``op`` and return its result, a tensor on the memory that is about to be written."""
    tensor = values[0]
    found = op.infer(specs(values))
    if found.shape != tuple(tensor._payload.shape) or found.dtype is not tensor.dtype:
        raise DTypeError(
            f"{name}(): a result of {found.dtype} and shape {tuple(found.shape)} cannot be written into a tensor of "
            f"{tensor.dtype} and shape {tuple(tensor.shape)}"
        )
    result = from_array(tensor._payload)
    record(op, values, [result])
    check_view(name, tensor, result)
    return result


def _array(value: Any) -> Any:
    if isinstance(value, tuple):
        return [v._payload if isinstance(v, Tensor) else v for v in value]
    return value._payload if isinstance(value, Tensor) else value

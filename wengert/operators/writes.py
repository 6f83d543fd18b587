"""In-place twins of operators that are a copy of their first argument into which something is written.

Such an operator, ``index_add`` say, is two functions: ``write(array, ...)`` changes an array, and the kernel is that
function on a copy. The in-place twin runs ``write`` on the tensor's own memory and, if a gradient is wanted, records
the operator as if it had been called and gives the tensor its history.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.core.apply import bind, call, specs
from wengert.core.inplace import adopt, check_view, check_writable, rehistory
from wengert.core.methods import attach
from wengert.core.place import here
from wengert.core.record import record
from wengert.core.registry import operators, ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, from_array, refresh, version_of
from wengert.errors import DTypeError

__all__ = ["inplace_twin", "inplace_writer", "publish_method", "recording", "write_recorded", "written"]


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


def inplace_twin(name: str, public: bool = True) -> Callable[..., Any]:
    """Publish ``name_``: the operator's result written back into its first argument."""

    def function(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_writable(name + "_", _tensor(self, name))
        return adopt(name + "_", self, getattr(ops, name)(self, *args, **kwargs))

    function.__doc__ = f"In-place version of :func:`wengert.{name}`."
    publish_method(function, name + "_", public)
    return function


def inplace_writer(name: str, write: Callable[..., Any], public: bool = True) -> Callable[..., Any]:
    """Publish ``name_`` for the operator whose kernel is ``write`` on a copy of its first argument."""
    op = operators()[name]
    saves_input = op.rules is not None and 0 in op.rules.plan((1 << len(op.signature.inputs)) - 1).keep_inputs

    def function(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_writable(name + "_", _tensor(self, name))
        overwritten = saves_input and recording(self, *args, *kwargs.values())
        if overwritten or (op.widen and self.dtype.is_half) or not isinstance(self._payload, np.ndarray):
            return adopt(name + "_", self, call(op, (ops.clone(self) if overwritten else self, *args), kwargs))
        return write_recorded(op, write, bind(op, (self, *args), kwargs))

    function.__doc__ = f"In-place version of :func:`wengert.{name}`."
    publish_method(function, name + "_", public)
    return function


def _tensor(value: Any, name: str) -> Any:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}_() writes into a tensor, got {type(value).__name__}")
    return value


def write_recorded(op: Any, write: Callable[..., Any], values: list[Any]) -> Any:
    """Run ``write`` on the memory of the first value, recorded as ``op``; values are bound. Return the tensor."""
    tensor, name = values[0], op.name.rstrip("_") + "_"
    found = op.infer(specs(values))
    if found.shape != tuple(tensor._payload.shape) or found.dtype is not tensor.dtype:
        raise DTypeError(
            f"{name}(): a result of {found.dtype} and shape {tuple(found.shape)} cannot be written into a tensor of "
            f"{tensor.dtype} and shape {tuple(tensor.shape)}"
        )
    state = thread.state
    result = from_array(tensor._payload)
    if state.grad:
        record(op, values, [result])
        check_view(name, tensor, result)
    arrays = [_array(v) for v in values]
    at, names = op.signature.positional, op.signature.names
    try:
        state.run(lambda: write(*arrays[:at], **dict(zip(names[at:], arrays[at:], strict=True))))
    except (ValueError, IndexError) as error:
        raise type(error)(f"{name}(): {error}") from None
    version_of(tensor).bump(name, here(1))
    if state.grad:
        rehistory(tensor, result)
    return tensor


def _array(value: Any) -> Any:
    if isinstance(value, tuple):
        return [v._payload if isinstance(v, Tensor) else v for v in value]
    return value._payload if isinstance(value, Tensor) else value

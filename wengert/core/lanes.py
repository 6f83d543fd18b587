"""The fast lanes: element-wise operators on float32 and float64 tensors, one Python function deep.

Small tensors live or die by Python overhead, so each lane is one closure, made when its operator is declared, that
calls the NumPy ufunc and fills the result and its node field by field. Whatever is not the common case (other dtypes,
keyword arguments, modes) goes to the general lane, which gives the same result.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.core.apply import call as general
from wengert.core.native import native
from wengert.core.node import OpNode, Version, next_sequence
from wengert.core.operator import Op
from wengert.core.place import _internal, here
from wengert.core.record import record
from wengert.core.state import State, local, thread
from wengert.core.tensor import Tensor, from_array, refresh

__all__ = ["binary_lane", "general_lane", "product_lane", "unary_lane"]

INTENSE = 32  # multiplications that count as one element when it is asked whether a product is large

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
_new_tensor: Callable[[type[Any]], Any] = object.__new__
_new_node, _new_version = OpNode.__new__, Version.__new__
_frame = sys._getframe
ndarray, asarray = np.ndarray, np.asarray


def general_lane(op: Op) -> Callable[..., Any]:
    """Return the public function of an operator without a fast lane."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return general(op, args, kwargs)

    return function


def _large(op: Op, state: State, ufunc: Any, *arguments: Any) -> Any:
    """Run an operator on large arrays: by its native kernel, if there is one; the rest of ``arguments`` are defaults."""
    try:
        array = native.run(op, arguments)
        return state.run(ufunc, *arguments[: ufunc.nin]) if array is NotImplemented else array
    except MemoryError as error:
        raise native.no_memory(error) from None


def _flags(op: Op, inputs: int) -> tuple[tuple[Any, tuple[bool, ...]], ...]:
    """Return, for each mask of inputs that need gradients, the plan and which of (inputs, result) it keeps."""
    table = op.rules
    if table is None:
        return ()
    found: list[tuple[Any, tuple[bool, ...]]] = []
    for mask in range(1 << inputs):
        if any(mask >> k & 1 and table.missing(i) for k, i in enumerate(table.inputs)):
            found.append((None, (False,) * (inputs + 1)))
            continue
        plan = table.plan(mask)
        keeps = tuple(i in plan.keep_inputs for i in range(inputs))
        found.append((plan, (*keeps, bool(plan.keep_outputs))))
    return tuple(found)


def unary_lane(op: Op) -> Callable[..., Any]:
    """Return the public function of an element-wise operator of one tensor."""
    ufunc, plans, plain = op.ufunc, _flags(op, 1), op.result in ("same", "real")
    defaults = tuple(slot.default for slot in op.signature.slots[1:])
    if (plans and plans[1][0] is None) or not plain:
        return general_lane(op)
    plan, (keep_input, keep_out) = plans[1] if plans else (None, (False, False))
    blank = (None,) * len(defaults)
    nothing = (None, *defaults, None), (None, *blank, None)
    recorded = op.family != "nondifferentiable"

    def function(input: Any, *rest: Any, **kwargs: Any) -> Any:
        try:
            state = local.state
        except AttributeError:
            state = thread.state
        if state.slow or rest or kwargs or not isinstance(input, Tensor):
            return general(op, (input, *rest), kwargs)
        x = input._payload
        dtype = x.dtype
        if dtype is not F32 and dtype is not F64:
            return general(op, (input,), {})
        array = state.run(ufunc, x) if x.size < native.smallest else _large(op, state, ufunc, x, *defaults)
        if type(array) is not ndarray:
            array = asarray(array)
        out = _new_tensor(Tensor)
        out._payload = array
        out._cell = out._view = out._grad = out._node = None
        if state.grad and recorded:
            origin = input._node if input._view is None else refresh(input)
            if origin is not None:
                if plan is None:
                    return general(op, (input,), {})
                node = _new_node(OpNode)
                node.plan, node.inputs = plan, (origin,)
                version = cell = None
                if keep_input:
                    version = 0 if input._cell is None else input._cell.count
                if keep_out:
                    out._cell = cell = _new_version(Version)
                    cell.count, cell.writes = 0, ()
                if not (keep_input or keep_out):
                    node.saved, node.versions = nothing
                elif defaults:
                    node.saved = (input if keep_input else None, *defaults, array if keep_out else None)
                    node.versions = (version, *blank, cell)
                else:
                    node.saved = (input if keep_input else None, array if keep_out else None)
                    node.versions = (version, cell)
                node.shape, node.dtype, node.extra, node.sequence = array.shape, array.dtype, None, next_sequence()
                frame = _frame(1)
                code = frame.f_code
                if _internal.get(code.co_filename, True):
                    node.code, node.lasti = here(1)
                else:
                    node.code, node.lasti = code, frame.f_lasti
                out._node = node
        return out

    return function


def binary_lane(op: Op, general: Callable[..., Any] = general) -> Callable[..., Any]:
    """Return the public function of an element-wise operator of two tensors (the second may be a number).

    Uncommon calls go to ``general``, called with the operator, the arguments and the keyword arguments.
    """
    ufunc, plans = op.ufunc, _flags(op, 2)
    defaults = tuple(slot.default for slot in op.signature.slots[2:])
    if defaults and any(any(keeps) for _, keeps in plans):
        return general_lane(op)  # what is kept here has no room for more arguments
    nothing = (None, None, *defaults, None), (None,) * (3 + len(defaults))
    recorded = op.family != "nondifferentiable"

    def function(input: Any, other: Any, *rest: Any, **kwargs: Any) -> Any:
        try:
            state = local.state
        except AttributeError:
            state = thread.state
        if state.slow or rest or kwargs or not isinstance(input, Tensor):
            return general(op, (input, other, *rest), kwargs)
        x = input._payload
        dtype = x.dtype
        if dtype is not F32 and dtype is not F64:
            return general(op, (input, other), {})
        if isinstance(other, Tensor):
            y = other._payload
            if y.dtype is not dtype:
                return general(op, (input, other), {})
            far = other._node if other._view is None else refresh(other)
            large = x.size >= native.smallest or y.size >= native.smallest
        elif type(other) is float or type(other) is int:
            y, far, large = other, None, x.size >= native.smallest
        else:
            return general(op, (input, other), {})
        try:
            array = state.run(ufunc, x, y) if not large else _large(op, state, ufunc, x, y, *defaults)
        except (ValueError, OverflowError):
            return general(op, (input, other), {})
        if type(array) is not ndarray:
            array = asarray(array)
        out = _new_tensor(Tensor)
        out._payload = array
        out._cell = out._view = out._grad = out._node = None
        if state.grad and recorded:
            near = input._node if input._view is None else refresh(input)
            if near is not None or far is not None:
                plan, (keep_x, keep_y, keep_out) = plans[(near is not None) | (far is not None) << 1]
                if plan is None:
                    return general(op, (input, other), {})
                node = _new_node(OpNode)
                node.plan, node.inputs = plan, (near, far)
                if keep_x or keep_y or keep_out:
                    saved_x = saved_y = version_x = version_y = cell = None
                    if keep_x:
                        saved_x, version_x = input, 0 if input._cell is None else input._cell.count
                    if keep_y:
                        saved_y = other
                        if y is not other:
                            version_y = 0 if other._cell is None else other._cell.count
                    if keep_out:
                        out._cell = cell = _new_version(Version)
                        cell.count, cell.writes = 0, ()
                    node.saved = (saved_x, saved_y, array if keep_out else None)
                    node.versions = (version_x, version_y, cell)
                else:
                    node.saved, node.versions = nothing
                node.shape, node.dtype, node.extra, node.sequence = array.shape, array.dtype, None, next_sequence()
                frame = _frame(1)
                code = frame.f_code
                if _internal.get(code.co_filename, True):
                    node.code, node.lasti = here(1)
                else:
                    node.code, node.lasti = code, frame.f_lasti
                out._node = node
        return out

    return function


def product_lane(op: Op) -> Callable[..., Any]:
    """Return the public function of a product of two tensors that takes nothing else.

    Its size is that of its operands or, if that says more, its number of multiplications.
    """
    kernel = op.kernel

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            state = local.state
        except AttributeError:
            state = thread.state
        if state.slow or kwargs or len(args) != 2:
            return general(op, args, kwargs)
        input, other = args
        if not isinstance(input, Tensor) or not isinstance(other, Tensor):
            return general(op, args, {})
        x, y = input._payload, other._payload
        dtype = x.dtype
        if (dtype is not F32 and dtype is not F64) or dtype is not y.dtype or not type(x) is type(y) is ndarray:
            return general(op, args, {})
        size, smallest = x.size, native.smallest
        try:
            if size >= smallest or y.size >= smallest or (y.ndim and size * y.shape[-1] >= INTENSE * smallest):
                array = native.run(op, (x, y))
                if array is NotImplemented:
                    array = state.run(kernel, x, y)
            else:
                array = state.run(kernel, x, y)
        except (ValueError, RuntimeError, MemoryError):
            return general(op, args, {})
        out = from_array(array if type(array) is ndarray else asarray(array))
        if state.grad:
            record(op, [input, other], [out])
        return out

    return function


def reflected_lane(op: Op, general: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``(tensor, number) -> op(number, tensor)``: what Python calls for ``2 - x``, ``1 / x`` and the like."""
    ufunc, plans = op.ufunc, _flags(op, 2)
    recorded = bool(plans) and plans[2][0] is not None
    plan, (keep_number, keep_tensor, keep_out) = plans[2] if recorded else (None, (False,) * 3)
    defaults = tuple(slot.default for slot in op.signature.slots[2:])

    def function(other: Any, input: Any) -> Any:
        try:
            state = local.state
        except AttributeError:
            state = thread.state
        y = other._payload
        dtype = y.dtype
        if state.slow or (dtype is not F32 and dtype is not F64):
            return general(op, (input, other), {})
        if type(input) is not float and type(input) is not int:
            return general(op, (input, other), {})
        try:
            small = y.size < native.smallest
            array = state.run(ufunc, input, y) if small else _large(op, state, ufunc, input, y, *defaults)
        except (ValueError, OverflowError):
            return general(op, (input, other), {})
        if type(array) is not ndarray:
            array = asarray(array)
        out = _new_tensor(Tensor)
        out._payload = array
        out._cell = out._view = out._grad = out._node = None
        if state.grad and recorded:
            far = other._node if other._view is None else refresh(other)
            if far is not None:
                node = _new_node(OpNode)
                node.plan, node.inputs = plan, (None, far)
                version = cell = None
                if keep_tensor:
                    version = other._cell
                    version = 0 if version is None else version.count
                if keep_out:
                    out._cell = cell = Version()
                number, tensor = input if keep_number else None, other if keep_tensor else None
                if defaults:
                    node.saved = (number, tensor, *defaults, array if keep_out else None)
                    node.versions = (None, version, *(None,) * len(defaults), cell)
                else:
                    node.saved, node.versions = (number, tensor, array if keep_out else None), (None, version, cell)
                node.shape, node.dtype, node.extra, node.sequence = array.shape, array.dtype, None, next_sequence()
                frame = _frame(1)
                code = frame.f_code
                if _internal.get(code.co_filename, True):
                    node.code, node.lasti = here(1)
                else:
                    node.code, node.lasti = code, frame.f_lasti
                out._node = node
        return out

    return function

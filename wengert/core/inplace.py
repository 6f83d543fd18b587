"""In-place operators: write the memory, then give the tensor (and, through a view, its base) its new history.

An in-place operator is its functional twin followed by :func:`adopt`. Where nothing is recorded and the dtypes agree,
the ufunc writes straight into the tensor's memory.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from wengert.array.device import devices
from wengert.array.dtype import can_cast
from wengert.core.apply import call, execute
from wengert.core.casting import uncast
from wengert.core.interpret import Layout, Payload, has_history, write
from wengert.core.native import native
from wengert.core.node import Leaf, OpNode, next_sequence
from wengert.core.operator import Op
from wengert.core.place import here
from wengert.core.registry import operators
from wengert.core.state import local, thread
from wengert.core.tensor import INFERENCE, Tensor, from_array, keep_retaining, refresh, version_of
from wengert.errors import DTypeError, InplaceError, ShapeError

__all__ = ["adopt", "check_writable", "inplace_lane", "overlaps"]


def overlaps(array: Any) -> bool:
    """True if two elements of the array may lie at the same address (an expanded or windowed view)."""
    if array.flags.forc:
        return False
    strides = sorted((s, n) for n, s in zip(array.shape, (abs(s) for s in array.strides), strict=True) if n > 1)
    reach = array.dtype.itemsize
    for stride, size in strides:
        if stride < reach:
            return bool(array.size)
        reach = stride * (size - 1) + reach
    return False


def check_writable(name: str, tensor: Any) -> None:
    """Refuse an in-place write that PyTorch refuses: leaves, views of leaves, overlapping or read-only memory."""
    state = thread.state
    array = tensor._payload
    if isinstance(array, Payload) and isinstance(array.level, Layout):
        pass  # what is written gets memory of its own
    elif type(array) is not np.ndarray and array.parts:
        check_writable(name, array.carrier)
    elif overlaps(array):
        raise InplaceError(
            f"{name}(): several elements of the written tensor (shape {tuple(array.shape)}) share one memory location; "
            "clone() it first"
        )
    elif not array.flags.writeable:
        raise InplaceError(f"{name}(): the tensor lies in read-only memory; clone() it first")
    if tensor._cell is INFERENCE and not state.inference:
        raise InplaceError(
            f"{name}(): a tensor made in inference_mode() cannot be changed outside it; "
            "change it inside, or change a normal copy made with clone()"
        )
    if not state.grad:
        return
    view = tensor._view
    node = tensor._node if view is None else refresh(tensor)
    if isinstance(node, Leaf):
        raise InplaceError(
            f"{name}(): a leaf that requires grad is being changed in place; do it under no_grad(), or change a copy"
        )
    if view is not None and isinstance(view.base._node, Leaf):
        raise InplaceError(f"{name}(): a view of a leaf that requires grad is being changed in place; use no_grad()")


def adopt(name: str, tensor: Any, result: Any) -> Any:
    """Write ``result`` into ``tensor``, which takes over its history; return ``tensor``."""
    target, source = tensor._payload, result._payload
    if source.shape != target.shape:
        try:
            if type(source) is np.ndarray:
                source = np.broadcast_to(source, target.shape)
            else:
                result = execute(operators()["expand"], [result, target.shape])
                source = result._payload
        except ValueError:  # NumPy's, or the ShapeError of expand
            raise ShapeError(
                f"{name}(): a result of shape {tuple(source.shape)} does not fit the tensor of shape "
                f"{tuple(target.shape)} it is written to"
            ) from None
    if not can_cast(result.dtype, tensor.dtype):
        raise DTypeError(f"{name}(): a result of {result.dtype} cannot be written into a tensor of {tensor.dtype}")
    state = thread.state
    if state.grad:
        check_view(name, tensor, result)
    if type(target) is np.ndarray and type(source) is np.ndarray:
        np.copyto(target, source, casting="unsafe")
        version_of(tensor).bump(name, here(1))
    else:
        write(name, tensor, result)
    if state.grad:
        rehistory(tensor, result)
    return tensor


def check_view(name: str, tensor: Any, result: Any) -> None:
    """Refuse a recorded write through a view whose history cannot be rebased."""
    view = tensor._view
    if view is None or view.problem is None:
        return
    if result._node is not None or refresh(tensor) is not None or view.base._node is not None:
        raise InplaceError(f"{name}(): this view may not be changed in place while recording, because {view.problem}; "
                           "clone() it first, or write to its base")  # fmt: skip


def rehistory(tensor: Any, result: Any) -> None:
    """Give a written tensor the history of ``result``; through a view, rebase the base's history."""
    old = tensor._node
    view = tensor._view
    fresh = _fitted(result, tensor)
    if view is None:
        tensor._node = fresh
    elif fresh is not None or view.base._node is not None:
        view.base._node = _written(view, fresh)
        tensor._node = None
        refresh(tensor)
    keep_retaining(old, tensor._node)


def _fitted(result: Any, tensor: Any) -> Any:
    """Return the node of ``result`` cast and broadcast to the tensor it was written to."""
    if result._node is None:
        return None
    if result._payload.shape != tensor._payload.shape:
        result = execute(operators()["expand"], [result, tensor._payload.shape])
    if result._payload.dtype != tensor._payload.dtype:
        result = execute(operators()["cast"], [result, tensor.dtype])
    return result._node


def _written(view: Any, fresh: Any) -> OpNode:
    """Return the node of a base into which a view was written: operator ``view_write`` without running it."""
    op = operators()["view_write"]
    base = view.base
    node = OpNode.__new__(OpNode)
    node.inputs, node.extra = (base._node, fresh), None
    mask = (base._node is not None) | (fresh is not None) << 1
    node.plan = op.rules.plan(mask)
    node.saved, node.versions = (None, None, view.chain), (None, None, None)
    node.code, node.lasti = here(1)
    node.shape, node.dtype, node.sequence = base._payload.shape, base._payload.dtype, next_sequence()
    return node


def inplace_lane(op: Op) -> Callable[..., Any]:
    """Return the in-place twin (``add_``) of an element-wise operator."""
    name = op.name + "_"
    saves_input = op.composite or (
        op.rules is not None and 0 in op.rules.plan((1 << len(op.signature.inputs)) - 1).keep_inputs
    )
    ufunc = op.ufunc if op.result == "same" else None

    def function(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}() writes into a tensor, got {type(input).__name__}")
        check_writable(name, input)
        if ufunc is not None and not kwargs and len(args) <= 1 and _direct(op, ufunc, input, args):
            version_of(input).bump(name, here(1))
            return input
        source = _copy_of(input) if saves_input and _recording(input, *args, *kwargs.values()) else input
        run = call if local.state.casting is None else partial(uncast, call)  # what is written keeps its dtype
        return adopt(name, input, run(op, (source, *args), kwargs))

    function.__name__ = name
    function.__doc__ = f"In-place version of :func:`wengert.{op.name}`."
    return function


def _recording(*values: Any) -> bool:
    """True if an operator on these values would be recorded."""
    if not thread.state.grad:
        return False
    return any(has_history(v) for v in values if isinstance(v, Tensor))


def _copy_of(tensor: Any) -> Any:
    """Return the tensor as it is before it is written: what backward will need of it."""
    if not isinstance(tensor._payload, np.ndarray):
        return call(operators()["clone"], (tensor,), {})
    source = from_array(tensor._payload.copy())
    source._node = tensor._node
    return source


def _direct(op: Op, ufunc: Any, tensor: Any, args: tuple[Any, ...]) -> bool:
    """Let the ufunc write into the tensor's own memory where nothing is recorded; False if it is not possible."""
    state = thread.state
    array = tensor._payload
    if type(array) is not np.ndarray or state.watchers or state.captures or devices.several:
        return False
    if array.dtype.kind != "f" or array.dtype.itemsize < 4 or ufunc.nin != len(args) + 1:
        return False
    operands: list[Any] = [array]
    if state.grad and tensor._view is not None and tensor._view.base._node is not None:
        return False
    if state.grad and tensor._node is not None:
        return False
    for value in args:
        if isinstance(value, Tensor):
            other = value._payload
            needs = (value._node if value._view is None else refresh(value)) is not None
            if type(other) is not np.ndarray or other.dtype != array.dtype or (state.grad and needs):
                return False
            if other.ndim > array.ndim:
                return False
            operands.append(other)
        elif type(value) in (int, float):
            operands.append(value)
        else:
            return False
    if array.size >= native.smallest:
        defaults = (slot.default for slot in op.signature.slots[len(operands) :])
        if native.run(op, (*operands, *defaults), array) is not NotImplemented:
            return True
    try:
        state.run(ufunc, *[*operands, array])
    except ValueError:
        return False
    return True

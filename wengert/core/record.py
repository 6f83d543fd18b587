"""Recording: the node of one operator call, with exactly what its backward will need."""

from typing import Any

import numpy as np

from wengert.core.node import OpNode, Output, Version, next_sequence
from wengert.core.operator import Op
from wengert.core.place import describe, here
from wengert.core.state import State, thread
from wengert.core.tensor import Tensor, from_array, refresh, version_of
from wengert.errors import InplaceError, MissingRuleError

__all__ = ["Packed", "pack", "record", "unpack"]

_DIFFERENTIABLE = "fcV"  # the dtype kinds of NumPy (and of bfloat16) that carry gradients


class Packed:
    """A saved tensor as the user's pack hook returned it."""

    __slots__ = ("packed", "unpack")

    def __init__(self, packed: Any, unpack: Any) -> None:
        self.packed, self.unpack = packed, unpack


def _edges(op: Op, values: list[Any]) -> tuple[list[Any], int]:
    """Return the nodes of all tensor arguments, in order, and the mask of arguments that need gradients."""
    nodes: list[Any] = []
    mask, bit = 0, 1
    for i in op.signature.inputs:
        value = values[i]
        if isinstance(value, Tensor):
            node = value._node if value._view is None else refresh(value)
            if node is not None:
                mask |= bit
            nodes.append(node)
        elif isinstance(value, tuple):
            for v in value:
                node = v._node if v._view is None else refresh(v)
                if node is not None:
                    mask |= bit
                nodes.append(node)
        else:
            nodes.append(None)
        bit <<= 1
    return nodes, mask


def record(op: Op, values: list[Any], results: list[Any]) -> None:
    """Give the results their nodes, if any tensor argument requires a gradient and the results can carry one."""
    nodes, mask = _edges(op, values)
    if not mask or op.family == "nondifferentiable":
        return
    first = results[0]._payload if results else None
    if not (first is not None and first.dtype.kind in _DIFFERENTIABLE) and not any(
        r._payload.dtype.kind in _DIFFERENTIABLE for r in results
    ):
        return
    rules = op.rules
    if rules is None or mask & rules.without:
        raise _no_rule(op, mask)
    node: OpNode = OpNode.__new__(OpNode)
    node.inputs = tuple(nodes)
    node.code, node.lasti = here(1)
    node.extra = None
    node.sequence = next_sequence()
    node.shape, node.dtype = first.shape, first.dtype  # type: ignore[union-attr]
    node.plan = rules.plan(mask, node.dtype.kind == "c")
    _save(node, node.plan, values, results)
    if op.single:
        results[0]._node = node
        return
    for k, result in enumerate(results):
        if result._payload.dtype.kind in _DIFFERENTIABLE:
            result._node = Output(node, k, result._payload)


def _no_rule(op: Op, mask: int) -> MissingRuleError:
    """Return the error for a tensor argument that needs a gradient and has no rule for it."""
    names = [
        op.signature.names[i]
        for k, i in enumerate(op.signature.inputs)
        if mask >> k & 1 and (op.rules is None or op.rules.missing(i))
    ]
    return MissingRuleError(
        f"{op.name}() has no derivative with respect to '{names[0]}', which requires one; detach it, or declare the rule"
    )


def _save(node: OpNode, plan: Any, values: list[Any], results: list[Any]) -> None:
    saved: list[Any] = [None] * (plan.width + 2)
    versions: list[Any] = [None] * plan.width
    state = thread.state
    for i in plan.keep_params:
        saved[i] = values[i]
    for i in plan.keep_inputs:
        value = values[i]
        if isinstance(value, tuple):
            kept = [_keep(v, state) for v in value]
            saved[i], versions[i] = tuple(k[0] for k in kept), tuple(k[1] for k in kept)
        elif isinstance(value, Tensor):
            saved[i], versions[i] = _keep(value, state)
        else:
            saved[i] = value
    for slot, k in plan.keep_outputs:
        _keep_output(saved, versions, slot, results if node.op.variable else results[k], state)
    for slot, i in plan.keep_shapes:
        value = values[i]
        saved[slot] = value._payload.shape if isinstance(value, Tensor) else _of(value, lambda t: t._payload.shape)
    for slot, i in plan.keep_dtypes:
        saved[slot] = _of(values[i], lambda t: t.dtype)
    if plan.grouped:
        saved[plan.width] = tuple(
            len(v) if isinstance(v, tuple) else 1 for v in (values[i] for i in plan.op.signature.inputs)
        )
    if not plan.op.single:
        saved[plan.width + 1] = tuple((r._payload.shape, r._payload.dtype) for r in results)
    node.saved, node.versions = saved, versions


def _of(value: Any, attribute: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(attribute(v) for v in value)
    return attribute(value) if isinstance(value, Tensor) else ()


def _keep(tensor: Any, state: State) -> tuple[Any, Any]:
    """Return what is kept of a saved argument, and its version."""
    if state.saved_hooks:
        return pack(tensor, state), None
    version = tensor._cell
    return tensor, 0 if version is None else version.count


def _keep_output(saved: list[Any], versions: list[Any], slot: int, result: Any, state: State) -> None:
    if state.saved_hooks:
        saved[slot] = pack(result, state)
        return
    if result._cell is None:
        result._cell = Version()
    _ = result._cell.count
    saved[slot], versions[slot] = result._payload, result._cell


def pack(tensor: Any, state: State) -> Packed:
    """Return a saved tensor as the innermost pack hook returned it."""
    pack, unpack_hook = state.saved_hooks[-1]
    plain = from_array(tensor._payload)
    plain._cell = cell = version_of(tensor)
    plain._node = tensor._node
    before = cell.count
    grad, state.grad = state.grad, False
    hooks, state.saved_hooks = state.saved_hooks, []
    try:
        packed = pack(plain)
    finally:
        state.grad, state.saved_hooks = grad, hooks
    if cell.count != before:
        raise InplaceError("a pack hook must not change the tensor it is given in place; return a changed copy")
    return Packed(packed, unpack_hook)


def unpack(node: OpNode, slot: int, needs: tuple[bool, ...] | None = None) -> Any:
    """Return a value a rule asked for, as it was when it was saved.

    Raises:
        InplaceError: if its memory was written since.
    """
    if slot < 0:
        return needs
    value = node.saved[slot]
    version = node.versions[slot]
    if isinstance(value, Packed):
        return _unpacked(node, slot, value)
    if version is None:
        return value
    if isinstance(value, Tensor):
        cell = value._cell
        if cell is not None and cell.count != version:
            raise _overwritten(node, slot, value._payload, cell, version)
        return _with_node(node, slot, value) if thread.state.grad else value
    if isinstance(value, tuple):
        return tuple(_checked(node, slot, v, n) for v, n in zip(value, version, strict=True))
    if version.count:
        raise _overwritten(node, slot, value, version, 0)
    out = from_array(value)
    out._cell = version
    if thread.state.grad:
        out._node = _output_node(node, slot)
    return out


def _checked(node: OpNode, slot: int, value: Any, version: Any) -> Any:
    if isinstance(value, Packed):
        return _unpacked(node, slot, value)
    if value._cell is not None and value._cell.count != version:
        raise _overwritten(node, slot, value._payload, value._cell, version)
    return value


def _with_node(node: OpNode, slot: int, value: Any) -> Any:
    """Return a saved argument attached to the node it had when it was saved."""
    inputs = node.op.signature.inputs
    if slot not in inputs:
        return value
    edge = node.inputs[_position(node, inputs.index(slot))]
    if value._node is edge:
        return value
    out = from_array(value._payload)
    out._cell, out._node = value._cell, edge
    return out


def _position(node: OpNode, number: int) -> int:
    """Return where the nodes of the tensor argument with this number start in ``node.inputs``."""
    counts = node.saved[node.plan.width] if len(node.saved) > node.plan.width else None
    return number if counts is None else sum(counts[:number])


def _output_node(node: OpNode, slot: int) -> Any:
    if node.outputs == 1:
        return node
    number = slot - len(node.op.signature.names)
    shape, dtype = node.saved[node.plan.width + 1][number]
    return Output(node, number, np.empty(shape, dtype)) if dtype.kind in _DIFFERENTIABLE else None


def _unpacked(node: OpNode, slot: int, value: Packed) -> Any:
    tensor = value.unpack(value.packed)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"the unpack hook must return a tensor, got {type(tensor).__name__}")
    if not thread.state.grad:
        return tensor
    out = from_array(tensor._payload)
    inputs = node.op.signature.inputs
    if slot in inputs:
        out._node = node.inputs[_position(node, inputs.index(slot))]
    elif slot >= len(node.op.signature.names):
        out._node = _output_node(node, slot)
    return out


def _overwritten(node: OpNode, slot: int, array: Any, cell: Version, version: int) -> InplaceError:
    names = (*node.op.signature.names, *node.op.outputs)
    what = f"result '{names[slot]}'" if slot >= len(node.op.signature.names) else f"argument '{names[slot]}'"
    return InplaceError(
        f"a tensor that backward needs was changed in place.\n"
        f"  saved: {what} of {node.op.name}(), shape {tuple(array.shape)}, version {version}, at {describe(node.place)}\n"
        f"  changed: by {cell.first_write_after(version)}, now version {cell.count}\n"
        f"  change it out of place (x = x * 2 instead of x *= 2), or save a copy: pass x.clone() to {node.op.name}()"
    )

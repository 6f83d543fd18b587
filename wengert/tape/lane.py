"""The fast lane of backward: nodes with one result, no hooks, while the pass itself is not recorded.

Gradients travel as NumPy arrays here. A rule that is plain arithmetic runs on the arrays themselves; any other rule gets
tensors. Whatever is special about a node sends it to :meth:`Walk.visit`, which gives the same result.
"""

from heapq import heappop, heappush
from typing import Any

import numpy as np

from wengert.array.device import devices, index_of
from wengert.core.native import native
from wengert.core.node import Freed, Leaf, OpNode
from wengert.core.place import describe
from wengert.core.record import Packed, unpack
from wengert.core.registry import ops
from wengert.core.state import State
from wengert.core.tensor import Tensor, from_array
from wengert.errors import GraphFreedError, ShapeError
from wengert.tape.accumulate import accumulate, into_leaf

__all__ = ["GRADIENT", "LEFT", "OWNED", "ZERO", "Pending", "drain", "fitted", "freed_error", "noted", "wrapped"]

Pending = list[Any]
# What the table holds of a node: gradients still to come, whether their sum so far is ours to write into, that sum (last).
LEFT, OWNED, GRADIENT = 0, 1, 2


class Zero:
    """A gradient known to be zero without being made: no rule multiplies it, so 0 · inf cannot make it NaN."""

    __slots__ = ()


ZERO = Zero()

ndarray, asarray = np.ndarray, np.asarray
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def drain(walk: Any, state: State) -> None:
    """Run ready nodes until none is left."""
    ready, table, targets = walk.ready, walk.table, walk.targets
    plain = not walk.create and not state.anomaly and state.captures is None
    keep, freed, run, into_leaves = walk.keep, walk.freed, state.run, walk.into_leaves
    following: Any = None
    while following is not None or ready:
        node, following = heappop(ready)[2] if following is None else following, None
        pending = table[node]
        special = not plain or node.extra is not None or (targets is not None and node in targets)
        if not special and type(node) is Leaf:
            if pending[GRADIENT] is ZERO:
                pending[GRADIENT] = np.zeros(node.shape, node.dtype)
            if into_leaves:
                into_leaf(node, pending, False)
            continue
        g = pending[GRADIENT]
        if special or type(node) is not OpNode or g is None or g is ZERO or not_simple(node):
            walk.visit(node, pending, state)
            continue
        pending[GRADIENT] = None
        inputs = node.inputs
        large = (g if type(g) is ndarray else g._payload).size >= native.smallest
        for number, rule, slots, arithmetic in node.plan.rules:
            after = inputs[number]
            waiting = table.get(after)
            if waiting is None:
                continue
            try:
                found, saved = g if arithmetic == "identity" else None, None
                if found is None and large and node.plan.op.batch == "broadcast":
                    saved = [unpack(node, slot) for slot in slots]
                    found = native_rule(rule, g, saved)
                if found is None and arithmetic:
                    found = on_arrays(run, rule, g, node, slots)
                if found is None:
                    saved = [unpack(node, slot) for slot in slots] if saved is None else saved
                    found = rule(g := wrapped(g), *saved)
            except Exception as error:
                raise noted(error, node) from None
            array = found if type(found) is ndarray else found._payload
            if array.shape != after.shape or array.dtype is not after.dtype:
                fit = fitted_array(run, after, array) if array.dtype is after.dtype else None
                found = fitted(node, after, wrapped(found)) if fit is None else fit
            held = waiting[GRADIENT]
            if held is None or held is ZERO:
                waiting[GRADIENT] = found
            else:
                waiting[GRADIENT] = accumulate(wrapped(held), wrapped(found), False, waiting[OWNED])
                waiting[OWNED] = True
            waiting[LEFT] -= 1
            if not waiting[LEFT]:
                if following is None and not ready:
                    following = after
                    continue
                heappush(ready, (-after.sequence, id(after), after))
                if following is not None:
                    heappush(ready, (-following.sequence, id(following), following))
                    following = None
        if not keep and node.plan.keeps_tensors:
            node.saved, node.versions = freed, None


def not_simple(node: OpNode) -> bool:
    """True for a node with several results or joint rules, or one that was freed."""
    return not node.plan.simple or type(node.saved) is Freed


def native_rule(rule: Any, g: Any, saved: list[Any]) -> Any:
    """Run the rule of an element-wise operator as one native kernel; None where there is none."""
    arguments = []
    for value in (g, *saved):
        array = value._payload if isinstance(value, Tensor) else value
        if array is not value and type(array) is not ndarray:
            return None
        arguments.append(array)
    found = native.rule(rule, arguments)
    return None if found is NotImplemented else found


def on_arrays(run: Any, rule: Any, g: Any, node: OpNode, slots: Any) -> Any:
    """Run an arithmetic rule on the arrays of unchanged tensors of one float dtype; None if they are not such."""
    x = g if type(g) is ndarray else g._payload
    dtype = node.dtype
    if (dtype is not F32 and dtype is not F64) or type(x) is not ndarray or x.dtype is not dtype:
        return None
    saved, versions = node.saved, node.versions
    arguments = []
    for slot in slots:
        value, version = saved[slot], versions[slot]
        if version is None:
            if type(value) is Packed:
                return None
        else:
            if type(version) is int:
                cell = value._cell
                if cell is not None and cell.count != version:
                    return None
                value = value._payload
            elif type(version) is tuple or version.count:
                return None
            if type(value) is not ndarray or value.dtype is not dtype:
                return None
        arguments.append(value)
    array = run(rule, x, *arguments)
    return array if type(array) is ndarray else asarray(array)


def wrapped(g: Any) -> Any:
    """Return a gradient in flight as a tensor."""
    return from_array(g) if type(g) is ndarray else g


def fitted_array(run: Any, after: Any, array: Any) -> Any:
    """Undo broadcasting on a plain float array; None where that is not all there is to do."""
    if type(array) is not ndarray or (array.dtype is not F32 and array.dtype is not F64):
        return None
    lead = array.ndim - len(after.shape)
    if lead > 0 and array.shape[lead:] == after.shape:
        return asarray(run(np.add.reduce, array, tuple(range(lead))))
    try:
        return asarray(run(ops.sum_to_size.op.kernel, array, after.shape))
    except RuntimeError:
        return None


def fitted(node: Any, after: Any, g: Any) -> Any:
    """Return a gradient in the shape and dtype of the tensor it belongs to: broadcasting and promotion are undone."""
    array = g._payload
    if array.shape != after.shape:
        try:
            g = ops.sum_to_size(g, after.shape)
        except ShapeError:
            raise ShapeError(
                f"the derivative of {node.title}() gave a gradient of shape {tuple(array.shape)} for a tensor of "
                f"shape {tuple(after.shape)}"
            ) from None
    if array.dtype is not after.dtype and array.dtype != after.dtype:
        g = ops.cast(g, after.dtype)
    if devices.several:
        index = index_of(after.dtype)
        if index_of(g._payload.dtype) != index:
            g = ops.copy_to_device(g, index)
    return g


def noted(error: Exception, node: OpNode) -> Exception:
    """Return an error with the forward operator and user line it belongs to as a note."""
    error.add_note(f"while differentiating {node.op.name}(), recorded at {describe(node.place)}")
    return error


def freed_error(node: Any) -> GraphFreedError:
    """Return the error for a second backward through a node."""
    return GraphFreedError(
        f"backward a second time through {node.title}() (recorded at {describe(node.place)}): what it saved was freed "
        f"by the first backward, at {describe(node.saved.place)}.\n"
        "  If a value computed in an earlier iteration is used again (a hidden state, a running loss), detach() it.\n"
        "  If two losses share a part, add them and call backward once, or pass retain_graph=True to the first."
    )

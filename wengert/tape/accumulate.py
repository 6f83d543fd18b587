"""Adding gradients up: in flight, into ``.grad`` of leaves, into tensors that retain theirs."""

import sys
import threading
from typing import Any

import numpy as np

from wengert.array.device import devices, index_of, placed
from wengert.core.inplace import adopt, overlaps
from wengert.core.interpret import Layout
from wengert.core.node import Leaf, Node
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import alias, from_array, wrote

__all__ = ["accumulate", "into_leaf", "reset", "retain"]


def _counted_by_asking() -> int:
    """Return how many references the question for their number adds: 1, and 0 from Python 3.14 on."""
    probe = object()
    return sys.getrefcount(probe) - 1


_references = sys.getrefcount
_OURS = 2 + _counted_by_asking()  # references to a gradient that none but :func:`_own` and its caller can see
_lock = threading.RLock()  # backward passes of several threads may share a leaf


def accumulate(held: Any, g: Any, create: bool, owned: bool) -> Any:
    """Return ``held + g``, written into ``held`` if nobody else can see it."""
    x, y = held._payload, g._payload
    if owned and not create and isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and x.shape:
        thread.state.run(np.add, x, y, x)
        return held
    return ops.add(held, g)


def _own(holder: list[Any], like: Any) -> Any:
    """Return the gradient at the end of ``holder`` as a tensor that shares memory with nothing.

    A gradient that only the walk can see is taken as it is (CPython's reference counts tell); any other is copied.
    """
    g = holder.pop()
    if type(g) is np.ndarray:
        array, fresh = g, _references(g) <= _OURS
    else:
        array = g._payload
        fresh = _references(g) <= _OURS and _references(array) <= _OURS
    fresh = fresh and array.base is None and array.flags.owndata
    if fresh and (array.flags.c_contiguous or not like.flags.c_contiguous):
        found = array
    else:
        found = np.array(array, order="C")
    return from_array(placed(found, index_of(like.dtype)) if devices.several else found)


def _as_tensor(g: Any) -> Any:
    return from_array(g) if type(g) is np.ndarray else g


def into_leaf(node: Leaf, holder: list[Any], create: bool) -> None:
    """Add the gradient at the end of ``holder`` to ``.grad`` of the leaf, then run its post-accumulate hooks.

    A leaf whose requires_grad was switched off since receives nothing.
    """
    tensor = node.tensor()
    if tensor is None or tensor._node is None or holder[-1] is None:
        return
    with _lock:
        _add_to(tensor, holder, create)
    if node.extra is not None:
        for hook in list(node.extra.post_accumulate.values()):
            hook(tensor)


def _add_to(tensor: Any, holder: list[Any], create: bool) -> None:
    captures = thread.state.captures
    if captures is not None:
        captures.touched(tensor)
    held = tensor._grad
    given = holder[-1]
    inside = type(given) is not np.ndarray and not isinstance(given._payload, np.ndarray)
    if captures is not None and not create and _is_writable(held):
        adopt("backward", held, ops.add(held, _as_tensor(holder.pop())))
    elif _has_layout(given) and not create and _is_writable(held) and type(held._payload) is np.ndarray:
        ops.add_(held, holder.pop())
    elif create or inside:
        g = holder.pop()
        if held is not None:
            tensor._grad = ops.add(held, g)
        elif create or not _has_layout(g):
            tensor._grad = ops.clone(g)
        else:
            tensor._grad = alias(g)
        if inside and isinstance(tensor._payload, np.ndarray):
            given._payload.level.keep(tensor._grad, tensor)
    elif held is None:
        tensor._grad = _own(holder, tensor._payload)
    elif _is_writable(held):
        g = holder.pop()
        array = g if type(g) is np.ndarray else g._payload
        thread.state.run(np.add, held._payload, array, held._payload)
        wrote(held, "backward")
    else:
        g = holder.pop()
        tensor._grad = ops.add(held, _as_tensor(g))


def _has_layout(g: Any) -> bool:
    """Whether a gradient is stored in a layout of its own, so that a write to it makes its memory anew."""
    payload = g if type(g) is np.ndarray else g._payload
    return not isinstance(payload, np.ndarray) and isinstance(payload.level, Layout)


def _is_writable(held: Any) -> bool:
    """Whether a gradient is there, and may be added to where it lies."""
    if held is None or held._node is not None or _has_layout(held):
        return False
    return bool(held._payload.flags.writeable) and not overlaps(held._payload)


def reset(tensor: Any, set_to_none: bool) -> None:
    """Drop the gradient of a tensor, or fill it with zeros where it lies."""
    grad = None if set_to_none else tensor.grad
    if grad is None:
        tensor.grad = None
    elif grad._node is None:
        ops.zero_(grad)
    else:  # its history goes
        tensor.grad = ops.zero_(grad.detach())


def retain(node: Node, g: Any, create: bool) -> None:
    """Keep the gradient on a non-leaf tensor that asked for it."""
    reference = node.extra.retain if node.extra is not None else None
    tensor = None if reference is None else reference()
    if tensor is None:
        return
    held = tensor._grad
    tensor._grad = ops.clone(g) if held is None else ops.add(held, g)

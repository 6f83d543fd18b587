"""Hooks on tensors and nodes, run in PyTorch's order: tensor hooks, node pre-hooks, retained gradient, node post-hooks.

Hooks of one kind run in the order of registration. Each registration returns a handle whose ``remove`` is harmless twice.
"""

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from wengert.core.node import Leaf, Node, retains
from wengert.core.state import thread
from wengert.core.structure import structure
from wengert.core.tensor import Tensor, node_of
from wengert.errors import DTypeError, ShapeError

__all__ = ["RemovableHandle", "add_hook", "run_post_hooks", "run_pre_hooks", "run_tensor_hooks"]


class RemovableHandle:
    """Removes the hook it was returned for, by ``remove()`` or at the end of a ``with`` block."""

    _numbers = itertools.count()

    def __init__(self, hooks: dict[int, Any]) -> None:
        self.hooks = hooks
        self.id = next(RemovableHandle._numbers)

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        structure.changes += 1
        self.hooks.pop(self.id, None)

    def __enter__(self) -> "RemovableHandle":
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def add_hook(hooks: dict[int, Any], hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    """Enter a hook in a table and return its handle."""
    if not callable(hook):
        raise TypeError(f"a hook must be callable, got {type(hook).__name__}")
    structure.changes += 1  # compiled programs look whether it concerns them
    handle = RemovableHandle(hooks)
    if prepend:
        rest = dict(hooks)
        hooks.clear()
        hooks[handle.id] = hook
        hooks.update(rest)
    else:
        hooks[handle.id] = hook
    return handle


def required_node(tensor: Any, what: str) -> Node:
    """Return a tensor's node, where hooks on it live; refuse one that has none."""
    node = node_of(tensor)
    if node is None:
        raise RuntimeError(f"cannot {what} a tensor that does not require grad")
    captures = thread.state.captures
    if captures is not None:
        captures.history.hooked(node)
    return node


def checked(node: Node, g: Any, replacement: Any, what: str) -> Any:
    """Return what a hook gave in place of ``g`` after checking it (None keeps ``g``)."""
    if replacement is None:
        return g
    if not isinstance(replacement, Tensor):
        raise TypeError(f"{what} must return a tensor or None, got {type(replacement).__name__}")
    if replacement._payload.shape != g._payload.shape:
        raise ShapeError(f"{what} on {node.name()} returned a gradient of shape {tuple(replacement.shape)}, "
                         f"expected {tuple(g.shape)}")  # fmt: skip
    if replacement._payload.dtype != g._payload.dtype:
        raise DTypeError(f"{what} on {node.name()} returned a gradient of {replacement.dtype}, expected {g.dtype}")
    return replacement


def run_tensor_hooks(node: Node, g: Any) -> Any:
    """Run the hooks of the tensor whose complete gradient is ``g``; return the gradient they leave."""
    if node.extra is None or isinstance(g, list):
        return g
    for hook in list(node.extra.tensor_hooks.values()):
        g = checked(node, g, hook(g), "a tensor hook")
    return g


def run_pre_hooks(node: Node, g: Any) -> Any:
    """Run the pre-hooks of a node on its incoming gradients."""
    if node.extra is None or not node.extra.pre_hooks:
        return g
    incoming: tuple[Any, ...] = tuple(g) if isinstance(g, list) else (g,)
    for hook in list(node.extra.pre_hooks.values()):
        found = hook(incoming)
        if found is not None:
            found = tuple(found) if isinstance(found, Sequence) else (found,)
            if len(found) != len(incoming):
                raise RuntimeError(
                    f"a pre-hook on {node.name()} returned {len(found)} gradients, expected {len(incoming)}"
                )
            incoming = tuple(b if a is None else checked(node, a, b, "a pre-hook")
                             for a, b in zip(incoming, found, strict=True))  # fmt: skip
    return list(incoming) if isinstance(g, list) else incoming[0]


def run_post_hooks(node: Node, found: list[Any], g: Any) -> list[Any]:
    """Run the post-hooks of a node on the gradients it gave (``found``) and received (``g``)."""
    if node.extra is None:
        return found
    outgoing = g if isinstance(g, tuple) else (g,)
    current: tuple[Any, ...] = tuple(found)
    for hook in list(node.extra.post_hooks.values()):
        changed = hook(current, outgoing)
        if changed is not None:
            changed = tuple(changed) if isinstance(changed, Sequence) else (changed,)
            if len(changed) != len(current):
                raise RuntimeError(
                    f"a hook on {node.name()} returned {len(changed)} gradients, expected {len(current)}"
                )
            current = tuple(b if a is None else checked(node, a, b, "a node hook")
                            for a, b in zip(current, changed, strict=True))  # fmt: skip
    return list(current)


def register_hook(self: Any, hook: Callable[[Any], Any]) -> RemovableHandle:
    """Call ``hook(grad)`` each time the gradient of this tensor is complete; what it returns replaces the gradient."""
    return add_hook(required_node(self, "register a hook on").more().tensor_hooks, hook)


def register_post_accumulate_grad_hook(self: Any, hook: Callable[[Any], Any]) -> RemovableHandle:
    """Call ``hook(tensor)`` after a gradient was accumulated into ``.grad`` of this leaf."""
    node = required_node(self, "register a hook on")
    if not isinstance(node, Leaf):
        raise RuntimeError("post-accumulate-grad hooks can only be registered on leaf tensors")
    return add_hook(node.more().post_accumulate, hook)


def retain_grad(self: Any) -> None:
    """Keep this non-leaf tensor's gradient in ``.grad`` when backward passes it. On a leaf it does nothing."""
    node = required_node(self, "retain the gradient of")
    if not isinstance(node, Leaf):
        node.more().retain = weakref.ref(self)


def retains_grad(self: Any) -> bool:
    """True if :meth:`retain_grad` was called on this non-leaf tensor."""
    node = node_of(self)
    return node is not None and retains(node, self)


def node_register_hook(self: Node, hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(grad_inputs, grad_outputs)`` after the node ran; what it returns replaces ``grad_inputs``."""
    return add_hook(self.more().post_hooks, hook)


def node_register_prehook(self: Node, hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(grad_outputs)`` before the node runs; what it returns replaces ``grad_outputs``."""
    return add_hook(self.more().pre_hooks, hook)

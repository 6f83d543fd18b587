"""A hook on several gradients at once."""

from collections.abc import Callable, Sequence
from typing import Any

from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.tape.hooks import RemovableHandle, add_hook, required_node

__all__ = ["MultiHandle", "register_multi_grad_hook"]


class MultiHandle:
    """Removes a hook from every tensor it was registered on."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> "MultiHandle":
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all") -> MultiHandle:
    """Call ``fn`` with the gradients of several tensors.

    Args:
        tensors: tensors that require grad.
        fn: with ``mode="all"`` called as ``fn(grads)`` once per backward, when every gradient of that backward is
            there, None for tensors it does not reach; with ``mode="any"`` as ``fn(grad)`` for the first to arrive.
        mode: "all" or "any".

    Returns:
        A handle with ``remove``.

    Raises:
        ValueError: for another mode.
        RuntimeError: for a tensor that does not require grad.

    Example:
        >>> import wengert as wg
        >>> a, b = wg.ones(2, requires_grad=True), wg.ones(2, requires_grad=True)
        >>> handle = wg.autograd.graph.register_multi_grad_hook([a, b], lambda grads: print([g.tolist() for g in grads]))
        >>> (a * 2 + b).sum().backward()
        [[2.0, 2.0], [1.0, 1.0]]
        >>> handle.remove()
    """
    if mode not in ("all", "any"):
        raise ValueError(f"mode must be 'all' or 'any', got {mode!r}")
    nodes = [required_node(t, "register a hook on") for t in tensors]
    key = object()

    def hook_for(index: int) -> Callable[[Any], None]:
        def hook(g: Any) -> None:
            walk = thread.state.walk
            arrived = walk.notes.setdefault(key, {})
            arrived[index] = g
            if mode == "any":
                if len(arrived) == 1:
                    fn(g)
            elif len(arrived) == sum(walk.reaches(node) for node in nodes):
                fn([arrived.get(i) for i in range(len(nodes))])

        return hook

    return MultiHandle([add_hook(node.more().tensor_hooks, hook_for(i)) for i, node in enumerate(nodes)])

"""Saved-tensor hooks: what backward keeps may be packed by the user (moved to disk, compressed) and unpacked later."""

from collections.abc import Callable
from typing import Any, Self

from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, wrote

__all__ = ["disable_saved_tensors_hooks", "increment_version", "save_on_cpu", "saved_tensors_hooks"]


class saved_tensors_hooks:  # noqa: N801 - PyTorch's name
    """Pass every tensor that is saved for backward through ``pack``, and what it returned through ``unpack`` when needed.

    Only the innermost pair applies. ``unpack(pack(t))`` must have the elements of ``t``.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor([1.0, 2.0], requires_grad=True)
        >>> pack, unpack = lambda t: t.detach().numpy().tobytes(), lambda b: wg.frombuffer(bytearray(b), dtype=wg.float32)
        >>> with wg.autograd.graph.saved_tensors_hooks(pack, unpack):
        ...     y = x.exp()
        >>> y.sum().backward()
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> Self:
        state = thread.state
        if state.saved_hooks_error is not None:
            raise RuntimeError(state.saved_hooks_error)
        state.saved_hooks.append((self.pack_hook, self.unpack_hook))
        state.update()
        return self

    def __exit__(self, *error: object) -> None:
        thread.state.saved_hooks.pop()
        thread.state.update()


class save_on_cpu(saved_tensors_hooks):  # noqa: N801 - PyTorch's name
    """Keep saved tensors as separate copies in the main memory: what is written to a tensor afterwards does no harm.

    Args:
        pin_memory, device_type: accepted as in PyTorch; all tensors are in the main memory.

    Example:
        >>> import wengert as wg
        >>> x = wg.ones(2, requires_grad=True)
        >>> with wg.autograd.graph.save_on_cpu():
        ...     y = x.exp()
        >>> y.detach().zero_().sum()
        tensor(0.)
        >>> y.sum().backward()
        >>> x.grad
        tensor([2.7183, 2.7183])
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cpu") -> None:
        super().__init__(lambda t: ops.clone(t.detach()), lambda copy: copy)


class disable_saved_tensors_hooks:  # noqa: N801 - PyTorch's name
    """Refuse saved-tensor hooks inside the block, with the given message.

    Example:
        >>> import wengert as wg
        >>> with wg.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
        ...     with wg.autograd.graph.save_on_cpu():
        ...         pass
        Traceback (most recent call last):
        RuntimeError: no hooks here
    """

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message

    def __enter__(self) -> Self:
        self._outer = thread.state.saved_hooks_error
        if thread.state.saved_hooks:
            raise RuntimeError(self.error_message)
        thread.state.saved_hooks_error = self.error_message
        return self

    def __exit__(self, *error: object) -> None:
        thread.state.saved_hooks_error = self._outer


def increment_version(tensor: Any) -> None:
    """Note that the memory of a tensor (or of several) was written by code the tape does not see.

    Example:
        >>> import wengert as wg
        >>> x = wg.ones(2)
        >>> x.numpy()[0] = 5  # the tape does not see it
        >>> wg.autograd.graph.increment_version(x)
        >>> x._version
        1
    """
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        wrote(t, "increment_version")

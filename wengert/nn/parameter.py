"""Tensors that a module owns: parameters, which an optimiser trains, and buffers, which it does not."""

from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor, alias

__all__ = ["Buffer", "Parameter", "unset"]


class Parameter(Tensor):
    """A tensor to be trained: a module that is given one as an attribute registers it.

    Args:
        data: the tensor whose memory the parameter shares (default: an empty tensor).
        requires_grad: whether gradients are wanted.

    Raises:
        TypeError: if ``data`` is not a tensor.
        RuntimeError: if a gradient is asked for a dtype that has none.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Parameter(wg.ones(2))
        Parameter containing:
        tensor([1., 1.], requires_grad=True)
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> "Parameter":
        """Share the memory of ``data``; a parameter is always a leaf."""
        made: Parameter = _leaf_on(data, cls)
        made.requires_grad_(requires_grad)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> "Parameter":
        """Copy values and attributes, not the gradient."""
        if id(self) not in memo:
            copied = memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
            copied.__dict__.update(self.__dict__)
        found: Parameter = memo[id(self)]
        return found


class Buffer(Tensor):
    """A tensor that belongs to a module's state but is not trained, such as a running mean.

    Args:
        data: the tensor whose memory the buffer shares (default: an empty tensor).
        persistent: whether ``state_dict`` holds it.

    Raises:
        TypeError: if ``data`` is not a tensor.

    Example:
        >>> import wengert as wg
        >>> m = wg.nn.Module()
        >>> m.scale = wg.nn.Buffer(wg.ones(2))
        >>> [name for name, _ in m.named_buffers()]
        ['scale']
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> "Buffer":
        """Share the memory of ``data``."""
        made: Buffer = _leaf_on(data, cls)
        made.persistent = persistent
        return made


def unset(shape: Any, device: Any, dtype: Any, wanted: bool = True) -> Parameter | None:
    """A parameter whose values are still to be set; None if it is not wanted (a layer without bias)."""
    return Parameter(ops.empty(shape, device=device, dtype=dtype)) if wanted else None


def _leaf_on(data: Any, cls: type[Any]) -> Any:
    if data is None:
        data = ops.empty(0)
    if not isinstance(data, Tensor):
        raise TypeError(f"{cls.__name__}() takes a Tensor, got {type(data).__name__}; use wengert.tensor(...)")
    return alias(data, cls)

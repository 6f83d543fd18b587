"""Tensors given another shape in place: squeeze_, unsqueeze_, t_, transpose_, resize_.

The tensor becomes a view of a hidden one that keeps its memory, its former shape and its history; views that were taken
of it before go on from there (see ``refresh`` in :mod:`wengert.core.tensor`). It counts as a write: an operator that
saved the tensor for backward saved it in its former shape.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.array.shape import size_of
from wengert.core.explain import named
from wengert.core.node import Leaf
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, from_array, node_of, version_of
from wengert.errors import CaptureError, InplaceError, ShapeError
from wengert.operators.writes import publish_method, written

__all__: list[str] = []


def _check(name: str, tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}() changes a tensor, got {type(tensor).__name__}")
    node = node_of(tensor)
    if thread.state.grad and isinstance(node, Leaf):
        raise InplaceError(f"{name}(): a leaf that requires grad is being changed in place; use {name.rstrip('_')}()")


def _replace(name: str, tensor: Any, function: Callable[[Any], Any]) -> Any:
    """Make ``tensor`` the view of itself that ``function`` takes; return it."""
    _check(name, tensor)
    if thread.state.captures is not None and isinstance(tensor._payload, np.ndarray):
        raise CaptureError(f"{name}() gives a tensor from outside a compiled function another shape; use {name[:-1]}()")
    source = tensor
    if tensor._view is None:
        source = from_array(tensor._payload)
        source._node, source._cell = tensor._node, version_of(tensor)
    result = function(source)
    tensor._payload, tensor._node, tensor._view = result._payload, result._node, result._view
    return written(name, tensor)


def squeeze_(self: Any, dim: Any = None) -> Any:
    """In-place version of :func:`wengert.squeeze`."""
    return _replace("squeeze_", self, lambda source: ops.squeeze(source, dim))


def unsqueeze_(self: Any, dim: int) -> Any:
    """In-place version of :func:`wengert.unsqueeze`."""
    return _replace("unsqueeze_", self, lambda source: ops.unsqueeze(source, dim))


def t_(self: Any) -> Any:
    """In-place version of :func:`wengert.t`."""
    return _replace("t_", self, ops.t)


def transpose_(self: Any, dim0: int, dim1: int) -> Any:
    """In-place version of :func:`wengert.transpose`."""
    return _replace("transpose_", self, lambda source: ops.transpose(source, dim0, dim1))


def swapaxes_(self: Any, axis0: int, axis1: int) -> Any:
    """In-place version of :func:`wengert.swapaxes`."""
    return _replace("swapaxes_", self, lambda source: ops.transpose(source, axis0, axis1))


def swapdims_(self: Any, dim0: int, dim1: int) -> Any:
    """In-place version of :func:`wengert.swapdims`."""
    return _replace("swapdims_", self, lambda source: ops.transpose(source, dim0, dim1))


@named
def resize_(self: Any, *sizes: Any) -> Any:
    """Give the tensor another size: its elements stay in row-major order, new ones are not set; return it.

    Raises:
        RuntimeError: if it requires grad or is a view.
    """
    shape = size_of(sizes, "sizes")
    if min(shape, default=0) < 0:
        raise ShapeError(f"resize_(): sizes must not be negative, got {shape}")
    if self.requires_grad or self._view is not None:
        what = "requires grad" if self.requires_grad else "is a view"
        raise InplaceError(
            f"resize_(): the tensor {what}, so it cannot be resized; use reshape(), or cat() to make it longer"
        )
    if thread.state.captures is not None:
        thread.state.captures.refuse("resize_()")
    held, count = np.ascontiguousarray(self._payload).reshape(-1), math.prod(shape)
    if count > held.size:
        grown = np.empty(count, held.dtype)
        grown[: held.size] = held
        held = grown
    self._payload = held[:count].reshape(shape)
    return written("resize_", self)


def resize_as_(self: Any, the_template: Any) -> Any:
    """Give the tensor the size of another; see :meth:`Tensor.resize_`."""
    return resize_(self, the_template.shape)


for _function in (squeeze_, unsqueeze_, t_, transpose_, swapaxes_, swapdims_, resize_, resize_as_):
    publish_method(_function)

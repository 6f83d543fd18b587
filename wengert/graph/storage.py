"""Memory as a captured program sees it: storages that are written, and tensors that look at parts of them.

While a program is captured no tensor has memory of its own. What its tensors share stands here as a :class:`Storage`, whose
value is another one after each write, and a tensor is a chain of views of it. A tensor that is read after a write through
another one takes its chain again, of the new value: so writing becomes computing, and the graph stays in single assignment.
"""

from typing import Any

import numpy as np

from wengert.array.device import placed
from wengert.array.dtype import dtype_of
from wengert.core.interpret import Payload
from wengert.core.operator import Op, Spec
from wengert.core.tensor import Tensor, from_array, node_of
from wengert.graph.ir import Value

__all__ = ["Storage", "Traced", "array_of", "has_history", "located", "memory_order", "spec_of", "stand_in"]


class _Room:
    """Memory that is never touched, large enough for any array that stands in for another."""

    def __init__(self) -> None:
        self.bytes = np.empty(0, np.uint8)

    def of(self, size: int) -> Any:
        """Return at least ``size`` bytes."""
        if self.bytes.size < size:
            self.bytes = np.empty(max(size, 1 << 20), np.uint8)
        return self.bytes


_room = _Room()


def stand_in(shape: tuple[int, ...], dtype: Any, order: tuple[int, ...] | None = None) -> Any:
    """Return an array whose elements must not be looked at, for what NumPy says of shapes, strides and views.

    Args:
        order: its dimensions as they lie in memory, outermost first; None: as they come.
    """
    size = dtype.itemsize
    for n in shape:
        size *= n
    buffer = _room.of(size)
    if order is None:
        return np.ndarray(shape, dtype, buffer)
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return np.ndarray(tuple(shape[d] for d in order), dtype, buffer).transpose(inverse)


class Storage:
    """Memory that tensors of a program share.

    Attributes:
        value: what it holds now. source: the tensor from outside whose memory it is; None for one that the program made.
    """

    __slots__ = ("source", "value")

    def __init__(self, value: Value, source: Any = None) -> None:
        self.value, self.source = value, source


class Traced(Payload):
    """A tensor of a program that is being captured.

    Attributes:
        storage: the memory it looks at. chain: the views that lead there. value: what it holds, as of ``seen``, the value of
            the storage then. array: stands in for its memory.
    """

    __slots__ = ("array", "chain", "seen", "storage", "value")

    level: Any

    def __init__(self, level: Any, storage: Storage, chain: tuple[Any, ...], value: Value, array: Any) -> None:
        self.level, self.storage, self.chain, self.value, self.array = level, storage, chain, value, array
        self.seen = storage.value
        self.shape, self.dtype = array.shape, array.dtype

    @property
    def parts(self) -> tuple[Any, ...]:
        return ()

    @property
    def carrier(self) -> Any:
        return from_array(self.values("this"))

    @property
    def stand_in(self) -> Any:
        return self.array

    @property
    def strides(self) -> Any:
        """The strides of the memory."""
        return self.array.strides

    @property
    def flags(self) -> Any:
        return self.array.flags

    def values(self, what: str) -> Any:
        """Return the array of values, if the level is willing to find them out."""
        self.check_alive()
        return self.level.values(self, what)

    exported = values  # the tensor's method takes note of what it gives away

    def placed(self, index: int) -> "Traced":
        """Note that it is on the logical device of a number, as what nothing was given to make it from."""
        self.level.devices[self.value] = index
        self.array = placed(self.array, index)
        self.dtype = self.array.dtype
        return self

    def detached(self) -> "Traced":
        """Return the payload without history: itself."""
        return self

    def __repr__(self) -> str:
        return f"Traced({self.value!r})"


def located(tensors: tuple[Any, ...], index: int | None) -> tuple[Any, ...]:
    """Note that tensors of a program are on the logical device of a number; None: on none in particular."""
    if index is not None:
        for tensor in tensors:
            held = tensor._payload
            held.array = placed(held.array, index)
            held.dtype = held.array.dtype
    return tensors


def spec_of(value: Any) -> Any:
    """Return an argument with the spec of each tensor in its place."""
    if isinstance(value, Tensor):
        held = value._payload
        return Spec(held.shape, dtype_of(held.dtype))
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return tuple(spec_of(v) for v in value)
    return value


def has_history(tensor: Any) -> bool:
    """Whether a tensor has a history, or its base, which a write to the tensor would change."""
    return node_of(tensor) is not None or (tensor._view is not None and tensor._view.base._node is not None)


def array_of(value: Any) -> Any:
    """Return an argument with the array of each tensor in its place, or what stands in for it."""
    if isinstance(value, Tensor):
        held = value._payload
        return held.array if isinstance(held, Traced) else held
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return [array_of(v) for v in value]
    return value


def memory_order(op: Op, values: list[Any], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return how the result of an element-wise operator lies: as NumPy would have it, after its arguments."""
    arrays = [array_of(values[i]) for i in op.signature.inputs if isinstance(values[i], Tensor)]
    if not arrays or all(a.flags.c_contiguous for a in arrays):
        return None
    flags: Any = [["readonly"]] * len(arrays) + [["writeonly", "allocate"]]
    like = [np.lib.stride_tricks.as_strided(np.empty(1, np.uint8), a.shape, a.strides) for a in arrays]
    with np.nditer(
        [*like, None], ["refs_ok", "zerosize_ok"], flags, [np.dtype(np.uint8)] * (len(arrays) + 1), order="K"
    ) as iterator:
        strides = iterator.operands[-1].strides
    order = tuple(sorted(range(len(shape)), key=lambda d: (-strides[d], d)))
    return None if order == tuple(range(len(shape))) else order

"""The memory of a plan: one arena for the values of its graph, and scratch that kernels share one after the other."""

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from wengert.graph.ir import Graph, Node, Value
from wengert.runtime.arena import ALIGNMENT, Buffer, arrange
from wengert.runtime.lives import in_order
from wengert.runtime.pool import empty

__all__ = ["Scratch", "Values"]


class Values:
    """Where the values of a graph lie whose nodes run in order.

    Args:
        graph: the program. elsewhere: values that have memory of their own. replaces: whether the results of a node may take
            the place of arguments that end there.

    Attributes:
        arena: the plan of the memory. block: the memory.
    """

    def __init__(self, graph: Graph, elsewhere: Collection[Value], replaces: Callable[[Node], bool]) -> None:
        self._number: dict[Value, int] = {}
        owned = [v for node in graph.nodes for v in node.results if v not in elsewhere and not _is_view(node)]
        self._number = {value: k for k, value in enumerate(owned)}
        buffers = _buffers(graph, self._number, replaces)
        self.arena = arrange(buffers, in_order(max(1, len(graph.nodes))))
        self.block = empty(self.arena.size + ALIGNMENT, np.uint8)
        self._start = -self.block.__array_interface__["data"][0] % ALIGNMENT

    def array(self, value: Value) -> Any:
        """Return the memory of a value; for the result of a view, which needs none, an array that is never touched."""
        number = self._number.get(value)
        if number is None:
            return np.empty(value.shape, value.dtype.numpy)
        place = self._start + self.arena.offsets[number]
        return np.ndarray(value.shape, value.dtype.numpy, self.block.data, place)


def _is_view(node: Node) -> bool:
    return bool(getattr(node.op, "view", False))


def _buffers(graph: Graph, number: dict[Value, int], replaces: Callable[[Node], bool]) -> list[Buffer]:
    """Return what the arena is to hold: of each value the nodes that touch it, also through views."""
    root: dict[Value, Value] = {}
    touched: list[list[int]] = [[] for _ in number]
    over: list[tuple[int, ...]] = [() for _ in number]
    for k, node in enumerate(graph.nodes):
        inputs = [root.get(v, v) for v in node.inputs]
        if _is_view(node) and inputs:
            root.update(dict.fromkeys(node.results, inputs[0]))
        for value in {*inputs, *node.results}:
            if value in number:
                touched[number[value]].append(k)
        if replaces(node):
            plain = [v for v in dict.fromkeys(node.inputs) if v in number]
            for value in node.results:
                if value in number:
                    over[number[value]] = tuple(number[v] for v in plain if v.spec == value.spec)
    kept = {root.get(v, v) for v in graph.results}
    return [
        Buffer(_nbytes(value), tuple(touched[k]), over[k], value in kept, value.name) for value, k in number.items()
    ]


def _nbytes(value: Value) -> int:
    return int(math.prod(value.shape) * value.dtype.numpy.itemsize)


class Scratch:
    """Memory that a node's kernels use among themselves, and those of the next node again."""

    def __init__(self) -> None:
        self.blocks: list[Any] = []
        self._free: list[Any] = []
        self._taken: list[Any] = []

    def take(self, shape: Any, dtype: Any) -> Any:
        """Return unset memory for an array."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
        fitting = [b for b in self._free if b.size >= size + ALIGNMENT]
        if fitting:
            block = min(fitting, key=lambda b: b.size)
            self._free = [b for b in self._free if b is not block]
        else:
            block = np.empty(size + ALIGNMENT, np.uint8)
            self.blocks.append(block)
        self._taken.append(block)
        return np.ndarray(shape, dtype, block.data, -block.__array_interface__["data"][0] % ALIGNMENT)

    def leave(self, results: list[Any]) -> None:
        """Let the next node have what was taken, but for the blocks that results lie in."""
        for block in self._taken:
            if not any(np.may_share_memory(r, block) for r in results):
                self._free.append(block)
        self._taken = []

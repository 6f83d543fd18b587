"""The memory of a plan: one arena for the values of its graph, and scratch that kernels share one after the other."""

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from wengert.graph.ir import Graph, Node, Value
from wengert.runtime.arena import ALIGNMENT, Arena, Buffer, arrange
from wengert.runtime.joined import Joined, joined
from wengert.runtime.lives import Lives, in_order
from wengert.runtime.pool import empty
from wengert.runtime.recording import paused

__all__ = ["Scratch", "SeatedScratch", "Values"]


class Values:
    """Where the values of a graph lie whose nodes run in order.

    Args:
        graph: the program. elsewhere: values that have memory of their own. replaces: whether the results of a node may take
            the place of arguments that end there. make: returns the memory, given a shape and a dtype. lives: how nodes run, if
            not in order.

    Attributes:
        arena: the plan of the memory. block: the memory.
    """

    def __init__(
        self, graph: Graph, elsewhere: Collection[Value], replaces: Callable[[Node], bool], make: Any = empty,
        lives: Lives | None = None,
    ) -> None:  # fmt: skip
        owned = _owned(graph, elsewhere)
        self._joined = joined(graph, owned)
        self._number = _numbered(owned, self._joined)
        buffers = _buffers(graph, self._number, self._joined, replaces)
        self.arena = arrange(buffers, lives or in_order(max(1, len(graph.nodes))))
        self.make, self.block = make, make(self.arena.size + ALIGNMENT, np.uint8)
        self._start = -self.block.__array_interface__["data"][0] % ALIGNMENT

    def array(self, value: Value) -> Any:
        """Return the memory of a value; for the result of a view, which needs none, an array that is never touched."""
        if value in self._joined:
            whole, index = self._joined[value]
            return self.array(whole)[index]
        number = self._number.get(value)
        if number is None:
            return np.empty(value.shape, value.dtype.numpy)
        return self.at(self.arena.offsets[number], value.shape, value.dtype.numpy)

    def at(self, offset: int, shape: Any, dtype: Any) -> Any:
        """Return an array that lies somewhere in the arena."""
        return np.ndarray(shape, dtype, self.block.data, self._start + offset)


def _owned(graph: Graph, elsewhere: Collection[Value]) -> list[Value]:
    """Return the values that need memory."""
    return [v for node in graph.nodes for v in node.results if v not in elsewhere and not _is_view(node)]


def _numbered(owned: Sequence[Value], parts: Joined) -> dict[Value, int]:
    """Return the numbers of the values that need memory of their own."""
    return {value: k for k, value in enumerate(v for v in owned if v not in parts)}


def _is_view(node: Node) -> bool:
    return bool(getattr(node.op, "view", False))


def _buffers(graph: Graph, number: dict[Value, int], parts: Joined, replaces: Callable[[Node], bool]) -> list[Buffer]:
    """Return what the arena is to hold: of each value the nodes that touch it, also through views and parts."""
    root = parts.roots()
    touched: list[list[int]] = [[] for _ in number]
    over: list[tuple[int, ...]] = [() for _ in number]
    for k, node in enumerate(graph.nodes):
        inputs = [root.get(v, v) for v in node.inputs]
        if _is_view(node) and inputs:
            root.update(dict.fromkeys(node.results, inputs[0]))
        for value in {*inputs, *(root.get(v, v) for v in node.results)}:
            if value in number:
                touched[number[value]].append(k)
        if replaces(node):
            plain = [v for v in dict.fromkeys(node.inputs) if v in number]
            for value in node.results:
                if value in number:
                    over[number[value]] = tuple(number[v] for v in plain if v.spec == value.spec)
    kept = {root.get(v, v) for v in graph.results}
    return [Buffer(value.nbytes, tuple(touched[k]), over[k], value in kept, value.name) for value, k in number.items()]


class Scratch:
    """Memory that a node's kernels use among themselves: what the arena has free while the node runs, or else blocks.

    Args:
        values: the arena, in which nodes are numbered in their order.

    Attributes:
        blocks: memory beside the arena. kept: the bytes of those that one node alone writes. lasting: memory whose content no
            run changes. needed: the bytes that each node takes, by its number.
    """

    def __init__(self, values: Values) -> None:
        self.blocks: list[Any] = []
        self.kept = 0
        self.lasting: list[Any] = []
        self.needed: list[int] = []
        self._values, self._lives = values, _Lives(values.arena)
        self._gaps: list[tuple[int, int]] | None = None
        self._free: list[Any] = []
        self._taken: list[Any] = []

    def begin(self, number: int) -> None:
        """Begin a node; numbers rise. What was taken before is free again."""
        self._free += self._taken
        self._taken, self._gaps = [], None
        self.needed.append(0)
        self._lives.go_to(number)

    def take(self, shape: Any, dtype: Any) -> Any:
        """Return unset memory for an array, until the next node begins."""
        size = _aligned(max(1, _count(shape) * np.dtype(dtype).itemsize))
        self.needed[-1] += size
        if self._gaps is None:
            self._gaps = self._lives.gaps()
        fitting = [k for k, (begin, end) in enumerate(self._gaps) if end - begin >= size]
        if fitting:
            k = min(fitting, key=lambda k: self._gaps[k][1] - self._gaps[k][0])  # type: ignore[index]
            begin, end = self._gaps[k]
            self._gaps[k] = begin + size, end
            return self._values.at(begin, shape, dtype)
        blocks = [b for b in self._free if b.size >= size + ALIGNMENT]
        if blocks:
            block = min(blocks, key=lambda b: b.size)
            self._free = [b for b in self._free if b is not block]
        else:
            block = self._block(size)
        self._taken.append(block)
        return _array(block, shape, dtype)

    def keep(self, shape: Any, dtype: Any) -> Any:
        """Return memory that nothing else has, ever."""
        block = self._block(_count(shape) * np.dtype(dtype).itemsize)
        self.kept += block.size
        return _array(block, shape, dtype)

    def once(self, shape: Any, dtype: Any) -> Any:
        """Return memory that is written while the plan is made, and only read from then on."""
        block = self._block(_count(shape) * np.dtype(dtype).itemsize)
        self.lasting.append(self.blocks.pop())
        return _array(block, shape, dtype)

    def _block(self, size: int) -> Any:
        with paused():
            block = self._values.make(size + ALIGNMENT, np.uint8)
        self.blocks.append(block)
        return block


class SeatedScratch(Scratch):
    """Memory for nodes that run beside one another: those that are expected on one thread share it; none lies in the arena.

    Args:
        values: as of :class:`Scratch`. seats: on which thread each node is expected.
    """

    def __init__(self, values: Values, seats: Sequence[int]) -> None:
        super().__init__(values)
        self._seats, self._seat = seats, 0
        self._of_seats: dict[int, list[Any]] = {}

    def begin(self, number: int) -> None:
        """Begin a node; numbers rise. What was taken before is free again for its seat."""
        super().begin(number)
        self._of_seats[self._seat] = self._free
        self._seat = self._seats[number]
        self._free, self._gaps = self._of_seats.pop(self._seat, []), []

    @property
    def taken(self) -> list[Any]:
        """The blocks that this node has, and others had before or will have."""
        return self._taken


class _Lives:
    """Which parts of an arena are free while a node runs."""

    def __init__(self, arena: Arena) -> None:
        self._size = arena.size
        self._begin: dict[int, list[tuple[int, int]]] = {}
        self._end: dict[int, list[tuple[int, int]]] = {}
        for buffer, offset, (first, last) in zip(arena.buffers, arena.offsets, arena.lives, strict=True):
            if buffer.size:
                self._begin.setdefault(first, []).append((offset, offset + _aligned(buffer.size)))
                self._end.setdefault(last + 1, []).append((offset, offset + _aligned(buffer.size)))
        self._living: list[tuple[int, int]] = []
        self._now = -1

    def go_to(self, number: int) -> None:
        """Let nodes begin and end up to one."""
        while self._now < number:
            self._now += 1
            for life in self._end.get(self._now, ()):
                del self._living[bisect_left(self._living, life)]
            for life in self._begin.get(self._now, ()):
                insort(self._living, life)

    def gaps(self) -> list[tuple[int, int]]:
        """Return where free parts begin and end."""
        found, top = [], 0
        for begin, end in self._living:
            if begin > top:
                found.append((top, begin))
            top = max(top, end)
        return [*found, (top, self._size)]


def _array(block: Any, shape: Any, dtype: Any) -> Any:
    """Return an array at the first address in a block that vectors like."""
    return np.ndarray(shape, dtype, block.data, -block.__array_interface__["data"][0] % ALIGNMENT)


def _count(shape: Any) -> int:
    return int(shape) if isinstance(shape, int) else math.prod(shape)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT

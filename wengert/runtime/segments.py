"""What a plan runs in one native call, and buffers in it whose memory may be another at each call."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from wengert.errors import KernelError
from wengert.runtime.executor import Halted, Table
from wengert.runtime.launch import pointer
from wengert.runtime.recording import Check, Task

__all__ = ["Moving", "Native", "bounds", "moving", "overlapping", "words_of"]


def words_of(tasks: Sequence[Any]) -> tuple[Any, list[int]]:
    """Return the arguments of all launches among tasks as one array of words, and where those of each task begin."""
    parts = [task.arguments if isinstance(task, Task) else b"" for task in tasks]
    starts = np.cumsum([0, *(len(part) // 8 for part in parts)])
    return np.frombuffer(b"".join(parts), np.int64).copy(), starts[:-1].tolist()


class Native:
    """Launches and checks that run in one native call.

    Args:
        tasks: they, in order. words: the arguments of a plan's launches; starts: where those of each task begin.
        nodes: what each task computes a part of.

    Attributes:
        table: the rows. nodes: as given.
    """

    __slots__ = ("_checked", "_complaints", "_run", "_words", "nodes", "table")

    def __init__(self, tasks: Sequence[Task | Check], words: Any, starts: Sequence[int], nodes: Sequence[Any]) -> None:
        self._words, self.nodes = words, nodes
        first = pointer(words)
        self.table = Table(
            np.array([_row(task, first + 8 * start) for task, start in zip(tasks, starts, strict=True)], np.int64)
        )
        self._run = self.table.prepared()
        self._complaints = {k: task.complain for k, task in enumerate(tasks) if isinstance(task, Check)}
        self._checked = [
            start + len(task.arguments) // 8 - 1
            for task, start in zip(tasks, starts, strict=True) if isinstance(task, Task) and task.checked
        ]  # fmt: skip

    def __call__(self) -> None:
        """Run the tasks.

        Raises:
            KernelError: with bounds checks, if an access was outside its buffer. And what failing checks complain of.
        """
        try:
            self._run()
        except Halted as halted:
            self._complaints[halted.task]()
            raise KernelError("a check of a compiled kernel failed, but its values are right") from None
        for place in self._checked:
            if self._words[place]:
                raise KernelError(f"access {self._words[place]} of a compiled kernel is outside its buffer")


def _row(task: Task | Check, place: int) -> tuple[int, int, int, int]:
    return (0, 0, 1, task.address) if isinstance(task, Check) else (task.address, task.steps, task.grain, place)


class Moving:
    """A buffer of a plan whose address stands in some words of the arguments, and may be changed there.

    Attributes:
        shape, dtype: of the array.
    """

    __slots__ = ("_address", "_places", "_words", "dtype", "shape")

    def __init__(self, array: Any, words: Any, places: Any) -> None:
        self.shape, self.dtype = array.shape, array.dtype
        self._words, self._places, self._address = words, places, pointer(array)

    def to(self, array: Any) -> None:
        """Let the tasks use an array of the same shape and dtype, contiguous, from now on."""
        address = pointer(array)
        if address != self._address:
            self._words[self._places] += address - self._address
            self._address = address


def moving(arrays: Sequence[Any], words: Any) -> list[Moving]:
    """Return for each of some arrays, which lie apart and not empty, what moves it: by one search for all of them."""
    order = np.argsort(words, kind="stable")
    first, end = bounds(arrays)
    found = np.searchsorted(words[order], [first, end]).T.tolist()
    return [Moving(array, words, order[a:b]) for array, (a, b) in zip(arrays, found, strict=True)]


def bounds(arrays: Sequence[Any]) -> tuple[Any, Any]:
    """Return where the memory of each array begins, and where it ends."""
    found = np.array([byte_bounds(array) for array in arrays], np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


class Within:
    """Says of an array whether it lies in the memory of one of some others, as far as these are without gaps."""

    def __init__(self, arrays: Iterable[Any]) -> None:
        first, end = bounds([array for array in arrays if array.size and array.flags.forc])
        order = np.argsort(first)
        self._starts, self._ends = first[order], np.maximum.accumulate(end[order])

    def __call__(self, array: Any) -> bool:
        """Whether it does."""
        (first,), (end,) = bounds([array])
        before = int(np.searchsorted(self._starts, first, "right"))
        return before > 0 and bool(end <= self._ends[before - 1])


def overlapping(arrays: Sequence[Any], others: Sequence[Any]) -> Any:
    """Return how many of the others each array shares memory with, or lies between elements of."""
    (first, end), (starts, ends) = bounds(arrays), bounds([other for other in others if other.size])
    return np.searchsorted(np.sort(starts), end, "left") - np.searchsorted(np.sort(ends), first, "right")

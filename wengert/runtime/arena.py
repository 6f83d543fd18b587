"""Memory planning: where each buffer of a plan lies in one block of memory, so that those that live at once do not overlap.

Two buffers may share memory if one is dead before the other is made. When the tasks run in order that is a matter of their
places in it (:func:`in_order`); when they run as they become ready, the dependencies must say so (:func:`by_dependencies`); and
where the memory would be too much, a schedule may (:func:`by_schedule`), with a few more dependencies that hold the executor
to it.

Finding the least memory is NP-hard. Buffers are placed the largest first, each into the smallest gap that it fits in
among those placed that live with it: "greedy by size for offset calculation" of Y. Pisarchyk and J. Lee, "Efficient memory
management for deep neural net inference", 2020, arXiv 2001.03288, section 5.2. Beyond :data:`MANY` buffers they are placed as they
are made, in time O(n log n): best fit, as an allocator that knows nothing of the future would.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["ALIGNMENT", "Arena", "Buffer", "arrange", "by_dependencies", "by_schedule", "in_order"]

ALIGNMENT: Final = 64  # bytes: a line of the cache, and a vector
MANY: Final = 6000
MOST_TASKS: Final = 20_000  # of by_dependencies, which holds a bit matrix of them


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that tasks share.

    Args:
        size: in bytes. tasks: which tasks touch it, first the one that makes it.
        over: buffers whose place it may take, if the task that makes it is the last that touches them: the arguments of
            an element-wise kernel.
        kept: whether it outlives the last task.
        name: for people.
    """

    size: int
    tasks: tuple[int, ...]
    over: tuple[int, ...] = ()
    kept: bool = False
    name: str = ""


class Lives(Protocol):
    """Which buffers may not share memory."""

    def ends_in(self, buffer: int, task: int) -> bool:
        """Whether no task touches a buffer after, or at the same time as, this task, which touches it."""

    def merge(self, buffer: int, into: int) -> None:
        """Let a buffer take the place of another."""

    def apart(self, buffer: int, others: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the others may share memory with a buffer."""


@dataclass(frozen=True)
class Arena:
    """A plan of memory.

    Attributes:
        buffers: what was to be placed. offsets: where each one lies, in bytes. size: of the whole arena.
        in_place: for each buffer the one whose place it takes, or None.
        lower_bound: the most bytes that live at once when the tasks run in the order of their numbers; no plan needs less.
    """

    buffers: Sequence[Buffer]
    offsets: list[int]
    size: int
    in_place: list[int | None]
    lower_bound: int

    @property
    def total(self) -> int:
        """The bytes of all buffers together: what is needed without sharing."""
        return sum(buffer.size for buffer in self.buffers)

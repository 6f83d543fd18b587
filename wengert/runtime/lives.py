"""When the buffers of a plan live: which of them are dead before which others are made.

A buffer lives from the task that makes it to the last task that touches it. What that means depends on how tasks run: one after
the other, as a schedule has it, or in any order that their dependencies allow.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dependent", "Lives", "Scheduled", "in_order"]

MOST_TASKS: Final = 10_000  # of Dependent, whose matrix has a byte for each pair


class Lives(Protocol):
    """How tasks run."""

    def last(self, tasks: Sequence[int], task: int) -> bool:
        """Whether none of the tasks can run after, or beside, a task (which may be among them)."""

    def places(self) -> NDArray[np.int64]:
        """Return for each task its place in an order in which they may run."""

    def precede(self, groups: Sequence[Sequence[int]], kept: Any) -> "Relation":
        """Return which groups of tasks, the first of which begins each one, end before others begin; kept ones never end."""


class Relation(Protocol):
    """A relation between groups of tasks."""

    def apart(self, group: int, others: Any) -> NDArray[np.bool_]:
        """Return which of the others end before a group begins, or begin after it has ended."""


class Scheduled:
    """Tasks that run at given times.

    Args:
        start, end: of each task. order: the tasks as they begin; by default by their starts.
    """

    def __init__(self, start: Sequence[float], end: Sequence[float], order: Sequence[int] | None = None) -> None:
        self.start, self.end = np.asarray(start, np.float64), np.asarray(end, np.float64)
        chosen = np.argsort(self.start, kind="stable") if order is None else np.asarray(order, np.int64)
        self._places = np.empty(len(self.start), np.int64)
        self._places[chosen] = np.arange(len(self.start))

    def last(self, tasks: Sequence[int], task: int) -> bool:
        """Whether none of the tasks ends after a task begins, or begins later, except the task itself."""
        return all(t == task or self._ends_before(t, task) for t in tasks)

    def _ends_before(self, first: int, second: int) -> bool:
        return bool(self.end[first] <= self.start[second] and self._places[first] < self._places[second])

    def places(self) -> NDArray[np.int64]:
        """Return the places in the order in which they begin."""
        return self._places

    def precede(self, groups: Sequence[Sequence[int]], kept: Any) -> "Intervals":
        """Return the relation of the groups' intervals."""
        makers = np.array([tasks[0] for tasks in groups], np.int64)
        end = np.array([self.end[list(tasks)].max() for tasks in groups])
        last = np.array([self._places[list(tasks)].max() for tasks in groups], np.int64)
        end[kept] = np.inf
        return Intervals(self.start[makers], end, self._places[makers], last)


class Intervals:
    """Intervals of time; ``first`` and ``last`` break ties between tasks that take none.

    Attributes:
        start, end: times. first, last: places in the order in which tasks begin.
    """

    def __init__(self, start: Any, end: Any, first: Any, last: Any) -> None:
        self.start, self.end, self.first, self.last = start, end, first, last

    def apart(self, group: int, others: Any) -> NDArray[np.bool_]:
        """Return which of the others end before a group begins, or begin after it has ended."""
        before = (self.end[others] <= self.start[group]) & (self.last[others] < self.first[group])
        after = (self.end[group] <= self.start[others]) & (self.last[group] < self.first[others])
        found: NDArray[np.bool_] = before | after
        return found


def in_order(number: int) -> Scheduled:
    """Return the lives of buffers whose tasks run one after the other, in the order of their numbers."""
    return Scheduled(np.arange(number).tolist(), np.arange(1, number + 1).tolist())


class Dependent:
    """Tasks that run in any order, and beside each other, as their dependencies allow.

    Args:
        dependencies: for each task those that must have ended before it begins; they have lower numbers.

    Raises:
        ValueError: if they have not, or there are too many tasks.
    """

    def __init__(self, dependencies: Sequence[Iterable[int]]) -> None:
        number = len(dependencies)
        if number > MOST_TASKS:
            raise ValueError(
                f"{number} tasks are more than the {MOST_TASKS} whose relations can be held; use Scheduled"
            )
        self._ancestors = np.zeros((number, number), np.bool_)  # [task, other]: the other ends before the task begins
        for task, firsts in enumerate(dependencies):
            for first in firsts:
                if not 0 <= first < task:
                    raise ValueError(f"task {task} depends on task {first}; tasks must be numbered in a possible order")
                self._ancestors[task] |= self._ancestors[first]
                self._ancestors[task, first] = True

    def last(self, tasks: Sequence[int], task: int) -> bool:
        """Whether all of the tasks, except the task itself, end before it begins."""
        return all(t == task or self._ancestors[task, t] for t in tasks)

    def places(self) -> NDArray[np.int64]:
        """Return the numbers of the tasks."""
        return np.arange(len(self._ancestors))

    def precede(self, groups: Sequence[Sequence[int]], kept: Any) -> "Order":
        """Return the relation that the dependencies make."""
        return Order(self._ancestors, groups, kept)


class Order:
    """Groups of partially ordered tasks."""

    def __init__(self, ancestors: Any, groups: Sequence[Sequence[int]], kept: Any) -> None:
        self._ancestors, self._descendants = ancestors, np.ascontiguousarray(ancestors.T)
        self._groups, self._ended = groups, ~np.asarray(kept, np.bool_)
        self._makers = np.array([tasks[0] for tasks in groups], np.int64)
        self._touches = np.array([task for tasks in groups for task in tasks], np.int64)
        self._starts = np.cumsum([0, *(len(tasks) for tasks in groups)])[:-1]

    def apart(self, group: int, others: Any) -> NDArray[np.bool_]:
        """Return which of the others end before a group begins, or begin after it has ended."""
        earlier = (
            np.logical_and.reduceat(self._ancestors[self._makers[group]][self._touches], self._starts) & self._ended
        )
        later = np.logical_and.reduce(self._descendants[list(self._groups[group])][:, self._makers[others]], axis=0)
        found: NDArray[np.bool_] = earlier[others] | (later & self._ended[group])
        return found

"""Memory planning: where each buffer of a plan lies in one block of memory, so that those that live at once do not overlap.

Finding the least memory is NP-hard. Buffers are placed the largest first, each into the smallest gap that it fits in
among those placed that live with it: "greedy by size for offset calculation" of Y. Pisarchyk and J. Lee, "Efficient memory
management for deep neural net inference", 2020, arXiv 2001.03288. More than :data:`MANY` buffers that live at given times are
placed as they are made, into the smallest gap there is, in O(n log n).
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wengert.runtime.lives import Intervals, Lives, Relation
from wengert.runtime.picture import Picture, colour

__all__ = ["ALIGNMENT", "Arena", "Buffer", "arrange", "waits"]

ALIGNMENT: Final = 64  # bytes: a line of the cache, and a vector
MANY: Final = 5000


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that tasks share.

    Args:
        size: in bytes. tasks: which tasks touch it, first the one that makes it.
        over: buffers whose place it may take, where the task that makes it is the last that touches them and they are as
            large: the arguments of an element-wise kernel.
        kept: whether it outlives the last task.
        name: for people.
    """

    size: int
    tasks: tuple[int, ...]
    over: tuple[int, ...] = ()
    kept: bool = False
    name: str = ""


@dataclass(frozen=True)
class Arena:
    """A plan of memory.

    Attributes:
        buffers: what was placed. offsets: where each one lies, in bytes. size: of the whole arena.
        in_place: for each buffer the one whose place it takes, or None.
        lower_bound: the most bytes that live at once when tasks run in order; with these places taken, no plan needs less.
        lives: for each buffer the places of its first and last task in that order.
    """

    buffers: Sequence[Buffer]
    offsets: list[int]
    size: int
    in_place: list[int | None]
    lower_bound: int
    lives: list[tuple[int, int]]

    @property
    def total(self) -> int:
        """The bytes of all buffers: what is needed without sharing."""
        return sum(_aligned(buffer.size) for buffer in self.buffers)

    def report(self, width: int = 72, most: int = 40) -> str:
        """Return sizes and lifetimes as text: a line for each of the ``most`` largest buffers, time to the right."""
        taken = sum(other is not None for other in self.in_place)
        lines = [
            f"arena {self.size:,} bytes for {len(self.buffers)} buffers of {self.total:,}; at least {self.lower_bound:,} "
            f"are needed; {taken} in place"
        ]
        steps = 1 + max((last for _, last in self.lives), default=0)
        for k in sorted(range(len(self.buffers)), key=lambda k: -self.buffers[k].size)[:most]:
            first, end = (place * width // steps for place in (self.lives[k][0], self.lives[k][1] + 1))
            bar = " " * first + "━" * max(1, end - first)
            lines.append(f"{self.buffers[k].size:>14,} @ {self.offsets[k]:<14,} |{bar:<{width}}| {self._label(k)}")
        return "\n".join(lines)

    def svg(self, width: float = 1000.0, height: float = 400.0) -> str:
        """Return a picture of the arena: time to the right, addresses upwards, a box for each buffer."""
        picture = Picture(width, height + 30)
        picture.text(5, 14, f"{self.size:,} bytes; at least {self.lower_bound:,} are needed")
        steps = 1 + max((last for _, last in self.lives), default=0)
        scale = height / max(self.size, 1)
        for k, (first, last) in enumerate(self.lives):
            size = _aligned(self.buffers[k].size) * scale
            x, y = width * first / steps, 20 + height - self.offsets[k] * scale - size
            title = f"{self._label(k)}\n{self.buffers[k].size:,} bytes at {self.offsets[k]:,}"
            picture.box(x, y, width * (last - first + 1) / steps, size, colour(self._label(k)), title)
        return str(picture)

    def _label(self, buffer: int) -> str:
        return self.buffers[buffer].name or f"buffer {buffer}"


def arrange(buffers: Sequence[Buffer], lives: Lives) -> Arena:
    """Return where buffers lie.

    Args:
        buffers: their tasks are numbered as in ``lives``. lives: how tasks run: :func:`wengert.runtime.lives.in_order`, by
            their dependencies (:class:`wengert.runtime.lives.Dependent`), or by a schedule
            (:class:`wengert.runtime.lives.Scheduled`), to which :func:`waits` then holds them.

    Raises:
        ValueError: if a buffer has a negative size or no tasks.

    Example:
        >>> from wengert.runtime.arena import Buffer, arrange
        >>> from wengert.runtime.lives import in_order
        >>> chain = [Buffer(1000, (k, k + 1)) for k in range(8)]
        >>> arrange(chain, in_order(9)).size
        2048
    """
    for k, buffer in enumerate(buffers):
        if buffer.size < 0 or not buffer.tasks:
            raise ValueError(f"buffer {k} ({buffer.name}) has {buffer.size} bytes and {len(buffer.tasks)} tasks")
    in_place, group_of, groups = _take_places(buffers, lives)
    members: list[list[int]] = [[] for _ in groups]
    for k, group in enumerate(group_of):
        members[group].append(k)
    sizes = np.array([_aligned(buffers[some[0]].size) for some in members], np.int64)
    kept = np.array([any(buffers[k].kept for k in some) for some in members], np.bool_)
    relation = lives.precede(groups, kept)
    if isinstance(relation, Intervals) and len(groups) > MANY:
        offsets = _by_time(sizes, relation)
    else:
        offsets = _by_size(sizes, relation)
    places = lives.places()
    end = len(places) - 1
    spans = [
        (int(places[b.tasks[0]]), end if b.kept else int(places[list(b.tasks)].max())) for b in buffers
    ]  # fmt: skip
    bound = _most_at_once(sizes, [(spans[s[0]][0], max(spans[k][1] for k in s)) for s in members], len(places))
    size = int((offsets + sizes).max()) if groups else 0
    return Arena(buffers, [int(offsets[group]) for group in group_of], size, in_place, bound, spans)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _take_places(buffers: Sequence[Buffer], lives: Lives) -> tuple[list[int | None], list[int], list[tuple[int, ...]]]:
    """Return whose place each buffer takes, the groups of those that lie in one place, and the tasks of each group."""
    places = lives.places()
    in_place: list[int | None] = [None] * len(buffers)
    group_of, groups, ends = [-1] * len(buffers), list[tuple[int, ...]](), list[int]()
    for k in sorted(range(len(buffers)), key=lambda k: int(places[buffers[k].tasks[0]])):
        buffer = buffers[k]
        for other in buffer.over:
            group, size = group_of[other], _aligned(buffers[other].size)
            if (
                group >= 0 and ends[group] == other and size == _aligned(buffer.size) and not buffers[other].kept
                and lives.last(buffers[other].tasks, buffer.tasks[0])
            ):  # fmt: skip
                in_place[k], group_of[k], ends[group] = other, group, k
                groups[group] += buffer.tasks
                break
        else:
            group_of[k] = len(groups)
            groups.append(buffer.tasks)
            ends.append(k)
    return in_place, group_of, groups


def _most_at_once(sizes: NDArray[np.int64], spans: Sequence[tuple[int, int]], steps: int) -> int:
    changes = np.zeros(steps + 1, np.int64)
    for size, (first, last) in zip(sizes, spans, strict=True):
        changes[first] += size
        changes[last + 1] -= size
    return int(np.cumsum(changes).max())


def _by_size(sizes: NDArray[np.int64], relation: Relation) -> NDArray[np.int64]:
    """Place the largest first, each into the smallest gap between those that live with it."""
    offsets = np.zeros(len(sizes), np.int64)
    placed = np.empty(len(sizes), np.int64)  # by their offsets
    for number, group in enumerate(np.argsort(-sizes, kind="stable").tolist()):
        others = placed[:number]
        others = others[~relation.apart(group, others)]
        begins, tops = offsets[others], np.maximum.accumulate(np.concatenate([[0], offsets[others] + sizes[others]]))
        gaps = begins - tops[:-1]
        fits = np.flatnonzero(gaps >= sizes[group])
        offsets[group] = tops[fits[np.argmin(gaps[fits])]] if len(fits) else tops[-1]
        place = int(np.searchsorted(offsets[placed[:number]], offsets[group]))
        placed[place + 1 : number + 1] = placed[place:number].copy()
        placed[place] = group
    return offsets


class _Gaps:
    """Free memory: gaps by their offsets, and by their sizes; above ``top`` all is free."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._size: dict[int, int] = {}
        self._by_size: list[tuple[int, int]] = []
        self.top = 0

    def take(self, size: int) -> int:
        """Return the beginning of the smallest gap that has so many bytes, less these."""
        place = bisect_left(self._by_size, (size, 0))
        if place < len(self._by_size):
            found, begin = self._by_size[place]
            self._remove(begin)
            if found > size:
                self._add(begin + size, found - size)
            return begin
        begin = self.top
        if self._begins and self._begins[-1] + self._size[self._begins[-1]] == self.top:
            begin = self._begins[-1]
            self._remove(begin)
        self.top = begin + size
        return begin

    def give(self, begin: int, size: int) -> None:
        """Take bytes back, and join them with the gaps beside them."""
        place = bisect_left(self._begins, begin)
        if place < len(self._begins) and self._begins[place] == begin + size:
            size += self._size[begin + size]
            self._remove(self._begins[place])
        if place and (before := self._begins[place - 1]) + self._size[before] == begin:
            begin, size = before, size + self._size[before]
            self._remove(before)
        self._add(begin, size)

    def _add(self, begin: int, size: int) -> None:
        insort(self._begins, begin)
        insort(self._by_size, (size, begin))
        self._size[begin] = size

    def _remove(self, begin: int) -> None:
        size = self._size.pop(begin)
        del self._begins[bisect_left(self._begins, begin)]
        del self._by_size[bisect_left(self._by_size, (size, begin))]


def _by_time(sizes: NDArray[np.int64], lives: Intervals) -> NDArray[np.int64]:
    """Place buffers as they are made, each into the smallest gap that those that have ended left."""
    offsets = np.zeros(len(sizes), np.int64)
    gaps, living = _Gaps(), list[tuple[float, int, int]]()
    for group in np.argsort(lives.first, kind="stable").tolist():
        while living and living[0][0] <= lives.start[group] and living[0][1] < lives.first[group]:
            ended = heappop(living)[2]
            if sizes[ended]:
                gaps.give(int(offsets[ended]), int(sizes[ended]))
        if sizes[group]:
            offsets[group] = gaps.take(int(sizes[group]))
        heappush(living, (float(lives.end[group]), int(lives.last[group]), group))
    return offsets


def waits(arena: Arena, dependencies: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the dependencies of an arena that was arranged by a schedule, so that no task can write into memory in use.

    The task that makes a buffer waits for all that touch those that lay there before. All waits point from earlier to
    later tasks of the schedule, so they make no cycle.
    """
    found = [list(dict.fromkeys(firsts)) for firsts in dependencies]
    memory: list[tuple[int, int, int]] = []  # begin, end and the last buffer there
    used = [k for k, buffer in enumerate(arena.buffers) if buffer.size]
    for k in sorted(used, key=lambda k: arena.lives[k][0]):
        begin, end = arena.offsets[k], arena.offsets[k] + _aligned(arena.buffers[k].size)
        maker, remains = arena.buffers[k].tasks[0], list[tuple[int, int, int]]()
        first = max(0, bisect_left(memory, (begin, 0, 0)) - 1)
        last = first
        while last < len(memory) and memory[last][0] < end:
            low, high, other = memory[last]
            if high > begin:
                found[maker] += [task for task in arena.buffers[other].tasks if task != maker]
                remains += [(low, begin, other)] if low < begin else []
                remains += [(end, high, other)] if high > end else []
            else:
                remains.append(memory[last])
            last += 1
        memory[first:last] = sorted([*remains, (begin, end, k)])
    return [list(dict.fromkeys(firsts)) for firsts in found]

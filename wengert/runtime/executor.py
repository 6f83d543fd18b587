"""Running plans without Python's lock: tables of tasks in order, and graphs of tasks as they become ready.

:mod:`wengert.codegen.task_loop` and :mod:`wengert.codegen.task_graph` say what the threads do.
"""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wengert.codegen import task_graph, task_loop, task_steps, worker_loop
from wengert.codegen.cache import library
from wengert.codegen.target import host
from wengert.runtime.launch import pointer
from wengert.runtime.threads import get_num_threads
from wengert.runtime.workers import start_workers

__all__ = ["Halted", "Table", "TaskGraph", "run"]

Integers = NDArray[np.int64]

KERNEL, COUNT, GRAIN = range(3)  # the columns of a table; the fourth is the address of the arguments


class _Native:
    """The functions that run tasks, and the addresses of the parallel loops that they call."""

    def __init__(self) -> None:
        table = library("task loop", [task_loop.TASKS], lambda: task_loop.task_loop(host().triple))
        graph = library("task graph", [task_graph.GRAPH], lambda: task_graph.task_graph(host().triple))
        self.tasks = table.function(task_loop.TASKS, ctypes.c_int64)
        self.graph = graph.function(task_graph.GRAPH, ctypes.c_int64)
        loops = start_workers().native
        self.parallel_for, self.resume = (_address_of(function) for function in (loops.parallel_for, loops.resume))


def _address_of(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_native = lru_cache(maxsize=1)(_Native)
_Words: Final = ctypes.c_int64 * len(task_loop.RUN)
_NEXT, _LEFT = task_loop.RUN["NEXT"], task_loop.RUN["LEFT"]
_TIMES = task_steps.STATE["TIMES"]


def checked(rows: Any) -> Integers:
    """Return a table of tasks, after a look at it.

    Raises:
        TypeError: if it is not an array of int64. ValueError: if it has not four columns in one block of memory, or a row
            has a negative count, a grain below 1, too many chunks, or neither a kernel nor a word to check.
    """
    if not isinstance(rows, np.ndarray) or rows.dtype != np.int64:
        raise TypeError(f"a table of tasks is an array of int64, got {getattr(rows, 'dtype', type(rows).__name__)}")
    if rows.ndim != 2 or rows.shape[1] != 4 or not rows.flags.c_contiguous:
        raise ValueError(f"a table of tasks has shape (tasks, 4) and is contiguous, got shape {rows.shape}")
    kernel, count, grain, arguments = rows.T
    neither = (kernel == 0) & ((count != 0) | (arguments == 0))
    wrong = neither | (count < 0) | (grain < 1) | (chunks(rows) > worker_loop.MOST_CHUNKS)
    if wrong.any():
        task = int(wrong.argmax())
        raise ValueError(
            f"task {task} of the table is {rows[task].tolist()}, but a task is [kernel address, count from 0 on, grain "
            "from 1 on, arguments address] with fewer than 2**32 chunks"
        )
    return rows


def chunks(rows: Integers) -> Integers:
    """Return how many chunks each task has."""
    found: Integers = -(-rows[:, COUNT] // np.maximum(rows[:, GRAIN], 1))
    return found


def lost(what: str) -> RuntimeError:
    """Return the error of a process that was forked by a kernel."""
    return RuntimeError(
        f"this process was forked inside {what}, and the chunks that other threads ran were left behind in its parent; "
        "fork outside of kernels, or leave the child with os._exit() before the kernel returns"
    )


class Table:
    """Tasks that run in order, each one on all threads.

    Args:
        rows: int64, shape (tasks, 4): [kernel address, count, grain, arguments address] of each; kernels are
            ``void (ptr arguments, i64 begin, i64 end)``, as :func:`wengert.runtime.workers.parallel_for` takes them. The row
            [0, 0, 1, address] is a check: the run halts there if the word at the address is not 0. What the addresses point
            to must live as long as the table runs.

    Attributes:
        rows: the array itself, not a copy: addresses may be changed between runs.

    Raises:
        TypeError, ValueError: if it is not such an array.
    """

    __slots__ = ("_native", "_place", "rows")

    def __init__(self, rows: Integers) -> None:
        self.rows = checked(rows)
        self._place = pointer(rows)
        self._native = _native()

    def __len__(self) -> int:
        return len(self.rows)

    def run(self, first: int = 0, end: int | None = None) -> None:
        """Run the tasks from ``first`` on to before ``end``.

        Any number of threads may run tables at once; the loops of one of them use the workers, those of the others their
        own thread. Signals are handled about every 50 ms: after Ctrl-C what has begun is finished, the rest is left out,
        and ``KeyboardInterrupt`` is raised.

        Raises:
            IndexError: if there are no such tasks. Halted: by a check. RuntimeError: in a process forked by a kernel.
        """
        end = len(self.rows) if end is None else end
        if not 0 <= first <= end <= len(self.rows):
            raise IndexError(f"there are {len(self.rows)} tasks, but those from {first} to before {end} were to run")
        self._run(self._words(first, end, 0))

    def timed(self) -> Integers:
        """Run all tasks; return when each began and ended, in nanoseconds, shape (tasks, 2)."""
        times = np.zeros((len(self.rows), 2), np.int64)
        self._run(self._words(0, len(self.rows), pointer(times)))
        return times

    def prepared(self) -> Callable[[], None]:
        """Return what runs the whole table, for one thread at a time: it costs less than :meth:`run`."""
        words, run = self._words(0, len(self.rows), 0), self._run

        def again() -> None:
            words[_NEXT] = words[_LEFT] = 0
            run(words)

        return again

    def _words(self, first: int, end: int, times: int) -> Any:
        return _Words(self._place, first, end, 0, self._native.parallel_for, self._native.resume, times)

    def _run(self, words: Any) -> None:
        tasks = self._native.tasks
        pool = start_workers()  # held while it is used: another thread may replace it
        while left := tasks(pool.address, words):
            pool = start_workers()
            if left == task_loop.PAUSED:
                continue
            task = words[_NEXT]
            if left == task_loop.HALTED:
                raise Halted(task)
            raise lost(f"task {task} of a plan") if left == worker_loop.LOST else _spoilt(self.rows, task)


class Halted(Exception):  # noqa: N818 - whoever made the check says what is wrong
    """A run that a check has ended; ``task`` is the number of its row."""

    def __init__(self, task: int) -> None:
        super().__init__(f"task {task}, a check, has ended the run")
        self.task = task


def _spoilt(rows: Integers, task: int) -> ValueError:
    return ValueError(
        f"task {task} was changed to {rows[task].tolist()}, which is not [kernel, count, grain, arguments]"
    )


def run(rows: Integers) -> None:
    """Run a table of tasks once, in order; see :class:`Table`.

    Raises:
        TypeError, ValueError: if it is not a table. RuntimeError: in a process forked by a kernel.
    """
    Table(rows).run()


class TaskGraph:
    """Tasks that run as soon as those they depend on have ended, on all threads at once.

    A thread takes the most urgent of the ready tasks and runs it alone. Threads for which none is ready help with the chunks
    of those that are running. What is computed does not depend on the order nor on the number of threads.

    Args:
        rows: a table, see :class:`Table`; here it is copied.
        dependencies: for each task the numbers of those that must have ended before it begins.
        urgency: all tasks, the most urgent first, as :class:`wengert.runtime.scheduler.Schedule` has them; by default the
            lowest number first.

    Raises:
        TypeError, ValueError: if the table is none or has checks, a task depends on one that does not exist or on itself by
            some way, or ``urgency`` does not name each task once.
    """

    __slots__ = ("_beginnings", "_count", "_native", "_order", "_rows", "_starts", "_successors", "_tasks")

    def __init__(
        self, rows: Integers, dependencies: Sequence[Iterable[int]], urgency: Sequence[int] | None = None
    ) -> None:
        count = self._count = len(checked(rows))
        if not rows[:, KERNEL].all():
            raise ValueError("a graph of tasks has no checks; run them before it, in a table")
        order = self._order = _permutation(urgency, count)
        rank = np.empty(count, np.int64)
        rank[order] = np.arange(count)
        before, after = _edges(dependencies, count)
        self._rows = rows[order]
        before, after = rank[before], rank[after]
        self._successors = after[np.argsort(before, kind="stable")]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(before, minlength=count))]).astype(np.int64)
        self._native = _native()
        self._tasks = _initial(self._rows, np.bincount(after, minlength=count))
        self._beginnings: dict[int, Integers] = {}  # by the number of seats; only the last one is kept

    def __len__(self) -> int:
        return self._count

    def run(self) -> None:
        """Run all tasks.

        Any number of threads may run graphs, the same one too, at once; one of them uses the workers, the others run
        theirs alone. Signals are handled as in :meth:`Table.run`.

        Raises:
            RuntimeError: in a process forked by a kernel.
        """
        _Run(self, get_num_threads())(0)

    def prepared(self) -> Callable[[], None]:
        """Return what runs all tasks, for one thread at a time: it costs less than :meth:`run`."""
        runs: dict[int, _Run] = {}  # by the number of seats; only the last one is kept

        def again() -> None:
            seats = get_num_threads()
            run = runs.get(seats)
            if run is None:
                runs.clear()
                run = runs[seats] = _Run(self, seats)
            run(0)

        return again

    def timed(self, busy: Integers | None = None) -> Integers:
        """Run all tasks; return when each began and ended, in nanoseconds, and in which seat, shape (tasks, 3).

        Args:
            busy: for each thread, how many nanoseconds it worked, also on chunks of tasks that others began, is written here.
        """
        times = np.zeros((self._count, task_steps.TIMED), np.int64)
        seats = get_num_threads()
        run = _Run(self, seats)
        run(pointer(times))
        if busy is not None:
            lines = run.state[task_steps.SLOTS : task_steps.SLOTS + task_steps.LINE * seats]
            busy[:] = lines[task_steps.BUSY :: task_steps.LINE]
        found = np.empty_like(times)
        found[self._order] = times
        return found

    def _beginning(self, seats: int) -> Integers:
        """Return the memory of a run as it is when nothing has run yet."""
        found = self._beginnings.get(seats)
        if found is None:
            pairs, ready = -(-self._count // 64), task_steps.SLOTS + task_steps.LINE * seats
            words = {
                "TABLE": pointer(self._rows), "STARTS": pointer(self._starts), "SUCCESSORS": pointer(self._successors),
                "SEATS": seats, "READY": ready, "PAIRS": pairs, "STEPS": ready + 2 * pairs, "LEFT": self._count,
            }  # fmt: skip
            found = np.concatenate([np.zeros(ready, np.int64), self._tasks])
            for name, value in words.items():
                found[task_steps.STATE[name]] = value
            self._beginnings = {seats: found}
        return found


class _Run:
    """The memory of runs of a graph, one after the other, and what they call."""

    __slots__ = ("_address", "_beginning", "_graph", "_memory", "_parallel_for", "state")

    def __init__(self, graph: TaskGraph, seats: int) -> None:
        self._graph, self._beginning = graph, graph._beginning(seats)
        self._memory = np.empty(len(self._beginning) + task_steps.LINE, np.int64)
        place = pointer(self._memory)
        skipped = -place // 8 % task_steps.LINE
        self.state = self._memory[skipped : skipped + len(self._beginning)]
        self._address = ctypes.c_void_p(place + 8 * skipped)
        self._parallel_for = ctypes.c_void_p(graph._native.parallel_for)

    def __call__(self, times: int) -> None:
        self.state[:] = self._beginning
        self.state[_TIMES] = times
        run = self._graph._native.graph
        pool = start_workers()  # held while it is used: another thread may replace it
        while left := run(pool.address, self._address, self._parallel_for):
            pool = start_workers()
            if left != task_loop.PAUSED:
                raise lost("a plan")


def _permutation(urgency: Sequence[int] | None, count: int) -> Integers:
    order = np.arange(count) if urgency is None else np.asarray(urgency, np.int64)
    if order.shape != (count,) or not np.array_equal(np.sort(order), np.arange(count)):
        raise ValueError(f"urgency must name each of the {count} tasks once, got {len(order)} numbers: {order[:8]}…")
    return order


def _edges(dependencies: Sequence[Iterable[int]], count: int) -> tuple[Integers, Integers]:
    """Return the dependencies as pairs of tasks, each pair once: those that come first, and those that wait.

    Raises:
        ValueError: if a task does not exist, or there is a cycle.
    """
    if len(dependencies) != count:
        raise ValueError(f"{count} tasks need as many lists of dependencies, got {len(dependencies)}")
    pairs = [(first, task) for task, firsts in enumerate(dependencies) for first in dict.fromkeys(firsts)]
    for first, task in pairs:
        if not 0 <= first < count:
            raise ValueError(f"task {task} depends on task {first}, but there are only {count}")
    before, after = np.array(pairs, np.int64).reshape(-1, 2).T
    waits = np.bincount(after, minlength=count)
    successors: list[list[int]] = [[] for _ in range(count)]
    for first, task in pairs:
        successors[first].append(task)
    ready = [task for task in range(count) if not waits[task]]
    for task in ready:
        for successor in successors[task]:
            waits[successor] -= 1
            if not waits[successor]:
                ready.append(successor)
    if len(ready) < count:
        raise ValueError(f"task {int(np.flatnonzero(waits)[0])} depends on itself, by way of other tasks")
    return before, after


def _initial(rows: Integers, waits: Integers) -> Integers:
    """Return what a run begins with: the bits of ready tasks, and the steps of each (``codegen.task_graph``)."""
    count = len(rows)
    bits = np.zeros((-(-count // 64), 64), np.uint8)
    bits.reshape(-1)[:count] = waits == 0
    taken = np.zeros_like(bits)
    taken.reshape(-1)[count:] = 1
    pairs = np.stack([np.packbits(b, axis=1, bitorder="little").view("<u8")[:, 0] for b in (bits, taken)], axis=1)
    number = np.minimum(chunks(rows), worker_loop.MOST_CHUNKS)
    unfinished = number.astype(np.uint32)
    steps = np.stack([(waits | (unfinished.astype(np.int64) << 32)), number << 32], axis=1)
    return np.concatenate([pairs.view(np.int64).reshape(-1), steps.reshape(-1)])

"""What of a plan computes which node: to say it, to run a plan node by node, and to take the time of each."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from wengert.graph.ir import Node
from wengert.passes.report import operators
from wengert.runtime.concurrent import Concurrent
from wengert.runtime.plan import Plan
from wengert.runtime.recording import Task
from wengert.runtime.segments import Native
from wengert.runtime.threads import get_num_threads
from wengert.runtime.timeline import Interval, Timeline

__all__ = ["Part", "by_node", "parts", "timed"]


class Part(NamedTuple):
    """What computes a node, or a stretch of it: tasks that follow one another in one step of a plan.

    Attributes:
        node: it. number, step: of the plan. first, end: the tasks of it. kernels: how many of them are machine code.
    """

    node: Node
    number: int
    step: Any
    first: int
    end: int
    kernels: int

    @property
    def why(self) -> str:
        """Why Python computes it; "" if native code does."""
        if isinstance(self.step, Native):
            return ""
        called = getattr(self.step, "__qualname__", type(self.step).__qualname__)
        return str(getattr(self.step, "why", f"its kernel calls {called}() each time"))

    def run(self) -> None:
        """Compute it."""
        if not isinstance(self.step, Native):
            self.step()
        elif self.end - self.first == len(self.step.table):
            self.step()  # with its checks
        else:
            self.step.table.run(self.first, self.end)


def parts(plan: Plan) -> Iterator[Part]:
    """Yield what a plan runs, in order."""
    place = 0
    for number, step in enumerate(plan.steps):
        count = len(step.table) if isinstance(step, Native) else 1
        first = 0
        for k in range(1, count + 1):
            if k == count or plan.nodes[place + k] is not plan.nodes[place + first]:
                tasks = plan.tasks[place + first : place + k]
                yield Part(plan.nodes[place + first], number, step, first, k, sum(isinstance(t, Task) for t in tasks))
                first = k
        place += count


def by_node(plan: Plan, arrays: Sequence[Any], visit: Callable[[Node, Callable[[], None]], None]) -> list[Any]:
    """Run a plan node by node; return what it returns.

    Args:
        visit: called with each node that something is run for, and a function that runs it, which it must call.
    """
    groups: dict[Node, list[Part]] = {}
    for part in parts(plan):
        groups.setdefault(part.node, []).append(part)

    def run(found: list[Part]) -> None:
        for part in found:
            part.run()

    with _steps(plan, [partial(visit, node, partial(run, found)) for node, found in groups.items()]):
        return plan(arrays)


def timed(plan: Plan, arrays: Sequence[Any], title: str = "a plan") -> tuple[dict[Node, float], Timeline]:
    """Run a plan once; return the seconds that each node took, and all of it as a timeline.

    What runs in order is done by all threads together, what may overlap begins on one of them, and Python is a row of its own.
    """
    seconds: dict[Node, float] = {}
    intervals: list[Interval] = []

    def run(own: list[Part]) -> None:
        start = time.perf_counter()
        for part, resource, began, ended in _run_timed(own):
            seconds[part.node] = seconds.get(part.node, 0.0) + ended - began
            intervals.append(Interval(operators(part.node), resource, start + began, start + ended))

    steps = [list(some) for _, some in groupby(parts(plan), lambda part: part.number)]
    with _steps(plan, [partial(run, own) for own in steps]):
        plan(arrays)
    overlap = any(isinstance(step, Concurrent) for step in plan.steps)
    threads = [f"thread {k}" for k in range(get_num_threads())] if overlap else []
    resources = list(dict.fromkeys([*threads, *sorted(interval.resource for interval in intervals)]))
    return seconds, Timeline(title, resources, intervals)


def _run_timed(own: list[Part]) -> Iterator[tuple[Part, str, float, float]]:
    """Run the parts of a step; yield each with where it ran, and when it began and ended, in seconds from the start."""
    step = own[0].step
    if not isinstance(step, Native):
        start = time.perf_counter()
        step()
        yield own[0], "Python", 0.0, time.perf_counter() - start
        return
    times = step.graph.timed() if isinstance(step, Concurrent) else step.table.timed()
    first = int(times[:, 0].min())
    for part in own:
        began, ended = (times[part.first, 0] - first) * 1e-9, (times[part.end - 1, 1] - first) * 1e-9
        where = f"thread {times[part.first, 2]}" if isinstance(step, Concurrent) else f"{get_num_threads()} threads"
        yield part, where, float(began), float(ended)


@contextmanager
def _steps(plan: Plan, steps: list[Callable[[], None]]) -> Iterator[None]:
    """Let a plan run other steps in a block."""
    own, plan.steps = plan.steps, steps
    try:
        yield
    finally:
        plan.steps = own

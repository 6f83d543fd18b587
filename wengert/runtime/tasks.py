"""What is to be scheduled: tasks that depend on each other, and the resources that can run them."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

__all__ = ["Costs", "Problem", "Resource", "Task", "processors"]


@dataclass(frozen=True, slots=True)
class Task:
    """One unit of work.

    Args:
        name: tells it from others.
        seconds: what it takes; one number for every resource of its device, or a number for each that can run it, by the
            resource's name or kind.
        dependencies: the names of the tasks that must have ended before it begins.
        allocates: bytes that it takes when it begins. frees: bytes that are given back when it ends.
        threads: how many resources may share it. efficiency: what each of them but the first contributes, from 0 to 1.
        crowded: what is left of a resource's speed while all resources work, from 0 (not included) to 1: they share the
            bandwidth of the memory, perhaps even a processor's units. device: whose resources run it.
    """

    name: Hashable
    seconds: float | Mapping[str, float]
    dependencies: Sequence[Hashable] = ()
    allocates: int = 0
    frees: int = 0
    threads: int = 1
    efficiency: float = 1.0
    crowded: float = 1.0
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that runs one task at a time: a thread, a stream, a link between devices.

    Args:
        name: tells it from others. kind: what costs may be given by. device: whose tasks it runs.
    """

    name: str
    kind: str = "cpu"
    device: str = "cpu"


def processors(number: int, device: str = "cpu") -> list[Resource]:
    """Return the threads of a device.

    >>> [resource.name for resource in processors(2)]
    ['cpu thread 0', 'cpu thread 1']
    """
    return [Resource(f"{device} thread {k}", "cpu", device) for k in range(number)]


class Problem:
    """Tasks and resources, checked, with their relations as numbers.

    Attributes:
        tasks, resources: in the order given; tasks are named by their place in it from here on.
        before, after: for each task those that it depends on, and those that depend on it.
        order: the tasks in an order in which they could be run, the first given first.
        costs: for each task the seconds that it takes on each resource that can run it. shortest: what it takes at best,
            shared by as many threads as may share it. crowds: whether some tasks are slower while all resources work.

    Raises:
        ValueError: if names are not unique, a dependency is unknown or there is a cycle; if a cost, a size, a number of
            threads, an efficiency or a speed is out of range; or if no resource can run some task.
    """

    def __init__(self, tasks: Sequence[Task], resources: Sequence[Resource]) -> None:
        self.tasks, self.resources = list(tasks), list(resources)
        _unique("resource", [resource.name for resource in self.resources])
        places = _unique("task", [task.name for task in self.tasks])
        self.before = [_places(task, places) for task in self.tasks]
        self.after: list[list[int]] = [[] for _ in self.tasks]
        for k, firsts in enumerate(self.before):
            for first in firsts:
                self.after[first].append(k)
        self.order = self._sorted()
        self.crowds = any(task.crowded < 1 for task in self.tasks)
        costs = _Costs(self.resources)
        self.costs = [costs.of(task) for task in self.tasks]
        self.shortest = [_shortest(task, cost) for task, cost in zip(self.tasks, self.costs, strict=True)]

    def _sorted(self) -> list[int]:
        waits = [len(firsts) for firsts in self.before]
        ready = [k for k, number in enumerate(waits) if number == 0]
        heapify(ready)
        order: list[int] = []
        while ready:
            order.append(task := heappop(ready))
            for successor in self.after[task]:
                waits[successor] -= 1
                if waits[successor] == 0:
                    heappush(ready, successor)
        if len(order) < len(self.tasks):
            raise ValueError(f"tasks wait for each other: {' → '.join(map(str, self._cycle(waits)))}")
        return order

    def _cycle(self, waits: list[int]) -> list[Hashable]:
        """Return the names along a cycle; every task that still waits has a predecessor that does, too."""
        task, path = next(k for k, number in enumerate(waits) if number), []
        while task not in path:
            path.append(task)
            task = next(first for first in self.before[task] if waits[first])
        return [self.tasks[k].name for k in [task, *reversed(path[path.index(task) :])]]

    def remaining(self) -> list[float]:
        """Return for each task the longest path from its beginning to the end of all, in seconds at best."""
        found = [0.0] * len(self.tasks)
        for k in reversed(self.order):
            found[k] = self.shortest[k] + max((found[successor] for successor in self.after[k]), default=0.0)
        return found

    def critical_path(self) -> list[int]:
        """Return the tasks of a longest path."""
        remaining = self.remaining()
        path: list[int] = []
        choices: Sequence[int] = self.order
        while choices:
            path.append(max(choices, key=remaining.__getitem__))
            choices = self.after[path[-1]]
        return path


def _unique(what: str, names: list[Any]) -> dict[Any, int]:
    places = {name: k for k, name in enumerate(names)}
    if len(places) < len(names):
        twice = next(name for k, name in enumerate(names) if places[name] != k)
        raise ValueError(f"two {what}s are called {twice!r}; names must be unique")
    return places


def _places(task: Task, places: Mapping[Hashable, int]) -> list[int]:
    found = []
    for name in dict.fromkeys(task.dependencies):
        if name not in places:
            raise ValueError(f"task {task.name!r} depends on {name!r}, which is none of the tasks")
        found.append(places[name])
    return found


def _check(task: Task) -> None:
    if task.threads < 1:
        raise ValueError(f"task {task.name!r} may be shared by {task.threads} threads; expected at least 1")
    if not 0 <= task.efficiency <= 1:
        raise ValueError(f"task {task.name!r} has efficiency {task.efficiency}; expected a number from 0 to 1")
    if not 0 < task.crowded <= 1:
        raise ValueError(
            f"task {task.name!r} has speed {task.crowded} when crowded; expected a number above 0, up to 1"
        )
    if task.allocates < 0 or task.frees < 0:
        raise ValueError(
            f"task {task.name!r} allocates {task.allocates} and frees {task.frees} bytes; expected at least 0"
        )


class Costs(NamedTuple):
    """What a task costs.

    Attributes:
        able: the resources that can run it. seconds: on each of these.
    """

    able: tuple[int, ...]
    seconds: tuple[float, ...]

    def on(self, resource: int) -> float:
        """Return the seconds on one of the resources."""
        return self.seconds[self.able.index(resource)]


class _Costs:
    """Finds costs; most tasks name one number for all resources of their device."""

    def __init__(self, resources: list[Resource]) -> None:
        self._resources = resources
        self._devices: dict[str, tuple[int, ...]] = {}
        for k, resource in enumerate(resources):
            self._devices[resource.device] = (*self._devices.get(resource.device, ()), k)

    def of(self, task: Task) -> Costs:
        _check(task)
        able, seconds = self._devices.get(task.device, ()), task.seconds
        if isinstance(seconds, Mapping):
            given = [(k, seconds.get(self._resources[k].name, seconds.get(self._resources[k].kind))) for k in able]
            known = [(k, float(number)) for k, number in given if number is not None]
            found = Costs(tuple(k for k, _ in known), tuple(number for _, number in known))
        else:
            found = Costs(able, (float(seconds),) * len(able))
        if not found.able:
            offered = ", ".join(sorted({f"{r.kind} of {r.device}" for r in self._resources})) or "none"
            raise ValueError(f"no resource can run task {task.name!r} of {task.device}; there are: {offered}")
        if not all(0 <= number < math.inf for number in set(found.seconds)):
            raise ValueError(f"task {task.name!r} costs {found.seconds} seconds; expected finite numbers from 0 on")
        return found


def _shortest(task: Task, costs: Costs) -> float:
    """Return the seconds of a task with the fastest resources that may share it."""
    fastest = sorted(costs.seconds)[: task.threads]
    if fastest[0] == 0:
        return 0.0
    return 1 / (1 / fastest[0] + sum(task.efficiency / seconds for seconds in fastest[1:]))

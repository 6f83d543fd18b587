"""Scheduling: which resource runs which task when, by a simulation of what the executor will do.

The simulated executor is the real one (:class:`wengert.runtime.executor.TaskGraph`): a resource that is free takes the most
urgent ready task, on the fastest free resource that can run it. A resource for which none is ready helps with a task
that others have begun, if it may be shared, and leaves it as soon as something is ready.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, NamedTuple

from wengert.runtime.policies import Policy, policy_of
from wengert.runtime.tasks import Costs, Problem, Resource, Task

__all__ = ["Schedule", "Span", "schedule"]


class Span(NamedTuple):
    """A resource worked on a task from ``start`` to ``end``, in seconds."""

    task: int
    resource: int
    start: float
    end: float


@dataclass
class Schedule:
    """What runs when.

    Attributes:
        problem: tasks and resources; they are numbered as they were given. policy: its name.
        urgency: all tasks, the most urgent first: what the executor's ``TaskGraph`` takes. order: all tasks as they begin.
        assignment: the resource on which each task begins. start, end: when, in seconds from the beginning.
        spans: who worked on what. makespan: when the last task ends.
        critical_path: the tasks of a longest path; critical_seconds: its length, less than which no schedule can take.
        peak_memory: the most bytes that are allocated at once, by device; what was there before the beginning is not counted.
    """

    problem: Problem
    policy: str
    urgency: list[int]
    order: list[int]
    assignment: list[int]
    start: list[float]
    end: list[float]
    spans: list[Span]
    makespan: float
    critical_path: list[int]
    critical_seconds: float
    peak_memory: dict[str, int]

    @property
    def busy(self) -> dict[str, float]:
        """The seconds in which each resource works, by its name."""
        found = dict.fromkeys((resource.name for resource in self.problem.resources), 0.0)
        for span in self.spans:
            found[self.problem.resources[span.resource].name] += span.end - span.start
        return found

    @property
    def utilisation(self) -> dict[str, float]:
        """The part of the makespan in which each resource works, by its name."""
        return {name: seconds / self.makespan if self.makespan else 0.0 for name, seconds in self.busy.items()}


@dataclass(slots=True)
class _Running:
    """A task that has begun.

    Attributes:
        task: its number. given: what it is. costs: what it costs.
        members: who works on it and since when; the first one began it.
        done: the part that was done at ``time``. rate: the part that is done in a second from then on. end: when it will end.
        speed: of those who work on it, 1 if nobody else works.
        version: counts the changes of ``end``.
    """

    task: int
    given: Task
    costs: Costs
    time: float
    members: dict[int, float] = field(default_factory=dict)
    done: float = 0.0
    rate: float = 0.0
    speed: float = 1.0
    end: float = math.inf
    version: int = 0

    def change(self, time: float) -> None:
        """Reckon with other members from now on."""
        if time > self.time:
            self.done += (time - self.time) * self.rate
            self.time = time
        seconds = [self.costs.on(resource) for resource in self.members]
        if min(seconds) == 0:
            self.rate, self.end = math.inf, time
        else:
            alone = 1 / seconds[0] + self.given.efficiency * sum(1 / number for number in seconds[1:])
            self.rate = alone * self.speed
            self.end = time + max(0.0, 1.0 - self.done) / self.rate


@dataclass
class _Simulation:
    """The state of a schedule at one moment."""

    problem: Problem
    policy: Policy
    keys: list[tuple[float, int]]  # the smallest goes first
    time: float = 0.0
    free: set[int] = field(default_factory=set)
    queues: dict[tuple[int, ...], list[tuple[float, int]]] = field(
        default_factory=dict
    )  # by who can run what is in them
    running: dict[int, _Running] = field(default_factory=dict)
    helping: dict[int, _Running] = field(default_factory=dict)  # what a resource helps with
    events: list[tuple[float, int, int]] = field(default_factory=list)  # ends: time, task, version
    spans: list[Span] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    crowd: float = 0.0  # the part of the resources that work, from 0 (one of them) to 1 (all)

    def run(self) -> tuple[list[int], list[int], list[float], list[float]]:
        """Return the order in which tasks begin, on which resources, and when they begin and end."""
        count = len(self.problem.tasks)
        self.order: list[int] = []
        self.assignment, self.start, self.end = [0] * count, [0.0] * count, [0.0] * count
        waits = [len(firsts) for firsts in self.problem.before]
        self.free.update(range(len(self.problem.resources)))
        for task in range(count):
            if waits[task] == 0:
                self._release(task)
        self._dispatch()
        while self.events:
            self.time = self.events[0][0]
            while self.events and self.events[0][0] == self.time:
                _, task, version = heappop(self.events)
                if task in self.running and self.running[task].version == version:
                    self._finish(task)
                    for successor in self.problem.after[task]:
                        waits[successor] -= 1
                        if waits[successor] == 0:
                            self._release(successor)
            self._dispatch()
        return self.order, self.assignment, self.start, self.end

    def _release(self, task: int) -> None:
        heappush(self.queues.setdefault(self.problem.costs[task].able, []), self.keys[task])

    def _dispatch(self) -> None:
        """Give ready tasks to free resources, and those that are left over to running tasks."""
        while not (self.policy.one_by_one and self.running):
            available = self.free | self.helping.keys()
            heads = [
                (queue[0], queue) for able, queue in self.queues.items() if queue and not available.isdisjoint(able)
            ]
            if not heads:
                break
            (_, task), queue = min(heads, key=lambda head: head[0])
            heappop(queue)
            self._begin(task, available)
        if self.free:
            self._help()
        self._crowd()

    def _crowd(self) -> None:
        """Reckon with how many resources work."""
        number = len(self.problem.resources)
        crowd = (number - len(self.free) - 1) / (number - 1) if number > 1 and self.running else 0.0
        if crowd != self.crowd and self.problem.crowds:
            self.crowd = crowd
            for running in self.running.values():
                running.speed = self._speed(running.given)
                running.change(self.time)
                self._expect(running)

    def _speed(self, task: Task) -> float:
        return 1.0 - (1.0 - task.crowded) * self.crowd

    def _begin(self, task: int, available: set[int]) -> None:
        given, costs = self.problem.tasks[task], self.problem.costs[task]
        choices = zip(costs.seconds, costs.able, strict=True)
        resource = min((seconds, r in self.helping, r) for seconds, r in choices if r in available)[2]
        if resource in self.helping:
            self._leave(resource)
        self.free.discard(resource)
        self.order.append(task)
        self.assignment[task], self.start[task] = resource, self.time
        running = self.running[task] = _Running(
            task, given, costs, self.time, {resource: self.time}, speed=self._speed(given)
        )  # fmt: skip
        running.change(self.time)
        self._expect(running)
        self.memory[given.device] = self.memory.get(given.device, 0) + given.allocates
        self.peak[given.device] = max(self.peak.get(given.device, 0), self.memory[given.device])

    def _help(self) -> None:
        """Let each free resource share the task that would end last of those that it may share."""
        room = [running for running in self.running.values() if len(running.members) < running.given.threads]
        changed: dict[int, _Running] = {}
        for resource in sorted(self.free) if room else ():
            choices = [running for running in room if resource in running.costs.able]
            if not choices:
                continue
            running = max(choices, key=lambda running: running.end)
            running.members[resource] = self.time
            running.change(self.time)
            if len(running.members) == running.given.threads:
                room.remove(running)
            self.free.discard(resource)
            self.helping[resource] = changed[running.task] = running
        for running in changed.values():
            self._expect(running)

    def _leave(self, resource: int) -> None:
        running = self.helping.pop(resource)
        self._record(running.task, resource, running.members.pop(resource))
        running.change(self.time)
        self._expect(running)

    def _finish(self, task: int) -> None:
        running = self.running.pop(task)
        for resource, since in running.members.items():
            self._record(task, resource, since)
            self.helping.pop(resource, None)
            self.free.add(resource)
        self.end[task] = self.time
        self.memory[running.given.device] -= running.given.frees

    def _expect(self, running: _Running) -> None:
        running.version += 1
        heappush(self.events, (running.end, running.task, running.version))

    def _record(self, task: int, resource: int, since: float) -> None:
        if self.time > since:
            self.spans.append(Span(task, resource, since, self.time))


def schedule(tasks: Sequence[Task], resources: Sequence[Resource], policy: str | Policy = "priority") -> Schedule:
    """Return what runs when: of n tasks in O(n log n), for a few resources.

    Args:
        tasks: in any order. resources: what runs them.
        policy: ``"topological"`` (one by one), ``"ready"`` (any that is ready), ``"priority"`` (longest remaining path
            first), or a :class:`wengert.runtime.policies.Policy`.

    Raises:
        ValueError: if tasks wait for each other or for one that does not exist, a cost is negative, or nobody can run one.

    Example:
        >>> from wengert.runtime.scheduler import schedule
        >>> from wengert.runtime.tasks import Task, processors
        >>> tasks = [Task("short", 1), Task("long", 3), Task("last", 1, ["long"]), Task("other", 1)]
        >>> [schedule(tasks, processors(2), policy).makespan for policy in ("topological", "ready", "priority")]
        [6.0, 4.0, 4.0]
    """
    problem, chosen = Problem(tasks, resources), policy_of(policy)
    urgencies = chosen.urgencies(problem)
    if len(urgencies) != len(problem.tasks):
        raise ValueError(f"policy {chosen.name!r} gave {len(urgencies)} urgencies for {len(problem.tasks)} tasks")
    keys = [(-float(urgency), task) for task, urgency in enumerate(urgencies)]
    simulation = _Simulation(problem, chosen, keys)
    order, assignment, start, end = simulation.run()
    path = problem.critical_path()
    found: dict[str, Any] = {"order": order, "assignment": assignment, "start": start, "end": end}
    return Schedule(
        problem, chosen.name, [task for _, task in sorted(keys)], spans=simulation.spans, makespan=max(end, default=0.0),
        critical_path=path, critical_seconds=sum(problem.shortest[task] for task in path), peak_memory=simulation.peak, **found,
    )  # fmt: skip

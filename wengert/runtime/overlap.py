"""Whether the nodes of a plan run one after the other, each on all threads, or beside one another.

A plan is first made in order (:class:`wengert.runtime.plan.Plan`): a table of tasks, each of which all threads share. If
the policy lets nodes overlap, their run is simulated, from what they are reckoned to cost and what they need of each
other. Where that promises to be more than :data:`GAIN` times as fast, a second plan is made, in which

- nodes stand in the order in which they are expected to begin. What Python does, and checks that may end the run, split a
  plan into parts: native nodes go in front of them as far as they can, so that there are few parts;
- values share memory only if the simulation has one end before the other begins, and scratch only if one thread is
  expected to run both nodes. What then shares memory still makes nodes wait for each other (they wait for whoever uses the
  memory that they write, whatever happened to the expectations), but for hardly any that would be late. Where all of
  this takes more than :data:`GROWTH` times the memory (and :data:`SPARE`), values share it as in order, and nodes wait more;
- tasks are run by a graph of tasks (:class:`wengert.runtime.concurrent.Concurrent`).

If the simulation of what came out, with all that waits for memory, no longer promises as much, the first plan is used. So it is
for more than :data:`MOST` nodes. Values are the same, bit for bit: kernels are, and what they read.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from wengert.errors import OutOfMemoryError
from wengert.graph.devices import device_of_node, placements
from wengert.graph.ir import Graph, Node, Value
from wengert.runtime.concurrent import Concurrent, Expected, Unit, jobs, units_of
from wengert.runtime.dependencies import Access
from wengert.runtime.lives import Scheduled, in_order
from wengert.runtime.machine import Machine, known
from wengert.runtime.plan import Plan
from wengert.runtime.policies import Policy, policy_of
from wengert.runtime.recording import Check
from wengert.runtime.recording import Task as Launch
from wengert.runtime.scheduler import schedule
from wengert.runtime.tasks import processors

__all__ = ["GAIN", "GROWTH", "planned"]

GAIN: Final = 1.1  # times as fast as in order, from which on nodes overlap: less may be lost in caches
LEAST: Final = 3e-5  # seconds that must be gained: each part of a plan is a call of its own, and starts other threads
GROWTH: Final = 1.5  # times the memory
SPARE: Final = 1 << 20  # bytes that may be added in any case
MOST: Final = 5000  # nodes, past which a plan is not made twice
NOTHING: Final = Access((), ())


def planned(
    graph: Graph, bound: Sequence[Any], *, in_place: bool = True, policy: str | Policy = "priority",
    devices: Mapping[Value, int] | None = None, keep: Mapping[int, Callable[[], bool]] | None = None,
) -> Plan:  # fmt: skip
    """Return a plan under a policy: of nodes that overlap, if that promises to be faster.

    Args:
        graph, bound, in_place, keep: as of :class:`wengert.runtime.plan.Plan`.
        policy: as of :func:`wengert.runtime.scheduler.schedule`; "topological" is in order.
        devices: of inputs and constants, by their numbers, where there are several. The nodes of a device run one after the
            other, as in a queue, those of different devices side by side.
    """
    chosen, machine = policy_of(policy), known()
    plan = Plan(graph, bound, in_place=in_place, keep=keep)
    if chosen.one_by_one or machine.threads == 1 or len(graph.nodes) > MOST:
        return plan
    again = _Order(plan, machine, chosen, _queues(graph, devices or {}))
    if not _gains(again.in_order, again.makespan):
        return plan
    for lives in (again.lives, in_order(len(graph.nodes))):
        seats = again.seats if lives is again.lives else [0] * len(graph.nodes)
        expected = Expected(lives, seats, chosen, machine, again.queues)
        try:
            found = Plan(again.graph, bound, in_place=in_place, keep=keep, expected=expected)
        except OutOfMemoryError:  # there is no room for two plans at once
            return plan
        if found.nbytes <= GROWTH * plan.nbytes + SPARE or lives is not again.lives:
            break
    return found if _gains(again.in_order, again.makespan_of(found)) else plan


def _gains(in_order: float, overlapping: float) -> bool:
    return in_order > max(GAIN * overlapping, overlapping + LEAST)


def _queues(graph: Graph, devices: Mapping[Value, int]) -> dict[Node, int]:
    """Return in which queue each node stands; none, if all are on one device."""
    found = placements(graph, devices)
    queues = {node: device_of_node(node, found) for node in graph.nodes}
    return queues if len(set(queues.values())) > 1 else {}


class _Order:
    """An order for the nodes of a plan, by a simulation of their run.

    Attributes:
        graph: with the nodes in this order. lives, seats, queues: as of :class:`Expected`.
        in_order: the seconds that are expected if nodes run one after the other. makespan: if they do not.
    """

    def __init__(self, plan: Plan, machine: Machine, policy: Policy, queues: Mapping[Node, int]) -> None:
        self._plan, self._machine, self.queues = plan, machine, queues
        self._places = {node: k for k, node in enumerate(plan.graph.nodes)}
        own = {unit.node: unit for unit in units_of(plan.nodes)}
        units = [own.get(node) or Unit(node, 0, 0, NOTHING) for node in plan.graph.nodes]
        self._serial = [
            getattr(u.node.op, "effect", False) or not all(isinstance(t, Launch) for t in plan.tasks[u.first : u.end])
            for u in units
        ]
        self._before = self._waits(units)
        counts = [-(-t.steps // t.grain) if isinstance(t, Launch) else 1 for t in plan.tasks]
        self._jobs = jobs(units, counts, [()] * len(units), machine)
        apart = schedule(self._jobs, processors(machine.threads), "topological")
        self._seconds = [end - start for start, end in zip(apart.start, apart.end, strict=True)]
        self.in_order = apart.makespan
        self._arrange(policy)

    def _waits(self, units: Sequence[Unit]) -> list[list[int]]:
        """Return for each node those that must have ended before it: of the values it reads, and of effects."""
        graph, places = self._plan.graph, self._places
        found = [[places[v.node] for v in node.inputs if v.node in places] for node in graph.nodes]
        written = {value: target for target, value in graph.writes}
        readers: dict[Value, list[int]] = {target: [] for target in written.values()}
        looked_at: dict[Value, int] = {}
        latest: dict[int, int] = {}
        serial: list[int] = []
        for k, (node, unit) in enumerate(zip(graph.nodes, units, strict=True)):
            for value in node.inputs:
                if value in looked_at:  # the check of one node is for all that come after it
                    found[k].append(looked_at[value])
            for value in node.results:
                if value in written:  # perhaps where an input lies: others have read it by then, and checks have passed
                    found[k] += [*readers[written[value]], *serial]
            for value in node.inputs:
                if value in readers:
                    readers[value].append(k)
            if node in self.queues and unit.end > unit.first:
                found[k] += [latest[q]] if (q := self.queues[node]) in latest else []
                latest[q] = k
            if self._serial[k]:  # effects stay in order
                found[k] += serial[-1:]
                serial.append(k)
                if any(isinstance(task, Check) for task in self._plan.tasks[unit.first : unit.end]):
                    looked_at.update(dict.fromkeys(node.inputs, k))
        return [sorted({first for first in firsts if first != k}) for k, firsts in enumerate(found)]

    def _parts(self) -> list[list[int]]:
        """Return the nodes part by part: native ones at even places, as early as they can, and others at odd ones."""
        part: list[int] = []
        for serial, firsts in zip(self._serial, self._before, strict=True):
            least = max((part[first] for first in firsts), default=-1 if serial else 0)
            part.append(least + (least % 2 != serial))
        found: list[list[int]] = [[] for _ in range(max(part, default=0) + 2)]
        for k, number in enumerate(part):
            found[number].append(k)  # those at -1 come to the end, and from there to the front
        return [found[-1], *found[:-1]]

    def _arrange(self, policy: Policy) -> None:
        """Schedule the parts, one after the other."""
        order: list[int] = []
        start, end, seats = list[float](), list[float](), list[int]()
        now, resources = 0.0, processors(self._machine.threads)
        for nodes in self._parts():
            if nodes and self._serial[nodes[0]]:
                for k in nodes:
                    order.append(k)
                    start.append(now)
                    now += self._seconds[k]
                    end.append(now)
                    seats.append(0)
                continue
            names = {k: self._jobs[k].name for k in nodes}
            some = [
                replace(self._jobs[k], dependencies=[names[f] for f in self._before[k] if f in names]) for k in nodes
            ]
            found = schedule(some, resources, policy)
            for k in found.order:
                order.append(nodes[k])
                start.append(now + found.start[k])
                end.append(now + found.end[k])
                seats.append(found.assignment[k])
            now += found.makespan
        self.makespan, self.seats, self.lives = now, seats, Scheduled(start, end, range(len(order)))
        self.graph = copy.copy(self._plan.graph)
        self.graph.nodes = [self._plan.graph.nodes[k] for k in order]

    def makespan_of(self, plan: Plan) -> float:
        """Return the seconds that are expected of a plan with the nodes in this order."""
        overlapping = [step for step in plan.steps if isinstance(step, Concurrent)]
        inside = {unit.node for step in overlapping for unit in step.units}
        rest = sum(s for node, s in zip(self._plan.graph.nodes, self._seconds, strict=True) if node not in inside)
        return rest + sum(step.schedule.makespan for step in overlapping)

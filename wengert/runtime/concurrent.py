"""Tasks of a plan that run beside one another: those of a node as soon as what it waits for has ended.

What waits for what is seen in the memory that nodes touch, as it was laid out for the plan. The tasks of one node run one
after the other. Which of those that are ready go first is said by a schedule, made from what nodes are reckoned to cost.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from wengert.graph.ir import Node
from wengert.runtime.costs import cost
from wengert.runtime.dependencies import Access, dependencies
from wengert.runtime.executor import TaskGraph, chunks
from wengert.runtime.lives import Lives
from wengert.runtime.machine import Machine
from wengert.runtime.policies import Policy
from wengert.runtime.recording import Task as Launch
from wengert.runtime.scheduler import Schedule, schedule
from wengert.runtime.segments import Native
from wengert.runtime.tasks import Task, processors

__all__ = ["Concurrent", "Expected", "Unit", "jobs", "units_of"]


class Expected(NamedTuple):
    """How the nodes of a graph, in the order in which they begin, are expected to run.

    Attributes:
        lives: when their values live. seats: on which thread each node begins. policy: which of the ready ones goes first.
        machine: what they run on. queues: the number of the logical device of each node, where there are several.
    """

    lives: Lives
    seats: Sequence[int]
    policy: Policy
    machine: Machine
    queues: Mapping[Node, int]


class Unit(NamedTuple):
    """A node's share of some tasks that follow one another.

    Attributes:
        node: it. first, end: its tasks among them. access: the memory that these touch.
    """

    node: Node
    first: int
    end: int
    access: Access

    def behind(self, number: int) -> "Unit":
        """Return it among the tasks from a number on."""
        return self._replace(first=self.first - number, end=self.end - number)


def units_of(nodes: Sequence[Node]) -> list[Unit]:
    """Return the units of tasks, of which each one's node is given; what memory they touch is not known."""
    found, first = list[Unit](), 0
    for _, some in groupby(nodes, id):
        end = first + sum(1 for _ in some)
        found.append(Unit(nodes[first], first, end, Access((), ())))
        first = end
    return found


def jobs(units: Sequence[Unit], counts: Sequence[int], before: Sequence[Sequence[int]], machine: Machine) -> list[Task]:
    """Return units as what is scheduled, named by what they compute and their places.

    Args:
        counts: how many chunks each task has. before: for each unit those that it waits for.
    """
    names = [f"{unit.node.op.name} #{k}" for k, unit in enumerate(units)]
    found = []
    for unit, name, firsts in zip(units, names, before, strict=True):
        what = cost(unit.node, counts[unit.first : unit.end], machine)
        found.append(
            Task(
                name, what.seconds, [names[k] for k in firsts], threads=what.threads, efficiency=what.efficiency,
                crowded=what.crowded,
            )
        )  # fmt: skip
    return found


def in_queues(before: list[list[int]], units: Sequence[Unit], queues: Mapping[Node, int]) -> list[list[int]]:
    """Let each unit wait for the one before it on its device."""
    latest: dict[int, int] = {}
    for k, unit in enumerate(units):
        if (queue := queues.get(unit.node)) is not None:
            before[k] += [latest[queue]] if latest.get(queue, k) not in {*before[k], k} else []
            latest[queue] = k
    return before


class Concurrent(Native):
    """Launches that run in one native call, on each thread the most urgent of those that are ready.

    Args:
        tasks, words, starts, nodes: as of :class:`wengert.runtime.segments.Native`; there is no check among the tasks.
        units: the tasks by nodes, in an order in which they can run. expected: says what they run on, and what goes first.

    Attributes:
        units: as given. policy: as expected. jobs: what was scheduled. schedule: what is expected to run when.
        in_order: the seconds that are expected if each node runs on all threads, one after the other.
        before: for each task those that it waits for.
    """

    __slots__ = ("before", "graph", "in_order", "jobs", "policy", "schedule", "units")

    def __init__(
        self, tasks: Sequence[Launch], words: Any, starts: Sequence[int], nodes: Sequence[Node], units: Sequence[Unit],
        expected: Expected,
    ) -> None:  # fmt: skip
        super().__init__(tasks, words, starts, nodes)
        self.units, self.policy = units, expected.policy
        firsts = in_queues(dependencies([unit.access for unit in units]), units, expected.queues)
        self.jobs = jobs(units, chunks(self.table.rows).tolist(), firsts, expected.machine)
        resources = processors(expected.machine.threads)
        self.schedule: Schedule = schedule(self.jobs, resources, expected.policy)
        self.in_order = schedule(self.jobs, resources, "topological").makespan
        self.before: list[list[int]] = [[k - 1] for k in range(len(tasks))]
        for unit, others in zip(units, firsts, strict=True):
            self.before[unit.first] = [units[k].end - 1 for k in others]
        urgency = [task for k in self.schedule.urgency for task in range(units[k].first, units[k].end)]
        self.graph = TaskGraph(self.table.rows, self.before, urgency)
        self._run = self.graph.prepared()

"""Timelines: who worked on what, simulated or measured, as a report, a Gantt chart and a Chrome trace."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from wengert.passes.amounts import duration
from wengert.runtime.picture import Picture, colour
from wengert.runtime.scheduler import Schedule

__all__ = ["Interval", "Timeline", "report"]


class Interval(NamedTuple):
    """A resource worked on something from ``start`` to ``end``, in seconds."""

    name: str
    resource: str
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """Intervals of work.

    Attributes:
        title: what it shows. resources: all of them, those without work too. intervals: in any order.
    """

    title: str
    resources: Sequence[str]
    intervals: Sequence[Interval]

    @classmethod
    def of(cls, schedule: Schedule) -> "Timeline":
        """Return the timeline of a schedule."""
        tasks, names = schedule.problem.tasks, [resource.name for resource in schedule.problem.resources]
        spans = [Interval(str(tasks[s.task].name), names[s.resource], s.start, s.end) for s in schedule.spans]
        return cls(f"policy {schedule.policy}, simulated", names, spans)

    @classmethod
    def measured(cls, title: str, names: Sequence[str], times: Any, threads: int = 1) -> "Timeline":
        """Return what a table or graph of tasks measured.

        Args:
            names: of the tasks. times: what ``Table.timed()`` or ``TaskGraph.timed()`` returned. threads: how many there were.
        """
        first = min((int(row[0]) for row in times), default=0)
        seats = [int(row[2]) if len(row) > 2 else 0 for row in times]
        resources = [f"thread {k}" for k in range(max([threads - 1, *seats]) + 1)]
        return cls(title, resources, [
            Interval(name, resources[seat], (int(row[0]) - first) * 1e-9, (int(row[1]) - first) * 1e-9)
            for name, row, seat in zip(names, times, seats, strict=True)
        ])  # fmt: skip

    @property
    def makespan(self) -> float:
        """The seconds from the first start to the last end."""
        starts, ends = [i.start for i in self.intervals], [i.end for i in self.intervals]
        return max(ends) - min(starts) if ends else 0.0

    @property
    def utilisation(self) -> dict[str, float]:
        """The part of the makespan in which each resource works."""
        busy = dict.fromkeys(self.resources, 0.0)
        for interval in self.intervals:
            busy[interval.resource] += interval.end - interval.start
        return {name: seconds / self.makespan if self.makespan else 0.0 for name, seconds in busy.items()}

    def chrome_trace(self) -> str:
        """Return the timeline as JSON that chrome://tracing and ui.perfetto.dev show (the Trace Event Format)."""
        places = {name: k for k, name in enumerate(self.resources)}
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": self.title}}
        ]
        for name, k in places.items():
            events.append({"ph": "M", "name": "thread_name", "pid": 0, "tid": k, "args": {"name": name}})
            events.append({"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": k, "args": {"sort_index": k}})
        for i in sorted(self.intervals, key=lambda interval: interval.start):
            duration = (i.end - i.start) * 1e6
            place = {"pid": 0, "tid": places[i.resource]}
            events.append({"ph": "X", "name": i.name, "ts": i.start * 1e6, "dur": duration, **place})
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})

    def svg(self, width: float = 1000.0) -> str:
        """Return a Gantt chart: a row for each resource, time to the right."""
        margin, top, row = 8.0 + 6.2 * max((len(name) for name in self.resources), default=0), 24.0, 26.0
        picture = Picture(width, top + row * len(self.resources) + 24)
        start = min((i.start for i in self.intervals), default=0.0)
        scale = (width - margin - 30) / self.makespan if self.makespan else 0.0
        picture.text(margin, 14, f"{self.title}: {duration(self.makespan)}")
        for k, name in enumerate(self.resources):
            picture.text(margin - 5, top + row * k + 15, name, "end")
            picture.line(margin, top + row * k + row / 2, width - 30, top + row * k + row / 2)
        places = {name: top + row * k for k, name in enumerate(self.resources)}
        for i in self.intervals:
            title = f"{i.name}\n{i.resource}: {duration(i.end - i.start)} from {duration(i.start - start)} on"
            picture.box(margin + scale * (i.start - start), places[i.resource] + 3, scale * (i.end - i.start), row - 6,
                        colour(i.name), title)  # fmt: skip
        bottom = top + row * len(self.resources)
        for tick in range(6):
            x = margin + (width - margin - 30) * tick / 5
            picture.line(x, bottom, x, bottom + 4)
            picture.text(x, bottom + 15, duration(self.makespan * tick / 5), "middle")
        return str(picture)


def report(schedule: Schedule, measured: Timeline | None = None, longest: int = 10) -> str:
    """Return what is to be known of a schedule, as text.

    Args:
        measured: what really happened, to be set beside it. longest: how many tasks of the critical path are named.
    """
    tasks, path = schedule.problem.tasks, schedule.critical_path
    lines = [
        f"{len(tasks)} tasks on {len(schedule.problem.resources)} resources, policy {schedule.policy}",
        f"makespan       {duration(schedule.makespan)}",
        f"critical path  {duration(schedule.critical_seconds)} in {len(path)} tasks{_ratio(schedule)}",
        *(f"peak memory    {size:,} bytes of {device}" for device, size in schedule.peak_memory.items()),
        *_table("utilisation", schedule.utilisation),
    ]
    if measured is not None:
        error = schedule.makespan / measured.makespan - 1 if measured.makespan else 0.0
        compared = f"{abs(error):.1%} {'longer' if error > 0 else 'shorter'}"
        lines.append(f"measured       {duration(measured.makespan)}; the simulation is {compared}")
        lines += _table("measured use", measured.utilisation)
    heaviest = sorted(path, key=lambda task: -schedule.problem.shortest[task])[:longest]
    lines += ["heaviest tasks of the critical path:"] if heaviest else []
    lines += [f"  {duration(schedule.problem.shortest[task]):>10}  {tasks[task].name}" for task in heaviest]
    return "\n".join(lines)


def _ratio(schedule: Schedule) -> str:
    return f", {schedule.critical_seconds / schedule.makespan:.0%} of the makespan" if schedule.makespan else ""


def _table(title: str, shares: dict[str, float]) -> Iterable[str]:
    for name, share in shares.items():
        yield f"{title:<14} {share:6.1%}  {name}"

"""What the steps of a plan are expected to do when, and how busy threads were."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from wengert.graph.ir import Node
from wengert.runtime.concurrent import Concurrent, jobs, units_of
from wengert.runtime.executor import chunks
from wengert.runtime.machine import Machine
from wengert.runtime.policies import policy_of
from wengert.runtime.scheduler import Schedule, schedule
from wengert.runtime.segments import Native
from wengert.runtime.tasks import processors
from wengert.runtime.timeline import Interval, Timeline

__all__ = ["busy", "expected", "simulated"]

PYTHON: Final = 20e-6  # seconds of a step of Python


def expected(steps: Sequence[Any], machine: Machine) -> Timeline:
    """Return when the steps of a plan are expected to do what, and where."""
    names = [resource.name for resource in processors(machine.threads)]
    intervals, now = list[Interval](), 0.0
    for step in steps:
        if isinstance(step, Native):
            found = simulated(step, machine)
            for span in found.spans:
                what = str(found.problem.tasks[span.task].name)
                intervals.append(Interval(what, names[span.resource], now + span.start, now + span.end))
            now += found.makespan
        else:
            intervals.append(Interval(getattr(step, "__qualname__", "Python"), names[0], now, now + PYTHON))
            now += PYTHON
    kind = "side by side" if any(isinstance(step, Concurrent) for step in steps) else "in order"
    return Timeline(f"expected, {kind}", names, intervals)


def simulated(step: Native, machine: Machine, seconds: Mapping[Node, float] | None = None) -> Schedule:
    """Return the schedule of a native step.

    Args:
        seconds: what nodes take on one thread, where it was measured; by default what they are reckoned to take.
    """
    if isinstance(step, Concurrent):
        units, work, policy = step.units, step.jobs, step.policy
    else:
        units, policy = units_of(step.nodes), policy_of("topological")
        work = jobs(units, chunks(step.table.rows).tolist(), [()] * len(units), machine)
    if seconds is None and isinstance(step, Concurrent):
        return step.schedule
    if seconds is not None:
        work = [replace(job, seconds=seconds[unit.node]) for job, unit in zip(work, units, strict=True)]
    return schedule(work, processors(machine.threads), policy)


def busy(step: Concurrent, threads: int) -> tuple[float, list[float]]:
    """Run a step; return the seconds that it took, and the part of them that each thread worked, helping others too."""
    worked = np.zeros(threads, np.int64)
    times = step.graph.timed(worked)
    taken = max(1, int(times[:, 1].max() - times[:, 0].min()))
    return taken * 1e-9, (worked / taken).tolist()

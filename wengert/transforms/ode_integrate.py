"""Integrating from output time to output time, step by step."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from wengert.core.registry import ops
from wengert.transforms.ode_adaptive import Control, adaptive_steps, equal_steps
from wengert.transforms.ode_events import EventWatch
from wengert.transforms.ode_steps import Rhs, Step, Tableau, runge_kutta

__all__ = ["Arrival", "Portion", "Problem", "integrate", "outputs_of"]

CLOSE = 1e-9  # a time this fraction of a step from its end is at its end


class Problem(NamedTuple):
    """What is integrated and how: the derivative as (time, packed state) to packed derivative, method and step control."""

    rhs: Rhs
    method: Tableau
    control: Control

    def steps(self, y: Any, times: list[float]) -> Iterator[Step]:
        """Yield the steps through all times."""
        adaptive = self.control.step_size is None and self.control.num_steps is None and self.method.error is not None
        if len(times) == 1:
            return iter(())
        if adaptive:
            return adaptive_steps(self.method, self.rhs, y, times[0], times[-1], self.control)
        return equal_steps(self.method, self.rhs, y, times, self.control)


class Arrival(NamedTuple):
    """Where an event happened: the time, as a number, and the packed state."""

    time: float
    state: Any


class Portion(NamedTuple):
    """A step as it is replayed: where outputs lie in it (as fractions), and where it ends early, if it does."""

    t: float
    h: float
    y: Any
    fractions: list[float]
    ends: bool


def integrate(
    problem: Problem, y: Any, times: list[float], watch: EventWatch | None = None, kept: list[Portion] | None = None
) -> tuple[Any, Arrival | None]:
    """Return the states at the times, stacked, and the event if there was one: the states are then those up to it.

    Args:
        watch: looks out for the event. kept: receives the steps, for a replay.
    """
    outputs, following = [ops.unsqueeze(y, 0)], 1
    for step in problem.steps(y, times):
        crossing = None if watch is None else watch.crossing(step)
        reached = 1.0 if crossing is None else crossing
        fractions = []
        while following < len(times) and (times[following] - step.t) / step.h <= reached * (1 + CLOSE):
            fractions.append((times[following] - step.t) / step.h)
            following += 1
        portion = Portion(step.t, step.h * reached, step.y, [f / reached for f in fractions], crossing is not None)
        if crossing is not None:
            step = runge_kutta(problem.method, problem.rhs, step.t, step.y, portion.h, step.slopes[0])
        if kept is not None:
            kept.append(portion)
        if fractions:
            outputs.append(outputs_of(problem, step, portion.fractions))
        if crossing is not None:
            return ops.cat(outputs), Arrival(step.t + step.h, step.end)
    return ops.cat(outputs), None


def outputs_of(problem: Problem, step: Step, fractions: list[float]) -> Any:
    """Return the states at fractions of a step, stacked."""
    inside = [f for f in fractions if f < 1 - CLOSE]
    ends = [ops.unsqueeze(step.end, 0)] * (len(fractions) - len(inside))
    if not inside:
        return ends[0] if len(ends) == 1 else ops.cat(ends)
    found = step.with_end(problem.rhs).inside(problem.method, np.array(inside))
    return ops.cat([found, *ends]) if ends else found

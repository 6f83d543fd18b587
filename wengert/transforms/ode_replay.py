"""The derivative of an integration by taking its steps again: the discrete adjoint in the memory of the states.

Each accepted step is remembered by where it started. In backward it is recorded again, alone, from the last to the
first, so that the stages of one step only are held at a time. The sizes of the steps are those of the first time.
"""

from functools import partial
from typing import Any

from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import node_of
from wengert.transforms.local import Local, key_of, variable
from wengert.transforms.ode_events import EventWatch
from wengert.transforms.ode_integrate import Arrival, Portion, Problem, outputs_of
from wengert.transforms.ode_node import Gradients, Reads, add, attached
from wengert.transforms.ode_steps import runge_kutta

__all__ = ["checkpointed"]


def checkpointed(
    problem: Problem, y: Any, times: list[float], watch: EventWatch | None = None
) -> tuple[Any, Arrival | None]:
    """Integrate unrecorded; record each step again when its derivative is taken."""
    kept: list[Portion] = []

    def pull(states: Any, cotangent: Any, times: list[float], reads: Reads) -> Gradients:
        if thread.state.grad:  # to be differentiated again: all in one
            return Local(lambda: [replayed(problem, y, kept)]).pull([cotangent], True)
        return replayed_backwards(problem, y, kept, cotangent)

    return attached(problem, y, times, watch, kept, pull)


def replayed_step(problem: Problem, portion: Portion, y: Any) -> tuple[list[Any], Any]:
    """Take a step again: return the outputs in it (none, one stack of them) and the state at its end."""
    step = runge_kutta(problem.method, problem.rhs, portion.t, y, portion.h)
    outputs = [outputs_of(problem, step, portion.fractions)] if portion.fractions else []
    return outputs + [ops.unsqueeze(step.end, 0)] * portion.ends, step.end


def replayed(problem: Problem, y: Any, kept: list[Portion]) -> Any:
    """Return the states of all outputs, computed again."""
    outputs = [ops.unsqueeze(y, 0)]
    for portion in kept:
        found, y = replayed_step(problem, portion, y)
        outputs += found
    return ops.cat(outputs)


def replayed_backwards(problem: Problem, y: Any, kept: list[Portion], cotangent: Any) -> Gradients:
    """Return the gradients of all that was read, from the last step to the first."""
    total: Gradients = {}
    g = ops.zeros_like(kept[-1].y) if kept else 0.0
    stop = len(cotangent)
    for portion in reversed(kept):
        at = variable(portion.y)
        count = len(portion.fractions) + portion.ends
        run = Local(partial(_recorded_step, problem, portion), at)
        given = [cotangent[stop - count : stop], g] if count else [g]
        stop -= count
        found = run.pull(given, False)
        g = found.pop(key_of(at._node), None)
        g = ops.zeros_like(portion.y) if g is None else g
        add(total, found)
    if node_of(y) is not None:
        add(total, {key_of(node_of(y)): cotangent[0] + g})  # type: ignore[arg-type]
    return total


def _recorded_step(problem: Problem, portion: Portion, y: Any) -> list[Any]:
    outputs, end = replayed_step(problem, portion, y)
    return [ops.cat(outputs), end] if outputs else [end]

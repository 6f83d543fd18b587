"""An integration as one node of the tape: unrecorded, with a derivative that is computed when it is asked for."""

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.core.generator import default_generator
from wengert.core.interpret import level_of, top
from wengert.core.node import Leaf, Node
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import node_of
from wengert.errors import InplaceError, TransformError
from wengert.tape.modes import no_grad
from wengert.transforms.local import Key, Local, attach, concrete, constant, key_of, variable
from wengert.transforms.ode_events import EventWatch
from wengert.transforms.ode_integrate import Arrival, Portion, Problem, integrate

__all__ = ["LATE_READ", "Gradients", "Reads", "add", "attached"]

Gradients = dict[Key, Any]
Reads = dict[Key, Node]
LATE_READ = (
    "odeint(): func reads a tensor that requires grad at later times which it does not read at the start; read it there too "
    "(times zero, say), or use adjoint='discrete'"
)
Pull = Callable[[Any, Any, list[float], Reads], Gradients]


def attached(
    problem: Problem, y: Any, times: list[float], watch: EventWatch | None, kept: list[Portion] | None, pull: Pull
) -> tuple[Any, Arrival | None]:
    """Integrate unrecorded and return the result with its derivative.

    An event counts as one more output time. What reads nothing at the start that requires grad is integrated recorded:
    then only what it reads later, if anything, is on the tape.

    Args:
        watch, kept: as for :func:`integrate`.
        pull: (states, cotangent of them, output times, what the right-hand side reads) to the gradients by what it reads
            and by y, by key. The states it is given carry the history.

    Raises:
        TransformError: inside forward mode or vmap, whose tensors may have a history of their own below.
        RuntimeError: if the right-hand side draws random numbers: run again, it would be another one.
    """
    if not thread.state.grad and top() is None:
        return integrate(problem, y, times, watch, kept)
    slot = variable(y)
    generator = thread.state.generator or default_generator
    offset = generator.offset
    start = Local(lambda y: [problem.rhs(times[0], y)], slot)
    if generator.offset != offset:
        raise RuntimeError(
            "odeint(): func draws random numbers, and its derivative runs it again; use adjoint='discrete'"
        )
    reads: Reads = dict(start.reads)
    reads.pop(key_of(slot._node), None)
    origin = node_of(y)
    level = level_of(start.outputs[0])
    if level is None and not reads and origin is None:
        return integrate(problem, y, times, watch)
    with no_grad():
        states, arrival = integrate(problem, ops.clone(constant(y)), times, watch, kept)
    level = level or level_of(states)
    if level is not None:
        raise TransformError(f"odeint(): inside {level.title} only adjoint='discrete' gives all derivatives; use that")
    if arrival is not None:
        times = [*times[: len(states)], arrival.time]
        states = ops.cat([states, ops.unsqueeze(arrival.state, 0)])
    everything = reads if origin is None else {key_of(origin): origin, **reads}

    unchanged = Unchanged(problem, y, times[0], start.outputs[0], reads)

    def differentiate(results: list[Any], cotangents: list[Any]) -> list[Any]:
        unchanged.check()
        gradients = pull(results[0], cotangents[0], times, reads)
        if not set(gradients) <= set(everything):
            raise RuntimeError(LATE_READ)
        return [gradients.get(key) for key in everything]

    (states,) = attach("odeint", [states], list(everything.values()), differentiate)
    return (states, None) if arrival is None else (states[:-1], Arrival(arrival.time, states[-1]))


class Unchanged:
    """What an integration read, to tell whether a backward that runs the right-hand side again would read the same.

    Leaves are told by their versions, whatever else by what the right-hand side gives at the start.
    """

    def __init__(self, problem: Problem, y: Any, t: float, slope: Any, reads: Reads) -> None:
        self.problem, self.y, self.t = problem, y, t
        self.values = [concrete(y).copy(), concrete(slope).copy()]
        leaves = [node.variable for node in reads.values() if isinstance(node, Leaf)]
        self.versions = [(weakref.ref(leaf), leaf._version) for leaf in leaves if leaf is not None]

    def check(self) -> None:
        """Refuse if something has changed.

        Raises:
            InplaceError: if so.
        """
        with no_grad():
            now = [self.y, self.problem.rhs(self.t, self.y)]
        same = all(np.allclose(concrete(v), w, rtol=1e-5, atol=0) for v, w in zip(now, self.values, strict=True))
        leaves = [(leaf(), version) for leaf, version in self.versions]
        if not same or any(leaf is not None and leaf._version != version for leaf, version in leaves):
            raise InplaceError(
                "odeint(): the initial state or a tensor that func reads was changed in place since, or func is random: its "
                "derivative runs func again; change out of place, or use adjoint='discrete'"
            )


def add(total: Gradients, more: Gradients) -> None:
    """Add gradients to those of the same key."""
    for key, g in more.items():
        total[key] = total[key] + g if key in total else g

"""The derivative of an integration by the adjoint equation, solved backwards in time.

Pontryagin's adjoint a(t) = ∂L/∂y(t) obeys a' = -(∂f/∂y)ᵀ a and jumps by the gradient that arrives at each output time; the
gradient by whatever f reads is the integral of (∂f/∂p)ᵀ a (Chen, Rubanova, Bettencourt & Duvenaud 2018,
arXiv:1806.07366). The state is integrated backwards along with them, so that nothing between output times is kept. This
is the derivative of the exact solution, met to the tolerance of the integration.
"""

import math
from typing import Any

from wengert.array.dtype import dtype_of
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import node_of
from wengert.transforms.local import Local, constant, key_of, variable
from wengert.transforms.ode_events import EventWatch
from wengert.transforms.ode_integrate import Arrival, Problem
from wengert.transforms.ode_node import LATE_READ, Gradients, Reads, add, attached
from wengert.transforms.ode_steps import Rhs

__all__ = ["continuous"]


def continuous(
    problem: Problem, y: Any, times: list[float], watch: EventWatch | None = None
) -> tuple[Any, Arrival | None]:
    """Integrate unrecorded; the derivative solves the adjoint equation."""

    def pull(states: Any, cotangent: Any, times: list[float], reads: Reads) -> Gradients:
        return solve_backwards(problem, y, states, cotangent, times, reads)

    return attached(problem, y, times, watch, None, pull)


def solve_backwards(
    problem: Problem, y: Any, states: Any, cotangent: Any, times: list[float], reads: Reads
) -> Gradients:
    """Return the gradients by y and by what the right-hand side reads.

    The error of the integrals does not influence the steps (Kidger, Chen & Lyons 2021, arXiv:2009.09457). Recorded, this
    is itself an integration with a derivative.
    """
    n, shape = y.numel(), tuple(y.shape)
    sizes = [math.prod(node.shape) for node in reads.values()]
    control = problem.control._replace(measured=2 * n, first_step=None)
    backwards = problem._replace(rhs=adjoint_equation(problem.rhs, shape, reads, y.dtype), control=control)
    a, integrals = cotangent[-1].reshape(-1), ops.zeros((sum(sizes),), dtype=y.dtype)
    for i in range(len(times) - 1, 0, -1):
        joint = ops.cat([states[i].reshape(-1), a, integrals])
        joint = continuous(backwards, joint, [times[i], times[i - 1]])[0][-1]
        a = joint[n : 2 * n] + cotangent[i - 1].reshape(-1)
        integrals = joint[2 * n :]
    total: Gradients = {}
    parts = ops.split(integrals, sizes) if sizes else ()
    for (key, node), part in zip(reads.items(), parts, strict=True):
        total[key] = ops.cast(part.reshape(node.shape), dtype_of(node.dtype))
    origin = node_of(y)
    if origin is not None:
        add(total, {key_of(origin): a.reshape(shape)})
    return total


def adjoint_equation(rhs: Rhs, shape: tuple[int, ...], reads: Reads, dtype: Any) -> Rhs:
    """Return the derivative of (state, adjoint, integrals), joined in one vector."""
    n = math.prod(shape)
    nothing = [ops.zeros((math.prod(node.shape),), dtype=dtype) for node in reads.values()]

    def joint_rhs(t: Any, joint: Any) -> Any:
        create = thread.state.grad
        y, a = joint[:n].reshape(shape), joint[n : 2 * n].reshape(shape)
        at = y if create and node_of(y) is not None else variable(y)
        run = Local(lambda y: [rhs(t, y)], at)
        found = run.pull([a], create)
        by_state = found.pop(key_of(node_of(at)), None)  # type: ignore[arg-type]
        if not set(found) <= set(reads):
            raise RuntimeError(LATE_READ)
        pieces = [found.get(key) for key in reads]
        flat = [-(ops.cast(g.reshape(-1), dtype)) if g is not None else zero
                for g, zero in zip(pieces, nothing, strict=True)]  # fmt: skip
        slope = run.outputs[0] if create else constant(run.outputs[0])
        down = ops.zeros_like(a) if by_state is None else -by_state
        return ops.cat([slope.reshape(-1), down.reshape(-1), *flat])

    return joint_rhs

"""Finding x with F(x) = 0: Newton with the dense Jacobian, Newton–Krylov, plain and Anderson-accelerated iteration.

Every solver takes (F, x, :class:`Goal`) and returns x without history; whether it really is a root is checked by the
caller of a user's own solver, and by the solvers here for themselves.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import node_of
from wengert.tape.api import grad
from wengert.tape.modes import enable_grad
from wengert.transforms.linear_solvers import DENSE_SIZE, LinearSolveError, columns, gmres, norm, solved
from wengert.transforms.local import Local, concrete, constant, key_of, link, variable

__all__ = ["Goal", "Linearised", "anderson", "automatic", "largest", "newton", "newton_krylov", "picard"]

Fn = Callable[[Any], Any]
SHORTEST = 2.0**-30  # the smallest fraction of a Newton step that is tried


class Goal(NamedTuple):
    """When to stop.

    Attributes:
        name: the public function, for messages. tol: the largest residual allowed. max_steps: the most steps.
    """

    name: str
    tol: float
    max_steps: int

    def missed(self, steps: int, residual: float, why: str) -> RuntimeError:
        """Return the error for a solve that failed."""
        return RuntimeError(f"{self.name}() did not converge: after {steps} steps the largest residual is {residual:.3g}, "
                            f"tol is {self.tol:.3g}; {why}")  # fmt: skip


def largest(x: Any) -> float:
    """Return the largest magnitude, NaN if any is NaN."""
    values = np.abs(concrete(x))
    return float(values.max()) if values.size else 0.0


class Linearised:
    """A function at a point: its value there, and products with its Jacobian and the transpose of that.

    Args:
        fn: tensor to tensor. x: the point: a tensor that requires grad.
    """

    __slots__ = ("key", "local", "target", "toward", "x")

    def __init__(self, fn: Fn, x: Any) -> None:
        self.x = x
        self.local = Local(lambda at: [fn(at)], x)
        node: Any = node_of(x)
        self.key, self.target = key_of(node), {node}
        self.toward = self.local.toward(node)

    @property
    def value(self) -> Any:
        """The value at the point."""
        return self.local.outputs[0]

    def vjp(self, u: Any, create: bool = False) -> Any:
        """Return ``Jᵀ u``."""
        found = self.local.pull([u], create, self.target, self.toward).get(self.key)
        return ops.zeros_like(constant(self.x)) if found is None else found

    def jvp(self, v: Any) -> Any:
        """Return ``J v``: the gradient of ``u ↦ vᵀ Jᵀ u``, which is linear in u."""
        with enable_grad():
            u = link(constant(self.value))[0]  # any value will do
            pulled = self.vjp(u, create=True)
        if not pulled.requires_grad:
            return ops.zeros_like(constant(self.value))
        found = grad(pulled, u, v, retain_graph=True, create_graph=thread.state.grad, allow_unused=True)[0]
        return ops.zeros_like(constant(self.value)) if found is None else found


def automatic(fn: Fn, x: Any, goal: Goal) -> Any:
    """Newton for few unknowns, Newton–Krylov for many."""
    return (newton if x._payload.size <= DENSE_SIZE else newton_krylov)(fn, x, goal)


def newton(fn: Fn, x: Any, goal: Goal) -> Any:
    """Newton's method with the dense Jacobian and a backtracking line search."""
    return _newton(fn, x, goal, lambda at: solved(ops.t(columns(at.vjp, at.x)), constant(at.value)))


def newton_krylov(fn: Fn, x: Any, goal: Goal) -> Any:
    """Newton's method whose steps GMRES finds, each as precisely as the residual deserves (Eisenstat & Walker 1996)."""

    def step(at: Linearised) -> Any:
        value = constant(at.value)
        return gmres(at.jvp, value, rtol=min(0.1, norm(value) ** 0.5))

    return _newton(fn, x, goal, step)


def _newton(fn: Fn, x: Any, goal: Goal, direction: Callable[[Linearised], Any]) -> Any:
    at = Linearised(fn, variable(x))
    smallest = 4 * float(np.finfo(x._payload.dtype).eps)
    for steps in range(goal.max_steps + 1):
        residual = largest(at.value)
        if residual <= goal.tol:
            return constant(at.x)
        if not np.isfinite(residual):
            raise goal.missed(steps, residual, "it is not finite at the starting point")
        if steps == goal.max_steps:
            break
        try:
            step = direction(at)
        except LinearSolveError as error:
            raise goal.missed(steps, residual, "there is no Newton step; start elsewhere") from error
        if largest(step) <= smallest * largest(at.x):  # x is as good as its dtype allows
            return constant(at.x)
        found = _search(fn, at, step)
        if found is None:
            raise goal.missed(steps, residual, "no fraction of the Newton step makes it smaller: this may be a minimum "
                              "of |F| that is no root; start elsewhere")  # fmt: skip
        at = found
    raise goal.missed(goal.max_steps, largest(at.value), "start closer, or raise max_steps or tol")


def _search(fn: Fn, at: Linearised, step: Any) -> Linearised | None:
    """Return the function at the first of x - s, x - s/2, x - s/4, … where its norm falls enough (Armijo's rule)."""
    start, before, fraction = constant(at.x), norm(constant(at.value)), 1.0
    while fraction >= SHORTEST:
        trial = Linearised(fn, variable(ops.sub(start, step * fraction)))
        after = norm(constant(trial.value))
        if after <= (1 - 1e-4 * fraction) * before:
            return trial
        fraction /= 2
    return None


def picard(fn: Fn, x: Any, goal: Goal) -> Any:
    """Repeat ``x ← x + F(x)``, that is ``x ← f(x)`` for a fixed point of f."""
    return _iterate(fn, x, goal, lambda xs, rs: ops.add(xs[-1], rs[-1]), 1)


def anderson(fn: Fn, x: Any, goal: Goal) -> Any:
    """Anderson's acceleration of ``x ← x + F(x)``, with a memory of five steps (Walker & Ni 2011, SIAM J. Numer. Anal. 49)."""
    return _iterate(fn, x, goal, _mixed, 6)


def _mixed(xs: list[Any], rs: list[Any]) -> Any:
    """Return the step from the combination of past points whose residual is smallest, were F affine."""
    last_x, last_r = xs[-1], rs[-1]
    changes = [last_r - r for r in rs[:-1]]
    nxt = ops.add(last_x, last_r)
    if not changes:
        return nxt
    D = np.stack([concrete(d).ravel() for d in changes], 1).astype(np.float64)
    weights = np.linalg.lstsq(D, concrete(last_r).ravel().astype(np.float64), rcond=1e-10)[0]
    for w, old, change in zip(weights.tolist(), xs[:-1], changes, strict=True):
        nxt = nxt - ((last_x - old) + change) * w
    return nxt


def _iterate(fn: Fn, x: Any, goal: Goal, mix: Callable[[list[Any], list[Any]], Any], memory: int) -> Any:
    x = constant(x)
    xs: list[Any] = []
    rs: list[Any] = []
    for steps in range(goal.max_steps + 1):
        r = constant(fn(x))
        residual = largest(r)
        if residual <= goal.tol * max(1.0, largest(x)):
            return x
        if not np.isfinite(residual):
            raise goal.missed(
                steps, residual, "the iteration runs away: the map is no contraction here; try solver='newton'"
            )
        xs, rs = [*xs, x][-memory:], [*rs, r][-memory:]
        if steps < goal.max_steps:
            x = mix(xs, rs)
    raise goal.missed(goal.max_steps, residual, "raise max_steps or tol, or try solver='newton'")

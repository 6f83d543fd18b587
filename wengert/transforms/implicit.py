"""Roots and fixed points as functions of what the equation reads, differentiated by the implicit function theorem.

If F(x, p) = 0, then dx = -(∂F/∂x)⁻¹ ∂F/∂p dp, however x was found. So the solver runs unrecorded, and its result is given
one node whose derivative solves one linear system. That system's solution is again a root (of u ↦ Jᵀu - g), attached in
the same way: derivatives of any order follow.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.array.shape import as_int
from wengert.core.interpret import entered, has_history_below, level_of, lifted, top
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, node_of
from wengert.errors import ShapeError, TransformError
from wengert.tape.modes import inference_mode, no_grad
from wengert.transforms.batching import BatchLevel
from wengert.transforms.control_check import check_callable
from wengert.transforms.dual import DualLevel, unwrapped
from wengert.transforms.linear_solvers import LinearSolver, Matvec, linear_solver
from wengert.transforms.local import Link, attach, concrete, constant, link, variable
from wengert.transforms.packing import Packing
from wengert.transforms.root_solvers import (
    Goal,
    Linearised,
    anderson,
    automatic,
    largest,
    newton,
    newton_krylov,
    picard,
)

__all__ = ["differentiable_root", "fixed_point", "root"]

Fn = Callable[[Any], Any]
ROOT = {"auto": automatic, "newton": newton, "newton-krylov": newton_krylov}
FIXED_POINT = {"anderson": anderson, "picard": picard, **ROOT}


def root(
    residual: Callable[..., Any], init: Any, *params: Any, solver: Any = "auto", tol: float | None = None,
    max_steps: int = 100, linear_solver: Any = "auto",
) -> Any:  # fmt: skip
    """Return ``x`` with ``residual(x, *params) = 0``, differentiable with respect to everything the residual reads.

    That is ``params`` and also tensors the function closes over, the parameters of a module for instance. The derivative
    is that of the implicit function theorem, of any order; the one with respect to ``init`` is zero. It needs one linear
    solve and two evaluations of the residual, and the memory of one, however many steps the solver took.

    Args:
        residual: a function of a tree like ``init`` and ``params`` that returns a tree like ``init``.
        init: where to start: a tensor or a tree of them, all float32 or all float64.
        params: passed on.
        solver: "newton" (dense Jacobian, line search), "newton-krylov" (GMRES), "auto" (by the number of unknowns), or a
            function ``(f, init) -> x`` where ``f(x)`` is the residual.
        tol: the largest residual in magnitude that counts as zero; by default ``eps ** (2 / 3)`` of the dtype.
        max_steps: the most steps of the solver.
        linear_solver: for the derivative: "dense", "gmres", "bicgstab", "auto" (by the number of unknowns), or a
            function ``(matvec, b) -> u`` that solves ``matvec(u) = b``; its answer is taken as it is, so that an
            approximation gives an approximate derivative.

    Raises:
        RuntimeError: if the solver does not converge, or (in the derivative) the Jacobian is singular.
        TypeError, ValueError: for an ``init`` or a residual of another kind or shape.

    Example:
        >>> import wengert as wg
        >>> a = wg.tensor(2.0, dtype=wg.float64, requires_grad=True)
        >>> x = root(lambda x, a: x * x - a, wg.tensor(1.0, dtype=wg.float64), a)
        >>> x.backward()
        >>> round(x.item(), 6), round(a.grad.item(), 6)  # √2 and 1 / (2√2)
        (1.414214, 0.353553)
    """
    return _solve(
        "root", residual, init, params, (solver, ROOT), (tol, max_steps), linear_solver, lambda x, value: value
    )


def fixed_point(
    f: Callable[..., Any], init: Any, *params: Any, solver: Any = "anderson", tol: float | None = None,
    max_steps: int = 1000, linear_solver: Any = "auto",
) -> Any:  # fmt: skip
    """Return ``x`` with ``f(x, *params) = x``, differentiable with respect to everything that ``f`` reads.

    Args:
        f: a function of a tree like ``init`` and ``params`` that returns a tree like ``init``.
        init, params, tol, max_steps, linear_solver: as in :func:`root`; ``tol`` is relative to ``x`` where that is
            larger than 1.
        solver: "anderson" (accelerated iteration), "picard" (plain iteration), a solver of :func:`root`, or a function
            ``(f, init) -> x``.

    Raises:
        RuntimeError: if the iteration does not converge. TypeError, ValueError: as :func:`root`.

    Example:
        >>> import wengert as wg
        >>> x = fixed_point(lambda x: x.cos(), wg.tensor(1.0, dtype=wg.float64))
        >>> round(x.item(), 6)
        0.739085
    """
    return _solve(
        "fixed_point",
        f,
        init,
        params,
        (solver, FIXED_POINT),
        (tol, max_steps),
        linear_solver,
        lambda x, value: value - x,
    )


def _solve(
    name: str, fn: Callable[..., Any], init: Any, params: tuple[Any, ...], chosen: tuple[Any, dict[str, Any]],
    limits: tuple[float | None, int], linear: Any, equation: Callable[[Any, Any], Any],
) -> Any:  # fmt: skip
    check_callable(name, **{"residual" if name == "root" else "f": fn})
    packing = Packing(init, "init")
    with inference_mode(False), no_grad():
        x = ops.clone(constant(packing.packed()))
    goal = Goal(name, *_limits(name, x, *limits))
    solver, named = chosen

    def residual(x: Any) -> Any:
        return equation(x, packing.pack(fn(packing.unpack(x), *params)))

    def find(residual: Fn, x: Any) -> Any:
        if isinstance(solver, str):
            if solver not in named:
                raise ValueError(f"{name}(): solver {solver!r} is unknown; choose one of {', '.join(map(repr, named))}, "
                                 "or give a function (f, init) -> x")  # fmt: skip
            return named[solver](residual, x, goal)
        if not callable(solver):
            raise TypeError(
                f"{name}(): solver must be a name or a function (f, init) -> x, got {type(solver).__name__}"
            )
        found = packing.pack(solver(lambda x: fn(x, *params), packing.unpack(x)))
        error = largest(residual(found))
        if not error <= goal.tol * max(1.0, largest(found)):
            raise RuntimeError(f"{name}(): what the given solver returned is no solution: the largest residual is "
                               f"{error:.3g}, tol is {goal.tol:.3g}")  # fmt: skip
        return found

    return packing.unpack(differentiable_root(name, residual, x, find, linear_solver(linear)))


def _limits(name: str, x: Any, tol: float | None, max_steps: int) -> tuple[float, int]:
    """Return the checked tolerance and number of steps."""
    if tol is None:
        tol = float(np.finfo(x._payload.dtype).eps) ** (2 / 3)
    if not hasattr(tol, "__float__"):
        raise TypeError(f"{name}(): tol must be a number, got {tol!r}")
    if not tol > 0:
        raise ValueError(f"{name}(): tol must be positive, got {tol}")
    max_steps = as_int(max_steps, f"{name}(): max_steps")
    if max_steps < 1:
        raise ValueError(f"{name}(): max_steps must be positive, got {max_steps}")
    return float(tol), max_steps


def differentiable_root(label: str, fn: Fn, x: Any, find: Callable[[Fn, Any], Any], solver: LinearSolver) -> Any:
    """Return the root of ``fn`` that ``find(fn, x)`` finds, as a function of all that ``fn`` reads."""
    with inference_mode(False), no_grad():  # a solver may take derivatives itself
        found = find(fn, _at_level_of(fn, x))
        if not isinstance(found, Tensor):
            raise TypeError(f"{label}: the solver must return a tensor, got {type(found).__name__}")
        if found.shape != x.shape:
            raise ShapeError(
                f"{label}: the solver returned shape {tuple(found.shape)} for an unknown of {tuple(x.shape)}"
            )
        found = constant(found)
    return _attached(label, fn, found, solver) if thread.state.grad or top() is not None else found


def _attached(label: str, fn: Fn, x: Any, solver: LinearSolver) -> Any:
    """Return a root with its derivatives: at the levels below first, then by what is recorded at its own."""
    x = _at_level_of(fn, x)
    level = level_of(x)
    if isinstance(level, BatchLevel):
        x = _in_batch(label, fn, x, solver, level)
    elif isinstance(level, DualLevel):
        x = _in_forward_mode(label, fn, x, solver, level)
    elif level is not None and not level.takes_plain:
        raise TransformError(f"{label}() has no derivative inside {level.title}")
    return _recorded(label, fn, x, solver) if thread.state.grad else x


def _at_level_of(fn: Fn, x: Any) -> Any:
    """Return x as a tensor of the level of ``fn(x)``: of forward mode or vmap if what ``fn`` reads is."""
    if top() is None:
        return x
    with no_grad():
        level = level_of(fn(x))
    return x if level is None else lifted(level, x)


def _in_batch(label: str, fn: Fn, x: Any, solver: LinearSolver, level: BatchLevel) -> Any:
    """Return a root under vmap: below, it is the root of all examples' equations, each linear system solved by itself."""

    def whole(x: Any) -> Any:
        return all_examples(level, fn(level.wrap(x, True)))

    return level.wrap(_attached(label, whole, all_examples(level, x), per_example(solver, level.size)), True)


def all_examples(level: BatchLevel, x: Any) -> Any:
    """Return all examples of a tensor, in dimension 0 of a tensor below."""
    found = lifted(level, x)._payload
    return found.tensor if found.batched else ops.expand(found.tensor, (level.size, *found.shape))


def per_example(solver: LinearSolver, size: int) -> LinearSolver:
    """Return the solver of many systems, one per example: ``matvec`` and ``b`` have the examples in dimension 0."""

    def solve(matvec: Matvec, b: Any) -> Any:
        level = BatchLevel(size)  # a new one: a backward may come after the end of vmap
        with entered(level):
            return all_examples(
                level, solver(lambda v: level.wrap(matvec(all_examples(level, v)), True), level.wrap(b, True))
            )

    return solve


def _in_forward_mode(label: str, fn: Fn, x: Any, solver: LinearSolver, level: DualLevel) -> Any:
    """Return a root with its tangent, ``-J⁻¹`` times that of the residual."""

    def primal(x: Any) -> Any:
        return unwrapped(level, fn(x))[0]

    x = _attached(label, primal, unwrapped(level, x)[0], solver)
    tangent = unwrapped(level, fn(x))[1]
    if tangent is None:
        return level.wrap(x, None)
    at = Linearised(primal, x if node_of(x) is not None and thread.state.grad else link(x)[0])
    recorded = node_of(tangent) is not None or set(at.local.reads) != {at.key}
    if not recorded and not has_history_below(tangent) and not has_history_below(at.value):
        with no_grad():
            return level.wrap(x, _linear_root(at.jvp, -tangent, solver))
    return level.wrap(x, _linear_root(at.jvp, -tangent, solver))


def _recorded(label: str, fn: Fn, x: Any, solver: LinearSolver) -> Any:
    """Return a root as a function of what ``fn`` reads at the level of x."""
    at = Linearised(fn, variable(x))
    reads = {key: node for key, node in at.local.reads.items() if key != at.key}
    if not reads:
        return x
    again = _Again(label, fn, at, reads)

    def pull(results: list[Any], cotangents: list[Any]) -> list[Any]:
        create = thread.state.grad
        here = again(results[0]) if create else at
        u = _linear_root(lambda v: here.vjp(v, thread.state.grad), cotangents[0], solver)
        found = here.local.pull([-u], create)
        return [found.get(key) for key in reads]

    return attach(label, [x], list(reads.values()), pull)[0]


class _Again:
    """A function at its root a second time, now as a function of the root: for a derivative that is itself differentiated.

    It is run when it is needed; but inside forward mode or vmap at once, since a backward may come after their end.
    """

    def __init__(self, label: str, fn: Fn, before: Linearised, reads: dict[Any, Any]) -> None:
        self.label, self.fn, self.before, self.reads = label, fn, before, reads
        self.recorded: tuple[Linearised, Link] | None = None
        if top() is not None:
            point, node = link(before.x)
            self.recorded = Linearised(fn, point), node

    def __call__(self, x: Any) -> Linearised:
        if self.recorded is not None:
            at, node = self.recorded
            node.inputs = (node_of(x),)
            return at
        at = Linearised(self.fn, x)
        allowed = np.sqrt(np.finfo(x._payload.dtype).eps) * (1 + largest(x))
        same = np.abs(concrete(at.value) - concrete(self.before.value)).max(initial=0.0) <= allowed
        if not same or not set(at.local.reads) <= {at.key, *self.reads}:
            raise RuntimeError(f"{self.label}(): the function gives something else at the solution than when it was solved: "
                               "was a tensor that it reads changed in place since, or is it random?")  # fmt: skip
        return at


def _linear_root(matvec: Matvec, b: Any, solver: LinearSolver) -> Any:
    """Return u with ``matvec(u) = b``; if recording, as a function of b and all that ``matvec`` reads."""
    return differentiable_root("linear solve", lambda u: matvec(u) - b, b, lambda _, b: solver(matvec, b), solver)

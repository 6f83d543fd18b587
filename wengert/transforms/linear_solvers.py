"""Solving A u = b where A is known by its products alone: dense, GMRES, BiCGSTAB."""

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import from_array
from wengert.operators.matrices import LinAlgError
from wengert.transforms.local import concrete

__all__ = ["LinearSolveError", "LinearSolver", "bicgstab", "columns", "dense", "gmres", "linear_solver"]

Matvec = Callable[[Any], Any]
LinearSolver = Callable[[Matvec, Any], Any]


class LinearSolveError(RuntimeError):
    """A linear system that has no solution, or whose iteration does not find it."""


DENSE_SIZE = 128  # up to here n products and a factorisation are cheaper, and surer, than iterations


def linear_solver(given: Any) -> LinearSolver:
    """Return a solver by its name, or the user's own.

    Raises:
        ValueError: for an unknown name. TypeError: for something else.
    """
    if callable(given):
        return given
    if not isinstance(given, str):
        raise TypeError(f"linear_solver must be a name or a function (matvec, b) -> u, got {type(given).__name__}")
    if given not in NAMED:
        raise ValueError(f"linear_solver {given!r} is unknown; choose one of {', '.join(map(repr, NAMED))}, or give a "
                         "function (matvec, b) -> u")  # fmt: skip
    return NAMED[given]


def automatic(matvec: Matvec, b: Any) -> Any:
    """Solve with the dense matrix if it is small, else with GMRES."""
    return dense(matvec, b) if b._payload.size <= DENSE_SIZE else gmres(matvec, b)


def columns(matvec: Matvec, like: Any) -> Any:
    """Return the matrix of a linear function of tensors like ``like``, flattened: column i is the product with unit i."""
    n = like._payload.size
    units = np.eye(n, dtype=like._payload.dtype)
    shape = like._payload.shape
    return ops.stack([ops.reshape(matvec(from_array(unit.reshape(shape))), (-1,)) for unit in units], -1)


def dense(matvec: Matvec, b: Any) -> Any:
    """Solve with the matrix itself, made by n products.

    Raises:
        LinearSolveError: if it is singular.
    """
    matrix = columns(matvec, b)
    return solved(matrix, b)


def solved(matrix: Any, b: Any) -> Any:
    """Return ``matrix⁻¹ b`` in the shape of ``b``.

    Raises:
        LinearSolveError: if it is singular.
    """
    n = b._payload.size
    try:
        u = ops.linalg_solve(matrix, ops.reshape(b, (-1,)))
    except LinAlgError as error:
        raise LinearSolveError(f"the {n} × {n} Jacobian is singular: the solution is not isolated there, so that it has "
                           "neither a Newton step nor a derivative") from error  # fmt: skip
    return ops.reshape(u, b._payload.shape)


def inner(a: Any, b: Any) -> float:
    """Return the inner product as a number (under vmap that of all examples together)."""
    return float(concrete(ops.mul(a, b)).sum())


def norm(a: Any) -> float:
    """Return the Euclidean norm as a number (under vmap that of all examples together)."""
    values = concrete(a).astype(np.float64, copy=False).ravel()
    return float(thread.state.run(np.linalg.norm, values))  # without NumPy's warnings


def default_rtol(b: Any) -> float:
    """Return how far below ``|b|`` a residual can be asked to be in the dtype of ``b``."""
    return float(np.finfo(b._payload.dtype).eps) ** 0.75


def scaled(solve: Callable[..., Any]) -> Callable[..., Any]:
    """Return an iterative solver that is given right-hand sides of magnitude 1 alone, those of vmap's examples each.

    So norms neither overflow nor vanish, and no example hides another. One that is not finite has the solution NaN.
    """

    @wraps(solve)
    def whole(matvec: Matvec, b: Any, *args: Any, **options: Any) -> Any:
        if not b._payload.size:
            return b
        size = ops.amax(ops.abs(b))
        finite = ops.isfinite(size)
        unit = ops.where(ops.logical_and(finite, size > 0), size, ops.ones_like(size))
        u = solve(matvec, ops.where(finite, b / unit, ops.zeros_like(b)), *args, **options)
        return u * ops.where(finite, unit, ops.full_like(unit, math.nan))

    return whole


@scaled
def gmres(matvec: Matvec, b: Any, rtol: float | None = None, restart: int = 50, max_restarts: int = 20) -> Any:
    """Solve by restarted GMRES (Saad & Schultz 1986), Arnoldi with modified Gram-Schmidt and Givens rotations.

    Args:
        matvec: u to A u. b: the right-hand side, of any shape. rtol: stop at ``|b - A u| <= rtol |b|``.
        restart: the number of vectors kept. max_restarts: how often to begin again.

    Raises:
        LinearSolveError: if it has not converged by then.
    """
    goal = (default_rtol(b) if rtol is None else rtol) * norm(b)
    u, r, residual = ops.zeros_like(b), b, norm(b)
    for _ in range(max_restarts):
        if residual <= goal:
            return u
        u = ops.add(u, _arnoldi_cycle(matvec, r, residual, goal, restart))
        r = b - matvec(u)
        residual = norm(r)
    if residual <= goal:
        return u
    raise _not_converged("GMRES", residual, norm(b), max_restarts * restart)


def _arnoldi_cycle(matvec: Matvec, r: Any, beta: float, goal: float, size: int) -> Any:
    """Return the correction in the Krylov space of ``r`` (of norm ``beta``) that makes the residual smallest."""
    basis = [r * (1 / beta)]
    H, right = np.zeros((size + 1, size)), np.zeros(size + 1)
    rotations = np.zeros((size, 2))
    right[0], k, smallest = beta, 0, 32 * np.finfo(r._payload.dtype).eps
    for k in range(size):
        w = matvec(basis[k])
        for i, q in enumerate(basis):
            H[i, k] = inner(q, w)
            w = w - q * H[i, k]
        height = norm(w)
        for i, (c, s) in enumerate(rotations[:k]):
            H[i, k], H[i + 1, k] = c * H[i, k] + s * H[i + 1, k], c * H[i + 1, k] - s * H[i, k]
        length = math.hypot(H[k, k], height)
        if length == 0 or not math.isfinite(length):
            k -= 1
            break
        c, s = rotations[k] = H[k, k] / length, height / length
        H[k, k], right[k], right[k + 1] = length, c * right[k], -s * right[k]
        if abs(right[k + 1]) <= goal or height <= smallest * length:
            break
        basis.append(w * (1 / height))
    weights = np.linalg.solve(H[: k + 1, : k + 1], right[: k + 1])
    total = ops.zeros_like(r)
    for weight, q in zip(weights.tolist(), basis, strict=False):
        total = total + q * weight
    return total


@scaled
def bicgstab(matvec: Matvec, b: Any, rtol: float | None = None, max_steps: int = 1000) -> Any:
    """Solve by BiCGSTAB (van der Vorst 1992): like GMRES, in the memory of a few vectors.

    Raises:
        LinearSolveError: if it breaks down or has not converged after ``max_steps``.
    """
    goal = (default_rtol(b) if rtol is None else rtol) * norm(b)
    u, r = ops.zeros_like(b), b
    shadow, p, rho, steps = r, r, inner(r, r), 0
    while norm(r) > goal and steps < max_steps and rho != 0:
        steps += 1
        v = matvec(p)
        alpha = rho / (inner(shadow, v) or math.nan)
        s = r - v * alpha
        t = matvec(s)
        omega = inner(t, s) / (inner(t, t) or math.inf)
        u = u + p * alpha + s * omega
        r = s - t * omega
        after = inner(shadow, r)
        p = r + (p - v * omega) * ((after / rho) * (alpha / omega) if omega else math.nan)
        rho = after
        if not math.isfinite(rho):
            break
    residual = norm(b - matvec(u))
    if not residual <= 10 * goal:
        raise _not_converged("BiCGSTAB", residual, norm(b), steps)
    return u


def _not_converged(method: str, residual: float, size: float, steps: int) -> LinearSolveError:
    return LinearSolveError(
        f"{method} did not solve the linear system: the residual is {residual:.3g} for a right-hand side of norm {size:.3g} "
        f"after {steps} steps; is the Jacobian singular or badly scaled? linear_solver='dense' solves without iterating"
    )


NAMED: dict[str, LinearSolver] = {"auto": automatic, "dense": dense, "gmres": gmres, "bicgstab": bicgstab}

"""Choosing the steps: of a size that keeps the estimated error in bounds, or equal ones.

The sizes are numbers: a derivative takes them as constants.
"""

import math
from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.transforms.local import concrete, constant
from wengert.transforms.ode_steps import Rhs, Step, Tableau, combined, runge_kutta

__all__ = ["Control", "adaptive_steps", "equal_steps"]

SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0
BETA = 0.04  # the share of the previous error in PI control: HNW I, §II.4, and Gustafsson (1991)


class Control(NamedTuple):
    """How steps are chosen.

    Attributes:
        rtol, atol: the error allowed in a step is ``atol + rtol |y|``, in the root mean square.
        max_steps: the most steps, rejected ones too. first_step: the size of the first one, or None.
        step_size, num_steps: if given, equal steps of at most that size, or that many between two times.
        measured: how many elements (the first ones) the error is measured on; None for all.
    """

    rtol: float = 1e-7
    atol: float = 1e-9
    max_steps: int = 10_000
    first_step: float | None = None
    step_size: float | None = None
    num_steps: int | None = None
    measured: int | None = None

    def size(self, error: Any, *states: Any) -> float:
        """Return an error as a fraction of what is allowed, in the root mean square (under vmap the largest of all)."""
        if not error._payload.size:
            return 0.0
        found, *values = aligned(error, *states)
        with np.errstate(all="ignore"):  # what is not finite makes the step smaller
            ratio = found / (reduce(np.maximum, map(np.abs, values)) * self.rtol + self.atol)
            if self.measured is not None:
                ratio = ratio[..., : self.measured]
            count = math.prod(ratio.shape[ratio.ndim - error.ndim :])
            ratio = ratio.reshape(-1, count)
            return math.sqrt(float(np.vecdot(ratio, ratio).max()) / count)


def aligned(*tensors: Any) -> list[Any]:
    """Return the numbers of tensors of one shape as arrays of one shape: under vmap all examples of each stand in front."""
    if all(type(t._payload) is np.ndarray for t in tensors):
        return [t._payload for t in tensors]
    joint = concrete(ops.stack(tensors, -1))
    return [joint[..., i] for i in range(len(tensors))]


def equal_steps(method: Tableau, rhs: Rhs, y: Any, times: list[float], control: Control) -> Iterator[Step]:
    """Yield equal steps between each two times.

    Raises:
        RuntimeError: past ``max_steps``, or if the solution is not finite.
    """
    slope, taken = None, 0
    for start, stop in pairwise(times):
        count = control.num_steps or 1
        if control.step_size is not None:
            wanted = abs(stop - start) / control.step_size - 1e-9
            count = max(1, math.ceil(min(wanted, control.max_steps + 1)))
        h = (stop - start) / count
        taken += count
        if taken > control.max_steps:
            size = control.step_size or abs(h)
            raise RuntimeError(f"odeint(): from t = {times[0]:g} to {stop:g} needs more than max_steps = {control.max_steps} "
                               f"steps of {size:.3g}; raise max_steps, or take larger steps")  # fmt: skip
        for i in range(count):
            t = start + i * h
            step = runge_kutta(method, rhs, t, y, (stop if i == count - 1 else start + (i + 1) * h) - t, slope)
            if not all_finite(step.end):
                raise RuntimeError(f"odeint(): the solution is not finite after the step from t = {t:g} of size {h:.3g}; "
                                   "take smaller steps")  # fmt: skip
            yield step
            y, slope = step.end, step.slope_at_end


def all_finite(tensor: Any) -> bool:
    """Return whether all numbers of a tensor are finite: in a compiled function a decision, as an ``if`` on a tensor is."""
    if thread.state.captures is None:
        return bool(np.isfinite(concrete(tensor)).all())
    return bool(concrete(ops.isfinite(constant(tensor)).all()).all())


def adaptive_steps(method: Tableau, rhs: Rhs, y: Any, t: float, stop: float, control: Control) -> Iterator[Step]:
    """Yield the accepted steps from t to ``stop``, which the last one hits.

    Raises:
        RuntimeError: past ``max_steps``, if the step gets too small, or if the derivative is not finite.
    """
    slope = rhs(t, y)
    require_finite(slope, t)
    sign, old_error = math.copysign(1.0, stop - t), 1e-4
    size = control.first_step or first_step(method, rhs, t, y, slope, sign, control)
    rejected = False
    for _ in range(control.max_steps):
        size = min(size, abs(stop - t))
        last = size >= abs(stop - t) * (1 - 1e-12)
        h = stop - t if last else sign * size
        step = runge_kutta(method, rhs, t, y, h, slope)
        error = control.size(estimate(method, step), constant(y), constant(step.end))
        if error <= 1:
            yield step
            if last:
                return
            t, y, slope = t + h, step.end, step.slope_at_end
            factor = growth(method, error, old_error)
            size *= min(factor, 1.0) if rejected else factor
            old_error, rejected = max(error, 1e-4), False
            continue
        rejected = True
        size *= max(SHRINK, SAFETY * error ** (-1 / method.order)) if math.isfinite(error) else SHRINK
        if size < 16 * np.finfo(float).eps * max(abs(t), abs(stop) * 1e-3):
            raise too_small(t, size, error, control)
    raise RuntimeError(f"odeint(): max_steps = {control.max_steps} steps led only to t = {t:g} on the way to {stop:g}, the "
                       f"step is now {size:.3g}; the problem may be stiff: raise max_steps, rtol or atol")  # fmt: skip


def estimate(method: Tableau, step: Step) -> Any:
    """Return the estimated error of a step."""
    slopes = [constant(slope) for slope in step.slopes]
    return combined(slopes, method.error or (), step.h)


def growth(method: Tableau, error: float, old_error: float) -> float:
    """Return by what the step size is multiplied after an accepted step (PI control, HNW I, §II.4)."""
    if error == 0:
        return GROW
    factor = SAFETY * error ** -(1 / method.order - 0.75 * BETA) * old_error**BETA
    return min(GROW, max(SHRINK, factor))


def first_step(method: Tableau, rhs: Rhs, t: float, y: Any, slope: Any, sign: float, control: Control) -> float:
    """Return a size for the first step from the derivative and its change (HNW I, §II.4)."""
    at, speed = constant(y), constant(slope)
    d0, d1 = control.size(at, at), control.size(speed, at)
    h0 = 1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / d1
    change = constant(rhs(t + sign * h0, at + speed * (sign * h0))) - speed
    d2 = control.size(change, at) / h0
    if not math.isfinite(d2):
        return h0
    h1 = max(1e-6, h0 * 1e-3) if max(d1, d2) <= 1e-15 else (0.01 / max(d1, d2)) ** (1 / method.order)
    return min(100 * h0, h1)


def require_finite(slope: Any, t: float) -> None:
    """Refuse a derivative that is not finite at a point of the solution."""
    if not np.isfinite(concrete(slope)).all():
        raise RuntimeError(f"odeint(): func returned a derivative that is not finite (NaN or inf) at t = {t:g}")


def too_small(t: float, size: float, error: float, control: Control) -> RuntimeError:
    """Return the error for a step size that vanishes."""
    if not math.isfinite(error):
        return RuntimeError(f"odeint(): func returns NaN or inf just after t = {t:g}, however small the step "
                            f"(now {size:.3g}): the solution may end there")  # fmt: skip
    return RuntimeError(
        f"odeint(): the step from t = {t:g} has become too small ({size:.3g}) to keep the error within "
        f"rtol = {control.rtol:g}, atol = {control.atol:g}: the solution may have a singularity there, func a jump"
    )

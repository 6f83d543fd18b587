"""Stopping an integration where a function of the state changes sign, and differentiating when and where that is.

The event time solves g(t, y(t)) = 0, so that its derivative is that of the implicit function theorem (Chen, Amos & Nickel
2021, arXiv:2011.03902): the equation's unknown is a step from the event found, of size zero but with a derivative.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.tape.modes import no_grad
from wengert.transforms.implicit import differentiable_root
from wengert.transforms.linear_solvers import dense
from wengert.transforms.local import constant
from wengert.transforms.ode_steps import Rhs, Step, Tableau, runge_kutta

__all__ = ["EventWatch", "differentiable_event"]

Event = Callable[[Any, Any], Any]


class EventWatch:
    """Looks out for the event in each step.

    Args:
        event: (time, packed state) to a tensor of one element. method, rhs: of the integration.
        near_zero: an event that starts closer to zero than this has no sign yet: it takes that after the first step.
    """

    def __init__(self, event: Event, method: Tableau, rhs: Rhs, near_zero: float) -> None:
        self.event, self.method, self.rhs, self.near_zero = event, method, rhs, near_zero
        self.sign = 0.0
        self.started = False

    def value(self, t: Any, y: Any) -> float:
        """Return the event function's value as a number.

        Raises:
            TypeError, ValueError, RuntimeError: if it is no tensor of one element, or not finite.
        """
        with no_grad():
            found = self.event(t, y)
        if not isinstance(found, Tensor):
            raise TypeError(f"odeint(): event must return a tensor, got {type(found).__name__}")
        if found.numel() != 1:
            raise ValueError(f"odeint(): event must return one element, got a tensor of shape {tuple(found.shape)}")
        value = float(constant(found).item())
        if not math.isfinite(value):
            raise RuntimeError(f"odeint(): event returned {value} at t = {t:g}")
        return value

    def crossing(self, step: Step) -> float | None:
        """Return the fraction of a step after which the event happens, or None."""
        if not self.started:
            before = self.value(step.t, step.y)
            self.sign = 0.0 if abs(before) <= self.near_zero else math.copysign(1.0, before)
            self.started = True
        after = self.value(step.t + step.h, step.end)
        sign = math.copysign(1.0, after) if after else -self.sign
        if self.sign == 0.0 or sign == self.sign:
            self.sign = sign
            return None

        def at(fraction: float) -> float:
            with no_grad():
                part = runge_kutta(self.method, self.rhs, step.t, step.y, step.h * fraction, step.slopes[0])
            return self.value(step.t + step.h * fraction, part.end)

        return bracketed_root(at, 0.0, self.value(step.t, step.y), 1.0, after)


def bracketed_root(f: Callable[[float], float], a: float, fa: float, b: float, fb: float) -> float:
    """Return where f changes sign between a and b, to the last bits (Chandrupatla 1997, Adv. Eng. Software 28)."""
    if fb == 0 or fa == 0 or (fa > 0) == (fb > 0):  # the sign at a is that of an earlier step
        return b
    c, fc, fraction = a, fa, 0.5
    for _ in range(100):
        t = a + fraction * (b - a)
        ft = f(t)
        if ft == 0:
            return t
        if (ft > 0) == (fa > 0):
            c, fc = a, fa
        else:
            c, b, fc, fb = b, a, fb, fa
        a, fa = t, ft
        best, width = (a if abs(fa) < abs(fb) else b), abs(b - a)
        smallest = 4 * np.finfo(float).eps
        if width <= 2 * smallest:
            return best
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        fraction = 0.5
        if phi**2 < xi and (1 - phi) ** 2 < 1 - xi:  # inverse quadratic interpolation is safe
            fraction = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        limit = smallest / width
        fraction = min(1 - limit, max(limit, fraction))
    return best


def differentiable_event(event: Event, method: Tableau, rhs: Rhs, t: float, y: Any) -> tuple[Any, Any]:
    """Return the time of an event found at (t, y), less t, and its state, both with derivatives."""

    def residual(h: Any) -> Any:
        return ops.reshape(event(t + h, runge_kutta(method, rhs, t, y, h).end), ())

    start = ops.zeros((), dtype=y.dtype)
    h = differentiable_root("event", residual, start, lambda _, h: h, dense)
    return h, runge_kutta(method, rhs, t, y, h).end

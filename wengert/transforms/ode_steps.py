"""One step of a Runge–Kutta method, and the polynomial that follows the solution inside the step."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from wengert.core.registry import ops
from wengert.core.tensor import Tensor, from_array

__all__ = ["METHODS", "Step", "Tableau", "coefficients", "combined", "interpolated", "runge_kutta"]

Rhs = Callable[[Any, Any], Any]


class Tableau(NamedTuple):
    """The coefficients of an explicit Runge–Kutta method.

    Attributes:
        name, order: of the method. nodes: where each stage stands in the step. stages: how it is combined of those before.
        weights: how the step is combined of the stages. error: how the estimate of its error is, or None.
        dense: how the fifth coefficient of the dense output is, or None: then that is the cubic Hermite polynomial.
        first_same_as_last: whether the last stage stands at the result, so that it is the first stage of the next step.
    """

    name: str
    order: int
    nodes: tuple[float, ...]
    stages: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    error: tuple[float, ...] | None = None
    dense: tuple[float, ...] | None = None

    @property
    def first_same_as_last(self) -> bool:
        """Whether the last stage is the derivative at the result."""
        return len(self.stages[-1]) > 0 and self.stages[-1] == self.weights[:-1] and self.weights[-1] == 0


def row(text: str) -> tuple[float, ...]:
    """Return the fractions of a line of a tableau as numbers."""
    return tuple(float(Fraction(entry)) for entry in text.split())


# Dormand & Prince (1980), J. Comput. Appl. Math. 6, table 2; dense output of Shampine (1986), Math. Comp. 46, in the
# form of Hairer, Nørsett & Wanner, Solving ODEs I, §II.6.
DOPRI5 = Tableau(
    "dopri5", 5, row("0 1/5 3/10 4/5 8/9 1 1"),
    (
        (), row("1/5"), row("3/40 9/40"), row("44/45 -56/15 32/9"), row("19372/6561 -25360/2187 64448/6561 -212/729"),
        row("9017/3168 -355/33 46732/5247 49/176 -5103/18656"), row("35/384 0 500/1113 125/192 -2187/6784 11/84"),
    ),
    row("35/384 0 500/1113 125/192 -2187/6784 11/84 0"),
    row("71/57600 0 -71/16695 71/1920 -17253/339200 22/525 -1/40"),
    row("-12715105075/11282082432 0 87487479700/32700410799 -10690763975/1880347072 701980252875/199316789632 "
        "-1453857185/822651844 69997945/29380423"),
)  # fmt: skip
# Bogacki & Shampine (1989), Appl. Math. Lett. 2.
BOSH3 = Tableau(
    "bosh3", 3, row("0 1/2 3/4 1"), ((), row("1/2"), row("0 3/4"), row("2/9 1/3 4/9")), row("2/9 1/3 4/9 0"),
    row("-5/72 1/12 1/9 -1/8"),
)  # fmt: skip
RK4 = Tableau("rk4", 4, row("0 1/2 1/2 1"), ((), row("1/2"), row("0 1/2"), row("0 0 1")), row("1/6 1/3 1/3 1/6"))
MIDPOINT = Tableau("midpoint", 2, row("0 1/2"), ((), row("1/2")), row("0 1"))
EULER = Tableau("euler", 1, row("0"), ((),), row("1"))

METHODS = {t.name: t for t in (DOPRI5, BOSH3, RK4, MIDPOINT, EULER)}


class Step(NamedTuple):
    """A step that was taken: from (t, y) to (t + h, end).

    Attributes:
        slopes: the derivative at each stage. slope_at_end: the derivative at the result, if it is known.
    """

    t: Any
    h: Any
    y: Any
    end: Any
    slopes: list[Any]
    slope_at_end: Any


def runge_kutta(method: Tableau, rhs: Rhs, t: Any, y: Any, h: Any, slope: Any = None) -> Step:
    """Take one step; t and h are numbers, or tensors where the derivative by them is wanted.

    Args:
        slope: the derivative at (t, y), if it is known.
    """
    slopes = [rhs(t, y) if slope is None else slope]
    end = y
    for node, stage in zip(method.nodes[1:], method.stages[1:], strict=True):
        end = combined(y, slopes, stage, h)
        slopes.append(rhs(t + h * node, end))
    if method.first_same_as_last:
        return Step(t, h, y, end, slopes, slopes[-1])
    return Step(t, h, y, combined(y, slopes, method.weights, h), slopes, None)


def combined(y: Any, slopes: Sequence[Any], weights: Sequence[float], h: Any) -> Any:
    """Return ``y + h Σ wᵢ kᵢ``."""
    for weight, slope in zip(weights, slopes, strict=False):
        if weight:
            y = y + slope * (h * weight)
    return y


def coefficients(method: Tableau, step: Step) -> list[Any]:
    """Return what the polynomial of a step is made of (HNW I, II.6: r₁ … r₅); the slope at its end must be known."""
    rise = step.end - step.y
    bend = step.slopes[0] * step.h - rise
    found = [step.y, rise, bend, rise - step.slope_at_end * step.h - bend]
    if method.dense is not None:
        start = step.slopes[0] * (step.h * method.dense[0])
        found.append(combined(start, step.slopes[1:], method.dense[1:], step.h))
    return found


def interpolated(coefficients: Sequence[Any], theta: Any) -> Any:
    """Return the solution at fractions of a step.

    Args:
        coefficients: those of the step. theta: numbers or a tensor, one-dimensional; the result has their dimension in front.
    """
    if not isinstance(theta, Tensor):
        theta = from_array(np.asarray(theta, coefficients[0]._payload.dtype))
    theta = ops.reshape(theta, (-1, *[1] * coefficients[0].ndim))
    rest = 1 - theta
    inner = coefficients[3] if len(coefficients) == 4 else coefficients[3] + rest * coefficients[4]
    return coefficients[0] + theta * (coefficients[1] + rest * (coefficients[2] + theta * inner))

"""One step of a Runge–Kutta method, and the polynomial that follows the solution inside the step."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, from_array
from wengert.transforms.local import is_plain

__all__ = ["METHODS", "Step", "Tableau", "combined", "dense_weights", "runge_kutta"]

Rhs = Callable[[Any, Any], Any]


class Tableau(NamedTuple):
    """The coefficients of an explicit Runge–Kutta method.

    Attributes:
        name, order: of the method. nodes: where each stage stands in the step. stages: how it is combined of those before.
        weights: how the step is combined of the stages. error: how the estimate of its error is, or None.
        dense: how the fifth coefficient of the dense output is, or None: that is then the cubic Hermite polynomial.
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

    def with_end(self, rhs: Rhs) -> "Step":
        """Return the step with the derivative at its result."""
        return self if self.slope_at_end is not None else self._replace(slope_at_end=rhs(self.t + self.h, self.end))

    def inside(self, method: Tableau, fractions: Any) -> Any:
        """Return the states at fractions of the step, stacked; the derivative at its result must be known.

        Args:
            fractions: an array or a tensor, one-dimensional.
        """
        slopes = self.slopes if method.first_same_as_last else [*self.slopes, self.slope_at_end]
        weights = dense_weights(method, fractions)
        if not isinstance(weights, Tensor):
            if all(map(is_plain, slopes)):
                return self.y + product(weights * self.h, slopes)
            weights = from_array(weights.astype(self.y._payload.dtype))
        matrix = ops.reshape(ops.stack(slopes), (len(slopes), self.y.numel()))
        return self.y + ops.reshape(ops.matmul(weights * self.h, matrix), (-1, *self.y.shape))


def runge_kutta(method: Tableau, rhs: Rhs, t: Any, y: Any, h: Any, slope: Any = None) -> Step:
    """Take one step; t and h are numbers, or tensors where the derivative by them is wanted.

    Args:
        slope: the derivative at (t, y), if it is known.
    """
    slopes = [rhs(t, y) if slope is None else slope]
    end = y
    for node, stage in zip(method.nodes[1:], method.stages[1:], strict=True):
        end = y + combined(slopes, stage, h)
        slopes.append(rhs(t + h * node, end))
    if method.first_same_as_last:
        return Step(t, h, y, end, slopes, slopes[-1])
    return Step(t, h, y, y + combined(slopes, method.weights, h), slopes, None)


def combined(slopes: Sequence[Any], weights: Sequence[float], h: Any) -> Any:
    """Return ``h Σ wᵢ kᵢ``."""
    if not isinstance(h, Tensor) and all(map(is_plain, slopes)):
        return product(np.multiply(weights, h), slopes)
    terms = [slope * (h * weight) for slope, weight in zip(slopes, weights, strict=True) if weight]
    return reduce(ops.add, terms)


def product(weights: np.ndarray[Any, Any], slopes: Sequence[Any]) -> Any:
    """Return the sum of plain slopes by weights, or as many sums, stacked, as a matrix of weights has rows."""
    arrays = np.array([slope._payload for slope in slopes])
    rows = weights.astype(arrays.dtype, copy=False)
    found = thread.state.run(np.dot, rows, arrays.reshape(len(slopes), -1))  # without NumPy's warnings
    return from_array(found.reshape(weights.shape[:-1] + arrays.shape[1:]))


def dense_weights(method: Tableau, theta: Any) -> Any:
    """Return the weights of the slopes (the last of them at the end of the step) for the state at fractions of the step.

    For those, of shape (m,), they have shape (m, slopes). The polynomial is that of HNW I, §II.6: of fourth order for
    dopri5, the cubic Hermite polynomial for the others.

    Args:
        theta: the fractions, an array or a tensor.
    """
    count = len(method.weights) + (not method.first_same_as_last)
    rise, start, end, bend = np.zeros((4, count))
    rise[: len(method.weights)] = method.weights
    start[0], end[-1] = 1, 1
    bend[: len(method.dense or ())] = method.dense or ()
    parts: Any = [rise, start - rise, 2 * rise - start - end, bend]
    if isinstance(theta, Tensor):
        parts = [from_array(part.astype(theta._payload.dtype)) for part in parts]
    theta = theta.reshape(-1, 1)
    rest = 1 - theta
    return theta * (parts[0] + rest * (parts[1] + theta * (parts[2] + rest * parts[3])))

"""A step along a direction that meets the strong Wolfe conditions (Nocedal & Wright, Numerical Optimization, 3.5 and 3.6).

How points are chosen follows minFunc (Schmidt 2005), as PyTorch's does, so that both take the same steps.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Point", "strong_wolfe"]

DECREASE, CURVATURE = 1e-4, 0.9  # the constants c₁ and c₂ of the conditions


class Point(NamedTuple):
    """A step size, the loss there, its gradient, and the slope along the direction."""

    size: float
    loss: float
    gradient: Any
    slope: float


def strong_wolfe(
    evaluate: Callable[[float], Point], start: Point, size: float, longest: float, tolerance: float, most: int
) -> tuple[Point, int]:
    """Return a point that meets the strong Wolfe conditions, or the best one found, and how often the loss was evaluated.

    Args:
        evaluate: returns the point of a step size. start: that of size 0. size: to try first. longest: the direction's largest
            entry. tolerance: of the change of a parameter, below which the search ends. most: evaluations.
    """
    previous, point, used = start, evaluate(size), 1
    trials = 0
    while trials < most:
        if _is_too_high(point, start) or (trials > 1 and point.loss >= previous.loss):
            break
        if abs(point.slope) <= -CURVATURE * start.slope:
            return point, used
        if point.slope >= 0:
            break
        low, high = point.size + 0.01 * (point.size - previous.size), point.size * 10
        previous, point = point, evaluate(_minimum(previous, point, low, high))
        used, trials = used + 1, trials + 1
    else:
        previous = start
    return _zoom(evaluate, start, [previous, point], longest, tolerance, (trials, most, used))


def _zoom(
    evaluate: Callable[[float], Point], start: Point, bracket: list[Point], longest: float, tolerance: float,
    count: tuple[int, int, int],
) -> tuple[Point, int]:  # fmt: skip
    """Narrow a bracket down, of which the one end is lower than the other."""
    trials, most, used = count
    low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
    stuck = False
    while trials < most and abs(bracket[1].size - bracket[0].size) * longest >= tolerance:
        size, stuck = _inside(bracket, stuck)
        point = evaluate(size)
        used, trials = used + 1, trials + 1
        if _is_too_high(point, start) or point.loss >= bracket[low].loss:
            bracket[high] = point
            low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
            continue
        done = abs(point.slope) <= -CURVATURE * start.slope
        if not done and point.slope * (bracket[high].size - bracket[low].size) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = point
        if done:
            break
    return bracket[low], used


def _is_too_high(point: Point, start: Point) -> bool:
    return point.loss > start.loss + DECREASE * point.size * start.slope


def _inside(bracket: list[Point], stuck: bool) -> tuple[float, bool]:
    """Return the next size to try in a bracket; a tenth from its end, where that is where it leads to a second time."""
    left, right = sorted(point.size for point in bracket)
    size = _minimum(bracket[0], bracket[1], left, right)
    margin = 0.1 * (right - left)
    if min(right - size, size - left) >= margin:
        return size, False
    if not (stuck or size >= right or size <= left):
        return size, True
    return (right - margin if abs(size - right) < abs(size - left) else left + margin), False


def _minimum(one: Point, other: Point, low: float, high: float) -> float:
    """Return where the cubic through two points with their slopes is least (Nocedal & Wright, equation 3.59), within bounds."""
    a, b = (one, other) if one.size <= other.size else (other, one)
    if a.size == b.size:
        return (low + high) / 2
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.size - b.size)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    d2 = math.sqrt(square)
    divisor = b.slope - a.slope + 2 * d2
    if divisor == 0:
        return (low + high) / 2
    return min(max(b.size - (b.size - a.size) * ((b.slope + d2 - d1) / divisor), low), high)

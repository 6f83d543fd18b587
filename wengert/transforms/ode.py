"""``odeint``: initial value problems of ordinary differential equations, differentiated by all that they depend on."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wengert.array.dtype import float64
from wengert.core.interpret import level_of
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, from_array, node_of
from wengert.transforms.control_check import check_callable, version, written
from wengert.transforms.local import constant
from wengert.transforms.ode_adaptive import Control
from wengert.transforms.ode_adjoint import continuous
from wengert.transforms.ode_dense import DenseSolution
from wengert.transforms.ode_events import EventWatch, differentiable_event
from wengert.transforms.ode_integrate import Problem, integrate
from wengert.transforms.ode_replay import checkpointed
from wengert.transforms.ode_steps import METHODS, Rhs, runge_kutta
from wengert.transforms.packing import Packing

__all__ = ["EventSolution", "odeint"]

ADJOINTS: dict[str, Any] = {"discrete": integrate, "checkpoint": checkpointed, "continuous": continuous}


class EventSolution(NamedTuple):
    """What ``odeint(..., event=...)`` returns.

    Attributes:
        ys: the states at the output times up to the event, stacked in dimension 0.
        time, state: when the event happened, and the state then; both None if it did not.
    """

    ys: Any
    time: Any
    state: Any


def odeint(
    func: Callable[..., Any], y0: Any, t: Any, *args: Any, method: str = "dopri5", rtol: float | None = None,
    atol: float | None = None, max_steps: int = 10_000, first_step: float | None = None, step_size: float | None = None,
    num_steps: int | None = None, dense: bool = False, event: Callable[[Any, Any], Any] | None = None,
    adjoint: str = "discrete",
) -> Any:  # fmt: skip
    """Integrate ``dy/dt = func(t, y, *args)`` from ``y0`` at ``t[0]`` and return the states at all times ``t``.

    The result is differentiable, to any order, with respect to ``y0``, ``t``, ``args`` and the tensors that ``func`` closes
    over, the parameters of a module for instance. The sizes of the steps count as constants.

    Args:
        func: (t, y, *args) to the derivative: a tree like y.
        y0: the initial state: a tensor or a tree of them, float32 or float64.
        t: the output times, one-dimensional, strictly increasing or strictly decreasing.
        args: passed on to ``func``.
        method: "dopri5" (order 5, Dormand & Prince 1980) and "bosh3" (order 3) choose their steps; "rk4", "midpoint" and
            "euler" take equal steps, one from each output time to the next unless told otherwise.
        rtol, atol: the error allowed in a step is ``atol + rtol * |y|`` (root mean square); by default 1e-7 and 1e-9 in
            float64, 1e-5 and 1e-6 in float32.
        max_steps: the most steps, rejected ones too. first_step: the size of the first one (default: estimated).
        step_size: equal steps, of at most this size. num_steps: equal steps, this many from each time to the next.
        dense: return a :class:`DenseSolution`, which gives the state at any time.
        event: (t, y) to a tensor of one element. The integration ends where it changes sign; what is returned is an
            :class:`EventSolution`. Sign changes are looked for from one step to the next: a pair of them within a step is
            not seen. An event within ``atol`` of zero at the start takes its sign from the first step.
        adjoint: how it is differentiated: "discrete" (the recorded steps), "checkpoint" (the same gradient; a step is
            recorded again when its turn comes, so that the memory is that of the states) or "continuous" (the adjoint
            equation, in the memory of the output states; accurate to the tolerance).

    Returns:
        The states, a tree like ``y0`` with the times in dimension 0; with ``dense`` or ``event`` what is said there.

    Raises:
        ValueError, TypeError: for arguments that do not fit. RuntimeError: if a step becomes too small, if more than
        ``max_steps`` are needed, or if ``func`` returns NaN or inf.

    Example:
        >>> import wengert as wg
        >>> rate = wg.tensor(0.5, dtype=wg.float64, requires_grad=True)
        >>> t = wg.tensor([0.0, 1.0, 2.0], dtype=wg.float64)
        >>> y = odeint(lambda t, y: -rate * y, wg.tensor(1.0, dtype=wg.float64), t)
        >>> y.detach()
        tensor([1.0000, 0.6065, 0.3679], dtype=wengert.float64)
        >>> y[-1].backward()
        >>> rate.grad  # -2 exp(-2 · 0.5)
        tensor(-0.7358, dtype=wengert.float64)
    """
    check_callable("odeint", func=func, **({} if event is None else {"event": event}))
    packing = Packing(y0, "y0")
    y = packing.packed()
    times = t if isinstance(t, Tensor) else from_array(np.asarray(t, np.float64))
    values = checked_times(times)
    control = checked_control(packing, rtol, atol, max_steps, first_step, step_size, num_steps)
    problem = Problem(right_hand_side(func, args, packing, times.dtype), named("method", method, METHODS), control)
    integrated = named("adjoint", adjoint, ADJOINTS)
    moving = level_of(times) is not None or (node_of(times) is not None and thread.state.grad)
    y_start = moved(problem, times[0], y, constant(times)[0] - times[0]) if moving else y
    if dense:
        return dense_solution(problem, y_start, values, packing, event, adjoint)
    if event is not None:
        return event_solution(problem, event, packing, times, y, y_start, values, integrated)
    states, _ = integrated(problem, y_start, values)
    return packing.unpack_many(at_moving_times(problem, times, y, states) if moving else states)


def right_hand_side(func: Callable[..., Any], args: tuple[Any, ...], packing: Packing, dtype: Any) -> Rhs:
    """Return the user's function on packed states; its time is a tensor.

    Raises:
        InplaceError: if the function changes in place the state that it is given, or what it returned the time before.
    """
    last, last_version = None, 0

    def rhs(t: Any, y: Any) -> Any:
        nonlocal last, last_version
        given = version(y)
        slope = packing.pack(func(time_tensor(t, dtype), packing.unpack(y), *args))
        if version(y) != given:
            raise written("odeint(): func", "the state y", y, given)
        if version(last) != last_version:
            raise written("odeint(): func", "what it returned the time before", last, last_version)
        last, last_version = slope, version(slope)
        return slope

    return rhs


def time_tensor(t: Any, dtype: Any) -> Any:
    """Return a time as a tensor without dimensions."""
    if isinstance(t, Tensor):
        return t if t.dtype is dtype else ops.cast(t, dtype)
    return from_array(np.asarray(t, dtype.numpy))


def checked_times(t: Any) -> list[float]:
    """Return the output times as numbers.

    Raises:
        ValueError: unless they are one-dimensional, finite and strictly monotonic.
    """
    if t.ndim != 1 or not t.numel():
        raise ValueError(
            f"odeint(): t must be a one-dimensional tensor of at least one time, got shape {tuple(t.shape)}"
        )
    if not t.dtype.is_floating_point:
        raise TypeError(f"odeint(): t must be a floating-point tensor, got {t.dtype}")
    values = constant(t).numpy(force=True).astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError("odeint(): t has a time that is not finite")
    changes = np.diff(values)
    if not ((changes > 0).all() or (changes < 0).all()):
        i = int(
            np.argmax(np.sign(changes) != np.sign(values[-1] - values[0]) if values[-1] != values[0] else changes <= 0)
        )
        raise ValueError("odeint(): t must be strictly increasing or strictly decreasing, but "
                         f"t[{i}] = {values[i]:g} and t[{i + 1}] = {values[i + 1]:g}")  # fmt: skip
    return values.tolist()


def named(what: str, given: Any, table: dict[str, Any]) -> Any:
    """Return what a name stands for.

    Raises:
        ValueError: for an unknown name.
    """
    if not isinstance(given, str) or given not in table:
        raise ValueError(f"odeint(): {what} {given!r} is unknown; choose one of {', '.join(map(repr, table))}")
    return table[given]


def checked_control(
    packing: Packing, rtol: float | None, atol: float | None, max_steps: int, first_step: float | None,
    step_size: float | None, num_steps: int | None,
) -> Control:  # fmt: skip
    """Return the step control that was asked for.

    Raises:
        TypeError: for something else than a number. ValueError: for a number that is not positive.
    """
    usual = (1e-7, 1e-9) if packing.dtype is float64 else (1e-5, 1e-6)
    rtol, atol = usual[0] if rtol is None else rtol, usual[1] if atol is None else atol
    given = {
        "atol": atol,
        "max_steps": max_steps,
        "first_step": first_step,
        "step_size": step_size,
        "num_steps": num_steps,
    }
    for name, value in {"rtol": rtol, **given}.items():
        kind = int if name in ("max_steps", "num_steps") else float
        if value is not None and not hasattr(value, "__index__" if kind is int else "__float__"):
            raise TypeError(f"odeint(): {name} must be {'an int' if kind is int else 'a number'}, got {value!r}")
    for name, value in given.items():
        if value is not None and not value > 0:
            raise ValueError(f"odeint(): {name} must be positive, got {value}")
    if not rtol >= 0:
        raise ValueError(f"odeint(): rtol must not be negative, got {rtol}")
    if step_size is not None and num_steps is not None:
        raise ValueError("odeint(): step_size and num_steps exclude each other")
    return Control(float(rtol), float(atol), max_steps, first_step, step_size, num_steps)


# ---- times that are differentiated by


def moved(problem: Problem, t: Any, y: Any, h: Any) -> Any:
    """Return the state h later, where h is a tensor of value zero: a step whose derivative is that of the solution."""
    return runge_kutta(problem.method, problem.rhs, t, y, ops.cast(h, y.dtype)).end


def at_moving_times(problem: Problem, times: Any, y: Any, states: Any) -> Any:
    """Return the states as functions of the output times; the first is the initial state itself."""
    values = constant(times)
    found = [moved(problem, values[i], states[i], times[i] - values[i]) for i in range(1, len(states))]
    return ops.stack([y, *found])


# ---- dense output and events


def dense_solution(
    problem: Problem, y: Any, times: list[float], packing: Packing, event: Any, adjoint: str
) -> DenseSolution:
    """Return the solution as a function of time."""
    if event is not None:
        raise ValueError(
            "odeint(): dense=True and event exclude each other; integrate to the time of the event afterwards"
        )
    if adjoint != "discrete":
        raise ValueError(f"odeint(): dense=True needs adjoint='discrete', got {adjoint!r}: only that knows all steps")
    if len(times) < 2:
        raise ValueError("odeint(): dense=True needs at least two times")
    return DenseSolution(problem.method, [step.with_end(problem.rhs) for step in problem.steps(y, times)], packing)


def event_solution(
    problem: Problem, event: Callable[[Any, Any], Any], packing: Packing, times: Any, y: Any, y_start: Any,
    values: list[float], integrated: Callable[..., Any],
) -> EventSolution:  # fmt: skip
    """Integrate to the event and return it with derivatives."""

    def packed_event(t: Any, y: Any) -> Any:
        return event(time_tensor(t, times.dtype), packing.unpack(y))

    watch = EventWatch(packed_event, problem.method, problem.rhs, problem.control.atol)
    states, arrival = integrated(problem, y_start, values, watch)
    if y_start is not y:
        states = at_moving_times(problem, times, y, states)
    ys = packing.unpack_many(states)
    if arrival is None:
        return EventSolution(ys, None, None)
    h, state = differentiable_event(packed_event, problem.method, problem.rhs, arrival.time, arrival.state)
    return EventSolution(ys, time_tensor(arrival.time + h, times.dtype), packing.unpack(state))

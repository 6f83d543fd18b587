"""Schedules that go up and down between two rates, and momentum the other way round."""

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

from wengert.optim.lr_scheduler.base import LRScheduler, check_positive, per_group, set_rate
from wengert.optim.optimizer import Group, Optimizer

__all__ = ["CyclicLR", "OneCycleLR"]


class _Cycling(LRScheduler):
    """Cycles momentum (or Adam's first beta) against the rate."""

    cycle_momentum: bool

    def _start_momentum(self, optimizer: Optimizer, base: Any, most: Any, last_epoch: int) -> None:
        """Check that there is a momentum to cycle, and put it at its largest value at the start."""
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"a scheduler takes an Optimizer, got {type(optimizer).__name__}")
        self.base_momentums = per_group("base_momentum", optimizer, base)
        self.max_momentums = per_group("max_momentum", optimizer, most)
        if not self.cycle_momentum:
            return
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError(
                f"{type(optimizer).__name__} has neither momentum nor betas to cycle; pass cycle_momentum=False"
            )
        if last_epoch == -1:
            bounds = zip(optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True)
            for group, low, high in bounds:
                _set_momentum(group, high)
                group["max_momentum"], group["base_momentum"] = high, low

    def _first_lr(self) -> list[float]:
        return self.get_lr()


def _set_momentum(group: Group, momentum: float) -> None:
    if "betas" in group:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


class CyclicLR(_Cycling):
    """Triangles between ``base_lr`` and ``max_lr`` (Smith, WACV 2017).

    Args:
        base_lr, max_lr: the bounds, one for all groups or one per group.
        step_size_up, step_size_down: steps of the two sides of a triangle (the second defaults to the first).
        mode: ``"triangular"``, ``"triangular2"`` (half the height each cycle) or ``"exp_range"`` (gamma^step).
        gamma: for ``"exp_range"``. scale_fn, scale_mode: a function of the cycle (``"cycle"``) or of the step
            (``"iterations"``) in place of the mode.
        cycle_momentum, base_momentum, max_momentum: cycle momentum the other way round between these bounds.

    Raises:
        ValueError: for an unknown mode, or an optimiser without momentum to cycle.

    Example:
        >>> import wengert as wg
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0, momentum=0.9)
        >>> s = wg.optim.lr_scheduler.CyclicLR(opt, base_lr=0.0, max_lr=1.0, step_size_up=2)
        >>> opt.step(); s.step(); s.get_last_lr()
        [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, base_lr: float | list[float], max_lr: float | list[float],
        step_size_up: int = 2000, step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8, max_momentum: float | list[float] = 0.9, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(f"mode must be 'triangular', 'triangular2' or 'exp_range', got '{mode}'")
        self.cycle_momentum = cycle_momentum
        self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        base_lrs = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, base_lrs, strict=True):
                set_rate(group, rate)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """Return the height of a triangle, for the cycle or the step ``x``."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "exp_range":
            return float(self.gamma**x)
        return 1.0 if self.mode == "triangular" else 1 / 2.0 ** (x - 1)

    def get_lr(self) -> list[float]:
        """Return the rates at this step and set the momenta."""
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            bounds = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True)
            for group, low, high in bounds:
                _set_momentum(group, high - (high - low) * height * scale)
        return [low + (high - low) * height * scale for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimiser and a plain scale function."""
        state = super().state_dict()
        scale = self._scale_fn_custom
        state["_scale_fn_custom"] = None if scale is None or isinstance(scale, FunctionType) else dict(vars(scale))
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned."""
        saved = state_dict["_scale_fn_custom"]
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "_scale_fn_custom"})
        if saved is not None:
            vars(self._scale_fn_custom).update(saved)


class OneCycleLR(_Cycling):
    """One rise to ``max_lr`` and one long fall far below the start (Smith & Topin, 2018); stepped once per batch.

    Args:
        max_lr: the largest rate, one for all groups or one per group.
        total_steps: how many steps in all, or ``epochs`` and ``steps_per_epoch``.
        pct_start: the share of steps spent rising. anneal_strategy: ``"cos"`` or ``"linear"``.
        cycle_momentum, base_momentum, max_momentum: cycle momentum the other way round between these bounds.
        div_factor: max_lr / starting rate. final_div_factor: starting rate / last rate.
        three_phase: fall back to the starting rate as long as the rise took, then to the last rate.

    Raises:
        ValueError: for missing or bad numbers, or (in ``step``) more steps than announced.

    Example:
        >>> import wengert as wg
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0, momentum=0.9)
        >>> s = wg.optim.lr_scheduler.OneCycleLR(opt, max_lr=1.0, total_steps=10, div_factor=4.0)
        >>> s.get_last_lr()
        [0.25]
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: float | list[float], total_steps: int | None = None,
        epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
        anneal_strategy: str = "cos", cycle_momentum: bool = True, base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
        three_phase: bool = False, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if not 0 <= pct_start <= 1:
            raise ValueError(f"pct_start must lie between 0 and 1, got {pct_start!r}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be 'cos' or 'linear', got '{anneal_strategy}'")
        self._anneal_func_type = anneal_strategy
        self._schedule_phases = _phases(pct_start, self.total_steps, three_phase)
        self.cycle_momentum = cycle_momentum
        self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        if last_epoch == -1:
            for group, most in zip(optimizer.param_groups, per_group("max_lr", optimizer, max_lr), strict=True):
                group["initial_lr"] = most / div_factor
                group["max_lr"] = most
                group["min_lr"] = group["initial_lr"] / final_div_factor
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rates at this step and set the momenta."""
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"step {step} of a schedule of {self.total_steps} steps")
        begin = 0.0
        for phase in self._schedule_phases[:-1]:
            if step <= phase["end_step"]:
                break
            begin = phase["end_step"]
        else:
            phase = self._schedule_phases[-1]
        share = (step - begin) / (phase["end_step"] - begin)
        groups = self.optimizer.param_groups
        if self.cycle_momentum:
            for group in groups:
                momentum = self._between(group[phase["start_momentum"]], group[phase["end_momentum"]], share)
                _set_momentum(group, momentum)
        return [self._between(group[phase["start_lr"]], group[phase["end_lr"]], share) for group in groups]

    def _between(self, start: float, end: float, share: float) -> float:
        """The value at a share of the way from start to end, on a cosine or a line."""
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)
        return (end - start) * share + start


def _total_steps(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    if total_steps is None and (epochs is None or steps_per_epoch is None):
        raise ValueError("OneCycleLR needs total_steps, or epochs and steps_per_epoch")
    given = {"total_steps": total_steps} if total_steps is not None else {
        "epochs": epochs, "steps_per_epoch": steps_per_epoch,
    }  # fmt: skip
    for name, value in given.items():
        check_positive(name, value)
    return math.prod(value for value in given.values() if value is not None)


def _phases(pct_start: float, total: int, three_phase: bool) -> list[dict[str, Any]]:
    """The phases: where each ends, and the names of the values it goes between."""

    def phase(end: float, rates: tuple[str, str], momenta: tuple[str, str]) -> dict[str, Any]:
        return {
            "end_step": end, "start_lr": rates[0], "end_lr": rates[1],
            "start_momentum": momenta[0], "end_momentum": momenta[1],
        }  # fmt: skip

    up, down = ("max_momentum", "base_momentum"), ("base_momentum", "max_momentum")
    rise = phase(float(pct_start * total) - 1, ("initial_lr", "max_lr"), up)
    if not three_phase:
        return [rise, phase(total - 1, ("max_lr", "min_lr"), down)]
    return [
        rise,
        phase(float(2 * pct_start * total) - 2, ("max_lr", "initial_lr"), down),
        phase(total - 1, ("initial_lr", "min_lr"), ("max_momentum", "max_momentum")),
    ]

"""Schedules made of schedules, one after the other or all at once."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from wengert.optim.elementwise import number
from wengert.optim.lr_scheduler.base import LRScheduler, current_rates, set_rate
from wengert.optim.lr_scheduler.plateau import ReduceLROnPlateau
from wengert.optim.optimizer import Optimizer

__all__ = ["ChainedScheduler", "SequentialLR"]


class _Composed(LRScheduler):
    """Holds other schedules of the same optimiser; their states are part of its state."""

    _schedulers: Sequence[LRScheduler]

    def _take(self, schedulers: Any, optimizer: Optimizer | None) -> None:
        name = type(self).__name__
        if isinstance(schedulers, str | bytes) or not isinstance(schedulers, Sequence):
            raise TypeError(f"{name} takes schedulers in a list, got {schedulers!r}")
        if not schedulers:
            raise ValueError(f"{name} needs at least one scheduler")
        for i, scheduler in enumerate(schedulers):
            if not isinstance(scheduler, LRScheduler):
                raise TypeError(f"{name} takes schedulers, got {type(scheduler).__name__} at position {i}")
            if not i:
                self.optimizer = scheduler.optimizer if optimizer is None else optimizer
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(f"{name} cannot hold ReduceLROnPlateau (position {i}): its step needs a metric")
            if scheduler.optimizer is not self.optimizer:
                raise ValueError(f"{name}: the scheduler at position {i} belongs to another optimizer")
        self._schedulers = schedulers

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimiser, with the states of the schedules."""
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned."""
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "_schedulers"})
        for scheduler, saved in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(saved)


class SequentialLR(_Composed):
    """Runs one schedule after the other; each starts at its milestone from its first epoch.

    Args:
        schedulers: the schedules. milestones: the epochs at which the second, third … begin.

    Raises:
        ValueError: for numbers that do not fit, another optimiser, or ReduceLROnPlateau.

    Example:
        >>> import wengert as wg
        >>> sched = wg.optim.lr_scheduler
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0)
        >>> parts = [sched.ConstantLR(opt, 0.5), sched.ExponentialLR(opt, 0.5)]
        >>> s = sched.SequentialLR(opt, parts, milestones=[1])
        >>> s.get_last_lr()
        [0.5]
        >>> opt.step(); s.step(); s.get_last_lr()
        [1.0]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        self._take(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(f"SequentialLR: {len(schedulers)} schedulers need {len(schedulers) - 1} milestones")
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        for group in self.optimizer.param_groups:
            set_rate(group, number(group["initial_lr"]))
        _step_back(self)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:
        """Go to the next epoch of the schedule whose turn it is."""
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[turn]
        if turn > 0 and self._milestones[turn - 1] == self.last_epoch:
            scheduler._restart()
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def _initial_step(self) -> None:
        """Set the rates of the first epoch again, after the constructors of all parts set theirs."""
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._initial_step()
        self.last_epoch += 1
        self._last_lr = first.get_last_lr()


def _step_back(scheduler: LRScheduler) -> None:
    """Undo the step that the constructors of all parts made."""
    if isinstance(scheduler, _Composed):
        for part in scheduler._schedulers:
            _step_back(part)
    else:
        scheduler.last_epoch -= 1


class ChainedScheduler(_Composed):
    """Steps several schedules at once; each changes the rate that the one before left.

    Raises:
        ValueError: for no schedule, different optimisers, or ReduceLROnPlateau.

    Example:
        >>> import wengert as wg
        >>> sched = wg.optim.lr_scheduler
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0)
        >>> s = sched.ChainedScheduler([sched.ConstantLR(opt, 0.5), sched.ExponentialLR(opt, 0.5)])
        >>> opt.step(); s.step(); s.get_last_lr()
        [0.25]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self._take(schedulers, optimizer)
        self._last_lr = current_rates(self.optimizer)

    def step(self) -> None:
        """Go to the next epoch of every schedule."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = current_rates(self.optimizer)

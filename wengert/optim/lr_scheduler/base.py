"""What all learning-rate schedules share."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from wengert.array.shape import as_int
from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.optim.elementwise import number
from wengert.optim.optimizer import Group, Optimizer

__all__ = ["LRScheduler", "check_positive", "current_rates", "per_group", "set_rate"]


def _at_each_call(step: Callable[..., None]) -> Callable[..., None]:
    """Let a ``step`` method that is called while a program is captured run at each call of the program instead."""

    @functools.wraps(step)
    def stepping(self: "LRScheduler", *args: Any, **kwargs: Any) -> None:
        captures = thread.state.captures
        if captures is None:
            step(self, *args, **kwargs)
        elif any(isinstance(value, Tensor) for value in (*args, *kwargs.values())):
            captures.refuse("a scheduler's step() that is given a tensor, whose value Python would need,")
        elif self._is_initial:
            captures.refuse("a scheduler that is made inside the function")
        else:
            captures.effect(functools.partial(step, self, *args, **kwargs))

    return stepping


class LRScheduler:
    """Base class of schedules: after each epoch (or step) it sets ``lr`` of every parameter group.

    Most schedules multiply the current rate, so they can be chained and respect a rate changed by hand. A subclass
    defines :meth:`get_lr`.

    Args:
        optimizer: the optimiser. last_epoch: the epoch to go on from, with the optimiser's state already loaded; -1
            starts afresh.

    Attributes:
        last_epoch: the number of steps taken. base_lrs: the rates at the start, one per group.

    Raises:
        TypeError: if ``optimizer`` is not an Optimizer. KeyError: if ``last_epoch`` is given and a group has no
            "initial_lr".

    Example:
        >>> import wengert as wg
        >>> class Halved(wg.optim.lr_scheduler.LRScheduler):
        ...     def get_lr(self):
        ...         return [rate / 2**self.last_epoch for rate in self.base_lrs]
        >>> optimizer = wg.optim.SGD([wg.ones(1, requires_grad=True)], lr=0.8)
        >>> schedule = Halved(optimizer)
        >>> for _ in range(2):
        ...     optimizer.step()
        ...     schedule.step()
        >>> schedule.get_last_lr()
        [0.2]
    """

    last_epoch: int
    base_lrs: list[float]
    _last_lr: list[Any]
    _is_initial = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _at_each_call(cls.__dict__["step"])  # type: ignore[method-assign]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        last_epoch = as_int(last_epoch, "last_epoch")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"a scheduler takes an Optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", number(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"parameter group {i} has no 'initial_lr', which last_epoch={last_epoch} needs; load the "
                    "optimizer's state before making the scheduler, or leave last_epoch out"
                )
        self.base_lrs = [number(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        """Set the rates of the first epoch; where training goes on they are the optimiser's own."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[float]:
        """Return the rate of each group for ``last_epoch``; called by :meth:`step`."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr()")

    def get_last_lr(self) -> list[Any]:
        """Return the rates set last, one per group."""
        return self._last_lr

    @_at_each_call
    def step(self, epoch: Any = None) -> None:
        """Go to the next epoch and set its rates; to be called after the optimiser's step.

        Args:
            epoch: must be left out. Only CosineAnnealingWarmRestarts takes a number here.

        Raises:
            TypeError: if ``epoch`` is given.
        """
        if epoch is not None:
            raise TypeError(
                f"{type(self).__name__}.step() takes no epoch, got {epoch!r}: call step() once for each; to go on from "
                "an epoch, load the schedule's state_dict(), or give last_epoch when it is made"
            )
        if self._step_count == 1 and not self.optimizer.has_stepped:
            warnings.warn(
                f"{type(self).__name__}.step() was called before the first optimizer.step(), so the first rate of the "
                "schedule was never used; call optimizer.step() first",
                stacklevel=2,
            )
        self._step_count += 1
        self.last_epoch += 1
        self._set(self.get_lr())

    def _restart(self) -> None:
        """Set the rates of epoch 0 (used where one schedule follows another)."""
        self.last_epoch = 0
        self._set(self._first_lr())

    def _first_lr(self) -> list[float]:
        return list(self.base_lrs)

    def _rates(self) -> list[float]:
        """The current rates as numbers."""
        return [number(group["lr"]) for group in self.optimizer.param_groups]

    def _set(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)
        self._last_lr = current_rates(self.optimizer)

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimiser."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned."""
        self.__dict__.update(state_dict)


def check_positive(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a positive int."""
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive int, got {value!r}")


def set_rate(group: Group, rate: float) -> None:
    """Set a group's rate; a rate that is a tensor is written into."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def current_rates(optimizer: Optimizer) -> list[Any]:
    """Return the rates of an optimiser's groups; a rate that is a tensor is copied."""
    return [g["lr"].clone() if isinstance(g["lr"], Tensor) else g["lr"] for g in optimizer.param_groups]


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[float]:
    """Return an option as one number per group.

    Raises:
        ValueError: for a list of another length.
    """
    count = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [number(value)] * count
    if len(value) != count:
        raise ValueError(f"{name} has {len(value)} values, the optimizer has {count} parameter groups")
    return [number(v) for v in value]

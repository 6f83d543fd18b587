"""Schedules given by a formula of the epoch."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from wengert.optim.lr_scheduler.base import LRScheduler, check_positive
from wengert.optim.optimizer import Optimizer

__all__ = [
    "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "ExponentialLR", "LambdaLR", "LinearLR",
    "MultiStepLR", "MultiplicativeLR", "PolynomialLR", "StepLR",
]  # fmt: skip

Factor = Callable[[int], float]


class _ByFunction(LRScheduler):
    """A schedule given by the user's functions; the state holds attributes of callable objects, not functions."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | list[Factor], last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__} takes an optimizer, got {type(optimizer).__name__}")
        count = len(optimizer.param_groups)
        functions = list(lr_lambda) if isinstance(lr_lambda, list | tuple) else [lr_lambda] * count
        if len(functions) != count:
            raise ValueError(f"got {len(functions)} functions for {count} parameter groups")
        for function in functions:
            if not callable(function):
                raise TypeError(f"lr_lambda must be a function of the epoch, got {type(function).__name__}")
        self.lr_lambdas = functions
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimiser and plain functions."""
        saved = [None if isinstance(f, FunctionType) else dict(vars(f)) for f in self.lr_lambdas]
        return {**super().state_dict(), "lr_lambdas": saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned."""
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "lr_lambdas"})
        for function, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if saved is not None:
                vars(function).update(saved)


class LambdaLR(_ByFunction):
    """base_lr · f(epoch), with one function for all groups or one per group.

    Example:
        >>> import wengert as wg
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0)
        >>> s = wg.optim.lr_scheduler.LambdaLR(opt, lambda epoch: 0.5 ** epoch)
        >>> opt.step(); s.step(); s.get_last_lr()
        [0.5]
    """

    def get_lr(self) -> list[float]:
        """Return base_lr · f(epoch)."""
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]

    def _first_lr(self) -> list[float]:
        return self.get_lr()


class MultiplicativeLR(_ByFunction):
    """The current rate times f(epoch), from epoch 1 on.

    Example:
        >>> import wengert as wg
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0)
        >>> s = wg.optim.lr_scheduler.MultiplicativeLR(opt, lambda epoch: 0.5)
        >>> opt.step(); s.step(); s.get_last_lr()
        [0.5]
    """

    def get_lr(self) -> list[float]:
        """Return lr · f(epoch)."""
        if self._is_initial:
            return self._rates()
        return [rate * f(self.last_epoch) for f, rate in zip(self.lr_lambdas, self._rates(), strict=True)]


class StepLR(LRScheduler):
    """Multiplies the rate by ``gamma`` every ``step_size`` epochs.

    Example:
        >>> import wengert as wg
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0)
        >>> s = wg.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.5)
        >>> opt.step(); s.step(); s.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rate, times gamma at the steps."""
        if self._is_initial or self.last_epoch % self.step_size:
            return self._rates()
        return [rate * self.gamma for rate in self._rates()]


class MultiStepLR(LRScheduler):
    """Multiplies the rate by ``gamma`` at each milestone; one given twice counts twice.

    Example:
        >>> import wengert as wg
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0)
        >>> s = wg.optim.lr_scheduler.MultiStepLR(opt, milestones=[1, 3], gamma=0.5)
        >>> opt.step(); s.step(); s.get_last_lr()
        [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rate, times gamma at the milestones."""
        if self.last_epoch not in self.milestones or (self._is_initial and self.last_epoch > 0):
            return self._rates()
        return [rate * self.gamma ** self.milestones[self.last_epoch] for rate in self._rates()]

    def _first_lr(self) -> list[float]:
        passed = bisect_right(sorted(Counter(self.milestones).elements()), 0)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The rate times ``factor`` for the first ``total_iters`` epochs.

    Raises:
        ValueError: for a factor outside [0, 1].

    Example:
        >>> import wengert as wg
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0)
        >>> wg.optim.lr_scheduler.ConstantLR(opt, factor=0.5).get_last_lr()
        [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 <= factor <= 1:
            raise ValueError(f"the factor of ConstantLR must lie between 0 and 1, got {factor}")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rate: reduced in the first epoch, restored after the last reduced one."""
        if self.last_epoch == 0:
            return [rate * self.factor for rate in self._rates()]
        if self._is_initial or self.last_epoch != self.total_iters:
            return self._rates()
        return [rate * (1.0 / self.factor) for rate in self._rates()]

    def _first_lr(self) -> list[float]:
        return [base * (1.0 if self.total_iters <= 0 else self.factor) for base in self.base_lrs]


class LinearLR(LRScheduler):
    """The rate times a factor that goes from ``start_factor`` to ``end_factor`` over ``total_iters`` epochs.

    Raises:
        ValueError: for a start outside (0, 1] or an end outside [0, 1].

    Example:
        >>> import wengert as wg
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0)
        >>> s = wg.optim.lr_scheduler.LinearLR(opt, start_factor=0.5, total_iters=2)
        >>> opt.step(); s.step(); s.get_last_lr()
        [0.75]
    """

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ValueError(f"LinearLR: the factors must lie between 0 and 1, got {start_factor} and {end_factor}")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rate times the ratio of this epoch's factor to the last one's."""
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in self._rates()]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates()
        rise = self.end_factor - self.start_factor
        ratio = 1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise)
        return [rate * ratio for rate in self._rates()]

    def _first_lr(self) -> list[float]:
        return [base * self.start_factor for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Multiplies the rate by ``gamma`` every epoch.

    Example:
        >>> import wengert as wg
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0)
        >>> s = wg.optim.lr_scheduler.ExponentialLR(opt, gamma=0.5)
        >>> opt.step(); s.step(); s.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return lr · gamma."""
        return self._rates() if self._is_initial else [rate * self.gamma for rate in self._rates()]


class PolynomialLR(LRScheduler):
    """base_lr · (1 - epoch / total_iters)^power, 0 from ``total_iters`` on.

    Example:
        >>> import wengert as wg
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0)
        >>> s = wg.optim.lr_scheduler.PolynomialLR(opt, total_iters=2)
        >>> opt.step(); s.step(); s.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rate times the ratio of this epoch's factor to the last one's."""
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates()
        left = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return [rate * (left / before) ** self.power for rate in self._rates()]


class CosineAnnealingLR(LRScheduler):
    """eta_min + (base_lr - eta_min) · (1 + cos(π · epoch / T_max)) / 2 (Loshchilov & Hutter, ICLR 2017).

    Example:
        >>> import wengert as wg
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0)
        >>> s = wg.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=1)
        >>> opt.step(); s.step(); s.get_last_lr()
        [0.0]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rate, moved from the last epoch's to this one's place on the cosine."""
        epoch, span, least = self.last_epoch, self.T_max, self.eta_min
        if self._is_initial:
            return self._rates()
        if (epoch - 1 - span) % (2 * span) == 0:  # the ratio below is 0 / 0: leave the minimum by the difference
            rise = (1 - math.cos(math.pi / span)) / 2
            return [rate + (base - least) * rise for rate, base in zip(self._rates(), self.base_lrs, strict=True)]
        ratio = (1 + math.cos(math.pi * epoch / span)) / (1 + math.cos(math.pi * (epoch - 1) / span))
        return [ratio * (rate - least) + least for rate in self._rates()]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that starts again after T_0, T_0 · T_mult, T_0 · T_mult² … epochs (same source).

    Raises:
        ValueError: for ``T_0`` or ``T_mult`` that is no positive int.

    Example:
        >>> import wengert as wg
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0)
        >>> s = wg.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=2)
        >>> opt.step(); s.step(); round(s.get_last_lr()[0], 6)
        0.5
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        check_positive("T_0", T_0)
        check_positive("T_mult", T_mult)
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rate at the place within the current cycle."""
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to a given one, which may be a fraction (epoch + batch / batches).

        Raises:
            ValueError: for a negative epoch.
        """
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            epoch = epoch or 0
            if epoch < 0:
                raise ValueError(f"an epoch cannot be negative, got {epoch}")
            self._go_to(epoch)
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr())

    def _go_to(self, epoch: float) -> None:
        """Find the cycle of an epoch and the place in it."""
        cycle = 0
        if epoch >= self.T_0 and self.T_mult == 1:
            self.T_cur = epoch % self.T_0
            return
        if epoch >= self.T_0:
            cycle = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
        grown = self.T_mult**cycle
        before = self.T_0 * (grown - 1) / (self.T_mult - 1) if cycle else 0
        self.T_cur = epoch - before
        self.T_i = self.T_0 * grown

    def _first_lr(self) -> list[float]:
        return self.get_lr()

"""A schedule driven by a metric."""

import math
from typing import Any

from wengert.core.tensor import Tensor
from wengert.optim.elementwise import number
from wengert.optim.lr_scheduler.base import LRScheduler, current_rates, per_group, set_rate
from wengert.optim.optimizer import Optimizer

__all__ = ["ReduceLROnPlateau"]


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rate by ``factor`` when a metric has not improved for more than ``patience`` epochs.

    Args:
        mode: ``"min"`` or ``"max"``, what is better. factor: below 1.
        threshold: how much better counts, relative to the best (``threshold_mode="rel"``) or absolute (``"abs"``).
        cooldown: epochs after a reduction during which nothing is counted.
        min_lr: the least rate, one for all groups or one per group. eps: smaller changes of the rate are not made.

    Raises:
        ValueError: for a factor of 1 or more or an unknown mode. TypeError: if ``optimizer`` is no Optimizer.

    Example:
        >>> import wengert as wg
        >>> opt = wg.optim.SGD([wg.nn.Parameter(wg.ones(1))], lr=1.0)
        >>> s = wg.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=0)
        >>> for loss in (3.0, 3.0):
        ...     s.step(loss)
        >>> s.get_last_lr()
        [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
        threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0, min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ) -> None:  # fmt: skip
        if factor >= 1.0:
            raise ValueError(f"ReduceLROnPlateau: factor must be below 1, got {factor}")
        if mode not in ("min", "max"):
            raise ValueError(f"ReduceLROnPlateau: mode must be 'min' or 'max', got '{mode}'")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"ReduceLROnPlateau: threshold_mode must be 'rel' or 'abs', got '{threshold_mode}'")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"a scheduler takes an Optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lrs = per_group("min_lr", optimizer, min_lr)
        self.eps = eps
        self.last_epoch = 0
        self.cooldown_counter = 0
        self.num_bad_epochs = 0
        self.best = math.inf if mode == "min" else -math.inf
        self._last_lr = current_rates(optimizer)

    @property
    def in_cooldown(self) -> bool:
        """Whether a reduction was made less than ``cooldown`` epochs ago."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any = None, epoch: Any = None) -> None:
        """Take the metric of one epoch, a number or a tensor, and reduce the rates if it is time.

        Raises:
            TypeError: without a metric, or with an ``epoch``, which this counts by itself.
        """
        if epoch is not None:
            raise TypeError(f"ReduceLROnPlateau.step() takes the metric alone, not an epoch, got epoch={epoch!r}")
        if metrics is None:
            raise TypeError("ReduceLROnPlateau.step() takes the metric it watches, such as the validation loss")
        value = metrics.item() if isinstance(metrics, Tensor) else float(metrics)
        self.last_epoch += 1
        if self._is_better(value):
            self.best = value
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = current_rates(self.optimizer)

    def _reduce(self) -> None:
        for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            old = number(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                set_rate(group, new)

    def _is_better(self, value: float) -> bool:
        relative, sign = self.threshold_mode == "rel", 1 if self.mode == "max" else -1
        margin = self.best * (1 + sign * self.threshold) if relative else self.best + sign * self.threshold
        return value > margin if self.mode == "max" else value < margin

"""Averages of a model's parameters along its training, under PyTorch's names.

Stochastic weight averaging (Izmailov et al., UAI 2018) takes the mean of the iterates of a schedule that keeps moving;
an exponential moving average follows them.
"""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from wengert.array.dtype import float64
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.batchnorm import _BatchNorm
from wengert.nn.module import Module
from wengert.optim.lr_scheduler.base import LRScheduler, per_group
from wengert.optim.optimizer import Optimizer
from wengert.optim.provided import provided
from wengert.tape.modes import no_grad

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip

Average = Callable[[Tensor, Tensor, Any], Tensor]
Averages = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """Return the rule of an exponential moving average: decay · average + (1 - decay) · current.

    Raises:
        ValueError: for a decay outside [0, 1].

    Example:
        >>> import wengert as wg
        >>> from wengert.optim import swa_utils
        >>> swa_utils.get_ema_avg_fn(0.75)(wg.tensor(4.0), wg.tensor(8.0), 1)
        tensor(5.)
    """
    _check_decay(decay)

    def ema(averaged: Tensor, current: Tensor, num_averaged: Any) -> Any:
        return averaged * decay + current * (1 - decay)

    return ema


def get_swa_avg_fn() -> Average:
    """Return the rule of an equal average: average + (current - average) / (number so far + 1).

    Example:
        >>> import wengert as wg
        >>> from wengert.optim import swa_utils
        >>> swa_utils.get_swa_avg_fn()(wg.tensor(4.0), wg.tensor(8.0), 3)  # the average of 4, 4, 4 and 8
        tensor(5.)
    """

    def swa(averaged: Tensor, current: Tensor, num_averaged: Any) -> Any:
        return averaged + (current - averaged) / (num_averaged + 1)

    return swa


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """Return the rule of :func:`get_ema_avg_fn` for lists of tensors, which it changes in place.

    Raises:
        ValueError: for a decay outside [0, 1].

    Example:
        >>> import wengert as wg
        >>> from wengert.optim import swa_utils
        >>> averages = [wg.tensor(4.0), wg.zeros(2)]
        >>> swa_utils.get_ema_multi_avg_fn(0.75)(averages, [wg.tensor(8.0), wg.ones(2)], 1)
        >>> averages
        [tensor(5.), tensor([0.2500, 0.2500])]
    """
    _check_decay(decay)

    def ema(averaged: Sequence[Tensor], current: Sequence[Tensor], num_averaged: Any) -> None:
        _move(averaged, current, 1 - decay)

    return ema


def get_swa_multi_avg_fn() -> Averages:
    """Return the rule of :func:`get_swa_avg_fn` for lists of tensors, which it changes in place.

    Example:
        >>> import wengert as wg
        >>> from wengert.optim import swa_utils
        >>> averages = [wg.tensor(4.0)]
        >>> swa_utils.get_swa_multi_avg_fn()(averages, [wg.tensor(8.0)], 3)
        >>> averages
        [tensor(5.)]
    """

    def swa(averaged: Sequence[Tensor], current: Sequence[Tensor], num_averaged: Any) -> None:
        count = num_averaged.to(float64) if isinstance(num_averaged, Tensor) else num_averaged
        _move(averaged, current, 1 / (count + 1))

    return swa


def _check_decay(decay: float) -> None:
    if not 0 <= decay <= 1:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _move(averaged: Sequence[Tensor], current: Sequence[Tensor], share: Any) -> None:
    """Move averages towards what they are of by a share of the way; integers are rounded towards zero."""
    with no_grad():
        for average, value in zip(averaged, current, strict=True):
            if average.is_floating_point() or average.is_complex():
                real = average.real.dtype if average.is_complex() else average.dtype
                average.lerp_(value, share.to(real) if isinstance(share, Tensor) else share)
            else:
                average.copy_(average + (value - average) * share)


class AveragedModel(Module):
    """A copy of a model whose parameters are an average of the model's.

    The first call of :meth:`update_parameters` copies them, each further one takes them into the average: an equal one
    unless a rule is given. It is part of a compiled training step if it is called in one.

    Args:
        model: what it copies. device: where the copy is, by default where the model is.
        avg_fn: ``(averaged, current, number so far) -> averaged`` for one parameter.
        multi_avg_fn: the same for lists of them, which it changes in place. At most one of both.
        use_buffers: average buffers too, instead of copying them each time.

    Attributes:
        module: the copy. n_averaged: how many updates there were, an int64 tensor.

    Raises:
        ValueError: if both rules are given.

    Example:
        >>> import wengert as wg
        >>> from wengert.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
        >>> model = wg.nn.Linear(1, 1, bias=False)
        >>> ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.75))
        >>> for value in (0.0, 4.0):
        ...     _ = model.weight.data.fill_(value)
        ...     ema.update_parameters(model)
        >>> ema.module.weight.item()
        1.0
    """

    n_averaged: Any

    def __init__(
        self, model: Module, device: Any = None, avg_fn: Average | None = None, multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", ops.tensor(0, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the averaged copy."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the parameters of ``model`` into the average.

        Raises:
            ValueError: if it has other parameters than the model that was copied.
        """
        own, current = self._tensors(self.module), self._tensors(model)
        if [t.shape for t in own] != [t.shape for t in current]:
            raise ValueError("update_parameters() takes the model that was copied, got one whose parameters differ")
        with no_grad():
            current = [t.detach().to(a.device) for a, t in zip(own, current, strict=True)]
            own = [a.detach() for a in own]
            first = self.n_averaged == 0
            provided(first, lambda: _copy(own, current))
            provided(ops.logical_not(first), lambda: self._average(own, current))
            if not self.use_buffers:
                _copy(self.module.buffers(), model.buffers())
            self.n_averaged.add_(1)

    def _tensors(self, model: Module) -> list[Any]:
        """Return what is averaged of a model."""
        return [*model.parameters(), *(model.buffers() if self.use_buffers else ())]

    def _average(self, own: list[Any], current: list[Any]) -> None:
        if self.avg_fn is not None:
            for average, value in zip(own, current, strict=True):
                average.copy_(self.avg_fn(average, value, self.n_averaged.to(average.device)))
        else:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(own, current, self.n_averaged)


def _copy(targets: Iterable[Any], sources: Iterable[Any]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Set the running statistics of a model's batch normalisations to those of one pass over the data.

    An averaged model needs it: the statistics of the models that it is an average of are not its own.

    Args:
        loader: batches, each the model's input, or a list or tuple that begins with it. device: to move inputs to.

    Example:
        >>> import wengert as wg
        >>> from wengert.optim import swa_utils
        >>> model = wg.nn.BatchNorm1d(1)
        >>> swa_utils.update_bn([wg.tensor([[1.0], [3.0]]), wg.tensor([[5.0], [7.0]])], model)
        >>> model.running_mean
        tensor([4.])
    """
    layers = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not layers:
        return
    before, training = [layer.momentum for layer in layers], model.training
    try:
        model.train()
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # an equal average over the batches
        for batch in loader:
            x = batch[0] if isinstance(batch, list | tuple) else batch
            model(x if device is None else x.to(device))
    finally:
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum
        model.train(training)


class SWALR(LRScheduler):
    """Goes from the rate of each group to ``swa_lr`` in ``anneal_epochs`` steps, and stays there.

    Args:
        optimizer: the optimiser. swa_lr: a rate, or one per group. anneal_epochs: 0 for at once.
        anneal_strategy: "cos" or "linear". last_epoch: see :class:`~wengert.optim.lr_scheduler.LRScheduler`.

    Raises:
        ValueError: for another strategy, or a number of epochs that is negative or no int.

    Example:
        >>> import wengert as wg
        >>> optimizer = wg.optim.SGD([wg.nn.Parameter(wg.zeros(1))], lr=1.0)
        >>> schedule = wg.optim.swa_utils.SWALR(optimizer, swa_lr=0.5, anneal_epochs=2, anneal_strategy="linear")
        >>> rates = []
        >>> for _ in range(3):
        ...     optimizer.step(); schedule.step(); rates += schedule.get_last_lr()
        >>> rates
        [0.75, 0.5, 0.5]
    """

    def __init__(
        self, optimizer: Optimizer, swa_lr: float | Sequence[float], anneal_epochs: int = 10, anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', got {anneal_strategy!r}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be an int of at least 0, got {anneal_epochs!r}")
        for group, rate in zip(optimizer.param_groups, per_group("swa_lr", optimizer, swa_lr), strict=True):
            group["swa_lr"] = rate
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _way(self, step: int) -> float:
        """Return how much of the way is behind after a step, between 0 and 1."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        """The rates: from the current one follows where the way began, as another schedule may have moved it."""
        step = self._step_count - 1
        if not self.anneal_epochs:
            step = max(1, step)
        before, now = self._way(step - 1), self._way(step)
        rates = []
        for group, rate in zip(self.optimizer.param_groups, self._rates(), strict=True):
            goal = group["swa_lr"]
            start = goal if before == 1 else (rate - before * goal) / (1 - before)
            rates.append(goal * now + start * (1 - now))
        return rates

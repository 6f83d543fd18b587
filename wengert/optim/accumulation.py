"""One step from the gradients of several backward passes, as if their batches had been one."""

import math
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from wengert.core.tensor import Tensor, node_of
from wengert.optim.noise_scale import GradientNoiseScale
from wengert.optim.optimizer import Optimizer
from wengert.tape.modes import no_grad

__all__ = ["accumulate"]

_inside: set[int] = set()  # identities of the parameters of blocks that are entered


class accumulate:  # noqa: N801 - a context, like no_grad
    """Add up the gradients of several losses, and leave with those of their mean.

    Of mean losses over micro-batches of different sizes, the plain mean is not the loss over all of them: a small
    micro-batch would count as much as a large one. :meth:`backward` takes what a loss is the mean over, examples or tokens,
    and the gradients after the block are sum(weight * gradient) / sum(weight), exactly those of the whole batch.

    Within the block, post-accumulate hooks of the parameters wait: they are called once, after it, with the final gradients.
    (Hooks of ``Tensor.register_hook`` see the gradient of each loss as it comes, times its weight over that of the first, so
    that large weights overflow in no dtype.) A step of the optimiser,
    if one was given, is an error there. Gradients that were there before are added to the result. If the block raises, they
    are all that is left, and no hook is called.

    Args:
        params: an optimiser, or the tensors whose gradients are meant. noise_scale: is told the gradients of each micro-batch
            and of all, if they are finite; that takes memory for one more gradient.

    Attributes:
        weight: the sum of the weights so far. loss: the weighted mean of the losses so far.

    Raises:
        ValueError: for no parameters; on leaving, if :meth:`backward` was not called, or only once with a ``noise_scale``;
            for a weight that is not above 0.
        RuntimeError: for a step of the optimiser within the block, or a block of the same parameters within the block.

    Example:
        >>> import wengert as wg
        >>> w = wg.nn.Parameter(wg.tensor([1.0, 1.0]))
        >>> x = wg.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 4.0]])
        >>> with wg.optim.accumulate([w]) as batch:
        ...     for part in (x[:1], x[1:]):
        ...         batch.backward((part @ w).mean(), weight=len(part))
        >>> w.grad.tolist() == x.mean(0).tolist()
        True
        >>> batch.weight, batch.loss.item()
        (3.0, 2.0)
    """

    def __init__(self, params: Optimizer | Iterable[Any], noise_scale: GradientNoiseScale | None = None) -> None:
        self._optimizer = params if isinstance(params, Optimizer) else None
        if isinstance(params, Optimizer):
            found = [p for group in params.param_groups for p in group["params"]]
        else:
            found = [params] if isinstance(params, Tensor) else list(params)
        if not found or not all(isinstance(p, Tensor) for p in found):
            raise ValueError(f"accumulate() takes an optimizer or parameters, got {params!r}")
        self.params = list({id(p): p for p in found}.values())
        self.noise_scale = noise_scale
        self.weight = 0.0
        self.loss: Any = None
        self._unit = 1.0  # the first weight
        self._before: list[Any] | None = None
        self._hooks: list[tuple[Tensor, dict[int, Any], dict[int, Any]]] = []
        self._refusal: Any = None
        self._parts: list[tuple[Any, float]] = []  # squared norm of a micro-batch's gradient, and its weight

    def backward(self, loss: Tensor, weight: float = 1.0) -> None:
        """Add the gradients of a loss that is the mean over ``weight`` examples or tokens.

        With a gradient scaler, give it the scaled loss.
        """
        weight = float(weight)
        if not 0 < weight < float("inf"):
            raise ValueError(f"backward() takes a weight above 0, what the loss is the mean over; got {weight}")
        if self._before is None:
            raise RuntimeError("backward() belongs into the block: with accumulate(params) as batch: ...")
        held = self._taken() if self.noise_scale is not None else None
        self._unit = self._unit if self.weight else weight
        share = weight / self._unit
        (loss * share).backward()
        with no_grad():
            if held is not None:
                self._parts.append((squared_norm(self.params) / share**2, weight))
                self._add(held)
            self.weight += weight
            last = loss.detach()
            self.loss = last.clone() if self.loss is None else self.loss + (last - self.loss) * (weight / self.weight)

    # ---- the block -------------------------------------------------------------------

    def __enter__(self) -> "accumulate":
        if self._before is not None:
            raise RuntimeError("this accumulate() is already entered; make another one")
        if not _inside.isdisjoint(map(id, self.params)):
            raise RuntimeError(
                "accumulate() within accumulate() of the same parameters, whose gradients are not complete"
            )
        _inside.update(map(id, self.params))
        self.weight, self.loss, self._parts = 0.0, None, []
        self._before = self._taken()
        for param in self.params:
            node = node_of(param)
            hooks = None if node is None or node.extra is None else node.extra.post_accumulate
            if hooks:
                self._hooks.append((param, hooks, dict(hooks)))
                hooks.clear()
        if self._optimizer is not None:
            self._refusal = self._optimizer.register_step_pre_hook(_refuse)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before, self._before = self._before, None
        waiting, self._hooks = self._hooks, []
        assert before is not None
        _inside.difference_update(map(id, self.params))
        if self._refusal is not None:
            self._refusal.remove()
        for _, hooks, kept in waiting:
            hooks.update({**kept, **hooks})
        complete = False
        try:
            if kind is None:
                self._average()
                complete = True
        finally:
            if not complete:
                self._taken()
            self._add(before)
        if not complete:
            return
        for param, hooks, _ in waiting:
            if param.grad is not None:
                for hook in list(hooks.values()):
                    hook(param)

    def _average(self) -> None:
        """Make gradients of the mean of those of the sum."""
        if not self.weight:
            raise ValueError("accumulate() was left without a backward() in its block")
        with no_grad():
            for param in self.params:
                if param.grad is not None:
                    param.grad.div_(self.weight / self._unit)
        if self.noise_scale is not None:
            whole = squared_norm(self.params)
            if math.isfinite(whole + sum(square for square, _ in self._parts)):  # as for a step that a scaler will skip
                self.noise_scale.update(self._parts, whole)

    def _taken(self) -> list[Any]:
        """Take the gradients off the parameters."""
        held = [param.grad for param in self.params]
        for param in self.params:
            param.grad = None
        return held

    def _add(self, held: list[Any]) -> None:
        """Add gradients to those of the parameters, into the memory of the former unless they alone are sparse."""
        with no_grad():
            for param, grad in zip(self.params, held, strict=True):
                if grad is None:
                    continue
                if param.grad is None:
                    param.grad = grad
                elif grad.is_sparse and not param.grad.is_sparse:
                    param.grad.add_(grad)
                else:
                    param.grad = grad.add_(param.grad)


def squared_norm(params: Iterable[Any]) -> Any:
    """The sum of the squares of all gradients, as a number."""
    found = [p.grad.detach() for p in params if p.grad is not None]
    return sum(float(((g.abs() if g.dtype.is_complex else g).double() ** 2).sum()) for g in found)


def _refuse(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    raise RuntimeError(
        f"{type(optimizer).__name__}.step() within accumulate(): the gradients are not complete; call it after the block"
    )

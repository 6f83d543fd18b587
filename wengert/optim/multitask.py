"""Several losses for the same parameters: gradients that conflict, and weights that balance.

- :func:`pcgrad` takes from each task's gradient what works against another task.
- :class:`GradNorm` learns weights with which all tasks train at the same rate.
- :class:`UncertaintyWeighting` learns weights from how noisy each task is.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from wengert.array.dtype import float64
from wengert.autograd import grad
from wengert.core.generator import default_generator
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn import Module, Parameter
from wengert.tape.modes import no_grad

__all__ = ["GradNorm", "UncertaintyWeighting", "pcgrad"]


def pcgrad(losses: Sequence[Tensor], params: Iterable[Tensor], *, generator: Any = None) -> int:
    """Set ``.grad`` of parameters to the sum of all tasks' gradients, after each has lost what conflicts with another.

    A gradient whose product with that of another task is negative is projected onto the plane perpendicular to that one, task
    by task in random order (Yu et al., NeurIPS 2020, algorithm 1). Gradients that are there already are added to.

    Args:
        losses: scalars. params: parameters of which all or some depend on each. generator: of the order.

    Returns:
        How many pairs of tasks were in conflict.

    Raises:
        ValueError: for no losses or no parameters.

    Example:
        >>> import wengert as wg
        >>> w = wg.nn.Parameter(wg.tensor([0.0, 0.0]))
        >>> conflicts = wg.optim.multitask.pcgrad([w[0] + w[1], -w[0]], [w])
        >>> conflicts, w.grad.tolist()
        (2, [-0.5, 1.5])
    """
    parameters = list(params)
    own = [_flat(g, parameters) for g in _gradients(losses, parameters)]
    order = default_generator if generator is None else generator
    total, conflicts = ops.zeros_like(own[0]), 0
    with no_grad():
        for task, gradient in enumerate(own):
            left = gradient.clone()
            for other in ops.randperm(len(own), generator=order).tolist():
                product = left.dot(own[other]).item()
                if other != task and product < 0:
                    conflicts += 1
                    left.sub_(own[other], alpha=product / own[other].dot(own[other]).item())
            total.add_(left)
        _accumulate(total, parameters)
    return conflicts


def _gradients(losses: Sequence[Tensor], params: Sequence[Tensor]) -> list[Sequence[Tensor | None]]:
    """Return each loss's gradients, and None where it does not depend on a parameter."""
    if not losses or not params:
        raise ValueError(f"several losses and parameters are needed, got {len(losses)} and {len(params)}")
    last = len(losses) - 1
    return [grad(loss, params, retain_graph=k < last, allow_unused=True) for k, loss in enumerate(losses)]


def _flat(gradients: Sequence[Tensor | None], params: Sequence[Tensor]) -> Tensor:
    parts = [ops.zeros_like(p) if g is None else g for g, p in zip(gradients, params, strict=True)]
    return ops.cat([part.detach().reshape(-1) for part in parts])


def _accumulate(flat: Tensor, params: Sequence[Tensor]) -> None:
    first = 0
    for param in params:
        part = flat[first : first + param.numel()].reshape(param.shape).to(param.dtype)
        param.grad = part.clone() if param.grad is None else param.grad.add_(part)
        first += param.numel()


class UncertaintyWeighting(Module):
    """The sum of exp(-s) · loss + s / 2 over tasks, where s is the logarithm of a task's variance and is learned.

    Kendall et al., CVPR 2018, equation 10 for classification; a regression's loss is given as half of its squared error.

    Args:
        tasks: how many losses there are.

    Shape: a sequence of ``tasks`` scalars; the result is a scalar.

    Example:
        >>> import wengert as wg
        >>> total = wg.optim.multitask.UncertaintyWeighting(2)
        >>> total([wg.tensor(3.0), wg.tensor(0.5)]).item()
        3.5
    """

    def __init__(self, tasks: int) -> None:
        super().__init__()
        if tasks < 1:
            raise ValueError(f"tasks must be at least 1, got {tasks}")
        self.log_variance = Parameter(ops.zeros(tasks))

    def forward(self, losses: Sequence[Tensor]) -> Tensor:
        """Return the weighted sum."""
        if len(losses) != len(self.log_variance):
            raise ValueError(f"this weighs {len(self.log_variance)} losses, got {len(losses)}")
        weights = ops.exp(-self.log_variance)
        return (weights * ops.stack(list(losses)) + self.log_variance / 2).sum()


class GradNorm(Module):
    """Weights of losses, learned so that the gradients of tasks that lag behind grow (Chen et al., ICML 2018, algorithm 1).

    :attr:`weights` goes to an optimiser like any parameter; after its step :meth:`renormalize` restores their sum.

    Args:
        tasks: how many losses there are. shared: the parameters whose gradients are compared, usually those of the last layer
            that all tasks share. alpha: how strongly rates of training are drawn together.

    Attributes:
        weights: a parameter, shape (tasks,). first: a buffer, shape (tasks,): the losses at the first call, which progress is
            relative to; zeros before it.

    Example:
        >>> import wengert as wg
        >>> w = wg.nn.Parameter(wg.tensor([1.0, 1.0]))
        >>> balance = wg.optim.multitask.GradNorm(2, [w])
        >>> optimizer = wg.optim.Adam(balance.parameters(), lr=0.1)
        >>> balance.backward([10 * w[0] ** 2, w[1] ** 2])
        >>> optimizer.step()
        >>> balance.renormalize()
        >>> [round(v, 2) for v in balance.weights.tolist()]
        [0.9, 1.1]
    """

    first: Any

    def __init__(self, tasks: int, shared: Iterable[Tensor], *, alpha: float = 1.5) -> None:
        super().__init__()
        if tasks < 1:
            raise ValueError(f"tasks must be at least 1, got {tasks}")
        self.weights = Parameter(ops.ones(tasks))
        self.alpha = alpha
        self.register_buffer("first", ops.zeros(tasks, dtype=float64))
        self._shared = list(shared)

    def backward(self, losses: Sequence[Tensor]) -> None:
        """Add the gradients of the weighted losses to ``.grad``, and set that of the weights.

        Raises:
            ValueError: if there are not as many losses as weights, or one that is not positive at the first call.
        """
        if len(losses) != len(self.weights):
            raise ValueError(f"this weighs {len(self.weights)} losses, got {len(losses)}")
        gradients = [grad(loss, self._shared, retain_graph=True, allow_unused=True) for loss in losses]
        norms = [math.sqrt(sum((g.double() ** 2).sum().item() for g in of if g is not None)) for of in gradients]
        (ops.stack(list(losses)) * self.weights.detach()).sum().backward()
        self.weights.grad = ops.tensor(self._slopes([loss.item() for loss in losses], norms), dtype=self.weights.dtype)

    def _slopes(self, losses: list[float], norms: list[float]) -> list[float]:
        """Return the derivatives of Σ|wᵢ·normᵢ - targetᵢ| with the targets fixed (equation 2)."""
        if not self.first.any():
            if not all(loss > 0 for loss in losses):
                raise ValueError(
                    f"rates of training are relative to the first losses, which must be positive, got {losses}"
                )
            self.first.copy_(ops.tensor(losses, dtype=float64))
        rates = [now / then for now, then in zip(losses, self.first.tolist(), strict=True)]
        weighted = [w * n for w, n in zip(self.weights.tolist(), norms, strict=True)]
        mean_rate, mean = sum(rates) / len(rates) or 1.0, sum(weighted) / len(weighted)
        gaps = [g - mean * (rate / mean_rate) ** self.alpha for g, rate in zip(weighted, rates, strict=True)]
        return [norm * ((gap > 0) - (gap < 0)) for norm, gap in zip(norms, gaps, strict=True)]

    def renormalize(self) -> None:
        """Make the sum of the weights the number of tasks again, and none of them negative.

        Raises:
            RuntimeError: if none is positive: a step of the weights was far too large.
        """
        with no_grad():
            if not (self.weights > 0).any():
                raise RuntimeError(
                    f"no weight of {self.weights.tolist()} is positive: lower the learning rate of GradNorm's weights"
                )
            self.weights.clamp_(min=0.0).mul_(len(self.weights) / self.weights.sum())

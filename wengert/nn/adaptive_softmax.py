"""Softmax over very many classes: frequent ones in a short list, rare ones in clusters of smaller projections."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from wengert.array.shape import as_int
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.containers import ModuleList, Sequential
from wengert.nn.linear import Linear
from wengert.nn.module import Module
from wengert.nn.sizes import number
from wengert.operators.class_targets import class_targets

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class Scores(NamedTuple):
    """The log-probability of each target, and the loss: minus their mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-softmax in two levels for classes sorted by falling frequency (Grave et al., ICML 2017).

    A head scores the ``cutoffs[0]`` most frequent classes and one entry per cluster; each cluster, up to the next
    cutoff, has a projection of its own that is ``div_value`` times narrower than that of the cluster before.

    Args:
        in_features: size of the input. n_classes: number of classes. cutoffs: where the clusters begin, rising.
        head_bias: whether the head has a bias.

    Shape:
        input (N, in_features) or (in_features,), target (N,) or (); output like target, loss ().

    Raises:
        ValueError: for cutoffs that are not positive, rising and below ``n_classes``; in ``forward``, for shapes that
            do not fit or a target outside the classes. DTypeError: in ``forward``, for targets that are not integers.

    Example:
        >>> import wengert as wg
        >>> m = wg.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5, 10], div_value=2.0)
        >>> output, loss = m(wg.ones(3, 8), wg.tensor([1, 7, 15]))
        >>> output.shape, round(m.log_prob(wg.ones(1, 8)).exp().sum().item(), 4)
        (wengert.Size([3]), 1.0)
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        bounds = [*(as_int(c, "cutoffs") for c in cutoffs), as_int(n_classes, "n_classes")]
        if not cutoffs or bounds[0] <= 0 or any(a >= b for a, b in pairwise(bounds)):
            raise ValueError(f"cutoffs must be positive, rising and below n_classes={n_classes}, got {list(cutoffs)}")
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = bounds
        self.div_value = number(div_value, "div_value")
        self.head_bias = head_bias
        self.shortlist_size = bounds[0]
        self.n_clusters = len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **place)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(self._clusters()):
            width = int(in_features // div_value ** (i + 1))
            inner = Linear(in_features, width, bias=False, **place)
            self.tail.append(Sequential(inner, Linear(width, high - low, bias=False, **place)))

    def _clusters(self) -> list[tuple[int, int]]:
        """The range of classes of each cluster."""
        return list(pairwise(self.cutoffs))

    def reset_parameters(self) -> None:
        """Draw new starting values for all projections."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> Scores:
        """Return the log-probabilities of the targets and the loss."""
        if input.ndim not in (1, 2) or tuple(target.shape) != tuple(input.shape[:-1]):
            raise ValueError(
                f"expected input (N, {self.in_features}) and target (N,), or ({self.in_features},) and (), got "
                f"{tuple(input.shape)} and {tuple(target.shape)}"
            )
        target = class_targets("AdaptiveLogSoftmaxWithLoss", target)
        rows, labels = input.reshape(-1, input.shape[-1]), target.reshape(-1)
        if labels.numel() and not 0 <= labels.min().item() <= labels.max().item() < self.n_classes:
            raise ValueError(f"a target is outside the {self.n_classes} classes: {labels.tolist()}")
        column, within = labels.clone(), None
        for i, (low, high) in enumerate(self._clusters()):
            chosen = ((labels >= low) & (labels < high)).nonzero().reshape(-1)
            if chosen.numel():
                scores = ops.log_softmax(self.tail[i](rows[chosen]), 1)
                found = scores.gather(1, (labels[chosen] - low).unsqueeze(1)).squeeze(1)
                start = ops.zeros_like(rows[:, 0]) if within is None else within
                within = ops.index_copy(start, 0, chosen, found)
                column[chosen] = self.shortlist_size + i
        output = ops.log_softmax(self.head(rows), 1).gather(1, column.unsqueeze(1)).squeeze(1)
        output = output if within is None else output + within
        loss: Any = -output.mean()
        return Scores(output.reshape(target.shape), loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """Return the log-probabilities of all classes, (N, in_features) → (N, n_classes)."""
        head = ops.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            at = self.shortlist_size + i
            parts.append(ops.log_softmax(cluster(input), 1) + head[:, at : at + 1])
        return ops.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """Return the most probable class of each row."""
        return self.log_prob(input).argmax(1)

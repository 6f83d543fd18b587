"""Clipping that keeps a record of how often it was needed."""

import math
from collections.abc import Iterable
from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.utils.clip_grad import clip_grad_value_, clip_grads_with_norm_, get_total_norm
from wengert.tape.modes import no_grad

__all__ = ["GradClipper"]


class GradClipper:
    """Clips gradients by their joint norm or element by element, and counts how often that changed something.

    A bound that never triggers does nothing, and one that always triggers sets the step instead of guarding it; the record
    says which. The counts are tensors, so that clipping inside a compiled step counts too.

    Args:
        max_norm: bound of the joint norm, or clip_value: bound of each element; one of them.
        norm_type: as for :func:`clip_grad_norm_`. error_if_nonfinite: refuse gradients whose norm is NaN or infinite;
            otherwise they are counted.

    Attributes:
        counts: a tensor of calls, of those in which the bound triggered, and of those with a norm that was not finite.

    Raises:
        ValueError: if not exactly one bound is given, or one that is not above 0.

    Example:
        >>> import wengert as wg
        >>> clip = wg.nn.utils.GradClipper(max_norm=1.0)
        >>> p = wg.nn.Parameter(wg.zeros(2))
        >>> for grad in ([3.0, 4.0], [0.1, 0.2]):
        ...     p.grad = wg.tensor(grad)
        ...     _ = clip([p])
        >>> clip
        GradClipper(max_norm=1.0: triggered in 1 of 2 steps, largest norm 5)
    """

    def __init__(
        self, max_norm: float | None = None, clip_value: float | None = None, *, norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
    ) -> None:  # fmt: skip
        bounds = [bound for bound in (max_norm, clip_value) if bound is not None]
        if len(bounds) != 1 or not isinstance(bounds[0], int | float) or not bounds[0] > 0:
            raise ValueError(
                f"give max_norm or clip_value, above 0; got max_norm={max_norm!r}, clip_value={clip_value!r}"
            )
        self.max_norm, self.clip_value = max_norm, clip_value
        self.norm_type = norm_type if clip_value is None else math.inf
        self.error_if_nonfinite = error_if_nonfinite
        self.counts: Any = ops.zeros(3, dtype=ops.tensor(0).dtype)
        self.largest_norm: Any = ops.tensor(0.0)

    def __call__(self, parameters: Tensor | Iterable[Tensor]) -> Tensor:
        """Clip the gradients of the parameters, in place.

        Returns:
            Their norm before; with ``clip_value``, the largest absolute value.

        Raises:
            RuntimeError: if it is not finite and ``error_if_nonfinite``; nothing is changed or counted then.
        """
        found = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        total = get_total_norm([p.grad for p in found if p.grad is not None], self.norm_type, self.error_if_nonfinite)
        bound: Any = self.max_norm if self.clip_value is None else self.clip_value
        if self.clip_value is None:
            clip_grads_with_norm_(found, bound, total)
        else:
            clip_grad_value_(found, bound)
        with no_grad():
            finite = ops.isfinite(total)
            triggered = ops.logical_and(finite, total > bound)
            self.counts.add_(ops.stack([ops.ones_like(finite), triggered, ops.logical_not(finite)]))
            largest = ops.where(finite, total, ops.zeros_like(total)).to(self.largest_norm.dtype)
            self.largest_norm.copy_(ops.maximum(self.largest_norm, largest))
        return total

    @property
    def steps(self) -> int:
        """How often gradients were clipped or let through."""
        return int(self.counts[0].item())

    @property
    def triggered(self) -> int:
        """How often the bound changed something."""
        return int(self.counts[1].item())

    @property
    def nonfinite(self) -> int:
        """How often the norm was NaN or infinite."""
        return int(self.counts[2].item())

    @property
    def rate(self) -> float:
        """The share of the steps in which the bound triggered; NaN before the first."""
        return self.triggered / self.steps if self.steps else math.nan

    def reset(self) -> None:
        """Begin a new record."""
        self.counts.zero_()
        self.largest_norm.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Return what :meth:`load_state_dict` takes."""
        return {"counts": self.counts.clone(), "largest_norm": self.largest_norm.clone()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a record."""
        self.counts.copy_(state_dict["counts"])
        self.largest_norm.copy_(state_dict["largest_norm"])

    def __repr__(self) -> str:
        bound = f"max_norm={self.max_norm}" if self.clip_value is None else f"clip_value={self.clip_value}"
        bad = f", {self.nonfinite} not finite" if self.nonfinite else ""
        text = f"{bound}: triggered in {self.triggered} of {self.steps} steps{bad}, largest norm"
        return f"GradClipper({text} {self.largest_norm.item():.4g})"

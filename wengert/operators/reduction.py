"""The ``reduction`` argument that every loss has."""

from typing import Any

from wengert.core.registry import ops

__all__ = ["REDUCTIONS", "check_reduction", "reduce_loss"]

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(name: str, reduction: Any, size_average: Any = None, reduce: Any = None) -> None:
    """Refuse an unknown reduction, and the two arguments that PyTorch had before it.

    Raises:
        TypeError: if ``size_average`` or ``reduce`` is given. ValueError: for an unknown reduction.
    """
    if size_average is not None or reduce is not None:
        raise TypeError(f"{name}(): size_average and reduce are not supported; say reduction='none', 'mean' or 'sum'")
    if reduction not in REDUCTIONS:
        raise ValueError(f"{name}(): reduction must be 'none', 'mean' or 'sum', got {reduction!r}")


def reduce_loss(loss: Any, reduction: str) -> Any:
    """Return the loss of each element, their mean or their sum."""
    if reduction == "mean":
        return ops.mean(loss)
    return ops.sum(loss) if reduction == "sum" else loss

"""What all metrics share: a few totals, which batches add to."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np

from wengert.core.registry import ops
from wengert.core.tensor import Tensor

__all__ = ["Array", "Metric", "array_of", "check_classes", "labels_of", "scores_of", "targets_of"]

Array = np.ndarray[Any, Any]


class Metric(ABC):
    """A number that is computed from many batches, whose totals are attributes named in ``totals``.

    A subclass names its totals, sets them to their zeros in ``reset`` and adds to them in ``update``: numbers and arrays
    are added up, lists put one after the other. ``options`` names what two metrics must share to be merged.

    Example:
        >>> import wengert as wg
        >>> class Largest(wg.metrics.Metric):
        ...     totals = ("seen",)
        ...     def reset(self):
        ...         self.seen = []
        ...     def update(self, values):
        ...         self.seen += values
        ...     def compute(self):
        ...         return max(self.seen)
        >>> one, two = Largest(), Largest()
        >>> one.update([3, 1]); two.update([4])
        >>> one.merge(two).compute()
        4
    """

    totals: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.reset()

    @abstractmethod
    def reset(self) -> None:
        """Forget all batches."""

    @abstractmethod
    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add a batch."""

    @abstractmethod
    def compute(self) -> Any:
        """Return the value over all batches since the last reset. ValueError if there was none."""

    def merge(self, other: Self) -> Self:
        """Add the batches of another metric of the same kind, such as that of another worker; return this one.

        Raises:
            TypeError: for a metric of another kind. ValueError: for other options.
        """
        if type(other) is not type(self):
            raise TypeError(f"a {type(self).__name__} is merged with its like, not with a {type(other).__name__}")
        for name in self.options:
            if getattr(self, name) != getattr(other, name):
                raise ValueError(
                    f"metrics to be merged must have the same {name}, got {getattr(self, name)!r} and "
                    f"{getattr(other, name)!r}"
                )
        for name in self.totals:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the totals; arrays are tensors, so that :func:`wengert.save` takes them."""
        return {name: _stored(getattr(self, name)) for name in self.totals}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the totals of :meth:`state_dict`. KeyError if one is missing."""
        for name in self.totals:
            setattr(self, name, _restored(state_dict[name]))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.options)})"


def _stored(value: Any) -> Any:
    if isinstance(value, list):
        return [_stored(v) for v in value]
    return ops.tensor(value) if isinstance(value, np.ndarray) else value


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(v) for v in value]
    return value.detach().numpy().copy() if isinstance(value, Tensor) else value


def array_of(value: Any) -> Array:
    """Return what a metric is given as an array; halves as float64, which NumPy computes with."""
    array = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
    return array if array.dtype.kind in "biu" or array.dtype.itemsize > 2 else array.astype(np.float64)


def targets_of(what: str, targets: Any) -> Array:
    """Return the numbers of the right classes. TypeError for what is no integers."""
    array = array_of(targets)
    if array.dtype.kind not in "biu":
        raise TypeError(f"{what}: targets must be integers or bools, got dtype {array.dtype}")
    return array.astype(np.int64)


def scores_of(what: str, scores: Any, targets: Any, ignore_index: int | None = None) -> tuple[Array, Array]:
    """Return scores as rows of one sample each, and the numbers of the right classes.

    Args:
        scores: of shape (N, C, ...). targets: of shape (N, ...), 0 to C - 1. ignore_index: leave out such targets.

    Raises:
        ValueError: for shapes that do not fit, and targets that are no class. TypeError: for targets that are no integers.
    """
    found, right = array_of(scores), targets_of(what, targets)
    if found.ndim != right.ndim + 1 or found.shape[:1] + found.shape[2:] != right.shape:
        raise ValueError(
            f"{what}: scores of shape (N, C, ...) need targets of shape (N, ...), got {found.shape} and {right.shape}; "
            "if the classes are in the last dimension, flatten the others: scores.flatten(0, -2), targets.flatten()"
        )
    rows, right = np.moveaxis(found, 1, -1).reshape(-1, found.shape[1]), right.reshape(-1)
    if ignore_index is not None:
        rows, right = rows[right != ignore_index], right[right != ignore_index]
    check_classes(what, right, found.shape[1])
    return rows, right


def labels_of(what: str, predictions: Any, targets: Any, ignore_index: int | None = None) -> tuple[Array, Array]:
    """Return the predicted and the right classes, flat. Predictions are scores (N, C, ...), or classes (N, ...).

    Raises:
        ValueError, TypeError: as :func:`scores_of`; TypeError for classes that are no integers.
    """
    found, right = array_of(predictions), targets_of(what, targets)
    if found.ndim == right.ndim + 1:
        rows, right = scores_of(what, found, right, ignore_index)
        if np.isnan(rows).any():
            raise ValueError(f"{what}: the scores have NaN")
        return rows.argmax(axis=1), right
    if found.shape != right.shape:
        raise ValueError(f"{what}: predictions of shape {found.shape} do not fit targets of shape {right.shape}")
    if found.dtype.kind not in "biu":
        raise TypeError(
            f"{what}: predictions of the shape of the targets are classes, integers; got dtype {found.dtype}. "
            "Of scores of two classes make them by (scores > threshold)"
        )
    found, right = found.astype(np.int64).reshape(-1), right.reshape(-1)
    if ignore_index is not None:
        found, right = found[right != ignore_index], right[right != ignore_index]
    return found, right


def check_classes(what: str, classes: Array, count: int) -> None:
    """Raise ValueError for a class outside of 0 to ``count`` - 1."""
    if wrong := classes[(classes < 0) | (classes >= count)].tolist()[:1]:
        raise ValueError(f"{what}: classes are 0 to {count - 1}, got {wrong[0]}")

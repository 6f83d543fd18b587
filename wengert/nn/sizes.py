"""Sizes per dimension, as layers take them: one int for all dimensions, or one per dimension."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from wengert.array.shape import as_int

__all__ = ["number", "pairs_of", "per_dim", "reversed_twice"]


def number(value: Any, name: str) -> Any:
    """Return a real number that a layer is made with. TypeError, naming it, for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {value!r}")
    return value


def per_dim(value: Any, count: int, name: str) -> tuple[int, ...]:
    """Return ``value`` as a tuple of ``count`` ints.

    Raises:
        ValueError: if a sequence of another length is given. TypeError: for anything but ints.
    """
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return (as_int(value, name),) * count
    if len(value) != count:
        raise ValueError(f"{name} takes an int or {count} ints, got {tuple(value)}")
    return tuple(as_int(v, name) for v in value)


def pairs_of(items: Any) -> Iterable[tuple[Any, Any]]:
    """Return the (name, value) pairs of a dictionary, or of a sequence of such pairs.

    Raises:
        TypeError: if it is neither.
    """
    if hasattr(items, "items"):
        return list(items.items())
    if isinstance(items, Iterable) and not isinstance(items, str | bytes):
        pairs = list(items)
        if all(isinstance(pair, Sequence) and len(pair) == 2 for pair in pairs):
            return pairs
    raise TypeError(f"update() takes a dictionary or (name, value) pairs, got {items!r}")


def reversed_twice(values: Sequence[int]) -> tuple[int, ...]:
    """Return each value twice, the last dimension first: the order in which ``pad`` takes its sizes."""
    return tuple(value for value in reversed(values) for _ in range(2))

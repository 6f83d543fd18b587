"""Sizes per dimension, as layers take them: one int for all dimensions, or one per dimension."""

from collections.abc import Sequence
from typing import Any

__all__ = ["per_dim", "reversed_twice"]


def per_dim(value: Any, count: int, name: str) -> tuple[int, ...]:
    """Return ``value`` as a tuple of ``count`` ints.

    Raises:
        ValueError: if a sequence of another length is given.
    """
    if not isinstance(value, Sequence):
        return (value,) * count
    if len(value) != count:
        raise ValueError(f"{name} takes an int or {count} ints, got {tuple(value)}")
    return tuple(value)


def reversed_twice(values: Sequence[int]) -> tuple[int, ...]:
    """Return each value twice, the last dimension first: the order in which ``pad`` takes its sizes."""
    return tuple(value for value in reversed(values) for _ in range(2))

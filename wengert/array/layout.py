"""How elements lie in memory: PyTorch's names for layouts and for the order of the dimensions of new memory."""

from typing import Any

import numpy as np

from wengert.errors import ShapeError

__all__ = [
    "arranged", "channels_last", "channels_last_3d", "contiguous_format", "has_order", "is_arranged", "layout",
    "memory_format", "memory_order", "preserve_format", "sparse_coo", "sparse_csr", "strided",
]  # fmt: skip


class layout:  # noqa: N801 - PyTorch's name
    """How a tensor stores its elements: ``wengert.strided`` in one block, with a step per dimension; ``wengert.sparse_coo``
    and ``wengert.sparse_csr`` only those that are given, with their positions.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"wengert.{self.name}"


class memory_format(layout):  # noqa: N801 - PyTorch's name
    """The order of the dimensions in memory. New memory is row-major: ``contiguous_format``, ``preserve_format``.

    ``channels_last`` and ``channels_last_3d`` keep the channels of one position of (N, C, H, W) or (N, C, D, H, W)
    side by side.
    """

    __slots__ = ()


strided, sparse_coo, sparse_csr = layout("strided"), layout("sparse_coo"), layout("sparse_csr")
contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")

_RANKS = {channels_last: 4, channels_last_3d: 5}


def has_order(value: Any, ndim: int) -> bool:
    """Return True if a ``memory_format`` has an order of its own for tensors of ``ndim`` dimensions."""
    return _RANKS.get(value) == ndim


def memory_order(name: str, value: Any, ndim: int) -> tuple[int, ...] | None:
    """Return the dimensions as a ``memory_format`` puts them, the fastest last; None for row-major.

    Raises:
        TypeError: for something that is no memory format.
        ShapeError: if the format is one of tensors with another number of dimensions.
    """
    if value is None or value is contiguous_format or value is preserve_format:
        return None
    if not isinstance(value, memory_format) or value not in _RANKS:
        raise TypeError(
            f"{name}(): memory_format must be wengert.contiguous_format, preserve_format, channels_last or "
            f"channels_last_3d, got {value!r}"
        )
    if ndim != _RANKS[value]:
        raise ShapeError(f"{name}(): {value} needs a tensor of {_RANKS[value]} dimensions, got one of {ndim}")
    return (0, *range(2, ndim), 1)


def arranged(array: Any, order: tuple[int, ...] | None) -> Any:
    """Return a copy of an array with its dimensions in memory in the given order."""
    if order is None:
        return np.array(array, order="C")
    return np.array(array.transpose(order), order="C").transpose(np.argsort(order))


def is_arranged(array: Any, order: tuple[int, ...] | None) -> bool:
    """Return True if the dimensions of an array lie in memory in the given order without gaps."""
    return bool((array if order is None else array.transpose(order)).flags.c_contiguous)

"""How elements lie in memory: PyTorch's names for the one layout and the row-major format that tensors have here."""

from typing import Any

__all__ = ["check_memory_format", "contiguous_format", "layout", "memory_format", "preserve_format", "strided"]


class layout:  # noqa: N801 - PyTorch's name
    """How a tensor stores its elements; ``wengert.strided``, one block and a step per dimension, is the only one."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"wengert.{self.name}"


class memory_format(layout):  # noqa: N801 - PyTorch's name
    """The order of the dimensions in memory; new memory is row-major: ``contiguous_format``, ``preserve_format``."""

    __slots__ = ()


strided = layout("strided")
contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")


def check_memory_format(name: str, value: Any) -> None:
    """Refuse a ``memory_format`` argument that is neither None nor one of the two formats.

    Raises:
        TypeError: naming the operator and the formats.
    """
    if value is not None and value not in (contiguous_format, preserve_format):
        raise TypeError(
            f"{name}(): memory_format must be wengert.contiguous_format or wengert.preserve_format, got {value!r}"
        )

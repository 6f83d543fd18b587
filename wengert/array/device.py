"""Devices: this package computes on the CPU, and says so when asked for anything else."""

from typing import Any

__all__ = ["CPU", "device", "to_device"]


class device:  # noqa: N801 - PyTorch's name
    """The place where a tensor lives; ``"cpu"`` is the only one.

    Raises:
        RuntimeError: for any other device.

    Example:
        >>> import wengert as wg
        >>> wg.zeros(2).device
        device(type='cpu')
    """

    __slots__ = ("index", "type")

    type: str
    index: int | None

    def __init__(self, type: Any = "cpu", index: int | None = None) -> None:  # noqa: A002
        if isinstance(type, device):
            type, index = type.type, type.index  # noqa: A001
        if not isinstance(type, str):
            raise TypeError(f"device() takes a name such as 'cpu', got {type!r}")
        kind, _, number = type.partition(":")
        if kind != "cpu":
            raise RuntimeError(f"device {type!r} is not available; tensors live on 'cpu'")
        if number:
            if index is not None or not number.isdigit():
                raise RuntimeError(f"device {type!r} does not name a device; use 'cpu'")
            index = int(number)
        if index not in (None, 0):
            raise RuntimeError(f"device 'cpu:{index}' is not available; there is one: 'cpu'")
        self.type = kind
        self.index = index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + (")" if self.index is None else f", index={self.index})")

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (self.type, self.index)


CPU = device("cpu")


def to_device(value: Any) -> device:
    """Return a device argument, of which None means the CPU, as a :class:`device`."""
    return CPU if value is None or (isinstance(value, str) and value == "cpu") else device(value)

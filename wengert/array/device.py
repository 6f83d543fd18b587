"""Devices: the CPU, and, where they are asked for, several logical CPU devices, on which arrays are kept apart.

With one device, which is what a process starts with, an array has nothing to say about it. Where there are several,
the array of a tensor carries its device in its dtype: the metadata that NumPy keeps there, shares among views, and
ignores in comparisons. Such a dtype equals the ordinary one, but is another object, so that code which asks by identity
for the commonest dtypes leaves these arrays to code that looks closer.
"""

from typing import Any

import numpy as np

from wengert.environment import variable

__all__ = [
    "CPU", "Devices", "arrived", "device", "devices", "index_of", "made_there", "on_host", "placed", "same_device", "to_device",
    "unplaced",
]  # fmt: skip

_KEY = "wengert.device"
_dtypes: dict[tuple[Any, str, int | None], Any] = {}


class Devices:
    """How many logical CPU devices there are; ``several`` if more than one; on which one tensors are made (``default``).

    ``WENGERT_CPU_DEVICES`` is their number from the start.
    """

    __slots__ = ("count", "default", "several")

    def __init__(self) -> None:
        self.count, self.default, self.several = 1, 0, False
        self.grow(variable("WENGERT_CPU_DEVICES"))

    def grow(self, count: Any) -> None:
        """Let there be ``count`` devices.

        Raises:
            ValueError: unless that is a whole number, and not fewer than there are: tensors may be on them.
        """
        if not isinstance(count, int) or isinstance(count, bool) or count < self.count:
            raise ValueError(
                f"the number of CPU devices must be a whole number, at least the {self.count} there are, got {count!r}"
            )
        self.count, self.several = count, count > 1


devices = Devices()


class device:  # noqa: N801 - PyTorch's name
    """The place where a tensor lives: ``"cpu"``, which is ``"cpu:0"``, or another logical device, ``"cpu:1"``.

    Raises:
        RuntimeError: for a device that does not exist.

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
        if index is not None and not 0 <= index < devices.count:
            there = "there is one: 'cpu'" if devices.count == 1 else f"there are {devices.count}, from 'cpu:0' on"
            raise RuntimeError(f"device 'cpu:{index}' is not available; {there} (WENGERT_CPU_DEVICES says how many)")
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


def index_of(dtype: Any) -> int | None:
    """Return the number of the device that an array's dtype carries, or None."""
    metadata = dtype.metadata
    found: int | None = None if metadata is None else metadata.get(_KEY)
    return found


def placed(array: Any, index: int | None) -> Any:
    """Return the array, on the same memory, as one on a device; None: as one that belongs to none.

    Example:
        >>> from wengert.array.device import index_of, placed
        >>> x = placed(np.zeros(3), 1)
        >>> index_of(x[1:].dtype), x.dtype == np.float64
        (1, True)
    """
    if index_of(array.dtype) == index:
        return array
    plain = array.dtype
    key = plain.type, plain.str, index
    dtype = _dtypes.get(key)
    if dtype is None:
        bare = np.dtype(plain.type) if plain.metadata is not None else plain
        dtype = _dtypes[key] = bare if index is None else np.dtype(bare, metadata={_KEY: index})
    return array.view(dtype)


def unplaced(value: Any) -> Any:
    """Return an array as one that belongs to no device, and so those in a list; anything else as it is."""
    if isinstance(value, np.ndarray):
        return placed(value, None)
    return [unplaced(v) for v in value] if isinstance(value, list) else value


def made_there(array: Any, where: Any) -> Any:
    """Return a user's new array as one on the device asked for; None: the default one.

    Raises:
        RuntimeError: for a device that does not exist.
    """
    target = to_device(where)
    return placed(array, devices.default if where is None else target.index or 0) if devices.several else array


def same_device(x: Any, y: Any) -> bool:
    """Whether two arrays are on one device; those on none count as on the first."""
    return not devices.several or (index_of(x.dtype) or 0) == (index_of(y.dtype) or 0)


def on_host(array: Any) -> Any:
    """Return the array of a tensor for code outside wengert.

    Raises:
        TypeError: if it is on another device than the first.
    """
    index = index_of(array.dtype) if devices.several else None
    if index:
        raise TypeError(
            f"a tensor on cpu:{index} cannot be read as a NumPy array; use .cpu() to copy it to the first device"
        )
    return array if index is None else placed(array, None)


def arrived(array: Any) -> Any:
    """Return an array that another process wrote as one of this process, on the same device.

    Raises:
        RuntimeError: if that does not exist here.
    """
    index = index_of(array.dtype)
    if index is None:
        return array
    device("cpu", index)
    return array if devices.several else placed(array, None)

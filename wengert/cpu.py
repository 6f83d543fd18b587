"""``wengert.cpu``: logical CPU devices and their memory, under the names that ``torch.cuda`` has for GPUs.

A program written for several GPUs runs on several logical CPU devices: ``cpu:1`` for ``cuda:1``, ``wengert.cpu`` for
``torch.cuda``. Tensors of different devices do not mix, and only ``to()`` takes them from one to another.

Example:
    >>> import wengert as wg
    >>> wg.cpu.device_count(), wg.cpu.memory_allocated() >= 0
    (1, True)
"""

from typing import Any

from wengert.array.device import devices, to_device
from wengert.core.registry import MissingNameError
from wengert.runtime.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_limit,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
    set_memory_limit,
)

__all__ = [
    "current_device", "device_count", "empty_cache", "is_available", "max_memory_allocated", "max_memory_reserved",
    "memory_allocated", "memory_limit", "memory_reserved", "memory_stats", "reset_peak_memory_stats", "set_device",
    "set_device_count", "set_memory_limit", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Return True."""
    return True


def device_count() -> int:
    """Return how many logical CPU devices there are; one, unless more were asked for."""
    return devices.count


def set_device_count(count: int) -> None:
    """Let there be ``count`` logical CPU devices, ``cpu:0`` and on; best before tensors are made.

    Tensors made before count as on none: they go with any device. ``WENGERT_CPU_DEVICES`` sets it from the start.

    Raises:
        ValueError: unless that is a whole number, and not fewer than there are: tensors may be on them.
    """
    devices.grow(count)


def current_device() -> int:
    """Return the number of the device on which tensors are made where none is named."""
    return devices.default


def set_device(device: Any) -> None:
    """Set the device on which tensors are made where none is named; by a device, its name or its number.

    Raises:
        RuntimeError: for a device that does not exist.
    """
    devices.default = to_device(f"cpu:{device}" if isinstance(device, int) else device).index or 0


def synchronize(device: Any = None) -> None:
    """Do nothing: operators are done when they return."""
    to_device(device)


def __getattr__(name: str) -> Any:
    raise MissingNameError("module 'wengert.cpu'", name, __all__)

"""Calling kernels of the loop IR: arguments in slots, and the range divided among threads."""

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from wengert.codegen.cache import library
from wengert.codegen.emit import bounds_checked, emit
from wengert.errors import KernelError
from wengert.loops.ir import Kernel
from wengert.runtime.workers import launch, parallel_for

__all__ = ["Launcher", "number_bits", "pointer"]

HEADER = object.__basicsize__  # in the memory of an ndarray its data pointer follows what every object begins with
_word = ctypes.c_int64.from_address


def _by_interface(array: Any) -> int:
    """Return the address of an array's first element, the documented way."""
    return int(array.__array_interface__["data"][0])


def _by_layout(array: Any) -> int:
    """Return the address of an array's first element from the layout that NumPy's C interface fixes."""
    return int(_word(id(array) + HEADER).value)


def _fastest() -> Callable[[Any], int]:
    probe = np.zeros(3)[1:]
    return _by_layout if _by_layout(probe) == _by_interface(probe) else _by_interface


pointer = _fastest()


def number_bits(value: Any, dtype: str) -> int:
    """Return a number as the slot of eight bytes that a kernel reads it from."""
    if dtype == "f32":
        return int(struct.unpack("<i", struct.pack("<f", value))[0])
    if dtype == "f64":
        return int(struct.unpack("<q", struct.pack("<d", value))[0])
    return int(value)


@lru_cache(maxsize=256)
def _packer(count: int) -> Callable[..., bytes]:
    return struct.Struct(f"{count + 3}q").pack


class Launcher:
    """A kernel in this process.

    Args:
        key: what the kernel is known by in the cache; it must say all that shapes it.
        build: returns the kernel; called only if its code is nowhere to be had.
    """

    __slots__ = ("_library", "address", "build", "checks")

    def __init__(self, key: str, build: Callable[[], Kernel]) -> None:
        self.build = build
        self._library = library(key, ["kernel"], lambda: emit(build(), "kernel"))
        self.address = self._library.addresses["kernel"]
        self.checks = bounds_checked()

    def __call__(self, slots: Sequence[int], count: int, grain: int) -> None:
        """Run the kernel over [0, count) in chunks of ``grain``.

        Raises:
            KernelError: with bounds checks, if an access was outside its buffer.
        """
        if not self.checks:
            launch(_packer(len(slots))(self.address, count, grain, *slots))
            return
        arguments = (ctypes.c_int64 * (len(slots) + 1))(*slots, 0)
        parallel_for(self.address, ctypes.addressof(arguments), count, grain)
        if arguments[len(slots)]:
            raise KernelError(f"access {arguments[len(slots)]} of a kernel is outside its buffer")

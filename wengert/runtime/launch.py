"""Calling kernels of the loop IR: arguments in slots, and the range divided among threads."""

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from wengert.codegen.cache import library
from wengert.codegen.emit import bounds_checked, emit
from wengert.errors import KernelError
from wengert.loops.ir import Kernel
from wengert.runtime.workers import parallel_for

__all__ = ["Launcher", "number_bits", "pointer"]


def pointer(array: Any) -> int:
    """Return the address of an array's first element."""
    return int(array.__array_interface__["data"][0])


def number_bits(value: Any, dtype: str) -> int:
    """Return a number as the slot of eight bytes that a kernel reads it from."""
    if dtype in ("f32", "f64"):
        code = "<f4x" if dtype == "f32" else "<d"
        return int(struct.unpack("<q", struct.pack(code.replace("f4x", "fxxxx"), value))[0])
    return int(value)


class Launcher:
    """A kernel in this process.

    Args:
        key: what the kernel is known by in the cache; it must say all that shapes it.
        build: returns the kernel; called only if its code is nowhere to be had.
    """

    __slots__ = ("_library", "address", "checks")

    def __init__(self, key: str, build: Callable[[], Kernel]) -> None:
        self._library = library(key, ["kernel"], lambda: emit(build(), "kernel"))
        self.address = self._library.addresses["kernel"]
        self.checks = bounds_checked()

    def __call__(self, slots: Sequence[int], count: int, grain: int) -> None:
        """Run the kernel over [0, count) in chunks of ``grain``.

        Raises:
            KernelError: with bounds checks, if an access was outside its buffer.
        """
        if not self.checks:
            arguments = (ctypes.c_int64 * len(slots))(*slots)
            parallel_for(self.address, ctypes.addressof(arguments), count, grain)
            return
        arguments = (ctypes.c_int64 * (len(slots) + 1))(*slots, 0)
        parallel_for(self.address, ctypes.addressof(arguments), count, grain)
        if arguments[len(slots)]:
            raise KernelError(f"access {arguments[len(slots)]} of a kernel is outside its buffer")

"""Calling kernels of the loop IR: arguments in slots, and the range divided among threads."""

import ctypes
import math
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from wengert.array.dtype import bfloat16, float16
from wengert.codegen.cache import library
from wengert.codegen.emit import bounds_checked, emit
from wengert.errors import KernelError
from wengert.loops.ir import Kernel
from wengert.runtime.recording import active, current, keep
from wengert.runtime.workers import launch, parallel_for

__all__ = ["Launch", "Launcher", "number_bits", "pointer", "watched"]

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


_address = _fastest()


def pointer(array: Any) -> int:
    """Return the address of an array's first element; while kernels are recorded, the array lives as long as they."""
    if active[0]:
        keep(array)
    return _address(array)


def number_bits(value: Any, dtype: str) -> int:
    """Return a number as the slot of eight bytes that a kernel reads it from; one too large for a float is infinite.

    >>> number_bits(1.0, "f16") == 0x3C00, number_bits(1e300, "f32") == 0x7F800000, number_bits(2**64 - 1, "u64")
    (True, True, -1)
    """
    if dtype == "f64":
        return int(struct.unpack("<q", struct.pack("<d", float(value)))[0])
    if dtype == "f32":
        try:
            return int(struct.unpack("<i", struct.pack("<f", float(value)))[0])
        except OverflowError:
            return number_bits(math.copysign(math.inf, value), dtype)
    if dtype in ("f16", "bf16"):
        with np.errstate(all="ignore"):
            return int(np.asarray(value, (float16 if dtype == "f16" else bfloat16).numpy).view(np.int16))
    number = int(value)
    return number - (1 << 64) if number >= 1 << 63 else number


@dataclass(frozen=True, slots=True)
class Launch:
    """One call of a kernel: which, with what, and the seconds it took."""

    launcher: "Launcher"
    slots: tuple[int, ...]
    count: int
    grain: int
    seconds: float


_watchers: list[Callable[[Launch], None]] = []


@contextmanager
def watched() -> Iterator[list[Launch]]:
    """Collect the kernels that are called in a block, by any thread.

    Example:
        >>> import wengert as wg
        >>> from wengert.testing.opcheck_native import natively
        >>> with natively(), watched() as launches:
        ...     _ = wg.ones(100) * 2 + 1
        >>> len(launches)
        2
    """
    found: list[Launch] = []
    watcher = found.append
    _watchers.append(watcher)
    try:
        yield found
    finally:
        _watchers.remove(watcher)


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
        if active[0] and (recording := current()) is not None:
            checked = (0,) if self.checks else ()
            keep(self._library)
            recording.launch(
                _packer(len(slots) + len(checked))(self.address, count, grain, *slots, *checked), self.checks
            )
        elif _watchers:
            self._timed(slots, count, grain)
        elif not self.checks:
            launch(_packer(len(slots))(self.address, count, grain, *slots))
        else:
            self._checked(slots, count, grain)

    def _timed(self, slots: Sequence[int], count: int, grain: int) -> None:
        start = time.perf_counter()
        self._checked(slots, count, grain)
        found = Launch(self, tuple(slots), count, grain, time.perf_counter() - start)
        for watcher in tuple(_watchers):
            watcher(found)

    def _checked(self, slots: Sequence[int], count: int, grain: int) -> None:
        arguments = (ctypes.c_int64 * (len(slots) + 1))(*slots, 0)
        parallel_for(self.address, ctypes.addressof(arguments), count, grain)
        if self.checks and arguments[len(slots)]:
            raise KernelError(f"access {arguments[len(slots)]} of a kernel is outside its buffer")

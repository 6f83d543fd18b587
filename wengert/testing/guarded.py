"""Arrays that end, or begin, where memory that may not be touched begins or ends.

A kernel that reads or writes one byte outside stops the process with a signal, which a parent process can see.
"""

import ctypes
import mmap
from typing import Any

import numpy as np

__all__ = ["GuardedMemory"]

_PAGE = mmap.PAGESIZE


def _protect(address: int, size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_int(0)):
        raise OSError(ctypes.get_errno(), "mprotect")


class GuardedMemory:
    """Rooms for arrays, each between two pages that may not be touched.

    Args:
        rooms: how many arrays it holds at once. capacity: the bytes of the largest.

    Example:
        >>> memory = GuardedMemory(1, 100)
        >>> held = memory.place(0, np.arange(3.0)[::-1], at_end=True)
        >>> held
        array([2., 1., 0.])
        >>> held.strides
        (-8,)
    """

    def __init__(self, rooms: int, capacity: int) -> None:
        self.room = -(-capacity // _PAGE) * _PAGE
        self.rooms = rooms
        step = self.room + _PAGE
        self._memory = mmap.mmap(-1, rooms * step + _PAGE)
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._starts = [_PAGE + n * step for n in range(rooms)]
        address = self._bytes.ctypes.data
        for start in [0, *(s + self.room for s in self._starts)]:
            _protect(address + start, _PAGE)

    def place(self, room: int, array: np.ndarray[Any, Any], at_end: bool) -> np.ndarray[Any, Any]:
        """Return a copy of an array with its strides, whose last (or first) byte is the last (or first) of a room."""
        low, high = _extent(array)
        if high - low > self.room:
            raise ValueError(f"the array spans {high - low} bytes, a room has {self.room}")
        start = self._starts[room] + (self.room - (high - low) if at_end else 0)
        held: np.ndarray[Any, Any] = np.ndarray(
            array.shape, array.dtype, self._bytes.data, offset=start - low, strides=array.strides
        )
        if array.size:
            held[...] = array
        return held


def _extent(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The first byte of an array and the one after its last, counted from its first element."""
    if not array.size:
        return 0, 0
    spans = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    return sum(min(s, 0) for s in spans), sum(max(s, 0) for s in spans) + array.itemsize

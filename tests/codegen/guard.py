"""Arrays whose last (or first) byte lies at a protected page: a read or write beyond it ends the process."""

import ctypes
import mmap
import weakref
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def guarded(array: Any, *, start: bool = False) -> Any:
    """Return a copy in C order that ends where a protected page begins, or with ``start`` begins where one ends."""
    array = np.ascontiguousarray(array)
    inside = -(-max(array.nbytes, 1) // PAGE) * PAGE
    total = inside + 2 * PAGE
    base = _libc.mmap(None, total, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    assert base not in (None, 2**64 - 1), "mmap failed"
    for page in (base, base + PAGE + inside):
        assert _libc.mprotect(page, PAGE, 0) == 0
    first = base + PAGE + (0 if start else inside - array.nbytes)
    memory = (ctypes.c_byte * array.nbytes).from_address(first)
    weakref.finalize(memory, _libc.munmap, base, total)
    copy = np.frombuffer(memory, array.dtype).reshape(array.shape)
    copy[...] = array
    return copy

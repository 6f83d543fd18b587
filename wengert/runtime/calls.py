"""Calling kernels that are written directly: their modules by what shapes them, made ahead, and arguments as slots."""

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np
from numpy.typing import NDArray

from wengert.codegen.cache import library
from wengert.loops.tracing import DTYPE_NAMES
from wengert.runtime.ahead import Ahead
from wengert.runtime.launch import pointer
from wengert.runtime.recording import active, current, keep
from wengert.runtime.workers import HEADER, parallel_for

__all__ = ["Absent", "Kernels", "dtype_name", "kernels", "or_numpy", "slots"]

P = ParamSpec("P")
_HEADER = struct.Struct(HEADER)


def dtype_name(dtype: np.dtype[Any]) -> str | None:
    """Return what kernels call a dtype; None if they do not know it (complex numbers, foreign byte order).

    >>> dtype_name(np.dtype(np.float16)), dtype_name(np.dtype(">f4"))
    ('f16', None)
    """
    return DTYPE_NAMES.get(dtype.name) if dtype.isnative else None


class Absent(Exception):  # noqa: N818 - no error: NumPy does the work
    """A kernel is not made yet, or cannot take an array."""


def or_numpy(function: Callable[P, Any]) -> Callable[P, Any]:
    """Let a function give NotImplemented, which leaves the work to NumPy, where a kernel is absent."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return function(*args, **kwargs)
        except Absent:
            return NotImplemented

    return run


class Kernels:
    """The kernels of one module in this process."""

    def __init__(self, names: str, build: Callable[..., str], *choices: Any) -> None:
        key = " ".join([build.__module__, build.__name__, *map(str, choices)])
        self._library = library(key, names.split(), lambda: build(*choices))
        self.addresses = self._library.addresses

    def run(self, name: str, arguments: Any, count: int, grain: int = 1) -> None:
        """Run a kernel over [0, count) in chunks of ``grain``, on all threads."""
        if active[0] and (recording := current()) is not None:
            keep(self._library)
            recording.launch(_HEADER.pack(self.addresses[name], count, grain) + bytes(arguments))
        else:
            parallel_for(self.addresses[name], ctypes.addressof(arguments), count, grain)


@functools.lru_cache(maxsize=1024)
def _made(names: str, build: Callable[..., str], *choices: Any) -> Ahead[Kernels]:
    return Ahead(lambda: Kernels(names, build, *choices))


def kernels(names: str, build: Callable[..., str], *choices: Any) -> Kernels:
    """Return the kernels ``names`` of the module whose text ``build(*choices)`` returns.

    Raises:
        Absent: while they are being made.
    """
    found = _made(names, build, *choices).get()
    if found is None:
        raise Absent
    return found


@functools.lru_cache(maxsize=64)
def _slots_type(count: int) -> Any:
    return ctypes.c_int64 * count


def slots(*values: int | NDArray[Any]) -> Any:
    """Return numbers, and the addresses of arrays, as the argument of a kernel; the arrays must outlive the call.

    Raises:
        Absent: for an array that is not aligned.
    """
    found = _slots_type(len(values))()
    for place, value in enumerate(values):
        if isinstance(value, np.ndarray):
            if not value.flags.aligned:
                raise Absent
            found[place] = pointer(value)
        else:
            found[place] = value
    return found

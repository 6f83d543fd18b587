"""NumPy arrays over memory that is used again: :func:`empty` and its like.

A fresh array of megabytes costs more in page faults than the arithmetic on it. These arrays take their memory from
blocks that earlier ones left, and leave it to later ones when they are collected, and every view of them is, whichever
thread they die in. They are ordinary NumPy arrays: NumPy itself calls the pool through its interface for allocators
(NEP 49), which exists once for each context of :mod:`contextvars`. So a context in which the pool is set, entered for
the one call that makes the array, costs a twentieth of a microsecond, and arrays made elsewhere are not concerned.

``WENGERT_POOL_DEBUG=1`` fills memory that is taken or left with NaN, and finds writes past the end of an array.
"""

import ctypes
import math
import os
import sys
import threading
from collections.abc import Callable
from contextvars import Context
from functools import lru_cache
from typing import Any

import numpy as np

from wengert.array.device import to_device
from wengert.codegen.allocator import COUNTERS, FUNCTIONS, LIMITS, allocator
from wengert.codegen.engine import Library, compile_object
from wengert.environment import variable
from wengert.errors import OutOfMemoryError
from wengert.runtime.memory import account, out_of_memory
from wengert.runtime.recording import active, current

__all__ = ["Pool", "adopt", "empty", "empty_like", "numpy_allocator", "pool_of", "run", "zeros"]

_MALLOC = ctypes.c_void_p
_NAME = b"mem_handler"  # of the capsule: NumPy looks it up by this name
_first = threading.local()  # with each thread's ``call`` into the pool of cpu:0


class _Allocator(ctypes.Structure):
    """NumPy's ``PyDataMemAllocator``."""

    _fields_ = [("context", _MALLOC), ("malloc", _MALLOC), ("calloc", _MALLOC), ("realloc", _MALLOC), ("free", _MALLOC)]


class _Handler(ctypes.Structure):
    """NumPy's ``PyDataMem_Handler``."""

    _fields_ = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("allocator", _Allocator)]


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of Python's C interface."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new_capsule = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_immortal = _python("Py_IncRef", None, ctypes.py_object)


def _numpy_interface(index: int) -> int:
    """Return an entry of NumPy's C interface: PyDataMem_SetHandler is 304, PyDataMem_DefaultHandler 306."""
    table = _pointer(sys.modules["numpy._core._multiarray_umath"]._ARRAY_API, None)
    return int(ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[index] or 0)


@lru_cache(maxsize=1)
def _set_handler() -> Callable[[Any], Any]:
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_numpy_interface(304))


@lru_cache(maxsize=1)
def numpy_allocator() -> _Allocator:
    """Return NumPy's own allocator."""
    capsule = ctypes.py_object.from_address(_numpy_interface(306)).value
    return _Handler.from_address(_pointer(capsule, _NAME)).allocator


@lru_cache(maxsize=1)
def _code() -> bytes:
    return compile_object(allocator())


def _free_memory_kept() -> int:
    """Return how many bytes of free blocks a pool keeps: a quarter of the memory this process may have."""
    sizes = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path, encoding="ascii") as file:
                sizes.append(int(file.read()))
        except (OSError, ValueError):  # no such group, or "max": no limit
            continue
    return min(sizes, default=8 << 30) // 4


class Pool:
    """The memory of one logical device.

    Its machine code and the blocks themselves are never freed: arrays of it may outlive everything else in the process.

    Attributes:
        device: its number. account: the device's account (:mod:`wengert.runtime.memory`), which this pool then keeps.
    """

    def __init__(self, device: int = 0) -> None:
        library = Library(_code(), [*FUNCTIONS, *COUNTERS, *LIMITS])
        _immortal(library)
        at, below = library.addresses, numpy_allocator()
        start = library.function("start", None, *[ctypes.c_void_p] * 4, gil=True)
        start(below.context, below.malloc, below.calloc, below.free)
        names = (b"wengert", 1)
        functions = (None, at["allocate"], at["allocate_zeros"], at["resize"], at["release"])
        self._handler = _Handler(*names, _Allocator(*functions))
        _immortal(self._handler)
        self._capsule = _new_capsule(ctypes.addressof(self._handler), _NAME, None)
        self._thread = _first if device == 0 else threading.local()
        self._in_use = library.function("in_use", ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, gil=True)
        self.device = device
        self.account = account(device)
        counters = {name: ctypes.c_int64.from_address(at[name]) for name in (*COUNTERS, *LIMITS)}
        counters["limit"].value = self.account.limit
        counters["cache_limit"].value = _free_memory_kept()
        counters["debug"].value = variable("WENGERT_POOL_DEBUG")
        self._damaged = counters["damaged"]
        self._refused = counters["refused"]
        self.account.counters = counters
        self.account.trim = library.function("trim", None, ctypes.c_int64, gil=True)
        self.account.blocks = self.blocks
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=library.function("orphaned", None, gil=True))

    def adopt(self, call: Callable[..., Any]) -> None:
        """Let what a context makes come from this pool; ``call`` is the context's ``run``."""
        call(_set_handler(), self._capsule)

    def _enter(self) -> Callable[..., Any]:
        """Return the ``run`` of a new context in which NumPy's arrays come from this pool."""
        call = Context().run
        self.adopt(call)
        return call

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of NumPy, whose new arrays then come from this pool, and return what it returns.

        Raises:
            OutOfMemoryError: if there is no memory for them.
        """
        try:
            call = self._thread.call
        except AttributeError:
            call = self._thread.call = self._enter()
        try:
            try:
                return call(function, *args)
            except RuntimeError as error:
                if "is already entered" not in str(error):
                    raise
            return self._enter()(function, *args)  # a finaliser ran inside of the call that made an array
        except MemoryError as error:
            raise self.explained(error) from None

    def explained(self, error: Exception) -> Exception:
        """Return a MemoryError that NumPy raised as one that says who holds the memory."""
        if isinstance(error, OutOfMemoryError):
            return error
        return out_of_memory(_asked(error) or self._refused.value, self.device)

    def blocks(self) -> list[tuple[int, int, int]]:
        """Return (address, bytes, number) of each block in use, the newest first."""
        capacity = self.account["live_blocks"] + 64
        out = (ctypes.c_int64 * (3 * capacity))()
        found = self._in_use(ctypes.addressof(out), capacity)
        return [(out[3 * i], out[3 * i + 1], out[3 * i + 2]) for i in range(found)]

    def check(self) -> None:
        """Say so if something was written past the end of an array, which ``WENGERT_POOL_DEBUG=1`` finds.

        Raises:
            RuntimeError: once for the last such array that was collected.
        """
        size, self._damaged.value = self._damaged.value, 0
        if size:
            raise RuntimeError(
                f"an array of {size} bytes of cpu:{self.device} was written past its end before it was freed"
            )


def _asked(error: Exception) -> int:
    """Return the bytes of the array that NumPy could not make; 0 if its error does not say."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    return 0 if shape is None or dtype is None else math.prod(shape) * dtype.itemsize


_pools: dict[int, Pool] = {}
_numpy_empty = np.empty
_making = threading.Lock()


def pool_of(device: Any = None) -> Pool:
    """Return the pool of a device, made when first asked for.

    Raises:
        RuntimeError: for a device that does not exist.
    """
    number = to_device(device).index or 0
    found = _pools.get(number)
    if found is None:
        with _making:
            found = _pools.get(number)
            if found is None:
                found = _pools[number] = Pool(number)
    return found


def run(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of NumPy, whose new arrays then come from the pool of ``cpu:0``; see :meth:`Pool.run`.

    Example:
        >>> from wengert.runtime import pool
        >>> x = pool.zeros((500, 500), np.float32)
        >>> pool.run(np.add, x, x).shape
        (500, 500)
    """
    return pool_of().run(function, *args)


def empty(shape: Any, dtype: Any, order: str = "C", *, device: Any = None) -> np.ndarray[Any, Any]:
    """Return an unset array over pooled memory, aligned to 64 bytes.

    Raises:
        OutOfMemoryError: if the system has no memory, or the limit (``set_memory_limit``) is reached.

    Example:
        >>> from wengert.runtime import pool
        >>> x = pool.empty((1024, 1024), np.float32)
        >>> address = x.ctypes.data
        >>> del x
        >>> pool.empty((1024, 1024), np.float32).ctypes.data == address
        True
    """
    if active[0] and (recording := current()) is not None:
        return recording.empty(shape, dtype)
    if device is None:
        try:
            return _first.call(_numpy_empty, shape, dtype, order)
        except (AttributeError, RuntimeError, MemoryError):  # the first call of a thread, and whatever run() knows of
            pass
    return pool_of(device).run(np.empty, shape, dtype, order)


def zeros(shape: Any, dtype: Any, order: str = "C", *, device: Any = None) -> np.ndarray[Any, Any]:
    """Return an array of zeros over pooled memory; see :func:`empty`."""
    return pool_of(device).run(np.zeros, shape, dtype, order)


def empty_like(array: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> np.ndarray[Any, Any]:
    """Return an unset array over pooled memory whose dimensions lie in memory in the order of those of ``array``.

    ``dtype`` and ``shape`` are those of ``array`` unless given.
    """
    return pool_of(device).run(np.empty_like, array, dtype, "K", False, shape)


def adopt(call: Callable[..., Any], *, device: Any = None) -> None:
    """Let the arrays that NumPy makes in a context come from the pool; ``call`` is the ``run`` of the context.

    Example:
        >>> from contextvars import Context
        >>> from wengert.runtime import pool
        >>> call = Context().run
        >>> pool.adopt(call)
        >>> x = call(np.ones, 1_000_000)
    """
    pool_of(device).adopt(call)

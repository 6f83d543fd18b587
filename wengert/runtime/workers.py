"""The pool of worker threads, and the parallel loops that run on it.

The workers are daemon Python threads inside one native call, :mod:`wengert.codegen.worker_loop`, so they never hold
Python's lock; that module says how loops are handed to them. Here are their lives:

- They start with the first loop, and anew when the number of threads has changed.
- Before a fork they are sent home, unless a loop is running, and the next loop of either process starts new ones. A
  child that was forked inside a loop, by a kernel, gets an error from that loop: its other chunks were left behind.
- At exit they are sent home and waited for; loops after that run on the calling thread alone.
- One loop is shared at a time. A second thread that starts one, and a loop inside a kernel, run on their own thread.
"""

import atexit
import ctypes
import os
import struct
import threading
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Final
from weakref import WeakSet

from wengert.codegen import worker_loop as native
from wengert.codegen.cache import library
from wengert.codegen.target import host
from wengert.runtime.recording import active, current
from wengert.runtime.threads import blas_threads, chosen, get_num_threads

__all__ = ["HEADER", "Pool", "launch", "parallel_call", "parallel_for", "start_workers"]

SPIN: Final = 200_000  # nanoseconds that an idle thread spins before it sleeps: an eager program between two operators
SLICE: Final = 50_000_000  # nanoseconds after which a loop returns to Python to see whether a signal came
PATIENCE: Final = 5.0  # seconds that the exit of the interpreter waits for workers that are inside a kernel

HEADER: Final = "qqq"  # struct's format of what :func:`launch` takes before the arguments: kernel address, count, grain

_LINE = 64  # bytes of a cache line
_pack = struct.Struct("qqqq").pack


class _Native:
    """The functions of the native loop; they are called with ctypes objects and bytes, which need no conversion.

    (A Python int for a parameter that is declared as ``c_int64`` costs ctypes a third of a microsecond.)
    """

    def __init__(self) -> None:
        names = [native.WORKER, native.STOP, native.LAUNCH, native.PARALLEL_FOR, native.RESUME]
        loop = library("worker loop", names, lambda: native.worker_loop(host().triple))
        self.worker = loop.function(native.WORKER, None)
        self.stop = loop.function(native.STOP, None)
        self.launch = loop.function(native.LAUNCH, ctypes.c_int64)
        self.parallel_for = loop.function(native.PARALLEL_FOR, ctypes.c_int64)
        self.resume = loop.function(native.RESUME, ctypes.c_int64)


_native = lru_cache(maxsize=1)(_Native)


class Pool:
    """Worker threads and the memory they share with the thread that leads a loop.

    Attributes:
        threads: how many threads a loop runs on, the leader included.
        address: of the shared memory. slots: the memory as 64-bit integers, see ``worker_loop.LAYOUT``.
        native: the functions that take the address.
    """

    __slots__ = ("__weakref__", "_hosts", "_memory", "address", "native", "slots", "threads")

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._memory = ctypes.create_string_buffer(8 * native.SLOTS + _LINE)
        pointer = -(-ctypes.addressof(self._memory) // _LINE) * _LINE
        self.slots = (ctypes.c_int64 * native.SLOTS).from_address(pointer)
        self.slots[native.LAYOUT["SPIN"]] = SPIN
        self.slots[native.LAYOUT["SLICE"]] = SLICE
        self.address = ctypes.c_void_p(pointer)
        self.native = _native()
        self._hosts: list[threading.Thread] = []
        _pools.add(self)
        try:
            self._start_hosts()
        except BaseException:
            self.stop()
            raise

    def _start_hosts(self) -> None:
        for number in range(1, self.threads):
            worker = threading.Thread(target=self._work, name=f"wengert-worker-{number}", daemon=True)
            try:
                worker.start()
            except RuntimeError as error:
                message = f"loops run on {len(self._hosts) + 1} threads, not {self.threads}: {error}"
                warnings.warn(message, RuntimeWarning, stacklevel=4)
                break
            self._hosts.append(worker)
        self.slots[native.LAYOUT["WORKERS"]] = len(self._hosts)

    def _work(self) -> None:
        self.native.worker(self.address)

    @property
    def busy(self) -> bool:
        """Whether a loop is running on the workers."""
        return self.slots[native.LAYOUT["OWNER"]] != 0

    def stop(self) -> None:
        """Send the workers home; those inside a kernel finish it first. Loops of this pool stay correct."""
        self.native.stop(self.address, ctypes.c_int64(native.STOPPED))

    def join(self, patience: float | None = None) -> None:
        """Wait until the workers have left, for at most ``patience`` seconds each."""
        for worker in self._hosts:
            worker.join(patience)

    def abandon(self) -> None:
        """Say, in a forked child, that the workers no longer exist."""
        self.slots[native.LAYOUT["TICKET"]] = 0
        self.slots[native.LAYOUT["STATE"]] = native.ABANDONED


_pools: "WeakSet[Pool]" = WeakSet()
_pool: Pool | None = None
_closed = False
_lock = threading.RLock()


def start_workers() -> Pool:
    """Start the workers, if they do not run yet with the chosen number of threads, and return their pool.

    The first loop does it too. The first start in a process brings in the native loop, compiled or from the cache, which
    takes tens of milliseconds; whoever prepares kernels in the background calls this there.
    """
    global _pool
    with _lock:
        threads = 1 if _closed else get_num_threads()
        if _pool is None or _pool.threads != threads:
            new = Pool(threads)
            old, _pool = _pool, new
            if old is not None:
                old.stop()
        return _pool


def parallel_for(address: int, arguments: int, count: int, grain: int) -> None:
    """Run the native kernel ``void (ptr arguments, i64 begin, i64 end)`` over ``range(count)`` on all threads.

    It is called with ``[0, grain)``, ``[grain, 2 * grain)`` … however many threads there are; each chunk runs exactly
    once, in no order that could be relied on. Returns when all have run. A loop of one chunk, a loop inside a kernel and
    a loop that starts while another thread's is running run on the calling thread.

    Signals are handled between slices of about 50 ms: after Ctrl-C the chunks that have begun are finished, the others
    are left out, and ``KeyboardInterrupt`` is raised. A single chunk cannot be interrupted.

    Args:
        address: of the kernel, machine code that holds no Python lock and raises nothing (:func:`parallel_call` takes
            Python functions). arguments: the address that it is given, or 0. count: how many steps there are, at
            least 0. grain: how many of them make a chunk, at least 1.

    Raises:
        ValueError: if count or grain is out of range, or there would be 2**32 chunks or more.
        RuntimeError: in a child process that was forked by a kernel of this loop.
    """
    pool = _pool
    if pool is None or pool.threads != chosen.number:
        pool = start_workers()
    left = pool.native.parallel_for(pool.address, _pack(address, count, grain, arguments))
    if left:
        _finish(address, count, grain, arguments, left)


def launch(call: bytes) -> None:
    """Do what :func:`parallel_for` does with a kernel whose arguments are packed behind the header of the call.

    Args:
        call: ``struct.pack(HEADER + …, address, count, grain, …)``: the kernel's address, the number of steps, how many
            make a chunk, and from byte 24 on what the kernel is given, 64 bits each. One packing and one native call is
            the shortest way into a kernel.

    Raises:
        As :func:`parallel_for`.
    """
    if active[0] and (recording := current()) is not None:
        recording.launch(call)
        return
    pool = _pool
    if pool is None or pool.threads != chosen.number:
        pool = start_workers()
    left = pool.native.launch(pool.address, call)
    if left:
        address, count, grain = struct.unpack_from(HEADER, call)
        start = ctypes.cast(ctypes.c_char_p(call), ctypes.c_void_p).value or 0
        _finish(address, count, grain, start + struct.calcsize(HEADER), left)


def _finish(address: int, count: int, grain: int, arguments: int, left: int) -> None:
    """Run the chunks that a slice has left."""
    while left:
        if left < 0:
            _complain(left, count, grain)
        pool = start_workers()
        left = pool.native.resume(pool.address, struct.pack("qqqqq", address, count, grain, arguments, left))


def _complain(code: int, count: int, grain: int) -> None:
    if code == native.LOST:
        raise RuntimeError(
            "this process was forked inside a parallel loop, and the chunks that other threads ran were left behind in "
            "its parent; fork outside of kernels, or leave the child with os._exit() before the kernel returns"
        )
    if code == native.INVALID:
        raise ValueError(
            f"a parallel loop takes a count of at least 0 and a grain of at least 1 that make fewer than 2**32 chunks, "
            f"got count={count} and grain={grain}"
        )


class _Calls:
    """The chunks of a Python function: threads take a seat and call it until no chunk is left or one has failed."""

    def __init__(self, function: Callable[[int, int], object], count: int, grain: int, seats: int) -> None:
        self._function, self._count, self._grain = function, count, grain
        self._begins = iter(range(0, count, grain))
        self._lock = threading.Lock()
        self.failed: tuple[int, BaseException] | None = None
        self.left = [False] * seats  # which seats were left in order

    def _next(self) -> int | None:
        with self._lock:
            return None if self.failed else next(self._begins, None)

    def _fail(self, begin: int, error: BaseException) -> None:
        with self._lock:
            if self.failed is None or begin < self.failed[0]:
                self.failed = begin, error

    def take_seat(self, _arguments: int | None, seat: int, _end: int) -> None:
        """Run chunks; what a chunk raises is kept, and ends the loop."""
        begin: int | None = 0
        try:
            while (begin := self._next()) is not None:
                self._function(begin, min(begin + self._grain, self._count))
        except BaseException as error:
            self._fail(begin or 0, error)
        self.left[seat] = True  # the last thing, and no call: Python handles a signal before it or after the return


_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def parallel_call(function: Callable[[int, int], object], count: int, grain: int) -> None:
    """Call ``function(begin, end)`` for every chunk of ``range(count)``, on all threads.

    Only what releases Python's lock runs at the same time: NumPy on large arrays, native kernels, input and output.
    The BLAS behind NumPy is held to one thread per caller meanwhile. On the workers, modes that belong to a thread (grad
    mode and its kin) are the default ones.

    What a call raises reaches the caller, with its traceback; chunks that have not begun by then are left out. If several
    calls fail, the exception of the lowest chunk among them is raised.

    Args:
        function: called with the first and one past the last step of a chunk. count: how many steps there are.
            grain: how many of them make a chunk.

    Raises:
        ValueError: if count is negative or grain below 1.

    Example:
        >>> import numpy as np
        >>> from wengert.runtime.workers import parallel_call
        >>> x, y = np.arange(6.0), np.empty(6)
        >>> parallel_call(lambda begin, end: np.sqrt(x[begin:end], out=y[begin:end]), 6, 2)
        >>> y.round(2)
        array([0.  , 1.  , 1.41, 1.73, 2.  , 2.24])
    """
    if count < 0 or grain < 1:
        raise ValueError(f"parallel_call takes a count from 0 and a grain from 1 on, got {count} and {grain}")
    threads = min(get_num_threads(), -(-count // grain))
    if threads <= 1:
        for begin in range(0, count, grain):
            function(begin, min(begin + grain, count))
        return
    calls = _Calls(function, count, grain, threads)
    kernel = _KERNEL(calls.take_seat)
    with blas_threads(1):
        parallel_for(ctypes.cast(kernel, ctypes.c_void_p).value or 0, 0, threads, 1)
    if calls.failed:
        raise calls.failed[1]
    if not all(calls.left):  # a signal came outside of `try`, and ctypes dropped what its handler raised
        raise KeyboardInterrupt


def _before_fork() -> None:
    """A process with one thread is safe to fork; workers inside a loop of another thread cannot be waited for."""
    global _pool
    pool = _pool
    if pool is not None and not pool.busy:
        _pool = None
        pool.stop()
        pool.join()


def _after_fork_in_child() -> None:
    global _pool, _lock
    _pool, _lock = None, threading.RLock()
    for pool in _pools:
        pool.abandon()


def _close() -> None:
    global _pool, _closed
    _closed = True
    pool, _pool = _pool, None
    if pool is not None:
        pool.stop()
        pool.join(PATIENCE)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
atexit.register(_close)

"""Writing down the kernels that a function would run, instead of running them, so that they can be run again at once.

A kernel of :mod:`wengert.runtime` looks at shapes and addresses and then launches machine code. While a
:class:`Recording` is active on a thread, what it launches goes there with its arguments, and the memory it asks the pool for is
kept: the same addresses are then right whenever the recorded tasks are run.
"""

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Check", "Recording", "Task", "active", "ascontiguous", "assign", "at_each_call", "cast", "current", "is_lasting",
    "is_steady", "keep", "lasting_empty", "pack_of", "paused", "pin", "recording", "reshaped", "writable",
]  # fmt: skip

_HEADER = struct.Struct("qqq")


class Task(NamedTuple):
    """One launch: a kernel's address, the number of steps, how many make a chunk, and its arguments, 64 bits each.

    Attributes:
        checked: whether the last argument is set by a failing bounds check.
    """

    address: int
    steps: int
    grain: int
    arguments: bytes
    checked: bool


class Check(NamedTuple):
    """The address of a word that must be 0 once the tasks before it have run; if it is not, ``complain()`` raises an error."""

    address: int
    complain: Callable[[], Any]


class Recording:
    """What is to be run, in order.

    Attributes:
        tasks: launches, checks, and functions that Python calls between them. kept: everything they point to. checked: what
            was made sure of, to be done once. pinned: arrays whose addresses stand elsewhere than among the arguments of tasks.
        streams: for generators of random numbers, the step that takes from them what draws behind it need.
        provide: returns memory for an array of (shape, dtype) that a kernel makes as a result, or None. scratch: returns memory
            for any other, which tasks recorded later may use as well. keep: returns memory for an array that others read.
            copy: records that an array is copied, and cast, into another.
        steady: whether an array holds the same values all through a run, and is read often. packs: of such, in the order of a
            kernel, by what they were packed from, and how. read: those that the node reads; new: the keys of those it packs.
        lasting: whether an array holds the same values at every run, so that what is made of it alone is made once; once:
            returns memory for that.
    """

    def __init__(self) -> None:
        self.tasks: list[Task | Check | Callable[[], Any]] = []
        self.checked: set[Any] = set()
        self.kept: list[Any] = []
        self.pinned: list[Any] = []
        self.streams: dict[Any, Any] = {}
        self.copy: Callable[[Any, Any], None] = self._copy_later
        self.scratch: Callable[..., Any] = np.empty
        self.keep: Callable[..., Any] = np.empty
        self.steady: Callable[[Any], bool] = lambda array: False
        self.packs: dict[Any, Any] = {}
        self.read: list[Any] = []
        self.new: list[Any] = []
        self.lasting: Callable[[Any], bool] = lambda array: False
        self.once: Callable[..., Any] = np.empty
        self.provide: Callable[[tuple[int, ...], Any], Any] = lambda shape, dtype: None

    def _copy_later(self, source: Any, out: Any) -> None:
        self.tasks.append(lambda: np.copyto(out, source, casting="unsafe"))

    def mark(self) -> tuple[int, set[Any], int, int]:
        """Return where the recording stands, for :meth:`back`."""
        return len(self.tasks), set(self.checked), len(self.read), len(self.new)

    def back(self, mark: tuple[int, set[Any], int, int]) -> None:
        """Forget what was recorded since a mark."""
        tasks, checked, read, new = mark
        del self.tasks[tasks:]
        self.checked &= checked
        for key in self.new[new:]:
            del self.packs[key]
        del self.read[read:], self.new[new:]

    def launch(self, call: bytes, checked: bool = False) -> None:
        """Add a task, given as :func:`wengert.runtime.workers.launch` takes it."""
        address, steps, grain = _HEADER.unpack_from(call)
        if steps > 0:
            self.tasks.append(Task(address, steps, grain, call[_HEADER.size :], checked))

    def require(self, flags: Any, complain: Callable[[], Any]) -> None:
        """Add checks that each of some words of 64 bits, which the tasks so far have written, is 0."""
        start = flags.__array_interface__["data"][0]
        self.tasks += [Check(start + 8 * k, complain) for k in range(flags.size)]

    def empty(self, shape: Any, dtype: Any) -> Any:
        """Return memory for a result or for scratch; NumPy may not write into it."""
        found = self.provide(shape, dtype)
        array = self.scratch(shape, dtype) if found is None else found
        self.kept.append(array)
        return _unwritable(array)


def _unwritable(array: Any) -> Any:
    """Return an array as one that NumPy may not write into: what is there now means nothing."""
    view = array.view()
    view.flags.writeable = False
    return view


_local = threading.local()
active: list[int] = [0]  # how many recordings there are, on all threads: zero is the common case, and cheap to see


def current() -> Recording | None:
    """Return what this thread records into, or None."""
    return getattr(_local, "recording", None) if active[0] else None


@contextmanager
def paused() -> Iterator[None]:
    """Run what is launched in a block now, and record nothing of it."""
    mine = current()
    _local.recording = None
    try:
        yield
    finally:
        _local.recording = mine


def is_lasting(array: Any) -> bool:
    """Whether a kernel is recorded, and an array that it reads holds the same values whenever that is run."""
    mine = current()
    return mine is not None and mine.lasting(array)


def lasting_empty(shape: Any, dtype: Any) -> Any:
    """Return memory, while a kernel is recorded, for what is made once: now, for all its runs."""
    mine = current()
    array = np.empty(shape, dtype) if mine is None else mine.once(shape, dtype)
    keep(array)
    return array


def is_steady(array: Any) -> bool:
    """Whether a kernel is recorded, and an array that it reads is read often, and holds the same values all through a run."""
    mine = current()
    return mine is not None and mine.steady(array)


def pack_of(key: Any, size: int) -> tuple[Any, bool]:
    """Return memory, while a kernel is recorded, for what steady arrays are packed into, and whether it is new.

    Args:
        key: what is packed, and how. Kernels that are recorded later, and ask with the same key, get what is packed there.
    """
    mine = current()
    assert mine is not None
    pack = mine.packs.get(key)
    new = pack is None
    if new:
        pack = mine.packs[key] = mine.keep(size, np.uint8)
        mine.new.append(key)
    mine.kept.append(pack)
    mine.read.append(pack)
    return pack, new


def keep(*objects: Any) -> None:
    """Keep what recorded tasks point to alive as long as they; without a recording, nothing is kept."""
    mine = current()
    if mine is not None:
        mine.kept += objects


def pin(*arrays: Any) -> None:
    """Say that addresses of arrays stand in a table that a recorded task reads, not among its arguments."""
    mine = current()
    if mine is not None:
        mine.pinned += arrays


def ascontiguous(array: Any, dtype: Any = None) -> Any:
    """Return an array as one block of memory, as NumPy's function does; what is copied is copied at each call."""
    mine = current()
    if mine is None or (array.flags.c_contiguous and (dtype is None or array.dtype == dtype)):
        return np.asarray(array, dtype, order="C")  # NumPy's own makes one dimension of none
    whole = mine.scratch(array.shape, array.dtype if dtype is None else dtype)
    mine.kept.append(whole)
    mine.copy(array, whole)
    return _unwritable(whole)


def cast(array: Any, dtype: Any) -> Any:
    """Return an array in a dtype: itself, if it has that; what is cast is cast at each call."""
    if array.dtype == dtype:
        return array
    return array.astype(dtype) if current() is None else ascontiguous(array, dtype)


def assign(out: Any, source: Any) -> None:
    """Copy an array, cast and broadcast, into another one: now, or, while a kernel is recorded, at each call."""
    mine = current()
    if mine is None:
        np.copyto(writable(out), source, casting="unsafe")
    else:
        mine.kept += out, source
        mine.copy(source, out)


def reshaped(array: Any, *shape: int) -> Any:
    """Return an array in another shape; where that takes a copy, it is made at each call."""
    found = array.reshape(shape)
    if current() is None or np.may_share_memory(found, array):
        return found
    return ascontiguous(array).reshape(shape)


def writable(array: Any) -> Any:
    """Return an array as one that NumPy may write into, for what is done at each call."""
    whole = array
    while not whole.flags.writeable and whole.base is not None:
        whole = whole.base
    if whole is array or not whole.flags.writeable:
        return array
    return np.ndarray(array.shape, array.dtype, whole.data, pointer_offset(array, whole), array.strides)


def pointer_offset(array: Any, whole: Any) -> int:
    """Return how many bytes an array begins behind another that it lies in."""
    return int(array.__array_interface__["data"][0] - whole.__array_interface__["data"][0])


def at_each_call(do: Callable[[], Any]) -> None:
    """Call ``do()``: now, or, while a kernel is recorded, each time that the tasks are run, between those around it."""
    mine = current()
    if mine is None:
        do()
    else:
        mine.tasks.append(do)


@contextmanager
def recording() -> Iterator[Recording]:
    """Record what this thread launches in a block."""
    outer, mine = getattr(_local, "recording", None), Recording()
    _local.recording = mine
    active[0] += 1
    try:
        yield mine
    finally:
        active[0] -= 1
        _local.recording = outer

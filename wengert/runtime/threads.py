"""How many threads a loop runs on, and how many the BLAS behind NumPy may use meanwhile.

The number is, in this order: what :func:`set_num_threads` was given, ``WENGERT_NUM_THREADS``, and else the number of
processors that this process may use: its affinity mask, held against the quota of its control group.
"""

import ctypes
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy  # noqa: F401 - brings its BLAS into the process

from wengert.environment import variable

__all__ = ["available_processors", "blas_threads", "get_num_threads", "set_num_threads"]

MOST_THREADS: Final = 1024


def _limits(folder: Path, top: Path, read: Callable[[Path], float]) -> Iterator[float]:
    """The limits of a control group and of those it lies in, as far as this process can see them."""
    while folder.is_relative_to(top):
        with suppress(OSError, ValueError):  # no such file, or no number: no limit here
            yield read(folder)
        folder = folder.parent


def _quota_of_version_2(folder: Path) -> float:
    quota, period = (folder / "cpu.max").read_text().split()
    return float(quota) / float(period) if quota != "max" else math.inf


def _quota_of_version_1(folder: Path) -> float:
    quota = float((folder / "cpu.cfs_quota_us").read_text())
    return quota / float((folder / "cpu.cfs_period_us").read_text()) if quota > 0 else math.inf


def processor_quota(groups: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> float:
    """Return how many processors' time the control groups (Linux, versions 1 and 2) give this process; inf: no limit."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return math.inf
    limits = [math.inf]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            for top in (mount, mount / "unified"):
                limits += _limits(top / path.strip("/"), top, _quota_of_version_2)
        elif "cpu" in controllers.split(","):
            for top in (mount / "cpu", mount / controllers):
                limits += _limits(top / path.strip("/"), top, _quota_of_version_1)
    return min(limits)


def available_processors() -> int:
    """Return how many processors this process may use: its affinity mask, and its quota of time rounded up."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = processor_quota()
    return max(1, affinity if math.isinf(quota) else min(affinity, math.ceil(quota)))


class Chosen:
    """The number of threads of this process; None until something asks for it."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number: int | None = None


chosen = Chosen()


def get_num_threads() -> int:
    """Return how many threads a parallel loop runs on, the calling one included.

    Raises:
        ValueError: if ``WENGERT_NUM_THREADS`` is set to something else than a whole number from 1 to 1024.
    """
    if chosen.number is None:
        chosen.number = variable("WENGERT_NUM_THREADS") or min(available_processors(), MOST_THREADS)
    return chosen.number


def set_num_threads(int: int) -> None:
    """Set how many threads a parallel loop runs on, the calling one included, and how many the BLAS behind NumPy uses.

    Results do not depend on it. It holds for the whole process, from the next loop on.

    Raises:
        TypeError: if it is not an int. RuntimeError: if it is below 1 or above 1024.

    Example:
        >>> from wengert.runtime.threads import get_num_threads, set_num_threads
        >>> number = get_num_threads()
        >>> set_num_threads(1); get_num_threads()
        1
        >>> set_num_threads(number)
    """
    if isinstance(int, bool) or not hasattr(int, "__index__"):
        raise TypeError(f"set_num_threads expects an int, but got {type(int).__name__}")
    number = int.__index__()
    if not 1 <= number <= MOST_THREADS:
        raise RuntimeError(f"set_num_threads expects an integer from 1 to {MOST_THREADS}, got {number}")
    chosen.number = number
    _blas.set(number)


class BlasCalls(NamedTuple):
    """How a BLAS is asked for its number of threads and given one."""

    get: Callable[[], int]
    set: Callable[[int], None]


_BLAS_NAMES: Final = [
    *((f"{prefix}openblas_get_num_threads{suffix}", f"{prefix}openblas_set_num_threads{suffix}")
      for prefix in ("scipy_", "") for suffix in ("64_", "_64", "")),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
]  # fmt: skip


@lru_cache(maxsize=1)
def blas_calls() -> BlasCalls | None:
    """Return the calls of the BLAS that NumPy is linked with, or None where it has none (Apple's, or a plain one)."""
    extension = Path(str(sys.modules["numpy._core._multiarray_umath"].__file__))
    bundled = extension.parents[2] / "numpy.libs"  # Windows does not look into the libraries that a library needs
    for path in (extension, *sorted(bundled.glob("*openblas*.dll"))):
        try:
            library: Any = ctypes.CDLL(str(path))
        except OSError:
            continue
        for get, set_ in _BLAS_NAMES:
            if hasattr(library, get) and hasattr(library, set_):
                return BlasCalls(library[get], library[set_])
    return None


class Blas:
    """The number of threads of the BLAS: the user's, or the smallest that somebody who runs now holds it to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[tuple[int, int]] = []  # (number, thread that holds it there)
        self._free = self._last = 1  # what holds while nobody holds it down; what we set last

    def forget_other_threads(self) -> None:
        """Release what other threads hold, in a forked child, where they no longer exist."""
        self._lock = threading.Lock()
        here = threading.get_ident()
        held, self._held = self._held, [hold for hold in self._held if hold[1] == here]
        if held:
            self._apply()

    def _apply(self) -> None:
        calls = blas_calls()
        if calls is not None:
            self._last = min([self._free, *(number for number, _ in self._held)])
            calls.set(self._last)

    def _release(self, hold: tuple[int, int]) -> None:
        with self._lock:
            if hold in self._held:
                self._held.remove(hold)
            self._apply()

    def set(self, number: int) -> None:
        """Set the number that holds while nobody holds it down."""
        with self._lock:
            self._free = number
            self._apply()

    @contextmanager
    def hold(self, number: int) -> Iterator[None]:
        """Hold it to at most ``number``; holds of several threads may overlap in any order."""
        calls = blas_calls()
        hold = number, threading.get_ident()
        with self._lock:
            current = calls.get() if calls is not None else 1
            if not self._held and current != self._last:  # somebody else has chosen it
                self._free = current
        try:
            with self._lock:
                self._held.append(hold)
                self._apply()
            yield
        finally:
            try:
                self._release(hold)
            except BaseException:  # Ctrl-C in the middle of it must not leave the BLAS slow for good
                self._release(hold)
                raise


_blas = Blas()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_blas.forget_other_threads)


def blas_threads(number: int) -> Any:
    """Hold the BLAS behind NumPy to at most ``number`` threads inside a ``with`` block.

    For code that calls NumPy's matrix products from several threads at once: each product would otherwise start as many
    threads as there are processors. The BLAS is one for the process, so products of other threads are held down as
    well. OpenBLAS and MKL are known; with another BLAS nothing happens.

    Raises:
        ValueError: if ``number`` is below 1.

    Example:
        >>> from wengert.runtime.threads import blas_threads
        >>> with blas_threads(1):
        ...     pass
    """
    if number < 1:
        raise ValueError(f"blas_threads expects a number of at least 1, got {number}")
    return _blas.hold(number)

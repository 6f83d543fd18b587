"""What the machine is, how busy others keep it, and how many threads a framework may use."""

import os
import platform
import time
from pathlib import Path

__all__ = ["Watch", "cores", "describe", "limit_threads", "threads", "wait_until_quiet"]

_STAT = Path("/proc/stat")
_THREADS = ("WENGERT_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_threads(threads: int) -> None:
    """Tell every framework started from now on, by its environment, how many threads to use.

    One thread means one core: frameworks that look at the cores instead of the environment then agree. wengert's native
    kernels are made in the first calls, as the others' are, and not beside the measured ones.
    """
    os.environ.update(dict.fromkeys(_THREADS, str(threads)))
    os.environ["WENGERT_NATIVE"] = "wait"
    if threads == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def threads() -> int:
    """Return what :func:`limit_threads` said, for frameworks that do not look at the environment."""
    return int(os.environ.get(_THREADS[0], cores()))


def describe() -> str:
    """Return one line about the machine."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return f"{model}, {cores()} cores, {platform.system()}, Python {platform.python_version()}"


class Watch:
    """Measures, from its making to :meth:`others`, how many cores other processes kept busy."""

    def __init__(self) -> None:
        self._wall, self._own, self._all = time.perf_counter(), _own_seconds(), _busy_seconds()

    def others(self) -> float | None:
        """Return the cores that others used, or None where the system does not tell."""
        if self._all is None:
            return None
        own = _own_seconds() - self._own
        busy = (_busy_seconds() or 0.0) - self._all
        return max(0.0, busy - own) / max(time.perf_counter() - self._wall, 1e-9)


def wait_until_quiet(seconds: float, cores: float) -> None:
    """Wait until other processes use fewer than so many cores, but no longer than so many seconds."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        watch = Watch()
        time.sleep(0.2)
        if (watch.others() or 0.0) < cores:
            return


def _own_seconds() -> float:
    """Return the processor seconds of this process and of those that it started and saw end."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _busy_seconds() -> float | None:
    """Return the processor seconds that the machine has spent working since it started."""
    if not _STAT.exists():
        return None
    user, nice, system, _, _, irq, softirq, steal = (int(word) for word in _STAT.read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")

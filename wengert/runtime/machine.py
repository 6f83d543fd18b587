"""How fast this machine is: arithmetic, memory at each level, a call; what cost models divide by.

Each number is the best of several runs of a loop in machine code that does nothing else: chains of multiply-adds that do
not wait for each other; reading, or copying, a buffer that fits in a level of the memory.
"""

import ctypes
import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np

from wengert.codegen.cache import library, store
from wengert.codegen.target import host

__all__ = ["Machine", "measure", "measured"]

FILE: Final = "machine_{}.json"
CHAINS: Final = 12  # multiply-adds at once: enough for a latency of 4 to 6 cycles and two or three units
STREAMS: Final = 8  # vectors read at once
ELEMENTS: Final = {"float32": ("float", 4), "float64": ("double", 8)}
DEFAULT_CACHES: Final = (32 << 10, 512 << 10, 8 << 20)  # where the operating system does not say


@dataclass(frozen=True)
class Machine:
    """What was measured. Flops and bytes are per second, sizes are bytes, times seconds.

    Attributes:
        threads: how many processors this process may use. l1, l2, l3: the sizes of the data caches.
        float32, float64: flops of one thread; multiply and add count as two. float32_all, float64_all: of all threads.
        read_l1, read_l2, read_l3, read_memory: one thread's reading from a buffer that fits there.
        copy_l1, copy_l2, copy_l3, copy_memory: one thread's copying; what is read and what is written are both counted.
        read_all, copy_all: of all threads, memory.
        call: from Python into a kernel and back.
    """

    threads: int
    l1: int
    l2: int
    l3: int
    float32: float
    float64: float
    float32_all: float
    float64_all: float
    read_l1: float
    read_l2: float
    read_l3: float
    read_memory: float
    copy_l1: float
    copy_l2: float
    copy_l3: float
    copy_memory: float
    read_all: float
    copy_all: float
    call: float


@lru_cache(maxsize=1)
def measured() -> Machine:
    """Return the machine as it was last measured, or as a quick look (0.2 s) finds it if it never was.

    ``python -m wengert machine`` measures with care, and leaves what it finds beside the kernels in their cache.
    """
    text = store().read(_file())
    if text is not None:
        with suppress(KeyError, TypeError, ValueError):  # what another version wrote
            return _read(json.loads(text))
    return measure(seconds=0.1)


def measure(seconds: float = 4.0, *, keep: bool = False) -> Machine:
    """Measure this machine.

    Args:
        seconds: how long to take, about; some of the time goes into filling the buffers.
        keep: leave the result where :func:`measured` finds it.
    """
    threads = _threads()
    l1, l2, l3 = _caches()
    share = seconds / 15
    memory = min(max(2 * l3, 32 << 20), 64 << 20) if seconds < 1 else min(max(4 * l3, 64 << 20), 512 << 20)
    source, target = _buffer(memory), _buffer(memory)
    sizes = {"l1": l1 // 2, "l2": l2 // 2, "l3": max(l2, l3 // 4), "memory": memory}
    numbers: dict[str, Any] = {"threads": threads, "l1": l1, "l2": l2, "l3": l3}
    for dtype in ELEMENTS:
        numbers[dtype] = _best_rate(_flops(dtype), 1, share)
        numbers[f"{dtype}_all"] = _best_rate(_flops(dtype), threads, share)
    for level, size in sizes.items():
        numbers[f"read_{level}"] = _best_rate(_moving("read", source, target, size, 1), 1, share)
        numbers[f"copy_{level}"] = _best_rate(_moving("copy", source, target, size // 2, 1), 1, share)
    numbers["read_all"] = _best_rate(_moving("read", source, target, memory, threads), threads, share)
    numbers["copy_all"] = _best_rate(_moving("copy", source, target, memory, threads), threads, share)
    numbers["call"] = _call_overhead()
    found = Machine(**numbers)
    if keep:
        store().write(_file(), json.dumps(asdict(found), indent=2).encode())
        measured.cache_clear()
    return found


def _file() -> str:
    return FILE.format(blake2b(f"{host().key} {_threads()}".encode(), digest_size=8).hexdigest())


def _read(numbers: Any) -> Machine:
    """Return what a file holds.

    Raises:
        KeyError, TypeError, ValueError: if it is not what :func:`measure` writes.
    """
    values = {field.name: numbers[field.name] for field in fields(Machine)}
    if not all(isinstance(value, int | float) and 0 < value < math.inf for value in values.values()):
        raise ValueError("a number that no machine has")
    return Machine(**values)


def _threads() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _caches() -> tuple[int, int, int]:
    """Return the sizes of the data caches, as far as the operating system says them."""
    found = dict(enumerate(DEFAULT_CACHES, start=1))
    if sys.platform == "darwin":
        found.update(_sysctl_caches())
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index[0-9]*"):
        with suppress(OSError, ValueError):
            level, kind, size = (index.joinpath(name).read_text().strip() for name in ("level", "type", "size"))
            match = re.fullmatch(r"(\d+)([KM]?)", size)
            if kind != "Instruction" and match and int(match[1]):
                found[int(level)] = int(match[1]) << {"": 0, "K": 10, "M": 20}[match[2]]
    return found[1], found[2], max(found[3], found[2])


def _sysctl_caches() -> dict[int, int]:
    found = {}
    ask = ctypes.CDLL(None).sysctlbyname
    for level, name in ((1, b"hw.perflevel0.l1dcachesize"), (2, b"hw.perflevel0.l2cachesize"), (3, b"hw.l3cachesize")):
        value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
        if ask(name, ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)) == 0 and value.value:
            found[level] = value.value
    return found


def _buffer(size: int) -> Any:
    """Return memory that starts on a page and has been written to, so that it is really there."""
    raw = np.empty(size + 4096, np.uint8)
    start = -raw.ctypes.data % 4096
    raw[start : start + size].fill(1)
    return raw[start : start + size]


# ---- what is run: loops in the form that every kernel has, and what one call of them does


@dataclass(frozen=True)
class _Work:
    """One call per thread.

    Attributes:
        function: the kernel. arguments: for each thread. amount: what one step of one call amounts to, in flops or bytes.
        memory: what the arguments point into.
    """

    function: Any
    arguments: tuple[Any, ...]
    amount: float
    memory: Any


def _flops(dtype: str) -> _Work:
    element, size = ELEMENTS[dtype]
    lanes = host().vector_bytes // size
    function = _function(f"peak {dtype} {CHAINS}", lambda: _multiply_adds(f"<{lanes} x {element}>", element, lanes))
    places = [np.zeros(CHAINS * host().vector_bytes, np.uint8) for _ in range(_threads())]
    arguments = tuple(np.array([place.ctypes.data], np.int64) for place in places)
    return _Work(function, arguments, 2.0 * lanes * CHAINS, places)


def _moving(what: str, source: Any, target: Any, size: int, threads: int) -> _Work:
    """Return the work of reading or copying ``size`` bytes, a part for each thread."""
    step = STREAMS * host().vector_bytes
    part = size // threads // step * step
    function = _function(f"{what} {STREAMS}", lambda: _transfer(what, host().vector_bytes))
    arguments = tuple(
        np.array([source.ctypes.data + i * part, target.ctypes.data + i * part, part], np.int64) for i in range(threads)
    )
    return _Work(function, arguments, float(part * (2 if what == "copy" else 1)), (source, target))


def _function(key: str, build: Callable[[], str]) -> Any:
    made = library(f"machine: {key}", ["kernel"], build)
    return made.function("kernel", None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def _multiply_adds(vector: str, element: str, lanes: int) -> str:
    """Return a kernel of ``CHAINS`` chains of x ← x·½ + ½; where they start and end is in memory, so that they are run."""
    suffix = f"v{lanes}f{32 if element == 'float' else 64}"
    half = "<" + ", ".join([f"{element} 0.5"] * lanes) + ">"
    places = [f"%p{c} = getelementptr {vector}, ptr %place, i64 {c}" for c in range(CHAINS)]
    loads = [f"%s{c} = load {vector}, ptr %p{c}, align 8" for c in range(CHAINS)]
    phis = [f"%x{c} = phi {vector} [%s{c}, %entry], [%y{c}, %loop]" for c in range(CHAINS)]
    steps = [
        f"%y{c} = call {vector} @llvm.fmuladd.{suffix}({vector} %x{c}, {vector} {half}, {vector} {half})"
        for c in range(CHAINS)
    ]
    stores = [f"store {vector} %y{c}, ptr %p{c}, align 8" for c in range(CHAINS)]
    return "\n".join([
        f"declare {vector} @llvm.fmuladd.{suffix}({vector}, {vector}, {vector})",
        "define void @kernel(ptr %args, i64 %begin, i64 %end) {",
        "entry:", "%place = load ptr, ptr %args", *places, *loads, "br label %loop",
        "loop:", "%i = phi i64 [%begin, %entry], [%next, %loop]", *phis, *steps,
        "%next = add i64 %i, 1", "%more = icmp slt i64 %next, %end", "br i1 %more, label %loop, label %done",
        "done:", *stores, "ret void", "}",
    ])  # fmt: skip


def _transfer(what: str, width: int) -> str:
    """Return a kernel that goes ``end`` − ``begin`` times over a buffer: reads it (volatile, so it is read), or copies it."""
    vector = f"<{width // 8} x i64>"
    body = []
    for s in range(STREAMS):
        offset = f"%o{s}" if s else "%o"
        if s:
            body.append(f"%o{s} = add i64 %o, {s * width}")
        body += [
            f"%p{s} = getelementptr i8, ptr %source, i64 {offset}",
            f"%v{s} = load volatile {vector}, ptr %p{s}, align 8",
        ]
        if what == "copy":
            body += [
                f"%q{s} = getelementptr i8, ptr %target, i64 {offset}",
                f"store {vector} %v{s}, ptr %q{s}, align 8",
            ]
    return "\n".join([
        "define void @kernel(ptr %args, i64 %begin, i64 %end) {",
        "entry:", "%source = load ptr, ptr %args",
        "%a1 = getelementptr i64, ptr %args, i64 1", "%target = load ptr, ptr %a1",
        "%a2 = getelementptr i64, ptr %args, i64 2", "%size = load i64, ptr %a2", "br label %again",
        "again:", "%i = phi i64 [%begin, %entry], [%j, %over]", "br label %loop",
        "loop:", "%o = phi i64 [0, %again], [%next, %loop]", *body, f"%next = add i64 %o, {STREAMS * width}",
        "%more = icmp slt i64 %next, %size", "br i1 %more, label %loop, label %over",
        "over:", "%j = add i64 %i, 1", "%round = icmp slt i64 %j, %end", "br i1 %round, label %again, label %done",
        "done:", "ret void", "}",
    ])  # fmt: skip


# ---- how it is timed


def _best_rate(work: _Work, threads: int, seconds: float) -> float:
    """Return the most that was done per second in a run of some 10 ms, all threads together."""
    steps, taken = 1, _run(work, threads, 1)
    while taken < min(0.1 * seconds, 0.01) and steps < 1 << 40:
        steps *= 4
        taken = _run(work, threads, steps)
    runs, until = [taken], time.perf_counter() + seconds
    while len(runs) < 4 or time.perf_counter() < until:
        runs.append(_run(work, threads, steps))
    return work.amount * threads * steps / min(runs)


def _run(work: _Work, threads: int, steps: int) -> float:
    """Return the seconds from the first thread's start to the last one's end."""
    function = work.function
    addresses = [arguments.ctypes.data for arguments in work.arguments]
    if threads == 1:
        start = time.perf_counter()
        function(addresses[0], 0, steps)
        return time.perf_counter() - start
    together, times = threading.Barrier(threads), [(0.0, 0.0)] * threads

    def one(i: int) -> None:
        together.wait()
        start = time.perf_counter()
        function(addresses[i], 0, steps)
        times[i] = (start, time.perf_counter())

    others = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(1, threads)]
    for other in others:
        other.start()
    one(0)
    for other in others:
        other.join()
    return max(end for _, end in times) - min(start for start, _ in times)


def _call_overhead() -> float:
    work = _flops("float32")
    function, address = work.function, work.arguments[0].ctypes.data
    best = math.inf
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(100):
            function(address, 0, 1)
        best = min(best, (time.perf_counter() - start) / 100)
    return best

"""How fast this machine is: arithmetic, memory at each level, a call; what cost models divide by.

Each number is the best of several runs of a loop in machine code that does nothing else: chains of multiply-adds that do
not wait for each other; reading, or copying, a buffer that fits in a level of the memory.
"""

import ctypes
import json
import math
import re
import sys
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
from wengert.runtime.threads import get_num_threads
from wengert.runtime.workers import parallel_for

__all__ = ["Machine", "known", "measure", "measured", "nominal"]

FILE: Final = "machine_{}.json"
CHAINS: Final = 12  # multiply-adds at once: enough for a latency of 4 to 6 cycles and two or three units
STREAMS: Final = 8  # vectors read at once
ELEMENTS: Final = {"float32": ("float", 4), "float64": ("double", 8)}
DEFAULT_CACHES: Final = (32 << 10, 512 << 10, 8 << 20)  # where the operating system does not say


@dataclass(frozen=True)
class Machine:
    """What was measured. Flops and bytes are per second, sizes are bytes, times seconds.

    Attributes:
        threads: how many threads loops run on. l1, l2, l3: the sizes of the data caches.
        float32, float64: flops of one thread; multiply and add count as two. float32_all, float64_all: of all threads.
        read_l1, read_l2, read_l3, read_memory: one thread's reading from a buffer that fits there.
        copy_l1, copy_l2, copy_l3, copy_memory: one thread's copying; what is read and what is written are both counted.
        read_all, copy_all: of all threads, memory.
        call: from Python into a kernel and back. parallel: the same by way of ``parallel_for``, with a chunk for each thread.
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
    parallel: float


@lru_cache(maxsize=1)
def measured() -> Machine:
    """Return the machine as it was last measured, or as a quick look (0.2 s) finds it if it never was.

    ``python -m wengert machine`` measures with care, and leaves what it finds beside the kernels in their cache.
    """
    return _kept(get_num_threads()) or measure(seconds=0.1)


@lru_cache(maxsize=8)
def _known(threads: int) -> Machine:
    return _kept(threads) or nominal(threads)


def known() -> Machine:
    """Return the machine as it was last measured with so many threads, or a usual one: at once, and every time the same."""
    return _known(get_num_threads())


def nominal(threads: int) -> Machine:
    """Return a machine of a usual kind: every thread has a core, which multiplies and adds two vectors in a cycle, at 3 GHz."""
    vector = host().vector_bytes
    peak, (l1, l2, l3) = 2 * 2 * 3e9 * vector, _caches()
    rates = {"l1": 4e9 * vector, "l2": 2e9 * vector, "l3": 1.5e9 * vector, "memory": 12e9}
    reads, copies = ({f"{what}_{level}": rate for level, rate in rates.items()} for what in ("read", "copy"))
    memory = min(threads, 2) * rates["memory"]
    return Machine(
        threads=threads, l1=l1, l2=l2, l3=l3, float32=peak / 4, float64=peak / 8, float32_all=threads * peak / 4,
        float64_all=threads * peak / 8, **reads, **copies, read_all=memory, copy_all=memory, call=1e-6, parallel=2e-6,
    )  # fmt: skip


def _kept(threads: int) -> Machine | None:
    text = store().read(_file(threads))
    if text is not None:
        with suppress(KeyError, TypeError, ValueError):  # what another version wrote
            return _read(json.loads(text))
    return None


def measure(seconds: float = 4.0, *, keep: bool = False) -> Machine:
    """Measure this machine.

    Args:
        seconds: how long to take, about; some of the time goes into filling the buffers.
        keep: leave the result where :func:`measured` finds it.
    """
    threads = get_num_threads()
    l1, l2, l3 = _caches()
    share = seconds / 15
    memory = min(max(2 * l3, 32 << 20), 64 << 20) if seconds < 1 else min(max(4 * l3, 64 << 20), 512 << 20)
    source, target = _buffer(memory), _buffer(memory)
    sizes = {"l1": l1 // 2, "l2": l2 // 2, "l3": max(l2, l3 // 4), "memory": memory}
    numbers: dict[str, Any] = {"threads": threads, "l1": l1, "l2": l2, "l3": l3}
    for dtype in ELEMENTS:
        numbers[dtype] = _best_rate(_flops(dtype, 1), 1, share)
        together = _best_rate(_flops(dtype, threads), threads, share)
        numbers[f"{dtype}_all"] = max(together, numbers[dtype])  # where others keep the second thread from running
    for level, size in sizes.items():
        numbers[f"read_{level}"] = _best_rate(_moving("read", source, target, size, 1), 1, share)
        numbers[f"copy_{level}"] = _best_rate(_moving("copy", source, target, size // 2, 1), 1, share)
    for what in ("read", "copy"):
        together = _best_rate(_moving(what, source, target, memory, threads), threads, share)
        numbers[f"{what}_all"] = max(together, numbers[f"{what}_memory"])
    numbers["call"], numbers["parallel"] = _overhead(1), _overhead(threads)
    found = Machine(**numbers)
    if keep:
        store().write(_file(threads), json.dumps(asdict(found), indent=2).encode())
        measured.cache_clear()
        _known.cache_clear()
    return found


def _file(threads: int | None = None) -> str:
    return FILE.format(blake2b(f"{host().key} {threads or get_num_threads()}".encode(), digest_size=8).hexdigest())


def _read(numbers: Any) -> Machine:
    """Return what a file holds.

    Raises:
        KeyError, TypeError, ValueError: if it is not what :func:`measure` writes.
    """
    values = {field.name: numbers[field.name] for field in fields(Machine)}
    if not all(isinstance(value, int | float) and 0 < value < math.inf for value in values.values()):
        raise ValueError("a number that no machine has")
    return Machine(**values)


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


# ---- what is run: loops in the form that every kernel has; [begin, end) counts parts, of which each thread has one


@dataclass(frozen=True)
class _Work:
    """A kernel and its argument array.

    Attributes:
        function: takes the array's address, begin and end. kernel: its address.
        arguments: where to read and write, bytes in a part, and how often to do it.
        amount: what is done once in one part, in flops or bytes. memory: what the arguments point into.
    """

    function: Any
    kernel: int
    arguments: Any
    amount: float
    memory: Any


def _flops(dtype: str, threads: int) -> _Work:
    element, size = ELEMENTS[dtype]
    lanes = host().vector_bytes // size
    part = CHAINS * host().vector_bytes
    places = np.zeros(threads * part, np.uint8)
    key = f"multiply-adds {dtype} {CHAINS}"
    return _work(key, lambda: _multiply_adds(element, lanes), places, places, part, 2.0 * lanes * CHAINS)


def _moving(what: str, source: Any, target: Any, size: int, threads: int) -> _Work:
    """Return the work of reading or copying ``size`` bytes, a part for each thread."""
    step = STREAMS * host().vector_bytes
    part = size // threads // step * step
    amount = float(part * (2 if what == "copy" else 1))
    return _work(f"{what} {STREAMS}", lambda: _transfer(what, host().vector_bytes), source, target, part, amount)


def _work(key: str, build: Callable[[], str], source: Any, target: Any, part: int, amount: float) -> _Work:
    made = library(f"machine: {key}", ["kernel"], build)
    function = made.function("kernel", None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    arguments = np.array([source.ctypes.data, target.ctypes.data, part, 1], np.int64)
    return _Work(function, made.addresses["kernel"], arguments, amount, (source, target))


def _kernel(before: list[str], again: list[str], after: list[str]) -> str:
    """Return a kernel: for each part, what comes before, what is done again and again, and what comes after.

    The lines find their part of the memory at %from and %to, its bytes in %part, and the block before a repetition is
    %each or %latch.
    """
    return "\n".join([
        "define void @kernel(ptr %args, i64 %begin, i64 %end) {",
        "entry:", "%source = load ptr, ptr %args",
        "%a1 = getelementptr i64, ptr %args, i64 1", "%target = load ptr, ptr %a1",
        "%a2 = getelementptr i64, ptr %args, i64 2", "%part = load i64, ptr %a2",
        "%a3 = getelementptr i64, ptr %args, i64 3", "%times = load i64, ptr %a3", "br label %each",
        "each:", "%i = phi i64 [%begin, %entry], [%j, %over]", "%at = mul i64 %i, %part",
        "%from = getelementptr i8, ptr %source, i64 %at", "%to = getelementptr i8, ptr %target, i64 %at",
        *before, "br label %again",
        "again:", "%r = phi i64 [0, %each], [%q, %latch]", *again, "br label %latch",
        "latch:", "%q = add i64 %r, 1", "%once_more = icmp slt i64 %q, %times",
        "br i1 %once_more, label %again, label %over",
        "over:", *after, "%j = add i64 %i, 1", "%another = icmp slt i64 %j, %end",
        "br i1 %another, label %each, label %done",
        "done:", "ret void", "}",
    ])  # fmt: skip


def _multiply_adds(element: str, lanes: int) -> str:
    """Return a kernel of ``CHAINS`` chains of x ← x·½ + ½; where they start and end is in memory, so that they are run."""
    vector, name = f"<{lanes} x {element}>", f"@llvm.fmuladd.v{lanes}f{32 if element == 'float' else 64}"
    half = "<" + ", ".join([f"{element} 0.5"] * lanes) + ">"
    before = [f"%p{c} = getelementptr {vector}, ptr %from, i64 {c}" for c in range(CHAINS)]
    before += [f"%s{c} = load {vector}, ptr %p{c}, align 8" for c in range(CHAINS)]
    again = [f"%x{c} = phi {vector} [%s{c}, %each], [%y{c}, %latch]" for c in range(CHAINS)]
    again += [f"%y{c} = call {vector} {name}({vector} %x{c}, {vector} {half}, {vector} {half})" for c in range(CHAINS)]
    after = [f"store {vector} %y{c}, ptr %p{c}, align 8" for c in range(CHAINS)]
    return f"declare {vector} {name}({vector}, {vector}, {vector})\n" + _kernel(before, again, after)


def _transfer(what: str, width: int) -> str:
    """Return a kernel that reads its part of the memory (volatile, so that it is read), or copies it."""
    vector = f"<{width // 8} x i64>"
    again = ["br label %loop", "loop:", "%o = phi i64 [0, %again], [%next, %loop]"]
    for s in range(STREAMS):
        again.append(f"%o{s} = add i64 %o, {s * width}")
        again.append(f"%p{s} = getelementptr i8, ptr %from, i64 %o{s}")
        again.append(f"%v{s} = load volatile {vector}, ptr %p{s}, align 8")
        if what == "copy":
            again.append(f"%t{s} = getelementptr i8, ptr %to, i64 %o{s}")
            again.append(f"store {vector} %v{s}, ptr %t{s}, align 8")
    again += [f"%next = add i64 %o, {STREAMS * width}", "%more = icmp slt i64 %next, %part"]
    again += ["br i1 %more, label %loop, label %whole", "whole:"]
    return _kernel([], again, [])


# ---- how it is timed


def _best_rate(work: _Work, threads: int, seconds: float) -> float:
    """Return the most that was done per second in a run of some 10 ms, all threads together."""
    _run(work, threads, 1)  # what is done only once: workers start, pages are brought in
    times, taken = 1, _run(work, threads, 1)
    while taken < min(0.1 * seconds, 0.01) and times < 1 << 40:
        times *= 4
        taken = _run(work, threads, times)
    runs, until = [taken], time.perf_counter() + seconds
    while len(runs) < 4 or time.perf_counter() < until:
        runs.append(_run(work, threads, times))
    return work.amount * threads * times / min(runs)


def _run(work: _Work, threads: int, times: int) -> float:
    """Return the seconds that a part per thread takes."""
    work.arguments[3] = times
    address = work.arguments.ctypes.data
    start = time.perf_counter()
    if threads == 1:
        work.function(address, 0, 1)
    else:
        parallel_for(work.kernel, address, threads, 1)
    return time.perf_counter() - start


def _overhead(threads: int) -> float:
    """Return what a call takes that does nearly nothing, on one thread or handed to all of them."""
    work = _flops("float32", threads)
    return min(sum(_run(work, threads, 1) for _ in range(50)) / 50 for _ in range(10))

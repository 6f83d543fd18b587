"""A native kernel that writes down how it was called, and loops whose every chunk can be checked."""

import ctypes
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from wengert.codegen.engine import Library, load
from wengert.runtime.workers import parallel_for

# args: counts, ends, grain. Chunk number n adds 1 to counts[n] and its end to ends[n].
COUNTING = """
define void @counting(ptr %args, i64 %begin, i64 %end) {
  %ends_field = getelementptr i64, ptr %args, i64 1
  %grain_field = getelementptr i64, ptr %args, i64 2
  %counts = load ptr, ptr %args
  %ends = load ptr, ptr %ends_field
  %grain = load i64, ptr %grain_field
  %chunk = udiv i64 %begin, %grain
  %count = getelementptr i64, ptr %counts, i64 %chunk
  %runs = atomicrmw add ptr %count, i64 1 monotonic
  %final = getelementptr i64, ptr %ends, i64 %chunk
  %sum = atomicrmw add ptr %final, i64 %end monotonic
  ret void
}

; args: how many chunks have come, and how many waited in vain for a second one to come.
define void @meet(ptr %args, i64 %begin, i64 %end) {
entry:
  %alone = getelementptr i64, ptr %args, i64 1
  %first = atomicrmw add ptr %args, i64 1 seq_cst
  br label %look
look:
  %round = phi i64 [ 0, %entry ], [ %next, %wait ]
  %here = load atomic i64, ptr %args seq_cst, align 8
  %both = icmp sge i64 %here, 2
  br i1 %both, label %done, label %wait
wait:
  %next = add i64 %round, 1
  %more = icmp slt i64 %next, 4000000000
  br i1 %more, label %look, label %missed
missed:
  %failures = atomicrmw add ptr %alone, i64 1 seq_cst
  br label %done
done:
  ret void
}

; args: a counter of chunks, and how many empty rounds a step is.
define void @slow(ptr %args, i64 %begin, i64 %end) {
entry:
  %rounds_field = getelementptr i64, ptr %args, i64 1
  %rounds = load i64, ptr %rounds_field
  %steps = sub i64 %end, %begin
  %all = mul i64 %rounds, %steps
  br label %loop
loop:
  %done = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void asm sideeffect "", ""()
  %next = add i64 %done, 1
  %more = icmp slt i64 %next, %all
  br i1 %more, label %loop, label %finish
finish:
  %chunks = atomicrmw add ptr %args, i64 1 monotonic
  ret void
}
"""


@lru_cache(maxsize=1)
def kernels() -> Library:
    """Return the kernels ``counting``, ``meet`` and ``slow``."""
    return load(COUNTING, ["counting", "meet", "slow"])


class Loops:
    """Loops that write down every chunk that they run."""

    def __init__(self, counts: Any, grains: Any) -> None:
        counts, grains = np.asarray(counts, np.int64), np.asarray(grains, np.int64)
        chunks = counts // grains + (counts % grains != 0)
        firsts = np.cumsum(chunks) - chunks
        number = np.arange(chunks.sum()) - np.repeat(firsts, chunks)
        begins, grain = number * np.repeat(grains, chunks), np.repeat(grains, chunks)
        self.expected = begins + np.minimum(grain, np.repeat(counts, chunks) - begins)
        self.runs, self.ends = np.zeros((2, len(number)), np.int64)
        offsets = firsts * 8
        self.args = np.stack([self.runs.ctypes.data + offsets, self.ends.ctypes.data + offsets, grains], 1)
        self.calls = [
            (kernels().addresses["counting"], self.args[i].ctypes.data, int(counts[i]), int(grains[i]))
            for i in range(len(counts))
        ]

    def run(self, between: Callable[[int], object] | None = None) -> None:
        """Run each loop once, and something between them."""
        for number, call in enumerate(self.calls):
            parallel_for(*call)
            if between is not None:
                between(number)

    def check(self, times: int = 1) -> None:
        """Fail unless every chunk has run so many times, with its own bounds; and forget the runs."""
        np.testing.assert_array_equal(self.runs, times)
        np.testing.assert_array_equal(self.ends, self.expected * times)
        self.runs[:] = self.ends[:] = 0

    def stress(self, rounds: int, between: Callable[[int], object] | None = None) -> None:
        """Run and check all loops so many times."""
        for _ in range(rounds):
            self.run(between)
            self.check()


def loop(count: int, grain: int) -> Loops:
    """Return one loop."""
    return Loops([count], [grain])


def random_loops(number: int, seed: int, most_chunks: int = 40) -> Loops:
    """Return loops with random counts and grains, some of them empty or of one chunk."""
    random = np.random.default_rng(seed)
    grains = random.choice([1, 2, 7, 64, 1000], number)
    return Loops(grains * random.integers(0, most_chunks, number) + random.integers(0, 3, number), grains)


class Slow(NamedTuple):
    """A loop that takes time: the number of chunks that have run is ``ran[0]``."""

    ran: np.ndarray[Any, Any]

    def run(self, count: int, grain: int = 1) -> None:
        """Run ``count`` steps."""
        parallel_for(kernels().addresses["slow"], self.ran.ctypes.data, count, grain)


def slow(seconds: float) -> Slow:
    """Return a loop whose every step takes about so many seconds."""
    args = np.array([0, 1_000_000], np.int64)
    function = kernels().function("slow", None)
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        function(ctypes.c_void_p(args.ctypes.data), ctypes.c_int64(0), ctypes.c_int64(1))
        taken.append(time.perf_counter() - start)
    return Slow(np.array([0, max(1, round(1_000_000 * seconds / min(taken)))], np.int64))

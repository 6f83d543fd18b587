"""Graphs of tasks whose results tell whether each ran once, after all that it depends on."""

from functools import lru_cache
from typing import Any

import numpy as np

from wengert.codegen.engine import Library, load

# args: out, size, number, and so many arrays. For each i: s = 1, then s = 31 s + array[size - 1 - i] for each, out[i] += s.
MIXING = """
define void @mixing(ptr %args, i64 %begin, i64 %end) {
entry:
  %size_field = getelementptr i64, ptr %args, i64 1
  %number_field = getelementptr i64, ptr %args, i64 2
  %out = load ptr, ptr %args
  %size = load i64, ptr %size_field
  %number = load i64, ptr %number_field
  %top = sub i64 %size, 1
  br label %each
each:
  %i = phi i64 [ %begin, %entry ], [ %j, %write ]
  %over = icmp sge i64 %i, %end
  br i1 %over, label %done, label %start
start:
  %mirror = sub i64 %top, %i
  br label %look
look:
  %n = phi i64 [ 0, %start ], [ %m, %add ]
  %sum = phi i64 [ 1, %start ], [ %next, %add ]
  %all = icmp eq i64 %n, %number
  br i1 %all, label %write, label %add
add:
  %place = add i64 %n, 3
  %field = getelementptr i64, ptr %args, i64 %place
  %array = load ptr, ptr %field
  %element = getelementptr i64, ptr %array, i64 %mirror
  %value = load i64, ptr %element
  %scaled = mul i64 %sum, 31
  %next = add i64 %scaled, %value
  %m = add i64 %n, 1
  br label %look
write:
  %target = getelementptr i64, ptr %out, i64 %i
  %old = load i64, ptr %target
  %new = add i64 %old, %sum
  store i64 %new, ptr %target
  %j = add i64 %i, 1
  br label %each
done:
  ret void
}
"""


@lru_cache(maxsize=1)
def kernels() -> Library:
    """Return the kernel ``mixing``."""
    return load(MIXING, ["mixing"])


class Mix:
    """Tasks that add a mixture of others' arrays to their own, which is zero before.

    Attributes:
        rows: their table. dependencies: whose arrays each one reads.
    """

    def __init__(self, dependencies: list[list[int]], size: int, grains: Any) -> None:
        self.dependencies = dependencies
        self.arrays = np.zeros((len(dependencies), size), np.int64)
        places = self.arrays.ctypes.data + 8 * size * np.arange(len(dependencies))
        self._args = [
            np.array([places[task], size, len(read), *places[read]], np.int64) for task, read in enumerate(dependencies)
        ]
        address = kernels().addresses["mixing"]
        self.rows = np.array([
            [address, size, grain, args.ctypes.data] for grain, args in zip(grains, self._args, strict=True)
        ], np.int64).reshape(-1, 4)  # fmt: skip

    def expected(self) -> Any:
        """Return what the arrays hold when all tasks have run; the tasks must be numbered in a possible order."""
        found = np.zeros_like(self.arrays)
        with np.errstate(over="ignore"):
            for task, read in enumerate(self.dependencies):
                found[task] = 1
                for other in read:
                    found[task] = found[task] * 31 + found[other][::-1]
        return found

    def check(self) -> None:
        """Fail unless all tasks have run once, in order; forget that they did."""
        np.testing.assert_array_equal(self.arrays, self.expected())
        self.arrays[:] = 0


def random_mix(number: int, seed: int, *, size: int = 12, most: int = 3, near: int | None = None) -> Mix:
    """Return a random graph of so many tasks, each of which depends on up to ``most`` of the last ``near`` ones before."""
    random = np.random.default_rng(seed)
    dependencies: list[list[int]] = []
    for task in range(number):
        low = 0 if near is None else max(0, task - near)
        count = min(int(random.integers(0, most + 1)), task - low)
        dependencies.append(sorted(random.choice(np.arange(low, task), count, replace=False).tolist()))
    return Mix(dependencies, size, random.choice([1, 2, 5, size, 3 * size], number))

"""Who waits for whom, by memory: against a look at all pairs, and against bytes that are really read and written."""

from itertools import pairwise

import numpy as np
import pytest

from wengert.runtime.dependencies import Access, Range, dependencies, ranges


def clash(first: Access, second: Access) -> bool:
    """Whether the order of two pieces of work matters."""

    def meet(some: list[Range], others: list[Range]) -> bool:
        return any(a < d and c < b for a, b in some for c, d in others)

    one, two = (list(first.reads), list(first.writes)), (list(second.reads), list(second.writes))
    return meet(one[1], two[0]) or meet(one[0], two[1]) or meet(one[1], two[1])


def random_work(number: int, seed: int, size: int, most: int = 3) -> list[Access]:
    random = np.random.default_rng(seed)

    def some(count: int) -> list[Range]:
        begins = random.integers(0, size, count)
        return [(int(b), int(b + random.integers(1, max(2, size // 6)))) for b in begins]

    return [Access(some(random.integers(0, most)), some(random.integers(0, most))) for _ in range(number)]


def everyone_before(found: list[list[int]]) -> list[set[int]]:
    before: list[set[int]] = []
    for firsts in found:
        before.append(set(firsts).union(*(before[first] for first in firsts)))
    return before


@pytest.mark.parametrize("seed", range(12))
def test_all_who_clash_wait_and_nobody_else(seed: int) -> None:
    work = random_work(60, seed, [12, 40, 400][seed % 3])
    found = dependencies(work)
    before = everyone_before(found)
    for k, access in enumerate(work):
        assert all(clash(work[first], access) for first in found[k])
        assert {j for j in range(k) if clash(work[j], access)} <= before[k]


@pytest.mark.parametrize("seed", range(6))
def test_every_order_that_is_allowed_gives_the_same_bytes(seed: int) -> None:
    random, size = np.random.default_rng(seed), 60
    work = random_work(40, seed, size)

    def result(order: list[int]) -> np.ndarray:
        memory = np.arange(2 * size)
        for k in order:
            total = 7 * k + sum(int(memory[low:high].sum()) for low, high in work[k].reads) % 1000003
            for low, high in work[k].writes:
                memory[low:high] = total
        return memory

    found = dependencies(work)
    expected = result(list(range(len(work))))
    for _ in range(10):
        left, order = set(range(len(work))), list[int]()
        while left:
            ready = sorted(k for k in left if left.isdisjoint(found[k]))
            order.append(int(random.choice(ready)))
            left.remove(order[-1])
        np.testing.assert_array_equal(result(order), expected)


def test_readers_of_one_array_do_not_wait_for_each_other() -> None:
    x, y = (0, 64), (64, 128)
    work = [
        Access([], [x]),
        *[Access([x], [(k, k + 8)]) for k in range(128, 256, 8)],
        Access([], [x]),
        Access([x], [y]),
    ]
    found = dependencies(work)
    assert found[1:17] == [[0]] * 16
    assert found[17] == list(range(1, 17))  # the writer before is among those they have waited for
    assert found[18] == [17]


def test_work_that_reads_what_it_writes_does_not_wait_for_itself() -> None:
    assert dependencies([Access([(0, 8)], [(0, 8)])] * 3) == [[], [0], [1]]
    assert dependencies([]) == []


def test_where_arrays_lie() -> None:
    x = np.zeros((4, 6), np.float32)
    start = x.__array_interface__["data"][0]
    whole, column, backwards, nothing = ranges([x]), ranges([x[:, 2]]), ranges([x[::-1]]), ranges([x[:0], x[:0]])
    assert whole == backwards == [(start, start + 96)]
    assert column == [(start + 8, start + 8 + 3 * 24 + 4)]  # with what lies between its elements
    assert nothing == []
    assert ranges([x[0], x[1], x[0]]) == [(start, start + 24), (start + 24, start + 48)]


def test_many_take_no_longer_than_they_are() -> None:
    """Each of 4000 reads its neighbours' memory: there are no more edges than accesses, whatever the order of addresses."""
    places = np.random.default_rng(0).permutation(4000).tolist()
    work = [Access([(64 * p, 64 * p + 64) for p in two], [(64 * two[1], 64 * two[1] + 64)]) for two in pairwise(places)]
    assert sum(map(len, dependencies(work))) < 2 * len(work)

"""Memory plans: no two buffers that can live at once overlap, however the tasks run."""

import itertools
import re
import time
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from wengert.runtime import arena as planning
from wengert.runtime.arena import ALIGNMENT, Arena, Buffer, arrange, waits
from wengert.runtime.lives import Dependent, Lives, Scheduled, in_order
from wengert.runtime.scheduler import schedule
from wengert.runtime.tasks import Task, processors

Graph = tuple[list[Buffer], list[list[int]]]


def random_graph(seed: int, number: int = 25, most: int = 4) -> Graph:
    """Return buffers and dependencies: each task makes one buffer, and reads some of those before, perhaps in place."""
    random = np.random.default_rng(seed)
    reads = [
        sorted(set(random.integers(0, task, random.integers(0, most)).tolist())) if task else []
        for task in range(number)
    ]
    sizes = random.choice([0, 1, 64, 100, 128, 1000, 4096], number)
    touched: list[list[int]] = [[task] for task in range(number)]
    for task, firsts in enumerate(reads):
        for first in firsts:
            touched[first].append(task)
    kept = random.random(number) < 0.1
    buffers = [
        Buffer(
            int(sizes[k]), tuple(touched[k]), tuple(reads[k]) if random.random() < 0.7 else (), bool(kept[k]), f"b{k}"
        )
        for k in range(number)
    ]
    return buffers, reads


def execute(plan: Arena, order: Any, reads: list[list[int]]) -> None:
    """Run tasks in an order, each of which fills its buffer; fail if one reads a buffer that somebody else has written."""
    memory = np.full(plan.size, -1, np.int64)

    def bytes_of(k: int) -> Any:
        return memory[plan.offsets[k] : plan.offsets[k] + plan.buffers[k].size]

    for task in order:
        for k in reads[task]:
            np.testing.assert_array_equal(bytes_of(k), k, f"task {task} reads buffer {k}")
        bytes_of(task)[:] = task
    for k, buffer in enumerate(plan.buffers):
        assert not buffer.kept or (bytes_of(k) == k).all()


def random_order(dependencies: list[list[int]], seed: int) -> list[int]:
    """Return the tasks in a random order that the dependencies allow."""
    random, left, order = np.random.default_rng(seed), set(range(len(dependencies))), list[int]()
    while left:
        ready = [task for task in left if not left.intersection(dependencies[task])]
        order.append(int(random.choice(ready)))
        left.remove(order[-1])
    return order


def ancestors(dependencies: list[list[int]]) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in dependencies]
    for task in random_order(dependencies, 0):
        for first in dependencies[task]:
            found[task] |= {first} | found[first]
    return found


def verify(plan: Arena, dependencies: list[list[int]]) -> None:
    """Fail if two buffers overlap, and neither is dead, for every order of tasks, when the other is made."""
    before = ancestors(dependencies)

    def dies_before(a: Buffer, b: Buffer) -> bool:
        return not a.kept and all(task in before[b.tasks[0]] for task in a.tasks)

    for (k, a), (m, b) in itertools.combinations(enumerate(plan.buffers), 2):
        low, high = max(plan.offsets[k], plan.offsets[m]), min(plan.offsets[k] + a.size, plan.offsets[m] + b.size)
        if low < high and not dies_before(a, b) and not dies_before(b, a):
            old, new = (k, m) if plan.in_place[m] == k else (m, k)
            assert plan.in_place[new] == old, f"buffers {k} and {m} overlap"
            maker = plan.buffers[new].tasks[0]
            assert all(task == maker or task in before[maker] for task in plan.buffers[old].tasks)


def sanity(plan: Arena) -> None:
    assert all(offset % ALIGNMENT == 0 for offset in plan.offsets)
    assert plan.lower_bound <= plan.size <= plan.total
    ends = [offset + buffer.size for offset, buffer in zip(plan.offsets, plan.buffers, strict=True)]
    assert max(ends, default=0) <= plan.size
    taken = [other for other in plan.in_place if other is not None]
    assert len(taken) == len(set(taken)), "a place is taken by one buffer only"


@pytest.mark.parametrize("many", [False, True])
def test_random_plans_in_order(many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if many:
        monkeypatch.setattr(planning, "MANY", 0)
    for seed in range(150):
        buffers, reads = random_graph(seed)
        plan = arrange(buffers, in_order(len(reads)))
        sanity(plan)
        execute(plan, range(len(reads)), reads)
        verify(plan, [list(range(task)) for task in range(len(reads))])


def test_random_plans_by_dependencies() -> None:
    for seed in range(100):
        buffers, reads = random_graph(seed)
        plan = arrange(buffers, Dependent(reads))
        sanity(plan)
        verify(plan, reads)
        for order in range(5):
            execute(plan, random_order(reads, order), reads)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("policy", ["topological", "ready", "priority"])
def test_random_plans_by_schedule(policy: str, many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if many:
        monkeypatch.setattr(planning, "MANY", 0)
    for seed in range(50):
        buffers, reads = random_graph(seed)
        seconds = np.random.default_rng(seed).choice([0.0, 0.0, 1.0, 2.5], len(reads))
        found = schedule([Task(k, float(seconds[k]), reads[k]) for k in range(len(reads))], processors(3), policy)
        plan = arrange(buffers, Scheduled(found.start, found.end, found.order))
        sanity(plan)
        held = waits(plan, reads)
        verify(plan, held)
        execute(plan, found.order, reads)
        for order in range(3):
            execute(plan, random_order(held, order), reads)


def test_the_verifier_finds_an_overlap() -> None:
    buffers = [Buffer(100, (0, 2)), Buffer(100, (1, 2))]
    wrong = Arena(buffers, [0, 64], 256, [None, None], 256, [(0, 2), (1, 2)])
    with pytest.raises(AssertionError, match="buffers 0 and 1 overlap"):
        verify(wrong, [[], [0], [1]])
    with pytest.raises(AssertionError, match="task 2 reads buffer 0"):
        execute(wrong, range(3), [[], [], [0, 1]])


@pytest.mark.parametrize(
    ("buffers", "size", "in_place"),
    [
        ([], 0, []),
        ([Buffer(0, (0,))], 0, [None]),
        ([Buffer(1, (0,))], 64, [None]),
        ([Buffer(64, (0, 1)), Buffer(64, (1, 2)), Buffer(64, (2, 3))], 128, [None, None, None]),
        ([Buffer(64, (0, 1)), Buffer(64, (1, 2), over=(0,)), Buffer(64, (2, 3), over=(1,))], 64, [None, 0, 1]),
        ([Buffer(64, (0, 1), kept=True), Buffer(64, (1, 2), over=(0,))], 128, [None, None]),
        ([Buffer(64, (0, 1, 2)), Buffer(64, (1, 2), over=(0,))], 128, [None, None]),
        ([Buffer(128, (0, 1)), Buffer(64, (1, 2), over=(0,))], 192, [None, None]),
        ([Buffer(64, (0, 1)), Buffer(64, (0, 1)), Buffer(64, (1, 2), over=(1, 0))], 128, [None, None, 1]),
        ([Buffer(64, (0, 1)), Buffer(64, (1, 2), over=(0,)), Buffer(64, (1, 2), over=(0,))], 128, [None, 0, None]),
        # a gap of the right size is preferred to a larger one
        (
            [Buffer(640, (0, 4)), Buffer(320, (0, 1)), Buffer(256, (0, 4)), Buffer(64, (0, 1)), Buffer(64, (2, 3))],
            1280, [None] * 5,
        ),
    ],
)  # fmt: skip
def test_small_plans(buffers: list[Buffer], size: int, in_place: list[int | None]) -> None:
    plan = arrange(buffers, in_order(5))
    assert (plan.size, plan.in_place) == (size, in_place)
    assert plan.lower_bound == size


def test_plans_of_training_are_near_the_least() -> None:
    """Activations live until their layer's backward pass."""
    random = np.random.default_rng(0)
    for depth in (5, 30, 200):
        sizes = random.integers(1, 50, depth) * 4096
        buffers = [Buffer(int(sizes[k]), (k, k + 1, 2 * depth - k - 1)) for k in range(depth)]
        buffers += [Buffer(int(sizes[k]), (2 * depth - k - 1, 2 * depth - k)) for k in range(depth)]
        plan = arrange(buffers, in_order(2 * depth + 1))
        assert plan.size <= 1.1 * plan.lower_bound
        assert plan.size < 0.75 * plan.total


def test_branches_that_may_run_at_once_do_not_share() -> None:
    reads: list[list[int]] = [[], [], [0], [1]]
    buffers = [Buffer(64, (0, 2)), Buffer(64, (1, 3)), Buffer(64, (2,)), Buffer(64, (3,))]
    assert arrange(buffers, in_order(4)).size == 192
    assert arrange(buffers, Dependent(reads)).size == 256


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: arrange([Buffer(-1, (0,))], in_order(1)), "-1 bytes"),
        (lambda: arrange([Buffer(1, ())], in_order(1)), "0 tasks"),
        (lambda: Dependent([[1], []]), "task 0 depends on task 1; tasks must be numbered in a possible order"),
        (lambda: Dependent([[]] * 10_001), "10001 tasks are more than"),
    ],
)
def test_what_cannot_be_planned(call: Any, match: str) -> None:
    with pytest.raises(ValueError, match=re.escape(match)):
        call()


@pytest.mark.parametrize(("number", "lives"), [(50_000, in_order(50_001)), (4_000, in_order(4_001)), (2_000, None)])
def test_large_plans_are_made_fast(number: int, lives: Lives | None) -> None:
    sizes = np.random.default_rng(0).integers(1, 100_000, number)
    buffers = [Buffer(int(sizes[k]), (k, k + 1, min(number, 2 * k))) for k in range(number)]
    start = time.perf_counter()
    arrange(buffers, lives or Dependent([[k - 1] if k else [] for k in range(number + 1)]))
    assert time.perf_counter() - start < 20


def test_the_report_and_the_picture_show_the_lives() -> None:
    buffers = [Buffer(1 << 20, (0, 1), name="input & bias"), Buffer(1 << 10, (1, 2)), Buffer(1 << 20, (2,), over=(0,))]
    plan = arrange(buffers, in_order(3))
    lines = plan.report(width=30).splitlines()
    assert lines[0].startswith("arena 1,049,600 bytes for 3 buffers of 2,098,176; at least 1,049,600")
    assert [line.count("━") for line in lines[1:]] == [20, 10, 20]
    assert "input & bias" in lines[1]
    picture = ElementTree.fromstring(plan.svg())
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert [str(title).splitlines()[0] for title in titles] == ["input & bias", "buffer 1", "buffer 2"]

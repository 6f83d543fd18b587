"""Schedules: what must hold of every one, what is known of small ones, and what the executor makes of them."""

import itertools
import json
import math
import time
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.runtime.counting import kernels, slow
from tests.runtime.mixing import random_mix
from wengert.runtime import threads
from wengert.runtime.executor import Table, TaskGraph
from wengert.runtime.policies import Policy
from wengert.runtime.scheduler import Schedule, schedule
from wengert.runtime.tasks import Problem, Resource, Task, processors
from wengert.runtime.timeline import Interval, Timeline, report

POLICIES = ("topological", "ready", "priority")


def random_tasks(seed: int, number: int = 30, *, shared: bool = True) -> list[Task]:
    random = np.random.default_rng(seed)
    tasks = []
    for k in range(number):
        firsts = random.integers(0, k, random.integers(0, 3)).tolist() if k else []
        width = int(random.choice([1, 1, 2, 8])) if shared else 1
        seconds = float(random.choice([0.0, 0.5, 1.0, 2.0, random.random()]))
        allocates, frees = random.integers(0, 100, 2).tolist()
        efficiency = float(random.choice([1.0, 0.6]))
        tasks.append(Task(k, seconds, firsts, allocates, frees, width, efficiency))
    order = random.permutation(number)
    return [tasks[k] for k in order]


def check(found: Schedule) -> None:
    """Fail unless it is a possible schedule, and what it says of itself is true."""
    problem = found.problem
    for task, firsts in enumerate(problem.before):
        assert all(found.end[first] <= found.start[task] + 1e-9 for first in firsts)
    assert sorted(found.order) == sorted(found.urgency) == list(range(len(problem.tasks)))
    assert all(found.start[a] <= found.start[b] for a, b in itertools.pairwise(found.order))
    assert found.makespan == max(found.end, default=0.0)
    assert found.makespan >= found.critical_seconds - 1e-9
    for resource in range(len(problem.resources)):
        times = sorted((span.start, span.end) for span in found.spans if span.resource == resource)
        assert all(first[1] <= second[0] + 1e-9 for first, second in itertools.pairwise(times))
    for task, given in enumerate(problem.tasks):
        spans = [span for span in found.spans if span.task == task]
        seconds = {span.resource: problem.costs[task].on(span.resource) for span in spans}
        done = sum(
            (s.end - s.start) / seconds[s.resource] * (1 if s.resource == found.assignment[task] else given.efficiency)
            for s in spans
        )
        assert done == pytest.approx(1.0) or not spans
        assert all(found.start[task] <= s.start <= s.end <= found.end[task] for s in spans)
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in found.utilisation.values())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("number", [1, 2, 5])
def test_random_schedules_are_possible(policy: str, number: int) -> None:
    for seed in range(60):
        check(schedule(random_tasks(seed), processors(number), policy))


@pytest.mark.parametrize("policy", ["ready", "priority"])
@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_nobody_idles_while_there_is_work(policy: str, number: int) -> None:
    """Graham's bound, which holds of every schedule in which no resource idles while a task is ready.

    R. L. Graham, "Bounds on multiprocessing timing anomalies", SIAM Journal on Applied Mathematics 17 (1969).
    """
    for seed in range(60):
        found = schedule(random_tasks(seed, shared=False), processors(number), policy)
        work = sum(found.problem.shortest)
        assert found.makespan <= work / number + found.critical_seconds * (1 - 1 / number) + 1e-9


def least(tasks: Sequence[Task], number: int) -> float:
    """Return the best makespan of all lists of tasks, by trying each; for tasks that are not shared."""
    problem = Problem(tasks, processors(number))
    best = math.inf
    for urgency in itertools.permutations(range(len(tasks))):

        class Fixed(Policy):
            ranks = urgency

            def urgencies(self, problem: Problem) -> Sequence[float]:
                return [float(rank) for rank in self.ranks]

        best = min(best, schedule(problem.tasks, problem.resources, Fixed()).makespan)
    return best


def test_the_longest_path_first_is_near_the_best_list() -> None:
    ratios = []
    for seed in range(12):
        tasks = random_tasks(seed, 6, shared=False)
        best = least(tasks, 2)
        ratios.append(schedule(tasks, processors(2), "priority").makespan / best if best else 1.0)
    assert max(ratios) <= 1.34  # 4/3 - 1/(3m) for independent tasks (Graham 1969)
    assert np.mean(ratios) < 1.05


def test_two_towers_overlap() -> None:
    """Forward and backward of two towers that meet in a loss: one after the other by topological, at once by the others."""
    tasks = [Task(f"{tower}{k}", 1.0, [f"{tower}{k - 1}"] if k else []) for tower in "ab" for k in range(5)]
    tasks.append(Task("loss", 1.0, ["a4", "b4"]))
    tasks += [Task(f"d{t}{k}", 1.0, [f"d{t}{k - 1}" if k else "loss", f"{t}{4 - k}"]) for t in "ab" for k in range(5)]
    assert [schedule(tasks, processors(2), policy).makespan for policy in POLICIES] == [21.0, 11.0, 11.0]
    assert schedule(tasks, processors(2)).utilisation == pytest.approx({"cpu thread 0": 1, "cpu thread 1": 10 / 11})


def test_the_longest_path_goes_first() -> None:
    tasks = [Task("short", 2.0), Task("other", 2.0), Task("long", 2.0), Task("end", 4.0, ["long"])]
    assert [schedule(tasks, processors(2), policy).makespan for policy in POLICIES] == [10.0, 8.0, 6.0]
    found = schedule(tasks, processors(2))
    assert [found.problem.tasks[task].name for task in found.critical_path] == ["long", "end"]
    assert (found.critical_seconds, found.order[0], found.urgency[0]) == (6.0, 2, 2)


@pytest.mark.parametrize(
    ("threads", "efficiency", "number", "makespan"),
    [
        (1, 1.0, 4, 8.0), (2, 1.0, 4, 4.0), (4, 1.0, 4, 2.0), (9, 1.0, 4, 2.0), (2, 0.5, 4, 16 / 3), (4, 0.0, 4, 8.0),
        (4, 1.0, 1, 8.0),
    ],
)  # fmt: skip
def test_a_shared_task(threads: int, efficiency: float, number: int, makespan: float) -> None:
    for policy in POLICIES:
        found = schedule([Task("t", 8.0, threads=threads, efficiency=efficiency)], processors(number), policy)
        assert found.makespan == pytest.approx(makespan)
        assert found.critical_seconds == pytest.approx(makespan)
        check(found)


def test_helpers_leave_for_what_is_ready() -> None:
    tasks = [Task("big", 6.0, threads=2), Task("small", 1.0), Task("next", 2.0, ["small"])]
    found = schedule(tasks, processors(2), "ready")
    # small and next run beside big for 3 s, then their thread helps with the 3 s that are left
    assert (found.makespan, found.end[2]) == (4.5, 3.0)
    check(found)


def test_costs_by_kind_and_by_name() -> None:
    resources = [Resource("slow"), Resource("fast"), Resource("gpu", "cuda")]
    tasks = [
        Task("a", {"fast": 1.0, "cpu": 5.0}), Task("b", {"cuda": 2.0}), Task("c", {"cuda": 1.0, "slow": 0.5}, ["b"]),
    ]  # fmt: skip
    found = schedule(tasks, resources)
    assert [resources[k].name for k in found.assignment] == ["fast", "gpu", "slow"]
    assert found.makespan == 2.5


def test_devices_have_queues_of_their_own() -> None:
    resources = [*processors(1, "cpu:0"), *processors(1, "cpu:1"), Resource("link", "link", "link")]
    tasks = [
        Task("a", 1.0, device="cpu:0"), Task("copy", {"link": 0.5}, ["a"], device="link"),
        Task("b", 1.0, ["copy"], device="cpu:1"), Task("c", 2.0, device="cpu:0"),
    ]  # fmt: skip
    found = schedule(tasks, resources)
    assert (found.start, found.makespan) == ([0.0, 1.0, 1.5, 1.0], 3.0)
    check(found)


def test_peak_memory() -> None:
    tasks = [
        Task("a", 1.0, allocates=10),
        Task("b", 1.0, ["a"], 20, 10),
        Task("c", 1.0, ["a"], 40),
        Task("d", 1.0, ["b", "c"], 5, 60),
    ]
    assert schedule(tasks, processors(1), "topological").peak_memory == {"cpu": 65}
    assert schedule(tasks, processors(2)).peak_memory == {"cpu": 70}


@pytest.mark.parametrize(
    ("tasks", "error", "match"),
    [
        ([Task("a", 1, ["b"]), Task("b", 1, ["c"]), Task("c", 1, ["a"])], ValueError, "wait for each other: a → c → b → a"),
        ([Task("a", 1, ["a"])], ValueError, "a → a"),
        ([Task("a", 1, ["x"])], ValueError, "task 'a' depends on 'x', which is none of the tasks"),
        ([Task("a", 1), Task("a", 1)], ValueError, "two tasks are called 'a'"),
        ([Task("a", -1)], ValueError, "task 'a' costs"),
        ([Task("a", math.nan)], ValueError, "expected finite numbers from 0 on"),
        ([Task("a", {"cpu": math.inf})], ValueError, "expected finite numbers from 0 on"),
        ([Task("a", {"cuda": 1})], ValueError, "no resource can run task 'a' of cpu; there are: cpu of cpu"),
        ([Task("a", 1, device="cuda")], ValueError, "no resource can run task 'a' of cuda"),
        ([Task("a", 1, threads=0)], ValueError, "may be shared by 0 threads"),
        ([Task("a", 1, efficiency=1.5)], ValueError, "has efficiency 1.5"),
        ([Task("a", 1, allocates=-1)], ValueError, "allocates -1 and frees 0 bytes"),
    ],
)  # fmt: skip
def test_what_cannot_be_scheduled(tasks: list[Task], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        schedule(tasks, processors(2))


def test_wrong_resources_and_policies() -> None:
    with pytest.raises(ValueError, match="two resources are called"):
        schedule([Task("a", 1)], processors(1) + processors(1))
    with pytest.raises(ValueError, match="no resource can run task 'a' of cpu; there are: none"):
        schedule([Task("a", 1)], [])
    with pytest.raises(ValueError, match="there is no policy 'fastest'; choose from topological, ready, priority"):
        schedule([], [], "fastest")
    with pytest.raises(TypeError, match="must be a name or a Policy, got int"):
        schedule([], [], 3)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match=r"Policy must say .* define urgencies"):
        schedule([], [], Policy())


def test_a_policy_of_ones_own() -> None:
    class Shortest(Policy):
        name = "shortest first"

        def urgencies(self, problem: Problem) -> Sequence[float]:
            return [-seconds for seconds in problem.shortest]

    class Wrong(Policy):
        def urgencies(self, problem: Problem) -> Sequence[float]:
            return []

    found = schedule([Task("a", 3.0), Task("b", 1.0), Task("c", 2.0)], processors(1), Shortest())
    assert (found.order, found.policy) == ([1, 2, 0], "shortest first")
    with pytest.raises(ValueError, match="policy 'policy' gave 0 urgencies for 1 tasks"):
        schedule([Task("a", 1)], processors(1), Wrong())


def test_nothing_to_schedule() -> None:
    found = schedule([], processors(2))
    assert (found.makespan, found.order, found.critical_path, found.utilisation["cpu thread 0"]) == (0.0, [], [], 0.0)
    assert "0 tasks on 2 resources" in report(found)


def test_many_tasks_are_scheduled_fast() -> None:
    tasks = [Task(k, 1.0, [k - 1] if k % 50 else [], threads=1 + k % 2) for k in range(50_000)]
    start = time.process_time()
    schedule(tasks, processors(8))
    assert time.process_time() - start < 15


# ---- with the executor


@pytest.fixture(params=[1, 2, 4])
def number(request: pytest.FixtureRequest) -> Any:
    """Run a test with several numbers of threads."""
    before = threads.get_num_threads()
    threads.set_num_threads(request.param)
    yield request.param
    threads.set_num_threads(before)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_gives_the_same_values(number: int, policy: str) -> None:
    for seed in range(5):
        mix = random_mix(200, seed)
        tasks = [Task(k, 1e-6, mix.dependencies[k], threads=number) for k in range(200)]
        found = schedule(tasks, processors(number), policy)
        if policy == "topological":
            Table(np.ascontiguousarray(mix.rows[found.order])).run()
        else:
            TaskGraph(mix.rows, mix.dependencies, found.urgency).run()
        mix.check()


def simulated_and_measured() -> tuple[Any, Timeline]:
    """Return the schedule from costs that a table of tasks measured, and how a graph of them ran: at their quietest moments."""
    work = slow(0.00005)
    rows = np.array([[kernels().addresses["slow"], 1 + k % 3, 1, work.ran.ctypes.data] for k in range(9)], np.int64)
    dependencies = [[k - 2] if k > 1 else [] for k in range(9)]
    table, graph = Table(rows), TaskGraph(rows, dependencies)
    runs = [(table.timed(), graph.timed()) for _ in range(500)]
    seconds = (np.min([costs[:, 1] - costs[:, 0] for costs, _ in runs], axis=0) * 1e-9).tolist()
    times = min((times for _, times in runs), key=lambda times: int(np.ptp(times[:, :2])))
    found = schedule([Task(k, seconds[k], dependencies[k]) for k in range(9)], processors(1))
    return found, Timeline.measured("quietest", [str(k) for k in range(9)], times)


def test_the_simulation_is_near_what_is_measured() -> None:
    """On one thread; again if others were busy meanwhile, so that the processor's pace changed."""
    before = threads.get_num_threads()
    threads.set_num_threads(1)
    try:
        for _ in range(6):
            found, measured = simulated_and_measured()
            if found.makespan == pytest.approx(measured.makespan, rel=0.2):
                break
    finally:
        threads.set_num_threads(before)
    assert found.makespan == pytest.approx(measured.makespan, rel=0.2)
    assert "the simulation is" in report(found, measured)


# ---- when others work too


@pytest.mark.parametrize("crowded", [1.0, 0.75, 0.5])
def test_resources_that_all_work_slow_each_other_down(crowded: float) -> None:
    """a runs beside b and c until these end, then alone; in the meantime each does ``crowded`` seconds of work in a second."""
    tasks = [Task("a", 5, crowded=crowded), Task("b", 2, crowded=crowded), Task("c", 2, ["b"], crowded=crowded)]
    found = schedule(tasks, processors(2))
    assert found.end == pytest.approx([4 / crowded + 1, 2 / crowded, 4 / crowded])
    assert schedule(tasks[:1], processors(2)).makespan == 5  # alone
    shared = schedule([Task("a", 4, threads=2, crowded=crowded)], processors(2))
    assert shared.makespan == pytest.approx(2 / crowded)


def test_some_of_many_resources_are_half_a_crowd() -> None:
    """Two of three work: half of the others, so half of what is lost when all work is lost."""
    found = schedule([Task("a", 3, crowded=0.5), Task("b", 3, crowded=0.5)], processors(3))
    assert found.makespan == pytest.approx(3 / 0.75)


@pytest.mark.parametrize("crowded", [0.0, -1.0, 1.5])
def test_a_speed_in_a_crowd_that_there_is_not(crowded: float) -> None:
    with pytest.raises(ValueError, match=r"task 'a' has speed .* when crowded"):
        schedule([Task("a", 1, crowded=crowded)], processors(1))


# ---- timelines


@pytest.fixture
def timeline() -> Timeline:
    return Timeline.of(schedule([Task("a<1>", 1.0), Task("b", 2.0), Task("c", 1.0, ["a<1>"])], processors(3)))


def test_a_timeline(timeline: Timeline) -> None:
    assert timeline.makespan == 2.0
    assert timeline.utilisation == {"cpu thread 0": 1.0, "cpu thread 1": 1.0, "cpu thread 2": 0.0}
    assert sorted(interval[0] for interval in timeline.intervals) == ["a<1>", "b", "c"]


def test_a_measured_timeline() -> None:
    times = np.array([[5_000, 6_000, 1], [4_000, 8_000, 0]])
    found = Timeline.measured("run", ["x", "y"], times, threads=3)
    assert found.resources == ["thread 0", "thread 1", "thread 2"]
    assert found.makespan == pytest.approx(4e-6)
    assert found.utilisation == pytest.approx({"thread 0": 1.0, "thread 1": 0.25, "thread 2": 0.0})
    assert Timeline.measured("table", ["x"], np.array([[1, 5]])).intervals == [Interval("x", "thread 0", 0.0, 4e-9)]


def test_a_chrome_trace(timeline: Timeline) -> None:
    events = json.loads(timeline.chrome_trace())["traceEvents"]
    complete = {event["name"]: (event["tid"], event["ts"], event["dur"]) for event in events if event["ph"] == "X"}
    assert complete == {"b": (1, 0.0, 2e6), "a<1>": (0, 0.0, 1e6), "c": (0, 1e6, 1e6)}
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert names == ["cpu thread 0", "cpu thread 1", "cpu thread 2"]


def test_a_picture(timeline: Timeline) -> None:
    picture = ElementTree.fromstring(timeline.svg())
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert sorted(str(title).splitlines()[0] for title in titles) == ["a<1>", "b", "c"]
    assert ElementTree.fromstring(Timeline("empty", [], []).svg()) is not None


def test_a_report() -> None:
    found = schedule([Task("a", 0.001, allocates=2048), Task("b", 0.003, ["a"])], processors(2))
    assert report(found).splitlines() == [
        "2 tasks on 2 resources, policy priority",
        "makespan       4 ms",
        "critical path  4 ms in 2 tasks, 100% of the makespan",
        "peak memory    2,048 bytes of cpu",
        "utilisation    100.0%  cpu thread 0",
        "utilisation      0.0%  cpu thread 1",
        "heaviest tasks of the critical path:",
        "        3 ms  b",
        "        1 ms  a",
    ]

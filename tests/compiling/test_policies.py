"""Policies: values do not depend on them nor on threads, and nodes overlap where that is faster."""

import json
import pickle
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn
from wengert.compiling.function import Compiled
from wengert.errors import OutOfMemoryError
from wengert.runtime import overlap
from wengert.runtime.concurrent import Concurrent
from wengert.runtime.machine import nominal
from wengert.runtime.policies import Policy
from wengert.runtime.segments import Native
from wengert.runtime.threads import get_num_threads, set_num_threads

F = nn.functional
Program = tuple[Callable[..., Any], tuple[Any, ...], list[Any]]


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plan for two threads of a usual machine, whatever this one is."""
    before = get_num_threads()
    set_num_threads(2)
    monkeypatch.setattr(overlap, "known", lambda: nominal(get_num_threads()))
    yield
    set_num_threads(before)


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes overlap even if nothing is gained."""
    monkeypatch.setattr(overlap, "GAIN", 0.0)
    monkeypatch.setattr(overlap, "LEAST", -1.0)


def plans(function: Compiled) -> list[Any]:
    return [program.plan for found in function.programs.values() for program in found]


def kinds(function: Compiled) -> list[type]:
    return [type(step) for plan in plans(function) for step in plan.steps]


# ---- programs: a function, its arguments, and the tensors that it changes


def towers(seed: int, width: int = 24, layers: int = 3, make: str = "SGD", batch: int = 6) -> Program:
    """Return the training step of two networks whose results meet in the end."""
    wg.manual_seed(seed)
    sides = [nn.Sequential(*(m for _ in range(layers) for m in (nn.Linear(width, width), nn.Tanh()))) for _ in "ab"]
    parameters = [p for side in sides for p in side.parameters()]
    optimizer = getattr(wg.optim, make)(parameters, lr=0.05)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = ((sides[0](x) - sides[1](y)) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, (wg.randn(batch, width), wg.randn(batch, width)), parameters


def recurrent(seed: int) -> Program:
    """Return the training step of a loop over time, whose weight gradients are sums."""
    wg.manual_seed(seed)
    inward, across, out = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 3)
    parameters = [p for layer in (inward, across, out) for p in layer.parameters()]
    optimizer = wg.optim.AdamW(parameters, lr=0.01)

    def step(xs: Any, targets: Any) -> Any:
        optimizer.zero_grad()
        state = wg.zeros(5, 16)
        for x in xs.unbind(0):
            state = (inward(x) + across(state)).tanh()
        loss = F.cross_entropy(out(state), targets)
        loss.backward()
        optimizer.step()
        return loss

    return step, (wg.randn(4, 5, 8), wg.randint(0, 3, (5,))), parameters


def images(seed: int) -> Program:
    """Return the training step of a convolution with dropout, and embeddings beside it, whose indices are checked."""
    wg.manual_seed(seed)
    conv, table, last = nn.Conv2d(2, 4, 3), nn.Embedding(10, 8), nn.Linear(4 * 16 + 8, 3)
    parameters = [p for layer in (conv, table, last) for p in layer.parameters()]
    optimizer = wg.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def step(x: Any, words: Any, targets: Any) -> Any:
        optimizer.zero_grad()
        seen = F.dropout(conv(x).relu(), 0.5).flatten(1)
        loss = F.cross_entropy(last(wg.cat([seen, table(words).mean(1)], 1)), targets)
        loss.backward()
        optimizer.step()
        return loss

    arguments = wg.randn(3, 2, 6, 6), wg.randint(0, 10, (3, 4)), wg.randint(0, 3, (3,))
    return step, arguments, parameters


def writes(seed: int) -> Program:
    """Return a function that writes into its tensors what others of its nodes read."""
    wg.manual_seed(seed)
    total, last = wg.zeros(30, 40), wg.randn(30, 40)

    def step(x: Any, y: Any) -> Any:
        old = last.sum(0)
        a, b = (x @ y).tanh(), (y @ x).exp().sum()
        total.add_(x * b)
        last.copy_(total.t().reshape(30, 40) * 0.5 + x)
        return old, a[:, :3] + last[:, :3].sum(), b

    return step, (wg.randn(30, 40), wg.randn(40, 30) * 0.1), [total, last]


def branches(seed: int) -> Program:
    """Return a function of many small nodes in random shape, with views."""
    random = np.random.default_rng(seed)
    choices = [[int(k) for k in random.integers(0, n + 2, 2)] for n in range(40)]

    def step(x: Any, y: Any) -> Any:
        values = [x, y]
        for n, (i, j) in enumerate(choices):
            a, b = values[i], values[j]
            values.append([a + b, a @ b * 0.1, a.t() * b, (a - b).tanh(), a[::2].repeat(2, 1) - b][n % 5])
        return values[-1], values[-2].sum(0), sum(values[-8:])

    wg.manual_seed(seed)
    return step, (wg.randn(12, 12), wg.randn(12, 12)), []


PROGRAMS: dict[str, Callable[[int], Program]] = {
    "towers": towers, "adam": lambda seed: towers(seed, make="Adam"), "recurrent": recurrent, "images": images,
    "writes": writes, "branches": branches,
}  # fmt: skip


def outcome(make: Callable[[int], Program], seed: int, policy: str, threads: int) -> list[Any]:
    """Return all that comes of some calls: results, and the tensors that are changed."""
    set_num_threads(threads)
    step, arguments, changed = make(seed)
    function = wg.compile(step, fullgraph=True, policy=policy)
    wg.manual_seed(seed)
    found: list[Any] = []
    for _ in range(3):
        result = function(*arguments)
        found += [t.detach().numpy().copy() for t in (result if isinstance(result, tuple) else (result,))]
        for plan in plans(function):
            plan.scramble()
    assert (Concurrent in kinds(function)) == (policy != "topological" and threads > 1)
    return (
        found + [t.detach().numpy().copy() for t in changed] + [t.grad.numpy() for t in changed if t.grad is not None]
    )


@pytest.mark.parametrize(("name", "seed"), [*((name, 0) for name in PROGRAMS), ("branches", 1), ("branches", 2)])
def test_values_depend_on_no_policy_and_no_threads(forced: None, name: str, seed: int) -> None:
    make = PROGRAMS[name]
    expected = outcome(make, seed, "topological", 1)
    for policy, threads in (("topological", 2), ("ready", 2), ("priority", 3)):
        for one, other in zip(outcome(make, seed, policy, threads), expected, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"{policy} on {threads} threads")


def test_values_are_those_of_the_function(forced: None) -> None:
    step, arguments, changed = towers(3)
    other, _, there = towers(3)
    function = wg.compile(other, fullgraph=True)
    for _ in range(5):
        np.testing.assert_allclose(function(*arguments).item(), step(*arguments).item(), rtol=1e-5)
    for one, two in zip(changed, there, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), two.detach().numpy(), atol=1e-6)


def test_a_check_that_fails_comes_before_anything_is_written(forced: None) -> None:
    step, (x, words, targets), parameters = images(0)
    function = wg.compile(step, fullgraph=True)
    for _ in range(2):
        function(x, words, targets)
    assert Concurrent in kinds(function)
    before = [p.detach().numpy().copy() for p in parameters]
    for wrong in ((words + 100, targets), (words, targets + 100)):
        with pytest.raises(IndexError):
            function(x, *wrong)
        for parameter, then in zip(parameters, before, strict=True):
            np.testing.assert_array_equal(parameter.detach().numpy(), then)
    function(x, words, targets)
    assert any((p.detach().numpy() != then).any() for p, then in zip(parameters, before, strict=True))


# ---- what is chosen


def test_independent_branches_overlap_and_a_chain_does_not() -> None:
    step, arguments, _ = towers(0, width=128, batch=32)
    function = wg.compile(step, fullgraph=True)
    for _ in range(2):
        function(*arguments)
    (step_of_plan,) = [s for s in plans(function)[0].steps if isinstance(s, Concurrent)]
    gained = step_of_plan.in_order - step_of_plan.schedule.makespan
    assert gained > max((overlap.GAIN - 1) * step_of_plan.schedule.makespan, overlap.LEAST)
    weights = [wg.randn(64, 64) for _ in range(6)]

    def chain(x: Any) -> Any:
        for weight in weights:
            x = (x @ weight).tanh()
        return x

    straight = wg.compile(chain, fullgraph=True)
    straight(wg.randn(4, 64))
    assert kinds(straight) == [Native]


def test_topological_and_one_thread_are_in_order() -> None:
    for policy, threads in (("topological", 2), ("priority", 1)):
        set_num_threads(threads)
        step, arguments, _ = towers(0, width=128, batch=32)
        function = wg.compile(step, fullgraph=True, policy=policy)
        for _ in range(2):
            function(*arguments)
        assert Concurrent not in kinds(function)


def test_plans_that_would_take_much_more_memory_share_it_and_wait(
    forced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = [[wg.randn(24, 24) / 5 for _ in range(6)] for _ in range(4)]

    def branches(x: Any) -> Any:
        ends = []
        for chain in weights:
            end = x
            for weight in chain:
                end = (end @ weight).tanh()
            ends.append(end.sum())
        return wg.stack(ends)

    sizes, edges = {}, {}
    for growth in (100.0, 0.0):
        monkeypatch.setattr(overlap, "GROWTH", growth)
        monkeypatch.setattr(overlap, "SPARE", 0)
        function = wg.compile(branches, fullgraph=True)
        for _ in range(2):
            function(wg.ones(6, 24))
        (plan,) = plans(function)
        sizes[growth] = plan.values.arena.size
        edges[growth] = sum(len(firsts) for s in plan.steps if isinstance(s, Concurrent) for firsts in s.before)
    assert sizes[0.0] < sizes[100.0]
    assert edges[0.0] > edges[100.0]


def test_where_there_is_no_room_for_a_second_plan_the_first_runs(forced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tight(overlap.Plan):
        def __init__(self, *args: Any, expected: Any = None, **options: Any) -> None:
            if expected is not None:
                raise OutOfMemoryError("no memory")
            super().__init__(*args, **options)

    monkeypatch.setattr(overlap, "Plan", Tight)
    step, arguments, _ = towers(0)
    function = wg.compile(step, fullgraph=True)
    for _ in range(2):
        function(*arguments)
    assert Concurrent not in kinds(function)


def test_with_a_memory_budget_nodes_run_in_order(forced: None) -> None:
    step, arguments, _ = towers(0)
    function = wg.compile(step, fullgraph=True, memory_budget=1.0)
    for _ in range(2):
        function(*arguments)
    assert Concurrent not in kinds(function)


class Backwards(Policy):
    """What was given last goes first."""

    name = "backwards"

    def urgencies(self, problem: Any) -> Any:
        """Return the numbers of the tasks."""
        return list(range(len(problem.tasks)))


def test_a_policy_of_ones_own(forced: None) -> None:
    step, arguments, _ = towers(2)
    other, _, _ = towers(2)
    function, plain = (
        wg.compile(f, fullgraph=True, policy=p) for f, p in ((step, Backwards()), (other, "topological"))
    )
    for _ in range(3):
        assert function(*arguments).item() == plain(*arguments).item()
    assert any(s.schedule.policy == "backwards" for p in plans(function) for s in p.steps)
    assert pickle.loads(pickle.dumps(wg.compile(nn.ReLU(), policy="ready"))).compiled.policy == "ready"


def test_policies_that_there_are_not() -> None:
    with pytest.raises(ValueError, match="there is no policy 'fast'; choose from topological, ready, priority"):
        wg.compile(lambda x: x, policy="fast")
    with pytest.raises(TypeError, match="a name or a Policy"):
        wg.compile(lambda x: x, policy=3)  # type: ignore[arg-type]


# ---- what is told


@pytest.mark.parametrize("policy", ["topological", "priority"])
def test_the_timeline_of_a_plan(forced: None, policy: str) -> None:
    step, arguments, _ = towers(0)
    function = wg.compile(step, fullgraph=True, policy=policy)
    for _ in range(2):
        function(*arguments)
    (plan,) = plans(function)
    timeline = plan.timeline()
    assert timeline.title == ("expected, in order" if policy == "topological" else "expected, side by side")
    assert list(timeline.resources) == ["cpu thread 0", "cpu thread 1"]
    first, second = timeline.utilisation.values()
    assert first <= 1 + 1e-9
    assert second == 0 if policy == "topological" else second > 0.5  # kernels as small as these are of one piece
    nodes = {i.name for i in timeline.intervals}
    assert {name.partition(" #")[0] for name in nodes} >= {"product(linear, tanh)", "matmul", "rows_product"}
    events = json.loads(timeline.chrome_trace())["traceEvents"]
    assert sum(e["ph"] == "X" for e in events) == len(timeline.intervals)
    for resource in timeline.resources:  # nothing runs twice at once on a thread
        times = sorted((i.start, i.end) for i in timeline.intervals if i.resource == resource)
        assert all(one[1] <= two[0] + 1e-12 for one, two in pairwise(times))

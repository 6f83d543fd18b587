"""What explain() says of compiled functions, that it changes nothing, and what it measures."""

import json
import re
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import wengert as wg
from wengert import nn
from wengert.compiling.explain import Explanation
from wengert.compiling.trace import trace
from wengert.errors import TransformError
from wengert.graph.parser import parse
from wengert.runtime import overlap
from wengert.runtime.machine import nominal
from wengert.runtime.roof import roof
from wengert.runtime.threads import get_num_threads, set_num_threads

X, Y = wg.linspace(-1, 1, 128).reshape(16, 8), wg.arange(16) % 3


def training():
    """Return a training step that has made its state, and everything that it may change."""
    wg.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.5), nn.Linear(32, 3))
    optimizer = wg.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = wg.optim.lr_scheduler.StepLR(optimizer, 2)

    def step(inputs, targets):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    step(X, Y)

    def state():
        tensors = [*model.parameters(), *model.buffers(), *(t for s in optimizer.state.values() for t in s.values())]
        tensors += [p.grad for p in model.parameters()]
        schedule = {k: v for k, v in vars(scheduler).items() if k != "optimizer"}
        return [(t.tolist(), t._version) for t in tensors], wg.get_rng_state().tolist(), repr(schedule)

    return step, state


def test_a_training_step_is_explained_and_left_alone() -> None:
    step, state = training()
    before = state()
    said = wg.explain(step, X, Y).measure(2)
    assert state() == before
    (program,) = said.programs
    kernels = [node for node in program.optimised.nodes if not getattr(node.op, "view", False)]
    assert said.kernels <= len(kernels) <= said.kernels + len(program.steps)
    assert all(re.fullmatch(r".+ \(test_explain\.py:\d+\): .+", text) for text in program.steps)
    assert program.stepped == ["AdamW", "StepLR"]
    assert {*program.times} == {*kernels}
    assert all(seconds > 0 for seconds in program.times.values())
    assert "argument 0 is float32[16, 8]" in program.guards
    assert "captured float32[32, 8] keeps shape, layout, dtype and requires_grad (3 of these)" in program.guards
    assert "AdamW.step" in program.report()
    assert list(program.seconds) == ["capture", "passes", "kernels", "machine code"]
    assert sum(program.memory.values()) == program._program.plan.nbytes
    text = str(said)
    assert text.startswith("training.<locals>.step is captured as 1 program: ")
    assert "measured" in text


def test_lines_of_the_program_are_named() -> None:
    def function(x):
        y = x.sigmoid()
        return (y * 2).relu() @ x

    table = wg.explain(function, wg.ones(4, 4)).programs[0].report().splitlines()
    first = function.__code__.co_firstlineno
    assert table[1].endswith(f"test_explain.py:{first + 1}, {first + 2}")
    assert table[2].endswith(f"test_explain.py:{first + 2}")


def test_the_programs_of_a_compiled_function_are_those_that_it_runs() -> None:
    @wg.compile
    def halved(x):
        times = 0
        while x.norm() > 1:
            x, times = x / 2, times + 1
        return x, times

    assert wg.explain(halved, wg.tensor([3.0, 4.0])).programs[0].seconds.get("first run") is None
    assert not halved.programs
    for values in ([3.0, 4.0], [0.3, 0.4], [6.0, 8.0]):
        halved(wg.tensor(values))
    said = wg.explain(halved, wg.tensor([6.0, 8.0]))
    (known,) = halved.programs.values()
    assert [program.graph for program in said.programs] == [program.graph for program in known]
    assert [len(program.decisions) for program in said.programs] == [5, 1, 4]
    line = halved.function.__code__.co_firstlineno + 3
    assert all(f"test_explain.py:{line} in halved" in text for p in said.programs for text in p.decisions)
    assert [text.rpartition(": ")[2] for text in said.programs[1].decisions] == ["False"]
    assert said.programs[0].seconds["first run"] > 0
    assert said.retraces == halved.retraces
    assert len(said.retraces) == 2
    assert "programs were made again because" in str(said)
    assert len(wg.explain(halved, wg.ones(3)).programs) == 1  # another form: captured, and forgotten
    assert len(halved.programs) == 1


def test_what_is_run_as_it_is_says_why() -> None:
    def positive(x):
        return x[x > 0].sum()

    line = positive.__code__.co_firstlineno + 1
    compiled = wg.compile(positive)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(wg.ones(100))
    for said in (wg.explain(positive, wg.ones(100)), wg.explain(compiled, wg.ones(100))):
        assert said.programs == []
        assert said.fallback.startswith("masked_select() needs the values")
        assert f"test_explain.py:{line} in positive" in str(said)

    def unlucky(x):
        y = x + 1
        wg.manual_seed(3)
        return y + wg.rand(2)

    line = unlucky.__code__.co_firstlineno + 2
    assert wg.explain(unlucky, wg.ones(2)).fallback.endswith(f"(at {__file__}:{line} in unlucky: wg.manual_seed(3))")
    weight = nn.Parameter(wg.ones(2))
    optimizer = wg.optim.Adam([weight])

    def first():
        weight.sum().backward()
        optimizer.step()

    assert wg.explain(first).fallback == "this time only: Adam makes its state in the first step"
    assert weight.grad is None


def test_modules_methods_and_arguments_by_name() -> None:
    class Scaled:
        @wg.compile
        def apply(self, x, factor=2.0):
            return x * factor

    model = nn.Linear(2, 2)
    for said in (wg.explain(model, wg.ones(1, 2)), wg.explain(wg.compile(model), wg.ones(1, 2))):
        assert said.name == "Linear"
        assert said.kernels == 1
    said = wg.explain(Scaled().apply, wg.ones(2), factor=3.0)
    assert "argument 2 is 3.0" in said.programs[0].guards
    x = wg.ones(2, requires_grad=True)
    guards = wg.explain(lambda a, b: a + b, x, x).programs[0].guards
    assert guards[:2] == [
        "argument 0 is float32[2], requires a gradient",
        "argument 1 is float32[2], requires a gradient, the same tensor as argument 0",
    ]


def test_gradients_outside_and_steps_of_python() -> None:
    said = wg.explain(lambda x: wg.fft.rfft(x.sin()).real, wg.ones(3, requires_grad=True))
    (program,) = said.programs
    assert program.outward is not None
    assert "gradients go on outside: a second program of" in str(said)
    assert [text.partition(" (")[0] for text in program.steps] == ["fft_real"]
    assert "no kernel for fft_real" in program.steps[0]


def test_pictures_and_the_trace_of_a_run() -> None:
    step, _ = training()
    program = wg.explain(step, X, Y).measure(1).programs[0]
    sheet, *boxes = ElementTree.fromstring(program.svg()).findall("{*}rect")
    assert len(boxes) == len(program.optimised)
    titles = [box.find("{*}title").text for box in boxes]
    assert any("gelu, mul: float32[16, 32]" in title and "test_explain.py:" in title for title in titles)
    width = float(sheet.get("width"))
    lefts = [float(box.get("x")) for box in boxes]
    assert all(x >= 0 and x + float(box.get("width")) <= width for x, box in zip(lefts, boxes, strict=True))
    edges = [line for line in program.dot().splitlines() if "->" in line]
    assert len([e for e in edges if '"return"' in e]) == len(program.optimised.outputs)
    events = [e for e in json.loads(program.timeline.chrome_trace())["traceEvents"] if e["ph"] == "X"]
    assert {e["name"] for e in events} >= {"draw.dropout", "gelu, mul"}
    assert all(e["dur"] > 0 for e in events)
    for row in {e["tid"] for e in events}:
        ends = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["tid"] == row)
        assert all(end <= begin + 1e-3 for (_, end), (begin, _) in pairwise(ends))  # one after the other


@pytest.fixture
def overlapping(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let nodes run beside one another on two threads, even if nothing is gained."""
    before = get_num_threads()
    set_num_threads(2)
    monkeypatch.setattr(overlap, "known", lambda: nominal(2))
    monkeypatch.setattr(overlap, "GAIN", 0.0)
    monkeypatch.setattr(overlap, "LEAST", -1.0)
    yield
    set_num_threads(before)


@pytest.mark.usefixtures("overlapping")
def test_nodes_beside_one_another_and_the_budget() -> None:
    weights = [wg.ones(24, 24) * k / 100 for k in range(6)]

    def towers(x):
        a = b = x
        for w in weights[:3]:
            a, b = (a @ w).tanh(), (b @ w).sin()
        return (a + b).sum()

    x = wg.linspace(-1, 1, 192).reshape(8, 24)
    said = wg.explain(wg.compile(towers, verify="first_call"), x).measure(2)
    (program,) = said.programs
    assert "beside one another: " in program.overlap[0]
    assert set(program.timeline.resources) >= {"thread 0", "thread 1"}
    assert {*program.times} == {n for n in program.optimised.nodes if not getattr(n.op, "view", False)}
    compiled = wg.compile(towers, verify="first_call")
    np.testing.assert_allclose(compiled(x).item(), towers(x).item(), rtol=1e-5)
    assert "memory budget" not in str(said)
    assert "memory budget 1.00 MB" in str(wg.explain(wg.compile(towers, memory_budget=1_000_000), x))


def test_measuring_repeats_and_keeps_the_shortest() -> None:
    weight = wg.ones(1000)
    said = wg.explain(lambda x: weight.add_(x), wg.ones(1000)).measure(1)
    (first,) = said.programs[0].times.values()
    (second,) = said.measure(5).programs[0].times.values()
    assert 0 < second <= first
    assert weight.tolist() == [1.0] * 1000


@pytest.mark.parametrize("threads", [1, 4])
def test_the_roof_is_bytes_over_bandwidth_or_operations_over_peak(threads: int) -> None:
    machine = replace(
        nominal(threads), threads=threads, l1=1 << 15, l2=1 << 20, l3=1 << 23, copy_l1=100e9, copy_l2=50e9, copy_l3=20e9,
        copy_memory=10e9, copy_all=15e9, float32=50e9, float32_all=50e9 * threads, float64=25e9,
        float64_all=25e9 * threads, parallel=2e-6,
    )  # fmt: skip

    def seconds(function, *args):
        (node,) = trace(function)(*args).graph.nodes
        return roof(node, machine)

    assert seconds(lambda x: -x, wg.ones(1000)) == pytest.approx(8000 / 100e9)
    large = 8e7 / 10e9 if threads == 1 else 8e7 / 15e9 + 2e-6
    assert seconds(lambda x: -x, wg.ones(10_000_000)) == pytest.approx(large)
    a = wg.ones(512, 512, dtype=wg.float64)
    product = 2 * 512**3 / 25e9
    assert seconds(lambda x: x @ x, a) == pytest.approx(product if threads == 1 else product / 4 + 2e-6)
    assert seconds(lambda x: x.t(), a) == 0


def test_a_graph_reports_on_itself() -> None:
    graph = trace(lambda x: (x.sigmoid() * 2).relu())(wg.ones(1000)).graph
    for one in (graph, parse(graph.text(places=False), {})):
        rows = one.report().splitlines()
        assert rows[1].split()[:9] == ["pointwise", "sigmoid,", "mul,", "relu", "1", "24.00", "kB", "8.00", "kB"]
        assert rows[2] == "before: 3 kernels, 24.00 kB, 14.00 k flops"
        assert rows[3].startswith("after:  1 kernel, 8.00 kB, 14.00 k flops, predicted ")


def test_the_reference_backend_is_explained_without_a_plan() -> None:
    said = wg.explain(wg.compile(lambda x: x + 1, backend="reference"), wg.ones(2)).measure()
    assert isinstance(said, Explanation)
    assert (said.kernels, said.programs[0].memory, said.programs[0].times) == (0, {}, {})
    np.testing.assert_equal("memory" in str(said), False)


def test_what_cannot_be_explained() -> None:
    with pytest.raises(TypeError, match="takes a function or a module, got Tensor"):
        wg.explain(wg.ones(2))
    with pytest.raises(ZeroDivisionError):
        wg.explain(lambda x: 1 / 0, wg.ones(2))
    with pytest.raises(TransformError, match="from outside"):
        wg.vmap(lambda x: wg.explain(lambda y: y, x))(wg.ones(2))

"""The pipeline as a whole: what may be fused, dumps, the report, memory, and that work grows as the graph does."""

import sys

import numpy as np
import pytest

import wengert as wg
from tests.passes.captured import captured, names
from wengert.array.dtype import bool_, float32
from wengert.core.operator import Spec
from wengert.core.registry import operators
from wengert.graph.ir import Graph, Node, Value
from wengert.graph.text import row_major
from wengert.loops.symbolic import lowered
from wengert.loops.tracing import Untraceable, symbols
from wengert.passes.fusible import fusible
from wengert.passes.order import order
from wengert.passes.pipeline import PIPELINE, optimise
from wengert.passes.report import report
from wengert.passes.rewriting import duplicate


def enter(graph, name, *arguments):
    """Enter a call of an operator with one result, and return that."""
    op = operators()[name]
    spec = op.infer([a if not hasattr(a, "spec") else a.spec for a in arguments])
    return graph.call(op, arguments, [(spec, row_major(spec))]).results[0]


def tower(count):
    """Return a graph of about ``count`` nodes: products, activations, masks, reductions, copies."""
    graph, spec = Graph(), Spec((8, 8), float32)
    x, w = (graph.input(spec, row_major(spec)) for _ in range(2))
    h = x
    while len(graph) < count:
        p = enter(graph, "relu", enter(graph, "matmul", h, w), False)
        r = enter(graph, "mul", p, 2.0)
        mask = enter(graph, "le", p, 0)
        total = enter(graph, "sum", r, (1,), True, None)
        h = enter(graph, "choose", mask, enter(graph, "add", r, total, 1), h)
        h = enter(graph, "add", enter(graph, "clone", h, None), x, 1)
    graph.outputs.append(h)
    return graph


def calls(function):
    """Return how many calls of functions a call makes."""
    count = 0

    def tick(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(tick)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def test_work_grows_as_the_graph_does():
    small, large = tower(300), tower(2400)
    ratio = calls(lambda: optimise(large)) / calls(lambda: optimise(small))
    assert ratio < 8 * 1.25


def test_a_value_that_thousands_read_costs_no_more():
    def wide(count):
        graph, spec = Graph(), Spec((8, 8), float32)
        x = enter(graph, "exp", graph.input(spec, row_major(spec)))
        graph.outputs += [enter(graph, "matmul", enter(graph, "mul", x, float(k)), x) for k in range(count)]
        return graph

    small, large = wide(60), wide(600)
    assert calls(lambda: optimise(large)) / calls(lambda: optimise(small)) < 10 * 1.25


def test_twenty_thousand_nodes_go_through():
    graph = tower(20_000)
    assert len(optimise(graph)) < len(graph) / 2


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool"])
def test_what_may_be_fused_can_be_traced(dtype):
    """Of an element-wise operator that works on a dtype, the default predicate says no more than tracing its kernel does."""
    kind = getattr(wg, dtype)
    wrong, done = [], 0
    for name, op in operators().items():
        if op.composite or op.batch != "broadcast" or not op.single or name == "choose":
            continue
        graph, spec, slots = Graph(), Spec((2,), kind), op.signature.slots
        plain = [1.0 if "MISSING" in repr(s.default) else s.default for s in slots]
        arguments = [graph.input(spec, row_major(spec)) if s.input else a for s, a in zip(slots, plain, strict=True)]
        node = Node(op, tuple(arguments))
        common = float32 if kind.is_half or (op.promote == "float" and kind.category < float32.category) else kind
        try:
            node.results = (
                Value(op.infer([a.spec if s.input else a for s, a in zip(slots, arguments, strict=True)]), (), "y"),
            )
            op.call_kernel([np.ones(2, common.numpy) if s.input else a for s, a in zip(slots, plain, strict=True)])
        except Exception:  # not of this dtype
            continue
        if fusible(node):
            done += 1
            try:
                lowered(op, symbols(plain, [common.numpy if s.input else None for s in slots]))
            except Untraceable:
                wrong.append(name)
    assert not wrong
    assert done > 10


def test_stages_are_dumped(tmp_path, monkeypatch):
    graph, _ = captured(lambda x: x.relu().relu() + 1, wg.ones(3))
    monkeypatch.setenv("WENGERT_DUMP", str(tmp_path / "stages"))
    found = optimise(graph)
    files = sorted(p.name for p in (tmp_path / "stages").iterdir())
    assert files == [f"{k:02}-{stage.name}.txt" for k, stage in enumerate(PIPELINE, 1)]
    assert (tmp_path / "stages" / files[-1]).read_text(encoding="utf-8") == f"{found}\n"


def test_the_graph_is_verified_after_each_stage():
    seen = []
    optimise(captured(lambda x: x + 1, wg.ones(3))[0], verify=seen.append)
    assert len(seen) == len(PIPELINE)


def test_the_report_counts_kernels_bytes_and_operations():
    graph, _ = captured(lambda x, w: (x @ w).relu() * 2 + (x.t() @ x).sum(), wg.ones(8, 8), wg.ones(8, 8))
    text = report(graph, optimise(graph))
    assert "product    matmul, relu" in text
    assert "before: 6 kernels" in text
    assert "after:  4 kernels" in text


def test_values_are_made_where_they_are_needed():
    """The mask is made late, because what it is made of is alive until then; the product is not, for it frees its operand."""
    graph, spec = Graph(), Spec((8, 8), float32)
    x, w = (graph.input(spec, row_major(spec)) for _ in range(2))
    mask = enter(graph, "lt", x, 0)
    assert mask.dtype is bool_
    first = enter(graph, "exp", x)
    second = enter(graph, "matmul", first, w)
    third = enter(graph, "matmul", second, w)
    graph.outputs.append(enter(graph, "choose", mask, third, second))
    assert names(order(duplicate(graph))) == ["exp", "matmul", "lt", "matmul", "choose"]


def test_large_constants_are_not_made():
    graph, _ = captured(lambda x: x + wg.ones(1).expand(300, 300) * 2 + wg.full((1,), 2.0).exp(), wg.ones(300, 300))
    found = optimise(graph)
    assert all(array.nbytes <= 64 * 1024 for array in found.constants.values())
    assert not any(name == "exp" for node in found.nodes for name in names(getattr(node.op, "body", found)))


def test_ones_of_a_gradient_are_not_multiplied_with():
    def function(x, y):
        return wg.func.grad(lambda x: (x.sin() * y).sum())(x)

    graph, _ = captured(function, wg.ones(3), wg.ones(3))
    plain = optimise(graph, kinds=frozenset())
    assert sorted(node.op.name for node in plain.nodes if node.op.name != "expand") == ["cos", "mul"]

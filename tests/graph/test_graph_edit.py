"""Edits keep graphs sound, and user passes are checked."""

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.compiling.trace import trace
from wengert.errors import GraphError
from wengert.graph.edit import apply, copy, extract, insert, is_sorted, remove, replace, sort
from wengert.graph.evaluate import evaluate
from wengert.graph.ir import Graph


def captured(function: Any, *args: Any) -> Graph:
    return trace(function)(*args).graph  # type: ignore[no-any-return]


def chain() -> Graph:
    """Return exp, sin, cos, one after the other."""
    return captured(lambda x: x.exp().sin().cos(), wg.ones(3))


def values(graph: Graph, *arrays: Any) -> list[Any]:
    found = evaluate(graph, arrays)
    return [found[v] for v in graph.outputs]


X = np.linspace(-1, 1, 3, dtype=np.float32)


def test_insert_replace_remove() -> None:
    graph = chain()
    exp, sin, cos = graph.nodes
    square = insert(graph, "mul", exp.results[0], exp.results[0], before=sin)
    replace(graph, sin.results[0], square)
    remove(graph, sin)
    total = insert(graph, "sum", cos.results[0], dim=0, keepdim=True, after=cos)
    graph.outputs = [total]
    graph.verify()
    assert [n.op.name for n in graph.nodes] == ["exp", "mul", "cos", "sum"]
    np.testing.assert_allclose(values(graph, X)[0], np.cos(np.exp(X) ** 2).sum(keepdims=True), rtol=1e-6)
    low, where = insert(graph, "sort", cos.results[0])
    assert (low.shape, where.dtype) == ((3,), wg.int64)


REFUSED: dict[str, tuple[Any, str]] = {
    "unknown operator": (lambda g: insert(g, "exq", g.inputs[0]), "'exq' is not declared; near it: .*exp"),
    "composite": (lambda g: insert(g, "linalg_solve", g.inputs[0], g.inputs[0]), "is made of others"),
    "misfit": (lambda g: insert(g, "reshape", g.inputs[0], (2, 2)), "do not fit"),
    "two places": (lambda g: insert(g, "exp", g.inputs[0], before=g.nodes[0], after=g.nodes[1]), "not both"),
    "another graph": (lambda g: insert(g, "exp", g.inputs[0], before=chain().nodes[0]), "is no node of this graph"),
    "still read": (lambda g: remove(g, g.nodes[0]), "%2 is still read"),
    "returned": (lambda g: remove(g, g.nodes[2]), "is still read"),
    "other spec": (lambda g: replace(g, g.inputs[0], insert(g, "sum", g.inputs[0])), "cannot be replaced"),
    "not convex": (lambda g: extract(g, [g.nodes[0], g.nodes[2]]), "reads what is computed outside"),
    "foreign part": (lambda g: extract(g, chain().nodes), "no nodes of this graph"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    change, match = REFUSED[name]
    with pytest.raises(GraphError, match=match):
        change(chain())


def test_draws_stay() -> None:
    graph = captured(lambda: (wg.rand(2), wg.rand(2))[1])
    with pytest.raises(GraphError, match="random numbers, which must stay"):
        remove(graph, graph.nodes[0])
    first, second = graph.nodes
    for wrong in ([second], [second, first], [first, second, first]):
        with pytest.raises(GraphError, match=r"(left out, added or reordered|made twice)"):
            apply(graph, lambda g, wrong=wrong: _with(g, [g.nodes[graph.nodes.index(n)] for n in wrong]))


def _with(graph: Graph, nodes: list[Any]) -> Graph:
    graph.nodes = nodes
    return graph


def test_a_copy_shares_nothing_that_changes() -> None:
    graph = chain()
    text, twin = str(graph), copy(graph)
    assert str(twin) == text
    insert(twin, "exp", twin.inputs[0])
    assert str(graph) == text
    assert twin.nodes[-1].results[0].name not in text.replace("%", " ").split()
    assert not {id(n) for n in graph.nodes} & {id(n) for n in twin.nodes}


def test_extract() -> None:
    graph = captured(lambda x, y: ((x * 2 + y).exp() + wg.arange(3.0), x * 2), wg.ones(3), wg.ones(3))
    mul, add, exp = graph.nodes[:3]
    part = extract(graph, [mul, add, exp])
    part.graph.verify()
    assert part.inputs == graph.inputs
    assert part.outputs == [exp.results[0]]
    np.testing.assert_array_equal(values(part.graph, X, X)[0], np.exp(X * 2 + X))
    last = extract(graph, graph.nodes[3:4])
    assert len(last.graph.constants) == 1
    assert last.inputs == [exp.results[0]]


def test_sort() -> None:
    graph = chain()
    text = str(graph)
    assert is_sorted(graph)
    graph.nodes.reverse()
    assert not is_sorted(graph)
    sort(graph)
    assert str(graph) == text
    graph.nodes[0].arguments = (graph.nodes[2].results[0],)
    with pytest.raises(GraphError, match="waits for its own result"):
        sort(graph)


def test_sort_keeps_draws_in_order() -> None:
    graph = captured(lambda: wg.rand(2) - wg.rand(2))
    text = str(graph)
    sort(graph)
    assert str(graph) == text


# ---- passes --------------------------------------------------------------------------


def halve(graph: Graph) -> Graph:
    node = graph.nodes[-1]
    graph.outputs = [insert(graph, "mul", node.results[0], 0.5)]
    return graph


def test_passes_work_on_a_copy() -> None:
    graph = chain()
    before = str(graph)
    found = apply(graph, halve, halve)
    assert str(graph) == before
    np.testing.assert_allclose(values(found, X)[0], np.cos(np.sin(np.exp(X))) / 4, rtol=1e-6)


def spoiled(graph: Graph) -> Graph:
    graph.nodes.reverse()
    return graph


PASSES: dict[str, tuple[Any, type[Exception], str]] = {
    "broken": (spoiled, GraphError, "after the pass spoiled: .* is read before it is made"),
    "nothing": (lambda g: None, TypeError, "must return a graph, got NoneType"),
    "inputs": (lambda g: (g.input(g.inputs[0].spec, (4,)), g)[1], GraphError, "changed what goes in and out"),
    "outputs": (lambda g: (g.outputs.clear(), g)[1], GraphError, "changed what goes in and out"),
    "writes": (lambda g: (g.writes.append((g.inputs[0],) * 2), g)[1], GraphError, "changed what goes in and out"),
}


@pytest.mark.parametrize("name", PASSES)
def test_passes_are_checked(name: str) -> None:
    one, error, match = PASSES[name]
    with pytest.raises(error, match=match):
        apply(chain(), one)

"""Recomputation within a budget: the values stay, memory does not exceed it, and what is computed again is little."""

import copy

import numpy as np
import pytest

import wengert as wg
from tests.passes.captured import captured, outcome
from wengert.array.dtype import float32
from wengert.core.operator import Spec
from wengert.core.registry import operators
from wengert.graph.ir import Graph
from wengert.graph.operations import Draw
from wengert.graph.verify import verify
from wengert.passes.pipeline import optimise
from wengert.passes.recompute import Model, recompute

nn = wg.nn
SIZE = 4000  # bytes of a value of a chain


def is_view(node):
    return bool(getattr(node.op, "view", False))


def model(scratch=0, elsewhere=()):
    return Model(
        lambda node: 0.0 if is_view(node) else 1.0, lambda node: scratch, lambda value: value.nbytes, is_view,
        lambda node: False, elsewhere,
    )  # fmt: skip


def most_at_once(graph):
    """Return the most bytes that live at once, from the text of the definition: made before, needed now or later."""
    root = {}
    for node in graph.nodes:
        for value in node.results:
            root[value] = root.get(node.inputs[0]) if is_view(node) and node.inputs else value
    made = {v: k for k, node in enumerate(graph.nodes) for v in node.results if root[v] is v}
    last = dict(made)
    for k, node in enumerate(graph.nodes):
        last.update({root[v]: k for v in node.inputs if root.get(v) is not None})
    last.update({root[v]: len(graph.nodes) for v in graph.results if root.get(v) is not None})
    return max(
        (sum(v.nbytes for v in made if made[v] <= k <= last[v]) for k in range(len(graph.nodes))), default=0
    )  # fmt: skip


def chain(length):
    """Return sin applied again and again, and a walk back that needs all values, the last one first."""
    ops, spec = operators(), Spec((SIZE // 4,), float32)
    graph = Graph()
    values = [graph.input(spec, (4,))]
    for _ in range(length):
        values.append(graph.call(ops["sin"], (values[-1],), [(spec, (4,))]).results[0])
    slope = values[-1]
    for value in reversed(values[:-1]):
        slope = graph.call(ops["mul"], (slope, value), [(spec, (4,))]).results[0]
    graph.outputs = [slope]
    return graph


def mlp():
    layers = [layer for _ in range(6) for layer in (nn.Linear(8, 8), nn.Tanh())]
    return nn.Sequential(*layers), nn.functional.mse_loss


def dropped():
    layers = [layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.Dropout(0.5), nn.GELU())]
    return nn.Sequential(*layers), nn.functional.mse_loss


def normalised():
    layers = [layer for _ in range(3) for layer in (nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU())]
    return nn.Sequential(*layers, nn.Unflatten(1, (2, 4)), nn.Flatten()), nn.functional.mse_loss


def training(make):
    """Return the optimised graph of a training step, and arrays for its inputs."""
    wg.manual_seed(1)
    network, loss_of = make()
    optimizer = wg.optim.SGD(network.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(network(x), y)
        loss.backward()
        optimizer.step()
        return loss

    graph, arrays = captured(step, wg.randn(256, 8), wg.randn(256, 8))
    return optimise(graph), arrays


@pytest.mark.parametrize(
    ("make", "share"), [(mlp, 0.9), (mlp, 0.5), (dropped, 0.9), (dropped, 0.7), (normalised, 0.8), (normalised, 0.5)]
)
def test_values_stay_and_the_budget_is_kept(make, share):
    graph, arrays = training(make)
    whole = most_at_once(graph)
    text, right = str(graph), outcome(graph, arrays)
    found = recompute(graph, int(share * whole), model())
    assert str(graph) == text, "the graph given was changed"
    verify(found.graph)
    assert most_at_once(found.graph) <= found.peak <= share * whole
    assert found.again
    assert len(found.graph) > len(graph)
    assert sum(a.times for a in found.again) == sum(not is_view(n) for n in found.graph.nodes) - sum(
        not is_view(n) for n in graph.nodes
    )
    for a, b in zip(right, outcome(found.graph, arrays), strict=True):
        assert np.array_equal(a, b)


def test_random_numbers_are_drawn_once_and_in_order():
    graph, _ = training(dropped)
    found = recompute(graph, int(0.7 * most_at_once(graph)), model()).graph
    drawn = [[n.op for n in g.nodes if isinstance(n.op, Draw)] for g in (graph, found)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 4


def test_nothing_is_computed_again_without_need():
    graph, _ = training(mlp)
    found = recompute(graph, most_at_once(graph), model())
    assert not found.again
    assert found.seconds == 0
    assert [n.op for n in found.graph.nodes] == [n.op for n in graph.nodes]


@pytest.mark.parametrize(
    ("length", "kept", "most"),
    [
        (64, 32, 34),
        (64, 16, 52),
        (64, 8, 130),
        (400, 44, 400),
    ],  # T. Chen et al.: about 2 √n values, one more pass forward
)
def test_a_chain_is_computed_again_as_seldom_as_known_methods_do(length, kept, most):
    graph = chain(length)
    found = recompute(graph, kept * SIZE, model())
    assert most_at_once(found.graph) <= kept * SIZE
    assert sum(a.times for a in found.again) <= most
    assert found.seconds == sum(a.times for a in found.again)
    assert found.whole == len(graph)


def test_what_is_cheap_for_its_size_goes_first():
    graph = chain(24)
    costly = {n for k, n in enumerate(graph.nodes) if k % 2}
    unequal = model()._replace(seconds=lambda node: 100.0 if node in costly else 1.0)
    found = recompute(graph, 15 * SIZE, unequal)
    assert not costly & {a.node for a in found.again}


def test_scratch_is_room_that_a_node_needs():
    graph = chain(16)
    without, with_it = (recompute(graph, 10 * SIZE, model(scratch)) for scratch in (0, 3 * SIZE))
    assert most_at_once(without.graph) > 7 * SIZE >= most_at_once(with_it.graph)


def test_values_that_lie_elsewhere_are_not_counted_and_not_computed_again():
    graph = chain(16)
    kept = {n.results[0] for n in graph.nodes[:8]}
    found = recompute(graph, 6 * SIZE, model(elsewhere=kept))
    assert not kept & {v for a in found.again for v in a.node.results}
    assert recompute(graph, 1, model(elsewhere={v for n in graph.nodes for v in n.results})).peak == 0


def test_a_budget_below_what_a_node_needs_is_not_met():
    graph = chain(8)
    assert recompute(graph, 2 * SIZE - 1, model()) is None
    assert recompute(graph, 0, model()) is None


def test_operators_of_users_are_called_once():
    graph, op = chain(12), copy.copy(operators()["sin"])
    op.family = "opaque"
    for node in graph.nodes[:12:2]:
        node.op = op
    found = recompute(graph, 9 * SIZE, model())
    assert found.again
    assert not any(a.node.op is op for a in found.again)


def test_the_table_names_kernels_and_what_they_cost():
    text = str(recompute(chain(16), 8 * SIZE, model()))
    head, *rows, total = text.splitlines()
    assert head.split() == ["kernel", "operators", "times", "given", "up", "seconds"]
    assert all(row.startswith("sin") and "kB" in row for row in rows)
    assert total.startswith("computed again: ")
    assert total.endswith("% of the time")


def test_thousands_of_nodes_take_seconds():
    graph = chain(1500)
    found = recompute(graph, 120 * SIZE, model())
    assert found.peak <= 120 * SIZE
    assert sum(a.times for a in found.again) <= 1500

"""What plans do once: values that are made where they are joined, and matrices that are packed for many products."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import tree
from wengert.graph.ir import Node
from wengert.runtime import overlap

F = wg.nn.functional


def _same(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Compile a function, hold it to what it gives by itself, three times, and return its plan."""
    compiled = wg.compile(function, fullgraph=True, **options)
    for k in range(3):
        given = [a * (k + 1) for a in arguments]
        found, right = compiled(*given), function(*given)
        for one, other in zip(tree.leaves(found), tree.leaves(right), strict=True):
            np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=2e-5, atol=2e-5)
        ((program,),) = compiled.programs.values()
        program.scramble()
    return program.plan


def _joining(plan: Any) -> list[tuple[Node, int]]:
    """Return the nodes of a plan that join values, and how many copies each of them makes."""
    return [(n, plan.nodes.count(n)) for n in plan.graph.nodes if getattr(n.op, "name", "") in ("cat", "stack")]


def _gates(x: Any) -> Any:
    a, b = x.chunk(2, 1)
    return wg.cat([a * b, a.sin(), a + b], 1)


X = wg.linspace(-1, 1, 48).reshape(6, 8)

# What is joined, and how many copies that takes.
JOINED: dict[str, tuple[Callable[..., Any], list[int]]] = {
    "rows of products": (lambda x: wg.cat([x @ x.T, x @ (x.T * 2)]).exp(), [0]),
    "rows of anything": (lambda x: wg.cat([x.sin(), x.cumsum(0), x.softmax(1)]).tanh(), [0]),
    "stacked in front": (lambda x: wg.stack([x @ x.T, (x @ x.T).sin()]).sum(0), [0]),
    "columns of one kernel": (lambda x: _gates(x).sum(1), [0]),
    "columns of several kernels": (lambda x: wg.cat([x.sin(), x.cumsum(1)], 1).sum(0), [2]),
    "columns of products": (lambda x: wg.cat([x @ x.T, (x * 2) @ x.T], 1).sum(0), [2]),
    "stacked behind": (lambda x: wg.stack([x.sin(), x.cos()], -1).sum(0), [0]),
    "joined twice": (lambda x: wg.stack([_gates(x), _gates(x * 2)]).sum(0), [0, 0, 0]),
    "the same value twice": (lambda x: wg.cat([y := x.sin(), y]).tanh() + wg.cat([x.cos(), y]), [1, 1]),
    "an argument": (lambda x: wg.cat([x, x.sin()]).tanh(), [1]),
    "a view": (lambda x: wg.cat([x.sin().T, x.cos().T]).tanh(), [2]),
    "of another dtype": (lambda x: wg.cat([x.sin(), x.sin().double()]).tanh(), [1]),
    "an empty one": (lambda x: wg.cat([x.sin(), x[:0].cos(), x.cos()]).tanh(), [0]),
    "numbers": (lambda x: wg.stack([x.sum(), x.mean(), x.max()]).tanh(), [0]),
    "read before and after": (lambda x: (y := x @ x.T, wg.cat([y, y.sin()]).sum(0), y * 2)[1:], [0]),
    "returned as well": (lambda x: (y := x.sin(), wg.cat([y, x.cos()]).sum(0)), [0]),
}


@pytest.mark.parametrize("name", JOINED)
def test_values_are_made_where_they_are_joined(name: str) -> None:
    function, copies = JOINED[name]
    assert [count for _, count in _joining(_same(function, X))] == copies


def test_values_over_parts_do_not_overwrite_them() -> None:
    def function(x: Any) -> Any:
        y, z = x.sin(), x.cumsum(0)
        whole = wg.cat([y, z])
        later = [(y * k + z).exp() for k in range(4)]
        return whole.sum(0), sum(later[1:], later[0]), whole.prod(0)

    _same(function, X)


@pytest.mark.parametrize("dtype", [wg.float32, wg.float64])
def test_a_matrix_is_packed_for_many_products(dtype: Any) -> None:
    big = wg.randn(200, 200, dtype=dtype) / 20

    def products(x: Any) -> Any:
        for _ in range(12):
            x = (x @ big.T).tanh()
        return x

    plan = _same(products, wg.randn(32, 200, dtype=dtype), policy="topological")
    launches = _launches(plan)
    assert launches == [1, 1, 2, *[1] * 9]  # the third one packs, and all behind it read that


def _launches(plan: Any) -> list[int]:
    return [plan.nodes.count(node) for node in plan.graph.nodes if node in plan.nodes]


def test_a_matrix_is_not_packed_for_few_products() -> None:
    big = wg.randn(200, 200) / 20
    plan = _same(
        lambda x: (((x @ big.T).tanh() @ big.T).tanh() @ big.T).tanh(), wg.randn(32, 200), policy="topological"
    )
    assert _launches(plan) == [1, 1, 1]
    assert plan.scratch.kept == 0


@pytest.mark.parametrize("width", [24, 200])
def test_a_matrix_that_is_written_is_packed_again(width: int) -> None:
    def made() -> tuple[Any, Callable[..., Any]]:
        wg.manual_seed(0)
        layer = wg.nn.Linear(width, width, bias=False)
        optimiser = wg.optim.SGD(layer.parameters(), lr=0.05)

        def step(x: Any) -> Any:
            losses = []
            for _ in range(2):  # the second half of the program multiplies with what the first has made of the matrix
                optimiser.zero_grad()
                y = x
                for _ in range(6):
                    y = layer(y).tanh()
                loss = (y**2).mean()
                loss.backward()
                optimiser.step()
                losses.append(loss.detach())
            return wg.stack(losses)

        return layer, step

    (layer, step), (other, eager) = made(), made()
    compiled = wg.compile(step, fullgraph=True)
    for k in range(3):
        x = wg.randn(32, width, generator=wg.Generator().manual_seed(k))
        np.testing.assert_allclose(compiled(x).numpy(), eager(x).numpy(), rtol=1e-4)
        np.testing.assert_allclose(layer.weight.detach().numpy(), other.weight.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_what_is_packed_once_is_there_before_nodes_beside_each_other_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "GAIN", 0.0)
    monkeypatch.setattr(overlap, "LEAST", -1.0)
    weight = wg.randn(160, 160) / 12

    def branches(x: Any) -> Any:
        ends = []
        for k in range(4):
            end = x * (k + 1)
            for _ in range(5):
                end = (end @ weight.T).tanh()
            ends.append(end.sum(0))
        return wg.stack(ends)

    _same(branches, wg.randn(24, 160))

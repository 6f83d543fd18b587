"""What forward kernels leave for backward ones, and copies where reshapes are no views."""

import pytest

import wengert as wg
from tests.passes.captured import captured, names, same
from wengert.graph.operations import Fused
from wengert.passes.copies import copies
from wengert.passes.pipeline import optimise
from wengert.passes.spare import spare
from wengert.passes.traffic import totals

nn = wg.nn
functional = nn.functional


def slopes_of(function):
    """Return the gradient of what lies between two matrix products, by both and the input."""

    def loss(x, w, v):
        return (function(x @ w) @ v).square().sum()

    return wg.func.grad(loss, argnums=(0, 1, 2))


def elementwise(graph):
    return [n for n in graph.nodes if isinstance(n.op, Fused) and n.op.kind == "pointwise"]


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_leaves_its_argument_alone(approximate):
    function = slopes_of(lambda x: functional.gelu(x, approximate=approximate))
    graph, arrays = captured(function, wg.randn(32, 8), wg.randn(8, 16), wg.randn(16, 4))
    found = same(graph, arrays, exact=False)
    left = [v for n in found.nodes for v in n.results if v.shape == (32, 16) and "gelu" in n.op.name]
    assert len(left) == 1  # the result, and nothing for the gradient


def test_nothing_moves_where_it_takes_more():
    def function(a, b, c, w):  # the derivative is one array, what it is computed from are three
        return ((a.sin() * b.cos() * c.exp()) @ w).sum()

    graph, arrays = captured(wg.func.grad(function, argnums=(0,)), *(wg.randn(16, 16) for _ in range(4)))
    found = same(graph, arrays, exact=False)
    text = str(found)
    assert str(spare(found)) == text


@pytest.mark.parametrize(
    ("function", "number"),
    [
        (lambda x: x.permute(1, 0, 2).reshape(4, -1) * 2, 1),
        (lambda x: x.transpose(1, 2).contiguous().sin().reshape(-1), 0),
        (lambda x: x.reshape(-1) * 2, 0),
        (lambda x: x.permute(1, 0, 2).reshape(4, 3, 5, 1) * 2, 0),
        (lambda x: x.sin().transpose(0, 2).reshape(5, 12) @ x.reshape(12, 5), 1),
    ],
)
def test_reshapes_that_are_no_views_are_copies(function, number):
    graph, arrays = captured(function, wg.randn(3, 4, 5))
    before = names(graph).count("clone")
    found = same(graph, arrays, kinds=frozenset())
    assert names(found).count("clone") - before == number
    text = str(found)
    assert str(copies(found)) == text, "once is enough"


def test_less_is_moved():
    def function(x, w):
        return ((x @ w).sigmoid().tanh() @ w).sum()

    graph, _ = captured(wg.func.grad(function, argnums=(0, 1)), wg.randn(64, 16), wg.randn(16, 16))
    fused = optimise(graph)
    assert totals(fused)[1] < totals(optimise(graph, kinds=frozenset()))[1]
    assert all(n.results for n in elementwise(fused))

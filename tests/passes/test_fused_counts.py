"""How many kernels programs become, what is in them, and how many bytes they move."""

import itertools

import pytest

import wengert as wg
from tests.passes.captured import arrays_of, captured, names, program_of, same
from wengert.graph.operations import Fused
from wengert.passes.pipeline import KINDS, optimise
from wengert.passes.traffic import totals

nn = wg.nn
X = wg.linspace(-1, 1, 12).reshape(4, 3)


def kinds(graph):
    """Return what runs: kinds of fused operations, and operators, without views."""
    return [
        n.op.kind if isinstance(n.op, Fused) else n.op.name for n in graph.nodes if not getattr(n.op, "view", False)
    ]


def optimised(function, *args, **options):
    graph, arrays = captured(function, *args)
    return same(graph, arrays, exact=False, **options)


def test_a_chain_reads_and_writes_each_element_once():
    graph = optimised(lambda x: x.relu().sigmoid().sigmoid(), X)
    assert kinds(graph) == ["pointwise"]
    assert totals(graph)[:2] == (1, 2 * 12 * 4)


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda x: x.softmax(-1), ["softmax"]),
        (lambda x: x.log_softmax(-1), ["log_softmax"]),
        (lambda x: (x * 2 + 1).sum(-1), ["reduction"]),
        (lambda x: (x.exp() + x.sin(), x.exp() * 2), ["pointwise"]),  # two results, and exp once
        (lambda x: (x - x.mean(-1, keepdim=True)).square().mean(-1), ["mean", "reduction"]),
        (lambda x: x.t().contiguous() @ x, ["matmul"]),  # strides are read in place
        (lambda x: x.t() @ x.t().t(), ["matmul"]),
        (lambda x: nn.functional.linear(x.t().clone(), X), []),
        (lambda x: x * 1 + x.sum() * 0, ["sum", "pointwise"]),  # what is computed of a single number goes along
        (lambda x: wg.where(x > 0, x, 0.0).masked_fill(x > 1, 2.0), ["pointwise"]),
        (lambda x: (x.double() * 2).float() + x.half(), ["pointwise"]),
        (lambda x: x + wg.full((4, 3), 2.0), ["add"]),
        (lambda x: (x + 1)[:2].relu() + 1, ["add", "pointwise"]),
        (lambda x: [x[i] * 2 + 1 for i in range(3)], ["pointwise"] * 3),
    ],
)
def test_kinds(function, wanted):
    if wanted:
        assert kinds(optimised(function, X)) == wanted


def test_bias_and_activation_never_stand_alone_after_a_product():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 5), nn.GELU(), nn.Linear(5, 2), nn.Sigmoid())
    with wg.no_grad():
        assert kinds(optimised(model, X)) == ["product"] * 3
    w, b = wg.ones(3, 5), wg.ones(5)
    assert kinds(optimised(lambda x: ((x @ w) * 0.5 + b + wg.ones(4, 5)).tanh(), X)) == ["product"]
    assert kinds(optimised(lambda x: wg.addmm(b, x, w).relu(), X)) == ["product"]
    assert kinds(optimised(lambda x: ((y := x @ w + b).relu(), y), X)) == ["product", "relu"]


def test_a_sum_of_two_products_is_in_one_of_them():
    graph = optimised(lambda x: x @ wg.ones(3, 2) + (x * 2) @ wg.ones(3, 2), X)
    assert sorted(kinds(graph)) == ["matmul", "mul", "product"]


def test_batch_norm_in_evaluation_moves_into_the_convolution():
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    with wg.no_grad():
        model[1].running_mean.copy_(wg.randn(4))
        model[1].running_var.copy_(wg.rand(4) + 0.5)
        graph = optimised(model, wg.randn(2, 2, 12, 12))
    large = [n for n in graph.nodes if n.results[0].shape == (2, 4, 10, 10)]
    assert len(large) == 1
    assert [m.op.name for m in large[0].op.body.nodes] == ["conv", "relu"]


def step_of(optimiser, **options):
    """Return a training step that has run twice, and its tensors."""
    wg.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    update = optimiser(model.parameters(), lr=0.01, **options)

    def step(x, y):
        update.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        update.step()
        return loss

    batch = wg.randn(4, 6), wg.tensor([0, 1, 2, 0])
    for _ in range(2):
        step(*batch)
    return step, batch


@pytest.mark.parametrize(
    ("optimiser", "options"),
    [
        (wg.optim.Adagrad, {}),
        (wg.optim.SGD, {"momentum": 0.9}),
        (wg.optim.Adam, {}),
        (wg.optim.AdamW, {}),
        (wg.optim.RMSprop, {}),
    ],
)
def test_one_kernel_updates_all_parameters(optimiser, options):
    step, batch = step_of(optimiser, **options)
    program, leaves = program_of(step, *batch)
    graph = same(program.graph, arrays_of(program, leaves), exact=True)
    found = kinds(graph)
    assert found.count("formulas") == 1
    assert not any("step" in name for name in found), "a formula was left alone"
    body = next(n.op.body for n in graph.nodes if getattr(n.op, "kind", "") == "formulas")
    assert sum("step" in name for name in names(body)) == 6
    assert "relu" not in found
    assert "clone" not in found


def test_the_mask_of_an_activation_is_computed_where_it_is_used():
    step, batch = step_of(wg.optim.SGD, momentum=0.9)
    graph = optimise(captured(step, *batch)[0])
    masks = [n for n in graph.nodes if isinstance(n.op, Fused) and "le" in names(n.op.body)]
    assert [names(n.op.body) for n in masks] == [["le", "choose"]] * 2


def test_the_backward_pass_of_layer_norm_is_two_kernels():
    weight, bias = wg.ones(8).requires_grad_(), wg.zeros(8).requires_grad_()
    x, g = wg.randn(4, 8).requires_grad_(), wg.randn(4, 8)

    def backward(x, g):
        out = nn.functional.layer_norm(x, (8,), weight, bias)
        return wg.autograd.grad(out, (x, weight, bias), g)

    found = kinds(optimised(backward, x, g))
    assert found[0] == "normalized"
    assert len(found) <= 3, found


def test_cheap_values_are_computed_again_rather_than_read():
    """The half of a tensor is read where its double would be written and read."""

    def function(x):
        wide = x.double()
        return wide.sum(), wide @ wide.t(), wide * 2

    graph = optimised(function, X)
    assert "cast" in names(
        next(n.op.body for n in graph.nodes if isinstance(n.op, Fused) and "mul" in names(n.op.body))
    )


@pytest.mark.parametrize("chosen", [set(c) for n in range(4) for c in itertools.combinations(sorted(KINDS), n)])
def test_kinds_can_be_switched_off(chosen):
    step, batch = step_of(wg.optim.Adam)
    program, leaves = program_of(step, *batch)
    graph = same(program.graph, arrays_of(program, leaves), exact=True, kinds=frozenset(chosen))
    assert {n.op.kind for n in graph.nodes if isinstance(n.op, Fused)} <= chosen


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="product, reduction, got conv"):
        optimise(captured(lambda x: x + 1, X)[0], kinds=frozenset({"conv"}))

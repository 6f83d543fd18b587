"""``cond``, ``while_loop``, ``scan`` and ``map`` in compiled functions: one program, whatever the values decide.

Each case is run as it is and compiled, on arguments that take different ways; results and gradients must agree, by NumPy's
measure, and so must the number of programs: one where the bodies only compute.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import func, nn
from wengert.graph.control import Branches, Loop

W = nn.Parameter(wg.tensor([1.5, -0.5, 2.0]))
FIRST, SECOND = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh())
NORM = nn.BatchNorm1d(3)
PARAMETERS = [W, *FIRST.parameters(), *SECOND.parameters(), *NORM.parameters()]
CALLS = [wg.tensor(x) for x in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [4.0, -1.0, -1.0])]


def raising(x: Any) -> Any:
    raise ValueError("this branch raises")


def below(v: Any) -> Any:
    return v.square().sum() < 100


def positive(x: Any, one: Any, other: Any) -> Any:
    return wg.cond(x.sum() > 0, one, other, (x,))


def counted(x: Any) -> Any:
    steps = 3 + x.sum().long().clamp(0, 3)
    return func.while_loop(lambda n, v: n < steps, lambda n, v: (n + 1, v.sin() * W + x), (wg.tensor(0), x * 2))


def second_derivative(x: Any) -> Any:
    y = positive(x, lambda x: (x**3 * W).sum(), lambda x: (x**4).sum())
    return func.grad(lambda x: x.sum())(x) + wg.autograd.grad(y, x, create_graph=True)[0]


def cases() -> Iterator[tuple[str, Callable[..., Any], int]]:
    """Yield functions of one tensor, and how many programs three calls take."""
    yield "a branch", lambda x: positive(x, lambda x: (x * W).sin(), lambda x: x * x * 2), 1
    yield "what is given", lambda x: positive(x, lambda x: x, lambda x: x * 2) * 3, 1
    yield "modules", lambda x: positive(x, FIRST, SECOND), 1
    yield (
        "a tree",
        lambda x: positive(
            x, lambda x: {"a": x * 2, "b": (x.sum(), x.long())}, lambda x: {"a": W, "b": (x[0], x.long())}
        ),
        1,
    )
    yield (
        "in another",
        lambda x: positive(x, lambda x: wg.cond(x[1] > 0, wg.tanh, lambda v: v * 3, (x,)), wg.sin) * x,
        1,
    )
    yield "a loop", lambda x: func.while_loop(below, lambda v: (v * 1.7 * W.abs(),), (x,))[0], 1
    yield "a loop that counts", counted, 1
    yield "a loop of no step", lambda x: func.while_loop(lambda v: v.sum() > 1e9, lambda v: (v * 2,), (x,))[0] * 2, 1
    yield (
        "a branch in a loop",
        lambda x: func.while_loop(
            below, lambda v: (wg.cond(v[0] > 0, lambda v: v * 2 * W, lambda v: v * 3, (v,)),), (x,)
        ),
        1,
    )
    yield (
        "a branch in a scan",
        lambda x: func.scan(
            lambda c, v: (wg.cond(v > 0, lambda c: c * v, lambda c: c + W.sum(), (c,)), c), wg.tensor(1.0), x
        ),
        1,
    )
    yield "map", lambda x: func.map(lambda v: wg.cond(v > 0, wg.sin, lambda v: v * W.sum(), (v,)), x), 1
    yield "in vmap", lambda x: func.vmap(lambda v: wg.cond(v > 0, wg.sin, lambda v: v * 2, (v,)))(x), 1
    yield "second derivatives", second_derivative, 1
    yield "one that raises", lambda x: wg.cond(x.sum() > -100, wg.sin, raising, (x,)), 1
    yield "one that draws", lambda x: positive(x, lambda x: x + 0 * wg.rand(3), lambda x: x * 2), 2
    yield "one that writes", lambda x: positive(x, lambda x: NORM(wg.stack([x, x * 2])).sum(0), SECOND), 2
    yield "other shapes", lambda x: positive(x, lambda x: x.sum(), lambda x: x * 2), 2


def observed(function: Callable[..., Any], x: Any) -> list[Any]:
    """Return results, and gradients of a sum of them, as arrays."""
    wg.manual_seed(0)
    given = x.detach().clone().requires_grad_()
    for p in PARAMETERS:
        p.grad = None
    found = [t for t in wg.tree.leaves(function(given)) if isinstance(t, wg.Tensor)]
    if differentiated := [t for t in found if t.requires_grad]:
        sum((t * t.detach().cos()).sum() for t in differentiated).backward()
    gradients = [wg.zeros(p.shape) if p.grad is None else p.grad for p in (given, *PARAMETERS)]
    return [t.detach().numpy().copy() for t in (*found, *gradients)]


@pytest.mark.parametrize("backend", ["reference", "native"])
@pytest.mark.parametrize(("function", "programs"), [pytest.param(f, n, id=name) for name, f, n in cases()])
def test_values_gradients_and_programs(function: Callable[..., Any], programs: int, backend: str) -> None:
    fast = wg.compile(function, fullgraph=True, backend=backend)
    for x in CALLS:
        for found, want in zip(observed(fast, x), observed(function, x), strict=True):
            np.testing.assert_allclose(found, want, rtol=2e-5, atol=1e-5)
    assert sum(map(len, fast.programs.values())) == programs


def test_they_are_nodes_whose_kernels_stand_beside_others() -> None:
    def run(x: Any) -> Any:
        y = positive(x, lambda x: x.exp() * 2, lambda x: x.sin())
        return func.while_loop(below, lambda v: (v + y,), (y,))[0]

    traced = wg.trace(run)(wg.ones(3))
    traced.verify()
    assert [type(n.op) for n in traced.graph.nodes if not hasattr(n.op, "kernel")] == [Branches, Loop]
    np.testing.assert_allclose(traced.evaluate(wg.full((3,), 0.5)).numpy(), run(wg.full((3,), 0.5)).numpy(), rtol=1e-6)
    fast = wg.compile(run, fullgraph=True, verify="always")
    assert [fast(x).isfinite().all().item() for x in (wg.ones(3), wg.full((3,), -0.5))] == [True, True]
    with pytest.raises(wg.errors.GraphError, match="'cond' holds objects of Python"):
        traced.save("never.written")


def test_a_step_of_training() -> None:
    def trained(compiled: bool) -> list[float]:
        w = nn.Parameter(wg.tensor([1.0, -2.0, 0.5], dtype=wg.float64))
        optimizer = wg.optim.SGD([w], lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = positive(x, lambda x: (x * w).square().sum(), lambda x: (x - w).square().sum())
            loss.backward()
            optimizer.step()
            return loss

        run = wg.compile(step, fullgraph=True) if compiled else step
        return [run(x.double()).item() for x in CALLS * 2] + w.tolist()

    np.testing.assert_allclose(trained(True), trained(False), rtol=1e-12)


def test_what_may_be_what_was_given_is_not_written() -> None:
    def run(x: Any) -> Any:
        y = positive(x, lambda x: x, lambda x: x * 2)
        y.add_(1)
        return x * 1, y * 1

    with pytest.warns(RuntimeWarning, match="may return as it is"):
        found = wg.compile(run)(wg.ones(3))
    assert [t.tolist() for t in found] == [[2.0] * 3, [2.0] * 3]


def test_what_branches_do_in_python_is_done_as_in_the_function() -> None:
    said: list[str] = []
    fast = wg.compile(
        lambda x: positive(x, lambda x: (said.append("one"), x)[1], lambda x: (said.append("other"), x)[1])
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in CALLS * 4:
            fast(x)
    assert said == ["one", "other", "one"] * 4


def test_second_derivatives_of_a_loop_are_refused() -> None:
    def run(x: Any) -> Any:
        y = func.while_loop(below, lambda v: (v**2 * 1.7,), (x,))[0].sum()
        return wg.autograd.grad(wg.autograd.grad(y, x, create_graph=True)[0].sum(), x)[0]

    x = wg.full((3,), 2.0, requires_grad=True)
    with pytest.warns(RuntimeWarning, match="second derivatives of while_loop"):
        assert wg.compile(run)(x).tolist() == run(x).tolist()

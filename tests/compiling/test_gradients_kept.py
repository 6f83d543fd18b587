"""``.grad`` under compile: which object it is, whose memory it has, and where no gradient comes."""

from collections.abc import Callable
from typing import Any

import pytest

import wengert as wg
from wengert import nn

F = nn.functional
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
WAYS = [
    pytest.param(lambda f: f, id="eager"),
    *(pytest.param(lambda f, b=b: wg.compile(f, fullgraph=True, backend=b), id=b) for b in ("reference", "native")),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("of_module", [False, True])
def test_zeros_are_written_where_the_gradient_lies(way: Compile, of_module: bool) -> None:
    model = nn.Linear(2, 2)
    reset: Any = model if of_module else wg.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any) -> None:
        reset.zero_grad(set_to_none=False)
        model(x).sum().backward()

    def clear(x: Any) -> None:
        reset.zero_grad(set_to_none=False)

    run, emptied = way(step), way(clear)
    run(wg.ones(3, 2))
    gradient, memory = model.weight.grad, model.weight.grad.data_ptr()
    for _ in range(2):
        run(wg.ones(3, 2))
        assert model.weight.grad is gradient
        assert gradient.data_ptr() == memory
        assert gradient.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    emptied(wg.ones(3, 2))
    assert model.weight.grad is gradient
    assert gradient.tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("way", WAYS)
def test_a_gradient_that_is_returned_is_the_gradient(way: Compile) -> None:
    p = nn.Parameter(wg.ones(4))

    def run(x: Any) -> Any:
        p.grad = None
        (p * x).sum().backward()
        return p.grad, p.grad[:2], p.grad.detach(), p.grad * 2

    fast = way(run)
    for number in (1.0, 2.0):
        whole, part, cut, twice = fast(wg.full((4,), number))
        assert whole is p.grad
        assert cut is not whole
        assert twice.tolist() == [2 * number] * 4
        part.zero_()
        assert whole.tolist() == cut.tolist() == [0.0, 0.0, number, number]


@pytest.mark.parametrize("way", WAYS)
def test_results_that_are_fed_back_with_their_gradient(way: Compile) -> None:
    w = nn.Parameter(wg.tensor([1.0, 2.0]))

    def run(x: Any, h: Any) -> Any:
        h = x * w + h
        return h.sum(), h

    fast, h = way(run), wg.zeros(2)
    for _ in range(3):
        loss, h = fast(wg.ones(2), h)
    loss.backward()
    assert loss.item() == 9.0
    assert w.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("way", WAYS)
def test_no_gradient_comes_from_a_result_that_is_not_used(way: Compile) -> None:
    a, b, both = (wg.ones(2, requires_grad=True) for _ in range(3))
    y, _ = way(lambda a, b, both: (a * 2 * both, b * 3 * both))(a, b, both)
    y.sum().backward()
    assert a.grad.tolist() == [2.0, 2.0]
    assert b.grad is None
    assert both.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("way", WAYS)
def test_the_number_of_classes_is_read(way: Compile) -> None:
    fast = way(lambda t: F.one_hot(t))
    for classes, size in (([0, 2], 3), ([0, 4], 5), ([2, 1], 3)):
        assert fast(wg.tensor(classes)).tolist() == [[int(c == k) for k in range(size)] for c in classes]


def test_gradients_that_the_function_turns_on_itself() -> None:
    weight = wg.ones(3, requires_grad=True)

    def function(x: Any) -> Any:
        with wg.no_grad():
            silent = (weight * x).sum()
        with wg.enable_grad():
            return silent, (weight * x).sum()

    compiled = wg.compile(function, fullgraph=True)
    for k in range(3):
        x = wg.ones(3) * k
        for mode in (wg.no_grad, wg.enable_grad, wg.inference_mode):
            with mode():
                found, right = compiled(x), function(x)
            assert [t.requires_grad for t in found] == [t.requires_grad for t in right]
            if found[1].requires_grad:
                assert wg.autograd.grad(found[1], weight)[0].tolist() == x.tolist()


# Views that are taken with gradients on, or off, of what has a history, or has none.
VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "of a result, on": lambda x, y: y.T,
    "of an argument, on": lambda x, y: x.T,
    "of a result, off": lambda x, y: _quietly(lambda: y[0]),
    "of an argument, off": lambda x, y: _quietly(lambda: x[0]),
    "of a view, on": lambda x, y: y.T[0].reshape(1, 3),
    "of what has none": lambda x, y: _quietly(lambda: x * 2).T,
    "detached": lambda x, y: y.detach().T,
}


def _quietly(do: Callable[[], Any]) -> Any:
    with wg.no_grad():
        return do()


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("mode", [wg.no_grad, wg.enable_grad])
@pytest.mark.parametrize("both", [True, False])
def test_views_have_the_history_they_were_taken_with(name: str, mode: Any, both: bool) -> None:
    def function(x: Any) -> Any:
        with wg.enable_grad():
            y = (x * 2).sin()
            view = VIEWS[name](x, y)
        return (y, view) if both else (view,)

    compiled = wg.compile(function, fullgraph=True)
    for k in range(3):
        x = (wg.ones(3, 2) * k).requires_grad_()
        with mode():
            found, right = compiled(x), function(x)
        assert [t.requires_grad for t in found] == [t.requires_grad for t in right]
        if found[-1].requires_grad:
            slopes = [wg.autograd.grad(t[-1].sum(), x)[0].tolist() for t in (found, right)]
            assert slopes[0] == slopes[1]

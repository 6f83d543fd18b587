"""What running the tests of plain calls a second time, compiled, has found; see tests/variants.py."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import variants
from wengert import func, nn
from wengert.autograd import Function, gradcheck
from wengert.autograd.graph import save_on_disk
from wengert.errors import CaptureError, InplaceError


def leaf(*values: float) -> Any:
    return wg.tensor(list(values), dtype=wg.float64, requires_grad=True)


class Reversal(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return -g


def hooked_in_place(x: Any) -> Any:
    y = x.view(2, 1)
    y.register_hook(lambda g: g * 3)
    return y


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (Reversal.apply, [-1.0, -1.0]),
        (lambda x: Reversal.apply(x).view(2, 1), [-1.0, -1.0]),
        (lambda x: x.view(2, 1).t(), [1.0, 1.0]),
        (hooked_in_place, [3.0, 3.0]),
        (lambda x: x.chunk(2)[1], [0.0, 1.0]),
    ],
    ids=["a view of a Function", "a view of that", "views", "a hook on a view", "one of several views"],
)
def test_a_view_that_is_returned_has_the_history_it_was_given(function: Any, wanted: list[float]) -> None:
    compiled = wg.compile(function, fullgraph=True)
    for _ in range(2):
        x = leaf(1.0, 2.0)
        compiled(x).sum().backward()
        assert x.grad.tolist() == wanted


def test_hooks_of_a_module_that_returns_what_it_is_given_run() -> None:
    module = nn.Identity()
    module.register_full_backward_hook(lambda m, inputs, outputs: (inputs[0] * 2,))
    x = leaf(1.0, 2.0)
    wg.compile(module, fullgraph=True)(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def gradient_held_as_an_expanded_view() -> Any:
    x, one = leaf(1.0, 2.0), wg.ones(1, dtype=wg.float64)
    x.grad = one.expand(2)
    (x * wg.tensor([1.0, 5.0], dtype=wg.float64)).sum().backward()
    return x.grad, one


def write_in_inference_mode() -> Any:
    with wg.inference_mode():
        y = wg.ones(2)
        y.add_(1)
    return y * 1


def parameter_on_memory_that_is_read() -> Any:
    data = wg.zeros(2)
    with wg.no_grad():
        nn.Parameter(data).fill_(5.0)
    return wg.tensor(data.tolist())


def index_of_one_example() -> Any:
    rows, values = wg.tensor([[1.0, 3.0], [4.0, 2.0]]), wg.tensor([10.0, 20.0])
    return func.vmap(lambda row: values[row.argmax()])(rows)


def mean_of_bags() -> Any:
    return nn.functional.embedding_bag(wg.tensor([0, 1, 1]), wg.tensor([[1.0], [3.0]]), wg.tensor([0, 2]), mode="mean")


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (gradient_held_as_an_expanded_view, ([2.0, 6.0], [1.0])),
        (write_in_inference_mode, [2.0, 2.0]),
        (parameter_on_memory_that_is_read, [5.0, 5.0]),
        (index_of_one_example, [20.0, 10.0]),
        (mean_of_bags, [[2.0], [3.0]]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_a_function_makes_inside(function: Callable[[], Any], wanted: Any) -> None:
    compiled = wg.compile(function, fullgraph=True)
    for _ in range(2):
        found = compiled()
        assert wg.tree.map(lambda t: t.tolist(), found) == wanted


@pytest.mark.parametrize("write", [lambda x: x.expand(2, 3).fill_(1.0), lambda x: x.t().expand(3, 2).add_(1)])
def test_elements_that_share_a_place_are_not_written(write: Any) -> None:
    with pytest.raises(InplaceError, match="share one memory location"):
        wg.compile(write, fullgraph=True)(wg.zeros(1, 3))


def test_a_rate_that_is_returned_is_that_of_the_call() -> None:
    p = nn.Parameter(wg.ones(2))
    optimizer = wg.optim.SGD([p], lr=1.0)
    scheduler = wg.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        (p * x).sum().backward()
        optimizer.step()
        return optimizer.param_groups[0]["lr"]

    def step_of_both(x: Any) -> Any:
        step(x)
        scheduler.step()
        return scheduler.get_last_lr()

    compiled, found = wg.compile(step, fullgraph=True), []
    for _ in range(3):
        found.append(compiled(wg.ones(2)))
        scheduler.step()
    assert found == [1.0, 0.5, 0.25]
    with pytest.raises(CaptureError, match="returns lr of an optimiser whose scheduler it steps"):
        wg.compile(step_of_both, fullgraph=True)(wg.ones(2))


def written_tangent(target: Any) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        return func.jvp(lambda v: target.copy_(v * v) * 2, (x,), (x,))

    return run


def kept_in_files(x: Any) -> Any:
    with save_on_disk(min_bytes=0):
        return x.sin() * x


def scheduler_inside(x: Any) -> Any:
    return wg.optim.lr_scheduler.StepLR(wg.optim.SGD([nn.Parameter(x)], lr=0.1), 2).last_epoch


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x.data_ptr(), "data_ptr"),
        (kept_in_files, "save_on_disk"),
        (scheduler_inside, "a scheduler that is made inside"),
        (lambda x: gradcheck(wg.sin, (x,)), "gradcheck"),
        (written_tangent(wg.zeros(2, dtype=wg.float64)), "tangent into a tensor from outside"),
        (written_tangent(wg.zeros(1, 2, dtype=wg.float64)[0]), "tangent into a tensor from outside"),
    ],
    ids=["address", "files", "scheduler", "gradcheck", "tangent", "tangent in a view"],
)
def test_what_no_program_can_do_is_refused(function: Any, said: str) -> None:
    with pytest.raises(CaptureError, match=said):
        wg.compile(function, fullgraph=True)(leaf(1.0, 2.0))


class Meta(type):
    """A class of classes, whose dictionaries cannot be written."""


class Factors(metaclass=Meta):
    factor = 2.0


def test_classes_with_a_class_of_their_own_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Factors
    compiled = wg.compile(lambda x: x * kind.factor, fullgraph=True)
    assert compiled(wg.ones(1)).item() == 2.0
    monkeypatch.setattr(Factors, "factor", 3.0)
    assert compiled(wg.ones(1)).item() == 3.0


def test_a_checkpoint_meets_the_program_at_the_first_call_too() -> None:
    compiled = wg.compile(lambda x: (x.sin() * x).exp().sum(), fullgraph=True)
    for _ in range(2):
        x = leaf(0.5, 1.0)
        wg.utils.checkpoint.checkpoint(compiled, x, use_reentrant=False).backward()
        v = np.array([0.5, 1.0])
        np.testing.assert_allclose(x.grad.numpy(), np.exp(np.sin(v) * v) * (np.cos(v) * v + np.sin(v)))


def test_a_backward_hook_that_asks_for_values_runs_with_the_function_as_it_is() -> None:
    seen: list[float] = []
    module = nn.Tanh()
    module.register_full_backward_hook(lambda m, inputs, outputs: seen.append(outputs[0].norm().item()))
    compiled = wg.compile(module)
    with pytest.warns(RuntimeWarning, match="needs the values of a tensor"):
        y = compiled(leaf(0.0, 0.0))
    y.backward(wg.tensor([3.0, 4.0], dtype=wg.float64))
    np.testing.assert_allclose(seen, [5.0])


def test_what_is_left_out_exists() -> None:
    assert variants.unknown() == []

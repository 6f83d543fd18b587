"""What users who tried to break compiled functions found, each against the function itself."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.errors import CaptureError, InplaceError


def compiled(function: Any) -> Any:
    return wg.compile(function, fullgraph=True)


def test_read_only_memory_is_not_written() -> None:
    held, data = wg.zeros(40_000), bytes(160_000)
    run = compiled(lambda x: held.add_(x) * 1)
    run(wg.ones(40_000))
    held.data = wg.from_numpy(np.frombuffer(data, np.float32))
    with pytest.raises(InplaceError, match="read-only memory"):
        run(wg.ones(40_000))
    assert not any(data[:64])


def test_a_returned_tensor_that_backward_needs_may_not_be_changed() -> None:
    def function(x: Any) -> Any:
        mask = (x > 0.5).to(wg.float32) * 2
        return (mask * x).sum(), mask

    total, mask = compiled(function)(wg.tensor([0.0, 1.0, 2.0], requires_grad=True))
    mask.zero_()
    with pytest.raises(InplaceError):
        total.backward()


def momentum_steps(wrap: Any, change: Any) -> list[float]:
    p = wg.nn.Parameter(wg.ones(2))
    optimizer = wg.optim.SGD([p], lr=0.1, momentum=0.9)

    def step(x: Any) -> None:
        optimizer.zero_grad()
        (p * x).sum().backward()
        optimizer.step()

    run = wrap(step)
    for k in range(6):
        if k == 4:
            change(optimizer, p)
        run(wg.ones(2))
    return p.tolist()


@pytest.mark.parametrize(
    "change",
    [
        lambda o, p: o.state.clear(),
        lambda o, p: o.state[p].update(momentum_buffer=wg.zeros(2)),
        lambda o, p: o.param_groups[0]["params"].clear(),
    ],
)
def test_a_changed_state_of_an_optimizer_is_seen(change: Any) -> None:
    expected = momentum_steps(lambda step: step, change)
    np.testing.assert_allclose(momentum_steps(wg.compile, change), expected, rtol=1e-6)


def frozen_for_a_while(wrap: Any) -> list[float]:
    wg.manual_seed(0)
    first, second = wg.nn.Linear(3, 3), wg.nn.Linear(3, 1)
    optimizer = wg.optim.AdamW([*first.parameters(), *second.parameters()], lr=1e-2)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = second(first(x)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run, x = wrap(step), wg.ones(4, 3)
    losses = []
    for k in range(9):
        if k in (3, 5):
            first.requires_grad_(k == 5)
        losses.append(run(x).item())
    return losses


def test_parts_that_are_frozen_for_a_while() -> None:
    np.testing.assert_allclose(frozen_for_a_while(wg.compile), frozen_for_a_while(lambda step: step), rtol=1e-5)


@dataclasses.dataclass
class Out:
    y: Any


@pytest.mark.parametrize(
    "function", [lambda x: Out(x + 1), lambda x: {x + 1}, lambda x: lambda: x + 1, lambda x: np.array(x.shape)]
)
def test_what_each_call_must_make_anew_is_refused(function: Any) -> None:
    with pytest.raises(CaptureError, match="make anew"):
        compiled(function)(wg.ones(2))


def test_numbers_of_a_module_that_are_equal_but_not_the_same() -> None:
    class Scaled(wg.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.k: Any = 1

        def forward(self, x: Any) -> Any:
            return x * self.k

    module = Scaled()
    run, x = compiled(module), wg.arange(3)
    assert run(x).dtype == wg.int64
    module.k = 1.0
    assert run(x).dtype == wg.float32


@pytest.mark.parametrize(
    "split", [lambda x: x.chunk(2), lambda x: x.unbind(0)[:2], lambda x: wg.linalg.slogdet(x.outer(x) + wg.eye(6))]
)
def test_arguments_that_are_some_of_the_results_of_an_operator(split: Any) -> None:
    def gradient(wrap: Any) -> Any:
        x = wg.linspace(1, 2, 6, requires_grad=True)
        wrap(lambda a, b: (a * b).sum() + b.sum())(*split(x * 2)).backward()
        return x.grad.numpy()

    np.testing.assert_allclose(gradient(compiled), gradient(lambda function: function), rtol=1e-5)

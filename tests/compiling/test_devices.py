"""Programs over several logical devices: values and places are those of the plain function, each device has a queue."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn
from wengert.array.device import devices
from wengert.compiling.program import Program
from wengert.runtime import overlap
from wengert.runtime.concurrent import Concurrent
from wengert.runtime.machine import nominal
from wengert.runtime.threads import get_num_threads, set_num_threads

F = nn.functional


@pytest.fixture(autouse=True)
def _two_devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = get_num_threads()
    set_num_threads(2)
    monkeypatch.setattr(overlap, "known", lambda: nominal(2))
    devices.grow(2)
    yield
    devices.count, devices.default, devices.several = 1, 0, False
    set_num_threads(before)


def seen(tensor: Any) -> tuple[str, Any]:
    return str(tensor.device), tensor.detach().cpu().numpy().copy()


def same(found: Any, expected: Any) -> None:
    for (device, values), (where, wanted) in zip(found, expected, strict=True):
        assert device == where
        np.testing.assert_allclose(values, wanted, rtol=2e-5, atol=1e-6)


def parallel(seed: int) -> tuple[Callable[..., Any], tuple[Any, ...], list[Any]]:
    """Return the training step of a model of which each device has a half, and one input."""
    wg.manual_seed(seed)
    left = nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh())
    right = nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 5)).to("cpu:1")
    parameters = [*left.parameters(), *right.parameters()]
    optimizer = wg.optim.AdamW(parameters, lr=0.02)

    def step(x: Any, y: Any, targets: Any) -> Any:
        optimizer.zero_grad()
        hidden = left(x)
        loss = F.cross_entropy(right(hidden.to("cpu:1") + y), targets) + hidden.abs().mean().to("cpu:1")
        loss.backward()
        optimizer.step()
        return loss

    arguments = wg.randn(6, 24), wg.randn(6, 24).to("cpu:1"), wg.randint(0, 5, (6,)).to("cpu:1")
    return step, arguments, parameters


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_a_model_of_two_halves_trains_as_it_does_uncompiled(backend: str) -> None:
    step, arguments, parameters = parallel(0)
    other, _, there = parallel(0)
    function = wg.compile(other, fullgraph=True, backend=backend)
    for _ in range(4):
        same([seen(function(*arguments))], [seen(step(*arguments))])
    same(map(seen, there), map(seen, parameters))
    same((seen(p.grad) for p in there), (seen(p.grad) for p in parameters))


@pytest.mark.parametrize("policy", ["ready", "priority"])
def test_each_device_has_a_queue(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """The nodes of a device come one after the other; those of both are side by side, and give what they give in order."""
    monkeypatch.setattr(overlap, "GAIN", 0.0)
    monkeypatch.setattr(overlap, "LEAST", -1.0)
    (step, arguments, parameters), (other, _, there) = parallel(1), parallel(1)
    function, plain = (
        wg.compile(step, fullgraph=True, policy=policy),
        wg.compile(other, fullgraph=True, policy="topological"),
    )
    for _ in range(4):
        assert function(*arguments).cpu().item() == plain(*arguments).cpu().item()
    for one, two in zip(parameters, there, strict=True):
        np.testing.assert_array_equal(one.detach().cpu().numpy(), two.detach().cpu().numpy())
    (program,) = [p for found in function.programs.values() for p in found]
    steps = [s for s in program.plan.steps if isinstance(s, Concurrent)]
    assert steps
    queues = program.plan.expected.queues
    assert set(queues.values()) == {0, 1}
    for of_plan in steps:
        before = [set(firsts) for firsts in of_plan.before]
        for k, firsts in enumerate(before):
            before[k] = firsts.union(*(before[first] for first in firsts))
        for queue in (0, 1):
            units = [u for u in of_plan.units if queues[u.node] == queue]
            assert all(one.end - 1 in before[two.first] for one, two in pairwise(units))


def there_and_back(x: Any, y: Any) -> Any:
    z = x.to("cpu:1") * y
    return z.cpu() + x, z.t(), z, y[0], (z * 2.0).sum(), x.to("cpu")


def made_there(x: Any, y: Any) -> Any:
    ones = wg.ones(4, device="cpu:1")
    return ones + y, wg.zeros_like(y), y.new_zeros(3), wg.arange(4.0).to("cpu:1") @ y, ones * 2


def drawn_there(x: Any, y: Any) -> Any:
    noise, normal = wg.rand(3, 4, device="cpu:1"), wg.empty(3, device="cpu:1").normal_()
    return noise, normal, noise @ y, F.dropout(y, 0.5), wg.randn_like(y), wg.rand(2), x + wg.randn(4)


def written_there(x: Any, y: Any) -> Any:
    with wg.no_grad():
        y.mul_(2.0)
        y[0] = x[0].to("cpu:1")
    return y.sum(), y


@pytest.mark.parametrize("function", [there_and_back, made_there, drawn_there, written_there])
def test_results_are_where_they_are_uncompiled(function: Callable[..., Any]) -> None:
    results = []
    for run in (function, wg.compile(function, fullgraph=True)):
        wg.manual_seed(0)
        x, y = wg.randn(4, 4), wg.randn(4, 4).to("cpu:1")
        for _ in range(2):
            found = run(x, y)
        results.append([seen(t) for t in (*found, x, y)])
    same(*results)


def test_gradients_from_outside_come_back_to_their_devices() -> None:
    results = []
    for run in (there_and_back, wg.compile(there_and_back, fullgraph=True)):
        wg.manual_seed(0)
        x, y = wg.randn(4, 4).requires_grad_(), wg.randn(4, 4).to("cpu:1").requires_grad_()
        first, second, *_ = run(x, y)
        (first.sum() + (second**2).sum().cpu()).backward()
        results.append([seen(x.grad), seen(y.grad)])
    same(*results)


def test_an_argument_on_another_device_takes_another_program() -> None:
    function = wg.compile(lambda x: x * 2 + 1, fullgraph=True)
    for device in ("cpu:0", "cpu:1", "cpu:0"):
        found = function(wg.ones(3).to(device))
        assert str(found.device) in (device, device.replace("cpu:0", "cpu"))
        assert found.cpu().tolist() == [3.0] * 3
    assert len(function.programs) == 2


def test_tensors_of_two_devices_do_not_mix() -> None:
    function = wg.compile(lambda x, y: x + y, fullgraph=True)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        function(wg.ones(3), wg.ones(3).to("cpu:1"))


def test_a_hook_on_a_parameter_asks_for_no_new_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Program] = []
    build = Program._build
    monkeypatch.setattr(Program, "_build", lambda self: (built.append(self), build(self))[1])
    model = nn.Linear(2, 2)
    model.weight.register_hook(lambda g: g * 2)
    fast = wg.compile(lambda x: model(x.to("cpu:1").to("cpu:0")).sum(), fullgraph=True)
    for _ in range(3):
        fast(wg.ones(2, 2)).backward()
    assert len(built) == 1
    assert model.weight.grad.tolist() == [[12.0, 12.0], [12.0, 12.0]]

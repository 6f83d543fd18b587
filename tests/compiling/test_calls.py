"""What a call of a compiled program does with memory: of arguments, of results, and of what it writes."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn, tree
from wengert.compiling.function import Compiled
from wengert.runtime.segments import Native, moving, overlapping

F = wg.nn.functional
LARGE = 20_000  # elements: results of as many are computed in memory of the caller's


def compiled(function: Any) -> Compiled:
    return Compiled(function, fullgraph=True, backend="native")


def plan_of(function: Compiled) -> Any:
    return next(iter(function.programs.values()))[0].plan


def shares(a: Any, b: Any) -> bool:
    return np.shares_memory(a.detach().numpy(), b.detach().numpy())


# ---- results


def whole_and_views(x: Any) -> Any:
    y = x * 2
    return y, y.view(-1), y.t(), y.detach()


def views(x: Any) -> Any:
    y = x * 2
    return y.view(-1), y.t()


def written_view(x: Any) -> Any:
    y = x * 2
    row = y[0]
    row.add_(5)
    return row, y


def halves(x: Any) -> Any:
    return (x * 2).chunk(2, 1)


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("function", [whole_and_views, views, written_view, halves])
def test_results_share_memory_as_they_do_eagerly(function: Any, grows: bool) -> None:
    x = wg.arange(6.0).reshape(2, 3).clone().requires_grad_(grows)
    if function is views and grows:
        with pytest.raises(wg.errors.CaptureError, match="share memory"):
            compiled(function)(x)
        return
    expected, run = function(x), compiled(function)
    for _ in range(2):
        found = run(x)
        assert [t.tolist() for t in found] == [t.tolist() for t in expected]
        assert [t.requires_grad for t in found] == [t.requires_grad for t in expected]
        for a, b in zip(found, expected, strict=True):
            assert [shares(a, other) for other in found] == [shares(b, other) for other in expected]
        if grows:
            totals = [sum(t.sum() for t in results if t.requires_grad) for results in (found, expected)]
            ours, theirs = (wg.autograd.grad(total, x, retain_graph=True)[0].tolist() for total in totals)
            assert ours == theirs


@pytest.mark.parametrize("size", [8, LARGE])
def test_results_stay_as_they_are(size: int) -> None:
    """The memory of a result is the caller's; later calls leave it alone."""
    run = compiled(lambda x: (x.sin(), x + 1))
    given = [wg.randn(size) for _ in range(4)]
    found = [run(x) for x in given]
    for x, (sine, sum_) in zip(given, found, strict=True):
        np.testing.assert_allclose(sine.numpy(), np.sin(x.numpy()), rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(sum_.numpy(), x.numpy() + 1)


def test_large_arguments_and_results_are_not_copied() -> None:
    run = compiled(lambda x: x.sin() * 2)
    x = wg.randn(LARGE)
    run(x)
    assert plan_of(run).nbytes < 8 * LARGE  # float32: neither an argument nor a result has memory in the plan


@pytest.mark.parametrize("layout", ["as captured", "transposed", "every other", "offset by one"])
def test_large_arguments_lie_anywhere(layout: str) -> None:
    run = compiled(lambda x: x.exp().sum(1))
    first = wg.randn(200, 200)
    run(first)
    values = np.random.default_rng(0).standard_normal((200, 200)).astype(np.float32)
    memory = np.empty(4 * 200 * 400 + 4, np.uint8)
    array = {
        "as captured": lambda: values.copy(),
        "transposed": lambda: np.ascontiguousarray(values.T).T,
        "every other": lambda: memory[: 4 * 200 * 400].view(np.float32).reshape(200, 400)[:, ::2],
        "offset by one": lambda: memory[4 : 4 + values.nbytes].view(np.float32).reshape(200, 200),
    }[layout]()
    array[...] = values
    np.testing.assert_allclose(run(wg.from_numpy(array)).numpy(), np.exp(values).sum(1), rtol=1e-5)


def test_an_argument_that_lies_in_what_is_written() -> None:
    weight = wg.ones(2 * LARGE)

    def run(x: Any) -> Any:
        weight.mul_(2)
        return (x * 3).sum()

    program = compiled(run)
    other = wg.ones(LARGE)
    assert program(other).item() == 3 * LARGE
    before = weight.clone()
    inside = weight[:LARGE]  # eager reads it after the write, for it is the same memory
    eager = weight.clone()
    eager_inside = eager[:LARGE]
    eager.mul_(2)
    expected = (eager_inside * 3).sum().item()
    with pytest.raises(wg.errors.CaptureError, match="memory that another"):
        program(inside)
    assert weight.tolist() == before.tolist()
    weight.copy_(before)
    with pytest.warns(RuntimeWarning, match="run as it is"):
        assert wg.compile(run)(inside).item() == expected


# ---- checks


def step_of(classes: int) -> tuple[Any, Any]:
    weight = wg.zeros(4, classes, requires_grad=True)
    optimiser = wg.optim.SGD([weight], lr=0.5)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = F.cross_entropy(x @ weight, y)
        loss.backward()
        optimiser.step()
        return loss

    return step, weight


@pytest.mark.parametrize("size", [3, 70_000])
def test_targets_out_of_range_are_refused_before_anything_is_written(size: int) -> None:
    step, weight = step_of(3)
    run, x = compiled(step), wg.randn(size, 4)
    y = wg.arange(size) % 3
    run(x, y)
    assert [type(s) for s in plan_of(run).steps] == [Native]
    before = weight.tolist()
    for wrong in (3, -1):
        bad = y.clone()
        bad[size - 1] = wrong
        with pytest.raises(IndexError, match=f"target {wrong} is out of range"):
            run(x, bad)
        assert weight.tolist() == before
    bad = y.clone()
    bad[0] = -100  # ignored
    expected, other = step_of(3)
    with wg.no_grad():
        other.copy_(weight)
    assert run(x, bad).item() == pytest.approx(expected(x, bad).item(), rel=1e-5)


def test_running_statistics_are_not_half_written() -> None:
    norm = wg.nn.BatchNorm1d(4)

    def step(x: Any, y: Any) -> Any:
        return F.cross_entropy(norm(x), y)

    run, x = compiled(step), wg.randn(8, 4)
    run(x, wg.arange(8) % 4)
    before = {name: value.tolist() for name, value in norm.state_dict().items()}
    assert before["num_batches_tracked"] == 1
    with pytest.raises(IndexError, match="target 4 is out of range"):
        run(x, wg.arange(8))
    assert {name: value.tolist() for name, value in norm.state_dict().items()} == before


# ---- addresses


def test_addresses_are_found_and_moved() -> None:
    a, b, new = np.arange(4.0), np.arange(8.0), np.arange(8.0)
    start = [m.__array_interface__["data"][0] for m in (a, b, new)]
    words = np.array([start[1] + 8, 5, start[0], start[1], start[0] + 31, start[1] + 64], np.int64)
    of_a, of_b = moving([a, b], words)
    of_b.to(new)
    assert words.tolist()[:4] == [start[2] + 8, 5, start[0], start[2]]
    of_b.to(b)
    of_a.to(new[4:])
    assert words.tolist()[:5] == [start[1] + 8, 5, start[2] + 32, start[1], start[2] + 63]


def test_overlapping() -> None:
    memory = np.zeros(100)
    parts = [memory[:10], memory[10:20], memory[5:15], memory[50:60:3]]
    assert overlapping(parts, parts).tolist() == [2, 2, 3, 1]
    assert overlapping(parts[:1], [memory[10:10], memory[10:]]).tolist() == [0]


# ---- arguments that the function holds as well


def holding(weight: Any) -> dict[str, Any]:
    """Return functions of one argument that may be what they hold: it is one tensor then, or two."""
    optimizer = wg.optim.SGD([weight], lr=0.5)
    model = nn.Linear(3, 3, bias=False)
    model.weight = weight

    def written(x: Any) -> Any:
        with wg.no_grad():
            weight.add_(x)
        return weight * 1

    def backward(x: Any) -> Any:
        x.grad = weight.grad = None
        (x * weight * weight).sum().backward()
        return x.grad * 1, weight.grad * 1

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (x * x).sum()
        loss.backward()
        optimizer.step()
        return loss

    return {
        "read": lambda x: x * weight,
        "of a module": lambda x: model(x),
        "written": written,
        "backward": backward,
        "a step": step,
    }


@pytest.mark.parametrize("order", ["wwooww", "oowwoo"])
@pytest.mark.parametrize("kind", holding(nn.Parameter(wg.ones(3, 3))))
def test_an_argument_that_the_function_holds_is_not_any_argument(kind: str, order: str) -> None:
    worlds = []
    for made in (lambda f: f, compiled):
        weight = nn.Parameter(wg.arange(9.0).view(3, 3) / 9)
        other = (wg.ones(3, 3) * 0.5).requires_grad_()
        worlds.append((made(holding(weight)[kind]), {"w": weight, "o": other}))
    for which in order:
        seen = []
        for run, tensors in worlds:
            found = tree.leaves(run(tensors[which]))
            kept = [t for tensor in tensors.values() for t in (tensor, tensor.grad) if t is not None]
            seen.append([t.detach().numpy().copy() for t in (*found, *kept)])
        for eager, fast in zip(*seen, strict=True):
            np.testing.assert_allclose(fast, eager, rtol=1e-6)


# ---- programs


def endings(scale: list[float], weight: Any) -> dict[str, Any]:
    """Return functions whose programs end in different ways."""
    optimizer = wg.optim.SGD([weight], lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (x * weight * scale[0]).sum()
        loss.backward()
        optimizer.step()
        return loss

    return {
        "a value": lambda x: x * scale[0],
        "several": lambda x: (x * scale[0], x),
        "with a history": lambda x: x * weight * scale[0],
        "a step": step,
        "a decision": lambda x: x * scale[0] if x.sum() > 0 else x,
    }


@pytest.mark.parametrize("kind", endings([1.0], wg.ones(3, requires_grad=True)))
def test_a_program_that_is_dropped_is_gone_at_once(kind: str) -> None:
    """It holds the memory of a plan, so it must not wait for the collector of cycles."""
    scale = [1.0]
    run = wg.compile(endings(scale, wg.ones(3, requires_grad=True))[kind], fullgraph=True)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            run(wg.ones(3))
        program = weakref.ref(next(iter(run.programs.values()))[0])
        assert program() is not None
        for programs in run.programs.values():
            programs.clear()
        assert program() is None
    finally:
        gc.enable()

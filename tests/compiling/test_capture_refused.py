"""What cannot be captured says so, and does no harm; what modules read and hooks keep is looked at."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.compiling.promised import (
    add_to,
    agree,
    arrays,
    count,
    drawn,
    failing,
    fragile,
    liar,
    linear,
    shapeless,
    sharer,
    weight,
)
from wengert.errors import CaptureError, MissingRuleError

BACKENDS = ("reference", "native")


# ---- what cannot be captured says so, and does no harm


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "no shape rule": (shapeless, CaptureError, "no shape rule .register_fake"),
    "another shape": (lambda x: liar(x) * 1, RuntimeError, r"gave float64\[1\] .* says float64\[100\]"),
    "an argument as result": (lambda x: sharer(x) * 1, RuntimeError, "shares memory with an argument"),
    "shared and changed": (lambda x: add_to(x[:2], x[1:3]), CaptureError, "add_to, which changes an argument that shares"),
    "no derivative": (lambda x: sharer(x * weight(100)), MissingRuleError, "sharer has no derivative"),
    "numpy()": (lambda x: np.sort(x.numpy()), CaptureError, r"cond\(\) or while_loop\(\).*test_capture_refused.py:\d+"),
    "a mask": (lambda x: x[x > 0], CaptureError, r"masked_select\(\) needs the values.*test_capture_refused.py:\d+"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    function, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        wg.compile(function, fullgraph=True, backend="reference")(drawn(100))


def test_a_history_from_outside_is_not_walked() -> None:
    w = weight(3)
    calls = {"grad": lambda y: wg.autograd.grad(y.sum(), w)[0], "backward": lambda y: y.sum().backward()}
    for name, call in calls.items():
        with pytest.raises(CaptureError, match="walks back through what was computed before"):
            wg.compile(call, fullgraph=True, backend="reference")(w * 2)
        run = wg.compile(call, backend="reference")
        with pytest.warns(RuntimeWarning, match="walks back"):
            run(w * 2)
        for k in (3.0, 4.0):
            w.grad = None
            found = run(w * k) if name == "grad" else (run(w * k), w.grad)[1]
            assert found.tolist() == [k] * 3


def test_without_fullgraph_one_warning_names_the_line() -> None:
    def run(x: Any) -> Any:
        return shapeless(x) + wg.from_numpy(np.sort(x.numpy()))

    step = wg.compile(run)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for seed in range(3):
            x = drawn(100, seed=seed)
            assert agree(arrays(step(x)), arrays(run(x)))
    assert len(caught) == 1
    assert "no shape rule" in str(caught[0].message)
    assert "test_capture_refused.py:" in str(caught[0].message)


def test_lists_and_dictionaries_that_are_changed() -> None:
    def extend(x: Any, found: Any) -> Any:
        found["y"] = x * 2
        return found["y"] + 1

    with pytest.raises(CaptureError, match="changes a list or dictionary that it is given"):
        wg.compile(extend, fullgraph=True)(drawn(2), {})
    run = wg.compile(extend)
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    with pytest.warns(RuntimeWarning, match="changes a list or dictionary"):
        run(wg.ones(2), first)
    run(wg.ones(2) * 2, second)
    assert [d["y"].tolist() for d in (first, second)] == [[2, 2], [4, 4]]  # those of the caller


def test_a_scheduler_that_looks_at_the_loss_is_refused() -> None:
    optimiser = wg.optim.SGD([weight(2)], lr=0.1)
    schedule = wg.optim.lr_scheduler.ReduceLROnPlateau(optimiser)
    with pytest.raises(CaptureError, match=r"a scheduler's step\(\) that is given a tensor"):
        wg.compile(lambda x: schedule.step(x.sum()), fullgraph=True)(drawn(2))


def test_a_kernel_that_raises_leaves_everything_as_it_was() -> None:
    for backend in BACKENDS:
        p, total = weight(3), wg.zeros(3, dtype=wg.float64)
        optimiser = wg.optim.Adam([p], lr=0.1)
        schedule = wg.optim.lr_scheduler.StepLR(optimiser, 2, 0.5)

        def step(x: Any, p: Any = p, total: Any = total, optimiser: Any = optimiser, schedule: Any = schedule) -> None:
            total.add_(1)
            optimiser.zero_grad()
            fragile(p * x).sum().backward()
            optimiser.step()
            schedule.step()

        def state(p: Any = p, total: Any = total, optimiser: Any = optimiser, schedule: Any = schedule) -> list[Any]:
            return arrays([p, p.grad, total, optimiser.state[p], schedule.last_epoch])

        run = wg.compile(step, fullgraph=True, backend=backend)
        for _ in range(3):
            run(drawn(3))
        before = state()
        failing.append(True)
        try:
            with pytest.raises(ValueError, match="of the kernel"):
                run(drawn(3))
        finally:
            failing.clear()
        assert agree(state(), before)
        run(drawn(3))
        assert not agree(state(), before)


# ---- what modules and hooks refer to

FACTOR = 2.0


class Settings:
    def __init__(self) -> None:
        self.power = 2


class Surrounded(wg.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.sizes, self.settings, self.array = {"k": 2.0}, [1.0], Settings(), np.ones(2)

    def forward(self, x: Any) -> Any:
        y = x * FACTOR * self.table["k"] * self.sizes[0] + wg.from_numpy(self.array)
        return y**self.settings.power


def test_what_a_module_reads_may_change() -> None:
    global FACTOR
    module = Surrounded()
    run, x = wg.compile(module, fullgraph=True, backend="reference"), drawn(2)
    try:
        for k in range(6):
            assert agree(arrays(run(x)), arrays(module(x)))
            assert count(run.compiled) == k + 1
            if k == 0:
                FACTOR = 3.0
            elif k == 1:
                module.table["k"] = 3.0
            elif k == 2:
                module.sizes[0] = 4.0
            elif k == 3:
                module.settings.power = 3
            else:
                module.array[0] = 5.0
                module.array[1] = k
    finally:
        FACTOR = 2.0


def test_hooks_on_all_modules_that_come_and_go() -> None:
    layer, x = linear(2, 3), drawn(3)
    run = wg.compile(layer, fullgraph=True, backend="reference")
    plain = run(x)
    handle = wg.nn.hooks.register_module_forward_hook(lambda module, args, out: out + 100)
    try:
        assert agree(arrays(run(x)), arrays(plain + 100))
    finally:
        handle.remove()
    assert agree(arrays(run(x)), arrays(plain))


def test_hooks_that_are_left_behind_are_refused() -> None:
    p = weight(3)

    def run(x: Any) -> Any:
        p.register_hook(lambda g: g * 2)
        return (p * x).sum()

    with pytest.raises(CaptureError, match="leaves a hook on a tensor from outside"):
        wg.compile(run, fullgraph=True, backend="reference")(drawn(3))
    step, grads = wg.compile(run), []
    with pytest.warns(RuntimeWarning, match="leaves a hook"):
        step(wg.ones(3, dtype=wg.float64))
    for _ in range(2):
        p.grad = None
        step(wg.ones(3, dtype=wg.float64)).backward()
        grads.append(p.grad.tolist())
    assert grads == [[4.0] * 3, [8.0] * 3]


def test_hooks_that_keep_something_are_run_as_they_are() -> None:
    layer, p, x = linear(2, 3), weight(3), drawn(3)
    outputs: list[Any] = []
    gradients: list[Any] = []
    layer.register_forward_hook(lambda module, args, out: outputs.append(out.detach()))
    p.register_hook(lambda g: gradients.append(g))
    calls = {"hook": lambda x: layer(x), "gradient": lambda x: (p * x).sum().backward()}
    for name, kept in (("hook", outputs), ("gradient", gradients)):
        run = wg.compile(calls[name])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(12):
                run(x)
        assert len(kept) == 12
        assert all(type(t._payload) is np.ndarray for t in kept)
        assert len(caught) == 1
        assert "keeps a tensor" in str(caught[0].message)

"""Mixed precision and averages inside compiled steps: one graph, and what it gives is what eager code gives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.amp import GradScaler
from wengert.graph import storage
from wengert.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

F = wg.nn.functional
STEPS = 50
INFINITE = (0, 1, 20, 33)  # steps whose gradients have an inf; the first are before the optimiser has any state
RNG = np.random.default_rng(0)
X = wg.tensor(RNG.standard_normal((16, 8)), dtype=wg.float32)
Y = wg.tensor(RNG.integers(0, 3, 16))


def trained(optimizer: str, options: Any, dtype: Any, compiled: bool, clip: bool = False) -> tuple[list[Any], Any, Any]:
    """Train a small model; return losses, everything that it came to, and the compiled step."""
    wg.manual_seed(0)
    model = wg.nn.Sequential(wg.nn.Linear(8, 16), wg.nn.Tanh(), wg.nn.LayerNorm(16), wg.nn.Linear(16, 3))
    x = X if dtype is not None else X.double()
    model.to(x.dtype)
    optimizer = getattr(wg.optim, optimizer)(model.parameters(), **options)
    scaler = GradScaler(init_scale=1024.0, growth_interval=7)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        with wg.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            wg.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    backend = "reference" if dtype is None else "native"
    run: Any = wg.compile(step, fullgraph=True, backend=backend) if compiled else step
    losses = [run(x * float("inf") if i in INFINITE else x, Y).item() for i in range(STEPS)]
    state = [t for p in model.parameters() for t in (p, *optimizer.state[p].values()) if isinstance(t, wg.Tensor)]
    return losses, [*[t.detach().numpy().copy() for t in state], *scaler.state_dict().values()], run


CASES = [
    ("SGD", {"lr": 0.1}, wg.bfloat16), ("SGD", {"lr": 0.1, "momentum": 0.9}, wg.float16),
    ("AdamW", {"lr": 0.01}, wg.float16), ("NAdam", {"lr": 0.01}, None), ("ASGD", {"lr": 0.1}, None),
]  # fmt: skip


@pytest.mark.parametrize(("optimizer", "options", "dtype"), CASES, ids=lambda v: str(v))
def test_a_scaled_step_is_one_graph(optimizer: str, options: Any, dtype: Any) -> None:
    """Halves are rounded at other places in a fused kernel than outside, so losses agree to their precision; without
    them everything agrees to that of float64."""
    losses, state, _ = trained(optimizer, options, dtype, compiled=False)
    got_losses, got, step = trained(optimizer, options, dtype, compiled=True)
    assert [len(programs) for programs in step.programs.values()] == [1]
    assert not step.retraces
    assert not step.fallback
    assert got[-5:] == state[-5:]  # the scaler's numbers: the same steps were skipped
    assert not any(np.isnan(v).any() for v in got[:-5])
    np.testing.assert_allclose(got_losses, losses, rtol=1e-9 if dtype is None else 0.02)
    if dtype is None:
        for one, other in zip(got[:-5], state[:-5], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


def test_a_clipped_step_needs_no_program_again() -> None:
    """Clipping asks whether the norm is finite, so there is one way for each answer, and no third."""
    losses, state, _ = trained("SGD", {"lr": 0.1}, wg.bfloat16, compiled=False, clip=True)
    got_losses, got, step = trained("SGD", {"lr": 0.1}, wg.bfloat16, compiled=True, clip=True)
    assert [len(programs) for programs in step.programs.values()] == [2]
    assert len(step.retraces) == 1
    assert got[-5:] == state[-5:]
    np.testing.assert_allclose(got_losses, losses, rtol=0.02)


def test_what_a_skipped_step_leaves_alone() -> None:
    p = wg.nn.Parameter(wg.tensor([1.0, 2.0]))
    optimizer, scaler = wg.optim.Adam([p], lr=0.5), GradScaler(init_scale=8.0)

    @wg.compile(fullgraph=True)
    def step(factor: Any) -> None:
        optimizer.zero_grad()
        scaler.scale((p * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    for _ in range(2):
        step(wg.tensor(1.0))
    before = [p.detach().clone(), *[v.clone() for v in optimizer.state[p].values()]]
    step(wg.tensor(float("nan")))
    for one, other in zip([p, *optimizer.state[p].values()], before, strict=True):
        assert wg.equal(one, other)
    assert scaler.get_scale() == 4.0
    step(wg.tensor(1.0))
    assert optimizer.state[p]["step"].item() == 3.0


def test_a_step_over_several_functions_is_not_compiled() -> None:
    p = wg.nn.Parameter(wg.tensor([1.0]))
    optimizer, scaler = wg.optim.SGD([p], lr=0.5), GradScaler(init_scale=8.0)

    @wg.compile(fullgraph=True)
    def unscaled(x: Any) -> None:
        scaler.scale((p * x).sum()).backward()
        scaler.unscale_(optimizer)

    with pytest.raises(wg.errors.CaptureError, match="what a GradScaler knows of a step goes on behind the call"):
        unscaled(wg.tensor([1.0]))
    scaler.scale(p.sum()).backward()  # and nothing is left of it
    scaler.unscale_(optimizer)
    assert p.grad.item() == 1.0

    @wg.compile(fullgraph=True)
    def stepped() -> None:
        scaler.step(optimizer)
        scaler.update()

    with pytest.raises(wg.errors.CaptureError, match="comes from before the call"):
        stepped()


def test_options_of_a_scaler_are_part_of_the_program() -> None:
    p = wg.nn.Parameter(wg.tensor([1.0]))
    optimizer, scaler = wg.optim.SGD([p], lr=0.5), GradScaler(init_scale=8.0, growth_interval=1)

    @wg.compile(fullgraph=True)
    def step(x: Any) -> None:
        optimizer.zero_grad()
        scaler.scale((p * x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    step(wg.tensor([1.0]))
    assert scaler.get_scale() == 16.0
    scaler.set_growth_factor(4.0)
    step(wg.tensor([1.0]))
    assert scaler.get_scale() == 64.0
    scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0})
    step(wg.tensor([1.0]))
    assert scaler.get_scale() == 8.0


def test_a_region_around_the_call_takes_a_program_of_its_own() -> None:
    w = wg.nn.Parameter(wg.tensor([[1.0, 2.0], [3.0, 4.0]]))
    f = wg.compile(lambda x: x @ w, fullgraph=True)
    x = wg.ones(2, 2)
    for _ in range(2):
        assert f(x).dtype is wg.float32
        for dtype in (wg.bfloat16, wg.float16):
            with wg.autocast("cpu", dtype=dtype):
                _ = x @ w  # the cast of w that is kept must not become part of the program
                y = f(x)
                assert y.dtype is dtype
        y.sum().backward()
    assert len(f.programs) == 3
    with wg.no_grad():
        w.mul_(2)
    with wg.autocast("cpu"):
        np.testing.assert_array_equal(f(x).float().detach().numpy(), [[8.0, 12.0], [8.0, 12.0]])
    np.testing.assert_array_equal(w.grad.numpy(), np.full((2, 2), 4.0))


def test_a_tied_weight_is_cast_once_in_a_program_too() -> None:
    """Both uses of the weight see one cast, so its gradients are added in bfloat16, as outside of a program."""
    w = wg.nn.Parameter(wg.linspace(-1, 1, 9).reshape(3, 3))

    def loss(x: Any) -> Any:
        with wg.autocast("cpu"):
            return ((x @ w).tanh() @ w).sum()

    found = []
    for run in (loss, wg.compile(loss, fullgraph=True)):
        w.grad = None
        run(wg.ones(3, 3)).backward()
        found.append(w.grad.numpy())
    np.testing.assert_array_equal(*found)


def test_branches_see_the_region_in_backward_too() -> None:
    """The gradient of a branch runs the branch again; what was cast in it is not used outside of it."""
    w = wg.nn.Parameter(wg.linspace(-1, 1, 9).reshape(3, 3))
    seen: list[Any] = []

    def branch(x: Any) -> Any:
        y = x @ w
        seen.append(y.dtype)
        return y

    def loss(x: Any) -> Any:
        with wg.autocast("cpu"):
            y = wg.cond(x.sum() > 0, branch, lambda x: (x @ w).tanh(), (x,))
            return (y @ w).sum()

    found = []
    for run in (loss, wg.compile(loss, fullgraph=True)):
        w.grad = None
        run(wg.ones(3, 3)).backward()
        found.append(w.grad.numpy())
    np.testing.assert_allclose(*found, rtol=0.02, atol=0.02)
    assert set(seen) == {wg.bfloat16}


def test_what_cannot_be_left_out_is_not_compiled() -> None:
    class Noisy(wg.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            with wg.no_grad():
                for p in self.param_groups[0]["params"]:
                    p.add_(wg.randn(1))

    p = wg.nn.Parameter(wg.tensor([1.0]))
    optimizer, scaler = Noisy([p], lr=0.5), GradScaler(init_scale=8.0)

    @wg.compile(fullgraph=True)
    def step(x: Any) -> None:
        scaler.scale((p * x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    with pytest.raises(wg.errors.CaptureError, match="random numbers, or calling Python, under a condition"):
        step(wg.tensor([1.0]))


AVERAGES: list[tuple[str, Callable[[], dict[str, Any]]]] = [
    ("equal", dict), ("equal, buffers", lambda: {"use_buffers": True}),
    ("ema", lambda: {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}), ("ema by one", lambda: {"avg_fn": get_ema_avg_fn(0.9)}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), AVERAGES, ids=[a[0] for a in AVERAGES])
def test_a_step_with_an_average_is_one_graph(name: str, options: Callable[[], dict[str, Any]]) -> None:
    def run(compiled: bool) -> tuple[list[Any], Any]:
        wg.manual_seed(0)
        model = wg.nn.Sequential(wg.nn.Linear(8, 4), wg.nn.BatchNorm1d(4), wg.nn.Linear(4, 3))
        optimizer, average = wg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), AveragedModel(model, **options())

        def step(x: Any, y: Any) -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            average.update_parameters(model)

        call: Any = wg.compile(step, fullgraph=True) if compiled else step
        for _ in range(STEPS):
            call(X, Y)
        assert average.n_averaged.item() == STEPS
        return [t.numpy() for t in average.state_dict().values()], call

    expected, (got, step) = run(False)[0], run(True)
    assert [len(programs) for programs in step.programs.values()] == [1]
    assert not step.retraces
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_what_stands_in_for_memory_is_cast_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a copy into integers is captured its source is memory of any content: here, of NaN."""
    room = np.full(1 << 16, np.nan, np.float32).view(np.uint8)
    monkeypatch.setattr(storage._room, "bytes", room)
    target = wg.zeros(3, dtype=wg.int64)
    wg.compile(lambda x: target.copy_(x * 2.5), fullgraph=True)(wg.ones(3))
    assert target.tolist() == [2, 2, 2]

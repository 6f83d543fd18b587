"""Whole training steps that are captured, and what they do not capture again for."""

from typing import Any

import numpy as np

import wengert as wg
from tests.compiling.promised import arrays, count, drawn
from wengert.codegen.cache import counters

F = wg.nn.functional


def trained(backend: str | None, steps: int) -> tuple[list[Any], Any]:
    """Return what a hundred steps with all the trimmings give, and the compiled step."""
    wg.manual_seed(0)
    model, average = (
        wg.nn.Sequential(
            wg.nn.Linear(6, 8, bias=False), wg.nn.BatchNorm1d(8), wg.nn.GELU(), wg.nn.Dropout(0.2), wg.nn.Linear(8, 3)
        ).to(wg.float64)
        for _ in range(2)
    )  # fmt: skip
    optimiser = wg.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = wg.optim.lr_scheduler.CosineAnnealingLR(optimiser, 50)
    scale, good = wg.tensor(1024.0, dtype=wg.float64), wg.tensor(0)

    def step(x: Any, y: Any, boost: Any) -> Any:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), y)
        (loss * scale * boost).backward()
        with wg.no_grad():
            for p in model.parameters():
                p.grad.div_(scale)
        norm = wg.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        fine = wg.isfinite(norm)
        if fine:
            optimiser.step()
        with wg.no_grad():
            good.add_(1).mul_(fine)
            grown = good >= 20
            scale.mul_(wg.where(fine, wg.where(grown, 2.0, 1.0), 0.5))
            good.mul_(grown.logical_not())
            for a, b in zip(average.parameters(), model.parameters(), strict=True):
                a.lerp_(b, 0.05)
            for a, b in zip(average.buffers(), model.buffers(), strict=True):
                a.copy_(b)
        schedule.step()
        return loss.detach(), norm

    run = step if backend is None else wg.compile(step, fullgraph=True, backend=backend)
    wg.manual_seed(5)
    found: list[Any] = []
    for k in range(steps):
        x, y = drawn(12, 6, seed=k), wg.from_numpy(np.random.default_rng(k).integers(0, 3, 12))
        boost = wg.tensor(float("inf") if k in (40, 41, 70) else 1.0, dtype=wg.float64)
        found += [*arrays(run(x, y, boost)), schedule.get_last_lr()[0], scale.item()]
    tensors = [*model.state_dict().values(), *average.state_dict().values()]
    found += arrays([tensors, [dict(optimiser.state[p]) for p in model.parameters()]])
    return found, run


def test_a_hundred_training_steps() -> None:
    """Scaled losses with steps left out, clipping, dropout, running statistics, a schedule, averaged parameters."""
    want, _ = trained(None, 100)
    found, run = trained("native", 100)
    for got, expected in zip(found, want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-10)
    assert count(run) == 2
    assert len(run.retraces) == 1
    assert "was another" in run.retraces[0]


def test_a_learning_rate_or_batch_size_makes_no_machine_code() -> None:
    model = wg.nn.Sequential(wg.nn.Linear(6, 16), wg.nn.Tanh(), wg.nn.Linear(16, 3))
    optimiser = wg.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()

    run, rates = wg.compile(step, fullgraph=True), []

    def call(size: int, rate: float) -> None:
        optimiser.param_groups[0]["lr"] = rate
        before = model[0].weight.detach().clone()
        run(drawn(size, 6, dtype=np.float32), wg.arange(size) % 3)
        rates.append((model[0].weight - before).abs().max().item())

    for rate in (0.01, 0.01, 0.01):
        call(12, rate)
    kernels = counters().compiled
    call(12, 0.5)
    assert count(run) == 1  # nothing was even captured
    assert rates[-1] > 10 * rates[-2]
    for size in (20, 7, 300):
        call(size, 0.01)
    assert count(run) == 4
    assert counters().compiled == kernels

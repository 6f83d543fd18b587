"""Several backward passes as one batch; the noise between them; clipping with a record."""

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn, optim
from wengert.nn import functional as F


def model_and_data() -> tuple[Any, Any, Any]:
    wg.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    return model, wg.randn(11, 3, dtype=wg.float64), wg.arange(11) % 2


def gradients(model: Any) -> list[Any]:
    return [p.grad.numpy().copy() for p in model.parameters()]


@pytest.mark.parametrize("cuts", [[3, 8], [1, 2, 3], [10], []], ids=str)
@pytest.mark.parametrize("earlier", [False, True], ids=["", "added to earlier gradients"])
@pytest.mark.parametrize("noise", [False, True], ids=["", "noise"])
def test_uneven_micro_batches_give_the_gradient_of_the_whole_batch(cuts: list[int], earlier: bool, noise: bool) -> None:
    if noise and not cuts:
        return
    model, x, y = model_and_data()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    if earlier:
        model(x * 2).sum().backward()
    before = [0.0 if p.grad is None else p.grad.numpy().copy() for p in model.parameters()]
    memory = [p.grad for p in model.parameters()]
    whole = wg.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    with optim.accumulate(optimizer, optim.GradientNoiseScale() if noise else None) as batch:
        for a, b in zip([0, *cuts], [*cuts, 11], strict=True):
            batch.backward(F.cross_entropy(model(x[a:b]), y[a:b]), weight=b - a)
    for got, old, want in zip(gradients(model), before, whole, strict=True):
        np.testing.assert_allclose(got, old + want.numpy(), rtol=1e-12)
    assert batch.weight == 11
    np.testing.assert_allclose(batch.loss.item(), F.cross_entropy(model(x), y).item(), rtol=1e-12)
    if earlier:
        assert all(p.grad is grad for p, grad in zip(model.parameters(), memory, strict=True))


def test_token_counts_are_weights() -> None:
    model, x, y = model_and_data()
    ignored = y.clone()
    ignored[[0, 1, 5]] = -100
    whole = wg.autograd.grad(F.cross_entropy(model(x), ignored), list(model.parameters()))
    with optim.accumulate(model.parameters()) as batch:
        for part in (slice(0, 4), slice(4, 11)):
            tokens = int((ignored[part] != -100).sum())
            batch.backward(F.cross_entropy(model(x[part]), ignored[part]), tokens)
    for got, want in zip(gradients(model), whole, strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-12)


def test_hooks_wait_for_the_final_gradient() -> None:
    p = nn.Parameter(wg.tensor([1.0]))
    seen: list[Any] = []
    first = p.register_post_accumulate_grad_hook(lambda t: seen.append(("first", t.grad.item())))
    p.register_hook(lambda g: seen.append(("tensor hook", g.item())))
    with optim.accumulate([p]) as batch:
        batch.backward((p * 2.0).sum())
        batch.backward((p * 4.0).sum(), weight=3)
        p.register_post_accumulate_grad_hook(lambda t: seen.append(("second", t.grad.item())))
        batch.backward((p * 6.0).sum())
    assert [s for s in seen if s[0] == "tensor hook"] == [("tensor hook", v) for v in (2.0, 12.0, 6.0)]
    assert seen[-2:] == [("first", 4.0), ("second", 4.0)] or seen[-1] == ("first", 4.0)
    seen.clear()
    first.remove()
    p.grad = None
    (p * 1.0).sum().backward()
    assert ("second", 1.0) in seen
    assert ("first", 1.0) not in seen


def test_an_optimizer_that_steps_in_a_hook_steps_once() -> None:
    p = nn.Parameter(wg.tensor([1.0]))
    optimizer = optim.SGD([p], lr=1.0)

    def step(_: Any) -> None:
        optimizer.step()
        optimizer.zero_grad()

    p.register_post_accumulate_grad_hook(step)
    with optim.accumulate(optimizer) as batch:
        batch.backward((p * 1.0).sum(), 1)
        batch.backward((p * 3.0).sum(), 1)
    assert p.item() == 1.0 - 2.0
    assert p.grad is None


def test_a_step_within_the_block_is_an_error_and_leaves_what_was_there() -> None:
    p = nn.Parameter(wg.tensor([1.0]))
    optimizer = optim.SGD([p], lr=1.0)
    p.grad = wg.tensor([7.0])
    seen: list[Any] = []
    p.register_post_accumulate_grad_hook(seen.append)

    def too_early() -> None:
        with optim.accumulate(optimizer) as batch:
            batch.backward((p * 1.0).sum())
            optimizer.step()

    with pytest.raises(RuntimeError, match=r"SGD\.step\(\) within accumulate"):
        too_early()
    assert (p.item(), p.grad.item(), seen) == (1.0, 7.0, [])
    optimizer.step()
    assert p.item() == -6.0
    p.grad = None
    (p * 1.0).sum().backward()
    assert len(seen) == 1


def test_with_a_gradient_scaler() -> None:
    model, x, y = model_and_data()
    whole = wg.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    scaler = wg.amp.GradScaler("cpu", init_scale=1024.0)
    with optim.accumulate(optimizer) as batch:
        for part in (slice(0, 4), slice(4, 11)):
            batch.backward(scaler.scale(F.cross_entropy(model(x[part]), y[part])), weight=len(y[part]))
    scaler.unscale_(optimizer)
    for got, want in zip(gradients(model), whole, strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-9)


@pytest.mark.parametrize("weight", [0, -1, math.nan, math.inf])
def test_bad_weights(weight: float) -> None:
    p = nn.Parameter(wg.ones(1))
    with pytest.raises(ValueError, match="weight above 0"), optim.accumulate([p]) as batch:
        batch.backward(p.sum(), weight)


def test_wrong_uses() -> None:
    p = nn.Parameter(wg.ones(1))
    with pytest.raises(ValueError, match="takes an optimizer or parameters"):
        optim.accumulate([])
    with pytest.raises(ValueError, match="without a backward"), optim.accumulate([p]):
        pass
    batch = optim.accumulate([p])
    with pytest.raises(RuntimeError, match="belongs into the block"):
        batch.backward(p.sum())
    with pytest.raises(RuntimeError, match="already entered"), batch, batch:
        pass
    with batch:  # it can be entered again
        batch.backward(p.sum())
    assert p.grad.item() == 1.0


def test_a_block_within_a_block_of_the_same_parameters_is_refused() -> None:
    p, q = nn.Parameter(wg.ones(1)), nn.Parameter(wg.ones(1))
    with optim.accumulate([p]) as outer:
        outer.backward((p * 2).sum(), 3)
        with pytest.raises(RuntimeError, match="same parameters"), optim.accumulate([q, p]):
            pass
        with optim.accumulate([q]) as inner:
            inner.backward((q * 5).sum(), 7)
    assert (p.grad.item(), q.grad.item()) == (2.0, 5.0)
    with optim.accumulate([q, p]) as again:
        again.backward((p * 2).sum())


def test_large_weights_do_not_overflow() -> None:
    p = nn.Parameter(wg.ones(2, dtype=wg.float16))
    with optim.accumulate([p]) as batch:
        for weight, factor in ((30_000, 20.0), (90_000, 40.0)):
            batch.backward((p * factor).mean(), weight)
    assert (p.grad.tolist(), batch.loss.item(), batch.weight) == ([17.5, 17.5], 35.0, 120_000.0)


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_sparse_and_dense_gradients_add_up(earlier: bool, sparse: bool) -> None:
    weight = wg.rand(4, 3, generator=wg.Generator().manual_seed(0))
    p, q = nn.Parameter(weight.clone()), nn.Parameter(weight.clone())

    def look(table: Any, rows: list[int], sparse: bool) -> Any:
        return (F.embedding(wg.tensor(rows), table, sparse=sparse) ** 2).mean()

    look(p, [1], earlier).backward()
    with optim.accumulate([p]) as batch:
        for rows in ([0, 2, 2], [1]):
            batch.backward(look(p, rows, sparse), len(rows))
    (look(q, [1], False) + look(q, [0, 2, 2, 1], False)).backward()
    np.testing.assert_allclose(p.grad.to_dense().numpy(), q.grad.numpy(), rtol=1e-5)


# ---- noise scale


def test_what_cannot_be_measured_leaves_earlier_gradients_and_the_record() -> None:
    p, noise = nn.Parameter(wg.ones(2)), optim.GradientNoiseScale()
    p.grad = wg.tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="at least two"), optim.accumulate([p], noise_scale=noise) as batch:
        batch.backward(p.sum())
    assert p.grad.tolist() == [1.0, 2.0]
    with optim.accumulate([p], noise_scale=noise) as batch:  # as a gradient scaler meets, which skips the step
        batch.backward((p * math.inf).sum())
        batch.backward(p.sum())
    assert (noise.steps, p.grad.tolist()) == (0, [math.inf] * 2)


def test_the_noise_scale_of_complex_gradients() -> None:
    p, noise = nn.Parameter(wg.tensor([1 + 2j])), optim.GradientNoiseScale()
    with optim.accumulate([p], noise_scale=noise) as batch:
        for factor in (1j, 3j):
            batch.backward((p * factor).real.sum())
    assert (noise.signal, noise.noise) == (3.0, 2.0)


def test_the_noise_scale_of_a_quadratic_problem() -> None:
    """The loss |w - x|² / 2 has the gradients w - x: their mean and covariance are those of the examples."""
    wg.manual_seed(1)
    spread = wg.tensor([1.0, 2.0, 0.5], dtype=wg.float64)
    w = nn.Parameter(wg.tensor([1.0, -1.0, 0.5], dtype=wg.float64))
    scale = optim.GradientNoiseScale(decay=0.9995)
    for _ in range(800):
        x = wg.randn(14, 3, dtype=wg.float64) * spread
        w.grad = None
        with optim.accumulate([w], scale) as batch:
            for part in (x[:2], x[2:5], x[5:]):
                batch.backward(((w - part) ** 2).sum(1).mean() / 2, weight=len(part))
    np.testing.assert_allclose(scale.signal, 2.25, rtol=0.07)
    np.testing.assert_allclose(scale.noise, 5.25, rtol=0.06)
    np.testing.assert_allclose(scale.value, 5.25 / 2.25, rtol=0.1)


def test_the_estimates_are_exact_where_the_norms_are() -> None:
    signal, noise, sizes = 3.0, 8.0, [2, 4, 10]
    scale = optim.GradientNoiseScale(0.9)
    for _ in range(3):
        scale.update([(signal + noise / size, size) for size in sizes], signal + noise / sum(sizes))
    np.testing.assert_allclose([scale.signal, scale.noise, scale.value], [signal, noise, noise / signal], rtol=1e-12)
    other = optim.GradientNoiseScale(0.9)
    other.load_state_dict(scale.state_dict())
    assert (other.value, other.steps, repr(other)) == (scale.value, 3, repr(scale))


def test_the_noise_scale_before_and_beyond_what_can_be_measured() -> None:
    scale = optim.GradientNoiseScale()
    assert math.isnan(scale.value)
    assert math.isnan(scale.signal)
    scale.update([(1.0, 1), (1.0, 1)], 0.0)
    assert scale.value == math.inf
    for parts, whole in (([(1.0, 1)], 1.0), ([(1.0, 1), (1.0, 0)], 1.0), ([(math.nan, 1), (1.0, 1)], 1.0)):
        with pytest.raises(ValueError, match=r"at least two|finite squared norms"):
            scale.update(parts, whole)
    for decay in (1.0, -0.1, "x"):
        with pytest.raises(ValueError, match="decay"):
            optim.GradientNoiseScale(decay)


# ---- clipping with a record

GRADIENTS = [[3.0, 4.0], [0.3, 0.4], [math.inf, 0.0], [0.0, 2.0], [math.nan, 0.0]]


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
def test_the_record_counts(compiled: bool) -> None:
    p = nn.Parameter(wg.zeros(2))
    clip = nn.utils.GradClipper(1.0)

    def step(grad: Any) -> Any:
        p.grad = None
        (p * grad).sum().backward()
        return clip([p])

    run = wg.compile(step) if compiled else step
    norms = [run(wg.tensor(g)).item() for g in GRADIENTS]
    assert norms[:2] == pytest.approx([5.0, 0.5])
    assert (clip.steps, clip.triggered, clip.nonfinite, clip.rate) == (5, 2, 2, 0.4)
    assert clip.largest_norm.item() == 5.0
    assert repr(clip) == "GradClipper(max_norm=1.0: triggered in 2 of 5 steps, 2 not finite, largest norm 5)"
    other = nn.utils.GradClipper(1.0)
    other.load_state_dict(clip.state_dict())
    assert other.counts.tolist() == [5, 2, 2]
    clip.reset()
    assert (clip.steps, math.isnan(clip.rate)) == (0, True)
    assert other.steps == 5


def test_clipping_by_value_counts_elements_beyond_the_bound() -> None:
    p = nn.Parameter(wg.zeros(2))
    clip = nn.utils.GradClipper(clip_value=1.0)
    results = []
    for g in ([3.0, -4.0], [0.3, 0.4], [1.0, -1.0]):
        p.grad = wg.tensor(g)
        results.append((clip(p).item(), p.grad.tolist()))
    assert results[0] == (4.0, [1.0, -1.0])
    assert (clip.steps, clip.triggered) == (3, 1)
    assert "clip_value=1.0" in repr(clip)


def test_what_is_not_finite_can_be_refused() -> None:
    p = nn.Parameter(wg.zeros(2))
    p.grad = wg.tensor([math.nan, 5.0])
    clip = nn.utils.GradClipper(1.0, error_if_nonfinite=True)
    with pytest.raises(RuntimeError, match="is nan"):
        clip([p])
    assert (clip.steps, p.grad[1].item()) == (0, 5.0)


@pytest.mark.parametrize(
    "options", [{}, {"max_norm": 1.0, "clip_value": 1.0}, {"max_norm": 0}, {"clip_value": "x"}], ids=str
)
def test_bad_bounds(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="max_norm or clip_value"):
        nn.utils.GradClipper(**options)

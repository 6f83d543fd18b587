"""Averages of models: their values, batch normalisation afterwards, and the schedule."""

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.optim.swa_utils import (
    SWALR,
    AveragedModel,
    get_ema_avg_fn,
    get_ema_multi_avg_fn,
    get_swa_avg_fn,
    get_swa_multi_avg_fn,
    update_bn,
)

VALUES = [1.0, 3.0, 8.0, -2.0]


def averages_of(values: list[float], decay: float | None) -> list[float]:
    """The averages after each value, by their definitions."""
    if decay is None:
        return [float(np.mean(values[: k + 1])) for k in range(len(values))]
    found = [values[0]]
    for value in values[1:]:
        found.append(decay * found[-1] + (1 - decay) * value)
    return found


@pytest.mark.parametrize(("options", "decay"), [
    ({}, None), ({"avg_fn": get_swa_avg_fn()}, None), ({"multi_avg_fn": get_swa_multi_avg_fn()}, None),
    ({"avg_fn": get_ema_avg_fn(0.75)}, 0.75), ({"multi_avg_fn": get_ema_multi_avg_fn(0.75)}, 0.75),
    ({"multi_avg_fn": get_ema_multi_avg_fn(0.0)}, 0.0), ({"multi_avg_fn": get_ema_multi_avg_fn(1.0)}, 1.0),
], ids=lambda v: str(list(v)) if isinstance(v, dict) else str(v))  # fmt: skip
@pytest.mark.parametrize("dtype", [wg.float32, wg.float64, wg.complex64], ids=str)
def test_averages(options: Any, decay: float | None, dtype: Any) -> None:
    model = wg.nn.Linear(2, 2, dtype=dtype if dtype is not wg.complex64 else None)
    if dtype is wg.complex64:
        model.weight.data = model.weight.data.to(dtype)
    average = AveragedModel(model, **options)
    for k, (value, expected) in enumerate(zip(VALUES, averages_of(VALUES, decay), strict=True)):
        with wg.no_grad():
            model.weight.fill_(value)
            model.bias.fill_(-value)
        average.update_parameters(model)
        np.testing.assert_allclose(average.module.weight.detach().numpy(), np.full((2, 2), expected), rtol=1e-6)
        np.testing.assert_allclose(average.module.bias.detach().numpy(), np.full(2, -expected), rtol=1e-6)
        assert average.n_averaged.item() == k + 1
    assert model.weight.requires_grad
    assert average.module.weight.grad_fn is None


@pytest.mark.parametrize("use_buffers", [False, True])
def test_buffers_are_copied_or_averaged(use_buffers: bool) -> None:
    model = wg.nn.BatchNorm1d(1)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=use_buffers)
    for value in (2.0, 4.0):
        model.running_mean.fill_(value)
        model.num_batches_tracked.fill_(int(value))
        average.update_parameters(model)
    assert average.module.running_mean.item() == (3.0 if use_buffers else 4.0)
    assert average.module.num_batches_tracked.item() == (3 if use_buffers else 4)


def test_an_equal_average_is_exact_in_float64() -> None:
    """The number of updates is an integer tensor, whose inverse must not be rounded to float32."""
    model = wg.nn.Linear(1, 1, bias=False).double()
    averaged = AveragedModel(model)
    for value in (1.1, 3.1, 6.1):
        with wg.no_grad():
            model.weight.fill_(value)
        averaged.update_parameters(model)
    assert averaged.module.weight.item() == pytest.approx((1.1 + 3.1 + 6.1) / 3, rel=1e-15)


def test_it_is_a_model_that_is_saved_and_called() -> None:
    model = wg.nn.Linear(2, 1)
    average = AveragedModel(model)
    average.update_parameters(model)
    x = wg.ones(3, 2)
    assert wg.equal(average(x), model(x))
    assert list(average.state_dict()) == ["n_averaged", "module.weight", "module.bias"]
    other = AveragedModel(wg.nn.Linear(2, 1))
    other.load_state_dict(average.state_dict())
    assert other.n_averaged.item() == 1
    assert wg.equal(other(x), model(x))


@pytest.mark.parametrize(("call", "match"), [
    (lambda: AveragedModel(wg.nn.Linear(1, 1), avg_fn=get_swa_avg_fn(), multi_avg_fn=get_swa_multi_avg_fn()), "Only one"),
    (lambda: AveragedModel(wg.nn.Linear(1, 1)).update_parameters(wg.nn.Linear(2, 1)), "whose parameters differ"),
    (lambda: get_ema_avg_fn(1.5), r"Invalid decay value 1.5 .*\[0,1\]"),
    (lambda: get_ema_multi_avg_fn(-0.1), "Invalid decay value -0.1"),
    (lambda: SWALR(sgd(), 0.1, anneal_strategy="step"), "one of 'cos' or 'linear', got 'step'"),
    (lambda: SWALR(sgd(), 0.1, anneal_epochs=-1), "at least 0, got -1"),
    (lambda: SWALR(sgd(), [0.1, 0.2, 0.3]), "swa_lr has 3 values"),
])  # fmt: skip
def test_refused(call: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call()


def test_update_bn_takes_the_statistics_of_one_pass() -> None:
    """Batches of equal size: the mean of their means, and of their unbiased variances."""
    batches = [wg.tensor([[1.0], [3.0]]), wg.tensor([[5.0], [11.0]])]
    model = wg.nn.Sequential(wg.nn.BatchNorm1d(1, momentum=0.3), wg.nn.Dropout(0.5)).eval()
    model[0].running_mean.fill_(100.0)
    for loader in (batches, [(b, wg.zeros(2)) for b in batches], [[b] for b in batches]):
        update_bn(loader, model)
        assert model[0].running_mean.item() == 5.0
        assert model[0].running_var.item() == 10.0
        assert model[0].momentum == 0.3
        assert not model.training
        assert not model[0].training
    with pytest.raises(RuntimeError):
        update_bn([wg.zeros(2, 2)], model)
    assert model[0].momentum == 0.3
    assert not model.training
    update_bn([], wg.nn.Linear(1, 1))


def sgd(*rates: float) -> Any:
    return wg.optim.SGD([{"params": [wg.nn.Parameter(wg.zeros(1))], "lr": r} for r in rates or (1.0, 0.5)])


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 1, 4])
def test_the_schedule(strategy: str, epochs: int) -> None:
    optimizer = sgd(1.0, 0.5)
    schedule = SWALR(optimizer, [0.2, 0.9], anneal_epochs=epochs, anneal_strategy=strategy)
    for step in range(1, 7):
        optimizer.step()
        schedule.step()
        t = min(1.0, step / max(1, epochs))
        alpha = t if strategy == "linear" else (1 - math.cos(math.pi * t)) / 2
        expected = [0.2 * alpha + 1.0 * (1 - alpha), 0.9 * alpha + 0.5 * (1 - alpha)]
        np.testing.assert_allclose([g["lr"] for g in optimizer.param_groups], expected, rtol=1e-12)


def test_swa_after_another_schedule() -> None:
    """From the rate that the other schedule has reached, as in PyTorch's recipe."""
    optimizer = sgd(1.0)
    first = wg.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    swa = SWALR(optimizer, 0.1, anneal_epochs=2, anneal_strategy="linear")
    rates = []
    for epoch in range(5):
        optimizer.step()
        (first if epoch < 2 else swa).step()
        rates.append(optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(rates, [0.5, 0.25, 0.175, 0.1, 0.1], rtol=1e-12)

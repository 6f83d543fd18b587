"""Learning-rate schedules: closed forms, chaining, resuming."""

import copy
import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn, optim
from wengert.optim import lr_scheduler as S


def sgd(lr: float = 0.5, momentum: float = 0.9) -> optim.SGD:
    groups = [{"params": [nn.Parameter(wg.ones(1))], "lr": lr}, {"params": [nn.Parameter(wg.ones(1))], "lr": lr / 5}]
    return optim.SGD(groups, momentum=momentum)


def trajectory(make: Any, steps: int, optimizer: Any = None) -> list[list[float]]:
    o = optimizer or sgd()
    s = make(o)
    seen = []
    for _ in range(steps):
        seen.append([g["lr"] for g in o.param_groups])
        assert list(s.get_last_lr()) == seen[-1]
        o.step()
        s.step()
    return seen


def cosine(t: float, span: float) -> float:
    return (1 + math.cos(math.pi * t / span)) / 2


CLOSED = {  # the rate of epoch t for base rate b
    "LambdaLR": (lambda o: S.LambdaLR(o, lambda t: 0.9**t), lambda t, b: b * 0.9**t),
    "MultiplicativeLR": (lambda o: S.MultiplicativeLR(o, lambda t: 0.9), lambda t, b: b * 0.9**t),
    "StepLR": (lambda o: S.StepLR(o, 3, gamma=0.3), lambda t, b: b * 0.3 ** (t // 3)),
    "MultiStepLR": (lambda o: S.MultiStepLR(o, [2, 2, 7], 0.3), lambda t, b: b * 0.3 ** (2 * (t >= 2) + (t >= 7))),
    "ConstantLR": (lambda o: S.ConstantLR(o, 0.25, total_iters=4), lambda t, b: b * (0.25 if t < 4 else 1.0)),
    "LinearLR": (lambda o: S.LinearLR(o, 0.2, 0.9, total_iters=6), lambda t, b: b * (0.2 + 0.7 * min(t, 6) / 6)),
    "ExponentialLR": (lambda o: S.ExponentialLR(o, 0.9), lambda t, b: b * 0.9**t),
    "PolynomialLR": (lambda o: S.PolynomialLR(o, 8, power=2.0), lambda t, b: b * (1 - min(t, 8) / 8) ** 2),
    "CosineAnnealingLR": (lambda o: S.CosineAnnealingLR(o, 5, 0.01), lambda t, b: 0.01 + (b - 0.01) * cosine(t, 5)),
    "CosineAnnealingWarmRestarts": (
        lambda o: S.CosineAnnealingWarmRestarts(o, 4, eta_min=0.01), lambda t, b: 0.01 + (b - 0.01) * cosine(t % 4, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms(name: str) -> None:
    make, rate = CLOSED[name]
    want = [[rate(t, 0.5), rate(t, 0.1)] for t in range(14)]
    np.testing.assert_allclose(trajectory(make, 14), want, rtol=1e-12, atol=1e-15)


RESUMED = {
    "LambdaLR": lambda o, e: S.LambdaLR(o, lambda t: 0.9**t, e),
    "MultiplicativeLR": lambda o, e: S.MultiplicativeLR(o, lambda t: 0.9, e),
    "StepLR": lambda o, e: S.StepLR(o, 3, 0.3, e),
    "MultiStepLR": lambda o, e: S.MultiStepLR(o, [2, 2, 7], 0.3, e),
    "ConstantLR": lambda o, e: S.ConstantLR(o, 0.25, 4, e),
    "LinearLR": lambda o, e: S.LinearLR(o, 0.2, 0.9, 6, e),
    "ExponentialLR": lambda o, e: S.ExponentialLR(o, 0.9, e),
    "PolynomialLR": lambda o, e: S.PolynomialLR(o, 8, 2.0, e),
    "CosineAnnealingLR": lambda o, e: S.CosineAnnealingLR(o, 5, 0.01, e),
}


@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.parametrize("done", [1, 3, 4])
def test_resuming_with_last_epoch_keeps_the_rate_in_step(name: str, done: int) -> None:
    make, rate = CLOSED[name]
    o = sgd()
    s = make(o)
    for _ in range(done):
        o.step()
        s.step()
    fresh = sgd()
    fresh.load_state_dict(copy.deepcopy(o.state_dict()))
    resumed = RESUMED[name](fresh, done - 1)
    assert resumed.last_epoch == done
    got = [g["lr"] for g in fresh.param_groups]
    np.testing.assert_allclose(got, [rate(done, 0.5), rate(done, 0.1)], rtol=1e-12)


def test_last_epoch_needs_initial_rates() -> None:
    with pytest.raises(KeyError, match="initial_lr"):
        S.StepLR(sgd(), 3, last_epoch=2)


def test_warm_restarts_lengthen_and_take_fractions() -> None:
    s = S.CosineAnnealingWarmRestarts(sgd(), T_0=2, T_mult=2)
    for epoch, want in (
        (1.5, cosine(1.5, 2)),
        (2, 1.0),
        (4, cosine(2, 4)),
        (6, 1.0),
        (10, cosine(4, 8)),
        (0.5, cosine(0.5, 2)),
    ):
        s.step(epoch)
        np.testing.assert_allclose(s.get_last_lr()[0], 0.5 * want, rtol=1e-12)
    with pytest.raises(ValueError, match="negative"):
        s.step(-1)


def test_cyclic_rates_and_momenta() -> None:
    o = sgd()
    s = S.CyclicLR(o, base_lr=0.0, max_lr=1.0, step_size_up=2, mode="triangular2")
    rates, momenta = [], []
    for _ in range(9):
        rates.append(o.param_groups[0]["lr"])
        momenta.append(o.param_groups[0]["momentum"])
        o.step()
        s.step()
    np.testing.assert_allclose(rates, [0, 0.5, 1, 0.5, 0, 0.25, 0.5, 0.25, 0], atol=1e-15)
    np.testing.assert_allclose(momenta, [0.9, 0.85, 0.8, 0.85, 0.9, 0.875, 0.85, 0.875, 0.9])


def test_one_cycle_rates_and_betas() -> None:
    o = optim.Adam([nn.Parameter(wg.ones(1))])
    s = S.OneCycleLR(o, max_lr=1.0, total_steps=11, pct_start=0.5, div_factor=4.0, final_div_factor=10.0)
    seen = []
    for k in range(11):
        seen.append((o.param_groups[0]["lr"], o.param_groups[0]["betas"][0]))
        o.step()
        if k < 10:
            s.step()
    rates, betas = zip(*seen, strict=True)
    assert rates[0] == 0.25
    np.testing.assert_allclose(rates[-1], 0.025)
    assert max(rates) <= 1.0
    assert min(betas) >= 0.85
    assert (betas[0], betas[-1]) == (0.95, 0.95)
    s.step()
    with pytest.raises(ValueError, match="step 12 of a schedule of 11"):
        s.step()


def test_plateau() -> None:
    o = sgd(lr=1.0)
    s = S.ReduceLROnPlateau(o, factor=0.5, patience=1, cooldown=1, min_lr=0.2, threshold=0.1)
    rates = []
    for metric in (10.0, 9.5, 9.4, 9.4, 9.4, 9.4, wg.tensor(9.4), 1.0, math.nan, math.nan, math.nan):
        s.step(metric)
        rates.append(o.param_groups[0]["lr"])
    #               best | bad 1 | bad 2: halve | cooldown | bad 1 | bad 2: halve | cooldown | best | bad | bad: floor
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.2, 0.2]
    assert s.get_last_lr() == [0.2, 0.2]
    assert s.best == 1.0
    with pytest.raises(TypeError, match="metric"):
        s.step()


def test_sequential_starts_each_part_from_its_beginning() -> None:
    def make(o: Any) -> Any:
        return S.SequentialLR(
            o, [S.ConstantLR(o, 0.1, 9), S.ExponentialLR(o, 0.5), S.LinearLR(o, 0.5, total_iters=2)], [2, 4]
        )

    got = [pair[0] for pair in trajectory(make, 7)]
    np.testing.assert_allclose(got, [0.05, 0.05, 0.5, 0.25, 0.25, 0.375, 0.5])


def test_chained_multiplies() -> None:
    got = trajectory(lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.5)]), 4)
    np.testing.assert_allclose([pair[0] for pair in got], [0.05, 0.025, 0.125, 0.0625])


MAKERS = {
    **{name: make for name, (make, _) in CLOSED.items()},
    "CyclicLR": lambda o: S.CyclicLR(o, 0.1, 1.0, step_size_up=4, mode="exp_range", gamma=0.9),
    "OneCycleLR": lambda o: S.OneCycleLR(o, 1.0, total_steps=40, three_phase=True),
    "SequentialLR": lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1), S.ExponentialLR(o, 0.9)], [4]),
    "ChainedScheduler": lambda o: S.ChainedScheduler([S.StepLR(o, 2), S.ExponentialLR(o, 0.9)]),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("done", [2, 7])
def test_state_round_trip(name: str, done: int) -> None:
    make = MAKERS[name]
    o = sgd()
    s = make(o)
    for _ in range(done):
        o.step()
        s.step()
    fresh = sgd()
    t = make(fresh)
    fresh.load_state_dict(copy.deepcopy(o.state_dict()))
    t.load_state_dict(copy.deepcopy(s.state_dict()))
    fresh.step()
    for _ in range(8):
        for opt, sched in ((o, s), (fresh, t)):
            opt.step()
            sched.step()
        assert [g["lr"] for g in fresh.param_groups] == [g["lr"] for g in o.param_groups]
        assert t.get_last_lr() == s.get_last_lr()


def test_plateau_state_round_trip() -> None:
    o = sgd()
    s = S.ReduceLROnPlateau(o, patience=1)
    for _ in range(2):
        s.step(1.0)
    t = S.ReduceLROnPlateau(o, patience=5)
    t.load_state_dict(s.state_dict())
    t.step(1.0)
    np.testing.assert_allclose(o.param_groups[0]["lr"], 0.05)


def test_callable_objects_keep_their_state_and_functions_are_not_saved() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        def __call__(self, epoch: int) -> float:
            return self.by**epoch

    s = S.LambdaLR(sgd(), [Scale(0.5), lambda t: 1.0])
    assert s.state_dict()["lr_lambdas"] == [{"by": 0.5}, None]
    t = S.LambdaLR(sgd(), [Scale(0.9), lambda t: 1.0])
    t.load_state_dict(s.state_dict())
    assert t.lr_lambdas[0].by == 0.5


def test_a_rate_changed_by_hand_is_respected() -> None:
    o = sgd()
    s = S.ExponentialLR(o, 0.5)
    o.step()
    o.param_groups[0]["lr"] = 8.0
    s.step()
    assert o.param_groups[0]["lr"] == 4.0


def test_a_rate_that_is_a_tensor_is_written_into() -> None:
    lr = wg.tensor(0.5)
    o = optim.SGD([nn.Parameter(wg.ones(1))], lr=lr)
    s = S.ExponentialLR(o, 0.5)
    o.step()
    s.step()
    assert o.param_groups[0]["lr"] is lr
    assert lr.item() == 0.25
    assert s.get_last_lr()[0] is not lr


def test_stepping_before_the_optimizer_warns() -> None:
    s = S.ExponentialLR(sgd(), 0.9)
    with pytest.warns(UserWarning, match=r"before the first optimizer\.step"):
        s.step()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda o: S.ExponentialLR(3, 0.9), TypeError),
        (lambda o: S.ReduceLROnPlateau(3), TypeError),
        (lambda o: S.ReduceLROnPlateau(o, factor=1.0), ValueError),
        (lambda o: S.ReduceLROnPlateau(o, mode="best"), ValueError),
        (lambda o: S.ReduceLROnPlateau(o, threshold_mode="x"), ValueError),
        (lambda o: S.ReduceLROnPlateau(o, min_lr=[0.1]), ValueError),
        (lambda o: S.LambdaLR(o, [lambda t: 1.0]), ValueError),
        (lambda o: S.MultiplicativeLR(o, 0.5), TypeError),
        (lambda o: S.ConstantLR(o, 1.5), ValueError),
        (lambda o: S.LinearLR(o, 0.0), ValueError),
        (lambda o: S.CosineAnnealingWarmRestarts(o, 0), ValueError),
        (lambda o: S.CyclicLR(o, 0.1, 1.0, mode="square"), ValueError),
        (lambda o: S.CyclicLR(optim.Adagrad([nn.Parameter(wg.ones(1))]), 0.1, 1.0), ValueError),
        (lambda o: S.OneCycleLR(o, 1.0), ValueError),
        (lambda o: S.OneCycleLR(o, 1.0, total_steps=0), ValueError),
        (lambda o: S.OneCycleLR(o, 1.0, total_steps=9, pct_start=1.5), ValueError),
        (lambda o: S.OneCycleLR(o, 1.0, total_steps=9, anneal_strategy="x"), ValueError),
        (lambda o: S.OneCycleLR(o, [1.0], total_steps=9), ValueError),
        (lambda o: S.SequentialLR(o, [S.StepLR(o, 1)], [3]), ValueError),
        (lambda o: S.SequentialLR(o, [], []), ValueError),
        (lambda o: S.SequentialLR(o, [3], []), TypeError),
        (lambda o: S.SequentialLR(o, [S.StepLR(sgd(), 1)], []), ValueError),
        (lambda o: S.ChainedScheduler([S.ReduceLROnPlateau(o)]), ValueError),
        (lambda o: S.StepLR(o, 3).step(5), TypeError),
        (lambda o: S.ReduceLROnPlateau(o).step(1.0, 5), TypeError),
        (lambda o: S.LRScheduler(o), NotImplementedError),
        (lambda o: S.CosineLR, AttributeError),
    ],
)  # fmt: skip
def test_bad_arguments(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make(sgd())

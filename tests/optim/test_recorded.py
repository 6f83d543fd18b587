"""Fifty steps of every optimiser and schedule are those of PyTorch 2.13, in float64, without PyTorch."""

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.optim.peer_cases import NOTED, OPTIMIZERS, SCHEDULES, Case, Schedule, rates, trajectory
from wengert import optim


def _read() -> dict[str, Any]:
    with np.load(Path(__file__).parent / "trajectories.npz") as file:
        return {label: file[str(i)] for label, i in json.loads(file["index"].tobytes()).items()}


RECORD = _read()


@pytest.mark.parametrize("case", OPTIMIZERS, ids=[case.label for case in OPTIMIZERS])
def test_optimizers(case: Case) -> None:
    want = RECORD[case.label]
    assert len(want) == len(NOTED)
    np.testing.assert_allclose(trajectory(wg, case), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", SCHEDULES, ids=[case.label for case in SCHEDULES])
def test_schedules(case: Schedule) -> None:
    np.testing.assert_allclose(rates(wg, case), RECORD[case.label], rtol=1e-12, atol=1e-15)


def test_lion_follows_the_rule_of_its_paper() -> None:
    """Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, algorithm 2; PyTorch has no Lion."""
    lr, beta1, beta2, decay = 0.02, 0.8, 0.95, 0.1
    p = wg.tensor([0.5, -1.0, 2.0], dtype=wg.float64, requires_grad=True)
    x, m = p.detach().numpy().copy(), np.zeros(3)
    optimizer = optim.Lion([p], lr=lr, betas=(beta1, beta2), weight_decay=decay)
    for step in range(50):
        g = 2 * x + 3 * np.cos(3 * x + 0.1 * step)
        optimizer.zero_grad()
        ((p**2).sum() + (3 * p + 0.1 * step).sin().sum()).backward()
        np.testing.assert_allclose(p.grad.numpy(), g, rtol=1e-9)
        optimizer.step()
        x = x - lr * (np.sign(beta1 * m + (1 - beta1) * g) + decay * x)
        m = beta2 * m + (1 - beta2) * g
        np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-12)


def test_everything_is_recorded() -> None:
    optimizers = {
        n
        for n in optim.__all__
        if inspect.isclass(getattr(optim, n)) and issubclass(getattr(optim, n), optim.Optimizer)
    }
    assert optimizers - {"Optimizer", "Lion"} == {case.name for case in OPTIMIZERS}
    schedules = set(optim.lr_scheduler.__all__) - {"LRScheduler"} | {"SWALR"}
    assert schedules == {case.name for case in SCHEDULES}

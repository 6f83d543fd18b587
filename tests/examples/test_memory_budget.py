"""Budgets against what the allocator is asked for, and the gradients within them, bit by bit."""

import numpy as np
import pytest

import wengert as wg
from examples.memory_budget import BUDGETS, main, network, step_within


def test_budgets_are_kept_and_gradients_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    found = main(batch=512, repeats=1)
    free = found[None]
    for budget in BUDGETS[1:]:
        assert found[budget].peak <= budget * free.peak, budget
        assert "computed again" in found[budget].table
        for name, gradient in found[budget].gradients.items():
            np.testing.assert_array_equal(gradient.numpy(), free.gradients[name].numpy(), err_msg=f"{budget} {name}")
    shown = capsys.readouterr().out
    assert shown.count("gradients equal") == len(BUDGETS)
    assert found[BUDGETS[-1]].table in shown


def test_the_allocator_sees_the_budget_too() -> None:
    model = network(layers=4)
    inputs, targets = wg.randn(512, 128), wg.randint(0, 10, (512,))
    step = step_within(0.5, model)
    for _ in range(2):
        step(inputs, targets)
    ((program,),) = step.programs.values()
    model.zero_grad()
    before = wg.cpu.memory_allocated()
    wg.cpu.reset_peak_memory_stats()
    step(inputs, targets)
    assert wg.cpu.max_memory_allocated() - before <= program.plan.peak + 4096

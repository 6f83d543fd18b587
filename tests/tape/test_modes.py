"""Grad modes: contexts, decorators and switches change what they say, and put back what was there."""

import pytest

import wengert as wg
from wengert.autograd import detect_anomaly, set_detect_anomaly


def state() -> tuple[bool, bool, bool, bool]:
    return (
        wg.is_grad_enabled(), wg.is_inference_mode_enabled(), wg.is_anomaly_enabled(), wg.is_anomaly_check_nan_enabled(),
    )  # fmt: skip


USUAL = (True, False, False, True)
MODES = [
    (lambda: wg.no_grad(), (False, False, False, True)),
    (lambda: wg.enable_grad(), USUAL),
    (lambda: wg.set_grad_enabled(False), (False, False, False, True)),
    (lambda: wg.inference_mode(), (False, True, False, True)),
    (lambda: wg.inference_mode(False), USUAL),
    (lambda: detect_anomaly(), (True, False, True, True)),
    (lambda: detect_anomaly(check_nan=False), (True, False, True, False)),
    (lambda: set_detect_anomaly(True), (True, False, True, True)),
]


@pytest.mark.parametrize(("mode", "inside"), MODES)
def test_a_mode_holds_inside_its_block_and_is_left_by_an_error(mode, inside):
    with mode():
        assert state() == inside
    assert state() == USUAL
    with pytest.raises(ZeroDivisionError), mode():
        _ = 1 / 0
    assert state() == USUAL


@pytest.mark.parametrize(("mode", "inside"), MODES)
def test_a_mode_decorates_a_function(mode, inside):
    decorated = mode()(state)
    assert state() == USUAL
    assert [decorated(), decorated()] == [inside, inside]
    assert state() == USUAL


def test_no_grad_decorates_without_parentheses_and_a_generator_step_by_step():
    @wg.no_grad
    def steps():
        yield wg.is_grad_enabled()
        yield wg.is_grad_enabled()

    found = [(inside, wg.is_grad_enabled()) for inside in steps()]
    assert found == [(False, True), (False, True)]


def test_a_block_puts_back_only_what_it_changed():
    try:
        with detect_anomaly():
            wg.set_grad_enabled(False)
        assert state() == (False, False, False, True)
        wg.set_grad_enabled(True)
        with wg.no_grad():
            set_detect_anomaly(True)
        assert state() == (True, False, True, True)
    finally:
        wg.set_grad_enabled(True)
        set_detect_anomaly(False)
    assert state() == USUAL


def test_a_switch_holds_at_once_and_as_a_context_until_the_end_of_the_block():
    wg.set_grad_enabled(False)
    try:
        assert not (wg.ones(1, requires_grad=True) * 2).requires_grad
        with wg.set_grad_enabled(True):
            assert wg.is_grad_enabled()
        assert not wg.is_grad_enabled()
    finally:
        wg.set_grad_enabled(True)


def test_nothing_is_recorded_in_inference_mode_whatever_is_switched_on():
    x = wg.ones(2, requires_grad=True)
    with wg.inference_mode(), wg.enable_grad():
        assert not (x * 2).requires_grad
    with wg.inference_mode(), wg.set_grad_enabled(True):
        assert not (x * 2).requires_grad


def test_leaving_inference_mode_inside_records_again():
    x = wg.ones(2, requires_grad=True)
    with wg.inference_mode():
        with wg.inference_mode(False):
            y = x * 2
        assert wg.is_inference_mode_enabled()
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]

"""The gradient scaler: what it does to scale, gradients and parameters, and what it refuses."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.amp import GradScaler

INF, NAN = float("inf"), float("nan")


def made(scale: float = 8.0, **options: Any) -> tuple[Any, Any, GradScaler]:
    p = wg.nn.Parameter(wg.tensor([1.0, 2.0]))
    return p, wg.optim.SGD([p], lr=0.5), GradScaler(init_scale=scale, **options)


def test_a_step() -> None:
    p, optimizer, scaler = made()
    scaler.scale((p * p).sum()).backward()
    np.testing.assert_array_equal(p.grad.numpy(), [16.0, 32.0])
    scaler.step(optimizer)
    scaler.update()
    np.testing.assert_array_equal(p.grad.numpy(), [2.0, 4.0])
    np.testing.assert_array_equal(p.detach().numpy(), [0.0, 0.0])
    assert scaler.get_scale() == 8.0


# gradients of each step, the growth interval, and (scale, count, parameter) after each
SEQUENCES: list[tuple[list[float], int, list[tuple[float, int, float]]]] = [
    ([1, INF, 1, NAN], 3, [(8, 1, 0.5), (4, 0, 0.5), (4, 1, 0), (2, 0, 0)]),
    ([1, 1, 1, 1, 1], 2, [(8, 1, 0.5), (16, 0, 0), (16, 1, -0.5), (32, 0, -1), (32, 1, -1.5)]),
    ([1, -INF, 1, 1], 2, [(8, 1, 0.5), (4, 0, 0.5), (4, 1, 0), (8, 0, -0.5)]),
    ([INF, INF, INF], 1, [(4, 0, 1), (2, 0, 1), (1, 0, 1)]),
]


@pytest.mark.parametrize(("gradients", "interval", "expected"), SEQUENCES)
def test_scale_and_skipped_steps(gradients: Any, interval: int, expected: Any) -> None:
    _, _, scaler = made(growth_interval=interval)
    p = wg.nn.Parameter(wg.tensor([1.0]))
    optimizer = wg.optim.SGD([p], lr=0.5)
    for gradient, (scale, count, value) in zip(gradients, expected, strict=True):
        optimizer.zero_grad()
        scaler.scale((p * gradient).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert (scaler.get_scale(), scaler._get_growth_tracker(), p.item()) == (scale, count, value)


def test_the_scale_does_not_grow_to_infinity() -> None:
    p, optimizer, scaler = made(2.0**127, growth_interval=1)
    p.grad = wg.ones(2)
    scaler.scale(p)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**127
    assert scaler._get_growth_tracker() == 0


def test_one_overflow_skips_its_optimizer_and_halves_the_scale_for_all() -> None:
    p, first, scaler = made()
    q = wg.nn.Parameter(wg.tensor([1.0]))
    second = wg.optim.SGD([q], lr=0.5)
    scaler.scale((p * INF).sum() + q.sum()).backward()
    assert scaler.step(first) is None
    scaler.step(second)
    scaler.update()
    np.testing.assert_array_equal(p.detach().numpy(), [1.0, 2.0])
    assert q.item() == 0.5
    assert scaler.get_scale() == 4.0


def test_the_inverse_of_the_scale_is_taken_in_float64() -> None:
    """1 / 3 in float64, rounded to float32; the gradient times that."""
    p, optimizer, scaler = made(3.0)
    scaler.scale((p * p).sum())
    p.grad = wg.tensor([7.0, 11.0])
    scaler.unscale_(optimizer)
    np.testing.assert_array_equal(p.grad.numpy(), np.float32([7, 11]) * np.float32(1 / np.float64(3)))


def test_accumulated_gradients_are_unscaled_once_and_clipped() -> None:
    p, optimizer, scaler = made()
    for _ in range(2):
        scaler.scale(p.sum()).backward()
    scaler.unscale_(optimizer)
    np.testing.assert_array_equal(p.grad.numpy(), [2.0, 2.0])
    wg.nn.utils.clip_grad_value_([p], 1.0)
    scaler.step(optimizer)
    scaler.update()
    np.testing.assert_array_equal(p.detach().numpy(), [0.5, 1.5])


def test_a_step_returns_what_the_optimizer_returns() -> None:
    class Counting(wg.optim.SGD):
        def step(self, *args: Any, **kwargs: Any) -> Any:
            super().step()
            return args, kwargs

    p, _, scaler = made()
    optimizer = Counting([p], lr=0.5)
    scaler.scale(p.sum()).backward()
    assert scaler.step(optimizer, 3, flag=True) == ((3,), {"flag": True})
    scaler.update()


def test_an_optimizer_that_unscales_itself() -> None:
    seen: list[Any] = []

    class Own(wg.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure: Any = None) -> None:
            seen.append((None if self.grad_scale is None else self.grad_scale.item(), self.found_inf.item()))

    p, _, scaler = made()
    optimizer = Own([p], lr=0.5)
    for unscaled in (False, True):
        p.grad = None
        scaler.scale((p * INF).sum()).backward()
        if unscaled:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert seen == [(8.0, 1.0), (None, 1.0)]
    assert not hasattr(optimizer, "found_inf")
    assert scaler.get_scale() == 2.0


def test_outputs_in_containers() -> None:
    _, _, scaler = made()
    a, b = wg.tensor(1.0), wg.tensor([2.0], dtype=wg.float16)
    found = scaler.scale([a, (b, a)])
    assert type(found) is list
    assert type(found[1]) is tuple
    assert found[1][0].dtype is wg.float16
    assert [t.item() for t in (found[0], *found[1])] == [8.0, 16.0, 8.0]
    assert [t.item() for t in scaler.scale(iter([a, b]))] == [8.0, 16.0]
    for wrong in (1.0, "loss", [a, 2]):
        with pytest.raises(ValueError, match="outputs must be a Tensor or an iterable"):
            scaler.scale(wrong)


REFUSED: list[tuple[str, Any, Any, str]] = [
    ("two unscales", lambda s, o: [s.unscale_(o), s.unscale_(o)], RuntimeError, "already been called on this optimizer"),
    ("unscale after step", lambda s, o: [s.step(o), s.unscale_(o)], RuntimeError, "being called after step"),
    ("two steps", lambda s, o: [s.step(o), s.step(o)], RuntimeError, "step.. has already been called since"),
    ("update alone", lambda s, o: s.update(), RuntimeError, "No inf checks were recorded prior to update"),
    ("a closure", lambda s, o: s.step(o, closure=lambda: 1), RuntimeError, "Closure use is not currently supported"),
    ("a closure by position", lambda s, o: s.step(o, lambda: 1), RuntimeError, "Closure use"),
    ("no gradients", lambda s, o: [o.zero_grad(), s.step(o)], RuntimeError, "No inf checks were recorded for this optim"),
    ("no optimizer", lambda s, o: s.step(3), TypeError, "takes an optimizer, got int"),
    ("a word as scale", lambda s, o: [s.unscale_(o), s.update("2")], TypeError, "new_scale must be a number"),
    ("scales", lambda s, o: [s.unscale_(o), s.update(wg.ones(2))], ValueError, "new_scale must have one element"),
    ("pickled amid", lambda s, o: [s.unscale_(o), pickle.dumps(s)], RuntimeError, "may only be pickled at the beginning"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "calls", "error", "match"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refused(name: str, calls: Any, error: Any, match: str) -> None:
    p, optimizer, scaler = made()
    scaler.scale(p.sum()).backward()
    with pytest.raises(error, match=match):
        calls(scaler, optimizer)


@pytest.mark.parametrize("name", ["step", "unscale_", "update"])
def test_nothing_was_scaled(name: str) -> None:
    p, optimizer, scaler = made()
    p.grad = wg.ones(2)
    with pytest.raises(RuntimeError, match=r"call scaler[.]scale"):
        getattr(scaler, name)(*(() if name == "update" else (optimizer,)))


def test_gradients_of_float16_are_refused() -> None:
    p = wg.nn.Parameter(wg.ones(2, dtype=wg.float16))
    optimizer, scaler = wg.optim.SGD([p], lr=0.5), GradScaler(init_scale=8.0)
    scaler.scale(p.sum()).backward()
    with pytest.raises(ValueError, match="unscale FP16 gradients"):
        scaler.step(optimizer)


def test_update_ends_a_step_that_was_left_out() -> None:
    p, optimizer, scaler = made()
    for _ in range(2):
        scaler.scale(p.sum()).backward()
        scaler.unscale_(optimizer)
        scaler.update()
    assert scaler.get_scale() == 8.0


@pytest.mark.parametrize("new", [3.0, 3, wg.tensor([3.0]), wg.tensor(3.0)], ids=str)
def test_a_new_scale(new: Any) -> None:
    p, _, scaler = made()
    scaler.scale(p.sum())
    scaler.update(new)
    assert scaler.get_scale() == 3.0
    assert scaler.scale(wg.tensor(1.0)).item() == 3.0


def test_disabled_it_passes_on() -> None:
    p, optimizer, scaler = made(enabled=False)
    loss = p.sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    np.testing.assert_array_equal(p.detach().numpy(), [0.5, 1.5])
    assert (scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()) == (1.0, {}, False)
    scaler.load_state_dict({})
    with pytest.warns(UserWarning, match="not available"):
        assert not GradScaler("cuda").is_enabled()


@pytest.mark.parametrize("how", ["state_dict", "pickle", "deepcopy"])
@pytest.mark.parametrize("begun", [False, True])
def test_saving_and_going_on(how: str, begun: bool) -> None:
    p, optimizer, scaler = made(growth_interval=3, growth_factor=4.0, backoff_factor=0.25)
    scaler.scale(p.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    state = {"scale": 8.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3, "_growth_tracker": 1}
    assert scaler.state_dict() == state
    if how == "state_dict":
        other = GradScaler()
        if begun:
            other.scale(p)
        other.load_state_dict(scaler.state_dict())
    else:
        other = pickle.loads(pickle.dumps(scaler)) if how == "pickle" else copy.deepcopy(scaler)
    for _ in range(2):
        other.scale(p.sum()).backward()
        other.step(optimizer)
        other.update()
    assert (other.get_scale(), other._get_growth_tracker()) == (32.0, 0)
    assert scaler.get_scale() == 8.0
    with pytest.raises(RuntimeError, match="source state dict is empty"):
        other.load_state_dict({})


@pytest.mark.parametrize(
    ("options", "match"), [({"growth_factor": 1.0}, "growth"), ({"backoff_factor": 1.0}, "backoff")]
)
def test_factors_out_of_range(options: Any, match: str) -> None:
    with pytest.raises(ValueError, match=f"The {match} factor must be"):
        GradScaler(**options)
    scaler = GradScaler()
    scaler.set_growth_interval(7)
    scaler.set_growth_factor(3)
    scaler.set_backoff_factor(0.25)
    assert (scaler.get_growth_interval(), scaler.get_growth_factor(), scaler.get_backoff_factor()) == (7, 3.0, 0.25)

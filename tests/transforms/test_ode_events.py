"""Events: when and where, and the derivatives of both, against closed forms."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import wengert as wg
from wengert import func
from wengert.transforms.ode import odeint
from wengert.transforms.ode_events import bracketed_root

D = wg.float64
ADJOINTS = ["discrete", "checkpoint", "continuous"]
G = 9.81


def leaf(value: float) -> Any:
    return wg.tensor(value, dtype=D, requires_grad=True)


def fall(gravity: Any, height: Any, speed: Any = 0.0, **options: Any) -> Any:
    """A ball thrown upwards with a speed, until it meets the ground."""
    start = {"h": height, "v": height * 0 + speed}
    return odeint(
        lambda t, y: {"h": y["v"], "v": -gravity + 0 * y["v"]},
        start,
        [0.0, 1.0, 1.2, 50.0],
        event=lambda t, y: y["h"],
        **options,
    )


@pytest.mark.parametrize("options", [{}, {"method": "rk4", "step_size": 0.3}, {"method": "bosh3"}], ids=str)
@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_a_falling_ball(adjoint: str, options: dict[str, Any]) -> None:
    gravity, height = leaf(G), leaf(10.0)
    time, state = math.sqrt(20 / G), -math.sqrt(20 * G)
    found = fall(gravity, height, adjoint=adjoint, **options)
    assert found.time.item() == pytest.approx(time, rel=1e-12)
    assert found.state["v"].item() == pytest.approx(state, rel=1e-12)
    assert found.state["h"].item() == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(found.ys["h"].detach().numpy(), 10 - G / 2 * np.array([0, 1, 1.2]) ** 2, rtol=1e-10)
    by_g, by_h = wg.autograd.grad(found.time, (gravity, height), create_graph=True)
    assert (by_g.item(), by_h.item()) == pytest.approx((-time / (2 * G), time / 20), rel=1e-10)
    assert wg.autograd.grad(by_h, height, retain_graph=True)[0].item() == pytest.approx(-time / 400, rel=1e-9)
    by_g, by_h = wg.autograd.grad(found.state["v"], (gravity, height))
    assert (by_g.item(), by_h.item()) == pytest.approx((state / (2 * G), state / 20), rel=1e-10)


def test_a_bouncing_ball() -> None:
    """After n bounces with restitution r: t = √(2h/g) (1 + 2 Σ rⁱ), differentiated by all three."""
    gravity, height, restitution = leaf(G), leaf(5.0), leaf(0.8)
    found = fall(gravity, height)
    total, time = found.time, math.sqrt(10 / G)
    for _ in range(3):
        found = fall(gravity, found.state["h"], -restitution * found.state["v"])
        total = total + found.time
    bounces = 1 + 2 * (0.8 + 0.64 + 0.512)
    assert total.item() == pytest.approx(time * bounces, rel=1e-10)
    gradients = [g.item() for g in wg.autograd.grad(total, (gravity, height, restitution))]
    slope = 2 * (1 + 2 * 0.8 + 3 * 0.64)
    assert gradients == pytest.approx([-time * bounces / (2 * G), time * bounces / 10, time * slope], rel=1e-9)


def test_an_event_of_an_oscillator_against_scipy() -> None:
    def f(t: Any, y: Any) -> Any:
        return wg.stack([y[1], -y[0].sin() - 0.1 * y[1]])

    found = odeint(
        f, wg.tensor([1.0, 0.0], dtype=D), [0.0, 20.0], event=lambda t, y: y[0] + 0.3, rtol=1e-10, atol=1e-12
    )

    def event(t: float, y: Any) -> float:
        return y[0] + 0.3

    event.terminal = True  # type: ignore[attr-defined]
    peer = solve_ivp(
        lambda t, y: [y[1], -np.sin(y[0]) - 0.1 * y[1]], (0, 20), [1, 0], rtol=1e-11, atol=1e-13, events=event
    )
    assert found.time.item() == pytest.approx(peer.t_events[0][0], rel=1e-8)


def test_an_event_that_depends_on_parameters_and_time() -> None:
    """y = exp(k t) meets c + t."""
    k, c = leaf(1.0), leaf(2.0)
    found = odeint(lambda t, y: k * y, leaf(1.0), [0.0, 5.0], event=lambda t, y: y - c - t)
    t = found.time.item()
    assert math.exp(t) - 2 - t == pytest.approx(0, abs=1e-6)
    by_k, by_c = wg.autograd.grad(found.time, (k, c))
    slope = math.exp(t) - 1
    assert (by_k.item(), by_c.item()) == pytest.approx((-t * math.exp(t) / slope, 1 / slope), rel=1e-6)


def test_no_event() -> None:
    found = odeint(lambda t, y: -y, wg.ones(2, dtype=D), [0.0, 1.0, 2.0], event=lambda t, y: y[0] + 1)
    assert found.time is None
    assert found.state is None
    np.testing.assert_allclose(found.ys[:, 0].numpy(), np.exp([0, -1, -2]), rtol=1e-6)


def test_backwards_in_time_and_by_the_first_time() -> None:
    t = wg.tensor([1.0, -9.0], dtype=D, requires_grad=True)
    found = odeint(lambda t, y: wg.ones_like(y), leaf(3.0), t, event=lambda t, y: y)
    assert found.time.item() == pytest.approx(-2.0)
    np.testing.assert_allclose(wg.autograd.grad(found.time, t)[0].numpy(), [1.0, 0.0], atol=1e-12)


MODES = {"jvp": lambda f: lambda a: func.jvp(f, (a,), (wg.tensor(1.0, dtype=D),))[1], "grad": func.grad}


@pytest.mark.parametrize("outer", MODES)
@pytest.mark.parametrize("inner", MODES)
def test_transforms(inner: str, outer: str) -> None:
    def f(height: Any) -> Any:
        return fall(G, height).time

    time = math.sqrt(20 / G)
    assert MODES[inner](f)(wg.tensor(10.0, dtype=D)).item() == pytest.approx(time / 20, rel=1e-9)
    assert MODES[outer](MODES[inner](f))(wg.tensor(10.0, dtype=D)).item() == pytest.approx(-time / 400, rel=1e-8)


@pytest.mark.parametrize(
    ("event", "error", "message"),
    [
        (lambda t, y: 1.0, TypeError, "must return a tensor"),
        (lambda t, y: y, ValueError, "one element"),
        (lambda t, y: y[0] * math.nan, RuntimeError, "event returned nan at t = 0"),
    ],
)
def test_errors(event: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        odeint(lambda t, y: -y, wg.ones(2, dtype=D), [0.0, 1.0], event=event)


def test_vmap_is_refused() -> None:
    with pytest.raises(wg.errors.TransformError, match="vmap"):
        func.vmap(lambda h: fall(G, h).time)(wg.tensor([1.0, 2.0], dtype=D))


@pytest.mark.parametrize(
    ("f", "root"),
    [(lambda x: x - 0.3, 0.3), (lambda x: x**9 - 0.001, 0.001 ** (1 / 9)), (lambda x: math.tanh(50 * (x - 0.9)), 0.9)],
)
def test_bracketed_root(f: Any, root: float) -> None:
    calls = []
    found = bracketed_root(lambda x: calls.append(x) or f(x), 0.0, f(0.0), 1.0, f(1.0))
    assert found == pytest.approx(root, abs=1e-14)
    assert len(calls) < 30

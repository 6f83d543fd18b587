"""Derivatives of integrations: the three adjoints against closed forms, differences and each other; transforms."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm, expm_frechet

import wengert as wg
from wengert import func
from wengert.transforms.ode import odeint

D = wg.float64
ADJOINTS = ["discrete", "checkpoint", "continuous"]
ROTATION = np.array([[-0.1, 2.0], [-2.0, -0.1]])
START = np.array([2.0, 0.5])
WEIGHTS = np.array([[1.0, 2.0], [3.0, -4.0], [0.5, 6.0], [-7.0, 8.0]])
TIMES = np.array([0.0, 0.5, 1.0, 3.0])


def leaf(value: Any) -> Any:
    return wg.tensor(np.asarray(value, np.float64).copy(), requires_grad=True)


def expected() -> tuple[np.ndarray[Any, Any], ...]:
    """The gradients of Σ w · y(t) of y' = A y by A, y₀ and t, in closed form."""
    by_A, by_y, by_t = np.zeros((2, 2)), np.zeros(2), np.zeros(4)
    for i, (t, w) in enumerate(zip(TIMES, WEIGHTS, strict=True)):
        by_y += expm(ROTATION * t).T @ w
        by_A += expm_frechet(ROTATION.T * t, np.outer(w, START) * t, compute_expm=False)
        if i:
            by_t[i] = w @ ROTATION @ expm(ROTATION * t) @ START
            by_t[0] -= by_t[i]
    return by_A, by_y, by_t


@pytest.mark.parametrize(
    "options", [{}, {"method": "bosh3", "rtol": 1e-6, "atol": 1e-8}, {"method": "rk4", "num_steps": 100}], ids=str
)
@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_gradients_against_closed_forms(adjoint: str, options: dict[str, Any]) -> None:
    A, y0, t = leaf(ROTATION), leaf(START), leaf(TIMES)
    ys = odeint(lambda t, y: A @ y, y0, t, adjoint=adjoint, **options)
    found = wg.autograd.grad((ys * wg.tensor(WEIGHTS)).sum(), (A, y0, t))
    for g, e in zip(found, expected(), strict=True):
        np.testing.assert_allclose(g.numpy(), e, atol=3e-4)


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_arguments_and_closures_receive_the_same(adjoint: str) -> None:
    A, y0 = leaf(ROTATION), leaf(START)
    as_argument = odeint(lambda t, y, A: A @ y, y0, TIMES, A, adjoint=adjoint)[-1].sum()
    as_closure = odeint(lambda t, y: A @ y, y0, TIMES, adjoint=adjoint)[-1].sum()
    for a, b in zip(wg.autograd.grad(as_argument, (A, y0)), wg.autograd.grad(as_closure, (A, y0)), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_checkpointing_gives_the_discrete_gradient() -> None:
    k = leaf(0.8)

    def f(t: Any, y: Any) -> Any:
        return {"p": y["q"] * k.sin(), "q": -(y["p"] ** 3) * t}

    y0 = {"p": leaf([1.0, 0.5]), "q": leaf([[0.1], [0.2]])[:, 0]}
    found = []
    for adjoint in ("discrete", "checkpoint"):
        ys = odeint(f, y0, np.linspace(0, 3, 5), adjoint=adjoint)
        found.append(wg.autograd.grad((ys["p"] ** 2).sum() + ys["q"].sum(), (k, y0["p"], y0["q"])))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10)


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_backwards_in_time(adjoint: str) -> None:
    k = leaf(0.7)
    y = odeint(lambda t, y: -k * y, leaf(1.5), [2.0, 0.5], adjoint=adjoint)[-1]
    assert wg.autograd.grad(y, k)[0].item() == pytest.approx(1.5 * 1.5 * math.exp(1.05), rel=1e-5)


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_a_module_as_right_hand_side(adjoint: str) -> None:
    wg.manual_seed(0)
    net = wg.nn.Sequential(wg.nn.Linear(2, 8), wg.nn.Tanh(), wg.nn.Linear(8, 2)).double()
    odeint(lambda t, y: net(y), wg.ones(3, 2, dtype=D), [0.0, 1.0], adjoint=adjoint)[-1].sum().backward()
    weight = net[0].weight
    h, bump = 1e-6, wg.zeros_like(weight)
    bump[1, 0] = h
    values = []
    for sign in (1, -1):
        with wg.no_grad():
            weight.add_(sign * bump)
            values.append(odeint(lambda t, y: net(y), wg.ones(3, 2, dtype=D), [0.0, 1.0])[-1].sum().item())
            weight.sub_(sign * bump)
    assert weight.grad[1, 0].item() == pytest.approx((values[0] - values[1]) / (2 * h), rel=1e-4)


@pytest.mark.parametrize("adjoint", ["discrete", "checkpoint"])
def test_gradcheck(adjoint: str) -> None:
    def f(k: Any, y0: Any) -> Any:
        return odeint(lambda t, y: wg.stack([y[1], -k * y[0].sin()]), y0, [0.0, 0.4, 1.0], method="rk4", num_steps=3,
                      adjoint=adjoint)  # fmt: skip

    assert wg.autograd.gradcheck(f, (leaf(2.0), leaf([0.3, 0.1])))
    assert wg.autograd.gradgradcheck(f, (leaf(2.0), leaf([0.3, 0.1])))


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_second_derivatives(adjoint: str) -> None:
    """Of y₀ exp(-k (t₁ - t₀)) with respect to everything."""
    k, y0, t = leaf(0.7), leaf(1.5), leaf([0.2, 1.1])
    y = odeint(lambda t, y: -k * y, y0, t, adjoint=adjoint)[-1]
    first = wg.autograd.grad(y, (k, y0, t), create_graph=True)
    second = wg.autograd.grad(first[0] + first[1] + 2 * first[2][0] + 3 * first[2][1], (k, y0, t))

    x = [leaf(0.7), leaf(1.5), leaf([0.2, 1.1])]
    closed = x[1] * (-x[0] * (x[2][1] - x[2][0])).exp()
    a = wg.autograd.grad(closed, x, create_graph=True)
    b = wg.autograd.grad(a[0] + a[1] + 2 * a[2][0] + 3 * a[2][1], x)
    for found, right in ((first, a), (second, b)):
        for g, e in zip(found, right, strict=True):
            np.testing.assert_allclose(g.detach().numpy(), e.detach().numpy(), rtol=1e-5)


def test_checkpointing_keeps_less() -> None:
    """The graph of the discrete adjoint holds every stage of every step, the other ones a single node."""

    def nodes(adjoint: str) -> int:
        k = leaf(2.0)
        stack, seen = [odeint(lambda t, y: -k * y.sin(), leaf(1.0), [0.0, 5.0], adjoint=adjoint).grad_fn], set()
        while stack:
            node = stack.pop()
            if node is not None and node not in seen:
                seen.add(node)
                stack.extend(n for n, _ in node.next_functions)
        return len(seen)

    assert nodes("discrete") > 1000
    assert nodes("checkpoint") <= 4
    assert nodes("continuous") <= 4


@pytest.mark.parametrize("adjoint", ["checkpoint", "continuous"])
def test_changes_in_place_are_noticed(adjoint: str) -> None:
    k, y0 = leaf(0.5), leaf(1.0)
    y = odeint(lambda t, y: -k * y, y0, [0.0, 1.0], adjoint=adjoint)[-1]
    with wg.no_grad():
        k.mul_(2)
    with pytest.raises(wg.errors.InplaceError, match="changed in place"):
        y.backward()


@pytest.mark.parametrize("adjoint", ["checkpoint", "continuous"])
def test_what_is_read_only_later_is_noticed(adjoint: str) -> None:
    k, y0 = leaf(0.5), leaf(1.0)
    y = odeint(lambda t, y: -k * y if t > 0.5 else -y, y0, [0.0, 1.0], adjoint=adjoint)[-1]
    with pytest.raises(RuntimeError, match="which it does not read at the start"):
        y.backward()


# ---- transforms

ONE = wg.tensor(1.0, dtype=D)
MODES = {"jvp": lambda f: lambda a: func.jvp(f, (a,), (ONE,))[1], "grad": func.grad}


def decay(k: Any) -> Any:
    return odeint(lambda t, y: -k * y, wg.tensor([1.0, 2.0], dtype=D), [0.0, 0.5, 1.0])[-1].sum()


@pytest.mark.parametrize("outer", MODES)
@pytest.mark.parametrize("inner", MODES)
def test_forward_and_reverse_mode_nest(inner: str, outer: str) -> None:
    k = wg.tensor(0.7, dtype=D)
    assert MODES[inner](decay)(k).item() == pytest.approx(-3 * math.exp(-0.7), rel=1e-6)
    assert MODES[outer](MODES[inner](decay))(k).item() == pytest.approx(3 * math.exp(-0.7), rel=1e-5)


def test_vmap() -> None:
    k = wg.tensor([0.5, 2.0, 5.0], dtype=D)
    value = 3 * np.exp(-k.numpy())
    np.testing.assert_allclose(func.vmap(decay)(k).numpy(), value, rtol=1e-6)
    np.testing.assert_allclose(func.vmap(func.grad(decay))(k).numpy(), -value, rtol=1e-5)
    np.testing.assert_allclose(func.grad(lambda k: func.vmap(decay)(k).sum())(k).numpy(), -value, rtol=1e-5)


def test_forward_mode_by_the_times() -> None:
    def f(t: Any) -> Any:
        return odeint(lambda t, y: -t * y, wg.tensor([1.0, 2.0], dtype=D), t)[1:]

    t = wg.tensor([0.2, 0.7, 1.1], dtype=D)
    np.testing.assert_allclose(func.jacfwd(f)(t).numpy(), func.jacrev(f)(t).numpy(), atol=1e-12)
    ratio = np.exp(-(t.numpy()[1:] ** 2 - 0.04) / 2)
    np.testing.assert_allclose(func.jacfwd(f)(t)[:, 0, 0].numpy(), 0.2 * ratio, rtol=1e-6)
    np.testing.assert_allclose(func.jacfwd(f)(t)[1, 0, 2].numpy(), -1.1 * ratio[1], rtol=1e-6)


@pytest.mark.parametrize("adjoint", ["checkpoint", "continuous"])
@pytest.mark.parametrize("transform", [MODES["jvp"], lambda f: lambda k: func.vmap(f)(k.expand(2))])
def test_other_adjoints_are_refused_inside_forward_mode_and_vmap(adjoint: str, transform: Any) -> None:
    def f(k: Any) -> Any:
        return odeint(lambda t, y: -k * y, ONE, [0.0, 1.0], adjoint=adjoint)[-1]

    with pytest.raises(wg.errors.TransformError, match="adjoint='discrete'"):
        transform(f)(wg.tensor(0.7, dtype=D))


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_what_reads_nothing_at_the_start_is_differentiated_by_what_it_reads_later(adjoint: str) -> None:
    """y' = 0 up to t = 1, then k: y(2) grows by k."""
    k = leaf(0.5)
    y = odeint(lambda t, y: k + 0 * y if t >= 1 else 0 * y, wg.tensor(START), wg.tensor([0.0, 1.0, 2.0], dtype=D),
               method="euler", num_steps=4, adjoint=adjoint)  # fmt: skip
    y[-1].sum().backward()
    np.testing.assert_allclose(k.grad, 2.0)


@pytest.mark.parametrize("adjoint", ["checkpoint", "continuous"])
def test_a_random_right_hand_side_cannot_be_run_again(adjoint: str) -> None:
    k = leaf(0.5)
    with pytest.raises(RuntimeError, match=r"draws random numbers, .* use adjoint='discrete'"):
        odeint(lambda t, y: k * wg.rand(2, dtype=D), wg.tensor(START), wg.tensor(TIMES), method="rk4", adjoint=adjoint)

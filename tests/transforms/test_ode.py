"""Integration: values and orders of convergence, dense output, refusals."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import wengert as wg
from wengert.transforms.ode import odeint
from wengert.transforms.ode_steps import METHODS

D = wg.float64
ROTATION = np.array([[-0.1, 2.0], [-2.0, -0.1]])
START = np.array([2.0, 0.5])


def linear(t: Any, y: Any) -> Any:
    return wg.tensor(ROTATION) @ y


def times(*values: float) -> Any:
    return wg.tensor(values, dtype=D)


def exact(*values: float) -> np.ndarray[Any, Any]:
    return np.stack([expm(ROTATION * t) @ START for t in values])


def van_der_pol(t: Any, y: Any) -> Any:
    return wg.stack([y[1], 5 * (1 - y[0] ** 2) * y[1] - y[0]])


# ---- tableaus: the order conditions of Hairer, Nørsett & Wanner I, §II.2, to order 4


@pytest.mark.parametrize("name", METHODS)
def test_order_conditions(name: str) -> None:
    method = METHODS[name]
    s = len(method.nodes)
    A = np.zeros((s, s))
    for i, stage in enumerate(method.stages):
        A[i, : len(stage)] = stage
    b, c = np.array(method.weights), np.array(method.nodes)
    np.testing.assert_allclose(A.sum(1), c, atol=1e-15)
    conditions = [
        (1, b.sum(), 1), (2, b @ c, 1 / 2), (3, b @ c**2, 1 / 3), (3, b @ A @ c, 1 / 6), (4, b @ c**3, 1 / 4),
        (4, (b * c) @ A @ c, 1 / 8), (4, b @ A @ c**2, 1 / 12), (4, b @ A @ A @ c, 1 / 24), (5, b @ c**4, 1 / 5),
        (5, b @ A @ A @ A @ c, 1 / 120),
    ]  # fmt: skip
    for order, found, expected in conditions:
        if order <= method.order:
            assert found == pytest.approx(expected, abs=1e-14)
    if method.error is not None:
        embedded = b - np.array(method.error)
        for order, found, expected in ((1, embedded.sum(), 1), (2, embedded @ c, 1 / 2), (3, embedded @ c**2, 1 / 3)):
            if order < method.order:
                assert found == pytest.approx(expected, abs=1e-14)


# ---- convergence


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("midpoint", 2), ("bosh3", 3), ("rk4", 4), ("dopri5", 5)])
def test_order_of_equal_steps(method: str, order: int) -> None:
    def f(t: Any, y: Any) -> Any:
        return wg.tensor(ROTATION) @ y * t.cos()

    errors = []
    for n in (20, 40):
        y = odeint(f, wg.tensor(START), times(0, 2), method=method, num_steps=n)[-1]
        errors.append(np.abs(y.numpy() - expm(ROTATION * math.sin(2)) @ START).max())
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.35)


@pytest.mark.parametrize(("method", "order"), [("dopri5", 4), ("rk4", 3), ("bosh3", 3)])
def test_order_of_dense_output(method: str, order: int) -> None:
    """Inside a step the error is of order p + 1 in its size."""
    errors = []
    for h in (0.2, 0.1):
        solution = odeint(linear, wg.tensor(START), times(0, h), method=method, num_steps=1, dense=True)
        inside = [h * x for x in (0.2, 0.4, 0.6, 0.8)]
        errors.append(np.abs(solution(times(*inside)).numpy() - exact(*inside)).max())
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order + 1, abs=0.5)


@pytest.mark.parametrize("rtol", [1e-4, 1e-7, 1e-10])
@pytest.mark.parametrize("method", ["dopri5", "bosh3"])
def test_the_error_follows_the_tolerance(method: str, rtol: float) -> None:
    found = odeint(linear, wg.tensor(START), times(0, 1, 5), method=method, rtol=rtol, atol=rtol)
    error = np.abs(found.numpy() - exact(0, 1, 5)).max()
    assert error < 100 * rtol


# ---- values


def test_logistic_growth_of_trees() -> None:
    y0 = {"a": wg.tensor([0.1, 0.2], dtype=D), "b": (wg.tensor(0.5, dtype=D),)}
    t = np.linspace(0, 4, 9)

    def f(t: Any, y: Any, rate: Any) -> Any:
        return wg.tree.map(lambda v: rate * v * (1 - v), y)

    found = odeint(f, y0, wg.tensor(t), 1.5)
    for value, start in ((found["a"], np.array([0.1, 0.2])), (found["b"][0], np.array(0.5))):
        growth = np.exp(1.5 * t).reshape(-1, *[1] * start.ndim)
        np.testing.assert_allclose(value.numpy(), start * growth / (1 - start + start * growth), rtol=1e-6)


@pytest.mark.parametrize("end", [3.0, -3.0])
def test_forwards_and_backwards_in_time(end: float) -> None:
    t = np.linspace(0, end, 7)
    found = odeint(linear, wg.tensor(START), wg.tensor(t))
    np.testing.assert_allclose(found.numpy(), exact(*t), atol=1e-6)


def test_the_van_der_pol_oscillator_against_scipy() -> None:
    t = np.linspace(0, 10, 41)
    found = odeint(van_der_pol, times(2, 0), wg.tensor(t), rtol=1e-9, atol=1e-11)
    peer = solve_ivp(lambda t, y: [y[1], 5 * (1 - y[0] ** 2) * y[1] - y[0]], (0, 10), [2, 0], "DOP853", t, rtol=1e-12,
                     atol=1e-13)  # fmt: skip
    np.testing.assert_allclose(found.numpy(), peer.y.T, atol=2e-6)


def test_as_few_evaluations_as_scipy() -> None:
    calls = 0

    def f(t: Any, y: Any) -> Any:
        nonlocal calls
        calls += 1
        return van_der_pol(t, y)

    odeint(f, times(2, 0), times(0, 10))
    peer = solve_ivp(
        lambda t, y: [y[1], 5 * (1 - y[0] ** 2) * y[1] - y[0]], (0, 10), [2, 0], "RK45", rtol=1e-7, atol=1e-9
    )
    assert calls < 1.15 * peer.nfev


def test_output_times_do_not_change_the_steps() -> None:
    calls = []
    for t in (times(0, 5), wg.linspace(0, 5, 101, dtype=D)):
        count = [0]

        def f(t: Any, y: Any, count: list[int] = count) -> Any:
            count[0] += 1
            return linear(t, y)

        odeint(f, wg.tensor(START), t)
        calls.append(count[0])
    assert calls[0] == calls[1]


def test_scalars_float32_lists_and_a_single_time() -> None:
    found = odeint(lambda t, y: -y, wg.tensor(1.0), [0, 1, 2])
    assert found.dtype is wg.float32
    np.testing.assert_allclose(found.numpy(), np.exp([0, -1, -2]), rtol=1e-4)
    assert odeint(lambda t, y: -y, wg.ones(3), times(1.0)).tolist() == [[1.0, 1.0, 1.0]]


def test_step_size_and_number_of_steps_agree() -> None:
    a = odeint(linear, wg.tensor(START), times(0, 1, 2), method="rk4", step_size=0.1)
    b = odeint(linear, wg.tensor(START), times(0, 1, 2), method="rk4", num_steps=10)
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-14)
    np.testing.assert_allclose(a.numpy(), exact(0, 1, 2), atol=1e-4)


def test_a_jump_of_the_derivative_is_passed() -> None:
    found = odeint(lambda t, y: (t > 0.3).to(D) + 0 * y, times(0.0), times(0, 1))
    assert found[-1].item() == pytest.approx(0.7, abs=1e-6)


# ---- dense output


@pytest.mark.parametrize("end", [4.0, -4.0])
@pytest.mark.parametrize("options", [{}, {"method": "rk4", "num_steps": 100}, {"method": "bosh3"}])
def test_dense_output(options: dict[str, Any], end: float) -> None:
    solution = odeint(linear, wg.tensor(START), times(0, end), dense=True, **options)
    t = np.linspace(end, 0, 23)
    np.testing.assert_allclose(solution(wg.tensor(t)).numpy(), exact(*t), atol=5e-5 if "num_steps" in options else 2e-6)
    np.testing.assert_allclose(
        solution(end / 3).numpy(), exact(end / 3)[0], atol=5e-5 if "num_steps" in options else 2e-6
    )
    assert (solution.t0, solution.t1) == (0.0, pytest.approx(end))
    assert solution.num_steps > 5


def test_dense_output_of_a_tree_and_its_derivatives() -> None:
    k = wg.tensor(0.7, dtype=D, requires_grad=True)
    solution = odeint(lambda t, y: {"y": -k * y["y"]}, {"y": times(1, 2)}, times(0, 2), dense=True)
    t = wg.tensor(1.3, dtype=D, requires_grad=True)
    by_k, by_t = wg.autograd.grad(solution(t)["y"].sum(), (k, t))
    assert by_k.item() == pytest.approx(-1.3 * 3 * math.exp(-0.91), rel=1e-5)
    assert by_t.item() == pytest.approx(-0.7 * 3 * math.exp(-0.91), rel=1e-4)
    assert solution(times(0.1, 0.2, 1.9))["y"].shape == (3, 2)


def test_dense_output_refuses_other_times() -> None:
    solution = odeint(linear, wg.tensor(START), times(0, 1), dense=True)
    with pytest.raises(ValueError, match="from t = 0 to 1, not at 2"):
        solution(2.0)
    with pytest.raises(ValueError, match="one-dimensional"):
        solution(wg.zeros(2, 2, dtype=D))


def test_no_elements_and_no_times_are_fine() -> None:
    assert odeint(lambda t, y: -y, wg.zeros(0, dtype=D), times(0, 1)).shape == (2, 0)
    assert odeint(linear, wg.tensor(START), times(0, 1), dense=True)(times()).shape == (0, 2)


# ---- what is refused


def failing(t: Any, y: Any) -> Any:
    return y * (math.nan if t > 0.5 else 1.0)


def writing(t: Any, y: Any) -> Any:
    return y.mul_(0.9)


def refilling() -> Any:
    """A right-hand side that returns the same memory each time."""
    memory = wg.zeros(2, dtype=D)

    def fill(t: Any, y: Any) -> Any:
        return memory.copy_(-y)

    return fill


@pytest.mark.parametrize(
    ("func", "options", "error", "message"),
    [
        (
            lambda t, y: y**2,
            {"rtol": 1e-4},
            RuntimeError,
            r"step from t = 0\.\d+ has become too small|NaN or inf just after t = 0\.5",
        ),
        (failing, {}, RuntimeError, r"NaN or inf just after t = 0\.(5|49)"),
        (lambda t, y: y * math.nan, {}, RuntimeError, "not finite .* at t = 0"),
        (lambda t, y: 1e3 * y.sin(), {"max_steps": 10}, RuntimeError, "max_steps = 10 steps led only to t = "),
        (lambda t, y: y**2, {"method": "rk4", "num_steps": 400}, RuntimeError, "not finite after the step from t ="),
        (
            linear,
            {"method": "rk4", "num_steps": 50, "max_steps": 10},
            RuntimeError,
            "more than max_steps = 10 steps of 0.02",
        ),
        (linear, {"method": "rk4", "step_size": 5e-324}, RuntimeError, "more than max_steps = 10000 steps"),
        (writing, {}, wg.errors.InplaceError, r"func changed the state y .* in place, by mul_\(\)"),
        (refilling(), {}, wg.errors.InplaceError, r"func changed what it returned the time before .* by copy_\(\)"),
        (None, {}, TypeError, "func must be a function, got NoneType"),
        (linear, {"event": 3}, TypeError, "event must be a function, got int"),
        (linear, {"rtol": "small"}, TypeError, "rtol must be a number, got 'small'"),
        (linear, {"max_steps": 2.5}, TypeError, "max_steps must be an int, got 2.5"),
        (linear, {"method": ["rk4"]}, ValueError, r"method \['rk4'\] is unknown"),
        (lambda t, y: y[:1], {}, wg.errors.ShapeError, r"shape \(2,\), but the function returned \(1,\)"),
        (lambda t, y: y.float(), {}, wg.errors.DTypeError, "float64, but the function returned"),
        (lambda t, y: 1.0, {}, TypeError, "returned float"),
        (linear, {"method": "rk45"}, ValueError, "'rk45' is unknown"),
        (linear, {"adjoint": "none"}, ValueError, "'none' is unknown"),
        (linear, {"atol": 0.0}, ValueError, "atol must be positive"),
        (linear, {"rtol": -1.0}, ValueError, "rtol must not be negative"),
        (linear, {"num_steps": 0}, ValueError, "num_steps must be positive"),
        (linear, {"num_steps": 2, "step_size": 0.1}, ValueError, "exclude each other"),
        (linear, {"dense": True, "adjoint": "continuous"}, ValueError, "needs adjoint='discrete'"),
        (linear, {"dense": True, "event": lambda t, y: y[0]}, ValueError, "exclude each other"),
    ],
)
def test_errors(func: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        odeint(func, times(2.0, 2.0), times(0, 1), **options)


@pytest.mark.parametrize(
    ("t", "message"),
    [
        (times(0, 1, 1), r"t\[1\] = 1 and t\[2\] = 1"),
        (times(0, 2, 1, 3), r"t\[1\] = 2 and t\[2\] = 1"),
        (times(3, 1, 2), r"t\[1\] = 1 and t\[2\] = 2"),
        (times(0, math.nan), "not finite"),
        (wg.zeros(2, 2, dtype=D), "one-dimensional"),
        (wg.zeros(0, dtype=D), "at least one time"),
    ],
)
def test_refused_times(t: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        odeint(linear, wg.tensor(START), t)


def test_equal_steps_are_captured_whole_and_what_is_not_finite_is_still_refused() -> None:
    """With Euler's method by hand: y ↦ y (1 + h y), twice."""

    def end(y: Any) -> Any:
        return odeint(lambda t, y: y**2, y, [0.0, 0.5, 1.0], method="euler")[-1].sum()

    fast = wg.compile(wg.func.grad(end), fullgraph=True)
    for value in (0.1, -0.7):
        middle = value * (1 + 0.5 * value)
        assert fast(times(value)).item() == pytest.approx((1 + 2 * 0.5 * value) * (1 + 2 * 0.5 * middle), rel=1e-14)
    for start, step in ((1e200, 0), (1e150, 0.5)):
        with pytest.raises(RuntimeError, match=f"not finite after the step from t = {step:g} of size 0.5"):
            fast(times(start))
    assert fast(times(0.1)).item() == pytest.approx(1.1 * 1.105, rel=1e-14)

"""The motion of the bodies against SciPy's integrator, its gradients against central differences."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import wengert as wg
from examples.n_body import ARRIVAL, PERIOD, TARGET, figure_of_eight, main, simulate


def end_by_scipy(velocity: np.ndarray) -> np.ndarray:
    """Return where the probe is at the time of arrival."""
    masses = np.array([1.0, 0.02, 0.0])

    def motion(_: float, state: np.ndarray) -> np.ndarray:
        x, v = state.reshape(2, 3, 2)
        pull = np.zeros_like(x)
        for i in range(3):
            for j in {0, 1, 2} - {i}:
                pull[i] += masses[j] * (x[j] - x[i]) / np.linalg.norm(x[j] - x[i]) ** 3
        return np.concatenate([v.ravel(), pull.ravel()])

    start = np.array([[0, 0], [1, 0], [0, -0.7], [0, -0.02], [0, 1], velocity])
    return solve_ivp(motion, (0, ARRIVAL), start.ravel(), method="DOP853", rtol=1e-10).y[:, -1].reshape(6, 2)[2]


def test_the_eight_closes_and_the_probe_arrives() -> None:
    found = main()
    assert found["closed"] < 1e-3
    assert found["drift"] < 5e-4
    assert found["path"][-1, 2].tolist() == pytest.approx(TARGET, abs=1e-9)
    np.testing.assert_allclose(end_by_scipy(found["velocity"].numpy()), TARGET, atol=5e-3)


def test_gradients_of_the_end_are_those_of_central_differences() -> None:
    x, v, masses = figure_of_eight()
    weights = wg.linspace(-1, 1, 12, dtype=wg.float64).reshape(2, 3, 2)

    def end(start: wg.Tensor) -> wg.Tensor:
        xs, vs = simulate(start[0], start[1], masses, PERIOD / 8, steps=20)
        return (weights[0] * xs[-1]).sum() + (weights[1] * vs[-1]).sum()

    start, h = wg.stack([x, v]), 1e-6
    differences = [
        (end(start + h * e) - end(start - h * e)).item() / (2 * h)
        for e in wg.eye(12, dtype=wg.float64).reshape(12, 2, 3, 2)
    ]
    np.testing.assert_allclose(wg.func.grad(end)(start).ravel().numpy(), differences, rtol=1e-6, atol=1e-7)

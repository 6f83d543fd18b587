"""The learned equation against the spiral without noise, and its solution against SciPy's."""

import numpy as np
from scipy.integrate import solve_ivp

from examples.neural_ode import DECAY, SPEED, main


def test_the_learned_equation_follows_the_spiral() -> None:
    found = main()
    t, path = (found[name].numpy().astype(np.float64) for name in ("t", "path"))
    z = 2 * np.exp((-DECAY + 1j * SPEED) * t)
    spiral = np.stack([z.real, z.imag], axis=1)
    assert np.sqrt(np.mean((path - spiral) ** 2)) < 0.1

    first, _, second = (layer.state_dict() for layer in found["velocity"])
    w, b, u, c = (layer[name].numpy() for layer in (first, second) for name in ("weight", "bias"))
    solved = solve_ivp(lambda _, y: u @ np.tanh(w @ y + b) + c, (0, t[-1]), path[0], t_eval=t, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(path, solved.y.T, atol=1e-3)

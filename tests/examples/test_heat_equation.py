"""The network's temperature against the series of Fourier."""

import numpy as np

from examples.heat_equation import DIFFUSIVITY, main


def test_the_network_solves_the_equation() -> None:
    found = main()
    x, t, temperature = (found[name].numpy().astype(np.float64) for name in ("x", "t", "temperature"))
    k = np.arange(1, 60, 2)[:, None, None]  # x (1 − x) = Σ 8 / (πk)³ sin πkx over odd k
    series = (8 / (np.pi * k) ** 3 * np.sin(np.pi * k * x) * np.exp(-DIFFUSIVITY * (np.pi * k) ** 2 * t)).sum(0)
    assert np.linalg.norm(temperature - series) < 1e-2 * np.linalg.norm(series)

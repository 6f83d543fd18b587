"""The gradients of single examples by hand, their clipped sum, the accuracy, and the price in privacy."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from examples.private_training import CLIP, DELTA, clipped_sum, epsilon, gradients_of_each, main


def gradient_by_hand(parameters: list[np.ndarray], x: np.ndarray, y: float) -> list[np.ndarray]:
    """Return what one example sends to each weight of the two layers."""
    w, b, u, c = parameters
    hidden = np.tanh(w @ x + b)
    wrong = 1 / (1 + np.exp(-(u @ hidden + c))) - y
    back = (u[0] * wrong) * (1 - hidden**2)
    return [np.outer(back, x), back, np.outer(wrong, hidden), wrong]


def test_gradients_are_clipped_one_by_one_and_the_model_learns() -> None:
    found = main()
    (_, plain), (moderate, noisy), *_ = found["found"]
    assert plain > 0.94
    assert noisy > 0.90
    assert moderate < 4

    inputs, targets = found["inputs"][:20], found["targets"][:20]
    gradients = gradients_of_each(found["model"], inputs, targets)
    parameters = [p.detach().numpy().astype(np.float64) for p in found["model"].parameters()]
    expected = [gradient_by_hand(parameters, x, y) for x, y in zip(inputs.numpy(), targets.numpy(), strict=True)]
    norms = np.array([math.sqrt(sum((g**2).sum() for g in example)) for example in expected])
    assert (norms > CLIP).any()
    assert (norms < CLIP).any()
    sums = clipped_sum(gradients)
    for i, name in enumerate(gradients):
        each = np.stack([example[i] for example in expected])
        np.testing.assert_allclose(gradients[name].numpy(), each, rtol=1e-3, atol=1e-5, err_msg=name)
        total = np.tensordot(np.minimum(1, CLIP / norms), each, axes=1)
        np.testing.assert_allclose(sums[name].numpy(), total, rtol=1e-3, atol=1e-4, err_msg=name)


def test_the_price_is_that_of_the_gaussian_mechanism() -> None:
    noise, steps = 10.0, 60
    mu, bound = math.sqrt(steps) / noise, epsilon(steps, noise)

    def exact(e: float) -> float:
        """Return the δ that belongs to ε (Balle and Wang, ICML 2018, theorem 8)."""
        return norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)

    assert exact(bound) < DELTA < exact(0.7 * bound)  # above what is exact, but not far
    assert epsilon(4, 20.0) == pytest.approx(epsilon(1, 10.0))

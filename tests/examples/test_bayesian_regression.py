"""Both ways of inference against the posterior in closed form."""

import numpy as np

from examples.bayesian_regression import NOISE, PRIOR, main


def test_both_ways_find_the_posterior() -> None:
    found = main()
    inputs, targets, draws = (found[name].numpy() for name in ("inputs", "targets", "draws"))
    precision = inputs.T @ inputs / NOISE**2 + np.eye(inputs.shape[1]) / PRIOR**2
    covariance = np.linalg.inv(precision)
    mean, deviation = covariance @ inputs.T @ targets / NOISE**2, np.sqrt(np.diag(covariance))

    assert found["accepted"] > 0.7
    flat = draws.reshape(-1, draws.shape[-1])
    assert np.abs((flat.mean(0) - mean) / deviation).max() < 0.06
    correlation = covariance / np.outer(deviation, deviation)
    np.testing.assert_allclose(np.cov(flat.T) / np.outer(deviation, deviation), correlation, atol=0.08)

    assert np.abs((found["mean"].numpy() - mean) / deviation).max() < 0.1
    np.testing.assert_allclose(found["deviation"].numpy(), 1 / np.sqrt(np.diag(precision)), rtol=0.05)

"""The bound against a model of squares one by one, the probabilities against SciPy's, the pictures that come back."""

from pathlib import Path

import numpy as np
from scipy.stats import betabinom

import wengert as wg
from examples.variational_autoencoder import DOTS, HIDDEN, main


def test_the_bound_is_above_what_single_squares_can_reach(tmp_path: Path) -> None:
    picture = tmp_path / "digits.png"
    found = main(epochs=15, picture=str(picture))
    assert found["elbo"] > found["baseline"] + 6
    assert found["error"] < 2.5
    assert picture.stat().st_size > 0

    model, counts = found["model"], found["held_out"][:5]
    hidden = wg.randn(5, HIDDEN)
    with wg.no_grad():
        a, b = (t.numpy() for t in model.decode(hidden))
        said = model.log_likelihood(counts, hidden).numpy()
    np.testing.assert_allclose(said, betabinom.logpmf(counts.numpy(), DOTS, a, b).sum(1), rtol=1e-4)

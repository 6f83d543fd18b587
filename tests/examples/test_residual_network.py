"""The network before and after its normalisation is folded: scores, speed, and what is left of it."""

import numpy as np

from examples.residual_network import main
from wengert import nn


def test_the_folded_network_says_the_same_sooner() -> None:
    found = main(epochs=5, width=8)
    assert found["accuracy"]["folded"] > 0.95
    scores = {name: s.numpy() for name, s in found["scores"].items()}
    np.testing.assert_allclose(scores["folded"], scores["normalised"], rtol=1e-4, atol=1e-4)
    assert found["times"]["folded"] < found["times"]["normalised"]
    left = {
        name: sum(isinstance(m, nn.BatchNorm2d) for m in model.modules()) for name, model in found["models"].items()
    }
    assert left == {"normalised": 13, "folded": 0}

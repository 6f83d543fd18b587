"""Pieces against the whole batch, step for step; the noise scale against the gradients of single examples."""

import numpy as np
import pytest

import wengert as wg
from examples.gradient_accumulation import load_data, main, network
from wengert.func import functional_call, grad, vmap
from wengert.nn import functional as F


def test_pieces_make_the_steps_of_the_whole_batch() -> None:
    found = main(steps=20)
    losses, differences, memory = found["losses"], found["differences"], found["memory"]
    np.testing.assert_allclose(losses["in pieces"], losses["whole batch"], rtol=1e-12)
    assert differences["in pieces"] < 1e-13
    assert differences["mean of pieces"] > 1e-3
    assert memory["in pieces"] < 0.5 * memory["whole batch"]
    assert losses["whole batch"][-1] < 0.4

    images, labels = load_data()
    model = network()
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights: dict[str, wg.Tensor], x: wg.Tensor, y: wg.Tensor) -> wg.Tensor:
        return F.cross_entropy(functional_call(model, weights, (x[None],)), y[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(weights, images, labels)
    each = np.concatenate([g.flatten(1).numpy() for g in gradients.values()], axis=1)
    spread = each.var(0, ddof=1).sum()
    signal = np.square(each.mean(0)).sum() - spread / len(each)
    assert found["scales"][0] == pytest.approx(spread / signal, rel=0.1)

"""A training step of a relu perceptron: mean cross-entropy, Adam. Sizes and batch come from the case."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import wengert as wg
from wengert import nn

MODULES = ["wengert"]
PEER_NAMES = ["wengert"]
LEARNING_RATE = 1e-3


def build(case: Any, data: Any, ctx: Any) -> SimpleNamespace:
    """``data`` holds x, y, and for each layer w (inputs × outputs) and b."""
    linear: list[Any] = [nn.Linear(inputs, outputs) for inputs, outputs in pairwise(case.sizes)]
    with wg.no_grad():
        for i, layer in enumerate(linear):
            layer.weight.copy_(wg.tensor(data[f"w{i}"].T))
            layer.bias.copy_(wg.tensor(data[f"b{i}"]))
    hidden = [module for layer in linear[:-1] for module in (layer, nn.ReLU())]
    model = nn.Sequential(*hidden, linear[-1])
    x, y = wg.tensor(data["x"]), wg.tensor(data["y"])
    optimizer = wg.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    last: list[Any] = [None]

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        last[0] = loss

    def state() -> dict[str, Any]:
        weights = {f"w{i}": layer.weight.detach().numpy().T.copy() for i, layer in enumerate(linear)}
        return weights | {f"b{i}": layer.bias.detach().numpy().copy() for i, layer in enumerate(linear)}

    return SimpleNamespace(step=step, state=state, loss=lambda: last[0].item(), info={})

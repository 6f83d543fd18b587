"""P1: a training step of a small perceptron, eager: layers, loss, backward and optimiser are all overhead."""

from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Case, Job, Workload, framework_of

SIZES, BATCH, LEARNING_RATE = (64, 32, 10), 32, 1e-3

CASES = [Case("64-32-10, batch 32", must=0.8, aim=0.4)]


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """A batch, and first weights as PyTorch's layers keep them: (outputs, inputs)."""
    arrays: dict[str, Any] = {
        "x": rng.standard_normal((BATCH, SIZES[0])).astype(np.float32),
        "y": rng.integers(0, SIZES[-1], BATCH),
    }
    for i, (inputs, outputs) in enumerate(pairwise(SIZES)):
        bound = (6 / (inputs + outputs)) ** 0.5
        arrays[f"w{i}"] = rng.uniform(-bound, bound, (outputs, inputs)).astype(np.float32)
        arrays[f"b{i}"] = (0.01 * rng.standard_normal(outputs)).astype(np.float32)
    return arrays


WORKLOAD = Workload(
    "P1",
    "mlp",
    "training step of a relu perceptron with cross-entropy and Adam, eager",
    CASES,
    data,
    steps=3,
    tolerance=0.02,  # of how far the parameters moved, so of the gradients and the optimiser
)


@WORKLOAD.framework("wengert", "torch", "torch, fused Adam")
def build(case: Case, data: Arrays, name: str) -> Job:
    """The same program runs in all; PyTorch's optimiser is taken both as it comes and fused."""
    framework = framework_of(name)
    nn = framework.nn
    layers = [nn.Linear(inputs, outputs) for inputs, outputs in pairwise(SIZES)]
    parameters = {f"{kind}{i}": value for i, m in enumerate(layers) for kind, value in (("w", m.weight), ("b", m.bias))}
    with framework.no_grad():
        for key, value in parameters.items():
            value.copy_(framework.tensor(data[key]))
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1])
    x, y = framework.tensor(data["x"]), framework.tensor(data["y"])
    fused = {"fused": True} if "fused" in name else {}
    optimizer = framework.optim.Adam(model.parameters(), lr=LEARNING_RATE, **fused)
    cross_entropy = nn.functional.cross_entropy
    last: list[Any] = [None]

    def step() -> None:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        last[0] = loss

    def results() -> Arrays:
        moved = {key: value.detach().numpy() - data[key] for key, value in parameters.items()}
        return {"loss": last[0].detach().numpy(), **moved}

    return Job(step, results)

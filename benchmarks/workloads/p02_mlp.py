"""P2: a training step of a small perceptron, compiled: what a call costs besides its arithmetic."""

import importlib
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.training import (
    adam_jax,
    cross_entropy_jax,
    matrices_transposed,
    train,
    train_jax,
)
from benchmarks.workload import Arrays, Case, Job, Workload, framework_of

LEARNING_RATE = 1e-3
TITLE = "training step of a relu perceptron with cross-entropy and Adam, compiled"

CASES = [Case("64-32-10, batch 32", must=0.4, aim=0.15, parameters={"sizes": (64, 32, 10), "batch": 32})]


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """A batch, and first weights by their names in the model: layers have the even numbers."""
    sizes, batch = case.parameters["sizes"], case.parameters["batch"]
    arrays: dict[str, Any] = {
        "x": rng.standard_normal((batch, sizes[0])).astype(np.float32),
        "y": rng.integers(0, sizes[-1], batch),
    }
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        bound = (6 / (inputs + outputs)) ** 0.5
        arrays[f"{2 * i}.weight"] = rng.uniform(-bound, bound, (outputs, inputs)).astype(np.float32)
        arrays[f"{2 * i}.bias"] = (0.01 * rng.standard_normal(outputs)).astype(np.float32)
    return arrays


WORKLOAD = Workload("P2", "mlp", TITLE, CASES, data, steps=3, tolerance=0.02)


@WORKLOAD.framework("wengert", "torch", "torch compiled")
def build(case: Case, data: Arrays, name: str) -> Job:
    """The same program runs in all of them."""
    framework = framework_of(name)
    nn = framework.nn
    layers = [m for i, o in pairwise(case.parameters["sizes"]) for m in (nn.Linear(i, o), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    loss = nn.functional.cross_entropy
    return train(name, data, model, lambda x, y: loss(model(x), y), "Adam", lr=LEARNING_RATE)


@WORKLOAD.framework("jax")
def build_jax(case: Case, data: Arrays, name: str) -> Job:
    """Compiled as one function."""
    jax = importlib.import_module("jax")
    count = len(case.parameters["sizes"]) - 1

    def loss(weights: Any, x: Any, y: Any) -> Any:
        for i in range(count):
            x = x @ weights[f"{2 * i}.weight"] + weights[f"{2 * i}.bias"]
            x = jax.nn.relu(x) if i < count - 1 else x
        return cross_entropy_jax(x, y)

    layouts = matrices_transposed([f"{2 * i}.weight" for i in range(count)])
    return train_jax(data, loss, adam_jax(LEARNING_RATE), layouts)

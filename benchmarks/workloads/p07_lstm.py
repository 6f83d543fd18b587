"""P7: a training step of an LSTM, compiled: many small products, each after the other."""

import importlib
from typing import Any

import numpy as np

from benchmarks.training import adam_jax, cross_entropy_jax, matrices_transposed, train, train_jax
from benchmarks.workload import Arrays, Case, Job, Workload, framework_of

FEATURES, HIDDEN, STEPS, BATCH, CLASSES, LEARNING_RATE = 64, 128, 64, 32, 10, 1e-3

CASES = [Case("hidden 128, 64 steps, batch 32", must=0.7, aim=0.3)]


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """A batch, steps first, and first weights by their names in the model; gates are in the order i f g o."""
    bound = HIDDEN**-0.5
    shapes = {
        "lstm.weight_ih_l0": (4 * HIDDEN, FEATURES), "lstm.weight_hh_l0": (4 * HIDDEN, HIDDEN),
        "lstm.bias_ih_l0": (4 * HIDDEN,), "lstm.bias_hh_l0": (4 * HIDDEN,),
        "head.weight": (CLASSES, HIDDEN), "head.bias": (CLASSES,),
    }  # fmt: skip
    weights = {k: rng.uniform(-bound, bound, shape).astype(np.float32) for k, shape in shapes.items()}
    x = rng.standard_normal((STEPS, BATCH, FEATURES)).astype(np.float32)
    return {"x": x, "y": rng.integers(0, CLASSES, BATCH), **weights}


WORKLOAD = Workload(
    "P7", "lstm", "training step of an LSTM with cross-entropy and Adam, compiled", CASES, data, steps=3, tolerance=0.02
)


@WORKLOAD.framework("wengert", "torch", "torch, written out")
def build(case: Case, data: Arrays, name: str) -> Job:
    """PyTorch has the module, whose steps are kernels of their own; the others run the same program, step by step."""
    framework = framework_of(name)
    nn = framework.nn

    class WrittenOut(nn.Module):  # type: ignore[misc, name-defined]
        """The layer as one writes it."""

        def __init__(self) -> None:
            super().__init__()
            shapes = {"weight_ih_l0": (4 * HIDDEN, FEATURES), "weight_hh_l0": (4 * HIDDEN, HIDDEN)}
            for key, shape in {**shapes, "bias_ih_l0": (4 * HIDDEN,), "bias_hh_l0": (4 * HIDDEN,)}.items():
                setattr(self, key, nn.Parameter(framework.empty(shape)))

        def forward(self, x: Any) -> Any:
            """(steps, batch, features) → the last hidden state alone, (1, batch, hidden), and None."""
            inputs = nn.functional.linear(x, self.weight_ih_l0, self.bias_ih_l0 + self.bias_hh_l0)
            hidden = kept = framework.zeros(BATCH, HIDDEN)
            for entering in inputs:
                i, f, g, o = (entering + hidden @ self.weight_hh_l0.t()).chunk(4, 1)
                kept = framework.sigmoid(f) * kept + framework.sigmoid(i) * framework.tanh(g)
                hidden = framework.sigmoid(o) * framework.tanh(kept)
            return hidden[None], None

    class Classifier(nn.Module):  # type: ignore[misc, name-defined]
        """The LSTM, and classes from its last hidden state."""

        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(FEATURES, HIDDEN) if name == "torch" else WrittenOut()
            self.head = nn.Linear(HIDDEN, CLASSES)

        def forward(self, x: Any) -> Any:
            """(steps, batch, features) → (batch, classes)."""
            return self.head(self.lstm(x)[0][-1])

    model, loss = Classifier(), nn.functional.cross_entropy
    return train(name, data, model, lambda x, y: loss(model(x), y), "Adam", lr=LEARNING_RATE)


@WORKLOAD.framework("jax")
def build_jax(case: Case, data: Arrays, name: str) -> Job:
    """A scan over what the inputs contribute."""
    jax = importlib.import_module("jax")
    jnp, sigmoid = jax.numpy, jax.nn.sigmoid

    def loss(p: Any, x: Any, y: Any) -> Any:
        inputs = x @ p["lstm.weight_ih_l0"] + (p["lstm.bias_ih_l0"] + p["lstm.bias_hh_l0"])

        def cell(state: Any, entering: Any) -> Any:
            hidden, kept = state
            i, f, g, o = jnp.split(entering + hidden @ p["lstm.weight_hh_l0"], 4, 1)
            kept = sigmoid(f) * kept + sigmoid(i) * jnp.tanh(g)
            return (sigmoid(o) * jnp.tanh(kept), kept), None

        zeros = jnp.zeros((BATCH, HIDDEN), inputs.dtype)
        (hidden, _), _ = jax.lax.scan(cell, (zeros, zeros), inputs)
        return cross_entropy_jax(hidden @ p["head.weight"] + p["head.bias"], y)

    layouts = matrices_transposed(["lstm.weight_ih_l0", "lstm.weight_hh_l0", "head.weight"])
    return train_jax(data, loss, adam_jax(LEARNING_RATE), layouts)

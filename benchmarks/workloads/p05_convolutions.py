"""P5: training steps of convolutional networks, compiled: a small one, and residual blocks with batch normalisation."""

import importlib
from typing import Any

import numpy as np

from benchmarks.models import convolutional, convolutional_weights, residual, residual_weights
from benchmarks.training import cross_entropy_jax, sgd_jax, train, train_jax
from benchmarks.workload import Arrays, Case, Job, Workload, framework_of

CHANNELS, BLOCKS, LEARNING_RATE, MOMENTUM = 64, 3, 0.01, 0.9

CASES = [
    Case("28 x 28, batch 64", must=1.0, aim=0.7, parameters={"kind": "plain"}),
    Case("residual blocks, 32 x 32, batch 16", must=1.0, aim=0.7, parameters={"kind": "residual"}),
]


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """A batch, and first weights by their names in the model."""
    if case.parameters["kind"] == "plain":
        return convolutional_weights(rng)
    return residual_weights(rng, CHANNELS, BLOCKS)


WORKLOAD = Workload(
    "P5", "convolutions", "training step of a convolutional network with cross-entropy and SGD, compiled", CASES, data,
    steps=3, tolerance=0.03,
)  # fmt: skip


@WORKLOAD.framework("wengert", "torch", "torch compiled")
def build(case: Case, data: Arrays, name: str) -> Job:
    """The same program runs in all of them."""
    framework = framework_of(name)
    nn, loss = framework.nn, framework.nn.functional.cross_entropy
    if case.parameters["kind"] == "residual":
        model = residual(nn, CHANNELS, BLOCKS)
    else:
        model = convolutional(nn)
        if name == "torch compiled":
            model[4] = maxima(nn, 2)
    return train(name, data, model, lambda x, y: loss(model(x), y), "SGD", lr=LEARNING_RATE, momentum=MOMENTUM)


def maxima(nn: Any, size: int) -> Any:
    """Return a pooling of windows that divide the image; through its own, inductor of PyTorch 2.13 may give no gradient."""

    class Maxima(nn.Module):  # type: ignore[misc]
        """The maximum of each window."""

        def forward(self, x: Any) -> Any:
            """(batch, channels, height, width) → the same with fewer rows and columns."""
            b, c, h, w = x.shape
            return x.view(b, c, h // size, size, w // size, size).amax((3, 5))

    return Maxima()


@WORKLOAD.framework("jax")
def build_jax(case: Case, data: Arrays, name: str) -> Job:
    """Compiled as one function, with channels last, which its convolutions like best."""
    data = {**data, "x": np.ascontiguousarray(data["x"].transpose(0, 2, 3, 1))}
    layouts, optimiser = layouts_jax({k: v for k, v in data.items() if k != "x"}), sgd_jax(LEARNING_RATE, MOMENTUM)
    if case.parameters["kind"] == "plain":
        forward = plain_jax()
        return train_jax(data, lambda p, x, y: cross_entropy_jax(forward(p, x), y), optimiser, layouts)
    pairs = [k.removesuffix(".0.weight") for k, v in data.items() if v.ndim == 4 and k != "x"]
    statistics = {name: (np.zeros(CHANNELS, np.float32), np.ones(CHANNELS, np.float32)) for name in pairs}
    return train_jax(data, residual_jax(), optimiser, layouts, statistics)


def layouts_jax(weights: Arrays) -> dict[str, Any]:
    """Return the layouts of weights where channels are last, of which ``"6.weight"`` takes a flattened image."""
    layouts: dict[str, Any] = {}
    for name, weight in weights.items():
        if weight.ndim == 4:
            layouts[name] = (lambda k: k.transpose(2, 3, 1, 0), lambda k: k.transpose(3, 2, 0, 1))
        elif name == "6.weight":
            layouts[name] = (
                lambda w: w.reshape(-1, 64, 12, 12).transpose(2, 3, 1, 0).reshape(9216, -1),
                lambda w: w.reshape(12, 12, 64, -1).transpose(3, 2, 0, 1).reshape(-1, 9216),
            )
        elif weight.ndim == 2:
            layouts[name] = (np.transpose, np.transpose)
    return layouts


def _convolution(x: Any, kernel: Any, padding: str) -> Any:
    jax = importlib.import_module("jax")
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def plain_jax() -> Any:
    """Return the small network as a function of weights and images."""
    jax = importlib.import_module("jax")

    def forward(p: Any, x: Any) -> Any:
        for i in "02":
            x = jax.nn.relu(_convolution(x, p[f"{i}.weight"], "VALID") + p[f"{i}.bias"])
        x = x.reshape(x.shape[0], 12, 2, 12, 2, 64).max((2, 4)).reshape(x.shape[0], -1)
        x = jax.nn.relu(x @ p["6.weight"] + p["6.bias"])
        return x @ p["8.weight"] + p["8.bias"]

    return forward


def residual_jax() -> Any:
    """Return the loss of the residual network, which gives new running statistics too."""
    jax = importlib.import_module("jax")

    def loss(given: Any, x: Any, y: Any) -> Any:
        p, running = given
        new = {}

        def pair(name: str, x: Any) -> Any:
            x = _convolution(x, p[f"{name}.0.weight"], "SAME")
            mean, count = x.mean((0, 1, 2)), x.size // CHANNELS
            variance = ((x - mean) ** 2).mean((0, 1, 2))
            old = running[name]
            new[name] = 0.9 * old[0] + 0.1 * mean, 0.9 * old[1] + 0.1 * variance * count / (count - 1)
            return (x - mean) * (jax.lax.rsqrt(variance + 1e-5) * p[f"{name}.1.weight"]) + p[f"{name}.1.bias"]

        x = jax.nn.relu(pair("stem", x))
        for i in range(BLOCKS):
            inner = jax.nn.relu(pair(f"blocks.{i}.first", x))
            x = jax.nn.relu(pair(f"blocks.{i}.second", inner) + x)
        return cross_entropy_jax(x.mean((1, 2)) @ p["head.weight"] + p["head.bias"], y), new

    return loss

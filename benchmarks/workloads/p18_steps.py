"""P18: eager training steps: a convolutional network, and a small GPT, as anybody writes them."""

import numpy as np

from benchmarks.models import Sizes, convolutional, convolutional_weights, gpt, gpt_weights
from benchmarks.training import train
from benchmarks.workload import Arrays, Case, Job, Workload, framework_of

SIZES = Sizes(words=65, context=64, width=128, heads=4, layers=4, batch=8)

CASES = [
    Case("CNN 28 x 28, batch 64", must=1.2, aim=0.9, parameters={"kind": "cnn"}),
    Case("GPT 4 x 128, context 64, batch 8", must=1.2, aim=0.9, parameters={"kind": "gpt"}),
]


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """A batch, and first weights by their names in the model."""
    return convolutional_weights(rng) if case.parameters["kind"] == "cnn" else gpt_weights(SIZES, rng)


WORKLOAD = Workload(
    "P18", "steps", "zero_grad, forward, loss, backward, optimiser step, eager", CASES, data, steps=3, tolerance=0.03
)


@WORKLOAD.framework("wengert", "torch")
def build(case: Case, data: Arrays, name: str) -> Job:
    """The same program runs in both."""
    framework = framework_of(name)
    loss = framework.nn.functional.cross_entropy
    if case.parameters["kind"] == "cnn":
        cnn = convolutional(framework.nn)
        return train(f"{name} eager", data, cnn, lambda x, y: loss(cnn(x), y), "SGD", lr=0.01, momentum=0.9)
    model = gpt(framework, SIZES)
    return train(f"{name} eager", data, model, lambda x, y: loss(model(x), y), "AdamW", lr=1e-3)

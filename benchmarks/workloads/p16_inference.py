"""P16: inference at batch 1, compiled, the weights being known: how long one answer takes."""

import importlib
from typing import Any

import numpy as np

from benchmarks.models import convolutional, convolutional_weights, gpt, gpt_weights
from benchmarks.onnx_graphs import convolutional_graph, gpt_graph, session
from benchmarks.training import load_weights
from benchmarks.workload import Arrays, Case, Job, Workload, framework_of
from benchmarks.workloads import p05_convolutions, p06_gpt

CASES = [
    Case("convolutions, 28 x 28", must=1.0, aim=0.7, parameters={"sizes": None}),
    Case("GPT 4 x 128, context 64", must=1.0, aim=0.7, parameters={"sizes": p06_gpt.SMALL._replace(batch=1)}),
    Case("GPT 6 x 384, context 256", must=1.0, aim=0.7, parameters={"sizes": p06_gpt.MEDIUM._replace(batch=1)}),
]


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """One image or one context of words, and weights by their names in the model."""
    sizes = case.parameters["sizes"]
    arrays = gpt_weights(sizes, rng) if sizes else convolutional_weights(rng, batch=1)
    return {k: v for k, v in arrays.items() if k != "y"}


WORKLOAD = Workload("P16", "inference", "classes of one image, or logits of one context, compiled", CASES, data)


@WORKLOAD.framework("wengert", "torch", "torch compiled")
def build(case: Case, data: Arrays, name: str) -> Job:
    """The same program runs in all of them; both compilers take the weights for constants."""
    framework, sizes = framework_of(name), case.parameters["sizes"]
    model = (gpt(framework, sizes) if sizes else convolutional(framework.nn)).eval()
    load_weights(framework, model, data)
    x, mode, run = framework.tensor(data["x"]), framework.inference_mode, model
    last: list[Any] = [None]
    if name == "torch compiled":
        mode, run = framework.no_grad, framework.compile(model, dynamic=False, options={"freezing": True})
    elif name == "wengert":
        mode, run = framework.no_grad, framework.compile(model, fullgraph=True, frozen=True)

    def step() -> None:
        with mode():
            last[0] = run(x)

    return Job(step, lambda: {"y": last[0].numpy()})


@WORKLOAD.framework("jax")
def build_jax(case: Case, data: Arrays, name: str) -> Job:
    """Compiled as one function of the weights and the input, in the layouts of the training steps."""
    jax, sizes = importlib.import_module("jax"), case.parameters["sizes"]
    given = {k: v for k, v in data.items() if k != "x"}
    if sizes:
        forward, layouts, x = p06_gpt.gpt_jax(sizes), p06_gpt.layouts_jax(sizes), data["x"].astype(np.int32)
    else:
        forward, layouts = p05_convolutions.plain_jax(), p05_convolutions.layouts_jax(given)
        x = np.ascontiguousarray(data["x"].transpose(0, 2, 3, 1))
    weights = {k: jax.numpy.array(layouts[k][0](v) if k in layouts else v) for k, v in given.items()}
    inputs, run = jax.numpy.array(x), jax.jit(forward)
    last: list[Any] = [None]

    def step() -> None:
        last[0] = jax.block_until_ready(run(weights, inputs))

    return Job(step, lambda: {"y": np.asarray(last[0])})


@WORKLOAD.framework("onnxruntime")
def build_onnxruntime(case: Case, data: Arrays, name: str) -> Job:
    """The model as a graph with the weights in it."""
    x, sizes = data["x"], case.parameters["sizes"]
    weights = {k: v for k, v in data.items() if k != "x"}
    run = session(gpt_graph(weights, x, sizes) if sizes else convolutional_graph(weights, x))
    last: list[Any] = [None]

    def step() -> None:
        last[0] = run(x)

    return Job(step, lambda: {"y": last[0]})

"""P4: element-wise operators on a large array: relu(sigmoid(sigmoid(x))), and its gradient."""

import importlib
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Case, Job, Workload, framework_of

SIZE = 1_000_000

CASES = [
    Case("forward", must=0.9, aim=0.6, parameters={"backward": False}),
    Case("forward and backward", must=0.9, aim=0.6, parameters={"backward": True}),
]


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """The argument, and the cotangent."""
    x, dy = rng.standard_normal((2, SIZE)).astype(np.float32)
    return {"x": x, "dy": dy}


def reference(case: Case, data: Arrays) -> Arrays:
    """The same in float64, by hand."""
    x, dy = (np.asarray(data[k], float) for k in ("x", "dy"))
    a = 1 / (1 + np.exp(-x))
    b = 1 / (1 + np.exp(-a))
    return {"y": b, "dx": dy * b * (1 - b) * a * (1 - a)} if case.parameters["backward"] else {"y": b}


WORKLOAD = Workload(
    "P4",
    "pointwise",
    "relu(sigmoid(sigmoid(x))) on 1,000,000 elements, float32",
    CASES,
    data,
    reference=reference,
)


@WORKLOAD.framework("wengert", "wengert compiled", "torch", "torch compiled")
def build(case: Case, data: Arrays, name: str) -> Job:
    """The same program runs in all of them."""
    framework = framework_of(name)
    x, dy = framework.tensor(data["x"]), framework.tensor(data["dy"])
    x.requires_grad_(case.parameters["backward"])
    result: list[Any] = [None]

    def function(x: Any) -> Any:
        return x.sigmoid().sigmoid().relu()

    whole = name == "wengert compiled"  # one program, with its backward pass
    compiled = framework.compile(function) if name == "torch compiled" else function

    def train(x: Any, dy: Any) -> Any:
        x.grad = None
        y = compiled(x)
        if case.parameters["backward"]:
            y.backward(dy)
        return y.detach()

    run = framework.compile(train) if whole else train

    def step() -> None:
        result[0] = run(x, dy)

    def results() -> Arrays:
        found = {"y": result[0].detach().numpy()}
        return {**found, "dx": x.grad.numpy()} if case.parameters["backward"] else found

    return Job(step, results)


@WORKLOAD.framework("jax")
def build_jax(case: Case, data: Arrays, name: str) -> Job:
    """Compiled as one function."""
    jax = importlib.import_module("jax")

    def function(x: Any) -> Any:
        return jax.nn.relu(jax.nn.sigmoid(jax.nn.sigmoid(x)))

    def both(x: Any, dy: Any) -> Any:
        y, vjp = jax.vjp(function, x)
        return y, vjp(dy)[0]

    work = jax.jit(both if case.parameters["backward"] else lambda x, dy: (function(x),))
    x, dy = jax.numpy.asarray(data["x"]), jax.numpy.asarray(data["dy"])
    result: list[Any] = [None]

    def step() -> None:
        result[0] = jax.block_until_ready(work(x, dy))

    return Job(step, lambda: dict(zip(("y", "dx"), map(np.asarray, result[0]), strict=False)))

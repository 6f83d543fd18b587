"""P1: what an operator costs when the arrays are small, so that only the framework's own work counts."""

import importlib
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Case, Job, Workload

REPEATS = 50

CASES = [
    Case("forward", must=0.8, aim=0.5, parameters={"backward": False}),
    Case("forward and backward", must=0.8, aim=0.4, parameters={"backward": True}),
]


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """An 8 × 8 input, and constants that keep the chain away from saturation."""
    x, a, b, c = rng.standard_normal((4, 8, 8)).astype(np.float32)
    return {"x": x, "a": 1 + a / 10, "b": b / 10, "c": c / 10}


def chain(x: Any, a: Any, b: Any, c: Any, tanh: Any) -> Any:
    """Two hundred element-wise operators."""
    for _ in range(REPEATS):
        x = tanh(x * a + b) - c
    return x


def reference(case: Case, data: Arrays) -> Arrays:
    """The chain and its derivative in float64, by hand."""
    x, a, b, c = (np.asarray(data[name], float) for name in "xabc")
    slope = np.ones_like(x)
    for _ in range(REPEATS):
        y = np.tanh(x * a + b)
        slope *= (1 - y * y) * a
        x = y - c
    return {"total": x.sum(), "dx": slope} if case.parameters["backward"] else {"y": x}


WORKLOAD = Workload(
    "P1",
    "operators",
    "200 element-wise operators on 8 × 8, float32, eager",
    CASES,
    data,
    reference=reference,
)


@WORKLOAD.framework("wengert", "torch")
def build(case: Case, data: Arrays, name: str) -> Job:
    """The same program runs in both: ``50 times x = tanh(x * a + b) - c``, where x requires a gradient."""
    framework = importlib.import_module(name)
    x, a, b, c = (framework.tensor(data[key]) for key in "xabc")
    x.requires_grad_(True)
    tanh = framework.tanh
    result: list[Any] = [None]

    def forward() -> None:
        result[0] = chain(x, a, b, c, tanh)

    def forward_and_backward() -> None:
        x.grad = None
        total = chain(x, a, b, c, tanh).sum()
        total.backward()
        result[0] = total

    if case.parameters["backward"]:
        return Job(forward_and_backward, lambda: {"total": result[0].detach().numpy(), "dx": x.grad.numpy()})
    return Job(forward, lambda: {"y": result[0].detach().numpy()})

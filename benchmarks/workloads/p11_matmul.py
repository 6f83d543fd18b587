"""P11: matrix products, square and tall, with bias and relu too."""

import importlib
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Case, Job, Workload

SQUARE = (64, 128, 256, 512, 1024, 2048)
TALL = ((100_000, 64, 64), (64, 784, 256), (4096, 256, 32), (1, 1024, 1024))

CASES = [
    *(Case(f"{n}", must=1.0, aim=0.95, parameters={"sizes": (n, n, n), "layer": False}) for n in SQUARE),
    *(
        Case(f"{m} x {k} x {n}", must=1.0, aim=0.95, parameters={"sizes": (m, k, n), "layer": False})
        for m, k, n in TALL
    ),
    *(
        Case(f"{n} + bias, relu", must=1.0, aim=0.95, parameters={"sizes": (n, n, n), "layer": True})
        for n in (256, 1024)
    ),
]


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """Two matrices and a row."""
    m, k, n = case.parameters["sizes"]
    return {
        "a": rng.standard_normal((m, k)).astype(np.float32),
        "b": rng.standard_normal((k, n)).astype(np.float32),
        "c": rng.standard_normal(n).astype(np.float32),
    }


def reference(case: Case, data: Arrays) -> Arrays:
    """The same in float64."""
    y = data["a"].astype(float) @ data["b"].astype(float)
    return {"y": np.maximum(y + data["c"], 0) if case.parameters["layer"] else y}


WORKLOAD = Workload("P11", "matmul", "float32, eager", CASES, data, reference=reference, tolerance=1e-4)


@WORKLOAD.framework("wengert", "torch")
def build(case: Case, data: Arrays, name: str) -> Job:
    """The same program runs in both; a layer's weight is stored transposed, as a layer has it."""
    framework = importlib.import_module(name)
    a, b, c = (framework.tensor(data[k]) for k in "abc")
    weight = framework.tensor(np.ascontiguousarray(data["b"].T))
    functional, result = framework.nn.functional, [None]

    def product() -> None:
        result[0] = a @ b

    def layer() -> None:
        result[0] = functional.relu(functional.linear(a, weight, c))

    def results() -> Arrays:
        found: Any = result[0]
        return {"y": found.numpy()}

    return Job(layer if case.parameters["layer"] else product, results)


@WORKLOAD.framework("numpy")
def build_numpy(case: Case, data: Arrays, name: str) -> Job:
    """NumPy, whose products are OpenBLAS's."""
    result: list[Any] = [None]

    def product() -> None:
        result[0] = data["a"] @ data["b"]

    def layer() -> None:
        y = data["a"] @ data["b"]
        y += data["c"]
        result[0] = np.maximum(y, 0, out=y)

    return Job(layer if case.parameters["layer"] else product, lambda: {"y": result[0]})


@WORKLOAD.framework("jax")
def build_jax(case: Case, data: Arrays, name: str) -> Job:
    """Compiled as one function."""
    jax = importlib.import_module("jax")
    layer = case.parameters["layer"]
    work = jax.jit(lambda a, b, c: jax.nn.relu(a @ b + c) if layer else a @ b)
    arrays = [jax.numpy.asarray(data[k]) for k in "abc"]
    result: list[Any] = [None]

    def step() -> None:
        result[0] = jax.block_until_ready(work(*arrays))

    return Job(step, lambda: {"y": np.asarray(result[0])})

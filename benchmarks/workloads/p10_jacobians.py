"""P10: a Hessian, Jacobians in both modes, and the gradient of each sample of a batch."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Case, Job, Workload, framework_of

CASES = [
    Case("hessian, Rosenbrock, 64", must=0.9, aim=0.5, parameters={"kind": "hessian"}),
    Case("jacfwd, 256-256-256", must=0.9, aim=0.5, parameters={"kind": "jacfwd"}),
    Case("jacrev, 256-256-256", must=0.9, aim=0.5, parameters={"kind": "jacrev"}),
    Case("per sample, 64-32-10, batch 128", must=0.9, aim=0.5, parameters={"kind": "persample"}),
]
NAMES = ("w0", "b0", "w1", "b1")


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """A point, or a batch with its classes, and the weights of two layers."""
    kind = case.parameters["kind"]
    if kind == "hessian":
        return {"x": rng.standard_normal(64).astype(np.float32)}
    sizes = (64, 32, 10) if kind == "persample" else (256, 256, 256)
    shape = (128, sizes[0]) if kind == "persample" else (sizes[0],)
    arrays: dict[str, Any] = {"x": rng.standard_normal(shape).astype(np.float32), "y": rng.integers(0, 10, 128)}
    for i in (0, 1):
        bound = (6 / (sizes[i] + sizes[i + 1])) ** 0.5
        arrays[f"w{i}"] = rng.uniform(-bound, bound, (sizes[i], sizes[i + 1])).astype(np.float32)
        arrays[f"b{i}"] = (0.1 * rng.standard_normal(sizes[i + 1])).astype(np.float32)
    return arrays


WORKLOAD = Workload("P10", "jacobians", "Hessian, Jacobians, per-sample gradients", CASES, data, tolerance=1e-4)


def rosenbrock(x: Any) -> Any:
    """Rosenbrock's function of many variables."""
    steps, rest = x[1:] - x[:-1] ** 2, 1 - x[:-1]
    return (100.0 * steps**2 + rest**2).sum()


def work(kind: str, func: Any, tanh: Any, loss: Any) -> Callable[[dict[str, Any]], Any]:
    """Return the step, of the arrays, for a framework with PyTorch's and JAX's names for transforms."""
    if kind == "persample":
        gradients = func.vmap(func.grad(loss), (None, 0, 0))
        return lambda data: gradients(tuple(data[k] for k in NAMES), data["x"], data["y"])
    if kind == "hessian":
        hessian = func.hessian(rosenbrock)
        return lambda data: (hessian(data["x"]),)

    def network(x: Any, w0: Any, b0: Any, w1: Any, b1: Any) -> Any:
        return tanh(tanh(x @ w0 + b0) @ w1 + b1)

    jacobian = getattr(func, kind)(network)
    return lambda data: (jacobian(data["x"], *(data[k] for k in NAMES)),)


@WORKLOAD.framework("wengert", "wengert compiled", "torch", "torch compiled")
def build(case: Case, data: Arrays, name: str) -> Job:
    """The same program runs in all of them."""
    framework = framework_of(name)
    func = importlib.import_module(f"{framework.__name__}.func")
    tensors = {k: framework.tensor(v) for k, v in data.items()}

    def loss(weights: Any, x: Any, y: Any) -> Any:
        w0, b0, w1, b1 = weights
        return framework.nn.functional.cross_entropy(framework.relu(x @ w0 + b0) @ w1 + b1, y)

    step = work(case.parameters["kind"], func, framework.tanh, loss)
    step = framework.compile(step, fullgraph=True) if "compiled" in name else step
    last: list[Any] = [None]

    def run() -> None:
        last[0] = step(tensors)

    return Job(run, lambda: {str(i): t.detach().numpy() for i, t in enumerate(last[0])})


@WORKLOAD.framework("jax")
def build_jax(case: Case, data: Arrays, name: str) -> Job:
    """The same program, compiled as a whole."""
    jax = importlib.import_module("jax")
    jnp = jax.numpy
    arrays = {k: jnp.asarray(v) for k, v in data.items()}

    def loss(weights: Any, x: Any, y: Any) -> Any:
        w0, b0, w1, b1 = weights
        return -jax.nn.log_softmax(jax.nn.relu(x @ w0 + b0) @ w1 + b1)[y]

    kind = case.parameters["kind"]
    compiled = jax.jit(work(kind, jax, jnp.tanh, loss))
    last: list[Any] = [None]

    def run() -> None:
        last[0] = jax.block_until_ready(compiled(arrays))

    return Job(run, lambda: {str(i): np.asarray(t) for i, t in enumerate(last[0])})

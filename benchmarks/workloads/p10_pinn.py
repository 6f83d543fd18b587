"""P10: a step of a physics-informed network: Burgers' equation, whose second derivative is itself differentiated."""

import importlib
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.training import adam_jax, moved, train_jax
from benchmarks.workload import Arrays, Case, Job, Workload, framework_of

SIZES, POINTS, VISCOSITY, LEARNING_RATE = (2, 50, 50, 50, 1), 2000, 0.01, 1e-3

CASES = [Case("2-50-50-50-1, 2000 points", must=0.9, aim=0.5)]


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """Points in space and time, and first weights."""
    arrays: dict[str, Any] = {
        "x": rng.uniform(-1, 1, (POINTS, 1)).astype(np.float32),
        "t": rng.uniform(0, 1, (POINTS, 1)).astype(np.float32),
    }
    for i, (inputs, outputs) in enumerate(pairwise(SIZES)):
        bound = (6 / (inputs + outputs)) ** 0.5
        arrays[f"w{i}"] = rng.uniform(-bound, bound, (inputs, outputs)).astype(np.float32)
        arrays[f"b{i}"] = (0.1 * rng.standard_normal(outputs)).astype(np.float32)
    return arrays


WORKLOAD = Workload(
    "P10", "pinn", "u_t + u u_x - 0.01 u_xx, reverse over reverse over reverse, and Adam", CASES, data,
    steps=3, tolerance=0.03,
)  # fmt: skip


@WORKLOAD.framework("wengert", "wengert compiled", "torch")
def build(case: Case, data: Arrays, name: str) -> Job:
    """The same program runs in all of them; PyTorch compiles none that calls ``autograd.grad``."""
    framework = framework_of(name)
    grad = framework.autograd.grad
    parameters = {k: framework.tensor(v, requires_grad=True) for k, v in data.items() if k not in "xt"}
    x, t = (framework.tensor(data[k], requires_grad=True) for k in "xt")
    optimizer = framework.optim.Adam(parameters.values(), lr=LEARNING_RATE)
    layers = len(SIZES) - 1
    last: list[Any] = [None]

    def network(z: Any) -> Any:
        for i in range(layers):
            z = z @ parameters[f"w{i}"] + parameters[f"b{i}"]
            z = framework.tanh(z) if i < layers - 1 else z
        return z

    def training() -> Any:
        optimizer.zero_grad()
        u = network(framework.cat((x, t), 1))
        u_x, u_t = grad(u.sum(), (x, t), create_graph=True)
        (u_xx,) = grad(u_x.sum(), x, create_graph=True)
        loss = (u_t + u * u_x - VISCOSITY * u_xx).square().mean()
        loss.backward(inputs=list(parameters.values()))
        optimizer.step()
        return loss

    run = framework.compile(training, fullgraph=True) if name == "wengert compiled" else training

    def step() -> None:
        last[0] = run()

    def results() -> Arrays:
        weights = {k: v.detach().numpy() for k, v in parameters.items()}
        return {"loss": last[0].detach().numpy(), "moved": moved(weights, data)}

    return Job(step, results)


@WORKLOAD.framework("jax")
def build_jax(case: Case, data: Arrays, name: str) -> Job:
    """Compiled as one function: reverse over reverse, as the others."""
    jax = importlib.import_module("jax")
    jnp = jax.numpy
    layers = len(SIZES) - 1

    def network(p: Any, x: Any, t: Any) -> Any:
        z = jnp.concatenate((x, t), 1)
        for i in range(layers):
            z = z @ p[f"w{i}"] + p[f"b{i}"]
            z = jnp.tanh(z) if i < layers - 1 else z
        return z

    def loss(p: Any, x: Any, t: Any) -> Any:
        def total(x: Any, t: Any) -> Any:
            u = network(p, x, t)
            return u.sum(), u

        def first(x: Any) -> Any:
            (u_x, u_t), u = jax.grad(total, (0, 1), has_aux=True)(x, t)
            return u_x.sum(), (u, u_x, u_t)

        u_xx, (u, u_x, u_t) = jax.grad(first, has_aux=True)(x)
        return ((u_t + u * u_x - VISCOSITY * u_xx) ** 2).mean()

    return train_jax(data, loss, adam_jax(LEARNING_RATE), batch=("x", "t"))

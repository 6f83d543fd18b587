"""P8: rows of a matrix, read and written once: softmax cross-entropy, and layer normalisation, forward and backward."""

import importlib
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Case, Job, Workload, framework_of

CASES = [
    Case("cross entropy 4096 x 1000", must=0.9, aim=0.6, parameters={"kind": "loss", "rows": 4096, "columns": 1000}),
    Case("layer norm 8192 x 768", must=0.9, aim=0.6, parameters={"kind": "norm", "rows": 8192, "columns": 768}),
]


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """The matrix; classes, or scale, shift and cotangent."""
    rows, columns = case.parameters["rows"], case.parameters["columns"]
    arrays: dict[str, Any] = {"x": rng.standard_normal((rows, columns)).astype(np.float32)}
    if case.parameters["kind"] == "loss":
        return {**arrays, "y": rng.integers(0, columns, rows)}
    return {
        **arrays, "dy": rng.standard_normal((rows, columns)).astype(np.float32),
        "w": (1 + rng.standard_normal(columns) / 10).astype(np.float32),
        "b": (rng.standard_normal(columns) / 10).astype(np.float32),
    }  # fmt: skip


WORKLOAD = Workload("P8", "rows", "forward and backward, float32, eager", CASES, data, tolerance=1e-4)


@WORKLOAD.framework("wengert", "torch", "torch compiled")
def build(case: Case, data: Arrays, name: str) -> Job:
    """The same program runs in all of them."""
    framework = framework_of(name)
    functional = framework.nn.functional
    leaves = {k: framework.tensor(data[k], requires_grad=True) for k in ("x", "w", "b") if k in data}
    fixed = framework.tensor(data["y"] if "y" in data else data["dy"])
    result: list[Any] = [None]

    def loss(x: Any) -> Any:
        return functional.cross_entropy(x, fixed)

    def norm(x: Any, w: Any, b: Any) -> Any:
        return functional.layer_norm(x, (case.parameters["columns"],), w, b)

    function: Any = loss if case.parameters["kind"] == "loss" else norm
    function = framework.compile(function) if name == "torch compiled" else function

    def step() -> None:
        for leaf in leaves.values():
            leaf.grad = None
        y = function(*leaves.values())
        y.backward(*(() if y.ndim == 0 else (fixed,)))
        result[0] = y

    def results() -> Arrays:
        return {"value": result[0].detach().numpy(), **{f"d{k}": leaf.grad.numpy() for k, leaf in leaves.items()}}

    return Job(step, results)


@WORKLOAD.framework("jax")
def build_jax(case: Case, data: Arrays, name: str) -> Job:
    """Compiled as one function."""
    jax = importlib.import_module("jax")
    jnp = jax.numpy

    def loss(x: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(x), jnp.asarray(data["y"])[:, None], 1).mean()

    def norm(x: Any, w: Any, b: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * w + b

    def work(arrays: Any) -> Any:
        names = [k for k in ("x", "w", "b") if k in arrays]
        value, vjp = jax.vjp(loss if "y" in data else norm, *(arrays[k] for k in names))
        slopes = vjp(jnp.ones_like(value) if "y" in data else arrays["dy"])
        return {"value": value, **{f"d{k}": s for k, s in zip(names, slopes, strict=True)}}

    arrays = {k: jnp.asarray(v) for k, v in data.items() if k != "y"}
    compiled = jax.jit(work)
    result: list[Any] = [None]

    def step() -> None:
        result[0] = jax.block_until_ready(compiled(arrays))

    return Job(step, lambda: {k: np.asarray(v) for k, v in result[0].items()})

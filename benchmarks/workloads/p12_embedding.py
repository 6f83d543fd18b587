"""P12: a training step of a large embedding table, of which each batch reads few rows."""

import importlib
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Case, Job, Workload, framework_of

ROWS, COLUMNS, LOOKUPS = 100_000, 64, 4096
EPS = 1e-10

CASES = [
    Case("SGD", must=0.8, aim=0.3, parameters={"lr": 10.0}),
    Case("Adagrad", must=0.8, aim=0.3, parameters={"lr": 0.05, "eps": EPS}),
]


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """A table, rows that are looked up, the first ones most often, and what they should be."""
    return {
        "table": rng.standard_normal((ROWS, COLUMNS)).astype(np.float32),
        "index": (ROWS * rng.random(LOOKUPS) ** 3).astype(np.int64),
        "wanted": rng.standard_normal((LOOKUPS, COLUMNS)).astype(np.float32),
    }


WORKLOAD = Workload(
    "P12", "embedding", "training step of an embedding of 100,000 rows of 64, 4,096 of which are looked up", CASES, data,
    steps=3, tolerance=1e-3,
)  # fmt: skip


def results(table: Any, loss: Any, data: Arrays) -> Arrays:
    """Return the loss, and how far the table came."""
    return {"loss": np.asarray(loss), "moved": np.asarray(table) - data["table"]}


@WORKLOAD.framework("wengert", "wengert, eager", "torch", "torch, dense", "torch, dense, compiled")
def build(case: Case, data: Arrays, name: str) -> Job:
    """Gradients are sparse but for those called dense; the optimiser of those is the fused one."""
    framework = framework_of(name)
    dense = "dense" in name
    layer = framework.nn.Embedding(ROWS, COLUMNS, sparse=not dense)
    with framework.no_grad():
        layer.weight.copy_(framework.tensor(data["table"]))
    index, wanted = framework.tensor(data["index"]), framework.tensor(data["wanted"])
    options = {**case.parameters, **({"fused": True} if dense else {})}
    optimizer = getattr(framework.optim, case.name)(layer.parameters(), **options)
    last: list[Any] = [None]

    def loss_of() -> Any:
        return 0.5 * (layer(index) - wanted).square().sum() / LOOKUPS

    run = framework.compile(loss_of, dynamic=False) if name.startswith("torch") and "compiled" in name else loss_of

    def train() -> Any:
        optimizer.zero_grad()
        loss = run()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = framework.compile(train) if name == "wengert" else train

    def step() -> None:
        last[0] = compiled()

    return Job(step, lambda: results(layer.weight.detach().numpy(), last[0].numpy(), data))


@WORKLOAD.framework("jax", "jax, rows")
def build_jax(case: Case, data: Arrays, name: str) -> Job:
    """The gradient of the table, or that of the rows that were read, which are then scattered back."""
    jax = importlib.import_module("jax")
    jnp = jax.numpy
    lr, adaptive = case.parameters["lr"], case.name == "Adagrad"
    index, wanted = jnp.array(data["index"].astype(np.int32)), jnp.array(data["wanted"])

    def distance(rows: Any, wanted: Any) -> Any:
        return 0.5 * jnp.sum((rows - wanted) ** 2) / LOOKUPS

    def dense(table: Any, squares: Any, index: Any, wanted: Any) -> Any:
        loss, g = jax.value_and_grad(lambda t: distance(t[index], wanted))(table)
        if adaptive:
            squares = squares + g * g
            g = g / (jnp.sqrt(squares) + EPS)
        return table - lr * g, squares, loss

    def rows(table: Any, squares: Any, index: Any, wanted: Any) -> Any:
        loss, g = jax.value_and_grad(distance)(table[index], wanted)
        if not adaptive:
            return table.at[index].add(-lr * g), squares, loss
        places, groups = jnp.unique(index, size=LOOKUPS, fill_value=ROWS, return_inverse=True)
        g = jax.ops.segment_sum(g, groups.reshape(-1), LOOKUPS)
        sums = squares.at[places].get(mode="fill", fill_value=0) + g * g
        squares = squares.at[places].set(sums, mode="drop")
        return table.at[places].add(-lr * g / (jnp.sqrt(sums) + EPS), mode="drop"), squares, loss

    run = jax.jit(rows if "rows" in name else dense, donate_argnums=(0, 1))
    held = [jnp.array(data["table"]), jnp.zeros((ROWS, COLUMNS) if adaptive else ()), None]

    def step() -> None:
        held[:] = jax.block_until_ready(run(held[0], held[1], index, wanted))

    return Job(step, lambda: results(held[0], held[2], data))

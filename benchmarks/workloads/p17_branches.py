"""P17: two independent branches, side by side against one after the other; all of it is wengert, under its three policies.

Kernels as small as these are not worth sharing: in order, one of two threads has nothing to do. So half the time is as much
as can be had, and a ratio of 0.5 / u says that both threads work for the part u of it. Of two towers, whose results meet
in the loss, the forward nodes of one run beside the other's, and backward nodes beside forward ones where they may.
``python -m benchmarks.schedules`` shows what was expected and what was measured, thread by thread.
"""

from typing import Any

import numpy as np

from benchmarks.models import scaled
from benchmarks.training import moved
from benchmarks.workload import Arrays, Case, Job, Workload, framework_of

WIDTH, BATCH = 128, 48

CASES = [
    Case("forward, 2 branches of 12 layers", must=0.59, aim=0.53, parameters={"layers": 12, "train": False}),
    Case("training step of 2 towers of 6 layers", must=0.65, aim=0.55, parameters={"layers": 6, "train": True}),
]

POLICIES = {f"wengert {policy}": policy for policy in ("topological", "ready", "priority")}


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """A batch for each branch, and first weights."""
    batch = {side: rng.standard_normal((BATCH, WIDTH), np.float32) for side in "xy"}
    return batch | {f"{side}{k}": scaled(rng, WIDTH, WIDTH) for side in "ab" for k in range(case.parameters["layers"])}


WORKLOAD = Workload(
    "P17",
    "branches",
    "policies of compiled plans: two branches of small layers",
    CASES,
    data,
    steps=3,
    peers=["wengert topological"],
)


def program(
    case: Case, data: Arrays, policy: str, weights: dict[str, Any] | None = None
) -> tuple[Any, tuple[Any, ...]]:
    """Return the compiled branches, or their training step, and the arguments.

    Args:
        weights: filled with the tensors of the weights.
    """
    wengert = framework_of("wengert")
    layers, train = case.parameters["layers"], case.parameters["train"]
    held = {} if weights is None else weights
    held |= {k: wengert.tensor(v).requires_grad_(train) for k, v in data.items() if k not in ("x", "y")}
    optimizer: Any = wengert.optim.SGD(list(held.values()), lr=1e-2) if train else None

    def branch(side: str, values: Any) -> Any:
        for k in range(layers):
            values = (values @ held[f"{side}{k}"]).tanh()
        return values

    def forward(x: Any, y: Any) -> Any:
        return branch("a", x), branch("b", y)

    def training(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        one, other = forward(x, y)
        loss = ((one - other) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    run = wengert.compile(training if train else forward, fullgraph=True, policy=policy)
    return run, (wengert.tensor(data["x"]), wengert.tensor(data["y"]))


@WORKLOAD.framework(*POLICIES)
def build(case: Case, data: Arrays, name: str) -> Job:
    """Compile the branches under a policy."""
    weights: dict[str, Any] = {}
    run, arguments = program(case, data, POLICIES[name], weights)
    last: list[Any] = [None]

    def step() -> None:
        last[0] = run(*arguments)

    def results() -> Arrays:
        if not case.parameters["train"]:
            return {side: found.numpy() for side, found in zip("ab", last[0], strict=True)}
        arrays = {k: p.detach().numpy() for k, p in weights.items()}
        return {"loss": last[0].detach().numpy(), "moved": moved(arrays, {k: data[k] for k in arrays})}

    return Job(step, results)

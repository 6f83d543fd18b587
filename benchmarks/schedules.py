"""``python -m benchmarks.schedules``: what plans are expected to do under each policy, and what they did.

For five models, and for the towers of P17: the makespan that is simulated from what kernels are reckoned to cost, the one
simulated from what each node took alone, and the one measured; how busy the threads were; and how much faster than in order.
``--pictures folder`` leaves a Gantt chart (SVG) and a Chrome trace of each measured plan there.

Only a quiet machine says anything. ``python -m wengert machine`` measures it once, for the first of these numbers.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import wengert as wg
from benchmarks.models import Sizes, convolutional, gpt
from benchmarks.workloads import p17_branches
from wengert import nn
from wengert.graph.ir import Node
from wengert.runtime import overlap
from wengert.runtime.concurrent import Concurrent
from wengert.runtime.gantt import busy, simulated
from wengert.runtime.machine import known
from wengert.runtime.segments import Native
from wengert.runtime.threads import get_num_threads, set_num_threads
from wengert.runtime.timeline import Timeline

__all__ = ["Found", "compared", "main", "models"]

POLICIES = ("topological", "ready", "priority")

Step = Callable[[], Any]


class Found(NamedTuple):
    """What was found of a plan, in seconds.

    Attributes:
        reckoned, simulated, measured: makespans: from reckoned costs, from measured costs, and the best of some runs.
        utilisation: the part of the time in which threads worked, the mean of all; nan where it is not known.
    """

    reckoned: float
    simulated: float
    measured: float
    utilisation: float


def models() -> Iterator[tuple[str, Callable[[str], Any]]]:
    """Yield names of models, and what compiles their training step under a policy: a compiled function and its arguments."""
    yield "perceptron 784-256-256-10, batch 128", lambda policy: classifier(policy, perceptron(), (128, 784))
    yield "CNN 28 x 28, batch 16", lambda policy: classifier(policy, convolutional(nn), (16, 1, 28, 28))
    yield "GPT block, width 128", transformer
    yield "recurrent, 12 steps of width 128", lambda policy: classifier(policy, Recurrent(), (12, 32, 64), batch=32)
    yield "two towers of width 128", towers


def perceptron() -> Any:
    """Return three layers."""
    return nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )  # fmt: skip


class Recurrent(nn.Module):
    """A cell with an input, forget and output gate, written out, over (time, batch, 64); then a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.across, self.last = nn.Linear(64, 512), nn.Linear(128, 512), nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        """(time, batch, 64) → (batch, 10)."""
        state = cell = wg.zeros(x.shape[1], 128)
        for one in x.unbind(0):
            i, f, g, o = (self.inward(one) + self.across(state)).chunk(4, 1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            state = o.sigmoid() * cell.tanh()
        return self.last(state)


def classifier(policy: str, model: Any, shape: tuple[int, ...], batch: int | None = None) -> Any:
    """Return the training step of a model with ten classes."""
    optimizer = wg.optim.SGD(model.parameters(), lr=0.0)
    return training(policy, model, optimizer), (wg.randn(*shape), wg.randint(0, 10, (batch or shape[0],)))


def transformer(policy: str) -> Any:
    """Return the training step of a GPT of one block."""
    model = gpt(wg, Sizes(words=64, context=64, width=128, heads=4, layers=1, batch=2))
    words, targets = wg.randint(0, 64, (2, 64)), wg.randint(0, 64, (2, 64))
    optimizer = wg.optim.AdamW(model.parameters(), lr=0.0)

    def loss(words: Any, targets: Any) -> Any:
        return nn.functional.cross_entropy(model(words).reshape(-1, 64), targets.flatten())

    return wg.compile(step_of(loss, optimizer), fullgraph=True, policy=policy), (words, targets)


def training(policy: str, model: Any, optimizer: Any) -> Any:
    """Return the compiled training step of a classifier."""
    return wg.compile(
        step_of(lambda x, y: nn.functional.cross_entropy(model(x), y), optimizer), fullgraph=True, policy=policy
    )


def step_of(loss_of: Callable[[Any, Any], Any], optimizer: Any) -> Callable[[Any, Any], Any]:
    """Return a training step."""

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def towers(policy: str) -> Any:
    """Return the training step of P17."""
    case = p17_branches.CASES[1]
    data = p17_branches.data(case, np.random.default_rng(0))
    return p17_branches.program(case, data, policy)


# ---- one plan


def plan_of(make: Callable[[str], Any], policy: str) -> Any:
    """Return the plan of a model's training step under a policy; its arguments are in its memory."""
    wg.manual_seed(0)
    function, arguments = make(policy)
    for _ in range(3):
        function(*arguments)
    (program,) = [p for found in function.programs.values() for p in found]
    return program.plan


def run(plan: Any) -> float:
    """Run the steps of a plan on what its memory holds; return the seconds that it took."""
    start = time.perf_counter()
    for step in plan.steps:
        step()
    return time.perf_counter() - start


def alone(plan: Any, times: int) -> dict[Node, float]:
    """Return what each node takes on one thread, in the quietest of some runs of all."""
    threads, runs = get_num_threads(), list[dict[Node, float]]()
    set_num_threads(1)
    try:
        for _ in range(times):
            taken: dict[Node, float] = {}
            for step in plan.steps:
                if isinstance(step, Native):
                    for node, (start, end) in zip(step.nodes, step.table.timed().tolist(), strict=True):
                        taken[node] = taken.get(node, 0.0) + (end - start) * 1e-9
                else:
                    step()
            runs.append(taken)
    finally:
        set_num_threads(threads)
    return min(runs, key=lambda taken: sum(taken.values()))


def found_of(plan: Any, measured: float, times: int) -> Found:
    """Return what is found of a plan whose best run took so long."""
    seconds, machine = alone(plan, times), known()
    native = [step for step in plan.steps if isinstance(step, Native)]
    expected = sum(simulated(step, machine, seconds).makespan for step in native)
    shares = [max(np.mean(busy(step, machine.threads)[1]) for _ in range(times))
              for step in native if isinstance(step, Concurrent)]  # fmt: skip
    weights = [step.schedule.makespan for step in native if isinstance(step, Concurrent)]
    used = float(np.average(shares, weights=weights)) if shares else float("nan")
    return Found(plan.timeline().makespan, expected, measured, used)


def compared(make: Callable[[str], Any], times: int) -> dict[str, tuple[Any, Found]]:
    """Return the plans of a model under each policy, and what is found of them; they run in turns."""
    plans = {policy: plan_of(make, policy) for policy in POLICIES}
    best = dict.fromkeys(POLICIES, float("inf"))
    for _ in range(times):
        for policy, plan in plans.items():
            best[policy] = min(best[policy], run(plan))
    return {policy: (plan, found_of(plan, best[policy], times)) for policy, plan in plans.items()}


def pictures(folder: Path, name: str, policy: str, plan: Any) -> None:
    """Write a Gantt chart and a Chrome trace of what is expected, and, where nodes overlap, of what was measured."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = {"expected": plan.timeline()}
    for k, step in enumerate(plan.steps):
        if isinstance(step, Concurrent):
            names = [unit.node.op.name for unit in step.units for _ in range(unit.first, unit.end)]
            title = f"{name}, {policy}, measured"
            lines[f"measured-{k}"] = Timeline.measured(title, names, step.graph.timed(), get_num_threads())
    for kind, line in lines.items():
        stem = folder / f"{name.partition(',')[0].replace(' ', '-')}-{policy}-{kind}"
        stem.with_suffix(".svg").write_text(line.svg(), encoding="utf-8")
        stem.with_suffix(".json").write_text(line.chrome_trace(), encoding="utf-8")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedules", description=__doc__)
    parser.add_argument("--times", type=int, default=200, help="runs of each plan (default: %(default)s)")
    parser.add_argument("--pictures", type=Path, default=None, help="a folder for Gantt charts and Chrome traces")
    parser.add_argument("--force", action="store_true", help="let nodes overlap even where nothing is gained")
    options = parser.parse_args()
    if options.force:
        overlap.GAIN, overlap.LEAST = 0.0, -1.0  # type: ignore[misc]
    print(f"{get_num_threads()} threads; times in microseconds")
    print(f"{'':38}policy       how           reckoned  simulated  measured   error   busy   gain")
    for name, make in models():
        found = compared(make, options.times)
        in_order = found["topological"][1].measured
        for policy, (plan, (reckoned, expected, measured, used)) in found.items():
            share = "" if np.isnan(used) else f"{used:.0%}"
            how = "side by side" if any(isinstance(step, Concurrent) for step in plan.steps) else "in order"
            print(
                f"{name if policy == POLICIES[0] else '':38}{policy:12} {how:12} {reckoned * 1e6:9.0f} {expected * 1e6:10.0f} "
                f"{measured * 1e6:9.0f} {expected / measured - 1:+7.0%} {share:>6} {in_order / measured:5.2f}x"
            )
            if options.pictures is not None:
                pictures(options.pictures, name, policy, plan)


if __name__ == "__main__":
    main()

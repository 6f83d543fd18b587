"""A deep network in less memory: some results are computed again in backward instead of being kept.

Backward needs what forward computed, so that a step of training keeps a result of each of its layers. Given a budget,
``wg.compile`` chooses what is given up and computed again when it is next needed: what costs least for each byte and for
the time it is away (Kirisame and others, Dynamic Tensor Rematerialization, ICLR 2021). It says so in a table. The
gradients are the same to the last bit, because the same kernels compute the same values; a step takes a little longer.

Run: python examples/memory_budget.py [--picture FILE]
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import wengert as wg
from wengert import nn
from wengert.nn import functional as F

BUDGETS = (None, 0.8, 0.6, 0.4)  # shares of what is needed without a budget


class Measured(NamedTuple):
    """Of a step of training within a budget: its memory, its time, its gradients, and the table, if there is one."""

    peak: int
    seconds: float
    gradients: dict[str, wg.Tensor]
    table: str


def network(layers: int = 12, width: int = 128) -> nn.Sequential:
    """Return a perceptron with many layers, each of which is normalised and added to what went in."""

    class Layer(nn.Module):
        """x + W₂ gelu(W₁ norm(x))."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

        def forward(self, x: wg.Tensor) -> wg.Tensor:
            """(batch, width) → the same."""
            return x + self.inner(x)

    return nn.Sequential(*[Layer() for _ in range(layers)], nn.Linear(width, 10))


def step_within(budget: float | None, model: nn.Module) -> Callable[[wg.Tensor, wg.Tensor], wg.Tensor]:
    """Return the compiled step that leaves gradients in the parameters, in no more memory than the budget."""

    @wg.compile(fullgraph=True, memory_budget=budget)
    def step(inputs: wg.Tensor, targets: wg.Tensor) -> wg.Tensor:
        model.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        return loss.detach()

    return step


def measure(budget: float | None, model: nn.Module, inputs: wg.Tensor, targets: wg.Tensor, repeats: int) -> Measured:
    """Run the step within a budget, several times for its time."""
    step, times = step_within(budget, model), []
    for _ in range(2 + repeats):
        begun = time.perf_counter()
        step(inputs, targets)
        times.append(time.perf_counter() - begun)
    ((program,),) = step.programs.values()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    table = "" if program.bounded is None else str(program.bounded)
    return Measured(program.plan.peak, statistics.median(times[2:]), gradients, table)


def main(batch: int = 2048, repeats: int = 10, picture: str | None = None) -> dict[float | None, Measured]:
    """Take the same step within smaller and smaller budgets; compare memory, time and gradients."""
    wg.manual_seed(0)
    model = network()
    inputs, targets = wg.randn(batch, 128), wg.randint(0, 10, (batch,))
    found = {budget: measure(budget, model, inputs, targets, repeats) for budget in BUDGETS}
    free = found[None]
    for budget, one in found.items():
        same = all(wg.equal(g, free.gradients[name]) for name, g in one.gradients.items())
        print(
            f"{'no budget' if budget is None else f'{budget:.0%}':<10} {one.peak / 1e6:6.1f} MB"
            f" {1e3 * one.seconds:6.1f} ms   gradients {'equal' if same else 'DIFFER'}"
        )
    print(f"\n{found[BUDGETS[-1]].table}")
    if picture:
        draw(found, picture)
    return found


def draw(found: dict[float | None, Measured], picture: str) -> None:
    """Draw the time of a step over the memory it takes."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axis = figure.subplots()
    axis.plot([one.peak / 1e6 for one in found.values()], [1e3 * one.seconds for one in found.values()], "o-")
    axis.set(xlabel="MB", ylabel="milliseconds", xlim=(0, None), ylim=(0, None))
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A step of training within budgets of memory.")
    parser.add_argument("--picture", metavar="FILE", help="draw time and memory into this file")
    main(picture=parser.parse_args().picture)

"""The heat equation solved by a network that is trained on nothing but the equation itself.

A rod whose ends are kept at temperature 0 starts with u(x, 0) = x (1 − x) and cools: ∂u/∂t = α ∂²u/∂x². The solution
is sought as u = x (1 − x) (1 + t N(x, t)), which is right at both ends and at the start whatever the network N says;
training makes the residual of the equation small at random points (Raissi, Perdikaris and Karniadakis, Journal of
Computational Physics 378, 2019; the form of u: Lagaris, Likas and Fotiadis, IEEE Transactions on Neural Networks 9,
1998). Forward mode gives the derivatives by x and t, of first and second order, and reverse mode goes through them to
the weights, in one compiled step.

Run: python examples/heat_equation.py [--picture FILE]
"""

import argparse
import math
from typing import Any

import wengert as wg
from wengert import nn
from wengert.func import jvp

DIFFUSIVITY = 0.1


class Rod(nn.Module):
    """The temperature at places and times between 0 and 1."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        layers = nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        self.network = nn.Sequential(*layers)

    def forward(self, x: wg.Tensor, t: wg.Tensor) -> wg.Tensor:
        """Return the temperature at each pair of a place and a time."""
        return x * (1 - x) * (1 + t * self.network(wg.stack([x, t], dim=-1)).squeeze(-1))


def residual(rod: nn.Module, x: wg.Tensor, t: wg.Tensor) -> wg.Tensor:
    """Return ∂u/∂t − α ∂²u/∂x²; points do not depend on each other, so that a tangent of ones is the derivative at each."""
    one = wg.ones_like(x)
    by_t = jvp(lambda t: rod(x, t), (t,), (one,))[1]
    by_xx = jvp(lambda x: jvp(lambda x: rod(x, t), (x,), (one,))[1], (x,), (one,))[1]
    return by_t - DIFFUSIVITY * by_xx


def train(rod: nn.Module, steps: int, points: int = 256) -> list[float]:
    """Make the residual small, in place; return its mean square at each step."""
    optimizer = wg.optim.Adam(rod.parameters(), lr=1e-2)
    schedule = wg.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)

    @wg.compile(fullgraph=True)
    def step(x: wg.Tensor, t: wg.Tensor) -> wg.Tensor:
        optimizer.zero_grad()
        loss = residual(rod, x, t).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for _ in range(steps):
        losses.append(step(wg.rand(points), wg.rand(points)).item())
        schedule.step()
    return losses


def main(picture: str | None = None) -> dict[str, Any]:
    """Train, and say what the temperature in the middle has become."""
    wg.manual_seed(0)
    rod = Rod()
    losses = train(rod, steps=800)
    x, t = wg.meshgrid(wg.linspace(0, 1, 41), wg.linspace(0, 1, 41), indexing="ij")
    with wg.no_grad():
        temperature = rod(x, t)
    print(f"mean square of the residual: {losses[0]:.1e} at first, {losses[-1]:.1e} after {len(losses)} steps")
    # The slowest part of the series, which is all that is left by then.
    first = 8 / math.pi**3 * math.exp(-DIFFUSIVITY * math.pi**2)
    print(f"temperature in the middle at time 1: {temperature[20, 40]:.4f}; first term of the series: {first:.4f}")
    if picture:
        draw(temperature, picture)
    return {"x": x, "t": t, "temperature": temperature}


def draw(temperature: wg.Tensor, picture: str) -> None:
    """Draw the temperature over place and time."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(temperature.numpy(), origin="lower", extent=(0, 1, 0, 1), aspect="auto")
    axis.set(xlabel="time", ylabel="place")
    figure.colorbar(image, label="temperature")
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The heat equation solved by a network.")
    parser.add_argument("--picture", metavar="FILE", help="draw the temperature into this file")
    main(parser.parse_args().picture)

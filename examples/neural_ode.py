"""A differential equation learned from a spiral: a network is its right side.

Of a spiral there are noisy observations at regular times. The network gives the velocity at each place, ``odeint``
follows it, and the gradient of the distance to the observations goes through the solver (Chen, Rubanova, Bettencourt
and Duvenaud, NeurIPS 2018). Training looks at short windows, all at once: each starts at an observation and has to
meet the next ones. In the end the learned equation is followed from the first observation alone, by a method that
chooses its own steps.

Run: python examples/neural_ode.py [--picture FILE]
"""

import argparse
from typing import Any

import wengert as wg
from wengert import nn
from wengert.func import odeint

DECAY, SPEED, NOISE = 0.15, 1.2, 0.02
OBSERVATIONS, END, WINDOW = 60, 12.0, 4


def spiral(t: wg.Tensor) -> wg.Tensor:
    """Return where the spiral is at each time: (times, 2)."""
    return 2 * (-DECAY * t).exp()[:, None] * wg.stack([(SPEED * t).cos(), (SPEED * t).sin()], dim=-1)


def windows(observed: wg.Tensor) -> wg.Tensor:
    """Return every run of WINDOW observations: (WINDOW, runs, 2)."""
    return wg.stack([observed[i : i + WINDOW] for i in range(len(observed) - WINDOW + 1)], dim=1)


def train(velocity: nn.Module, observed: wg.Tensor, t: wg.Tensor, steps: int) -> list[float]:
    """Fit ``velocity`` in place; return the mean square distance at each step."""
    optimizer = wg.optim.Adam(velocity.parameters(), lr=2e-2)
    schedule = wg.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    seen, times = windows(observed), t[:WINDOW].tolist()

    @wg.compile(fullgraph=True)
    def step() -> wg.Tensor:
        optimizer.zero_grad()
        paths = odeint(lambda _, y: velocity(y), seen[0], times, method="rk4")
        loss = (paths[1:] - seen[1:]).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for _ in range(steps):
        losses.append(step().item())
        schedule.step()
    return losses


def main(picture: str | None = None) -> dict[str, Any]:
    """Train on a noisy spiral, then follow the learned equation from its first point."""
    wg.manual_seed(0)
    t = wg.linspace(0, END, OBSERVATIONS)
    observed = spiral(t) + NOISE * wg.randn(OBSERVATIONS, 2)
    velocity = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    losses = train(velocity, observed, t, steps=400)
    with wg.no_grad():
        path = odeint(lambda _, y: velocity(y), observed[0], t)
    error = (path - spiral(t)).square().mean().sqrt().item()
    print(
        f"mean square distance: {losses[0]:.4f} at first, {losses[-1]:.5f} after {len(losses)} steps; noise {NOISE**2:.5f}"
    )
    print(
        f"the learned equation stays within {error:.3f} of the spiral (root mean square), for all {END:g} units of time"
    )
    if picture:
        draw(observed, path, picture)
    return {"t": t, "path": path, "velocity": velocity}


def draw(observed: wg.Tensor, path: wg.Tensor, picture: str) -> None:
    """Draw the observations and the learned path."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axis = figure.subplots()
    axis.plot(*observed.T.numpy(), "o", label="observed")
    axis.plot(*path.T.numpy(), label="learned")
    axis.set_aspect("equal")
    axis.legend()
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A differential equation learned from a spiral.")
    parser.add_argument("--picture", metavar="FILE", help="draw observations and learned path into this file")
    main(parser.parse_args().picture)

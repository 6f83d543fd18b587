"""Bodies under gravity, differentiated from the end of their motion back to its beginning.

The motion is integrated by the leapfrog method, which is symplectic: its energy error stays small over long times
(Hairer, Lubich and Wanner, Geometric Numerical Integration, 2006, section I.1.4). The steps are one ``scan``; with
``checkpoint`` the backward pass keeps √n states instead of everything that n steps save. Two uses of it:

* three equal bodies that chase each other along a figure of eight (Chenciner and Montgomery, Annals of Mathematics
  152, 2000): after a period they are where they began;
* shooting: with which velocity does a probe have to start to be at a given place at a given time, past a star and its
  planet? By how much it misses is a function of the velocity; Newton's method, with the Jacobian of that, finds where
  it is zero.

Run: python examples/n_body.py [--picture FILE]
"""

import argparse
from typing import Any

import wengert as wg
from wengert.func import scan

DTYPE = wg.float64
PERIOD = 6.32591398  # of the figure of eight
TARGET, ARRIVAL = (-0.8, 0.9), 2.0  # where the probe shall be, and when

State = tuple[wg.Tensor, ...]


def accelerations(positions: wg.Tensor, masses: wg.Tensor) -> wg.Tensor:
    """Return what gravity, with a constant of 1, does to each body: (bodies, 2)."""
    apart = positions - positions[:, None]
    itself = wg.eye(len(masses), dtype=DTYPE)[..., None]  # makes the distance of a body from itself 1: no 0 / 0
    squares = apart.square().sum(-1, keepdim=True) + itself
    return (masses[:, None] * apart * squares**-1.5).sum(1)


def energy(positions: wg.Tensor, velocities: wg.Tensor, masses: wg.Tensor) -> wg.Tensor:
    """Return kinetic and potential energy together."""
    one, other = wg.triu_indices(len(masses), len(masses), 1)
    distances = (positions[one] - positions[other]).norm(dim=-1)
    return (masses * velocities.square().sum(-1)).sum() / 2 - (masses[one] * masses[other] / distances).sum()


@wg.compile
def leapfrog(x: wg.Tensor, v: wg.Tensor, a: wg.Tensor, masses: wg.Tensor, dt: float) -> State:
    """Return positions, velocities and accelerations after a step: half a kick, a drift, half a kick."""
    half = v + dt / 2 * a
    x = x + dt * half
    a = accelerations(x, masses)
    return x, half + dt / 2 * a, a


def simulate(x: wg.Tensor, v: wg.Tensor, masses: wg.Tensor, time: float, steps: int) -> tuple[wg.Tensor, wg.Tensor]:
    """Return positions and velocities of all bodies after each step, each (steps, bodies, 2)."""

    def step(state: State, _: None) -> tuple[State, State]:
        x, v, a = leapfrog(*state, masses, time / steps)
        return (x, v, a), (x, v)

    return scan(step, (x, v, accelerations(x, masses)), None, length=steps, checkpoint=True)[1]


def figure_of_eight() -> tuple[wg.Tensor, wg.Tensor, wg.Tensor]:
    """Return positions, velocities and masses of the three bodies at the start."""
    x, v = wg.tensor([0.97000436, -0.24308753], dtype=DTYPE), wg.tensor([0.93240737, 0.86473146], dtype=DTYPE)
    return wg.stack([x, -x, wg.zeros_like(x)]), wg.stack([v / 2, v / 2, -v]), wg.ones(3, dtype=DTYPE)


def journey(velocity: wg.Tensor) -> wg.Tensor:
    """Return the positions of star, planet and probe, which starts with ``velocity``, after each step."""
    positions = wg.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, -0.7]], dtype=DTYPE)
    planet = wg.tensor([0.0, 1.0], dtype=DTYPE)
    masses = wg.tensor([1.0, 0.02, 0.0], dtype=DTYPE)
    return simulate(positions, wg.stack([-0.02 * planet, planet, velocity]), masses, ARRIVAL, steps=100)[0]


def shoot(velocity: wg.Tensor, target: wg.Tensor, shots: int = 8) -> wg.Tensor:
    """Return the velocity with which the probe arrives at ``target``, by Newton's method from a first guess.

    Raises:
        RuntimeError: if it still misses after as many shots.
    """
    for _ in range(shots):
        velocity = velocity.detach().requires_grad_()
        miss = journey(velocity)[-1, 2] - target
        if miss.norm() < 1e-10:
            return velocity.detach()
        jacobian = wg.stack([wg.autograd.grad(m, velocity, retain_graph=True)[0] for m in miss])
        velocity = velocity - wg.linalg.solve(jacobian, miss)
    raise RuntimeError(f"the probe still misses by {miss.norm():.1e} after {shots} shots")


def main(picture: str | None = None) -> dict[str, Any]:
    """Follow the figure of eight for a period, then shoot the probe at its target."""
    x, v, masses = figure_of_eight()
    xs, vs = simulate(x, v, masses, PERIOD, steps=300)
    drift = max(abs(energy(xs[i], vs[i], masses) - energy(x, v, masses)).item() for i in range(0, 300, 10))
    closed = (xs[-1] - x).abs().max().item()
    print(f"figure of eight: after one period {closed:.1e} away from the start, energy changed by at most {drift:.1e}")

    velocity = shoot(wg.tensor([1.2, 0.5], dtype=DTYPE), wg.tensor(TARGET, dtype=DTYPE))
    path = journey(velocity)
    print(f"shooting: a start with velocity ({velocity[0]:.6f}, {velocity[1]:.6f}) arrives at {path[-1, 2].tolist()}")
    if picture:
        draw(xs, path, picture)
    return {"closed": closed, "drift": drift, "velocity": velocity, "path": path}


def draw(eight: wg.Tensor, path: wg.Tensor, picture: str) -> None:
    """Draw both motions."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(*eight[:, 0].T.numpy())
    left.plot(*eight[-1].T.numpy(), "o")
    for body, name in enumerate(("star", "planet", "probe")):
        right.plot(*path[:, body].T.numpy(), ".-", markersize=2, label=name)
    right.plot(*TARGET, "x", color="black", label="target")
    right.legend()
    for axis in (left, right):
        axis.set_aspect("equal")
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Three bodies on a figure of eight, and a probe that must arrive.")
    parser.add_argument("--picture", metavar="FILE", help="draw the motions into this file")
    main(parser.parse_args().picture)

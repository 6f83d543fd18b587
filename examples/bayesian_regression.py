"""The posterior of a linear regression, by Hamiltonian Monte Carlo and by variational inference.

The data are the 442 patients of scikit-learn's diabetes set: ten measurements, and how the disease progressed within
a year (Efron, Hastie, Johnstone and Tibshirani, Annals of Statistics 32, 2004). With noise and prior normal, the
posterior of the weights is normal too and known exactly, which makes this a test of both methods. Both only ask for
the log density and take its gradient; any other model is another ``log_posterior``.

* Hamiltonian Monte Carlo (Neal, arXiv 1206.1901) samples from the posterior itself. Chains are rows of one tensor,
  and a transition, with all gradients of its trajectory, is one compiled program.
* Mean-field variational inference (Kucukelbir and others, arXiv 1603.00788) fits independent normals. Where weights
  are correlated their variances come out too small: for a normal posterior they are one over the diagonal of its
  precision.

Run: python examples/bayesian_regression.py [--picture FILE]    (needs scikit-learn)
"""

import argparse
from typing import Any

import wengert as wg
from wengert.func import grad

DTYPE = wg.float64
NOISE, PRIOR = 0.7, 1.0  # standard deviations of what the weights do not explain, and of the weights before the data


def load_data() -> tuple[wg.Tensor, wg.Tensor, list[str]]:
    """Return measurements, (patients, 10), and progressions, all with mean 0 and deviation 1, and the measurements' names."""
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    inputs, targets = wg.tensor(data.data, dtype=DTYPE), wg.tensor(data.target, dtype=DTYPE)
    inputs, targets = ((t - t.mean(0)) / t.std(0) for t in (inputs, targets))
    return inputs, targets, list(data.feature_names)


def log_posterior(weights: wg.Tensor, inputs: wg.Tensor, targets: wg.Tensor) -> wg.Tensor:
    """Return the log density, up to a constant, of each row of ``weights``."""
    residuals = targets - weights @ inputs.T
    return -residuals.square().sum(-1) / (2 * NOISE**2) - weights.square().sum(-1) / (2 * PRIOR**2)


@wg.compile(fullgraph=True)
def transition(
    weights: wg.Tensor,
    inputs: wg.Tensor,
    targets: wg.Tensor,
    momentum: wg.Tensor,
    step_size: wg.Tensor,
    chance: wg.Tensor,
) -> tuple[wg.Tensor, wg.Tensor]:
    """Return where the chains are after a trajectory of 20 leapfrog steps, and which of them accepted its end."""
    slope = grad(lambda w: log_posterior(w, inputs, targets).sum())
    place, p = weights, momentum + step_size / 2 * slope(weights)
    for _ in range(20):
        place = place + step_size * p
        p = p + step_size * slope(place)
    p = p - step_size / 2 * slope(place)
    gain = log_posterior(place, inputs, targets) - log_posterior(weights, inputs, targets)
    accepted = chance.log() < gain + (momentum.square().sum(-1) - p.square().sum(-1)) / 2
    return wg.where(accepted[:, None], place, weights), accepted


def sample(inputs: wg.Tensor, targets: wg.Tensor, chains: int, draws: int, warmup: int) -> tuple[wg.Tensor, float]:
    """Return weights from the posterior, (draws, chains, 10), and the share of trajectories that were accepted."""
    weights, kept, accepted = wg.zeros(chains, inputs.shape[1], dtype=DTYPE), [], []
    for _ in range(warmup + draws):
        step_size = 0.02 + 0.008 * wg.rand((), dtype=DTYPE)  # varied, so that no trajectory returns to where it began
        momentum, chance = wg.randn_like(weights), wg.rand(chains, dtype=DTYPE)
        weights, moved = transition(weights, inputs, targets, momentum, step_size, chance)
        kept.append(weights)
        accepted.append(moved)
    return wg.stack(kept[warmup:]), wg.stack(accepted[warmup:]).double().mean().item()


def fit_normals(inputs: wg.Tensor, targets: wg.Tensor, steps: int, samples: int = 64) -> tuple[wg.Tensor, wg.Tensor]:
    """Return means and deviations of the independent normals that are nearest to the posterior."""
    mean, log_deviation = (wg.full((inputs.shape[1],), v, dtype=DTYPE, requires_grad=True) for v in (0.0, -3.0))
    optimizer = wg.optim.Adam([mean, log_deviation], lr=0.05)
    schedule = wg.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)

    @wg.compile(fullgraph=True)
    def step(noise: wg.Tensor) -> None:
        optimizer.zero_grad()
        weights = mean + log_deviation.exp() * wg.cat([noise, -noise])
        bound = log_posterior(weights, inputs, targets).mean() + log_deviation.sum()
        (-bound).backward()
        optimizer.step()

    for _ in range(steps):
        step(wg.randn(samples // 2, len(mean), dtype=DTYPE))
        schedule.step()
    return mean.detach(), log_deviation.detach().exp()


def main(picture: str | None = None) -> dict[str, Any]:
    """Infer the weights in both ways and print them side by side."""
    wg.manual_seed(0)
    inputs, targets, names = load_data()
    draws, accepted = sample(inputs, targets, chains=24, draws=300, warmup=50)
    mean, deviation = fit_normals(inputs, targets, steps=600)
    hmc_mean, hmc_deviation = draws.mean((0, 1)), draws.std((0, 1))
    print(
        f"Hamiltonian Monte Carlo: {draws.shape[0] * draws.shape[1]} draws, {accepted:.0%} of the trajectories accepted"
    )
    print("weight   sampled         mean field")
    for row in zip(names, *(t.tolist() for t in (hmc_mean, hmc_deviation, mean, deviation)), strict=True):
        print("{:<6} {:6.3f} ± {:.3f}   {:6.3f} ± {:.3f}".format(*row))
    if picture:
        draw(names, draws, mean, deviation, picture)
    return {
        "inputs": inputs, "targets": targets, "draws": draws, "accepted": accepted, "mean": mean, "deviation": deviation,
    }  # fmt: skip


def draw(names: list[str], draws: wg.Tensor, mean: wg.Tensor, deviation: wg.Tensor, picture: str) -> None:
    """Draw both posteriors of each weight, as intervals of two deviations."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axis, at = figure.subplots(), wg.arange(len(names)).numpy()
    axis.errorbar(at - 0.1, draws.mean((0, 1)).numpy(), 2 * draws.std((0, 1)).numpy(), fmt="o", label="sampled")
    axis.errorbar(at + 0.1, mean.numpy(), 2 * deviation.numpy(), fmt="s", label="mean field")
    axis.set_xticks(at, names)
    axis.legend()
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The posterior of a linear regression in two ways.")
    parser.add_argument("--picture", metavar="FILE", help="draw the posteriors into this file")
    main(parser.parse_args().picture)

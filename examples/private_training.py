"""Training that tells little about any one person: each example's gradient is clipped, and noise hides the rest.

The model learns to tell malignant from benign tumours (scikit-learn's breast cancer data: 569 people, 30 measurements
each; Street, Wolberg and Mangasarian, 1993). ``vmap(grad(loss))`` gives the gradient of each person by itself; an
ordinary backward pass would add them up. Each is scaled down to a norm of at most CLIP, and normal noise of deviation
CLIP · noise is added to their sum (Abadi and others, ACM CCS 2016).

How much is told is known in advance: a step on all people is ρ-zero-concentrated differentially private, for one
person more or less, with ρ = 1 / (2 noise²); the ρ of steps add up, and together they are (ρ + 2 √(ρ ln 1/δ),
δ)-differentially private (Bun and Steinke, TCC 2016-B, propositions 1.6 and 1.3, lemma 1.7). What is not counted is
that the measurements are scaled by their own means and deviations.

Run: python examples/private_training.py [--picture FILE]    (needs scikit-learn)
"""

import argparse
import math
from typing import Any

import wengert as wg
from wengert import nn
from wengert.func import functional_call, grad, vmap

CLIP, DELTA = 1.0, 1e-4
Weights = dict[str, wg.Tensor]


def load_data() -> tuple[wg.Tensor, wg.Tensor]:
    """Return measurements, (people, 30), with mean 0 and deviation 1, and 1 for each benign tumour, 0 for a malignant one."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    inputs = wg.tensor(data.data, dtype=wg.float32)
    order = wg.randperm(len(inputs))
    return ((inputs - inputs.mean(0)) / inputs.std(0))[order], wg.tensor(data.target, dtype=wg.float32)[order]


def gradients_of_each(model: nn.Module, inputs: wg.Tensor, targets: wg.Tensor) -> Weights:
    """Return the gradient of each example's loss by each weight: the examples are dimension 0."""

    def loss(weights: Weights, x: wg.Tensor, y: wg.Tensor) -> wg.Tensor:
        return nn.functional.binary_cross_entropy_with_logits(functional_call(model, weights, (x,)).squeeze(-1), y)

    weights = {name: p.detach() for name, p in model.named_parameters()}
    return vmap(grad(loss), in_dims=(None, 0, 0))(weights, inputs, targets)


def clipped_sum(gradients: Weights) -> Weights:
    """Scale each example's gradient down to a norm of at most CLIP, over all weights together, and add them up."""
    norms = wg.cat([g.flatten(1) for g in gradients.values()], dim=1).norm(dim=1)
    factors = (CLIP / norms).clamp(max=1.0)
    return {name: wg.tensordot(factors, g, dims=1) for name, g in gradients.items()}


def train(model: nn.Module, inputs: wg.Tensor, targets: wg.Tensor, steps: int, noise: float) -> None:
    """Train ``model`` in place with clipped and noisy gradients."""
    optimizer = wg.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    for _ in range(steps):
        sums = clipped_sum(gradients_of_each(model, inputs, targets))
        for name, p in model.named_parameters():
            p.grad = (sums[name] + CLIP * noise * wg.randn_like(p)) / len(inputs)
        optimizer.step()


def epsilon(steps: int, noise: float) -> float:
    """Return the ε, at DELTA, of all steps together."""
    rho = steps / (2 * noise**2)
    return rho + 2 * math.sqrt(rho * math.log(1 / DELTA))


def main(picture: str | None = None) -> dict[str, Any]:
    """Train with more and more noise; print how private and how accurate each model is."""
    wg.manual_seed(0)
    inputs, targets = load_data()
    (inputs, held_out), (targets, answers) = inputs.split([400, 169]), targets.split([400, 169])
    found = []
    steps = 40
    for noise in (0.0, 8.0, 30.0):
        model = nn.Sequential(nn.Linear(30, 8), nn.Tanh(), nn.Linear(8, 1))
        train(model, inputs, targets, steps=steps, noise=noise)
        with wg.no_grad():
            accuracy = ((model(held_out).squeeze(-1) > 0) == (answers > 0)).float().mean().item()
        found.append((epsilon(steps, noise) if noise else math.inf, accuracy))
        print(f"noise {noise:4.0f}: ε = {found[-1][0]:6.2f} at δ = {DELTA:g}, {accuracy:.1%} of new people right")
    if picture:
        draw(found, picture)
    return {"found": found, "model": model, "inputs": inputs, "targets": targets}


def draw(found: list[tuple[float, float]], picture: str) -> None:
    """Draw accuracy over ε."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axis = figure.subplots()
    axis.plot(*zip(*found[1:], strict=True), "o-")
    axis.axhline(found[0][1], linestyle=":", label="without noise")
    axis.set(xlabel="ε", ylabel="accuracy")
    axis.legend()
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Training with clipped and noisy gradients of each example.")
    parser.add_argument("--picture", metavar="FILE", help="draw accuracy and privacy into this file")
    main(parser.parse_args().picture)

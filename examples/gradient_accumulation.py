"""A large batch in small pieces: the same step, in less memory.

Where a batch does not fit into memory, the gradients of its pieces are added up before the step. That is the same step
only if each piece counts as many examples as it has: the plain mean of the pieces' mean losses lets the examples of a
small piece count too much. ``optim.accumulate`` weights them, so that the training ends where that with whole batches
does, up to rounding: all 1,797 digits of scikit-learn at once, or in four pieces, the last one small.

(Batch normalisation would not be the same: its statistics are those of a piece.) From the same gradients it estimates
the noise scale (McCandlish and others, arXiv 1812.06162): the batch above which more examples per step help little.

Run: python examples/gradient_accumulation.py [--picture FILE]    (needs scikit-learn)
"""

import argparse
from typing import Any

import wengert as wg
from wengert import nn
from wengert.nn import functional as F

PIECE = 500


def load_data() -> tuple[wg.Tensor, wg.Tensor]:
    """Return images, (1797, 64) from 0 to 1 in float64, with their labels, in an order at random."""
    from sklearn.datasets import load_digits

    wg.manual_seed(0)
    digits, order = load_digits(), wg.randperm(1797)
    return wg.tensor(digits.data / 16)[order], wg.tensor(digits.target)[order]


def network() -> nn.Sequential:
    """Return a perceptron in float64, the same each time."""
    wg.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)).double()


def whole_batch(model: nn.Module, optimizer: wg.optim.Optimizer, images: wg.Tensor, labels: wg.Tensor) -> wg.Tensor:
    """Set the gradients of the mean loss of all examples at once; return the loss."""
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    return loss.detach()


def in_pieces(model: nn.Module, optimizer: wg.optim.Optimizer, images: wg.Tensor, labels: wg.Tensor) -> wg.Tensor:
    """Set the same gradients from one piece after the other; return the same loss."""
    with wg.optim.accumulate(optimizer) as batch:
        for x, y in zip(images.split(PIECE), labels.split(PIECE), strict=True):
            batch.backward(F.cross_entropy(model(x), y), weight=len(y))
    return batch.loss


def mean_of_pieces(model: nn.Module, optimizer: wg.optim.Optimizer, images: wg.Tensor, labels: wg.Tensor) -> wg.Tensor:
    """Set gradients that are not the same: every piece counts as much as any other."""
    losses = []
    for x, y in zip(images.split(PIECE), labels.split(PIECE), strict=True):
        losses.append(F.cross_entropy(model(x), y) / -(-len(images) // PIECE))
        losses[-1].backward()
    return wg.stack([loss.detach() for loss in losses]).sum()


def train(gradients: Any, images: wg.Tensor, labels: wg.Tensor, steps: int) -> tuple[nn.Module, list[float], int]:
    """Return a network that was trained with the given way to set gradients, the losses, and the bytes that it took."""
    model = network()
    optimizer = wg.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    wg.cpu.reset_peak_memory_stats()
    losses, before = [], wg.cpu.memory_allocated()
    for _ in range(steps):
        optimizer.zero_grad()
        losses.append(gradients(model, optimizer, images, labels).item())
        optimizer.step()
    return model, losses, wg.cpu.max_memory_allocated() - before


def apart(model: nn.Module, other: nn.Module) -> float:
    """Return the largest difference between the weights of two networks."""
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return max((p.detach() - q.detach()).abs().max().item() for p, q in pairs)


def noise_scale(model: nn.Module, images: wg.Tensor, labels: wg.Tensor, piece: int = 20) -> float:
    """Return the estimated noise scale, in examples, from the gradients of small pieces."""
    scale = wg.optim.GradientNoiseScale()
    with wg.optim.accumulate(model.parameters(), noise_scale=scale) as batch:
        for x, y in zip(images.split(piece), labels.split(piece), strict=True):
            batch.backward(F.cross_entropy(model(x), y), weight=len(y))
    return float(scale.value)


def main(steps: int = 50, picture: str | None = None) -> dict[str, Any]:
    """Train in the three ways, and say how far apart the networks are in the end."""
    images, labels = load_data()
    ways = {"whole batch": whole_batch, "in pieces": in_pieces, "mean of pieces": mean_of_pieces}
    trained = {name: train(way, images, labels, steps) for name, way in ways.items()}
    models, losses, memory = (dict(zip(ways, column, strict=True)) for column in zip(*trained.values(), strict=True))
    differences = {name: apart(model, models["whole batch"]) for name, model in models.items()}
    for name in ways:
        print(
            f"{name:<15} loss {losses[name][-1]:.6f}, {memory[name] / 1e6:.2f} MB;"
            f" weights differ by at most {differences[name]:.1e}"
        )
    scales = [noise_scale(train(whole_batch, images, labels, n)[0], images, labels) for n in (0, 10)]
    print("noise scale: {:.0f} examples at first, {:.0f} after ten steps".format(*scales))
    if picture:
        draw(losses, picture)
    return {"losses": losses, "differences": differences, "memory": memory, "scales": scales}


def draw(losses: dict[str, list[float]], picture: str) -> None:
    """Draw the loss over the steps, and how far the other ways are from the whole batch."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, values in losses.items():
        left.semilogy(values, label=name)
        right.semilogy([abs(a - b) + 1e-18 for a, b in zip(values, losses["whole batch"], strict=True)], label=name)
    left.set(xlabel="step", ylabel="loss")
    right.set(xlabel="step", ylabel="difference from the whole batch")
    left.legend()
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A large batch in small pieces.")
    parser.add_argument("--picture", metavar="FILE", help="draw the losses into this file")
    main(picture=parser.parse_args().picture)

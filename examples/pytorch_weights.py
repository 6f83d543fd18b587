"""Weights from PyTorch go on learning here: another task, from few examples.

``digits_0_to_4.pt`` beside this script was written by ``torch.save``: the state of a convolutional network that PyTorch
trained on the digits 0 to 4 of scikit-learn's set, and a few images with the scores that it gave them. ``wg.load`` reads
it without PyTorch, and without running what is in it. The network is the same class by class, so that the names and
shapes of the state fit, and it gives the same scores.

Then it gets a new last layer for the digits 5 to 9, which it has never seen, and learns them from ten examples of
each. What the other layers have learned from other digits shows in the number of steps that it takes: the same network
from random weights learns beside it.

Run: python examples/pytorch_weights.py [--picture FILE]    (needs scikit-learn)
"""

import argparse
from pathlib import Path
from typing import Any

import wengert as wg
from wengert import nn
from wengert.nn import functional as F

FILE = Path(__file__).with_name("digits_0_to_4.pt")
CLASSES, EXAMPLES = 5, 10


def network(framework: Any = wg) -> Any:
    """Return three convolutions and a linear layer, made of the modules of wengert, or of ``torch``."""
    nn = framework.nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(24, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 2 * 2, CLASSES),
    )  # fmt: skip


def load_data() -> tuple[wg.Tensor, wg.Tensor, wg.Tensor, wg.Tensor]:
    """Return images, (n, 1, 8, 8), and labels from 0 on of the digits 5 to 9: a few to learn from, the others held out."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    new = digits.target >= CLASSES
    images = wg.tensor(digits.images[new], dtype=wg.float32).unsqueeze(1) / 16
    labels = wg.tensor(digits.target[new] - CLASSES)
    order = wg.randperm(len(labels))
    images, labels = images[order], labels[order]
    few = wg.cat([(labels == c).nonzero()[:EXAMPLES, 0] for c in range(CLASSES)])
    others = wg.ones(len(labels), dtype=wg.bool)
    others[few] = False
    return images[few], labels[few], images[others], labels[others]


def train(model: nn.Module, data: tuple[wg.Tensor, ...], steps: int) -> list[float]:
    """Train in place on all examples at once; return how many held-out digits are right, as a share, after each step."""
    images, labels, held_out, answers = data
    optimizer, shares = wg.optim.AdamW(model.parameters(), lr=5e-3), []
    for _ in range(steps):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        model.eval()
        with wg.no_grad():
            shares.append((model(held_out).argmax(1) == answers).float().mean().item())
    return shares


def main(steps: int = 40, picture: str | None = None) -> dict[str, Any]:
    """Read the weights, compare scores with PyTorch's, and learn the new digits with and without them."""
    wg.manual_seed(0)
    checkpoint = wg.load(FILE)
    pretrained, fresh = network(), network()
    print(pretrained.load_state_dict(checkpoint["state_dict"]))
    with wg.no_grad():
        scores = pretrained.eval()(checkpoint["images"])
    difference = (scores - checkpoint["scores"]).abs().max().item()
    print(f"scores of {len(scores)} images differ from PyTorch's by at most {difference:.1e}")

    pretrained[-1] = nn.Linear(pretrained[-1].in_features, CLASSES)
    data = load_data()
    models = {"from random weights": fresh, "from PyTorch's weights": pretrained}
    accuracy = {name: train(model, data, steps) for name, model in models.items()}
    for name, shares in accuracy.items():
        print(
            f"{name:<22} {shares[9]:.1%} of {len(data[3])} digits right after 10 steps, {shares[-1]:.1%} after {steps}"
        )
    if picture:
        draw(accuracy, picture)
    return {"checkpoint": checkpoint, "difference": difference, "accuracy": accuracy}


def draw(accuracy: dict[str, list[float]], picture: str) -> None:
    """Draw how many digits are wrong after each step."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axis = figure.subplots()
    for name, shares in accuracy.items():
        axis.plot(range(1, len(shares) + 1), [100 * (1 - share) for share in shares], label=name)
    axis.set(xlabel="step", ylabel="wrong (%)", ylim=(0, None))
    axis.legend()
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Weights from PyTorch learn another task.")
    parser.add_argument("--picture", metavar="FILE", help="draw the errors into this file")
    main(picture=parser.parse_args().picture)

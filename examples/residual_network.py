"""A residual network, whose normalisation disappears into its convolutions once it is trained.

The network (He, Zhang, Ren and Sun, CVPR 2016) learns the 1,797 digits that come with scikit-learn. Each of its
convolutions is followed by batch normalisation (Ioffe and Szegedy, ICML 2015). In training that uses the mean and
variance of the batch; afterwards they are constants, so that normalisation is a product and a sum for each channel,
which the weights of the convolution can hold: ``fuse_conv_bn_eval`` does that. The folded network gives the same scores
up to rounding, and has less to do.

Run: python examples/residual_network.py [--picture FILE]    (needs scikit-learn, tqdm)
"""

import argparse
import copy
import statistics
import time
from typing import Any

import wengert as wg
from wengert import nn
from wengert.nn import functional as F
from wengert.nn.utils import fuse_conv_bn_eval
from wengert.utils.data import DataLoader, TensorDataset, random_split


def load_data() -> TensorDataset:
    """Return images, (1797, 1, 8, 8) from 0 to 1, with their labels."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return TensorDataset(wg.tensor(digits.images, dtype=wg.float32).unsqueeze(1) / 16, wg.tensor(digits.target))


class Normalised(nn.Module):
    """A 3 × 3 convolution and batch normalisation."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outputs)

    def forward(self, x: wg.Tensor) -> wg.Tensor:
        """(batch, inputs, height, width) → (batch, outputs, height / stride, width / stride)."""
        return self.norm(self.conv(x))

    def fold(self) -> None:
        """Put what the normalisation does into the weights of the convolution."""
        self.conv = fuse_conv_bn_eval(self.conv, self.norm)
        self.norm = nn.Identity()


class Block(nn.Module):
    """Two convolutions, added to what went in."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.first, self.second = Normalised(inputs, outputs, stride), Normalised(outputs, outputs)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride=stride)
        nn.init.zeros_(self.second.norm.weight)  # at first a block does nothing (Goyal and others, arXiv 1706.02677)

    def forward(self, x: wg.Tensor) -> wg.Tensor:
        """(batch, inputs, height, width) → (batch, outputs, height / stride, width / stride)."""
        return (self.second(self.first(x).relu()) + self.shortcut(x)).relu()


def network(width: int = 16) -> nn.Sequential:
    """Return 13 layers: a stem, six blocks that halve the picture twice and double the channels, a linear layer."""
    blocks = [Block(width, width), Block(width, width), Block(width, 2 * width, 2), Block(2 * width, 2 * width),
              Block(2 * width, 4 * width, 2), Block(4 * width, 4 * width)]  # fmt: skip
    return nn.Sequential(
        Normalised(1, width), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10)
    )


def train(model: nn.Module, loader: DataLoader, epochs: int) -> list[float]:
    """Train in place; return the mean loss of each epoch."""
    optimizer = wg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = wg.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=epochs * len(loader))

    @wg.compile(fullgraph=True)
    def step(images: wg.Tensor, labels: wg.Tensor) -> wg.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    losses = []
    with wg.utils.Progress(epochs * len(loader) * loader.batch_size, description="training") as progress:
        for _ in range(epochs):
            mean = wg.metrics.Mean()
            for images, labels in loader:
                mean.update(step(images, labels), len(images))
                progress.step(len(images), loss=mean.compute())
            losses.append(mean.compute())
    return losses


def folded(model: nn.Module) -> nn.Module:
    """Return a copy, for evaluation, whose convolutions hold their normalisation."""
    model = copy.deepcopy(model).eval()
    for module in list(model.modules()):
        if isinstance(module, Normalised):
            module.fold()
    return model


def seconds(models: dict[str, nn.Module], images: wg.Tensor, repeats: int = 30) -> dict[str, float]:
    """Return the median time that each model takes for the images; they take turns, so that both see the same machine."""
    times: dict[str, list[float]] = {name: [] for name in models}
    with wg.no_grad():
        for _ in range(repeats):
            for name, model in models.items():
                begun = time.perf_counter()
                model(images)
                times[name].append(time.perf_counter() - begun)
    return {name: statistics.median(values[5:]) for name, values in times.items()}


def main(epochs: int = 12, width: int = 16, picture: str | None = None) -> dict[str, Any]:
    """Train, fold, and compare scores and speed."""
    wg.manual_seed(0)
    learn, held_out = random_split(load_data(), [0.8, 0.2])
    images, labels = held_out[:]
    model = network(width)
    losses = train(model, DataLoader(learn, batch_size=64, shuffle=True, drop_last=True), epochs)
    models = {"normalised": model.eval(), "folded": folded(model)}
    with wg.no_grad():
        scores = {name: model(images) for name, model in models.items()}
    accuracy = {name: (s.argmax(1) == labels).float().mean().item() for name, s in scores.items()}
    difference = (scores["folded"] - scores["normalised"]).abs().max().item()
    times = seconds(models, images)
    for name in models:
        print(f"{name:<10} {accuracy[name]:.2%} of {len(labels)} held-out digits right, {1e3 * times[name]:.2f} ms")
    print(f"the scores differ by at most {difference:.1e}; {times['normalised'] / times['folded']:.2f} times as fast")
    if picture:
        draw(losses, times, picture)
    return {"losses": losses, "scores": scores, "accuracy": accuracy, "times": times, "models": models}


def draw(losses: list[float], times: dict[str, float], picture: str) -> None:
    """Draw the loss over the epochs, and the time of both networks."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.semilogy(losses)
    left.set(xlabel="epoch", ylabel="loss")
    right.bar(list(times), [1e3 * t for t in times.values()])
    right.set(ylabel="milliseconds")
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A residual network whose normalisation is folded away.")
    parser.add_argument("--picture", metavar="FILE", help="draw the loss and the times into this file")
    main(picture=parser.parse_args().picture)

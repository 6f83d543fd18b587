"""The work of the demonstration: handwritten digits, two small networks, and a plain training loop.

The data are the 1,797 digits of 8 × 8 pixels that come with scikit-learn (E. Alpaydin and C. Kaynak, Optical
Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998), so nothing is downloaded.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import wengert as wg
from wengert import nn
from wengert.extras import require
from wengert.nn import functional as F
from wengert.utils.data import DataLoader, TensorDataset

__all__ = [
    "RECIPES",
    "Digits",
    "Epoch",
    "Recipe",
    "accuracy",
    "classify",
    "load_digits",
    "seconds_of_a_step",
    "shifted",
    "train",
]

SIDE, CLASSES = 8, 10


class Digits(NamedTuple):
    """Images of shape (n, 1, 8, 8) in [0, 1] with their labels, to learn from and held out."""

    images: wg.Tensor
    labels: wg.Tensor
    held_out_images: wg.Tensor
    held_out_labels: wg.Tensor


class Epoch(NamedTuple):
    """What one pass over the data gave: the mean loss, and the share of held-out digits classified right."""

    loss: float
    accuracy: float


@dataclass(frozen=True)
class Recipe:
    """A network and how it is best trained: passes over the data, first learning rate, shifted images or not."""

    build: Callable[[], nn.Module]
    epochs: int
    learning_rate: float
    shift: bool


def load_digits(seed: int) -> Digits:
    """Return the digits, every fifth of each class held out at random.

    Raises:
        MissingExtraError: if scikit-learn is not installed.
    """
    digits = require("sklearn.datasets", "demo").load_digits()
    split = require("sklearn.model_selection", "demo").train_test_split
    images = (digits.images / 16).astype("float32").reshape(-1, 1, SIDE, SIDE)
    labels = digits.target.astype("int64")
    learn, held_out, y_learn, y_held_out = split(images, labels, test_size=0.2, random_state=seed, stratify=labels)
    return Digits(wg.tensor(learn), wg.tensor(y_learn), wg.tensor(held_out), wg.tensor(y_held_out))


def convolutional() -> nn.Module:
    """Two 3 × 3 convolutions, each normalised over the batch, then one linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(32 * (SIDE // 2) ** 2, CLASSES),
    )


def perceptron() -> nn.Module:
    """Two hidden layers of 256 units, each normalised over the batch."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(SIDE * SIDE, 256),
        nn.BatchNorm1d(256),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(256, 256),
        nn.BatchNorm1d(256),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(256, CLASSES),
    )


RECIPES = {
    "cnn": Recipe(convolutional, epochs=20, learning_rate=5e-3, shift=True),
    "mlp": Recipe(perceptron, epochs=30, learning_rate=3e-3, shift=False),
}


Step = Callable[[wg.Tensor, wg.Tensor], wg.Tensor]


def training_step(model: nn.Module, recipe: Recipe, steps: int) -> Step:
    """Return a function that takes a batch of images and labels, does one step of training in place and returns the loss.

    Adam with a learning rate that falls in ``steps`` steps along half a cosine (Loshchilov and Hutter, arXiv 1608.03983,
    section 3).
    """
    optimizer = wg.optim.Adam(model.parameters(), lr=recipe.learning_rate)
    schedule = wg.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)

    def step(images: wg.Tensor, labels: wg.Tensor) -> wg.Tensor:
        loss = F.cross_entropy(model(shifted(images) if recipe.shift else images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    return step


def loader_of(digits: Digits, batch: int) -> DataLoader:
    """Return what gives the digits to learn from, in batches and a new order in each pass."""
    return DataLoader(TensorDataset(digits.images, digits.labels), batch_size=batch, shuffle=True)


def train(
    model: nn.Module, digits: Digits, recipe: Recipe, batch: int, prepare: Callable[[Step], Step] = wg.compile
) -> Iterator[Epoch]:
    """Train ``model`` in place, yielding after each pass over the data; ``prepare`` is what becomes of the step first."""
    loader = loader_of(digits, batch)
    step = prepare(training_step(model, recipe, recipe.epochs * len(loader)))
    for _ in range(recipe.epochs):
        model.train()
        total = 0.0
        for images, labels in loader:
            total += step(images, labels).item() * len(images)
        yield Epoch(total / len(digits.labels), accuracy(model, digits.held_out_images, digits.held_out_labels))


def seconds_of_a_step(
    digits: Digits, recipe: Recipe, batch: int, prepare: Callable[[Step], Step]
) -> tuple[float, float]:
    """Return what the first three steps of a fresh model take together, and the median of thirty later ones.

    The first step of an optimiser makes its state, so that the program is made in the second one.
    """
    model = recipe.build().train()
    step, times = prepare(training_step(model, recipe, 1000)), list[float]()
    images, labels = digits.images[:batch], digits.labels[:batch]
    for _ in range(33):
        begun = time.perf_counter()
        step(images, labels)
        times.append(time.perf_counter() - begun)
    return sum(times[:3]), statistics.median(times[3:])


def shifted(images: wg.Tensor) -> wg.Tensor:
    """Return every image moved by -1, 0 or 1 pixel along each side, chosen at random; the border is 0.

    Args:
        images: of shape (n, 1, height, width).
    """
    count, _, height, width = images.shape
    down = wg.randint(0, 3, (count, 1, 1)) + wg.arange(height).reshape(1, height, 1)
    right = wg.randint(0, 3, (count, 1, 1)) + wg.arange(width).reshape(1, 1, width)
    return F.pad(images, (1, 1, 1, 1))[wg.arange(count).reshape(count, 1, 1), 0, down, right].unsqueeze(1)


def classify(model: nn.Module, images: wg.Tensor) -> wg.Tensor:
    """Return the most likely class of every image; the model is left in evaluation mode."""
    model.eval()
    with wg.no_grad():
        return model(images).argmax(1)


def accuracy(model: nn.Module, images: wg.Tensor, labels: wg.Tensor) -> float:
    """Return the share of images whose most likely class is their label."""
    return (classify(model, images) == labels).float().mean().item()

"""``python -m wengert demo``: train a classifier of handwritten digits, keep its weights, show what it learned."""

import argparse
import dataclasses
import math
from pathlib import Path
from typing import Any

import wengert as wg
from wengert.cli.digits import RECIPES, Digits, Epoch, Recipe, Step, classify, load_digits, seconds_of_a_step, train
from wengert.extras import require

__all__ = ["DESCRIPTION", "HELP", "NAME", "add_arguments", "draw", "run"]

NAME = "demo"
HELP = "train a classifier of handwritten digits"
DESCRIPTION = (
    "Train a classifier of handwritten digits with a compiled step, save and reload its weights, draw what it learned."
)

EXTRA = "demo"
COLUMNS, ROWS = 8, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    option = parser.add_argument
    option("--model", choices=sorted(RECIPES), default="cnn", help="which network (default: %(default)s)")
    option("--epochs", type=_positive(int), help="passes over the data (default: the network's own)")
    option("--batch", type=_positive(int), default=64, help="images per step (default: %(default)s)")
    option("--lr", type=_positive(float), help="first learning rate (default: the network's own)")
    option("--seed", type=int, default=0, help="of split, first weights and shuffling (default: %(default)s)")
    option("--eager", action="store_true", help="run each operator by itself, instead of compiling the training step")
    option("--out", type=Path, default=Path("wengert-demo"), help="where results go (default: %(default)s)")


def run(options: argparse.Namespace) -> None:
    """Train, save, reload, classify and draw.

    Raises:
        MissingExtraError: if a package of the extra ``demo`` is not installed.
        OSError: if the folder cannot be written.
    """
    progress = require("tqdm", EXTRA).tqdm
    require("matplotlib.figure", EXTRA)
    options.out.mkdir(parents=True, exist_ok=True)
    recipe = RECIPES[options.model]
    recipe = dataclasses.replace(
        recipe,
        epochs=options.epochs or recipe.epochs,
        learning_rate=options.lr or recipe.learning_rate,
    )

    digits = load_digits(options.seed)
    print(f"digits: {len(digits.labels):,} to learn from, {len(digits.held_out_labels)} held out")
    wg.manual_seed(options.seed)
    model = recipe.build()
    size = sum(p.numel() for p in model.parameters())
    print(f"{options.model}: {size:,} parameters, {recipe.epochs} epochs in batches of {options.batch}")
    history = []
    passes = train(model, digits, recipe, options.batch, _as_it_is if options.eager else wg.compile)
    with progress(passes, total=recipe.epochs, desc="training") as epochs:
        for epoch in epochs:
            history.append(epoch)
            epochs.set_postfix_str(f"loss {epoch.loss:.3f}, held out {epoch.accuracy:.2%}", refresh=False)

    print(_times(digits, recipe, options.batch))

    weights = options.out / "weights.safetensors"
    wg.save_file(model.state_dict(), weights)
    print(f"weights: {weights}")
    fresh = recipe.build()
    fresh.load_state_dict(wg.load_file(weights))
    predictions = classify(fresh, digits.held_out_images)
    right, count = int((predictions == digits.held_out_labels).sum()), len(predictions)
    print(f"reloaded into a fresh model: {right} of {count} held-out digits right ({right / count:.2%})")
    picture = options.out / "training.png"
    draw(history, digits, predictions, picture)
    print(f"picture: {picture}")


def _as_it_is(step: Step) -> Step:
    return step


def _times(digits: Digits, recipe: Recipe, batch: int) -> str:
    """Return in words how long a step of training takes, compiled and not."""
    _, eager = seconds_of_a_step(digits, recipe, batch, _as_it_is)
    first, compiled = seconds_of_a_step(digits, recipe, batch, wg.compile)
    return (
        f"a training step: {1e3 * eager:.2f} ms operator by operator, {1e3 * compiled:.2f} ms compiled "
        f"({eager / compiled:.1f} times as fast; the first three steps took {first:.1f} s)"
    )


def draw(history: list[Epoch], digits: Digits, predictions: wg.Tensor, path: Path) -> None:
    """Write a picture of the training and of held-out digits with their predictions, the wrong ones first.

    Args:
        history: one entry per pass over the data.
        predictions: the class given to each held-out image.
        path: where to write; the suffix says the format.
    """
    figure = require("matplotlib.figure", EXTRA).Figure(figsize=(12, 5), layout="constrained")
    curves, gallery = figure.subfigures(1, 2, width_ratios=(1, 1.3))
    _draw_curves(curves, history)
    right = (predictions == digits.held_out_labels).tolist()
    gallery.suptitle(f"held-out digits: {right.count(False)} of {len(right)} wrong")
    order = sorted(range(len(right)), key=right.__getitem__)
    cells = gallery.subplots(ROWS, COLUMNS)
    for cell, i in zip(cells.flat, order, strict=False):
        said, label = int(predictions[i]), int(digits.held_out_labels[i])
        cell.imshow(digits.held_out_images[i, 0].numpy(), cmap="gray_r")
        cell.set_title(f"{said}" if said == label else f"{said}, is {label}", color="black" if said == label else "red")
    for cell in cells.flat:
        cell.set_axis_off()
    figure.savefig(path, dpi=110)


def _draw_curves(figure: Any, history: list[Epoch]) -> None:
    """Draw the loss on a logarithmic axis, and the errors on held-out digits beside it."""
    loss, errors = figure.subplots(2, 1, sharex=True)
    epochs = range(1, len(history) + 1)
    loss.plot(epochs, [epoch.loss for epoch in history], color="tab:blue")
    loss.set(yscale="log", ylabel="mean loss")
    errors.plot(epochs, [100 * (1 - epoch.accuracy) for epoch in history], color="tab:red")
    errors.set(xlabel="epoch", ylabel="held-out errors (%)", ylim=(0, None))
    errors.xaxis.get_major_locator().set_params(integer=True)
    for axes in (loss, errors):
        axes.grid(alpha=0.3)


def _positive(kind: type[int] | type[float]) -> Any:
    """Return a converter of command-line text to a positive, finite number of the given type."""

    def convert(text: str) -> float:
        value = kind(text)
        if not (math.isfinite(value) and value > 0):
            raise argparse.ArgumentTypeError(f"must be a positive number, got {text}")
        return value

    convert.__name__ = kind.__name__  # argparse names the type by it
    return convert

"""Training in half the bits: what it takes for float16 and bfloat16 to end where float32 does.

Products and convolutions run in a type of 16 bits inside of ``autocast``; weights, their updates, and what needs range
or precision stay in float32 (Micikevicius and others, Mixed Precision Training, ICLR 2018). Gradients of float16 that
are too small would become 0: ``GradScaler`` multiplies the loss, divides the gradients again, and leaves out steps
in which something became too large. bfloat16 has the range of float32 and needs none of that.

Two models are trained three times each, from the same weights with the same batches: a convolutional network on
scikit-learn's digits, and a small GPT on the documentation that ships with Python. The losses at the end, of data that
was held out, are compared with float32's. (Half the bits save memory and time on processors that have such products.)

Run: python examples/mixed_precision.py [--picture FILE]    (needs scikit-learn, tqdm)
"""

import argparse
from collections.abc import Iterable, Iterator
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import wengert as wg
from wengert import nn
from wengert.nn import functional as F

PRECISIONS = {"float32": None, "bfloat16": wg.bfloat16, "float16": wg.float16}
CONTEXT, WIDTH = 32, 48


class Task(NamedTuple):
    """A model and what it is to learn, in batches; and what it is measured on."""

    model: nn.Module
    inputs: wg.Tensor
    targets: wg.Tensor
    held_out: tuple[wg.Tensor, wg.Tensor]
    rate: float

    def batches(self, steps: int, size: int = 32) -> Iterator[tuple[wg.Tensor, wg.Tensor]]:
        """Give ``steps`` batches at random."""
        for _ in range(steps):
            at = wg.randint(0, len(self.inputs), (size,))
            yield self.inputs[at], self.targets[at]


def digits() -> Task:
    """Return the task of telling digits of 8 × 8 pixels apart."""
    from sklearn.datasets import load_digits

    data, model = load_digits(), nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip
    order = wg.randperm(len(data.target))
    images = wg.tensor(data.images, dtype=wg.float32).unsqueeze(1)[order] / 16
    labels = wg.tensor(data.target)[order]
    return Task(model, images[:1400], labels[:1400], (images[1400:], labels[1400:]), 3e-3)


class GPT(nn.Module):
    """Two layers of attention and neurons, over characters."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.what, self.where = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, characters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, x: wg.Tensor) -> wg.Tensor:
        """(batch, CONTEXT) → (batch, scores, CONTEXT)."""
        return self.head(self.layers(self.what(x) + self.where.weight, mask=self.mask, is_causal=True)).mT


def characters() -> Task:
    """Return the task of saying which character comes next."""
    text = "\n".join(topics[name] for name in sorted(topics))[:200_000]
    alphabet = {character: i for i, character in enumerate(sorted(set(text)))}
    windows = wg.tensor([alphabet[c] for c in text]).unfold(0, CONTEXT + 1, 1)
    learn, held_out = windows[:180_000], windows[-20_000::100]
    return Task(GPT(len(alphabet)), learn[:, :-1], learn[:, 1:], (held_out[:, :-1], held_out[:, 1:]), 3e-3)


TASKS = {"digits": digits, "characters": characters}


def train(task: Task, dtype: wg.dtype | None, steps: int, progress: wg.utils.Progress) -> tuple[list[float], float]:
    """Train in place; return the loss at each step, and that of what was held out, which is measured in float32."""
    model, held_out = task.model, task.held_out
    optimizer = wg.optim.AdamW(model.parameters(), lr=task.rate)
    schedule = wg.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=task.rate, total_steps=steps)
    scaler = wg.amp.GradScaler(enabled=dtype is wg.float16)

    @wg.compile
    def step(inputs: wg.Tensor, targets: wg.Tensor) -> wg.Tensor:
        optimizer.zero_grad()
        with wg.autocast("cpu", dtype=dtype or wg.bfloat16, enabled=dtype is not None):
            loss = F.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    losses = []
    for batch in task.batches(steps):
        losses.append(step(*batch).item())
        schedule.step()
        progress.step(len(batch[0]), loss=losses[-1])
    model.eval()
    with wg.no_grad():
        return losses, F.cross_entropy(model(held_out[0]), held_out[1]).item()


def main(steps: int = 150, tasks: Iterable[str] = TASKS, picture: str | None = None) -> dict[str, Any]:
    """Train both models in each precision and print where they end."""
    found: dict[str, dict[str, Any]] = {task: {} for task in tasks}
    with wg.utils.Progress(len(found) * len(PRECISIONS) * steps * 32, description="training") as progress:
        for task, results in found.items():
            for name, dtype in PRECISIONS.items():
                wg.manual_seed(0)  # the same first weights and batches each time
                losses, held_out = train(TASKS[task](), dtype, steps, progress)
                results[name] = {"losses": losses, "held out": held_out}
    for task, results in found.items():
        for name, result in results.items():
            more = result["held out"] / results["float32"]["held out"] - 1
            print(f"{task:<10} {name:<8} loss {result['held out']:.4f} ({more:+.1%} of float32's)")
    if picture:
        draw(found, picture)
    return found


def draw(found: dict[str, dict[str, Any]], picture: str) -> None:
    """Draw the losses of each model in each precision."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for axis, (task, results) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        for name, result in results.items():
            axis.semilogy(result["losses"], label=name, linewidth=0.8)
        axis.set(title=task, xlabel="step", ylabel="loss")
        axis.legend()
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Training in float32, bfloat16 and float16.")
    parser.add_argument("--picture", metavar="FILE", help="draw the losses into this file")
    main(picture=parser.parse_args().picture)

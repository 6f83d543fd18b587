"""A small GPT learns to write Python's documentation, one character at a time.

The text ships with Python itself: ``help("topics")`` shows it, about half a million characters. The last tenth of it is
held out. The model is a stack of blocks, each of which adds attention to earlier characters and a layer of neurons
(Radford and others, Language Models are Unsupervised Multitask Learners, 2019); its training step is compiled. What
it has learned is measured in bits per character of the text that it has not seen, beside what a compressor needs for
the same text; then it goes on writing from a beginning.

Run: python examples/character_gpt.py [--steps N] [--picture FILE]    (needs tqdm)
"""

import argparse
import math
import zlib
from pydoc_data.topics import topics
from typing import Any

import wengert as wg
from wengert import nn
from wengert.nn import functional as F

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 64, 96, 4, 3, 8


def documents() -> str:
    """Return all topics of Python's help, in the order of their names."""
    return "\n".join(topics[name] for name in sorted(topics))


class Block(nn.Module):
    """Attention, then neurons, each on what was normalised before and added to what went in."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.neurons = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: wg.Tensor) -> wg.Tensor:
        """(batch, characters, WIDTH) → the same; no character sees a later one."""
        batch, count, _ = x.shape
        heads = self.qkv(self.first(x)).view(batch, count, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, count, WIDTH))
        return x + self.neurons(self.second(x))


class GPT(nn.Module):
    """Scores for each next character, from at most CONTEXT characters before it."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.what, self.where = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters)
        nn.init.normal_(self.head.weight, std=0.02)  # at first every character is about as likely

    def forward(self, x: wg.Tensor) -> wg.Tensor:
        """(batch, characters) → (batch, characters, scores)."""
        return self.head(self.norm(self.blocks(self.what(x) + self.where.weight[: x.shape[1]])))


def loss_of(model: nn.Module, windows: wg.Tensor) -> wg.Tensor:
    """Return the mean cross-entropy, in nats, of each character of (batch, CONTEXT + 1) but the first."""
    return F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


def bits_per_character(model: nn.Module, text: wg.Tensor) -> float:
    """Return the mean cross-entropy, in bits, over windows that each begin where the last one ended."""
    mean = wg.metrics.Mean()
    with wg.no_grad():
        for windows in text.unfold(0, CONTEXT + 1, CONTEXT).split(BATCH):
            mean.update(loss_of(model, windows), len(windows))
    return mean.compute() / math.log(2)


def train(model: nn.Module, text: wg.Tensor, steps: int) -> list[float]:
    """Train in place on windows from anywhere in the text; return the loss at each step, in bits."""
    optimizer = wg.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.99), weight_decay=0.1)
    schedule = wg.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps, pct_start=0.1)
    windows = text.unfold(0, CONTEXT + 1, 1)  # a view: one window for each place where one can begin

    @wg.compile(fullgraph=True)
    def step(batch: wg.Tensor) -> wg.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss.detach() / math.log(2)

    losses = []
    with wg.utils.Progress(steps * BATCH * CONTEXT, description="characters") as progress:
        for _ in range(steps):
            losses.append(step(windows[wg.randint(0, len(windows), (BATCH,))]).item())
            progress.step(BATCH * CONTEXT, bits=losses[-1])
    return losses


def write(model: nn.Module, start: wg.Tensor, count: int, temperature: float = 0.7) -> wg.Tensor:
    """Return ``start`` and ``count`` more characters, each drawn from what the model expects next."""
    text = start
    with wg.no_grad():
        for _ in range(count):
            chances = (model(text[None, -CONTEXT:])[0, -1] / temperature).softmax(-1)
            text = wg.cat([text, wg.multinomial(chances, 1)])
    return text


def main(steps: int = 2000, length: int = 400, picture: str | None = None) -> dict[str, Any]:
    """Train, measure, and let the model write."""
    wg.manual_seed(0)
    text = documents()
    characters = sorted(set(text))
    code = {character: i for i, character in enumerate(characters)}
    cut = len(text) * 9 // 10
    learn, held_out = (wg.tensor([code[c] for c in part]) for part in (text[:cut], text[cut:]))
    model = GPT(len(characters))
    losses = train(model, learn, steps)
    bits = bits_per_character(model, held_out)
    compressed = 8 * len(zlib.compress(text[cut:].encode(), 9)) / len(held_out)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {steps * BATCH * CONTEXT:,} characters read")
    print(f"bits per held-out character: {bits:.3f}; zlib needs {compressed:.3f}")
    written = "".join(characters[i] for i in write(model, wg.tensor([code[c] for c in "The "]), length).tolist())
    print(written)
    if picture:
        draw(losses, bits, picture)
    return {"losses": losses, "bits": bits, "compressed": compressed, "written": written}


def draw(losses: list[float], bits: float, picture: str) -> None:
    """Draw the loss over the steps, and what was reached on the text held out."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axis = figure.subplots()
    axis.plot(losses, linewidth=0.5, label="training")
    axis.axhline(bits, color="black", linestyle=":", label="held out")
    axis.set(xlabel="step", ylabel="bits per character")
    axis.legend()
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A small GPT learns to write Python's documentation.")
    parser.add_argument("--steps", type=int, default=2000, help="of training (default: %(default)s)")
    parser.add_argument("--picture", metavar="FILE", help="draw the loss into this file")
    options = parser.parse_args()
    main(steps=options.steps, picture=options.picture)

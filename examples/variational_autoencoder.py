"""A variational autoencoder writes digits of its own.

Each of scikit-learn's 1,797 digits is 64 numbers from 0 to 16: how many dots of a 4 × 4 square are black. The model
says how likely such a picture is: eight hidden numbers are drawn from a normal distribution, a network (the decoder)
makes of them how likely a dot is to be black in each square, and the count in a square is binomial. A second network
(the encoder) says which hidden numbers a given picture may have come from. Both are trained at once, by a lower bound
of the log likelihood, the ELBO (Kingma and Welling, ICLR 2014); where squares are darker or lighter than a binomial
allows for, the beta-binomial distribution has one more number for the spread.

What it is held to: its bound on pictures that were held out must be higher than the exact log likelihood of a model
that counts how often each square has each of the 17 values, but knows nothing of how squares go together.

Run: python examples/variational_autoencoder.py [--picture FILE]    (needs scikit-learn, tqdm)
"""

import argparse
import math
from typing import Any

import wengert as wg
from wengert import nn
from wengert.nn import functional as F
from wengert.utils.data import DataLoader, TensorDataset, random_split

DOTS, SQUARES, HIDDEN = 16, 64, 8


def load_data() -> TensorDataset:
    """Return the pictures, (1797, 64), as counts of black dots."""
    from sklearn.datasets import load_digits

    return TensorDataset(wg.tensor(load_digits().data, dtype=wg.float32))


def log_beta(a: wg.Tensor, b: wg.Tensor) -> wg.Tensor:
    """Return log B(a, b)."""
    return wg.lgamma(a) + wg.lgamma(b) - wg.lgamma(a + b)


class Autoencoder(nn.Module):
    """Encoder and decoder, of one layer of neurons each."""

    def __init__(self, neurons: int = 256) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(SQUARES, neurons), nn.GELU(), nn.Dropout(0.2), nn.Linear(neurons, 2 * HIDDEN)
        )
        self.decoder = nn.Sequential(nn.Linear(HIDDEN, neurons), nn.GELU(), nn.Linear(neurons, 2 * SQUARES))

    def encode(self, counts: wg.Tensor) -> tuple[wg.Tensor, wg.Tensor]:
        """Return mean and log deviation of the hidden numbers, each (batch, HIDDEN)."""
        return self.encoder(counts / DOTS - 0.5).chunk(2, dim=1)

    def decode(self, hidden: wg.Tensor) -> tuple[wg.Tensor, wg.Tensor]:
        """Return the two numbers, both positive, of the beta distribution of each square: each (batch, SQUARES)."""
        mean, size = self.decoder(hidden).chunk(2, dim=1)
        size = F.softplus(size) + 0.1
        return mean.sigmoid() * size + 1e-3, (-mean).sigmoid() * size + 1e-3

    def log_likelihood(self, counts: wg.Tensor, hidden: wg.Tensor) -> wg.Tensor:
        """Return the log probability of each picture, given its hidden numbers: (batch,)."""
        a, b = self.decode(hidden)
        choices = math.lgamma(DOTS + 1) - wg.lgamma(counts + 1) - wg.lgamma(DOTS + 1 - counts)
        return (choices + log_beta(a + counts, b + DOTS - counts) - log_beta(a, b)).sum(1)

    def forward(self, counts: wg.Tensor) -> wg.Tensor:
        """Return the ELBO of each picture, in nats, estimated from one draw of the hidden numbers."""
        mean, log_deviation = self.encode(counts)
        hidden = mean + log_deviation.exp() * wg.randn_like(mean)
        distance = (mean.square() + (2 * log_deviation).exp() - 1) / 2 - log_deviation  # of normals: exact
        return self.log_likelihood(counts, hidden) - distance.sum(1)


def train(model: nn.Module, loader: DataLoader, epochs: int) -> list[float]:
    """Train in place; return the mean ELBO of each epoch."""
    optimizer = wg.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = wg.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=epochs * len(loader))

    @wg.compile(fullgraph=True)
    def step(counts: wg.Tensor) -> wg.Tensor:
        optimizer.zero_grad()
        bound = model(counts).mean()
        (-bound).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        optimizer.step()
        schedule.step()
        return bound.detach()

    bounds = []
    with wg.utils.Progress(epochs * len(loader) * loader.batch_size, description="training") as progress:
        for _ in range(epochs):
            mean = wg.metrics.Mean()
            for (counts,) in loader:
                mean.update(step(counts))
                progress.step(len(counts), elbo=mean.compute())
            bounds.append(mean.compute())
    return bounds


def independent_squares(learn: wg.Tensor, held_out: wg.Tensor) -> float:
    """Return the mean log likelihood of pictures whose squares are drawn one by one, each as often as it was seen."""
    seen = F.one_hot(learn.long(), DOTS + 1).sum(0) + 0.1  # a value that was not seen is not impossible
    chances = (seen / seen.sum(1, keepdim=True)).log()
    return chances[wg.arange(SQUARES), held_out.long()].sum(1).mean().item()


def main(epochs: int = 120, picture: str | None = None) -> dict[str, Any]:
    """Train, measure on pictures that were held out, and draw some that were never seen."""
    wg.manual_seed(0)
    learn, held_out = random_split(load_data(), [0.8, 0.2])
    model = Autoencoder()
    bounds = train(model, DataLoader(learn, batch_size=64, shuffle=True, drop_last=True), epochs)
    model.eval()
    (seen,), (unseen,) = learn[:], held_out[:]
    with wg.no_grad():
        elbo = wg.stack([model(unseen).mean() for _ in range(20)]).mean().item()
        a, b = model.decode(model.encode(unseen)[0])
        copies = DOTS * a / (a + b)
        a, b = model.decode(wg.randn(24, HIDDEN))
        dreams = DOTS * a / (a + b)
    baseline = independent_squares(seen, unseen)
    error = (copies - unseen).square().mean().sqrt().item()
    print(f"nats for each held-out picture: {elbo:.1f} or more; squares one by one: {baseline:.1f}")
    print(f"pictures come back from {HIDDEN} numbers with a deviation of {error:.2f} dots of {DOTS} in each square")
    if picture:
        draw(unseen, copies, dreams, picture)
    return {"bounds": bounds, "elbo": elbo, "baseline": baseline, "error": error, "model": model, "held_out": unseen}


def draw(pictures: wg.Tensor, copies: wg.Tensor, dreams: wg.Tensor, picture: str) -> None:
    """Draw pictures above what came back of them, then pictures from hidden numbers at random."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    rows = [pictures[:12], copies[:12], dreams[:12], dreams[12:24]]
    for line, row, name in zip(figure.subplots(4, 12), rows, ("seen", "again", "new", "new"), strict=True):
        for cell, image in zip(line, row, strict=True):
            cell.imshow(image.reshape(8, 8).numpy(), cmap="gray_r", vmin=0, vmax=DOTS)
            cell.set(xticks=[], yticks=[])
        line[0].set_ylabel(name)
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A variational autoencoder writes digits of its own.")
    parser.add_argument("--picture", metavar="FILE", help="draw digits that were seen and that never were")
    main(picture=parser.parse_args().picture)

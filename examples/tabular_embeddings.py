"""What colour is "dark sky blue"? A table of words and numbers, and a network with embeddings.

In a survey of 2010, thousands of people named colours that they were shown; 949 names were given often, and ship with
matplotlib, each with its colour (R. Munroe, blog.xkcd.com/2010/05/03/color-survey-results). They are written into a
CSV file, with a column for the first word, one for what is in between, one for the last word, and the length of the
name. From then on the script is about any CSV file: it is read, its words become codes and then rows of embeddings,
its numbers are scaled, and the rows that were held out say how good the predictions are.

What they are held to: the mean colour of the names with the same last word, and a linear model of all words.

Run: python examples/tabular_embeddings.py [--picture FILE]    (needs matplotlib, which has the data, and tqdm)
"""

import argparse
import csv
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import wengert as wg
from wengert import nn
from wengert.nn import functional as F
from wengert.utils.data import DataLoader, Subset, random_split

TARGETS = ["red", "green", "blue"]


def write_csv(path: Path) -> None:
    """Write a row for each name: its words, those that are rare as "(rare)", its length, and its colour from 0 to 1."""
    from matplotlib.colors import XKCD_COLORS, to_rgb

    names = {name.removeprefix("xkcd:"): to_rgb(colour) for name, colour in XKCD_COLORS.items()}
    places = [((words := name.replace("/", " ").split())[:-1][:1], words[1:-1], words[-1:]) for name in names]
    columns = [[" ".join(words) or "(no word)" for words in column] for column in zip(*places, strict=True)]
    counts = [Counter(column) for column in columns]
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["name", "first", "between", "last", "letters", *TARGETS])
        for (name, colour), *words in zip(names.items(), *columns, strict=True):
            common = [word if count[word] > 1 else "(rare)" for word, count in zip(words, counts, strict=True)]
            table.writerow([name, *common, len(name), *colour])


class Colours(nn.Module):
    """A row of embeddings for each word, beside the scaled numbers, through two layers."""

    def __init__(self, numbers: wg.Tensor, cardinalities: list[int], width: int = 16, neurons: int = 64) -> None:
        super().__init__()
        self.register_buffer("mean", numbers.mean(0))
        self.register_buffer("scale", numbers.std(0) + 1e-6)
        self.embeddings = nn.ModuleList(nn.Embedding(count, width) for count in cardinalities)
        for embed in self.embeddings:
            nn.init.normal_(embed.weight, std=0.3)  # smaller than by default: few rows are there to correct them
        inputs = numbers.shape[1] + width * len(cardinalities)
        self.layers = nn.Sequential(
            nn.Dropout(0.2), nn.Linear(inputs, neurons), nn.GELU(), nn.Dropout(0.2), nn.Linear(neurons, len(TARGETS))
        )

    def forward(self, numbers: wg.Tensor, codes: wg.Tensor) -> wg.Tensor:
        """(batch, numbers), (batch, words) → (batch, targets)."""
        words = [embed(codes[:, i]) for i, embed in enumerate(self.embeddings)]
        return self.layers(wg.cat([(numbers - self.mean) / self.scale, *words], dim=1)).sigmoid()


def train(model: nn.Module, learn: Subset, choose: Subset, epochs: int) -> list[tuple[float, float]]:
    """Train in place until ``choose`` gets no better; return the error on both at each epoch."""
    loader = DataLoader(learn, batch_size=32, shuffle=True, drop_last=True)
    numbers, codes, colours = choose[:]
    optimizer = wg.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.1)

    @wg.compile(fullgraph=True)
    def step(numbers: wg.Tensor, codes: wg.Tensor, colours: wg.Tensor) -> wg.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(numbers, codes), colours)
        loss.backward()
        optimizer.step()
        return loss.detach()

    errors, best = [], wg.utils.EarlyStopping(patience=20, keep=model)
    with wg.utils.Progress(epochs * len(loader) * loader.batch_size, description="training") as progress:
        for _ in range(epochs):
            mean = wg.metrics.Mean()
            model.train()
            for batch in loader:
                mean.update(step(*batch))
                progress.step(loader.batch_size, loss=mean.compute())
            model.eval()
            with wg.no_grad():
                errors.append((mean.compute(), F.mse_loss(model(numbers, codes), colours).item()))
            progress.log(choosing=errors[-1][1])
            if best.step(errors[-1][1]):
                break
    best.restore()
    return errors


def baselines(learn: Subset, held_out: Subset, cardinalities: list[int]) -> dict[str, wg.Tensor]:
    """Return the mean colour of the same last word, and what is linear in the words, for each row that was held out."""
    (_, codes, colours), (_, asked, _) = learn[:], held_out[:]
    last = F.one_hot(codes[:, -1], cardinalities[-1]).float()
    mean = (last.T @ colours + colours.mean(0)) / (last.sum(0)[:, None] + 1)  # a word never seen: the mean of all

    def one_hot(codes: wg.Tensor) -> wg.Tensor:
        parts = [F.one_hot(codes[:, i], count) for i, count in enumerate(cardinalities)]
        return wg.cat([*parts, wg.ones(len(codes), 1)], dim=1).double()

    words = one_hot(codes)
    weights = wg.linalg.solve(words.T @ words + wg.eye(words.shape[1], dtype=wg.float64), words.T @ colours.double())
    return {"same last word": mean[asked[:, -1]], "linear": (one_hot(asked) @ weights).float()}


def main(epochs: int = 200, picture: str | None = None) -> dict[str, Any]:
    """Write the file, read it, train, and compare the errors on the rows that were held out."""
    wg.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        write_csv(path := Path(folder) / "colours.csv")
        table = wg.data.read_csv(path)
    print(table)
    data = wg.data.TableDataset(table, target=TARGETS, features=["letters", "first", "between", "last"])
    learn, choose, held_out = random_split(data, [0.7, 0.1, 0.2])
    model = Colours(learn[:][0], data.cardinalities)
    errors = train(model, learn, choose, epochs)
    numbers, codes, colours = held_out[:]
    with wg.no_grad():
        predictions = {**baselines(learn, held_out, data.cardinalities), "embeddings": model(numbers, codes)}
    found = {name: 255 * (p - colours).square().mean().sqrt().item() for name, p in predictions.items()}
    for name, error in found.items():
        print(f"{name:<15} is wrong by {error:.1f} of 255")
    names = [table.words("name")[i] for i in held_out.indices]
    if picture:
        draw(names, colours, predictions["embeddings"], picture)
    return {"errors": errors, "found": found, "table": table, "learn": learn, "held_out": held_out}


def draw(names: list[str], colours: wg.Tensor, predictions: wg.Tensor, picture: str) -> None:
    """Draw names that were held out, each with its colour on the left and the predicted one on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    for cell, name, colour, prediction in zip(figure.subplots(8, 5).flat, names, colours, predictions, strict=False):
        cell.imshow([[colour.tolist(), prediction.tolist()]], aspect="auto")
        cell.set_title(name, fontsize=8)
        cell.set_axis_off()
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The colours of names, from a CSV file, by embeddings.")
    parser.add_argument("--picture", metavar="FILE", help="draw names and their colours into this file")
    main(picture=parser.parse_args().picture)

"""A convolutional network learns handwritten digits: the loop to start from.

The data are the 1,797 digits of 8 × 8 pixels that come with scikit-learn (Alpaydin and Kaynak, Optical Recognition of
Handwritten Digits, UCI Machine Learning Repository, 1998). One in six is for choosing the best epoch, one in six is
held out: the network is measured on it once, at the end. The training step, forward, backward and optimiser, is
compiled into one program; a bar shows loss and accuracy, and with ``--log FOLDER`` TensorBoard does too.

Run: python examples/digits_cnn.py [--picture FILE] [--log FOLDER]    (needs scikit-learn, tqdm)
"""

import argparse
from typing import Any

import wengert as wg
from wengert import nn
from wengert.nn import functional as F
from wengert.utils.data import DataLoader, TensorDataset, random_split


def load_data() -> TensorDataset:
    """Return images, (1797, 1, 8, 8) from 0 to 1, with their labels."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = wg.tensor(digits.images, dtype=wg.float32).unsqueeze(1) / 16
    return TensorDataset(images, wg.tensor(digits.target))


def network() -> nn.Sequential:
    """Return two convolutions, each normalised over the batch, a pooling and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.5), nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip


def distorted(images: wg.Tensor, amount: float = 0.1) -> wg.Tensor:
    """Return each image turned, stretched and moved a little at random: no digit is seen twice."""
    maps = wg.eye(2, 3) + amount * wg.randn(len(images), 2, 3)
    return F.grid_sample(images, F.affine_grid(maps, images.shape, align_corners=False), align_corners=False)


def evaluate(model: nn.Module, loader: DataLoader) -> tuple[float, float, wg.Tensor]:
    """Return the mean loss, the share of the digits that are classified right, and the prediction for each."""
    loss, accuracy, predictions = wg.metrics.Mean(), wg.metrics.Accuracy(), []
    model.eval()
    with wg.no_grad():
        for images, labels in loader:
            scores = model(images)
            loss.update(F.cross_entropy(scores, labels), len(labels))
            accuracy.update(scores, labels)
            predictions.append(scores.argmax(1))
    return loss.compute(), accuracy.compute(), wg.cat(predictions)


def main(epochs: int = 30, picture: str | None = None, log: str | None = None) -> dict[str, Any]:
    """Train, keep the best epoch, and measure it on the digits that were held out."""
    wg.manual_seed(1)
    parts = random_split(load_data(), [4 / 6, 1 / 6, 1 / 6])
    train, choose, held_out = (DataLoader(part, batch_size=64, shuffle=part is parts[0]) for part in parts)
    model = network()
    optimizer = wg.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = wg.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=epochs * len(train))

    @wg.compile(fullgraph=True)
    def step(images: wg.Tensor, labels: wg.Tensor) -> wg.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(distorted(images)), labels)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    best = wg.utils.EarlyStopping(patience=10, keep=model)
    losses, chosen = [], []
    with wg.utils.Progress(epochs * len(parts[0]), log_dir=log, description="training") as progress:
        for _ in range(epochs):
            model.train()
            mean = wg.metrics.Mean()
            for images, labels in train:
                loss = step(images, labels)
                mean.update(loss, len(images))
                progress.step(len(images), loss=loss)
            losses.append(mean.compute())
            loss, accuracy, _ = evaluate(model, choose)
            chosen.append(accuracy)
            progress.log(accuracy=accuracy)
            if best.step(loss):
                break
    best.restore()
    _, accuracy, predictions = evaluate(model, held_out)
    print(f"best epoch: {best.best_step + 1} of {len(losses)}; {accuracy:.2%} of {len(parts[2])} held-out digits right")
    if picture:
        draw(losses, chosen, parts[2], predictions, picture)
    return {"model": model, "losses": losses, "accuracy": accuracy, "programs": len(step.programs)}


def draw(losses: list[float], chosen: list[float], held_out: Any, predictions: wg.Tensor, picture: str) -> None:
    """Draw how the training went, and held-out digits with what they were taken for, the wrong ones first."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subfigures(1, 2)
    loss, errors = left.subplots(2, 1, sharex=True)
    loss.semilogy(losses)
    loss.set(ylabel="loss")
    errors.plot([100 * (1 - share) for share in chosen])
    errors.set(xlabel="epoch", ylabel="errors (%)")
    shown = sorted(zip(held_out, predictions.tolist(), strict=True), key=lambda pair: int(pair[0][1]) == pair[1])
    for cell, ((image, label), said) in zip(right.subplots(4, 8).flat, shown, strict=False):
        cell.imshow(image[0].numpy(), cmap="gray_r")
        cell.set_title(said, color="black" if said == int(label) else "red")
        cell.set_axis_off()
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A convolutional network learns handwritten digits.")
    parser.add_argument("--picture", metavar="FILE", help="draw the training and some digits into this file")
    parser.add_argument("--log", metavar="FOLDER", help="write events for TensorBoard into this folder")
    options = parser.parse_args()
    main(picture=options.picture, log=options.log)

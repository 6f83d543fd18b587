"""The demonstration learns, keeps what it learned, and shows it."""

from dataclasses import replace

import numpy as np
import pytest

import wengert as wg
from wengert.cli import main
from wengert.cli.digits import RECIPES, accuracy, load_digits, shifted, train

PNG = b"\x89PNG\r\n\x1a\n"


def share_right(output: str) -> float:
    """Return what the demonstration says of its reloaded model, as a share of 1."""
    return float(output.rpartition("(")[2].partition("%")[0]) / 100


@pytest.mark.parametrize(
    ("model", "options", "least"),
    [("cnn", [], 0.98), ("mlp", ["--epochs", "8", "--batch", "96", "--lr", "0.004"], 0.95)],
)
def test_it_learns_the_digits(model, options, least, tmp_path, capsys) -> None:
    assert main(["demo", "--model", model, *options, "--out", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert share_right(output.partition("picture:")[0]) >= least
    assert (tmp_path / "training.png").read_bytes().startswith(PNG)
    assert str(tmp_path / "training.png") in output
    again = RECIPES[model].build()
    again.load_state_dict(wg.load_file(tmp_path / "weights.safetensors"))
    digits = load_digits(seed=0)
    assert accuracy(again, digits.held_out_images, digits.held_out_labels) >= least


def test_the_same_seed_gives_the_same_weights() -> None:
    weights = []
    for seed in (5, 5, 6):
        wg.manual_seed(seed)
        model = RECIPES["cnn"].build()
        list(train(model, load_digits(seed=0), replace(RECIPES["cnn"], epochs=1), batch=256))
        weights.append({name: value.numpy() for name, value in model.state_dict().items()})
    first, same, other = weights
    assert all(np.array_equal(first[name], same[name]) for name in first)
    assert not np.array_equal(first["0.weight"], other["0.weight"])


def test_a_folder_that_cannot_be_made_is_named(tmp_path, capsys) -> None:
    (tmp_path / "file").touch()
    assert main(["demo", "--out", str(tmp_path / "file" / "out")]) == 1
    assert "file" in capsys.readouterr().err


def test_the_split_keeps_every_image_once_and_classes_even() -> None:
    digits = load_digits(seed=1)
    assert digits.images.shape == (1437, 1, 8, 8)
    assert digits.held_out_images.shape == (360, 1, 8, 8)
    counts = np.bincount(digits.held_out_labels.numpy())
    assert counts.min() >= 34
    assert counts.max() <= 37
    assert float(digits.images.max()) == 1.0


def test_images_are_shifted_by_one_pixel_at_most() -> None:
    wg.manual_seed(0)
    images = wg.zeros(200, 1, 8, 8)
    images[:, 0, 3, 4] = 1.0
    moved = shifted(images)
    assert moved.shape == images.shape
    _, _, rows, columns = np.nonzero(moved.numpy())
    assert set(zip(rows.tolist(), columns.tolist(), strict=True)) == {(r, c) for r in (2, 3, 4) for c in (3, 4, 5)}
    assert len(rows) == 200

"""The file that is written, the naive prediction by hand, and how much better the network is."""

import csv
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from examples.tabular_embeddings import TARGETS, main, write_csv


def test_the_file_holds_the_names_and_their_colours(tmp_path: Path) -> None:
    write_csv(tmp_path / "colours.csv")
    with (tmp_path / "colours.csv").open(newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert len(rows) == 949
    sky, green = rows["dark sky blue"], rows["green"]
    assert [sky[name] for name in ("first", "between", "last", "letters")] == ["dark", "sky", "blue", "13"]
    assert [green[name] for name in ("first", "between", "last")] == ["(no word)", "(no word)", "green"]
    assert to_hex([float(sky[name]) for name in TARGETS]) == "#448ee4"


def test_embeddings_know_more_than_the_last_word() -> None:
    found = main()
    errors = found["found"]
    assert errors["embeddings"] < 0.88 * errors["same last word"]
    assert errors["embeddings"] < errors["linear"]

    (_, codes, colours), (_, asked, answers) = (
        [t.numpy() for t in part[:]] for part in (found["learn"], found["held_out"])
    )
    mean = colours.mean(0)
    same = [colours[codes[:, -1] == word[-1]] for word in asked]
    guesses = np.stack([(group.sum(0) + mean) / (len(group) + 1) for group in same])
    error = 255 * np.sqrt(np.square(guesses - answers).mean())
    assert errors["same last word"] == pytest.approx(error, rel=1e-4)

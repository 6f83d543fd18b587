"""The share of held-out digits that the network gets right, after half of the epochs."""

from pathlib import Path

from examples.digits_cnn import main


def test_the_network_reads_digits_that_it_has_not_seen(tmp_path: Path) -> None:
    picture = tmp_path / "digits.png"
    found = main(epochs=15, picture=str(picture))
    assert found["accuracy"] >= 0.98
    assert found["losses"][-1] < 0.1 * found["losses"][0]
    assert found["programs"] <= 2  # whole batches, and the last one of an epoch
    assert picture.stat().st_size > 0

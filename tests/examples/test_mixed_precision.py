"""Where training ends in 16 bits, against where it ends in 32; and that it was 16 bits."""

import pytest

from examples.mixed_precision import PRECISIONS, main


@pytest.mark.parametrize("task", ["digits", "characters"])
def test_sixteen_bits_reach_the_loss_of_float32(task: str) -> None:
    found = main(steps=40, tasks=(task,))[task]
    exact = found["float32"]
    assert exact["held out"] < 0.8 * exact["losses"][0]
    for name in PRECISIONS:
        assert found[name]["held out"] == pytest.approx(exact["held out"], rel=0.02), name
        if name != "float32":
            assert found[name]["losses"] != exact["losses"], name

"""Training that is killed at any moment goes on, bit for bit, as if it had never been."""

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.serialization.killed import Training, digest

KILLS = 100


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL and fork")
def test_training_killed_a_hundred_times_goes_on_bit_for_bit(tmp_path: Any) -> None:
    path = tmp_path / "state.safetensors"
    command = [sys.executable, "-m", "tests.serialization.killed", str(path), str(KILLS), "0"]
    environment = {**os.environ, "WENGERT_NATIVE": "off", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=900)
    lives = [line.split() for line in done.stdout.splitlines()]
    assert len(lives) == KILLS
    assert all(len(life) == 5 and int(life[3]) == signal.SIGKILL for life in lives), lives

    steps = [int(life[0]) for life in lives]
    saves = [int(life[4]) for life in lives]  # what each process told of is there for the next one
    assert all(after >= before + told for (before, after), told in zip(pairwise(steps), saves, strict=False)), lives
    assert sum(saves[:-1]) > KILLS / 2  # they did train, at whatever speed
    assert len({step % 6 for step in steps}) == 6  # and stopped anywhere in the epochs of six batches
    assert any(int(life[2]) for life in lives)  # and in the middle of a save
    assert all(int(life[2]) < 2 for life in lives)  # whose rest the next save removes

    wanted = dict(zip(steps, (life[1] for life in lives), strict=True))
    training = Training()
    reached = {0: digest(training.state())}

    def note() -> bool:
        if training.step in wanted:
            reached[training.step] = digest(training.state())
        return training.step == steps[-1]

    training.run(note)
    assert {step: reached[step] for step in wanted} == wanted

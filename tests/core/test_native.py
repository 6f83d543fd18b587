"""The switch of native code: its modes, what sets them, and what a wrong word gets."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

import wengert as wg
from wengert.core.native import native
from wengert.settings import settings


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = settings.native, native.smallest
    yield
    settings.native, native.smallest = before


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def test_modes() -> None:
    for mode in ("auto", "wait", "off"):
        wg.backends.native.mode = mode
        assert wg.backends.native.mode == mode
        assert wg.backends.native.is_available() is (mode != "off")
        assert (wg.backends.native.smallest > 1 << 40) is (mode == "off")
    with pytest.raises(ValueError, match="'auto', 'wait', 'off', got 'on'"):
        wg.backends.native.mode = "on"


def test_deterministic_algorithms_are_those_that_are_waited_for() -> None:
    settings.native = "auto"
    assert not wg.are_deterministic_algorithms_enabled()
    wg.use_deterministic_algorithms(True)
    assert settings.native == "wait"
    assert wg.are_deterministic_algorithms_enabled()
    wg.use_deterministic_algorithms(False)
    assert settings.native == "auto"


def test_small_programs_load_no_compiler() -> None:
    code = "import sys, wengert as wg; (wg.randn(30, 30) * 2).sum(); print('llvmlite' in sys.modules)"
    assert run(code, WENGERT_NATIVE="auto").stdout.strip() == "False"


def test_in_the_background_the_first_result_is_numpys_and_later_ones_native() -> None:
    code = """
import numpy as np, wengert as wg
from wengert.runtime.launch import watched
x = wg.linspace(-3, 3, 100_000)
first = wg.sigmoid(x)
wg.backends.native.finish(); wg.sigmoid(x); wg.backends.native.finish()
with watched() as launches:
    later = wg.sigmoid(x)
print(len(launches), np.abs(first.numpy() - later.numpy()).max() < 2e-7)
"""
    found = run(code, WENGERT_NATIVE="auto")
    assert found.stdout.split() == ["1", "True"], found.stderr


def test_off_never_loads_it() -> None:
    code = "import sys, wengert as wg; (wg.randn(300, 300) * 2).sum(); print('wengert.runtime' in sys.modules)"
    assert run(code, WENGERT_NATIVE="off").stdout.strip() == "False"

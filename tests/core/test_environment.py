"""Variables of the environment: what each takes, and what a wrong value gets."""

import os
import subprocess
import sys
from typing import Any

import pytest

from wengert.codegen.target import LEVELS
from wengert.environment import VARIABLES, check_environment, variable

GOOD: list[tuple[str, str, Any]] = [
    ("WENGERT_NATIVE", "", "auto"),
    ("WENGERT_NATIVE", "wait", "wait"),
    ("WENGERT_NATIVE_SMALLEST", "0", 0),
    ("WENGERT_NUM_THREADS", "", None),
    ("WENGERT_NUM_THREADS", " 5 ", 5),
    ("WENGERT_CPU", "x86-64-v3", "x86-64-v3"),
    ("WENGERT_CPU_DEVICES", "3", 3),
    ("WENGERT_VECTOR_BYTES", "32", 32),
    ("WENGERT_MEMORY_LIMIT", "1.5 GiB", 3 << 29),
    ("WENGERT_CACHE", "", True),
    ("WENGERT_CACHE", "0", False),
    ("WENGERT_CACHE_LIMIT", "1", 1),
    ("WENGERT_BOUNDS_CHECK", "1", True),
    ("WENGERT_POOL_DEBUG", "0", False),
    ("WENGERT_ARRAY_API", "", False),
]
BAD = [
    ("WENGERT_NATIVE", "yes", "one of auto, wait, off"),
    ("WENGERT_NATIVE_SMALLEST", "few", "a number of elements"),
    ("WENGERT_NATIVE_SMALLEST", "-1", "a number of elements"),
    ("WENGERT_NUM_THREADS", "0", "a whole number from 1 to 1024"),
    ("WENGERT_NUM_THREADS", "²", "a whole number from 1 to 1024"),
    ("WENGERT_CPU", "pentium", "one of x86-64, x86-64-v2, x86-64-v3, x86-64-v4"),
    ("WENGERT_CPU_DEVICES", "0", "a positive number of devices"),
    ("WENGERT_CPU_DEVICES", "two", "a positive number of devices"),
    ("WENGERT_VECTOR_BYTES", "24", "16, 32 or 64"),
    ("WENGERT_MEMORY_LIMIT", "lots", "a size such as 512M or 2GiB"),
    ("WENGERT_MEMORY_LIMIT", "0", "a size such as 512M or 2GiB"),
    ("WENGERT_CACHE", "off", "0 or 1"),
    ("WENGERT_CACHE_LIMIT", "1GB", "a positive number of MiB"),
    ("WENGERT_CACHE_LIMIT", "0", "a positive number of MiB"),
    ("WENGERT_BOUNDS_CHECK", "yes", "0 or 1"),
    ("WENGERT_POOL_DEBUG", "2", "0 or 1"),
    ("WENGERT_ARRAY_API", "on", "0 or 1"),
]


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_values(name: str, text: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    assert variable(name) == value
    assert type(variable(name)) is type(value)


@pytest.mark.parametrize(("name", "text", "allowed"), BAD)
def test_a_wrong_value_is_named_with_what_is_allowed(
    name: str, text: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError) as caught:
        variable(name)
    assert str(caught.value) == f"{name} must be {allowed}, got {text!r}"
    with pytest.raises(ValueError, match=name):
        check_environment()


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "WENGERT_NATIVE": "auto", **environment},
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_the_import_finds_it(name: str) -> None:
    """Here, and not in the thread that loads native code while the program goes on."""
    found = run("import wengert; print('imported')", **{name: "?"})
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.rstrip().endswith(f"ValueError: {name} must be {VARIABLES[name].allowed}, got '?'")


def test_more_than_the_processor_has_is_said_once_and_numpy_goes_on() -> None:
    """That is known only once LLVM has been asked."""
    code = """
import wengert as wg
from wengert.codegen import target
target._features = lambda: {}
x = wg.rand(300, 300)
for _ in range(3):
    y = wg.sigmoid(x)
    wg.backends.native.finish()
print(wg.backends.native.mode, tuple(y.shape))
"""
    found = run(code, WENGERT_CPU="x86-64-v3")
    assert found.stdout == "off (300, 300)\n", found.stderr
    assert found.stderr.count("KernelError: native code cannot be used (WENGERT_CPU=x86-64-v3 needs sse4.2") == 1


def test_the_levels_of_processors_are_those_that_code_is_made_for() -> None:
    assert VARIABLES["WENGERT_CPU"].allowed == f"one of {', '.join(LEVELS)}"


def test_every_variable_is_documented() -> None:
    path = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "native.md")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert [name for name in VARIABLES if f"| `{name}` |" not in text] == []

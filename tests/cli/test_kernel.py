"""``python -m wengert kernel``: what an expression becomes, and what is wrong with it if it is none."""

import re

import pytest

from wengert.cli.command import main


def test_element_wise_parts_are_one_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "sigmoid(x) * y + 2", "--shapes", "x=30x40,y=40", "--show", "loops,speed"]) == 0
    shown = capsys.readouterr().out
    assert "kernel 1 of 1" in shown
    assert "sigmoid(x0[i0, i1]) * x1[i0, i1] + 2.0" in shown
    assert re.search(r"\d+\.\d µs: \d+\.\d Gflop/s, \d+\.\d GB/s", shown)


def test_other_operators_run_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "exp(x) + sum(z * z, -1)", "--shapes", "x=30,z=30x64", "--show", "loops"]) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith("kernel ") and " of " in line] == [
        "kernel 1 of 3", "kernel 2 of 3", "kernel 3 of 3",
    ]  # fmt: skip
    assert "sum(x[i0, i1])" in shown


def test_llvm_and_assembly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "x + x", "--shapes", "x=100", "--dtype", "float64", "--show", "llvm,assembly"]) == 0
    shown = capsys.readouterr().out
    assert "define void @kernel(" in shown
    assert "double" in shown


@pytest.mark.parametrize(("arguments", "message"), [
    (["x +", "--shapes", "x=3"], "not a Python expression"),
    (["x + y", "--shapes", "x=3"], "does not say what 'y' is"),
    (["nonsense(x)", "--shapes", "x=3"], "no such operator"),
    (["x", "--shapes", "x"], "NAME=SIZExSIZE"),
    (["x", "--shapes", "x=-3"], "NAME=SIZExSIZE|negative"),
    (["x.y", "--shapes", "x=3"], "is not a tensor, a number, an operator or arithmetic"),
    (["__import__('os')", "--shapes", "x=3"], "no such operator"),
    (["x + x", "--shapes", "x=3", "--show", "pictures"], "--show takes"),
    (["x", "--shapes", "x=3"], "runs no native kernel"),
])  # fmt: skip
def test_what_is_wrong_is_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", *arguments]) == 1
    assert re.search(message, capsys.readouterr().err)

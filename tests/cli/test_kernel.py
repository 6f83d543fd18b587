"""``python -m wengert kernel``: what an expression becomes, and what is wrong with it if it is none."""

import re
from types import SimpleNamespace

import pytest

from wengert.cli import kernel
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


def test_several_tensors_are_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "cat([exp(x), x], -1)", "--shapes", "x=30x40", "--show", "loops"]) == 0
    assert "exp(x0[i0])" in capsys.readouterr().out


def test_the_roof_is_that_of_the_dtype(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand exponentials of 20 operations, on a machine that does 1 Gflop/s in float32 and 0.5 in float64."""
    machine = SimpleNamespace(float32_all=1e9, float64_all=0.5e9, copy_all=1e15)
    monkeypatch.setattr(kernel, "measured", lambda: machine)
    for dtype, roof in (("float32", 200), ("float64", 400)):
        assert main(["kernel", "exp(x)", "--shapes", "x=10000", "--dtype", dtype, "--show", "speed"]) == 0
        found = re.search(r"from memory in (\d+\.\d) µs", capsys.readouterr().out)
        assert found is not None
        assert float(found[1]) == pytest.approx(roof, rel=0.03)  # the last vector is counted whole


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
    (["x", "--shapes", "x=3,x=4"], "names 'x' twice"),
    (["x", "--shapes", "x=99999999999x99999999999"], "'x' of x=9.*too big"),
    (["x + y", "--shapes", "x=3,y=4"], r"'x \+ y' of x=3,y=4: .*shape"),
    (["softmax(x)", "--shapes", "x=3"], "misses argument dim"),
    (["softmax(x, dim=7)", "--shapes", "x=3"], "dim=7 is out of range"),
    (["exp", "--shapes", "x=3"], r"'exp' is an operator: say of what, as in 'exp\(x\)'"),
    (["exp(x)(x)", "--shapes", "x=3"], r"no such operator: 'exp\(x\)'"),
    (["sum(x, dim=x)", "--shapes", "x=3"], "an option must be written out, such as dim=0, got 'dim=x'"),
    (["sum(x, **x)", "--shapes", "x=3"], r"got '\*\*x'"),
    (["[x, x]", "--shapes", "x=3"], r"'\[x, x\]' is not a tensor"),
    (["not x", "--shapes", "x=3"], "'not x' is not a tensor"),
    (["x & x", "--shapes", "x=3"], "must be an integral tensor"),
    (["sin(1.0)", "--shapes", "x=3"], "make it one with wengert.tensor"),
    (["x+" * 3000 + "x", "--shapes", "x=3"], "recursion"),
])  # fmt: skip
def test_what_is_wrong_is_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", *arguments]) == 1
    assert re.search(message, capsys.readouterr().err)

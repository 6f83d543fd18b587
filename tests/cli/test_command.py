"""The command line as a user meets it: help, right calls, wrong calls."""

import subprocess
import sys

import pytest

import wengert as wg
from wengert.cli import main
from wengert.core.registry import operators
from wengert.extras import MissingExtraError, require


def test_it_runs_as_a_module() -> None:
    run = subprocess.run([sys.executable, "-m", "wengert", "--help"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    for command in ("demo", "ops", "info"):
        assert command in run.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["unknown"], "invalid choice: 'unknown'"),
        (["demo", "--epochs", "0"], "must be a positive number, got 0"),
        (["demo", "--epochs", "many"], "invalid int value: 'many'"),
        (["demo", "--lr", "nan"], "must be a positive number, got nan"),
        (["demo", "--model", "rnn"], "invalid choice: 'rnn'"),
        (["ops", "tanh", "sin"], "unrecognized arguments: sin"),
    ],
)
def test_wrong_arguments_are_named(arguments, message, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_all_operators_are_listed(capsys) -> None:
    assert main(["ops"]) == 0
    listed = capsys.readouterr().out
    for op in operators().values():
        assert f"  {op.signature}  —  " in listed


def test_one_family_is_listed(capsys) -> None:
    assert main(["ops", "--family", "elementwise"]) == 0
    listed = capsys.readouterr().out
    assert "tanh(" in listed
    assert "matmul(" not in listed


@pytest.mark.parametrize("name", sorted(operators()))
def test_every_operator_is_described(name, capsys) -> None:
    assert main(["ops", name]) == 0
    text = capsys.readouterr().out
    for word in (f"{name}(", "family", "shape", "dtype", "devices", "cost"):
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ops", "tnah"], "there is no operator 'tnah'; the nearest are: tanh"),
        (["ops", "zzzzzz"], "there is no operator 'zzzzzz'; `python -m wengert ops` lists them all"),
        (["ops", "--family", "element"], "there is no family 'element'"),
    ],
)
def test_unknown_names_get_the_nearest(arguments, message, capsys) -> None:
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


def test_info_names_versions_processor_and_blas(capsys) -> None:
    assert main(["info"]) == 0
    facts = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert facts["wengert"] == wg.__version__
    assert facts["numpy"][0].isdigit()
    assert {"python", "processor", "cores", "BLAS"} <= facts.keys()


def test_a_missing_extra_is_named(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert main(["demo", "--out", str(tmp_path / "out")]) == 1
    message = capsys.readouterr().err
    assert "'tqdm'" in message
    assert "pip install 'wengert[demo]'" in message
    assert not (tmp_path / "out").exists()


def test_a_broken_package_is_not_called_missing(tmp_path, monkeypatch) -> None:
    (tmp_path / "broken_extra.py").write_text("import what_it_needs_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtraError, match="surely_absent"):
        require("surely_absent", "demo")
    with pytest.raises(ModuleNotFoundError, match="what_it_needs") as error:
        require("broken_extra", "demo")
    assert not isinstance(error.value, MissingExtraError)

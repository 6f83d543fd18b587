"""``cache`` and ``machine`` as a user meets them."""

from dataclasses import fields

import pytest

from wengert.cli import main
from wengert.cli.machine import table
from wengert.codegen.cache import environment, store
from wengert.runtime import machine
from wengert.runtime.machine import Machine

KEY, CODE = b"k" * 32, b"object code" * 100


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("WENGERT_CACHE_DIR", str(tmp_path / "kernels"))
    for name in ("WENGERT_CACHE", "WENGERT_CACHE_LIMIT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "kernels"


def shown(capsys) -> dict[str, str]:
    assert main(["cache"]) == 0
    return dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())


def row(facts: dict[str, str], name: str) -> str:
    return facts[name].strip()


def test_show(directory, capsys) -> None:
    store().put(environment(), KEY, CODE)
    store().put(b"another machine".ljust(32), KEY, CODE)
    for _ in range(3):
        store().get(environment(), KEY)
    facts = shown(capsys)
    assert row(facts, "directory") == str(directory)
    assert row(facts, "in use") == "yes"
    assert row(facts, "kernels") == "2, 0.0 MiB of at most 256.0 MiB"
    assert row(facts, "for this machine and version") == "1"
    assert row(facts, "hits") == "3"
    assert row(facts, "damaged") == "0"


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        (lambda directory, patch: patch.setenv("WENGERT_CACHE", "0"), "no: WENGERT_CACHE is 0"),
        (lambda directory, patch: directory.write_text(""), "no: "),
        (lambda directory, patch: (directory.mkdir(), directory.chmod(0o777)), "no: others may write to it"),
    ],
)
def test_show_says_why_nothing_is_kept(prepare, expected, directory, monkeypatch, capsys) -> None:
    prepare(directory, monkeypatch)
    facts = shown(capsys)
    assert row(facts, "in use").startswith(expected)
    assert row(facts, "kernels").startswith("0, ")


def test_verify_names_the_damaged(directory, capsys) -> None:
    assert main(["cache", "verify"]) == 0
    assert capsys.readouterr().out == "0 kernels, all as they were written\n"
    store().put(environment(), KEY, CODE)
    store().put(environment(), bytes(32), CODE)
    damaged, _ = sorted(directory.iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert main(["cache", "verify"]) == 1
    out, error = capsys.readouterr()
    assert out == f"{damaged}: {len(CODE) - 1} bytes of code, not {len(CODE)}\n"
    assert "1 of 2 kernels are damaged" in error


def test_clear_removes_our_files_alone(directory, capsys) -> None:
    store().put(environment(), KEY, CODE)
    (directory / "mine.txt").write_text("")
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"removed 1 files from {directory}\n"
    assert [path.name for path in directory.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("command", ["cache", "machine"])
def test_wrong_settings_are_named(command, monkeypatch, capsys) -> None:
    monkeypatch.setenv("WENGERT_CACHE_LIMIT", "much")
    assert main([command]) == 1
    assert "WENGERT_CACHE_LIMIT must be a positive number of MiB, got 'much'" in capsys.readouterr().err


def test_machine_says_when_nothing_is_kept(monkeypatch, capsys) -> None:
    monkeypatch.setattr(machine, "_best_rate", lambda *_: 2.5e10)
    monkeypatch.setenv("WENGERT_CACHE", "0")
    assert main(["machine", "--seconds", "0.1"]) == 0
    assert "not kept" in capsys.readouterr().out


def test_machine_prints_a_table(monkeypatch, capsys) -> None:
    monkeypatch.setattr(machine, "_best_rate", lambda *_: 2.5e10)
    monkeypatch.setattr(machine, "_overhead", lambda *_: 1.5e-6)
    assert main(["machine", "--seconds", "0.1"]) == 0
    out = capsys.readouterr().out
    assert "25.0 Gflop/s" in out
    assert "25.0 GB/s" in out
    assert "1.50 µs" in out
    assert store().read(machine._file()) is not None


def test_the_table_shows_every_number() -> None:
    sizes = {"threads": 77, "l1": 48 << 10, "l2": 2 << 20, "l3": 36 << 20}
    times = {"call": 1.25e-6, "parallel": 3.5e-6}
    names = [field.name for field in fields(Machine) if field.name not in sizes | times]
    rates = {name: (i + 100) * 1e9 for i, name in enumerate(names)}
    text = " ".join(" ".join(line) for line in table(Machine(**sizes, **times, **rates)))
    for expected in ("77 threads", "L1 48 KiB", "L2 2 MiB", "L3 36 MiB", "1.25 µs", "3.50 µs"):
        assert expected in text
    for name, rate in rates.items():
        assert f"{rate / 1e9:.1f} {'Gflop' if name.startswith('float') else 'GB'}/s" in text, name


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "601", "long"])
def test_seconds_must_make_sense(seconds, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["machine", "--seconds", seconds])
    assert stop.value.code == 2
    assert "--seconds" in capsys.readouterr().err

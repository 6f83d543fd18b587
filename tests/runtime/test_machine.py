"""Measurements are plausible, kept, read back, and not believed when they cannot be right."""

import json
from dataclasses import asdict, fields, replace

import numpy as np
import pytest

from wengert.codegen.cache import store
from wengert.codegen.target import host
from wengert.runtime import machine
from wengert.runtime.machine import Machine, measure, measured
from wengert.runtime.threads import get_num_threads


@pytest.fixture(autouse=True)
def _own_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("WENGERT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("WENGERT_CACHE", raising=False)
    measured.cache_clear()
    yield
    measured.cache_clear()


@pytest.fixture(scope="module")
def found() -> Machine:
    return measure(0.05)


def test_what_is_measured_is_plausible(found) -> None:
    assert found.threads >= 1
    assert 4 << 10 <= found.l1 <= found.l2 <= found.l3 <= 4 << 30
    for name, value in asdict(found).items():
        low, high = (1e-8, 1e-2) if name in ("call", "parallel") else (1e7, 1e15)
        if name not in ("threads", "l1", "l2", "l3"):
            assert low < value < high, name


def test_float64_has_half_the_lanes(found) -> None:
    assert 0.8 < found.float32 / found.float64 < 5
    assert found.read_l1 > 0.8 * found.read_memory


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_as_much_is_computed_as_is_counted(dtype) -> None:
    """x ← x·½ + ½ from 0, n times: 1 - 2⁻ⁿ, in every chain of every part."""
    work = machine._flops(dtype, 3)
    work.arguments[3] = 5
    work.function(work.arguments.ctypes.data, 0, 3)
    values = work.memory[0].view(dtype)
    assert (values == 1 - 2.0**-5).all()
    assert 2 * values.size / 3 == work.amount


def test_as_much_is_copied_as_is_counted() -> None:
    size = 3 * 4096
    source, target = machine._buffer(size), machine._buffer(size)
    source[:] = np.arange(size) % 251
    work = machine._moving("copy", source, target, size, 2)
    work.function(work.arguments.ctypes.data, 0, 2)
    whole = int(work.amount)  # read and written, in one of two parts
    assert whole % (2 * machine.STREAMS * host().vector_bytes) == 0
    assert (target[:whole] == source[:whole]).all()
    assert (target[whole:] == 1).all()


def test_a_measurement_is_kept_and_read(found, monkeypatch) -> None:
    monkeypatch.setattr(machine, "measure", lambda **_: pytest.fail("it was measured already"))
    store().write(machine._file(), json.dumps(asdict(found)).encode())
    assert measured() == found
    assert measured() is measured()


def test_what_is_known_without_measuring(found, monkeypatch) -> None:
    """What was kept for so many threads, or else a usual machine; either is the same every time."""
    monkeypatch.setattr(machine, "measure", lambda **_: pytest.fail("there is no time to measure"))
    threads = get_num_threads()
    machine._known.cache_clear()
    assert machine.known() == machine.nominal(threads)
    store().write(machine._file(threads), json.dumps(asdict(found)).encode())
    assert machine.known() == machine.nominal(threads)
    machine._known.cache_clear()
    assert machine.known() == found
    machine._known.cache_clear()


def test_a_usual_machine() -> None:
    one, four = machine.nominal(1), machine.nominal(4)
    assert (one.threads, four.threads) == (1, 4)
    assert one.float32_all == one.float32 == 2 * one.float64
    assert four.float32_all == 4 * four.float32
    assert all(value > 0 for value in asdict(four).values())
    assert one.copy_l1 > one.copy_l2 > one.copy_l3 > one.copy_memory


def test_all_threads_do_at_least_what_one_does(monkeypatch) -> None:
    """Where others keep the second thread from running, what was measured means nothing."""
    monkeypatch.setattr(machine, "_best_rate", lambda work, threads, share: 1e9 if threads == 1 else 1e6)
    monkeypatch.setattr(machine, "_overhead", lambda *_: 1e-6)
    monkeypatch.setattr(machine, "get_num_threads", lambda: 2)
    found = measure(0.01)
    assert found.float32_all == found.float64_all == found.read_all == found.copy_all == 1e9


def test_it_is_measured_when_nothing_is_kept(found, monkeypatch) -> None:
    monkeypatch.setattr(machine, "measure", lambda **_: found)
    assert measured() is found


def test_measure_keeps_what_it_finds(monkeypatch) -> None:
    monkeypatch.setattr(machine, "_best_rate", lambda *_: 1e9)
    monkeypatch.setattr(machine, "_overhead", lambda *_: 1e-6)
    found = measure(0.01, keep=True)
    assert measured() == found
    assert store().read(machine._file()) is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"",
        lambda text: text[:-10],
        lambda text: b"[1, 2]",
        lambda text: b"null",
        lambda text: b"\xff\xfe",
        lambda text: text.replace(b'"call"', b'"ring"'),
        lambda text: text.replace(b'"threads": ', b'"threads": -'),
        lambda text: text.replace(b'"threads": ', b'"threads": 1e999'),
        lambda text: text.replace(b'"threads": ', b'"threads": "many", "x": '),
    ],
)
def test_numbers_that_cannot_be_are_measured_again(change, found, monkeypatch) -> None:
    other = replace(found, threads=77)
    monkeypatch.setattr(machine, "measure", lambda **_: other)
    store().write(machine._file(), change(json.dumps(asdict(found)).encode()))
    assert measured() is other


def test_another_machine_has_another_file(monkeypatch) -> None:
    mine = machine._file()
    monkeypatch.setattr(machine, "host", lambda: host()._replace(cpu="another"))
    assert machine._file() != mine


def test_every_number_is_described() -> None:
    assert all(f"{field.name}" in (Machine.__doc__ or "") for field in fields(Machine))

"""Schedules beside what was measured: the numbers are there for each policy. No time is judged."""

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import schedules
from wengert.runtime import overlap
from wengert.runtime.machine import nominal
from wengert.runtime.threads import get_num_threads, set_num_threads


def test_what_is_found_of_two_towers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = get_num_threads()
    set_num_threads(2)
    for module in (overlap, schedules):
        monkeypatch.setattr(module, "known", lambda: nominal(2))
    try:
        found = schedules.compared(schedules.towers, 2)
        for policy, (plan, numbers) in found.items():
            schedules.pictures(tmp_path, "two towers, small", policy, plan)
            assert min(numbers[:3]) > 0
            assert math.isnan(numbers.utilisation) == (policy == "topological")
    finally:
        set_num_threads(before)
    assert list(found) == ["topological", "ready", "priority"]
    assert found["priority"][1].reckoned < found["topological"][1].reckoned
    drawn = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert drawn[0] == "two-towers-priority-expected.svg"
    assert any(name.startswith("two-towers-ready-measured") for name in drawn)
    assert all(ElementTree.parse(tmp_path / name) for name in drawn)
    assert len(list(tmp_path.glob("*.json"))) == len(drawn)


def test_there_are_five_models() -> None:
    assert len({name for name, _ in schedules.models()}) == 5

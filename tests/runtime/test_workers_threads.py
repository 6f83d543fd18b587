"""How many threads there are: the user's choice, the environment, the processors, their quota; and the BLAS's threads."""

import math
import os
import threading
from pathlib import Path

import pytest

from wengert.runtime import threads
from wengert.runtime.threads import blas_threads, get_num_threads, processor_quota, set_num_threads


@pytest.fixture(autouse=True)
def _restore(monkeypatch: pytest.MonkeyPatch):
    number, calls = get_num_threads(), threads.blas_calls()
    blas = calls.get() if calls else 0
    yield
    monkeypatch.undo()
    set_num_threads(number)
    if calls:
        calls.set(blas)


@pytest.fixture
def unchosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has asked yet."""
    monkeypatch.setattr(threads, "chosen", threads.Chosen())
    monkeypatch.delenv("WENGERT_NUM_THREADS", raising=False)


def test_there_are_as_many_threads_as_processors(unchosen: None) -> None:
    assert get_num_threads() == threads.available_processors()
    assert 1 <= get_num_threads() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity masks")
def test_the_affinity_mask_counts(unchosen: None) -> None:
    mask = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(mask)})
        assert get_num_threads() == 1
    finally:
        os.sched_setaffinity(0, mask)


@pytest.mark.parametrize(("quota", "number"), [(0.2, 1), (1.0, 1), (1.5, 2), (1e6, None), (math.inf, None)])
def test_the_quota_counts(quota: float, number: int | None, unchosen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = threads.available_processors()
    monkeypatch.setattr(threads, "processor_quota", lambda: quota)
    assert get_num_threads() == min(number or everything, everything)


@pytest.mark.parametrize(("value", "number"), [("1", 1), ("3", 3), (" 5 ", 5), ("1024", 1024)])
def test_the_environment_chooses(value: str, number: int, unchosen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WENGERT_NUM_THREADS", value)
    assert get_num_threads() == number


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "1025", "1 2", "²"])
def test_a_wrong_number_in_the_environment(value: str, unchosen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WENGERT_NUM_THREADS", value)
    with pytest.raises(ValueError, match=f"WENGERT_NUM_THREADS must be a whole number from 1 to 1024, got '{value}'"):
        get_num_threads()


def test_an_empty_variable_is_none(unchosen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WENGERT_NUM_THREADS", "")
    assert get_num_threads() == threads.available_processors()


@pytest.mark.parametrize("number", [1, 2, 7])
def test_the_user_chooses(number: int) -> None:
    set_num_threads(number)
    assert get_num_threads() == number


@pytest.mark.parametrize("number", [0, -2, 1025])
def test_a_number_out_of_range(number: int) -> None:
    with pytest.raises(RuntimeError, match=f"set_num_threads expects an integer from 1 to 1024, got {number}"):
        set_num_threads(number)


@pytest.mark.parametrize("number", ["2", 2.0, None, True])
def test_what_is_no_number(number: object) -> None:
    with pytest.raises(TypeError, match=f"set_num_threads expects an int, but got {type(number).__name__}"):
        set_num_threads(number)


# Control groups: the lines of /proc/self/cgroup, the files below /sys/fs/cgroup, and the quota that they mean.
GROUPS = {
    "none": ("", {}, math.inf),
    "version 2, no limit": ("0::/a\n", {"a/cpu.max": "max 100000\n"}, math.inf),
    "version 2": ("0::/a/b\n", {"a/b/cpu.max": "150000 100000\n"}, 1.5),
    "version 2, a parent's": ("0::/a/b\n", {"a/cpu.max": "50000 100000\n", "a/b/cpu.max": "200000 100000\n"}, 0.5),
    "version 2, in a container": ("0::/\n", {"cpu.max": "400000 100000\n"}, 4.0),
    "version 2, beside version 1": ("1:memory:/\n0::/a\n", {"unified/a/cpu.max": "300000 100000\n"}, 3.0),
    "version 1": ("3:cpuset:/x\n1:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "250000", "cpu/a/cpu.cfs_period_us": "100000"}, 2.5),
    "version 1, no limit": ("1:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, math.inf),
    "version 1, joined": (
        "4:cpu,cpuacct:/\n",
        {"cpu,cpuacct/cpu.cfs_quota_us": "100000", "cpu,cpuacct/cpu.cfs_period_us": "50000"},
        2.0,
    ),
    "version 1, the host's path": (
        "4:cpu:/docker/0123\n",
        {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"},
        1.0,
    ),
    "a damaged file": ("0::/a\n", {"a/cpu.max": "soon\n"}, math.inf),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_quotas_of_control_groups(name: str, tmp_path: Path) -> None:
    lines, files, quota = GROUPS[name]
    (tmp_path / "cgroup").write_text(lines)
    for path, text in files.items():
        target = tmp_path / "fs" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    assert processor_quota(tmp_path / "cgroup", tmp_path / "fs") == quota


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert processor_quota(tmp_path / "absent", tmp_path) == math.inf


needs_blas = pytest.mark.skipif(threads.blas_calls() is None, reason="this BLAS's threads cannot be counted")


@needs_blas
def test_the_blas_follows_the_number_of_threads() -> None:
    calls = threads.blas_calls()
    assert calls
    for number in (1, 2):
        set_num_threads(number)
        assert calls.get() == number


@needs_blas
def test_the_blas_is_held_down_and_let_go() -> None:
    calls = threads.blas_calls()
    assert calls
    calls.set(2)
    with blas_threads(1):
        assert calls.get() == 1
        with blas_threads(2):
            assert calls.get() == 1
    assert calls.get() == 2
    with pytest.raises(ZeroDivisionError), blas_threads(1):
        raise ZeroDivisionError
    assert calls.get() == 2


@needs_blas
def test_holding_does_not_raise_the_number() -> None:
    calls = threads.blas_calls()
    assert calls
    calls.set(1)
    with blas_threads(2):
        assert calls.get() == 1


@needs_blas
def test_a_choice_while_it_is_held_counts_afterwards() -> None:
    calls = threads.blas_calls()
    assert calls
    with blas_threads(1):
        set_num_threads(2)
        assert calls.get() == 1
    assert calls.get() == 2


@needs_blas
def test_holds_of_threads_overlap_in_any_order() -> None:
    calls = threads.blas_calls()
    assert calls
    calls.set(2)
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with blas_threads(1):
            first_in.set()
            second_in.wait(20)
        first_out.set()

    thread = threading.Thread(target=first)
    thread.start()
    first_in.wait(20)
    with blas_threads(1):
        second_in.set()
        first_out.wait(20)
        assert calls.get() == 1
    thread.join()
    assert calls.get() == 2


def test_less_than_one_thread_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        blas_threads(0)

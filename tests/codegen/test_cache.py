"""Kernels come from this process, from disk, or from LLVM: in this order, and each is compiled once."""

import ctypes
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from wengert.codegen import cache
from wengert.codegen.cache import counters, library, store
from wengert.codegen.emit import bounds_checked
from wengert.codegen.engine import Library

PROGRAM = """
import ctypes, sys
from wengert.codegen import cache
from wengert.codegen.cache import counters, library
cache.environment = lambda: bytes(32)  # whoever edits the code generator meanwhile does not make it another one
def text(i):
    return f"define i64 @f(i64 %x) {{\\n %y = add i64 %x, {i}\\n ret i64 %y\\n}}"
for i in range(int(sys.argv[1])):
    function = library(f"add {i}", ["f"], lambda: text(i)).function("f", ctypes.c_int64, ctypes.c_int64)
    assert function(1) == i + 1
found = counters()
print(found.disk, found.compiled, found.stored)
"""


@pytest.fixture(autouse=True)
def _own_directory(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WENGERT_CACHE_DIR", str(tmp_path / "kernels"))
    for name in ("WENGERT_CACHE", "WENGERT_CACHE_LIMIT"):
        monkeypatch.delenv(name, raising=False)


def text(number: int) -> str:
    return f"define i64 @f(i64 %x) {{\n %y = add i64 %x, {number}\n ret i64 %y\n}}"


def value(found: Library) -> int:
    return found.function("f", ctypes.c_int64, ctypes.c_int64)(0)


def run(*arguments: str, program: str = PROGRAM) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program, *arguments]  # of fork
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


class Count:
    """What has happened since it was made."""

    def __init__(self) -> None:
        self.before = counters()

    def __call__(self) -> tuple[int, int, int, int]:
        now, was = counters(), self.before
        return now.memory - was.memory, now.disk - was.disk, now.compiled - was.compiled, now.stored - was.stored


def never() -> str:
    raise AssertionError("this kernel need not be built")


def test_memory_then_disk_then_llvm() -> None:
    count = Count()
    kept = library("one", ["f"], lambda: text(1))
    assert count() == (0, 0, 1, 1)
    assert library("one", ["f"], never) is kept
    assert count() == (1, 0, 1, 1)
    del kept
    gc.collect()
    assert value(library("one", ["f"], never)) == 1
    assert count() == (1, 1, 1, 1)


def test_time_is_counted() -> None:
    before = counters()
    library("time", ["f"], lambda: text(0))
    assert counters().compile_seconds > before.compile_seconds
    assert counters().link_seconds > before.link_seconds


def test_the_text_may_be_the_key() -> None:
    count = Count()
    assert value(library(text(5), ["f"])) == 5
    assert value(library(text(5), ["f"])) == 5
    assert value(library(text(6), ["f"])) == 6
    assert count() == (0, 1, 2, 2)


@pytest.mark.skipif(bounds_checked(), reason="of code without bounds checks")
def test_the_key_is_the_whole_key(monkeypatch) -> None:
    """Other names, another machine or version, or checks of bounds: another kernel."""
    two = text(1) + text(2).replace("@f", "@g")
    kept = [library("key", ["f"], lambda: two)]
    assert library("key", ["f", "g"], lambda: two) is not kept[0]
    monkeypatch.setenv("WENGERT_BOUNDS_CHECK", "1")
    assert value(library("key", ["f"], lambda: text(3))) == 3
    monkeypatch.setenv("WENGERT_BOUNDS_CHECK", "")
    kept.clear()
    monkeypatch.setattr(cache, "environment", lambda: b"another machine".ljust(32))
    assert value(library("key", ["f"], lambda: text(4))) == 4


def test_parts_of_a_key_do_not_run_together() -> None:
    assert cache._digest("ab", "c") != cache._digest("a", "bc") != cache._digest("abc")


def test_nothing_is_kept_if_so_asked(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("WENGERT_CACHE", "0")
    count = Count()
    library("off", ["f"], lambda: text(1))
    library("off", ["f"], lambda: text(1))
    assert count() == (0, 0, 2, 0)
    assert not (tmp_path / "kernels").exists()


def test_a_directory_that_cannot_be_is_no_harm(monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WENGERT_CACHE_DIR", str(tmp_path / "file" / "kernels"))
    count = Count()
    assert value(library("nowhere", ["f"], lambda: text(1))) == 1
    assert count() == (0, 0, 1, 0)


@pytest.mark.parametrize("code", [b"", b"not object code", b"\x7fELF" + bytes(60)])
def test_code_that_cannot_be_linked_is_replaced(code, capfd) -> None:
    """Its checksum is right: it was stored so."""
    identity = ("bad", os.environ.get("WENGERT_BOUNDS_CHECK", ""), "f")
    store().put(cache.environment(), cache._digest(*identity), code)
    count = Count()
    assert value(library("bad", ["f"], lambda: text(7))) == 7
    assert value(library("bad", ["f"], never)) == 7
    assert count() == (0, 1, 1, 1)
    assert capfd.readouterr().err == ""


def test_a_truncated_file_is_replaced() -> None:
    library("cut", ["f"], lambda: text(1))
    (file,) = store().files()
    file.path.write_bytes(file.path.read_bytes()[:-5])
    assert value(library("cut", ["f"], lambda: text(2))) == 2
    assert [file.fault for file in store().files()] == [""]


def test_an_error_is_everybodys_own() -> None:
    """Nothing is left behind: the next one tries again."""
    for _ in range(2):
        with pytest.raises(RuntimeError, match="expected"):
            library("wrong", ["f"], lambda: "define nonsense")
    assert value(library("wrong", ["f"], lambda: text(1))) == 1


def test_a_kernel_of_itself_is_an_error() -> None:
    def build() -> str:
        library("itself", ["f"], build)
        return text(1)

    with pytest.raises(RuntimeError, match="'itself' asks for that kernel itself"):
        library("itself", ["f"], build)


def test_threads_compile_a_kernel_once() -> None:
    together, kept, count = threading.Barrier(8), [], Count()

    def ask() -> None:
        together.wait()
        for key in range(5):
            kept.append(library(f"shared {key}", ["f"], lambda key=key: text(key)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept) == 40
    assert len(set(map(id, kept))) == 5
    assert count() == (35, 0, 5, 5)


def test_who_waits_tries_again_if_the_other_fails() -> None:
    inside, waiting = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def fail() -> str:
        inside.set()
        waiting.wait(60)
        raise KeyError("mine alone")

    def first() -> None:
        try:
            library("twice", ["f"], fail)
        except KeyError as error:
            failed.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(60)
    threading.Timer(0.05, waiting.set).start()
    assert value(library("twice", ["f"], lambda: text(3))) == 3
    thread.join()
    assert len(failed) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_does_not_wait_for_its_parents_threads() -> None:
    program = """
import os, threading
from wengert.codegen.cache import library
inside, over = threading.Event(), threading.Event()
text = "define i64 @f(i64 %x) {\\n ret i64 %x\\n}"
def build():
    inside.set()
    over.wait(60)
    return text
thread = threading.Thread(target=library, args=("forked", ["f"], build))
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    library("forked", ["f"], lambda: text)
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
over.set()
thread.join()
"""
    process = run(program=program)
    out, error = process.communicate(timeout=60)
    assert out == "3\n", error


def test_processes_fill_it_at_once() -> None:
    """Three at a time find, or compile, the same twenty kernels; another finds them all."""
    for process in [run("20") for _ in range(3)]:
        out, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
        disk, compiled, stored = map(int, out.split())
        assert disk + compiled == 20
        assert compiled == stored
    out, _ = run("20").communicate(timeout=120)
    assert out == "20 0 0\n"
    assert [file.fault for file in store().files()] == [""] * 20


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("WENGERT_CACHE", "off", "WENGERT_CACHE must be 0 or 1, got 'off'"),
        ("WENGERT_CACHE_LIMIT", "0", "must be a positive number of MiB, got '0'"),
        ("WENGERT_CACHE_LIMIT", "1GB", "got '1GB'"),
    ],
)
def test_wrong_values_are_named(name, value, message, monkeypatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        store()


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "/home/ada/.cache/wengert"),
        ("linux", {"XDG_CACHE_HOME": "/fast"}, "/fast/wengert"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/ada/.cache/wengert"),
        ("darwin", {}, "/home/ada/Library/Caches/wengert"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/wengert/Cache"),
        ("win32", {}, None),
        ("linux", {"WENGERT_CACHE_DIR": "/mine"}, "/mine"),
    ],
)
def test_the_directory_is_the_platforms(platform, environment, expected, monkeypatch) -> None:
    for name in ("WENGERT_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cache.sys, "platform", platform)
    monkeypatch.setattr(cache.Path, "home", lambda: Path("/home/ada"))
    assert store().directory == (None if expected is None else Path(expected))


def test_without_a_home_nothing_is_kept(monkeypatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("WENGERT_CACHE_DIR")
    monkeypatch.setattr(cache.Path, "home", homeless)
    assert "no home directory" in store().trouble()

"""From LLVM IR to functions: right results, clear errors, and code that goes when nobody holds it."""

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from wengert.codegen import engine
from wengert.codegen.binding import compiling
from wengert.codegen.engine import Library, assembly, compile_object, load, optimised

TWICE = "define i64 @twice(i64 %x) {\n %y = add i64 %x, %x\n ret i64 %y\n}"
COPY = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define void @copy(ptr %to, ptr %from, i64 %n) {
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  ret void
}"""
BUSY = """
import ctypes, os, sys, threading, time
from wengert.codegen.engine import compile_object, load
def text(i):
    return f"define i64 @f(i64 %x) {{\\n %y = add i64 %x, {i}\\n ret i64 %y\\n}}"
def compile_for_ever():
    while True:
        for i in range(100):
            load(text(i), ["f"])
for _ in range(2):
    threading.Thread(target=compile_for_ever, daemon=True).start()
"""


def twice(library: Library) -> int:
    return library.function("twice", ctypes.c_int64, ctypes.c_int64)(21)


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program, *arguments]  # of fork
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)


def test_a_function_computes() -> None:
    library = load(TWICE, ["twice"])
    assert twice(library) == 42
    assert library.function("twice", ctypes.c_int64, ctypes.c_int64, gil=True)(-4) == -8


def test_a_function_keeps_its_code() -> None:
    function = load(TWICE, ["twice"]).function("twice", ctypes.c_int64, ctypes.c_int64)
    load(TWICE, ["twice"])
    assert function(5) == 10


def test_functions_of_the_process_are_found() -> None:
    source, target = ctypes.create_string_buffer(b"abc"), ctypes.create_string_buffer(4)
    copy = load(COPY, ["copy"]).function("copy", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    copy(ctypes.addressof(target), ctypes.addressof(source), 4)
    assert target.value == b"abc"


def test_the_text_is_optimised() -> None:
    text = "define i64 @f(i64 %x) {\n %a = mul i64 %x, 0\n %b = add i64 %a, %x\n ret i64 %b\n}"
    assert "mul" not in optimised(text)
    assert "ret" in assembly(text)


def test_loops_are_left_as_they_are() -> None:
    """Kernels say themselves what is a vector and what is unrolled."""
    text = """define void @f(ptr noalias %a, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %p = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %p
  %y = fmul float %x, 2.0
  store float %y, ptr %p
  %j = add i64 %i, 1
  %c = icmp slt i64 %j, %n
  br i1 %c, label %loop, label %done
done:
  ret void
}"""
    assert " x float>" not in optimised(text)
    assert optimised(text).count("fmul") == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: compile_object("define nonsense"), "expected type"),
        (lambda: compile_object("define i64 @f(i64 %x) {\n ret i32 0\n}"), "value doesn't match"),
        (lambda: Library(b"junk" * 20, ["f"]), "could not link f: .*not recognized"),
        (lambda: Library(compile_object(TWICE)[:300], ["twice"]), "could not link twice"),
        (lambda: Library(compile_object(TWICE), ["twice", "thrice"]), "could not link twice, thrice: .*thrice"),
        (
            lambda: load("declare void @no_such()\ndefine void @f() {\n call void @no_such()\n ret void\n}", ["f"]),
            "link f",
        ),
    ],
)
def test_what_is_wrong_is_said(make, message, capfd) -> None:
    with pytest.raises(RuntimeError, match=message):
        make()
    assert capfd.readouterr().err == ""
    assert twice(load(TWICE, ["twice"])) == 42


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_code_is_freed_with_its_library() -> None:
    """A library is a page of code, and some 9 KB in a linker: 1500 of them that stayed would be 13 MB or more."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    code = compile_object(TWICE)
    for _ in range(2 * engine.LIBRARIES_PER_LINKER):
        Library(code, ["twice"])
    before = resident()
    for _ in range(1500):
        Library(code, ["twice"])
    assert resident() - before < 4 << 20


def test_a_library_outlives_its_linker() -> None:
    code = compile_object(TWICE)
    kept = [Library(code, ["twice"]) for _ in range(3 * engine.LIBRARIES_PER_LINKER)]
    assert len({library.addresses["twice"] for library in kept}) == len(kept)
    assert all(twice(library) == 42 for library in kept)


def test_threads_compile_and_link_at_once() -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(10):
                text = f"define i64 @f(i64 %x) {{\n %y = add i64 %x, {100 * number + i}\n ret i64 %y\n}}"
                assert load(text, ["f"]).function("f", ctypes.c_int64, ctypes.c_int64)(0) == 100 * number + i
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_linking_does_not_wait_for_a_compilation() -> None:
    """A compilation that lasts as long as the test does."""
    code = compile_object(TWICE)
    inside, over = threading.Event(), threading.Event()

    def hold() -> None:
        with compiling():
            inside.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert inside.wait(60)
        assert twice(Library(code, ["twice"])) == 42
        assert twice(load(TWICE, ["twice"])) == 42
    finally:
        over.set()
        thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("delay", ["0", "0.02", "0.05", "0.4"])
def test_a_fork_amid_compilations(delay) -> None:
    """Or while LLVM is being loaded."""
    program = f"""{BUSY}
time.sleep(float(sys.argv[1]))
for i in range(8):
    child = os.fork()
    if child == 0:
        code = load(text(i), ["f"]).function("f", ctypes.c_int64, ctypes.c_int64)(1)
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == i + 1
sys.stdout.write("done"); sys.stdout.flush(); os._exit(0)
"""
    found = run(program, delay)
    assert (found.returncode, found.stdout) == (0, "done"), found.stderr


@pytest.mark.parametrize("delay", ["0", "0.3", "0.31"])
def test_the_interpreter_ends_amid_compilations(delay) -> None:
    """Nothing crashes, and what runs at exit may still compile, whether it was registered before or after."""
    program = f"""import atexit
def late():
    print(load(text(41), ["f"]).function("f", ctypes.c_int64, ctypes.c_int64)(1))
atexit.register(late)
{BUSY}
kept = load(text(0), ["f"])
atexit.register(late)
time.sleep(float(sys.argv[1]))
"""
    found = run(program, delay)
    assert (found.returncode, found.stdout, found.stderr) == (0, "42\n42\n", "")


def test_nothing_is_imported_before_it_is_needed() -> None:
    program = "import sys, wengert.codegen.engine, wengert.codegen.cache\nprint('llvmlite' in sys.modules)"
    found = run(program)
    assert found.stdout == "False\n", found.stderr

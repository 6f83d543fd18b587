"""What happens to the workers when the process forks, is interrupted, or ends."""

import os
import subprocess
import sys
import textwrap

import pytest

HEADER = """
import os, signal, sys, threading, time
import numpy as np
from tests.runtime.counting import loop, random_loops, slow
from wengert.runtime import threads, workers
from wengert.runtime.workers import parallel_call, parallel_for
threads.set_num_threads(2)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

def works():
    counting = random_loops(200, 0)
    counting.stress(3)
    return True

def child(function):
    "Whether a forked child that calls the function leaves in order within 30 seconds."
    process = os.fork()
    if process == 0:
        signal.alarm(30)
        os._exit(0 if function() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
"""

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def run(code: str, expect: int = 0, *, silent: bool = True) -> str:
    """Run code in a process of its own, with warnings as errors, and return what it wrote."""
    text = HEADER + textwrap.dedent(code)
    command = [sys.executable, "-X", "faulthandler", "-W", "error", "-c", text]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == expect, process.stdout + process.stderr
    assert not (silent and process.stderr) or expect, process.stderr
    return process.stdout


@posix
def test_parent_and_child_start_workers_of_their_own() -> None:
    run("""
        assert works()
        for _ in range(5):
            assert child(works)
            assert works()
        assert child(lambda: child(works) and works())
    """)


@posix
def test_no_worker_runs_while_the_process_forks() -> None:
    """So that neither Python nor a library finds other threads in the way."""
    run("""
        assert works()
        pool = workers.start_workers()
        assert child(lambda: threading.active_count() == 1)
        assert not any(worker.is_alive() for worker in pool._hosts)
        assert works()
    """)


@posix
def test_a_fork_while_another_thread_is_in_a_loop() -> None:
    run("""
        work = slow(0.0005)
        forked = threading.Event()
        rounds = []

        def call():
            while not forked.is_set():
                work.run(1500)
                rounds.append(work.ran[0])

        caller = threading.Thread(target=call)
        caller.start()
        time.sleep(0.05)
        for _ in range(5):
            assert child(works)
        forked.set()
        assert works()
        caller.join()
        assert rounds and rounds == [1500 * (i + 1) for i in range(len(rounds))]
    """)


@posix
@pytest.mark.parametrize("forking", ["leader", "worker"])
def test_a_fork_inside_a_kernel(forking: str) -> None:
    """The parent goes on; the child may start loops of its own."""
    run(f"""
        meeting = threading.Barrier(2, timeout=20)
        leader = threading.get_ident()
        results = []

        def kernel(begin, end):
            meeting.wait()
            if (threading.get_ident() == leader) == ({forking!r} == "leader"):
                results.append(child(works))

        parallel_call(kernel, 2, 1)
        assert results == [True]
        assert works()
    """)


@posix
def test_a_child_that_returns_into_the_loop_it_was_forked_in_gets_an_error() -> None:
    out = run("""
        meeting = threading.Barrier(2, timeout=20)
        leader, parent = threading.get_ident(), os.getpid()
        children, forked = [], threading.Event()

        def kernel(begin, end):
            meeting.wait()
            if threading.get_ident() == leader:
                children.append(os.fork())
                signal.alarm(30 if children[-1] == 0 else 0)
                forked.set()
            assert forked.wait(20)

        try:
            parallel_call(kernel, 2, 1)
        except RuntimeError as error:
            assert os.getpid() != parent and works()
            print(error, flush=True)
            os._exit(7)
        assert os.getpid() == parent
        assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
        assert works()
    """)
    assert "forked inside a parallel loop" in out


@posix
def test_the_children_of_multiprocessing_work() -> None:
    run("""
        import multiprocessing

        def check(number):
            return works()

        assert works()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(check, range(4)) == [True] * 4
        assert works()
    """)


@pytest.mark.parametrize(
    "code",
    [
        "works()",
        "workers.start_workers()",
        "works(); time.sleep(0.01)",
        "threading.Thread(target=works).start()",
        "threading.Thread(target=slow(0.001).run, args=(10**6,), daemon=True).start(); time.sleep(0.1)",
        "import atexit; atexit.register(works)",
        "import atexit; atexit.register(works); works()",
        "works(); import atexit; atexit.register(works)",
        "works(); atexit_workers = workers._close; atexit_workers(); works()",
        "for n in (4, 2, 8, 1, 3): threads.set_num_threads(n); works()",
    ],
)
def test_the_interpreter_ends_in_order(code: str) -> None:
    run(code)


def test_an_error_ends_the_interpreter() -> None:
    run("works(); raise SystemExit(3)", expect=3)


@posix
@pytest.mark.parametrize("delay", [0.02, 0.1, 0.33])
def test_an_interrupt_ends_a_long_loop_between_slices(delay: float) -> None:
    out = run(f"""
        work = slow(0.002)
        assert works()
        threading.Timer({delay}, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.perf_counter()
        try:
            work.run(100_000)
        except KeyboardInterrupt:
            print(time.perf_counter() - start, flush=True)
        ran = work.ran[0]
        assert ran < 100_000
        assert works()
        assert work.ran[0] == ran
    """)
    assert float(out) < delay + 5


@posix
def test_interrupts_of_python_functions_arrive() -> None:
    """Interrupts at random moments, also those that come before the first line of a function has run."""
    run(
        """
        signal.signal(signal.SIGALRM, signal.default_int_handler)

        def kernel(begin, end):
            np.sqrt(x[begin:end], out=y[begin:end])

        x, y = np.ones(4000), np.ones(4000)
        assert works()
        interrupted = 0
        for delay in np.random.default_rng(0).uniform(0.001, 0.01, 40):
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                while True:
                    parallel_call(kernel, 4000, 100)
            except KeyboardInterrupt:
                interrupted += 1
        assert interrupted == 40
        assert works()
        """,
        silent=False,  # what ctypes drops it also shows
    )


@posix
def test_a_signal_handler_may_start_loops() -> None:
    run("""
        handled = []
        work = slow(0.001)
        assert works()
        signal.signal(signal.SIGALRM, lambda *_: handled.append(works()))
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.05)
        work.run(500)
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert work.ran[0] == 500 and len(handled) > 1
    """)


@posix
def test_signals_reach_a_process_whose_workers_sleep() -> None:
    run("""
        works()
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        start = time.perf_counter()
        try:
            time.sleep(20)
        except KeyboardInterrupt:
            pass
        assert time.perf_counter() - start < 10
    """)

"""Parallel loops: every chunk runs exactly once, whatever the counts, the threads and the load of the machine."""

import ctypes
import faulthandler
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.runtime.counting import Loops, kernels, loop, random_loops, slow
from wengert.codegen import worker_loop
from wengert.runtime import threads, workers
from wengert.runtime.workers import HEADER, launch, parallel_for, start_workers

LONG = int(os.environ.get("WENGERT_STRESS_ROUNDS", "1"))  # how many times as many loops the stress tests run
BURN = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    """Say where the threads are, and end, if a test hangs: that is what a lost wake-up looks like."""
    faulthandler.dump_traceback_later(120 + 60 * LONG, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(params=[1, 2, 3, 8])
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run a test with several numbers of threads."""
    before = threads.get_num_threads()
    threads.set_num_threads(request.param)
    yield request.param
    threads.set_num_threads(before)


@pytest.fixture
def two() -> Iterator[None]:
    """Run a test with two threads, on a machine of any size."""
    before = threads.get_num_threads()
    threads.set_num_threads(2)
    yield
    threads.set_num_threads(before)


@pytest.fixture
def busy() -> Iterator[None]:
    """Keep every processor busy with another process."""
    processes = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(os.cpu_count() or 1)]
    yield
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("grain", [1, 2, 3, 7, 10, 11, 1000])
@pytest.mark.parametrize("count", [0, 1, 2, 9, 10, 11, 100])
def test_every_chunk_runs_once_with_its_bounds(number: int, count: int, grain: int) -> None:
    counting = loop(count, grain)
    counting.run()
    counting.check()


def test_many_chunks(number: int) -> None:
    counting = loop(1_000_000, 1)
    counting.run()
    counting.check()


def test_arguments_may_follow_the_header_of_a_call(number: int) -> None:
    counting = loop(100, 7)
    call = np.array([kernels().addresses["counting"], 100, 7, *counting.args[0]], np.int64).tobytes()
    assert len(HEADER) * 8 == call.index(counting.args.tobytes())
    launch(call)
    counting.check()


@pytest.mark.parametrize(("count", "grain"), [(-1, 1), (5, 0), (0, 0), (5, -3), (-5, -3), (2**32, 1), (2**62, 3)])
def test_what_is_out_of_range_is_refused(count: int, grain: int) -> None:
    with pytest.raises(ValueError, match=f"count={count} and grain={grain}"):
        parallel_for(kernels().addresses["counting"], 0, count, grain)
    counting = loop(20, 3)
    counting.run()
    counting.check()


def test_a_huge_count_of_few_chunks_does_not_overflow(number: int) -> None:
    counting = loop(2**63 - 1, 2**61)
    counting.run()
    counting.check()


def test_thousands_of_small_loops(two: None) -> None:
    random_loops(1000, seed=0, most_chunks=8).stress(200 * LONG)


def test_small_loops_on_more_threads_than_processors(number: int) -> None:
    random_loops(500, seed=number).stress(50 * LONG)


def test_loops_that_find_the_workers_asleep(two: None) -> None:
    pause = 4 * workers.SPIN * 1e-9
    random_loops(200, seed=1).stress(5 * LONG, lambda number: number % 2 and time.sleep(pause))


def test_loops_that_meet_the_workers_on_their_way_to_sleep(two: None) -> None:
    """Pauses about as long as a worker spins: it looks for work, counts itself asleep and is woken all at once."""
    random = np.random.default_rng(3)
    pauses = random.uniform(0.8, 1.3, 400) * workers.SPIN * 1e-9

    def wait(number: int) -> None:
        end = time.perf_counter() + pauses[number]
        while time.perf_counter() < end:
            pass

    Loops(random.integers(2, 20, 400), np.ones(400)).stress(10 * LONG, wait)


def test_small_loops_on_a_busy_machine(two: None, busy: None) -> None:
    random_loops(500, seed=4).stress(20 * LONG)
    random_loops(50, seed=5).stress(5 * LONG, lambda number: number % 3 or time.sleep(2e-4))


def test_a_small_loop_stays_fast_on_a_busy_machine(two: None, busy: None) -> None:
    """The leader waits for no worker that has not claimed a chunk: half of all loops take a small part of a time slice."""
    counting = loop(16, 8)
    taken = []
    for _ in range(300):
        start = time.perf_counter()
        counting.run()
        taken.append(time.perf_counter() - start)
    counting.check(300)
    assert np.median(taken) < 500e-6


def test_several_threads_start_loops_at_once(number: int) -> None:
    failures: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            random_loops(100, seed).stress(50 * LONG)
        except BaseException as error:
            failures.append(error)

    callers = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures


def test_the_workers_help(two: None) -> None:
    """Two chunks that wait for each other: they can only end if two threads run them."""
    meeting = threading.Barrier(2, timeout=20)
    seen: set[int] = set()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    def meet(_args: int, _begin: int, _end: int) -> None:
        seen.add(threading.get_ident())
        meeting.wait()

    parallel_for(ctypes.cast(meet, ctypes.c_void_p).value or 0, 0, 2, 1)
    assert len(seen) == 2
    assert not meeting.broken


def test_no_wake_up_is_lost(two: None) -> None:
    """Two chunks that wait for each other, again and again, started while the worker spins, goes to sleep, or sleeps."""
    random = np.random.default_rng(6)
    came = np.zeros(2, np.int64)
    for pause in random.uniform(0, 1.6, 600 * LONG) * workers.SPIN * 1e-9:
        came[0] = 0
        parallel_for(kernels().addresses["meet"], came.ctypes.data, 2, 1)
        assert came.tolist() == [2, 0]
        end = time.perf_counter() + pause
        while time.perf_counter() < end:
            pass


def test_a_loop_inside_a_kernel_runs_on_its_thread(two: None) -> None:
    inner = [loop(50, 3) for _ in range(8)]
    counted = threading.Barrier(2, timeout=20)

    def outer(begin: int, end: int) -> None:
        if begin < 2:
            counted.wait()  # both threads are inside a kernel
        for number in range(begin, end):
            inner[number].run()

    workers.parallel_call(outer, 8, 1)
    for item in inner:
        item.check()


def test_a_long_loop_comes_back_in_slices_and_is_run_whole(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    slices = []
    finish = workers._finish

    def counted(*arguments: int) -> None:
        slices.append(arguments)
        finish(*arguments)

    monkeypatch.setattr(workers, "_finish", counted)
    work = slow(0.002)
    for runs in range(1, 21):  # until the thread that called is there often enough, where others are busy
        work.run(100)
        assert work.ran[0] == 100 * runs
        if slices:
            break
    assert slices


def test_the_number_of_threads_changes_while_a_loop_runs(two: None) -> None:
    work = slow(0.002)
    caller = threading.Thread(target=work.run, args=(200,))
    caller.start()
    for number in (3, 1, 2, 4, 1, 2):
        threads.set_num_threads(number)
        counting = loop(100, 3)
        counting.run()
        counting.check()
    caller.join()
    assert work.ran[0] == 200


def test_workers_leave_when_there_are_fewer(number: int) -> None:
    pool = start_workers()
    assert pool.threads == number
    assert pool.slots[worker_loop.LAYOUT["WORKERS"]] == number - 1
    threads.set_num_threads(1)
    assert start_workers().threads == 1
    pool.join(20)
    assert not any(worker.is_alive() for worker in pool._hosts)


def test_a_thread_that_cannot_be_started_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threads.get_num_threads()
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "wengert-worker-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    try:
        threads.set_num_threads(5)
        with pytest.warns(RuntimeWarning, match="2 threads, not 5: can't start new thread"):
            start_workers()
        counting = loop(100, 3)
        counting.run()
        counting.check()
    finally:
        threads.set_num_threads(before)

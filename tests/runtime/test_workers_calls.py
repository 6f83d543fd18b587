"""Loops of Python functions: exceptions reach the caller, and the BLAS is held down meanwhile."""

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.runtime.counting import loop
from wengert.runtime import threads
from wengert.runtime.workers import parallel_call


@pytest.fixture(autouse=True, params=[1, 2, 4])
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run every test with several numbers of threads."""
    before = threads.get_num_threads()
    threads.set_num_threads(request.param)
    yield request.param
    threads.set_num_threads(before)


@pytest.mark.parametrize(("count", "grain"), [(0, 1), (1, 1), (10, 3), (10, 10), (7, 100), (500, 1)])
def test_every_chunk_is_called_once(count: int, grain: int) -> None:
    calls: list[tuple[int, int]] = []
    parallel_call(lambda begin, end: calls.append((begin, end)), count, grain)
    assert sorted(calls) == [(begin, min(begin + grain, count)) for begin in range(0, count, grain)]


@pytest.mark.parametrize(("count", "grain"), [(-1, 1), (3, 0), (3, -1)])
def test_what_is_out_of_range_is_refused(count: int, grain: int) -> None:
    with pytest.raises(ValueError, match=f"got {count} and {grain}"):
        parallel_call(lambda begin, end: None, count, grain)


def test_numpy_runs_on_the_workers() -> None:
    x = np.random.default_rng(0).standard_normal((64, 300))
    y = np.empty((64, 64))

    def product(begin: int, end: int) -> None:
        np.matmul(x[begin:end], x.T, out=y[begin:end])

    parallel_call(product, 64, 5)
    np.testing.assert_allclose(y, x @ x.T, rtol=1e-12)


class ChunkError(Exception):
    """What a chunk raises."""


def test_an_exception_reaches_the_caller_and_ends_the_loop() -> None:
    calls: list[int] = []

    def fail(begin: int, end: int) -> None:
        calls.append(begin)
        if begin == 3:
            raise ChunkError("chunk three")
        time.sleep(0.001)

    with pytest.raises(ChunkError, match="chunk three") as caught:
        parallel_call(fail, 10_000, 1)
    assert any(entry.name == "fail" for entry in caught.traceback)
    assert len(calls) < 100


def test_of_several_exceptions_the_first_chunk_s_is_raised(number: int) -> None:
    meeting = threading.Barrier(number, timeout=20)

    def fail(begin: int, end: int) -> None:
        meeting.wait()
        raise ChunkError(begin)

    with pytest.raises(ChunkError, match=r"^0$"):
        parallel_call(fail, number, 1)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_whatever_is_raised_is_raised(error: type[BaseException]) -> None:
    def fail(begin: int, end: int) -> None:
        raise error

    with pytest.raises(error):
        parallel_call(fail, 20, 1)


def test_the_workers_are_healthy_after_exceptions() -> None:
    for _ in range(50):
        with pytest.raises(ZeroDivisionError):
            parallel_call(lambda begin, end: begin // 0, 8, 1)
    counting = loop(1000, 3)
    counting.run()
    counting.check()


def test_a_call_inside_a_call(number: int) -> None:
    done = np.zeros((20, 30), np.int64)

    def outer(begin: int, end: int) -> None:
        def inner(first: int, last: int) -> None:
            done[begin:end, first:last] += 1

        parallel_call(inner, 30, 4)

    parallel_call(outer, 20, 3)
    assert (done == 1).all()


def test_an_exception_of_an_inner_call_ends_both() -> None:
    def outer(begin: int, end: int) -> None:
        parallel_call(lambda first, last: 1 // (begin - 4), 10, 1)

    with pytest.raises(ZeroDivisionError):
        parallel_call(outer, 20, 1)


def test_the_blas_has_one_thread_inside_and_its_own_number_afterwards(number: int) -> None:
    calls = threads.blas_calls()
    if calls is None:
        pytest.skip("NumPy is linked with a BLAS whose threads cannot be counted")
    before = calls.get()
    inside: list[int] = []
    parallel_call(lambda begin, end: inside.append(calls.get()), 12, 1)
    assert set(inside) == ({1} if number > 1 else {before})
    assert calls.get() == before

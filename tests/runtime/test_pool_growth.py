"""How the memory pool grows and shrinks: many shapes, threads that come and go, other threads' arrays, forked children."""

import gc
import os
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import wengert as wg
from wengert.runtime import pool
from wengert.testing.opcheck_native import natively

MIB = 1 << 20


@pytest.fixture(autouse=True)
def emptied() -> Iterator[None]:
    gc.collect()
    wg.cpu.empty_cache()
    yield
    wg.cpu.empty_cache()


def held() -> dict[str, int]:
    stats = wg.cpu.memory_stats()
    assert stats["reserved_bytes.all.current"] >= stats["allocated_bytes.all.current"] + stats["cached_bytes"]
    assert stats["allocation.all.allocated"] - stats["allocation.all.freed"] == stats["allocation.all.current"]
    return stats


def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("the system does not say what is in memory")
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("order", [1, -1], ids=["growing", "shrinking"])
def test_a_thousand_shapes_leave_one_block_of_each_class(order: int) -> None:
    """Classes are an eighth of a power of two apart: Σ over octaves of 8 blocks, less than 16 of the largest."""
    before = held()
    sizes = sorted({int(n) for n in np.random.default_rng(0).integers(10_000, 4 * MIB, 1000)})
    for size in sizes[::order]:
        pool.empty(size, np.uint8)
    stats = held()
    assert stats["allocation.all.allocated"] - before["allocation.all.allocated"] == len(sizes)
    assert stats["allocated_bytes.all.current"] == before["allocated_bytes.all.current"]
    assert stats["cached_bytes"] < 16 * sizes[-1]
    assert stats["cached_blocks"] < 8 * 10
    for size in sizes:  # all of them from what is there
        pool.empty(size, np.uint8)
    assert held()["allocation.all.reused"] - stats["allocation.all.reused"] == len(sizes)
    assert held()["cached_bytes"] == stats["cached_bytes"]


def test_steps_of_operators_reach_a_fixed_size() -> None:
    def step() -> None:
        x = wg.rand(300, 200, requires_grad=True)
        (x.sigmoid() @ x.t()).exp().sum().backward()

    with natively():
        for _ in range(3):
            step()
        gc.collect()
        reserved = held()["reserved_bytes.all.current"]
        for _ in range(20):
            step()
        gc.collect()
        assert held()["reserved_bytes.all.current"] == reserved


def test_threads_that_come_and_go_leave_nothing_of_their_own() -> None:
    def work() -> None:
        for size in (50_000, 300_000, MIB):
            pool.empty(size, np.uint8)[:] = 1

    before = held()
    in_thread(work)
    after = held()
    for _ in range(100):
        in_thread(work)
    assert held()["reserved_bytes.all.current"] == after["reserved_bytes.all.current"]
    assert held()["allocation.all.current"] == before["allocation.all.current"]


def test_a_large_tensor_freed_elsewhere_goes_back_to_the_system() -> None:
    before, start = held()["allocated_bytes.all.current"], resident()
    box = [pool.empty(64 * MIB, np.uint8)]
    box[0][:] = 1
    assert resident() - start > 60 * MIB
    in_thread(box.clear)
    stats = held()
    assert stats["allocated_bytes.all.current"] == before
    assert stats["cached_bytes"] >= 64 * MIB
    in_thread(wg.cpu.empty_cache)
    assert held()["cached_bytes"] == held()["cached_blocks"] == 0
    assert resident() - start < 8 * MIB


def test_what_is_in_use_stays_when_the_rest_goes_back() -> None:
    x, y = pool.empty(MIB, np.uint8), pool.empty(2 * MIB, np.uint8)
    x[:] = 3
    view = x[5:]
    del x, y
    allocated = held()["allocated_bytes.all.current"]
    wg.cpu.empty_cache()
    assert held()["allocated_bytes.all.current"] == allocated
    assert (view == 3).all()

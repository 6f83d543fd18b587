"""The memory pool: blocks are used again, live as long as any view, are counted exactly, and are never handed out twice."""

import copy
import gc
import io
import pickle
import threading
import tracemalloc
from collections.abc import Iterator
from contextvars import Context
from typing import Any

import numpy as np
import pytest

from wengert.errors import OutOfMemoryError
from wengert.runtime import memory, pool

MIB = 1 << 20


@pytest.fixture(autouse=True)
def no_limit() -> Iterator[None]:
    gc.collect()  # arrays that the traceback of an expected error keeps in a cycle
    memory.empty_cache()
    yield
    memory.set_memory_limit(None)


def stat(name: str) -> int:
    return memory.memory_stats()[name]


def owner(array: np.ndarray[Any, Any]) -> str | None:
    name: str | None = np._core.multiarray.get_handler_name(array)
    return name


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex128])
def test_a_freed_block_is_used_again(dtype: Any) -> None:
    x = pool.empty((1000, 1000), np.float32)
    address = x.ctypes.data
    del x
    y = pool.empty(4_000_000 // np.dtype(dtype).itemsize, dtype)
    assert y.ctypes.data == address
    assert pool.empty((1000, 1000), np.float32).ctypes.data != address


@pytest.mark.parametrize("size", [0, 1, 3, 63, 64, 65, 511, 513, 5000, 32767, 32768, 100_001, 3 * MIB + 5])
def test_arrays_are_ordinary_aligned_and_writable(size: int) -> None:
    x = pool.empty(size, np.uint8)
    assert type(x) is np.ndarray
    assert owner(x) == "wengert"
    assert x.base is None
    assert x.ctypes.data % 64 == 0
    assert x.flags.writeable
    assert x.flags.c_contiguous
    x[...] = 7
    assert x.sum() == 7 * size


def test_other_arrays_are_not_in_the_pool() -> None:
    x = pool.zeros(10_000, np.float32)
    assert owner(np.empty(10_000)) == "default_allocator"
    assert owner(x.copy()) == "default_allocator"
    assert owner(x + 1) == "default_allocator"


def test_results_of_a_kernel_that_the_pool_runs_are_in_it() -> None:
    x = np.arange(10_000.0)
    y = pool.run(np.multiply, x, 2.0)
    assert owner(y) == "wengert"
    np.testing.assert_array_equal(y, x + x)


def test_a_context_adopts_the_pool() -> None:
    context = Context()
    pool.adopt(context.run)
    assert owner(context.run(np.ones, 5)) == "wengert"
    assert owner(np.ones(5)) == "default_allocator"


def test_zeros_are_zeros_in_a_used_block() -> None:
    x = pool.empty(50_000, np.float64)
    x[...] = np.nan
    address = x.ctypes.data
    del x
    y = pool.zeros(50_000, np.float64)
    assert y.ctypes.data == address
    assert not y.any()
    assert not pool.zeros((70, 3000), np.int16, "F").any()


def test_empty_like_keeps_the_order_in_memory() -> None:
    x = np.empty((4, 5, 6)).transpose(2, 0, 1)
    y = pool.empty_like(x, np.float32)
    assert y.shape == x.shape
    assert y.dtype == np.float32
    assert np.argsort(y.strides).tolist() == np.argsort(x.strides).tolist()
    assert pool.empty_like(x, shape=(2, 3)).shape == (2, 3)
    assert pool.empty((3, 4), np.float32, "F").strides == (4, 12)


def test_views_keep_the_memory() -> None:
    x = pool.empty((300, 300), np.float64)
    x[...] = 5
    address, view = x.ctypes.data, memoryview(x)[10:20]
    part = x[::2].T[3:]
    del x
    others = [pool.zeros((300, 300), np.float64) for _ in range(3)]
    assert address not in [o.ctypes.data for o in others]
    assert (part == 5).all()
    del part
    assert pool.empty((300, 300), np.float64).ctypes.data != address
    assert view[0, 0] == 5
    view.release()
    assert pool.empty((300, 300), np.float64).ctypes.data == address


@pytest.mark.parametrize("size", [*range(1, 3000, 61), 40_000, 65_537, 100_000, MIB, MIB + 1, 9 * MIB - 1])
def test_less_than_an_eighth_of_a_block_is_unused(size: int) -> None:
    before = memory.account()["used_bytes"]
    x = pool.empty(size, np.uint8)
    block = memory.account()["used_bytes"] - before
    assert size <= block < max(size * 1.125, size + 64)
    assert x.nbytes == size


def test_statistics_are_exact() -> None:
    memory.reset_peak_memory_stats()
    live, blocks, made = (stat(f"allocat{n}") for n in ("ed_bytes.all.current", "ion.all.current", "ion.all.allocated"))
    x = pool.empty(100_000, np.float32)
    y = pool.empty((7, 11), np.float64)
    assert memory.memory_allocated() - live == 400_000 + 616
    assert stat("allocation.all.current") - blocks == 2
    del x
    assert memory.memory_allocated() - live == 616
    assert memory.max_memory_allocated() - live == 400_000 + 616
    assert stat("allocation.all.allocated") - made == 2
    assert stat("cached_bytes") >= 400_000
    assert memory.memory_reserved() == memory.account()["used_bytes"] + stat("cached_bytes")
    assert stat("allocated_bytes.all.allocated") - stat("allocated_bytes.all.freed") == memory.memory_allocated()
    memory.reset_peak_memory_stats()
    assert memory.max_memory_allocated() == memory.memory_allocated()
    reused = stat("allocation.all.reused")
    x = pool.empty(100_000, np.float32)
    assert stat("allocation.all.reused") == reused + 1
    memory.empty_cache()
    assert stat("cached_bytes") == stat("cached_blocks") == 0
    assert (x.nbytes, y.nbytes) == (400_000, 616)


def test_blocks_in_use_are_known() -> None:
    x, y = pool.empty(1000, np.float32), pool.empty(2000, np.float32)
    newest, older = memory.live_blocks()[:2]
    assert newest[:2] == (y.ctypes.data, 8000)
    assert older[:2] == (x.ctypes.data, 4000)
    assert newest[2] == older[2] + 1
    assert len(memory.live_blocks()) == stat("allocation.all.current")


def test_memory_goes_back_to_the_system() -> None:
    def resident() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096

    try:
        resident()
    except OSError:
        pytest.skip("this system does not say how much memory is resident")
    x = pool.zeros(64 * MIB, np.uint8)
    x[...] = 1
    del x
    before = resident()
    memory.empty_cache()
    assert before - resident() > 60 * MIB


def test_the_oldest_free_block_goes_first() -> None:
    of = memory.account()
    counter = of.counters["cache_limit"]
    before, counter.value = counter.value, 3 * MIB
    try:
        kept = [pool.empty(MIB, np.uint8), pool.empty(MIB + MIB // 4, np.uint8), pool.empty(2 * MIB, np.uint8)]
        addresses = [x.ctypes.data for x in kept]
        while kept:
            kept.pop(0)
        assert stat("cached_blocks") == 1
        assert pool.empty(2 * MIB, np.uint8).ctypes.data == addresses[2]
    finally:
        counter.value = before


@pytest.mark.parametrize(
    ("first", "second"), [(1000, 1010), (1000, 1), (5000, 70_000), (70_000, 300), (40_000, 40_100)]
)
def test_resize_keeps_what_is_common(first: int, second: int) -> None:
    live = memory.memory_allocated()
    x = pool.empty(first, np.float32)
    x[...] = np.arange(first)
    x.resize(second, refcheck=False)
    common = min(first, second)
    np.testing.assert_array_equal(x[:common], np.arange(common, dtype=np.float32))
    assert not x[common:].any()  # NumPy's promise of what is new
    assert memory.memory_allocated() - live == 4 * second
    assert owner(x) == "wengert"
    del x
    assert memory.memory_allocated() == live


def test_numpy_may_grow_an_array_in_steps() -> None:
    expected = np.arange(70_000)
    np.testing.assert_array_equal(pool.run(np.fromiter, iter(range(70_000)), np.int64), expected)
    assert memory.memory_allocated() == sum(size for _, size, _ in memory.live_blocks())


def test_copies_files_and_pickles_hold_the_values() -> None:
    x = pool.empty((100, 200), np.float64)
    x[...] = np.arange(20_000.0).reshape(100, 200)
    file = io.BytesIO()
    np.save(file, x)
    file.seek(0)
    for y in (np.load(file), pickle.loads(pickle.dumps(x)), pickle.loads(pickle.dumps(x, 5)), copy.deepcopy(x)):
        np.testing.assert_array_equal(y, x)


def test_tracemalloc_sees_the_arrays() -> None:
    domain = [tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)]
    tracemalloc.start()
    try:
        x = pool.empty(123_456, np.uint8)
        found = tracemalloc.take_snapshot().filter_traces(domain).traces
        assert 123_456 in [trace.size for trace in found]
        del x
        found = tracemalloc.take_snapshot().filter_traces(domain).traces
        assert 123_456 not in [trace.size for trace in found]
    finally:
        tracemalloc.stop()


class Nested:
    """A size that asks the pool while it is asked for."""

    def __index__(self) -> int:
        return int(pool.zeros(5, np.int64).size)


def test_the_pool_may_be_asked_while_it_is_asked() -> None:
    assert pool.empty((Nested(), 2), np.float32).shape == (5, 2)
    assert owner(pool.empty(Nested(), np.float32)) == "wengert"


@pytest.mark.parametrize(
    ("shape", "dtype", "error"), [(-1, "f4", ValueError), ("ab", "f4", TypeError), (3, "no", TypeError)]
)
def test_bad_requests_are_refused_as_numpy_does(shape: Any, dtype: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        pool.empty(shape, dtype)


# ---- limits


def test_a_limit_is_kept_and_says_who_holds_the_memory() -> None:
    memory.set_memory_limit(memory.memory_reserved() + 8 * MIB)
    held = pool.empty(6 * MIB, np.uint8)
    refused = stat("num_ooms")
    with pytest.raises(
        OutOfMemoryError, match=r"cannot take 4.00 MiB on cpu:0: .* in use by \d+ arrays, the limit is"
    ) as seen:
        pool.empty(MIB, np.float32)
    message = str(seen.value)
    assert "largest in use: 6.00 MiB" in message
    assert "set_memory_limit()" in message
    assert isinstance(seen.value, RuntimeError)
    assert isinstance(seen.value, MemoryError)
    assert stat("num_ooms") > refused
    assert pool.empty(MIB, np.uint8).nbytes == MIB
    assert held.nbytes == 6 * MIB
    with pytest.raises(OutOfMemoryError):
        pool.run(np.zeros, 9 * MIB, np.uint8)


def test_the_message_names_lines_where_they_are_traced() -> None:
    tracemalloc.start()
    try:
        held = pool.empty(5 * MIB, np.uint8)
        memory.set_memory_limit(memory.memory_reserved() + MIB)
        with pytest.raises(
            OutOfMemoryError, match=r"5.00 MiB in 1 arrays made at .*pool\.py:\d+|made at .*test_pool.py"
        ):
            pool.empty(2 * MIB, np.uint8)
    finally:
        tracemalloc.stop()
    assert held.size == 5 * MIB


def test_free_blocks_make_room_before_a_request_is_refused() -> None:
    memory.set_memory_limit(memory.memory_reserved() + 10 * MIB)
    for size in (8 * MIB, 9 * MIB, 5 * MIB, 10 * MIB):
        assert pool.empty(size, np.uint8).size == size
    memory.set_memory_limit(memory.account()["used_bytes"] + MIB)
    assert stat("cached_bytes") <= MIB


def test_more_than_the_machine_has_is_refused() -> None:
    with pytest.raises(OutOfMemoryError, match=r"cannot take .* TiB on cpu:0: .* the system has no more"):
        pool.empty(1 << 45, np.float64)


@pytest.mark.parametrize(
    ("text", "size"), [("512M", 512 * MIB), ("1.5 GiB", 3 << 29), ("2gb", 2 << 30), (77, 77), ("64", 64)]
)
def test_sizes_as_text(text: Any, size: int) -> None:
    assert memory.bytes_of(text) == size
    memory.set_memory_limit(text)
    assert memory.memory_limit() == size
    memory.set_memory_limit(None)
    assert memory.memory_limit() is None


@pytest.mark.parametrize("text", ["", "much", "-3", "0", "5X", 0, -1, "1e9", None])
def test_what_is_not_a_size_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="a size in bytes is"):
        memory.bytes_of(text)


# ---- threads


def test_arrays_may_die_in_another_thread() -> None:
    live = memory.memory_allocated()
    handed = [pool.zeros(20_000, np.float32) for _ in range(50)]
    thread = threading.Thread(target=handed.clear)
    thread.start()
    thread.join()
    assert memory.memory_allocated() == live


def _churn(seed: int, rounds: int, wrong: list[str]) -> None:
    """Take and drop arrays of random sizes; each is full of its own number, which nobody else may change."""
    random = np.random.default_rng(seed)
    sizes = (2 ** random.uniform(0, 17, rounds)).astype(int)
    slots = random.integers(0, 30, rounds).tolist()
    kept: dict[int, tuple[np.ndarray[Any, Any], int]] = {}
    for i, (size, slot) in enumerate(zip(sizes.tolist(), slots, strict=True)):
        if slot in kept:
            array, number = kept.pop(slot)
            if not (array[0] == number and array[-1] == number and (i % 50 or (array == number).all())):
                wrong.append(f"thread {seed}, round {i}: {array[:4]} instead of {number}")
            del array
        fresh = pool.empty(size // 8 + 1, np.int64)
        fresh.fill(number := seed * rounds + i)
        kept[slot] = fresh, number


def test_no_block_is_handed_out_twice() -> None:
    live, wrong = memory.memory_allocated(), list[str]()
    threads = [threading.Thread(target=_churn, args=(seed, 25_000, wrong)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:5]
    assert memory.memory_allocated() == live

"""The native loop on systems that this test does not run on: it assembles; and its portable way of sleeping works here."""

import ctypes
import threading
import time

import numpy as np
import pytest

from tests.runtime.counting import kernels
from wengert.codegen import parking as parking_module
from wengert.codegen import worker_loop as native
from wengert.codegen.binding import llvm
from wengert.codegen.engine import load
from wengert.codegen.parking import parking
from wengert.codegen.target import host
from wengert.codegen.worker_loop import worker_loop

CALLS = {
    "x86_64-unknown-linux-gnu": ("syscall", "clock_gettime", "sched_yield"),
    "x86_64-unknown-linux-musl": ("syscall",),
    "aarch64-unknown-linux-gnu": ("syscall", "clock_gettime", "sched_yield"),
    "riscv64-unknown-linux-gnu": ("syscall",),
    "powerpc64le-unknown-linux-gnu": ("syscall",),
    "s390x-ibm-linux-gnu": ("syscall",),
    "arm64-apple-darwin23.0.0": ("__ulock_wait", "__ulock_wake", "clock_gettime_nsec_np", "sched_yield"),
    "x86_64-apple-macosx11.0.0": ("__ulock_wait", "__ulock_wake"),
    "x86_64-pc-windows-msvc": ("WaitOnAddress", "WakeByAddressSingle", "WakeByAddressAll", "SwitchToThread"),
    "aarch64-pc-windows-msvc": ("WaitOnAddress", "QueryPerformanceCounter"),
    "x86_64-unknown-freebsd14.0": ("poll", "clock_gettime"),
    "loongarch64-unknown-linux-gnu": ("poll", "clock_gettime"),
}


@pytest.mark.parametrize("triple", CALLS)
def test_it_assembles_and_calls_the_system_s_functions(triple: str) -> None:
    llvm().initialize_all_targets()
    llvm().initialize_all_asmprinters()
    try:
        target = llvm().Target.from_triple(triple)
    except RuntimeError:
        pytest.skip("this LLVM does not know the processor")
    with llvm().parse_assembly(worker_loop(triple)) as module:
        module.triple = triple
        module.verify()
        text = target.create_target_machine(opt=2).emit_assembly(module)
    missing = [name for name in CALLS[triple] if name not in text]
    assert not missing


def test_the_entry_points_are_named_alike_everywhere() -> None:
    for triple in CALLS:
        for name in (native.WORKER, native.STOP, native.LAUNCH, native.PARALLEL_FOR, native.RESUME):
            assert f"@{name}(" in worker_loop(triple)


def test_sleeping_where_the_system_can_not_wait_for_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """With polling in place of the futex, loops still run whole when the workers sleep."""
    monkeypatch.setattr(parking_module, "_FUTEX", {})
    if "linux" not in host().triple:
        pytest.skip("the clock's number is Linux's")
    assert "@poll" in parking(host().triple)
    library = load(worker_loop(host().triple), [native.WORKER, native.STOP, native.PARALLEL_FOR])
    memory = np.zeros(native.SLOTS + 8, np.int64)
    skip = -memory.ctypes.data % 64 // 8
    slots, address = memory[skip:], ctypes.c_void_p(memory.ctypes.data + skip * 8)
    slots[native.LAYOUT["SPIN"]], slots[native.LAYOUT["SLICE"]], slots[native.LAYOUT["WORKERS"]] = 20_000, 10**12, 2
    workers = [threading.Thread(target=library.function(native.WORKER, None), args=(address,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    runs = np.zeros((2, 50), np.int64)
    args = np.array([runs[0].ctypes.data, runs[1].ctypes.data, 3], np.int64)
    call = np.array([kernels().addresses["counting"], 150, 3, args.ctypes.data], np.int64).tobytes()
    for number in range(300):
        assert library.function(native.PARALLEL_FOR, ctypes.c_int64)(address, call) == 0
        assert (runs[0] == number + 1).all()
        time.sleep(0.0005 * (number % 3))
    library.function(native.STOP, None)(address, ctypes.c_int64(native.STOPPED))
    for worker in workers:
        worker.join(20)
        assert not worker.is_alive()

"""The memory pool in the life of a process: its settings, forked children, and what is left at the end."""

import ctypes
import os
import subprocess
import sys
from typing import Any

import pytest

from wengert.codegen.allocator import FUNCTIONS, allocator
from wengert.codegen.engine import Library, compile_object
from wengert.runtime.pool import numpy_allocator


def python(code: str, **environment: str) -> str:
    """Run a program and return what it prints; it must end well and quietly."""
    settings: dict[str, Any] = {**os.environ, **environment}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=settings,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert not run.stderr
    return run.stdout


def test_nothing_is_loaded_before_an_array_is_wanted() -> None:
    seen = python(
        "import sys, wengert\n"
        "from wengert.runtime import memory\n"
        "memory.empty_cache(); memory.reset_peak_memory_stats(); memory.set_memory_limit('1G')\n"
        "print(sum(memory.memory_stats().values()), 'llvmlite' in sys.modules)\n"
        "from wengert.runtime import pool\n"
        "pool.empty(5, 'f4')\n"
        "print(memory.account().counters['limit'].value)\n"
    )
    assert seen.split() == ["0", "False", str(1 << 30)]


def test_arrays_may_outlive_the_interpreter() -> None:
    """In modules, cycles, thread locals, a running daemon thread, at exit, and in types that die last."""
    assert (
        python(
            "import atexit, sys, threading, time\n"
            "import numpy as np\n"
            "from wengert.runtime import pool\n"
            "kept = [pool.zeros(100_000, np.float32) for _ in range(10)]\n"
            "sys.modules['held'] = kept[0][5:]\n"
            "class Cycle: pass\n"
            "c = Cycle(); c.self = c; c.array = pool.zeros(300_000, np.float32); Cycle.array = pool.zeros(9, np.int8)\n"
            "local = threading.local(); local.array = pool.zeros(50_000, np.float32)\n"
            "def work():\n"
            "    while True: pool.empty(40_000, np.float32)[:] = 1\n"
            "threading.Thread(target=work, daemon=True).start()\n"
            "class Last:\n"
            "    def __init__(self): self.array = pool.zeros(70_000, np.float32)\n"
            "    def __del__(self): self.array[0] = 1\n"
            "sys.last_one = Last()\n"
            "atexit.register(lambda: pool.empty(90_000, np.float32).fill(2))\n"
            "time.sleep(0.05)\n"
            "print('well')\n"
        )
        == "well\n"
    )


def test_zeros_made_beside_another_thread() -> None:
    """NumPy gives Python's lock away while it makes zeros: nobody may wait meanwhile for the pool's own."""
    seen = python(
        "import threading\n"
        "import numpy as np\n"
        "from wengert.runtime import memory, pool\n"
        "pool.empty(5, 'f4')\n"
        "kept, done = [], threading.Event()\n"
        "def others():\n"
        "    while not done.is_set(): pool.empty(40_000, np.float32)\n"
        "threads = [threading.Thread(target=others) for _ in range(3)]\n"
        "for thread in threads: thread.start()\n"
        "for i in range(300): kept.append(pool.zeros(50_000 + 100 * i, np.float32))\n"
        "done.set()\n"
        "for thread in threads: thread.join()\n"
        "used = lambda: memory.account()['used_bytes']\n"
        "memory.set_memory_limit(used() + 2_000_000)\n"
        "try: kept.append(pool.zeros(1_000_000, np.float32))\n"
        "except MemoryError: print('refused')\n"
        "del kept, threads\n"
        "print(used())\n",
        OMP_NUM_THREADS="1",
    )
    assert seen.split() == ["refused", "0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_goes_on_with_the_pool() -> None:
    seen = python(
        "import os\n"
        "import numpy as np\n"
        "from wengert.runtime import memory, pool\n"
        "x = pool.empty(100_000, np.int64); x[:] = 3\n"
        "y = pool.empty(200_000, np.int64); del y\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    x[:] = 4\n"
        "    made = [pool.zeros(200_000, np.int64) for _ in range(4)]\n"
        "    good = not any(m.any() for m in made) and memory.memory_allocated() == 800_000 + 4 * 1_600_000\n"
        "    del x, made\n"
        "    memory.empty_cache()\n"
        "    os._exit(0 if good and memory.memory_reserved() == 0 else 1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (x == 3).all(), memory.memory_allocated())\n"
    )
    assert seen.split() == ["0", "True", "800000"]


def test_a_forked_child_does_not_wait_for_a_thread_it_does_not_have() -> None:
    """Possible only without Python's lock: another thread was inside of the pool when this one forked."""
    library = Library(compile_object(allocator()), [*FUNCTIONS, "locked", "limit", "cache_limit", "cached_blocks"])
    word = {
        name: ctypes.c_int64.from_address(library.addresses[name]) for name in ("limit", "cache_limit", "cached_blocks")
    }
    locked = ctypes.c_int32.from_address(library.addresses["locked"])
    below = numpy_allocator()
    call = library.function
    call("start", None, *[ctypes.c_void_p] * 4)(below.context, below.malloc, below.calloc, below.free)
    allocate = call("allocate", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, gil=True)
    release = call("release", None, *[ctypes.c_void_p] * 3, gil=True)
    word["limit"].value = word["cache_limit"].value = 1 << 30
    used, free, other = (allocate(None, 50_000) for _ in range(3))
    release(None, free, None)
    locked.value = 1
    call("orphaned", None)()
    assert (locked.value, word["cached_blocks"].value) == (0, 0)
    assert allocate(None, 50_000) not in (used, other)
    release(None, used, None)
    release(None, other, None)
    assert word["cached_blocks"].value == 2
    assert {allocate(None, 50_000), allocate(None, 50_000)} == {used, other}


def test_the_limit_of_the_environment() -> None:
    seen = python(
        "import numpy as np\n"
        "from wengert.runtime import memory, pool\n"
        "print(memory.memory_limit())\n"
        "try: pool.empty(3 << 20, np.uint8)\n"
        "except MemoryError as error: print(error)\n",
        WENGERT_MEMORY_LIMIT="2MiB",
    )
    assert seen.splitlines()[0] == str(2 << 20)
    assert "the limit is 2.00 MiB" in seen


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_counts_and_gives_back_on_its_own() -> None:
    """In a process without compiled functions, whose programs a child gives back at once."""
    seen = python(
        "import os\n"
        "import numpy as np\n"
        "import wengert as wg\n"
        "from wengert.runtime import pool\n"
        "x = pool.empty(8 << 20, np.uint8); x[:] = 5\n"
        "pool.empty(4 << 20, np.uint8)\n"
        "before = wg.cpu.memory_stats()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    same = wg.cpu.memory_stats() == before\n"
        "    wg.cpu.empty_cache()\n"
        "    y = pool.empty(2 << 20, np.uint8); y[:] = 9; x[:] = 6\n"
        "    now = wg.cpu.memory_stats()\n"
        "    grown = now['allocated_bytes.all.current'] - before['allocated_bytes.all.current']\n"
        "    os._exit(0 if same and grown == 2 << 20 and now['cached_bytes'] == 0 else 2)\n"
        "_, status = os.waitpid(child, 0)\n"
        "print(status, wg.cpu.memory_stats() == before, (x == 5).all())\n",
    )
    assert seen.split() == ["0", "True", "True"]


def test_debugging_poisons_memory_and_finds_writes_past_the_end() -> None:
    seen = python(
        "import ctypes\n"
        "import numpy as np\n"
        "from wengert.runtime import pool\n"
        "x = pool.empty(10_000, np.float32)\n"
        "print(np.isnan(x).all())\n"
        "x[:] = 1\n"
        "late = (ctypes.c_float * 10_000).from_address(x.ctypes.data)\n"
        "del x\n"
        "print(np.isnan(np.array(late)).all())\n"
        "print(pool.zeros(10_000, np.float32).any(), np.isnan(pool.empty(10_000, np.float16)).all())\n"
        "pool.pool_of().check()\n"
        "y = pool.empty(1001, np.uint8)\n"
        "y.resize(1003)\n"
        "z = pool.zeros(1001, np.uint8)\n"
        "ctypes.c_uint8.from_address(z.ctypes.data + 1001 + 9).value = 0\n"
        "del y\n"
        "pool.pool_of().check()\n"
        "del z\n"
        "try: pool.pool_of().check()\n"
        "except RuntimeError as error: print(error)\n"
        "pool.pool_of().check()\n",
        WENGERT_POOL_DEBUG="1",
    )
    assert seen.splitlines() == [
        "True",
        "True",
        "False True",
        "an array of 1001 bytes of cpu:0 was written past its end before it was freed",
    ]

"""The random-kernel fuzzer: it finds nothing in the project, and finds faults that are planted."""

import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.loops.programs import PROGRAMS, program
from wengert.codegen.emit import bounds_checked
from wengert.errors import KernelError
from wengert.loops import moves
from wengert.loops.accesses import expressions
from wengert.loops.ir import Kernel, Loop, Store, walk
from wengert.loops.scalar import Scalar, const, postorder, substitute
from wengert.loops.text import parse
from wengert.loops.verify import verify
from wengert.testing.guarded import GuardedMemory
from wengert.testing.kernel_trial import (
    DifferenceError,
    Trial,
    compile_trials,
    prepare,
    random_schedule,
    run_native,
)
from wengert.testing.kernels import fuzz
from wengert.testing.random_kernels import Sample, random_sample
from wengert.testing.shrink import shrink


def test_nothing_is_found_by_the_evaluator() -> None:
    report = fuzz(seed=1, start=0, stop=40, native=False)
    assert (report.count, report.failures) == (40, [])
    assert {"vectorize", "tile"} <= report.moves.keys()


def test_nothing_is_found_in_machine_code() -> None:
    report = fuzz(seed=1, start=0, stop=30)
    assert not report.failures, str(report)


def test_samples_are_the_same_each_time() -> None:
    a, b = random_sample(3, 14), random_sample(3, 14)
    assert a.kernel == b.kernel
    assert a.sizes == b.sizes
    for name, array in a.arrays.items():
        np.testing.assert_array_equal(array, b.arrays[name])
        assert array.strides == b.arrays[name].strides


def test_every_construct_is_tried() -> None:
    ops: set[str] = set()
    seen: set[str] = set()
    for n in range(200):
        kernel = random_sample(0, n).kernel
        for s in walk(kernel.body):
            seen.add(type(s).__name__)
            seen |= {f.monoid for f in s.folds} if isinstance(s, Loop) else set()
            seen |= (
                {"add" if s.add else "set", "guard" if s.guard is not None else "always"}
                if isinstance(s, Store)
                else set()
            )
            ops |= {x.op for x in postorder(expressions(s))}
        for b in kernel.buffers:
            seen |= {b.dtype, b.role, *(f"stride {s}" for s in b.strides)}
    assert {
        "Loop",
        "Let",
        "Store",
        "Update",
        "Stage",
        "add",
        "guard",
        "in",
        "out",
        "inout",
        "f16",
        "bf16",
        "bool",
    } <= seen
    assert {"sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "welford", "log_sum_exp"} <= seen
    assert {"stride 0", "stride 1", "stride None"} <= seen
    assert {"load", "lookup", "select", "rarely", "fma", "bits", "cast", "quotient", "remainder", "shl", "shr"} <= ops


def found(number: range) -> int:
    """How many of some samples show a difference."""
    count = 0
    for n in number:
        sample = random_sample(0, n)
        try:
            prepare(n, sample, random_schedule(sample.kernel, random.Random(n)))
        except DifferenceError:
            count += 1
    return count


def test_a_wrong_tile_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks without their last iteration."""

    def short(kernel: Kernel, variable: str, count: int) -> Kernel:
        right = moves.tile(kernel, variable, count)
        block = const(count, "i64")

        def less(x: Scalar) -> Scalar:
            return substitute(x, {n: n - 1 for n in postorder((x,)) if n.op == "add" and n.args[1] is block})

        return right.with_body(moves._rewrite(right.body, less, {}))

    monkeypatch.setitem(moves.MOVES, "tile", short)
    assert found(range(60)) > 0


def test_lanes_where_iterations_depend_on_each_other_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verifier that finds no conflict: the iterations in another order give another result."""
    text = "kernel f(inout y: f32[n: 1])\n  for i in 1:n\n    y[i] = y[i - 1] * 0.5\n"
    kernel = parse(text)
    sample = Sample(kernel, {"n": 5}, {}, {"y": np.arange(5, dtype=np.float32)}, True)
    with pytest.raises(KernelError):
        verify(moves.vectorize(kernel, "i", 4))
    monkeypatch.setattr(moves, "verify", lambda kernel: None)
    with pytest.raises(DifferenceError, match="in any order"):
        prepare(0, sample, [("vectorize", "i", 4)])


# ---- machine code beside memory that may not be touched


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"everything", "scatter"}))
@pytest.mark.parametrize("n", [0, 1, 7, 32])
def test_programs_as_machine_code(name: str, n: int) -> None:
    kernel = program(name)
    sizes = {size: {"k": 3}.get(size, n) for size in kernel.sizes}
    r = np.random.default_rng(0)
    arrays = {b.name: r.normal(size=[sizes[str(d)] for d in b.dims]).astype(np.float32) for b in kernel.buffers}
    sample = Sample(kernel, sizes, {}, arrays, exact=False)
    trials = [prepare(k, sample, schedule) for k, schedule in enumerate(([], *schedules(kernel)))]
    library = compile_trials(trials)
    for k, trial in enumerate(trials):
        for seed in range(4):
            run_native(trial, library.addresses[f"k{k}"], random.Random(seed))


def schedules(kernel: Kernel) -> list[list[moves.Move]]:
    """Every loop in lanes and unrolled, as far as that can be."""
    variables = [s.variable for s in walk(kernel.body) if isinstance(s, Loop)]
    names = [f"{v}.{variables[:k].count(v)}" if variables.count(v) > 1 else v for k, v in enumerate(variables)]
    lanes: list[moves.Move] = [("vectorize", name, 8) for name in names]
    return [lanes, [*lanes, *(("unroll", name, 4) for name in names)], [("parallelize", names[0]), *lanes[1:]]]


def test_wrong_machine_code_is_noticed() -> None:
    """The code of one kernel run as another's."""
    x = np.arange(6, dtype=np.float32)
    sample = Sample(program("copy"), {"n": 6}, {}, {"x": x, "y": np.zeros(6, np.float32)}, True)
    trial = prepare(0, sample, [])
    other = program("copy").with_body((replace_value(program("copy")),))
    library = compile_trials([Trial(0, sample, [], other, trial.expected)])
    with pytest.raises(DifferenceError, match="machine code differs: y"):
        run_native(trial, library.addresses["k0"], random.Random(0))


def replace_value(kernel: Kernel) -> Loop:
    loop = kernel.body[0]
    assert isinstance(loop, Loop)
    store = loop.body[0]
    assert isinstance(store, Store)
    return Loop(loop.variable, loop.start, loop.stop, (Store(store.buffer, store.index, store.value + 1.0),))


@pytest.mark.skipif(bounds_checked(), reason="of code without bounds checks")
@pytest.mark.parametrize(("index", "at_end"), [("i + 1", True), ("i - 1", False)])
def test_a_read_outside_ends_the_process(index: str, at_end: bool) -> None:
    """In a process of its own, since it ends."""
    code = f"""
import ctypes, numpy as np
from wengert.loops.text import parse
from wengert.codegen.emit import bounds_checked, emit
from wengert.codegen.engine import load
from wengert.testing.guarded import GuardedMemory
text = "kernel f(x: f32[n: 1], out y: f32[n: 1])\\n  for i in 0:n\\n    y[i] = x[{index}]\\n"
library = load(emit(parse(text), "f"), ["f"])
memory = GuardedMemory(2, 4096)
x = memory.place(0, np.ones(1024, np.float32), {at_end})
y = memory.place(1, np.ones(1024, np.float32), {at_end})
slots = (ctypes.c_int64 * 3)(x.ctypes.data, y.ctypes.data, 1024)
print("before", flush=True)
library.function("f", None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(ctypes.addressof(slots), 0, 1)
print("after")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "before\n", done.stderr
    assert done.returncode < 0


def test_arrays_are_placed_at_the_edges() -> None:
    memory = GuardedMemory(3, 5000)
    assert memory.room == 8192
    for array in (
        np.arange(10.0),
        np.arange(12.0).reshape(3, 4)[:, ::-2],
        np.array(3.0),
        np.empty((0, 4)),
        np.broadcast_to(1.0, (3, 3)),
    ):
        for at_end in (False, True):
            held = memory.place(1, array, at_end)
            np.testing.assert_array_equal(held, array)
            assert held.strides == array.strides
    low, high = np.lib.array_utils.byte_bounds(memory.place(2, np.arange(12.0)[::-2], at_end=True))
    assert high % 4096 == 0
    low, high = np.lib.array_utils.byte_bounds(memory.place(2, np.arange(12.0)[::-2], at_end=False))
    assert low % 4096 == 0
    with pytest.raises(ValueError, match="the array spans 8200 bytes, a room has 8192"):
        memory.place(0, np.zeros(1025), at_end=True)


def test_a_failing_kernel_is_made_small() -> None:
    """Whatever has a division in a loop "fails"."""

    def fails(sample: Sample, schedule: list[Any]) -> bool:
        loops = [s for s in walk(sample.kernel.body) if isinstance(s, Loop)]
        return any(x.op == "div" for loop in loops for s in walk(loop.body) for x in postorder(expressions(s)))

    numbers = [n for n in range(60) if fails(random_sample(0, n), [])][:3]
    assert numbers
    for n in numbers:
        sample = random_sample(0, n)
        small, schedule = shrink((sample, random_schedule(sample.kernel, random.Random(n))), fails)
        assert fails(small, schedule)
        assert schedule == []
        assert len(list(walk(small.kernel.body))) <= 3
        verify(small.kernel)

"""One trial of a random kernel: what it must compute, what moves and machine code make of it, and how far apart they are."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from llvmlite import ir

from wengert.codegen.emit import emit, slots
from wengert.codegen.engine import Library, load
from wengert.errors import KernelError
from wengert.loops.evaluate import Machine, evaluate, iterations
from wengert.loops.ir import Kernel, Loop, walk
from wengert.loops.moves import MOVES, Move
from wengert.loops.numerics import numpy_dtype
from wengert.loops.scalar import BINARY_MATH, UNARY_MATH, Scalar, is_float
from wengert.loops.text import parse, show
from wengert.loops.verify import verify
from wengert.testing.guarded import GuardedMemory
from wengert.testing.random_kernels import Sample

__all__ = ["DifferenceError", "Trial", "compile_trials", "prepare", "random_schedule", "run_native"]

Arrays = dict[str, np.ndarray[Any, Any]]
_ROOMS, _CAPACITY = 40, 1 << 16
_NOISE: Final = 16  # units in the last place by which inexact results are shaken to see what that changes
_INEXACT_FOLDS: Final = ("sum", "prod", "welford", "log_sum_exp")


class DifferenceError(Exception):
    """Two ways to run a kernel differ; the message shows where."""


@dataclass
class Trial:
    """A sample, the schedule that is tried on it, and what it must compute."""

    number: int
    sample: Sample
    schedule: list[Move]
    moved: Kernel
    expected: Arrays


def prepare(number: int, sample: Sample, schedule: Sequence[Move]) -> Trial:
    """Verify, print and parse, evaluate, and make the moves that can be made; the result must stay the same.

    Raises:
        DifferenceError: if it does not. KernelError: if the kernel breaks a rule.
    """
    kernel = sample.kernel
    verify(kernel)
    expected = _evaluated(kernel, sample)
    made = []
    for name, *arguments in schedule:
        try:
            kernel = MOVES[name](kernel, *arguments)
            made.append((name, *arguments))
        except KernelError:
            continue
    if parse(show(kernel)) != kernel:
        raise DifferenceError(f"the text is parsed as another kernel:\n{show(kernel)}\n{show(parse(show(kernel)))}")
    trial = Trial(number, sample, made, kernel, expected)
    if made:
        compare(trial, _evaluated(kernel, sample), "the moves change the result")
    if any(isinstance(s, Loop) and _free(s) for s in walk(kernel.body)):
        backwards = _evaluated(kernel, sample, _Backwards)
        compare(trial, backwards, "iterations that may run in any order change the result in another one")
    return trial


def _free(loop: Loop) -> bool:
    """Whether the iterations of a loop run in no certain order."""
    return loop.parallel or loop.lanes > 1


class _Backwards(Machine):
    """Runs loops whose order does not matter from their end."""

    def at_once(self, loop: Loop) -> bool:
        return not _free(loop) and super().at_once(loop)

    def order(self, loop: Loop, iterations: range) -> range:
        return iterations[::-1] if _free(loop) else iterations


def _evaluated(kernel: Kernel, sample: Sample, machine: type[Machine] | None = None) -> Arrays:
    arrays = _copies(sample)
    evaluate(kernel, arrays, sample.sizes, sample.params, machine)
    return {b.name: arrays[b.name] for b in kernel.buffers if b.role != "in"}


def _copies(sample: Sample) -> Arrays:
    """Copies of what is written, in the layout it has."""
    written = {b.name for b in sample.kernel.buffers if b.role != "in"}
    return {n: np.array(a) if n in written else a for n, a in sample.arrays.items()}


def random_schedule(kernel: Kernel, choose: Any) -> list[Move]:
    """Return moves that may or may not be possible."""
    found: list[Move] = []
    variables = [s.variable for s in walk(kernel.body) if isinstance(s, Loop)]
    for _ in range(choose.choice((0, 1, 2, 3, 4, 5)) if variables else 0):
        name = choose.choice(
            ("tile", "vectorize", "vectorize", "vectorize", "unroll", "parallelize", "reorder", "stage", "fuse")
        )
        variable = choose.choice(variables)
        variable += f".{choose.randrange(variables.count(variable))}" if variables.count(variable) > 1 else ""
        number = {"tile": (1, 2, 3, 4, 8), "vectorize": (2, 4, 8, 8, 16), "unroll": (2, 3, 4)}.get(name)
        if name == "stage":
            inputs = [b.name for b in kernel.buffers if b.role == "in" and b.dims]
            if inputs:
                found.append((name, variable, choose.choice(inputs)))
        else:
            found.append((name, variable) if number is None else (name, variable, choose.choice(number)))
        if name == "tile" and choose.random() < 0.5:
            found.append(("parallelize", variable.partition(".")[0] + "_block"))
    return found


# ---- comparing


class _Shaken(Machine):
    """Computes with errors of some units in the last place where a result is inexact."""

    shake: Callable[[Any], Any]

    def steps(self, nodes: list[Scalar]) -> Any:
        math = {*UNARY_MATH, *BINARY_MATH}
        return [
            (x, _after(operation, self.shake) if x.op in math else operation, args)
            for x, operation, args in super().steps(nodes)
        ]

    def update(self, name: str, values: tuple[Any, ...]) -> None:
        fold = self.folds[name].fold
        if is_float(fold.dtype) and fold.monoid in _INEXACT_FOLDS:
            shape = () if self.lanes is None else self.lanes.shape
            values = tuple(self.shake(np.broadcast_to(v, shape)) for v in values)
        super().update(name, values)


def _after(operation: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *args: change(operation(*args))


def _shaker(seed: int) -> type[Machine]:
    generator = np.random.default_rng(seed)

    def shake(self: Any, x: Any) -> Any:
        noise = generator.uniform(-_NOISE, _NOISE, np.shape(x)) * np.finfo(x.dtype).eps
        return (x * (1 + noise)).astype(x.dtype)[()]

    return type("_Shaker", (_Shaken,), {"shake": shake})


def compare(trial: Trial, found: Mapping[str, np.ndarray[Any, Any]], problem: str) -> None:
    """Raise a :class:`DifferenceError` if results are not what they must be."""
    alike = _folds_extremes(trial.sample.kernel)
    wrong = [name for name, array in trial.expected.items() if not _same(array, found[name], alike)]
    if wrong and not trial.sample.exact:
        runs = [_evaluated(trial.sample.kernel, trial.sample, _shaker(seed)) for seed in range(3)]
        wrong = [n for n in wrong if not _near(trial.expected[n], found[n], [each[n] for each in runs])]
    if wrong:
        name = wrong[0]
        text = f"{problem}: {name}\nexpected {trial.expected[name]!r}\nfound    {found[name]!r}"
        raise DifferenceError(f"{text}\n\n{describe(trial)}")


def describe(trial: Trial) -> str:
    """Return the kernels of a trial and its data."""
    sample = trial.sample
    data = "\n".join(f"{n} = {a!r}" for n, a in sample.arrays.items() if a.size <= 40)
    moved = f"{trial.schedule}\n\n{show(trial.moved)}\n" if trial.schedule else ""
    return f"{show(sample.kernel)}\n{moved}sizes {sample.sizes}, params {sample.params}\n{data}"


def _folds_extremes(kernel: Kernel) -> bool:
    """Whether zeros of either sign may be taken for one another: the extreme of equal elements is any of them."""
    folds = (f for s in walk(kernel.body) if isinstance(s, Loop) for f in s.folds)
    return any(f.monoid in ("max", "min", "argmax", "argmin", "log_sum_exp") for f in folds)


def _same(a: Any, b: Any, zeros_alike: bool = False) -> bool:
    if zeros_alike:
        a, b = np.where(a == 0, 0, a).astype(a.dtype), np.where(b == 0, 0, b).astype(b.dtype)
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if a.dtype.kind in "iub":
        return bool((a == b).all())
    as_bits = f"u{a.dtype.itemsize}"
    return bool(((a.view(as_bits) == b.view(as_bits)) | ((a != a) & (b != b))).all())


def _near(a: Any, b: Any, shaken: list[Any]) -> bool:
    """Whether two results differ by no more than small errors on the way change them, and a few units in the last place."""
    if a.dtype.kind in "iub":
        return False
    unit = {numpy_dtype("f16"): 2.0**-10, numpy_dtype("bf16"): 2.0**-7}.get(a.dtype) or 8 * float(np.finfo(a.dtype).eps)
    tiny = 1e-7 if unit > 1e-4 else 0.0
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        spread = np.max([np.abs(s.astype(np.float64) - a) for s in shaken], axis=0)
        close = np.abs(a - b) <= 4 * spread + unit * np.abs(a) + tiny
    unsure = ~np.isfinite(spread) & ~np.isfinite(a)  # an overflow that small errors can undo
    return bool((close | (a == b) | (np.isnan(a) & np.isnan(b)) | unsure).all())


# ---- machine code


def compile_trials(trials: Sequence[Trial]) -> Library:
    """Return machine code of the moved kernels, as functions ``k0``, ``k1`` …"""
    module = ir.Module("trials")
    text = ""
    for n, trial in enumerate(trials):
        text = emit(trial.moved, f"k{n}", module, trial.sample.sizes)
    return load(text, [f"k{n}" for n in range(len(trials))])


_memory: list[GuardedMemory] = []


def run_native(trial: Trial, address: int, choose: Any) -> None:
    """Run machine code with every array beside memory that may not be touched, in parts if it is parallel, and compare.

    Raises:
        DifferenceError: if the results are wrong. A read or write outside of an array ends the process.
    """
    if not _memory:
        _memory.append(GuardedMemory(_ROOMS, _CAPACITY))
    copies = _copies(trial.sample)
    held = {
        name: _memory[0].place(room, array, choose.random() < 0.6) for room, (name, array) in enumerate(copies.items())
    }
    arguments = (ctypes.c_int64 * (len(slots(trial.moved)) + 1))(*_slots(trial, held))
    count = iterations(trial.moved, trial.sample.sizes, trial.sample.params)
    cuts = sorted({0, count, *(choose.randint(0, count) for _ in range(2) if count > 1)})
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
    for begin, end in pairwise(cuts):
        function(ctypes.addressof(arguments), begin, end)
    compare(trial, {n: np.array(held[n]) for n in trial.expected}, "machine code differs")


def _slots(trial: Trial, held: Arrays) -> list[int]:
    dtypes = {p.name: p.dtype for p in trial.moved.params}
    found = []
    for kind, key in slots(trial.moved):
        if kind == "pointer":
            found.append(held[key].__array_interface__["data"][0])
        elif kind == "stride":
            found.append(held[key[0]].strides[key[1]])
        elif kind == "size":
            found.append(trial.sample.sizes[key])
        elif kind == "param":
            found.append(_number(trial.sample.params[key], dtypes[key]))
        else:
            found.append(0)
    return found


def _number(value: Any, dtype: str) -> int:
    """A number as a slot: the bits of a float in its low part, an integer with its sign."""
    array = np.asarray(value, numpy_dtype(dtype))
    return int.from_bytes(array.tobytes(), "little") if is_float(dtype) else int(array.astype(np.int64))

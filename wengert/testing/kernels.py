"""The random-kernel fuzzer: kernels of the loop IR before and after moves, evaluated and as machine code.

Each random kernel is verified, printed and parsed, evaluated, changed by random moves, evaluated again, compiled, and run on
arrays beside memory that may not be touched. What differs is made small and printed as text.

    python -m wengert.testing.kernels --count 50000 --seed 0
"""

import argparse
import contextlib
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wengert.errors import KernelError
from wengert.loops.moves import Move
from wengert.loops.text import show
from wengert.testing.kernel_trial import (
    DifferenceError,
    Trial,
    compile_trials,
    describe,
    prepare,
    random_schedule,
    run_native,
)
from wengert.testing.random_kernels import Sample, random_sample
from wengert.testing.shrink import shrink

__all__ = ["Failure", "Report", "fuzz", "main"]

_BATCH = 25  # kernels in one module: what compiling it costs once is shared
_PATIENCE = 60  # seconds for a batch
_CRASHED, _HUNG = "the process ended with", "the process did not end"


class Failure(NamedTuple):
    """What went wrong with a kernel: its number, the step ("prepare", "compile" or "run"), and what was seen."""

    number: int
    step: str
    message: str


@dataclass
class Report:
    """What a run found.

    Attributes:
        count: kernels tried. moves: how often each move was made. failures: what went wrong. seconds: how long it took.
    """

    count: int = 0
    moves: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        rate = self.count / max(self.seconds, 1e-9)
        moves = ", ".join(f"{n} {name}" for name, n in self.moves.most_common())
        lines = [f"{self.count} kernels, {rate:.0f} a second, {len(self.failures)} failures; moves made: {moves}"]
        return "\n".join([*(f"kernel {f.number}, {f.step}: {f.message}\n" for f in self.failures), *lines])


def _trial(seed: int, number: int) -> Trial:
    sample = random_sample(seed, number)
    return prepare(number, sample, random_schedule(sample.kernel, random.Random(f"moves {seed}:{number}")))


def _batch(seed: int, numbers: Sequence[int], native: bool, running: Any) -> Iterator[Trial | Failure]:
    """Try kernels; ``running`` (a shared number) holds the one whose machine code runs, for a parent to see."""
    trials = []
    for number in numbers:
        try:
            trials.append(_trial(seed, number))
        except Exception as error:
            yield Failure(number, "prepare", _message(error))
    library, failures = _compiled(trials) if native else (None, [])
    yield from failures
    broken = {f.number for f in failures}
    ready = [t for t in trials if t.number not in broken]
    for n, trial in enumerate(ready):
        running.value = trial.number
        try:
            if library is not None:
                run_native(trial, library.addresses[f"k{n}"], random.Random(trial.number))
            yield trial
        except Exception as error:
            yield Failure(trial.number, "run", _message(error))
        running.value = -1


def _compiled(trials: Sequence[Trial]) -> tuple[Any, list[Failure]]:
    """Machine code of kernels, without those that cannot be compiled."""
    try:
        return compile_trials(trials), []
    except Exception:
        failures, good = [], []
        for trial in trials:
            try:
                compile_trials([trial])
                good.append(trial)
            except Exception as error:
                failures.append(Failure(trial.number, "compile", f"{_message(error)}\n{describe(trial)}"))
        return compile_trials(good), failures


def _message(error: Exception) -> str:
    known = isinstance(error, DifferenceError | KernelError)
    return str(error) if known else f"{type(error).__name__}: {error}"


def _work(seed: int, start: int, stop: int, native: bool, running: Any, results: Any) -> None:
    """Try the kernels of a range in a process of its own, and send what comes of each batch."""
    for begin in range(start, stop, _BATCH):
        numbers = range(begin, min(begin + _BATCH, stop))
        moves: Counter[str] = Counter()
        failures = []
        for each in _batch(seed, numbers, native, running):
            if isinstance(each, Failure):
                failures.append(each)
            else:
                moves.update(name for name, *_ in each.schedule)
        results.send((numbers.stop, moves, failures))


def fuzz(seed: int, start: int, stop: int, native: bool = True, most: int = 10) -> Report:
    """Try kernels ``start`` … ``stop`` of a seed in a process of its own, until ``most`` of them failed.

    A kernel that ends the process, or does not end, is a failure; the rest goes on in another process.
    """
    report, began = Report(), time.perf_counter()
    context = multiprocessing.get_context("spawn")
    at = start
    while at < stop and len(report.failures) < most:
        receive, send = context.Pipe(duplex=False)
        running = context.Value("q", -1)
        process = context.Process(target=_work, args=(seed, at, stop, native, running, send))
        process.start()
        send.close()
        with contextlib.suppress(EOFError):
            while at < stop and len(report.failures) < most:
                if not receive.poll(_PATIENCE):
                    break
                done, moves, failures = receive.recv()
                report.count += done - at
                report.moves += moves
                report.failures += failures
                at = done
        if at < stop and len(report.failures) < most:
            number = max(int(running.value), at)
            report.failures.append(Failure(number, "run", _ended(process)))
            report.count += number + 1 - at
            at = number + 1
        process.terminate()
        process.join()
    report.seconds = time.perf_counter() - began
    return report


def _ended(process: Any) -> str:
    """What became of a process that sends nothing any more."""
    process.join(1)
    return f"{_CRASHED} {process.exitcode}" if process.exitcode is not None else _HUNG


def _fails(seed: int, failure: Failure) -> Any:
    """Return whether a case fails at the same step as a failure, as a function."""

    def step(sample: Sample, schedule: list[Move]) -> str:
        trial = None
        try:
            trial = prepare(0, sample, schedule)
            library = compile_trials([trial])
            run_native(trial, library.addresses["k0"], random.Random(failure.number))
        except DifferenceError:
            return "prepare" if trial is None else "run"
        except KernelError:
            return ""
        except Exception:
            return "prepare" if trial is None else "compile"
        return ""

    def dies(sample: Sample, schedule: list[Move]) -> bool:
        process = multiprocessing.get_context("fork").Process(target=step, args=(sample, schedule))
        process.start()
        process.join(5)
        hung = process.exitcode is None
        process.terminate()
        process.join()
        return hung if failure.message == _HUNG else not hung and (process.exitcode or 0) < 0

    if failure.message == _HUNG or failure.message.startswith(_CRASHED):
        return dies
    return lambda sample, schedule: step(sample, schedule) == failure.step


def smallest(seed: int, failure: Failure) -> str:
    """Return the text of a failing kernel made small, with the moves and data that it fails with."""
    sample = random_sample(seed, failure.number)
    schedule = random_schedule(sample.kernel, random.Random(f"moves {seed}:{failure.number}"))
    small, moves = shrink((sample, schedule), _fails(seed, failure))
    try:
        return describe(prepare(failure.number, small, moves))
    except Exception as error:
        return f"{_message(error)}\n{show(small.kernel)}{moves}\nsizes {small.sizes}, params {small.params}"


def main() -> int:
    """Run as the command line says; return 0 if nothing failed."""
    parser = argparse.ArgumentParser(
        description="random kernels, evaluated and as machine code, before and after moves"
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the number of the first kernel")
    parser.add_argument("--most", type=int, default=10, help="stop after so many failures")
    parser.add_argument("--no-native", action="store_true", help="only the evaluator and the moves")
    parser.add_argument("--no-shrink", action="store_true", help="print failing kernels as they are")
    options = parser.parse_args()
    report = fuzz(options.seed, options.start, options.start + options.count, not options.no_native, options.most)
    print(report)
    if not options.no_shrink:
        for failure in report.failures:
            print(f"\nkernel {failure.number} made small:\n{smallest(options.seed, failure)}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())

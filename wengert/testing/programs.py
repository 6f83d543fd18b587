"""The program fuzzer: random functions, called as they are and compiled, must do the same.

Compared are results (values, dtypes, memory they share with what the function was given), errors, everything that was
written, gradients and the state of the generator, call after call. What differs is made small and printed as code.

    python -m wengert.testing.programs --count 2000 --seed 0
"""

import argparse
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import wengert as wg
from wengert.compiling.closeness import numpy_only, tolerance
from wengert.compiling.function import Compiled
from wengert.tape import walk
from wengert.testing.random_programs import Case, indented, random_case

__all__ = ["Failure", "Report", "difference", "fuzz", "main", "smaller"]

BACKENDS = ("reference", "native")
HALF, SINGLE, DOUBLE = 3e-2, 1e-4, 1e-9  # how far numbers may be off, in relation to their size


class Failure(NamedTuple):
    """A program whose compiled calls do something else: its number, the backend, what differs, and the program."""

    number: int
    backend: str
    message: str
    case: Case


@dataclass
class Report:
    """What a run found.

    Attributes:
        count: programs tried. captured: how many ran as captured programs to the end. failures: those that differ.
    """

    count: int = 0
    captured: int = 0
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        rate = self.count / max(self.seconds, 1e-9)
        lines = [f"{self.count} programs, {rate:.0f} a second, {self.captured} captured, {len(self.failures)} failures"]
        return "\n".join([*(f"program {f.number}, {f.backend}: {f.message}" for f in self.failures), *lines])


def _observed(text: str, backend: str | None) -> tuple[list[dict[str, Any]], bool]:
    """Run the calls of a program; return what can be seen after each, and whether it was captured."""
    space: dict[str, Any] = {}
    exec(compile(text, "<program>", "exec"), space)
    wg.manual_seed(7)
    held = space["build"]()
    step = held["step"]
    run = step if backend is None else Compiled(step, fullgraph=False, backend=backend)
    seen = []
    for k, n in enumerate(space["CALLS"]):
        try:
            arguments = space["arguments"](n, k)
        except Exception:
            continue
        seen.append(_call(run, arguments, held, space["OUTSIDE"]))
        if backend is not None:
            programs = [program for ways in run.programs.values() for program in ways]
            seen[-1]["doubles"] = _doubles(programs)
            for program in programs:
                program.scramble()
        for statement in space["BETWEEN"]:
            with suppress(Exception):
                exec(statement, {**space, **held})
    return seen, backend is None or (not run._given_up and any(run.programs.values()))


def _doubles(programs: list[Any]) -> float:
    """Return how far numbers in double precision may be off: as the coarsest dtype that anything was rounded to allows."""
    graphs = [p.graph for p in programs] + [p.outward.graph for p in programs if p.outward is not None]
    return min(SINGLE, max((tolerance(node) for graph in graphs for node in graph.nodes), default=DOUBLE))


def _call(run: Callable[..., Any], arguments: list[Any], held: dict[str, Any], outside: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    tensors = {f"argument {i}": t for i, t in enumerate(arguments)} | held
    for name, module in held.items():
        if isinstance(module, wg.nn.Module):
            tensors |= {f"{name}.{k}": t for k, t in module.state_dict(keep_vars=True).items()}
    tensors = {name: t for name, t in tensors.items() if isinstance(t, wg.Tensor)}
    before = dict(tensors)
    try:
        returned = run(*arguments)
        found["result"] = [_seen(r, before) for r in returned]
        if outside:
            walked = [r for r in returned if isinstance(r, wg.Tensor) and r.requires_grad]
            sum(((r.abs() if r.is_complex() else r).to(wg.float64) ** 2).sum() for r in walked).backward()
    except Exception as error:
        found["error"], found["said"] = type(error).__name__, f"{error} ({_last_line(error)})"
        found["line"] = next((f.lineno for f in traceback.extract_tb(error.__traceback__) if f.name == "step"), 0)
    for name, tensor in tensors.items():
        found[name] = _seen(tensor, {})
        if tensor.is_leaf:
            found[f"{name}.grad"] = _seen(tensor.grad, {})
    found["generator"] = _seen(wg.get_rng_state(), {})
    return found


def _last_line(error: Exception) -> str:
    """Return the place in the project that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}"


def _seen(value: Any, given: dict[str, Any]) -> Any:
    if not isinstance(value, wg.Tensor):
        return value
    array = value.detach().numpy()
    shares = [name for name, t in given.items() if np.may_share_memory(array, t.detach().numpy())]
    same = [name for name, t in given.items() if t is value]
    return np.array(array), value.dtype, value.requires_grad, shares, same


@contextmanager
def _plain() -> Iterator[None]:
    """Run functions as they are in a block, in NumPy.

    Without compile, gradients that turn out to be zeros are not multiplied on behind writes and ``cat``, lest 0 · inf make NaN.
    A graph cannot know that they are zeros, so that is left out here.
    """
    with numpy_only(), patch.object(walk, "is_constant_zero", lambda g: False):
        yield


def difference(case: Case, backend: str) -> tuple[str, bool]:
    """Return in words what a compiled program does otherwise ("" if nothing), and whether it was captured."""
    text = case.text()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        with _plain():
            want, _ = _observed(text, None)
        try:
            found, captured = _observed(text, backend)
        except Exception as error:
            return f"{type(error).__name__}: {error}", True
        message = _compared(found, want, text)
        if message and _leaves_out(case, found):
            message = ""
    return message, captured


def _compared(found: list[dict[str, Any]], want: list[dict[str, Any]], text: str) -> str:
    """Say what is otherwise in some call, up to the first that raises."""
    lenient = "backward()" in text or "grad(" in text
    for k, (f, w) in enumerate(zip(found, want, strict=True)):
        if f.get("error") != w.get("error"):
            said = f"{f.get('error')} {f.get('said', '')} instead of {w.get('error')} {w.get('said', '')}"
            return f"call {k}: error {said}"
        if "error" in w:
            break
        for name, value in w.items():
            if (why := _differs(f[name], value, lenient, f.get("doubles", DOUBLE))) is not None:
                return f"call {k}: {name}: {why}"
    return ""


def _leaves_out(case: Case, found: list[dict[str, Any]]) -> bool:
    """Whether compiled calls do what the program does when it goes on after statements that raise.

    What is wrong with shapes is noticed during the capture, before any value is; and what nothing needs is not computed.
    """
    while True:
        with _plain():
            want, _ = _observed(case.text(), None)
        if not _compared(found, want, case.text()):
            return True
        k = next((_statement(case, w["line"]) for w in want if "error" in w), None)
        if k is None:
            return False
        tried = "\n".join(["try:", *indented([case.body[k]]), "except Exception:", "    pass"])
        case = replace(case, body=(*case.body[:k], tried, *case.body[k + 1 :]))


def _statement(case: Case, line: int) -> int | None:
    """Return which statement of the function's body stands in a line of the text; None if that is another part of it."""
    lines = case.text().split("\n")
    after = next(i for i, text in enumerate(lines, 2) if text.startswith("    def step("))
    for k, statement in enumerate(case.body):
        before, after = after, after + len(statement.split("\n"))
        if before <= line < after:
            return k
    return None


def _differs(found: Any, want: Any, lenient: bool, doubles: float) -> str | None:
    """Say how two things differ; ``lenient``: a result may have no history where that of the function itself is used up."""
    if isinstance(want, list):
        return next(
            (
                f"{i}: {why}"
                for i, (f, w) in enumerate(zip(found, want, strict=True))
                if (why := _differs(f, w, lenient, doubles))
            ),
            None,
        )
    if not isinstance(want, tuple):
        return (
            None
            if type(found) is type(want) and (found == want or found != found)
            else f"{found!r} instead of {want!r}"
        )
    if not isinstance(found, tuple):
        return f"{found!r} instead of a tensor"
    (f, *got), (w, *expected) = found, want
    if lenient and not got[1]:
        expected[1] = False
    if got != expected or f.shape != w.shape:
        return f"{[f.shape, *got]} instead of {[w.shape, *expected]}"
    if not _close(f, w, doubles):
        return f"{f.tolist()} instead of {w.tolist()}"
    return None


def _close(found: Any, want: Any, doubles: float) -> bool:
    if want.dtype.kind == "c":
        return _close(found.real, want.real, doubles) and _close(found.imag, want.imag, doubles)
    if want.dtype.kind not in "fV" and want.dtype.name != "bfloat16":
        return bool(np.array_equal(found, want))
    rtol = {2: HALF, 4: SINGLE, 8: doubles}[want.dtype.itemsize]
    f, w = found.astype(np.float64), want.astype(np.float64)
    scale = max(1.0, float(np.max(np.abs(w), initial=0.0, where=np.isfinite(w))))
    return bool(np.allclose(f, w, rtol=rtol, atol=rtol * 1e-1 * scale, equal_nan=True))


def _candidates(case: Case) -> Iterator[Case]:
    for name in ("body", "between", "held", "arguments", "returned", "calls"):
        items = getattr(case, name)
        for i in reversed(range(len(items))):
            if len(items) > 1 or name in ("body", "between", "held", "returned"):
                changed: dict[str, Any] = {name: (*items[:i], *items[i + 1 :])}
                yield replace(case, **changed)
    if case.outside:
        yield replace(case, outside=False)


def smaller(case: Case, backend: str, message: str) -> Case:
    """Return a program with fewer statements whose compiled calls still differ, in the same manner."""
    kind = _kind(message)
    again = True
    while again:
        again = False
        for candidate in _candidates(case):
            try:
                found = difference(candidate, backend)[0]
            except Exception:
                continue
            if found and _kind(found) == kind:
                case, again = candidate, True
                break
    return case


def _kind(message: str) -> str:
    if not message.startswith("call"):
        return message.split(":")[0]
    return " ".join(message.split(":")[1].split()[:2]) if ": error " in message else "values"


def fuzz(
    seed: int, start: int, stop: int, most: int = 10, told: Callable[[Failure], None] = lambda failure: None
) -> Report:
    """Try programs ``start`` … ``stop`` of a seed, until ``most`` of them failed; ``told`` hears of each at once."""
    report, began = Report(), time.perf_counter()
    for number in range(start, stop):
        case = random_case(seed, number)
        captured = True
        for backend in BACKENDS:
            message, each = difference(case, backend)
            captured = captured and each
            if message:
                report.failures.append(Failure(number, backend, message, case))
                told(report.failures[-1])
                break
        report.count += 1
        report.captured += captured
        if len(report.failures) >= most:
            break
    report.seconds = time.perf_counter() - began
    return report


def main() -> int:
    """Run as the command line says; return 0 if nothing failed."""
    parser = argparse.ArgumentParser(description="random programs, called as they are and compiled")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the number of the first program")
    parser.add_argument("--most", type=int, default=10, help="stop after so many failures")
    parser.add_argument("--no-shrink", action="store_true", help="print failing programs as they are")
    options = parser.parse_args()

    def show(failure: Failure) -> None:
        case = failure.case if options.no_shrink else smaller(failure.case, failure.backend, failure.message)
        said = difference(case, failure.backend)[0]
        print(f"# program {failure.number}, {failure.backend}: {said}\n{case.text()}\n", flush=True)

    report = fuzz(options.seed, options.start, options.start + options.count, options.most, show)
    print(report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())

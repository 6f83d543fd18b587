"""Tests that run a second time with what they do compiled: what is expected of them does not depend on how they run.

There are three ways to run a test of :data:`ROOMS` again:

* ``body``: the test itself is a compiled function. Tensors are made, differentiated and written inside; what it compares is
  asked for while it is captured, and the program must then find the same, twice.
* ``calls``: each module, function of ``nn.functional`` and ``func``, ``autograd.Function``, checkpoint and optimiser's step
  that the test calls is a compiled function, in the loops of the test and under its ``backward()``. A transform is compiled
  as a whole: ``compile(grad(f))``.
* ``functions``: each function that the test gives to a transform, to ``gradcheck`` or to a checkpoint is a compiled one:
  ``grad(compile(f))``.

``pytest --compiled=N`` makes every N-th of these runs, always the same ones, ``--compiled=1`` all, ``--compiled=0`` none. What
cannot be captured must say so for one of the reasons in :mod:`tests.variants_refused`, and is run as it is.
"""

import functools
import hashlib
import re
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.variants_refused import LEFT_OUT, REFUSALS
from wengert import autograd, func, nn, optim
from wengert.autograd import functional
from wengert.compiling import decisions
from wengert.compiling.function import Compiled
from wengert.compiling.program import Program
from wengert.core.state import thread
from wengert.errors import CaptureError
from wengert.nn import functional as F
from wengert.utils import checkpoint

__all__ = ["Tally", "run_again", "unknown", "ways_of"]

ROOMS = ("core", "nn", "operators", "optim", "tape", "transforms")

Function = Callable[..., Any]


@dataclass
class Tally:
    """What ran again: runs, programs that were captured in them, functions that could not be, and the time of the runs."""

    runs: int = 0
    programs: int = 0
    refusals: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        done = f"{self.runs} runs of tests with {self.programs} programs, in {self.seconds:.0f} s"
        return f"{done}; {self.refusals} times a function was run as it is"


def ways_of(item: pytest.Item, every: int) -> list[str]:
    """Return the ways in which a test is run again."""
    test = item.nodeid.removeprefix("tests/")
    if not every or not isinstance(item, pytest.Function) or test.partition("/")[0] not in ROOMS:
        return []
    return [way for way in RUNS if _number(f"{way} {test}") % every == 0 and not _left_out(test, way)]


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


def unknown() -> list[str]:
    """Return the names in :data:`LEFT_OUT` that are neither a file nor a test in one."""
    root, wanted = Path(__file__).parent, {name for *_, names in LEFT_OUT for name in names}
    return sorted(name for name in wanted if not _exists(root, *name.partition("::")[::2]))


def _exists(root: Path, file: str, test: str) -> bool:
    path, test = root / file, test.partition("[")[0]
    return path.is_file() and (not test or f"def {test}(" in path.read_text(encoding="utf-8"))


def _left_out(test: str, way: str) -> bool:
    """Whether a run would say nothing of compiled functions."""
    name, file = test.partition("[")[0], test.partition("::")[0]
    return any(way in ways.split() and not tests.isdisjoint({test, name, file}) for ways, _, tests in LEFT_OUT)


def run_again(item: pytest.Function, ways: list[str], tally: Tally) -> None:
    """Let a test run again, after it has run as it is."""
    test = item.obj

    @functools.wraps(test)
    def both(**arguments: Any) -> None:
        test(**arguments)
        for way in ways:
            tally.runs += 1
            begun = time.perf_counter()
            try:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(np.testing, "assert_array_equal", _nearly_equal)
                    RUNS[way](functools.partial(test, **arguments), item.module, patch, tally)
            except BaseException as error:
                error.add_note(f"when it ran again with --compiled: {way}")
                raise
            finally:
                tally.seconds += time.perf_counter() - begun

    item.obj = both


def _nearly_equal(found: Any, wanted: Any, err_msg: str = "", verbose: bool = True, *, strict: bool = False) -> None:
    """Compare to rounding: native code rounds otherwise than NumPy."""
    dtype = np.result_type(np.asarray(found))
    options = {"err_msg": err_msg, "verbose": verbose, "strict": strict}
    if dtype.kind in "fc":
        size = float(np.finfo(dtype).eps)
        np.testing.assert_allclose(found, wanted, rtol=64 * size, atol=64 * size, **options)
    else:
        np.testing.assert_equal(np.asarray(found), np.broadcast_to(wanted, np.shape(found)), err_msg, verbose)


# ---- the test itself


def _run_body(test: Function, module: Any, patch: pytest.MonkeyPatch, tally: Tally) -> None:
    """Run a test as a compiled function, twice; what lies in its memory from the first time is overwritten."""
    patch.setattr(decisions, "LARGEST", 1 << 20)
    patch.setattr(Program, "check_decisions", functools.partialmethod(_compared, Program.check_decisions))
    compiled = Compiled(test.func, fullgraph=True, backend="native")
    try:
        compiled(**test.keywords)
        for program in _programs(compiled):
            program.scramble()
        compiled(**test.keywords)
    except CaptureError as error:
        _note(error, tally)
    tally.programs += len(_programs(compiled))


def _compared(program: Program, check: Function, found: Any) -> None:
    """Hold what kernels find against what the test was told, and found right, while it was captured."""
    for decision in program.decisions if program.first else ():
        got, told = np.asarray(found[decision.position]), np.asarray(decision.answer)
        said = f"what was asked for at {decision.place} is another value when it is computed by kernels"
        if told.dtype.kind in "fc":
            scale = max(1.0, float(np.abs(told[np.isfinite(told)]).max(initial=0.0)))
            allowed = min(1e5 * _precision(program.graph.outputs[decision.position]), 0.05) * scale
            np.testing.assert_allclose(got, told, rtol=0, atol=allowed, err_msg=said)
        else:
            np.testing.assert_equal(got, told, said)
    check(program, found)


def _precision(value: Any) -> float:
    """Return the precision of a value, or of what was cast to it."""
    eps, node = float(np.finfo(value.dtype.numpy).eps), value.node
    if node is not None and node.op.name in ("cast", "detach", "reshape") and node.inputs[0].dtype.numpy.kind in "fc":
        eps = max(eps, _precision(node.inputs[0]))
    return eps


# ---- what it calls


class Calls:
    """Calls functions compiled, each with programs of its own, unless they are called while another one is captured."""

    def __init__(self, tally: Tally) -> None:
        self.known: dict[Function, Compiled] = {}
        self.tally = tally

    def __call__(self, function: Function, *args: Any, **kwargs: Any) -> Any:
        if thread.state.levels:
            return function(*args, **kwargs)
        compiled = self.known.get(function)
        if compiled is None:
            compiled = self.known[function] = Compiled(function, fullgraph=True, backend="native")
        try:
            return compiled(*args, **kwargs)
        except CaptureError as error:
            _note(error, self.tally)
            return function(*args, **kwargs)

    def of(self, function: Function) -> Function:
        """Return a function whose calls are compiled."""
        if not callable(function) or type(function).__hash__ is None:
            return function
        return functools.wraps(function)(lambda *args, **kwargs: self(function, *args, **kwargs))


OF_AUTOGRAD = [getattr(functional, name) for name in functional.__all__]
MAKERS = [
    func.grad, func.grad_and_value, func.hessian, func.jacfwd, func.jacobian, func.jacrev, func.value_and_grad, func.vmap
]  # fmt: skip # they return the function that is compiled
SOLVERS = [func.associative_scan, func.fixed_point, func.map, func.odeint, func.root, func.scan]
CALLED = [
    *OF_AUTOGRAD, *SOLVERS, checkpoint.checkpoint, checkpoint.checkpoint_sequential, func.cond, func.functional_call,
    func.hvp, func.jvp, func.while_loop, nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_,
    *[f for f in vars(F).values() if isinstance(f, types.FunctionType) and not f.__name__.startswith("_")],
]  # fmt: skip
CHECKS = [autograd.gradcheck, autograd.gradgradcheck]
PULLERS = [func.linear_transpose, func.linearize, func.vjp]  # return functions, too: they themselves are no programs
TAKERS = [*MAKERS, *SOLVERS, *OF_AUTOGRAD, *CHECKS, *PULLERS, checkpoint.checkpoint, func.hvp, func.jvp]
SPACES = [wg, autograd, checkpoint, func, functional, F, nn.utils]


def _run_calls(test: Function, module: Any, patch: pytest.MonkeyPatch, tally: Tally) -> None:
    """Run a test with each public function that it calls compiled."""
    calls = Calls(tally)
    table = {id(f): calls.of(f) for f in CALLED}
    table |= {id(f): _given(f, calls) for f in (*CHECKS, *PULLERS)} | {id(f): _made(f, calls) for f in MAKERS}
    _replace(table, module, patch)
    _compile_methods(patch, calls)
    _counted(test, calls)


def _run_functions(test: Function, module: Any, patch: pytest.MonkeyPatch, tally: Tally) -> None:
    """Run a test with each function that it gives to another one compiled."""
    calls = Calls(tally)
    _replace({id(f): _given(f, calls) for f in TAKERS}, module, patch)
    _counted(test, calls)


def _given(taker: Function, calls: Calls) -> Function:
    """Return a function that hands its first argument on as a compiled function."""
    return functools.wraps(taker)(lambda function, *args, **kwargs: taker(calls.of(function), *args, **kwargs))


def _made(maker: Function, calls: Calls) -> Function:
    """Return a function that returns what another one does as a compiled function."""
    return functools.wraps(maker)(lambda *args, **kwargs: calls.of(maker(*args, **kwargs)))


def _replace(table: dict[int, Function], module: Any, patch: pytest.MonkeyPatch) -> None:
    """Put other functions where a test finds them: in its module and in the public ones."""
    for space in (module, *SPACES):
        for name, value in list(vars(space).items()):
            if id(value) in table:
                patch.setattr(space, name, table[id(value)])


def _compile_methods(patch: pytest.MonkeyPatch, calls: Calls) -> None:
    """Compile calls of modules, steps of optimisers, and what the ``autograd.Function`` of a test does."""
    call, step, apply = nn.Module.__call__, optim.Optimizer.step, vars(autograd.Function)["apply"].__func__
    method = types.MethodType

    def applied(cls: Any, *args: Any) -> Any:
        return apply(cls, *args) if cls.__module__.startswith("wengert.") else calls(method(apply, cls), *args)

    patch.setattr(nn.Module, "__call__", lambda self, *a, **k: calls(method(call, self), *a, **k))
    patch.setattr(
        optim.Optimizer, "step", functools.wraps(step)(lambda self, *a, **k: calls(method(step, self), *a, **k))
    )
    patch.setattr(autograd.Function, "apply", classmethod(applied))


def _counted(test: Function, calls: Calls) -> None:
    try:
        test()
    finally:
        calls.tally.programs += sum(len(_programs(compiled)) for compiled in calls.known.values())


def _programs(compiled: Compiled) -> list[Program]:
    return [program for programs in compiled.programs.values() for program in programs]


def _note(error: CaptureError, tally: Tally) -> None:
    """Count a refusal.

    Raises:
        AssertionError: for one whose reason is not known.
    """
    tally.refusals += 1
    if not any(re.search(said, str(error)) for said in REFUSALS):
        raise AssertionError(
            f"not captured, for a reason that tests/variants_refused.py does not name: {error}"
        ) from error


RUNS = {"body": _run_body, "calls": _run_calls, "functions": _run_functions}

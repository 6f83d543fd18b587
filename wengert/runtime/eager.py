"""Native code for the eager path: which operators have a kernel for large arrays, and when it is used."""

import importlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from wengert.core.native import native
from wengert.core.operator import Op
from wengert.core.state import thread
from wengert.loops.symbolic import lowered, trace_rule, trace_update
from wengert.loops.tracing import Untraceable, symbols
from wengert.runtime.pointwise import Expression, Pointwise
from wengert.runtime.pool import adopt, pool_of
from wengert.runtime.recent import Recent
from wengert.runtime.workers import start_workers

__all__ = ["install", "kernel"]

# The modules that declare kernels of operators.
KERNELS = (
    "attention", "convolution", "normalized", "pooling", "products", "reduction", "rows", "scanning", "scattering", "sorting",
    "table_rows",
)  # fmt: skip
TABLE = 1024  # how many rules, and how many formulas, are remembered
Kernel = Callable[..., Any]
_kernels: dict[str, Kernel] = {}
_updates: Recent[Any, Any] = Recent(TABLE)


def kernel(name: str) -> Callable[[Kernel], Kernel]:
    """Declare the native kernel of an operator: called like its NumPy kernel, it may return NotImplemented."""

    def declare(function: Kernel) -> Kernel:
        _kernels[name] = function
        return function

    return declare


@lru_cache(maxsize=4 * TABLE)
def _native(op: Op) -> Kernel | None:
    """Return an operator's native kernel, which takes the list of its arguments."""
    own = _kernels.get(op.name)
    if own is not None:
        at, names = op.signature.positional, op.keywords
        return lambda arguments: own(*arguments[:at], **dict(zip(names, arguments[at:], strict=True)))
    if op.batch != "broadcast" or not op.single or op.composite:
        return None

    def trace(arguments: Sequence[Any], kinds: Sequence[Any]) -> Any:
        found = lowered(op, symbols(arguments, kinds))
        return [(found.scalar, found.dtype)]

    pointwise = Pointwise(op.name, trace, op.signature.inputs)

    def run(arguments: Sequence[Any], out: Any = None) -> Any:
        found = pointwise(arguments, None if out is None else [out])
        return found if found is NotImplemented else found[0]

    return run


def run(op: Op, arguments: Sequence[Any], out: Any = None) -> Any:
    """Return an operator's result (in ``out``, if that is given), or NotImplemented."""
    state = thread.state
    if not state.pooled:
        adopt(state.run)
        state.pooled = True
    found = _native(op)
    if found is None:
        return NotImplemented
    if out is None:
        return found(arguments)
    return NotImplemented if op.name in _kernels else found(arguments, out)


@lru_cache(maxsize=TABLE)
def _traced(rule: Any) -> Pointwise:
    """Return a derivative rule as a function of arrays."""

    def trace(values: Sequence[Any], kinds: Sequence[Any]) -> Any:
        return [trace_rule(rule, values, kinds)]

    return Pointwise(f"rule {getattr(rule, '__name__', type(rule).__name__)}", trace, range(64), yields=True)


def run_rule(rule: Any, arguments: Sequence[Any]) -> Any:
    """Return what a derivative rule gives for a large cotangent (the first argument), or NotImplemented."""
    found = _traced(rule)(arguments)
    return found if found is NotImplemented else found[0]


def run_update(key: Any, formula: Callable[..., None], arguments: Sequence[Any]) -> bool:
    """Run a formula that writes into arrays among its arguments; False where NumPy is to do it.

    Args:
        key: names the formula. arguments: arrays of one shape, and numbers as 0-d arrays.
    """
    kinds = tuple(a.dtype for a in arguments)
    try:
        entry = _updates[key, kinds]
    except KeyError:
        entry = _updates[key, kinds] = _update(formula, arguments, kinds)
    if entry is None:
        return False
    expression, written = entry
    outs = [arguments[i] for i in written]
    plan = expression.plan(arguments, outs)
    return plan is not None and plan(arguments, outs) is not NotImplemented


def _update(formula: Callable[..., None], arguments: Sequence[Any], kinds: Sequence[Any]) -> Any:
    """Return a formula as an expression of what it writes, and where it writes it; None if it is not one."""
    try:
        found = trace_update(formula, arguments, kinds)
    except Untraceable:
        return None
    numbers = [i for i, a in enumerate(arguments) if not a.ndim]
    return Expression("update", [(s, kinds[i]) for i, s in found], kinds, numbers), [i for i, _ in found]


def install() -> None:
    """Open the door for large arrays."""
    for room in KERNELS:
        importlib.import_module(f"wengert.runtime.{room}")
    start_workers()
    native.run, native.rule, native.update, native.no_memory = run, run_rule, run_update, pool_of().explained

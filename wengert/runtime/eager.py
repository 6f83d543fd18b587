"""Native code for the eager path: which operators have a kernel for large arrays, and when it is used."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from wengert.core.native import native
from wengert.core.operator import Op
from wengert.loops.symbolic import lowered, trace_rule
from wengert.loops.tracing import Symbol, name_of, placeholder
from wengert.runtime.pointwise import Pointwise
from wengert.runtime.pool import adopt

__all__ = ["install", "kernel"]

KERNELS = ("reduction",)  # the modules that declare kernels of operators
Kernel = Callable[..., Any]
_kernels: dict[str, Kernel] = {}
_operators: dict[Op, Kernel | None] = {}
_rules: dict[Any, Pointwise] = {}


def kernel(name: str) -> Callable[[Kernel], Kernel]:
    """Declare the native kernel of an operator: called like its NumPy kernel, it may return NotImplemented."""

    def declare(function: Kernel) -> Kernel:
        _kernels[name] = function
        return function

    return declare


def _native(op: Op) -> Kernel | None:
    """Return an operator's native kernel, which takes the list of its arguments."""
    own = _kernels.get(op.name)
    if own is not None:
        at, names = op.signature.positional, op.keywords
        return lambda arguments: own(*arguments[:at], **dict(zip(names, arguments[at:], strict=True)))
    if op.batch != "broadcast" or not op.single or op.composite:
        return None

    def trace(arguments: Sequence[Any], kinds: Sequence[Any]) -> Any:
        symbols = [
            a if k is None else Symbol(placeholder(i, name_of(k)), k)
            for i, (a, k) in enumerate(zip(arguments, kinds, strict=True))
        ]
        found = lowered(op, symbols)
        return found.scalar, found.dtype

    return Pointwise(op.name, trace, op.signature.inputs)


def run(op: Op, arguments: list[Any]) -> Any:
    """Return an operator's result, or NotImplemented."""
    try:
        found = _operators[op]
    except KeyError:
        found = _operators[op] = _native(op)
    return NotImplemented if found is None else found(arguments)


def run_rule(rule: Any, g: Any, arguments: list[Any]) -> Any:
    """Return what a derivative rule gives for a large cotangent, or NotImplemented."""
    found = _rules.get(rule)
    if found is None:
        code = rule.__code__

        def trace(values: Sequence[Any], kinds: Sequence[Any]) -> Any:
            return trace_rule(rule, values, kinds)

        found = _rules[rule] = Pointwise(f"rule of line {code.co_firstlineno}", trace, ())
    return found([g, *arguments])


def install() -> None:
    """Open the door for large arrays."""
    for room in KERNELS:
        importlib.import_module(f"wengert.runtime.{room}")
    native.run, native.rule, native.enter = run, run_rule, adopt

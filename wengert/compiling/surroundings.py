"""What a function reads besides its arguments: numbers, containers and objects in its closure and among its module's globals.

A program holds their values as they were, so it is right only as long as they are the same. What the function itself changes
is left out: that is an effect of Python, which happens when the function is captured.
"""

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

from wengert.core.tensor import Tensor

__all__ = ["PLAIN", "Surroundings", "seen"]

PLAIN = (int, float, complex, bool, str, bytes, type(None))
LARGEST, DEEPEST = 64, 4  # items and nesting of containers that are looked into
FOREIGN = ("wengert", "numpy", "builtins", "math")
EMPTY = object()


def seen(value: Any, kept: list[Any] | None = None, depth: int = 0) -> Any:
    """Return what of a value must stay the same, as something to compare; ``kept`` takes objects that are told by identity."""
    if isinstance(value, PLAIN):
        return type(value), value
    if kept is not None:
        kept.append(value)
    if depth < DEEPEST and not isinstance(value, Tensor):
        if isinstance(value, list | tuple | set | frozenset | dict) and len(value) <= LARGEST:
            items = value.items() if isinstance(value, dict) else value
            return (type(value), *[seen(v, kept, depth + 1) for v in items])
        if _is_own(value):
            return id(value), *[(k, seen(v, kept, depth + 1)) for k, v in _attributes(value)]
    return id(value)


def _is_own(value: Any) -> bool:
    """Whether an object is of a class of the user's, of which any attribute may be a number."""
    kind = type(value)
    if isinstance(value, type | types.ModuleType | types.FunctionType | types.MethodType) or hasattr(value, "named_parameters"):
        return False
    return kind.__module__.partition(".")[0] not in FOREIGN and kind.__module__ != "functools"


def _attributes(value: Any) -> list[tuple[str, Any]]:
    names = [n for kind in type(value).__mro__ for n in _slots(kind)]
    found = [(n, getattr(value, n)) for n in names if hasattr(value, n)]
    return [*found, *getattr(value, "__dict__", {}).items()]


def _slots(kind: type) -> tuple[str, ...]:
    named = kind.__dict__.get("__slots__", ())
    return (named,) if isinstance(named, str) else tuple(n for n in named if not n.startswith("__"))


class Surroundings:
    """What a function reads from around it, as it is before the function runs.

    Args:
        function: any callable; functions that it names are looked into, too. others: further objects to watch.
    """

    def __init__(self, function: Any, others: list[Any]) -> None:
        self._kept: list[Any] = [function, *others]
        self._asked: list[tuple[str, Callable[[], Any]]] = [("an argument", lambda o=o: o) for o in others]
        self._functions: set[int] = set()
        self._enter(function)
        self._before = [(name, get, seen(get(), self._kept)) for name, get in self._asked]

    def unchanged(self) -> Iterator[tuple[Callable[[], Any], Any, str]]:
        """Yield a question, its answer and a name for each thing that is still as it was."""
        for name, get, answer in self._before:
            if seen(get()) == answer:
                yield functools.partial(_ask, get, self._kept), answer, name

    def _enter(self, function: Any) -> None:
        if isinstance(function, functools.partial):
            self._watch("an argument of a partial function", lambda: (function.args, function.keywords))
            self._enter(function.func)
        elif isinstance(function, types.MethodType):
            self._watch("self", lambda: function.__self__)
            self._enter(function.__func__)
        elif isinstance(function, types.FunctionType):
            self._enter_function(function)
        elif _is_own(function) and isinstance(getattr(type(function), "__call__", None), types.FunctionType):
            self._watch("an object that is called", lambda: function)
            self._enter_function(type(function).__call__)

    def _enter_function(self, function: Any) -> None:
        if id(function) in self._functions or function.__module__.partition(".")[0] in FOREIGN:
            return
        self._functions.add(id(function))
        self._kept.append(function)
        self._watch("a default", lambda: (function.__defaults__, function.__kwdefaults__))
        code, names = function.__code__, function.__globals__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._watch(f"'{name}'", functools.partial(_content, cell))
        for name in dict.fromkeys(_names(code)):
            if name in names:
                self._watch(f"the global '{name}'", functools.partial(names.get, name))

    def _watch(self, name: str, get: Callable[[], Any]) -> None:
        value = get()
        if isinstance(value, types.ModuleType):
            return
        self._asked.append((name, get))
        self._enter(value)


def _ask(get: Callable[[], Any], kept: list[Any]) -> Any:
    """Return what is seen now; ``kept`` is what may not end, so that no other object gets its identity."""
    return seen(get())


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


def _names(code: Any) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)

"""What a function reads besides its arguments: numbers, containers and objects in its closure and among its module's globals.

A program holds their values as they were, so it is right only as long as they are the same. What the function itself changes
there would happen once, when it is captured, and not at each call: such a function is run as it is.
"""

import functools
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from wengert.core.tensor import Tensor
from wengert.graph.refusals import NotYet

__all__ = ["PLAIN", "Surroundings", "is_fixed", "is_lasting", "seen", "told"]

PLAIN = (int, float, complex, bool, str, bytes, type(None), np.generic)
SIMPLE = frozenset({int, float, complex, bool, str, bytes, type(None)})  # of which repr() tells everything
LARGEST, DEEPEST = 64, 4  # items and nesting of containers that are looked into
FOREIGN = ("wengert", "numpy", "builtins", "math")
TABLES = ("_parameter_names", "_buffer_names", "_child_names")  # of modules, which know of changes in them
EMPTY = object()


def told(value: Any) -> tuple[Any, Any]:
    """Return what tells a plain value from others; 0.0 and -0.0 are two, and a NaN is one."""
    itself = isinstance(value, int | str | bytes | None) or (value and value == value)
    return type(value), value if itself else repr(value)


def seen(value: Any, kept: list[Any] | None = None, depth: int = 0) -> Any:
    """Return what of a value must stay the same, as something to compare; ``kept`` takes objects that are told by identity."""
    if isinstance(value, PLAIN):
        return told(value)
    if kept is not None:
        kept.append(value)
    if isinstance(value, np.ndarray):
        return id(value), value.shape, value.strides, value.dtype, hash(value.tobytes())
    if (fast := _told_at_once(value)) is not None:
        return fast
    if depth < DEEPEST and not isinstance(value, Tensor):
        if isinstance(value, list | tuple | set | frozenset | dict | deque) and len(value) <= LARGEST:
            items = value.items() if isinstance(value, dict) else value
            return (type(value), *[seen(v, kept, depth + 1) for v in items])
        if _is_own(value):
            return id(value), *[(k, seen(v, kept, depth + 1)) for k, v in _attributes(value)]
    return id(value)


def _told_at_once(value: Any) -> Any:
    """Return what :func:`seen` makes of a list or dictionary of plain values alone; None for any other value."""
    if type(value) is dict:
        simple = len(value) <= LARGEST and all(type(v) in SIMPLE for pair in value.items() for v in pair)
    else:
        simple = type(value) in (list, tuple) and len(value) <= LARGEST and all(type(v) in SIMPLE for v in value)
    return (type(value), repr(value)) if simple else None


def is_fixed(value: Any) -> bool:
    """Whether an object always looks the same to :func:`seen`."""
    if isinstance(value, tuple):
        return len(value) <= LARGEST and all(map(is_fixed, value))
    return isinstance(value, PLAIN) or isinstance(seen(value), int)


def is_lasting(value: Any) -> bool:
    """Whether an object that a function returns may be the same one at each call: it holds nothing that the call has made."""
    kind = type(value)
    return (
        isinstance(value, (*PLAIN, type, types.ModuleType))
        or kind is object
        or (hasattr(kind, "named_parameters") or kind.__module__.partition(".")[0] == "wengert")
    )


def _is_own(value: Any) -> bool:
    """Whether an object is of a class of the user's, of which any attribute may be a number."""
    kind = type(value)
    if isinstance(value, type | types.ModuleType | types.FunctionType | types.MethodType):
        return False
    if _is_module(value):  # which says itself what has changed
        return False
    return not _is_foreign(kind) and kind.__module__ != "functools"


def _is_module(value: Any) -> bool:
    return hasattr(type(value), "named_parameters")


def _is_foreign(named: Any) -> bool:
    """Whether a class or function is of a package that keeps no state of the user's."""
    return str(named.__module__).partition(".")[0] in FOREIGN


def _attributes(value: Any) -> list[tuple[str, Any]]:
    names = [n for kind in type(value).__mro__ for n in _slots(kind)]
    found = [(n, got) for n in names if (got := getattr(value, n, EMPTY)) is not EMPTY]
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
        self._asked: list[tuple[str, Callable[[], Any]]] = [
            ("an argument", functools.partial(_same, other)) for other in others
        ]
        self._entered: set[int] = set()
        self._contents: list[tuple[Any, Any]] = []
        self._cells: list[tuple[Any, Any]] = []
        self._globals: list[tuple[dict[str, Any], str, Any]] = []
        self._enter(function)
        for other in others:
            self._remember(other)
        self._before = [(name, get, seen(get(), self._kept)) for name, get in self._asked]

    def enter(self, called: Any) -> None:
        """Look into a module or another function that is about to be called though no name leads to it."""
        known = len(self._asked)
        if _is_module(called):
            self._enter_module(called)
        else:
            self._enter(called)
        self._before += [(name, get, seen(get(), self._kept)) for name, get in self._asked[known:]]

    def unchanged(self) -> Iterator[tuple[Callable[[], Any], Any, tuple[Callable[[], Any], Any, str]]]:
        """Yield, for each thing that is as it was, where it is found, what is there, and a question with its answer and a name.

        Raises:
            NotYet: if the function has changed something; perhaps it does so only the first time.
        """
        for name, get, answer in self._before:
            if seen(get()) == answer:
                yield get, get(), (functools.partial(_ask, get, self._kept), answer, name)
            elif {id(t) for t in _tensors(get())} <= {id(t) for t in self._kept}:
                raise NotYet(
                    f"it changes {name}, which a program would do only once; return the value, or use a tensor"
                )
            else:
                raise NotYet(f"it keeps a tensor that it makes in {name}; write into one that is there with copy_()")

    def restore(self) -> None:
        """Put back what the function has changed."""
        for holder, before in self._contents:
            holder.clear()
            holder.extend(before) if isinstance(holder, list) else holder.update(before)
        for cell, before in self._cells:
            cell.cell_contents = before
        for names, name, before in self._globals:
            names[name] = before

    def _enter(self, function: Any) -> None:
        if id(function) in self._entered:
            return
        self._entered.add(id(function))
        if isinstance(function, functools.partial):
            self._watch("an argument of a partial function", lambda: (function.args, function.keywords))
            self._enter(function.func)
        elif isinstance(function, types.MethodType):
            self._watch("self", lambda: function.__self__)
            self._enter(function.__func__)
        elif isinstance(function, types.FunctionType):
            self._enter_function(function)
        elif _is_own(function) and isinstance(vars(type(function)).get("__call__"), types.FunctionType):
            self._watch("an object that is called", lambda: function)
            self._enter_function(type(function).__call__)

    def _enter_module(self, module: Any) -> None:
        """Look into attributes that may change without the module's knowing, and what a call runs."""
        if not _is_foreign(type(module)):
            self._kept.append(module)
            for name, value in vars(module).items():
                if name not in TABLES and (isinstance(value, list | dict | set | np.ndarray) or _is_own(value)):
                    self._watch(
                        f"'{name}' of a module ({type(module).__name__})", functools.partial(vars(module).get, name)
                    )
        for function in (getattr(module.forward, "__func__", module.forward), *module.hooks_on_call()):
            self._enter(function)

    def _enter_function(self, function: Any) -> None:
        if _is_foreign(function):
            return
        self._kept.append(function)
        self._watch("a default", lambda: function.__defaults__)
        self._watch("a default", lambda: function.__kwdefaults__)
        code, names = function.__code__, function.__globals__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if (content := _content(cell)) is not EMPTY:
                self._cells.append((cell, content))
            self._watch(f"'{name}'", functools.partial(_content, cell))
        for name in dict.fromkeys(_names(code)):
            if name in names:
                self._globals.append((names, name, names[name]))
                self._watch(f"the global '{name}'", functools.partial(names.get, name))

    def _watch(self, name: str, get: Callable[[], Any]) -> None:
        value = get()
        if isinstance(value, types.ModuleType):
            return
        self._asked.append((name, get))
        self._remember(value)
        self._enter(value)

    def _remember(self, value: Any) -> None:
        """Keep what a container holds, to put it back."""
        holder = getattr(value, "__dict__", None) if _is_own(value) else value
        if isinstance(holder, list | dict):
            self._contents.append((holder, holder.copy()))


def _ask(get: Callable[[], Any], kept: list[Any]) -> Any:
    """Return what is seen now; ``kept`` is what may not end, so that no other object gets its identity."""
    return seen(get())


def _tensors(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the tensors in a container or object."""
    if isinstance(value, Tensor):
        yield value
    elif depth < DEEPEST and isinstance(value, list | tuple | set | frozenset | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item, depth + 1)
    elif depth < DEEPEST and _is_own(value):
        for _, item in _attributes(value):
            yield from _tensors(item, depth + 1)


def _same(value: Any) -> Any:
    return value


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

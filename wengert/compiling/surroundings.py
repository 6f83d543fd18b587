"""What a function reads besides its arguments: numbers, containers, objects and modules that its names lead to.

A program holds their values as they were, so it is right only as long as they are the same. What the function itself changes
there would happen once, when it is captured, and not at each call: such a function is run as it is.

What a function reads it names, or a function that it calls does. So from what it can reach (its closure, the globals that it
names, ``self``, arguments) everything is followed that has one of these names, into containers, objects, classes, modules of
Python and of this package, optimisers and schedulers, and into the functions found there, whose names count from then on.
"""

import dis
import enum
import functools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from wengert.compiling.looks import (
    BUFFERS,
    CONTAINERS,
    EMPTY,
    PLAIN,
    Attributes,
    Bytes,
    Cells,
    Code,
    Content,
    Items,
    Look,
    Members,
    Memory,
    Own,
    content,
    told,
)
from wengert.core.tensor import Tensor
from wengert.graph.refusals import NotYet

__all__ = ["PLAIN", "Surroundings", "is_lasting", "told"]

FOREIGN = ("wengert", "numpy", "builtins", "math")  # whose objects keep no state of the user's
LIBRARY = frozenset({*FOREIGN, *sys.stdlib_module_names})  # whose functions name none
ALL = frozenset(
    {"getattr", "vars", "__dict__", "attrgetter", "asdict", "astuple"}
)  # which read names that no code says
ASKED = frozenset({"getattr", "hasattr"})  # which ask for attributes that may not be there
UNNAMED = frozenset({"__new__", "__init__", "__repr__", "__str__", "__eq__", "__hash__", "__doc__", "__module__"})
STEPS = frozenset({"step", "zero_grad"})  # of optimisers and schedulers, which say themselves what they depend on
LOOKUPS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "DELETE_GLOBAL"})
WRAPPERS = (types.FunctionType, types.MethodType, functools.partial, property, classmethod, staticmethod)
FUNCTIONS = (*WRAPPERS, functools.cached_property)

Found = Iterator[tuple[Any, str]]  # further values, and what they are called


def is_lasting(value: Any) -> bool:
    """Whether an object that a function returns may be the same one at each call: it holds nothing that the call has made."""
    kind = type(value)
    return (
        isinstance(value, (*PLAIN, type, types.ModuleType))
        or kind is object
        or (_is_module(value) or kind.__module__.partition(".")[0] == "wengert")
    )


class Surroundings:
    """What a function reads from around it, as it is before the function runs.

    Args:
        function: any callable. others: further objects to watch.

    Attributes:
        modules: those that are within reach, by identity, whether they are called or not. tensors: the identities of those
            that are. compared: how often another object was found where one was, and compared by value.
    """

    def __init__(self, function: Any, others: Iterable[Any]) -> None:
        self._roots = [(function, "the function"), *((other, "an argument") for other in others)]
        self._names: set[str] = set()
        self._texts: set[str] = set()  # that are names
        self._looks: dict[Any, Look] = {}
        self._memory: dict[int, Memory | Bytes] = {}
        self._watched: dict[int, Memory] = {}
        self._walked: set[int] = set()
        self._functions: dict[int, Any] = {}
        self.modules: dict[int, Any] = {}
        self.tensors: set[int] = set()
        self.compared = 0
        self._own = {_package(part) for root, _ in self._roots for part in (root, getattr(root, "__func__", root))}
        self._follow()

    def enter(self, called: Any) -> None:
        """Look into a module or another function that is about to be called though no name may lead to it."""
        hooks = called.hooks_on_call() if _is_module(called) else ()
        self._own.add(_package(called))
        new = [one for one in (called, *hooks) if id(one) not in self._walked]
        if new:
            self._roots += [(one, "what is called") for one in new]
            known = len(self._names)
            for root in self._roots[-len(new) :]:
                self._walk(root)
            if len(self._names) != known:
                self._follow()

    def watch(self, arrays: Iterable[Any]) -> None:
        """Look at arrays that no name leads to: an object may hold them that nothing is known of."""
        for array in arrays:
            self._watched[id(array)] = Memory("an array that a tensor was made of", array)
        self._looks.update(self._watched)

    def check(self) -> None:
        """Take note that the function has run.

        Raises:
            NotYet: if it has changed something; perhaps it does so only the first time.
        """
        for look in self._looks.values():
            name = look.changed_at_all() if isinstance(look, Attributes) else look.changed()
            if name is None:
                continue
            if any(isinstance(v, Tensor) for v in look.added()):
                raise NotYet(f"it keeps a tensor that it makes in {name}; write into one that is there with copy_()")
            raise NotYet(f"it changes {name}, which a program would do only once; return the value, or use a tensor")
        self._settle()

    def _settle(self) -> None:
        for look in self._looks.values():
            if isinstance(look, Attributes):
                look.settle()

    def restore(self) -> None:
        """Put back what the function has changed."""
        for look in self._looks.values():
            look.restore()

    def changed(self) -> str | None:
        """Return what is no longer as it was, in words; None if everything is. Asked at each call."""
        for look in self._looks.values():
            if not look.holds():
                return self._compared()
        return None

    def arrays(self) -> list[Any]:
        """Return the arrays of NumPy, and the memory of other buffers, that are looked at."""
        return [look.array for look in self._memory.values()]

    @property
    def looks(self) -> list[Look]:
        """All that is looked at."""
        return list(self._looks.values())

    def named(self) -> Iterator[str]:
        """Yield what is looked at, in words."""
        for look in self._looks.values():
            yield from look.names()

    def _compared(self) -> str | None:
        """Compare by value, and go on from what is there now if it is alike."""
        looks = self.looks
        self.compared += 1
        name = next((name for look in looks if (name := look.changed()) is not None), None)
        if name is not None:
            return name
        plain = all(isinstance(v, PLAIN) for look in looks for v in look.added())
        for look in looks:
            look.refresh()
        if not plain:  # equal containers, of which the old ones need not be looked at any more
            self._looks.clear()
            self._looks.update(self._watched)
            self._follow()
            self._settle()
        return None

    # ---- following names -------------------------------------------------------------

    def _follow(self) -> None:
        """Walk from all roots, again as long as that brings names to light."""
        known = -1
        while known != len(self._names):
            known = len(self._names)
            self._walked.clear()
            for root in self._roots:
                self._walk(root)

    def _walk(self, root: tuple[Any, str]) -> None:
        left = [root]
        while left:
            value, name = left.pop()
            if isinstance(value, Tensor):
                self.tensors.add(id(value))
            elif not isinstance(value, (*PLAIN, enum.Enum)) and id(value) not in self._walked:
                self._walked.add(id(value))
                left.extend(self._parts(value, name))

    def _parts(self, value: Any, name: str) -> Found:
        """Take note of what a value holds, and yield what is to be followed."""
        if isinstance(value, (np.ndarray, *BUFFERS)):
            look = Memory if isinstance(value, np.ndarray) else Bytes
            self._memory[id(value)] = found = self._memory.get(id(value)) or look(name, value)
            self._looks.setdefault(id(value), found)
        elif isinstance(value, FUNCTIONS):
            yield from self._callable(value, name)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, types.GenericAlias):  # list[int], which hands on whatever it is asked for
            yield value.__origin__, name
        elif isinstance(value, types.ModuleType):
            if not self._is_library(value.__name__):
                names = [n for n in vars(value) if n in self._names and not self._is_library_module(vars(value)[n])]
                yield from self._space(value, f"'{{}}' of {value.__name__}", vars(value), names)
        elif _is_module(value):
            yield from self._module(value)
        else:
            if isinstance(value, CONTAINERS):
                yield from self._container(value, name)
            if "__wrapped__" in getattr(value, "__dict__", ()):
                yield value.__wrapped__, name
            if not _is_foreign(type(value)):
                yield from self._object(value, name)
            elif hasattr(type(value), "state_dict"):
                yield from self._stepping(value)

    def _container(self, value: Any, name: str) -> Found:
        if not isinstance(value, tuple | frozenset):
            self._looks.setdefault(id(value), Content.of(name, value))
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            yield item, name

    def _callable(self, value: Any, name: str) -> Found:
        if isinstance(value, types.MethodType):
            yield from ((value.__self__, "self"), (value.__func__, name))
        elif isinstance(value, functools.partial):
            yield from ((v, "an argument of a partial function") for v in (value.args, value.keywords))
            yield value.func, name
        elif isinstance(value, property):
            yield value.fget, name
        elif isinstance(value, functools.cached_property):
            yield value.func, name
        elif isinstance(value, classmethod | staticmethod):
            yield value.__func__, name
        else:
            yield from self._function(value)

    def _function(self, function: Any) -> Found:
        names = function.__code__.co_freevars
        cells = {n: c for n, c in zip(names, function.__closure__ or (), strict=True) if content(c) is not EMPTY}
        contents = [(content(cell), f"'{n}'") for n, cell in cells.items()]
        if self._is_library(function.__module__):  # such as a transform of a function of the user's
            yield from (pair for pair in contents if isinstance(pair[0], FUNCTIONS))
            return
        looked_up = self._named_by(function)
        if cells:
            self._attributes("cells", function, "'{}'", Cells(cells), cells)
        self._looks.setdefault(("code", id(function)), Code(function))
        space = function.__globals__
        found = [n for n in looked_up if n in space and not self._is_library_module(space[n])]
        self._attributes("globals", space, "the global '{}'", Items(space), found)
        yield from contents
        yield from ((v, "a default") for v in (function.__defaults__, function.__kwdefaults__))
        yield from ((space[n], f"the global '{n}'") for n in found)
        if attributes := [n for n in vars(function) if n in self._names]:
            yield from self._space(function, f"'{{}}' of {function.__name__}", vars(function), attributes)

    def _named_by(self, function: Any) -> list[str]:
        """Look for the names in a function from now on; return those that it looks up among the globals."""
        if id(function) not in self._functions:
            code = function.__code__
            self._functions[id(function)] = function, list(dict.fromkeys(_globals(code)))
            self._names.update(_names(code))
            self._texts.update(filter(str.isidentifier, _texts(code)))
        looked_up: list[str] = self._functions[id(function)][1]
        return looked_up

    def _class(self, kind: Any) -> Found:
        """Look at what methods of a class of the user's name, and at its attributes."""
        module = hasattr(kind, "named_parameters")
        by_library = not module and any(map(_is_foreign, kind.__mro__[:-1]))  # which calls its methods
        for one in kind.__mro__:
            if self._is_library(one.__module__) or issubclass(one, enum.Enum):
                continue
            form, members = f"'{{}}' of {one.__name__}", vars(one)
            for name, value in list(members.items()):
                special = name.startswith("__")
                if isinstance(value, FUNCTIONS):
                    if name in self._names or (special and name not in UNNAMED) or by_library or name == "forward":
                        yield value, name
                elif self._wants(name) and not special and not hasattr(type(value), "__get__"):
                    self._attributes("class", one, form, Members(one), [name])
                    yield value, form.format(name)

    def _object(self, value: Any, name: str) -> Found:
        """Look at those attributes of an object of the user's that are named."""
        kind = type(value)
        yield kind, name
        form = f"'{{}}' of {kind.__name__}"
        if (own := getattr(value, "__dict__", None)) is not None:
            shared = (n for one in kind.__mro__ if not _is_foreign(one) for n in vars(one) if not n.startswith("__"))
            absent = () if ASKED.isdisjoint(self._names) else self._texts
            hidden = [n for n in {*shared, *absent} if n in self._names and n not in own]
            yield from self._space(value, form, own, [*filter(self._wants, own), *hidden], whole=own)
        if slots := [n for one in kind.__mro__ for n in _slots(one) if self._wants(n)]:
            look = self._attributes("slots", value, form, Members(value), slots)
            yield from zip(look.read(), look.names(), strict=True)

    def _module(self, module: Any) -> Found:
        """Look at the modules of a tree; what is assigned to them they count themselves, but not what happens inside of it."""
        for part in module.modules():
            self.modules[id(part)] = part
            self._walked.add(id(part))
            self.tensors.update(id(value) for value in vars(part).values() if isinstance(value, Tensor))
            if not _is_foreign(kind := type(part)):
                yield kind, kind.__name__
                for name, value in list(vars(part).items()):
                    if self._wants(name) and not isinstance(value, (*PLAIN, Tensor)):
                        yield value, f"'{name}' of a module ({kind.__name__})"

    def _stepping(self, value: Any) -> Found:
        """Look at the options of an optimiser, or at the state of a scheduler, if they are named."""
        kind, own = type(value), vars(value)
        methods = [getattr(kind, n, None) for n in self._names - STEPS]
        read = {n for m in methods if isinstance(m, types.FunctionType) for n in m.__code__.co_names}
        form = f"'{{}}' of {kind.__name__}"
        self.tensors.update(id(param) for group in own.get("param_groups", ()) for param in group["params"])
        named = [n for n in own if n in self._names or n in read]
        yield from (pair for pair in self._space(value, form, own, named) if pair[0] is not own.get("param_groups"))
        for group in own["param_groups"] if "param_groups" in named else ():
            known = Content(f"the options of {kind.__name__}", functools.partial(list, group))
            self._looks.setdefault(("options", id(group)), known)
            options = [n for n in group if n in self._names] or [n for n in group if n != "params"]
            yield from self._space(group, f"the option '{{}}' of {kind.__name__}", group, options)

    def _space(
        self, owner: Any, form: str, space: dict[str, Any], names: list[str], whole: dict[str, Any] | None = None
    ) -> Found:
        """Look at names in the dictionary of an owner's attributes."""
        if names or whole is not None:
            place: Items = Members(owner)  # of a class with a class of its own
            if isinstance(space, dict):
                place = Own(owner) if getattr(owner, "__dict__", None) is space else Items(space)
            self._attributes("space", owner, form, place, names, whole)
        yield from ((space[n], form.format(n)) for n in names if n in space)

    def _attributes(
        self, kind: str, owner: Any, form: str, place: Items, names: Iterable[str], whole: dict[str, Any] | None = None
    ) -> Attributes:
        """Look at names of an owner, beside those that are looked at."""
        key = kind, id(owner)
        look = self._looks.get(key)
        if look is None:
            look = self._looks[key] = Attributes(owner, form, place, whole)
        assert isinstance(look, Attributes)
        look.extend(names)
        return look

    def _is_library(self, name: Any) -> bool:
        """Whether a module of Python, by its name, is of this package, comes with Python, or is of an installed package.

        What was installed is the user's if the function, or a module that it calls, is of the same package.
        """
        package = str(name).partition(".")[0]
        return package in LIBRARY or (package not in self._own and _is_installed(package))

    def _is_library_module(self, value: Any) -> bool:
        return isinstance(value, types.ModuleType) and self._is_library(value.__name__)

    def _wants(self, name: str) -> bool:
        """Whether a name may be read."""
        return name in self._names or not ALL.isdisjoint(self._names)


def _is_module(value: Any) -> bool:
    return hasattr(type(value), "named_parameters")


def _is_foreign(kind: Any) -> bool:
    """Whether a class is of a package whose objects keep no state of the user's."""
    return str(kind.__module__).partition(".")[0] in FOREIGN


def _package(value: Any) -> str:
    """Return the package that a function is of, or the class of an object."""
    module = getattr(value, "__module__", None)
    return str(module).partition(".")[0]


@functools.cache
def _is_installed(package: str) -> bool:
    """Whether a package lies where packages are installed."""
    file = str(getattr(sys.modules.get(package), "__file__", ""))
    return "site-packages" in file or "dist-packages" in file


def _names(code: Any) -> Iterator[str]:
    """Yield the names in a function's code, and texts, by which attributes and items are read as well."""
    for part in _codes(code):
        yield from part.co_names
    yield from _texts(code)


def _globals(code: Any) -> Iterator[str]:
    """Yield the names that a function looks up among the globals, and not as attributes."""
    for part in _codes(code):
        yield from (i.argval for i in dis.get_instructions(part) if i.opname in LOOKUPS)


def _texts(code: Any) -> Iterator[str]:
    for constant in (c for part in _codes(code) for c in part.co_consts):
        if isinstance(constant, str | tuple):
            yield from (c for c in ((constant,) if isinstance(constant, str) else constant) if isinstance(c, str))


def _codes(code: Any) -> Iterator[Any]:
    """Yield the code of a function and of those in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _slots(kind: type) -> tuple[str, ...]:
    named = kind.__dict__.get("__slots__", ())
    return (named,) if isinstance(named, str) else tuple(n for n in named if not n.startswith("__"))

"""What objects of Python hold that a program depends on: compared at each call, by identity first.

A look is at one object: some attributes of it, or all items of a container. As long as the very same objects are there nothing
has changed. Where another one is, plain values and containers are compared by what they are and hold.
"""

import array as arrays
import mmap
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter, is_
from typing import Any

import numpy as np

__all__ = [
    "BUFFERS", "CONTAINERS", "EMPTY", "PLAIN", "Attributes", "Bytes", "Cells", "Code", "Content", "Items", "Look",
    "Members", "Memory", "Own", "alike", "content", "look_at", "told",
]  # fmt: skip

PLAIN = (int, float, complex, bool, str, bytes, type(None), np.generic)
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
BUFFERS = (bytearray, memoryview, arrays.array, mmap.mmap)
LONGEST = 1000  # items of a list that are compared one by one, written out
DEEPEST = 32  # nesting to which containers are compared by what they hold
EMPTY = object()
_EMPTIES = repeat(EMPTY)


def told(value: Any) -> tuple[Any, Any]:
    """Return what tells a plain value from others; 0.0 and -0.0 are two, and a NaN is one."""
    itself = isinstance(value, int | str | bytes | None) or (value and value == value)
    return type(value), value if itself else repr(value)


def alike(one: Any, other: Any, depth: int = 0) -> bool:
    """Whether two values are the same object, equal plain values of one type, or containers of such things."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if isinstance(one, PLAIN):
        return told(one) == told(other)
    if depth > DEEPEST or not isinstance(one, CONTAINERS) or len(one) != len(other):
        return False
    if isinstance(one, set | frozenset):
        return bool(one == other)
    if isinstance(one, dict):
        one, other = _pairs(one), _pairs(other)
    return all(alike(a, b, depth + 1) for a, b in zip(one, other, strict=True))


class Look:
    """What there is at one place, and what was there.

    Attributes:
        before: what a program was made for.
    """

    before: Sequence[Any]

    def read(self) -> Sequence[Any]:
        """Return what is there now."""
        raise NotImplementedError

    def holds(self) -> bool:
        """Whether the same objects are there."""
        now, before = self.read(), self.before
        return len(now) == len(before) and _are(now, before)

    def conditions(self, name: Callable[[Any], str]) -> Iterable[str]:
        """Yield, as Python, what :meth:`holds` asks; ``name`` gives objects their names there."""
        yield f"{name(self.holds)}()"

    def changed(self) -> str | None:
        """Return the name of the first thing that is another one; None if all are alike."""
        now, before = self.read(), self.before
        if len(now) != len(before):
            return self.name(-1)
        return next((self.name(k) for k in range(len(now)) if not alike(now[k], before[k])), None)

    def added(self) -> list[Any]:
        """Return the objects that were not there."""
        known = set(map(id, self.before))
        return [value for value in self.read() if id(value) not in known]

    def refresh(self) -> None:
        """Take what is there now for what was there."""
        self.before = self.read()

    def name(self, place: int) -> str:
        """Return what is at a place, in words."""
        raise NotImplementedError

    def names(self) -> Iterable[str]:
        """Return everything that is looked at, in words."""
        raise NotImplementedError

    def restore(self) -> None:
        """Put back what was there."""


class Attributes(Look):
    """Some attributes of an object, or names in a namespace.

    Args:
        owner: the object. form: what one of them is called; ``{}`` stands for its name. place: gets and puts them.
        whole: the dictionary that they are in, if it may get no other ones, either.
    """

    def __init__(self, owner: Any, form: str, place: "Items", whole: dict[str, Any] | None = None) -> None:
        self.owner, self.form, self._place, self._get, self._put = owner, form, place, place.get, place.put
        self.keys: list[str] = []
        self.before = []
        self._now = place.getting(self.keys)
        self._space = {} if whole is None else whole
        self._whole = None if whole is None else whole.copy()

    def extend(self, keys: Iterable[str]) -> None:
        """Look at further ones, as they were when this look was first made."""
        known = set(self.keys)
        new = [key for key in keys if key not in known]
        if new:
            whole = self._whole
            self.keys += new
            self.before = [*self.before, *(self._get(k, EMPTY) if whole is None else whole.get(k, EMPTY) for k in new)]

    def holds(self) -> bool:
        try:
            return _are(self._now(), self.before)
        except ValueError:  # of a variable of a closure that was deleted
            return False

    def conditions(self, name: Callable[[Any], str]) -> Iterable[str]:
        yield from self._place.conditions(name)
        for key, before in zip(self.keys, self.before, strict=True):
            yield f"{self._place.getting_of(key, name)} is {name(before)}"

    def read(self) -> list[Any]:
        return [self._get(key, EMPTY) for key in self.keys]

    def name(self, place: int) -> str:
        return self.form.format(self.keys[place])

    def names(self) -> Iterable[str]:
        return map(self.form.format, self.keys)

    def added(self) -> list[Any]:
        known = set(map(id, self.before if self._whole is None else self._whole.values()))
        return [v for v in (*self.read(), *self._space.values()) if v is not EMPTY and id(v) not in known]

    def changed_at_all(self) -> str | None:
        """Return the name of what is another one, or new, or gone, whether or not it is looked at."""
        found = self.changed()
        if found is not None or self._whole is None:
            return found
        now, whole = self._space, self._whole
        names = (n for n in {**whole, **now} if not alike(now.get(n, EMPTY), whole.get(n, EMPTY)))
        return next(map(self.form.format, names), None)

    def settle(self) -> None:
        """Forget what is not looked at: the function has run, and tensors need not be kept."""
        self._space, self._whole = {}, None

    def restore(self) -> None:
        if self._whole is not None and self.changed_at_all() is not None:
            self._space.clear()
            self._space.update(self._whole)
        for key, before in zip(self.keys, self.before, strict=True):
            if before is not EMPTY and self._get(key, EMPTY) is not before:
                self._put(key, before)


class Content(Look):
    """The items of a container, or whatever else a function reads from it.

    Args:
        called: what it is called. read: returns the items. put: ``put(items)`` puts them back.
    """

    def __init__(
        self, called: str, read: Callable[[], Sequence[Any]], put: Callable[[Sequence[Any]], Any] = lambda items: None
    ) -> None:
        self.called, self._read, self._put = called, read, put
        self.container: Any = None
        self.before = read()

    def read(self) -> Sequence[Any]:
        return self._read()

    def name(self, place: int) -> str:
        return self.called

    def names(self) -> Iterable[str]:
        return (self.called,)

    def restore(self) -> None:
        if not self.holds():
            self._put(self.before)

    @classmethod
    def of(cls, called: str, container: Any) -> "Content":
        """Return a look at the items of a container that can be changed."""
        if isinstance(container, dict):
            found = cls(called, partial(_pairs, container), partial(_put_pairs, container))
        else:
            found = cls(called, partial(list, container), partial(_put_items, container))
        found.container = container
        return found

    def conditions(self, name: Callable[[Any], str]) -> Iterable[str]:
        container, count = self.container, len(self.before)
        if count == 0 and type(container) in (list, dict, OrderedDict, set):
            yield f"not {name(container)}"
        elif type(container) not in (list, dict) or count > LONGEST:
            yield from super().conditions(name)
        elif type(container) is list:
            yield f"len({name(container)}) == {count}"
            yield from (f"{name(container)}[{k}] is {name(value)}" for k, value in enumerate(self.before))
        else:  # in the same order, and under the very same keys: 1, 1.0 and True are equal
            keys, values = self.before[: count // 2], self.before[count // 2 :]
            yield f"len({name(container)}) == {count // 2}"
            yield f"{name(_are)}({name(container)}, {name(keys)}) and {name(_are)}({name(container)}.values(), {name(values)})"


def look_at(called: str, container: Any, names: Sequence[Any] | None = None) -> Look:
    """Return a look at all items of a container, or at what a dictionary has under some names."""
    if names is None:
        return Content.of(called, container)
    look = Attributes(container, called, Items(container))
    look.extend(names)
    return look


class Code(Look):
    """The code of a function, which tools that reload modules replace, and its defaults, if it has any."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self._parts = ["__code__", *(n for n in ("__defaults__", "__kwdefaults__") if getattr(function, n) is not None)]
        self.before = self.read()

    def read(self) -> Sequence[Any]:
        return [getattr(self.function, part) for part in self._parts]

    def conditions(self, name: Callable[[Any], str]) -> Iterable[str]:
        for part, before in zip(self._parts, self.before, strict=True):
            yield f"{name(self.function)}.{part} is {name(before)}"

    def name(self, place: int) -> str:
        return "a default" if place else f"the code of {self.function.__name__}"

    def names(self) -> Iterable[str]:
        return ("a default",) if len(self._parts) > 1 else ()


class Memory(Look):
    """The bytes of an array of NumPy."""

    def __init__(self, called: str, array: Any) -> None:
        self.called, self.array = called, array
        self.before, self.form = array.tobytes(), (array.shape, array.strides, array.dtype)
        plain = array.size and array.flags.c_contiguous and not array.dtype.hasobject
        self._flat = memoryview(array.reshape(-1).view(np.uint8)) if plain else None  # compared where it lies

    def holds(self) -> bool:
        array = self.array
        if (array.shape, array.strides, array.dtype) != self.form:
            return False
        return bool((array.tobytes() if self._flat is None else self._flat) == self.before)

    def read(self) -> Sequence[Any]:
        return self.before

    def changed(self) -> str | None:
        return None if self.holds() else self.called

    def added(self) -> list[Any]:
        return []

    def refresh(self) -> None:
        """It is as it was."""

    def names(self) -> Iterable[str]:
        return (self.called,)


class Bytes(Look):
    """What is in a buffer of Python's that can be written: a ``bytearray``, an ``array``, a file mapped to memory.

    It is looked at anew each time, as an array of its memory would keep it from being resized or closed.
    """

    def __init__(self, called: str, buffer: Any) -> None:
        self.called, self.buffer = called, buffer
        self.before = self.read()

    def read(self) -> Sequence[Any]:
        try:
            return bytes(memoryview(self.buffer))
        except ValueError:  # it was closed or released
            return b""

    def changed(self) -> str | None:
        return None if self.holds() else self.called

    def holds(self) -> bool:
        return self.read() == self.before

    def added(self) -> list[Any]:
        return []

    def refresh(self) -> None:
        """It is as it was."""

    def names(self) -> Iterable[str]:
        return (self.called,)

    @property
    def array(self) -> Any:
        """The memory, for now."""
        try:
            return np.frombuffer(self.buffer, np.uint8)
        except (ValueError, BufferError):
            return np.empty(0, np.uint8)


class Items:
    """Names in a dictionary."""

    get: Callable[[str, Any], Any]
    put: Callable[[str, Any], None]

    def __init__(self, space: dict[str, Any]) -> None:
        self.get, self.put = space.get, space.__setitem__

    def conditions(self, name: Callable[[Any], str]) -> Iterable[str]:
        """Yield, as Python, what must hold for :meth:`getting_of` to be right."""
        return ()

    def getting_of(self, key: Any, name: Callable[[Any], str]) -> str:
        """Return, as Python, what gets the value of one name."""
        return f"{name(self.get)}({name(key)}, {name(EMPTY)})"

    def getting(self, keys: Sequence[str]) -> Callable[[], Iterable[Any]]:
        """Return a function that gets the values of names, quickly."""
        return partial(map, self.get, keys, _EMPTIES)


class Own(Items):
    """Attributes in the dictionary of an object, in place of which it may get another one."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self.get = lambda name, default: owner.__dict__.get(name, default)
        self.put = lambda name, value: owner.__dict__.__setitem__(name, value)

    def conditions(self, name: Callable[[Any], str]) -> Iterable[str]:
        yield f"{name(self._owner)}.__dict__ is {name(self._owner.__dict__)}"

    def getting_of(self, key: Any, name: Callable[[Any], str]) -> str:
        return f"{name(self._owner.__dict__.get)}({name(key)}, {name(EMPTY)})"


class Members(Items):
    """Attributes of an object without a dictionary that can be written."""

    def __init__(self, owner: Any) -> None:
        self.get = vars(owner).get if isinstance(owner, type) else partial(getattr, owner)
        self.put = partial(setattr, owner)


class Cells(Items):
    """The variables of a closure."""

    def __init__(self, cells: dict[str, Any]) -> None:
        self._cells = cells
        self.get = lambda name, default: content(cells[name])
        self.put = lambda name, value: setattr(cells[name], "cell_contents", value)

    def getting(self, keys: Sequence[str]) -> Callable[[], Iterable[Any]]:
        return partial(map, attrgetter("cell_contents"), list(self._cells.values()))  # all of them are looked at

    def getting_of(self, key: Any, name: Callable[[Any], str]) -> str:
        return f"{name(self._cells[key])}.cell_contents"


def content(cell: Any) -> Any:
    """Return what a variable of a closure holds; EMPTY if nothing."""
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


def _are(now: Iterable[Any], before: Iterable[Any]) -> bool:
    """Whether these are the very same objects."""
    return all(map(is_, now, before))


def _pairs(container: dict[Any, Any]) -> list[Any]:
    return [*container, *container.values()]


def _put_pairs(container: dict[Any, Any], items: Sequence[Any]) -> None:
    half = len(items) // 2
    container.clear()
    container.update(zip(items[:half], items[half:], strict=True))


def _put_items(container: Any, items: Sequence[Any]) -> None:
    container.clear()
    container.update(items) if isinstance(container, set) else container.extend(items)

"""Reading a pickle as data: a closed set of opcodes, and names that mean nothing but what the caller says.

A pickle is a program for a small stack machine. Python's own loader lets it import and call anything; this one knows
only how to build containers, numbers and texts, and hands the rest, names of functions and calls of them, to the caller
(``find`` and ``resolve``), who has a list of what is allowed. Nothing is imported, and no method of an object is called.
"""

import pickletools
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

__all__ = ["Allowed", "PickleError", "checked_key", "read"]

_MOST_BYTES = 1 << 24
_MOST_MADE = 1_000_000  # containers, and what functions are given
_MOST_DEPTH = 200
_MOST_KEY = 62  # bits of the integers in a key, with their signs: larger ones can be chosen so that they all hash alike
_MOST_VALUES = 20_000_000  # with everything counted as often as it is referred to

_MARK: Any = object()


class PickleError(ValueError):
    """A pickle that is refused; the message says why."""


class Allowed(NamedTuple):
    """A name that a pickle may use, and what calling it does; None if it may not be called."""

    name: str
    call: Callable[..., Any] | None
    value: Any = None  # what the name stands for where it is not called


def read(data: bytes, find: Callable[[str], Allowed | None], resolve: Callable[[Any], Any]) -> Any:
    """Return what a pickle holds.

    Args:
        find: gives what may be done with a name, such as "collections.OrderedDict"; None if nothing. resolve: gives the
            object of a persistent identity.

    Raises:
        PickleError: if the pickle is damaged, uses an opcode or a name that is not allowed, or is built to exhaust memory.
    """
    if len(data) > _MOST_BYTES:
        raise PickleError(f"it has {len(data)} bytes beside the tensors; at most {_MOST_BYTES} are read")
    machine = _Machine(find, resolve)
    try:
        for name, argument in _steps(data):
            if name == "STOP":
                return machine.result()
            machine.run(name, argument)
    except PickleError:
        raise
    except RecursionError as error:
        raise PickleError("it is nested too deeply") from error
    except (ValueError, TypeError, LookupError, ArithmeticError, struct.error) as error:
        raise PickleError(f"it is damaged ({type(error).__name__}: {error})") from error
    raise PickleError("it is damaged (it does not end)")


def _steps(data: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the opcodes and their arguments; PickleError for an opcode that is not allowed, or an argument that is cut."""
    at = 0
    while at < len(data):
        code = data[at : at + 1].decode("latin1")
        if code not in _OPCODES:
            name = next((opcode.name for opcode in pickletools.opcodes if opcode.code == code), f"0x{data[at]:02x}")
            raise PickleError(f"it uses the opcode {name} (at byte {at}), which is not allowed")
        name, layout = _OPCODES[code]
        argument, at = (None, at + 1) if layout is None else _argument(data, at + 1, layout)
        yield name, argument


def _argument(data: bytes, at: int, layout: str) -> tuple[Any, int]:
    """Read an argument and return it with the place behind it.

    Layouts are those of ``struct``; after a length in one of these, "s" is a text, "b" bytes and "n" an integer; "l"
    are two lines.
    """
    if layout == "l":
        middle = data.index(b"\n", at)
        end = data.index(b"\n", middle + 1)
        return f"{data[at:middle].decode()} {data[middle + 1 : end].decode()}", end + 1
    (value,) = struct.unpack_from(layout[:2], data, at)
    at += struct.calcsize(layout[:2])
    kind = layout[2:]
    if not kind:
        return value, at
    if value > len(data) - at:
        raise PickleError(f"it is damaged (an argument of {value} bytes at byte {at})")
    part = data[at : at + value]
    if kind == "n":
        return int.from_bytes(part, "little", signed=True), at + value
    return part.decode("utf-8", "surrogatepass") if kind == "s" else part, at + value


class _Machine:
    """The stack, the marks on it, and the memo."""

    def __init__(self, find: Callable[[str], Allowed | None], resolve: Callable[[Any], Any]) -> None:
        self.find, self.resolve = find, resolve
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.made = 0

    def run(self, name: str, argument: Any) -> None:
        """Do what one opcode says."""
        if name in _PUSHED:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _CONTAINERS:
            self.count(1)
            self.stack.append(_CONTAINERS[name](self))
        elif name in _DONE:
            _DONE[name](self, argument)

    def result(self) -> Any:
        """What is left on the stack, if it is one value of bounded size."""
        value = self.pop()
        if self.stack:
            raise PickleError("it is damaged (it ends with several values)")
        _check_size(value)
        return value

    def count(self, number: int) -> None:
        """Note that containers were made, or elements of them given to a function that copies them."""
        self.made += number
        if self.made > _MOST_MADE:
            raise PickleError(
                f"it makes more than {_MOST_MADE} lists, tuples, dictionaries and copies of their elements"
            )

    def pop(self) -> Any:
        """Take the uppermost value."""
        if not self.stack or self.stack[-1] is _MARK:
            raise PickleError("it is damaged (it takes a value where there is none)")
        return self.stack.pop()

    def top(self, *kinds: type[Any]) -> Any:
        """The uppermost value, of a kind that can be added to."""
        if not self.stack or type(self.stack[-1]) not in kinds:
            raise PickleError(f"it is damaged (it adds to what is no {kinds[0].__name__})")
        return self.stack[-1]

    def marked(self) -> list[Any]:
        """Take the values above the last mark, and the mark."""
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                values = self.stack[i + 1 :]
                del self.stack[i:]
                return values
        raise PickleError("it is damaged (it takes values down to a mark that is not there)")

    def several(self, count: int) -> tuple[Any, ...]:
        """Take ``count`` values."""
        return tuple(reversed([self.pop() for _ in range(count)]))

    # ---- opcodes ---------------------------------------------------------------------

    def append(self, _: Any) -> None:
        """Add one value to a list."""
        value = self.pop()
        self.top(list).append(value)

    def appends(self, _: Any) -> None:
        """Add the marked values to a list."""
        values = self.marked()
        self.top(list).extend(values)

    def set_item(self, _: Any) -> None:
        """Add one item to a dictionary."""
        self.set_items_of(list(self.several(2)))

    def set_items(self, _: Any) -> None:
        """Add the marked items to a dictionary."""
        self.set_items_of(self.marked())

    def set_items_of(self, pairs: list[Any]) -> None:
        """Add keys and values in turn."""
        target = self.top(dict, OrderedDict)
        if len(pairs) % 2:
            raise PickleError("it is damaged (a key without value)")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            target[checked_key(key)] = value

    def put(self, index: int) -> None:
        """Remember the uppermost value."""
        value = self.pop()
        self.stack.append(value)
        self.memo[index] = value

    def memoize(self, _: Any) -> None:
        """Remember the uppermost value under the next number."""
        self.put(len(self.memo))

    def get(self, index: int) -> None:
        """Bring a value back."""
        self.stack.append(self.memo[index])

    def name(self, words: str) -> None:
        """Look a name up, given as module and name with a space between."""
        self.named(words.replace(" ", "."))

    def name_of_stack(self, _: Any) -> None:
        """Look a name up whose module and name are on the stack."""
        words = self.several(2)
        if not all(isinstance(word, str) for word in words):
            raise PickleError("it is damaged (a name that is no text)")
        self.named(".".join(words))

    def named(self, name: str) -> None:
        """Push what a name stands for; PickleError if it is not allowed."""
        found = self.find(name)
        if found is None:
            shown = name[:200] if name.isprintable() else repr(name[:200])
            raise PickleError(f"it asks for {shown}, which is not among what a file may ask for; nothing of it was run")
        self.stack.append(found if found.value is None else found.value)

    def call(self, _: Any) -> None:
        """Call a name with a tuple of arguments."""
        function, arguments = self.several(2)
        if not isinstance(function, Allowed) or function.call is None or type(arguments) is not tuple:
            shown = function.name if isinstance(function, Allowed) else type(function).__name__
            raise PickleError(f"it calls {shown}, which cannot be called")
        self.count(1 + sum(len(value) for value in arguments if type(value) in _COPIED))
        self.stack.append(function.call(*arguments))

    def build(self, _: Any) -> None:
        """Give an ordered dictionary the versions of the modules that it is the state of, its only attribute."""
        state = self.pop()
        target = self.stack[-1] if self.stack else None
        if type(target) is not OrderedDict or type(state) is not dict or set(state) - {"_metadata"}:
            raise PickleError(f"it sets attributes of a {type(target).__name__} (BUILD), which is not allowed")
        vars(target).update(state)

    def identity(self, _: Any) -> None:
        """Push the object of a persistent identity."""
        self.stack.append(self.resolve(self.pop()))

    def mark(self, _: Any) -> None:
        """Begin a row of values."""
        self.stack.append(_MARK)


def checked_key(key: Any) -> Any:
    """Return what may be a key or an element of a set: PickleError for what could take for ever to look up."""
    parts = key if type(key) is tuple else (key,)
    bits = 0
    for part in parts:
        if type(part) not in _KEYS or (type(part) is float and len(parts) > 1):
            raise PickleError(f"it has a {type(part).__name__} as a key; keys are texts and numbers")
        bits += part.bit_length() + 1 if type(part) is int else 0
    if bits > _MOST_KEY:
        raise PickleError(f"it has a large int as a key; integers of a key may have {_MOST_KEY} bits together")
    return key


def _check_size(value: Any) -> None:
    """Refuse values that contain themselves, are too deep, or are huge when written out."""
    measured: dict[int, tuple[int, int]] = {}  # depth and size of containers
    begun: set[int] = set()
    waiting: list[tuple[Any, bool]] = [(value, False)]
    while waiting:
        item, done = waiting.pop()
        inside = _inside(item)
        if inside is None or (not done and id(item) in measured):
            continue
        if done:
            parts = [measured.get(id(part), (0, 1)) for part in inside]
            depth, size = 1 + max((d for d, _ in parts), default=0), 1 + sum(s for _, s in parts)
            if depth > _MOST_DEPTH or size > _MOST_VALUES:
                raise PickleError(
                    f"it is nested {depth} deep with {size} values; at most {_MOST_DEPTH} and {_MOST_VALUES}"
                )
            measured[id(item)] = depth, size
            begun.discard(id(item))
        elif id(item) in begun:
            raise PickleError("it has a container that contains itself")
        else:
            begun.add(id(item))
            waiting.append((item, True))
            waiting.extend((part, False) for part in inside)


def _inside(item: Any) -> Iterable[Any] | None:
    """What a container holds; None of what is none."""
    if type(item) is OrderedDict:
        return [*item.values(), *vars(item).values()]
    if type(item) is dict:
        return item.values()
    if isinstance(item, Allowed) or item is _MARK:
        raise PickleError(f"it holds {item.name if isinstance(item, Allowed) else 'a mark'} itself, which is no value")
    return item if type(item) in (list, tuple) else None


_COPIED = (list, tuple, str, dict, OrderedDict)
_KEYS = (str, int, float, bool, bytes, type(None))
# The opcodes that are allowed, with the layouts of their arguments; PROTO and FRAME change nothing.
_OPCODES: dict[str, tuple[str, str | None]] = {
    "\x80": ("PROTO", "<B"), "\x95": ("FRAME", "<Q"), ".": ("STOP", None), "(": ("MARK", None), "N": ("NONE", None),
    "\x88": ("NEWTRUE", None), "\x89": ("NEWFALSE", None), "J": ("BININT", "<i"), "K": ("BININT1", "<B"),
    "M": ("BININT2", "<H"), "\x8a": ("LONG1", "<Bn"), "\x8b": ("LONG4", "<In"), "G": ("BINFLOAT", ">d"),
    "X": ("BINUNICODE", "<Is"), "\x8c": ("SHORT_BINUNICODE", "<Bs"), "\x8d": ("BINUNICODE8", "<Qs"),
    "C": ("SHORT_BINBYTES", "<Bb"), "B": ("BINBYTES", "<Ib"), "\x8e": ("BINBYTES8", "<Qb"), "}": ("EMPTY_DICT", None),
    "]": ("EMPTY_LIST", None), ")": ("EMPTY_TUPLE", None), "t": ("TUPLE", None), "l": ("LIST", None),
    "\x85": ("TUPLE1", None), "\x86": ("TUPLE2", None), "\x87": ("TUPLE3", None), "a": ("APPEND", None),
    "e": ("APPENDS", None), "s": ("SETITEM", None), "u": ("SETITEMS", None), "q": ("BINPUT", "<B"),
    "r": ("LONG_BINPUT", "<I"), "\x94": ("MEMOIZE", None), "h": ("BINGET", "<B"), "j": ("LONG_BINGET", "<I"),
    "c": ("GLOBAL", "l"), "\x93": ("STACK_GLOBAL", None), "R": ("REDUCE", None), "b": ("BUILD", None),
    "Q": ("BINPERSID", None),
}  # fmt: skip
_PUSHED = {
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_CONTAINERS: dict[str, Callable[[_Machine], Any]] = {
    "EMPTY_DICT": lambda _: {}, "EMPTY_LIST": lambda _: [], "EMPTY_TUPLE": lambda _: (),
    "TUPLE": lambda machine: tuple(machine.marked()), "LIST": _Machine.marked, "TUPLE1": lambda machine: machine.several(1),
    "TUPLE2": lambda machine: machine.several(2), "TUPLE3": lambda machine: machine.several(3),
}  # fmt: skip
_DONE: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine.mark, "APPEND": _Machine.append, "APPENDS": _Machine.appends, "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items, "BINPUT": _Machine.put, "LONG_BINPUT": _Machine.put, "MEMOIZE": _Machine.memoize,
    "BINGET": _Machine.get, "LONG_BINGET": _Machine.get, "GLOBAL": _Machine.name, "STACK_GLOBAL": _Machine.name_of_stack,
    "REDUCE": _Machine.call, "BUILD": _Machine.build, "BINPERSID": _Machine.identity,
}  # fmt: skip

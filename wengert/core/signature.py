"""The signature of an operator, read from its Python function: which arguments are tensors, what the others mean.

A declaration's function is annotated with the markers below. A tensor argument says which dtypes it accepts
(:class:`Input`); any other argument may say how it is normalised (:class:`Param`), for instance ``Axes``, which turns
``None``, ``-1`` or ``(0, -1)`` into a tuple of axes counted from the front.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from wengert.array.dtype import BOOL, COMPLEX, FLOAT, INTEGER, to_dtype
from wengert.array.shape import as_int, axes_of, axis_of, size_of
from wengert.errors import DeclarationError, TransformError

__all__ = ["ALIASES", "Input", "Param", "Signature"]

MISSING: Any = type("Missing", (), {"__repr__": lambda _: "MISSING", "__slots__": ()})()

_KINDS = {
    "any": (BOOL, INTEGER, FLOAT, COMPLEX),
    "number": (INTEGER, FLOAT, COMPLEX),
    "real": (BOOL, INTEGER, FLOAT),
    "inexact": (FLOAT, COMPLEX),
    "floating": (FLOAT,),
    "complex": (COMPLEX,),
    "integral": (BOOL, INTEGER),
    "integer": (INTEGER,),
    "boolean": (BOOL,),
}


class Input:
    """Marks a tensor argument.

    Args:
        kind: which dtypes it accepts: any, number, real, inexact, floating, complex, integral, integer or boolean.
        many: the argument is a sequence of tensors.
        scalar: a Python number may stand for the tensor and is then weakly typed.
    """

    __slots__ = ("categories", "kind", "many", "restricted", "scalar")

    def __init__(self, kind: str = "any", many: bool = False, scalar: bool = False) -> None:
        self.kind = kind
        self.categories = _KINDS[kind]
        self.restricted = kind != "any"
        self.many = many
        self.scalar = scalar


class Param:
    """Marks an argument that is not a tensor, and how it is normalised.

    Args:
        normalise: called with (value, ndim of the first tensor argument, argument name).
        variadic: the argument takes the rest of the positional arguments, as in ``x.permute(2, 0, 1)``.
    """

    __slots__ = ("normalise", "variadic")

    def __init__(self, normalise: Callable[[Any, int, str], Any], variadic: bool = False) -> None:
        self.normalise = normalise
        self.variadic = variadic

    @property
    def is_plain(self) -> bool:
        """True for an argument that is passed on as it is."""
        return self.normalise is _plain


def _optional(rule: Callable[[Any, int, str], Any]) -> Callable[[Any, int, str], Any]:
    return lambda value, ndim, name: None if value is None else rule(value, ndim, name)


def _pair(count: int) -> Callable[[Any, int, str], Any]:
    def normalise(value: Any, ndim: int, name: str) -> tuple[int, ...]:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return (as_int(value, name),) * count
        if len(value) == 1:
            return (as_int(value[0], name),) * count
        if len(value) != count:
            raise ValueError(f"{name} takes an int or {count} ints, got {tuple(value)}")
        return tuple(as_int(v, name) for v in value)

    return normalise


def _plain(value: Any, ndim: int, name: str) -> Any:
    return value


AXIS = Param(axis_of)
AXIS_OR_NONE = Param(_optional(axis_of))
AXES = Param(axes_of)
DIMS = Param(lambda v, ndim, name: axes_of(size_of(v, name), ndim, name), variadic=True)
SIZE = Param(lambda v, ndim, name: size_of(v, name), variadic=True)
INT = Param(lambda v, ndim, name: as_int(v, name))
DTYPE = Param(_optional(lambda v, ndim, name: to_dtype(v)))
PLAIN = Param(_plain)
ONE, TWO, THREE = Param(_pair(1)), Param(_pair(2)), Param(_pair(3))


class Slot(NamedTuple):
    """One argument: its name, whether it is a tensor (else how it is normalised), its default."""

    name: str
    input: Input | None
    param: Param
    default: Any
    keyword_only: bool


def _is_number(slot: Slot, hints: dict[str, Any]) -> bool:
    given = isinstance(slot.default, int | float) and not isinstance(slot.default, bool)
    return slot.param is PLAIN and slot.input is None and (given or hints.get(slot.name) in (float, float | None))


def _is_flag(slot: Slot, hints: dict[str, Any]) -> bool:
    return (
        slot.param is PLAIN and slot.input is None and (isinstance(slot.default, bool) or hints.get(slot.name) is bool)
    )


ALIASES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x1": "input", "x2": "other", "a": "input"}


class Signature:
    """The arguments of an operator, in order.

    Attributes:
        slots: one :class:`Slot` per argument. names: their names. inputs: the indices of tensor arguments.
        positional: how many may be given by position; required: how many must be given.
        flags: (index, name) of those that are on or off; numbers: (index, name, must be real) of those that are numbers.
        tails: the defaults that follow n given arguments. tensors: (index, mark, name, may be None), the last first.
    """

    __slots__ = (
        "flags", "fn", "index", "inputs", "many", "names", "numbers", "owner", "params", "positional", "required", "slots",
        "tails", "tensors", "variadic",
    )  # fmt: skip

    def __init__(self, fn: Callable[..., Any], owner: str) -> None:
        code, hints = fn.__code__, fn.__annotations__
        total = code.co_argcount + code.co_kwonlyargcount
        names = code.co_varnames[:total]
        defaults = dict(zip(reversed(names[: code.co_argcount]), reversed(fn.__defaults__ or ()), strict=False))
        defaults.update(fn.__kwdefaults__ or {})
        slots = []
        for i, name in enumerate(names):
            marks = getattr(hints.get(name), "__metadata__", ())
            mark: Any = marks[0] if marks else PLAIN
            is_input = isinstance(mark, Input)
            slots.append(Slot(name, mark if is_input else None, PLAIN if is_input else mark,
                              defaults.get(name, MISSING), i >= code.co_argcount))  # fmt: skip
        self.fn, self.owner = fn, owner
        self.slots = tuple(slots)
        self.names = names
        self.index = {name: i for i, name in enumerate(names)}
        self.inputs = tuple(i for i, s in enumerate(slots) if s.input is not None)
        self.many = any(s.input is not None and s.input.many for s in slots)
        self.tensors = tuple(
            (i, s.input, s.name, s.default is None) for i, s in reversed([*enumerate(slots)]) if s.input
        )
        self.params = tuple(
            (i, s.param.normalise, s.name) for i, s in enumerate(slots) if s.input is None and s.param is not PLAIN
        )
        self.flags = tuple((i, s.name) for i, s in enumerate(slots) if _is_flag(s, hints))
        self.numbers = tuple(
            (i, s.name, hints.get(s.name) in (float, float | None)) for i, s in enumerate(slots) if _is_number(s, hints)
        )
        self.positional = code.co_argcount
        self.required = max((i + 1 for i, s in enumerate(slots) if s.default is MISSING), default=0)
        self.tails = tuple(tuple(s.default for s in slots[n:]) for n in range(self.positional + 1))
        variadic = [i for i, s in enumerate(slots) if s.param.variadic]
        if len(variadic) > 1:
            raise DeclarationError(f"operator '{owner}' has two variadic arguments")
        self.variadic = variadic[0] if variadic else None

    def __str__(self) -> str:
        parts, star = [], False
        for slot in self.slots:
            if slot.keyword_only and not star:
                parts.append("*")
                star = True
            text = slot.name if slot.input is None else f"{slot.name}: {self._kind(slot.input)}"
            parts.append(text if slot.default is MISSING else f"{text}={slot.default!r}")
        return f"{self.owner}({', '.join(parts)})"

    @staticmethod
    def _kind(mark: Input) -> str:
        return f"{mark.kind} tensors" if mark.many else f"{mark.kind} tensor"

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the argument values in order, defaults filled in; TypeError names what is missing or unknown."""
        if self.variadic is not None and len(args) > self.variadic:
            first = args[self.variadic]
            if len(args) > self.positional or (hasattr(first, "__index__") and not isinstance(first, Sequence)):
                args = self._gather(args)
        if not kwargs and self.required <= len(args) <= self.positional:
            return [*args, *self.tails[len(args)]]
        if len(args) > self.positional:
            raise TypeError(f"{self.owner}() takes at most {self.positional} positional arguments, got {len(args)}; "
                            f"its signature is {self}")  # fmt: skip
        values = [*args, *self.tails[len(args)]]
        for name, value in kwargs.items():
            i = self.index.get(name)
            if i is None:
                i = self.index.get(ALIASES.get(name, ""))
            if i is None:
                raise TypeError(f"{self.owner}() got an unexpected keyword argument '{name}'; its signature is {self}")
            if i < len(args):
                raise TypeError(f"{self.owner}() got two values for argument '{name}'")
            values[i] = value
        missing = [s.name for s, v in zip(self.slots, values, strict=True) if v is MISSING]
        if missing:
            raise TypeError(f"{self.owner}() misses argument {', '.join(missing)}; its signature is {self}")
        return values

    def _gather(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Collect ints given one by one, ``x.view(2, 3)``, into the variadic argument."""
        at = self.variadic or 0
        end = at
        while end < len(args) and hasattr(args[end], "__index__"):
            end += 1
        return (*args[:at], args[at:end], *args[end:])

    def normalise(self, values: list[Any], ndim: int) -> None:
        """Normalise the arguments that are not tensors, in place; an error names the operator."""
        try:
            for i, rule, name in self.params:
                values[i] = rule(values[i], ndim, name)
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
            if isinstance(error, TransformError) or str(error).startswith(f"{self.owner}("):
                raise
            raise type(error)(f"{self.owner}(): {error}") from None
        for i, name in self.flags:
            if values[i] is not True and values[i] is not False:
                values[i] = self.flag(name, values[i])
        for i, name, real in self.numbers:
            if type(values[i]) is not float and type(values[i]) is not int and values[i] is not self.slots[i].default:
                values[i] = self.number(name, values[i], real)

    def number(self, name: str, value: Any, real: bool) -> Any:
        """Return an argument that is a number as one; a tensor of one element gives its element."""
        constant = hasattr(value, "_payload") and value._payload.size == 1 and not value.requires_grad
        if constant or isinstance(value, np.generic):
            value = value.item()
        if not isinstance(value, int | float if real else int | float | complex):
            kind = "a real number" if real else "a number"
            raise TypeError(f"{self.owner}(): argument '{name}' must be {kind}, got {value!r}")
        return value

    def flag(self, name: str, value: Any) -> bool:
        """Return an argument that is on or off as a bool; TypeError for anything that is neither."""
        if isinstance(value, np.bool_):
            return bool(value)
        raise TypeError(f"{self.owner}(): argument '{name}' must be True or False, got {value!r}")

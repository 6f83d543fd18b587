"""Errors that say what was wrong: made after a call has failed, so that calls that succeed pay nothing for them.

A kernel is NumPy code and a composite is Python code; given nonsense they fail with NumPy's or Python's own words, which
name neither the operator nor the argument. This room finds the argument that does not fit its declaration, or else names
the operator and shows what it was called with.
"""

import functools
import inspect
import re
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import dtype_of
from wengert.core.native import native
from wengert.core.operator import Op, Spec
from wengert.core.signature import MISSING, Slot
from wengert.core.tensor import Tensor
from wengert.errors import DTypeError, OutOfMemoryError, ShapeError, TransformError

__all__ = ["FAILURES", "explained", "explained_composite", "misfit", "named", "specs"]

# What Python and NumPy raise when code meets values it was not written for; other classes are the user's own.
FAILURES = (ValueError, IndexError, TypeError, ArithmeticError, AttributeError, LookupError, NameError, AssertionError,
            MemoryError, RuntimeError)  # fmt: skip
_NAMED = re.compile(r"[\w.]+(\[\d+\])?\(\)")
_KERNEL = re.compile(r"\A\w+: ")  # how the messages of kernels begin
_KEPT = (ShapeError, DTypeError, IndexError, ZeroDivisionError, NotImplementedError, RecursionError)
_TOO_LARGE = ("too large", "too big", "Maximum allowed", "Unable to allocate", "int too", "array is too")


def specs(values: Sequence[Any]) -> list[Any]:
    """Return bound values with every tensor replaced by its Spec."""

    def one(value: Any) -> Any:
        if isinstance(value, Tensor):
            return Spec(tuple(value._payload.shape), dtype_of(value._payload.dtype))
        if isinstance(value, tuple) and value and all(isinstance(v, Tensor) for v in value):
            return tuple(one(v) for v in value)
        return value

    return [one(v) for v in values]


def explained(op: Op, values: list[Any], error: Exception) -> Exception:
    """Return a better error for a kernel that failed: of the argument that does not fit, or of the shape rule."""
    if isinstance(error, MemoryError):
        error = native.no_memory(error)
    if isinstance(error, TransformError):
        return error
    if type(error).__module__.startswith("wengert"):
        return error if _names_operator(error) else type(error)(f"{op.name}(): {_KERNEL.sub('', str(error))}")
    found = misfit(op, values) or _stray_tensor(op, values, error)
    if found is not None:
        return TypeError(found)
    try:
        op.infer(specs(values))
    except FAILURES as better:
        if _names_operator(better) or isinstance(better, TransformError):
            return better
        if type(better).__module__.startswith("wengert"):
            return type(better)(f"{op.name}(): {better}")
    return error if _names_operator(error) else _generic(op, values, error)


def explained_composite(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> Exception:
    """Return a better error for a composite that failed; one that names an operator already is returned itself."""
    if _names_operator(error):
        return error
    if type(error).__module__.startswith("wengert"):
        return type(error)(f"{op.name}(): {error}") if type(error) in (ShapeError, DTypeError) else error
    if op.signature.fn.__code__.co_flags & inspect.CO_VARARGS:
        return _of_many(op, args, error)
    try:
        values = op.signature.bind(args, kwargs)
    except TypeError:  # the call itself did not fit the signature, and Python has said how
        return error
    found = misfit(op, values) or _not_a_tensor(op, values, error)
    return _generic(op, values, error) if found is None else TypeError(found)


def _names_operator(error: Exception) -> bool:
    return not isinstance(error, AttributeError | AssertionError | NameError | MemoryError) and (
        _NAMED.match(str(error)) is not None
    )


def misfit(op: Op, values: Sequence[Any]) -> str | None:
    """Return what is wrong with the first argument that is not of the kind its annotation or its default says."""
    hints = op.signature.fn.__annotations__
    for slot, value in zip(op.signature.slots, values, strict=False):
        if slot.input is not None or value is slot.default or value is MISSING:
            continue
        expected, fits = _expected(hints.get(slot.name), slot)
        if fits is not None and not fits(value):
            return f"{op.name}(): argument '{slot.name}' must be {expected}, got {shown(value)}"
    return None


def _stray_tensor(op: Op, values: Sequence[Any], error: Exception) -> str | None:
    """Return which argument is a tensor that a kernel has computed with, which kernels do not."""
    if "cannot enter context" not in str(error):
        return None
    for slot, value in zip(op.signature.slots, values, strict=False):
        if slot.input is None and isinstance(value, Tensor):
            return f"{op.name}(): argument '{slot.name}' must not be a tensor, got {shown(value)}"
    return None


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return bool(value._payload.size == 1)
    return isinstance(value, int | float | complex | np.number)


def _is_numeric(value: Any) -> bool:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return all(_is_numeric(v) for v in value)
    return _is_number(value)


# The annotation of an argument in a declaration: how an error calls it, and what fits.
_KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("True or False", lambda v: isinstance(v, bool | np.bool_)),
    int: ("an int", _is_int),
    float: ("a number", _is_number),
    str: ("a string", lambda v: isinstance(v, str)),
}


def _expected(hint: Any, slot: Slot) -> tuple[str, Callable[[Any], bool] | None]:
    """Return what an argument must be, in words and as a predicate (None: anything)."""
    if isinstance(hint, types.UnionType):
        parts = [_KINDS[h] for h in hint.__args__ if h in _KINDS]
        if len(parts) == 1 and len(hint.__args__) == 2:
            text, fits = parts[0]
            return f"{text} or None", lambda value: value is None or fits(value)
        return "", None
    if hint in _KINDS:
        return _KINDS[hint]
    if isinstance(slot.default, bool):
        return _KINDS[bool]
    if slot.param.is_plain and isinstance(slot.default, float):
        return _KINDS[float]
    if slot.param.is_plain and isinstance(slot.default, int | tuple):
        return "a number or a sequence of them", _is_numeric
    return "", None


def _not_a_tensor(op: Op, values: Sequence[Any], error: Exception) -> str | None:
    """Return what is wrong with the argument that a failed look-up, ``value.shape``, took for a tensor."""
    if not isinstance(error, AttributeError) or not hasattr(Tensor, error.name or ""):
        return None
    names = op.signature.names
    for i, value in enumerate(values):
        if value is error.obj:
            name = names[min(i, len(names) - 1)]
            return f"{op.name}(): argument '{name}' must be a tensor, got {shown(value)}"
    return None


def shown(value: Any) -> str:
    """Return an argument as an error shows it: shape and dtype of a tensor, a short repr of anything else."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value._payload.shape)} and dtype {dtype_of(value._payload.dtype)}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, list | tuple) and any(isinstance(v, Tensor) for v in value):
        return f"a {type(value).__name__} of {', '.join(shown(v) for v in value[:4])}"
    text = repr(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    plain = value is None or isinstance(value, bool | int | float | complex | str | list | tuple | dict | type)
    return text if plain else f"{text} of type {type(value).__name__}"


def _of_many(op: Op, args: tuple[Any, ...], error: Exception) -> Exception:
    """Return the error of a composite of any number of tensors, ``broadcast_tensors(a, b, c)``."""
    for i, value in enumerate(args):
        if not isinstance(value, Tensor) and isinstance(error, AttributeError):
            return TypeError(f"{op.name}(): argument {i} must be a tensor, got {shown(value)}")
    better = _renamed(op.name, error)
    return type(better)(f"{better}; called with {', '.join(map(shown, args)) or 'no arguments'}")


def _generic(op: Op, values: Sequence[Any], error: Exception) -> Exception:
    """Return an error that names the operator and shows its arguments, where nothing better is known."""
    names, slots = op.signature.names, op.signature.slots
    given = [
        f"{names[i]} = {shown(value)}"
        for i, value in enumerate(values[: len(names)])
        if value is not slots[i].default or slots[i].input is not None
    ]
    better = _renamed(op.name, error)
    return type(better)(f"{better}; called with {', '.join(given) or 'no arguments'}")


def named(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the user's that is no operator (``zeros``, ``arange``) with errors that name it."""
    name = function.__name__

    @functools.wraps(function)
    def public(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except FAILURES as error:
            if _names_operator(error) or isinstance(error, TransformError):
                raise
            raise _renamed(name, error) from error

    return public


def _renamed(name: str, error: Exception) -> Exception:
    """Return an error of a class that PyTorch would raise, whose message begins with the name of a function."""
    text = str(error).removeprefix(name + ": ") or type(error).__name__
    if isinstance(error, OutOfMemoryError):
        return OutOfMemoryError(f"{name}(): {text}")
    if isinstance(error, MemoryError | OverflowError) or any(part in text for part in _TOO_LARGE):
        return RuntimeError(f"{name}(): a size or number is too large ({text})")
    kind: type[Exception] = RuntimeError
    if isinstance(error, _KEPT):
        kind = next(k for k in _KEPT if isinstance(error, k))
    elif isinstance(error, TypeError | AttributeError | KeyError | AssertionError | NameError):
        kind = TypeError
    elif isinstance(error, ValueError):
        kind = ShapeError
    return kind(f"{name}(): {text}")

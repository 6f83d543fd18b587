"""The signature of a user's operator, read from its type hints."""

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np

from wengert.array.device import device as Device
from wengert.array.dtype import DType
from wengert.core.signature import Input
from wengert.core.tensor import Tensor
from wengert.errors import DeclarationError

__all__ = ["checks_of", "infer_schema", "returns_of", "with_markers"]

_PLAIN = {
    int: ("int", int | np.integer), float: ("float", int | float | np.integer | np.floating), bool: ("bool", bool | np.bool_),
    str: ("str", str), complex: ("complex", int | float | complex | np.number),
    DType: ("ScalarType", DType), Device: ("Device", Device),
}  # fmt: skip
NUMBER = int | float | bool
TENSOR, TENSORS = Annotated[Any, Input("any")], Annotated[Any, Input("any", many=True)]


def _hints(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn)
    except Exception as error:
        raise DeclarationError(f"custom_op '{name}': its type hints cannot be read: {error}") from error


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Return a hint without ``None``, and whether it had it."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        parts = [p for p in typing.get_args(hint) if p is not type(None)]
        if len(parts) == 1 and len(parts) < len(typing.get_args(hint)):
            return parts[0], True
    return hint, False


def _is_sequence(hint: Any) -> bool:
    return typing.get_origin(hint) in (list, tuple, Sequence)


def _described(hint: Any) -> str | None:
    """Return how a schema calls a type, or None for one that is not accepted."""
    bare, optional = _without_none(hint)
    mark = "?" if optional else ""
    if bare is Tensor:
        return f"Tensor{mark}"
    if bare == NUMBER:
        return f"Scalar{mark}"
    if bare in _PLAIN:
        return f"{_PLAIN[bare][0]}{mark}"
    if _is_sequence(bare):
        inner = [a for a in typing.get_args(bare) if a is not Ellipsis]
        if len(inner) == 1 and (inner[0] is Tensor or inner[0] in _PLAIN):
            return f"{'Tensor' if inner[0] is Tensor else _PLAIN[inner[0]][0]}[]{mark}"
    return None


def infer_schema(
    prototype_function: Callable[..., Any], /, *, mutates_args: Any = (), op_name: str | None = None
) -> str:
    """Return the schema of a function in PyTorch's notation, from its type hints.

    Raises:
        DeclarationError: for an argument without a hint, or with one of another type than tensors, numbers, strings,
            sequences of them and ``None`` besides.

    Example:
        >>> from wengert import Tensor
        >>> def scaled(x: Tensor, by: float = 2.0) -> Tensor: ...
        >>> infer_schema(scaled)
        '(Tensor x, float by=2.0) -> Tensor'
    """
    name = op_name or prototype_function.__name__
    hints = _hints(prototype_function, name)
    parts = []
    for number, parameter in enumerate(inspect.signature(prototype_function).parameters.values()):
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise DeclarationError(
                f"custom_op '{name}': positional-only arguments, *args and **kwargs are not possible"
            )
        if parameter.name not in hints:
            raise DeclarationError(f"custom_op '{name}': argument '{parameter.name}' has no type hint")
        kind = _described(hints[parameter.name])
        if kind is None:
            raise DeclarationError(
                f"custom_op '{name}': argument '{parameter.name}' has the type {hints[parameter.name]}; possible are Tensor, "
                "int, float, bool, complex, str, dtype, device, sequences of them, and None besides"
            )
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        changed = kind.startswith("Tensor") if mutates_args == "unknown" else parameter.name in tuple(mutates_args)
        mutated = f"Tensor(a{number}!){kind[6:]}" if changed else kind
        default = "" if parameter.default is parameter.empty else f"={_written(parameter.default)}"
        parts.append(f"{mutated} {parameter.name}{default}")
    returns = returns_of(prototype_function, name)
    result = {"none": "()", "tensor": "Tensor", "list": "Tensor[]"}.get(
        returns, f"({', '.join(['Tensor'] * _count(returns))})"
    )
    return f"({', '.join(parts)}) -> {result}"


def _written(default: Any) -> str:
    """Return a default as a schema writes it."""
    return f'"{default}"' if isinstance(default, str) else repr(default)


def checks_of(fn: Callable[..., Any], name: str) -> list[Callable[[str, Any, Any], None]]:
    """Return, for each argument, what refuses a value that is not of its hint: called with (operator, slot, value)."""
    hints = _hints(fn, name)
    return [_check_of(hints[parameter]) for parameter in inspect.signature(fn).parameters]


def _check_of(hint: Any) -> Callable[[str, Any, Any], None]:
    bare, optional = _without_none(hint)
    many = _is_sequence(bare)
    inner = next(a for a in typing.get_args(bare) if a is not Ellipsis) if many else bare
    kind = Tensor if inner is Tensor else int | float | bool | np.number if inner == NUMBER else _PLAIN[inner][1]
    title = ("a sequence of tensors" if many else "a tensor") if inner is Tensor else str(_described(hint))

    def check(owner: str, slot: Any, value: Any) -> None:
        if value is None and (optional or slot.default is None):
            return
        fits = (
            isinstance(value, list | tuple) and all(isinstance(v, kind) for v in value)
            if many
            else isinstance(value, kind)
        )
        if not fits:
            raise TypeError(f"{owner}(): argument '{slot.name}' must be {title}, got {type(value).__name__}")

    return check


def _count(returns: str) -> int:
    return int(returns.removeprefix("tuple")) if returns.startswith("tuple") else 0


def returns_of(fn: Callable[..., Any], name: str) -> str:
    """Return what a function is annotated to return: ``"tensor"``, ``"list"``, ``"none"`` or ``"tuple2"`` and the like.

    Raises:
        DeclarationError: for another annotation, or none.
    """
    hints = _hints(fn, name)
    if "return" not in hints:
        raise DeclarationError(
            f"custom_op '{name}' does not say what it returns: -> Tensor, tuple[Tensor, ...] or None"
        )
    hint = hints["return"]
    if hint is type(None):
        return "none"
    if hint is Tensor:
        return "tensor"
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is list and arguments == (Tensor,):
        return "list"
    if typing.get_origin(hint) is tuple and arguments and all(a is Tensor for a in arguments):
        return f"tuple{len(arguments)}"
    raise DeclarationError(
        f"custom_op '{name}' returns {hint}; possible are Tensor, list[Tensor], tuples of Tensor, None"
    )


def with_markers(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a copy of a function whose tensor arguments are annotated as a declaration annotates them."""
    hints = _hints(fn, name)
    copied = types.FunctionType(fn.__code__, fn.__globals__, name, fn.__defaults__, fn.__closure__)
    copied.__kwdefaults__, copied.__doc__ = fn.__kwdefaults__, fn.__doc__
    for argument, hint in hints.items():
        bare, _ = _without_none(hint)
        many = _is_sequence(bare) and Tensor in typing.get_args(bare)
        copied.__annotations__[argument] = TENSOR if bare is Tensor else TENSORS if many else hint
    return copied

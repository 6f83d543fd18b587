"""Writes ``core/methods.pyi``: what type checkers and editors see of the methods that the registry attaches to tensors.

python -m wengert.testing.stubs
"""

import inspect
import sys
from pathlib import Path
from typing import Any

import wengert
from wengert.core.methods import Absent, TensorMethods
from wengert.core.operator import Op
from wengert.core.tensor import Tensor
from wengert.testing.samples import ErrorSample, plain, samples_of

__all__ = ["PATH", "stub"]

PATH = Path(wengert.__file__).parent / "core" / "methods.pyi"

_HEAD = '''"""What the registry attaches to tensors. Written by ``python -m wengert.testing.stubs``; do not edit."""

import builtins
from typing import Any

from wengert.core.tensor import Tensor

class Absent:
    name: str
    def __init__(self, name: str) -> None: ...

def attach(name: str, function: Any) -> None: ...
def attach_absent(names: tuple[str, ...], cls: type[Any]) -> None: ...

class TensorMethods:
'''
_NOT_TENSORS = {
    "__bool__": "builtins.bool",
    "__setitem__": "None",
    "tolist": "Any",
    "__array_ufunc__": "Any",
    "__array_function__": "Any",
    "backward": "None",
    "retain_grad": "None",
    "retains_grad": "builtins.bool",
    "device": "Any",
    "equal": "builtins.bool",
    "allclose": "builtins.bool",
}


_UNARY = ("__abs__", "__bool__", "__invert__", "__neg__", "__pos__")


def _result(name: str, function: Any) -> str:
    if name in _NOT_TENSORS:
        return _NOT_TENSORS[name]
    if name.endswith("_"):  # operators of Python, and in-place methods
        return "Tensor"
    op: Op | None = getattr(function, "op", None)
    if op is None:
        return "Any"
    if op.composite:
        return _returned(op)
    if op.variable:
        return "tuple[Tensor, ...]"
    return "Tensor" if len(op.outputs) == 1 else "Any"


def _returned(op: Op) -> str:
    """Return the type of what an operator gives for its first sample: a composite does not declare its results."""
    sample = next(s for s in samples_of(op) if not isinstance(s, ErrorSample))
    args, kwargs = sample.arguments(plain)
    value = op.function(*args, **kwargs)
    if isinstance(value, Tensor):
        return "Tensor"
    return "tuple[Tensor, ...]" if type(value) is tuple and all(isinstance(v, Tensor) for v in value) else "Any"


def _parameter(parameter: inspect.Parameter) -> str:
    name = parameter.name
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"*{name}: Any"
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return f"**{name}: Any"
    return f"{name}: Any" if parameter.default is inspect.Parameter.empty else f"{name}: Any = ..."


def _arguments(name: str, function: Any) -> str:
    """Return the parameters of a method as stub text; those of variadic operators are left open."""
    if name.startswith("__") and not name.startswith("__array"):
        return (
            "self" if name in _UNARY else "self, key: Any, value: Any" if name == "__setitem__" else "self, other: Any"
        )
    op: Op | None = getattr(function, "op", None)
    if op is not None and op.signature.variadic is not None:
        return "self, *args: Any, **kwargs: Any"
    found = [*inspect.signature(function).parameters.values()]
    if found and found[0].kind is inspect.Parameter.VAR_POSITIONAL:
        return "self, *args: Any, **kwargs: Any"
    parts, starred = ["self"], False
    for parameter in found[1:]:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or parameter.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
        parts.append(_parameter(parameter))
    return ", ".join(parts)


def stub() -> str:
    """Return the text of the stub."""
    lines = []
    for name, value in sorted(vars(TensorMethods).items()):
        if isinstance(value, Absent) or name in ("__doc__", "__module__", "__slots__", "__weakref__", "__dict__"):
            continue
        if isinstance(value, property):
            lines.append(f"    @property\n    def {name}(self) -> {_NOT_TENSORS.get(name, 'Any')}: ...")
        elif callable(value):
            ignored = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
            lines.append(f"    def {name}({_arguments(name, value)}) -> {_result(name, value)}: ...{ignored}")
        elif name != "__hash__":
            lines.append(f"    {name}: Any")
    return _HEAD + "\n".join(lines) + "\n"


def main() -> int:
    """Write the stub; return the exit status."""
    PATH.write_text(stub(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

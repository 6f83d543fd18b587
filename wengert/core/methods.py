"""Tensor methods attached from the registry."""

from typing import Any

from wengert.core.registry import MissingNameError

__all__ = ["Absent", "TensorMethods", "attach", "attach_absent"]


class TensorMethods:
    """Holds the methods that come from operators; what they are is shown by ``python -m wengert ops``.

    There is deliberately no ``__getattr__``: with one, CPython looks every attribute of every tensor up the slow way.
    Python itself suggests a near name for a misspelt one; PyTorch's names that are missing are :class:`Absent`.
    """

    __slots__ = ()


class Absent:
    """Stands where PyTorch's tensors have a method that these do not have yet: AttributeError with the nearest names."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        raise MissingNameError("Tensor", self.name, _present, tensor)


def _present() -> list[str]:
    return [n for n in dir(TensorMethods) if not isinstance(TensorMethods.__dict__.get(n), Absent)]


def attach(name: str, function: Any) -> None:
    """Make ``function`` a method (or, given a property, an attribute) of every tensor."""
    setattr(TensorMethods, name, function)


def attach_absent(names: tuple[str, ...], cls: type[Any]) -> None:
    """Let each of ``names`` that the tensor class lacks raise AttributeError with the nearest names."""
    for name in names:
        if name not in TensorMethods.__dict__ and name not in cls.__dict__:
            setattr(TensorMethods, name, Absent(name))

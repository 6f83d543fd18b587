"""Tensor methods attached from the registry."""

from typing import Any

from wengert.core.registry import missing_message

__all__ = ["TensorMethods", "attach"]


class TensorMethods:
    """Holds the methods that come from operators; what they are is shown by ``python -m wengert ops``."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(missing_message("Tensor", name, dir(type(self))), name=name, obj=self)


def attach(name: str, function: Any) -> None:
    """Make ``function`` a method (or, given a property, an attribute) of every tensor."""
    setattr(TensorMethods, name, function)



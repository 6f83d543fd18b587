"""Where the inputs of a graph are found at a call, and what must still hold for the graph to be right."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.core.structure import structure
from wengert.core.tensor import Tensor

__all__ = ["Argument", "Gradient", "Guards", "Held", "Source"]


class Argument:
    """An input that is an argument of the call: the tensor leaf number ``index``."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def tensor(self, leaves: Sequence[Any]) -> Any:
        """Return the tensor."""
        return leaves[self.index]

    def __repr__(self) -> str:
        return f"argument {self.index}"


class Held:
    """An input that the function holds itself: a parameter, a buffer, a tensor of its closure."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held

    def tensor(self, leaves: Sequence[Any]) -> Any:
        """Return the tensor."""
        return self.held

    def __repr__(self) -> str:
        return f"captured {self.held.dtype.name}{list(self.held.shape)}"


class Gradient:
    """An input that is the ``.grad`` of another source."""

    __slots__ = ("of",)

    def __init__(self, of: "Source") -> None:
        self.of = of

    def tensor(self, leaves: Sequence[Any]) -> Any:
        """Return the tensor."""
        return self.of.tensor(leaves)._grad

    def __repr__(self) -> str:
        return f"gradient of {self.of!r}"


Source = Argument | Held | Gradient


def form_of(tensor: Any) -> tuple[Any, ...]:
    """Return what a graph is made for, of a tensor: how its memory lies, and whether it wants a gradient."""
    array = tensor._payload
    if type(array) is not np.ndarray:
        return (type(array),)
    return array.shape, array.strides, array.dtype, tensor._node is not None, tensor._view is not None


class Guards:
    """What must hold for a graph to be right, asked at each call.

    Attributes:
        forms: of each source that is no argument. grads: sources and whether they had a gradient. questions: to Python
            objects, with answers. modules: snapshots of modules, asked only if any module of the process has changed.
    """

    def __init__(self) -> None:
        self.forms: list[tuple[Source, tuple[Any, ...]]] = []
        self.grads: list[tuple[Source, bool]] = []
        self.questions: list[tuple[Callable[[], Any], Any, str]] = []
        self.modules: list[tuple[Callable[[], Any], Any, str]] = []
        self._changes = structure.changes
        self._arrays: list[Any] = []

    def broken(self, leaves: Sequence[Any]) -> str | None:
        """Return the first thing that no longer holds, in words; None if all does."""
        for source, present in self.grads:
            if (source.tensor(leaves)._grad is not None) is not present:
                return f".grad of {source!r} is {'None' if present else 'no longer None'}"
        for source, form in self.forms:
            tensor = source.tensor(leaves)
            if not isinstance(tensor, Tensor) or form_of(tensor) != form:
                return f"{source!r} has another shape, dtype, layout or requires_grad"
        for ask, answer, name in self.questions:
            if ask() != answer:
                return f"{name} has changed"
        if self._changes != structure.changes:
            for ask, answer, name in self.modules:
                if ask() != answer:
                    return f"{name} has changed"
            self._changes = structure.changes
        return None

"""Where the inputs of a graph are found at a call, and what must still hold for the graph to be right."""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from math import inf
from typing import Any

import numpy as np

from wengert.array.device import devices, index_of
from wengert.compiling.looks import Look
from wengert.compiling.straight import MOST, Names, conjunction
from wengert.compiling.surroundings import Surroundings
from wengert.core.structure import structure
from wengert.core.tensor import Tensor

__all__ = ["Argument", "Gradient", "Guards", "Held", "Source"]


class Argument:
    """An input that is an argument of the call: the tensor leaf number ``index``."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    @property
    def key(self) -> Any:
        """What tells it from other sources."""
        return "argument", self.index

    def tensor(self, leaves: Sequence[Any]) -> Any:
        """Return the tensor."""
        return leaves[self.index]

    def text(self, name: Names) -> str:
        """Return, as Python, what finds the tensor among ``leaves``."""
        return f"leaves[{self.index}]"

    def __repr__(self) -> str:
        return f"argument {self.index}"


class Held:
    """An input that the function holds itself: a parameter, a buffer, a tensor of its closure."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held

    @property
    def key(self) -> Any:
        """What tells it from other sources."""
        return "held", id(self.held)

    def tensor(self, leaves: Sequence[Any]) -> Any:
        """Return the tensor."""
        return self.held

    def text(self, name: Names) -> str:
        """Return, as Python, what the tensor is called."""
        return name(self.held)

    def __repr__(self) -> str:
        return f"captured {self.held.dtype.name}{list(self.held.shape)}"


class Gradient:
    """An input that is the ``.grad`` of another source."""

    __slots__ = ("of",)

    def __init__(self, of: "Source") -> None:
        self.of = of

    @property
    def key(self) -> Any:
        """What tells it from other sources."""
        return "gradient", self.of.key

    def tensor(self, leaves: Sequence[Any]) -> Any:
        """Return the tensor."""
        return self.of.tensor(leaves)._grad

    def text(self, name: Names) -> str:
        """Return, as Python, what finds the tensor among ``leaves``."""
        return f"{self.of.text(name)}._grad"

    def __repr__(self) -> str:
        return f"gradient of {self.of!r}"


Source = Argument | Held | Gradient


def form_of(tensor: Any) -> tuple[Any, ...]:
    """Return what a graph is made for, of a tensor: how and where its memory lies, and whether it wants a gradient."""
    array = tensor._payload
    if type(array) is not np.ndarray:
        return (type(array),)
    where = index_of(array.dtype) if devices.several else None
    writeable = array.flags.writeable
    return array.shape, array.strides, array.dtype, where, writeable, _grows(tensor), tensor._view is not None


def _grows(tensor: Any) -> Any:
    """Return whether a tensor wants a gradient, or the hooks that this will run."""
    return tensor._node is not None and (_hooks(tensor._node) or True)


def _hooks(node: Any) -> tuple[Any, ...]:
    """Return the hooks on the node of a tensor."""
    return () if node is None or node.extra is None else tuple(node.extra.hooks())


class Guards:
    """What must hold for a graph to be right, asked at each call.

    Attributes:
        forms: of the tensors that the function holds itself. grads: sources and whether they had a gradient; histories: the
            keys of those whose gradient had a history. looks: at what an optimiser goes by. questions: to Python objects, with
            answers. modules: snapshots, asked only if any module of the process has changed.
        surroundings: what the function reads besides its arguments.
        known: arguments that are tensors which the function holds as well, and these. unknown: arguments that are none of them,
            though they might, and what becomes of gradients depends on it.
        frozen: tensors whose values are constants of the graph, see :mod:`wengert.compiling.frozen`.
        moved: how often a tensor that the function holds got other memory. apart: says whether the tensors lie where they may.
    """

    def __init__(self) -> None:
        self.forms: list[tuple[Held, tuple[Any, ...]]] = []
        self.grads: list[tuple[Source, bool]] = []
        self.histories: frozenset[Any] = frozenset()
        self.looks: list[Look] = []
        self.known: list[tuple[int, Any]] = []
        self.unknown: list[int] = []
        self.frozen: list[Any] = []
        self.questions: list[tuple[Callable[[], Any], Any, str]] = []
        self.modules: list[tuple[Callable[[], Any], Any, str]] = []
        self.surroundings: Surroundings | None = None
        self.moved = 0
        self.apart: Any = None
        self._changes = structure.changes
        self._seen: list[tuple[Any, Any, Any, tuple[Any, ...]]] = []
        self._holds: dict[int, Any] = {}
        self._refreshed = 0
        self._straight: Callable[[Sequence[Any]], bool] | None = None  # whether all is as it was at the last look
        self._calm = 0  # looks in a row that found nothing new
        self._patience: float = 1  # how many of them it takes to write out what was found

    def identify(self, leaves: Sequence[Any], held: Collection[int], asked: Sequence[Any]) -> None:
        """Take note of which arguments the function holds as well: what is done to one is then done to the other.

        Args:
            held: the identities of tensors that the function can reach. asked: tensors whose ``.grad`` it has read or set.
        """
        tensors = {k: leaf for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
        self.known = [(k, leaf) for k, leaf in tensors.items() if id(leaf) in held]
        if asked:
            graded, given = set(map(id, asked)), set(map(id, leaves))
            self.unknown = [
                k for k, leaf in tensors.items()
                if id(leaf) not in held and (leaf.requires_grad or id(leaf) in graded)
            ]  # fmt: skip
            others = (*asked, *(source.held for source, _ in self.forms))
            self._holds = {id(tensor): tensor for tensor in others if id(tensor) not in given}

    def broken(self, leaves: Sequence[Any]) -> str | None:
        """Return the first thing that no longer holds, in words; None if all does."""
        if self._straight is None:
            return self._watched(leaves)
        try:
            if self._straight(leaves):
                return self._module_changed()
        except (ValueError, KeyError):  # of a variable of a closure, or an option of an optimiser, that was deleted
            pass
        found = self._looked(leaves)
        if found is None:  # other objects, to which it will be written out anew, the less soon the more often
            self._straight, self._patience = None, 4 * self._patience
        return found

    def _watched(self, leaves: Sequence[Any]) -> str | None:
        """Look, and write out what is compared once it has been the very same objects often enough."""
        before, found = self._anew(), self._looked(leaves)
        if found is None:
            self._calm = self._calm + 1 if self._anew() == before else 0
            if self._calm >= self._patience:
                names = Names()
                conditions = list(islice(self._conditions(names), MOST + 1))
                if len(conditions) > MOST:
                    self._patience = inf
                else:
                    self._straight, self._calm = conjunction(conditions, names), 0
        return found

    def _anew(self) -> int:
        """How often another object was found where one was, though nothing that counts had changed."""
        return self.moved + self._refreshed + (0 if self.surroundings is None else self.surroundings.compared)

    def _conditions(self, name: Names) -> Iterator[str]:
        """Yield, as Python, what the last look was at, and found."""
        yield from (f"leaves[{k}] is {name(tensor)}" for k, tensor in self.known)
        yield from (f"{name(id)}(leaves[{k}]) not in {name(self._holds)}" for k in self.unknown)
        for source, present in self.grads:
            gradient = f"{source.text(name)}._grad"
            yield f"{gradient} is {'not None' if present else 'None'}"
            if present and source.key not in self.histories:
                yield f"{gradient}._node is None"
        for one in self.frozen:
            yield from one.conditions(name)
        for tensor, array, node, hooks in self._seen:
            yield f"{name(tensor)}._payload is {name(array)}"
            yield f"{name(tensor)}._node is {name(node)}"
            if node is not None:
                yield f"({name(node)}.extra is None or {name(_hooks)}({name(node)}) == {name(hooks)})"
        if self.apart is not None:
            yield from self.apart.conditions(name)
        for look in (*self.looks, *(() if self.surroundings is None else self.surroundings.looks)):
            yield from look.conditions(name)
        for ask, answer, _ in self.questions:
            yield from ask.conditions(name) if hasattr(ask, "conditions") else (f"{name(ask)}() == {name(answer)}",)

    @property
    def outdated(self) -> bool:
        """Whether constants of the graph are no longer what they were, and will not be again."""
        return not all(one.holds for one in self.frozen)

    def _looked(self, leaves: Sequence[Any]) -> str | None:
        for one in self.frozen:
            if not one.holds:
                return f"{Held(one.tensor)!r}, which is frozen, was written"
        for k, tensor in self.known:
            if leaves[k] is not tensor:
                return f"argument {k} is not the tensor that the function holds as well"
        for k in self.unknown:
            if id(leaves[k]) in self._holds:
                return f"argument {k} is a tensor that the function holds as well"
        for source, present in self.grads:
            gradient = source.tensor(leaves)._grad
            if (gradient is not None) is not present:
                return f".grad of {source!r} is {'None' if present else 'no longer None'}"
            if present and gradient._node is not None and source.key not in self.histories:
                return f".grad of {source!r} has a history"
        for tensor, array, node, hooks in self._seen:
            if (
                tensor._payload is not array
                or tensor._node is not node
                or (node is not None and node.extra is not None and tuple(node.extra.hooks()) != hooks)
            ):
                self._seen = []
                break
        if not self._seen and self.forms:
            for source, form in self.forms:
                if form_of(source.held) != form:
                    return f"{source!r} has another shape, dtype, layout or requires_grad"
            self._seen = [(s.held, s.held._payload, s.held._node, _hooks(s.held._node)) for s, _ in self.forms]
            self.moved += 1
            if self.apart is not None:
                self.apart.moved()
        if self.apart is not None and not self.apart.holds(leaves):
            return "which of its tensors share memory"
        if self.surroundings is not None and (changed := self.surroundings.changed()) is not None:
            return f"{changed} has changed"
        for look in self.looks:
            if not look.holds():
                if (changed := look.changed()) is not None:
                    return f"{changed} has changed"
                look.refresh()
                self._refreshed += 1
        for ask, answer, name in self.questions:
            if ask() != answer:
                return f"{name} has changed"
        return self._module_changed()

    def _module_changed(self) -> str | None:
        """Return what of the modules is no longer as it was, in words, if any module of the process has changed."""
        if self._changes != structure.changes:
            for ask, answer, name in self.modules:
                if ask() != answer:
                    return f"{name} has changed"
            self._changes = structure.changes
        return None

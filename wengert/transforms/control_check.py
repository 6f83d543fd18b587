"""What the bodies of structured control flow must keep to, and the errors that say where they do not."""

import types
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from wengert import tree
from wengert.array.dtype import dtype_of
from wengert.core.tensor import INFERENCE, Tensor
from wengert.errors import DTypeError, InplaceError, ShapeError

__all__ = ["Pattern", "Watch", "check_callable", "version", "watch", "written"]


def check_callable(name: str, **functions: Any) -> None:
    """Refuse an argument that is no function.

    Raises:
        TypeError: naming the argument.
    """
    for argument, value in functions.items():
        if not callable(value):
            raise TypeError(f"{name}(): {argument} must be a function, got {type(value).__name__}")


def _fact(leaf: Any) -> Any:
    """Return what may not change of a leaf: shape and dtype of a tensor, else the type."""
    if isinstance(leaf, Tensor):
        payload = leaf._payload
        return payload.shape, payload.dtype
    return type(leaf)


def _words(fact: Any) -> str:
    if isinstance(fact, tuple):
        return f"a tensor of shape {tuple(fact[0])} and dtype {dtype_of(fact[1])}"
    return "None" if fact is type(None) else f"a Python {fact.__name__}"


class Pattern:
    """The structure of a tree, and the shape and dtype of each of its leaves: what another tree is held against.

    Attributes:
        spec: the structure. facts: (shape, NumPy dtype) of each tensor leaf, the type of any other leaf.
    """

    __slots__ = ("facts", "spec")

    def __init__(self, leaves: Sequence[Any], spec: tree.Spec) -> None:
        self.spec, self.facts = spec, [_fact(leaf) for leaf in leaves]

    def match(self, value: Any, what: str, like: str, prepare: Callable[[Any], Any] | None = None) -> list[Any]:
        """Return the leaves of a tree that has this pattern.

        Args:
            value: the tree. what: names it. like: names the tree it must look like. prepare: applied to each leaf first.

        Raises:
            TypeError: for another structure, or another type of leaf. ShapeError, DTypeError: naming the leaf.
        """
        if self.spec.kind is None and isinstance(value, Tensor) and _fact(value) == self.facts[0]:
            return [value]  # most often, a tensor alone
        leaves, spec = tree.flatten(value)
        if spec != self.spec:
            raise TypeError(f"{what} is not of the structure of {like}: {_structures(spec, self.spec)}")
        if prepare is not None:
            leaves = [prepare(leaf) for leaf in leaves]
        if [_fact(leaf) for leaf in leaves] != self.facts:
            raise self._difference(leaves, value, what, like)
        return leaves

    def _difference(self, leaves: list[Any], value: Any, what: str, like: str) -> Exception:
        for path, leaf, wanted in zip(tree.paths(value), leaves, self.facts, strict=True):
            found = _fact(leaf)
            if found == wanted:
                continue
            text = f"{what}{' at ' + path if path else ''} is {_words(found)}, in {like} it is {_words(wanted)}"
            if not (isinstance(found, tuple) and isinstance(wanted, tuple)):
                return TypeError(f"{text}; use the same kind of value, for a number a tensor: wengert.tensor(number)")
            if found[0] != wanted[0]:
                return ShapeError(f"{text}; the shapes must be the same")
            return DTypeError(f"{text}; cast one, for instance with .to(wengert.{dtype_of(wanted[1]).name})")
        raise AssertionError("the trees have the same leaves")


def _structures(found: tree.Spec, wanted: tree.Spec) -> str:
    """Return how two structures differ: the leaves that only one has, or else both structures."""
    ours = tree.paths(tree.unflatten([None] * found.count, found))
    theirs = tree.paths(tree.unflatten([None] * wanted.count, wanted))
    missing, added = [p for p in theirs if p not in ours], [p for p in ours if p not in theirs]
    text = f"{found} instead of {wanted}"
    for label, paths in (("missing", missing), ("not expected", added)):
        if paths and "" not in paths:
            text += f"; {label}: {', '.join(paths)}"
    return text


def captured(function: Any) -> dict[str, Any]:
    """Return the tensors a function refers to by name: closure variables and globals, not what those hold inside."""
    if isinstance(function, partial):
        return captured(function.func)
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        return {}
    code, found = function.__code__, {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # a variable that is not set yet
            continue
    found.update((name, function.__globals__[name]) for name in code.co_names if name in function.__globals__)
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


class Watch:
    """Notices in-place writes to tensors that a user's function was given or refers to.

    Only version counters are compared, so that it costs next to nothing: what modules and containers hold is not seen,
    and nothing is in inference mode.
    """

    __slots__ = ("names", "values", "versions")

    def __init__(self, names: Sequence[str], values: Sequence[Any]) -> None:
        self.names, self.values = names, values
        self.versions = [version(value) for value in values]

    def check(self, what: str) -> None:
        """Compare the versions with those at the start.

        Raises:
            InplaceError: naming the body and the tensor that it wrote to.
        """
        if [version(value) for value in self.values] == self.versions:
            return
        for name, value, before in zip(self.names, self.values, self.versions, strict=True):
            if version(value) != before:
                raise written(what, name, value, before)


def written(what: str, name: str, value: Any, before: int) -> InplaceError:
    """Return the error for a function that wrote to a tensor whose version was ``before``."""
    return InplaceError(
        f"{what} changed {name} (shape {tuple(value.shape)}) in place, by {value._cell.first_write_after(before)}; it may "
        "only compute: change it out of place and return it, or change a clone()"
    )


def version(value: Any) -> int:
    """Return how often the memory of a tensor was written; 0 for anything else, and in inference mode."""
    cell = getattr(value, "_cell", None)
    return 0 if cell is None or cell is INFERENCE else int(cell.count)


def watch(functions: Sequence[Any], named: dict[str, Any]) -> Watch:
    """Return a watch on the leaves of trees, given by name, and on the tensors that functions refer to."""
    names, values = [], []
    for name, value in named.items():
        values += tree.leaves(value)
        names += [name + path for path in tree.paths(value)]
    for function in functions:
        found = captured(function)
        names += [f"the captured tensor '{name}'" for name in found]
        values += found.values()
    return Watch(names, values)

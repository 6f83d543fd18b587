"""What the tape keeps of a call of a user's ``Function``: its node and its context."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert.core.node import Freed, Node, Output
from wengert.core.place import Place, describe
from wengert.core.record import Packed
from wengert.core.tensor import INFERENCE, Tensor, from_array
from wengert.errors import DTypeError, GraphFreedError, InplaceError

__all__ = ["Context", "FunctionNode"]


class FunctionNode(Node):
    """The record of one call of a :class:`Function`: it holds the context and asks it for the backward."""

    __slots__ = ("code", "context", "lasti", "outputs", "shapes")

    code: Any
    context: Any
    lasti: int
    outputs: int
    shapes: list[Any]

    @property
    def title(self) -> str:
        """The name of the Function, for messages."""
        return str(self.context.function.__name__)

    def name(self) -> str:
        """The name of the record."""
        return f"{self.title}Backward"

    def argument(self, index: int) -> str:
        """The tensor argument with this index, for messages."""
        return f"tensor argument {index}"

    @property
    def place(self) -> Place:
        """The user's line that called it."""
        return self.code, self.lasti

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes the gradient goes on to."""
        return tuple((n.inputs[0], n.index) if isinstance(n, Output) else (n, 0) for n in self.inputs)

    def free(self, freed: Freed) -> None:
        """Drop what the Function saved."""
        if self.context.kept:
            self.context.kept = freed

    def differentiate(self, cotangents: list[Any]) -> list[Any]:
        """Run the user's backward and return one checked gradient (or None) per tensor argument."""
        context = self.context
        if context.materialize:
            cotangents = [from_array(np.zeros(*s)) if g is None and s is not None else g
                          for g, s in zip(cotangents, self.shapes, strict=True)]  # fmt: skip
        rule = context.function.reverse_rule()
        before = [0 if g is None or g._cell is None else _writes(g) for g in cotangents]
        try:
            found = rule(context, *cotangents)
        except Exception as error:
            error.add_note(f"in the backward of {self.title}, called at {describe(self.place)}")
            raise
        self._check_unwritten(cotangents, before)
        return self._checked(found if isinstance(found, tuple | list) else (found,))

    def _check_unwritten(self, cotangents: list[Any], before: list[int]) -> None:
        """Refuse a backward that wrote into what it was given: others hold the same memory."""
        for g, count in zip(cotangents, before, strict=True):
            if g is not None and g._cell is not None and _writes(g) != count:
                raise InplaceError(
                    f"the backward of {self.title} changed an incoming gradient in place, by "
                    f"{g._cell.first_write_after(count)}; others may use its memory: compute out of place, or clone() it"
                )
        kept = self.context.kept
        for item in kept if type(kept) is tuple else ():
            if item is not None and item[4] and item[1].count != item[2]:
                raise self.context.changed(item)

    def _checked(self, found: Sequence[Any]) -> list[Any]:
        are_tensors = self.context.are_tensors
        extra = found[len(are_tensors) :]
        if len(found) < len(are_tensors) or any(g is not None for g in extra):
            raise RuntimeError(f"the backward of {self.title} returned {len(found)} gradients, its forward takes "
                               f"{len(are_tensors)} arguments; return one per argument, None for those without")  # fmt: skip
        gradients: list[Any] = []
        for i, (g, is_tensor) in enumerate(zip(found, are_tensors, strict=False)):
            if g is not None and not isinstance(g, Tensor):
                raise TypeError(
                    f"the backward of {self.title} returned {type(g).__name__} for argument {i}, expected a tensor or None"
                )
            if g is not None and not is_tensor:
                raise RuntimeError(
                    f"the backward of {self.title} returned a gradient for argument {i}, which is not a tensor"
                )
            if is_tensor:
                after = self.inputs[len(gradients)]
                if g is not None and after is not None and g.dtype.is_complex and after.dtype.kind != "c":
                    raise DTypeError(
                        f"the backward of {self.title} returned a complex gradient for argument {i}, which is real; take .real"
                    )
                gradients.append(g)
        return gradients


def _writes(tensor: Any) -> int:
    """Return how often a tensor's memory was written; 0 in inference mode, which does not count."""
    return 0 if tensor._cell is INFERENCE else int(tensor._cell.count)


class Context:
    """What a Function's forward hands to its backward; it may carry any attribute.

    Attributes:
        needs_input_grad: for each argument of forward, whether its gradient is wanted.
    """

    def __init__(self, function: type[Any], args: tuple[Any, ...]) -> None:
        self.function = function
        self.are_tensors = tuple(isinstance(a, Tensor) for a in args)
        self.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        self.materialize = True
        self.to_save: tuple[Any, ...] = ()
        self.for_forward: tuple[Any, ...] | None = None
        self.in_forward = False
        self.dirty: tuple[Any, ...] = ()
        self.non_differentiable: tuple[Any, ...] = ()
        self.kept: Any = ()
        self.place: Place | None = None

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for backward, where they are :attr:`saved_tensors`; changes to them are noticed."""
        self.to_save = self._optional_tensors("save_for_backward", tensors)

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for ``jvp``, where they are :attr:`saved_tensors`."""
        self.for_forward = self._optional_tensors("save_for_forward", tensors)

    def mark_dirty(self, *tensors: Any) -> None:
        """Say which arguments forward changed in place; they must be among what it returns."""
        self.dirty = self._tensors("mark_dirty", tensors)

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say which results carry no gradient."""
        self.non_differentiable = self._tensors("mark_non_differentiable", tensors)

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether backward gets zeros (True, the default) or None for results that received no gradient."""
        self.materialize = value

    def _tensors(self, what: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        for t in values:
            if not isinstance(t, Tensor):
                raise TypeError(f"{self.function.__name__}: {what}() takes tensors, got {type(t).__name__}")
        return values

    def _optional_tensors(self, what: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        for t in values:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"{self.function.__name__}: {what}() keeps tensors and None, got {type(t).__name__}; "
                                "keep other values as attributes of ctx")  # fmt: skip
        return values

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors kept by :meth:`save_for_backward`; inside ``jvp``, those of :meth:`save_for_forward` if it was called.

        Raises:
            GraphFreedError: after a backward that freed them. InplaceError: if one was changed in place.
        """
        if self.in_forward and self.for_forward is not None:
            return self.for_forward
        if isinstance(self.kept, Freed):
            raise GraphFreedError(
                f"backward a second time through {self.function.__name__}: what it saved was freed by the first backward, "
                f"at {describe(self.kept.place)}; pass retain_graph=True to the first"
            )
        return tuple(self._unpacked(item) for item in self.kept) if self.kept else self.to_save

    def changed(self, item: Any) -> InplaceError:
        """Return the error for a tensor that was written since it was saved."""
        held, cell, version, *_ = item
        return InplaceError(
            f"a tensor saved by {self.function.__name__} (shape {tuple(held.shape)}, version {version}, at "
            f"{describe(self.place)}) was changed in place by {cell.first_write_after(version)}, now version "
            f"{cell.count}; change it out of place or save a clone()"
        )

    def _unpacked(self, item: Any) -> Any:
        if item is None:
            return None
        held, cell, version, node, _ = item
        if isinstance(held, Packed):
            held = held.unpack(held.packed)
        elif cell is not None and cell.count != version:
            raise self.changed(item)
        if isinstance(held, Tensor) and held._node is node:
            return held
        out = from_array(held._payload if isinstance(held, Tensor) else held)
        out._cell, out._node = cell, node
        return out

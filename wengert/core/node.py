"""The tape's records: nodes, leaves, version counters.

Every tensor that requires a gradient owns exactly one node, so a gradient edge is just a node: an :class:`OpNode` for
the result of an operator, a :class:`Leaf` for a tensor the user marked, an :class:`Output` for one of several results.
Nodes never hold the tensor they belong to (a leaf holds it weakly), so graphs have no reference cycles.
"""

import warnings
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from wengert.core.place import Place, describe, stacklevel
from wengert.errors import GradientLossWarning

__all__ = [
    "DataVersion", "Extra", "Freed", "InferenceVersion", "Leaf", "Node", "OpNode", "Output", "Version", "next_sequence",
    "retains", "warn_unless_retained",
]  # fmt: skip

next_sequence = count().__next__


class Version:
    """How often the memory that some tensors share was written, and by what.

    Attributes:
        count: number of in-place writes so far.
        writes: the latest writes as (count after it, operator name, place).
        beside: number of writes through ``.data``, from when somebody asks for it.
    """

    __slots__ = ("beside", "count", "writes")
    KEPT = 8

    def __init__(self) -> None:
        self.count = 0
        self.writes: tuple[tuple[int, str, Place], ...] = ()

    def bump(self, name: str, place: Place) -> None:
        """Note one write by operator ``name`` at ``place``."""
        self.count += 1
        self.writes = (*self.writes[1 - self.KEPT :], (self.count, name, place))

    def bump_again(self, name: str, place: Place) -> None:
        """Note one more write by what wrote last: only the latest of such writes is remembered."""
        self.count += 1
        self.writes = ((self.count, name, place),)

    def first_write_after(self, seen: int) -> str:
        """Describe the first remembered write after version ``seen``."""
        for number, name, place in self.writes:
            if number > seen:
                return f"{name}() at {describe(place)}"
        return "an earlier in-place operation"


class DataVersion(Version):
    """The version of memory as ``.data`` of a tensor shows it: the tensor's own does not count its writes.

    Args:
        of: the version of the tensor.
    """

    __slots__ = ("_count", "_of")

    def __init__(self, of: Version) -> None:
        self._of: Version = of._of if isinstance(of, DataVersion) else of
        self._count = 0
        super().__init__()

    @property
    def count(self) -> int:
        """Number of in-place writes so far; each is told to the tensor's own version, where somebody asks for that."""
        return self._count

    @count.setter
    def count(self, value: int) -> None:
        written, self._count = value > self._count, value
        if written and hasattr(self._of, "beside"):
            self._of.beside += 1


class InferenceVersion:
    """The version of a tensor made in inference mode: it has none, and asking for it is an error."""

    __slots__ = ()

    @property
    def count(self) -> int:
        """Refuse: such a tensor can be neither saved for backward nor versioned."""
        raise RuntimeError(
            "a tensor made in inference_mode() cannot be saved for backward; use it inside inference_mode(), "
            "or take a normal tensor of it with .clone()"
        )

    def bump(self, name: str, place: Place) -> None:
        """Writes inside inference mode are not counted."""

    bump_again = bump


class Extra:
    """What few nodes carry: hooks, a tensor that retains its gradient, metadata."""

    __slots__ = ("metadata", "post_accumulate", "post_hooks", "pre_hooks", "retain", "tensor_hooks")

    def __init__(self) -> None:
        self.tensor_hooks: dict[int, Callable[[Any], Any]] = {}
        self.pre_hooks: dict[int, Callable[..., Any]] = {}
        self.post_hooks: dict[int, Callable[..., Any]] = {}
        self.post_accumulate: dict[int, Callable[[Any], Any]] = {}
        self.retain: weakref.ref[Any] | None = None
        self.metadata: dict[Any, Any] = {}

    def tables(self) -> tuple[dict[int, Callable[..., Any]], ...]:
        """Return the hooks, by kind."""
        return self.tensor_hooks, self.pre_hooks, self.post_hooks, self.post_accumulate

    def hooks(self) -> Iterator[Callable[..., Any]]:
        """Yield all hooks."""
        for table in self.tables():
            yield from table.values()


class Freed:
    """Stands where a node's saved values were, once a backward has freed them: which backward it was."""

    __slots__ = ("place",)

    def __init__(self, place: Place) -> None:
        self.place = place


class Node:
    """A point the gradient passes: what it came from, and the shape and dtype its gradient must have.

    Attributes:
        inputs: the nodes the gradient goes on to, one per tensor input (None where no gradient is wanted).
        sequence: position in the order of recording; later nodes run first in backward.
        shape, dtype: of the tensor the node belongs to (the NumPy dtype).
        extra: hooks and other rare things, or None.
    """

    __slots__ = ("dtype", "extra", "inputs", "sequence", "shape")

    inputs: tuple["Node | None", ...]
    sequence: int
    shape: tuple[int, ...]
    dtype: Any
    extra: Extra | None

    def more(self) -> Extra:
        """Return ``extra``, made on first use."""
        if self.extra is None:
            self.extra = Extra()
        return self.extra

    def name(self) -> str:
        """The name of the record, such as ``MulBackward0``."""
        return type(self).__name__


class Leaf(Node):
    """The node of a tensor that the user marked with ``requires_grad``: here gradients are accumulated."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        array = tensor._payload
        self.inputs = ()
        self.sequence = 1 << 62  # a leaf is served as soon as its gradient is complete
        self.shape, self.dtype = array.shape, array.dtype
        self.extra = None
        self.tensor = weakref.ref(tensor)

    def name(self) -> str:
        """The name of the record."""
        return "AccumulateGrad"

    def __repr__(self) -> str:
        tensor = self.tensor()
        return f"<{self.name()} of {'a tensor that is gone' if tensor is None else f'{self.dtype}{list(self.shape)}'}>"

    @property
    def variable(self) -> Any:
        """The tensor, or None if it is gone."""
        return self.tensor()

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """A leaf leads nowhere."""
        return ()


def retains(node: Node, tensor: Any) -> bool:
    """Whether a tensor that is not a leaf was told to keep its gradient."""
    return node.extra is not None and node.extra.retain is not None and node.extra.retain() is tensor


def warn_unless_retained(node: Node, tensor: Any) -> None:
    """Say that there will be no gradient, if a tensor that is not a leaf was not told to keep it."""
    if not retains(node, tensor):
        warnings.warn(
            "backward keeps no .grad of this tensor, which is not a leaf; call retain_grad() on it before backward, or look "
            "at the .grad of the leaf it was made from",
            GradientLossWarning, stacklevel=stacklevel(),
        )  # fmt: skip


class Output(Node):
    """One of several results of an operator: passes its gradient to slot ``index`` of the operator's node."""

    __slots__ = ("index",)

    def __init__(self, parent: "OpNode", index: int, array: Any) -> None:
        self.inputs = (parent,)
        self.sequence = next_sequence()
        self.shape, self.dtype = array.shape, array.dtype
        self.extra = None
        self.index = index


class OpNode(Node):
    """The record of one operator call.

    Attributes:
        plan: which rules run and what they need (see :mod:`wengert.core.plan`).
        saved: the values the rules need, by slot; :class:`Freed` afterwards.
        versions: the version of each saved tensor when it was saved.
        code, lasti: the user's line.
    """

    __slots__ = ("code", "lasti", "plan", "saved", "versions")

    plan: Any
    saved: Any
    versions: Any
    code: Any
    lasti: int

    @property
    def op(self) -> Any:
        """The operator."""
        return self.plan.op

    @property
    def outputs(self) -> int:
        """The number of results; the gradient of a node with several is a list."""
        op = self.plan.op
        return len(self.saved[self.plan.width + 1]) if op.variable else len(op.outputs)

    def name(self) -> str:
        """The name of the record in PyTorch's manner, such as ``MulBackward0``."""
        return "".join(part.capitalize() for part in self.op.name.split("_") if part) + "Backward0"

    @property
    def title(self) -> str:
        """The operator's name, for messages."""
        return str(self.op.name)

    def argument(self, index: int) -> str:
        """The name of the tensor argument with this index, for messages."""
        inputs = self.op.signature.inputs
        return f"'{self.op.signature.names[inputs[min(index, len(inputs) - 1)]]}'"

    @property
    def place(self) -> Place:
        """The user's line that ran the operator."""
        return self.code, self.lasti

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for the user's own notes."""
        return self.more().metadata

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes the gradient goes on to, each with the number of the output it belongs to."""
        return tuple(_edge(node) for node in self.inputs)

    def __repr__(self) -> str:
        return f"<{self.name()} at {describe(self.place)}>"


def _edge(node: Node | None) -> tuple[Node | None, int]:
    if isinstance(node, Output):
        return node.inputs[0], node.index
    return node, 0

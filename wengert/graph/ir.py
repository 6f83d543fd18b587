"""A program as data: values, nodes in the order in which they run, and what goes in and out.

A graph is in static single assignment: a value is made once, by an input, a constant or a node, and nothing ever changes it.
What a program wrote into the memory of its arguments stands apart, as pairs of an input and the value it is to hold afterwards.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Protocol

from wengert.core.operator import Spec
from wengert.core.place import Place

__all__ = ["Graph", "Node", "Operation", "Value", "replaced", "values_in"]


class Operation(Protocol):
    """What a node runs: a declared operator, or something that is made like one (random numbers, an optimiser's formula).

    A declared operator (:class:`wengert.core.operator.Op`) is run by its kernel; the others have ``compute``.

    Attributes:
        name: for people. single: whether it has one result.
    """

    name: str
    single: bool


class Value:
    """One tensor of a program, before it is computed.

    Attributes:
        spec: its shape and dtype. node: what makes it; None for an input or a constant. index: which result of the node.
        strides: how its memory lies, in bytes, as the program that was captured saw it.
        name: for people, unique in its graph.
    """

    __slots__ = ("index", "name", "node", "spec", "strides")

    def __init__(
        self, spec: Spec, strides: tuple[int, ...], name: str, node: "Node | None" = None, index: int = 0
    ) -> None:
        self.spec, self.strides, self.name, self.node, self.index = spec, strides, name, node, index

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its dimensions."""
        return self.spec.shape

    @property
    def dtype(self) -> Any:
        """The dtype of its elements."""
        return self.spec.dtype

    @property
    def nbytes(self) -> int:
        """The bytes that its elements take."""
        return int(math.prod(self.spec.shape) * self.spec.dtype.numpy.itemsize)

    def __repr__(self) -> str:
        return f"%{self.name}: {self.spec.dtype.name}{list(self.spec.shape)}"


class Node:
    """One call of an operation.

    Attributes:
        op: what is run. arguments: its normalised arguments, in the order of its signature, a :class:`Value` (or a tuple of
            them) where a tensor is meant. results: its values. place: the user's line (in words, if it was read from text).
    """

    __slots__ = ("arguments", "op", "place", "results")

    def __init__(self, op: Any, arguments: tuple[Any, ...], place: Place | str | None = None) -> None:
        self.op, self.arguments, self.place = op, arguments, place
        self.results: tuple[Value, ...] = ()

    @property
    def inputs(self) -> list[Value]:
        """The values it reads, in order; one that is read twice comes twice."""
        return list(values_in(self.arguments))

    def __repr__(self) -> str:
        return f"<{self.op.name} of {', '.join('%' + v.name for v in self.inputs)}>"


def values_in(arguments: Any) -> Iterator[Value]:
    """Yield the values among arguments, also those inside tuples."""
    for argument in arguments:
        if isinstance(argument, Value):
            yield argument
        elif isinstance(argument, tuple):
            yield from values_in(argument)


def replaced(arguments: tuple[Any, ...], by: Callable[[Value], Any]) -> tuple[Any, ...]:
    """Return arguments with ``by(value)`` in place of each value."""

    def one(argument: Any) -> Any:
        if isinstance(argument, Value):
            return by(argument)
        if type(argument) is tuple:
            return tuple(one(a) for a in argument)
        return argument

    return tuple(one(a) for a in arguments)


class Graph:
    """A program.

    Attributes:
        inputs: the values that come with each call. constants: values that are known, and their arrays.
        nodes: in an order in which they can run. outputs: the values that a call returns.
        writes: (input, value) pairs: what the memory of an input holds after the call.

    ``str(graph)`` and ``graph.text()`` are :func:`wengert.graph.text.show`, ``graph.verify()`` is
    :func:`wengert.graph.verify.verify`, and, once there is a compiler, ``graph.report()`` is
    :func:`wengert.compiling.report.report_of`.
    """

    text: ClassVar[Callable[..., str]]  # these are set by packages, whose modules are written on this one
    verify: ClassVar[Callable[["Graph"], None]]
    report: ClassVar[Callable[["Graph"], str]]

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.constants: dict[Value, Any] = {}
        self.nodes: list[Node] = []
        self.outputs: list[Value] = []
        self.writes: list[tuple[Value, Value]] = []
        self._named = 0

    def fresh(self, prefix: str = "") -> str:
        """Return a name that no other value of the graph has."""
        self._named += 1
        return f"{prefix}{self._named}"

    @property
    def named(self) -> int:
        """The greatest number that :meth:`fresh` has put at the end of a name."""
        return self._named

    def reserve(self, number: int) -> None:
        """Let :meth:`fresh` leave out the numbers up to this one, which names end in."""
        self._named = max(self._named, number)

    def input(self, spec: Spec, strides: tuple[int, ...], name: str = "") -> Value:
        """Add an input."""
        value = Value(spec, strides, name or self.fresh("in"))
        self.inputs.append(value)
        return value

    def constant(self, spec: Spec, array: Any) -> Value:
        """Add a value that is known; the array must not be changed afterwards."""
        value = Value(spec, array.strides, self.fresh("const"))
        self.constants[value] = array
        return value

    def call(
        self,
        op: Any,
        arguments: tuple[Any, ...],
        specs: Iterable[tuple[Spec, tuple[int, ...]]],
        place: Place | str | None = None,
    ) -> Node:
        """Add a node at the end; ``specs`` are the shape, dtype and strides of each result."""
        node = Node(op, arguments, place)
        node.results = tuple(Value(s, strides, self.fresh(), node, k) for k, (s, strides) in enumerate(specs))
        self.nodes.append(node)
        return node

    def uses(self) -> dict[Value, list[Node]]:
        """Return, for each value, the nodes that read it."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(values_in(node.arguments)):
                found.setdefault(value, []).append(node)
        return found

    @property
    def results(self) -> list[Value]:
        """The values that must be there at the end: outputs, and what is written."""
        return [*self.outputs, *(value for _, value in self.writes)]

    def __len__(self) -> int:
        return len(self.nodes)

    def __str__(self) -> str:
        return self.text()

"""Bodies of branches and loops: parts of a program that are cut off as graphs, whose inputs are what they read.

What a body computes is written down like everything else. That needs bodies that only compute. One that writes into tensors
from outside of it, draws random numbers, looks at ``.grad`` or asks for values is refused (:class:`Impure`), before it has
done so.
"""

from collections.abc import Callable, Sequence
from typing import Any

from wengert import tree
from wengert.array.dtype import dtype_of
from wengert.core.node import Leaf, next_sequence
from wengert.core.operator import Spec
from wengert.core.tensor import Tensor, node_of
from wengert.graph.ir import Graph, Value, replaced
from wengert.graph.refusals import NotCapturable
from wengert.graph.storage import Storage, Traced, stand_in

__all__ = ["Body", "Impure", "Regions", "split"]


class Impure(NotCapturable):
    """A body does more than to compute."""


class Body:
    """A part of a program as a graph.

    Attributes:
        graph: it. kept: the values of the program that it reads, behind what it is given. leaves, spec: the tensors that it
            returned while it was captured, and their structure. boundary: nodes of the tape outside of it that lead to these.
    """

    def __init__(self, graph: Graph, kept: list[Value], leaves: list[Any], spec: Any, boundary: list[Any]) -> None:
        self.graph, self.kept, self.leaves, self.spec, self.boundary = graph, kept, leaves, spec, boundary

    @property
    def specs(self) -> list[Spec]:
        """Shapes and dtypes of what it returns."""
        return [value.spec for value in self.graph.outputs]


def split(graph: Graph, first: int, given: list[Value], outputs: list[Value]) -> tuple[Graph, list[Value]]:
    """Cut the nodes from ``first`` on off as a graph of their own; return it, and the values it takes of the rest.

    Its inputs are the ``given`` values, then those.
    """
    second = Graph()
    second.reserve(graph.named)
    second.nodes = graph.nodes[first:]
    del graph.nodes[first:]
    own = {v for node in second.nodes for v in node.results} | set(given)
    second.inputs = list(given)
    kept: list[Value] = []
    renamed: dict[Value, Value] = {}

    def inside(value: Value) -> Value:
        if value in own or value in renamed:
            return renamed.get(value, value)
        if value in graph.constants:
            second.constants[value] = graph.constants[value]
            return value
        copy = renamed[value] = second.input(value.spec, value.strides, value.name)
        kept.append(value)
        return copy

    for node in second.nodes:
        node.arguments = replaced(node.arguments, inside)
    second.outputs = [inside(v) for v in outputs]
    return second, kept


class Regions:
    """Parts of a program that become bodies.

    Args:
        level: the capture.

    Attributes:
        cut: values of bodies, which nothing outside of them may read.
    """

    def __init__(self, level: Any) -> None:
        self._level = level
        self._firsts: list[int] = []
        self._shared: dict[int, Storage] = {}
        self.cut: set[Value] = set()

    def share(self, inner: Sequence[Any], results: Sequence[Any]) -> None:
        """Take note of results of a node that may be tensors from outside of its bodies: those that are ``inner`` there."""
        for tensor, result in zip(inner, results, strict=True):
            held = tensor._payload
            if not isinstance(held, Traced):
                held = self._level.lift(tensor)._payload
            if held.storage.value not in self.cut:
                self._shared.update((id(s), s) for s in (held.storage, result._payload.storage))

    def check(self, what: str) -> None:
        """Refuse what a body may not do.

        Raises:
            Impure: inside of one.
        """
        if self._firsts:
            raise Impure(f"{what} in a branch or loop")

    def check_write(self, storage: Storage) -> None:
        """Refuse a write into memory that was not made in the same body, or that is perhaps that of two tensors."""
        if id(storage) in self._shared:
            raise NotCapturable(
                "it writes into a tensor that a branch or loop may return as it is, or into what that returns; clone() it"
            )
        if self._firsts:
            node = storage.value.node
            if node is None or node not in self._level.graph.nodes[self._firsts[-1] :]:
                raise Impure("a write into a tensor from outside in a branch or loop")

    def body(self, thunk: Callable[[], Any], given: Sequence[Any] = ()) -> Body:
        """Run a function that returns a tree of tensors, and cut what it computes off.

        Args:
            thunk: the function. given: tensors of the program, made by :meth:`placeholder`, which the graph gets first.

        Raises:
            Impure: if it does anything else, or returns anything else.
        """
        level, graph = self._level, self._level.graph
        first, begun = len(graph.nodes), next_sequence()
        self._firsts.append(first)
        try:
            leaves, spec = tree.flatten(thunk())
            if not all(isinstance(leaf, Tensor) for leaf in leaves):
                raise Impure("a result that is no tensor in a branch or loop")
            values = [level.value_of(leaf) for leaf in leaves]
        except BaseException:
            self._cut_off(first)
            del graph.nodes[first:]
            raise
        finally:
            self._firsts.pop()
        self._cut_off(first)
        inner, kept = split(graph, first, [level.value_of(t) for t in given], values)
        return Body(inner, kept, leaves, spec, self._boundary(leaves, given, begun))

    def _cut_off(self, first: int) -> None:
        self.cut.update(value for node in self._level.graph.nodes[first:] for value in node.results)

    def placeholder(self, tensor: Any) -> Any:
        """Return a tensor of the program that stands for what a body will be given."""
        held = tensor._payload
        return self._standing(held.shape, held.dtype)

    def _standing(self, shape: tuple[int, ...], dtype: Any) -> Any:
        array = stand_in(tuple(shape), dtype)
        value = Value(Spec(tuple(shape), dtype_of(dtype)), array.strides, self._level.graph.fresh("given"))
        return self._level.tensor(Storage(value), (), value, array)

    def of_node(self, node: Any) -> Any:
        """Return a tensor with a node of the tape, of which nothing else is known."""
        out = self._standing(node.shape, node.dtype)
        out._node = node
        return out

    def _boundary(self, leaves: Sequence[Any], given: Sequence[Any], begun: int) -> list[Any]:
        """Return the nodes outside of a body that its results were recorded to come from."""
        found: dict[Any, None] = {}
        inner = {t._node for t in given}
        left, seen = [node for t in leaves if (node := node_of(t)) is not None], set[Any]()
        while left:
            node = left.pop()
            if node in seen or node in inner:
                continue
            seen.add(node)
            if isinstance(node, Leaf):
                if not self._is_inside(node.variable):
                    found[node] = None
            elif node.sequence < begun:
                found[node] = None
            else:
                left += [n for n in node.inputs if n is not None]
        return list(found)

    def _is_inside(self, tensor: Any) -> bool:
        """Whether a tensor was made in a body."""
        held = None if tensor is None else tensor._payload
        return isinstance(held, Traced) and held.storage.value in self.cut

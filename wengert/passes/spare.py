"""A kernel computes itself what an earlier one would leave for it, where that takes less memory and traffic.

A derivative is often written in parts of the function: that of ``gelu`` in its sigmoid, among others. Fused, the forward
kernel would write these parts for the backward one to read, long after. If what they are computed from is less, that is kept.
"""

from collections.abc import Collection, Iterable
from typing import Final

from wengert.graph.ir import Graph, Node, Value, replaced
from wengert.graph.operations import Fused
from wengert.passes.pointwise import ARRAYS, LARGEST
from wengert.passes.traffic import bytes_of, flops_of

__all__ = ["spare"]

WORTH: Final = 8  # operations for each byte that is not moved


def spare(graph: Graph) -> Graph:
    """Move results of element-wise kernels that one other such kernel reads into that one, if it then needs less."""
    sparing = _Sparing(graph)
    for node in graph.nodes:
        for reader, results in sparing.left_for(node).items():
            if _is_pointwise(node):  # one operator may be all that is left of it
                sparing.move(node, reader, results)
    return graph


class _Sparing:
    """Which values live until when.

    Attributes:
        place: of each node. last: where memory is last read, also through views; what stays anyway is not in it.
    """

    def __init__(self, graph: Graph) -> None:
        self.kept = {*graph.results}
        self.uses = graph.uses()
        self.place = {node: k for k, node in enumerate(graph.nodes)}
        self.root: dict[Value, Value] = {}
        self.last: dict[Value, int] = {}
        for k, node in enumerate(graph.nodes):
            if getattr(node.op, "view", False) and node.inputs:
                self.root.update(dict.fromkeys(node.results, self._root(node.inputs[0])))
            self.last.update({self._root(v): k for v in node.inputs})
        for value in (*graph.inputs, *graph.constants, *graph.results):
            self.last.pop(self._root(value), None)

    def _root(self, value: Value) -> Value:
        return self.root.get(value, value)

    def left_for(self, node: Node) -> dict[Node, list[Value]]:
        """Return the results of an element-wise kernel that a single other one reads, by that one."""
        found: dict[Node, list[Value]] = {}
        for value in node.results if _is_pointwise(node) else ():
            readers = self.uses.get(value, ())
            if value in self.kept or len(readers) != 1 or not _is_pointwise(readers[0]):
                continue
            if readers[0].results and readers[0].results[0].shape == value.shape:
                found.setdefault(readers[0], []).append(value)
        return found

    def move(self, node: Node, reader: Node, results: list[Value]) -> None:
        """Let a kernel compute results of another, if that is worth it."""
        body = node.op.body
        nodes = _needed(body, [body.outputs[v.index] for v in results])
        read = {v for inner in nodes for v in inner.inputs}
        sources = [o for i, o in zip(body.inputs, node.arguments, strict=True) if i in read]
        new = [v for v in dict.fromkeys(sources) if v not in reader.inputs]
        longer = [v for v in new if self.last.get(self._root(v), len(self.place)) < self.place[reader]]
        saved, more = sum(map(bytes_of, results)), sum(bytes_of(self._root(v)) for v in longer)
        moved = 2 * saved - sum(map(bytes_of, new))
        arrays = len({*reader.inputs, *new}.difference(results))
        if (
            more >= saved or sum(map(flops_of, nodes)) > WORTH * moved or arrays > ARRAYS
            or len(nodes) + len(reader.op.body.nodes) > LARGEST
        ):  # fmt: skip
            return
        _take_in(node, reader, results, nodes)
        _leave_out(node, results)
        self.last.update({self._root(v): self.place[reader] for v in longer})
        for value in new:
            self.uses.setdefault(value, []).append(reader)


def _is_pointwise(node: Node) -> bool:
    return isinstance(node.op, Fused) and node.op.kind == "pointwise"


def _needed(body: Graph, outputs: Iterable[Value]) -> list[Node]:
    """Return the nodes that outputs of a body are computed by, in order."""
    needed, found = set(outputs), []
    for node in reversed(body.nodes):
        if any(v in needed for v in node.results):
            found.append(node)
            needed.update(node.inputs)
    return found[::-1]


def _take_in(node: Node, reader: Node, results: Collection[Value], nodes: list[Node]) -> None:
    """Put nodes of one kernel in front of those of another, which reads results of theirs."""
    inner, old, body = node.op.body, reader.op.body, Graph()
    outer = dict(zip(inner.inputs, node.arguments, strict=True))
    names = {v.name for n in old.nodes for v in n.results} | {v.name for v in (*old.inputs, *old.constants)}
    by_outer: dict[Value, Value] = {}  # a kernel may read a value twice, as two inputs, of which one is enough
    same = {i: by_outer.setdefault(o, i) for i, o in zip(old.inputs, reader.arguments, strict=True) if o not in results}
    known: dict[Value, Value] = {}

    def renamed(value: Value, made: Node | None = None) -> Value:
        name = value.name
        while name in names:
            name += ".own"
        names.add(name)
        return Value(value.spec, value.strides, name, made, value.index if made is not None else 0)

    def of(value: Value) -> Value:
        if value not in known:
            if value in inner.constants:
                known[value] = renamed(value)
                body.constants[known[value]] = inner.constants[value]
            else:
                known[value] = by_outer.setdefault(outer[value], renamed(value))
        return known[value]

    for one in nodes:
        made = Node(one.op, replaced(one.arguments, of), one.place)
        made.results = tuple(renamed(v, made) for v in one.results)
        known.update(zip(one.results, made.results, strict=True))
        body.nodes.append(made)
    read = zip(old.inputs, reader.arguments, strict=True)
    inside = same | {i: known[inner.outputs[o.index]] for i, o in read if o in results}
    for one in old.nodes:
        one.arguments = replaced(one.arguments, lambda v: inside.get(v, v))
    body.nodes += old.nodes
    body.constants.update(old.constants)
    body.inputs, body.outputs = list(by_outer.values()), old.outputs
    reader.op, reader.arguments = Fused("pointwise", body), tuple(by_outer)


def _leave_out(node: Node, results: Collection[Value]) -> None:
    """Take results off a kernel, and what only they need."""
    old, body = node.op.body, Graph()
    left = [v for v in node.results if v not in results]
    body.outputs = [old.outputs[v.index] for v in left]
    body.nodes = _needed(old, body.outputs)
    read = {v for inner in body.nodes for v in inner.inputs}
    pairs = [(i, o) for i, o in zip(old.inputs, node.arguments, strict=True) if i in read]
    body.inputs = [i for i, _ in pairs]
    body.constants = {v: array for v, array in old.constants.items() if v in read}
    node.op, node.arguments, node.results = Fused("pointwise", body), tuple(o for _, o in pairs), tuple(left)
    if len(body.nodes) == 1 and not body.constants:
        outer = dict(pairs)
        node.op, node.arguments = body.nodes[0].op, replaced(body.nodes[0].arguments, outer.__getitem__)
    for k, value in enumerate(left):
        value.index = k

"""How a pass makes a new graph from a graph: node by node, what it leaves alone is shared with the old one."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

from wengert.graph.ir import Graph, Node, Value, replaced
from wengert.graph.text import row_major

__all__ = ["Rewriter", "rewritten"]


class Rewriter:
    """A graph that is being made from another one, from front to back.

    The inputs are the same objects as before, so are nodes of which nothing changes; no object of the old graph is changed.

    Attributes:
        graph: the new graph. known: for each value of the old graph that is another one now, that value.
    """

    def __init__(self, source: Graph) -> None:
        self.graph = copy.copy(source)
        self.graph.inputs, self.graph.constants, self.graph.nodes = list(source.inputs), dict(source.constants), []
        self.known: dict[Value, Value] = {}
        self._source = source

    def of(self, value: Value) -> Value:
        """Return what a value of the old graph is in the new one."""
        return self.known.get(value, value)

    def mapped(self, node: Node) -> Node:
        """Return a node of the old graph as it is in the new one, not yet entered."""
        known = self.known
        if not any(value in known for value in node.inputs):
            return node
        made = Node(node.op, replaced(node.arguments, self.of), node.place)
        made.results = tuple(Value(v.spec, v.strides, v.name, made, v.index) for v in node.results)
        known.update(zip(node.results, made.results, strict=True))
        return made

    def call(self, op: Any, *arguments: Any, like: Node, strides: tuple[int, ...] | None = None) -> Value:
        """Enter a new node of a declared operator with one result; ``like`` gives its place in the program."""
        spec = op.infer([a.spec if isinstance(a, Value) else a for a in arguments])
        return self.graph.call(op, arguments, [(spec, row_major(spec) if strides is None else strides)], like.place).results[0]

    def replace(self, values: Sequence[Value], by: Sequence[Value]) -> None:
        """Let values of the old graph be others from now on."""
        self.known.update(zip(values, by, strict=True))

    def finish(self) -> Graph:
        """Return the new graph."""
        self.graph.outputs = [self.of(v) for v in self._source.outputs]
        self.graph.writes = [(target, self.of(v)) for target, v in self._source.writes]
        return self.graph


Rule = Callable[[Node, Rewriter], Sequence[Value] | None]


def rewritten(graph: Graph, rule: Rule) -> Graph:
    """Return a graph in which each node is what ``rule(node, rewriter)`` makes of it.

    Args:
        rule: is given each node as it is by then; returns the values that take the place of its results, or None to keep it.
    """
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        now = rewriter.mapped(node)
        found = rule(now, rewriter)
        if found is None:
            rewriter.graph.nodes.append(now)
        else:
            rewriter.replace(node.results, found)
    return rewriter.finish()


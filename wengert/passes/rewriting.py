"""How a pass makes a new graph from a graph: node by node, from front to back.

Passes own the graph they are given, and change its nodes: :func:`duplicate` comes before the first of them.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

from wengert.graph.ir import Graph, Node, Value, replaced
from wengert.graph.text import row_major

__all__ = ["Rewriter", "duplicate", "rewritten"]


def duplicate(graph: Graph) -> Graph:
    """Return a graph of nodes of its own; inputs and constants are the same objects."""
    known: dict[Value, Value] = {}

    def of(value: Value) -> Value:
        return known.get(value, value)

    found = copy.copy(graph)
    found.inputs, found.constants, found.nodes = list(graph.inputs), dict(graph.constants), []
    for node in graph.nodes:
        made = Node(node.op, replaced(node.arguments, of), node.place)
        made.results = tuple(Value(v.spec, v.strides, v.name, made, v.index) for v in node.results)
        known.update(zip(node.results, made.results, strict=True))
        found.nodes.append(made)
    found.outputs = [of(v) for v in graph.outputs]
    found.writes = [(target, of(v)) for target, v in graph.writes]
    return found


class Rewriter:
    """A graph that is being made from another one.

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
        """Return a node of the old graph with the arguments that it has in the new one, not yet entered."""
        if self.known and _reads(node.arguments, self.known):
            node.arguments = replaced(node.arguments, self.of)
        return node

    def call(self, op: Any, *arguments: Any, like: Node, strides: tuple[int, ...] | None = None) -> Value:
        """Enter a new node of a declared operator with one result; ``like`` gives its place in the program."""
        spec = op.infer([a.spec if isinstance(a, Value) else a for a in arguments])
        return self.graph.call(
            op, arguments, [(spec, row_major(spec) if strides is None else strides)], like.place
        ).results[0]

    def replace(self, values: Sequence[Value], by: Sequence[Value]) -> None:
        """Let values of the old graph be others from now on."""
        self.known.update(zip(values, by, strict=True))

    def finish(self) -> Graph:
        """Return the new graph."""
        self.graph.outputs = [self.of(v) for v in self._source.outputs]
        self.graph.writes = [(target, self.of(v)) for target, v in self._source.writes]
        return self.graph


def _reads(arguments: tuple[Any, ...], values: dict[Value, Value]) -> bool:
    """Whether any of some values is among arguments."""
    for argument in arguments:
        if isinstance(argument, Value):
            if argument in values:
                return True
        elif type(argument) is tuple and _reads(argument, values):
            return True
    return False


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

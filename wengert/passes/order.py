"""Nodes run where memory stays small, and results are apart from one another."""

from wengert.core.registry import operators
from wengert.graph.ir import Graph, Node, Value
from wengert.passes.prune import acts
from wengert.passes.rewriting import Rewriter

__all__ = ["order"]


def order(graph: Graph) -> Graph:
    """Move each node to just before the first that reads its results, if all it reads is still needed there.

    So no value lives longer, and those that are made late live shorter.
    """
    place = {node: k for k, node in enumerate(graph.nodes)}
    number = dict(place)
    kept = {*graph.results, *graph.inputs, *graph.constants}
    first: dict[Value, int] = {}  # where a value is first read, and where last, by the nodes that come later
    last: dict[Value, int] = {}
    for node in reversed(graph.nodes):
        wanted = min((first[v] for v in node.results if v in first), default=-1)
        fixed = acts(node) or any(v in kept for v in node.results)
        if not fixed and wanted >= 0 and all(v in kept or last.get(v, -1) >= wanted for v in node.inputs):
            place[node] = wanted
        for value in node.inputs:
            first[value] = min(first.get(value, len(place)), place[node])
            last[value] = max(last.get(value, -1), place[node])
    rewriter = Rewriter(graph)
    rewriter.graph.nodes = sorted(graph.nodes, key=lambda n: (place[n], number[n]))
    return rewriter.finish()


def part(graph: Graph, before: Graph) -> Graph:
    """Give each output memory of its own: those that were two values before, or no constants, and are now one."""
    rewriter = Rewriter(graph)
    rewriter.graph.nodes = list(graph.nodes)
    outputs: list[Value] = []
    taken: dict[Value, Value] = {}
    for value, old in zip(graph.outputs, before.outputs, strict=True):
        same = taken.setdefault(value, old) is old
        if not same or (_root(value) in graph.constants and _root(old) not in before.constants):
            value = rewriter.call(operators()["clone"], value, None, like=Node(None, ()))
        outputs.append(value)
    result = rewriter.finish()
    result.outputs = outputs
    return result


def _root(value: Value) -> Value:
    """Return the value whose memory a view looks at."""
    while value.node is not None and getattr(value.node.op, "view", False):
        value = value.node.inputs[0]
    return value

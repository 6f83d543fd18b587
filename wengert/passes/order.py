"""Nodes run where memory stays small, and results are apart from one another."""

from wengert.core.registry import operators
from wengert.graph.ir import Graph, Node, Value
from wengert.passes.rewriting import Rewriter

__all__ = ["order"]


def order(graph: Graph) -> Graph:
    """Move each node to just before the first that reads its results, if all it reads is still needed there.

    So no value lives longer, and those that are made late live shorter.
    """
    number = {node: k for k, node in enumerate(graph.nodes)}
    end = len(graph.nodes)
    place = dict(number)
    kept = {*graph.results, *graph.inputs, *graph.constants}
    uses = graph.uses()
    for node in reversed(graph.nodes):
        if getattr(node.op, "effect", False) or any(v in kept for v in node.results):
            continue
        users = [u for v in node.results for u in uses.get(v, ())]
        first = min((place[u] for u in users), default=end)
        if first < end and all(v in kept or _last(v, node, uses, place) >= first for v in node.inputs):
            place[node] = first
    rewriter = Rewriter(graph)
    rewriter.graph.nodes = sorted(graph.nodes, key=lambda n: (place[n], number[n]))
    return rewriter.finish()


def _last(value: Value, node: Node, uses: dict[Value, list[Node]], place: dict[Node, int]) -> int:
    """Return where a value is last read by another node."""
    return max((place[u] for u in uses[value] if u is not node), default=-1)


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

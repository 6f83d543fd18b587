"""Nodes that nothing needs are left out."""

from wengert.graph.ir import Graph, Node
from wengert.passes.rewriting import Rewriter

__all__ = ["acts", "prune"]

CHECKS = frozenset({"refuse_failures"})  # operators that are called for the errors they raise


def acts(node: Node) -> bool:
    """Whether a node does something, or raises an error, though nothing may need its results."""
    return getattr(node.op, "effect", False) or node.op.name in CHECKS


def prune(graph: Graph) -> Graph:
    """Leave out nodes whose results are not needed and that have no effect, and constants that nobody reads."""
    needed = set(graph.results)
    kept = []
    for node in reversed(graph.nodes):
        if acts(node) or any(v in needed for v in node.results):
            kept.append(node)
            needed.update(node.inputs)
    if len(kept) == len(graph.nodes) and needed.issuperset(graph.constants):
        return graph
    rewriter = Rewriter(graph)
    rewriter.graph.nodes = kept[::-1]
    rewriter.graph.constants = {v: array for v, array in graph.constants.items() if v in needed}
    return rewriter.finish()

"""Nodes that nothing needs are left out."""

from wengert.graph.ir import Graph
from wengert.passes.rewriting import Rewriter

__all__ = ["prune"]


def prune(graph: Graph) -> Graph:
    """Leave out nodes whose results are not needed and that have no effect, and constants that nobody reads."""
    needed = set(graph.results)
    kept = []
    for node in reversed(graph.nodes):
        if getattr(node.op, "effect", False) or any(v in needed for v in node.results):
            kept.append(node)
            needed.update(node.inputs)
    if len(kept) == len(graph.nodes) and needed.issuperset(graph.constants):
        return graph
    rewriter = Rewriter(graph)
    rewriter.graph.nodes = kept[::-1]
    rewriter.graph.constants = {v: array for v, array in graph.constants.items() if v in needed}
    return rewriter.finish()

"""The updates of all parameters by one optimiser are one operation, with the counters of their steps."""

from typing import Any

from wengert.core.operator import Op
from wengert.graph.ir import Graph, Node
from wengert.graph.operations import Formula
from wengert.passes.grouping import Group, fused

__all__ = ["fuse_formulas"]


def fuse_formulas(graph: Graph) -> Graph:
    """Make one node of all formulas of a key between which nothing depends on a formula."""
    depth: dict[Node, int] = {}
    groups: dict[tuple[int, Any], list[Node]] = {}
    for node in graph.nodes:
        sources = {v.node for v in node.inputs if v.node is not None}
        depth[node] = max((depth[s] + isinstance(s.op, Formula) for s in sources), default=0)
        if isinstance(node.op, Formula):
            groups.setdefault((depth[node], node.op.key), []).append(node)
    found = [Group("formulas", members) for members in groups.values()]
    if not found:
        return graph
    found[0].members += _counters(graph)
    return fused(graph, found)


def _counters(graph: Graph) -> list[Node]:
    """Return the nodes that count steps: an input of no dimensions plus a number, written back and used nowhere else."""
    used = {v for node in graph.nodes for v in node.inputs} | set(graph.outputs)
    counters = []
    for target, value in graph.writes:
        node = value.node
        if node is None or value in used or value.shape or not isinstance(node.op, Op) or node.op.name != "add":
            continue
        if node.inputs == [target]:
            counters.append(node)
    return list(dict.fromkeys(counters))

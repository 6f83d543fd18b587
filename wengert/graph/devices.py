"""On which logical device the nodes of a program run: where their arguments are, until a copy takes these elsewhere."""

from collections.abc import Mapping

from wengert.core.devices import MOVE
from wengert.graph.ir import Graph, Node, Value

__all__ = ["device_of_node", "placements"]


def placements(graph: Graph, given: Mapping[Value, int]) -> dict[Value, int]:
    """Return the number of the device of each value that is on one; the others go with whatever they meet.

    Args:
        given: those of inputs and constants.
    """
    found = dict(given)
    for node in graph.nodes:
        if node.op.name == MOVE:
            index = node.arguments[1]
        else:  # a number on the first device goes with tensors on another
            index = max((found[v] for v in node.inputs if v in found), default=None)
        if index is not None:
            found.update(dict.fromkeys(node.results, index))
    return found


def device_of_node(node: Node, found: Mapping[Value, int]) -> int:
    """Return the number of the device whose queue a node stands in: that of its results."""
    return max((found.get(v, 0) for v in node.results or node.inputs), default=0)

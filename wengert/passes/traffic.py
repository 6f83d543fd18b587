"""What nodes cost: kernels, bytes that go through memory, and floating-point operations."""

import math
from collections.abc import Iterable
from typing import Any

from wengert.core.operator import Op
from wengert.graph.ir import Graph, Node, Value
from wengert.graph.operations import Fused

__all__ = ["bytes_of", "flops_of", "kernels_of", "totals", "traffic_of"]


def bytes_of(value: Value) -> int:
    """Return how much memory a value takes; along a dimension of stride 0 all elements are one.

    Example:
        >>> from wengert.array.dtype import float32
        >>> from wengert.core.operator import Spec
        >>> bytes_of(Value(Spec((2, 3), float32), (0, 4), "x"))
        12
    """
    shape = value.shape
    if 0 in shape:
        return 0
    return math.prod(n for n, s in zip(shape, value.strides, strict=True) if s) * int(value.dtype.itemsize)


def kernels_of(node: Node) -> int:
    """Return how many kernels a node runs: none for a view."""
    return 0 if isinstance(node.op, Op) and node.op.view else 1


def traffic_of(nodes: Iterable[Node]) -> int:
    """Return how many bytes nodes read and write, if each is a kernel of its own."""
    total = 0
    for node in nodes:
        if kernels_of(node):
            total += sum(bytes_of(v) for v in {*node.inputs, *node.results})
    return total


def flops_of(node: Node) -> int:
    """Return how many floating-point operations a node computes, as far as its operators say."""
    op = node.op
    if isinstance(op, Fused):
        return sum(flops_of(inner) for inner in op.body.nodes)
    if not isinstance(op, Op) or op.cost is None:
        return 0
    if op.family == "elementwise":
        return int(op.cost(node.results[0].spec))
    at = op.signature.positional
    given = [_spec(a) for a in node.arguments]
    return int(op.cost(*given[:at], **dict(zip(op.signature.names[at:], given[at:], strict=True))))


def _spec(argument: Any) -> Any:
    if isinstance(argument, Value):
        return argument.spec
    if isinstance(argument, tuple) and argument and isinstance(argument[0], Value):
        return tuple(a.spec for a in argument)
    return argument


def totals(graph: Graph) -> tuple[int, int, int]:
    """Return kernels, bytes and floating-point operations of a graph."""
    nodes = graph.nodes
    return sum(map(kernels_of, nodes)), traffic_of(nodes), sum(map(flops_of, nodes))

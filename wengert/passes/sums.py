"""A sum of many products over few rows each is one product over all the rows.

So the gradient of a matrix that is used at each of many steps, as in recurrent networks, is computed at once from what
the steps leave: AᵀB + CᵀD = [A; C]ᵀ[B; D].
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from wengert.array.dtype import float32, float64
from wengert.core.operator import Op
from wengert.core.registry import operators
from wengert.graph.ir import Graph, Node, Value
from wengert.passes.rewriting import Rewriter

__all__ = ["join_products"]

LEAST: Final = 4  # products that are worth it: what they read is copied
MOST: Final = 256  # rows of each: longer ones are no slower alone


class Sum(NamedTuple):
    """A sum: its last node, all nodes that compute it, products of operands of the same shapes, and what else is added."""

    root: Node
    nodes: set[Node]
    products: list[Node]
    others: list[Value]


def join_products(graph: Graph) -> Graph:
    """Make one product of all those, over few rows and of operands of the same shapes, that are added up."""
    uses, kept = graph.uses(), set(graph.results)
    single = {value for value, nodes in uses.items() if len(nodes) == 1 and value not in kept}
    found = [s for s in _sums(graph, uses, single) if len(s.products) >= LEAST]
    if not found:
        return graph
    place = {node: k for k, node in enumerate(graph.nodes)}
    wanted: dict[int, list[Sum]] = {}  # just before the first node that reads the sum
    for one in found:
        first = min((place[node] for node in uses.get(one.root.results[0], ())), default=len(place))
        wanted.setdefault(first, []).append(one)
    gone = {node for one in found for node in one.nodes}
    rewriter = Rewriter(graph)
    for k in range(len(place) + 1):
        for one in wanted.get(k, ()):

            def stacks(value: Value, k: int = k) -> Iterator[Node]:
                return (n for n in uses[value] if _is_stack(n) and place[n] < k)

            rewriter.replace(one.root.results, (_joined(one, rewriter, stacks),))
        if k < len(place) and (node := graph.nodes[k]) not in gone:
            rewriter.graph.nodes.append(rewriter.mapped(node))
    return rewriter.finish()


def _sums(graph: Graph, uses: dict[Value, list[Node]], single: set[Value]) -> Iterator[Sum]:
    """Yield each sum that is no part of another one."""
    for node in graph.nodes:
        if _is_sum(node) and not (node.results[0] in single and _is_sum(uses[node.results[0]][0])):
            yield _sum(node, single)


def _is_sum(node: Node) -> bool:
    """Whether a node adds two matrices of one shape and dtype."""
    if not isinstance(node.op, Op) or node.op.name != "add" or node.arguments[2] != 1:
        return False
    spec = node.results[0].spec
    return len(spec.shape) == 2 and all(isinstance(a, Value) and a.spec == spec for a in node.arguments[:2])


def _sum(root: Node, single: set[Value]) -> Sum:
    nodes, products, others = {root}, list[Node](), list[Value]()
    left = [*reversed(root.inputs)]
    while left:
        value = left.pop()
        node = value.node if value in single else None
        if node is not None and _is_sum(node):
            nodes.add(node)
            left += reversed(node.inputs)
        elif node is not None and _is_short(node) and (not products or _alike(node, products[0])):
            nodes.add(node)
            products.append(node)
        else:
            others.append(value)
    return Sum(root, nodes, products, others)


def _is_stack(node: Node) -> bool:
    """Whether a node puts values together along a new first dimension."""
    return isinstance(node.op, Op) and node.op.name == "stack" and node.arguments[1] == 0


def _is_short(node: Node) -> bool:
    """Whether a node is a product over few rows of two matrices."""
    if not isinstance(node.op, Op) or node.op.name != "rows_product" or node.results[0].dtype not in (float32, float64):
        return False
    return all(len(v.shape) == 2 and v.shape[0] <= MOST for v in node.inputs)


def _alike(one: Node, other: Node) -> bool:
    return [v.spec for v in one.inputs] == [v.spec for v in other.inputs]


def _joined(one: Sum, rewriter: Rewriter, stacks: Callable[[Value], Iterator[Node]]) -> Value:
    """Enter the product, and what is added to it. Operands that stand together already are read there.

    Args:
        stacks: gives the nodes that put a value together with others, and have run by then.
    """
    pairs = [tuple(node.inputs) for node in one.products]
    operands: list[Value | None] = [None, None]
    for k in (0, 1):
        by_operand = {pair[k]: pair for pair in pairs}
        there = [
            n
            for n in stacks(pairs[0][k])
            if len(n.arguments[0]) == len(pairs) and set(n.arguments[0]) == set(by_operand)
        ]
        if there and len(by_operand) == len(pairs):
            operands[k], pairs = there[0].results[0], [by_operand[value] for value in there[0].arguments[0]]
            break
    stack, given = operators()["stack"], list[Value]()
    for k, value in enumerate(operands):
        parts = tuple(rewriter.of(pair[k]) for pair in pairs)
        given.append(rewriter.call(stack, parts, 0, like=one.root) if value is None else rewriter.of(value))
    total = rewriter.call(one.products[0].op, *given, like=one.root)
    for value in one.others:
        total = rewriter.call(one.root.op, rewriter.of(value), total, 1, like=one.root)
    return total

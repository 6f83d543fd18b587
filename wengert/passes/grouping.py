"""Nodes become one: how groups of nodes are taken out of a graph and put in as fused operations.

Nodes may become one if no path leads from one of them to another through a node outside. Such groups are found with stages:
a number for each node that never falls along an edge, and rises on each edge that leads into a node that may be fused, but not
with where the edge comes from. Between nodes of one stage and one class every path then stays in that stage and class.
"""

import heapq
import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any

from wengert.core.apply import common_dtype
from wengert.core.operator import Op, Spec
from wengert.core.registry import operators
from wengert.graph.ir import Graph, Node, Value, replaced, values_in
from wengert.graph.operations import Fused
from wengert.graph.text import row_major
from wengert.passes.prune import acts
from wengert.passes.rewriting import Rewriter

__all__ = ["Group", "fused", "ordered"]


class Group:
    """Nodes that are to be one.

    Attributes:
        kind: of the fused operation. members: the nodes that go into it, in order. copies: nodes that are computed in it
            again; they come before the members that read them, and go on to exist outside if anything else needs them.
    """

    __slots__ = ("copies", "kind", "members")

    def __init__(self, kind: str, members: Sequence[Node], copies: Sequence[Node] = ()) -> None:
        self.kind, self.members, self.copies = kind, list(members), list(copies)


class _Unit:
    """What runs at once: a node, or a group."""

    __slots__ = ("group", "inputs", "key", "nodes")

    def __init__(self, nodes: list[Node], key: int, group: Group | None = None) -> None:
        self.nodes, self.key, self.group = nodes, key, group
        made = {v for n in nodes for v in n.results}
        self.inputs = [v for v in dict.fromkeys(v for n in nodes for v in n.inputs) if v not in made]


def fused(graph: Graph, groups: Iterable[Group]) -> Graph:
    """Return a graph in which each group is one node; what nobody needs any more is left out."""
    units, owner = _units(graph, groups)
    order = ordered(units, lambda u: [owner[v] for v in u.inputs if v in owner], _key, _effect)
    needed = set(graph.results)
    live: list[tuple[_Unit, list[Node]]] = []
    for unit in reversed(order):
        nodes = _needed_nodes(unit, needed)
        if nodes:
            live.append((unit, nodes))
            made = {v for n in nodes for v in n.results}
            needed.update(v for n in nodes for v in n.inputs if v not in made)
    rewriter = Rewriter(graph)
    for unit, nodes in reversed(live):
        if unit.group is None or (len(nodes) == 1 and unit.group.kind != "formulas"):
            rewriter.graph.nodes += [rewriter.mapped(n) for n in nodes]
        else:
            _enter(rewriter, unit.group, nodes, needed)
    return rewriter.finish()


def _units(graph: Graph, groups: Iterable[Group]) -> tuple[list[_Unit], dict[Value, _Unit]]:
    """Return what runs at once, and for each value the unit that it is a member's of."""
    index = {node: k for k, node in enumerate(graph.nodes)}
    units: list[_Unit] = []
    owner: dict[Value, _Unit] = {}
    taken: set[Node] = set()
    for group in groups:
        nodes = sorted({*group.members, *group.copies}, key=index.__getitem__)
        unit = _Unit(nodes, max(index[n] for n in group.members), group)
        units.append(unit)
        taken.update(group.members)
        owner.update((v, unit) for n in group.members for v in n.results)
    for node in graph.nodes:
        if node not in taken:
            unit = _Unit([node], index[node])
            units.append(unit)
            owner.update((v, unit) for v in node.results)
    return units, owner


def _key(unit: _Unit) -> int:
    return unit.key


def _effect(unit: _Unit) -> bool:
    return unit.group is None and getattr(unit.nodes[0].op, "effect", False)


def _needed_nodes(unit: _Unit, needed: set[Value]) -> list[Node]:
    """Return the nodes of a unit that something outside needs, or a node that does; a copy is needed only inside."""
    if unit.group is None and acts(unit.nodes[0]):
        return unit.nodes
    own = set(unit.nodes if unit.group is None else unit.group.members)
    inside: set[Value] = set()
    kept = []
    for node in reversed(unit.nodes):
        if any(v in inside or (v in needed and node in own) for v in node.results):
            kept.append(node)
            inside.update(node.inputs)
    return kept[::-1]


def _enter(rewriter: Rewriter, group: Group, nodes: list[Node], needed: set[Value]) -> None:
    """Enter a group as one node."""
    own = set(group.members)
    results = [v for n in nodes if n in own for v in n.results if v in needed]
    body, outer = _body(rewriter, nodes, results)
    node = rewriter.graph.call(
        Fused(group.kind, body), tuple(outer), [(v.spec, v.strides) for v in results], nodes[-1].place
    )
    for made, value in zip(node.results, results, strict=True):
        made.name = value.name
    rewriter.replace(results, node.results)


def _body(rewriter: Rewriter, nodes: list[Node], results: list[Value]) -> tuple[Graph, list[Value]]:
    """Return nodes as a graph of their own, and the values of the graph around that are its inputs.

    Constants of one element go in; conversions that an operator does by itself are spelt out as casts.
    """
    body = Graph()
    known: dict[Value, Value] = {}
    outer: list[Value] = []
    casts: dict[Any, Value] = {}
    constants = rewriter.graph.constants

    def inside(value: Value) -> Value:
        if value not in known:
            given = rewriter.of(value)
            made = known[value] = Value(value.spec, value.strides, value.name)
            if given in constants and constants[given].size == 1:
                body.constants[made] = constants[given]
            else:
                body.inputs.append(made)
                outer.append(given)
        return known[value]

    for node in nodes:
        made = Node(node.op, replaced(node.arguments, inside), node.place)
        made.arguments = _converted(body, made, casts)
        made.results = tuple(Value(v.spec, v.strides, v.name, made, v.index) for v in node.results)
        known.update(zip(node.results, made.results, strict=True))
        body.nodes.append(made)
    body.outputs = [known[v] for v in results]
    return body, outer


def _converted(body: Graph, node: Node, casts: dict[Any, Value]) -> tuple[Any, ...]:
    """Return a node's arguments in the dtype in which they meet; ``casts`` are those that the body has.

    A tensor without dimensions takes part in promotion as the whole program sees it. In a kernel for single elements all
    look the same, so what promotion comes to is written down.
    """
    op = node.op
    if not isinstance(op, Op) or op.promote is None:
        return node.arguments
    dtype = common_dtype(op, [a.spec if isinstance(a, Value) else a for a in node.arguments])
    arguments = list(node.arguments)
    for i in op.signature.inputs:
        value = arguments[i]
        if isinstance(value, Value) and value.dtype is not dtype:
            if (value, dtype) not in casts:
                spec = Spec(value.shape, dtype)
                cast = body.call(operators()["cast"], (value, dtype), [(spec, row_major(spec))], node.place)
                casts[value, dtype] = cast.results[0]
                cast.results[0].name = f"{value.name}.{dtype.name}"
            arguments[i] = casts[value, dtype]
    return tuple(arguments)


def ordered(
    units: Sequence[Any],
    before: Callable[[Any], Iterable[Any]],
    key: Callable[[Any], Any],
    chained: Callable[[Any], bool],
) -> list[Any]:
    """Return units in an order in which each comes after those ``before`` it, else by ``key``; chained ones stay in theirs.

    Raises:
        ValueError: if there is no such order.
    """
    waits: dict[Any, int] = {}
    after: dict[Any, list[Any]] = {unit: [] for unit in units}
    for unit in units:
        needed = {u for u in before(unit) if u is not unit}
        waits[unit] = len(needed)
        for other in needed:
            after[other].append(unit)
    chain = sorted((u for u in units if chained(u)), key=key)
    for first, second in itertools.pairwise(chain):
        after[first].append(second)
        waits[second] += 1
    ready = [(key(u), k) for k, u in enumerate(units) if not waits[u]]
    heapq.heapify(ready)
    number = {unit: k for k, unit in enumerate(units)}
    found = []
    while ready:
        _, k = heapq.heappop(ready)
        unit = units[k]
        found.append(unit)
        for other in after[unit]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, (key(other), number[other]))
    if len(found) < len(units):
        raise ValueError(f"{len(units) - len(found)} of {len(units)} units need one another")
    return found


def components(nodes: Sequence[Node], joined: Iterable[tuple[Node, Node]]) -> list[list[Node]]:
    """Return the nodes in sets that pairs connect, each in the order given."""
    parent = {node: node for node in nodes}

    def root(node: Node) -> Node:
        while parent[node] is not node:
            parent[node] = node = parent[parent[node]]
        return node

    for a, b in joined:
        parent[root(b)] = root(a)
    found: dict[Node, list[Node]] = {}
    for node in nodes:
        found.setdefault(root(node), []).append(node)
    return list(found.values())


def stages(graph: Graph, classes: dict[Node, Hashable], passing: Collection[Node] = ()) -> dict[Node, int]:
    """Return for each node the earliest stage it can be in.

    Args:
        classes: those of nodes that may be fused. passing: nodes that are computed wherever they are read; those that need
            no other node lead nowhere.
    """
    stage: dict[Node, int] = {}
    free: set[Node] = set()
    for node in graph.nodes:
        if node in passing and all(v.node is None or v.node in free for v in node.inputs):
            free.add(node)
        own = classes.get(node)
        found = 0
        for value in values_in(node.arguments):
            source = value.node
            if source is not None:
                rises = own is not None and classes.get(source) != own and source not in free
                found = max(found, stage[source] + rises)
        stage[node] = found
    return stage

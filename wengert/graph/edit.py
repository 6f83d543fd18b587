"""Changing graphs: what passes are written with. A pass is a function from a graph to a graph, the same one or another.

Example: a pass that replaces ``relu(relu(x))`` by ``relu(x)``.

>>> def idempotent(graph):
...     for node in list(graph.nodes):
...         source = node.inputs[0].node if node.inputs else None
...         if node.op.name == "relu" and source is not None and source.op.name == "relu":
...             replace(graph, node.results[0], source.results[0])
...             remove(graph, node)
...     return graph
>>> import wengert as wg
>>> from wengert.compiling.trace import trace
>>> traced = trace(lambda x: x.relu().relu())(wg.ones(2))
>>> print(apply(traced.graph, idempotent).text(places=False))
graph {
  in %in1: float32[2]
  %2: float32[2] = relu(%in1)
  return %2
}
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from wengert.core.operator import Op, Spec
from wengert.core.registry import names_near, operators
from wengert.errors import GraphError
from wengert.graph.ir import Graph, Node, Value, replaced, values_in
from wengert.graph.operations import Fused
from wengert.graph.text import row_major, show_node
from wengert.graph.verify import verify

__all__ = ["Part", "apply", "copy", "extract", "insert", "is_sorted", "mapped", "remove", "replace", "sort"]

Pass = Callable[[Graph], Graph]


def apply(graph: Graph, *passes: Pass) -> Graph:
    """Return the graph that passes make of a copy of a graph, one after the other.

    The graph is verified after each, and must be used as before: the same inputs, outputs and writes by shape and dtype, the
    same effects (random draws) in the same order.

    Raises:
        GraphError: naming the pass that broke a rule, with the rule. TypeError: for a pass that returns no graph.
    """
    verify(graph)
    face, effects = _face(graph), list(_effects(graph))
    current = copy(graph)
    for one in passes:
        name = getattr(one, "__qualname__", repr(one))
        found = one(current)
        if not isinstance(found, Graph):
            raise TypeError(f"the pass {name} must return a graph, got {type(found).__name__}")
        try:
            verify(found)
        except GraphError as error:
            raise GraphError(f"after the pass {name}: {error}") from error
        if _face(found) != face:
            raise GraphError(f"the pass {name} changed what goes in and out:\n{face}\nbecame\n{_face(found)}")
        if [id(op) for op in _effects(found)] != [id(op) for op in effects]:
            raise GraphError(f"the pass {name} left out, added or reordered random draws")
        current = found
    return current


def _face(graph: Graph) -> tuple[Any, ...]:
    """Return what a caller sees of a graph: shapes and dtypes of inputs and outputs, and which inputs are written."""
    numbers = {value: i for i, value in enumerate(graph.inputs)}
    inputs, outputs = [v.spec for v in graph.inputs], [v.spec for v in graph.outputs]
    return inputs, outputs, [numbers[target] for target, _ in graph.writes]


def _effects(graph: Graph) -> Iterator[Any]:
    """Yield the operations that must stay as they are, in order."""
    for node in graph.nodes:
        if isinstance(node.op, Fused):
            yield from _effects(node.op.body)
        elif _has_effect(node):
            yield node.op


def _has_effect(node: Node) -> bool:
    if isinstance(node.op, Fused):
        return any(map(_has_effect, node.op.body.nodes))
    return bool(getattr(node.op, "effect", False))


# ---- copies and parts ----------------------------------------------------------------


def copy(graph: Graph) -> Graph:
    """Return a copy whose values and nodes are its own; operations and the arrays of constants are shared."""
    return mapped(graph)[0]


def mapped(graph: Graph) -> tuple[Graph, dict[Value, Value]]:
    """Return a copy, and the copy's value for each value of the graph."""
    out, table = Graph(), dict[Value, Value]()
    for value in graph.inputs:
        out.inputs.append(_twin(value, table))
    for value, array in graph.constants.items():
        out.constants[_twin(value, table)] = array
    out.nodes = [_node_twin(node, table) for node in graph.nodes]
    out.outputs = [table[v] for v in graph.outputs]
    out.writes = [(table[target], table[v]) for target, v in graph.writes]
    out.reserve(graph.named)
    return out, table


def _twin(value: Value, table: dict[Value, Value], node: Node | None = None) -> Value:
    table[value] = Value(value.spec, value.strides, value.name, node, value.index)
    return table[value]


def _node_twin(node: Node, table: dict[Value, Value]) -> Node:
    op = Fused(node.op.kind, copy(node.op.body)) if isinstance(node.op, Fused) else node.op
    twin = Node(op, replaced(node.arguments, table.__getitem__), node.place)
    twin.results = tuple(_twin(v, table, twin) for v in node.results)
    return twin


class Part(NamedTuple):
    """Some nodes of a graph as a graph of their own, with the values of the whole that are its inputs and outputs."""

    graph: Graph
    inputs: list[Value]
    outputs: list[Value]


def extract(graph: Graph, nodes: Iterable[Node]) -> Part:
    """Return a part of a graph: a new graph that computes from what the nodes read what others read of them.

    Constants that the nodes read become constants of the part.

    Raises:
        GraphError: for a node of another graph, and if the part would read something that is computed from it.
    """
    chosen = set(nodes)
    inside = [node for node in graph.nodes if node in chosen]
    if len(inside) != len(chosen):
        raise GraphError("some of the nodes are no nodes of this graph")
    made = {value for node in inside for value in node.results}
    inputs = [v for v in dict.fromkeys(v for n in inside for v in n.inputs) if v not in made]
    _check_convex(graph, chosen, made)
    read = {v for node in graph.nodes if node not in chosen for v in node.inputs} | set(graph.results)
    outputs = [v for node in inside for v in node.results if v in read]
    out, table = Graph(), dict[Value, Value]()
    for value in inputs:
        if value in graph.constants:
            out.constants[_twin(value, table)] = graph.constants[value]
        else:
            out.inputs.append(_twin(value, table))
    out.nodes = [_node_twin(node, table) for node in inside]
    out.outputs = [table[v] for v in outputs]
    out.reserve(graph.named)
    return Part(out, [v for v in inputs if v not in graph.constants], outputs)


def _check_convex(graph: Graph, chosen: set[Node], made: set[Value]) -> None:
    """Refuse a part that is left and entered again."""
    behind: set[Value] = set()
    for node in graph.nodes:
        follows = any(v in behind or (v in made and node not in chosen) for v in node.inputs)
        if node in chosen and any(v in behind for v in node.inputs):
            raise GraphError(f"{show_node(node)} reads what is computed outside of the part from its results")
        if follows and node not in chosen:
            behind.update(node.results)


# ---- changes -------------------------------------------------------------------------


def replace(graph: Graph, old: Value, new: Value) -> None:
    """Let every node, output and write that reads ``old`` read ``new``; what makes ``new`` must come before the first of them.

    Raises:
        GraphError: if they differ in shape or dtype.
    """
    if old.spec != new.spec:
        raise GraphError(f"{old!r} cannot be replaced by {new!r}")
    for node in graph.nodes:
        if any(v is old for v in values_in(node.arguments)):
            node.arguments = replaced(node.arguments, lambda v: new if v is old else v)
    graph.outputs = [new if v is old else v for v in graph.outputs]
    graph.writes = [(target, new if v is old else v) for target, v in graph.writes]


def insert(
    graph: Graph, op: str, *args: Any, before: Node | None = None, after: Node | None = None, **kwargs: Any
) -> Any:
    """Add a call of an operator, and return its value (a tuple for several results).

    Args:
        op: its name. args, kwargs: as the operator takes them, values in place of tensors.
        before, after: the node beside which it stands; neither: at the end.

    Raises:
        GraphError: for an unknown operator, one that is made of others, and for arguments that do not fit.
    """
    declared = operators().get(op)
    if declared is None or declared.composite:
        near = ", ".join(names_near(op, [n for n, o in operators().items() if not o.composite]))
        known = "is made of others" if declared is not None else "is not declared"
        raise GraphError(f"the operator '{op}' {known}" + (f"; near it: {near}" if near else ""))
    at = _place(graph, before, after)
    arguments = _bound(declared, args, kwargs)
    try:
        inferred = declared.infer(replaced(arguments, lambda v: v.spec))
    except Exception as error:  # whatever the rule of an operator says to arguments that it cannot take
        raise GraphError(f"{op}(): the arguments do not fit: {error}") from error
    specs = (inferred,) if isinstance(inferred, Spec) else tuple(inferred)
    beside = before or after
    node = graph.call(declared, arguments, [(s, row_major(s)) for s in specs], beside.place if beside else None)
    graph.nodes.insert(at, graph.nodes.pop())
    return node.results[0] if declared.single else node.results


def _place(graph: Graph, before: Node | None, after: Node | None) -> int:
    """Return the index at which a node beside another one stands."""
    beside = before or after
    if before is not None and after is not None:
        raise GraphError("insert() takes before= or after=, not both")
    if beside is None:
        return len(graph.nodes)
    if beside not in graph.nodes:
        raise GraphError(f"{show_node(beside)} is no node of this graph")
    return graph.nodes.index(beside) + (after is not None)


def _bound(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return a call's arguments in order, normalised."""
    signature = op.signature
    values = signature.bind(args, kwargs)
    ndim = 0
    for i, mark, _, _ in signature.tensors:
        if mark.many and isinstance(values[i], list):
            values[i] = tuple(values[i])
        first = next(values_in((values[i],)), None)
        ndim = ndim if first is None else len(first.shape)
    signature.normalise(values, ndim)
    return tuple(values)


def remove(graph: Graph, node: Node) -> None:
    """Take a node out.

    Raises:
        GraphError: if one of its results is still read, or if it is a random draw.
    """
    if node not in graph.nodes:
        raise GraphError(f"{show_node(node)} is no node of this graph")
    if _has_effect(node):
        raise GraphError(f"{show_node(node)} draws random numbers, which must stay")
    read = {v for other in graph.nodes if other is not node for v in other.inputs} | set(graph.results)
    for value in node.results:
        if value in read:
            raise GraphError(f"{show_node(node)} cannot be removed: %{value.name} is still read; replace() it first")
    graph.nodes.remove(node)


# ---- order ---------------------------------------------------------------------------


def is_sorted(graph: Graph) -> bool:
    """Whether every node stands behind those whose results it reads."""
    known = {*graph.inputs, *graph.constants}
    for node in graph.nodes:
        if not known.issuperset(node.inputs):
            return False
        known.update(node.results)
    return True


def sort(graph: Graph) -> None:
    """Put the nodes in an order in which they can run, as near to the present one as there is; draws keep their order.

    Raises:
        GraphError: if nodes read one another in a circle.
    """
    index = {node: i for i, node in enumerate(graph.nodes)}
    waits: dict[Node, int] = dict.fromkeys(graph.nodes, 0)
    followers: dict[Node, list[Node]] = {node: [] for node in graph.nodes}
    last: Node | None = None
    for node in graph.nodes:
        sources = dict.fromkeys(v.node for v in node.inputs if v.node is not None)
        if _has_effect(node):
            sources |= {last: None} if last is not None else {}
            last = node
        for source in sources:
            followers[source].append(node)
            waits[node] += 1
    ready = [i for node, i in index.items() if not waits[node]]
    order: list[Node] = []
    while ready:
        node = graph.nodes[heapq.heappop(ready)]
        order.append(node)
        for follower in followers[node]:
            waits[follower] -= 1
            if not waits[follower]:
                heapq.heappush(ready, index[follower])
    if len(order) < len(graph.nodes):
        stuck = next(node for node in graph.nodes if waits[node])
        raise GraphError(f"{show_node(stuck)} waits for its own result")
    graph.nodes = order

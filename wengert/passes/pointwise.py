"""Element-wise nodes of one shape become kernels that read and write each element once, and reductions of them one more.

Greedy grouping after stages (see :mod:`wengert.passes.grouping`): nodes of one shape and stage that read one another's
results, or the same array, are one kernel. Before that, nodes whose results are only needed later move there, so that a mask
is computed where it is used. After that, a kernel computes again what it would read, if that is cheap and saves traffic.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Final

from wengert.core.operator import Op
from wengert.graph.ir import Graph, Node, Value
from wengert.passes.fusible import CHEAP, FREE
from wengert.passes.grouping import Group, components, fused, stages
from wengert.passes.traffic import bytes_of

__all__ = ["LARGEST", "REDUCTIONS", "fuse_pointwise"]

LARGEST: Final = 192  # nodes of one kernel
ARRAYS: Final = 12  # that one kernel reads: more drive one another out of the first cache
REDUCTIONS: Final = frozenset({"all", "amax", "amin", "any", "mean", "sum", "sum_to_size"})


def fuse_pointwise(graph: Graph, fusible: Callable[[Node], bool], reductions: bool) -> Graph:
    """Fuse element-wise nodes; with ``reductions``, also into the reduction that alone reads their result."""
    return fused(graph, _Fusion(graph, fusible).groups(reductions))


class _Fusion:
    """The grouping of one graph.

    Attributes:
        classes: the shapes of nodes that may be fused. stage: of each node. uses: the nodes that read each value.
    """

    def __init__(self, graph: Graph, fusible: Callable[[Node], bool]) -> None:
        self.graph = graph
        self.kept = set(graph.results)
        self.uses = graph.uses()
        self.index = {node: k for k, node in enumerate(graph.nodes)}
        self.classes: dict[Node, Hashable] = {n: n.results[0].shape for n in graph.nodes if fusible(n)}
        self.passing = self._passing()
        self.stage = stages(graph, self.classes, self.passing)
        for node in reversed(graph.nodes):
            if node in self.classes:
                self._sink(node)

    # ---- stages

    def _sink(self, node: Node) -> None:
        """Move a node to the stage in which its result is first needed, unless more is read for it there than is saved."""
        (result,) = node.results
        users = self.uses.get(result, [])
        if result in self.kept or not users:
            return
        latest = min(self._bound(node, user) for user in users)
        if latest <= self.stage[node]:
            return
        joins = [u for u in users if self.classes.get(u) == self.classes[node] and self.stage[u] == latest]
        if joins and self._price(node) <= 2 * bytes_of(result):
            self.stage[node] = latest

    def _bound(self, node: Node, user: Node) -> int:
        """Return the last stage in which a node can be because of one that reads its result."""
        apart = user in self.classes and self.classes[user] != self.classes[node]
        return self.stage[user] - apart

    def _price(self, node: Node) -> int:
        """Return the bytes that are read because a node is not computed where its arguments are."""
        total = 0
        for value in set(node.inputs):
            source = value.node
            together = source is not None and self.classes.get(source) == self.classes[node]
            if together and self.stage[source] == self.stage[node] and len(self.uses[value]) > 1:  # type: ignore[index]
                total += bytes_of(value) * (1 if value in self.kept else 2)
        return total

    def _passing(self) -> set[Node]:
        """Return cheap nodes on single numbers that are needed in larger kernels only: each of those computes them itself."""
        found: set[Node] = set()
        for node in reversed(self.graph.nodes):
            if not isinstance(node.op, Op) or not (
                node.op.name in FREE or (node in self.classes and node.op.name in CHEAP)
            ):
                continue
            (result,) = node.results
            users = self.uses.get(result, ())
            if result in self.kept or not users or (node.op.name not in FREE and result.shape):
                continue
            if all(u in found or self.classes.get(u, ()) != () for u in users):
                found.add(node)
        return found

    # ---- groups

    def groups(self, reductions: bool) -> list[Group]:
        """Return the groups."""
        found = []
        nodes = [n for n in self.graph.nodes if n in self.classes and n not in self.passing]
        for members in components(nodes, self._joined(nodes)):
            for part in self._parts(members):
                group = Group("pointwise", part)
                self._absorb(group)
                if reductions:
                    self._reduce(group)
                if len(group.members) + len(group.copies) > 1:
                    found.append(group)
        return found

    def _joined(self, nodes: Sequence[Node]) -> list[tuple[Node, Node]]:
        """Return pairs of nodes that are to be in one kernel: one reads the other's result, or both read an array."""
        pairs = []
        readers: dict[tuple[Value, int, Hashable], Node] = {}
        for node in nodes:
            shape, stage = self.classes[node], self.stage[node]
            for value in dict.fromkeys(node.inputs):
                source = value.node
                if source is not None and self.classes.get(source) == shape and self.stage[source] == stage:
                    if source not in self.passing:
                        pairs.append((source, node))
                elif value.shape == shape and shape:
                    pairs.append((readers.setdefault((value, stage, shape), node), node))
        return pairs

    def _parts(self, members: list[Node]) -> list[list[Node]]:
        """Return members in runs that are small enough for one kernel."""
        parts: list[list[Node]] = [[]]
        arrays: set[Value] = set()
        made: set[Value] = set()
        for node in members:
            read = {v for v in node.inputs if bytes_of(v) > v.dtype.itemsize}
            if len(parts[-1]) >= LARGEST or len(arrays | (read - made)) > ARRAYS:
                parts.append([])
                arrays, made = set(), set()
            arrays |= read - made
            made.update(node.results)
            parts[-1].append(node)
        return parts

    def _absorb(self, group: Group) -> None:
        """Let a group compute again what it reads, where that is cheap and saves traffic."""
        made = {v for n in group.members for v in n.results}
        inputs = dict.fromkeys(v for n in group.members for v in n.inputs if v not in made)
        waiting = list(inputs)
        while waiting and len(group.members) + len(group.copies) < LARGEST:
            value = waiting.pop()
            source = value.node
            if value not in inputs or source is None or not self._recomputed(source, value, inputs):
                continue
            del inputs[value]
            group.copies.append(source)
            more = [v for v in source.inputs if v not in inputs and v not in made]
            inputs.update(dict.fromkeys(more))
            made.add(value)
            waiting += more

    def _recomputed(self, source: Node, value: Value, inputs: dict[Value, None]) -> bool:
        """Whether a kernel with these inputs computes a value itself."""
        if source in self.passing or (isinstance(source.op, Op) and source.op.name in FREE):
            return True
        if source not in self.classes or source.op.name not in CHEAP or not value.shape:
            return False
        return sum(bytes_of(v) for v in set(source.inputs) if v not in inputs) < bytes_of(value)

    # ---- reductions

    def _reduce(self, group: Group) -> None:
        """Add the reduction that alone reads the only result of a group."""
        own = set(group.members)
        read = {
            v
            for n in group.members
            for v in n.results
            if v in self.kept or any(u not in own for u in self.uses.get(v, ()))
        }
        if len(read) != 1:
            return
        (value,) = read
        users = self.uses.get(value, ())
        outside = [u for u in users if u not in own]
        if value in self.kept or len(outside) != 1 or len(users) != 1:
            return
        node = outside[0]
        whole = value.shape and math.prod(value.shape) > math.prod(node.results[0].shape)
        if isinstance(node.op, Op) and node.op.name in REDUCTIONS and whole:
            group.kind = "reduction"
            group.members.append(node)

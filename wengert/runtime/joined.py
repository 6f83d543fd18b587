"""Values that lie in a part of what they are joined into, so that joining them copies nothing.

The nodes that make such values write into the joined memory at once. It is taken from when the first of them begins; without
this, the values would be there from then on as well, each by itself, and the joined one beside them in the end.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import numpy as np

from wengert.graph.ir import Graph, Node, Value
from wengert.graph.operations import Fused

__all__ = ["Joined", "joined"]

JOINING: Final = frozenset({"cat", "stack"})

Into = tuple[Value, tuple[Any, ...]]  # what a value is joined into, and the index of its part


class Joined:
    """Where values lie that are parts of others.

    Args:
        into: for each such value what it is joined into, and which part of that it is.
    """

    def __init__(self, into: dict[Value, Into]) -> None:
        self._into = into

    def __contains__(self, value: Value) -> bool:
        return value in self._into

    def __getitem__(self, value: Value) -> Into:
        return self._into[value]

    def roots(self) -> dict[Value, Value]:
        """Return for each value the one that is no part itself, whose memory it lies in."""
        found: dict[Value, Value] = {}
        for value, (whole, _) in reversed(self._into.items()):  # what is joined last comes first
            found[value] = found.get(whole, whole)
        return found


def joined(graph: Graph, owned: Collection[Value]) -> Joined:
    """Return which values of a graph lie in what they are joined into.

    Args:
        owned: the values whose memory may be chosen; no others are parts, or have any.

    A value that would have gaps between its rows is a part only if all that is joined there is made by one element-wise node:
    kernels of other kinds may want their results in one block, and nodes that may run side by side would wait for each other.
    """
    into: dict[Value, Into] = {}
    may = set(owned)
    for node in graph.nodes:
        if getattr(node.op, "name", "") in JOINING and node.results[0] in may:
            for value, index in _fitting(node, may):
                into.setdefault(value, (node.results[0], index))
    return Joined(into)


def _fitting(node: Node, owned: Collection[Value]) -> Iterator[tuple[Value, tuple[Any, ...]]]:
    (whole,), values = node.results, [value for value in node.arguments[0] if value.nbytes]
    array = np.empty(whole.shape, whole.dtype.numpy)
    makers = {value.node for value in values}
    rows = len(makers) == 1 and all(map(_is_elementwise, makers))
    for value, index in zip(values, _indices(node, values), strict=True):
        if value in owned and value.spec.dtype == whole.spec.dtype and (rows or array[index].flags.c_contiguous):
            yield value, index


def _indices(node: Node, values: Sequence[Value]) -> Iterator[tuple[Any, ...]]:
    """Yield the parts that values which are not empty become."""
    dim = node.arguments[1] % len(node.results[0].shape)
    start = 0
    for value in values:
        stop = start + (1 if node.op.name == "stack" else value.shape[dim])
        yield (*(slice(None),) * dim, start if node.op.name == "stack" else slice(start, stop), ...)
        start = stop


def _is_elementwise(node: Node | None) -> bool:
    op = None if node is None else node.op
    if isinstance(op, Fused):
        return op.kind == "pointwise"
    return getattr(op, "batch", None) == "broadcast" and getattr(op, "single", False)

"""What was recorded before a captured function began: its program may neither walk through it nor leave hooks on it."""

from collections.abc import Callable, Collection
from typing import Any

from wengert.core.node import Leaf, next_sequence
from wengert.graph.refusals import NotCapturable
from wengert.graph.storage import Traced

__all__ = ["History"]


class History:
    """The nodes that are older than a capture.

    Args:
        outside: whether a leaf is a tensor from outside.
    """

    def __init__(self, outside: Callable[[Any], bool]) -> None:
        self._begun, self._outside = next_sequence(), outside
        self._hooked: dict[Any, list[dict[int, Any]]] = {}

    def check_walk(self, nodes: Collection[Any]) -> None:
        """Refuse a backward walk that visits ``nodes`` and goes on from an old one: another call has another history.

        Raises:
            NotCapturable: if it does.
        """
        for node in nodes:
            if node.sequence < self._begun and any(after in nodes for after in node.inputs if after is not None):
                raise NotCapturable(
                    "it walks back through what was computed before it was called; compute that inside, or walk outside"
                )

    def check_tangent(self, tensor: Any) -> None:
        """Refuse a value with a tangent that is written into a tensor from outside, or a view of one.

        Raises:
            NotCapturable: if it is.
        """
        held = tensor._payload
        if self._outside(tensor) or (isinstance(held, Traced) and held.storage.source is not None):
            raise NotCapturable(
                "it writes what has a tangent into a tensor from outside; make that tensor inside, or write outside of jvp"
            )

    def hooked(self, node: Any) -> None:
        """Take note of a node that is about to be given a hook."""
        if self._outside(node.variable) if isinstance(node, Leaf) else node.sequence < self._begun:
            self._hooked.setdefault(node, [table.copy() for table in node.more().tables()])

    def check_hooks(self) -> None:
        """Refuse a function that leaves another set of hooks, which would happen once.

        Raises:
            NotCapturable: if it does.
        """
        if any(list(node.extra.tables()) != tables for node, tables in self._hooked.items()):
            raise NotCapturable(
                "it leaves a hook on a tensor from outside; register it before, or remove it at the end"
            )

    def restore(self) -> None:
        """Give the nodes back the hooks that they had."""
        for node, tables in self._hooked.items():
            for table, hooks in zip(node.extra.tables(), tables, strict=True):
                table.clear()
                table.update(hooks)

"""What becomes of the tensors that a captured function returns."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from wengert.core.tensor import node_of
from wengert.graph.refusals import NotCapturable
from wengert.graph.storage import Traced

__all__ = ["Result", "share_memory"]


class Result:
    """What becomes of one tensor that the function returns.

    Attributes:
        kind: "value" (a new tensor of the graph's result number ``item``), "source" (a tensor that came in), "view" (of the
            result ``item``, whose memory it shares), or "same" (an object that is returned as it is).
        chain: the views that lead to it. detached: whether its history is cut off.
    """

    __slots__ = ("chain", "detached", "item", "kind")

    def __init__(self, kind: str, item: Any, chain: tuple[Any, ...] = (), detached: bool = False) -> None:
        self.kind, self.item, self.chain, self.detached = kind, item, chain, detached


def share_memory(found: Sequence[Any], made: dict[int, Result]) -> None:
    """Make results that lie in the same new memory views of one of them, or of what none of them is the whole of.

    Raises:
        NotCapturable: for the latter, if they have a history.
    """
    families: dict[int, dict[int, Any]] = {}
    for leaf in found:
        if made[id(leaf)].kind == "value" and isinstance(leaf._payload, Traced):
            families.setdefault(id(leaf._payload.storage), {})[id(leaf)] = leaf
    for storage, members in families.items():
        leaves = list(members.values())
        if not any(_overlap(a, b) for a, b in combinations(leaves, 2)):
            continue
        base = next((leaf for leaf in leaves if not leaf._payload.chain), None)
        if base is not None:
            whole = made[id(base)]
        elif any(node_of(leaf) is not None for leaf in leaves):
            raise NotCapturable(
                "it returns tensors with a history that share memory, but not the tensor they are views of"
            )
        else:
            whole = made[storage] = Result("value", leaves[0]._payload.storage.value)
        for leaf in leaves:
            if leaf is not base:
                cut = base is not None and node_of(base) is not None and node_of(leaf) is None
                made[id(leaf)] = Result("view", whole, leaf._payload.chain, detached=cut)


def _overlap(one: Any, other: Any) -> bool:
    """Whether two tensors have elements in common."""
    try:
        return bool(np.shares_memory(one._payload.array, other._payload.array, max_work=1000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True

"""What a function returns that lies in memory of the user's: NumPy's, or a buffer's."""

from typing import Any

from wengert.compiling.results import Result
from wengert.compiling.sources import Held
from wengert.core.tensor import Tensor, node_of
from wengert.graph.capture import Capture
from wengert.graph.lent import is_borrowed
from wengert.graph.refusals import NotCapturable
from wengert.graph.storage import Traced

__all__ = ["of_memory"]


def of_memory(level: Capture, leaf: Any) -> Result | None:
    """Return the result of a tensor that was made of the user's memory, or of a view of one; None for any other.

    Raises:
        NotCapturable: if nobody knows whether each call would make that memory anew.
    """
    found = level.lent.made_of(leaf) if isinstance(leaf, Tensor) else None
    if found is None or node_of(leaf) is not None:
        return None
    held, (shared, array) = leaf._payload, found
    if level.lent.is_reached(array):
        return Result("source", Held(shared), held.chain if isinstance(held, Traced) else (), detached=True)
    if is_borrowed(array):
        raise NotCapturable(
            "it returns a tensor in memory that is not NumPy's, which it may make at each call; clone() it"
        )
    return None

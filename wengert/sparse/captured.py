"""Sparse gradients in a program that is captured: where their entries are is a tensor of the program.

Such a gradient comes from rows that were looked up. It may be added to another one, an optimiser may step with it, and it may
be left in ``.grad``; for anything else the function is run as it is.
"""

from typing import Any

from wengert.array.layout import sparse_coo
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.sparse.pattern import Pattern
from wengert.sparse.payload import CAPTURED, is_sparse, made

__all__ = ["LookedUp", "index_of"]


class LookedUp(Pattern):
    """The rows of a table that a program has looked up.

    Attributes:
        index: a tensor of the program, (count,), of int64.
    """

    captured = True
    layout = sparse_coo
    sparse_dim = 1
    coalesced = False

    def __init__(self, index: Any, shape: tuple[int, ...]) -> None:
        self.index, self.shape, self.count = index, shape, index.shape[0]

    @property
    def coo(self) -> Any:
        """Refused: they are known only when the program runs."""
        return thread.state.captures.refuse("what depends on where the entries of a sparse tensor are")

    def arrays(self) -> dict[str, Any]:
        """Refused, as :attr:`coo` is."""
        return {"indices": self.coo}

    def is_same(self, other: Pattern) -> bool:
        """Whether it is the other one."""
        return self is other


def index_of(tensor: Any) -> Any:
    """Return the index of the rows that a sparse gradient has; None for a tensor that is not one of a program."""
    pattern = tensor._payload.pattern if is_sparse(tensor) else None
    return pattern.index if isinstance(pattern, LookedUp) else None


def _add(input: Any, other: Any, alpha: Any = 1) -> Any:
    """Return the sum of two gradients of a table: the entries of both."""
    indices = [index_of(input), index_of(other)]
    if any(index is None for index in indices) or input.shape != other.shape or input.dtype is not other.dtype:
        return NotImplemented
    if alpha != 1:
        return NotImplemented
    pattern = LookedUp(ops.cat(tuple(indices), 0), tuple(input.shape))
    return made(ops.cat((input._payload.entries, other._payload.entries), 0), pattern)


CAPTURED["add"] = _add

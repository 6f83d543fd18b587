"""Results whose memory a plan writes again at the next call, unless somebody else has got hold of it by then."""

from collections.abc import Callable
from sys import getrefcount
from typing import Any

from wengert.graph.ir import Value
from wengert.runtime.pool import empty
from wengert.runtime.segments import Moving

__all__ = ["Kept"]


class Kept:
    """One such result.

    Args:
        number: which of the outputs. value: it. array: where it lies, as nobody but the plan knows yet. move: lets the tasks
            use another array. take: called before each call: says whether one object has what the last call returned, holds
            the array once, and keeps it from others until it is given what the call returns.
    """

    __slots__ = ("_alone", "_move", "_take", "array", "number", "value")

    def __init__(self, number: int, value: Value, array: Any, move: Moving, take: Callable[[], bool]) -> None:
        self.number, self.value, self.array = number, value, array
        self._move, self._take = move, take
        self._alone = -1  # how often the plan holds the array; counted when nobody else does

    def take(self) -> bool:
        """Whether the next call may write where the result lies: called once before it."""
        held = self._take()
        if self._alone < 0:  # no call has returned it
            self.settle()
            return True
        return getrefcount(self.array) == self._alone + held

    def settle(self) -> None:
        """Take note of how often the plan itself holds the array, as nobody else does yet."""
        self._alone = getrefcount(self.array)

    def renew(self) -> Any:
        """Let the tasks of the next call use new memory; return it."""
        self.array = empty(self._move.shape, self._move.dtype)
        self._move.to(self.array)
        return self.array

"""Writing under a condition: what a step that may be skipped does."""

from collections.abc import Callable
from typing import Any

from wengert.core.state import thread

__all__ = ["provided"]


def provided(condition: Any, do: Callable[[], Any]) -> Any:
    """Call ``do()`` if a tensor of no dimensions is true, and return what it returns; otherwise None.

    In a program that is captured, ``do()`` is part of it, and what it writes is written only where the condition holds at
    the call: one graph does both.
    """
    captures = thread.state.captures
    if captures is None:
        return do() if condition.item() else None
    with captures.provided(condition):
        return do()

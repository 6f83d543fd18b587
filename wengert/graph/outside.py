"""What is not captured: it is done once, while a function is captured, or by Python at each call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from wengert.core.state import thread
from wengert.graph.ir import Value

__all__ = ["Host", "outside", "unseen"]


@contextmanager
def outside() -> Iterator[None]:
    """Run a block as if nothing were being captured: what it does is done once, now."""
    state = thread.state
    levels, state.levels = state.levels, []
    state.update()
    try:
        yield
    finally:
        state.levels = levels
        state.update()


@contextmanager
def unseen() -> Iterator[None]:
    """Run a block without the saved-tensor hooks and watchers around it: a checkpoint, say, meets the program instead."""
    state = thread.state
    before = state.saved_hooks, state.watchers
    state.saved_hooks, state.watchers = [], ()
    state.update()
    try:
        yield
    finally:
        state.saved_hooks, state.watchers = before
        state.update()


class Host:
    """Something that Python does at each call: ``do()`` gives the numbers for some inputs of the graph, or just acts.

    Attributes:
        numbers: those of the call that was captured.
    """

    __slots__ = ("do", "numbers", "values")

    def __init__(self, do: Callable[[], Any], values: tuple[Value, ...], numbers: tuple[Any, ...] = ()) -> None:
        self.do, self.values, self.numbers = do, values, numbers

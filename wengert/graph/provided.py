"""What a program does under a condition, and what a Python object knows during one call alone."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wengert.array.device import devices
from wengert.graph.ir import Value
from wengert.graph.refusals import NotCapturable, NotYet
from wengert.graph.storage import Storage

__all__ = ["Passing", "Provided"]


class Provided:
    """Writes under a condition: memory gets either what was written or what it held, so one graph does both.

    Args:
        level: the capture.
    """

    def __init__(self, level: Any) -> None:
        self._level = level
        self._written: dict[int, tuple[Storage, Value]] | None = None
        self._condition: Value | None = None  # in a block that is in no other one
        self._aside = False

    def note(self, storage: Storage) -> None:
        """Take note of what memory holds that is about to be written."""
        if self._written is not None and not self._aside:
            self._written.setdefault(id(storage), (storage, storage.value))

    def taken_over(self, storages: Sequence[Storage]) -> Value | None:
        """Return the condition for an operation that looks to it itself, before its first write; else None."""
        return None if any(id(s) in (self._written or ()) for s in storages) else self._condition

    @contextmanager
    def aside(self, wanted: bool) -> Iterator[None]:
        """Take no note of what a block writes, if that is wanted."""
        self._aside = wanted
        try:
            yield
        finally:
            self._aside = False

    @contextmanager
    def __call__(self, condition: Any) -> Iterator[None]:
        """Let what a block writes be written only if ``condition``, a tensor of no dimensions, is true at a call.

        Raises:
            NotCapturable: if the block does what cannot be undone: draws random numbers, or calls Python.
        """
        level = self._level
        value, first = level.value_of(condition), len(level.graph.nodes)
        outer, self._written = (self._written, self._condition), {}
        self._condition = value if outer[0] is None else None
        written = self._written
        try:
            yield
        except NotYet as error:
            error.patient = True
            raise
        finally:
            self._written, self._condition = outer
        if any(getattr(node.op, "effect", False) for node in level.graph.nodes[first:]):
            raise NotCapturable("drawing random numbers, or calling Python, under a condition cannot be captured")
        for storage, before in written.values():
            self.note(storage)
            after, storage.value = storage.value, level.apply("choose", value, storage.value, before)
            if devices.several:
                level.devices.setdefault(storage.value, level.devices.get(after, 0))


class Passing:
    """Dictionaries of Python objects that a function fills and leaves empty, as it found them.

    Args:
        level: the capture.
    """

    def __init__(self, level: Any) -> None:
        self._level = level
        self._held: dict[int, tuple[str, dict[Any, Any]]] = {}

    def __call__(self, what: str, held: dict[Any, Any]) -> None:
        """Take note of a dictionary, which holds ``what``.

        Raises:
            NotCapturable: if there is something in it when it is first seen.
        """
        if id(held) not in self._held:
            if held:
                raise NotCapturable(f"{what} comes from before the call; let one function do all of it")
            self._held[id(held)] = what, held
            self._level.guard(lambda: not held)

    def check(self) -> None:
        """Refuse a function that leaves something behind, which a call of its program would not.

        Raises:
            NotCapturable: if it does.
        """
        for what, held in self._held.values():
            if held:
                raise NotCapturable(f"{what} goes on behind the call; let one function do all of it")

    def restore(self) -> None:
        """Leave nothing behind."""
        for _, held in self._held.values():
            held.clear()

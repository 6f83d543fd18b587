"""The modules that a captured program uses: what they consist of while it is captured, and afterwards."""

from collections.abc import Callable
from typing import Any

__all__ = ["Modules"]


class Modules:
    """Modules by identity, as they are when they are first used.

    Args:
        called: is told of each.

    Attributes:
        questions: for each a function that returns its snapshot, the snapshot, and the name of its class.
    """

    def __init__(self, called: Callable[[Any], None]) -> None:
        self._called = called
        self.questions: list[tuple[Callable[[], Any], Any, str]] = []
        self._members: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._seen: dict[int, Any] = {}

    def use(self, module: Any) -> None:
        """Take note of a module, and of those below it."""
        for part in module.modules():
            if id(part) not in self._seen:
                self._seen[id(part)] = part
                self.questions.append((part.snapshot, part.snapshot(), type(part).__name__))
                self._members.append((part.__dict__, part.__dict__.copy()))
                self._called(part)

    def changed(self) -> str | None:
        """Return the class of a module that is no longer what it was; None if there is none."""
        return next((name for ask, answer, name in self.questions if ask() != answer), None)

    def restore(self) -> None:
        """Put back what they consisted of."""
        for members, before in self._members:
            members.clear()
            members.update(before)

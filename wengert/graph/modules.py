"""The modules that a captured program uses: what they consist of while it is captured, and afterwards."""

from collections.abc import Callable, Iterable
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
        self._members: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
        self._seen: dict[int, Any] = {}
        self._within_reach: dict[int, Any] = {}

    def use(self, module: Any) -> None:
        """Take note of a module, and of those below it."""
        for part in module.modules():
            if id(part) not in self._seen:
                self._seen[id(part)] = part
                self.questions.append((part.snapshot, part.snapshot(), type(part).__name__))
                self.reach((part,))
                self._called(part)

    def reach(self, modules: Iterable[Any]) -> None:
        """Take note of modules of which the function may read something, whether it calls them or not."""
        for module in modules:
            if id(module) not in self._within_reach:
                self._within_reach[id(module)] = module
                self._members.append((module, _modeless(module), module.__dict__.copy()))

    def settle(self) -> None:
        """Ask for those that were not called, as they are after the function, too."""
        for key, module in self._within_reach.items():
            if key not in self._seen:
                self._seen[key] = module
                self.questions.append((module.snapshot, module.snapshot(), type(module).__name__))

    def changed(self) -> str | None:
        """Return the class of a module that is no longer what it was; None if there is none.

        One may be given another mode before it is called, which a later call finds as it is then.
        """
        for module, before, _ in self._members:
            if _modeless(module) != before:
                return type(module).__name__
        return next((name for ask, answer, name in self.questions if ask() != answer), None)

    def restore(self) -> None:
        """Put back what they consisted of."""
        for module, _, members in self._members:
            module.__dict__.clear()
            module.__dict__.update(members)


def _modeless(module: Any) -> tuple[Any, ...]:
    """Return the snapshot of a module without its mode."""
    return tuple(part for part in module.snapshot() if part[:1] != ("training",))

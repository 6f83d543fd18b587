"""The registry: every declared operator, under its name.

``ops.tanh`` is the public function of an operator; derivative rules reach other operators through ``ops``, which is
the one late binding of the package. ``operators()`` gives the declarations.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from wengert.errors import DeclarationError

__all__ = ["MissingNameError", "names_near", "operators", "ops", "register", "withdraw"]


class MissingNameError(AttributeError):
    """There is no such name; the nearest ones are looked for when the error is shown, so that ``hasattr`` is cheap.

    Args:
        what: that has no such attribute. name: the attribute. known: the names that there are, or what returns them.
        obj: as of AttributeError.
    """

    def __init__(
        self, what: str, name: str, known: Iterable[str] | Callable[[], Iterable[str]], obj: object = None
    ) -> None:
        super().__init__(name=name, obj=obj)
        self._what, self._name, self._known = what, name, known

    def __str__(self) -> str:
        near = names_near(self._name, self._known() if callable(self._known) else self._known)
        nearest = f"; the nearest names are: {', '.join(near)}" if near else ""
        return f"{self._what} has no attribute '{self._name}'{nearest}"

    def __reduce__(self) -> Any:
        return AttributeError, (str(self),)


class Operators:
    """The public function of every operator, as attributes."""

    def __getattr__(self, name: str) -> Any:
        raise MissingNameError("operator", name, _declared)


ops = Operators()
_declared: dict[str, Any] = {}


def register(name: str, declaration: Any, function: Any) -> None:
    """Enter an operator.

    Raises:
        DeclarationError: if the name is taken.
    """
    if name in _declared:
        raise DeclarationError(f"operator '{name}' is declared twice")
    _declared[name] = declaration
    operators.cache_clear()
    setattr(ops, name, function)


def withdraw(name: str) -> None:
    """Take an operator out again."""
    del _declared[name]
    operators.cache_clear()
    delattr(ops, name)


@lru_cache(maxsize=1)
def operators() -> Mapping[str, Any]:
    """Return the declaration of every operator by name, those of this moment."""
    return MappingProxyType(dict(sorted(_declared.items())))


def names_near(name: str, known: Any) -> list[str]:
    """Return up to five known names that resemble ``name``."""
    lowered = {k.lower(): k for k in known}
    return [lowered[m] for m in difflib.get_close_matches(name.lower(), lowered, n=5, cutoff=0.6)]

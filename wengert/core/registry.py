"""The registry: every declared operator, under its name.

``ops.tanh`` is the public function of an operator; derivative rules reach other operators through ``ops``, which is
the one late binding of the package. ``operators()`` gives the declarations.
"""

import difflib
from typing import Any

from wengert.errors import DeclarationError

__all__ = ["names_near", "operators", "ops", "register", "withdraw"]


class Operators:
    """The public function of every operator, as attributes."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing_message("operator", name, _declared))


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
    setattr(ops, name, function)


def withdraw(name: str) -> None:
    """Take an operator out again."""
    del _declared[name]
    delattr(ops, name)


def operators() -> dict[str, Any]:
    """Return the declaration of every operator by name."""
    return dict(sorted(_declared.items()))


def names_near(name: str, known: Any) -> list[str]:
    """Return up to five known names that resemble ``name``."""
    lowered = {k.lower(): k for k in known}
    return [lowered[m] for m in difflib.get_close_matches(name.lower(), lowered, n=5, cutoff=0.6)]


def missing_message(what: str, name: str, known: Any) -> str:
    """Return the text of the AttributeError for a name that is not there, with the nearest names."""
    near = names_near(name, known)
    return f"{what} has no attribute '{name}'" + (f"; the nearest names are: {', '.join(near)}" if near else "")

"""Straight lines of Python: what is asked and done at each call, written out for one program.

A loop over a list of things to compare spends most of its time on the loop, and Python remembers at each place in its code what
kind of object it met there, which helps only if that is one kind. Written out, one comparison takes some 20 ns.
"""

from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["Names", "conjunction", "procedure"]


class Names:
    """Names in source text for the objects that it speaks of."""

    def __init__(self) -> None:
        self.space: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def __call__(self, value: Any) -> str:
        """Return the name of an object, which is kept alive."""
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"o{len(self._names)}"
            self.space[name] = value
        return name


def conjunction(conditions: Iterable[str], names: Names) -> Callable[[Any], bool]:
    """Return a function of ``leaves`` that says whether all conditions hold, asked in order up to the first that does not."""
    return procedure("leaves", [f"return {' and '.join(conditions) or 'True'}"], names)


def procedure(parameters: str, lines: Iterable[str], names: Names) -> Callable[..., Any]:
    """Return a function with the given parameters that does what the lines say."""
    text = "\n    ".join([f"def straight({parameters}):", *lines])
    exec(compile(text, __file__, "exec"), names.space)
    found: Callable[..., Any] = names.space.pop("straight")  # or they would refer to each other
    return found

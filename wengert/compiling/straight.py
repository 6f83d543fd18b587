"""Straight lines of Python: what is asked at each call, written out for one program.

A loop over things of many kinds spends most of its time on calls, and Python remembers at each place in its code what kind of
object it met there, which helps only if that is one kind. Written out, one comparison takes some 20 to 50 ns.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

__all__ = ["MOST", "Names", "conjunction"]

MOST: Final = 2000  # conditions that it pays to write out: Python takes some 20 µs to read each


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
    text = f"def straight(leaves): return {' and '.join(conditions) or 'True'}"
    exec(compile(text, __file__, "exec"), names.space)
    found: Callable[[Any], bool] = names.space.pop("straight")  # or they would refer to each other
    return found

"""A table that keeps what was used last: what can be made again must not pile up for keys that never come back."""

from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from typing import Generic, TypeVar

__all__ = ["Recent"]

Key = TypeVar("Key", bound=Hashable)
Kept = TypeVar("Kept")


class Recent(Generic[Key, Kept]):
    """A table of at most ``limit`` entries; a new one takes the place of the one that was not used for longest.

    Any thread may use it; an entry may be gone whenever it is looked for.

    Example:
        >>> table = Recent[str, int](2)
        >>> table["a"], table["b"] = 1, 2
        >>> table["a"]
        1
        >>> table["c"] = 3
        >>> table.get("a"), table.get("b"), len(table)
        (1, None, 2)
    """

    __slots__ = ("_entries", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[Key, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, key: Key) -> Kept:
        found = self._entries[key]
        with suppress(KeyError):  # another thread has just let it go
            self._entries.move_to_end(key)
        return found

    def get(self, key: Key) -> Kept | None:
        """Return the entry of a key, None if there is none."""
        try:
            return self[key]
        except KeyError:
            return None

    def __setitem__(self, key: Key, value: Kept) -> None:
        self._entries[key] = value
        while len(self._entries) > self.limit:
            with suppress(KeyError):
                self._entries.popitem(last=False)

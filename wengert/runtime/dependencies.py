"""What must wait for what, judged by memory: who reads or writes bytes that others write.

Work that is given in an order may be done in any other in which each reads what it would have read: it waits for those who
wrote what it reads, and for those who read or wrote what it writes over. (The hazards RAW, WAR and WAW of A. J. Bernstein,
"Analysis of programs for parallel processing", IEEE Transactions on Electronic Computers 15, 1966.)

Memory is looked at as ranges of addresses: of an array with gaps, a column of a matrix, the gaps count as well. So two may
be told to wait for each other who need not, but never the other way about.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from numpy.lib.array_utils import byte_bounds

__all__ = ["Access", "Range", "dependencies", "ranges"]

Range = tuple[int, int]  # the first address, and the one behind the last


class Access(NamedTuple):
    """The memory that a piece of work touches.

    Attributes:
        reads, writes: ranges of addresses; they may overlap.
    """

    reads: Sequence[Range]
    writes: Sequence[Range]


def ranges(arrays: Iterable[Any]) -> list[Range]:
    """Return where arrays lie, each range once; empty arrays lie nowhere.

    >>> import numpy as np
    >>> x = np.zeros((4, 4))
    >>> [(low, high)] = ranges([x[:, 1], x[:, 1], x[:0]])
    >>> (high - low) // 8
    13
    """
    return list(dict.fromkeys(byte_bounds(array) for array in arrays if array.size))


class _Piece:
    """Bytes that have one history.

    Attributes:
        end: the address behind the last. writer: who wrote them last, or -1. readers: who has read them since.
    """

    __slots__ = ("end", "readers", "writer")

    def __init__(self, end: int, writer: int, readers: list[int]) -> None:
        self.end, self.writer, self.readers = end, writer, readers


class _Memory:
    """Who touched which bytes last: pieces that do not overlap, by their first addresses."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._pieces: dict[int, _Piece] = {}

    def read(self, who: int, low: int, high: int) -> set[int]:
        """Return who must have ended before a range is read, and remember the reader."""
        found: set[int] = set()
        for piece in self._within(low, high):
            if piece.writer >= 0:
                found.add(piece.writer)
            piece.readers.append(who)
        return found

    def write(self, who: int, low: int, high: int) -> set[int]:
        """Return who must have ended before a range is written, and remember the writer."""
        found: set[int] = set()
        for piece in self._within(low, high):
            found.update(piece.readers or [piece.writer])  # readers have themselves waited for the writer
        first, last = (bisect_left(self._begins, place) for place in (low, high))
        for begin in self._begins[first:last]:
            del self._pieces[begin]
        self._begins[first:last] = [low]
        self._pieces[low] = _Piece(high, who, [])
        found.discard(-1)
        return found

    def _within(self, low: int, high: int) -> list[_Piece]:
        """Return the pieces that make up a range; those that reach over its ends are cut, and gaps become pieces."""
        self._cut(low)
        self._cut(high)
        first, last = (bisect_left(self._begins, place) for place in (low, high))
        begins, place = [], low
        for begin in [*self._begins[first:last], high]:
            if begin > place:
                self._pieces[place] = _Piece(begin, -1, [])
                begins.append(place)
            if begin < high:
                begins.append(begin)
                place = self._pieces[begin].end
        self._begins[first:last] = begins
        return [self._pieces[begin] for begin in begins]

    def _cut(self, place: int) -> None:
        """Make two pieces of one that reaches over an address."""
        at = bisect_left(self._begins, place)
        if at and (piece := self._pieces[self._begins[at - 1]]).end > place:
            self._begins.insert(at, place)
            self._pieces[place] = _Piece(piece.end, piece.writer, list(piece.readers))
            piece.end = place


def dependencies(accesses: Sequence[Access]) -> list[list[int]]:
    """Return for each piece of work, given in an order, those before it that must have ended before it begins.

    Those that it waits for by way of others may be left out. Takes O(n log n) for n ranges, if none covers many others.

    Example:
        >>> x, y, z = (0, 8), (8, 16), (16, 24)
        >>> dependencies([Access([x], [y]), Access([x], [z]), Access([y, z], [x]), Access([], [y])])
        [[], [], [0, 1], [2]]
    """
    memory = _Memory()
    found: list[list[int]] = []
    for who, access in enumerate(accesses):
        firsts: set[int] = set()
        for low, high in access.reads:
            firsts |= memory.read(who, low, high)
        for low, high in access.writes:
            firsts |= memory.write(who, low, high)
        firsts.discard(who)
        found.append(sorted(firsts))
    return found

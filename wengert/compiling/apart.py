"""Which tensors of a program lie in the same memory: it is right only where they do, and nothing that it writes lies in others.

Tensors on the same memory are one value of a program, and a write to one is seen in the other. Tensors that are apart are read
and written apart. A call says neither by itself: ``f(x, y)``, ``f(x, x.detach())`` and ``f(x, x[1:])`` may look alike.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from wengert.compiling.sources import Held, Source
from wengert.compiling.straight import Names

__all__ = ["Apart"]

Pair = tuple[Source, Source, int]


class Apart:
    """What must hold of the memory of a program's tensors.

    Args:
        sources: of its inputs. written: of those that it writes.
        same: pairs that lie in the same memory, the second one so many bytes behind the first.

    Attributes:
        same: these pairs.
    """

    def __init__(self, sources: Sequence[Source], written: Sequence[Source], same: Sequence[Pair]) -> None:
        targets = {s.key for s in written if not isinstance(s, Held)}
        self.same = list(same)
        self._lasting = [pair for pair in same if isinstance(pair[0], Held) and isinstance(pair[1], Held)]
        self._each = [pair for pair in same if pair not in self._lasting]
        self._coming = [s for s in sources if not isinstance(s, Held)] if written else []
        self._written = [source.key in targets for source in self._coming]
        self._targets = any(self._written)
        self._held = [s.held for s in sources if isinstance(s, Held)] if written else []
        self._kept = {id(s.held) for s in written if isinstance(s, Held)}
        self._ranges: _Ranges | None = None  # of what nothing else may lie in

    def moved(self) -> None:
        """Take note that a tensor that the function holds may have got other memory."""
        self._ranges = None

    def holds(self, leaves: Sequence[Any]) -> bool:
        """Whether the tensors of a call lie where they may."""
        ranges = self._ranges
        if ranges is None:
            if not _are_same(self._lasting, leaves) or (ranges := self._look()) is None:
                return False
            self._ranges = ranges
        if self._each and not _are_same(self._each, leaves):
            return False
        if not self._coming:
            return True
        arrays = [source.tensor(leaves)._payload for source in self._coming]
        owners = list(map(_owner, arrays))
        apart = 0 not in owners and 0 not in ranges.owners and ranges.owners.isdisjoint(owners)
        if apart and (not self._targets or len(set(owners)) == len(owners)):
            return True
        places = list(map(_place, arrays))
        return not any(map(ranges.meet, places)) and not self._meet(places)

    def conditions(self, name: Names) -> Iterator[str]:
        """Yield, as Python, what :meth:`holds` asks; what arrays of their own lie in is apart, at a glance."""
        asked, ranges = f"{name(self.holds)}(leaves)", self._ranges
        if ranges is None or self._each or self._targets or 0 in ranges.owners:
            yield asked
        elif self._coming:
            yield f"({' and '.join(_owned_apart(s.text(name), ranges.owners, name) for s in self._coming)} or {asked})"

    def _look(self) -> "_Ranges | None":
        """Return where the tensors that the function holds lie; None if one that is written lies in another one."""
        kept = _Ranges([tensor._payload for tensor in self._held if id(tensor) in self._kept])
        others = [tensor._payload for tensor in self._held if id(tensor) not in self._kept]
        if kept.overlap or any(kept.meet(_place(array)) for array in others):
            return None
        return _Ranges([tensor._payload for tensor in self._held]) if self._targets else kept

    def _meet(self, places: Sequence["Place"]) -> bool:
        """Whether a tensor that comes with the call and is written lies in the memory of another one."""
        return any(
            written and any(_overlap(place, other) for j, other in enumerate(places) if j != k)
            for k, (written, place) in enumerate(zip(self._written, places, strict=True))
        )


Place = tuple[int, int]  # where memory begins, and where it ends


class _Ranges:
    """The memory of arrays, to be asked whether that of another one meets it.

    Attributes:
        overlap: whether they meet one another. owners: the identities of the arrays that own this memory.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        found = sorted(place for place in map(_place, arrays) if place[0] < place[1])
        self._starts = [start for start, _ in found]
        self._ends = list(accumulate((end for _, end in found), max))
        self.overlap = any(start < end for start, end in zip(self._starts[1:], self._ends, strict=False))
        self.owners = set(map(_owner, arrays))

    def meet(self, place: Place) -> bool:
        """Whether a piece of memory has bytes in common with one of these."""
        start, end = place
        before = bisect_left(self._starts, end)
        return start < end and before > 0 and self._ends[before - 1] > start


def _overlap(one: Place, other: Place) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


def _are_same(pairs: Sequence[Pair], leaves: Sequence[Any]) -> bool:
    return all(_start(b.tensor(leaves)) - _start(a.tensor(leaves)) == offset for a, b, offset in pairs)


def _start(tensor: Any) -> int:
    """Return where the first element of a tensor lies."""
    return int(tensor._payload.__array_interface__["data"][0])


def _owner(array: Any) -> int:
    """Return the identity of the array that owns the memory of one; 0 if that is no array of NumPy's own.

    What different arrays own is apart. So most calls need no addresses, which take NumPy long to tell.
    """
    while type(base := array.base) is np.ndarray:
        array = base
    return id(array) if base is None and array.flags.owndata else 0


def _owned_apart(tensor: str, owners: set[int], name: Names) -> str:
    """Return, as Python, whether :func:`_owner` of a tensor's array is none of some; it may say no of a view of a view."""
    return (
        f"type(owner := array if (base := (array := {tensor}._payload).base) is None else base) is {name(np.ndarray)} "
        f"and owner.base is None and owner.flags.owndata and {name(id)}(owner) not in {name(owners)}"
    )


def _place(array: Any) -> Place:
    if array.flags.c_contiguous:
        start = int(array.__array_interface__["data"][0])
        return start, start + array.nbytes
    start, end = np.lib.array_utils.byte_bounds(array)
    return (int(start), int(end)) if array.size else (0, 0)

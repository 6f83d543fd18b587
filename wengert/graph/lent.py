"""Memory that the function being captured can also get hold of without tensors: no graph can say what it does there.

An array of NumPy, or another buffer, and a tensor may lie in the same memory: because the tensor was made of it
(``from_numpy``, ``as_tensor``, ``frombuffer``, ``from_dlpack`` …), because it was given away (``numpy()``, ``__dlpack__``), or
because the function reaches both. What NumPy writes during the capture is noticed, as far as it stays. What a program would
write into a tensor there NumPy would not see in time: it is refused.
"""

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from wengert.graph.refusals import NotCapturable
from wengert.graph.storage import Storage, Traced

__all__ = ["Lent", "is_borrowed"]

REACHED = "that the function reads by NumPy, too"


def is_borrowed(array: Any) -> bool:
    """Whether an array lies in memory that is not NumPy's own: of ``bytes``, a file, or another library."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array.base is not None


class Lent:
    """Arrays of values that a graph holds, or has given away, and what was in them.

    Attributes:
        reached: returns arrays in whose memory lies what the function gets hold of by names.
    """

    def __init__(self) -> None:
        self.reached: Callable[[], Iterable[Any]] = tuple
        self._arrays: list[tuple[Any, int]] = []
        self._shared: dict[int, tuple[Any, str]] = {}
        self._storages: dict[int, tuple[Storage, str]] = {}
        self._places: dict[int, tuple[Storage, Any, Any]] = {}  # the tensors that storages are of, and their arrays

    def lend(self, array: Any) -> Any:
        """Take note of what is in an array; return it."""
        self._arrays.append((array, _checksum(array)))
        return array

    def share(self, array: Any, why: str) -> None:
        """Take note of an array of the user's, in whose memory a tensor lies."""
        self._shared[id(array)] = array, why

    def give(self, level: Any, tensor: Any, why: str) -> None:
        """Take note of a tensor whose memory the user gets as an array."""
        held = tensor._payload
        if type(held) is np.ndarray and level.known(held):
            self.share(held, why)
        elif type(held) is np.ndarray or isinstance(held, Traced):  # and else it is one of these that gives it away
            storage = level.payload_of(tensor).storage
            self._storages[id(storage)] = storage, why

    def storage(self, tensor: Any, array: Any, storage: Storage) -> Storage:
        """Take note of the storage of a tensor on an array; return it."""
        self._places[id(storage)] = storage, tensor, array
        shared = self._shared.get(id(array))
        if shared is not None:
            self._storages[id(storage)] = storage, shared[1]
        if storage.source is not None and (shared is not None or is_borrowed(array) or self.is_reached(array)):
            self.lend(array)
        return storage

    def is_reached(self, array: Any) -> bool:
        """Whether an array lies in memory that the function gets hold of by names."""
        return any(np.may_share_memory(array, other) for other in self.reached())

    def unreached(self) -> list[Any]:
        """Return the arrays that constants were made of and that the function may get hold of in other ways than by names."""
        places = [(storage, array) for storage, _, array in self._places.values() if id(array) in self._shared]
        return [array for storage, array in places if storage.source is None and not self.is_reached(array)]

    def made_of(self, tensor: Any) -> tuple[Any, Any] | None:
        """Return the tensor, or the one that it is a view of, and its array, if it was made of the user's memory; else None."""
        array = tensor._payload
        if isinstance(array, Traced):
            _, tensor, array = self._places.get(id(array.storage), (None, None, None))
        return (tensor, array) if id(array) in self._shared else None

    def check_write(self, name: str, storage: Storage) -> None:
        """Refuse to write into memory that is the user's, too, which a program does not hold.

        Raises:
            NotCapturable: if the storage is that of such memory.
        """
        found = self._storages.get(id(storage))
        why = None if found is None else found[1]
        if why is None and storage.source is not None and self.is_reached(self._places[id(storage)][2]):
            why = REACHED
        if why is not None:
            raise NotCapturable(f"{name}() writes into the array of a tensor {why}; clone() it first")

    def check(self) -> None:
        """Compare the arrays with what was in them.

        Raises:
            NotCapturable: if one has been written.
        """
        if any(_checksum(array) != before for array, before in self._arrays):
            raise NotCapturable("it writes into the array of a tensor by NumPy; write into the tensor, with copy_()")


def _checksum(array: Any) -> int:
    flat: Any = np.ascontiguousarray(array).reshape(-1)
    return zlib.crc32(flat.view(np.uint8)) if array.size else 0

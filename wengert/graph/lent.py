"""Arrays that the function being captured can get hold of: no graph can say that NumPy writes into one."""

import zlib
from typing import Any

import numpy as np

from wengert.graph.refusals import NotCapturable
from wengert.graph.storage import Storage

__all__ = ["Lent"]


class Lent:
    """Arrays of values that a graph holds, or has given away, and what was in them."""

    def __init__(self) -> None:
        self._arrays: list[tuple[Any, int]] = []
        self._shared: list[Any] = []
        self._storages: list[Storage] = []

    def lend(self, array: Any) -> Any:
        """Take note of what is in an array; return it."""
        self._arrays.append((array, _checksum(array)))
        return array

    def share(self, array: Any) -> None:
        """Take note of an array of the user's, in whose memory a tensor lies."""
        self._shared.append(array)

    def storage(self, array: Any, storage: Storage) -> Storage:
        """Take note of the storage of an array; return it."""
        if any(array is shared for shared in self._shared):
            self._storages.append(storage)
        return storage

    def check_write(self, name: str, storage: Storage) -> None:
        """Refuse to write into a user's array, which a program does not hold.

        Raises:
            NotCapturable: if the storage is that of one.
        """
        if any(storage is one for one in self._storages):
            raise NotCapturable(f"{name}() writes into the array of a tensor that from_numpy() made; clone() it first")

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

"""Batches from one process to another: arrays through shared memory, the rest as a pickle.

The sender copies the arrays of a batch into a block of shared memory, the receiver copies them out of it, and the block is
used again. Blocks are numbered, so that the receiver can remove them if the sender was killed.
"""

import pickle
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.shared_memory import SharedMemory
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Parcel", "Receiver", "Sender"]

_SMALL = 1 << 14  # bytes of arrays that are sent with the message itself
_ALIGNMENT = 64


class Parcel(NamedTuple):
    """A batch on its way: its pickle, and the sizes of its arrays, which are in a block, or the arrays' bytes."""

    pickled: bytes
    block: int | None
    contents: Sequence[Any]


class Sender:
    """The side of a worker. ``name`` is what the names of its blocks begin with."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.blocks: dict[int, SharedMemory] = {}
        self.free: set[int] = set()
        self.count = 0

    def pack(self, batch: Any) -> Parcel:
        """Return what is to be sent, with the arrays in a block."""
        found: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(batch, protocol=5, buffer_callback=found.append)
        buffers = [buffer.raw() for buffer in found]
        if sum(buffer.nbytes for buffer in buffers) < _SMALL:
            return Parcel(pickled, None, [bytearray(buffer) for buffer in buffers])
        block = self._block(sum(map(_padded, (buffer.nbytes for buffer in buffers))))
        place: Any = self.blocks[block].buf
        at = 0
        for buffer in buffers:
            place[at : at + buffer.nbytes] = buffer
            at += _padded(buffer.nbytes)
        return Parcel(pickled, block, [buffer.nbytes for buffer in buffers])

    def release(self, block: int) -> None:
        """Use a block again."""
        self.free.add(block)

    def _block(self, size: int) -> int:
        """A free block of at least ``size`` bytes."""
        for block in sorted(self.free, key=lambda b: self.blocks[b].size):
            if self.blocks[block].size >= size:
                self.free.discard(block)
                return block
        for block in list(self.free):  # too small: batches have grown
            _remove(self.blocks.pop(block))
        self.free.clear()
        block, self.count = self.count, self.count + 1
        self.blocks[block] = SharedMemory(f"{self.name}{block}", create=True, size=size)
        return block

    def close(self) -> None:
        """Remove all blocks."""
        for block in self.blocks.values():
            _remove(block)
        self.blocks.clear()
        self.free.clear()


class Receiver:
    """The side of the loader."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.blocks: dict[int, SharedMemory] = {}
        self.next = 0  # the first block that was never noted

    def unpack(self, parcel: Parcel) -> Any:
        """Return the batch, in memory of its own; its block may be used again."""
        buffers = parcel.contents
        if parcel.block is not None:
            place: Any = self._block(parcel.block).buf
            buffers, at = [], 0
            for size in parcel.contents:
                buffers.append(np.frombuffer(place, np.uint8, size, at).copy())
                at += _padded(size)
        return pickle.loads(parcel.pickled, buffers=buffers)

    def _block(self, block: int) -> SharedMemory:
        if block not in self.blocks:
            self.blocks[block] = SharedMemory(f"{self.name}{block}")
            self.note(block)
        return self.blocks[block]

    def note(self, block: int) -> None:
        """Note that there is a block, so that it is removed at the end."""
        self.next = max(self.next, block + 1)

    def close(self) -> None:
        """Remove what a sender that is gone has left; at most one block more than was noted."""
        for block in range(self.next + 1):
            try:
                found = self.blocks.pop(block, None) or SharedMemory(f"{self.name}{block}")
            except (FileNotFoundError, ValueError):  # removed by the sender, or killed before it had a size
                continue
            _remove(found)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _remove(block: SharedMemory) -> None:
    block.close()
    with suppress(FileNotFoundError):  # the other side was first
        block.unlink()

"""Random state: a seed and a position in its stream of numbers."""

import os
import threading
from typing import Any

import numpy as np

from wengert.array.device import to_device
from wengert.core.state import thread
from wengert.core.tensor import Tensor, from_array
from wengert.kernels import philox

__all__ = ["Generator", "default_generator", "draw"]

_MASK = (1 << 64) - 1


class Generator:
    """A stream of random numbers: Philox 4×32-10 (Salmon et al., SC'11) of a 64-bit seed, read from a position on.

    The numbers depend on seed and position alone: the same seed gives the same numbers, whatever the number of
    threads.

    Example:
        >>> import wengert as wg
        >>> g = wg.Generator().manual_seed(5)
        >>> state = g.get_state()
        >>> a = wg.rand(3, generator=g)
        >>> _ = g.set_state(state)
        >>> bool((wg.rand(3, generator=g) == a).all())
        True
    """

    def __init__(self, device: Any = "cpu") -> None:
        self.device = to_device(device)
        self._lock = threading.Lock()
        self.key, self.offset = 67280421310721, 0

    def manual_seed(self, seed: int) -> "Generator":
        """Start the stream of ``seed`` (any integer; taken modulo 2⁶⁴) from its beginning; return the generator."""
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise TypeError(f"manual_seed() takes an int, got {type(seed).__name__}")
        with self._lock:
            self.key, self.offset = seed.__index__() & _MASK, 0
        return self

    def seed(self) -> int:
        """Start the stream of a seed taken from the operating system; return the seed."""
        seed = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """Return the seed."""
        return self.key

    def get_state(self) -> Tensor:
        """Return seed and position as a uint64 tensor of two elements, for :meth:`set_state`."""
        return from_array(np.array([self.key, self.offset], np.uint64))

    def set_state(self, state: Any) -> "Generator":
        """Continue from a state of :meth:`get_state`.

        Raises:
            ValueError: if it is not one.
        """
        array: Any = state._payload if isinstance(state, Tensor) else np.asarray(state)
        if array.shape != (2,) or array.dtype != np.uint64:
            raise ValueError(
                f"a generator state is a uint64 tensor of 2 elements, got {array.dtype} of shape {array.shape}"
            )
        with self._lock:
            self.key, self.offset = int(array[0]), int(array[1])
        return self

    def split(self, count: int = 2) -> tuple["Generator", ...]:
        """Return ``count`` generators of independent streams, derived from seed and position; this one moves on."""
        with self._lock:
            parent = philox.fold_in(self.key, self.offset)
            self.offset += 1
        return tuple(_at(int(key), 0) for key in philox.split(parent, count))

    fork = split

    def __reduce__(self) -> tuple[Any, ...]:
        return _at, (self.key, self.offset)

    def __repr__(self) -> str:
        return f"Generator(seed={self.key}, offset={self.offset})"


def _at(key: int, offset: int) -> Generator:
    """Return a generator of a seed at a position of its stream: what a pickled or copied one is made again from."""
    made = Generator()
    made.key, made.offset = key, offset
    return made


default_generator = Generator()


def draw(generator: Generator | None, sampler: Any, *args: Any) -> Any:
    """Call ``sampler(key, offset, *args)``, which returns an array and how far it moved, and move the generator on."""
    source = generator if generator is not None else thread.state.generator or default_generator
    if not isinstance(source, Generator):
        raise TypeError(f"generator must be a wengert.Generator, got {type(generator).__name__}")
    with source._lock:
        array, used = sampler(source.key, source.offset, *args)
        source.offset += used
    return array

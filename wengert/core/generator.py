"""Random state: a seed and a position in its stream of numbers."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.array.device import devices, index_of, placed, to_device, unplaced
from wengert.core.interpret import Level, Payload
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, from_array, raw
from wengert.errors import CaptureError
from wengert.kernels import philox

__all__ = ["Generator", "default_generator", "draw"]

_MASK = (1 << 64) - 1
Sampler = Callable[..., tuple[Any, int]]


def _refuse_in_capture(what: str) -> None:
    """Refuse what would be done once, when a function is captured, and not at each call."""
    if thread.state.captures is not None:
        raise CaptureError(f"{what} of a generator inside a compiled function; call it outside")


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
        _refuse_in_capture("manual_seed()")
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

    def take(self, sampler: Sampler, shape: tuple[int, ...], parameters: Sequence[Any]) -> Any:
        """Return the array that ``sampler`` draws from here on, and move on."""
        with self._lock:
            array, used = sampler(self.key, self.offset, shape, *parameters)
            self.offset += used
        return array

    def get_state(self) -> Tensor:
        """Return seed and position as a uint64 tensor of two elements, for :meth:`set_state`."""
        _refuse_in_capture("get_state()")
        return from_array(np.array([self.key, self.offset], np.uint64))

    def set_state(self, state: Any) -> "Generator":
        """Continue from a state of :meth:`get_state`.

        Raises:
            ValueError: if it is not one.
        """
        _refuse_in_capture("set_state()")
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
        _refuse_in_capture("split()")
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


def draw(name: str, generator: Generator | None, sampler: Sampler, shape: tuple[int, ...], *parameters: Any) -> Tensor:
    """Return random numbers as a tensor, and move the generator on.

    This is the one place that says what a random operator does under vmap: examples that are to get different numbers
    share one draw, larger by a dimension for each such level; examples that are to get the same are drawn once, or, where
    their parameters differ, each from the same state.

    Args:
        name: of the operator, for messages. generator: None means the one of the thread, or the default one.
        sampler: called with (key, offset, shape, parameters...), returns an array whose shape begins with ``shape``, and
            how far it moved in the stream.
        shape: of one example.
        parameters: tensors that broadcast to ``shape`` (or have it in front); anything else is passed on as it is.

    Raises:
        RuntimeError: under a vmap that was not told its ``randomness``.
    """
    source = generator if generator is not None else thread.state.generator or default_generator
    if not isinstance(source, Generator):
        raise TypeError(f"generator must be a wengert.Generator, got {type(generator).__name__}")
    levels = thread.state.levels
    if not levels:
        arrays = [raw(v, f"{name}()") if isinstance(v, Tensor) else v for v in parameters]
        if devices.several:
            found = (index_of(a.dtype) for a in arrays if isinstance(a, np.ndarray))
            index = next((i for i in found if i is not None), None)
            return from_array(placed(source.take(sampler, shape, [unplaced(a) for a in arrays]), index))
        return from_array(source.take(sampler, shape, arrays))
    return _draw_inside(name, source, sampler, shape, parameters, levels)


class _Parameter:
    """A parameter on its way down through the levels.

    Attributes:
        value: what it is below the levels seen so far. ndim: of one example. lead: the dimensions that the levels seen gave
            it in front, the innermost level's first; of size 1 where all its examples share it.
    """

    def __init__(self, value: Any) -> None:
        self.value, self.ndim = value, len(value._payload.shape) if isinstance(value, Tensor) else 0
        self.lead: list[int] = []

    def descend(self, level: Level) -> int | None:
        """Go below a level; return the number of examples that differ in it there, or None."""
        held = self.value._payload if isinstance(self.value, Tensor) else None
        if not isinstance(held, Payload) or held.level is not level:
            return None
        self.value = held.carrier
        below = held.carrier._payload.shape
        return below[0] if len(below) > len(held.shape) else None

    def array(self, name: str, ndim: int) -> Any:
        """Return the array, its dimensions in front aligned for a draw of ``ndim`` dimensions for each example."""
        if not isinstance(self.value, Tensor):
            return self.value
        if thread.state.captures is not None:
            shape = tuple(self.value._payload.shape)
            own = shape[len(shape) - self.ndim :]
            return ops.reshape(self.value, (*reversed(self.lead), *(1,) * (ndim - len(own)), *own))
        array = raw(self.value, f"{name}()")
        own = array.shape[array.ndim - self.ndim :]
        return array.reshape((*reversed(self.lead), *(1,) * (ndim - len(own)), *own))


def _draw_inside(
    name: str, source: Generator, sampler: Sampler, shape: tuple[int, ...], parameters: Any, levels: list[Level]
) -> Tensor:
    """Draw for all examples of the levels at once, and return the numbers as a tensor of the innermost that differs."""
    given = [_Parameter(v) for v in parameters]
    owners: list[Level] = []
    sizes: list[int] = []
    tied: list[bool] = []
    for level in reversed(levels):
        different = level.drawing(name)
        found = [p.descend(level) for p in given]
        count = next((n for n in (different, *found) if n is not None), None)
        if count is not None:
            owners.insert(0, level)
            sizes.insert(0, count)
            tied.insert(0, different is None)
            for p, n in zip(given, found, strict=True):
                p.lead.append(1 if n is None else n)
    arrays = [p.array(name, len(shape)) for p in given]
    if levels[0].takes_plain:
        tensor = levels[0].sampled(name, source, _tied(sampler, sizes, tied), (*sizes, *shape), arrays)
    else:
        tensor = from_array(source.take(_tied(sampler, sizes, tied), (*sizes, *shape), arrays))
    for level in owners:
        tensor = level.stacked(tensor)
    return tensor


def _tied(sampler: Sampler, sizes: list[int], tied: list[bool]) -> Sampler:
    """Return the sampler that draws from one and the same state along the dimensions in front that are tied."""
    along = [d for d, t in enumerate(tied) if t]
    counts = [sizes[d] for d in along]
    if not along or 0 in counts:
        return sampler
    free = [n for n, t in zip(sizes, tied, strict=True) if not t]

    def draw_each(key: int, offset: int, shape: tuple[int, ...], *arrays: Any) -> tuple[Any, int]:
        parts, furthest = [], 0
        for place in np.ndindex(*counts):
            part, used = sampler(key, offset, (*free, *shape[len(sizes) :]), *[at(a, place) for a in arrays])
            parts.append(part)
            furthest = max(furthest, used)
        stacked = np.stack(parts).reshape(*counts, *parts[0].shape)
        return np.moveaxis(stacked, range(len(along)), along), furthest

    def at(array: Any, place: tuple[int, ...]) -> Any:
        if not isinstance(array, np.ndarray):
            return array
        index: list[Any] = [slice(None)] * len(sizes)
        for d, i in zip(along, place, strict=True):
            index[d] = i if array.shape[d] > 1 else 0
        return array[tuple(index)]

    return draw_each

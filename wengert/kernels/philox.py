"""Philox 4x32-10: random bits as a pure function of a key and a counter.

The generator is that of J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as
1, 2, 3" (SC'11): ten rounds of multiplication and exclusive-or turn a 128-bit counter into a block of four 32-bit words
under a 64-bit key. Nothing is carried from one block to the next, so a number depends on where it stands and never on
who asked for it, in what order, in how large pieces or on how many threads.

How the counter is spent. Its low half is a position, its high half is ``domain << 32 | draw``:

==========  ==============================  ==============================================================
domain      position                        gives
==========  ==============================  ==============================================================
stream      block number                    the words of `words`: word ``i`` is word ``i % 4`` of block ``i // 4``
element     word offset of an element       as many further blocks as that element needs (`element_bits`, `retry`)
split       index of the new key            the keys of `split`
fold        the integer folded in           the key of `fold_in`
==========  ==============================  ==============================================================

No two rows share a counter, so no two uses of one key share a block.
"""

import operator
from collections.abc import Callable
from functools import lru_cache
from itertools import count as count_from
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "KEY_LIMIT",
    "Bits",
    "Words",
    "bits64",
    "element_bits",
    "element_positions",
    "fold_in",
    "retry",
    "split",
    "words",
]

Words = npt.NDArray[np.uint32]
Bits = npt.NDArray[np.uint64]

KEY_LIMIT = 1 << 64
"""Keys, offsets and folded integers lie in ``[0, KEY_LIMIT)``."""

_ROUNDS = 10
_WEYL = np.array([0x9E3779B9, 0xBB67AE85], np.uint64)
_MULTIPLIERS = np.array([[0xCD9E8D57], [0xD2511F53]], np.uint64)  # of counter words 2 and 0, the order of `_encrypt`
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)

_STREAM, _ELEMENT, _SPLIT, _FOLD = range(4)
_CHUNK = 8192  # blocks encrypted at a time: three working arrays of 128 KiB stay in the second-level cache
_PAGE = 4096  # words; a page costs little more than one block, so short draws share it
_RETRY_CHUNK = 16384  # elements proposed at a time
_MAX_DRAWS = 1000  # every proposal here is accepted with probability 0.4 or more: 0.6**1000 is 1e-222


def words(key: int, offset: int, count: int) -> Words:
    """Words ``offset, ..., offset + count - 1`` of the stream of `key`, as a fresh uint32 array.

    `offset` counts 32-bit words. A longer request begins with a shorter one, and two neighbouring requests joined are
    the same as one request over both.

    Raises:
        ValueError: if `key` or `offset` is not in ``[0, 2**64)``, `count` is negative, or the stream, which is 2**64
            words long, ends before ``offset + count``.

    Example:
        >>> [hex(w) for w in words(0, 0, 5)]
        ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8', '0xf8e4cca4']
        >>> bool((words(0, 3, 2) == words(0, 0, 5)[3:]).all())
        True
    """
    key, offset, count = _unsigned("key", key), *_in_stream(offset, count)
    end = offset + count
    if count <= _PAGE:
        first = offset // _PAGE
        pages = [_page(key, number) for number in range(first, -(-end // _PAGE))]
        joined = pages[0] if len(pages) == 1 else np.concatenate(pages or [np.empty(0, np.uint32)])
        start = offset - first * _PAGE
        return joined[start : start + count].copy()
    first = offset // 4
    blocks = _blocks(key, np.arange(first, -(-end // 4), dtype=np.uint64), _STREAM, 0).reshape(-1)
    inner = blocks[offset - first * 4 : end - first * 4]
    return inner if offset == first * 4 else inner.copy()  # aligned, for whoever reads the words in pairs


def bits64(key: int, offset: int, count: int) -> Bits:
    """`count` integers of 64 bits made of ``words(key, offset, 2 * count)``, the first word of a pair the low half.
    Errors as for `words`.

    Example:
        >>> hex(bits64(0, 0, 1)[0])
        '0xe169c58d6627e8d5'
    """
    return _pairs(words(key, offset, 2 * count))


def element_positions(offset: int, count: int) -> Bits:
    """The positions of `count` elements that spend one word each from `offset` on; ValueError as for `words`."""
    offset, count = _in_stream(offset, count)
    return np.uint64(offset) + np.arange(count, dtype=np.uint64)


def element_bits(key: int, positions: Bits, draw: int) -> Bits:
    """The `draw`-th block of the sub-stream of every position: 64-bit integers of shape ``(len(positions), 2)``.

    A position is the word offset at which an element's own words begin, which no other element of the stream shares.
    What an element draws here does not depend on how often others had to draw. `draw` counts from 0 to 2**32 - 1.
    """
    return _pairs(_blocks(_unsigned("key", key), positions, _ELEMENT, draw))


def retry(
    key: int,
    positions: Bits,
    propose: Callable[[Bits, npt.NDArray[np.intp]], tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]],
    dtype: npt.DTypeLike = np.float64,
) -> npt.NDArray[Any]:
    """Draw for every position until its proposal is accepted: vectorised rejection sampling.

    ``propose(bits, indices)`` gets the blocks (`element_bits`, draws 1, 2, ...; draw 0 is left to the caller) of the
    elements ``positions[indices]`` that are still without a value, and returns proposals and which of them to accept.

    Raises:
        RuntimeError: if an element has no value after 1000 draws, which a correct `propose` never causes.
    """
    result = np.empty(len(positions), dtype)
    for start in range(0, len(positions), _RETRY_CHUNK):
        pending = np.arange(start, min(start + _RETRY_CHUNK, len(positions)))
        for draw in count_from(1):
            if draw > _MAX_DRAWS:
                raise RuntimeError(f"no proposal accepted in {_MAX_DRAWS} draws for element {pending[0]}")
            values, accepted = propose(element_bits(key, positions[pending], draw), pending)
            result[pending[accepted]] = values[accepted]
            pending = pending[~accepted]
            if not pending.size:
                break
    return result


def split(key: int, count: int) -> list[int]:
    """`count` new keys for independent streams; the first ``k`` of them are the same whatever `count` is.

    Key ``i`` is the first two words of the block at position ``i`` in the split domain of `key`, the idea of JAX's key
    splitting (JEP 263): a key is an output of its parent at a counter that draws never reach. Distinct keys meet by
    chance only: with probability below ``n**2 / 2**65`` among `n` keys in all.

    Raises:
        ValueError: if `key` is not in ``[0, 2**64)`` or `count` is negative.

    Example:
        >>> split(0, 3)[:2] == split(0, 2)
        True
    """
    return _derived(key, np.arange(_count(count), dtype=np.uint64), _SPLIT)


def fold_in(key: int, data: int) -> int:
    """The new key of `key` for the integer `data` in ``[0, 2**64)``, such as a step, layer or worker number.

    The first two words of the block at position `data` in the fold domain of `key`, which no `split` reaches.

    Raises:
        ValueError: if `key` or `data` is not in ``[0, 2**64)``.

    Example:
        >>> fold_in(0, 7) == fold_in(0, 7), fold_in(0, 7) == fold_in(0, 8)
        (True, False)
    """
    return _derived(key, np.array([_unsigned("data", data)], np.uint64), _FOLD)[0]


def _derived(key: int, positions: Bits, domain: int) -> list[int]:
    keys: list[int] = _pairs(_blocks(_unsigned("key", key), positions, domain, 0))[:, 0].tolist()
    return keys


def _unsigned(name: str, value: int) -> int:
    value = operator.index(value)
    if not 0 <= value < KEY_LIMIT:
        raise ValueError(f"{name} must be in [0, 2**64), got {value}")
    return value


def _in_stream(offset: int, count: int) -> tuple[int, int]:
    offset, count = _unsigned("offset", offset), _count(count)
    if offset + count > KEY_LIMIT:
        raise ValueError(f"the stream of a key ends after 2**64 words, but {count} were asked for at offset {offset}")
    return offset, count


def _count(count: int) -> int:
    count = operator.index(count)
    if count < 0:
        raise ValueError(f"count must not be negative, got {count}")
    return count


def _pairs(array: Words) -> Bits:
    """Neighbouring words as 64-bit integers, the first the low half on every machine."""
    return array.astype("<u4", copy=False).view("<u8")


@lru_cache(maxsize=16)
def _page(key: int, number: int) -> Words:
    """Words ``number * _PAGE`` and following: many short draws cost one encryption."""
    first = number * (_PAGE // 4)
    page = _blocks(key, np.arange(first, first + _PAGE // 4, dtype=np.uint64), _STREAM, 0).reshape(-1)
    page.flags.writeable = False
    return page


@lru_cache(maxsize=16)
def _key_schedule(key: int) -> list[Bits]:
    """The two key words of every round, each as a column of shape (2, 1)."""
    start = np.array([key & 0xFFFFFFFF, key >> 32], np.uint64)
    schedule = (start + np.arange(_ROUNDS, dtype=np.uint64)[:, None] * _WEYL) & _LOW
    return list(schedule[:, :, None])


def _blocks(key: int, positions: Bits, domain: int, draw: int) -> Words:
    """The blocks at the counters (position, domain << 32 | draw), shape (len(positions), 4)."""
    schedule = _key_schedule(key)
    out = np.empty((len(positions), 4), np.uint32)
    even, odd, product = np.empty((3, 2, min(_CHUNK, len(positions))), np.uint64)
    for start in range(0, len(positions), _CHUNK):
        low = positions[start : start + _CHUNK]
        block = slice(start, start + len(low))
        x, y, p = even[:, : len(low)], odd[:, : len(low)], product[:, : len(low)]
        np.bitwise_and(low, _LOW, out=x[0])
        np.right_shift(low, _HALF, out=y[0])
        x[1], y[1] = draw, domain
        _encrypt(schedule, x, y, p)
        out[block, 0::2] = x.T
        out[block, 1::2] = y.T
    return out


def _encrypt(schedule: list[Bits], x: Bits, y: Bits, product: Bits) -> None:
    """All rounds, in place. `x` holds counter words 0 and 2, `y` words 1 and 3, each word in the low half of a uint64.

    A round is (c0, c1, c2, c3) -> (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0)).
    """
    crossed = x[::-1]
    for round_key in schedule:
        np.multiply(crossed, _MULTIPLIERS, out=product)
        np.right_shift(product, _HALF, out=x)
        np.bitwise_xor(x, y, out=x)
        np.bitwise_xor(x, round_key, out=x)
        np.bitwise_and(product, _LOW, out=y)

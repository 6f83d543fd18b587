"""Random numbers of a stream in a kernel: the same bits as :mod:`wengert.kernels.philox`, element by element.

A step makes the numbers of one block of four words: ``per`` words give an element, so ``4 // per`` neighbours are written.
Where the stream stands, its key and the number of words that were drawn before, is read from memory when the kernel runs.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from wengert.loops.ir import Buffer, Kernel, Loop, Param, Store, bound, load, size
from wengert.loops.scalar import Scalar, cast, const, index, make, rarely, select

__all__ = ["STEPS", "WORDS", "Word", "drawing", "first_of_element"]

WORDS: Final = 4  # of a block
STEPS: Final = 4096  # blocks that one parallel iteration makes
_ROUNDS: Final = 10
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_LOW: Final = 0xFFFFFFFF
_ELEMENT: Final = 1  # the domain of numbers that an element draws for itself


def _u64(value: int) -> Scalar:
    return const(value, "u64")


def _half(x: Scalar, high: bool) -> Scalar:
    return make("shr", (x, _u64(32))) if high else make("and", (x, _u64(_LOW)))


def _block(key: Scalar, position: Scalar, domain: int) -> tuple[Scalar, ...]:
    """Return the four words at a counter, each in the low half of 64 bits."""
    c = [_half(position, False), _half(position, True), _u64(0), _u64(domain)]
    keys = [_half(key, False), _half(key, True)]
    for number in range(_ROUNDS):
        k = [make("and", (keys[h] + _u64(number * _WEYL[h] & _LOW), _u64(_LOW))) for h in (0, 1)]
        first, second = (c[2 * h] * _u64(_MULTIPLIERS[h]) for h in (0, 1))
        c = [
            make("xor", (make("xor", (_half(second, True), c[1])), k[0])), _half(second, False),
            make("xor", (make("xor", (_half(first, True), c[3])), k[1])), _half(first, False),
        ]  # fmt: skip
    return tuple(c)


class Word(NamedTuple):
    """Random bits.

    Attributes:
        bits: 32 of them, or 64 if an element takes two words. key: of the stream. place: where these bits begin in it.
    """

    bits: Scalar
    key: Scalar
    place: Scalar


def first_of_element(word: Word) -> Scalar:
    """Return 64 more bits for the element at a place: those that are its own, and nobody else's."""
    low, high, *_ = _block(word.key, word.place, _ELEMENT)
    return make("or", (make("shl", (high, _u64(32))), low))


def drawing(
    name: str, dtype: str, per: int, element: Callable[[Word], Scalar], params: Sequence[tuple[str, str]], lanes: int
) -> Kernel:  # fmt: skip
    """Return the kernel that writes whole blocks of numbers.

    Args:
        dtype: of the elements in memory. per: how many words an element takes, 1 or 2. element: from its bits to its value.
            params: names and dtypes of numbers that it is told.
    """
    state, out = Buffer("state", "u64", (2,), (1,)), Buffer("y", dtype, ("n",), (1,), "out")
    key, offset = (load(state, bound(i)) for i in (0, 1))
    step = cast(index("b"), "u64")
    first, shift = make("shr", (offset, _u64(2))) + step, make("and", (offset, _u64(WORDS - 1)))
    words = [*_block(key, first, 0), *_block(key, first + _u64(1), 0)]
    if_split = shift.ne(0)
    stream = []
    for k in range(WORDS):
        found = words[k]
        for by in range(1, WORDS):
            found = select(shift.eq(by), words[k + by], found)
        stream.append(rarely(if_split, found, words[k]))
    stores = []
    for k in range(0, WORDS, per):
        bits = stream[k] if per == 1 else make("or", (make("shl", (stream[k + 1], _u64(32))), stream[k]))
        value = element(Word(bits, key, offset + step * _u64(WORDS) + _u64(k)))
        stores.append(Store("y", (index("b") * (WORDS // per) + k // per,), cast(value, dtype)))
    stop = make("minimum", (index("block") + STEPS, size("blocks")))
    inner = Loop("b", index("block"), stop, tuple(stores), lanes=lanes)
    body = Loop("block", bound(0), bound("blocks"), (inner,), step=STEPS, parallel=True)
    return Kernel(name, (out, state), ("n", "blocks"), (body,), tuple(Param(*p) for p in params))

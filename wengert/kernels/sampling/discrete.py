"""Discrete distributions of a fixed number of words: trials, integers, orders and choices."""

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from wengert.errors import DTypeError, ShapeError
from wengert.kernels import philox
from wengert.kernels.sampling.continuous import open_unit
from wengert.kernels.sampling.parameters import (
    SIGNIFICAND,
    Array,
    Drawn,
    DTypeLike,
    ParameterError,
    Shape,
    element_count,
    parameter,
    real_dtype,
    rounded,
)

__all__ = ["bernoulli", "geometric", "integers", "multinomial", "permutation"]


def geometric(key: int, offset: int, shape: Shape, dtype: DTypeLike, p: npt.ArrayLike) -> Drawn:
    """The number of trials up to the first success, ``ceil(log(u) / log(1 - p))``, so at least 1; two words an element.

    An integer `dtype` saturates at its largest value.

    Raises:
        ParameterError: unless every `p` is in (0, 1].

    Example:
        >>> geometric(0, 0, (5,), np.int64, 0.5)
        (array([1, 1, 2, 5, 2]), 10)
    """
    result = real_dtype("geometric", dtype, integers=True)
    chances = parameter("geometric", "p", p, shape, "in (0, 1]", lambda q: (q > 0) & (q <= 1))
    size = element_count(shape)
    with np.errstate(divide="ignore", over="ignore"):  # p = 1 divides by minus infinity
        trials = np.ceil(np.log(open_unit(philox.bits64(key, offset, size))) / np.log1p(-chances))
    return rounded(np.maximum(trials, 1.0), result).reshape(shape), 2 * size


def bernoulli(key: int, offset: int, shape: Shape, dtype: DTypeLike, p: npt.ArrayLike) -> Drawn:
    """1 with probability `p`, else 0; `p` broadcasts to `shape`. One word an element.

    Exact for every `p`: where an element's word agrees with the first 32 bits of `p`, 53 bits of the element's
    sub-stream decide against the rest of `p`.

    Raises:
        ParameterError: unless every `p` is in [0, 1].

    Example:
        >>> bernoulli(0, 0, (6,), bool, 0.5)
        (array([ True, False, False, False, False,  True]), 6)
    """
    scaled = parameter("bernoulli", "p", p, shape, "in [0, 1]", lambda q: (q >= 0) & (q <= 1)) * 2.0**32
    whole = np.floor(scaled)
    size = element_count(shape)
    bits = philox.words(key, offset, size)
    ones = bits < whole
    tied = np.flatnonzero(bits == whole)
    if tied.size:
        rest = np.broadcast_to(scaled - whole, (size,))[tied]
        more = philox.element_bits(key, tied.astype(np.uint64) + np.uint64(offset), 0)[:, 0]
        ones[tied] = (more >> np.uint64(11)) * 2.0**-53 < rest
    return ones.astype(dtype, copy=False).reshape(shape), size


def integers(key: int, offset: int, shape: Shape, dtype: DTypeLike, low: int, high: int) -> Drawn:
    """Integers in ``[low, high)``, every one equally likely: no bias at all.

    One word an element where ``high - low <= 2**32``, else two; modulo, with the excess of the last incomplete range
    drawn again from the element's sub-stream.

    Raises:
        ParameterError: unless ``low < high``, both within the integers that `dtype` represents without gaps.
        DTypeError: if `dtype` is complex.

    Example:
        >>> integers(0, 0, (5,), np.int64, 0, 10)
        (array([1, 3, 8, 0, 4]), 5)
    """
    result, low, high = np.dtype(dtype), operator.index(low), operator.index(high)
    first, last = _integer_range(result)
    if not first <= low < high <= last + 1:
        raise ParameterError(
            f"integers(): expected {first} <= low < high <= {last + 1} for {result}, got low={low}, high={high}"
        )
    size, span = element_count(shape), high - low
    narrow = span <= 1 << 32
    bits: Array = philox.words(key, offset, size) if narrow else philox.bits64(key, offset, size)
    used = size if narrow else 2 * size
    values, fair = _remainder(bits, span)
    unfair = np.flatnonzero(~fair)
    if unfair.size:
        positions = (unfair * (1 if narrow else 2)).astype(np.uint64) + np.uint64(offset)
        values[unfair] = philox.retry(key, positions, lambda again, _: _remainder(again[:, 0], span), np.uint64)
    shifted = values.astype(np.uint64, copy=False) + np.uint64(low % (1 << 64))  # modulo 2**64, as two's complement is
    return (shifted.view(np.int64) if low < 0 else shifted).astype(result).reshape(shape), used


def _integer_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and the greatest of the integers that `dtype` represents without gaps."""
    if dtype.name in SIGNIFICAND:
        most = 1 << SIGNIFICAND[dtype.name]
        return -most, most
    if dtype == np.bool_:
        return 0, 1
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    raise DTypeError(f"integers(): expected an integer, bool or floating-point dtype, got {dtype}")


def _remainder(bits: Array, span: int) -> tuple[Array, npt.NDArray[np.bool_]]:
    """``bits % span``, and which bits lie below the largest multiple of `span`: there no remainder is favoured."""
    states = 1 << (8 * bits.dtype.itemsize)
    if span == states:
        return bits, np.ones(bits.shape, np.bool_)
    divisor = bits.dtype.type(span)
    return bits - bits // divisor * divisor, bits < states - states % span  # `//` by a scalar is faster than `%`


def permutation(key: int, offset: int, size: int, shape: Shape = ()) -> Drawn:
    """A random order of ``0, ..., size - 1`` as int64: the stable argsort of `size` numbers of 64 bits.

    With a `shape`, as many independent ones: ``(*shape, size)``.

    Raises:
        ParameterError: if `size` is negative.

    Example:
        >>> permutation(0, 0, 5)
        (array([3, 4, 2, 1, 0]), 10)
    """
    size = operator.index(size)
    if size < 0:
        raise ParameterError(f"permutation(): size must not be negative, got {size}")
    if not shape:
        return _stable_argsort(philox.bits64(key, offset, size)), 2 * size
    bits = philox.bits64(key, offset, element_count(shape) * size).reshape(*shape, size)
    return np.argsort(bits, axis=-1, kind="stable"), 2 * bits.size


def _stable_argsort(keys: philox.Bits) -> npt.NDArray[np.int64]:
    """``argsort(keys, kind="stable")`` by a plain sort, which is much faster: the index replaces the lowest bits.

    Elements that agree in the bits left to the key come out in order of their index and are sorted once more.
    """
    bits = np.uint64(max(len(keys) - 1, 0).bit_length())
    mask = (np.uint64(1) << bits) - np.uint64(1)
    packed = (keys & ~mask) | np.arange(len(keys), dtype=np.uint64)
    packed.sort()
    order = (packed & mask).view(np.int64)
    equal = (packed[1:] >> bits) == (packed[:-1] >> bits)
    if equal.any():
        tied = np.flatnonzero(np.concatenate([equal, [False]]) | np.concatenate([[False], equal]))
        among = order[tied]
        order[tied] = among[np.argsort(keys[among], kind="stable")]
    return order


def multinomial(key: int, offset: int, weights: Array, count: int, replacement: bool = False) -> Drawn:
    """`count` class indices (int64) for every row of `weights` (..., classes), with probability in proportion to them.

    With replacement by the inverse CDF; without by the Gumbel-max trick, the `count` largest of ``log w + Gumbel``, in
    that order, which is drawing one after the other (W. Kool, H. van Hoof and M. Welling, "Stochastic beams and where
    to find them", 2019). A class of weight zero is never drawn.

    Raises:
        ParameterError: if a weight is negative, infinite or NaN, all weights of a row are zero, `count` is not
            positive, or a draw without replacement wants more classes than have a positive weight.
        ShapeError: if `weights` is a scalar or has no classes.
        DTypeError: if `weights` is not real.

    Example:
        >>> multinomial(0, 0, np.array([0.0, 1.0, 1.0]), 2)[0].tolist() in ([1, 2], [2, 1])
        True
    """
    weights, count = np.asarray(weights), operator.index(count)
    if weights.dtype.kind not in "biuf" and weights.dtype.name not in SIGNIFICAND:
        raise DTypeError(f"multinomial(): expected real weights, got {weights.dtype}")
    if weights.ndim == 0 or weights.shape[-1] == 0:
        raise ShapeError(f"multinomial(): expected weights of shape (..., classes), classes > 0, got {weights.shape}")
    shape = (*weights.shape[:-1], count)
    table = weights.reshape(-1, weights.shape[-1]).astype(np.float64)
    _check_weights(table, count, replacement)
    table /= table.max(axis=1, keepdims=True)  # no sum overflows
    if replacement:
        cumulative = np.cumsum(table, axis=1)
        unit = open_unit(philox.bits64(key, offset, len(table) * count)).reshape(-1, count)
        # 1 - 2**-53, the largest unit, times the total still rounds below the total: the search always ends at a class.
        return _first_above(cumulative, unit * cumulative[:, -1:]).reshape(shape), 2 * unit.size
    unit = open_unit(philox.bits64(key, offset, table.size)).reshape(table.shape)
    with np.errstate(divide="ignore"):
        race = np.log(-np.log(unit)) - np.log(table)
    first = np.argpartition(race, count - 1, axis=1)[:, :count]
    order = np.argsort(np.take_along_axis(race, first, axis=1), axis=1)
    return np.take_along_axis(first, order, axis=1).reshape(shape), 2 * unit.size


def _check_weights(table: npt.NDArray[np.float64], count: int, replacement: bool) -> None:
    if count <= 0:
        raise ParameterError(f"multinomial(): the number of samples must be positive, got {count}")
    bad = ~((table >= 0) & np.isfinite(table))
    if bad.any():
        raise ParameterError(f"multinomial(): weights must be finite and at least 0, got {table[bad][0]}")
    fewest = int(np.count_nonzero(table, axis=1).min(initial=table.shape[1]))
    if fewest == 0:
        raise ParameterError("multinomial(): a row of weights sums to 0, so it has nothing to draw")
    if not replacement and fewest < count:
        raise ParameterError(
            f"multinomial(): cannot draw {count} samples without replacement from {fewest} classes of positive weight; "
            "draw fewer, or pass replacement=True"
        )


def _first_above(rows: npt.NDArray[np.float64], targets: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """For every target the first greater column of its row: ``searchsorted(side="right")`` for all rows at once."""
    low = np.zeros(targets.shape, np.int64)
    high = np.full(targets.shape, rows.shape[1])
    for _ in range(rows.shape[1].bit_length()):
        middle = (low + high) >> 1
        above = np.take_along_axis(rows, np.minimum(middle, rows.shape[1] - 1), axis=1) > targets
        high = np.where(above, middle, high)
        low = np.where(above, low, np.minimum(middle + 1, high))
    return low

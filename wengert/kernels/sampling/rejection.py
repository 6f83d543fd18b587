"""Distributions by vectorised rejection: every element draws from a sub-stream of its own until it accepts.

An element at word offset ``o`` spends one word of the stream, which is its place, and takes its bits from the blocks of
`philox.element_bits` at that place: block 0 for what is drawn once, blocks 1, 2, ... for the proposals. So a result
depends neither on how many other elements were rejected nor on how the work was cut. All is computed in float64 and
rounded to the dtype at the end.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from wengert.kernels import philox
from wengert.kernels.sampling.continuous import open_unit, polar
from wengert.kernels.sampling.parameters import (
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

__all__ = ["binomial", "gamma", "poisson", "truncated_normal"]

Floats = npt.NDArray[np.float64]

_FLOAT64 = np.dtype(np.float64)
_SMALL_MEAN = 10.0  # below, counts are found by walking up the distribution; above, by transformed rejection
_TINY = {"bfloat16": 2.0**-126, "float16": 2.0**-14, "float32": 2.0**-126, "float64": 2.0**-1022}


def gamma(key: int, offset: int, shape: Shape, dtype: DTypeLike, concentration: npt.ArrayLike) -> Drawn:
    """Gamma numbers of rate 1; `concentration` broadcasts to `shape`. Never below the smallest normal number.

    G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables" (2000); a concentration below 1 is
    raised by 1 and the result multiplied by ``u ** (1 / concentration)``.

    Raises:
        ParameterError: unless every `concentration` is positive and finite.
        DTypeError: if `dtype` is not floating-point.

    Example:
        >>> gamma(0, 0, (2, 3), np.float32, 2.5)[1]
        6
    """
    result = real_dtype("gamma", dtype)
    alphas = parameter(
        "gamma", "concentration", concentration, shape, "positive and finite", lambda a: (a > 0) & (a < math.inf)
    )
    size = element_count(shape)
    alphas = np.broadcast_to(alphas, (size,))
    positions = philox.element_positions(offset, size)
    d = np.where(alphas < 1.0, alphas + 1.0, alphas) - 1.0 / 3.0
    slopes = 1.0 / (3.0 * np.sqrt(d))

    def propose(bits: philox.Bits, indices: npt.NDArray[np.intp]) -> tuple[Floats, npt.NDArray[np.bool_]]:
        x, log_u = _normal_and_log_uniform(bits)
        step = slopes[indices] * x
        inside = step > -1.0
        step = np.where(inside, step, 0.0)
        growth = step * (3.0 + step * (3.0 + step))  # (1 + step)**3 - 1, without loss for a large concentration
        log_ratio = 0.5 * x * x + d[indices] * (3.0 * np.log1p(step) - growth)
        return d[indices] * (1.0 + step) ** 3, inside & (log_u < log_ratio)

    values = philox.retry(key, positions, propose)
    low = np.flatnonzero(alphas < 1.0)
    if low.size:
        unit = open_unit(philox.element_bits(key, positions[low], 0)[:, 0])
        with np.errstate(over="ignore"):  # a subnormal concentration
            values[low] *= np.exp(np.log(unit) / alphas[low])
    return np.maximum(rounded(values, result), result.type(_TINY[result.name])).reshape(shape), size


def _normal_and_log_uniform(bits: philox.Bits) -> tuple[Floats, Floats]:
    """A standard normal and the logarithm of a uniform number from 128 bits: 63 for a radius, 32 an angle, 32 the rest.

    The angle's grid moves the normal's distribution function by less than 2**-32.
    """
    halves = bits[:, 1:].copy().astype("<u8", copy=False).view("<u4")
    radius, angle = polar(bits[:, 0], halves[:, 0], _FLOAT64)
    return radius * np.cos(angle), np.log((halves[:, 1] + 0.5) * 2.0**-32)


def poisson(key: int, offset: int, shape: Shape, dtype: DTypeLike, rate: npt.ArrayLike) -> Drawn:
    """Poisson counts; `rate` broadcasts to `shape`. An integer `dtype` saturates at its largest value.

    A rate below 10 by inversion of the distribution function; others by the transformed rejection PTRS of W. Hörmann,
    "The transformed rejection method for generating Poisson random variables" (1993).

    Raises:
        ParameterError: unless every `rate` is in [0, 2**63].
        DTypeError: if `dtype` is neither floating-point nor an integer.

    Example:
        >>> poisson(0, 0, (4,), np.int64, 0.0)
        (array([0, 0, 0, 0]), 4)
    """
    result = real_dtype("poisson", dtype, integers=True)
    rates = parameter("poisson", "rate", rate, shape, "in [0, 2**63]", lambda r: (r >= 0) & (r <= 2.0**63))
    size = element_count(shape)
    rates = np.broadcast_to(rates, (size,))
    positions = philox.element_positions(offset, size)
    counts = np.empty(size)
    few, many = np.flatnonzero(rates < _SMALL_MEAN), np.flatnonzero(rates >= _SMALL_MEAN)
    small, large = rates[few], rates[many]
    counts[few] = _walk(key, positions[few], np.exp(-small), np.zeros_like(small), small)
    spread = 0.931 + 2.53 * np.sqrt(large)
    counts[many] = _transformed_rejection(
        key,
        positions[many],
        center=large + 0.43,
        spread=spread,
        skew=-0.059 + 0.02483 * spread,
        height=1.1239 + 1.1328 / (spread - 3.4),
        log_ratio=lambda k, i: -_deviance(k, large[i]) - _log_factorial_rest(k),
        most=np.full(large.size, np.inf),
    )
    return rounded(counts, result).reshape(shape), size


def binomial(
    key: int, offset: int, shape: Shape, dtype: DTypeLike, count: npt.ArrayLike, probability: npt.ArrayLike
) -> Drawn:
    """Successes among `count` trials; both parameters broadcast to `shape`. An integer `dtype` saturates.

    A mean below 10 by inversion of the distribution function; others by the transformed rejection BTRS of W. Hörmann,
    "The generation of binomial random variates" (1993). Counts failures where `probability` exceeds 1/2.

    Raises:
        ParameterError: unless every `count` is a whole number in [0, 2**53], every `probability` in [0, 1].
        DTypeError: if `dtype` is neither floating-point nor an integer.

    Example:
        >>> binomial(0, 0, (3,), np.int64, [5, 6, 7], 1.0)
        (array([5, 6, 7]), 3)
    """
    result = real_dtype("binomial", dtype, integers=True)
    wanted = "a whole number in [0, 2**53]"
    totals = parameter(
        "binomial", "count", count, shape, wanted, lambda n: (n >= 0) & (n <= 2.0**53) & (np.floor(n) == n)
    )
    chances = parameter("binomial", "probability", probability, shape, "in [0, 1]", lambda p: (p >= 0) & (p <= 1))
    size = element_count(shape)
    totals, chances = np.broadcast_to(totals, (size,)), np.broadcast_to(chances, (size,))
    p = np.minimum(chances, 1.0 - chances)
    positions = philox.element_positions(offset, size)
    successes = np.empty(size)
    few, many = np.flatnonzero(totals * p < _SMALL_MEAN), np.flatnonzero(totals * p >= _SMALL_MEAN)
    odds = p[few] / (1.0 - p[few])
    start = np.exp(totals[few] * np.log1p(-p[few]))
    successes[few] = _walk(key, positions[few], start, -odds, (totals[few] + 1.0) * odds)
    successes[many] = _many_successes(key, positions[many], totals[many], p[many])
    return rounded(np.where(chances > 0.5, totals - successes, successes), result).reshape(shape), size


def _many_successes(key: int, positions: philox.Bits, n: Floats, p: Floats) -> Floats:
    deviation = np.sqrt(n * p * (1.0 - p))
    spread = 1.15 + 2.53 * deviation
    mode = np.floor((n + 1.0) * p)

    def log_mass(k: Floats, n: Floats, p: Floats) -> Floats:
        """Without the terms of `n` alone: C. Loader, "Fast and accurate computation of binomial probabilities"."""
        successes = _deviance(k, n * p) + _log_factorial_rest(k)
        return -successes - _deviance(n - k, n * (1.0 - p)) - _log_factorial_rest(n - k)

    log_most = log_mass(mode, n, p)
    return _transformed_rejection(
        key,
        positions,
        center=n * p + 0.5,
        spread=spread,
        skew=-0.0873 + 0.0248 * spread + 0.01 * p,
        height=(2.83 + 5.1 / spread) * deviation,
        log_ratio=lambda k, i: log_mass(k, n[i], p[i]) - log_most[i],
        most=n,
    )


def _transformed_rejection(
    key: int,
    positions: philox.Bits,
    *,
    center: Floats,
    spread: Floats,
    skew: Floats,
    height: Floats,
    log_ratio: Callable[[Floats, npt.NDArray[np.intp]], Floats],
    most: Floats,
) -> Floats:
    """Hörmann's transformed rejection for counts up to `most`: ``k = (2 a / (1/2 - |u|) + b) u + c``, rounded down.

    `skew` is his a, `spread` b, `center` c, and `height` the factor of v that makes the hat lie above the mass, which
    `log_ratio` gives for counts and the indices of their elements. His squeezes only save time and are left out.
    """

    def propose(bits: philox.Bits, i: npt.NDArray[np.intp]) -> tuple[Floats, npt.NDArray[np.bool_]]:
        u, v = open_unit(bits[:, 0]) - 0.5, open_unit(bits[:, 1])
        tail = 0.5 - np.abs(u)
        k = np.floor((2.0 * skew[i] / tail + spread[i]) * u + center[i])
        inside = (k >= 0.0) & (k <= most[i])
        k = np.where(inside, k, np.floor(center[i]))
        hat = np.log(v * height[i] / (skew[i] / (tail * tail) + spread[i]))
        return k, inside & (hat <= log_ratio(k, i))

    counts: Floats = philox.retry(key, positions, propose)
    return counts


def _walk(key: int, positions: philox.Bits, start: Floats, a: Floats, b: Floats) -> Floats:
    """Invert a distribution function by walking up from 0, where the masses are ``p_k = (a + b / k) p_(k-1)``.

    These are the distributions of H. H. Panjer (1981): Poisson has a = 0 and b = rate, binomial a = -p / q and
    b = (n + 1) p / q. `start` is p_0. The walk also ends where the next mass no longer changes the sum.
    """
    unit = open_unit(philox.element_bits(key, positions, 0)[:, 0])
    counts = np.zeros(len(positions))
    active = np.arange(len(positions))
    mass, total, k = start, start, 0
    while active.size:
        k += 1
        mass = mass * (a + b / k)
        beyond = (unit > total) & (total + mass > total)
        active, unit = active[beyond], unit[beyond]
        a, b, mass, total = (x[beyond] for x in (a, b, mass, total))
        counts[active] = k
        total = total + mass
    return counts


def _deviance(k: Floats, mean: Floats) -> Floats:
    """``k log(k / mean) - k + mean`` without loss where `k` is near `mean`; `mean` where `k` is 0."""
    x = (k - mean) / mean
    deviance: Floats = mean * ((1.0 + x) * np.log1p(np.maximum(x, -1.0 + 2.0**-53)) - x)
    return deviance


_REST_TABLE = np.array([0.0] + [math.lgamma(k + 1.0) - k * math.log(k) + k for k in range(1, 32)])


def _log_factorial_rest(k: Floats) -> Floats:
    """``log k! - k log k + k``, from a table below 32 and by Stirling's series above, to 1e-14."""
    large = np.maximum(k, 32.0)
    inverse = 1.0 / (large * large)
    series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / large
    rest: Floats = np.where(
        k < 32.0, _REST_TABLE[np.minimum(k, 31.0).astype(np.intp)], 0.5 * np.log(2.0 * np.pi * large) + series
    )
    return rest


def truncated_normal(
    key: int,
    offset: int,
    shape: Shape,
    dtype: DTypeLike,
    mean: float = 0.0,
    std: float = 1.0,
    low: float = -2.0,
    high: float = 2.0,
) -> Drawn:
    """Normal numbers given that they lie in ``[low, high]``, which may be infinite or far out in a tail.

    C. P. Robert, "Simulation of truncated normal variables" (1995): the proposal is normal or uniform where the
    interval holds the mean, as it is wide or narrow, and otherwise a truncated exponential. Results are clipped to the
    interval after they are rounded to `dtype`.

    Raises:
        ParameterError: unless `mean` and `std` are finite, ``std > 0`` and ``low < high``.
        DTypeError: if `dtype` is not floating-point.

    Example:
        >>> values, used = truncated_normal(0, 0, (100,), np.float32, low=3.0, high=math.inf)
        >>> bool((values >= 3).all()), used
        (True, 100)
    """
    result = real_dtype("truncated_normal", dtype)
    if not (math.isfinite(mean) and 0.0 < std < math.inf):
        raise ParameterError(f"truncated_normal(): mean must be finite, std positive and finite, got {mean} and {std}")
    if not low < high:
        raise ParameterError(f"truncated_normal(): low must be below high, got low={low}, high={high}")
    size = element_count(shape)
    first, last = (low - mean) / std, (high - mean) / std
    mirrored = last <= 0.0
    interval = (-last, -first) if mirrored else (first, last)
    if interval[0] == math.inf:
        raise ParameterError(f"truncated_normal(): [{low}, {high}] is too many deviations of {std} from {mean}")
    standard = philox.retry(key, philox.element_positions(offset, size), _truncated_proposal(*interval))
    values = rounded((-standard if mirrored else standard) * std + mean, result)
    with np.errstate(over="ignore"):
        ends = np.array([low, high]).astype(result)
    return np.minimum(np.maximum(values, ends[0]), ends[1]).reshape(shape), size


def _truncated_proposal(first: float, last: float) -> Callable[[philox.Bits, Any], tuple[Array, Array]]:
    """The proposal for a standard normal in ``[first, last]`` with ``last > 0``."""
    width = last - first
    if first < 0.0 and width > math.sqrt(2.0 * math.pi):

        def from_normal(bits: philox.Bits, _: Any) -> tuple[Array, Array]:
            radius, angle = polar(bits[:, 0], bits[:, 1], _FLOAT64)
            x = radius * np.cos(angle)
            return x, (x >= first) & (x <= last)

        return from_normal

    if first < 0.0:

        def from_uniform(bits: philox.Bits, _: Any) -> tuple[Array, Array]:
            x = first + width * open_unit(bits[:, 0])
            return x, np.log(open_unit(bits[:, 1])) <= -0.5 * x * x

        return from_uniform

    # exp(-x**2 / 2) over exp(-slope x) is largest at x = slope, at most 1 above `first`: the best slope where the tail
    # has no end (Robert, section 2.1), and accepted with probability 0.6 or more where it has.
    slope = 0.5 * (first + math.hypot(first, 2.0))
    covered = -math.expm1(-slope * width)

    def from_exponential(bits: philox.Bits, _: Any) -> tuple[Array, Array]:
        step = np.log1p(-covered * open_unit(bits[:, 0])) / -slope
        x = first + step
        return x, np.log(open_unit(bits[:, 1])) <= -0.5 * (first - slope + step) ** 2

    return from_exponential

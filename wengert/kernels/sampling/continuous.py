"""Continuous distributions that are a formula of a fixed number of words.

====================  =====================================  ====================================================
dtype                 words                                  computed in
====================  =====================================  ====================================================
float16, bfloat16     one an element                         float32 (uniform, normal), float64 (inverse CDFs)
float32               one an element                         float32 (uniform, normal), float64 (inverse CDFs)
float64               two an element                         float64
complex64/128         those of its two parts                 that of its parts
====================  =====================================  ====================================================
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from wengert.kernels import philox
from wengert.kernels.sampling.parameters import (
    Array,
    Drawn,
    DTypeLike,
    Inexact,
    ParameterError,
    Shape,
    element_count,
    inexact,
    parameter,
    real_dtype,
    rounded,
)

__all__ = ["cauchy", "exponential", "log_normal", "normal", "open_unit", "polar", "uniform"]

_CHUNK = 16384  # pairs transformed at a time, so that the temporaries stay in cache


def uniform(key: int, offset: int, shape: Shape, dtype: DTypeLike, low: float = 0.0, high: float = 1.0) -> Drawn:
    """Uniform numbers in ``[low, high)``, both ends first rounded to `dtype`; `high` itself only where they are equal.

    A number is ``low + (high - low) * k / 2**d`` with `k` of `d` random bits, `d` the bits of the dtype's significand
    (8, 11, 24 or 53), so that every ``k / 2**d`` is exact and below 1. Both parts of a complex number are drawn so.

    Raises:
        ParameterError: unless ``low <= high`` and ``high - low`` is finite in `dtype`.
        DTypeError: if `dtype` is neither floating-point nor complex.

    Example:
        >>> uniform(0, 0, (3,), np.float32)
        (array([0.39904642, 0.88052016, 0.73571277], dtype=float32), 3)
    """
    kind = inexact("uniform", np.dtype(dtype))
    size = element_count(shape) * (2 if kind.is_complex else 1)
    bits: Array = philox.bits64(key, offset, size) if kind.digits == 53 else philox.words(key, offset, size)
    bits >>= 8 * bits.itemsize - kind.digits
    unit: Array = np.multiply(bits.view(f"i{bits.itemsize}"), 2.0**-kind.digits, dtype=kind.compute)
    if (low, high) != (0.0, 1.0):
        unit = _between(unit, kind, low, high)
    return rounded(unit, kind.part).view(kind.dtype).reshape(shape), size * bits.itemsize // 4


def _between(unit: Array, kind: Inexact, low: float, high: float) -> Array:
    with np.errstate(over="ignore"):
        first, last = np.array([low, high], np.float64).astype(kind.part)
        start = kind.compute.type(first)
        width = kind.compute.type(last) - start
    if not 0 <= width < math.inf:
        raise ParameterError(f"uniform(): low <= high, finite in {kind.part}, are needed, got low={low}, high={high}")
    unit *= width
    unit += start
    below: Array = np.minimum(rounded(unit, kind.part), np.nextafter(last, first))  # the sum may round up to `high`
    return below


def normal(
    key: int, offset: int, shape: Shape, dtype: DTypeLike, mean: npt.ArrayLike = 0.0, std: npt.ArrayLike = 1.0
) -> Drawn:
    """Normal numbers; `mean` and `std` broadcast to `shape`.

    Elements ``2j`` and ``2j + 1`` are ``r cos t`` and ``r sin t`` with ``r = sqrt(-2 log u)`` (G. E. P. Box and
    M. E. Muller, "A note on the generation of random normal deviates", 1958). `u` has 31 bits (63 in float64) and is
    never 0: no standard normal is beyond 6.7 (9.5). A complex number has ``std**2 / 2`` as the variance of each part.

    Raises:
        ParameterError: if a `std` is negative or NaN.
        DTypeError: if `dtype` is neither floating-point nor complex.

    Example:
        >>> values, used = normal(0, 0, (3,), np.float64)
        >>> values.shape, used  # the fourth of two pairs is left over
        ((3,), 8)
    """
    kind = inexact("normal", np.dtype(dtype))
    values, used = _scaled_normal("normal", kind, key, offset, shape, mean, std)
    return rounded(values, kind.dtype).reshape(shape), used


def log_normal(
    key: int, offset: int, shape: Shape, dtype: DTypeLike, mean: npt.ArrayLike = 1.0, std: npt.ArrayLike = 2.0
) -> Drawn:
    """``exp`` of `normal` numbers, infinite where that is beyond the dtype.

    Raises:
        ParameterError: if a `std` is negative or NaN.
        DTypeError: if `dtype` is not floating-point.

    Example:
        >>> values, used = log_normal(0, 0, (4,), np.float64)
        >>> bool(np.allclose(np.log(values), normal(0, 0, (4,), np.float64, 1.0, 2.0)[0])), used
        (True, 8)
    """
    kind = inexact("log_normal", real_dtype("log_normal", dtype))
    values, used = _scaled_normal("log_normal", kind, key, offset, shape, mean, std)
    with np.errstate(over="ignore"):
        return rounded(np.exp(values), kind.dtype).reshape(shape), used


def _scaled_normal(
    function: str, kind: Inexact, key: int, offset: int, shape: Shape, mean: npt.ArrayLike, std: npt.ArrayLike
) -> Drawn:
    """Flat normal numbers, not yet rounded from the dtype computed in."""
    total = kind.dtype if kind.is_complex else kind.compute
    deviations = parameter(function, "std", std, shape, "at least 0", lambda s: s >= 0, kind.compute)
    means = parameter(function, "mean", mean, shape, dtype=total)
    size = element_count(shape)
    parts, used = _box_muller(key, offset, 2 * size if kind.is_complex else size, kind.compute)
    if kind.is_complex:
        parts *= kind.compute.type(0.5**0.5)
    values = parts.view(total)
    with np.errstate(over="ignore"):
        if isinstance(deviations, np.ndarray) or deviations != 1.0:
            values *= deviations
        if isinstance(means, np.ndarray) or means != 0.0:
            values += means
    return values, used


def _box_muller(key: int, offset: int, size: int, dtype: np.dtype[Any]) -> Drawn:
    """Standard normals in float32 or float64; an odd `size` leaves the second output of its last pair unused."""
    pairs = -(-size // 2)
    draw = philox.bits64 if dtype == np.float64 else philox.words
    bits: Array = draw(key, offset, 2 * pairs).reshape(pairs, 2)
    values = np.empty((pairs, 2), dtype)
    for start in range(0, pairs, _CHUNK):
        chunk = slice(start, start + _CHUNK)
        radius, angle = polar(bits[chunk, 0], bits[chunk, 1], dtype)
        np.multiply(radius, np.cos(angle), out=values[chunk, 0])
        np.multiply(radius, np.sin(angle), out=values[chunk, 1])
    return values.reshape(-1)[:size], bits.nbytes // 4


def polar(radius_bits: Array, angle_bits: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Radius and angle of points that are normal in the plane, from unsigned integers of any width."""
    width = 8 * radius_bits.itemsize
    radius: Array = (radius_bits >> 1).view(f"i{radius_bits.itemsize}").astype(dtype)
    radius *= 2.0 ** (1 - width)
    radius += 2.0**-width
    np.log(radius, out=radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    angle: Array = angle_bits.view(f"i{angle_bits.itemsize}").astype(dtype)
    angle *= 2.0 * math.pi * 2.0 ** (-8 * angle_bits.itemsize)
    return radius, angle


def exponential(key: int, offset: int, shape: Shape, dtype: DTypeLike, rate: npt.ArrayLike = 1.0) -> Drawn:
    """Exponential numbers ``-log(u) / rate``, positive before they are rounded; `rate` broadcasts to `shape`.

    Raises:
        ParameterError: unless every `rate` is positive and finite.
        DTypeError: if `dtype` is not floating-point.

    Example:
        >>> exponential(0, 0, (2,), np.float32)
        (array([0.9186774 , 0.12724242], dtype=float32), 2)
    """
    result = real_dtype("exponential", dtype)
    rates = parameter("exponential", "rate", rate, shape, "positive and finite", lambda r: (r > 0) & (r < math.inf))
    unit, used = _open_unit(key, offset, element_count(shape), result)
    with np.errstate(over="ignore"):
        return rounded(np.log(unit) / -rates, result).reshape(shape), used


def cauchy(
    key: int, offset: int, shape: Shape, dtype: DTypeLike, median: npt.ArrayLike = 0.0, sigma: npt.ArrayLike = 1.0
) -> Drawn:
    """Cauchy numbers ``median + sigma / tan(pi * (u - 1/2))``; the parameters broadcast to `shape`.

    The reciprocal of a standard Cauchy number is one too, and this form has its tails where `u` is exact.

    Raises:
        ParameterError: unless every `sigma` is positive.
        DTypeError: if `dtype` is not floating-point.

    Example:
        >>> cauchy(0, 0, (2,), np.float32)
        (array([-3.0465996,  0.3940388], dtype=float32), 2)
    """
    result = real_dtype("cauchy", dtype)
    medians = parameter("cauchy", "median", median, shape)
    scales = parameter("cauchy", "sigma", sigma, shape, "positive", lambda s: s > 0)
    unit, used = _open_unit(key, offset, element_count(shape), result)
    with np.errstate(over="ignore"):
        return rounded(medians + scales / np.tan(np.pi * (unit - 0.5)), result).reshape(shape), used


def _open_unit(key: int, offset: int, size: int, dtype: np.dtype[Any]) -> Drawn:
    """Float64 numbers in the open interval (0, 1), on a grid symmetric about 1/2: of 32 bits, or 52 for float64."""
    if dtype == np.float64:
        return open_unit(philox.bits64(key, offset, size)), 2 * size
    return (philox.words(key, offset, size) + 0.5) * 2.0**-32, size


def open_unit(bits: philox.Bits) -> Array:
    """``(k + 1/2) / 2**52`` with `k` the upper 52 of 64 bits: exact, at least 2**-53 away from 0 and from 1."""
    return ((bits >> np.uint64(12)).view(np.int64) + 0.5) * 2.0**-52

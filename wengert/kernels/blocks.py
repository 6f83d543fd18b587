"""Evaluating special functions over whole arrays: polynomials, pieces, blocks.

In NumPy a special function is many passes over its argument. It is computed in float64 on blocks small enough for the
cache, so that the passes cost arithmetic and not memory traffic; the result has the argument's dtype.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.array.order import memory_order, places_of

__all__ = ["Unary", "horner", "in_blocks", "pieces", "ratio", "table"]

BLOCK = 8192  # elements: 64 KB of float64, a few of which fit into a second-level cache


def horner(x: Any, coefficients: Sequence[float]) -> Any:
    """Return c₀ + c₁x + c₂x² + …"""
    out = np.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        out *= x
        out += c
    return out


def table(numerator: Sequence[float], denominator: Sequence[float], dtype: Any = np.float64) -> Any:
    """Return the coefficients of two polynomials, lowest first, as :func:`ratio` takes them."""
    out = np.zeros((max(len(numerator), len(denominator)), 2, 1), dtype)
    out[: len(numerator), 0, 0] = numerator
    out[: len(denominator), 1, 0] = denominator
    return out


def ratio(x: Any, coefficients: Any) -> Any:
    """Return the quotient of two polynomials in a flat array, both evaluated at once by Horner's scheme."""
    both = np.empty((2, x.size), x.dtype)
    both[:] = coefficients[-1]
    for pair in coefficients[-2::-1]:
        both *= x
        both += pair
    return np.divide(both[0], both[1], both[0])


def pieces(condition: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *arrays: Any) -> Any:
    """Return ``then(*arrays)`` where the condition holds, ``otherwise(*arrays)`` elsewhere, each only where needed."""
    if condition.all():
        return then(*arrays)
    if not condition.any():
        return otherwise(*arrays)
    out = np.empty(condition.shape)
    out[condition] = then(*[a[condition] for a in arrays])
    rest = ~condition
    out[rest] = otherwise(*[a[rest] for a in arrays])
    return out


def in_blocks(function: Callable[..., Any], dtype: Any = np.float64) -> Callable[..., Any]:
    """Return a function of broadcastable arrays that calls ``function`` on flat blocks of them, cast to ``dtype``."""

    def blocked(*arrays: Any) -> Any:
        if len(arrays) > 1:
            arrays = np.broadcast_arrays(*arrays)
        kind, order = arrays[0].dtype, memory_order(*arrays)
        laid = [a.transpose(order) for a in arrays]
        flat = [a.reshape(-1) for a in laid]
        size = flat[0].size
        if size <= BLOCK:
            out = function(*[f.astype(dtype, copy=False) for f in flat]).astype(kind, copy=False)
        else:
            out = np.empty(size, kind)
            for start in range(0, size, BLOCK):
                part = slice(start, start + BLOCK)
                out[part] = function(*[f[part].astype(dtype, copy=False) for f in flat])
        return out.reshape(laid[0].shape).transpose(places_of(order))

    blocked.__name__, blocked.__doc__ = function.__name__, function.__doc__
    return blocked


class Unary:
    """A NumPy function of one array in the place of a ufunc, for the fast lane of its operator."""

    __slots__ = ("kernel",)
    nin = 1

    def __init__(self, kernel: Callable[[Any], Any]) -> None:
        self.kernel = kernel

    def __call__(self, x: Any, out: Any = None) -> Any:
        result = self.kernel(x)
        if out is None:
            return result
        np.copyto(out, result)
        return out

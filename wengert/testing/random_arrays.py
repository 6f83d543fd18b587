"""Random arrays: any dtype of a kernel, tame or wild values, in any layout."""

import random
from typing import Any

import numpy as np

from wengert.loops.numerics import numpy_dtype
from wengert.loops.scalar import is_integer

__all__ = ["random_layout", "random_numbers"]

Strides = tuple[int | None, ...]


def random_numbers(
    generator: np.random.Generator, dtype: str, shape: tuple[int, ...], wild: bool, limit: int | None = None
) -> Any:
    """Return numbers: integers below ``limit`` if it is given; else small ones, or (``wild``) any, with NaN and infinities."""
    new = numpy_dtype(dtype)
    if limit is not None:
        return generator.integers(0, max(limit, 1), shape).astype(new)
    if dtype == "bool":
        return np.asarray(generator.random(shape) < 0.5)
    if is_integer(dtype):
        low, high = (np.iinfo(new).min, np.iinfo(new).max) if wild else (0 if dtype[0] == "u" else -9, 9)
        found = generator.integers(low, high, shape, dtype=new, endpoint=True)
        ends = np.array([low, high, 0], new)[generator.integers(0, 3, shape)]
        return np.asarray(np.where(generator.random(shape) < 0.1, ends, found))
    values = generator.uniform(-2, 2, shape)
    if wild:
        values = np.where(generator.random(shape) < 0.3, values * 10.0 ** generator.integers(-50, 50, shape), values)
        special = generator.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 1e-310, 65520.0], shape)
        values = np.where(generator.random(shape) < 0.2, special, values)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(new)


def random_layout(choose: random.Random, data: Any, broadcast: bool) -> tuple[Any, Strides]:
    """Return an array laid out in memory in some way, and the strides that a kernel may take as fixed.

    It is contiguous, every second element of a wider array, backwards along a dimension, in Fortran's order, or (``broadcast``)
    one element for all of a dimension.
    """
    strides: list[int | None] = [None] * data.ndim
    if not data.ndim:
        return data, ()
    form = choose.random()
    axis = choose.randrange(data.ndim)
    if form < 0.5:
        data, strides[-1] = np.ascontiguousarray(data), 1
    elif form < 0.65:
        wide = np.zeros((*data.shape[:-1], data.shape[-1] * 2), data.dtype)
        wide[..., ::2] = data
        data = wide[..., ::2]
    elif form < 0.8:
        data = np.flip(np.ascontiguousarray(np.flip(data, axis)), axis)
    else:
        data = np.array(data, order="F")
    if broadcast and choose.random() < 0.2 and data.shape[axis]:
        first = tuple(slice(0, 1) if a == axis else slice(None) for a in range(data.ndim))
        data, strides = np.broadcast_to(data[first], data.shape), [None] * data.ndim
        strides[axis] = choose.choice((0, None))
    return data, tuple(strides)

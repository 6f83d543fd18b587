"""Arrays of every dtype with what kernels may stumble over: many equals, extremes, zeros of both signs, NaN, infinities."""

from typing import Any

import ml_dtypes
import numpy as np

DTYPES = [
    np.dtype(t)
    for t in (
        np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16,
        ml_dtypes.bfloat16, np.float32, np.float64,
    )
]  # fmt: skip
IDS = [dtype.name for dtype in DTYPES]


def is_float(dtype: Any) -> bool:
    """Return whether a dtype is a float; NumPy does not know of bfloat16 that it is one."""
    return np.dtype(dtype).kind in "fV"


def sample(shape: Any, dtype: Any, seed: int = 0) -> Any:
    """Return an array of any dtype."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        any_number = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        return np.where(rng.random(shape) < 0.5, any_number, (any_number % 5).astype(dtype))
    numbers = rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 4, shape)
    found = np.where(rng.random(shape) < 0.3, np.round(numbers), numbers).astype(dtype)
    kind = rng.integers(0, 20, shape)
    for number, special in enumerate((np.nan, -np.nan, np.inf, -np.inf, 0.0, 0.0, -0.0, -0.0)):
        found[kind == number] = special
    return found


def bits(array: Any) -> Any:
    """Return the bits of elements."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def equal(got: Any, want: Any) -> bool:
    """Return whether dtypes, shapes and numbers are equal; a NaN equals a NaN."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if got.dtype.kind == "V":
        got, want = got.astype(np.float32), want.astype(np.float32)
    return bool(np.array_equal(got, want, equal_nan=got.dtype.kind in "fc"))

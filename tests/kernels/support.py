"""What the tests of linear kernels share: random arrays, and the property that defines a transpose."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def rng(*seed: int) -> np.random.Generator:
    """Return a generator that gives the same numbers in every run."""
    return np.random.default_rng(seed or 0)


def normal(shape: Sequence[int], dtype: Any = np.float64, seed: int = 0) -> Array:
    """Return normal numbers; integers are drawn from -5 to 5, complex numbers have both parts normal."""
    generator = rng(seed)
    kind = np.dtype(dtype).kind
    if kind in "iu":
        return np.asarray(generator.integers(0 if kind == "u" else -5, 6, shape), dtype)
    values = np.asarray(generator.normal(size=shape))
    if kind == "c":
        return np.asarray(values + 1j * generator.normal(size=shape), dtype)
    return values.astype(dtype)


def inner(a: Array, b: Array) -> complex:
    """Return the (bilinear) inner product of two arrays of one shape."""
    assert a.shape == b.shape, f"{a.shape} and {b.shape}"
    return complex(np.sum(a.astype(np.complex128) * b.astype(np.complex128)))


def assert_transposed(forward: Callable[[Array], Array], transpose: Callable[[Array], Array], x: Array) -> None:
    """Check <forward(x), y> == <x, transpose(y)> for a random y, and that both keep the dtype."""
    result = forward(x)
    y = normal(result.shape, x.dtype, seed=99)
    back = transpose(y)
    assert result.dtype == x.dtype
    assert back.dtype == x.dtype
    assert back.shape == x.shape
    left, right = inner(result, y), inner(x, back)
    scale = 1 + float(np.linalg.norm(x.ravel()) * np.linalg.norm(back.ravel()))
    eps = np.finfo(x.dtype).eps if x.dtype.kind in "fc" else 0
    assert abs(left - right) <= 50 * eps * scale

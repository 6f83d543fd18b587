"""New arrays: constants, ranges, and data from elsewhere. What is made of arrays keeps their gradients."""

from typing import Any

import numpy as np

from wengert.array.device import to_device
from wengert.array.dtype import to_dtype
from wengert.array.shape import as_int
from wengert.array_api.arguments import together
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.operators.to_dtype import converted

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
    "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


# ---- data from elsewhere


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
    """Return a number, nested sequences of numbers, a buffer or an array as an array.

    A tensor keeps its history, unlike with :func:`wengert.asarray`; so do tensors in a sequence, which are stacked.

    Args:
        dtype: of the result; without it bools give bool, ints int64, floats and complex numbers the default dtypes.
        copy: always (True), never (False) or only where it must be (None).

    Raises:
        ValueError: for ragged sequences, and if ``copy`` is False and a copy is needed.
    """
    to_device(device)
    kind = None if dtype is None else to_dtype(dtype)
    if isinstance(obj, Tensor):
        if copy is False and kind not in (None, obj.dtype):
            raise ValueError(f"asarray(): an array of {obj.dtype} cannot become one of {kind} without a copy")
        return converted(obj, kind or obj.dtype, bool(copy))
    if _holds_tensor(obj):
        if copy is False:
            raise ValueError("asarray(): a sequence of arrays cannot become one without a copy")
        stacked = ops.stack(together("asarray", [asarray(item) for item in obj]))
        return stacked if kind is None else converted(stacked, kind)
    return ops.asarray(_buffer(obj), dtype=kind, copy=copy)


def _buffer(obj: Any) -> Any:
    """Return an object with the buffer protocol as a NumPy array on its memory, and any other object itself."""
    if isinstance(obj, np.ndarray | np.generic | list | tuple | range | bool | int | float | complex):
        return obj
    try:
        return np.asarray(memoryview(obj))
    except TypeError:
        return obj


def _holds_tensor(obj: Any) -> bool:
    return isinstance(obj, list | tuple) and any(isinstance(item, Tensor) or _holds_tensor(item) for item in obj)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """Return an array on the memory of an object with ``__dlpack__``, copied if ``copy`` is true.

    Raises:
        RuntimeError: for a tensor that requires grad: its history would be lost. TypeError: for any other object.
    """
    return ops.from_dlpack(x, device=device, copy=copy)


# ---- constants


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Return an array whose elements are not set."""
    return ops.empty(shape, dtype=dtype, device=device)


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Return an array in the shape and dtype of ``x`` whose elements are not set."""
    return ops.empty_like(x, dtype=dtype, device=device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Any:
    """Return a matrix with ones on its ``k``-th diagonal, above the main one for k > 0, and zeros elsewhere."""
    square = ops.eye(n_rows, n_cols, dtype=dtype, device=device)
    k = as_int(k, "k")
    if k == 0:
        return square
    columns = square.shape[1]
    offset = max(-n_rows, min(k, columns))  # beyond these there is no such diagonal
    shifted = ops.arange(n_rows)[:, None] + offset == ops.arange(columns)
    return ops.cast(shifted, square.dtype)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Return an array of one number, whose kind gives the dtype if none is named."""
    return ops.full(shape, fill_value, dtype=dtype, device=device)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Return an array of one number in the shape and dtype of ``x``."""
    return ops.full_like(x, fill_value, dtype=dtype, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Return an array of ones."""
    return ops.ones(shape, dtype=dtype, device=device)


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Return ones in the shape and dtype of ``x``."""
    return ops.ones_like(x, dtype=dtype, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Return an array of zeros."""
    return ops.zeros(shape, dtype=dtype, device=device)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Return zeros in the shape and dtype of ``x``."""
    return ops.zeros_like(x, dtype=dtype, device=device)


# ---- ranges and grids


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Any:
    """Return the numbers from ``start`` up to but not including ``stop``; one number alone is ``stop``.

    A step that leads away from ``stop`` gives an empty array.

    Raises:
        RuntimeError: for a step of zero.
    """
    if stop is None:
        start, stop = 0, start
    if step and (stop - start) * step < 0:
        stop = start + 0 * (stop + step)  # empty, of the kind of all three
    return ops.arange(start, stop, step, dtype=dtype, device=device)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Any:
    """Return ``num`` equally spaced numbers from ``start`` to ``stop``, which is left out if ``endpoint`` is false."""
    if endpoint:
        return ops.linspace(start, stop, num, dtype=dtype, device=device)
    if num < 0:
        raise ValueError(f"linspace(): num must not be negative, got {num}")
    return ops.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]


def meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[Any, ...]:
    """Return the coordinates of a grid whose axes are the one-dimensional ``arrays``.

    Args:
        indexing: "xy", for which the first array runs along the second axis, or "ij".

    Raises:
        ValueError: for another ``indexing``.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid(): indexing must be 'xy' or 'ij', got {indexing!r}")
    return tuple(ops.meshgrid(*arrays, indexing=indexing)) if arrays else ()


# ---- triangles


def tril(x: Any, /, *, k: int = 0) -> Any:
    """Return the lower triangle of each matrix: zeros above the ``k``-th diagonal."""
    return ops.tril(x, k)


def triu(x: Any, /, *, k: int = 0) -> Any:
    """Return the upper triangle of each matrix: zeros below the ``k``-th diagonal."""
    return ops.triu(x, k)

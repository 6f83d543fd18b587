"""What ``Tensor(...)`` and ``FloatTensor(...)`` hold: PyTorch's oldest constructors take sizes or data."""

from typing import Any

import numpy as np

from wengert.array.shape import Size

__all__ = ["legacy_array"]


def legacy_array(data: tuple[Any, ...], dtype: Any) -> Any:
    """Return the array of a legacy constructor: unset for sizes, a copy of a sequence, array or tensor.

    Raises:
        TypeError: for anything else, such as a number that is no size.
    """
    first = data[0] if len(data) == 1 else ()
    if hasattr(first, "_payload"):
        return np.array(first._payload, dtype)
    if isinstance(first, Size):
        return np.empty(first, dtype)
    if all(type(n) is int for n in data):
        return np.empty(data or 0, dtype)
    if len(data) != 1 or not hasattr(first, "__len__"):
        given = ", ".join(map(repr, data))
        raise TypeError(f"Tensor() takes sizes or one sequence, got {given}; wengert.tensor() takes numbers too")
    return np.array(first, dtype)

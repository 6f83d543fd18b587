"""The order in which the dimensions of arrays lie in memory, which results keep.

NumPy calls it ``order="K"``, PyTorch strides that are preserved: what is computed of a transposed array is transposed too.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["empty_in_order", "memory_order", "places_of"]


def memory_order(*arrays: Any) -> tuple[int, ...]:
    """Return the dimensions of arrays of one rank, that with the largest steps first, as NumPy orders its loops.

    Where the arrays disagree, and for dimensions that an array repeats (step 0), the order is that of the dimensions.

    Example:
        >>> from wengert.array.order import memory_order
        >>> x = np.zeros((2, 3, 4))
        >>> memory_order(x), memory_order(x.transpose(2, 0, 1)), memory_order(x, np.asfortranarray(x))
        ((0, 1, 2), (1, 2, 0), (0, 1, 2))
    """
    if all(a.flags.c_contiguous for a in arrays):
        return tuple(range(arrays[0].ndim))
    steps = [[abs(s) if n != 1 else 0 for s, n in zip(a.strides, a.shape, strict=True)] for a in arrays]
    order: list[int] = []  # innermost first
    for d in reversed(range(arrays[0].ndim)):
        place = len(order)
        for k in reversed(range(len(order))):
            both = [(s[d], s[order[k]]) for s in steps if s[d] and s[order[k]]]
            if any(inner <= outer for outer, inner in both):
                break
            if both:
                place = k
        order.insert(place, d)
    return tuple(reversed(order))


def places_of(order: Sequence[int]) -> tuple[int, ...]:
    """Return the inverse permutation: where in the order each dimension is. ``x.transpose(order)`` is undone with it."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def empty_in_order(shape: Sequence[int], dtype: Any, order: Sequence[int], empty: Callable[..., Any] = np.empty) -> Any:
    """Return an unset array whose dimensions lie in memory in an order; ``empty`` makes it from a shape and a dtype.

    Example:
        >>> from wengert.array.order import empty_in_order
        >>> empty_in_order((2, 3), np.int8, (1, 0)).strides
        (1, 2)
    """
    return empty(tuple(shape[d] for d in order), dtype).transpose(places_of(order))

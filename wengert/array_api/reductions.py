"""Statistics and truth: one value from many along some axes, running sums and products, differences.

An empty tuple of axes reduces nothing; to the operators, as to PyTorch, it would mean all axes.
"""

from typing import Any

from wengert.array.dtype import BOOL, INTEGER, DType, int64, to_dtype, uint64
from wengert.array_api.arguments import axes_or_all, axis_in, operand, own
from wengert.core.registry import ops

__all__ = [
    "all", "any", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod", "std", "sum", "var",
]  # fmt: skip


def reduce(function: Any, x: Any, axis: Any, keepdims: bool, **options: Any) -> Any:
    """Call a reduction along some axes: an int, several in a tuple, or (None) all of them."""
    x = operand("a reduction", x)
    axes = axes_or_all(axis, x.ndim)
    if x.ndim and not axes:  # over a new axis of size one instead
        return function(ops.unsqueeze(x, -1), (x.ndim,), False, **options)
    return function(x, axes, keepdims, **options)


def sum_dtype(x: Any, dtype: Any) -> DType:
    """Return the dtype of a sum or product: as asked for, else the default one of the array's kind."""
    if dtype is not None:
        return to_dtype(dtype)
    if x.dtype.category > INTEGER:
        return x.dtype
    return int64 if x.dtype.category == BOOL or x.dtype.is_signed else uint64


# ---- sums, products, extremes


def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """Return the sum of the elements; of integers in int64 or uint64 unless ``dtype`` names another.

    Example:
        >>> import wengert.array_api as xp
        >>> xp.sum(xp.asarray([[1, 2], [3, 4]], dtype=xp.uint8), axis=0)
        tensor([4, 6], dtype=wengert.uint64)
    """
    x = operand("sum()", x)
    return reduce(ops.sum, x, axis, keepdims, dtype=sum_dtype(x, dtype))


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """Return the product of the elements; of integers in int64 or uint64 unless ``dtype`` names another."""
    x = operand("prod()", x)
    found = sum_dtype(x, dtype)
    x = ops.cast(x, found)
    axes = axes_or_all(axis, x.ndim)
    for a in axes:
        x = ops.prod_dim(x, a, True, dtype=found)
    return x if keepdims else ops.reshape(x, [n for a, n in enumerate(x.shape) if a not in axes])


def max(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the largest element, NaN if there is one; equally large ones share its gradient.

    Raises:
        IndexError: if there are no elements.
    """
    return own(reduce(ops.amax, x, axis, keepdims))


def min(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the smallest element, NaN if there is one; equally small ones share its gradient.

    Raises:
        IndexError: if there are no elements.
    """
    return own(reduce(ops.amin, x, axis, keepdims))


def mean(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the arithmetic mean of the elements; NaN if there are none."""
    return reduce(ops.mean, x, axis, keepdims)


def _variance(x: Any, axes: Any, keepdims: bool, correction: float) -> Any:
    return ops.var(x, axes, correction=correction, keepdim=keepdims)


def _deviation(x: Any, axes: Any, keepdims: bool, correction: float) -> Any:
    return ops.std(x, axes, correction=correction, keepdim=keepdims)


def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """Return the variance Σ |x - mean|² / (n - correction)."""
    return reduce(_variance, x, axis, keepdims, correction=correction)


def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """Return the standard deviation: the square root of the variance."""
    return own(reduce(_deviation, x, axis, keepdims, correction=correction))


# ---- truth


def _truth(name: str, x: Any) -> Any:
    x = operand(name, x)
    return x if x.dtype.category == BOOL else ops.ne(x, 0)


def all(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Return whether every element is true (not zero); true if there are none."""
    return reduce(ops.all, _truth("all()", x), axis, keepdims)


def any(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Return whether some element is true (not zero); false if there are none."""
    return reduce(ops.any, _truth("any()", x), axis, keepdims)


# ---- along one axis


def _running(function: Any, first: int, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Any:
    """Accumulate along an axis, which a one-dimensional array need not name; begin with ``first`` if asked to."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"axis must be given for an array of {x.ndim} dimensions (shape {tuple(x.shape)})")
        axis = 0
    axis = axis_in(axis, x.ndim)
    out = function(x, axis, dtype=sum_dtype(x, dtype))
    if not include_initial:
        return out
    shape = [1 if a == axis else n for a, n in enumerate(x.shape)]
    return ops.cat((ops.full(shape, first, dtype=out.dtype), out), axis)


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Return the running sum along an axis, beginning with 0 if ``include_initial`` is true.

    Raises:
        ValueError: if no axis is given and the array is not one-dimensional.
    """
    return _running(ops.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Return the running product along an axis, beginning with 1 if ``include_initial`` is true.

    Raises:
        ValueError: if no axis is given and the array is not one-dimensional.
    """
    return _running(ops.cumprod, 1, x, axis, dtype, include_initial)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Return the ``n``-th differences between neighbours along an axis, first extended at its ends."""
    return ops.diff(x, n, axis_in(axis, x.ndim), prepend, append)

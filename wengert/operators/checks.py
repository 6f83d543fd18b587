"""What operators on images and matrices check alike: equal dtypes, one size per dimension, batched or not."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import DType, dtype_of
from wengert.array.shape import as_int
from wengert.core.interpret import Payload, level_of, memory_of
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import raw
from wengert.errors import DTypeError, ShapeError, TransformError

__all__ = ["all_values", "anywhere", "batched", "known", "per_dim", "same_dtype", "wrong_values"]


def same_dtype(name: str, **tensors: Any) -> None:
    """Refuse tensors (arrays or Specs; None is left out) of different dtypes.

    Raises:
        DTypeError: naming every argument and its dtype.
    """
    given = {k: _dtype(t.dtype) for k, t in tensors.items() if t is not None}
    if len(set(given.values())) > 1:
        listed = ", ".join(f"{k}: {dtype}" for k, dtype in given.items())
        raise DTypeError(f"{name}(): the tensors must have the same dtype, got {listed}; convert with .to(dtype)")


def known(tensor: Any) -> Any:
    """Return the array of a tensor, to check its values; None where it stands for many at once, as under vmap."""
    captures = thread.state.captures
    if captures is not None:
        level = getattr(tensor._payload, "level", captures)
        return captures.constant(tensor) if level is captures else None
    try:
        return raw(tensor)
    except TransformError:
        return None


def all_values(tensor: Any) -> Any:
    """Return the array of everything a tensor stands for, under vmap of all examples: for checks of each element alone.

    A program that is captured depends on it, element by element; :func:`wrong_values` asks for less.
    """
    level_of(tensor)  # refuses a tensor that outlived its transform
    captures = thread.state.captures
    if captures is None:
        return memory_of(tensor)
    while isinstance(tensor._payload, Payload) and tensor._payload.level is not captures:
        tensor = tensor._payload.carrier
    return raw(tensor, "a check of values")


def wrong_values(tensor: Any, wrong: Callable[[Any], Any]) -> Any:
    """Return the elements of a tensor that are wrong, as a vector: of all examples under vmap.

    Args:
        wrong: gives where elements are wrong, of an array as of a tensor; a program depends on whether any is.
    """
    if thread.state.captures is not None and known(tensor) is None and not anywhere(wrong(tensor)):
        return np.zeros(0)
    values = all_values(tensor)
    return values[wrong(values)]


def anywhere(mask: Any) -> bool:
    """Whether any element of a boolean tensor, of any example, is True: one value, which a program can depend on."""
    return bool(all_values(ops.any(mask)).any())


def _dtype(dtype: Any) -> DType:
    return dtype if isinstance(dtype, DType) else dtype_of(dtype)


def per_dim(name: str, what: str, value: Any, dims: int) -> tuple[int, ...]:
    """Return an int, or a sequence of one or ``dims`` ints, as one int for each dimension.

    Raises:
        ShapeError: if the sequence has another length.
    """
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return (as_int(value, f"{name}(): {what}"),) * dims
    if len(value) not in (1, dims):
        raise ShapeError(f"{name}(): {what} takes an int or {dims} ints, one per spatial dimension, got {tuple(value)}")
    sizes = tuple(as_int(v, f"{name}(): {what}") for v in value)
    return sizes if len(sizes) == dims else sizes * dims


def batched(name: str, dims: int, input: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function of ``(N, C, *spatial)`` to such a tensor, or to a single ``(C, *spatial)`` as to a batch of one.

    Raises:
        ShapeError: for any other number of dimensions.
    """
    if input.ndim == dims + 2:
        return function(input)
    if input.ndim != dims + 1:
        axes = ", ".join(("D", "H", "W")[3 - dims :] if dims > 1 else ("L",))
        raise ShapeError(f"{name}(): input must be (N, C, {axes}) or (C, {axes}), got shape {tuple(input.shape)}")
    found = function(ops.unsqueeze(input, 0))
    if isinstance(found, tuple):
        return tuple(ops.squeeze(f, 0) for f in found)
    return ops.squeeze(found, 0)

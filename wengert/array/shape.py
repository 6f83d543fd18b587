"""Shapes and axes: broadcasting, normalised axes, sizes; and every message about them."""

import builtins
import math
import operator
from collections.abc import Sequence
from typing import Any

from wengert.errors import ShapeError

__all__ = ["Size", "axes_of", "axis_of", "broadcast_shapes", "infer_size", "kept", "reduced", "size_of"]

Shape = tuple[int, ...]


class Size(tuple[int, ...]):
    """The shape of a tensor: a tuple of ints that also knows its number of elements."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements: the product of the sizes."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"wengert.Size({list(self)})"

    def __getitem__(self, key: Any) -> Any:
        found = tuple.__getitem__(self, key)
        return Size(found) if isinstance(key, slice) else found

    def __add__(self, other: Any) -> "Size":
        return Size(tuple.__add__(self, tuple(other)))


def as_int(value: Any, what: str) -> int:
    """Return an integer argument as ``int``; TypeError for floats and bools that only look like one."""
    if not isinstance(value, builtins.bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    shown = (
        f"one of shape {tuple(value.shape)}" if getattr(value, "shape", ()) else repr(value)
    )  # a tensor, or an array
    raise TypeError(f"{what} must be an int, got {shown} of type {type(value).__name__}")


def _several(value: Any, what: str) -> bool:
    """True for a sequence of ints, False for one; TypeError for text, whose elements are no ints."""
    if isinstance(value, str | bytes):
        raise TypeError(f"{what} must be an int or ints, got {value!r}")
    return isinstance(value, Sequence)


def axis_of(dim: Any, ndim: int, what: str = "dim") -> int:
    """Return ``dim`` counted from the front; a 0-d tensor counts as having one dimension, as in PyTorch.

    Raises:
        IndexError: if it lies outside ``[-ndim, ndim - 1]``.
    """
    dim = as_int(dim, what)
    bound = max(ndim, 1)
    if not -bound <= dim < bound:
        raise IndexError(f"{what}={dim} is out of range for a tensor of {ndim} dimensions: use {-bound} to {bound - 1}")
    return int(dim % bound)


def axes_of(dims: Any, ndim: int, what: str = "dim") -> Shape:
    """Return one or several axes as a tuple counted from the front; ``None`` and ``()`` mean all of them.

    Raises:
        IndexError: for an axis out of range.
        RuntimeError: for an axis given twice.
    """
    if dims is None:
        return tuple(range(ndim))
    if not _several(dims, what):
        dims = (dims,)
    elif not dims:
        return tuple(range(ndim))
    axes = tuple(axis_of(d, ndim, what) for d in dims)
    if len(set(axes)) != len(axes):
        raise RuntimeError(f"{what}={tuple(dims)} names the same dimension twice (tensor of {ndim} dimensions)")
    return axes if ndim else ()


def size_of(size: Any, what: str = "size") -> Shape:
    """Return a shape argument (an int, a sequence of ints, possibly nested in a one-tuple) as a tuple of ints."""
    if isinstance(size, Sequence) and len(size) == 1 and isinstance(size[0], Sequence):
        size = size[0]
    if not _several(size, what):
        size = (size,)
    return tuple(as_int(s, what) for s in size)


def broadcast_shapes(name: str, *shapes: Shape) -> Shape:
    """Return the shape that all broadcast to.

    Raises:
        ShapeError: naming the operator, the shapes and the first dimension, from the end, that does not fit.
    """
    ndim = max((len(s) for s in shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        for i in range(1, len(shape) + 1):
            size = shape[-i]
            if size == 1 or size == result[-i]:
                continue
            if result[-i] != 1:
                listed = " and ".join(str(tuple(s)) for s in shapes)
                raise ShapeError(
                    f"{name}(): shapes {listed} do not broadcast: sizes {result[-i]} and {size} at dimension -{i} "
                    "must be equal or one of them 1"
                )
            result[-i] = size
    return tuple(result)


def infer_size(size: Shape, numel: int, shape: Shape, name: str = "reshape") -> Shape:
    """Return ``size`` with its single -1 replaced by what makes the number of elements ``numel``.

    Raises:
        ShapeError: if the sizes do not hold exactly ``numel`` elements.
    """
    unknown = [i for i, s in enumerate(size) if s == -1]
    if len(unknown) > 1 or any(s < -1 for s in size):
        raise ShapeError(f"{name}(): sizes must be non-negative with at most one -1, got {size}")
    known = math.prod(s for s in size if s != -1)
    if unknown:
        if known == 0:
            raise ShapeError(f"{name}(): cannot tell what -1 stands for in {size} of a tensor with {numel} elements")
        if numel % known == 0:
            size = (*size[: unknown[0]], numel // known, *size[unknown[0] + 1 :])
    if math.prod(size) != numel or -1 in size:
        raise ShapeError(f"{name}(): shape {size} is invalid for a tensor of shape {shape} with {numel} elements")
    return size


def reduced(shape: Shape, axes: Shape, keepdim: bool) -> Shape:
    """Return the shape after reducing ``axes``."""
    if keepdim:
        return tuple(1 if i in axes else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in axes)


def kept(shape: Shape, axes: Shape) -> Shape:
    """Return the shape with size 1 at ``axes``: what a reduced tensor is reshaped to before it is spread again."""
    return tuple(1 if i in axes else s for i, s in enumerate(shape))

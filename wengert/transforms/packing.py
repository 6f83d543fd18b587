"""A tree of tensors as one tensor, for solvers that know only one unknown."""

from typing import Any

import numpy as np

from wengert import tree
from wengert.array.dtype import float32, float64
from wengert.core.apply import as_tensor
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.errors import DTypeError, ShapeError

__all__ = ["Packing"]

NUMERIC = (bool, int, float, complex, np.generic, np.ndarray)


class Packing:
    """How a tree of floating-point tensors is laid out in one tensor.

    A single tensor stands for itself, in its own shape; several are flattened and joined.

    Args:
        value: the tree; numbers and arrays count as tensors. what: its name, for messages.

    Attributes:
        leaves: the tensors of the tree. spec, shapes, sizes, dtype: what a tree of this layout has.

    Raises:
        ValueError: for a tree without leaves. TypeError: for a leaf that is no tensor of float32 or float64.
        DTypeError: if dtypes differ.
    """

    __slots__ = ("dtype", "leaves", "shapes", "sizes", "spec", "what")

    def __init__(self, value: Any, what: str) -> None:
        leaves, self.spec = tree.flatten(value)
        self.what = what
        self.leaves = leaves = [as_tensor(v) if isinstance(v, NUMERIC) else v for v in leaves]
        if not leaves:
            raise ValueError(f"{what} is a tree without tensors: there is nothing to solve for")
        for leaf, path in zip(leaves, tree.paths(value), strict=True):
            if not isinstance(leaf, Tensor) or leaf.dtype not in (float32, float64):
                given = f"a tensor of {leaf.dtype}" if isinstance(leaf, Tensor) else type(leaf).__name__
                raise TypeError(f"{what}{path} must be a tensor of float32 or float64, got {given}")
        dtypes = {leaf.dtype for leaf in leaves}
        if len(dtypes) > 1:
            names = ", ".join(sorted(str(d) for d in dtypes))
            raise DTypeError(f"{what} has tensors of several dtypes ({names}); convert them to one")
        self.dtype = leaves[0].dtype
        self.shapes = [tuple(leaf.shape) for leaf in leaves]
        self.sizes = [leaf.numel() for leaf in leaves]

    def packed(self) -> Any:
        """Return the tree itself as one tensor."""
        return self._joined(self.leaves)

    def pack(self, value: Any) -> Any:
        """Return a tree of this layout as one tensor.

        Raises:
            ValueError, TypeError: for another structure. ShapeError: for other shapes. DTypeError: for another dtype.
        """
        if self.spec.kind is None:
            self._check(value, 0, "")
            return value
        leaves = tree.flatten_up_to(self.spec, value, self.what)
        for i, leaf in enumerate(leaves):
            self._check(leaf, i, f" (tensor {i} of the tree)" if len(leaves) > 1 else "")
        return self._joined(leaves)

    def _joined(self, leaves: list[Any]) -> Any:
        if len(leaves) == 1:
            return leaves[0]
        return ops.cat([ops.reshape(leaf, (-1,)) for leaf in leaves])

    def _check(self, leaf: Any, index: int, where: str) -> None:
        if not isinstance(leaf, Tensor):
            raise TypeError(f"{self.what}{where} is a tensor, but the function returned {type(leaf).__name__} for it")
        if leaf._payload.shape != self.shapes[index]:
            raise ShapeError(f"{self.what}{where} has shape {self.shapes[index]}, but the function returned "
                             f"{tuple(leaf.shape)} for it")  # fmt: skip
        if leaf.dtype is not self.dtype:
            raise DTypeError(f"{self.what}{where} is {self.dtype}, but the function returned {leaf.dtype} for it")

    def unpack(self, packed: Any) -> Any:
        """Return the tree of a packed tensor."""
        if self.spec.kind is None:
            return packed
        return tree.unflatten(self.parts(packed, ()), self.spec)

    def unpack_many(self, packed: Any) -> Any:
        """Return the tree of a packed tensor with further dimensions in front."""
        lead = tuple(packed.shape)[: packed.ndim - (len(self.shapes[0]) if len(self.shapes) == 1 else 1)]
        return tree.unflatten(self.parts(packed, lead), self.spec)

    def parts(self, packed: Any, lead: tuple[int, ...]) -> list[Any]:
        """Return the leaves of a packed tensor that has the dimensions ``lead`` in front."""
        if len(self.shapes) == 1:
            return [packed]
        pieces = ops.split(packed, self.sizes, -1)
        return [ops.reshape(piece, (*lead, *shape)) for piece, shape in zip(pieces, self.shapes, strict=True)]

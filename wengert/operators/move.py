"""Shapes seen differently: reshape, permute, squeeze and their kin. Every result shares memory where it can."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from wengert.array.dtype import int64, to_dtype
from wengert.array.layout import is_arranged, memory_order
from wengert.array.shape import as_int, axes_of, axis_of, broadcast_shapes, infer_size, size_of
from wengert.core.apply import as_tensor
from wengert.core.arguments import Anything, Axis, Size
from wengert.core.batch import front, shifted
from wengert.core.families import composite, linear, nondifferentiable
from wengert.core.methods import attach
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.signature import Param
from wengert.core.tensor import Tensor
from wengert.errors import ShapeError

__all__ = [
    "adjoint", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_tensors", "broadcast_to", "contiguous", "flatten",
    "movedim", "narrow", "permute", "ravel", "reshape", "select", "squeeze", "swapaxes", "swapdims", "t", "transpose",
    "unflatten", "unsqueeze", "view_as_dtype",
]  # fmt: skip


def _squeezed_dims(dim: Any, ndim: int, name: str) -> tuple[int, ...]:
    if isinstance(dim, Sequence) and not dim:
        return ()
    return axes_of(dim, ndim, name)


NewAxis = Annotated[Any, Param(lambda dim, ndim, name: axis_of(dim, ndim + 1, name))]
SqueezedDims = Annotated[Any, Param(_squeezed_dims)]


# ---- the operators


def _reshape_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    input, shape = values
    example = tuple(input.shape[1:])
    return ops.reshape(input, (size, *infer_size(shape, math.prod(example), example)))


@linear(
    transpose=lambda g, input_shape: ops.reshape(g, input_shape),
    spec=lambda input, shape: Spec(infer_size(shape, math.prod(input.shape), input.shape), input.dtype),
    batch=_reshape_batch,
    view=True,
    widen=False,
    samples=lambda s: [
        s((2, 3), shape=(3, 2)), s((2, 3), shape=(-1,)), s((), shape=(1, 1)), s((1,), shape=()),
        s((0, 2), shape=(3, 0)), s((2, 3), shape=(2, -1, 1)),
    ],
)  # fmt: skip
def reshape(input: Anything, shape: Size) -> Any:
    """Return the elements in row-major order under another shape, of which one size may be -1; a view if possible."""
    return input.reshape(infer_size(shape, input.size, input.shape))


def _order(dims: Any, ndim: int, name: str) -> tuple[int, ...]:
    dims = size_of(dims, name)
    return axes_of(dims, ndim, name) if dims else ()


Order = Annotated[Any, Param(_order, variadic=True)]


def _permuted(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    if len(dims) != len(shape):
        raise ShapeError(
            f"permute(): dims {dims} must name each of the {len(shape)} dimensions of shape {tuple(shape)} once"
        )
    return tuple(shape[d] for d in dims)


@linear(
    transpose=lambda g, dims: ops.permute(g, tuple(sorted(range(len(dims)), key=dims.__getitem__))),
    spec=lambda input, dims: Spec(_permuted(input.shape, dims), input.dtype),
    batch=front(dims=lambda dims, n: (0, *shifted(dims, n))),
    view=True,
    widen=False,
    samples=lambda s: [
        s((2, 3, 1), dims=(2, 0, 1)),
        s((2, 3), dims=(-1, 0)),
        s((), dims=()),
        s((2, 0, 3), dims=(1, 2, 0)),
    ],
)
def permute(input: Anything, dims: Order) -> Any:
    """Return a view with the dimensions in the order ``dims``."""
    _permuted(input.shape, dims)
    return input.transpose(dims)


def _transposed(shape: tuple[int, ...], dim0: int, dim1: int) -> tuple[int, ...]:
    swapped = list(shape)
    if swapped:
        swapped[dim0], swapped[dim1] = shape[dim1], shape[dim0]
    return tuple(swapped)


@linear(
    transpose=lambda g, dim0, dim1: ops.transpose(g, dim0, dim1),
    spec=lambda input, dim0, dim1: Spec(_transposed(input.shape, dim0, dim1), input.dtype),
    batch="front",
    view=True,
    widen=False,
    samples=lambda s: [
        s((2, 3), dim0=0, dim1=1),
        s((2, 3, 2), dim0=-1, dim1=0),
        s((), dim0=0, dim1=-1),
        s((0, 2), dim0=0, dim1=1),
    ],
)
def transpose(input: Anything, dim0: Axis, dim1: Axis) -> Any:
    """Return a view with two dimensions swapped."""
    return input.swapaxes(dim0, dim1) if input.shape else input[...]


def _unsqueezed(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (*shape[:dim], 1, *shape[dim:])


@linear(
    transpose=lambda g, dim: ops.squeeze(g, dim),
    spec=lambda input, dim: Spec(_unsqueezed(input.shape, dim), input.dtype),
    batch=front(dim=shifted),
    view=True,
    widen=False,
    samples=lambda s: [s((2, 3), dim=0), s((2, 3), dim=-1), s((2, 3), dim=1), s((), dim=0), s((0,), dim=-2)],
)
def unsqueeze(input: Anything, dim: NewAxis) -> Any:
    """Return a view with a new dimension of size 1 at ``dim``."""
    return input.reshape(_unsqueezed(input.shape, dim))


def _squeezed(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for i, n in enumerate(shape) if n != 1 or i not in dims)


@linear(
    transpose=lambda g, input_shape: ops.reshape(g, input_shape),
    spec=lambda input, dim=None: Spec(_squeezed(input.shape, dim), input.dtype),
    batch=front(dim=shifted),
    view=True,
    widen=False,
    samples=lambda s: [
        s((1, 3, 1)), s((1, 3, 1), dim=0), s((1, 3, 1), dim=1), s((1, 3, 1), dim=(0, -1)), s((1, 1)), s(()), s((0, 1)),
        s((1, 2), dim=()),
    ],
)  # fmt: skip
def squeeze(input: Anything, dim: SqueezedDims = None) -> Any:
    """Return a view without the dimensions of size 1: all of them, or those named in ``dim`` that have size 1."""
    return input.reshape(_squeezed(input.shape, dim))


@nondifferentiable(
    spec=lambda input, dtype: Spec(_viewed_as(input.shape, input.dtype.itemsize, dtype), dtype),
    batch="front",
    view=True,
    widen=False,
    home=(),
    samples=lambda s: [s((2, 4), dtype=int64), s((0, 4), dtype=int64), s((3, 2, 4), dtype=int64)],
)
def view_as_dtype(input: Anything, dtype: Any) -> Any:
    """Return a view of the same bytes as elements of another dtype; the last dimension absorbs a change of size."""
    shape = _viewed_as(input.shape, input.dtype.itemsize, dtype)
    if not input.size:
        return np.empty(shape, dtype.numpy)
    if dtype.itemsize != input.dtype.itemsize and input.strides[-1] != input.dtype.itemsize and input.shape[-1] > 1:
        raise ShapeError(
            "view(): to change the element size the last dimension must be contiguous, "
            f"got strides of {input.strides} bytes"
        )
    return input.view(dtype.numpy).reshape(shape)


def _viewed_as(shape: tuple[int, ...], itemsize: int, dtype: Any) -> tuple[int, ...]:
    if dtype.itemsize == itemsize:
        return tuple(shape)
    if not shape:
        raise ShapeError(f"view(): a 0-d tensor cannot be viewed as {dtype}, whose elements have another size")
    if shape[-1] * itemsize % dtype.itemsize:
        raise ShapeError(
            f"view(): the last dimension, {shape[-1]} elements of {itemsize} bytes, does not divide into {dtype}"
        )
    return (*shape[:-1], shape[-1] * itemsize // dtype.itemsize)


# ---- what follows from them


def view(input: Any, *shape: Any) -> Any:
    """Return a view of the same memory under another shape, or of the same bytes under another dtype.

    Raises:
        ShapeError: if the elements do not lie in memory as the shape needs; ``reshape`` copies then.
    """
    if len(shape) == 1 and not isinstance(shape[0], Sequence) and not hasattr(shape[0], "__index__"):
        return ops.view_as_dtype(input, to_dtype(shape[0]))
    size = size_of(shape, "shape")
    array = input._payload if isinstance(input._payload, np.ndarray) else input._payload.stand_in
    if array is not None and not array.flags.c_contiguous:
        wanted = infer_size(size, array.size, array.shape, "view")
        try:
            np.reshape(array, wanted, copy=False)
        except ValueError:
            raise ShapeError(
                f"view(): a tensor of shape {tuple(array.shape)} and strides {input.stride()} cannot be seen as "
                f"{wanted} without copying (at least one dimension spans two subspaces that are not contiguous); "
                "use reshape()"
            ) from None
    return ops.reshape(input, size)


@composite(method=True, samples=lambda s: [s((2, 3, 2)), s((2, 3, 2), start_dim=1), s((2, 3), end_dim=0), s(())])
def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Join the dimensions from ``start_dim`` to ``end_dim`` (both included) into one."""
    input = as_tensor(input)
    start, end = axis_of(start_dim, input.ndim, "start_dim"), axis_of(end_dim, input.ndim, "end_dim")
    if start > end:
        raise ShapeError(f"flatten(): start_dim={start_dim} comes after end_dim={end_dim}")
    shape = input.shape
    if not shape:
        return ops.reshape(input, (1,))
    if start == end:
        return input
    return ops.reshape(input, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


@composite(method=True, samples=lambda s: [s((6, 2), dim=0, sizes=(2, 3)), s((6,), dim=-1, sizes=(-1, 2))])
def unflatten(input: Any, dim: int, sizes: Sequence[int]) -> Any:
    """Split one dimension into several of the given sizes, of which one may be -1."""
    input = as_tensor(input)
    dim = axis_of(dim, input.ndim)
    shape = input.shape
    if not shape:
        raise ShapeError("unflatten(): a 0-d tensor has no dimension to split")
    parts = infer_size(size_of(sizes, "sizes"), shape[dim], (shape[dim],), "unflatten")
    return ops.reshape(input, (*shape[:dim], *parts, *shape[dim + 1 :]))


@composite(method=True, samples=lambda s: [s((2, 3)), s(())])
def ravel(input: Any) -> Any:
    """Return the tensor as one row of elements; a view if it is contiguous."""
    return ops.reshape(as_tensor(input), (-1,)) if as_tensor(input).numel() else ops.reshape(as_tensor(input), (0,))


@composite(method=True, samples=lambda s: [s((2, 3), axis0=0, axis1=1)])
def swapaxes(input: Any, axis0: int, axis1: int) -> Any:
    """Alias of :func:`wengert.transpose`."""
    return ops.transpose(input, axis0, axis1)


@composite(method=True, samples=lambda s: [s((2, 3), dim0=0, dim1=1)])
def swapdims(input: Any, dim0: int, dim1: int) -> Any:
    """Alias of :func:`wengert.transpose`."""
    return ops.transpose(input, dim0, dim1)


@composite(method=True, samples=lambda s: [s((2, 3)), s((3,)), s(())])
def t(input: Any) -> Any:
    """Transpose a matrix; a tensor of fewer dimensions is returned as a view of itself."""
    input = as_tensor(input)
    if input.ndim > 2:
        raise ShapeError(f"t() takes a tensor of at most 2 dimensions, got shape {tuple(input.shape)}; use transpose()")
    return ops.transpose(input, 0, 1 if input.ndim == 2 else 0)


@composite(
    method=True, aliases=("moveaxis",),
    samples=lambda s: [
        s((2, 3, 1), source=0, destination=2), s((2, 3, 1), source=(0, -1), destination=(1, 0)),
        s((), source=(), destination=()),
    ],
)  # fmt: skip
def movedim(input: Any, source: Any, destination: Any) -> Any:
    """Move dimensions from positions ``source`` to positions ``destination``; the others keep their order."""
    input = as_tensor(input)
    ndim = input.ndim
    sources, targets = size_of(source, "source"), size_of(destination, "destination")
    if len(sources) != len(targets):
        raise ShapeError(f"movedim(): source {sources} and destination {targets} must name equally many dimensions")
    if not sources:
        return ops.permute(input, tuple(range(ndim)))
    sources, targets = axes_of(sources, ndim, "source"), axes_of(targets, ndim, "destination")
    moved = dict(zip(targets, sources, strict=True))
    rest = iter(d for d in range(ndim) if d not in sources)
    return ops.permute(input, tuple(moved[i] if i in moved else next(rest) for i in range(ndim)))


@composite(method=True, samples=lambda s: [s((2, 3)), s((2, 3, 1), kind="complex")])
def adjoint(input: Any) -> Any:
    """Conjugate transpose of each matrix in the last two dimensions."""
    swapped = ops.transpose(_matrix(as_tensor(input), "adjoint"), -2, -1)
    return ops.conj(swapped) if swapped.is_complex() else swapped


def _matrix(input: Any, name: str) -> Any:
    if input.ndim < 2:
        raise ShapeError(f"{name} needs a tensor of at least 2 dimensions, got shape {tuple(input.shape)}")
    return input


@composite(method=True, samples=lambda s: [s((3, 1), size=(2, 3, 4))])
def broadcast_to(input: Any, size: Sequence[int]) -> Any:
    """Return a view in which dimensions of size 1 are repeated to ``size``."""
    return ops.expand(input, size)


@composite(samples=lambda s: [s((2, 1), (3,)), s(()), s((0, 1), (1, 2))])
def broadcast_tensors(*tensors: Any) -> tuple[Any, ...]:
    """Return views of all tensors broadcast to their common shape."""
    found = [as_tensor(v) for v in _sequence(tensors)]
    shape = broadcast_shapes("broadcast_tensors", *(v.shape for v in found))
    return tuple(ops.expand(v, shape) for v in found)


def _sequence(tensors: tuple[Any, ...]) -> Sequence[Any]:
    return tensors[0] if len(tensors) == 1 and isinstance(tensors[0], list | tuple) else tensors


def _each(function: Any, tensors: tuple[Any, ...]) -> Any:
    """Apply ``function`` to one tensor, or to each of several."""
    if len(tensors) == 1 and not isinstance(tensors[0], list | tuple):
        return function(as_tensor(tensors[0]))
    return tuple(function(as_tensor(v)) for v in _sequence(tensors))


@composite(samples=lambda s: [s(()), s((2,))])
def atleast_1d(*tensors: Any) -> Any:
    """Return each tensor with at least one dimension."""
    return _each(lambda v: v if v.ndim else ops.reshape(v, (1,)), tensors)


@composite(samples=lambda s: [s(()), s((2,)), s((2, 3))])
def atleast_2d(*tensors: Any) -> Any:
    """Return each tensor with at least two dimensions; a vector becomes a row."""
    return _each(lambda v: v if v.ndim > 1 else ops.reshape(v, (1, v.numel())), tensors)


def _three(tensor: Any) -> Any:
    if tensor.ndim == 2:
        return ops.unsqueeze(tensor, 2)
    return tensor if tensor.ndim > 2 else ops.reshape(tensor, (1, tensor.numel(), 1))


@composite(samples=lambda s: [s(()), s((2,)), s((2, 3)), s((2, 1, 2))])
def atleast_3d(*tensors: Any) -> Any:
    """Return each tensor with at least three dimensions; a vector becomes (1, n, 1), a matrix (m, n, 1)."""
    return _each(_three, tensors)


def _reversed(input: Any) -> Any:
    """The tensor with its dimensions in reverse order."""
    return ops.permute(input, tuple(range(input.ndim))[::-1])


def _conjugate_matrix(input: Any) -> Any:
    """The conjugate transpose of a matrix."""
    if input.ndim not in (0, 2):
        raise ShapeError(f"H is defined for matrices, this tensor has shape {tuple(input.shape)}; use mH for batches")
    return ops.adjoint(input) if input.ndim else input


@composite(method=True, samples=lambda s: [s((3, 4), dim=1, index=-1), s((3,), dim=0, index=1)])
def select(input: Any, dim: int, index: int) -> Any:
    """Return the slice at one position of a dimension, as a view without that dimension."""
    input = as_tensor(input)
    dim, index = axis_of(dim, input.ndim), as_int(index, "index")
    if not input.ndim:
        raise IndexError("select() cannot be applied to a 0-d tensor")
    size = input.shape[dim]
    if not -size <= index < size:
        raise IndexError(f"select(): index {index} is out of bounds for dimension {dim} with size {size}")
    return ops.getitem(input, _along(input.shape, dim, index % size))


def _along(shape: Sequence[int], dim: int, item: Any) -> tuple[Any, ...]:
    """Return the basic index that has ``item`` at ``dim`` and takes everything before."""
    return (*(slice(0, n, 1) for n in shape[:dim]), item)


@composite(
    method=True,
    samples=lambda s: [
        s((3, 4), dim=1, start=1, length=2),
        s((3,), dim=0, start=-2, length=2),
        s((3,), dim=0, start=3, length=0),
    ],
)
def narrow(input: Any, dim: int, start: Any, length: int) -> Any:
    """Return the view of ``length`` positions of a dimension from ``start`` on."""
    input = as_tensor(input)
    dim, length = axis_of(dim, input.ndim), as_int(length, "length")
    if not input.ndim:
        raise ShapeError("narrow() cannot be applied to a 0-d tensor")
    size = input.shape[dim]
    begin = as_int(start.item() if isinstance(start, Tensor) else start, "start")
    if not -size <= begin <= size:
        raise IndexError(f"narrow(): start={begin} is out of bounds for dimension {dim} with size {size}")
    begin = begin + size if begin < 0 else begin
    if length < 0 or begin + length > size:
        raise ShapeError(f"narrow(): start={begin} and length={length} reach beyond dimension {dim} with size {size}")
    return ops.getitem(input, _along(input.shape, dim, slice(begin, begin + length, 1)))


@composite(method=True, samples=lambda s: [s((2, 3))])
def contiguous(input: Any, memory_format: Any = None) -> Any:
    """Return the tensor with its elements without gaps in the order of ``memory_format``, row-major by default.

    That is the tensor itself if they are so already, else a copy.
    """
    order = memory_order("contiguous", memory_format, input.ndim)
    lies = input.is_contiguous() if order is None else is_arranged(input._payload, order)
    return input if lies else ops.clone(input, memory_format=memory_format)


def _same_shape(name: str) -> Any:
    function = getattr(ops, name) if name != "view" else view

    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, Tensor):
            raise TypeError(f"{name}_as() takes a tensor, got {type(other).__name__}")
        return function(self, other.shape)

    method.__name__ = f"{name}_as"
    method.__doc__ = f"Return ``{name}(other.shape)``."
    return method


attach("view", view)
for _name in ("view", "reshape", "expand"):
    attach(f"{_name}_as", _same_shape(_name))
attach("T", property(_reversed))
attach("mT", property(lambda self: ops.transpose(_matrix(self, "mT"), -2, -1), doc="Each matrix transposed."))
attach("H", property(_conjugate_matrix))
attach("mH", property(lambda self: ops.adjoint(_matrix(self, "mH")), doc="Each matrix transposed and conjugated."))

"""Views by strides: diagonals, sliding windows, and ``as_strided``; and writes into them out of place."""

import math
from typing import Any

import numpy as np

from wengert.array.shape import as_int, axis_of, size_of
from wengert.core.apply import as_tensor, execute
from wengert.core.arguments import Anything, Axis, Int
from wengert.core.batch import front, prepended, shifted
from wengert.core.families import composite, linear
from wengert.core.inplace import overlaps
from wengert.core.methods import attach
from wengert.core.operator import Spec
from wengert.core.registry import operators, ops
from wengert.errors import ShapeError
from wengert.operators.writes import publish_method

__all__ = [
    "as_strided",
    "diag_embed",
    "diagonal",
    "diagonal_scatter",
    "select_scatter",
    "slice_scatter",
    "sliding_windows",
]

Shape = tuple[int, ...]


# ---- diagonals


def _diagonal_size(shape: Shape, offset: int, dim1: int, dim2: int) -> Shape:
    if len(shape) < 2 or dim1 == dim2:
        raise ShapeError(f"diagonal() needs two different dimensions, got {dim1} and {dim2} of shape {tuple(shape)}")
    rows, columns = shape[dim1], shape[dim2]
    length = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    return (*(n for d, n in enumerate(shape) if d not in (dim1, dim2)), max(length, 0))


def _diagonal(array: Any, offset: int, dim1: int, dim2: int) -> Any:
    """Return a diagonal as a view that can be written."""
    _diagonal_size(array.shape, offset, dim1, dim2)
    out = np.diagonal(array, offset, dim1, dim2)
    out.flags.writeable = array.flags.writeable
    return out


@linear(
    transpose=lambda g, offset, dim1, dim2, input_shape: ops.diagonal_transpose(g, offset, dim1, dim2, input_shape),
    batch="front",
    spec=lambda input, offset=0, dim1=0, dim2=1: Spec(_diagonal_size(input.shape, offset, dim1, dim2), input.dtype),
    view=True,
    widen=False,
    samples=lambda s: [
        s((3, 4)), s((3, 4), offset=2), s((3, 2), offset=-1), s((2, 2), offset=5),
        s((2, 3, 2), offset=1, dim1=-1, dim2=1), s((0, 2)),
    ],
)  # fmt: skip
def diagonal(input: Anything, offset: Int = 0, dim1: Axis = 0, dim2: Axis = 1) -> Any:
    """Return a diagonal of two dimensions as the last dimension of a view; ``offset`` counts to the right."""
    return _diagonal(input, offset, dim1, dim2)


@linear(
    transpose=lambda g, offset, dim1, dim2: ops.diagonal(g, offset, dim1, dim2),
    batch=front(dim1=shifted, dim2=shifted, shape=prepended),
    spec=lambda input, offset, dim1, dim2, shape: Spec(tuple(shape), input.dtype),
    widen=False,
    home=(),
    samples=lambda s: [
        s((3,), 2, 0, 1, shape=(3, 5)),
        s((2, 2), -1, 2, 0, shape=(2, 2, 3)),
        s((0,), 0, 0, 1, shape=(0, 2)),
    ],
)
def diagonal_transpose(input: Anything, offset: Any, dim1: Any, dim2: Any, shape: Any) -> Any:
    """Return zeros of ``shape`` with ``input`` on a diagonal."""
    out = np.zeros(shape, input.dtype)
    _diagonal(out, offset, dim1, dim2)[...] = input
    return out


@composite(
    method=True,
    samples=lambda s: [s((3,)), s((2, 2), offset=1), s((2,), offset=-1, dim1=1, dim2=0), s((2, 1), dim1=0, dim2=2)],
)
def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Return zeros with the last dimension of ``input`` on a diagonal of ``dim1`` and ``dim2`` of the result."""
    input = as_tensor(input)
    if not input.ndim:
        raise ShapeError("diag_embed() needs a tensor of at least 1 dimension, got a 0-d one")
    first, second = axis_of(dim1, input.ndim + 1, "dim1"), axis_of(dim2, input.ndim + 1, "dim2")
    if first == second:
        raise ShapeError(f"diag_embed(): dim1={dim1} and dim2={dim2} are the same dimension")
    side = input.shape[-1] + abs(as_int(offset, "offset"))
    rest = iter(input.shape[:-1])
    shape = tuple(side if d in (first, second) else next(rest) for d in range(input.ndim + 1))
    return ops.diagonal_transpose(input, offset, first, second, shape)


# ---- sliding windows


def _unfolded(shape: Shape, dim: int, size: int, step: int) -> Shape:
    length = shape[dim] if shape else 1
    if not 0 <= size <= length:
        raise ShapeError(f"unfold(): a window of {size} does not fit dimension {dim} of size {length}")
    if step <= 0:
        raise ShapeError(f"unfold(): step must be positive, got {step}")
    if not shape:
        return (size,)
    return (*shape[:dim], (length - size) // step + 1, *shape[dim + 1 :], size)


def _windows(array: Any, dim: int, size: int, step: int) -> Any:
    """Return the view of all windows along a dimension; the place within the window is the last dimension."""
    shape = _unfolded(array.shape, dim, size, step)
    if not array.ndim:
        return array.reshape(1)[:size]
    strides = list(array.strides)
    strides[dim] *= step
    return np.lib.stride_tricks.as_strided(
        array, shape, (*strides, array.strides[dim]), writeable=array.flags.writeable
    )


def _windows_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    input, dim, *window = values
    if input.ndim == 1:  # the window of a number is it, or nothing
        _unfolded((), dim, *window)
        return ops.narrow(ops.unsqueeze(input, 1), 1, 0, window[0])
    return execute(op, [input, dim + 1, *window])


def _windows_transpose_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    input, dim, *window, shape = values
    return execute(op, [input, dim + 1, *window, (size, *shape)]) if shape else ops.sum(input, 1)


@linear(
    transpose=lambda g, dimension, size, step, input_shape: ops.windows_transpose(
        g, dimension, size, step, input_shape
    ),
    batch=_windows_batch,
    spec=lambda input, dimension, size, step: Spec(_unfolded(input.shape, dimension, size, step), input.dtype),
    view=True,
    widen=False,
    home=(),
    samples=lambda s: [
        s((5,), 0, 2, 1), s((2, 5), -1, 3, 2), s((4, 2), 0, 1, 3), s((3,), 0, 3, 1), s((3,), 0, 0, 1), s((), 0, 1, 1),
        s((3, 0), 0, 2, 1),
        s.error(RuntimeError, "does not fit", (3,), 0, 4, 1),
        s.error(RuntimeError, "step must be positive", (3,), 0, 2, 0),
    ],
)  # fmt: skip
def sliding_windows(input: Anything, dimension: Axis, size: Int, step: Int) -> Any:
    """Return a view of every window of ``size`` elements, ``step`` apart, along a dimension; windows come last."""
    return _windows(input, dimension, size, step)


@linear(
    transpose=lambda g, dim, size, step: ops.sliding_windows(g, dim, size, step),
    batch=_windows_transpose_batch,
    spec=lambda input, dim, size, step, shape: Spec(tuple(shape), input.dtype),
    home=(),
    samples=lambda s: [s((4, 2), 0, 2, 1, shape=(5,)), s((2, 2, 3), 1, 3, 2, shape=(2, 5)), s((1,), 0, 1, 1, shape=())],
)
def windows_transpose(input: Anything, dim: Any, size: Any, step: Any, shape: Any) -> Any:
    """Return zeros of ``shape`` to which every window is added where it came from."""
    out = np.zeros(shape, input.dtype)
    if not shape:
        return out + input.sum()
    lines, windows = np.moveaxis(out, dim, -1), np.moveaxis(input, dim, -2)
    count = windows.shape[-2]
    if size <= count:
        for k in range(size):
            lines[..., k : k + (count - 1) * step + 1 : step] += windows[..., k]
    else:
        for k in range(count):
            lines[..., k * step : k * step + size] += windows[..., k, :]
    return out


# ---- as_strided


def _origin(shape: Shape, strides: Shape) -> int:
    """Return how far the first element lies behind the lowest one, in elements."""
    return -sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)


def _extent(shape: Shape, strides: Shape) -> int:
    """Return how many elements of memory a tensor spans."""
    return 0 if 0 in shape else 1 + sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True))


def _over(memory: Any, size: Shape, stride: Shape, offset: int) -> Any:
    """Return a strided view of a vector, which numpy checks against its bounds."""
    step = memory.dtype.itemsize
    return np.ndarray(size, memory.dtype, memory.view(np.uint8), offset * step, tuple(s * step for s in stride))


def _check_reach(size: Shape, stride: Shape, offset: int, extent: int) -> None:
    last = offset + (0 if 0 in size else sum((n - 1) * s for n, s in zip(size, stride, strict=True)))
    if 0 not in size and last >= extent:
        raise ShapeError(
            f"as_strided(): size {size}, stride {stride} and offset {offset} reach element {last} "
            f"of memory that holds {extent}"
        )


def _strides(array: Any) -> Shape:
    return tuple(s // array.dtype.itemsize for s in array.strides)


def _memory(array: Any, geometry: Shape) -> Any:
    """Return the memory of an array as a vector: its own if it lies as ``geometry`` says, else a copy laid out so."""
    extent = _extent(array.shape, geometry)
    if _strides(array) == geometry or array.size <= 1:
        lowest = array[tuple(slice(-1, None) if s < 0 else slice(0, 1) for s in array.strides)] if array.ndim else array
        return np.lib.stride_tricks.as_strided(
            lowest, (extent,), (array.dtype.itemsize,), writeable=array.flags.writeable
        )
    memory = np.zeros(extent, array.dtype)
    _over(memory, array.shape, geometry, _origin(array.shape, geometry))[...] = array
    return memory


def _strided_batch(op: Any, values: list[Any], batched: Any, count: int) -> Any:
    """Run on the memory of all examples, one behind the other."""
    input, size, stride, offset, geometry, *shape = values
    extent = _extent(shape[0] if shape else input.shape[1:], geometry)
    _check_reach(size, stride, offset, extent)
    wide = [(count, *size), (extent, *stride), offset, (extent, *geometry)]
    return execute(op, [input, *wide, *((count, *s) for s in shape)])


@linear(
    transpose=lambda g, size, stride, offset, geometry, input_shape: ops.strided_transpose(
        g, size, stride, offset, geometry, input_shape
    ),
    batch=_strided_batch,
    spec=lambda input, size, stride, offset, geometry: Spec(tuple(size), input.dtype),
    view=True,
    widen=False,
    home=(),
    samples=lambda s: [
        s((2, 3), size=(2, 2), stride=(1, 2), offset=1, geometry=(3, 1)),
        s((4,), size=(3, 2), stride=(1, 1), offset=0, geometry=(1,)),
        s((2, 3), size=(3,), stride=(2,), offset=1, geometry=(1, 2)),
        s((3,), size=(), stride=(), offset=2, geometry=(1,)),
        s((3,), size=(2, 0), stride=(1, 1), offset=0, geometry=(1,)),
        s((3,), size=(2, 2), stride=(0, 1), offset=1, geometry=(1,)),
    ],
)  # fmt: skip
def strided(input: Anything, size: Any, stride: Any, offset: Any, geometry: Any) -> Any:
    """Return the elements at ``offset`` and ``stride`` in the memory of a tensor whose own strides are ``geometry``."""
    memory = _memory(input, geometry)
    _check_reach(size, stride, offset, memory.size)
    return _over(memory, size, stride, offset)


@linear(
    transpose=lambda g, size, stride, offset, geometry: ops.strided(g, size, stride, offset, geometry),
    batch=_strided_batch,
    spec=lambda input, size, stride, offset, geometry, shape: Spec(tuple(shape), input.dtype),
    home=(),
    samples=lambda s: [
        s((2, 2), size=(2, 2), stride=(1, 2), offset=1, geometry=(3, 1), shape=(2, 3)),
        s((3, 2), size=(3, 2), stride=(1, 1), offset=0, geometry=(1,), shape=(4,)),
    ],
)  # fmt: skip
def strided_transpose(input: Anything, size: Any, stride: Any, offset: Any, geometry: Any, shape: Any) -> Any:
    """Return a tensor of ``shape`` to which ``input`` is added where a strided view reads; repeated places add up."""
    memory = np.zeros(_extent(shape, geometry), input.dtype)
    positions = _over(np.arange(memory.size), size, stride, offset)
    np.add.at(memory, positions, input)
    return np.array(_over(memory, shape, geometry, _origin(shape, geometry)), order="C")


def as_strided(input: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    """Return a view of the tensor's memory: element (i, j) lies at ``storage_offset + i * stride[0] + j * stride[1]``.

    Raises:
        ShapeError: if it would reach beyond the memory that the tensor, or the base it is a view of, owns.
    """
    input = as_tensor(input)
    shape, steps = size_of(size), size_of(stride, "stride")
    offset = storage_offset_of(input) if storage_offset is None else as_int(storage_offset, "storage_offset")
    _check_strided(shape, steps, offset)
    base = _owner(input)
    if overlaps(base._payload):
        raise ShapeError("as_strided(): several elements of the tensor share one memory location; clone() it first")
    if _extent(tuple(base.shape), _strides(base._payload)) != base.numel():
        raise ShapeError("as_strided(): the tensor does not fill the memory it lies in; use contiguous() first")
    if input.requires_grad and not base.requires_grad:
        raise RuntimeError("as_strided(): the tensor is a leaf of its own within another's memory; clone() it first")
    geometry = _strides(base._payload)
    _check_reach(shape, steps, offset, _extent(tuple(base.shape), geometry))
    return ops.strided(base, shape, steps, offset, geometry)


def _check_strided(size: Shape, stride: Shape, offset: int) -> None:
    if len(size) != len(stride) or min((*size, *stride, offset), default=0) < 0:
        raise ShapeError(
            f"as_strided(): size {size} and stride {stride} must be equally long and, like storage_offset {offset}, "
            "not negative"
        )


def _owner(tensor: Any) -> Any:
    """Return the tensor whose memory a view looks into."""
    return tensor if tensor._view is None else tensor._view.base


def _address(payload: Any) -> int:
    """Return where the memory of a tensor begins; of a batch, that of the first example."""
    while not isinstance(payload, np.ndarray):
        payload = payload.carrier._payload if payload.stand_in is None else payload.stand_in
    return int(payload.ctypes.data)


def storage_offset_of(tensor: Any) -> int:
    """Return where the first element lies in the memory the tensor or its base owns, in elements."""
    base = _owner(tensor)._payload
    distance = (_address(tensor._payload) - _address(base)) // base.dtype.itemsize
    return int(distance) + _origin(base.shape, _strides(base))


def storage_offset(self: Any) -> int:
    """Return where its first element lies in the memory it shares with its base, in elements."""
    return storage_offset_of(self)


publish_method(as_strided)
attach("storage_offset", storage_offset)
attach("unfold", sliding_windows)


# ---- a view written, out of place


def _replaced(input: Any, src: Any, op: str, values: tuple[Any, ...]) -> Any:
    """Return a copy of ``input`` in which the view that operator ``op`` takes holds ``src``."""
    view, src = operators()[op], as_tensor(src)
    shape = view.infer([Spec(tuple(input.shape), input.dtype), *values]).shape
    if shape != tuple(src.shape):
        raise ShapeError(f"src has shape {tuple(src.shape)}, the part it replaces {shape}")
    return ops.view_write(input, src.to(input.dtype), ((view, [None, *values], None),))


def _along(input: Any, dim: int, item: Any) -> tuple[Any, ...]:
    return (*(slice(0, n, 1) for n in input.shape[:dim]), item)


@composite(method=True, samples=lambda s: [s((3, 2), (2,), 0, -1), s((2, 3), (2,), dim=1, index=0)])
def select_scatter(input: Any, src: Any, dim: int, index: int) -> Any:
    """Return ``input`` with ``src`` in the place of ``input.select(dim, index)``."""
    input = as_tensor(input)
    dim, index = axis_of(dim, input.ndim), as_int(index, "index")
    size = input.shape[dim] if input.ndim else 0
    if not -size <= index < size:
        raise IndexError(f"select_scatter(): index {index} is out of bounds for dimension {dim} with size {size}")
    return _replaced(input, src, "getitem", (_along(input, dim, index % size),))


@composite(
    method=True,
    samples=lambda s: [s((4, 2), (2, 2), start=1, end=3), s((2, 5), (2, 2), dim=1, start=-4, step=2), s((2,), (2,))],
)
def slice_scatter(
    input: Any, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """Return ``input`` with ``src`` in the place of ``input[start:end:step]`` along ``dim``."""
    input = as_tensor(input)
    dim = axis_of(dim, input.ndim)
    if not input.ndim or as_int(step, "step") <= 0:
        raise ShapeError(
            f"slice_scatter(): step must be positive and input have a dimension, got {step} and {tuple(input.shape)}"
        )
    first, last, _ = slice(start, end, step).indices(input.shape[dim])
    return _replaced(input, src, "getitem", (_along(input, dim, slice(first, max(first, last), step)),))


@composite(
    method=True,
    samples=lambda s: [s((3, 3), (3,)), s((3, 4), (2,), offset=2), s((2, 3, 2), (3, 2), offset=0, dim1=0, dim2=2)],
)
def diagonal_scatter(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Return ``input`` with ``src`` in the place of ``input.diagonal(offset, dim1, dim2)``."""
    input = as_tensor(input)
    first, second = axis_of(dim1, input.ndim, "dim1"), axis_of(dim2, input.ndim, "dim2")
    return _replaced(input, src, "diagonal", (as_int(offset, "offset"), first, second))


@composite(
    method=True,
    samples=lambda s: [
        s((2, 3), (2, 2), size=(2, 2), stride=(3, 1)),
        s((4,), (2,), size=(2,), stride=(2,), storage_offset=1),
    ],
)
def as_strided_scatter(input: Any, src: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    """Return ``input`` with ``src`` in the place of ``input.contiguous().as_strided(size, stride, storage_offset)``."""
    input = as_tensor(input)
    shape, steps = size_of(size), size_of(stride, "stride")
    offset = 0 if storage_offset is None else as_int(storage_offset, "storage_offset")
    _check_strided(shape, steps, offset)
    _check_reach(shape, steps, offset, input.numel())
    if overlaps(_over(np.empty(input.numel(), np.int8), shape, steps, offset)):
        raise ShapeError(f"as_strided_scatter(): size {shape} and stride {steps} name some elements twice")
    geometry = tuple(math.prod(input.shape[d + 1 :]) for d in range(input.ndim))
    return _replaced(input, src, "strided", (shape, steps, offset, geometry))

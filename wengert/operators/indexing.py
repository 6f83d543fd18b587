"""Square brackets: ``x[key]`` and ``x[key] = value`` with every key PyTorch accepts.

A key is split into a *basic* part (ints, slices, None, Ellipsis), which is one view, and an *advanced* part (integer
and boolean tensors, arrays, lists), which gathers from that view. As in PyTorch, ints belong to the basic part.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wengert.array.dtype import uint8
from wengert.array.shape import broadcast_shapes
from wengert.core.apply import execute
from wengert.core.arguments import Anything, AnythingOrScalar, Tensors
from wengert.core.batch import front, prepended
from wengert.core.families import bilinear, linear, operator
from wengert.core.inplace import check_writable
from wengert.core.interpret import admitted
from wengert.core.methods import attach
from wengert.core.operator import Spec
from wengert.core.registry import operators, ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, from_array, raw
from wengert.errors import ShapeError
from wengert.kernels import scatter as kernels
from wengert.operators.index_batch import neighbours, read_batch, transpose_batch, write_batch
from wengert.operators.to_dtype import converted
from wengert.operators.writes import computed, number_as, write_recorded, written

__all__ = ["getitem", "getitem_transpose", "index_read", "index_transpose", "index_write", "parse", "write_at"]

Basic = tuple[Any, ...]


# ---- basic indexing: one view


def _indexed(shape: tuple[int, ...], index: Basic) -> tuple[int, ...]:
    """Return the shape of a basic index, normalised: an int, a slice or None at each place."""
    sizes = []
    dim = 0
    for item in index:
        if item is None:
            sizes.append(1)
            continue
        if isinstance(item, slice):
            sizes.append(len(range(*item.indices(shape[dim]))))
        dim += 1
    return (*sizes, *shape[dim:])


@linear(
    transpose=lambda g, index, input_shape: ops.getitem_transpose(g, index, input_shape),
    spec=lambda input, index: Spec(_indexed(input.shape, index), input.dtype),
    batch=front(index=lambda index, n: (slice(0, n, 1), *index)),
    view=True,
    widen=False,
    home=(),
    samples=lambda s: [
        s((3, 4), index=(1, slice(0, 4, 2))), s((3, 4), index=(None, slice(1, 3, 1), 2)), s((3,), index=(2,)),
        s((), index=()),
        s((), index=(None,)), s((3, 4), index=(slice(2, None, -1), slice(3, 0, -2))), s((3, 0), index=(slice(0, 0, 1),)),
        s((2, 3), index=(slice(1, 1, 1), slice(0, 3, 1))),
    ],
)  # fmt: skip
def getitem(input: Anything, index: Any) -> Any:
    """Return the view that a basic index takes; ``index`` is normalised: counted from the front, without Ellipsis."""
    return input[(*index, ...)]


@linear(
    transpose=lambda g, index: ops.getitem(g, index),
    spec=lambda input, index, shape: Spec(tuple(shape), input.dtype),
    batch=front(index=lambda index, n: (slice(0, n, 1), *index), shape=prepended),
    widen=False,
    home=(),
    samples=lambda s: [
        s((2,), index=(1, slice(0, 4, 2)), shape=(3, 4)), s((1, 2), index=(None, slice(1, 3, 1), 2), shape=(3, 4)),
        s((), index=(2,), shape=(3,)), s((2, 2), index=(slice(2, None, -2), slice(1, None, -1)), shape=(3, 2)),
        s((), index=(), shape=()), s((0, 0), index=(slice(0, 0, 1),), shape=(3, 0)),
    ],
)  # fmt: skip
def getitem_transpose(input: Anything, index: Any, shape: Any) -> Any:
    """Return zeros of ``shape`` that hold ``input`` where ``index`` reads: the transpose of taking a view."""
    out = np.zeros(shape, input.dtype)
    out[(*index, ...)] = input
    return out


# ---- advanced indexing: gather


def _numpy_key(indices: Sequence[Any], dims: Sequence[int]) -> tuple[Any, ...]:
    key: list[Any] = [slice(None)] * (max(dims) + 1)
    for dim, index in zip(dims, indices, strict=True):
        key[dim] = index
    return tuple(key)


def _gathered(shape: tuple[int, ...], indices: Sequence[Spec], dims: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of an advanced index: where the indexed dimensions are if they are neighbours, else in front."""
    try:
        common = np.broadcast_shapes(*(i.shape for i in indices))
    except ValueError:
        listed = ", ".join(str(tuple(i.shape)) for i in indices)
        raise IndexError(f"the shapes of the index tensors do not broadcast: {listed}") from None
    rest = [n for d, n in enumerate(shape) if d not in dims]
    at = dims[0] if neighbours(dims) else 0
    return (*rest[:at], *common, *rest[at:])


def _check_indices(shape: tuple[int, ...], indices: Sequence[Any], dims: Sequence[int]) -> None:
    """Raise IndexError for the first index out of bounds."""
    for dim, index in zip(dims, indices, strict=True):
        size = shape[dim]
        if index.size and not (-size <= index.min() and index.max() < size):
            wrong = index[(index < -size) | (index >= size)].flat[0]
            raise IndexError(f"index {wrong} is out of bounds for dimension {dim} with size {size}")


@bilinear(
    transpose={"input": lambda g, indices, dims, input_shape: ops.index_transpose(g, indices, dims, input_shape)},
    spec=lambda input, indices, dims: Spec(_gathered(input.shape, indices, dims), input.dtype),
    batch=read_batch,
    widen=False,
    home=(),
    samples=lambda s: [
        s((3, 2), [s.array([2, 0, 2])], dims=(0,)), s((2, 3), [s.array([[0, -1], [1, 1]])], dims=(1,)),
        s((2, 3), [s.array([1, 0]), s.array([2, 2])], dims=(0, 1)),
        s((2, 1, 3), [s.array([1]), s.array([[0], [2]])], dims=(0, 2)),
        s((0, 2), [s.array([1, 1])], dims=(1,)), s((3,), [s.array(1)], dims=(0,)),
    ],
)  # fmt: skip
def index_read(input: Anything, indices: Tensors, dims: Any) -> Any:
    """Return the elements that integer tensors point at; ``dims`` says which dimension each of them indexes."""
    try:
        return np.take(input, indices[0], axis=dims[0]) if len(dims) == 1 else input[_numpy_key(indices, dims)]
    except IndexError:
        _check_indices(input.shape, indices, dims)
        raise


@bilinear(
    transpose={"input": lambda g, indices, dims: ops.index_read(g, indices, dims)},
    spec=lambda input, indices, dims, shape: Spec(tuple(shape), input.dtype),
    batch=transpose_batch,
    home=(),
    samples=lambda s: [
        s((3, 2), [s.array([2, 0, 2])], dims=(0,), shape=(3, 2)),
        s((2, 2, 2), [s.array([[0, -1], [1, 1]])], dims=(1,), shape=(2, 3)),
        s((2,), [s.array([1, 0]), s.array([2, 2])], dims=(0, 1), shape=(2, 3)),
        s((2, 1, 1), [s.array([1]), s.array([[0], [2]])], dims=(0, 2), shape=(2, 1, 3)),
    ],
)  # fmt: skip
def index_transpose(input: Anything, indices: Tensors, dims: Any, shape: Any) -> Any:
    """Return zeros of ``shape`` to which ``input`` is added where the indices point; repeated ones add up."""
    if not input.size:
        return np.zeros(shape, input.dtype)
    zeros = np.broadcast_to(np.zeros((), input.dtype), shape)
    if len(dims) == 1 and indices[0].ndim == 1:
        rows = kernels.checked_index("index", indices[0], dims[0], shape[dims[0]], negative=True)
        return kernels.index_add(zeros, dims[0], rows, input)
    return kernels.index_put(zeros, _numpy_key(indices, dims), input, accumulate=True)


def write_at(input: Any, value: Any, indices: Sequence[Any], dims: Sequence[int], accumulate: bool) -> Any:
    """Write or add ``value`` into an array where the indices point."""
    if value.dtype.kind == "c" and input.dtype.kind != "c":
        value = value.real
    key = _numpy_key(indices, dims)
    try:
        if accumulate:
            input[...] = kernels.index_put(input, key, value.astype(input.dtype, copy=False), accumulate=True)
        else:
            input[key] = value
    except IndexError:
        _check_indices(input.shape, indices, dims)
        raise
    return input


def _index_write_spec(input: Spec, value: Any, indices: Any, dims: Any, accumulate: bool) -> Spec:
    shape, given = _gathered(input.shape, indices, dims), value.shape if isinstance(value, Spec) else ()
    if broadcast_shapes("index_put_", shape, given) != shape:
        raise ShapeError(
            f"index_put_(): a value of shape {tuple(given)} does not broadcast to the indexed shape {shape}"
        )
    return input


@operator(
    vjp={
        "input": lambda g, indices, dims, accumulate: g if accumulate else ops.index_write(g, 0, indices, dims, False),
        "value": lambda g, indices, dims, value_shape, value_dtype: ops.cast(
            ops.sum_to_size(ops.index_read(g, indices, dims), value_shape), value_dtype
        ),
    },
    jvp={
        "input": lambda t, indices, dims, accumulate: t if accumulate else ops.index_write(t, 0, indices, dims, False),
        "value": lambda t, input, indices, dims, accumulate: ops.index_write(
            ops.zeros_like(input), t, indices, dims, accumulate
        ),
    },
    spec=_index_write_spec,
    batch=write_batch,
    widen=False,
    home=(),
    samples=lambda s: [
        s((3, 2), (2, 2), [s.array([2, 0])], dims=(0,), accumulate=False),
        s((3, 2), (2,), [s.array([2, 0, 2])], dims=(0,), accumulate=True),
        s((2, 3), (), [s.array([1, 0]), s.array([2, -1])], dims=(0, 1), accumulate=False),
        s((2, 1, 3), (2, 1, 1), [s.array([0]), s.array([[0], [2]])], dims=(0, 2), accumulate=True),
    ],
)  # fmt: skip
def index_write(input: Anything, value: AnythingOrScalar, indices: Tensors, dims: Any, accumulate: Any) -> Any:
    """Return a copy of ``input`` into which ``value`` is written, or to which it is added, where the indices point."""
    return write_at(np.array(input, order="C"), value, indices, dims, accumulate)


# ---- keys


class Key(NamedTuple):
    """A key taken apart: the basic index (None if it changes nothing), the advanced indices and their dimensions."""

    basic: Basic | None
    indices: tuple[Any, ...]
    dims: tuple[int, ...]


def _item(item: Any) -> Any:
    """Return one item of a key as None, Ellipsis, a slice, an int, a bool or an index tensor."""
    if item is None or item is Ellipsis or isinstance(item, slice | bool | int):
        return item
    if isinstance(item, list | range):
        item = _listed(item)
    if isinstance(item, np.integer | np.bool_):
        return item.item()
    if isinstance(item, np.ndarray | np.generic):
        item = from_array(np.asarray(item))
    if not isinstance(item, Tensor):
        if hasattr(item, "__index__"):
            return item.__index__()
        raise IndexError(
            f"a tensor is indexed by ints, slices, None, Ellipsis, bools and tensors or lists of ints or bools, "
            f"not by {type(item).__name__}: {item!r}"
        )
    dtype = item.dtype
    if dtype is uint8:
        raise IndexError("a uint8 tensor is no index: use .bool() if it is a mask, .long() if it holds positions")
    if dtype.category > 1:
        raise IndexError(f"tensors used as indices must hold ints or bools, got {dtype} of shape {tuple(item.shape)}")
    held = item._payload
    if not held.shape and (isinstance(held, np.ndarray) or held.level is thread.state.captures):
        return raw(item, "an index of no dimensions").item()
    return item


def _listed(item: Sequence[Any]) -> Any:
    """Return a list of ints or bools as an array."""
    if not len(item):
        return np.empty(0, np.int64)
    wrong = next((v for v in item if not isinstance(v, int | np.integer | np.bool_)), None)
    if wrong is not None:
        raise IndexError(
            f"a list used as an index must hold ints or bools, this one holds {type(wrong).__name__}: {wrong!r}; "
            "use a tuple to index several dimensions, a tensor for an index of several dimensions"
        )
    return np.asarray(item)


def _consumed(item: Any) -> int:
    """Return how many dimensions of the tensor an item of a key stands for."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, Tensor) and item.dtype.category == 0:
        return item.ndim
    return 1


def _items(key: Any, shape: tuple[int, ...]) -> list[Any]:
    """Return the items of a key, Ellipsis replaced by the slices it stands for."""
    items = [_item(i) for i in (key if isinstance(key, tuple) else (key,))]
    dots = [k for k, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can have only one Ellipsis ('...')")
    used = sum(_consumed(item) for item in items)
    if used > len(shape):
        raise IndexError(f"too many indices: {used} for a tensor of {len(shape)} dimensions (shape {tuple(shape)})")
    if dots:
        items[dots[0] : dots[0] + 1] = [slice(None)] * (len(shape) - used)
    return items


def _position(item: int, dim: int, size: int) -> int:
    if not -size <= item < size:
        raise IndexError(f"index {item} is out of bounds for dimension {dim} with size {size}")
    return item + size if item < 0 else item


def _slice(item: slice, size: int) -> slice:
    """Return a slice with its ends inside the dimension; one that goes backwards, which PyTorch refuses, is a view too."""
    try:
        start, stop, step = item.indices(size)
    except TypeError:
        raise TypeError(f"getitem(): the ends and the step of a slice must be ints or None, got {item!r}") from None
    if step > 0:
        return slice(start, max(start, stop), step)
    return slice(start, None if stop < 0 else stop, step) if start > stop else slice(0, 0, 1)


def _plain_index(key: Any, shape: tuple[int, ...]) -> Basic | None:
    """Return the basic index of a key of ints and slices alone, the commonest; None for any other key."""
    items = key if type(key) is tuple else (key,)
    if len(items) > len(shape):
        return None
    index: list[Any] = []
    for dim, item in enumerate(items):
        kind = type(item)
        if kind is int:
            index.append(_position(item, dim, shape[dim]))
        elif kind is slice:
            index.append(_slice(item, shape[dim]))
        else:
            return None
    return tuple(index)


def parse(key: Any, shape: tuple[int, ...]) -> Key:
    """Take a key apart for a tensor of ``shape``."""
    basic: list[Any] = []
    indices: list[Any] = []
    dims: list[int] = []
    dim = out = 0
    trivial = True
    for item in _items(key, shape):
        if item is None or isinstance(item, bool):
            basic.append(None)
            trivial = False
            if item is not None:
                indices.append(from_array(np.zeros(int(item), np.int64)))
                dims.append(out)
            out += 1
        elif isinstance(item, int):
            basic.append(_position(item, dim, shape[dim]))
            trivial = False
            dim += 1
        elif isinstance(item, slice):
            cut = _slice(item, shape[dim])
            trivial = trivial and cut == slice(0, shape[dim], 1)
            basic.append(cut)
            dim, out = dim + 1, out + 1
        else:
            found = _positions(item, shape, dim)
            indices.extend(found)
            dims.extend(range(out, out + len(found)))
            basic.extend(slice(0, shape[dim + k], 1) for k in range(len(found)))
            dim, out = dim + len(found), out + len(found)
    return Key(None if trivial else tuple(basic), tuple(indices), tuple(dims))


def _positions(item: Any, shape: tuple[int, ...], dim: int) -> list[Any]:
    """Return an index tensor as integer tensors: itself, or what a mask says True for, a tensor per dimension.

    A mask may have size 0 in the place of any size, as the array API standard has it: it then takes nothing.
    """
    if item.dtype.category:
        return [item]
    for k, size in enumerate(item.shape):
        if size and shape[dim + k] != size:
            raise IndexError(
                f"the mask of shape {tuple(item.shape)} does not fit the tensor of shape {tuple(shape)}: "
                f"size {size} at its dimension {k}, {shape[dim + k]} at dimension {dim + k} of the tensor"
            )
    return [from_array(i) for i in np.nonzero(raw(item, "a mask as an index"))]


def _full_mask(key: Any, shape: tuple[int, ...]) -> Any:
    """Return a key that is one mask of the tensor's own shape, as a tensor; None for any other key."""
    if isinstance(key, np.ndarray) and key.dtype == np.bool_:
        key = from_array(key)
    if isinstance(key, Tensor) and shape and key._payload.shape == shape and key._payload.dtype == np.bool_:
        return key
    return None


_GETITEM, _INDEX_READ, _INDEX_WRITE = (operators()[name] for name in ("getitem", "index_read", "index_write"))


def get(self: Any, key: Any) -> Any:
    """Return a view (ints, slices, None, Ellipsis) or a gathered copy (integer or boolean tensors)."""
    shape = self._payload.shape
    basic = _plain_index(key, shape)
    if basic is not None:
        return execute(_GETITEM, [self, basic])
    mask = _full_mask(key, shape)
    if mask is not None:
        return ops.masked_select(self, mask)
    found = parse(key, shape)
    if not found.indices:
        return execute(_GETITEM, [self, found.basic or ()])
    view = self if found.basic is None else execute(_GETITEM, [self, found.basic])
    return execute(_INDEX_READ, [view, found.indices, found.dims])


def put(self: Any, key: Any, value: Any) -> None:
    """Write ``value``, broadcast and cast, where the key reads.

    Raises:
        InplaceError: for a leaf that requires grad, while recording.
    """
    shape = self._payload.shape
    if not isinstance(value, Tensor | bool | int | float | complex):
        value = ops.as_tensor(value)
    basic = _plain_index(key, shape)
    if basic is not None:
        return _set_view(self, basic, value)
    mask = _full_mask(key, shape)
    if mask is not None and not getattr(value, "ndim", 0):
        ops.masked_fill_(self, mask, _value_like(self, value))
        return None
    found = parse(key, shape)
    if not found.indices:
        return _set_view(self, found.basic or (), value)
    target = self if found.basic is None else execute(_GETITEM, [self, found.basic])
    check_writable("setitem", target)
    value = _value_like(target, value)
    if value.ndim and value.shape[0] == 1:
        specs = [Spec(tuple(i.shape), i.dtype) for i in found.indices]
        value = _trimmed(value, len(_gathered(target._payload.shape, specs, found.dims)))
    write_recorded(_INDEX_WRITE, write_at, [target, value, found.indices, found.dims, False], "setitem")
    return None


def _value_like(target: Any, value: Any) -> Any:
    """Return a value to be written, a number or a tensor, as a tensor of the target's dtype."""
    if isinstance(value, Tensor):
        return converted(value, target.dtype)
    return from_array(number_as("setitem", value, target._payload.dtype))


def _set_view(self: Any, basic: Basic, value: Any) -> None:
    """Write into the view that a basic index takes."""
    tensor = isinstance(value, Tensor)
    if computed(self, value):
        if tensor:
            admitted("setitem", self, value)
        target = execute(_GETITEM, [self, basic])
        if tensor:
            ops.copy_(target, _trimmed(value, target.ndim))
        else:
            ops.fill_(target, value)
        return
    check_writable("setitem", self)
    source = value._payload if tensor else number_as("setitem", value, self._payload.dtype)
    if tensor and source.dtype.kind == "c" and self._payload.dtype.kind != "c":
        source = source.real
    try:
        self._payload[(*basic, ...)] = source
    except ValueError as error:
        raise ShapeError(f"setitem: {error}") from None
    written("setitem", self)


def _trimmed(value: Any, ndim: int) -> Any:
    """Drop leading dimensions of size 1 that the place to be written does not have."""
    extra = value.ndim - ndim
    if extra > 0 and all(n == 1 for n in value.shape[:extra]):
        return ops.reshape(value, value.shape[extra:])
    return value


attach("__getitem__", get)
attach("__setitem__", put)

"""Slices taken, added, copied or filled at positions along one dimension: index_select, index_add, index_put, …"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import INTEGER, bool_
from wengert.array.shape import axis_of, size_of
from wengert.core.apply import as_tensor
from wengert.core.arguments import Integer
from wengert.core.families import composite, nondifferentiable
from wengert.core.registry import operators, ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.errors import DTypeError, ShapeError
from wengert.operators.checks import all_values, known
from wengert.operators.gather import check_bounds
from wengert.operators.indexing import parse, write_at
from wengert.operators.writes import check_target, publish_method, write_recorded

__all__ = ["index_add", "index_copy", "index_fill", "index_put", "index_select", "unravel_index"]


@nondifferentiable(
    batch="front",
    spec=lambda index, size, name, dim: index,
    home=(),
    samples=lambda s: [
        s(s.array([0, 2, 1]), 3, "f", 0), s(s.array(1), 2, "f", 1), s(s.tensor((0,), kind="integer"), 0, "f", 0),
        s.error(IndexError, r"f\(\): index -1 is out of bounds for dimension 0", s.array([0, -1]), 3, "f", 0),
    ],
)  # fmt: skip
def bounded_index(index: Integer, size: Any, name: Any, dim: Any) -> Any:
    """Return the positions, each of which lies within a dimension: checked when a program runs."""
    check_bounds(name, index, dim, size)
    return index.copy()


def _vector(name: str, index: Any) -> Any:
    index = as_tensor(index)
    if index.dtype.category != INTEGER:
        raise DTypeError(f"{name}(): index must be an integer tensor, got {index.dtype}")
    if index.ndim > 1:
        raise ShapeError(f"{name}(): index must be a vector, got shape {tuple(index.shape)}")
    return index


def _positions(name: str, input: Any, dim: int, index: Any) -> tuple[int, Any]:
    """Return ``dim`` from the front and ``index`` checked: a vector of ints within the dimension."""
    dim, index = axis_of(dim, input.ndim), _vector(name, index)
    size = input.shape[dim] if input.ndim else 1
    if thread.state.captures is not None and known(index) is None:
        index = ops.bounded_index(index, size, name, dim)
    else:
        check_bounds(name, all_values(index), dim, size)
    return dim, ops.reshape(index, (-1,)) if not index.ndim else index


def _source(name: str, input: Any, dim: int, index: Any, source: Any) -> Any:
    """Return ``source`` checked: the dtype of input, its shape but for ``dim``, where there are as many as in index."""
    dim, index = axis_of(dim, input.ndim), _vector(name, index)
    if source.dtype is not input.dtype:
        raise DTypeError(f"{name}(): source must have the dtype of input, {input.dtype}, got {source.dtype}")
    wanted = tuple(index.numel() if d == dim else n for d, n in enumerate(input.shape))
    if tuple(source.shape) != wanted or (not wanted and index.numel() != 1):
        raise ShapeError(
            f"{name}(): source must have shape {wanted} for an index of {index.numel()}, got {tuple(source.shape)}"
        )
    return source if wanted else ops.reshape(source, (1,))


@composite(
    method=True,
    samples=lambda s: [
        s((3, 2), 0, s.array([2, 0, 2])), s((2, 3), -1, s.array([1])), s((3,), 0, s.array(1)), s((), 0, s.array([0])),
        s((2, 3), 1, s.array(np.empty(0, np.int64))),
        s.error(IndexError, "index 3 is out of bounds for dimension 1 with size 3", (2, 3), 1, s.array([3])),
        s.error(IndexError, "index -1 is out of bounds", (3,), 0, s.array([-1])),
    ],
)  # fmt: skip
def index_select(input: Any, dim: int, index: Any) -> Any:
    """Return the slices along ``dim`` at the positions ``index``, a vector, as a copy."""
    input = as_tensor(input)
    dim, index = _positions("index_select", input, dim, index)
    if not input.ndim:
        if index.numel() != 1:
            raise ShapeError(f"index_select(): a 0-d tensor has one element to select, the index has {index.numel()}")
        return ops.reshape(ops.index_read(ops.reshape(input, (1,)), (index,), (0,)), ())
    return ops.index_read(input, (index,), (dim,))


def _written(name: str, twin: bool, input: Any, dim: int, index: Any, value: Any, accumulate: bool) -> Any:
    """Write (or add) along ``dim``: into the tensor itself if ``twin``, else into a copy."""
    if not input.ndim:
        index, dim = ops.reshape(index, (-1,)), 0
        flat = ops.reshape(input, (1,))
        out = ops.index_write(flat, value, (index,), (0,), accumulate)
        return ops.copy_(input, ops.reshape(out, ())) if twin else ops.reshape(out, ())
    if twin:
        check_target(name, input)
        return write_recorded(operators()["index_write"], write_at, [input, value, (index,), (dim,), accumulate], name)
    return ops.index_write(input, value, (index,), (dim,), accumulate)


def _index_add(name: str, input: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
    source = _source(name, input, dim, index, as_tensor(source))
    dim, index = _positions(name, input, dim, index)
    return _written(name, name.endswith("_"), input, dim, index, source if alpha == 1 else ops.mul(source, alpha), True)


@composite(
    method=True,
    samples=lambda s: [
        s((3, 2), 0, s.array([2, 0, 2]), (3, 2)), s((2, 3), -1, s.array([1]), (2, 1), alpha=2.5),
        s((3,), 0, s.array(1), (1,)), s((), 0, s.array([0]), ()),
        s.error(RuntimeError, "source must have shape", (3, 2), 0, s.array([9]), (2, 2)),
    ],
)  # fmt: skip
def index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """Return ``input`` with ``alpha`` times the slices of ``source`` added at the positions ``index`` along ``dim``."""
    return _index_add("index_add", as_tensor(input), dim, index, source, alpha)


def index_add_(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """In-place version of :func:`wengert.index_add`."""
    return _index_add("index_add_", self, dim, index, source, alpha)


def _index_copy(name: str, input: Any, dim: int, index: Any, source: Any) -> Any:
    source = _source(name, input, dim, index, as_tensor(source))
    dim, index = _positions(name, input, dim, index)
    return _written(name, name.endswith("_"), input, dim, index, source, False)


@composite(
    method=True,
    samples=lambda s: [
        s((3, 2), 0, s.array([2, 0]), (2, 2)),
        s((2, 3), -1, s.array([1]), (2, 1)),
        s((3,), 0, s.array(1), (1,)),
        s.error(RuntimeError, "source must have shape", (3, 2), 0, s.array([9]), (2, 2)),
    ],
)
def index_copy(input: Any, dim: int, index: Any, source: Any) -> Any:
    """Return ``input`` with the slices of ``source`` in place of those at the positions ``index`` along ``dim``."""
    return _index_copy("index_copy", as_tensor(input), dim, index, source)


def index_copy_(self: Any, dim: int, index: Any, source: Any) -> Any:
    """In-place version of :func:`wengert.index_copy`."""
    return _index_copy("index_copy_", self, dim, index, source)


def _index_fill(name: str, input: Any, dim: int, index: Any, value: Any) -> Any:
    dim, index = _positions(name, input, dim, index)
    if isinstance(value, Tensor) and value.ndim:
        raise ShapeError(f"{name}() takes a number or a 0-d tensor, got shape {tuple(value.shape)}")
    value = value if isinstance(value, Tensor) else ops.full((), value, dtype=input.dtype)
    twin = name.endswith("_")
    if known(index) is not None:
        once = ops.unique(index)  # a position given twice is filled once, and passes its gradient once
        return _written(name, twin, input, dim, once, value, False)
    size = input.shape[dim] if input.ndim else 1
    filled = ops.index_write(ops.zeros(size, dtype=bool_), ops.ones((), dtype=bool_), (index,), (0,), False)
    filled = ops.reshape(filled, tuple(size if d == dim else 1 for d in range(input.ndim)))
    found = ops.where(filled, ops.cast(value, input.dtype), input)
    return ops.copy_(input, found) if twin else found


@composite(
    method=True,
    samples=lambda s: [
        s((3, 2), 0, s.array([2, 0]), 1.5),
        s((2, 3), -1, s.array([1, 1]), ()),
        s((3,), 0, s.array(1), 0),
    ],
)
def index_fill(input: Any, dim: int, index: Any, value: Any) -> Any:
    """Return ``input`` with a number or a 0-d tensor in the slices at the positions ``index`` along ``dim``."""
    return _index_fill("index_fill", as_tensor(input), dim, index, value)


def index_fill_(self: Any, dim: int, index: Any, value: Any) -> Any:
    """In-place version of :func:`wengert.index_fill`."""
    return _index_fill("index_fill_", self, dim, index, value)


def _index_put(name: str, input: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    if isinstance(indices, Tensor) or not isinstance(indices, Sequence):
        raise TypeError(f"{name}(): indices must be a sequence of index tensors, got {type(indices).__name__}")
    values = as_tensor(values)
    if values.dtype is not input.dtype:
        raise DTypeError(f"{name}(): values must have the dtype of input, {input.dtype}, got {values.dtype}")
    key = parse(tuple(slice(None) if i is None else i for i in indices), tuple(input.shape))
    if key.basic is not None or not key.indices:
        raise IndexError(f"{name}(): indices must be integer or boolean tensors of at least one dimension, or None")
    if name.endswith("_"):
        check_target(name, input)
        return write_recorded(
            operators()["index_write"], write_at, [input, values, key.indices, key.dims, accumulate], name
        )
    return ops.index_write(input, values, key.indices, key.dims, accumulate)


@composite(
    method=True,
    batch="refuse",
    samples=lambda s: [
        s((3, 2), [s.array([2, 0])], (2, 2)), s((2, 3), [s.array([0, 0]), s.array([1, 1])], (2,), accumulate=True),
        s((2, 3), [s.array([True, False])], (3,)),
        s((2, 3), [s.array([1])], ()),
    ],
)  # fmt: skip
def index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """Return ``input`` with ``values`` written (or added) where ``indices``, a tensor per dimension, point."""
    return _index_put("index_put", as_tensor(input), indices, values, accumulate)


def index_put_(self: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """In-place version of :func:`wengert.index_put`."""
    return _index_put("index_put_", self, indices, values, accumulate)


for _function in (index_add_, index_copy_, index_fill_, index_put_):
    publish_method(_function)


@composite(
    samples=lambda s: [
        s(s.array(4), shape=(3, 2)), s(s.array([[4, 1], [0, 5]]), shape=(3, 2)), s(s.array([2, 0]), shape=3),
        s(s.array(np.zeros(0, np.int64)), shape=(2, 0)),
        s.error(TypeError, "integer", (2,), shape=(2, 3)), s.error(ValueError, "negative", s.array([1]), shape=(2, -3)),
    ],
)  # fmt: skip
def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """Return, for flat positions in a tensor of ``shape``, their positions in each dimension: one tensor for each."""
    indices, sizes = as_tensor(indices), size_of(shape, "shape")
    if indices.dtype.category != INTEGER:
        raise DTypeError(f"unravel_index(): indices must be an integer tensor, got {indices.dtype}")
    if min(sizes, default=0) < 0:
        raise ValueError(f"unravel_index(): shape must not have negative sizes, got {sizes}")
    steps = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
    return tuple(ops.floor_divide(indices, max(s, 1)) % max(n, 1) for n, s in zip(sizes, steps, strict=True))

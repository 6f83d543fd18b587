"""Elements taken from, and put at, computed positions: gather, scatter, take, put and the reducing scatters."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert.array.shape import axis_of, broadcast_shapes
from wengert.core.apply import as_tensor, specs
from wengert.core.arguments import Anything, AnythingOrScalar, Axis, Integer
from wengert.core.batch import Body
from wengert.core.families import bilinear, composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.errors import ShapeError
from wengert.kernels import scatter as kernels
from wengert.operators.checks import wrong_values
from wengert.operators.gather_batch import along_batch
from wengert.operators.writes import inplace_writer, publish_method

__all__ = [
    "along_key",
    "cast_to",
    "check_along",
    "check_bounds",
    "corner",
    "covered",
    "gather",
    "lined",
    "put",
    "scatter",
    "scatter_add",
    "scatter_write",
    "take",
    "take_along_dim",
]


# ---- positions along one dimension


def check_bounds(name: str, index: Any, dim: int, size: int) -> None:
    """Raise IndexError for the first index outside ``[0, size)``."""
    if index.size and (index.min() < 0 or index.max() >= size):
        wrong = index[(index < 0) | (index >= size)].flat[0]
        raise IndexError(f"{name}(): index {wrong} is out of bounds for dimension {dim} with size {size}")


def check_along(
    name: str, shape: Sequence[int], dim: int, index: Any, src: Any = None, *, number: bool = True
) -> None:  # fmt: skip
    """Check shapes of arguments (arrays or Specs) that work along ``dim``; ``number``: one may stand for ``src``."""
    if max(len(index.shape), 1) != max(len(shape), 1) and 0 not in index.shape:
        raise ShapeError(
            f"{name}(): index must have as many dimensions as input, got shapes {tuple(index.shape)} and {tuple(shape)}"
        )
    for d, n in enumerate(index.shape):
        if d != dim and d < len(shape) and n > shape[d]:
            raise ShapeError(
                f"{name}(): index of shape {tuple(index.shape)} must not be larger than input of shape {tuple(shape)} "
                f"apart from dimension {dim}"
            )
    given = () if src is None else tuple(getattr(src, "shape", ()))
    if src is not None and not number:
        given = given or (1,)
    covering = tuple(index.shape) or (1,)
    if given and (len(given) != len(covering) or any(n > m for n, m in zip(covering, given, strict=True))):
        raise ShapeError(f"{name}(): src of shape {given} is smaller than index of shape {tuple(index.shape)}")


def along_key(index: Any, dim: int) -> tuple[Any, ...]:
    """Return the NumPy key that reads, for each element of ``index``, its position along ``dim``."""
    grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[dim] = index
    return tuple(grid)


def lined(array: Any) -> Any:
    """Return a 0-d array as one of one element: such tensors count as having one dimension here."""
    return array if array.ndim else array.reshape(1)


def corner(src: Any, index: Any) -> Any:
    """Return the corner of ``src`` that ``index`` covers; a number covers everything."""
    return src[tuple(slice(n) for n in index.shape)] if getattr(src, "ndim", 0) else src


def cast_to(src: Any, dtype: Any) -> Any:
    """Return numbers cast to an array's dtype; complex ones lose their imaginary part to a real dtype."""
    src = np.asarray(src)
    return (src.real if src.dtype.kind == "c" and dtype.kind != "c" else src).astype(dtype, copy=False)


def covered(g: Any, shape: tuple[int, ...]) -> Any:
    """Return the gradient of the corner of ``src`` that was read as one of all of ``src``, of ``shape``."""
    if len(g.shape) > len(shape):  # a 0-d tensor, whose one element or none was read
        g = ops.sum(g, -1)
    elif len(g.shape) < len(shape):
        g = ops.reshape(g, (*g.shape, 1))
    if tuple(g.shape) == tuple(shape):
        return g
    return ops.getitem_transpose(g, tuple(slice(0, n, 1) for n in g.shape), tuple(shape))


def _gather_spec(input: Spec, dim: int, index: Spec, *, sparse_grad: bool = False) -> Spec:
    check_along("gather", input.shape, dim, index)
    return Spec(tuple(index.shape), input.dtype)


@bilinear(
    transpose={
        "input": lambda g, dim, index, input_shape: ops.scatter_add(
            ops.zeros(input_shape, dtype=g.dtype), dim, index, g
        )
    },
    batch=along_batch,
    spec=_gather_spec,
    widen=False,
    samples=lambda s: [
        s((3, 2), 0, s.array([[0, 2], [2, 2]])), s((2, 3), -1, s.array([[1, 1, 0, 2]])), s((), 0, s.array(0)),
        s((3,), 0, s.array(np.empty(0, np.int64))), s((3,), 0, s.array(np.empty((2, 0), np.int64))),
        s((0, 2), 1, s.array(np.empty((0, 1), np.int64))),
        s.error(IndexError, "index 3 is out of bounds for dimension 0 with size 3", (3,), 0, s.array([3])),
        s.error(IndexError, "index -1 is out of bounds", (3,), 0, s.array([-1])),
        s.error(RuntimeError, "must not be larger", (3, 1), 0, s.array([[0, 1]])),
    ],
)  # fmt: skip
def gather(input: Anything, dim: Axis, index: Integer, *, sparse_grad: bool = False) -> Any:
    """Return ``out[i][j] = input[index[i][j]][j]`` for ``dim`` 0, and likewise along any other dimension."""
    return kernels.gather(input, dim, index) if index.size else np.empty(index.shape, input.dtype)


@composite(
    method=True,
    samples=lambda s: [
        s((2, 3), s.array([[1], [0]]), 1), s((2, 3), s.array([[0, 1, 1]]), 0), s((2, 2), s.array([3, 0])),
        s((1, 3), s.array([[2], [0]]), -1), s((2, 3), s.array([[-1], [0]]), 1),
    ],
)  # fmt: skip
def take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Any:
    """Return ``input`` at ``indices`` along ``dim``, the rest broadcast; without ``dim`` both count as flat.

    Negative indices count from the end of ``dim``.
    """
    input, indices = as_tensor(input), as_tensor(indices)
    if dim is None:
        return ops.gather(ops.reshape(input, (-1,)), 0, ops.reshape(indices, (-1,)))
    if input.ndim != indices.ndim:
        raise ShapeError(
            f"take_along_dim(): input and indices must have equally many dimensions, got {tuple(input.shape)} "
            f"and {tuple(indices.shape)}"
        )
    dim = axis_of(dim, input.ndim)
    rest = [tuple(1 if d == dim else n for d, n in enumerate(t.shape)) for t in (input, indices)]
    shape = list(broadcast_shapes("take_along_dim", *rest))
    shape[dim] = input.shape[dim]
    wide = ops.expand(input, tuple(shape))
    shape[dim] = indices.shape[dim]
    indices = ops.where(indices < 0, indices + input.shape[dim], indices)
    return ops.gather(wide, dim, ops.expand(indices, tuple(shape)))


# ---- writing along one dimension


def _scatter_spec(input: Spec, dim: int, index: Spec, src: Any) -> Spec:
    check_along("scatter", input.shape, dim, index, src)
    return input


def _scatter_add_spec(input: Spec, dim: int, index: Spec, src: Spec) -> Spec:
    check_along("scatter_add", input.shape, dim, index, src, number=False)
    return input


def _write(input: Any, dim: int, index: Any, src: Any) -> Any:
    """Write ``src`` into an array where ``index`` points along ``dim``."""
    check_along("scatter", input.shape, dim, index, src)
    if index.size:
        target = lined(input)
        check_bounds("scatter", index, dim, target.shape[dim])
        target[along_key(lined(index), dim)] = lined(cast_to(corner(src, index), input.dtype))
    return input


@operator(
    vjp={
        "input": lambda g, dim, index: ops.scatter_write(g, dim, index, 0),
        "src": lambda g, dim, index, src_shape: covered(ops.gather(g, dim, index), src_shape),
    },
    jvp={
        "input": lambda t, dim, index: ops.scatter_write(t, dim, index, 0),
        "src": lambda t, input, dim, index: ops.scatter_write(ops.zeros_like(input), dim, index, t),
    },
    batch=along_batch,
    spec=_scatter_spec,
    widen=False,
    home=(),
    samples=lambda s: [
        s((3, 2), 0, s.array([[0, 2], [2, 1]]), (2, 2)), s((2, 3), -1, s.array([[1, 0]]), (2, 3)),
        s((2, 3), 1, s.array([[1], [0]]), 2.5),
        s((), 0, s.array(0), ()), s((2,), 0, s.array(np.empty(0, np.int64)), (0,)),
        s.error(IndexError, "index 2 is out of bounds", (2,), 0, s.array([2]), 1.0),
        s.error(RuntimeError, "src of shape", (3,), 0, s.array([0, 1]), (1,)),
    ],
)  # fmt: skip
def scatter_write(input: Anything, dim: Axis, index: Integer, src: AnythingOrScalar) -> Any:
    """Return a copy of ``input`` into which ``src`` is written where ``index`` points along ``dim``."""
    return _write(np.array(input, order="C"), dim, index, src)


@operator(
    vjp={
        "input": lambda g: g,
        "src": lambda g, dim, index, src_shape: covered(ops.gather(g, dim, index), src_shape),
    },
    jvp={
        "input": lambda t: t,
        "src": lambda t, input, dim, index: ops.scatter_add(ops.zeros_like(input), dim, index, t),
    },
    batch=along_batch,
    spec=_scatter_add_spec,
    inplace=True,
    samples=lambda s: [
        s((3, 2), 0, s.array([[0, 2], [2, 2]]), (2, 2)), s((2, 3), -1, s.array([[1, 1]]), (2, 3)),
        s((), 0, s.array(0), ()), s((), 0, s.array([0]), ()), s((2,), 0, s.array(1), (1,)),
        s((2,), 0, s.array(np.empty(0, np.int64)), (0,)), s((2, 2), 0, s.array([[0, 0]]), (1, 2), kind="complex"),
        s.error(RuntimeError, "smaller than index", (3,), 0, s.array([0, 1]), (1,)),
        s.error(IndexError, "index -1 is out of bounds", (2,), 0, s.array([-1]), (1,)),
    ],
)  # fmt: skip
def scatter_add(input: Anything, dim: Axis, index: Integer, src: Anything) -> Any:
    """Return ``input`` with ``src`` added where ``index`` points along ``dim``; elements that meet add up."""
    check_along("scatter_add", input.shape, dim, index, src, number=False)
    if not index.size:
        return np.array(input, order="C")
    return kernels.scatter_add(lined(input), dim, lined(index), lined(src)).reshape(input.shape)


inplace_writer("scatter_write", _write, public=False)


def _scatter(twin: str, input: Any, dim: int, index: Any, src: Any, value: Any, reduce: str | None) -> Any:
    """Choose the operator for a call of ``scatter`` (``twin`` is "") or ``scatter_`` ("_")."""
    if (src is None) == (value is None):
        raise TypeError(f"scatter{twin}() takes either src or value")
    given = value if src is None else src
    if reduce is None:
        return getattr(ops, "scatter_write" + twin)(input, dim, index, given)
    known = {"add": "sum", "multiply": "prod"}
    if reduce not in known:
        raise RuntimeError(f"scatter{twin}(): reduce must be 'add' or 'multiply', got {reduce!r}")
    if not isinstance(given, Tensor):
        given = ops.full(as_tensor(index).shape, given, dtype=input.dtype)
    return getattr(ops, "scatter_reduce" + twin)(input, dim, index, given, known[reduce])


@composite(
    method=True,
    samples=lambda s: [
        s((3, 2), 0, s.array([[0, 2]]), (1, 2)), s((3, 2), 0, s.array([[0, 2]]), value=1.5),
        s((3,), 0, s.array([0, 2]), 2.0),
        s((3,), 0, s.array([0, 0]), (2,), reduce="add", kind="integer"),
        s((3,), 0, s.array([0, 0]), (2,), reduce="multiply", kind="integer"),
    ],
)  # fmt: skip
def scatter(input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Any:
    """Return ``input`` with ``src`` (a tensor or a number) written where ``index`` points along ``dim``.

    With ``reduce`` "add" or "multiply" it is combined with what is there instead. Of several elements written to one
    place the last one stays.
    """
    return _scatter("", as_tensor(input), dim, index, src, value, reduce)


def scatter_(input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Any:
    """In-place version of :func:`wengert.scatter`."""
    return _scatter("_", input, dim, index, src, value, reduce)


publish_method(scatter_)


# ---- flat positions


def _put_positions(name: str, shape: tuple[int, ...], index: Any) -> Any:
    """Return flat positions counted from the front."""
    size = math.prod(shape)
    if index.size and (index.min() < -size or index.max() >= size):
        wrong = index[(index < -size) | (index >= size)].flat[0]
        raise IndexError(
            f"{name}(): index {wrong} is out of bounds for a tensor of shape {tuple(shape)} with {size} elements"
        )
    return np.where(index < 0, index + size, index)


def _put(input: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """Write or add ``source`` to an array at flat positions."""
    if index.shape != source.shape and index.size != source.size:
        raise ShapeError(f"put(): source has {source.size} elements, index {index.size}")
    positions = _put_positions("put", input.shape, index.reshape(-1))
    values = cast_to(source, input.dtype).reshape(-1)
    if accumulate:
        flat = kernels.index_put(input.reshape(-1), (positions,), values, accumulate=True)
        input[...] = flat.reshape(input.shape)
    elif input.flags.c_contiguous:
        input.reshape(-1)[positions] = values
    else:
        input[np.unravel_index(positions, input.shape)] = values
    return input


def _emptied(values: Any, index: Any) -> Any:
    """Return values with zeros at flat positions."""
    return ops.put(values, index, ops.zeros(index.shape, dtype=values.dtype))


def _put_spec(input: Spec, index: Spec, source: Spec, accumulate: bool = False) -> Spec:
    if np.prod(index.shape) != np.prod(source.shape):
        raise ShapeError(
            f"put(): source of shape {tuple(source.shape)} and index of shape {tuple(index.shape)} differ in size"
        )
    return input


def _check_positions(name: str, shape: tuple[int, ...], index: Any) -> None:
    """Refuse flat positions, of any example, that are out of bounds."""
    size = math.prod(shape)
    _put_positions(name, shape, wrong_values(index, lambda index: (index < -size) | (index >= size)))


def _taken(input: Any, index: Any) -> Any:
    _check_positions("take", tuple(input.shape), index)
    return ops.index_read(ops.reshape(input, (input.numel(),)), (index,), (0,))


def _written(input: Any, index: Any, source: Any, accumulate: bool) -> Any:
    _put_spec(*specs([input, index, source]))
    _check_positions("put", tuple(input.shape), index)
    flat, values = ops.reshape(input, (input.numel(),)), ops.reshape(source, (source.numel(),))
    if source.dtype is not input.dtype:
        values = ops.cast(values, input.dtype)
    found = ops.index_write(flat, values, (ops.reshape(index, (index.numel(),)),), (0,), accumulate)
    return ops.reshape(found, tuple(input.shape))


@bilinear(
    transpose={
        "input": lambda g, index, input_shape: ops.put(ops.zeros(input_shape, dtype=g.dtype), index, g, accumulate=True)
    },
    batch=Body(_taken),
    spec=lambda input, index: Spec(tuple(index.shape), input.dtype),
    widen=False,
    samples=lambda s: [
        s((2, 3), s.array([[0, 5], [5, -1]])), s((), s.array([0, 0])), s((3,), s.array(1)),
        s((0,), s.array(np.empty(0, np.int64))),
        s.error(IndexError, "index 6 is out of bounds", (2, 3), s.array([6])),
    ],
)  # fmt: skip
def take(input: Anything, index: Integer) -> Any:
    """Return the elements at flat, row-major positions ``index``, in its shape."""
    if input.ndim > 1 and not input.flags.c_contiguous:
        positions = _put_positions("take", input.shape, index)
        return input[np.unravel_index(positions, input.shape)]
    try:
        return np.take(input, index)
    except IndexError:
        _put_positions("take", input.shape, index)
        raise


@operator(
    vjp={
        "input": lambda g, index, accumulate: g if accumulate else _emptied(g, index),
        "source": lambda g, index, source_shape: ops.reshape(ops.take(g, index), source_shape),
    },
    jvp={
        "input": lambda t, index, accumulate: t if accumulate else _emptied(t, index),
        "source": lambda t, input, index, accumulate: ops.put(ops.zeros_like(input), index, t, accumulate),
    },
    batch=Body(_written),
    spec=_put_spec,
    widen=False,
    samples=lambda s: [
        s((2, 3), s.array([[0, 5], [1, -2]]), (4,)), s((2, 3), s.array([0, 0, -6]), (3,), accumulate=True),
        s((), s.array(0), ()),
        s((3,), s.array(np.empty(0, np.int64)), (0,)),
        s.error(IndexError, "index 3 is out of bounds", (3,), s.array([3]), (1,)),
    ],
)  # fmt: skip
def put(input: Anything, index: Integer, source: Anything, accumulate: bool = False) -> Any:
    """Return ``input`` with the elements of ``source`` written (or added) at flat, row-major positions ``index``."""
    return _put(np.array(input, order="C"), index, source, accumulate)


inplace_writer("put", _put)

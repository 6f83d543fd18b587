"""Tensors joined, and cut into several: cat, stack, unbind, split."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from wengert.array.dtype import result_dtype
from wengert.array.shape import as_int, axis_of, size_of
from wengert.core.apply import as_tensor, common_dtype, execute
from wengert.core.arguments import Anything, Axis, Tensors
from wengert.core.batch import expanded, front, shifted
from wengert.core.families import composite, linear
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.signature import Param
from wengert.errors import ShapeError
from wengert.settings import settings

__all__ = ["cat", "split_with_sizes", "stack", "unbind"]

NewAxis = Annotated[Any, Param(lambda dim, ndim, name: axis_of(dim, ndim + 1, name))]


# ---- joining


def _cat_dim(shapes: Sequence[tuple[int, ...]], dim: int) -> int:
    """Return ``dim`` counted from the front in the tensors that count; those of shape (0,) do not, as in PyTorch."""
    return axis_of(dim, len(next((s for s in shapes if tuple(s) != (0,)), (0,))))


def _joined(shapes: Sequence[tuple[int, ...]], dim: int) -> tuple[int, ...]:
    if not shapes:
        raise ValueError("cat() needs at least one tensor, got an empty list")
    counted = [tuple(s) for s in shapes if tuple(s) != (0,)]
    if not counted:
        return (0,)
    first, dim = counted[0], _cat_dim(shapes, dim)
    if not first:
        raise ShapeError("cat(): 0-d tensors have no dimension to be joined along; use stack()")
    for k, shape in enumerate(counted):
        if len(shape) != len(first) or shape[:dim] + shape[dim + 1 :] != first[:dim] + first[dim + 1 :]:
            raise ShapeError(
                f"cat(): all sizes but those of dimension {dim} must agree; tensor {k} has shape {shape}, "
                f"the first {first}"
            )
    return (*first[:dim], sum(s[dim] for s in counted), *first[dim + 1 :])


def _cat_spec(tensors: Sequence[Spec], dim: int = 0) -> Spec:
    shape = _joined([t.shape for t in tensors], dim)
    dtype = result_dtype([t.dtype for t in tensors], [], [], settings.default_dtype)
    return Spec(shape, dtype)


def _cat_transpose(g: Any, dim: int, tensors_shape: Any) -> list[Any]:
    dim = _cat_dim(tensors_shape, dim)
    parts = []
    start = 0
    for shape in tensors_shape:
        if tuple(shape) == (0,) and g.ndim != 1:
            parts.append(ops.zeros((0,), dtype=g.dtype))
            continue
        parts.append(ops.narrow(g, dim, start, shape[dim]))
        start += shape[dim]
    return parts


def _cat_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Join all examples at once; the tensors of shape (0,) that do not count would need other dimensions."""
    tensors, dim = values
    shapes = [tuple(t.shape)[bool(b) :] for t, b in zip(tensors, batched[0], strict=True)]
    dim, ndim, dtype = _cat_dim(shapes, dim), len(_joined(shapes, dim)), common_dtype(op, values)
    wide = [t if b else expanded(t, size) for t, b in zip(tensors, batched[0], strict=True)]
    counted = [ops.cast(t, dtype) if t.dtype is not dtype else t for t in wide if t.ndim == ndim + 1]
    return execute(op, [tuple(counted), dim + 1])


@linear(
    transpose=_cat_transpose,
    places=True,
    batch=_cat_batch,
    spec=_cat_spec,
    promote="same",
    result="same",
    widen=False,
    method=False,
    aliases=("concat", "concatenate"),
    samples=lambda s: [
        s([(2, 3), (1, 3)]), s([(2, 3), (2, 1)], dim=-1), s([(2,)]), s([(0,), (2, 3)], dim=1),
        s([(2, 0), (2, 2)], dim=1),
        s([(2,), (0,)]), s([(2,), s.array([1, 2])]),
    ],
)  # fmt: skip
def cat(tensors: Tensors, dim: Any = 0) -> Any:
    """Join tensors along an existing dimension; their other sizes agree. Tensors of shape (0,) are skipped."""
    shape = _joined([t.shape for t in tensors], dim)
    counted = [t for t in tensors if t.shape != (0,)]
    return (
        np.concatenate(counted, axis=_cat_dim([t.shape for t in tensors], dim))
        if counted
        else np.empty(shape, tensors[0].dtype)
    )


def _stacked(shapes: Sequence[tuple[int, ...]], dim: int) -> tuple[int, ...]:
    if not shapes:
        raise ValueError("stack() needs at least one tensor, got an empty list")
    first = tuple(shapes[0])
    for k, shape in enumerate(shapes):
        if tuple(shape) != first:
            raise ShapeError(
                f"stack(): all tensors must have one shape; tensor {k} has shape {tuple(shape)}, the first {first}"
            )
    return (*first[:dim], len(shapes), *first[dim:])


@linear(
    transpose=lambda g, dim: list(ops.unbind(g, dim)),
    places=True,
    batch=front(dim=shifted),
    spec=lambda tensors, dim=0: Spec(
        _stacked([t.shape for t in tensors], dim),
        result_dtype([t.dtype for t in tensors], [], [], settings.default_dtype),
    ),
    promote="same",
    result="same",
    widen=False,
    method=False,
    samples=lambda s: [
        s([(2, 3), (2, 3)]),
        s([(2, 3), (2, 3)], dim=-1),
        s([(), ()]),
        s([(0,)], dim=1),
        s([(2,), s.array([1, 2])]),
    ],
)
def stack(tensors: Tensors, dim: NewAxis = 0) -> Any:
    """Join tensors of one shape along a new dimension."""
    _stacked([t.shape for t in tensors], dim)
    return np.stack(tensors, axis=dim)


def _list(tensors: Any, name: str) -> list[Any]:
    if not isinstance(tensors, Sequence) or not tensors:
        raise TypeError(f"{name}() takes a non-empty sequence of tensors, got {type(tensors).__name__}")
    return [as_tensor(v) for v in tensors]


@composite(samples=lambda s: [s([(2,), (3,)]), s([(2, 1), (2, 2)]), s([(), ()])])
def hstack(tensors: Any) -> Any:
    """Join tensors along dimension 1, or 0 if they have one dimension."""
    parts = [ops.atleast_1d(v) for v in _list(tensors, "hstack")]
    return ops.cat(parts, 0 if parts[0].ndim == 1 else 1)


@composite(aliases=("row_stack",), samples=lambda s: [s([(2,), (2,)]), s([(1, 2), (2, 2)]), s([(), ()])])
def vstack(tensors: Any) -> Any:
    """Join tensors along dimension 0; a vector counts as a row."""
    return ops.cat([ops.atleast_2d(v) for v in _list(tensors, "vstack")], 0)


@composite(samples=lambda s: [s([(2,), (2,)]), s([(2, 2), (2, 2)]), s([(), ()])])
def dstack(tensors: Any) -> Any:
    """Join tensors along dimension 2, after :func:`wengert.atleast_3d`."""
    return ops.cat([ops.atleast_3d(v) for v in _list(tensors, "dstack")], 2)


@composite(samples=lambda s: [s([(2,), (2, 2)]), s([(), ()])])
def column_stack(tensors: Any) -> Any:
    """Join tensors along dimension 1; a vector counts as a column."""
    parts = _list(tensors, "column_stack")
    return ops.cat([v if v.ndim > 1 else ops.reshape(v, (v.numel(), 1)) for v in parts], 1)


# ---- cutting


def _sized(shape: tuple[int, ...], dim: int, name: str) -> int:
    if not shape:
        raise IndexError(f"{name}(): a 0-d tensor has no dimension to cut")
    return shape[dim]


def _cut_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    return execute(op, [*values[:-1], values[-1] + 1])


def _unbound(input: Spec, dim: int = 0) -> tuple[Spec, ...]:
    part = Spec((*input.shape[:dim], *input.shape[dim + 1 :]), input.dtype)
    return (part,) * _sized(input.shape, dim, "unbind")


@linear(
    transpose=lambda g, dim: ops.stack(g, dim),
    batch=_cut_batch,
    spec=_unbound,
    variable=True,
    view=True,
    widen=False,
    samples=lambda s: [s((2, 3)), s((2, 3), dim=-1), s((1,)), s((2, 0))],
)
def unbind(input: Anything, dim: Axis = 0) -> Any:
    """Return the slices along a dimension as a tuple of views."""
    count = _sized(input.shape, dim, "unbind")
    front = (slice(None),) * dim
    return [input[(*front, i, ...)] for i in range(count)]


def _parts(shape: tuple[int, ...], split_sizes: Sequence[int], dim: int) -> list[slice]:
    size = _sized(shape, dim, "split")
    if sum(split_sizes) != size or any(n < 0 for n in split_sizes):
        raise ShapeError(
            f"split_with_sizes(): sizes {tuple(split_sizes)} must be non-negative and add up to {size}, "
            f"the size of dimension {dim}"
        )
    ends = np.cumsum(split_sizes, dtype=np.int64).tolist()
    return [slice(end - n, end) for n, end in zip(split_sizes, ends, strict=True)]


def _split_spec(input: Spec, split_sizes: Any, dim: int = 0) -> tuple[Spec, ...]:
    cuts = _parts(input.shape, split_sizes, dim)
    return tuple(Spec((*input.shape[:dim], c.stop - c.start, *input.shape[dim + 1 :]), input.dtype) for c in cuts)


@linear(
    transpose=lambda g, dim: ops.cat(g, dim),
    batch=_cut_batch,
    spec=_split_spec,
    variable=True,
    view=True,
    widen=False,
    samples=lambda s: [s((3, 2), split_sizes=(1, 2)), s((2, 3), split_sizes=(3, 0), dim=-1), s((0,), split_sizes=(0,))],
)
def split_with_sizes(input: Anything, split_sizes: Any, dim: Axis = 0) -> Any:
    """Cut a dimension into parts of the given sizes; the parts are views."""
    front = (slice(None),) * dim
    return [input[(*front, cut)] for cut in _parts(input.shape, split_sizes, dim)]


def _pieces(size: int, step: int) -> tuple[int, ...]:
    """Return the sizes of parts of ``step`` elements, the last one smaller."""
    if size == 0:
        return (0,)
    return (*(step,) * (size // step), *((size % step,) if size % step else ()))


@composite(method=True, samples=lambda s: [s((5, 2), 2), s((3,), [1, 2]), s((0, 2), 3)])
def split(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> tuple[Any, ...]:
    """Cut a dimension into parts of one size (the last may be smaller) or of the given sizes; the parts are views."""
    tensor = as_tensor(tensor)
    dim = axis_of(dim, tensor.ndim)
    if isinstance(split_size_or_sections, Sequence):
        sizes = size_of(split_size_or_sections, "split sizes")
        return ops.split_with_sizes(tensor, sizes, dim)
    step = as_int(split_size_or_sections, "split_size")
    size = _sized(tensor.shape, dim, "split")
    if step < 0 or (step == 0 and size):
        raise ShapeError(f"split(): the size of a part must be positive, got {step}")
    return ops.split_with_sizes(tensor, _pieces(size, step), dim)


@composite(
    method=True,
    samples=lambda s: [s((5, 2), chunks=2), s((2, 5), chunks=3, dim=1), s((2,), chunks=4), s((0,), chunks=2)],
)
def chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Any, ...]:
    """Cut a dimension into at most ``chunks`` parts of one size, the last one smaller; the parts are views."""
    input = as_tensor(input)
    dim, count = axis_of(dim, input.ndim), as_int(chunks, "chunks")
    size = _sized(input.shape, dim, "chunk")
    if count < 1:
        raise ShapeError(f"chunk(): chunks must be positive, got {count}")
    sizes = _pieces(size, -(-size // count)) if size else (0,) * count
    return ops.split_with_sizes(input, sizes, dim)


_MOST_PARTS = 1 << 20  # of a smaller dimension: all but a few are empty, and as many tensors take minutes to make


def _bounds(size: int, indices_or_sections: Any) -> list[tuple[int, int]]:
    """Return (start, end) of each part of ``tensor_split``."""
    if not isinstance(indices_or_sections, Sequence):
        count = as_int(indices_or_sections, "sections")
        if count < 1:
            raise ShapeError(f"tensor_split(): the number of sections must be positive, got {count}")
        if count > max(size, _MOST_PARTS):
            raise ShapeError(f"tensor_split(): {count} parts of a dimension of size {size} are more than {_MOST_PARTS}")
        low, more = divmod(size, count)
        ends = [low * (k + 1) + min(k + 1, more) for k in range(count)]
        return list(zip([0, *ends[:-1]], ends, strict=True))
    marks = [slice(as_int(i, "index")).indices(size)[1] for i in indices_or_sections]
    return [(start, max(start, end)) for start, end in zip([0, *marks], [*marks, size], strict=True)]


def _apart(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return parts as tensors of their own memory, which may be written in place."""
    return tuple(ops.clone(part) for part in parts)


@composite(method=True, samples=lambda s: [s((5, 2), 2), s((2, 3), 2, 1)])
def unsafe_split(tensor: Any, split_size: Any, dim: int = 0) -> tuple[Any, ...]:
    """Return the parts of :func:`split` without a tie to the tensor, so that each may be written in place."""
    return _apart(ops.split(tensor, split_size, dim))


@composite(method=True, samples=lambda s: [s((3, 2), [1, 2])])
def unsafe_split_with_sizes(input: Any, split_sizes: Any, dim: int = 0) -> tuple[Any, ...]:
    """Return the parts of :func:`split_with_sizes` without a tie to the tensor, so that each may be written in place."""
    return _apart(ops.split_with_sizes(input, split_sizes, dim))


@composite(method=True, samples=lambda s: [s((5, 2), 2), s((2, 5), 3, 1)])
def unsafe_chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Any, ...]:
    """Return the parts of :func:`chunk` without a tie to the tensor, so that each may be written in place."""
    return _apart(ops.chunk(input, chunks, dim))


@composite(method=True, samples=lambda s: [s((5, 2), 3), s((5,), [1, 3]), s((3,), [2, 1, -1])])
def tensor_split(
    input: Any, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None, sections: Any = None
) -> tuple[Any, ...]:
    """Cut a dimension into ``sections`` parts of nearly one size, or before each of ``indices``; parts are views."""
    input = as_tensor(input)
    dim = axis_of(dim, input.ndim)
    where = next((v for v in (indices_or_sections, indices, sections) if v is not None), None)
    if where is None:
        raise TypeError("tensor_split() misses argument indices_or_sections")
    if hasattr(where, "tolist"):
        where = where.tolist()
    size = _sized(input.shape, dim, "tensor_split")
    return tuple(ops.narrow(input, dim, start, end - start) for start, end in _bounds(size, where))


def _split_at(input: Any, indices_or_sections: Any, dim: int, name: str) -> tuple[Any, ...]:
    size = input.shape[dim]
    if not isinstance(indices_or_sections, Sequence):
        count = as_int(indices_or_sections, "sections")
        if count < 1 or size % count:
            raise ShapeError(f"{name}(): dimension {dim} of size {size} does not divide into {count} equal parts")
    return ops.tensor_split(input, indices_or_sections, dim)


@composite(method=True, samples=lambda s: [s((4,), 2), s((2, 4), [1, 3])])
def hsplit(input: Any, indices_or_sections: Any) -> tuple[Any, ...]:
    """Cut dimension 1, or 0 if there is only one, like :func:`wengert.tensor_split`."""
    input = as_tensor(input)
    if not input.ndim:
        raise ShapeError("hsplit() needs a tensor of at least 1 dimension, got a 0-d one")
    return _split_at(input, indices_or_sections, 0 if input.ndim == 1 else 1, "hsplit")


@composite(method=True, samples=lambda s: [s((4, 1), 2), s((3, 2), [1])])
def vsplit(input: Any, indices_or_sections: Any) -> tuple[Any, ...]:
    """Cut dimension 0 of a tensor of at least two dimensions like :func:`wengert.tensor_split`."""
    input = as_tensor(input)
    if input.ndim < 2:
        raise ShapeError(f"vsplit() needs a tensor of at least 2 dimensions, got shape {tuple(input.shape)}")
    return _split_at(input, indices_or_sections, 0, "vsplit")


@composite(method=True, samples=lambda s: [s((1, 2, 4), 2), s((1, 2, 3), [1])])
def dsplit(input: Any, indices_or_sections: Any) -> tuple[Any, ...]:
    """Cut dimension 2 of a tensor of at least three dimensions like :func:`wengert.tensor_split`."""
    input = as_tensor(input)
    if input.ndim < 3:
        raise ShapeError(f"dsplit() needs a tensor of at least 3 dimensions, got shape {tuple(input.shape)}")
    return _split_at(input, indices_or_sections, 2, "dsplit")

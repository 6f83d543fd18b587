"""Elements repeated, reversed, rolled and masked by position: copies with another arrangement."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from wengert.array.shape import as_int, axes_of, axis_of, size_of
from wengert.core.apply import as_tensor, execute
from wengert.core.arguments import Anything, Int
from wengert.core.batch import front, shifted
from wengert.core.families import composite, linear
from wengert.core.methods import attach
from wengert.core.registry import ops
from wengert.core.signature import Param
from wengert.core.tensor import Tensor, from_array, raw
from wengert.errors import ShapeError

__all__ = [
    "block_diag", "diag", "diagflat", "flip", "fliplr", "flipud", "repeat_interleave", "roll", "rot90", "tile", "tril",
    "triu",
]  # fmt: skip


def _dims(dims: Any, ndim: int, name: str) -> tuple[int, ...]:
    dims = size_of(dims, name)
    return axes_of(dims, ndim, name) if dims else ()


Dims = Annotated[Any, Param(_dims, variadic=True)]  # none are none, where the shared marker means all


# ---- repeating


def _repeated(input: Any, repeats: tuple[int, ...], name: str) -> Any:
    """Return the tensor side by side ``repeats`` times in each dimension, of which there may be new ones in front."""
    if len(repeats) < input.ndim or any(r < 0 for r in repeats):
        raise ShapeError(
            f"{name}(): repeats {repeats} must be non-negative, one for each of the {input.ndim} dimensions or more"
        )
    shape = (1,) * (len(repeats) - input.ndim) + tuple(input.shape)
    pairs = list(zip(repeats, shape, strict=True))
    spread = ops.expand(
        ops.reshape(input, tuple(n for _, size in pairs for n in (1, size))), tuple(n for pair in pairs for n in pair)
    )
    out = ops.reshape(spread, tuple(r * n for r, n in pairs))
    return ops.clone(out) if out._view is not None else out


def repeat(self: Any, *repeats: Any) -> Any:
    """Return the tensor side by side ``repeats`` times in each dimension; more numbers than dimensions add new ones."""
    return _repeated(self, size_of(repeats, "repeats"), "repeat")


@composite(
    method=True,
    samples=lambda s: [s((2, 3), dims=(2,)), s((2,), dims=(2, 1, 3)), s((2, 1), dims=(0, 2)), s((), dims=(3,))],
)
def tile(input: Any, *counts: Any, dims: Any = None) -> Any:
    """Return the tensor repeated as by :meth:`Tensor.repeat`; leading dimensions without a number stay as they are."""
    input, repeats = as_tensor(input), size_of(counts if dims is None else dims, "dims")
    return _repeated(input, (1,) * (input.ndim - len(repeats)) + repeats, "tile")


@composite(
    method=True,
    batch="refuse",
    samples=lambda s: [
        s((2, 3), 2), s((2, 3), 2, dim=1), s((2, 3), s.array([1, 3]), dim=0), s((3,), s.array([0, 2, 1])), s((3,), 0),
        s((2, 2), s.array([2]), 1),
    ],
)  # fmt: skip
def repeat_interleave(
    input: Any, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Any:
    """Return the tensor with each slice along ``dim`` repeated: ``repeats`` times, a number or one for each slice.

    Without ``dim`` the tensor is flattened. ``repeat_interleave(repeats)`` alone gives the indices that would be taken.
    """
    input = as_tensor(input)
    if repeats is None:
        return from_array(np.repeat(np.arange(input.numel()), _counts(input, input.numel())))
    if dim is None:
        input, dim = ops.reshape(input, (-1,)) if input.numel() else ops.reshape(input, (0,)), 0
    dim = axis_of(dim, input.ndim)
    size = input.shape[dim] if input.ndim else 1
    counts = _counts(repeats, size)
    total = int(counts.sum())
    if output_size is not None and output_size != total:
        raise ShapeError(f"repeat_interleave(): output_size is {output_size}, the repeats add up to {total}")
    return ops.index_select(input, dim, from_array(np.repeat(np.arange(size), counts)))


def _counts(repeats: Any, size: int) -> Any:
    """Return how often each of ``size`` slices is repeated."""
    if isinstance(repeats, Tensor):
        if repeats.dtype.category != 1 or repeats.ndim > 1:
            raise ShapeError(
                f"repeat_interleave(): repeats must be an integer vector, got {repeats.dtype} of shape "
                f"{tuple(repeats.shape)}"
            )
        counts = raw(repeats, "repeat_interleave() with a tensor of repeats")
    else:
        counts = np.asarray(
            as_int(repeats, "repeats") if not isinstance(repeats, Sequence) else size_of(repeats, "repeats")
        )
    if counts.size not in (1, size):
        raise ShapeError(f"repeat_interleave(): {counts.size} repeats for a dimension of size {size}")
    if counts.size and counts.min() < 0:
        raise ShapeError(f"repeat_interleave(): repeats must not be negative, got {counts.min()}")
    return np.broadcast_to(counts.reshape(-1), (size,))


# ---- reversing, rolling


@linear(
    transpose=lambda g, dims: ops.flip(g, dims),
    batch=front(dims=shifted),
    spec=lambda input, dims: input,
    widen=False,
    samples=lambda s: [
        s((2, 3), dims=(0,)),
        s((2, 3), dims=(0, -1)),
        s((2, 3), dims=(1,)),
        s((), dims=()),
        s((0, 2), dims=(0,)),
    ],
)
def flip(input: Anything, dims: Dims) -> Any:
    """Return a copy with the order of elements reversed along ``dims``."""
    return np.flip(input, dims).copy()


@composite(method=True, samples=lambda s: [s((2, 3))])
def fliplr(input: Any) -> Any:
    """Return a copy with the columns (dimension 1) in reverse order."""
    if as_tensor(input).ndim < 2:
        raise ShapeError(f"fliplr() needs a tensor of at least 2 dimensions, got shape {tuple(as_tensor(input).shape)}")
    return ops.flip(input, (1,))


@composite(method=True, samples=lambda s: [s((2, 3)), s((3,))])
def flipud(input: Any) -> Any:
    """Return a copy with the rows (dimension 0) in reverse order."""
    if as_tensor(input).ndim < 1:
        raise ShapeError("flipud() needs a tensor of at least 1 dimension, got a 0-d one")
    return ops.flip(input, (0,))


def _moves(shifts: Any, dims: Any, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return shifts and dims of ``roll``, equally long; dims None rolls the flattened tensor."""
    shifts = size_of(shifts, "shifts")
    if dims is None or (isinstance(dims, Sequence) and not dims):
        if len(shifts) != 1:
            raise ShapeError(f"roll(): without dims there must be one shift, got {shifts}")
        return shifts, None
    dims = tuple(axis_of(d, ndim, "dims") for d in size_of(dims, "dims"))
    if len(shifts) != len(dims):
        raise ShapeError(f"roll(): shifts {shifts} and dims {dims} must be equally long")
    return shifts, dims


def _roll_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    input, shape = values[0], tuple(values[0].shape)
    shifts, dims = _moves(values[1], values[2], len(shape) - 1)
    if len(shape) == 1:
        return ops.clone(input)
    if dims is None:
        return ops.reshape(execute(op, [ops.reshape(input, (size, math.prod(shape[1:]))), shifts, (1,)]), shape)
    return execute(op, [input, shifts, shifted(dims, size)])


@linear(
    transpose=lambda g, shifts, dims: ops.roll(g, tuple(-n for n in size_of(shifts, "shifts")), dims),
    batch=_roll_batch,
    spec=lambda input, shifts, dims=None: (_moves(shifts, dims, input.ndim), input)[1],
    widen=False,
    samples=lambda s: [
        s((2, 3), shifts=2), s((2, 3), shifts=-1, dims=1), s((2, 3), shifts=(1, 2), dims=(0, -1)), s((), shifts=1),
        s((0, 2), shifts=1, dims=0),
        s((3,), shifts=7, dims=0), s((4,), shifts=(1, 1), dims=(0, 0)),
    ],
)  # fmt: skip
def roll(input: Anything, shifts: Any, dims: Any = None) -> Any:
    """Return a copy with elements moved ``shifts`` places along ``dims``; what leaves comes in at the other end."""
    shifts, dims = _moves(shifts, dims, input.ndim)
    if dims is None:
        return np.roll(input.reshape(-1), shifts[0]).reshape(input.shape)
    return np.roll(input, shifts, dims) if input.ndim else input.copy()


@composite(
    method=True,
    samples=lambda s: [s((2, 3)), s((2, 3), k=2), s((2, 3), k=-1), s((2, 3, 2), k=3, dims=(2, 0)), s((2, 2), k=4)],
)
def rot90(input: Any, k: int = 1, dims: Sequence[int] = (0, 1)) -> Any:
    """Return the tensor turned by 90 degrees ``k`` times, from the first of ``dims`` towards the second."""
    input = as_tensor(input)
    if len(dims) != 2:
        raise ShapeError(f"rot90() turns a plane of two dimensions, got dims {tuple(dims)}")
    first, second = axes_of(dims, input.ndim, "dims")
    turns = as_int(k, "k") % 4
    if turns == 0:
        return ops.clone(input)
    if turns == 2:
        return ops.flip(input, (first, second))
    return ops.transpose(ops.flip(input, (second if turns == 1 else first,)), first, second)


# ---- triangles and diagonals of matrices


def _matrices(name: str, shape: tuple[int, ...]) -> bool:
    """Return True; raise if a shape has not the two dimensions of a matrix."""
    if len(shape) < 2:
        raise ShapeError(f"{name}() needs a tensor of at least 2 dimensions, got shape {tuple(shape)}")
    return True


def _matrices_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    _matrices(op.name, values[0].shape[1:])
    return execute(op, values)


@linear(
    transpose=lambda g, diagonal: ops.tril(g, diagonal),
    batch=_matrices_batch,
    spec=lambda input, diagonal=0: _matrices("tril", input.shape) and input,
    inplace=True,
    widen=False,
    samples=lambda s: [
        s((3, 3)),
        s((2, 3), diagonal=1),
        s((2, 3, 2), diagonal=-1),
        s((0, 2)),
        s.error(RuntimeError, "at least 2", (3,)),
    ],
)
def tril(input: Anything, diagonal: Int = 0) -> Any:
    """Return each matrix with zeros above a diagonal: 0 is the main one, 1 the next to its right."""
    _matrices("tril", input.shape)
    return np.tril(input, diagonal)


@linear(
    transpose=lambda g, diagonal: ops.triu(g, diagonal),
    batch=_matrices_batch,
    spec=lambda input, diagonal=0: _matrices("triu", input.shape) and input,
    inplace=True,
    widen=False,
    samples=lambda s: [
        s((3, 3)),
        s((2, 3), diagonal=1),
        s((2, 3, 2), diagonal=-1),
        s((0, 2)),
        s.error(RuntimeError, "at least 2", (3,)),
    ],
)
def triu(input: Anything, diagonal: Int = 0) -> Any:
    """Return each matrix with zeros below a diagonal: 0 is the main one, 1 the next to its right."""
    _matrices("triu", input.shape)
    return np.triu(input, diagonal)


@composite(method=True, samples=lambda s: [s((3,)), s((2,), diagonal=1), s((3, 3)), s((2, 3), diagonal=-1), s((0,))])
def diag(input: Any, diagonal: int = 0) -> Any:
    """Return a matrix with a vector on its diagonal, or a copy of the diagonal of a matrix."""
    input = as_tensor(input)
    if input.ndim == 1:
        return ops.diag_embed(input, diagonal)
    if input.ndim == 2:
        return ops.clone(ops.diagonal(input, diagonal))
    raise ShapeError(
        f"diag() takes a vector or a matrix, got shape {tuple(input.shape)}; use diagonal() or diag_embed()"
    )


@composite(method=True, samples=lambda s: [s((2, 2)), s((3,), offset=1), s(())])
def diagflat(input: Any, offset: int = 0) -> Any:
    """Return a matrix with all elements of the tensor on its diagonal."""
    return ops.diag_embed(ops.ravel(input), offset)


@composite(samples=lambda s: [s((2, 2), (3,), ()), s((1, 2)), s((0, 2), (1, 1))])
def block_diag(*tensors: Any) -> Any:
    """Return a matrix with the given matrices along its diagonal and zeros elsewhere; a vector counts as a row."""
    blocks = [ops.atleast_2d(v) for v in tensors]
    wrong = next((b for b in blocks if b.ndim > 2), None)
    if wrong is not None:
        raise ShapeError(f"block_diag() takes tensors of at most 2 dimensions, got shape {tuple(wrong.shape)}")
    width = sum(b.shape[1] for b in blocks)
    rows = []
    at = 0
    for block in blocks:
        height, columns = block.shape
        left, right = (
            ops.zeros(height, at, dtype=block.dtype),
            ops.zeros(height, width - at - columns, dtype=block.dtype),
        )
        rows.append(ops.cat([left, block, right], 1))
        at += columns
    return ops.cat(rows, 0) if rows else ops.zeros(1, 0)


attach("repeat", repeat)

"""How advanced indexing runs on a batch.

The batch is itself indexed, by a tensor that counts the examples. NumPy then puts what the indices give right after the
batch, from where it is moved to where one example has it.
"""

from collections.abc import Sequence
from typing import Any

from wengert.core.apply import execute
from wengert.core.batch import aligned, expanded
from wengert.core.registry import ops
from wengert.core.tensor import Tensor

__all__ = ["neighbours", "read_batch", "transpose_batch", "write_batch"]


def _counting(size: int, ndim: int) -> Any:
    return ops.reshape(ops.arange(size), (size, *(1,) * ndim))


def _batched_indices(indices: Any, batched: Any) -> tuple[list[Any], int]:
    """Return index tensors that broadcast with the batch in front, and the dimensions of one example's."""
    common = max(t.ndim - bool(b) for t, b in zip(indices, batched, strict=True))
    return [aligned(t, common) if b else t for t, b in zip(indices, batched, strict=True)], common


def neighbours(dims: Sequence[int]) -> bool:
    """True if the indexed dimensions follow one another: then what the indices give stands in their place."""
    return list(dims) == list(range(dims[0], dims[0] + len(dims)))


def _order(ndim: int, common: int, dims: Sequence[int]) -> tuple[int, ...]:
    """Return the order of dimensions from (batch, common, rest) to (batch, rest before, common, rest after)."""
    at = dims[0] if neighbours(dims) else 0
    return (0, *range(1 + common, 1 + common + at), *range(1, 1 + common), *range(1 + common + at, ndim))


def read_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Read at indices, for a batch."""
    input, indices, dims = values
    further = tuple(d + 1 for d in dims)
    if not any(batched[1]) and neighbours(dims):
        return execute(op, [input, indices, further])
    listed, common = _batched_indices(indices, batched[1])
    if batched[0]:
        found = execute(op, [input, (_counting(size, common), *listed), (0, *further)])
        return ops.permute(found, _order(found.ndim, common, dims))
    found = execute(op, [input, tuple(listed), dims])
    return ops.movedim(found, dims[0], 0) if neighbours(dims) else found


def transpose_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Add at indices of zeros, for a batch."""
    input, indices, dims, shape = values
    further = tuple(d + 1 for d in dims)
    if not any(batched[1]) and neighbours(dims):
        return execute(op, [input, indices, further, (size, *shape)])
    listed, common = _batched_indices(indices, batched[1])
    input = input if batched[0] else expanded(input, size)
    there = _order(input.ndim, common, dims)
    moved = ops.permute(input, tuple(sorted(range(input.ndim), key=there.__getitem__)))
    return execute(op, [moved, (_counting(size, common), *listed), (0, *further), (size, *shape)])


def write_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Write at indices, for a batch."""
    input, value, indices, dims, accumulate = values
    further = tuple(d + 1 for d in dims)
    input = input if batched[0] else expanded(input, size)
    listed, common = _batched_indices(indices, batched[2])
    ndim = input.ndim - len(dims) + common
    if isinstance(value, Tensor) and value.ndim:
        value = value if batched[1] else ops.unsqueeze(value, 0)
        value = aligned(value, ndim - 1)
        there = _order(ndim, common, dims)
        value = ops.permute(value, tuple(sorted(range(ndim), key=there.__getitem__)))
    return execute(op, [input, value, (_counting(size, common), *listed), (0, *further), accumulate])

"""What indexing, joining and taking apart mean for sparse tensors: entries are chosen, and their positions are moved.

The layout stays, where the result is a matrix; a CSR tensor that becomes anything else is a COO tensor.
"""

from typing import Any

import numpy as np

from wengert.array.shape import axis_of
from wengert.core.registry import ops
from wengert.core.tensor import from_array, raw
from wengert.errors import ShapeError, SparseError
from wengert.sparse.convert import coalesce, summed_entries
from wengert.sparse.pattern import Coo, Csr, Positions
from wengert.sparse.payload import RULES, entries, is_sparse, made

__all__ = ["permuted", "unsqueezed"]


def _laid(values: Any, pattern: Coo, csr: bool) -> Any:
    """Return entries at coordinates, in compressed rows if they are to be and make a matrix."""
    found = made(values, pattern)
    if not csr or len(pattern.shape) != 2 or pattern.sparse_dim != 2:
        return found
    found = coalesce(found)
    return made(entries(found), found._payload.pattern.csr)


def _is_csr(tensor: Any) -> bool:
    return isinstance(tensor._payload.pattern, Csr)


def getitem(input: Any, index: Any) -> Any:
    """Return the part at numbers, slices and new axes; dense, if no dimension that is indexed by positions is left."""
    pattern = input._payload.pattern.coo
    given = sum(part is not None for part in index)
    index = (*index, *(slice(0, size, 1) for size in input.shape[given:]))
    kept = np.ones(pattern.count, np.bool_)
    lines: list[Positions] = []
    sizes: list[int] = []
    inner: list[Any] = []
    at = 0
    for part in index:
        if part is None and not inner:
            lines.append(np.zeros(pattern.count, np.int64))
            sizes.append(1)
        elif part is None or at >= pattern.sparse_dim:
            inner.append(part)
        else:
            line = pattern.positions[at]
            chosen = range(part, part + 1) if isinstance(part, int) else range(pattern.shape[at])[part]
            kept &= (line >= chosen.start) & (line < chosen.stop) & ((line - chosen.start) % chosen.step == 0)
            if not isinstance(part, int):
                lines.append((line - chosen.start) // chosen.step)
                sizes.append(len(chosen))
        at += part is not None
    which = np.flatnonzero(kept)
    values = entries(input) if which.size == pattern.count else ops.take_rows(entries(input), from_array(which))
    if any(part != slice(0, size, 1) for part, size in zip(inner, pattern.dense_shape, strict=False)) or None in inner:
        values = ops.getitem(values, (slice(0, which.size, 1), *inner))
    if not lines:
        return ops.getitem(summed_entries(values, np.zeros(which.size, np.int64), 1), (0,))
    found = Coo(np.stack(lines)[:, which], (*sizes, *values.shape[1:]), pattern.coalesced)
    return _laid(values, found, _is_csr(input))


def index_read(input: Any, indices: Any, dims: Any) -> Any:
    """Return the slices along one dimension that a vector of numbers names; each may be named several times."""
    if len(indices) != 1 or indices[0].ndim != 1:
        return NotImplemented
    pattern, dim, size = input._payload.pattern.coo, dims[0], input.shape[dims[0]]
    if dim >= pattern.sparse_dim:
        values = ops.index_read(entries(input), indices, (dim - pattern.sparse_dim + 1,))
        shape = (*pattern.shape[: pattern.sparse_dim], *values.shape[1:])
        return made(values, Coo(pattern.positions, shape, pattern.coalesced))
    wanted = raw(indices[0], "indexing a sparse tensor").astype(np.int64)
    outside = (wanted < -size) | (wanted >= size)
    if outside.any():
        raise IndexError(f"index {wanted[outside][0]} is out of bounds for dimension {dim} with size {size}")
    wanted = np.where(wanted < 0, wanted + size, wanted)
    order = np.argsort(wanted, kind="stable")
    ranked, line = wanted[order], pattern.positions[dim]
    start = np.searchsorted(ranked, line, "left")
    counts = np.searchsorted(ranked, line, "right") - start
    first = np.repeat(np.arange(pattern.count), counts)
    place = np.arange(first.size) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(start, counts)
    positions = pattern.positions[:, first]
    positions[dim] = order[place]
    rising = pattern.coalesced and bool((np.diff(wanted) > 0).all())
    shape = (*pattern.shape[:dim], wanted.size, *pattern.shape[dim + 1 :])
    return _laid(ops.take_rows(entries(input), from_array(first)), Coo(positions, shape, rising), _is_csr(input))


def unsqueezed(input: Any, dim: int) -> Any:
    """Return the tensor with a dimension of size 1 put in, an indexed one unless it comes among the dense ones."""
    return getitem(input, (*(slice(0, size, 1) for size in input.shape[:dim]), None))


def _squeeze(input: Any, dim: Any) -> Any:
    gone = [d for d, size in enumerate(input.shape) if size == 1 and (dim is None or d in dim)]
    if set(range(input._payload.pattern.sparse_dim)) <= set(gone):
        return NotImplemented
    return getitem(input, tuple(0 if d in gone else slice(0, size, 1) for d, size in enumerate(input.shape)))


def _unbind(input: Any, dim: int = 0) -> Any:
    before = tuple(slice(0, size, 1) for size in input.shape[:dim])
    return tuple(getitem(input, (*before, k)) for k in range(input.shape[dim]))


def _split(input: Any, split_sizes: Any, dim: int = 0) -> Any:
    before = tuple(slice(0, size, 1) for size in input.shape[:dim])
    ends = np.cumsum(split_sizes).tolist()
    return tuple(getitem(input, (*before, slice(e - n, e, 1))) for e, n in zip(ends, split_sizes, strict=True))


def cat(tensors: Any, dim: int = 0) -> Any:
    """Return sparse tensors side by side along a dimension."""
    if not all(is_sparse(t) for t in tensors):
        raise SparseError("cat() joins sparse tensors or dense ones, not both; use .to_sparse() or .to_dense() on some")
    patterns = [t._payload.pattern.coo for t in tensors]
    first, dim = patterns[0], axis_of(dim, tensors[0].ndim)
    rest = [(p.sparse_dim, p.shape[:dim], p.shape[dim + 1 :]) for p in patterns]
    if any(r != rest[0] for r in rest):
        raise ShapeError(
            f"cat(): sparse tensors must agree in all sizes but that of dimension {dim}, and in sparse_dim(); got "
            + ", ".join(f"{p.shape} with {p.sparse_dim}" for p in patterns)
        )
    ends = np.cumsum([p.shape[dim] for p in patterns]).tolist()
    shape = (*first.shape[:dim], ends[-1], *first.shape[dim + 1 :])
    positions = np.concatenate([p.positions for p in patterns], 1)
    values = [entries(t) for t in tensors]
    if dim < first.sparse_dim:
        positions[dim] += np.repeat(
            [end - p.shape[dim] for end, p in zip(ends, patterns, strict=True)], [p.count for p in patterns]
        )
    else:
        values = [_widened(v, dim - first.sparse_dim + 1, e, ends[-1]) for v, e in zip(values, ends, strict=True)]
    rising = dim == 0 and first.sparse_dim > 0 and all(p.coalesced for p in patterns)
    return _laid(ops.cat(tuple(values), 0), Coo(positions, shape, rising), all(map(_is_csr, tensors)))


def _widened(values: Any, dim: int, end: int, size: int) -> Any:
    """Return entries with zeros before and behind them along a dimension, so that they end at ``end`` of ``size``."""
    before, after = list(values.shape), list(values.shape)
    before[dim], after[dim] = end - values.shape[dim], size - end
    return ops.cat((ops.zeros(before, dtype=values.dtype), values, ops.zeros(after, dtype=values.dtype)), dim)


def _stack(tensors: Any, dim: int = 0) -> Any:
    if not all(is_sparse(t) for t in tensors):
        raise SparseError(
            "stack() joins sparse tensors or dense ones, not both; use .to_sparse() or .to_dense() on some"
        )
    return cat(tuple(unsqueezed(t, dim) for t in tensors), dim)


def permuted(input: Any, dims: Any) -> Any:
    """Return the tensor with its indexed dimensions in another order."""
    pattern = input._payload.pattern
    count = pattern.sparse_dim
    if len(dims) != input.ndim or tuple(dims[count:]) != tuple(range(count, input.ndim)):
        return NotImplemented
    if tuple(dims) == tuple(range(input.ndim)):
        return made(entries(input), pattern)
    return _laid(entries(input), pattern.coo.moved(tuple(dims[:count])), _is_csr(input))


def _transpose(input: Any, dim0: int, dim1: int) -> Any:
    dims = list(range(input.ndim))
    dims[dim0], dims[dim1] = dim1, dim0
    return permuted(input, dims)


RULES.update({
    "cat": cat, "getitem": getitem, "index_read": index_read, "permute": permuted, "split_with_sizes": _split,
    "squeeze": _squeeze, "stack": _stack, "transpose": _transpose, "unbind": _unbind, "unsqueeze": unsqueezed,
})  # fmt: skip

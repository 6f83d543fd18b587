"""Operators that put elements elsewhere and compute nothing, as copies into parts of their result.

Each rule is called like its operator, after the array of the result, and yields pairs (source, part of the result), to be
copied in this order. A source is broadcast and cast; where it is to be a number, it is an array of no dimensions. What is
no such copy raises Untraceable.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from wengert.loops.tracing import Untraceable
from wengert.runtime.recording import reshaped

__all__ = ["MOVES"]

Parts = Iterator[tuple[Any, Any]]
MOVES: Final[dict[str, Callable[..., Parts]]] = {}


def _moves(name: str) -> Callable[[Callable[..., Parts]], Callable[..., Parts]]:
    """Declare the rule of an operator."""

    def declare(rule: Callable[..., Parts]) -> Callable[..., Parts]:
        MOVES[name] = rule
        return rule

    return declare


def _along(dim: int, item: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * dim, item, ...)


def _number(value: Any, out: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(out.dtype)


def _around(out: Any, box: Sequence[slice] | None, value: Any) -> Parts:
    """Fill what lies outside a box, given by a slice for each dimension; None: fill everything."""
    number = _number(value, out)
    if box is None:
        yield number, out
        return
    for d, (n, item) in enumerate(zip(out.shape, box, strict=True)):
        for rest in (slice(0, item.start), slice(item.stop, n)):
            if rest.start < rest.stop:
                yield number, out[(*box[:d], rest)]


# ---- joining


@_moves("cat")
def _cat(out: Any, tensors: Sequence[Any], dim: int = 0) -> Parts:
    start = 0
    for source in tensors:
        if source.size:
            stop = start + source.shape[dim]
            yield source, out[_along(dim % out.ndim, slice(start, stop))]
            start = stop


@_moves("stack")
def _stack(out: Any, tensors: Sequence[Any], dim: int = 0) -> Parts:
    for k, source in enumerate(tensors):
        yield source, out[_along(dim % out.ndim, k)]


# ---- a part of a whole


def _box(index: Sequence[Any], shape: Sequence[int]) -> list[slice] | None:
    """Return what a basic index reads as a slice for each dimension; None if it leaves elements out in between."""
    found: list[slice] = []
    items = [item for item in index if item is not None]
    for item, n in zip(items + [slice(None)] * (len(shape) - len(items)), shape, strict=True):
        start, stop, step = (item, item + 1, 1) if isinstance(item, int) else item.indices(n)
        if step != 1 or stop <= start:
            return None
        found.append(slice(start, stop))
    return found


@_moves("getitem_transpose")
def _getitem_transpose(out: Any, source: Any, index: Sequence[Any], shape: Any) -> Parts:
    yield from _around(out, _box(index, shape), 0)
    yield source, out[(*index, ...)]


@_moves("diagonal_transpose")
def _diagonal_transpose(out: Any, source: Any, offset: int, dim1: int, dim2: int, shape: Any) -> Parts:
    yield _number(0, out), out
    yield source, np.diagonal(out, offset, dim1, dim2)


@_moves("constant_pad_nd")
def _constant_pad_nd(out: Any, source: Any, pad: Any, value: Any = 0) -> Parts:
    kept, box = [slice(0, n) for n in source.shape], [slice(0, n) for n in out.shape]
    pairs = zip(pad[-2::-2], pad[::-2], strict=True)  # the last dimension comes first
    for d, (before, after) in enumerate(pairs, source.ndim - len(pad) // 2):
        kept[d] = slice(max(-before, 0), source.shape[d] - max(-after, 0))
        box[d] = slice(max(before, 0), out.shape[d] - max(after, 0))
    inner = source[(*kept, ...)]
    yield from _around(out, box if inner.size else None, value)
    if inner.size:
        yield inner, out[(*box, ...)]


@_moves("view_write")
def _view_write(out: Any, whole: Any, source: Any, chain: Any) -> Parts:
    part = out
    for op, values, number in chain:
        part = op.call_kernel([part, *values[1:]])
        part = part if number is None else part[number]
    if not np.may_share_memory(part, out) or any(
        n > 1 and not s for n, s in zip(part.shape, part.strides, strict=True)
    ):
        raise Untraceable("a view that is a copy, or has one element in several places")
    yield whole, out
    yield source, part


# ---- another order


@_moves("flip")
def _flip(out: Any, source: Any, dims: Sequence[int]) -> Parts:
    yield source[(*(slice(None, None, -1 if d in dims else 1) for d in range(source.ndim)), ...)], out


@_moves("roll")
def _roll(out: Any, source: Any, shifts: Any, dims: Any = None) -> Parts:
    shifts, dims = ((x,) if isinstance(x, int) else x for x in (shifts, dims))
    if not source.ndim:
        yield source, out
        return
    if not dims:
        source, out, dims = reshaped(source, -1), out.reshape(-1), (0,)
    way = [0] * source.ndim
    for shift, d in zip(shifts, dims, strict=True):
        way[d] += shift
    halves = []
    for n, shift in zip(source.shape, way, strict=True):
        k = shift % max(n, 1)
        halves.append([(slice(0, n - k), slice(k, n)), (slice(n - k, n), slice(0, k))][: 2 if k else 1])
    for pairs in itertools.product(*halves):
        yield source[(*(a for a, _ in pairs), ...)], out[(*(b for _, b in pairs), ...)]


# ---- nothing to reduce


def _single(out: Any, source: Any, *arguments: Any, **keywords: Any) -> Parts:
    """A reduction over dimensions of size 1."""
    if source.size != math.prod(out.shape):
        raise Untraceable("more than one element becomes one")
    yield reshaped(source, *out.shape), out


def _single_truth(out: Any, source: Any, *arguments: Any, **keywords: Any) -> Parts:
    """Whether a single element is true; in uint8 that is 0 or 1, and no cast."""
    if out.dtype != bool:
        raise Untraceable("a truth value that is not a bool")
    return _single(out, source)


MOVES.update(dict.fromkeys(("sum", "sum_to_size", "mean", "amax", "amin", "prod"), _single))
MOVES.update(dict.fromkeys(("all", "any"), _single_truth))

"""Masks: elements chosen, filled or replaced where a boolean tensor is True; positions of what is not zero."""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import int64
from wengert.array.shape import as_int, broadcast_shapes
from wengert.core.apply import as_tensor
from wengert.core.arguments import Anything, AnythingOrScalar, Boolean
from wengert.core.batch import aligned, broadcast
from wengert.core.families import composite, operator
from wengert.core.inplace import adopt, check_writable
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import from_array, raw
from wengert.errors import DTypeError, ShapeError
from wengert.operators.checks import all_values, known
from wengert.operators.writes import check_numbers, complex_misfit, inplace_writer, number_as, publish_method

__all__ = ["argwhere", "masked_fill", "masked_scatter", "masked_select", "nonzero", "nonzero_static"]


def _masked_fill_spec(input: Spec, mask: Spec, value: Any) -> Spec:
    if isinstance(value, Spec) and value.shape:
        raise ShapeError(f"masked_fill() takes a number or a 0-d tensor, got shape {tuple(value.shape)}")
    if isinstance(value, Spec) and value.dtype.is_complex and not input.dtype.is_complex:
        raise complex_misfit("masked_fill", input.dtype)
    return Spec(broadcast_shapes("masked_fill", input.shape, mask.shape), input.dtype)


def _fill(input: Any, mask: Any, value: Any) -> Any:
    """Write ``value`` into an array where ``mask`` is True."""
    np.copyto(input, number_as("masked_fill", value, input.dtype), where=mask)
    return input


def _masked_fill_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    input, mask, value = values
    if not batched[2]:
        return broadcast(op, values, batched, size)
    _masked_fill_spec(*[Spec(tuple(t.shape)[bool(b) :], t.dtype) for t, b in zip(values, batched, strict=True)])
    check_numbers("masked_fill", value, input._payload.dtype)
    ndim = max(t.ndim - bool(b) for t, b in zip(values, batched, strict=True))
    input, mask, value = (aligned(t, ndim) if b else t for t, b in zip(values, batched, strict=True))
    return ops.where(mask, ops.cast(value, input.dtype), input)


@operator(
    vjp={
        "input": lambda g, mask: ops.masked_fill(g, mask, 0),
        "value": lambda g, mask, value_dtype: ops.cast(ops.where(mask, g, ops.zeros_like(g)).sum(), value_dtype),
    },
    jvp={
        "input": lambda t, mask: ops.masked_fill(t, mask, 0),
        "value": lambda t, mask, out: ops.where(mask, ops.cast(t, out.dtype), ops.zeros_like(out)),
    },
    batch=_masked_fill_batch,
    spec=_masked_fill_spec,
    widen=False,
    samples=lambda s: [
        s((2, 3), s.array([[True, False, True]]), -1.5), s((2, 3), s.array([[True], [False]]), ()),
        s((3,), s.array([[True], [False]]), 0),
        s((), s.array(True), float("inf"), grad=False), s((0, 2), s.array([True, False]), 1.0),
        s((2,), s.array([True, False]), 2.0, kind="complex"),
        s.error(TypeError, "does not fit real", (2,), s.array([True, False]), s.tensor((), kind="complex")),
        s((2,), s.array([True, False]), 1.5, kind="integer"),
        s.error(RuntimeError, "does not fit", (2,), s.array([True, False]), float("inf"), kind="integer"),
        s.error(TypeError, "boolean tensor", (2,), s.array([1, 0]), 1.5),
    ],
)  # fmt: skip
def masked_fill(input: Anything, mask: Boolean, value: AnythingOrScalar) -> Any:
    """Return ``input`` with ``value``, a number or a 0-d tensor, where ``mask`` is True; the two broadcast."""
    shape = broadcast_shapes("masked_fill", input.shape, mask.shape)
    return _fill(np.array(np.broadcast_to(input, shape), order="C"), mask, value)


inplace_writer("masked_fill", _fill)


def _flat_positions(name: str, mask: Any, shape: tuple[int, ...]) -> Any:
    """Return the flat positions at which ``mask``, broadcast to ``shape``, is True, as a tensor."""
    if mask.dtype.category:
        raise DTypeError(f"{name}(): mask must be a boolean tensor, got {mask.dtype}; use mask.bool()")
    return from_array(np.flatnonzero(np.broadcast_to(raw(mask, f"{name}()"), shape)))


@composite(
    method=True,
    batch="refuse",
    samples=lambda s: [
        s((2, 3), s.array([[True, False, True], [False, True, False]])), s((2, 3), s.array([[True], [False]])),
        s((3,), s.array([[True], [True]])),
        s((2,), s.array([False, False])), s((), s.array(True)),
    ],
)  # fmt: skip
def masked_select(input: Any, mask: Any) -> Any:
    """Return the elements at which ``mask``, broadcast with ``input``, is True, as a vector."""
    input, mask = as_tensor(input), as_tensor(mask)
    shape = broadcast_shapes("masked_select", input.shape, mask.shape)
    return ops.take(ops.expand(input, shape), _flat_positions("masked_select", mask, shape))


def _check_source(name: str, source: Any, count: int) -> None:
    if source.numel() < count:
        raise ShapeError(f"{name}(): the mask is True at {count} places, source has only {source.numel()} elements")


def _source_part(name: str, source: Any, count: int) -> Any:
    _check_source(name, source, count)
    return ops.narrow(ops.reshape(source, (-1,)), 0, 0, count)


def _dealt_out(input: Any, mask: Any, source: Any) -> Any:
    """Return ``input`` with source elements where ``mask`` is True, found by counting: what runs on a batch."""
    if mask.dtype.category:
        raise DTypeError(f"masked_scatter(): mask must be a boolean tensor, got {mask.dtype}; use mask.bool()")
    flat, first = ops.reshape(source, (source.numel(),)), ops.zeros(1, dtype=source.dtype)
    count = ops.cumsum(ops.reshape(mask, (mask.numel(),)), 0)
    _check_source("masked_scatter", source, int(all_values(count).max(initial=0)))
    place = ops.where(mask, ops.reshape(count, tuple(mask.shape)), 0)
    return ops.where(mask, ops.cast(ops.take(ops.cat((first, flat)), place), input.dtype), input)


@composite(
    method=True,
    samples=lambda s: [
        s((2, 3), s.array([[True, False, True], [False, True, False]]), (2, 2)),
        s((2, 2), s.array([True, False]), (2,)),
        s((2,), s.array([False, False]), (3,)),
    ],
)  # fmt: skip
def masked_scatter(input: Any, mask: Any, source: Any) -> Any:
    """Return ``input`` with the elements of ``source``, in order, where ``mask`` is True; mask and input broadcast."""
    input, mask, source = as_tensor(input), as_tensor(mask), as_tensor(source)
    shape = broadcast_shapes("masked_scatter", input.shape, mask.shape)
    if known(mask) is None:
        return _dealt_out(ops.expand(input, shape), ops.expand(mask, shape), source)
    found = _flat_positions("masked_scatter", mask, shape)
    return ops.put(ops.expand(input, shape), found, _source_part("masked_scatter", source, found.numel()))


def masked_scatter_(self: Any, mask: Any, source: Any) -> Any:
    """In-place version of :func:`wengert.masked_scatter`."""
    mask, shape = as_tensor(mask), tuple(self.shape)
    if broadcast_shapes("masked_scatter_", shape, mask.shape) != shape:
        raise ShapeError(f"masked_scatter_(): a mask of shape {tuple(mask.shape)} does not broadcast to shape {shape}")
    if known(mask) is None:
        check_writable("masked_scatter_", self)
        return adopt("masked_scatter_", self, ops.masked_scatter(self, mask, source))
    found = _flat_positions("masked_scatter_", mask, shape)
    return ops.put_(self, found, _source_part("masked_scatter_", as_tensor(source), found.numel()))


publish_method(masked_scatter_)


# ---- positions of what is not zero


def _any(s: Any) -> list[Any]:
    return [s((2, 3), kind="integer"), s((2,), kind="boolean"), s(()), s((0, 2))]


@composite(method=True, batch="refuse", samples=_any)
def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """Return the positions of the elements that are not zero: one per row, or (``as_tuple``) a tensor per dimension."""
    array = raw(as_tensor(input), "nonzero()")
    if as_tuple:
        return tuple(from_array(i) for i in np.nonzero(array if array.ndim else array.reshape(1)))
    return argwhere(input)


@composite(method=True, batch="refuse", samples=_any)
def argwhere(input: Any) -> Any:
    """Return the positions of the elements that are not zero, one per row."""
    array = raw(as_tensor(input), "argwhere()")
    return from_array(np.ascontiguousarray(np.argwhere(array)))


@composite(
    method=True,
    samples=lambda s: [
        s((2, 3), size=3, kind="integer"), s((2,), size=4, kind="boolean"), s((), size=2), s((2, 2), size=6, fill_value=-7),
        s.error(ValueError, "must not be negative", (2,), size=-1),
    ],
)  # fmt: skip
def nonzero_static(input: Any, *, size: int, fill_value: int = -1) -> Any:
    """Return the positions of the first ``size`` elements that are not zero, one per row, filled up with ``fill_value``."""
    if as_int(size, "size") < 0:
        raise ValueError(f"nonzero_static(): size must not be negative, got {size}")
    input = as_tensor(input)
    count, shape = input.numel(), tuple(input.shape)
    if not count or not shape:
        return ops.full((size, len(shape)), fill_value, dtype=int64)
    upto = ops.cumsum(ops.reshape(ops.ne(input, 0), (count,)), 0)
    place = ops.unsqueeze(ops.searchsorted(upto, ops.arange(1, size + 1)), 1)  # where the k-th one is; count: nowhere
    below = ops.tensor([math.prod(shape[d + 1 :]) for d in range(len(shape))])
    positions = ops.remainder(ops.floor_divide(place, below), ops.tensor(shape))
    return ops.where(place < count, positions, fill_value)

"""Tensors written as a whole: copy_, fill_, zero_; tensors without history: detach."""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import DType
from wengert.core.apply import execute
from wengert.core.arguments import Anything, AnythingOrScalar, DTypeOrNone, Size
from wengert.core.batch import aligned
from wengert.core.families import linear, operator
from wengert.core.inplace import adopt, check_writable
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, alias, from_array
from wengert.errors import ShapeError
from wengert.operators.writes import check_numbers, complex_misfit, computed, number_as, publish_method, written

__all__ = ["copied", "fill"]


def _check_fits(shape: tuple[int, ...], size: tuple[int, ...]) -> None:
    """Refuse a source that does not broadcast to the size of what is written; it may not have more dimensions."""
    if len(shape) > len(size) or any(n not in (1, m) for n, m in zip(reversed(shape), reversed(size), strict=False)):
        raise ShapeError(f"copy_(): a source of shape {tuple(shape)} does not broadcast to shape {tuple(size)}")


def _copied_spec(src: Spec, size: tuple[int, ...], dtype: DType) -> Spec:
    _check_fits(src.shape, size)
    return Spec(tuple(size), dtype)


def _copied_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    src, shape, dtype = values
    return execute(op, [aligned(src, len(shape)), (size, *shape), dtype])


@linear(
    transpose=lambda g, src_shape, src_dtype: ops.cast(ops.sum_to_size(g, src_shape), src_dtype),
    batch=_copied_batch,
    spec=_copied_spec,
    view=True,
    widen=False,
    home=(),
    samples=lambda s: [
        s((3,), size=(2, 3), dtype="float64"), s((2, 3), size=(2, 3), dtype="float64"),
        s((), size=(0, 2), dtype="float64"),
        s((1, 3), size=(2, 3), dtype="complex128"),
    ],
)  # fmt: skip
def copied(src: Anything, size: Size, dtype: DTypeOrNone) -> Any:
    """Return ``src`` broadcast to ``size`` and cast to ``dtype``: what a tensor holds after ``copy_``."""
    _check_fits(src.shape, size)
    if src.dtype.kind == "c" and dtype.category < 3:
        src = src.real
    return np.broadcast_to(src.astype(dtype.numpy, copy=False), size)


def copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Write ``src``, broadcast and cast, into the tensor, which takes over its history; return the tensor.

    Raises:
        InplaceError: for a leaf that requires grad while recording. ShapeError: if ``src`` does not broadcast.
    """
    check_writable("copy_", self)
    source = src if isinstance(src, Tensor) else ops.as_tensor(src)
    if computed(self, source):
        return adopt("copy_", self, ops.copied(source, self._payload.shape, self.dtype))
    array = source._payload
    if array.dtype.kind == "c" and self._payload.dtype.kind != "c":
        array = array.real
    _check_fits(array.shape, self._payload.shape)
    np.copyto(self._payload, array, casting="unsafe")
    return written("copy_", self)


def _fill_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    input, value = values
    if not batched[1]:
        return execute(op, values)
    if value.ndim > 1:
        raise ShapeError(f"fill_() takes a number or a 0-d tensor, got shape {tuple(value.shape[1:])}")
    check_numbers("fill_", value, input._payload.dtype)
    shape = tuple(input.shape)[bool(batched[0]) :]
    return ops.clone(ops.copied(aligned(value, len(shape)), (size, *shape), input.dtype))


def _fill_spec(input: Spec, value: Any) -> Spec:
    if isinstance(value, Spec) and value.shape:
        raise ShapeError(f"fill() takes a number or a 0-d tensor, got shape {value.shape}")
    if isinstance(value, Spec) and value.dtype.is_complex and not input.dtype.is_complex:
        raise complex_misfit("fill", input.dtype)
    return input


@operator(
    vjp={
        "input": lambda g: ops.zeros_like(g),
        "value": lambda g, value_shape, value_dtype: ops.cast(g.sum(), value_dtype),
    },
    jvp={
        "input": lambda t: ops.zeros_like(t),
        "value": lambda t, input_shape, input_dtype: ops.copied(t, input_shape, input_dtype),
    },
    batch=_fill_batch,
    spec=_fill_spec,
    widen=False,
    samples=lambda s: [
        s((2, 3), 2.5),
        s((2, 3), ()),
        s((), ()),
        s((0, 2), 1),
        s.error(TypeError, "does not fit real elements", (2,), s.tensor((), kind="complex")),
        s.error(RuntimeError, "a number or a 0-d tensor", (2,), (1,)),
    ],
)
def fill(input: Anything, value: AnythingOrScalar) -> Any:
    """Return a tensor like ``input`` with every element equal to ``value``, a number or a 0-d tensor."""
    return np.full(input.shape, number_as("fill", value, input.dtype))


def fill_(self: Any, value: Any) -> Any:
    """Set every element to ``value``, a number or a 0-d tensor; return the tensor."""
    check_writable("fill_", self)
    if computed(self, value):
        return adopt("fill_", self, ops.fill(self, value))
    value = value._payload if isinstance(value, Tensor) else value
    self._payload[...] = number_as("fill_", value, self._payload.dtype)
    return written("fill_", self)


def zero_(self: Any) -> Any:
    """Set every element to zero; return the tensor."""
    check_writable("zero_", self)
    if computed(self):
        return adopt("zero_", self, ops.fill(self, 0))
    self._payload.fill(0)
    return written("zero_", self)


def fill_diagonal_(self: Any, fill_value: Any, wrap: bool = False) -> Any:
    """Set the main diagonal of a tensor of equally long dimensions, or of a matrix, to a number; return the tensor.

    With ``wrap`` the diagonal of a tall matrix starts again after each full square, with one row between.
    """
    shape = tuple(self.shape)
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise ShapeError(f"fill_diagonal_() needs a matrix or equally long dimensions, got shape {shape}")
    step = sum(math.prod(shape[d + 1 :]) for d in range(len(shape)))
    reach = self.numel() if wrap or len(shape) > 2 else min(shape[0], shape[1]) * shape[1]
    positions = from_array(np.arange(0, reach, step))
    return ops.put_(self, positions, ops.full((positions.numel(),), fill_value, dtype=self.dtype))


# ---- without history


def detach(self: Any) -> Any:
    """Return a tensor on the same memory without history; a write to either is seen, and counted, by both."""
    out = alias(self)
    if not isinstance(self._payload, np.ndarray):
        out._payload = self._payload.detached()
    return out


def detach_copy(self: Any) -> Any:
    """Return a copy without history, in memory of its own."""
    return ops.clone(detach(self))


def detach_(self: Any) -> Any:
    """Drop the tensor's own history; return it.

    Raises:
        RuntimeError: for a view, whose history is its base's: use ``detach()``.
    """
    if self._view is not None:
        raise RuntimeError("detach_() cannot cut a view from its base; use detach()")
    self._node = None
    return self


for _function in (copy_, fill_, zero_, fill_diagonal_, detach, detach_, detach_copy):
    publish_method(_function)

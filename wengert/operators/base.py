"""The operators the engine itself uses: casts, broadcasting and its undoing, copies, writes through views."""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT, DType, float64, int64
from wengert.array.layout import arranged, channels_last, memory_order
from wengert.array.shape import broadcast_shapes
from wengert.core.arguments import Anything, DTypeOrNone, Size
from wengert.core.batch import aligned, expanded, front, loop
from wengert.core.families import elementwise, linear
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import replay
from wengert.errors import ShapeError

__all__ = ["cast", "clone", "conj", "expand", "sum_to_size", "view_write"]


def _cast_spec(input: Spec, dtype: DType) -> Spec:
    return Spec(input.shape, dtype)


@linear(
    transpose=lambda g, input_dtype: ops.cast(g, input_dtype),
    spec=_cast_spec,
    widen=False,
    batch="front",
    home=(),
    samples=lambda s: [
        s((2, 3), dtype="float64"),
        s((2, 3), dtype="complex128"),
        s((), dtype="float32", grad=False),
        s((0, 2), dtype="complex64", grad=False),
    ],
)
def cast(input: Anything, dtype: DTypeOrNone) -> Any:
    """Return the tensor with another dtype; a complex number cast to a real one keeps its real part."""
    target = dtype.numpy
    if input.dtype.kind == "c" and target.kind not in "c":
        input = input.real
    return input.astype(target)


def _clone_spec(input: Spec, *, memory_format: Any = None) -> Spec:
    memory_order("clone", memory_format, input.ndim)
    return input


@linear(
    transpose=lambda g: g,
    spec=_clone_spec,
    widen=False,
    batch=front(memory_format=lambda memory_format, n: None),
    samples=lambda s: [
        s((2, 3)),
        s(()),
        s((0,)),
        s((2, 3, 1, 2), memory_format=channels_last),
        s.error(RuntimeError, "4 dimensions", (2, 3), memory_format=channels_last),
        s.error(TypeError, "memory_format must be", (2, 3), memory_format="channels_last"),
    ],
)
def clone(input: Anything, *, memory_format: Any = None) -> Any:
    """Return a copy in memory of its own, row-major unless ``memory_format`` says else; gradients pass through it."""
    return arranged(input, memory_order("clone", memory_format, input.ndim))


@elementwise(
    np.conjugate,
    derivative={"input": lambda g: ops.conj(g)},
    vjp={"input": lambda g: ops.conj(g)},
    inplace=False,
    samples=lambda s: [s((2, 3)), s((2, 3), kind="complex"), s(())],
)
def conj(input: Anything) -> Any:
    """Complex conjugate of each element; a real tensor is returned as it is."""


def _expanded(shape: tuple[int, ...], size: tuple[int, ...]) -> tuple[int, ...]:
    if len(size) < len(shape):
        raise ShapeError(f"expand(): size {size} has fewer dimensions than the tensor of shape {shape}")
    padded = (1,) * (len(size) - len(shape)) + tuple(shape)
    target = []
    for i, (have, want) in enumerate(zip(padded, size, strict=True)):
        new = i < len(size) - len(shape)
        if want == -1 and new:
            raise ShapeError(f"expand(): -1 at the new dimension {i} of {size} is not allowed")
        if (want not in (-1, have) and have != 1) or want < -1:
            raise ShapeError(
                f"expand(): size {want} at dimension {i} does not match {have} of the tensor of shape {shape}"
            )
        target.append(have if want == -1 else want)
    return tuple(target)


def _expand_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    input, wanted = values
    target = _expanded(tuple(input.shape)[1:], wanted)
    return ops.expand(aligned(input, len(target)), (size, *target))


@linear(
    transpose=lambda g, input_shape: ops.sum_to_size(g, input_shape),
    spec=lambda input, size: Spec(_expanded(input.shape, size), input.dtype),
    view=True,
    widen=False,
    batch=_expand_batch,
    samples=lambda s: [s((2, 1), size=(3, 2, 4)), s((1, 3), size=(2, -1)), s((), size=(2, 2)), s((1, 0), size=(3, 0))],
)
def expand(input: Anything, size: Size) -> Any:
    """Return a view in which dimensions of size 1 are repeated to ``size`` (-1 keeps a size); no memory is copied."""
    target = _expanded(input.shape, size)
    if not input.shape and input.dtype.kind != "V":  # many times faster than np.broadcast_to
        return np.ndarray(target, input.dtype, input, 0, (0,) * len(target))
    out = np.broadcast_to(input, target)
    out.flags.writeable = input.flags.writeable
    return out


def _summed(shape: tuple[int, ...], size: tuple[int, ...]) -> tuple[int, ...]:
    if broadcast_shapes("sum_to_size", shape, size) != tuple(shape):
        raise ShapeError(f"sum_to_size(): size {size} does not broadcast to the tensor's shape {tuple(shape)}")
    return tuple(range(len(shape) - len(size)))


def _sum_to_size_spec(input: Spec, size: tuple[int, ...]) -> Spec:
    _summed(input.shape, size)
    same = tuple(size) == tuple(input.shape) or input.dtype.category >= FLOAT
    return Spec(tuple(size), input.dtype if same else int64)


def _sum_to_size_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    input, target = values
    lead = input.ndim - 1 - len(target)
    summed = ops.sum(input, tuple(range(1, lead + 1))) if lead > 0 else input
    return ops.sum_to_size(summed, (size, *target))


@linear(
    transpose=lambda g, input_shape: ops.expand(g, input_shape),
    batch=_sum_to_size_batch,
    spec=_sum_to_size_spec,
    samples=lambda s: [s((3, 2, 4), size=(2, 1)), s((2, 3), size=(2, 3)), s((2, 3), size=()), s((0, 3), size=(1, 3))],
)
def sum_to_size(input: Anything, size: Size) -> Any:
    """Sum the tensor down to ``size``, which must broadcast to its shape: the transpose of :func:`wengert.expand`."""
    lead = _summed(input.shape, size)
    dtype = None if input.dtype.kind in "fc" else np.int64
    out = np.sum(input, axis=lead, dtype=dtype) if lead else input
    if out.shape == size:
        return np.array(out) if out is input else out
    ones = tuple(i for i, (have, want) in enumerate(zip(out.shape, size, strict=True)) if have != want)
    return np.sum(out, axis=ones, keepdims=True, dtype=dtype) if ones else out


def _taken(array: Any, chain: Any) -> Any:
    """Take the view that a chain of steps describes of an array."""
    for op, values, number in chain:
        array = op.call_kernel([array, *values[1:]])
        if number is not None:
            array = array[number]
    return array


def _write_chain(base: Any, chain: Any, value: Any) -> Any:
    out = np.array(base, order="C")
    target = _taken(out, chain)
    if not target.size or np.may_share_memory(target, out):
        target[...] = value
    else:  # a view of the base's own memory layout that is a copy in row-major order: a reshaped transpose, say
        positions = _taken(np.arange(out.size).reshape(out.shape), chain)
        out.reshape(-1)[positions] = value
    return out


_PARTS = {"imaginary_part", "joined", "real_part", "view_as_real"}  # views of complex numbers as real ones, and back


def _view_write_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Write at the positions of the view's elements, which are the same in every example."""
    input, value, chain = values
    steps = {step[0].name for step in chain}
    if "view_as_dtype" in steps:  # parts of elements have no positions
        return loop(op, values, batched, size)
    input = input if batched[0] else expanded(input, size)
    value = value if batched[1] else ops.unsqueeze(value, 0)
    complex, shape = input.is_complex() and bool(steps & _PARTS), tuple(input.shape)
    if complex:
        input = ops.view_as_real(input)
    numbers = ops.reshape(ops.arange(input.numel() // size if size else 0), tuple(input.shape)[1:])
    if steps & _PARTS:  # the position of a complex number is that of its parts, as a complex number
        numbers = ops.cast(numbers, float64)
    found = replay(chain, ops.joined(numbers) if complex else numbers)
    if steps & _PARTS and found.is_complex():
        found, value = ops.view_as_real(found), ops.view_as_real(value)
    positions = ops.cast(ops.reshape(found, (found.numel(),)), int64)
    flat = ops.reshape(input, (size, math.prod(input.shape[1:])))
    value = ops.reshape(value, (value.shape[0], math.prod(value.shape[1:])))
    out = ops.reshape(ops.index_write(flat, value, (positions,), (1,), False), tuple(input.shape))
    return ops.reshape(ops.joined(out), shape) if complex else out


@linear(
    transpose={
        "input": lambda g, chain: ops.view_write(g, ops.zeros_like(replay(chain, g)), chain),
        "value": lambda g, chain: ops.clone(replay(chain, g)),
    },
    spec=lambda input, value, chain: input,
    widen=False,
    batch=_view_write_batch,
    places=True,
    home=(),
    samples=lambda s: [s.view_write((3, 2), 1), s.view_write((3, 2), slice(0, 2))],
)
def view_write(input: Anything, value: Anything, chain: Any) -> Any:
    """Return a copy of ``input`` in which the view described by ``chain`` holds ``value``.

    This is what writing through a view does to its base; ``chain`` holds the view's steps.
    """
    return _write_chain(input, chain, value)

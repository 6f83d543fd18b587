"""Shapes: arrays broadcast, joined, taken apart and rearranged."""

from typing import Any

from wengert.array.shape import as_int, size_of
from wengert.array.shape import broadcast_shapes as broadcast
from wengert.array_api.arguments import axes_in, axes_or_all, axis_in, together
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.errors import ShapeError

__all__ = [
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims",
    "repeat", "reshape", "roll", "squeeze", "stack", "tile", "unstack",
]  # fmt: skip


# ---- broadcasting


def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
    """Return the arrays in the shape that all of them broadcast to."""
    return tuple(ops.broadcast_tensors(*arrays)) if arrays else ()


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """Return the shape that all shapes broadcast to.

    Raises:
        ValueError: if they do not.

    Example:
        >>> import wengert.array_api as xp
        >>> xp.broadcast_shapes((2, 1), (3,))
        (2, 3)
    """
    sizes = [size_of(s, "shape") for s in shapes]
    if any(n < 0 for size in sizes for n in size):
        raise ShapeError(f"broadcast_shapes(): sizes must not be negative, got {', '.join(map(str, sizes))}")
    return broadcast("broadcast_shapes", *sizes)


def broadcast_to(x: Any, /, shape: Any) -> Any:
    """Return the array in another shape to which it broadcasts, without a copy."""
    return ops.broadcast_to(x, shape)


# ---- joining and taking apart


def concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    """Return the arrays joined along an axis that they have; None joins them flattened.

    Raises:
        ValueError: if there are none, or their shapes differ in another axis. IndexError: if there is no such axis.
    """
    tensors = together("concat", arrays)
    if axis is None:
        return ops.cat([ops.reshape(t, (-1,)) for t in tensors], 0)
    ranks = {t.ndim for t in tensors}
    if len(ranks) != 1:
        raise ShapeError(f"concat(): arrays must have the same number of dimensions, got {sorted(ranks)}")
    return ops.cat(tensors, axis_in(axis, *ranks))


def stack(arrays: Any, /, *, axis: int = 0) -> Any:
    """Return the arrays, all of one shape, joined along a new axis."""
    tensors = together("stack", arrays)
    return ops.stack(tensors, axis_in(axis, tensors[0].ndim + 1))


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """Return the slices along an axis."""
    return tuple(ops.unbind(x, axis_in(axis, x.ndim)))


# ---- repetition


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    """Return each element repeated, along an axis or (None) of the flattened array.

    Args:
        repeats: how often: a number, or one for each element along the axis.
    """
    if axis is None:
        x, axis = ops.reshape(x, (-1,)), 0
    axis = axis_in(axis, x.ndim)
    if isinstance(repeats, Tensor):
        repeats = ops.broadcast_to(repeats, (x.shape[axis],))
    return ops.repeat_interleave(x, repeats, axis)


def tile(x: Any, repetitions: Any, /) -> Any:
    """Return the array laid out side by side, ``repetitions`` times along each axis."""
    return ops.tile(x, size_of(repetitions, "repetitions"))


# ---- order and shape


def expand_dims(x: Any, /, axis: Any) -> Any:
    """Return the array with new axes of size one, at the places ``axis`` of the result.

    Raises:
        IndexError: for a place out of range. ValueError: for one given twice.
    """
    count = len(axis) if isinstance(axis, tuple | list) else 1
    for place in sorted(axes_in(axis, x.ndim + count)):
        x = ops.unsqueeze(x, place)
    return x


def squeeze(x: Any, /, axis: Any) -> Any:
    """Return the array without some axes of size one.

    Raises:
        ValueError: if one of them has another size.
    """
    axes = axes_in(axis, x.ndim)
    wrong = [a for a in axes if x.shape[a] != 1]
    if wrong:
        raise ShapeError(f"squeeze(): axis {wrong[0]} of shape {tuple(x.shape)} has size {x.shape[wrong[0]]}, not 1")
    return ops.reshape(x, [n for a, n in enumerate(x.shape) if a not in axes])


def flip(x: Any, /, *, axis: Any = None) -> Any:
    """Return the elements in reverse order along some axes; None means all."""
    return ops.flip(x, axes_or_all(axis, x.ndim))


def moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
    """Return the array with some axes at other places; the others keep their order."""
    return ops.movedim(x, axes_in(source, x.ndim), axes_in(destination, x.ndim))


def permute_dims(x: Any, /, axes: Any) -> Any:
    """Return the array with its axes in another order."""
    return ops.permute(x, axes_in(axes, x.ndim))


def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Any:
    """Return the elements, in row-major order, in another shape, of which one size may be -1.

    Args:
        copy: always (True), never (False) or only where the layout asks for it (None).

    Raises:
        ValueError: for a shape that does not fit, and if ``copy`` is False and a copy is needed.
    """
    result = ops.reshape(ops.clone(x) if copy else x, shape)
    if copy is False and x.numel() and result.data_ptr() != x.data_ptr():
        raise ValueError(f"reshape(): shape {tuple(x.shape)} cannot become {tuple(result.shape)} without a copy")
    return result


def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    """Return the elements moved on along some axes, those that leave it coming back at its start.

    Args:
        shift: by how much; one number for all axes or one for each.
        axis: which; None rolls the flattened array.

    Raises:
        ValueError: if there are more shifts than axes or fewer.
    """
    if axis is None:
        return ops.roll(x, shift)
    axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    shifts = tuple(shift) if isinstance(shift, tuple | list) else (as_int(shift, "shift"),) * len(axes)
    return ops.roll(x, shifts, tuple(axis_in(a, x.ndim) for a in axes)) if axes else ops.positive(x)

"""Padding by a constant, by reflection, by the border and periodically, each with its transpose.

``pads`` has a pair (before, after) for each of the last dimensions, in the order of the dimensions. A negative number
removes elements.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wengert.errors import ShapeError
from wengert.kernels.windows import along

__all__ = ["EdgeMode", "check_edges", "pad_constant", "pad_constant_transpose", "pad_edges", "pad_edges_transpose"]

Array = NDArray[Any]
EdgeMode = Literal["reflect", "replicate", "circular"]


def pad_constant(x: Array, pads: Sequence[tuple[int, int]], value: complex = 0) -> Array:
    """Pad the last ``len(pads)`` dimensions of ``x`` with ``value``.

    Raises:
        ShapeError: if more elements are removed than there are.

    Example:
        >>> pad_constant(np.arange(3), [(2, -1)], value=7)
        array([7, 7, 0, 1])
    """
    sizes = _padded_sizes("pad_constant", x.shape, pads)
    batch = x.ndim - len(pads)
    kept, inside = [slice(None)] * batch, [slice(None)] * batch
    for size, new, (before, after) in zip(x.shape[batch:], sizes, pads, strict=True):
        kept.append(slice(max(-before, 0), size - max(-after, 0)))
        inside.append(slice(max(before, 0), new - max(after, 0)))
    shape = (*x.shape[:batch], *sizes)
    if value == 0:
        out = np.zeros(shape, x.dtype)
    else:
        out = np.empty(shape, x.dtype)
        out[...] = value
    if all(part.stop > part.start for part in kept[batch:]):
        out[tuple(inside)] = x[tuple(kept)]
    return out


def pad_constant_transpose(g: Array, pads: Sequence[tuple[int, int]]) -> Array:
    """Transpose of :func:`pad_constant` (with ``value=0``): remove what was added, add zeros where it removed.

    Example:
        >>> pad_constant_transpose(np.array([1, 2, 3, 4]), [(2, -1)])
        array([3, 4, 0])
    """
    return pad_constant(g, [(-before, -after) for before, after in pads])


def pad_edges(x: Array, pads: Sequence[tuple[int, int]], mode: EdgeMode) -> Array:
    """Pad the last ``len(pads)`` dimensions of ``x`` with elements of ``x``.

    Args:
        x: array with at least ``len(pads)`` dimensions.
        pads: how many elements to add before and after, for each of the last dimensions.
        mode: ``"reflect"`` mirrors at the border element, which is not repeated; ``"replicate"`` repeats the border
            element; ``"circular"`` goes on at the other side, of what is left if elements are removed.

    Raises:
        ShapeError: if a pad is larger than the mode allows (``reflect``: less than the size of the dimension;
            ``circular``: at most the size), or more elements are removed than there are.
        ValueError: if there is no such mode.

    Example:
        >>> pad_edges(np.arange(4), [(2, 1)], "reflect")
        array([2, 1, 0, 1, 2, 3, 2])
        >>> pad_edges(np.arange(4), [(2, 1)], "circular")
        array([2, 3, 0, 1, 2, 3, 0])
    """
    check_edges(x.shape, pads, mode)
    if mode == "circular" and any(min(pair) < 0 for pair in pads):
        removed, added = _split(pads)
        return pad_edges(pad_constant(x, removed), added, mode)
    for axis, (before, after) in enumerate(pads, x.ndim - len(pads)):
        if before or after:
            size = x.shape[axis]
            middle = x[along(axis, _middle(size, before, after))]
            edges = [x.take(_sources(size, edge, mode), axis) for edge in _edges(size, before, after)]
            x = np.concatenate([edges[0], middle, edges[1]], axis)
    return x.copy() if not any(before or after for before, after in pads) else x


def pad_edges_transpose(g: Array, pads: Sequence[tuple[int, int]], mode: EdgeMode) -> Array:
    """Transpose of :func:`pad_edges`: add the elements of the edges to the elements that they are copies of.

    Args:
        g: cotangent with the shape of the padded array.
        pads, mode: as in :func:`pad_edges`.

    Example:
        >>> pad_edges_transpose(np.ones(7), [(2, 1)], "reflect")
        array([1., 2., 3., 1.])
    """
    whole = [(0, 0)] * (g.ndim - len(pads)) + list(pads)
    check_edges([n - before - after for n, (before, after) in zip(g.shape, whole, strict=True)], pads, mode)
    if mode == "circular" and any(min(pair) < 0 for pair in pads):
        removed, added = _split(pads)
        return pad_constant_transpose(pad_edges_transpose(g, added, mode), removed)
    for axis, (before, after) in reversed(list(enumerate(pads, g.ndim - len(pads)))):
        if before or after:
            size = g.shape[axis] - before - after
            g = _fold_edges(g, axis, size, before, after, mode)
    return g.copy() if not any(before or after for before, after in pads) else g


def _fold_edges(g: Array, axis: int, size: int, before: int, after: int, mode: EdgeMode) -> Array:
    out = np.zeros((*g.shape[:axis], size, *g.shape[axis + 1 :]), g.dtype)
    first, last = _edges(size, before, after)
    stop = g.shape[axis] - len(last)
    out[along(axis, _middle(size, before, after))] = g[along(axis, slice(len(first), stop))]
    for edge, part in ((first, slice(0, len(first))), (last, slice(stop, None))):
        if edge.size:
            sources, values = _sources(size, edge, mode), g[along(axis, part)]
            if mode == "replicate":  # all copies of one element; the sources of the other modes differ
                sources, values = sources[:1], values.sum(axis, keepdims=True, dtype=g.dtype)
            out[along(axis, sources)] += values
    return out


def _edges(size: int, before: int, after: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the positions that are added on either side, counted from the first element."""
    return np.arange(-before, min(0, size + after)), np.arange(max(size, -before), size + after)


def _middle(size: int, before: int, after: int) -> slice:
    """Return the elements that are kept."""
    return slice(max(-before, 0), max(size + min(after, 0), 0))


def _split(pads: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the pads that remove elements and those that add elements."""
    return [(min(b, 0), min(a, 0)) for b, a in pads], [(max(b, 0), max(a, 0)) for b, a in pads]


def _sources(size: int, positions: NDArray[np.intp], mode: EdgeMode) -> NDArray[np.intp]:
    """Return the elements that stand at ``positions`` outside of ``size`` elements."""
    if mode == "replicate":
        return np.clip(positions, 0, max(size - 1, 0))
    if mode == "circular":
        return positions % max(size, 1)
    return np.where(positions < 0, -positions, 2 * (size - 1) - positions)


def check_edges(shape: Sequence[int], pads: Sequence[tuple[int, int]], mode: EdgeMode) -> None:
    """Raise what :func:`pad_edges` raises, for an array of some shape.

    Example:
        >>> check_edges((4,), [(3, 3)], "reflect")
    """
    if mode not in ("reflect", "replicate", "circular"):
        raise ValueError(f"pad_edges: mode must be 'reflect', 'replicate' or 'circular', got {mode!r}")
    _padded_sizes("pad_edges", shape, pads)
    for axis, (before, after) in enumerate(pads, len(shape) - len(pads)):
        if mode == "circular":  # of what is left
            left = shape[axis] + min(before, 0) + min(after, 0)
            _check_edge(left, max(before, 0), max(after, 0), mode, axis)
        else:
            _check_edge(shape[axis], before, after, mode, axis)


def _check_edge(size: int, before: int, after: int, mode: EdgeMode, axis: int) -> None:
    if not (before or after):
        return
    most = {"reflect": size - 1, "replicate": None if size else 0, "circular": size}[mode]
    if most is not None and max(before, after) > most:
        raise ShapeError(
            f"pad_edges: mode {mode!r} can add at most {max(most, 0)} elements to either side of dimension {axis} "
            f"with size {size}, got ({before}, {after})"
        )


def _padded_sizes(name: str, shape: Sequence[int], pads: Sequence[tuple[int, int]]) -> list[int]:
    if len(pads) > len(shape):
        raise ShapeError(f"{name}: {len(pads)} pairs of pads were given for an array of shape {tuple(shape)}")
    sizes = [size + before + after for size, (before, after) in zip(shape[len(shape) - len(pads) :], pads, strict=True)]
    if any(size < 0 for size in sizes):
        raise ShapeError(f"{name}: pads {list(pads)} remove more elements than shape {tuple(shape)} has")
    return sizes

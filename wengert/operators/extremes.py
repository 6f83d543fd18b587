"""Extremes: the largest and smallest elements, their places, and the element at a place.

Without an index, a tie shares the gradient evenly. Where an index is returned, it is that of the first of equal
elements, and the gradient goes to that element. NaN counts as both the largest and the smallest.
"""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import int64
from wengert.array.shape import axes_of, reduced
from wengert.core.apply import execute
from wengert.core.arguments import Anything, Axes, Axis, AxisOrNone, Int, Integer, Real
from wengert.core.batch import plain_front
from wengert.core.families import bilinear, composite, nondifferentiable, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.operators.along import (
    evenly,
    from_taken,
    index_spec,
    mean_of_reaching,
    nonempty,
    rank_one,
    taken,
    to_taken,
)

__all__ = ["amax", "amin", "aminmax", "argmax", "argmin", "max", "max_dim", "min", "min_dim", "place_along"]


def _extreme_spec(name: str) -> Any:
    def spec(input: Spec, dim: Any = None, keepdim: Any = False) -> Spec:
        nonempty(name, input.shape, dim)
        return Spec(reduced(input.shape, dim, keepdim), input.dtype)

    return spec


def _extremes(s: Any) -> list[Any]:
    return [
        s((2, 3)), s((2, 3), dim=1), s((2, 3), dim=-2, keepdim=True), s((2, 3, 2), dim=(0, -1)), s(()), s((), dim=0),
        s((1, 3), dim=0), s((0, 3), dim=1), s(s.array([[1.0, 1.0, 0.0], [2.0, 2.0, 2.0]]), dim=1, grad=False),
        s((4,), kind="integer"), s((3,), kind="boolean"), s.error(IndexError, "is empty", (0, 3)),
        s.error(IndexError, "is empty", (0, 3), dim=0),
    ]  # fmt: skip


@operator(
    vjp={"input": evenly}, jvp={"input": mean_of_reaching}, batch="front", spec=_extreme_spec("amax"), samples=_extremes
)
def amax(input: Real, dim: Axes = None, keepdim: Any = False) -> Any:
    """Return the largest element, over all dimensions or along ``dim``; ties share the gradient evenly."""
    nonempty("amax", input.shape, dim)
    return np.maximum.reduce(input, axis=dim, keepdims=keepdim)


@operator(
    vjp={"input": evenly}, jvp={"input": mean_of_reaching}, batch="front", spec=_extreme_spec("amin"), samples=_extremes
)
def amin(input: Real, dim: Axes = None, keepdim: Any = False) -> Any:
    """Return the smallest element, over all dimensions or along ``dim``; ties share the gradient evenly."""
    nonempty("amin", input.shape, dim)
    return np.minimum.reduce(input, axis=dim, keepdims=keepdim)


def _aminmax_spec(input: Spec, *, dim: Any = None, keepdim: Any = False) -> tuple[Spec, Spec]:
    one = _extreme_spec("aminmax")(input, _one_or_all(dim, input.shape), keepdim)
    return one, one


def _one_or_all(dim: Any, shape: Any) -> tuple[int, ...]:
    return axes_of(dim, len(shape))


def _over_all(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Batching rule of an operator along one dimension, or over all of them: None, which must not mean the batch too."""
    input = values[0]
    dim, keepdim = (op.signature.index[name] for name in ("dim", "keepdim"))
    if values[dim] is not None:
        return plain_front(op, values, batched, size)
    given = [ops.reshape(input, (size, math.prod(input.shape[1:]))), *values[1:]]
    given[dim] = 1
    shape = (size, *(1,) * (input.ndim - 1)) if values[keepdim] else (size,)
    found = execute(op, given)
    return ops.reshape(found, shape) if op.single else tuple(ops.reshape(t, shape) for t in found)


def _aminmax_vjp(g: Any, input: Any, min: Any, max: Any, dim: Any, keepdim: Any) -> Any:
    axes = _one_or_all(dim, input.shape)
    return evenly(g[0], input, min, axes, keepdim) + evenly(g[1], input, max, axes, keepdim)


def _aminmax_jvp(t: Any, input: Any, min: Any, max: Any, dim: Any, keepdim: Any) -> Any:
    axes = _one_or_all(dim, input.shape)
    return mean_of_reaching(t, input, min, axes, keepdim), mean_of_reaching(t, input, max, axes, keepdim)


@operator(
    outputs=("min", "max"),
    vjp={"input": _aminmax_vjp},
    jvp={"input": _aminmax_jvp},
    batch=_over_all,
    spec=_aminmax_spec,
    samples=lambda s: [
        s((2, 3)),
        s((2, 3), dim=1),
        s((2, 3), dim=-2, keepdim=True),
        s(()),
        s((), dim=0),
        s((3,), kind="integer"),
        s(s.array([2.0, 2.0, 1.0]), grad=False),
        s.error(IndexError, "is empty", (0,)),
    ],
)
def aminmax(input: Real, *, dim: AxisOrNone = None, keepdim: Any = False) -> Any:
    """Return the smallest and the largest element as (min, max), over all dimensions or along one."""
    axes = _one_or_all(dim, input.shape)
    nonempty("aminmax", input.shape, axes)
    options: Any = {"axis": axes, "keepdims": keepdim}
    return np.minimum.reduce(input, **options), np.maximum.reduce(input, **options)


# ---- extremes with their places


def _indexed(s: Any) -> list[Any]:
    return [
        s((2, 3), dim=1), s((2, 3), dim=-2, keepdim=True), s((), dim=0), s((1, 3), dim=0), s((0, 3), dim=1),
        s((3,), dim=0, kind="integer"), s(s.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]]), dim=1, grad=False),
        s(s.array([1.0, np.nan, 2.0, np.nan]), dim=0, grad=False), s.error(IndexError, "is empty", (0, 3), dim=0),
    ]  # fmt: skip


@operator(
    outputs=("values", "indices"),
    vjp={"input": to_taken},
    jvp={"input": from_taken},
    batch="front",
    spec=index_spec("max"),
    home=(),
    samples=_indexed,
)
def max_dim(input: Real, dim: Axis, keepdim: Any = False) -> Any:
    """Return (values, indices): the largest element along ``dim`` and its index, the first of equals."""
    nonempty("max", input.shape, (dim,))
    return taken(input, np.argmax(rank_one(input), axis=dim, keepdims=True), dim, keepdim)


@operator(
    outputs=("values", "indices"),
    vjp={"input": to_taken},
    jvp={"input": from_taken},
    batch="front",
    spec=index_spec("min"),
    home=(),
    samples=_indexed,
)
def min_dim(input: Real, dim: Axis, keepdim: Any = False) -> Any:
    """Return (values, indices): the smallest element along ``dim`` and its index, the first of equals."""
    nonempty("min", input.shape, (dim,))
    return taken(input, np.argmin(rank_one(input), axis=dim, keepdims=True), dim, keepdim)


def _extreme(name: str, input: Any, dim: Any, keepdim: Any, other: Any, out: Any) -> Any:
    """Choose between the three forms of ``max`` and ``min``."""
    if isinstance(dim, Tensor):
        dim, other = None, dim
    if other is not None:
        return getattr(ops, f"{name}imum")(input, other, out=out)
    if dim is not None:
        return getattr(ops, f"{name}_dim")(input, dim, keepdim, out=out)
    if not input.numel():
        raise RuntimeError(
            f"{name}(): a tensor of shape {tuple(input.shape)} has no element to choose; "
            "give dim= to reduce another dimension"
        )
    return getattr(ops, f"a{name}")(input, out=out)


def _all_forms(s: Any) -> list[Any]:
    return [
        s((2, 3)), s((2, 3), dim=1), s((2, 3), 0, True), s((2, 3), (3,)), s(()),
        s(s.array([2.0, 2.0, 1.0, 2.0, 0.0]), grad=False), s((3,), kind="integer"),
        s(s.array([1.0, np.nan, 2.0]), grad=False), s.error(RuntimeError, "has no element", (0,)),
        s.error(IndexError, "is empty", (0, 2), dim=0),
    ]  # fmt: skip


@composite(method=True, samples=_all_forms)
def max(input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None, out: Any = None) -> Any:
    """Return the largest element; with ``dim``, (values, indices) along it; with a tensor, the larger of each pair.

    The index is that of the first of equal elements. Without ``dim``, equal elements share the gradient evenly.

    Example:
        >>> import wengert as wg
        >>> wg.max(wg.tensor([[1.0, 3.0], [5.0, 4.0]]), dim=1).indices
        tensor([1, 0])
    """
    return _extreme("max", input, dim, keepdim, other, out)


@composite(method=True, samples=_all_forms)
def min(input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None, out: Any = None) -> Any:
    """Return the smallest element; with ``dim``, (values, indices) along it; with a tensor, the smaller of each pair.

    The index is that of the first of equal elements. Without ``dim``, equal elements share the gradient evenly.
    """
    return _extreme("min", input, dim, keepdim, other, out)


def _place_spec(input: Spec, dim: Any = None, keepdim: Any = False) -> Spec:
    axes = _one_or_all(dim, input.shape)
    nonempty("argmax/argmin", input.shape, axes)
    return Spec(reduced(input.shape, axes, keepdim), int64)


def _place(find: Any, input: Any, dim: Any, keepdim: Any) -> Any:
    axes = _one_or_all(dim, input.shape)
    nonempty(find.__name__, input.shape, axes)
    flat = input.reshape(-1) if dim is None else rank_one(input)
    return np.asarray(find(flat, axis=0 if dim is None else dim), np.int64).reshape(reduced(input.shape, axes, keepdim))


def _places(s: Any) -> list[Any]:
    return [
        s((2, 3)), s((2, 3), dim=1), s((2, 3), dim=-2, keepdim=True), s((2, 3), keepdim=True), s(()), s((), dim=0),
        s((4,), kind="integer"), s(s.array([1.0, 3.0, 3.0])), s(s.array([1.0, np.nan, 3.0])),
        s.error(IndexError, "is empty", (0, 2)),
    ]  # fmt: skip


@nondifferentiable(batch=_over_all, spec=_place_spec, samples=_places)
def argmax(input: Real, dim: AxisOrNone = None, keepdim: Any = False) -> Any:
    """Return the index of the largest element, the first of equals: of the flattened tensor, or along ``dim``."""
    return _place(np.argmax, input, dim, keepdim)


@nondifferentiable(batch=_over_all, spec=_place_spec, samples=_places)
def argmin(input: Real, dim: AxisOrNone = None, keepdim: Any = False) -> Any:
    """Return the index of the smallest element, the first of equals: of the flattened tensor, or along ``dim``."""
    return _place(np.argmin, input, dim, keepdim)


def _placed_shape(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


@bilinear(
    transpose={"input": lambda g, dim, index: ops.gather(g, dim, index)},
    batch="front",
    spec=lambda input, dim, index, size: Spec(_placed_shape(input.shape, dim, size), input.dtype),
    widen=False,
    home=(),
    samples=lambda s: [
        s((2, 2), 1, s.array([[2, 0], [1, 3]]), 4), s((1, 3), -2, s.array([[1, 0, 1]]), 2),
        s((2, 0), 1, s.array(np.zeros((2, 0), int)), 3),
    ],
)  # fmt: skip
def place_along(input: Anything, dim: Axis, index: Integer, size: Int) -> Any:
    """Return zeros of ``size`` along ``dim`` with the elements at ``index``, which names no place twice."""
    out = np.zeros(_placed_shape(input.shape, dim, size), input.dtype)
    np.put_along_axis(out, index, input, dim)
    return out

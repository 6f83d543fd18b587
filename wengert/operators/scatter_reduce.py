"""Scatters that combine what meets: sum, product, mean, largest, smallest.

Every derivative is a weight: ∂out/∂input is diagonal, and each element of ``src`` reaches the one place it was
scattered to. ``_input_weight`` and ``_src_weight`` give these factors; both modes multiply by them.
"""

from typing import Any

import numpy as np

from wengert.array.shape import axis_of
from wengert.core.apply import as_tensor
from wengert.core.arguments import Anything, Axis, Integer
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.errors import DTypeError, ShapeError
from wengert.kernels import scatter as kernels
from wengert.operators.checks import anywhere
from wengert.operators.gather import check_along, covered
from wengert.operators.gather_batch import along_batch
from wengert.operators.writes import publish_method

__all__ = ["index_reduce", "scatter_reduce"]

_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def _check(reduce: Any, input: Any, src: Any) -> None:
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"scatter_reduce(): reduce must be one of {', '.join(_REDUCTIONS)}, got {reduce!r}")
    if input.dtype != src.dtype:
        raise DTypeError(f"scatter_reduce(): input and src must have one dtype, got {input.dtype} and {src.dtype}")


# ---- derivatives


def _counts(input: Any, dim: int, index: Any, include_self: bool) -> Any:
    """Return how many elements met at each place, at least 1."""
    ones = ops.ones(index.shape, dtype=input.dtype)
    start = ops.ones_like(input) if include_self else ops.zeros_like(input)
    counts = ops.scatter_add(start, dim, index, ones)
    return ops.where(counts == 0, ops.ones_like(counts), counts)


def _alone(input: Any, dim: int, index: Any, include_self: bool) -> Any:
    """Return 1 where the input itself counts, 0 where the elements of ``src`` replaced it."""
    ones = ops.ones_like(input)
    return ones if include_self else ops.scatter_write(ones, dim, index, 0)


def _extreme_shares(input: Any, dim: int, index: Any, src: Any, include_self: bool, out: Any) -> tuple[Any, Any]:
    """Return the shares of input and src in an extreme that several of them attain."""
    mine = ops.cast(input == out, input.dtype) * _alone(input, dim, index, include_self)
    theirs = ops.cast(src == ops.gather(out, dim, index), input.dtype)
    count = ops.scatter_add(mine, dim, index, theirs)
    count = ops.where(count == 0, ops.ones_like(count), count)
    return mine / count, theirs / ops.gather(count, dim, index)


def _input_weight(input: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool, out: Any) -> Any:
    """Return ∂out/∂input, elementwise."""
    alone = _alone(input, dim, index, include_self)
    if reduce == "sum":
        return alone
    src = ops.getitem(src, covered_index(index))
    if reduce == "mean":
        return alone / _counts(input, dim, index, include_self)
    if reduce == "prod":
        others = ops.scatter_reduce(ops.ones_like(input), dim, index, src, "prod")
        return alone * others
    return _extreme_shares(input, dim, index, src, include_self, out)[0]


def covered_index(index: Any) -> tuple[slice, ...]:
    """Return the basic index of the corner of ``src`` that ``index`` covers."""
    return tuple(slice(0, n, 1) for n in index.shape)


def _src_weight(input: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool, out: Any) -> Any:
    """Return ∂out/∂src for the place each element was scattered to."""
    src = ops.getitem(src, covered_index(index))
    if reduce == "sum":
        return ops.ones_like(src)
    if reduce == "mean":
        return 1 / ops.gather(_counts(input, dim, index, include_self), dim, index)
    if reduce == "prod":
        return _product_of_others(input, dim, index, src, include_self, out)
    return _extreme_shares(input, dim, index, src, include_self, out)[1]


def _product_of_others(input: Any, dim: int, index: Any, src: Any, include_self: bool, out: Any) -> Any:
    """Return for each element of src the product of all the others that met it: out / src, but right at zeros."""
    zero = src == 0
    zeros = ops.gather(ops.scatter_add(ops.zeros_like(input), dim, index, ops.cast(zero, input.dtype)), dim, index)
    if thread.state.grad and anywhere(zeros > 1):
        raise RuntimeError(
            "scatter_reduce(): second derivatives of a product of several zeros are not supported; "
            "use cumprod() or prod() along a dimension instead"
        )
    only = ops.logical_and(zero, zeros == 1)
    ones = ops.ones_like(src)
    rest = ops.scatter_reduce(input, dim, index, ops.where(only, ones, src), "prod", include_self=include_self)
    return ops.where(only, ops.gather(rest, dim, index), ops.gather(out, dim, index) / ops.where(zero, ones, src))


def _scatter_reduce_spec(
    input: Spec, dim: int, index: Spec, src: Spec, reduce: str, *, include_self: bool = True
) -> Spec:  # fmt: skip
    _check(reduce, input, src)
    check_along("scatter_reduce", input.shape, dim, index, src, number=False)
    if len(src.shape) != len(index.shape) and 0 not in index.shape:
        raise ShapeError(
            f"scatter_reduce(): src must have as many dimensions as index, got shapes {tuple(src.shape)} and "
            f"{tuple(index.shape)}"
        )
    return input


@operator(
    vjp={
        "input": lambda g, input, dim, index, src, reduce, include_self, out: g
        * _input_weight(input, dim, index, src, reduce, include_self, out),
        "src": lambda g, input, dim, index, src, reduce, include_self, out: covered(
            ops.gather(g, dim, index) * _src_weight(input, dim, index, src, reduce, include_self, out), src.shape
        ),
    },
    jvp={
        "input": lambda t, input, dim, index, src, reduce, include_self, out: t
        * _input_weight(input, dim, index, src, reduce, include_self, out),
        "src": lambda t, input, dim, index, src, reduce, include_self, out: ops.scatter_add(
            ops.zeros_like(input), dim, index,
            ops.getitem(t, covered_index(index)) * _src_weight(input, dim, index, src, reduce, include_self, out),
        ),
    },
    batch=along_batch,
    spec=_scatter_reduce_spec,
    inplace=True,
    samples=lambda s: [
        *(
            s((3, 2), 0, s.array([[0, 2], [2, 2], [0, 1]]), (3, 2), reduction, include_self=own)
            for reduction in _REDUCTIONS
            for own in (True, False)
        ),
        s((2, 3), -1, s.array([[1, 1]]), (2, 3), "amax"), s((), 0, s.array(0), (), "prod"),
        s((2,), 0, s.array(np.empty(0, np.int64)), (0,), "mean"),
        s((3,), 0, s.array([0, 0, 1, 1]), s.array([0.0, 2.0, 3.0, 0.0]), "prod"),
        s((3,), 0, s.array([0, 0, 0]), s.array([0.0, 0.0, 3.0]), "prod", grad=False),
        s(s.array([0.0, 2.0]), 0, s.array([0, 1]), (2,), "prod"),
        s((3,), 0, s.array([0, 0, 2]), (3,), "mean", kind="integer"),
        s.error(RuntimeError, "reduce must be one of", (2,), 0, s.array([0]), (1,), "median"),
        s.error(RuntimeError, "smaller than index", (2,), 0, s.array([0, 1]), (1,), "sum"),
        s.error(RuntimeError, "as many dimensions as index", (2,), 0, s.array(0), (1,), "sum"),
    ],
)  # fmt: skip
def scatter_reduce(
    input: Anything, dim: Axis, index: Integer, src: Anything, reduce: Any, *, include_self: bool = True
) -> Any:
    """Combine ``src`` with ``input`` where ``index`` points along ``dim``: "sum", "prod", "mean", "amax" or "amin".

    Without ``include_self`` the elements of ``input`` that are pointed at do not take part. Equal extremes share the
    gradient equally.
    """
    _scatter_reduce_spec(input, dim, index, src, reduce)
    return kernels.scatter_reduce(input, dim, index, src, reduce, include_self)


def _rows(name: str, input: Any, dim: int, index: Any, source: Any) -> tuple[int, Any]:
    """Return ``dim`` from the front and ``index``, a vector, spread to the shape of ``source``."""
    dim, index = axis_of(dim, input.ndim), as_tensor(index)
    count = index.numel()
    if index.ndim > 1 or (source.shape[dim] if source.ndim else 1) != count:
        raise ShapeError(
            f"{name}(): index must be a vector as long as dimension {dim} of source, got shapes {tuple(index.shape)} "
            f"and {tuple(source.shape)}"
        )
    shape = tuple(count if d == dim else 1 for d in range(source.ndim))
    return dim, ops.expand(ops.reshape(index, shape), source.shape)


@composite(
    method=True,
    samples=lambda s: [
        s((3, 2), 0, s.array([0, 2, 0]), (3, 2), "prod"),
        s((2, 3), 1, s.array([1]), (2, 1), "amax", include_self=False),
        s((3,), 0, s.array([0, 0]), (2,), "mean"), s((3,), 0, s.array([0, 0]), (2,), "amin"),
    ],
)  # fmt: skip
def index_reduce(input: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    """Combine slices of ``source`` with those of ``input`` that ``index`` names along ``dim``.

    ``reduce`` is "prod", "mean", "amax" or "amin"; see :func:`wengert.scatter_reduce`.
    """
    input, source = as_tensor(input), as_tensor(source)
    dim, wide = _rows("index_reduce", input, dim, index, source)
    return ops.scatter_reduce(input, dim, wide, source, reduce, include_self=include_self)


def index_reduce_(self: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    """In-place version of :func:`wengert.index_reduce`."""
    dim, wide = _rows("index_reduce", self, dim, index, as_tensor(source))
    return ops.scatter_reduce_(self, dim, wide, source, reduce, include_self=include_self)


publish_method(index_reduce_)

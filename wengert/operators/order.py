"""Order: sorting, the largest and smallest k, distinct elements, and places in a sorted sequence.

NaN counts as larger than every number. Sorting is stable. Selected values pass their gradients to where they came from.
"""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import int32, int64
from wengert.array.shape import axis_of
from wengert.core.apply import as_tensor, common_dtype, execute
from wengert.core.arguments import Axis, Int, Integer, Real, RealOrScalar
from wengert.core.batch import expanded
from wengert.core.families import composite, nondifferentiable, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, from_array, raw
from wengert.errors import ShapeError
from wengert.operators.along import from_taken, index_spec, rank_one, taken, to_taken

__all__ = [
    "argsort", "bucketize", "kthvalue", "msort", "searchsorted", "sort", "topk", "unique",
    "unique_consecutive",
]  # fmt: skip


def stable_order(x: Any, dim: int, descending: Any) -> Any:
    """Return the indices that sort an array, equal elements in the order they came."""
    if not descending:
        return np.argsort(x, axis=dim, kind="stable")
    backwards = np.argsort(np.flip(x, dim), axis=dim, kind="stable")
    return x.shape[dim] - 1 - np.flip(backwards, dim)


def _to_places(g: Any, indices: Any, input_shape: Any, dim: Any) -> Any:
    return ops.place_along(g[0], dim, indices, input_shape[dim]) if input_shape else g[0]


def _from_places(t: Any, indices: Any, dim: Any) -> Any:
    return (ops.gather(t, dim, indices) if t.shape else t), None


# ---- sorting


def _sort_samples(s: Any) -> list[Any]:
    return [
        s((2, 3)), s((2, 3), dim=0), s((2, 3), -2, True), s((4,), descending=True, stable=True), s(()),
        s((0, 3), dim=0), s((2, 1)), s((4,), kind="integer"), s((4,), kind="boolean"),
        s(s.array([2.0, 1.0, 2.0, 1.0, 2.0]), descending=True, stable=True, grad=False),
        s(s.array([2.0, np.nan, 1.0, np.nan, np.inf]), stable=True, grad=False),
        s(s.array([2.0, np.nan, 1.0, np.inf]), descending=True, grad=False),
        s.error(IndexError, "out of range", (2, 3), 2),
    ]  # fmt: skip


@operator(
    outputs=("values", "indices"),
    vjp={"input": _to_places},
    jvp={"input": _from_places},
    batch="front",
    spec=lambda input, dim=-1, descending=False, *, stable=False: (input, Spec(input.shape, int64)),
    samples=_sort_samples,
)
def sort(input: Real, dim: Axis = -1, descending: Any = False, *, stable: Any = False) -> Any:
    """Return (values, indices): the elements sorted along ``dim``, and where each came from; always stable."""
    x = rank_one(input)
    order = stable_order(x, dim, descending)
    return np.take_along_axis(x, order, dim).reshape(input.shape), order.reshape(input.shape)


@nondifferentiable(
    batch="front",
    spec=lambda input, dim=-1, descending=False, *, stable=False: Spec(input.shape, int64),
    samples=_sort_samples,
)
def argsort(input: Real, dim: Axis = -1, descending: Any = False, *, stable: Any = False) -> Any:
    """Return the indices that sort the tensor along ``dim``; always stable."""
    return stable_order(rank_one(input), dim, descending).reshape(input.shape)


@composite(method=True, samples=lambda s: [s((2, 3)), s((3,)), s((0, 2)), s((3,), kind="integer")])
def msort(input: Any) -> Any:
    """Return the elements sorted along the first dimension."""
    return ops.sort(input, 0).values


# ---- selection


def _require_k(name: str, k: int, shape: Any, dim: int, least: int) -> None:
    size = shape[dim] if shape else 1
    if not least <= k <= size:
        raise IndexError(
            f"{name}(): k={k} is out of range: dimension {dim} of the tensor of shape {tuple(shape)} allows {least} to "
            f"{size}"
        )


def _topk_spec(input: Spec, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Spec, Spec]:
    _require_k("topk", k, input.shape, dim, 0)
    shape = (*input.shape[:dim], k, *input.shape[dim + 1 :]) if input.shape else ()
    return Spec(shape, input.dtype), Spec(shape, int64)


@operator(
    outputs=("values", "indices"),
    vjp={"input": _to_places},
    jvp={"input": _from_places},
    batch="front",
    spec=_topk_spec,
    samples=lambda s: [
        s((2, 4), 2), s((2, 4), 3, dim=-1, largest=False), s((4, 2), 1, 0), s((2, 4), 4), s((2, 4), 0), s((), 1),
        s(s.array([3, 1, 2, 5]), 3), s((2, 4), 2, sorted=False), s(s.array([1.0, np.nan, 3.0, 2.0]), 2, grad=False),
        s(s.array([1.0, np.nan, 3.0, 2.0]), 2, 0, False, grad=False),
        s.error(IndexError, "k=5 is out of range", (2, 4), 5),
    ],
)  # fmt: skip
def topk(input: Real, k: Int, dim: Axis = -1, largest: Any = True, sorted: Any = True) -> Any:
    """Return (values, indices): the ``k`` largest (or smallest) elements along ``dim``, in order, and their places."""
    _require_k("topk", k, input.shape, dim, 0)
    x = rank_one(input)
    size = x.shape[dim]
    places = _chosen(x, k, dim, largest)
    places.sort(axis=dim)  # equal elements in the order they came
    values = np.take_along_axis(x, places, dim)
    order = stable_order(values, dim, largest)
    shape = input.shape if not input.shape else (*input.shape[:dim], min(k, size), *input.shape[dim + 1 :])
    values, places = (np.take_along_axis(a, order, dim).reshape(shape) for a in (values, places))
    return values, places


def _chosen(x: Any, k: int, dim: int, largest: Any) -> Any:
    """Return the places of the k largest or smallest elements; of equal ones at the border, the first."""
    size = x.shape[dim]
    if k in (0, size):
        shape = [1] * x.ndim
        shape[dim] = k
        return np.broadcast_to(np.arange(k).reshape(shape), (*x.shape[:dim], k, *x.shape[dim + 1 :])).copy()
    if largest:  # the reverse of a stable order of the reverse keeps equal ones in order
        found = size - 1 - np.flip(np.argsort(np.flip(x, dim), axis=dim, kind="stable"), dim)
    else:
        found = np.argsort(x, axis=dim, kind="stable")
    return np.take(found, range(k), axis=dim)


def _kth_spec(input: Spec, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Spec, Spec]:
    _require_k("kthvalue", k, input.shape, dim, 1)
    found: tuple[Spec, Spec] = index_spec("kthvalue")(input, dim, keepdim)
    return found


@operator(
    outputs=("values", "indices"),
    vjp={"input": to_taken},
    jvp={"input": from_taken},
    batch="front",
    spec=_kth_spec,
    samples=lambda s: [
        s((2, 4), 2), s((2, 4), 1, 0, True), s((2, 4), 4), s((), 1), s(s.array([3, 1, 2, 5]), 3),
        s(s.array([1.0, np.nan, 0.0]), 3, grad=False), s.error(IndexError, "k=0 is out of range", (2, 4), 0),
        s.error(IndexError, "k=5 is out of range", (2, 4), 5),
    ],
)  # fmt: skip
def kthvalue(input: Real, k: Int, dim: Axis = -1, keepdim: Any = False) -> Any:
    """Return (values, indices): the ``k``-th smallest element along ``dim``, counted from 1, and its place."""
    _require_k("kthvalue", k, input.shape, dim, 1)
    found = np.argsort(rank_one(input), axis=dim, kind="stable")
    return taken(input, np.take(found, [k - 1], axis=dim), dim, keepdim)


# ---- distinct elements: how many there are depends on the data, and they carry no gradient


def _answers(values: Any, inverse: Any, counts: Any, return_inverse: bool, return_counts: bool) -> Any:
    found = [values]
    if return_inverse:
        found.append(inverse)
    if return_counts:
        found.append(counts)
    tensors = tuple(from_array(np.asarray(a, order="C")) for a in found)
    return tensors if len(tensors) > 1 else tensors[0]


@composite(
    method=True,
    batch="refuse",
    samples=lambda s: [
        s((2, 3), kind="integer"), s((2, 3), return_inverse=True, return_counts=True, kind="integer"),
        s((4, 2), dim=0, kind="boolean"), s((2, 3), dim=-1, return_inverse=True, return_counts=True, kind="integer"),
        s(s.array([2.0, 1.0, 2.0, np.nan, np.nan])), s(()), s((0,)),
    ],
)  # fmt: skip
def unique(
    input: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Return the distinct elements, always sorted; with ``dim``, the distinct slices along it.

    Args:
        return_inverse: also return, for each element, the place of its value in the result.
        return_counts: also return how often each value occurs. NaN equals nothing, not even NaN.
    """
    x = raw(as_tensor(input), "unique()")
    axis = None if dim is None else axis_of(dim, x.ndim)
    values, inverse, counts = np.unique(
        x if axis is None else rank_one(x), return_inverse=True, return_counts=True, axis=axis, equal_nan=False
    )
    shape = x.shape if axis is None else (-1,)
    return _answers(values, inverse.reshape(shape), counts, return_inverse, return_counts)


@composite(
    method=True,
    batch="refuse",
    samples=lambda s: [
        s(s.array([1, 1, 2, 2, 3, 1, 1, 2])), s(s.array([[1, 1], [2, 2]]), return_inverse=True, return_counts=True),
        s(()), s((0,)), s(s.array([[1, 1, 2], [1, 1, 2], [2, 2, 2]]), return_inverse=True, return_counts=True, dim=0),
        s(s.array([[1, 1, 2], [1, 1, 0]]), dim=1),
    ],
)  # fmt: skip
def unique_consecutive(
    input: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Return the first of each run of equal elements, flattened; with ``dim``, of each run of equal slices along it.

    Args:
        return_inverse: also return the run of each element. return_counts: also return the length of each run.
    """
    x = raw(as_tensor(input), "unique_consecutive()")
    axis = 0 if dim is None else axis_of(dim, x.ndim)
    rows = np.moveaxis(x.reshape(-1) if dim is None else rank_one(x), axis, 0)
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (rows[1:] != rows[:-1]).reshape(len(rows) - 1, -1).any(1) if len(rows) > 1 else True
    starts = np.flatnonzero(begins)
    counts = np.diff(np.append(starts, len(rows)))
    inverse = (np.cumsum(begins) - 1).reshape(x.shape if dim is None else (-1,))
    return _answers(np.moveaxis(rows[starts], 0, axis), inverse, counts, return_inverse, return_counts)


# ---- places in a sorted sequence


def _search_shape(sequence: Any, values: Any) -> tuple[int, ...]:
    """Return the shape of the places of ``values``.

    Raises:
        ShapeError: unless the sequence is one-dimensional or has a row for each row of values.
    """
    if len(sequence) != 1 and (not sequence or not values or tuple(sequence[:-1]) != tuple(values[:-1])):
        raise ShapeError(
            f"searchsorted(): a sequence of shape {tuple(sequence)} must be 1-dimensional or have the leading "
            f"dimensions of the values of shape {tuple(values)}"
        )
    return tuple(values)


def _search_rows(sequence: Any, values: Any, side: str) -> Any:
    """Search many rows at once: merge each with its values by a stable sort and count what comes before a value."""
    left = side == "left"
    merged = np.concatenate((values, sequence) if left else (sequence, values), -1)
    of_sequence = (
        np.arange(merged.shape[-1]) >= values.shape[-1] if left else np.arange(merged.shape[-1]) < sequence.shape[-1]
    )
    order = np.argsort(merged, axis=-1, kind="stable")
    before = np.cumsum(of_sequence[order], axis=-1)
    places = np.empty_like(before)
    np.put_along_axis(places, order, before, -1)
    return places[..., ~of_sequence]


def _places_in(sequence: Any, values: Any, side: Any, sorter: Any) -> Any:
    _check_sorter(sequence.shape, sorter)
    if sorter is not None:
        sequence = np.take_along_axis(sequence, sorter, -1)
    if sequence.ndim == 1:
        return np.searchsorted(sequence, values, side)
    return _search_rows(sequence, values, side)


def _check_sorter(shape: Any, sorter: Any) -> None:
    if sorter is not None and tuple(sorter.shape) != tuple(shape):
        raise ShapeError(
            f"searchsorted(): sorter of shape {tuple(sorter.shape)} must have the sequence's shape {tuple(shape)}"
        )


def _side(right: Any, side: Any) -> Any:
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ValueError(f"searchsorted(): side must be 'left' or 'right' and agree with right={right}, got {side!r}")
    return side or ("right" if right else "left")


def _search_spec(
    sorted_sequence: Spec, input: Any, *, out_int32: Any = False, right: Any = False, side: Any = None,
    sorter: Any = None,
) -> Spec:  # fmt: skip
    shape = _search_shape(sorted_sequence.shape, input.shape if isinstance(input, Spec) else ())
    _side(right, side)
    _check_sorter(sorted_sequence.shape, sorter)
    return Spec(shape, int32 if out_int32 else int64)


def _search_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Batching rule of searchsorted: one sequence for all, or one row of values for each."""
    sequence, input, out_int32, right, side, sorter = values
    shapes = [
        tuple(v.shape)[bool(b) :] if isinstance(v, Tensor) else None for v, b in zip(values, batched, strict=True)
    ]
    dtype = common_dtype(op, [v if s is None else Spec(s, v.dtype) for v, s in zip(values, shapes, strict=True)])
    input = ops.cast(input, dtype) if isinstance(input, Tensor) else ops.full((), input, dtype=dtype)
    if not batched[0] and not batched[5] and sequence.ndim == 1:
        return execute(op, [ops.cast(sequence, dtype), input, *values[2:]])
    sequence = ops.cast(sequence if batched[0] else expanded(sequence, size), dtype)
    input = input if batched[1] else expanded(input, size)
    sorter = expanded(sorter, size) if sorter is not None and not batched[5] else sorter
    rows = ops.reshape(input, (size, math.prod(input.shape[1:]))) if sequence.ndim == 2 else input
    return ops.reshape(execute(op, [sequence, rows, out_int32, right, side, sorter]), tuple(input.shape))


@nondifferentiable(
    promote="same",
    batch=_search_batch,
    spec=_search_spec,
    method=False,
    samples=lambda s: [
        s(s.array([1.0, 3.0, 5.0]), s.array([[0.0, 1.0], [4.0, 6.0]])), s(s.array([1.0, 3.0, 3.0, 5.0]), 3),
        s(s.array([1.0, 3.0, 3.0, 5.0]), 3, right=True), s(s.array([3, 3]), s.array([2, 3, 4])), s(s.array([3, 3]), 2.5),
        s(s.array([[1.0, 3.0, 3.0], [2.0, 4.0, 6.0]]), s.array([[3, 0], [3, 7]])),
        s(s.array([[1.0, 3.0, 3.0], [2.0, 4.0, 6.0]]), s.array([[3, 0], [3, 7]]), side="right"),
        s(s.array([3, 3, 3]), s.array([2, 3, 9]), sorter=s.array([1, 2, 0]), out_int32=True),
        s.error(ValueError, "leading dimensions", (2, 3), (3, 1)),
        s.error(ValueError, "side", (2,), (3,), side="left", right=True),
        s.error(ValueError, "side", (2,), (3,), side="middle"),
        s.error(ValueError, "sorter of shape", (2,), (3,), sorter=s.array([0])),
    ],
)  # fmt: skip
def searchsorted(
    sorted_sequence: Real, input: RealOrScalar, *, out_int32: Any = False, right: Any = False, side: Any = None,
    sorter: Integer = None,
) -> Any:  # fmt: skip
    """Return the place of each value in a sorted sequence: where to insert it so that the order is kept.

    Args:
        sorted_sequence: one-dimensional, or one row (in the last dimension) for each row of values.
        input: a tensor or a number. right: take the last such place, not the first (also ``side="right"``).
        sorter: the indices that sort ``sorted_sequence``, if it is not sorted. out_int32: return int32.
    """
    _search_shape(sorted_sequence.shape, input.shape)
    places = _places_in(sorted_sequence, input, _side(right, side), None if sorter is None else sorter.astype(np.int64))
    return np.asarray(places, np.int32 if out_int32 else np.int64, order="C")


@composite(
    method=True,
    samples=lambda s: [
        s(s.array([[0.0, 1.0], [4.0, 6.0]]), s.array([1.0, 3.0, 5.0])),
        s(s.array([1, 3]), s.array([1.0, 3.0]), right=True), s(3, s.array([1.0, 3.0]), out_int32=True),
        s.error(ValueError, "1-dimensional", (2,), (2, 2)),
    ],
)  # fmt: skip
def bucketize(input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    """Return the bucket i of each value: boundaries[i-1] < v ≤ boundaries[i] (with ``right``, ≤ and <)."""
    if boundaries.ndim != 1:
        raise ShapeError(f"bucketize(): boundaries must be 1-dimensional, got shape {tuple(boundaries.shape)}")
    return ops.searchsorted(boundaries, input, out_int32=out_int32, right=right)

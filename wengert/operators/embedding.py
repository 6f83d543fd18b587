"""Embeddings: rows of a table, and sums, means and maxima of bags of rows.

Two linear maps do the work: ``take_rows`` reads rows, ``add_rows`` adds rows into a table of zeros; each is the other's
transpose. A padding row and ``scale_grad_by_freq`` change only the gradient of the table: its rows are weighted on the
way back.
"""

from typing import Any

import numpy as np

from wengert.array.dtype import INTEGER, float32, int64
from wengert.core.apply import execute
from wengert.core.arguments import Anything, DTypeOrNone, Integer, Number, Real
from wengert.core.batch import Body, loop
from wengert.core.families import composite, nondifferentiable, operator
from wengert.core.inplace import adopt
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import from_array, raw, wrote
from wengert.errors import DTypeError, ShapeError
from wengert.kernels import scatter
from wengert.operators.checks import all_values, known
from wengert.operators.fold_batch import merged, parted

__all__ = ["add_rows", "bag_maxima", "embedding", "embedding_bag", "row_weights", "take_rows"]


# ---- rows of a table


def _take_vjp(g: Any, index: Any, weight_shape: Any, padding_idx: Any, by_freq: Any) -> Any:
    if padding_idx is not None or by_freq:
        g = g * ops.row_weights(index, weight_shape[0], padding_idx, by_freq, g.dtype)
    return ops.add_rows(g, index, weight_shape[0])


def _take_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Take rows of one table with all indices, or of each table with its own.

    With ``by_freq``, and with a padding row in each of several tables, the gradient of an example depends on its own
    indices alone, which one call cannot tell: then it is one example after the other.
    """
    weight, index, padding_idx, by_freq = values
    if by_freq or (batched[0] and padding_idx is not None):
        return loop(op, values, batched, size)
    if not batched[0]:
        return execute(op, values)
    if thread.state.captures is not None and known(index) is None:
        index = ops.bounded_index(index, weight.shape[1], "embedding", 0)
    else:
        scatter.checked_index("embedding", all_values(index), 0, weight.shape[1])
    if not batched[1]:
        return ops.index_read(weight, (index,), (1,))
    counting = ops.reshape(ops.arange(size), (size, *(1,) * (index.ndim - 1)))
    return ops.index_read(weight, (counting, index), (0, 1))


def _added(input: Any, index: Any, count: int) -> Any:
    return ops.index_transpose(input, (index,), (0,), (count, *input.shape[index.ndim :]))


def _weighed(index: Any, count: int, padding_idx: Any, by_freq: Any, dtype: Any) -> Any:
    weights = ops.ones_like(index, dtype=dtype)
    if by_freq:
        weights = weights / ops.take_rows(ops.add_rows(weights, index, count), index)
    if padding_idx is not None:
        weights = ops.where(index == padding_idx, 0.0, weights)
    return ops.unsqueeze(weights, -1)


def _maxima_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Let the columns of all examples stand beside one another; bags of their own take one example after the other."""
    rows, segments, count = values
    if batched[1]:
        return loop(op, values, batched, size)
    return parted(execute(op, [merged(rows, 1), segments, count]), 1, size)


@operator(
    vjp={"weight": _take_vjp},
    jvp={"weight": lambda t, index: ops.take_rows(t, index)},
    batch=_take_batch,
    spec=lambda weight, index, padding_idx=None, by_freq=False: Spec((*index.shape, *weight.shape[1:]), weight.dtype),
    widen=False,
    home=(),
    samples=lambda s: [
        s((3, 2), s.array([2, 0, 2])), s((3, 2), s.array([[0, 1], [1, 1]])), s((3,), s.array(1)),
        s((2, 3), s.tensor((0, 2), kind="integer")), s((3, 2), s.array([2, 0, 2]), padding_idx=2, grad=False),
        s((3, 2), s.array([2, 0, 2]), by_freq=True, grad=False),
        s.error(IndexError, "index 3 is out of bounds", (3, 2), s.array([3])),
        s.error(IndexError, "index -1 is out of bounds", (3, 2), s.array([-1])),
    ],
)  # fmt: skip
def take_rows(weight: Anything, index: Integer, padding_idx: Any = None, by_freq: Any = False) -> Any:
    """Return the rows of a table at ``index``, in its shape. The last two arguments act on the gradient."""
    return weight.take(scatter.checked_index("embedding", index, 0, len(weight)), 0)


@operator(
    vjp={"input": lambda g, index: ops.take_rows(g, index)},
    jvp={"input": lambda t, index, count: ops.add_rows(t, index, count)},
    batch=Body(_added),
    spec=lambda input, index, count: Spec((count, *input.shape[index.ndim :]), input.dtype),
    home=(),
    samples=lambda s: [
        s((3, 2), s.array([2, 0, 2]), count=3), s((2, 2, 1), s.array([[0, 1], [1, 1]]), count=4),
        s((0, 2), s.tensor((0,), kind="integer"), count=2), s((3,), s.array([0, 0, 1]), count=2),
    ],
)  # fmt: skip
def add_rows(input: Number, index: Integer, count: Any) -> Any:
    """Return a table of ``count`` rows of zeros with rows added where ``index`` says."""
    rest = input.shape[index.ndim :]
    rows = np.ascontiguousarray(input).reshape(index.size, *rest)
    return scatter.index_add(np.zeros((count, *rest), input.dtype), 0, index.reshape(-1), rows)


@nondifferentiable(
    batch=Body(_weighed),
    spec=lambda index, count, padding_idx, by_freq, dtype: Spec((*index.shape, 1), dtype),
    home=(),
    samples=lambda s: [
        s(s.array([2, 0, 2]), count=3, padding_idx=None, by_freq=True, dtype="float64"),
        s(s.array([[2, 0]]), count=3, padding_idx=2, by_freq=False, dtype="float32"),
    ],
)  # fmt: skip
def row_weights(index: Integer, count: Any, padding_idx: Any, by_freq: Any, dtype: DTypeOrNone) -> Any:
    """Return by how much the gradient of each row counts: 0 for the padding, or one over how often the row occurs."""
    weights = np.ones(index.shape, dtype.numpy)
    if by_freq:
        weights /= np.bincount(index.reshape(-1), minlength=count)[index].astype(dtype.numpy)
    if padding_idx is not None:
        weights[index == padding_idx] = 0
    return weights[..., np.newaxis]


def _check_table(name: str, input: Any, weight: Any, padding_idx: Any) -> int | None:
    """Check the arguments that both functions have; return the padding row counted from the front."""
    if weight.ndim != 2:
        raise ShapeError(f"{name}(): weight must be a table (rows, columns), got shape {tuple(weight.shape)}")
    if input.dtype.category != INTEGER:
        raise DTypeError(f"{name}(): input must hold integers, the numbers of rows, got {input.dtype}")
    rows = weight.shape[0]
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ValueError(f"{name}(): padding_idx={padding_idx} is not a row of a table of {rows}")
    return int(padding_idx % rows)


def _renorm(weight: Any, index: Any, max_norm: float, norm_type: float) -> None:
    """Scale rows that are looked up down to ``max_norm``, in the table and unseen by the tape, as PyTorch does."""
    if thread.state.captures:
        _renorm_captured(ops.detach(weight), ops.detach(index), max_norm, norm_type)
        return
    table, places = raw(weight, "max_norm"), raw(index, "max_norm")
    if not table.flags.writeable:
        raise RuntimeError(
            "embedding(): max_norm changes the table in place, but it lies in read-only memory; clone() it"
        )
    rows = np.unique(scatter.checked_index("embedding", places, 0, len(table)))
    wide = table[rows].astype(np.float32 if table.dtype.itemsize == 2 else table.dtype)
    norms = np.linalg.norm(wide, norm_type, axis=1)
    large = norms > max_norm
    if large.any():
        table[rows[large]] = wide[large] * (max_norm / (norms[large] + 1e-7))[:, np.newaxis].astype(wide.dtype)
        wrote(weight, "embedding")


def _renorm_captured(table: Any, index: Any, max_norm: float, norm_type: float) -> None:
    """Do the same by operators, for all rows: those that are looked up are known when the program runs."""
    marks = ops.add_rows(ops.ones_like(ops.cast(index, float32)), index, count=table.shape[0])
    wide = ops.cast(table, float32) if table.dtype.is_half else table
    norms = ops.linalg_vector_norm(wide, norm_type, 1, True)
    large = ops.logical_and(ops.unsqueeze(marks, 1) > 0, norms > max_norm)
    scaled = ops.cast(wide * (max_norm / (norms + 1e-7)), table.dtype)
    adopt("embedding", table, ops.where(large, scaled, table))


@composite(
    home="nn.functional",
    batch="refuse",  # with max_norm, which writes into the table
    samples=lambda s: [
        s(s.array([[0, 2], [1, 2]]), (3, 2)), s(s.array(1), (3, 2)),
        s(s.array([2, 0, 2]), (3, 2), padding_idx=-1, grad=False),
        s(s.array([2, 0, 2]), (3, 2), scale_grad_by_freq=True, grad=False), s(s.tensor((0,), kind="integer"), (3, 2)),
        s(s.array([1]), (3, 2), max_norm=100.0), s.error(IndexError, "index 3 is out of bounds", s.array([3]), (3, 2)),
        s.error(TypeError, "must hold integers", (2,), (3, 2)),
        s.error(ValueError, "padding_idx=3", s.array([1]), (3, 2), padding_idx=3),
        s.error(NotImplementedError, "scale_grad_by_freq", s.array([1]), (3, 2), scale_grad_by_freq=True, sparse=True),
        s.error(RuntimeError, "must be a table", s.array([1]), (3,)),
    ],
)  # fmt: skip
def embedding(
    input: Any, weight: Any, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Any:  # fmt: skip
    """Return the rows of a table at the positions ``input``: (*) → (*, columns).

    Args:
        weight: the table, (rows, columns).
        padding_idx: a row that gets no gradient.
        max_norm: first scale the rows that are looked up, in the table, down to this norm of order ``norm_type``.
        scale_grad_by_freq: divide the gradient of a row by how often it is looked up.
        sparse: let the gradient of the table be a COO tensor of the rows that were looked up; see :mod:`wengert.sparse`.

    Raises:
        IndexError: for a position outside the table. TypeError: if ``input`` does not hold integers.
        NotImplementedError: for ``scale_grad_by_freq`` of a sparse gradient.

    Example:
        >>> import wengert as wg
        >>> wg.nn.functional.embedding(wg.tensor([1, 1]), wg.tensor([[0.0, 1.0], [2.0, 3.0]]))
        tensor([[2., 3.],
                [2., 3.]])
    """
    padding = _check_table("embedding", input, weight, padding_idx)
    if max_norm is not None:
        _renorm(weight, input, max_norm, norm_type)
    return _looked_up("embedding", weight, input, padding, bool(scale_grad_by_freq), sparse)


def _looked_up(name: str, weight: Any, index: Any, padding: int | None, by_freq: bool, sparse: bool) -> Any:
    if not sparse:
        return ops.take_rows(weight, index, padding, by_freq)
    if by_freq:
        raise NotImplementedError(f"{name}(): scale_grad_by_freq is not possible for a sparse gradient")
    return ops.looked_up(weight, index, padding)


# ---- bags of rows


def _starts(input: Any, offsets: Any, include_last_offset: bool) -> Any:
    """Return where the bags start in the flat indices, and where the last one ends."""
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError("embedding_bag(): a 2-d input holds one bag per row; leave offsets out")
        bags, width = input.shape
        return np.arange(bags + 1) * width
    if input.ndim != 1 or offsets is None or offsets.ndim != 1:
        raise ValueError(
            "embedding_bag(): input must be 2-d, one bag per row, or 1-d with a vector of offsets; got input of shape "
            f"{tuple(input.shape)} and offsets {None if offsets is None else tuple(offsets.shape)}"
        )
    given = raw(offsets, "embedding_bag() with offsets")
    starts, size = given.astype(np.int64), input.shape[0]
    if not include_last_offset:
        starts = np.append(starts, size)
    if not len(starts) or starts[0] != 0 or starts[-1] > size or np.any(np.diff(starts) < 0):
        raise ValueError(f"embedding_bag(): offsets must rise from 0 to at most {size}, got {given.tolist()}")
    return starts


@nondifferentiable(
    batch=_maxima_batch,
    spec=lambda rows, segments, count: Spec((count, rows.shape[1]), int64),
    home=(),
    samples=lambda s: [s((4, 2), s.array([0, 0, 2, 2]), count=3), s((0, 2), s.tensor((0,), kind="integer"), count=2)],
)
def bag_maxima(rows: Real, segments: Integer, count: Any) -> Any:
    """Return, for each bag and column, which row holds the first maximum; one past the last row for an empty bag.

    ``segments`` says to which bag each row belongs; it rises.
    """
    found = np.full((count, rows.shape[1]), len(rows), np.int64)
    if len(rows):
        bags, starts = np.unique(segments, return_index=True)
        largest = np.repeat(np.maximum.reduceat(rows, starts, 0), np.diff(np.append(starts, len(rows))), 0)
        numbers = np.where((rows == largest) | (rows != rows), np.arange(len(rows))[:, np.newaxis], len(rows))
        found[bags] = np.minimum.reduceat(numbers, starts, 0)
    return found


def _reduced(rows: Any, segments: Any, bags: int, mode: str) -> Any:
    if mode == "max":
        padded = ops.cat((rows, ops.zeros(1, rows.shape[1], dtype=rows.dtype)), 0)
        return ops.gather(padded, 0, ops.bag_maxima(rows.detach(), from_array(segments), bags))
    total = ops.add_rows(rows, from_array(segments), bags)
    if mode == "sum":
        return total
    counts = np.maximum(np.bincount(segments, minlength=bags), 1)
    return total / from_array(counts[:, np.newaxis].astype(np.float64)).to(rows.dtype)


@composite(
    home="nn.functional",
    batch="refuse",  # where offsets, or indices some of which are padding, differ between examples
    samples=lambda s: [
        s(s.array([[0, 2], [1, 2]]), (3, 2)), s(s.array([0, 2, 1]), (3, 2), s.array([0, 2])),
        s(s.array([0, 2, 1]), (3, 2), s.array([0, 0, 3]), mode="sum"),
        s(s.array([0, 2, 1]), (3, 2), s.array([0, 0, 2]), mode="max"), s(s.array([[0, 2], [1, 1]]), (3, 2), mode="max"),
        s(s.array([0, 2, 1]), (3, 2), s.array([0, 2]), mode="sum", per_sample_weights=s.array([1.0, 2.0, -1.0])),
        s(s.array([0, 2, 1]), (3, 2), s.array([0, 2, 3]), include_last_offset=True),
        s(s.array([0, 2, 1]), (3, 2), s.array([0, 2]), padding_idx=2),
        s(s.array([2, 2, 1]), (3, 2), s.array([0, 2]), padding_idx=2, mode="max"),
        s(s.array([[0, 0]]), (3, 2), scale_grad_by_freq=True, grad=False),
        s.error(ValueError, "offsets must rise", s.array([0, 1]), (3, 2), s.array([1])),
        s.error(ValueError, "leave offsets out", s.array([[0, 1]]), (3, 2), s.array([0])),
        s.error(ValueError, "mode must be", s.array([[0, 1]]), (3, 2), mode="min"),
        s.error(ValueError, "1-d with a vector", s.array([0, 1]), (3, 2)),
        s.error(NotImplementedError, "mode='sum'", s.array([[0, 1]]), (3, 2), per_sample_weights=s.array([[1.0, 1.0]])),
    ],
)  # fmt: skip
def embedding_bag(
    input: Any, weight: Any, offsets: Any = None, max_norm: float | None = None, norm_type: float = 2,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Any = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Any:  # fmt: skip
    """Return the sum, mean or maximum of bags of rows of a table; an empty bag gives zeros.

    Args:
        input: (bags, n), or (n,) with ``offsets``: where each bag starts, and with ``include_last_offset`` the end.
        weight: the table, (rows, columns). mode: ``"sum"``, ``"mean"`` or ``"max"``.
        per_sample_weights: factors of the rows, of the shape of ``input``; for ``"sum"``.
        padding_idx: a row that is left out. max_norm, norm_type, scale_grad_by_freq, sparse: as for
            ``embedding``.

    Returns:
        (bags, columns).

    Example:
        >>> import wengert as wg
        >>> table, bags = wg.tensor([[1.0], [3.0]]), wg.tensor([0, 2])
        >>> wg.nn.functional.embedding_bag(wg.tensor([0, 1, 1]), table, bags, mode="sum")
        tensor([[4.],
                [3.]])
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"embedding_bag(): mode must be 'sum', 'mean' or 'max', got {mode!r}")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("embedding_bag(): scale_grad_by_freq has no meaning for mode='max'")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(f"embedding_bag(): per_sample_weights needs mode='sum', got mode={mode!r}")
    if mode == "max" and sparse:
        raise ValueError("embedding_bag(): mode='max' has no sparse gradient")
    padding = _check_table("embedding_bag", input, weight, padding_idx)
    if per_sample_weights is not None and tuple(per_sample_weights.shape) != tuple(input.shape):
        raise ValueError(
            f"embedding_bag(): per_sample_weights must have the shape of input, {tuple(input.shape)}, got "
            f"{tuple(per_sample_weights.shape)}"
        )
    starts = _starts(input, offsets, include_last_offset)
    bags, size = len(starts) - 1, int(starts[-1])
    segments, index = np.repeat(np.arange(bags), np.diff(starts)), ops.reshape(input, (input.numel(),))
    kept = np.arange(size)
    if padding is not None:
        kept = np.flatnonzero(raw(index, "embedding_bag() with padding_idx")[:size] != padding)
    if len(kept) < index.shape[0]:
        index, segments = ops.take_rows(index, from_array(kept)), segments[kept]
    if max_norm is not None:
        _renorm(weight, index, max_norm, norm_type)
    rows = _looked_up("embedding_bag", weight, index, None, bool(scale_grad_by_freq), sparse)
    if per_sample_weights is not None:
        factors = ops.take_rows(ops.reshape(per_sample_weights, (-1,)), from_array(kept))
        rows = rows * ops.unsqueeze(factors, -1)
    return _reduced(rows, segments, bags, mode)

"""Batching by folding: the batch becomes part of a dimension that an operator treats element by element.

Rows are the first dimension, of independent examples; channels may be any dimension that is divided into groups.
"""

from typing import Any

from wengert.core.apply import execute
from wengert.core.batch import in_front
from wengert.core.registry import ops
from wengert.core.tensor import Tensor

__all__ = ["fold_all", "folded_rows", "merged", "parted", "rows_batch", "unfolded_rows"]


def folded_rows(tensor: Any) -> Any:
    """Return (batch, rows, …) as (batch · rows, …)."""
    return ops.reshape(tensor, (tensor.shape[0] * tensor.shape[1], *tensor.shape[2:]))


def unfolded_rows(tensor: Any, size: int, rows: int) -> Any:
    """Return (batch · rows, …) as (batch, rows, …)."""
    return ops.reshape(tensor, (size, rows, *tensor.shape[1:]))


def merged(tensor: Any, dim: int, groups: int = 1) -> Any:
    """Fold the batch into dimension ``dim`` of the examples: within each group, all examples follow one another."""
    size, shape = tensor.shape[0], tensor.shape[1:]
    before, width, after = shape[:dim], shape[dim], shape[dim + 1 :]
    split = ops.reshape(tensor, (size, *before, groups, width // groups, *after))
    return ops.reshape(ops.movedim(split, 0, dim + 1), (*before, size * width, *after))


def parted(tensor: Any, dim: int, size: int, groups: int = 1) -> Any:
    """Take the batch out of dimension ``dim`` again, where :func:`merged` has put it."""
    before, width, after = tensor.shape[:dim], tensor.shape[dim] // size, tensor.shape[dim + 1 :]
    split = ops.reshape(tensor, (*before, groups, size, width // groups, *after))
    return ops.reshape(ops.movedim(split, dim + 1, 0), (size, *before, width, *after))


def fold_all(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Run an operator all of whose tensors, and whose results, have rows."""
    given = in_front(op, values, batched, size)
    rows = given[op.signature.inputs[0]].shape[1]
    for i in op.signature.inputs:
        if isinstance(given[i], Tensor):
            given[i] = folded_rows(given[i])
        elif isinstance(given[i], tuple):
            given[i] = tuple(folded_rows(t) for t in given[i])
    found = execute(op, given)
    return unfolded_rows(found, size, rows) if op.single else tuple(unfolded_rows(t, size, rows) for t in found)


def rows_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Run an operator whose ``input`` has rows or is a single one, which has no dimension for them."""
    at = op.signature.index["input"]
    if values[at].ndim - bool(batched[at]) == 1:
        return execute(op, in_front(op, values, batched, size))
    return fold_all(op, values, batched, size)

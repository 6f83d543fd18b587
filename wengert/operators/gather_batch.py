"""How operators that gather and scatter along a dimension run on a batch."""

from typing import Any

from wengert.core.batch import aligned, in_front, run_in_front
from wengert.core.registry import ops
from wengert.core.tensor import Tensor

__all__ = ["along_batch"]


def along_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Run gather or a scatter: a dimension in front changes nothing, but an index of no elements may have any shape.

    A number counts as a vector of one element: where another tensor is a vector, it becomes one.
    """
    given = in_front(op, values, batched, size)
    places = op.signature.index
    input, index = given[0], given[places["index"]]
    shape = tuple(input.shape if "src" in places else index.shape)
    if index.ndim != input.ndim and 0 in index.shape[1:]:
        return ops.clone(input) if "src" in places else ops.zeros(shape, dtype=input.dtype)
    src = given[places["src"]] if "src" in places else None
    if isinstance(src, Tensor) and src.ndim == 1 < index.ndim:  # one number for each example
        given[places["src"]] = ops.expand(aligned(src, index.ndim - 1), tuple(index.shape))
    if index.ndim != input.ndim:
        for i in op.signature.inputs:
            given[i] = aligned(given[i], 1) if isinstance(given[i], Tensor) else given[i]
    found = run_in_front(op, given, size)
    return found if tuple(found.shape) == shape else ops.reshape(found, shape)

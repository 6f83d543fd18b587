"""How operators that gather and scatter along a dimension run on a batch."""

from typing import Any

from wengert.core.batch import aligned, in_front, run_in_front
from wengert.core.registry import ops
from wengert.core.tensor import Tensor

__all__ = ["along_batch"]


def along_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Run gather or a scatter: a dimension in front changes nothing, but an index of no elements may have any shape."""
    given = in_front(op, values, batched, size)
    places = op.signature.index
    input, index = given[0], given[places["index"]]
    if index.ndim != input.ndim and 0 in index.shape[1:]:
        return ops.clone(input) if "src" in places else ops.zeros(tuple(index.shape), dtype=input.dtype)
    if "src" in places:
        src = given[places["src"]]
        if isinstance(src, Tensor) and src.ndim == 1 < index.ndim:  # one number for each example
            given[places["src"]] = ops.expand(aligned(src, index.ndim - 1), tuple(index.shape))
    return run_in_front(op, given, size)

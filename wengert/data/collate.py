"""Putting samples together: numbers and arrays become tensors, containers are gone through."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import float64
from wengert.core.registry import ops
from wengert.core.tensor import Tensor

__all__ = ["default_collate", "default_convert"]


def default_collate(batch: Sequence[Any]) -> Any:
    """Return a list of samples as one batch.

    Tensors and NumPy arrays are stacked; Python and NumPy numbers become a tensor; strings and bytes stay a list;
    dictionaries, named tuples and other sequences are collated entry by entry (a plain tuple gives a list).

    Raises:
        TypeError: for a sample of another kind. RuntimeError: for samples of different lengths.

    Example:
        >>> import wengert as wg
        >>> wg.utils.data.default_collate([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}])
        {'x': tensor([1, 2]), 'y': ['a', 'b']}
    """
    if not isinstance(batch, Sequence) or isinstance(batch, str | bytes) or not batch:
        raise TypeError(f"default_collate() takes the samples of a batch in a list, got {batch!r}")
    first = batch[0]
    if isinstance(first, Tensor):
        return ops.stack(list(batch))
    if isinstance(first, np.ndarray):
        if first.dtype.kind in "SUO":
            raise TypeError(f"cannot collate arrays of dtype {first.dtype}; give the loader a collate_fn")
        return ops.stack([ops.as_tensor(array) for array in batch])
    if isinstance(first, np.generic):
        return ops.as_tensor(np.array(batch))
    if isinstance(first, bool | int):
        return ops.tensor(list(batch))
    if isinstance(first, float):
        return ops.tensor(list(batch), dtype=float64)
    if isinstance(first, complex):
        return ops.tensor(list(batch))
    if isinstance(first, str | bytes):
        return list(batch)
    if isinstance(first, Mapping):
        return _rebuilt(first, {key: default_collate([sample[key] for sample in batch]) for key in first})
    if isinstance(first, Sequence):
        return _collate_sequences(first, batch)
    raise TypeError(
        f"cannot collate samples of type {type(first).__name__}: expected tensors, NumPy arrays, numbers, strings, "
        "dictionaries or sequences of them; give the loader a collate_fn"
    )


def _collate_sequences(first: Sequence[Any], batch: Sequence[Any]) -> Any:
    if not all(isinstance(sample, Sequence) for sample in batch):
        raise TypeError(
            f"the samples of one batch must be of one kind, got {sorted({type(s).__name__ for s in batch})}"
        )
    if len({len(sample) for sample in batch}) != 1:
        raise RuntimeError(f"samples of one batch must have equal lengths, got {[len(sample) for sample in batch]}")
    columns = [default_collate(column) for column in zip(*batch, strict=True)]
    if type(first) is tuple:
        return columns
    return _rebuilt(first, columns)


def default_convert(data: Any) -> Any:
    """Return a sample with NumPy arrays turned into tensors and everything else as it is.

    Example:
        >>> import numpy as np
        >>> import wengert as wg
        >>> wg.utils.data.default_convert([np.array(1.0), "a"])
        [tensor(1., dtype=wengert.float64), 'a']
    """
    if isinstance(data, np.ndarray | np.generic):
        return data if data.dtype.kind in "SUO" else ops.as_tensor(np.asarray(data))
    if isinstance(data, Mapping):
        return _rebuilt(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        converted = [default_convert(value) for value in data]
        return converted if type(data) is tuple else _rebuilt(data, converted)
    return data


def _rebuilt(like: Any, values: Any) -> Any:
    """``values`` in a container like ``like``; a plain one where its type cannot be made from them."""
    if hasattr(like, "_fields"):
        return type(like)(*values)
    try:
        return type(like)(values)
    except TypeError:
        return values

"""Sequences of different lengths: padded to one tensor, or packed, all elements of a time step side by side.

Packed sequences are sorted, the longest first; ``batch_sizes[t]`` is how many of them have a step t. Recurrent layers
take and return them, and compute nothing for padding.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from wengert.array.dtype import (
    DType,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from wengert.core.registry import ops
from wengert.core.tensor import Tensor

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence",
    "pad_sequence", "unpack_sequence", "unpad_sequence",
]  # fmt: skip


class _Fields(NamedTuple):
    data: Any
    batch_sizes: Any
    sorted_indices: Any
    unsorted_indices: Any


class PackedSequence(_Fields):
    """Several sequences as one tensor without padding; made by :func:`pack_sequence` and :func:`pack_padded_sequence`.

    Attributes:
        data: (elements, …), step by step. batch_sizes: how many sequences have each step, int64.
        sorted_indices: which of the given sequences is the k-th longest; None if they were given sorted.
        unsorted_indices: the inverse of ``sorted_indices``.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils.rnn import pack_sequence
        >>> packed = pack_sequence([wg.tensor([1, 2]), wg.tensor([3, 4, 5])], enforce_sorted=False)
        >>> packed.data.tolist(), packed.batch_sizes.tolist(), packed.sorted_indices.tolist()
        ([3, 1, 4, 2, 5], [2, 2, 1], [1, 0])
    """

    __slots__ = ()

    def __new__(
        cls, data: Any, batch_sizes: Any = None, sorted_indices: Any = None, unsorted_indices: Any = None
    ) -> Self:
        """Take the parts; without ``batch_sizes``, ``data`` is the pair (data, batch_sizes)."""
        if batch_sizes is None:
            if not (isinstance(data, list | tuple) and len(data) == 2):
                raise TypeError(f"PackedSequence() takes data and batch_sizes, or a pair of them, got {data!r}")
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data: Any) -> Self:
        if data is self.data:
            return self
        moved = [None if i is None else i.to(data.device) for i in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *moved)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Cast or move ``data``, as ``Tensor.to``; itself if nothing changes."""
        return self._with(self.data.to(*args, **kwargs))

    def _cast(self, dtype: DType) -> Self:
        return self.to(dtype=dtype)

    def double(self) -> Self:
        """Cast to float64."""
        return self._cast(float64)

    def float(self) -> Self:
        """Cast to float32."""
        return self._cast(float32)

    def half(self) -> Self:
        """Cast to float16."""
        return self._cast(float16)

    def long(self) -> Self:
        """Cast to int64."""
        return self._cast(int64)

    def int(self) -> Self:
        """Cast to int32."""
        return self._cast(int32)

    def short(self) -> Self:
        """Cast to int16."""
        return self._cast(int16)

    def char(self) -> Self:
        """Cast to int8."""
        return self._cast(int8)

    def byte(self) -> Self:
        """Cast to uint8."""
        return self._cast(uint8)

    def cpu(self) -> Self:
        """Move to the CPU."""
        return self.to(device="cpu")

    def cuda(self, *args: Any, **kwargs: Any) -> Self:
        """Move to a CUDA device; an error names what is missing where there is none."""
        return self._with(self.data.cuda(*args, **kwargs))

    @property
    def is_cuda(self) -> bool:
        """Whether ``data`` is on a CUDA device."""
        return bool(self.data.is_cuda)


def invert_permutation(permutation: Any) -> Any:
    """Return the inverse of a permutation, a vector of the numbers 0 to n - 1; None of None.

    Example:
        >>> import wengert as wg
        >>> wg.nn.utils.rnn.invert_permutation(wg.tensor([2, 0, 1]))
        tensor([1, 2, 0])
    """
    return None if permutation is None else ops.argsort(permutation)


def _listed(lengths: Any) -> list[int]:
    values = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    if not isinstance(values, Sequence):
        raise TypeError(f"lengths must be a sequence of ints or a vector, got {lengths!r}")
    return [int(value) for value in values]


def _longest_first(input: Any, lengths: Any, batch_first: bool) -> tuple[Any, list[int], Any]:
    """Return sequences, lengths and the order in which they are, as they are packed."""
    given = ops.as_tensor(lengths, dtype=int64)
    _, order = ops.sort(given, descending=True, stable=True)
    listed = _listed(given)
    return ops.index_select(input, 0 if batch_first else 1, order), [listed[k] for k in order.tolist()], order


def pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack padded sequences.

    Args:
        input: (T, N, …), or (N, T, …) if ``batch_first``. lengths: of each sequence, ints or a vector.
        enforce_sorted: refuse sequences that do not come longest first; otherwise they are sorted here.

    Raises:
        RuntimeError: for lengths that are not positive, longer than T, not one per sequence or (if
            ``enforce_sorted``) not sorted.

    Example:
        >>> import wengert as wg
        >>> padded = wg.tensor([[1, 2, 0], [3, 0, 0], [4, 5, 6]])
        >>> packed = wg.nn.utils.rnn.pack_padded_sequence(padded, [2, 1, 3], batch_first=True, enforce_sorted=False)
        >>> packed.data.tolist()
        [4, 1, 3, 5, 2, 6]
    """
    if input.ndim < 2:
        raise RuntimeError(f"pack_padded_sequence() takes (T, N, …) or (N, T, …), got shape {tuple(input.shape)}")
    steps, count = (input.shape[1], input.shape[0]) if batch_first else tuple(input.shape[:2])
    padded, listed, order = input, _listed(lengths), None
    if len(listed) != count:
        raise RuntimeError(f"pack_padded_sequence() got {count} sequences and {len(listed)} lengths")
    if not listed or min(listed) <= 0:
        raise RuntimeError(f"every length must be greater than 0, got {listed}; leave empty sequences out")
    if max(listed) > steps:
        raise RuntimeError(f"a sequence of length {max(listed)} does not fit into {steps} steps")
    if not enforce_sorted:
        padded, listed, order = _longest_first(input, lengths, batch_first)
    elif listed != sorted(listed, reverse=True):
        raise RuntimeError(
            f"lengths must be sorted, the longest first, got {listed}; pass enforce_sorted=False to have them sorted"
        )
    step, which = np.nonzero(np.arange(steps)[:, None] < np.array(listed))  # step by step, the longest first
    flat = ops.reshape(padded, (steps * count, *input.shape[2:]))
    rows = which * steps + step if batch_first else step * count + which
    sizes = np.bincount(step).astype(np.int64)
    return PackedSequence(ops.index_select(flat, 0, ops.from_numpy(rows)), ops.from_numpy(sizes), order, None)


def _placed(data: Any, rows: Any, padding_value: float) -> Any:
    """Return the rows of ``data`` at the places ``rows``, an array of indices; -1 stands for padding."""
    padding = ops.full((1, *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device)
    rows = np.where(rows < 0, data.shape[0], rows)
    found = ops.index_select(ops.cat((data, padding)), 0, ops.from_numpy(rows.reshape(-1)))
    return ops.reshape(found, (*rows.shape, *data.shape[1:]))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Any, Any]:
    """Return packed sequences padded, in the order in which they were given, and their lengths.

    Args:
        batch_first: return (N, T, …) instead of (T, N, …). padding_value: what fills the rest.
        total_length: T; the length of the longest sequence by default.

    Raises:
        ValueError: if ``total_length`` is less than the longest sequence.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils.rnn import pack_sequence, pad_packed_sequence
        >>> pad_packed_sequence(pack_sequence([wg.tensor([1, 2]), wg.tensor([3])]), batch_first=True)
        (tensor([[1, 2],
                [3, 0]]), tensor([2, 1]))
    """
    sizes = _listed(sequence.batch_sizes)
    steps = len(sizes) if total_length is None else total_length
    if steps < len(sizes):
        raise ValueError(f"total_length is {total_length}, but the longest sequence has {len(sizes)} steps")
    rows = np.full((steps, sizes[0]), -1, dtype=np.int64)
    starts = np.cumsum([0, *sizes[:-1]])
    for step, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        rows[step, :size] = np.arange(start, start + size)
    lengths = (rows >= 0).sum(0)
    if sequence.unsorted_indices is not None:
        places = sequence.unsorted_indices.tolist()
        rows, lengths = rows[:, places], lengths[places]
    return _placed(sequence.data, rows.T if batch_first else rows, padding_value), ops.from_numpy(lengths)


def _checked(sequences: Any, name: str) -> list[Any]:
    if not isinstance(sequences, Iterable):
        raise RuntimeError(f"{name}() takes a list of tensors, got {type(sequences).__name__}")
    found = list(sequences)
    if not found:
        raise RuntimeError(f"{name}() got no sequences")
    if not all(isinstance(s, Tensor) and s.ndim for s in found):
        raise RuntimeError(f"{name}() takes tensors with a first dimension, the time")
    if any(s.shape[1:] != found[0].shape[1:] for s in found):
        shapes = ", ".join(str(tuple(s.shape)) for s in found)
        raise RuntimeError(f"{name}() takes sequences whose shapes differ only in the first dimension, got {shapes}")
    return found


def pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Any:
    """Return sequences of shapes (L, …) as one tensor (T, N, …), T the greatest L; (N, T, …) if ``batch_first``.

    Args:
        padding_value: what fills the rest. padding_side: ``"right"`` or ``"left"``, where the rest is.

    Raises:
        RuntimeError: if there are no sequences, or their other dimensions differ. ValueError: for another side.

    Example:
        >>> import wengert as wg
        >>> wg.nn.utils.rnn.pad_sequence([wg.tensor([1, 2]), wg.tensor([3])], batch_first=True)
        tensor([[1, 2],
                [3, 0]])
    """
    found = _checked(sequences, "pad_sequence")
    if padding_side not in ("left", "right"):
        raise ValueError(f"padding_side must be 'left' or 'right', got {padding_side!r}")
    lengths = [s.shape[0] for s in found]
    rows, start = np.full((len(found), max(lengths)), -1, dtype=np.int64), 0
    for row, length in zip(rows, lengths, strict=True):
        part = row[:length] if padding_side == "right" else row[len(row) - length :]
        part[:] = np.arange(start, start + length)
        start += length
    return _placed(ops.cat(found), rows if batch_first else rows.T, padding_value)


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Any]:
    """Return the sequences that :func:`pad_sequence` padded, as views; ``lengths`` says how much of each is real.

    Example:
        >>> import wengert as wg
        >>> wg.nn.utils.rnn.unpad_sequence(wg.tensor([[1, 3], [2, 0]]), wg.tensor([2, 1]))
        [tensor([1, 2]), tensor([3])]
    """
    padded = padded_sequences if batch_first else ops.transpose(padded_sequences, 0, 1)
    listed = _listed(lengths)
    if len(listed) != padded.shape[0]:
        raise ValueError(f"unpad_sequence() got {padded.shape[0]} sequences and {len(listed)} lengths")
    return [sequence[:length] for sequence, length in zip(ops.unbind(padded, 0), listed, strict=True)]


def pack_sequence(sequences: Any, enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of shapes (L, …); arguments and errors as :func:`pack_padded_sequence`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.utils.rnn.pack_sequence([wg.tensor([1, 2]), wg.tensor([3])]).data
        tensor([1, 3, 2])
    """
    found = _checked(sequences, "pack_sequence")
    return pack_padded_sequence(pad_sequence(found), [s.shape[0] for s in found], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """Return the sequences that :func:`pack_sequence` packed, in the order in which they were given.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils.rnn import pack_sequence, unpack_sequence
        >>> unpack_sequence(pack_sequence([wg.tensor([3]), wg.tensor([1, 2])], enforce_sorted=False))
        [tensor([3]), tensor([1, 2])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)

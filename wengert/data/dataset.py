"""Datasets: where samples come from, by index or as a stream."""

import bisect
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, Generic, TypeVar

from wengert.core.registry import ops
from wengert.core.tensor import Tensor

__all__ = [
    "ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset",
    "random_split",
]  # fmt: skip

Sample = TypeVar("Sample", covariant=True)


class Dataset(Generic[Sample]):
    """Samples by index: a subclass defines ``__getitem__`` and ``__len__``.

    A subclass may also define ``gather(indices)``, which returns the batch of several samples at once, collated as
    :func:`default_collate` would do it; the loader then prefers it. (A subclass that changes ``__getitem__`` alone
    is again asked for single samples.)

    Example:
        >>> import wengert as wg
        >>> class Squares(wg.utils.data.Dataset):
        ...     def __len__(self):
        ...         return 3
        ...     def __getitem__(self, i):
        ...         return i * i
        >>> [batch.tolist() for batch in wg.utils.data.DataLoader(Squares(), batch_size=2)]
        [[0, 1], [4]]
    """

    def __getitem__(self, index: Any) -> Sample:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __add__(self, other: "Dataset[Any]") -> "ConcatDataset":
        return ConcatDataset([self, other])


class IterableDataset(Dataset[Sample]):
    """Samples as a stream: a subclass defines ``__iter__``.

    With several workers each iterates on its own; ``get_worker_info()`` tells it which part is its.

    Example:
        >>> import wengert as wg
        >>> class Count(wg.utils.data.IterableDataset):
        ...     def __iter__(self):
        ...         return iter(range(3))
        >>> [batch.tolist() for batch in wg.utils.data.DataLoader(Count(), batch_size=2)]
        [[0, 1], [2]]
    """

    def __iter__(self) -> Iterator[Sample]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")

    def __add__(self, other: Dataset[Any]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """The rows of one or more tensors: sample i is ``(t[i] for t in tensors)``.

    Raises:
        ValueError: if the tensors have different first sizes, or there are none.

    Example:
        >>> import wengert as wg
        >>> data = wg.utils.data.TensorDataset(wg.tensor([[1.0], [2.0]]), wg.tensor([0, 1]))
        >>> data[1]
        (tensor([2.]), tensor(1))
    """

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors:
            raise ValueError("TensorDataset needs at least one tensor")
        for tensor in tensors:
            if not getattr(tensor, "shape", None):
                raise TypeError(f"TensorDataset takes tensors of at least one dimension, got {tensor!r}")
        if len({tensor.shape[0] for tensor in tensors}) != 1:
            raise ValueError(
                f"the tensors of a TensorDataset differ in their first size: {[tuple(t.shape) for t in tensors]}"
            )
        self.tensors: tuple[Any, ...] = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])

    def gather(self, indices: Sequence[int]) -> list[Tensor]:
        """Return a batch of rows, one index operation per tensor."""
        index = ops.tensor(indices)
        return [tensor[index] for tensor in self.tensors]


class StackDataset(Dataset[Any]):
    """Samples of several datasets side by side, as tuples or (given keywords) as dictionaries.

    Raises:
        ValueError: if the datasets have different lengths, or both kinds of arguments are given, or none.

    Example:
        >>> import wengert as wg
        >>> wg.utils.data.StackDataset(x=[1, 2], y=["a", "b"])[1]
        {'x': 2, 'y': 'b'}
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset takes datasets either by position or by keyword")
        self.datasets: Any = kwargs or args
        lengths = {len(dataset) for dataset in self._values()}
        if len(lengths) != 1:
            raise ValueError(f"the datasets of a StackDataset differ in length: {sorted(lengths)}")
        self._length = lengths.pop()

    def _values(self) -> Iterable[Any]:
        return self.datasets.values() if isinstance(self.datasets, Mapping) else self.datasets

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, Mapping):
            return {key: dataset[index] for key, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[Any]):
    """Several datasets one after the other; ``a + b`` makes one.

    Raises:
        ValueError: for no dataset. TypeError: for an IterableDataset, which has no indices.

    Example:
        >>> import wengert as wg
        >>> both = wg.utils.data.ConcatDataset([[1, 2], [3]])
        >>> len(both), both[2], both[-1]
        (3, 3, 3)
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        if not isinstance(datasets, Iterable):
            raise TypeError(f"ConcatDataset takes datasets in a list, got {datasets!r}")
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset needs at least one dataset")
        for dataset in self.datasets:
            if isinstance(dataset, IterableDataset):
                raise TypeError("ConcatDataset cannot hold an IterableDataset; use ChainDataset")
            if not hasattr(dataset, "__len__"):
                raise TypeError(f"ConcatDataset needs datasets with a length, got {dataset!r}")
        self.cumulative_sizes = list(accumulate(len(dataset) for dataset in self.datasets))

    def __getitem__(self, index: int) -> Any:
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"index {index} is out of range: the datasets have {len(self)} samples")
        which = bisect.bisect_right(self.cumulative_sizes, position)
        return self.datasets[which][position - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[Any]):
    """Several streams one after the other.

    Example:
        >>> import wengert as wg
        >>> list(wg.utils.data.ChainDataset([range(2), range(1)]))
        [0, 1, 0]
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.datasets)

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets)


class Subset(Dataset[Sample]):
    """Some samples of a dataset, given by their indices.

    Example:
        >>> import wengert as wg
        >>> wg.utils.data.Subset(["a", "b", "c"], [2, 0])[0]
        'c'
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[float], generator: Any = None) -> list[Subset[Any]]:
    """Split a dataset at random into parts of given lengths, or given shares that sum to 1.

    What shares leave over by rounding goes to the first parts, one sample each.

    Raises:
        ValueError: if the lengths do not sum to the length of the dataset, or the shares to 1.

    Example:
        >>> import wengert as wg
        >>> parts = wg.utils.data.random_split(range(10), [0.7, 0.3], wg.Generator().manual_seed(0))
        >>> [len(part) for part in parts]
        [7, 3]
    """
    if not hasattr(dataset, "__len__"):
        raise TypeError(f"random_split() takes a dataset with a length, got {dataset!r}")
    if not isinstance(lengths, Sequence) or not all(isinstance(n, int | float) for n in lengths):
        raise TypeError(f"random_split() takes lengths or shares in a list, got {lengths!r}")
    total = len(dataset)
    if math.isclose(sum(lengths), 1):
        for share in lengths:
            if not 0 <= share <= 1:
                raise ValueError(f"a share must lie between 0 and 1, got {share}")
        sizes = [math.floor(total * share) for share in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
        if 0 in sizes:
            warnings.warn(f"a part of the split is empty: {total} samples were split into {sizes}", stacklevel=2)
    elif all(float(length).is_integer() for length in lengths):
        sizes = [int(length) for length in lengths]
    else:
        raise ValueError(
            f"random_split() takes whole lengths, or shares that sum to 1; {lengths} sum to {sum(lengths):g}"
        )
    if sum(sizes) != total:
        raise ValueError(f"the lengths sum to {sum(sizes)}, the dataset has {total} samples")
    order = ops.randperm(total, generator=generator).tolist()
    ends = list(accumulate(sizes))
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]

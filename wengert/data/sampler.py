"""Samplers: in which order samples are taken, and how they are put into batches."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from wengert.array.dtype import float64
from wengert.core.registry import ops
from wengert.core.tensor import Tensor

__all__ = [
    "BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler",
]  # fmt: skip

Item = TypeVar("Item", covariant=True)


def check_positive(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a positive int."""
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError(f"{name} must be a positive int, got {value!r}")


def check_bool(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a bool."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be a bool, got {value!r}")


class Sampler(Generic[Item]):
    """Gives the indices of an epoch, each time it is iterated: a subclass defines ``__iter__`` and ``__len__``.

    Example:
        >>> import wengert as wg
        >>> class Backwards(wg.utils.data.Sampler):
        ...     def __iter__(self):
        ...         return iter([2, 1, 0])
        >>> loader = wg.utils.data.DataLoader(range(3), batch_size=3, sampler=Backwards())
        >>> next(iter(loader)).tolist()
        [2, 1, 0]
    """

    def __iter__(self) -> Iterator[Item]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")


class SequentialSampler(Sampler[int]):
    """All indices in order.

    Example:
        >>> import wengert as wg
        >>> list(wg.utils.data.SequentialSampler("abc"))
        [0, 1, 2]
    """

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices in random order.

    Args:
        replacement: draw each index anew, so that some come more than once.
        num_samples: how many (default: as many as there are samples); beyond that the order starts anew.
        generator: where the random numbers come from (default: the global generator).

    Raises:
        ValueError: if ``replacement`` is no bool or ``num_samples`` no positive int.

    Example:
        >>> import wengert as wg
        >>> order = wg.utils.data.RandomSampler("abc", generator=wg.Generator().manual_seed(0))
        >>> sorted(order)
        [0, 1, 2]
    """

    def __init__(
        self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: Any = None
    ) -> None:
        check_bool("replacement", replacement)
        if num_samples is not None:
            check_positive("num_samples", num_samples)
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator

    @property
    def num_samples(self) -> int:
        """How many indices an epoch has."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        total = len(self.data_source)
        if self.replacement:
            yield from ops.randint(0, total, (self.num_samples,), generator=self.generator).tolist()
            return
        left = self.num_samples
        while left > 0:
            yield from ops.randperm(total, generator=self.generator)[:left].tolist()
            left -= total

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order.

    Example:
        >>> import wengert as wg
        >>> sorted(wg.utils.data.SubsetRandomSampler([5, 3]))
        [3, 5]
    """

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in ops.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with probabilities proportional to ``weights``.

    Args:
        weights: one non-negative number per sample. num_samples: how many to draw.
        replacement: whether an index can be drawn again. generator: as :class:`RandomSampler`.

    Raises:
        ValueError: for weights of more than one dimension, a number of samples that is not positive, or a
            ``replacement`` that is no bool.

    Example:
        >>> import wengert as wg
        >>> list(wg.utils.data.WeightedRandomSampler([0.0, 1.0], num_samples=3))
        [1, 1, 1]
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None
    ) -> None:
        check_positive("num_samples", num_samples)
        check_bool("replacement", replacement)
        self.weights: Tensor = ops.as_tensor(weights, dtype=float64)
        if self.weights.ndim != 1:
            raise ValueError(f"weights must be a sequence of numbers, got shape {tuple(self.weights.shape)}")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = ops.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Puts the indices of another sampler into lists of ``batch_size``.

    Args:
        drop_last: leave out a last list that is shorter.

    Raises:
        ValueError: for a batch size that is no positive int, or a ``drop_last`` that is no bool.

    Example:
        >>> import wengert as wg
        >>> list(wg.utils.data.BatchSampler(range(5), batch_size=2, drop_last=False))
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        check_positive("batch_size", batch_size)
        check_bool("drop_last", drop_last)
        self.sampler: Iterable[int] = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

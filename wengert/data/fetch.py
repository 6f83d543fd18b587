"""How one batch is made from what the sampler asks for."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from wengert.data.collate import default_collate
from wengert.data.dataset import Subset
from wengert.data.workers import END

__all__ = ["IndexFetcher", "StreamFetcher"]

Gather = Callable[[Sequence[int]], Any]


class IndexFetcher:
    """Makes a batch of the samples at given indices (or one sample, where batches are not wanted)."""

    def __init__(self, dataset: Any, batched: bool, collate: Callable[[Any], Any]) -> None:
        self.dataset, self.batched, self.collate = dataset, batched, collate
        self.gather = _gather(dataset) if collate is default_collate else None

    def __call__(self, request: Any) -> Any:
        """Return the batch."""
        if not self.batched:
            return self.collate(self.dataset[request])
        if self.gather is not None:
            return self.gather(request)
        several = getattr(self.dataset, "__getitems__", None)
        samples = [self.dataset[i] for i in request] if several is None else several(request)
        return self.collate(samples)


def _gather(dataset: Any) -> Gather | None:
    """The dataset's way to make a whole batch; None if it has none, or a subclass changed what single samples are."""
    for cls in type(dataset).__mro__:
        if cls is Subset:
            return _gather_subset(dataset)
        if "gather" in vars(cls):
            found: Gather = dataset.gather
            return found
        if "__getitem__" in vars(cls):
            return None
    return None


def _gather_subset(subset: Any) -> Gather | None:
    whole, indices = _gather(subset.dataset), subset.indices
    return None if whole is None else lambda request: whole([indices[i] for i in request])


class StreamFetcher:
    """Makes a batch of the next samples of a stream; the end of the stream is ``END``."""

    def __init__(self, dataset: Any, batch_size: int | None, drop_last: bool, collate: Callable[[Any], Any]) -> None:
        self.dataset, self.batch_size, self.drop_last, self.collate = dataset, batch_size, drop_last, collate
        self.samples: Iterator[Any] | None = None

    def __call__(self, request: None) -> Any:
        """Return the batch, or END."""
        if self.samples is None:
            self.samples = iter(self.dataset)
        if self.batch_size is None:
            sample = next(self.samples, END)
            return END if sample is END else self.collate(sample)
        batch = list(islice(self.samples, self.batch_size))
        if not batch or (self.drop_last and len(batch) < self.batch_size):
            return END
        return self.collate(batch)

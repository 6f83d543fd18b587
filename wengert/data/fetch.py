"""How one batch is made from what the sampler asks for."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from wengert.data.collate import default_collate
from wengert.data.dataset import Dataset, Subset
from wengert.data.workers import END

__all__ = ["IndexFetcher", "StreamFetcher"]

Gather = Callable[[Sequence[int]], Any]


class IndexFetcher:
    """Makes a batch of the samples at given indices (or one sample, where batches are not wanted)."""

    def __init__(self, dataset: Any, batched: bool, collate: Callable[[Any], Any]) -> None:
        self.dataset, self.batched, self.collate = dataset, batched, collate
        self.gather = _gather(dataset) if collate is default_collate else None

    def __call__(self, request: Any) -> Any:
        """Return the batch. What the dataset raises comes with a note that names the sample."""
        if not self.batched:
            return self.collate(self._sample(request))
        try:
            if self.gather is not None:
                return self.gather(request)
            several = getattr(self.dataset, "__getitems__", None)
            return self.collate([self._sample(i) for i in request] if several is None else several(request))
        except Exception as error:
            if not getattr(error, "__notes__", ()):
                error.add_note(f"making a batch of the samples {request} of {type(self.dataset).__name__}")
            raise

    def _sample(self, index: Any) -> Any:
        try:
            return self.dataset[index]
        except StopIteration as error:  # would end the loop over the loader, or be taken for an error of it
            raise RuntimeError(f"sample {index} of {type(self.dataset).__name__} raised StopIteration") from error
        except Exception as error:
            error.add_note(f"making sample {index} of {type(self.dataset).__name__}")
            raise


def _gather(dataset: Any) -> Gather | None:
    """The dataset's way to make a whole batch; None if it has none, or a subclass changed what single samples are.

    Only a Dataset has one: ``gather`` of anything else, such as a tensor, is another thing.
    """
    for cls in type(dataset).__mro__ if isinstance(dataset, Dataset) else ():
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
        self.taken = 0

    def __call__(self, request: None) -> Any:
        """Return the batch, or END. What the stream raises comes with a note that says how far it was."""
        try:
            samples = self._next()
            if not samples or (self.drop_last and len(samples) < (self.batch_size or 1)):
                return END
            return self.collate(samples[0] if self.batch_size is None else samples)
        except Exception as error:
            error.add_note(f"after sample {self.taken - 1} of the stream {type(self.dataset).__name__}")
            raise

    def _next(self) -> list[Any]:
        """The samples of the next batch."""
        if self.samples is None:
            self.samples = iter(self.dataset)
        batch: list[Any] = []
        for sample in islice(self.samples, self.batch_size or 1):
            batch.append(sample)
            self.taken += 1
        return batch

"""The loader: batches of a dataset, made here or ahead of time by worker threads."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from wengert.core.registry import ops
from wengert.data.collate import default_collate, default_convert
from wengert.data.dataset import IterableDataset
from wengert.data.fetch import IndexFetcher, StreamFetcher
from wengert.data.sampler import BatchSampler, RandomSampler, SequentialSampler, check_positive
from wengert.data.workers import END, Epoch, Workers

__all__ = ["DataLoader"]


class DataLoader:
    """Iterates over a dataset in batches; each ``for`` loop over it is one epoch.

    The order depends on the sampler and the generator alone, never on the workers. Workers are threads: they share
    the dataset's memory, and run in parallel where the work releases the interpreter lock (NumPy, reading files).

    Args:
        dataset: anything with ``__getitem__`` and ``__len__``, or an :class:`IterableDataset`.
        batch_size: samples per batch; None gives single samples. drop_last: leave out a last, smaller batch.
        shuffle: take the samples in random order. sampler: the order, instead.
        batch_sampler: gives lists of indices, instead of all the above.
        collate_fn: makes a batch of a list of samples (default: :func:`default_collate`).
        generator: for the random order and for the seeds of workers (default: the global generator).
        num_workers: how many threads prepare batches ahead; 0 prepares each when it is asked for.
        prefetch_factor: batches prepared ahead per worker (default 2).
        timeout: seconds to wait for a worker's batch; 0 waits for ever.
        worker_init_fn: called with the worker's number in each worker when it starts.
        persistent_workers: keep the workers from epoch to epoch.
        in_order: accepted for PyTorch's sake; batches always come in order.
        pin_memory: warns: there is no device memory to copy to.

    Raises:
        ValueError: for options that exclude each other or are out of range.

    Example:
        >>> import wengert as wg
        >>> data = wg.utils.data.TensorDataset(wg.arange(5.0))
        >>> [x.tolist() for x, in wg.utils.data.DataLoader(data, batch_size=2)]
        [[0.0, 1.0], [2.0, 3.0], [4.0]]
    """

    def __init__(
        self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None, sampler: Any = None,
        batch_sampler: Any = None, num_workers: int = 0, collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None, multiprocessing_context: Any = None, generator: Any = None,
        *, prefetch_factor: int | None = None, persistent_workers: bool = False, in_order: bool = True,
    ) -> None:  # fmt: skip
        _check_workers(num_workers, prefetch_factor, persistent_workers, timeout, multiprocessing_context)
        if pin_memory:
            warnings.warn("pin_memory=True has no effect: there is no device memory to copy to", stacklevel=2)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.persistent_workers = persistent_workers
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.generator = generator
        self.in_order = in_order
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable:
            if shuffle or sampler is not None or batch_sampler is not None:
                raise ValueError(
                    "an IterableDataset gives its own order: shuffle, sampler and batch_sampler must be left out"
                )
        elif sampler is not None and shuffle:
            raise ValueError("sampler and shuffle=True exclude each other")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None gives single samples, which drop_last does not fit")
        if not self._iterable and sampler is None and batch_sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None:
            check_positive("batch_size", batch_size)
            batch_sampler = None if self._iterable else BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        batched = batch_size is not None or batch_sampler is not None
        self.collate_fn: Callable[[Any], Any] = collate_fn or (default_collate if batched else default_convert)
        self._batched = batched
        self._workers: Workers | None = None

    def __len__(self) -> int:
        if not self._iterable:
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)
        total = len(self.dataset)
        if self.batch_size is None:
            return total
        return total // self.batch_size if self.drop_last else -(-total // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        seed = int(ops.randint(0, 2**62, (), generator=self.generator).item())
        return self._ahead(seed) if self.num_workers else self._here()

    def _fetcher(self) -> Callable[[Any], Any]:
        if self._iterable:
            return StreamFetcher(self.dataset, self.batch_size, self.drop_last, self.collate_fn)
        return IndexFetcher(self.dataset, self._batched, self.collate_fn)

    def _requests(self) -> Iterable[Any]:
        """What the fetcher is asked for: indices, or None again and again for a stream."""
        if self._iterable:
            return iter(lambda: None, END)
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _here(self) -> Iterator[Any]:
        fetch = self._fetcher()
        for request in self._requests():
            batch = fetch(request)
            if batch is END:
                return
            yield batch

    def _ahead(self, seed: int) -> Iterator[Any]:
        """Let workers prepare batches while the caller uses those before."""
        workers = self._workers or Workers(self.num_workers, self.dataset, self.worker_init_fn)
        if self.persistent_workers:
            self._workers = workers
        assert self.prefetch_factor is not None
        fetchers = [self._fetcher() for _ in range(self.num_workers)]
        epoch = Epoch(workers, fetchers, iter(self._requests()), seed, self.prefetch_factor * self.num_workers)
        try:
            while (batch := epoch.take(self.timeout or None)) is not END:
                yield batch
        finally:
            epoch.cancel()
            if workers is not self._workers:
                workers.close()


def _check_workers(
    num_workers: Any, prefetch_factor: int | None, persistent: bool, timeout: float, context: Any
) -> None:
    if not isinstance(num_workers, int) or num_workers < 0:
        raise ValueError(f"num_workers must be an int of 0 or more, got {num_workers!r}")
    if timeout < 0:
        raise ValueError(f"timeout must not be negative, got {timeout}")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError("prefetch_factor needs num_workers > 0")
    if prefetch_factor is not None and prefetch_factor < 1:
        raise ValueError(f"prefetch_factor must be at least 1, got {prefetch_factor}")
    if persistent and num_workers == 0:
        raise ValueError("persistent_workers needs num_workers > 0")
    if context is not None:
        raise ValueError("multiprocessing_context: the workers of this loader are threads, not processes")

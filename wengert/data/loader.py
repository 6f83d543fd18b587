"""The loader: batches of a dataset, made here or ahead of time by worker threads or processes."""

import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from multiprocessing.context import BaseContext
from typing import Any

from wengert.core.generator import Generator
from wengert.core.registry import ops
from wengert.data.collate import default_collate, default_convert
from wengert.data.dataset import IterableDataset
from wengert.data.fetch import IndexFetcher, StreamFetcher
from wengert.data.processes import ProcessWorkers
from wengert.data.sampler import BatchSampler, RandomSampler, SequentialSampler, check_positive
from wengert.data.workers import END, Epoch, Workers, drawing_from

__all__ = ["DataLoader"]

_MOST_WORKERS = 1024


class DataLoader:
    """Iterates over a dataset in batches; each ``for`` loop over it is one epoch.

    The order depends on the sampler and the generator alone, never on the workers. Workers are threads: they share
    the dataset's memory, and run in parallel where the work releases the interpreter lock (NumPy, reading files). With a
    ``multiprocessing_context`` they are processes, for datasets that work in Python itself; their arrays come back through
    shared memory. Random numbers that the dataset draws (``wg.rand``, transforms) depend on the epoch's seed and the
    number of the batch alone.

    Args:
        dataset: anything with ``__getitem__`` and ``__len__``, or an :class:`IterableDataset`.
        batch_size: samples per batch; None gives single samples. drop_last: leave out a last, smaller batch.
        shuffle: take the samples in random order. sampler: the order, instead.
        batch_sampler: gives lists of indices, instead of all the above.
        collate_fn: makes a batch of a list of samples (default: :func:`default_collate`).
        generator: gives each epoch its seed, on which the random order and the workers' generators depend (default:
            the global generator).
        num_workers: how many workers prepare batches ahead; 0 prepares each when it is asked for.
        multiprocessing_context: "spawn", "forkserver", "fork" or a context of ``multiprocessing``: workers are processes
            that are started so. All but "fork" pickle dataset, collate_fn and worker_init_fn; a script needs its
            ``if __name__ == "__main__":`` then.
        prefetch_factor: batches prepared ahead per worker (default 2).
        timeout: seconds to wait for a worker's batch; 0 waits for ever.
        worker_init_fn: called with the worker's number in each worker when it starts.
        persistent_workers: keep the workers from epoch to epoch.
        in_order: accepted for PyTorch's sake; batches always come in order.
        pin_memory: warns: there is no device memory to copy to.

    :meth:`state_dict` and :meth:`load_state_dict` let training go on in the middle of an epoch.

    Raises:
        ValueError: for options that exclude each other or are out of range. What the dataset raises comes when the batch
            is asked for, with a note that names the sample.

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
        _check_workers(num_workers, prefetch_factor, persistent_workers, timeout)
        self.multiprocessing_context = _context(multiprocessing_context, num_workers)
        if pin_memory:
            warnings.warn("pin_memory=True has no effect: there is no device memory to copy to", stacklevel=2)
        self._stream = isinstance(dataset, IterableDataset)
        if not self._stream and batch_sampler is None and sampler is None and not hasattr(dataset, "__len__"):
            raise TypeError(f"DataLoader takes a dataset with a length, or an IterableDataset; got {dataset!r}")
        for name, source in (("sampler", sampler), ("batch_sampler", batch_sampler)):
            if source is not None and not isinstance(source, Iterable):
                raise TypeError(f"{name} must give indices when iterated over, got {source!r}")
        if collate_fn is not None and not callable(collate_fn):
            raise TypeError(f"collate_fn must be a function, got {collate_fn!r}")
        _check_order(self._stream, batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.dataset = dataset
        self.batch_size = None if batch_sampler is not None else batch_size
        self.drop_last = drop_last
        self.num_workers = num_workers
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.persistent_workers = persistent_workers
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.generator = generator
        self.in_order = in_order
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        if not self._stream and batch_sampler is None:
            if sampler is None:
                self.sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            if batch_size is not None:
                self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)
        self._shuffle = bool(shuffle)
        self._batched = batch_size is not None or batch_sampler is not None
        self.collate_fn: Callable[[Any], Any] = collate_fn or (default_collate if self._batched else default_convert)
        self._workers: Any = None
        self._seed: int | None = None  # of the epoch that is running, and how many of its batches were given
        self._given = 0
        self._resumed: tuple[int, int] | None = None
        self._samplers: list[Any] = []  # the states of the samplers when it began

    def __len__(self) -> int:
        if not self._stream:
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)
        total = len(self.dataset)
        if self.batch_size is None:
            return total
        return total // self.batch_size if self.drop_last else -(-total // self.batch_size)

    # ---- where an epoch stands -------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return where the running epoch stands: its seed, how many batches it has given, the generator's state.

        Of samplers that have a generator of their own, or a ``state_dict``, the state when the epoch began is kept too. A
        sampler that draws from elsewhere, such as Python's ``random``, must offer ``state_dict`` and ``load_state_dict``.

        Example:
            >>> import wengert as wg
            >>> def loader():
            ...     return wg.utils.data.DataLoader(range(4), shuffle=True, generator=wg.Generator().manual_seed(0))
            >>> first = loader()
            >>> batches = iter(first)
            >>> _ = next(batches)
            >>> second = loader()
            >>> second.load_state_dict(first.state_dict())
            >>> [b.item() for b in batches] == [b.item() for b in second]
            True
        """
        generator = None if self.generator is None else self.generator.get_state()
        samplers = [_state(s) for s in self._stateful()] if self._seed is None else self._samplers
        return {"seed": self._seed, "batches": self._given, "generator": generator, "samplers": samplers}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next ``for`` loop go on where a :meth:`state_dict` was taken.

        Batches already given are skipped without being made; a stream makes and drops them.

        Raises:
            ValueError: if the loader had other samplers.
        """
        samplers, states = self._stateful(), state_dict.get("samplers", [])
        if len(samplers) != len(states):
            raise ValueError(
                f"the state is of a loader with {len(states)} samplers of their own state, not {len(samplers)}"
            )
        for sampler, state in zip(samplers, states, strict=True):
            _set_state(sampler, state)
        seed = state_dict["seed"]
        self._seed, self._given = seed, state_dict["batches"]
        self._resumed = None if seed is None else (seed, state_dict["batches"])
        if self.generator is not None and state_dict["generator"] is not None:
            self.generator.set_state(state_dict["generator"])

    def __iter__(self) -> Iterator[Any]:
        if self._resumed is None:
            seed, skip = int(ops.randint(0, 2**62, (), generator=self.generator).item()), 0
        else:
            (seed, skip), self._resumed = self._resumed, None
        self._seed, self._given = seed, skip
        self._samplers = [_state(sampler) for sampler in self._stateful()]
        requests = islice(self._requests(seed), 0 if self._stream else skip, None)
        made = (self._ahead if self.num_workers else self._here)(requests, seed, 0 if self._stream else skip)
        return self._counted(islice(made, skip if self._stream else 0, None))

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self._given += 1
            yield batch
        self._seed, self._given = None, 0

    def _stateful(self) -> list[Any]:
        """The samplers that have a state of their own."""
        if self._stream or self._shuffle:
            return []
        nested = (self.batch_sampler, getattr(self.batch_sampler, "sampler", None), self.sampler)
        apart = {id(sampler): sampler for sampler in nested if _has_state(sampler)}
        return list(apart.values())

    # ---- making batches --------------------------------------------------------------

    def _requests(self, seed: int) -> Iterator[Any]:
        """What the fetcher is asked for: indices, or None again and again for a stream."""
        if self._stream:
            return iter(lambda: None, END)
        if not self._shuffle:
            order: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
            return _drawing(iter(order), Generator().manual_seed(seed))
        order = RandomSampler(self.dataset, generator=Generator().manual_seed(seed))
        return iter(order if self.batch_size is None else BatchSampler(order, self.batch_size, self.drop_last))

    def _fetcher(self) -> Callable[[], Callable[[Any], Any]]:
        """What makes a fetcher for an epoch, and can be sent to another process."""
        if self._stream:
            return partial(StreamFetcher, self.dataset, self.batch_size, self.drop_last, self.collate_fn)
        return partial(IndexFetcher, self.dataset, self._batched, self.collate_fn)

    def _started(self) -> Any:
        """New workers."""
        options = self.num_workers, self.dataset, self.worker_init_fn, self._fetcher()
        context = self.multiprocessing_context
        return Workers(*options) if context is None else ProcessWorkers(context, *options)

    def _here(self, requests: Iterator[Any], seed: int, first: int) -> Iterator[Any]:
        fetch = self._fetcher()()
        for number, request in enumerate(requests, first):
            with drawing_from(Generator().manual_seed(seed + number)):
                batch = fetch(request)
            if batch is END:
                return
            yield batch

    def _ahead(self, requests: Iterator[Any], seed: int, first: int) -> Iterator[Any]:
        """Let workers prepare batches while the caller uses those before."""
        workers = self._workers
        if workers is not None and not workers.usable:
            workers.close()
            workers = None
        workers = workers or self._started()
        if self.persistent_workers:
            self._workers = workers
        assert self.prefetch_factor is not None
        epoch = Epoch(workers, requests, seed, first, self.prefetch_factor * self.num_workers)
        try:
            while (batch := epoch.take(self.timeout or None)) is not END:
                yield batch
        finally:
            epoch.cancel()
            if workers is not self._workers:
                workers.close()


# ---- random numbers and states of samplers -------------------------------------------


def _drawing(items: Iterator[Any], generator: Generator) -> Iterator[Any]:
    """Yield items, each made while the thread draws from ``generator``."""
    while True:
        with drawing_from(generator):
            item = next(items, END)
        if item is END:
            return
        yield item


def _has_state(sampler: Any) -> bool:
    return hasattr(sampler, "load_state_dict") or isinstance(getattr(sampler, "generator", None), Generator)


def _state(sampler: Any) -> Any:
    return sampler.state_dict() if hasattr(sampler, "load_state_dict") else sampler.generator.get_state()


def _set_state(sampler: Any, state: Any) -> None:
    if hasattr(sampler, "load_state_dict"):
        sampler.load_state_dict(state)
    else:
        sampler.generator.set_state(state)


# ---- arguments -----------------------------------------------------------------------


def _check_order(
    stream: bool, batch_size: int | None, shuffle: bool | None, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    if stream and (shuffle or sampler is not None or batch_sampler is not None):
        raise ValueError("an IterableDataset gives its own order; leave out shuffle, sampler and batch_sampler")
    if sampler is not None and shuffle:
        raise ValueError("sampler and shuffle=True exclude each other")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
    if batch_size is None and drop_last:
        raise ValueError("batch_size=None gives single samples, which drop_last does not fit")
    if batch_size is not None:
        check_positive("batch_size", batch_size)


def _context(given: Any, num_workers: int) -> BaseContext | None:
    """The context of ``multiprocessing`` of this name. ValueError if there is none, TypeError if it is no name."""
    if given is None or isinstance(given, BaseContext):
        found = given
    elif not isinstance(given, str):
        raise TypeError(f"multiprocessing_context must be a start method or a context, got {given!r}")
    elif given not in multiprocessing.get_all_start_methods():
        methods = ", ".join(multiprocessing.get_all_start_methods())
        raise ValueError(f"multiprocessing_context must be one of {methods}, got {given!r}")
    else:
        found = multiprocessing.get_context(given)
    if found is not None and num_workers == 0:
        raise ValueError("multiprocessing_context needs num_workers > 0")
    return found


def _check_workers(num_workers: Any, prefetch_factor: int | None, persistent: bool, timeout: float) -> None:
    if not isinstance(num_workers, int) or num_workers < 0:
        raise ValueError(f"num_workers must be an int of 0 or more, got {num_workers!r}")
    if num_workers > _MOST_WORKERS:
        raise ValueError(f"num_workers={num_workers} are more threads than a loader starts, {_MOST_WORKERS}")
    if not isinstance(timeout, int | float) or timeout < 0:
        raise ValueError(f"timeout must be a number of seconds, 0 or more, got {timeout!r}")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError("prefetch_factor needs num_workers > 0")
    if prefetch_factor is not None and prefetch_factor < 1:
        raise ValueError(f"prefetch_factor must be at least 1, got {prefetch_factor}")
    if persistent and num_workers == 0:
        raise ValueError("persistent_workers needs num_workers > 0")

"""Worker threads that make batches ahead of time, and the queue of the batches that workers of any kind are making.

Each worker has a queue of its own, so that what is asked of one worker is done in order; batches go to
the workers in turn. A stream is iterated by every worker, and a worker whose stream has ended gets no more turns.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from wengert.core.generator import Generator
from wengert.core.state import thread

__all__ = ["END", "Epoch", "Worker", "WorkerInfo", "Workers", "drawing_from", "get_worker_info"]

Fetch = Callable[[Any], Any]

END: Any = type("End", (), {"__repr__": lambda _: "END", "__slots__": ()})()  # what a stream gives when it has ended


class WorkerInfo(NamedTuple):
    """What :func:`get_worker_info` tells.

    Attributes:
        id: the number of this worker. num_workers: how many there are. seed: the epoch's seed plus the number.
        dataset: the dataset. generator: random numbers for the batch that is being made; they depend on the loader's
            generator and on the position of the batch, not on which worker makes it when.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any
    generator: Generator


class _Current(threading.local):
    info: WorkerInfo | None = None


_current = _Current()


def get_worker_info() -> WorkerInfo | None:
    """Return what a dataset needs to know inside a worker; None outside workers.

    Example:
        >>> import wengert as wg
        >>> class Numbers(wg.utils.data.IterableDataset):
        ...     def __iter__(self):
        ...         info = wg.utils.data.get_worker_info()
        ...         yield from range(8) if info is None else range(info.id, 8, info.num_workers)
        >>> [batch.tolist() for batch in wg.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2)]
        [[0, 2, 4, 6], [1, 3, 5, 7]]
    """
    return _current.info


@contextmanager
def drawing_from(generator: Generator) -> Iterator[None]:
    """Let this thread draw from a generator, where none is given."""
    before, thread.state.generator = thread.state.generator, generator
    try:
        yield
    finally:
        thread.state.generator = before


class Worker:
    """One worker: it runs requests, with random numbers and :func:`get_worker_info` as they have to be there."""

    def __init__(self, number: int, count: int, dataset: Any, init: Callable[[int], Any] | None) -> None:
        self.number, self.count, self.dataset, self.init = number, count, dataset, init
        self.started = False

    def run(self, seed: int, number: int, fetch: Fetch, request: Any) -> Any:
        """Make batch ``number`` of an epoch. What is raised gets a note that names worker and batch."""
        generator = thread.state.generator = Generator().manual_seed(seed + number)  # plain wg.rand draws from it too
        _current.info = WorkerInfo(self.number, self.count, seed + self.number, self.dataset, generator)
        try:
            if not self.started:
                self.started = True
                if self.init is not None:
                    self.init(self.number)
            return fetch(request)
        except Exception as error:
            of = "" if request is None else f" of {request}"  # a stream is asked for its next batch
            error.add_note(f"in worker {self.number} of a DataLoader, making batch {number}{of}")
            raise
        finally:
            _current.info = None


class Workers:
    """A fixed number of worker threads.

    Attributes:
        usable: whether another epoch can be made.
    """

    usable = True

    def __init__(
        self, count: int, dataset: Any, init: Callable[[int], Any] | None, make_fetcher: Callable[[], Fetch]
    ) -> None:  # fmt: skip
        self.count, self.make_fetcher = count, make_fetcher
        self._workers = [Worker(i, count, dataset, init) for i in range(count)]
        self._threads = [ThreadPoolExecutor(1, f"wengert-data-{i}") for i in range(count)]

    def begin(self) -> list[Any]:
        """Return the fetchers of a new epoch, one per worker."""
        return [self.make_fetcher() for _ in range(self.count)]

    def submit(self, worker: int, seed: int, number: int, fetch: Fetch, request: Any) -> "Future[Any]":
        """Ask a worker for batch ``number`` of an epoch."""
        return self._threads[worker].submit(self._workers[worker].run, seed, number, fetch, request)

    def finished(self, fetchers: Sequence[Any]) -> None:
        """Note that an epoch is over: what threads hold of it goes by itself."""

    def close(self) -> None:
        """Let the threads end as soon as they have finished what they are doing; what waits is dropped."""
        for executor in self._threads:
            executor.shutdown(wait=False, cancel_futures=True)


class Epoch:
    """One pass over the requests: a queue of batches that workers are making, in the order of the requests.

    Args:
        workers: threads or processes. requests: what is asked for. seed: of the epoch. number: of the first batch.
        limit: how many batches may be under way.
    """

    def __init__(
        self, workers: Any, requests: Iterator[Any], seed: int, number: int, limit: int
    ) -> None:  # fmt: skip
        self.workers, self.requests = workers, requests
        self.fetchers = workers.begin()
        self.seed, self.number, self.limit = seed, number, limit
        self.active = deque(range(workers.count))  # whose turn it is, without workers whose stream has ended
        self.pending: deque[tuple[int, Any]] = deque()

    def _ask(self) -> None:
        """Give requests to the workers in turn until enough batches are under way."""
        while self.active and len(self.pending) < self.limit:
            request = next(self.requests, END)
            if request is END:
                self.active.clear()
                return
            worker = self.active[0]
            self.active.rotate(-1)
            future = self.workers.submit(worker, self.seed, self.number, self.fetchers[worker], request)
            self.pending.append((worker, future))
            self.number += 1

    def take(self, timeout: float | None) -> Any:
        """Return the next batch, or END after the last.

        Raises:
            RuntimeError: if it is not there in time. Whatever the worker raised, with the worker's traceback.
        """
        while True:
            self._ask()
            if not self.pending:
                return END
            worker, future = self.pending.popleft()
            try:
                batch = future.result(timeout)
            except TimeoutError:
                if future.done():  # raised by the worker itself
                    raise
                raise RuntimeError(f"no batch came from the DataLoader's workers within {timeout} s") from None
            if batch is not END:
                return batch
            if worker in self.active:
                self.active.remove(worker)

    def cancel(self) -> None:
        """Drop what has not begun."""
        for _, future in self.pending:
            future.cancel()
        self.workers.finished(self.fetchers)

"""Worker threads that make batches ahead of time.

Each worker is a thread with a queue of its own, so that what is asked of one worker is done in order; batches go to
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

__all__ = ["END", "Epoch", "WorkerInfo", "Workers", "drawing_from", "get_worker_info"]

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
    """Return what a dataset needs to know inside a worker; None outside workers."""
    return _current.info


@contextmanager
def drawing_from(generator: Generator) -> Iterator[None]:
    """Let this thread draw from a generator, where none is given."""
    before, thread.state.generator = thread.state.generator, generator
    try:
        yield
    finally:
        thread.state.generator = before


class Workers:
    """A fixed number of worker threads."""

    def __init__(self, count: int, dataset: Any, init: Callable[[int], Any] | None) -> None:
        self.count, self.dataset, self.init = count, dataset, init
        self._threads = [ThreadPoolExecutor(1, f"wengert-data-{i}") for i in range(count)]
        self._started = [False] * count

    def submit(self, worker: int, seed: int, number: int, fetch: Fetch, request: Any) -> "Future[Any]":
        """Ask a worker for batch ``number`` of an epoch."""
        return self._threads[worker].submit(self._run, worker, seed, number, fetch, request)

    def _run(self, worker: int, seed: int, number: int, fetch: Fetch, request: Any) -> Any:
        generator = thread.state.generator = Generator().manual_seed(seed + number)  # plain wg.rand draws from it too
        _current.info = WorkerInfo(worker, self.count, seed + worker, self.dataset, generator)
        try:
            if not self._started[worker]:
                self._started[worker] = True
                if self.init is not None:
                    self.init(worker)
            return fetch(request)
        except Exception as error:
            error.add_note(f"in worker {worker} of a DataLoader, making batch {number} of {request}")
            raise
        finally:
            _current.info = None

    def close(self) -> None:
        """Let the threads end as soon as they have finished what they are doing; what waits is dropped."""
        for executor in self._threads:
            executor.shutdown(wait=False, cancel_futures=True)


class Epoch:
    """One pass over the requests: a queue of batches that workers are making, in the order of the requests.

    Args:
        workers: the threads. fetchers: one per worker, to make a batch of a request.
        requests: what is asked for. seed: of the epoch. number: of the first batch.
        limit: how many batches may be under way.
    """

    def __init__(
        self, workers: Workers, fetchers: Sequence[Fetch], requests: Iterator[Any], seed: int, number: int, limit: int
    ) -> None:
        self.workers, self.fetchers, self.requests = workers, fetchers, requests
        self.seed, self.number, self.limit = seed, number, limit
        self.active = deque(range(workers.count))  # whose turn it is, without workers whose stream has ended
        self.pending: deque[tuple[int, Future[Any]]] = deque()

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

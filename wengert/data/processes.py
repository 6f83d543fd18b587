"""Worker processes that make batches ahead of time; to an epoch they are what worker threads are."""

import os
import secrets
import signal
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection as connections
from multiprocessing import resource_tracker
from time import monotonic
from typing import Any

from wengert.data.shared import Parcel, Receiver
from wengert.data.worker_process import Job, Request, serve
from wengert.data.workers import END, Worker

__all__ = ["ProcessWorkers"]

_PATIENCE = 2.0  # seconds for a worker to finish what it is doing when it is closed


class ProcessWorkers:
    """A fixed number of worker processes.

    Args:
        context: of ``multiprocessing``. make_fetcher: makes what makes batches; with the dataset in it, it is sent to each
            worker once (or inherited, by forking).

    Raises:
        Exception: whatever pickling raises if it cannot be sent, with a note.
    """

    def __init__(
        self, context: Any, count: int, dataset: Any, init: Callable[[int], Any] | None, make_fetcher: Callable[[], Any]
    ) -> None:  # fmt: skip
        self.count = count
        if os.name == "posix":
            resource_tracker.ensure_running()  # one for all, which knows of every block of shared memory
        self._epochs = 0
        self._lines: list[_Line] = []
        try:
            for i in range(count):
                self._lines.append(_Line(context, i, Worker(i, count, dataset, init), make_fetcher))
        except Exception as error:
            _close(self._lines, os.getpid())
            error.add_note(
                f"worker processes get dataset, collate_fn and worker_init_fn by {context.get_start_method()}, which must "
                "be able to pickle them: no lambdas, no functions and classes within functions"
            )
            raise
        self.close = weakref.finalize(self, _close, self._lines, os.getpid())

    @property
    def usable(self) -> bool:
        """Whether another epoch can be made; not after Ctrl-C in the middle of a message."""
        return not any(line.interrupted for line in self._lines)

    def begin(self) -> list[Any]:
        """Return what stands for the fetchers of a new epoch, one per worker; they are made by the workers."""
        self._epochs += 1
        return [self._epochs] * self.count

    def submit(self, worker: int, seed: int, number: int, fetch: int, request: Any) -> "_Ticket":
        """Ask a worker for batch ``number`` of the epoch ``fetch``."""
        return self._lines[worker].ask(Request(fetch, seed, number, request))

    def finished(self, fetchers: Sequence[int]) -> None:
        """Let the workers forget an epoch, and drop what they have not begun of it."""
        if self.close.alive:
            for line, epoch in zip(self._lines, fetchers, strict=True):
                line.send(("forget", epoch))


class _Line:
    """The line to one worker: requests go out, answers come back in their order."""

    def __init__(self, context: Any, number: int, worker: Worker, make_fetcher: Callable[[], Any]) -> None:
        self.number = number
        self.lock = threading.RLock()
        self.waiting: deque[_Ticket] = deque()
        self.interrupted = False
        name = f"wg-{os.getpid():x}-{secrets.token_hex(3)}-"  # whose blocks of shared memory they are
        self.receiver = Receiver(name)
        self.connection, other = context.Pipe()
        job = Job(worker, make_fetcher, name)
        self.process = context.Process(target=serve, args=(other, job), daemon=True, name=f"wengert-data-{number}")
        try:
            self.process.start()
        except BaseException:
            self.connection.close()
            raise
        finally:
            other.close()

    def send(self, message: Any) -> None:
        """Send a message; to a worker that is gone, it is lost."""
        if not self.interrupted:
            with suppress(OSError), self._whole():
                self.connection.send(message)

    def ask(self, request: Request) -> "_Ticket":
        """Send a request, and return what will have the answer."""
        with self.lock, self._whole():
            ticket = _Ticket(self, request)
            self.waiting.append(ticket)
            self.send(request)
        return ticket

    def receive(self, timeout: float | None) -> None:
        """Give the next answer to the request that has waited longest.

        Raises:
            TimeoutError: if none comes in time. RuntimeError: if the worker is gone.
        """
        with self.lock:
            ready = connections.wait([self.connection, self.process.sentinel], timeout)
            if not ready:
                raise TimeoutError
            with self._whole():
                try:
                    if not self.connection.poll():
                        raise EOFError
                    answer = self.connection.recv()
                except (EOFError, OSError):
                    raise RuntimeError(self._obituary()) from None
                ticket = self.waiting.popleft()
                ticket.answer = self._opened(ticket, answer[1]) if answer[0] == "batch" else answer

    def _opened(self, ticket: "_Ticket", parcel: Parcel) -> Any:
        """Return the answer that a parcel is, and let its block be used again."""
        if parcel.block is not None:
            self.receiver.note(parcel.block)
        try:
            return ("dropped", None) if ticket.dropped else ("batch", self.receiver.unpack(parcel))
        except Exception as error:
            error.add_note("a batch came from a worker process as a pickle, of which it could not be made again here")
            return "error", error, traceback.format_exc()
        finally:
            if parcel.block is not None:
                self.send(("free", parcel.block))

    def end(self, deadline: float) -> None:
        """Wait until the worker has ended; stop it when the time is over, or if there is no talking to it any more."""
        ends = [self.connection, self.process.sentinel]
        with suppress(EOFError, OSError):  # meanwhile, take in what it may be waiting to send
            while not self.interrupted and connections.wait(ends, max(0.0, deadline - monotonic())):
                if not self.connection.poll():
                    break
                self.connection.recv_bytes()
        self.process.join(0.0 if self.interrupted else max(0.0, deadline - monotonic()))
        for stop in (self.process.terminate, self.process.kill):
            if self.process.exitcode is None:
                stop()
                self.process.join(_PATIENCE)
        self.connection.close()
        self.receiver.note(self.receiver.next + len(self.waiting))  # as many blocks as nobody has heard of, at most
        self.receiver.close()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Note if what is done is interrupted by Ctrl-C: nobody knows then which messages have come through, and how far."""
        try:
            yield
        except Exception:
            raise
        except BaseException:
            self.interrupted = True
            raise

    def _obituary(self) -> str:
        self.process.join(_PATIENCE)
        code = self.process.exitcode
        how = f"exited with code {code}" if code is None or code >= 0 else f"was killed by {_signal(-code)}"
        request = self.waiting[0].request
        what = f"batch {request.number}" + ("" if request.content is None else f" of {request.content}")
        text = f"worker {self.number} of a DataLoader (process {self.process.pid}) {how} while it was to make {what}"
        if how.endswith("SIGKILL"):
            return f"{text}; the system does that when memory runs out: fewer workers, or a lower prefetch_factor, take less"
        if how.endswith("SIGBUS"):
            return f"{text}; the system does that when shared memory (/dev/shm), through which batches come, is full"
        return f"{text}; its own error, if any, was printed above, and worker threads would raise it here"


class _Ticket:
    """A request that is under way."""

    def __init__(self, line: _Line, request: Request) -> None:
        self.line, self.request = line, request
        self.answer: Any = None
        self.dropped = False

    def done(self) -> bool:
        """Whether the answer is there."""
        return self.answer is not None

    def cancel(self) -> None:
        """Do not keep the answer when it comes."""
        self.dropped = True

    def result(self, timeout: float | None) -> Any:
        """Return the batch, or END. TimeoutError, RuntimeError if the worker is gone, or what the worker raised."""
        end = None if timeout is None else monotonic() + timeout
        while self.answer is None:
            self.line.receive(None if end is None else max(0.0, end - monotonic()))
        kind, value, *trace = self.answer
        self.answer = "told", None
        if kind == "error":
            try:
                raise value from _WorkerError(trace[0])
            finally:
                del value  # which would hold itself, and the workers, by its traceback
        return END if kind == "end" else value


class _WorkerError(Exception):
    """The traceback of an error in a worker process."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _close(lines: list[_Line], owner: int) -> None:
    """End the workers of process ``owner``: let them finish what they are doing for a moment, then stop them.

    In a process that was forked from the owner, which has copies of the lines, nothing is to be done.
    """
    if os.getpid() != owner:
        return
    for line in lines:
        line.send(None)
    end = monotonic() + _PATIENCE
    for line in lines:
        line.end(end)
    lines.clear()

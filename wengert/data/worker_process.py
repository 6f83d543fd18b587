"""What a worker process does: it makes the batches that it is asked for, in order, until the loader is gone."""

import os
import pickle
import queue
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wengert.data.shared import Sender
from wengert.data.workers import END, Worker
from wengert.runtime.threads import set_num_threads

__all__ = ["Job", "Request", "serve"]

_PATIENCE = 2.0  # seconds between looks whether the loader's process is still there


class Job(NamedTuple):
    """What a worker needs to know once.

    Attributes:
        make_fetcher: makes what makes batches, anew for each epoch. blocks: what names of shared memory begin with.
    """

    worker: Worker
    make_fetcher: Callable[[], Callable[[Any], Any]]
    blocks: str


class Request(NamedTuple):
    """What is asked for: batch ``number`` of an epoch."""

    epoch: int
    seed: int
    number: int
    content: Any


def serve(connection: Any, job: Job) -> None:
    """Answer requests.

    Messages are requests, ("free", block), ("forget", epoch) and None for the end. Answers are ("batch", parcel), ("end",
    None), ("dropped", None), and ("error", exception, traceback as text), one for each request in their order.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the loader, which then closes its workers
    set_num_threads(1)  # there are several processes already
    requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
    sender, forgotten = Sender(job.blocks), set[int]()
    freed: queue.SimpleQueue[int] = queue.SimpleQueue()
    arguments = (connection, requests, freed, forgotten)
    threading.Thread(target=_listen, args=arguments, daemon=True).start()
    fetchers: dict[int, Any] = {}
    try:
        while (request := requests.get()) is not None:
            while not freed.empty():
                sender.release(freed.get())
            for epoch in forgotten & fetchers.keys():
                del fetchers[epoch]
            connection.send(_answer(job, request, sender, fetchers, forgotten))
    except (BrokenPipeError, ConnectionResetError):
        pass  # the loader has gone
    finally:
        sender.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without waiting for threads, such as the one that loads native kernels


def _listen(connection: Any, requests: Any, freed: Any, forgotten: set[int]) -> None:
    """Take in messages as they come, so that the loader never waits for a busy worker."""
    parent = os.getppid()
    try:
        while True:
            while not connection.poll(_PATIENCE):
                if os.getppid() != parent:  # forked workers hold each other's lines open
                    return
            message = connection.recv()
            if message is None:
                return
            if isinstance(message, Request):
                requests.put(message)
            elif message[0] == "free":
                freed.put(message[1])
            else:
                forgotten.add(message[1])
    except (EOFError, OSError):
        pass  # the loader has gone
    finally:
        requests.put(None)


def _answer(job: Job, request: Request, sender: Sender, fetchers: dict[int, Any], forgotten: set[int]) -> Any:
    if request.epoch in forgotten:
        return "dropped", None
    random.seed(request.seed + request.number)  # forked processes would all draw the same
    np.random.seed((request.seed + request.number) % 2**32)  # its old interface, which datasets may use
    try:
        if request.epoch not in fetchers:
            fetchers[request.epoch] = job.make_fetcher()
        batch = job.worker.run(request.seed, request.number, fetchers[request.epoch], request.content)
        return ("end", None) if batch is END else ("batch", _packed(sender, batch))
    except Exception as error:
        return "error", _portable(error), traceback.format_exc()


def _packed(sender: Sender, batch: Any) -> Any:
    try:
        return sender.pack(batch)
    except Exception as error:
        error.add_note("a batch comes from a worker process as a pickle, which it must be possible to make of it")
        raise


def _portable(error: Exception) -> Exception:
    """The exception, or one that says the same if it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        other = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            other.add_note(note)
        return other
    return error

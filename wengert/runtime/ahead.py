"""Kernels made in the background, so that eager code never waits for a compiler.

Such a kernel is asked for again and again: until it is there, the caller does without. One daemon thread makes them in
the order in which they were first needed, but begins none while somebody waits for a program to be made. Where
``settings.native`` is "wait", and where kernels are recorded, the caller makes them itself, and the thread hears nothing
of them.
"""

import atexit
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from wengert.codegen.binding import at_end, relieve
from wengert.core.native import beside
from wengert.runtime.recording import active, current, paused
from wengert.settings import settings

__all__ = ["Ahead", "finish", "put_off"]

Made = TypeVar("Made")


class _Gate:
    """What the thread waits at before each kernel: closed as long as anybody is inside of :func:`put_off`."""

    def __init__(self) -> None:
        self.lock, self.inside, self.open = threading.Lock(), 0, threading.Event()
        self.open.set()

    def add(self, one: int) -> None:
        """Count those inside."""
        with self.lock:
            self.inside += one
            (self.open.clear if self.inside else self.open.set)()


_gate = _Gate()
_lock = threading.Lock()
_queue: "queue.SimpleQueue[Ahead[Any] | None]" = queue.SimpleQueue()
_thread: threading.Thread | None = None


class Ahead(Generic[Made]):
    """Something that is being made.

    Args:
        make: returns it; None if there is no such thing, for good.
    """

    __slots__ = ("_done", "_make", "_result", "_submitted")

    def __init__(self, make: Callable[[], Made | None]) -> None:
        self._make: Callable[[], Made | None] | None = make
        self._result: Made | None = None
        self._done = self._submitted = False
        if not _is_recording():
            self._submit()

    def _submit(self) -> None:
        if settings.native == "auto" and not self._submitted:
            self._submitted = True
            _submit(self)

    def get(self) -> Made | None:
        """Return what was made, or None while it is not there (and if there is none)."""
        if not self._done:
            if settings.native == "wait" or _is_recording():
                self.run()
            else:
                self._submit()
        return self._result

    def run(self) -> None:
        """Make it now."""
        make = self._make
        if make is not None:
            with paused():
                self._result = make()
            self._done, self._make = True, None


def _is_recording() -> bool:
    return active[0] > 0 and current() is not None


def _submit(job: Ahead[Any]) -> None:
    global _thread
    with _lock:
        _queue.put(job)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_work, args=(_queue,), name="wengert kernels", daemon=True)
            _thread.start()


def _work(jobs: "queue.SimpleQueue[Ahead[Any] | None]") -> None:
    idle = True
    while True:
        try:
            job = jobs.get(timeout=None if idle else 1.0)
        except queue.Empty:
            if not idle:  # there is a pause: what follows at once would have to read the pages again
                relieve()
            idle = True
            continue
        if job is None:
            return
        idle = False
        _gate.open.wait()
        try:
            with beside():
                job.run()
        except Exception as error:  # the kernel does not exist then; whoever makes it synchronously sees why
            job._done, job._make = True, None
            error.add_note("a kernel could not be made; NumPy is used instead")
            threading.excepthook(
                threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
            )


@contextmanager
def put_off() -> Iterator[None]:
    """Let the background begin no kernel during a block, whose caller waits for others: one compiler runs at a time."""
    gate = _gate
    gate.add(1)
    try:
        yield
    finally:
        gate.add(-1)


def finish() -> None:
    """Wait until everything that was asked for is made."""
    done = threading.Event()
    marker: Ahead[None] = Ahead.__new__(Ahead)
    marker._make, marker._result, marker._done = done.set, None, False
    _submit(marker)
    done.wait()


def _stop() -> None:
    """At exit, let the thread finish what it is at, so that it is not inside LLVM when Python goes."""
    thread = _thread
    if thread is not None and thread.is_alive():
        while True:
            try:
                _queue.get_nowait()
            except queue.Empty:
                break
        _queue.put(None)
        thread.join()


def _forget() -> None:
    """Begin anew in the child of a fork, which has no such thread."""
    global _gate, _lock, _queue, _thread
    _gate, _lock, _queue, _thread = _Gate(), threading.Lock(), queue.SimpleQueue(), None


atexit.register(_stop)
at_end(_stop)  # while it may still be in LLVM
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

"""The door through which large arrays leave NumPy for native code.

This room knows only that there may be something faster. The first large array starts the loading of
:mod:`wengert.runtime.eager` beside the running program; until that has opened the door, and wherever there is no kernel,
NumPy's result is used.
"""

import gc
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from wengert.environment import variable
from wengert.errors import KernelError
from wengert.settings import settings

__all__ = ["Native", "beside", "native"]

OFF = 1 << 62


SMALLEST: int = variable("WENGERT_NATIVE_SMALLEST")  # where two threads overtake NumPy (docs/native.md)
PAUSE = 0.00002  # seconds a thread may keep Python's lock while one works beside it (5 ms otherwise)


class _Beside:
    """What threads that work beside the program share: how many there are, and the interval the program had before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads = 0
        self.interval = 0.0


_beside = _Beside()


@contextmanager
def beside() -> Iterator[None]:
    """Let the other threads of the program have Python's lock more often while this one works for them."""
    shared = _beside
    with shared.lock:
        if not shared.threads:
            shared.interval = sys.getswitchinterval()
            sys.setswitchinterval(min(shared.interval, PAUSE))
        shared.threads += 1
    try:
        yield
    finally:
        with shared.lock:
            shared.threads -= 1
            if not shared.threads:
                sys.setswitchinterval(shared.interval)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Put the collector of garbage off: importing modules calls for it, and it would stop all threads for 50 ms."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Native:
    """What native code offers to the eager path.

    Attributes:
        smallest: arrays with fewer elements stay with NumPy; a huge number keeps all of them there.
        run: ``(operator, arguments as its kernel takes them, out) -> result``, NotImplemented where NumPy is to be used.
        rule: the same for a derivative rule: ``(rule, (cotangent, ...)) -> array``.
        update: ``(key, formula, arguments) -> bool``: run a formula that writes into its arguments; False if NumPy is to.
        no_memory: ``(error) -> error``: a MemoryError as one that says who holds the memory.
        loaders: the threads that are loading the runtime.
    """

    __slots__ = ("_loading", "loaders", "no_memory", "rule", "run", "smallest", "update")

    def __init__(self) -> None:
        self._loading: threading.Thread | None = None
        self.loaders: set[int] = set()
        self.smallest = SMALLEST if settings.native != "off" else OFF
        self.run: Callable[..., Any] = lambda *given: self.run(*given) if self._here() else NotImplemented
        self.rule: Callable[..., Any] = lambda *given: self.rule(*given) if self._here() else NotImplemented
        self.no_memory: Callable[[Exception], Exception] = lambda error: error
        self.update: Callable[..., bool] = lambda *given: self.update(*given) if self._here() else False

    def _here(self) -> bool:
        """Load the runtime, now if kernels are waited for, else beside the program; return whether it is there."""
        if settings.native == "wait":
            load()
            return True
        if self._loading is None:
            self._loading = threading.Thread(target=_load_beside, name="wengert native code")
            self._loading.start()
        return False

    def loaded(self) -> None:
        """Wait until the runtime is there."""
        if self._loading is not None:
            self._loading.join()
        else:
            load()


def load() -> None:
    """Load the runtime and open the door."""
    me = threading.get_ident()
    native.loaders.add(me)
    try:
        importlib.import_module("wengert.runtime.eager").install()
    except ValueError as error:  # a variable of the environment asks for what this machine has not
        raise KernelError(f"native code cannot be used ({error}); WENGERT_NATIVE=off does without it") from error
    finally:
        native.loaders.discard(me)


def _close_in_child() -> None:
    """In the child of a fork while another thread loaded the runtime: nobody will finish that here, so NumPy does all."""
    global _beside
    if native.loaders - {threading.get_ident()}:
        native.run = native.rule = lambda *given: NotImplemented
        native.update = lambda *given: False
        native.smallest, settings.native = OFF, "off"
    native._loading = None
    if _beside.threads:  # they do not exist here
        sys.setswitchinterval(_beside.interval)
    _beside = _Beside()


def _load_beside() -> None:
    try:
        with beside(), _uncollected():
            load()
    except BaseException:  # which the thread reports
        native.smallest, settings.native = OFF, "off"
        raise


native = Native()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)

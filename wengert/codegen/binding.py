"""llvmlite's binding of LLVM: when it is imported, and how threads, forks and the end of the interpreter go with it.

llvmlite lets one thread at a time into LLVM. Linking object code takes a third of a millisecond, optimising a module and
making code of it some thirty; so that who links need not wait for who compiles, these two are called without llvmlite's
lock. That is sound as long as no two threads share a context or a target machine. In place of the lock, a gate
lets any number of compiling threads in, and can be closed.
"""

import atexit
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from ctypes import string_at
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["at_end", "compiling", "emit", "llvm", "lock", "optimise", "relieve"]


class _Gate:
    """Lets threads in while it is open. Who closes it waits until no other is inside, and alone may still go in."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: dict[int, int] = {}  # how often each thread is
        self._owner: int | None = None

    def _may_enter(self) -> bool:
        me = threading.get_ident()
        return self._owner in (None, me) or me in self._inside

    def _is_left_by_others(self) -> bool:
        return not self._inside.keys() - {threading.get_ident()}

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be inside."""
        me = threading.get_ident()
        with self._changed:
            self._changed.wait_for(self._may_enter)
            self._inside[me] = self._inside.get(me, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._inside[me] -= 1
                if not self._inside[me]:
                    del self._inside[me]
                    self._changed.notify_all()

    def close(self) -> None:
        """Keep other threads out, once none is inside."""
        self._changed.acquire()  # until it is opened: no other thread may be in the middle of changing it at a fork
        self._changed.wait_for(lambda: self._owner in (None, threading.get_ident()))
        self._owner = threading.get_ident()
        self._changed.wait_for(self._is_left_by_others)

    def open(self) -> None:
        """Let them in again."""
        self._owner = None
        self._changed.notify_all()
        self._changed.release()


_gate = _Gate()
_loading = threading.RLock()
_loaded: list[Any] = []  # the binding, once it is there
_endings: list[Callable[[], Any]] = []
_kept_out: list[Any] = []  # the locks to be released when a fork is over


def llvm() -> Any:
    """Return llvmlite's binding of LLVM, ready to make code for this machine.

    It is imported when it is first needed, which takes some 70 ms. A fork waits until no thread is inside LLVM, or on its
    way there, so that the child can go on using it; and once the interpreter ends, no thread enters LLVM any more, since its
    library is being torn down.
    """
    return _loaded[0] if _loaded else _load()


def _map_library() -> None:
    """Have the system load LLVM's library without Python's lock, which ``import`` would hold meanwhile, some 12 ms."""
    found = find_spec("llvmlite")
    if os.name != "posix" or found is None or found.origin is None:
        return
    for path in sorted((Path(found.origin).parent / "binding").glob("libllvmlite.*")):
        ctypes.CDLL(None).dlopen(os.fsencode(path), os.RTLD_NOW)


def _load() -> Any:
    with _gate.entered(), _loading:
        if not _loaded:
            _map_library()
            from llvmlite import binding

            binding.initialize_native_target()
            binding.initialize_native_asmprinter()
            atexit.register(_keep_out)
            for ending in _endings:  # later registered, sooner called
                atexit.register(ending)
            _loaded.append(binding)
        return _loaded[0]


def at_end(function: Callable[[], Any]) -> None:
    """Call a function when the interpreter ends, if LLVM is there, and before threads are kept out of it."""
    with _loading:
        _endings.append(function)
        if _loaded:
            atexit.register(function)


def compiling() -> AbstractContextManager[None]:
    """Be in the part of the program that :func:`optimise` and :func:`emit` may be called from."""
    return _gate.entered()


def lock() -> AbstractContextManager[None]:
    """Return the lock that llvmlite holds during every call into LLVM; a thread that has it may take it again."""
    return llvm().ffi.lib._lock


def _keep_out() -> None:
    """Wait until no other thread is inside LLVM, and let none in."""
    _gate.close()
    held = lock() if _loaded else nullcontext()
    held.__enter__()
    _kept_out.append(held)


def _let_in() -> None:
    _kept_out.pop().__exit__(None, None, None)
    _gate.open()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_keep_out, after_in_parent=_let_in, after_in_child=_let_in)


def _unlocked(function: Any) -> Any:
    """Return a function of LLVM as it is below llvmlite's lock; with the lock, should llvmlite no longer show it."""
    return getattr(function, "_cfn", function)


def optimise(module: Any, passes: Any, builder: Any) -> None:
    """Run passes on a module, which must be alone in its context."""
    _unlocked(llvm().ffi.lib.LLVMPY_RunNewModulePassManager)(passes, module, builder)


def emit(module: Any, machine: Any, *, code: bool) -> bytes:
    """Return the object code of a module, or its assembly.

    Raises:
        RuntimeError: LLVM's, if it cannot make code of the module.
    """
    lib = llvm().ffi.lib
    with llvm().ffi.OutputString() as error:
        buffer = _unlocked(lib.LLVMPY_TargetMachineEmitToMemory)(machine, module, int(code), error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        return string_at(lib.LLVMPY_GetBufferStart(buffer), lib.LLVMPY_GetBufferSize(buffer))
    finally:
        lib.LLVMPY_DisposeMemoryBuffer(buffer)


DONT_NEED = 4  # MADV_DONTNEED of Linux


def relieve() -> None:
    """Give the memory back that the machine code of LLVM takes, some 50 MB, until it is run again.

    The system reads the pages from the file when they are next needed. Only Linux shows where they are.
    """
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            mapped = [line.split()[:2] for line in maps if "libllvmlite" in line]
    except OSError:
        return
    for span, permissions in mapped:
        if permissions == "r-xp":  # never written to
            begin, end = (int(address, 16) for address in span.split("-"))
            ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), DONT_NEED)

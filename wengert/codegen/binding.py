"""llvmlite's binding of LLVM: when it is imported, and how threads, forks and the end of the interpreter go with it.

llvmlite lets one thread at a time into LLVM. Linking object code takes a third of a millisecond, optimising a module and
making code of it some thirty; so that who links need not wait for who compiles, these two are called without llvmlite's
lock. That is sound as long as no two threads share a context or a target machine. In place of the lock, a gate
lets any number of compiling threads in, and can be closed.
"""

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from ctypes import string_at
from functools import lru_cache
from typing import Any

__all__ = ["compiling", "emit", "llvm", "lock", "optimise"]


class _Gate:
    """Lets threads in while it is open. Who closes it waits until none is inside, and alone may still go in."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._owner: int | None = None

    def _is_open(self) -> bool:
        return self._owner in (None, threading.get_ident())

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be inside."""
        with self._changed:
            self._changed.wait_for(self._is_open)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Keep other threads out, once none is inside."""
        self._changed.acquire()  # until it is opened: no other thread may be in the middle of changing it at a fork
        self._changed.wait_for(self._is_open)
        self._owner = threading.get_ident()
        self._changed.wait_for(lambda: self._inside == 0)

    def open(self) -> None:
        """Let them in again."""
        self._owner = None
        self._changed.notify_all()
        self._changed.release()


_gate = _Gate()


def compiling() -> AbstractContextManager[None]:
    """Be in the part of the program that :func:`optimise` and :func:`emit` may be called from."""
    return _gate.entered()


@lru_cache(maxsize=1)
def llvm() -> Any:
    """Return llvmlite's binding of LLVM, ready to make code for this machine.

    It is imported when it is first needed, which takes some 70 ms. From then on a fork waits until no thread is inside
    LLVM, so that the child can go on using it; and once the interpreter ends, no thread enters LLVM any more, since its
    library is being torn down.
    """
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_keep_out, after_in_parent=_let_in, after_in_child=_let_in)
    atexit.register(_keep_out)
    return binding


def lock() -> AbstractContextManager[None]:
    """Return the lock that llvmlite holds during every call into LLVM; a thread that has it may take it again."""
    return llvm().ffi.lib._lock


def _keep_out() -> None:
    _gate.close()
    lock().__enter__()


def _let_in() -> None:
    lock().__exit__(None, None, None)
    _gate.open()


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

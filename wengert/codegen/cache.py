"""Object code kept on disk from one process to the next, and the table of libraries that every kernel comes from.

A kernel is known by a key that says how it is made, before a line of it is written: :func:`library` looks in this
process, then on disk, and only then has it built and compiled.

A file holds what it was made for (this format, the processor, LLVM, the text of the code generator), the key and a
checksum. One that is truncated, damaged, of another machine or version, or that anybody but its owner could have written
is never loaded. Files are written beside their place and moved there, so that another process sees a whole file or none. A
directory that cannot be used does no harm: kernels are then compiled in each process.

======================== ==========================================================================================
``WENGERT_CACHE``        ``0``: keep nothing on disk
``WENGERT_CACHE_DIR``    where; else the directory that the platform has for such things
``WENGERT_CACHE_LIMIT``  how many MiB to keep (256); the kernels that were not used for the longest time go first
======================== ==========================================================================================
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from wengert.codegen.binding import llvm
from wengert.codegen.engine import Library, compile_object
from wengert.codegen.store import FORMAT, Store
from wengert.codegen.target import host
from wengert.environment import variable

__all__ = ["Counters", "counters", "environment", "library", "store"]

MIB: Final = 1 << 20
SOURCES: Final = ("graph", "passes", "loops", "codegen", "runtime", "compiling")  # the rooms that shape code


@dataclass
class Counters:
    """What happened in this process.

    Attributes:
        memory, disk: kernels that were found there. compiled: that were not found. stored: that were written to disk.
        compile_seconds: in LLVM, and in the functions that make its text. link_seconds: from object code to functions.
    """

    memory: int = 0
    disk: int = 0
    compiled: int = 0
    stored: int = 0
    compile_seconds: float = 0.0
    link_seconds: float = 0.0


class _Making:
    """A library that a thread is making, and others wait for."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.done = threading.Event()


_Identity = tuple[str, ...]  # the key, whether the bounds are checked, whether the code is direct, the names
_lock = threading.Lock()
_counters = Counters()
_libraries: WeakValueDictionary[_Identity, Library] = WeakValueDictionary()
_making: dict[_Identity, _Making] = {}


def _forget_other_threads() -> None:
    """Begin anew in the child of a fork, where the threads that held the lock or made libraries do not exist."""
    global _lock
    _lock = threading.Lock()
    _making.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


def counters() -> Counters:
    """Return a copy of the counters of this process."""
    with _lock:
        return replace(_counters)


def library(key: str, names: Sequence[str], build: Callable[[], str] | None = None, *, direct: bool = False) -> Library:
    """Return the functions ``names``, from this process, from disk, or compiled now.

    Any number of threads may ask at once: one of them compiles, the others wait for it. The table holds no library alive:
    whoever uses it keeps it.

    Args:
        key: says all that shapes the code, except the machine, the version of wengert and ``WENGERT_BOUNDS_CHECK``.
        names: the functions of the module to be called.
        build: returns the LLVM IR; called only if nobody has compiled this key before. If None, the key is the LLVM IR.
        direct: whether it is optimised no more than :mod:`wengert.codegen.engine` does with code that is direct.

    Raises:
        RuntimeError: LLVM's, if the text is not valid or cannot be linked; or if ``build`` asks for its own key.

    Example:
        >>> from wengert.codegen.cache import library
        >>> text = "define i64 @twice(i64 %x) {\\n %y = add i64 %x, %x\\n ret i64 %y\\n}"
        >>> kept = library("twice", ["twice"], lambda: text)
        >>> library("twice", ["twice"], lambda: text) is kept
        True
    """
    identity = (key, os.environ.get("WENGERT_BOUNDS_CHECK", ""), "direct" if direct else "", *names)
    while True:
        with _lock:
            found = _libraries.get(identity)
            if found is not None:
                _counters.memory += 1
                return found
            other = _making.get(identity)
            if other is None:
                mine = _making[identity] = _Making()
                break
        if other.thread == threading.get_ident():
            raise RuntimeError(f"the function that builds the kernel {key[:80]!r} asks for that kernel itself")
        other.done.wait()
    try:
        made = _make(identity, build)
        with _lock:
            _libraries[identity] = made
        return made
    finally:
        with _lock:
            _making.pop(identity, None)
        mine.done.set()


def _make(identity: _Identity, build: Callable[[], str] | None) -> Library:
    """Return a library from disk, or build and compile it and leave it there."""
    key, _, direct, *names = identity
    files = store()
    digest = _digest(*identity)
    code = files.get(environment(), digest)
    if code is not None:
        with suppress(RuntimeError):  # the checksum is right, and yet it is not what was asked for: replace it
            return _link(code, names, disk=1)
    start = time.perf_counter()
    code = compile_object(key if build is None else build(), direct=bool(direct))
    seconds = time.perf_counter() - start
    made = _link(code, names, compiled=1, compile_seconds=seconds)
    _count(stored=int(files.put(environment(), digest, code)))
    return made


def _link(code: bytes, names: Sequence[str], **counted: float) -> Library:
    start = time.perf_counter()
    made = Library(code, names)
    _count(link_seconds=time.perf_counter() - start, **counted)
    return made


def _count(**more: float) -> None:
    with _lock:
        for name, value in more.items():
            setattr(_counters, name, getattr(_counters, name) + value)


def _digest(*parts: str) -> bytes:
    """Return 32 bytes that stand for the parts; each is preceded by its length, so that no two lists are one."""
    hashed = blake2b(digest_size=32)
    for part in parts:
        data = part.encode()
        hashed.update(len(data).to_bytes(8, "little") + data)
    return hashed.digest()


@lru_cache(maxsize=1)
def environment() -> bytes:
    """Return 32 bytes that stand for the machine, LLVM and this version of wengert.

    The version is that of the code generator's own text: it changes with every release, and with every edit.
    """
    version = ".".join(str(part) for part in llvm().llvm_version_info)
    return _digest(str(FORMAT), host().key, version, _text_of_generator())


def _text_of_generator() -> str:
    package = Path(__file__).parents[1]
    hashed = blake2b(digest_size=32)
    for room in SOURCES:
        for path in sorted((package / room).rglob("*.py")):
            hashed.update(
                f"{path.relative_to(package).as_posix()} {path.stat().st_size}\n".encode() + path.read_bytes()
            )
    return hashed.hexdigest()


def store() -> Store:
    """Return the files that this process's environment asks for.

    Raises:
        ValueError: if ``WENGERT_CACHE`` or ``WENGERT_CACHE_LIMIT`` has a value that it cannot have.
    """
    off = "" if variable("WENGERT_CACHE") else "WENGERT_CACHE is 0"
    return _store(_directory(), variable("WENGERT_CACHE_LIMIT") * MIB, off)


@lru_cache(maxsize=8)
def _store(directory: Path | None, limit: int, off: str) -> Store:
    return Store(directory, limit, off)


def _directory() -> Path | None:
    """Return the directory that is asked for, or the platform's own for caches; None if the user has no home."""
    if asked := os.environ.get("WENGERT_CACHE_DIR", ""):
        return Path(asked).expanduser().absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
        return Path(base) / "wengert" / "Cache" if base else None
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "wengert"
    base = os.environ.get("XDG_CACHE_HOME", "")  # where it is relative, the standard says to ignore it
    return (Path(base) if base.startswith("/") else home / ".cache") / "wengert"

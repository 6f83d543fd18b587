"""A directory of object code that several processes read and write, and nobody else.

What is loaded from here is run. So the directory and each file must belong to the user of this process, and be writable by
nobody else; and a file counts only if it is whole.
"""

import os
import re
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["FORMAT", "File", "Store"]

FORMAT: Final = 1
MAGIC: Final = b"wengertK"
# magic, format, how often it was used (not covered by the checksum), bytes of code, environment, key, checksum
HEADER: Final = struct.Struct("<8sIIQ32s32s32s")
USES: Final = struct.Struct("<I")
USES_AT: Final = 12
OURS: Final = re.compile(r"[0-9a-f]{64}\.kernel|[0-9a-z_.]+\.json|[0-9a-z_.]+\.tmp")
ABANDONED: Final = 3600.0  # seconds after which a file that is still being written belongs to a process that died
SCAN_EVERY: Final = 256  # files written before looking again at what other processes wrote
KEEP: Final = 0.8  # of the limit, when it is passed


class _Kernel(NamedTuple):
    """What a file holds."""

    uses: int
    environment: bytes
    key: bytes
    code: bytes


class File(NamedTuple):
    """A kernel on disk.

    Attributes:
        path, size: where it is, how many bytes. used: when it was last used, in seconds since the epoch.
        uses: how often it was loaded. environment: what it was made for. fault: why it will not be loaded, or "".
    """

    path: Path
    size: int
    used: float
    uses: int
    environment: bytes
    fault: str


def _checksum(environment: bytes, key: bytes, code: bytes) -> bytes:
    return blake2b(environment + key + code, digest_size=32).digest()


def _pack(environment: bytes, key: bytes, code: bytes) -> bytes:
    header = HEADER.pack(MAGIC, FORMAT, 0, len(code), environment, key, _checksum(environment, key, code))
    return header + code


def _unpack(data: bytes) -> _Kernel:
    """Return what a file holds.

    Raises:
        ValueError: saying what is wrong with it.
    """
    if len(data) < HEADER.size:
        raise ValueError("shorter than its header")
    magic, form, uses, length, environment, key, checksum = HEADER.unpack_from(data)
    code = data[HEADER.size :]
    if magic != MAGIC:
        raise ValueError("not a kernel")
    if form != FORMAT:
        raise ValueError(f"of format {form}, not {FORMAT}")
    if length != len(code):
        raise ValueError(f"{len(code)} bytes of code, not {length}")
    if checksum != _checksum(environment, key, code):
        raise ValueError("the checksum does not fit")
    return _Kernel(uses, environment, key, code)


def _name(environment: bytes, key: bytes) -> str:
    return f"{blake2b(environment + key, digest_size=32).hexdigest()}.kernel"


def _distrust(status: os.stat_result) -> str:
    """Return why what is found must not be run, or ""."""
    if not hasattr(os, "geteuid"):  # Windows, where the directory is the user's own
        return ""
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, not {os.geteuid()}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (its mode is {stat.S_IMODE(status.st_mode):o})"
    return ""


def _open(path: Path) -> int:
    """Return a descriptor of a file: to read, and to count its use if that is allowed."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        return os.open(path, os.O_RDWR | flags)
    except OSError:
        return os.open(path, os.O_RDONLY | flags)


@dataclass
class Store:
    """The files of one directory.

    Attributes:
        directory: None if there is none to be had. limit: how many bytes to keep. off: why nothing is kept, or "".

    Example:
        >>> import tempfile
        >>> files = Store(Path(tempfile.mkdtemp()) / "kernels", limit=1 << 20)
        >>> files.put(bytes(32), b"k" * 32, b"object code")
        True
        >>> files.get(bytes(32), b"k" * 32)
        b'object code'
        >>> files.get(b"another machine".ljust(32), b"k" * 32) is None
        True
    """

    directory: Path | None
    limit: int
    off: str = ""
    _bytes: int = field(default=0, init=False)  # in the directory, as far as is known
    _unscanned: int = field(default=SCAN_EVERY, init=False)  # files written since it was looked at: now is the time

    def trouble(self, *, create: bool = False) -> str:
        """Return why the directory is not used, or "". One that is not there yet is no trouble; ``create`` makes it."""
        if self.off or self.directory is None:
            return self.off or "the user has no home directory; WENGERT_CACHE_DIR may name another"
        try:
            if create:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.directory.stat()
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{error.strerror}: {error.filename}"
        if not stat.S_ISDIR(status.st_mode):
            return "it is not a directory"
        return _distrust(status)

    def get(self, environment: bytes, key: bytes) -> bytes | None:
        """Return the code stored under a key for a machine and version; None if there is none that can be trusted."""
        path = self._path(environment, key)
        if path is None:
            return None
        try:
            kernel = _unpack(self._read(path, count=True))
        except (OSError, ValueError):
            return None
        return kernel.code if (kernel.environment, kernel.key) == (environment, key) else None

    def put(self, environment: bytes, key: bytes, code: bytes) -> bool:
        """Store code; return whether that could be done."""
        path = self._path(environment, key)
        data = _pack(environment, key, code)
        if path is None or not self._write(path, data):
            return False
        self._bytes += len(data)
        self._unscanned += 1
        if self._bytes > self.limit or self._unscanned > SCAN_EVERY:
            self.evict()
        return True

    def read(self, name: str) -> bytes | None:
        """Return the contents of another file in the directory, or None."""
        if self.directory is None or self.trouble():
            return None
        try:
            return self._read(self.directory / name)
        except (OSError, ValueError):
            return None

    def write(self, name: str, data: bytes) -> bool:
        """Write another file in the directory; return whether that could be done."""
        if not OURS.fullmatch(name):
            raise ValueError(f"{name!r} is not a name that clear() would find again")
        return self.directory is not None and self._write(self.directory / name, data)

    def files(self) -> Iterator[File]:
        """Yield every kernel in the directory, and what is wrong with it."""
        for path in self._ours(".kernel"):
            with suppress(FileNotFoundError):  # another process has just removed it
                yield self._file(path)

    def _file(self, path: Path) -> File:
        status = path.stat()
        try:
            kernel = _unpack(self._read(path))
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            return File(path, status.st_size, status.st_mtime, 0, b"", str(error))
        right = path.name == _name(kernel.environment, kernel.key)
        fault = "" if right else "under another kernel's name"
        return File(path, status.st_size, status.st_mtime, kernel.uses, kernel.environment, fault)

    def clear(self) -> int:
        """Remove the files that this module wrote, and nothing else; return how many there were.

        Raises:
            OSError: if one cannot be removed.
        """
        removed = 0
        for path in self._ours(""):
            with suppress(FileNotFoundError):
                path.unlink()
                removed += 1
        self._unscanned = SCAN_EVERY
        return removed

    def evict(self) -> None:
        """Remove what processes that died left behind, and the longest unused kernels while there are too many."""
        found: list[tuple[float, int, str]] = []
        for entry in self._entries():
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if entry.name.endswith(".tmp") and time.time() - status.st_mtime > ABANDONED:
                    os.unlink(entry.path)
                elif entry.name.endswith(".kernel"):
                    found.append((status.st_mtime, status.st_size, entry.path))
        self._bytes, self._unscanned = sum(size for _, size, _ in found), 0
        if self._bytes <= self.limit:
            return
        for _, size, path in sorted(found):
            if self._bytes <= KEEP * self.limit:
                return
            with suppress(OSError):
                os.unlink(path)
                self._bytes -= size

    def _path(self, environment: bytes, key: bytes) -> Path | None:
        """Return where a kernel's file is, or None if the directory is not to be used."""
        if self.directory is None or self.trouble():
            return None
        return self.directory / _name(environment, key)

    def _ours(self, suffix: str) -> list[Path]:
        """Return the files in the directory that were written here, by their names."""
        return [
            Path(entry.path) for entry in sorted(self._entries(), key=lambda e: e.name) if entry.name.endswith(suffix)
        ]

    def _entries(self) -> list[os.DirEntry[str]]:
        """Return what the directory has of the files that were written here."""
        if self.directory is None:
            return []
        try:
            with os.scandir(self.directory) as entries:
                return [e for e in entries if OURS.fullmatch(e.name) and e.is_file(follow_symlinks=False)]
        except OSError:
            return []

    def _read(self, path: Path, *, count: bool = False) -> bytes:
        """Return the bytes of a file, and ``count`` one more use of it, which also says when it was last used.

        Raises:
            OSError: if it cannot be read. ValueError: if it must not be.
        """
        with os.fdopen(_open(path), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("not a file")
            if fault := _distrust(status):
                raise ValueError(fault)
            data = file.read()
            if count and len(data) >= HEADER.size:
                uses = min(USES.unpack_from(data, USES_AT)[0] + 1, 0xFFFFFFFF)
                with suppress(OSError):  # a directory that may only be read is of use too
                    os.lseek(file.fileno(), USES_AT, os.SEEK_SET)
                    os.write(file.fileno(), USES.pack(uses))
        return data

    def _write(self, path: Path, data: bytes) -> bool:
        """Write a file beside its place and move it there; return whether that could be done."""
        if self.trouble(create=True):
            return False
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        beside = path.with_name(f"{path.stem[:16]}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
        try:
            with os.fdopen(os.open(beside, flags, 0o600), "wb") as file:
                file.write(data)
            os.replace(beside, path)
        except OSError:
            with suppress(OSError):
                beside.unlink()
            return False
        return True

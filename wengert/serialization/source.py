"""Where bytes are read from: a file on the disk, mapped into memory or not, an open file, bytes at hand."""

import io
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

__all__ = ["Path", "Source", "check_file", "opened"]

Path = str | os.PathLike[str]


class Source:
    """A file of known size.

    Attributes:
        name: what messages call it. file: open for reading and seeking. size: in bytes.
    """

    def __init__(self, name: str, file: BinaryIO, mapped: bool = False) -> None:
        self.name, self.file = name, file
        self.size = file.seek(0, os.SEEK_END)
        self._mapped: Any = None
        if mapped and self.size:
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes of a part that lies in the file."""
        return self.array(start, stop).tobytes()

    def array(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Return a part that lies in the file as bytes that may be written, which does not change the file.

        Raises:
            ValueError: if the file has been cut since it was opened.
        """
        if self._mapped is not None:
            return np.frombuffer(self._mapped, np.uint8, stop - start, start)
        array: Any = np.empty(stop - start, np.uint8)
        self.file.seek(start)
        got = self.file.readinto(array) if array.size else 0  # type: ignore[attr-defined, unused-ignore]
        if got != array.size:
            raise ValueError(f"{self.name}: {got} of the {array.size} bytes from {start} on could be read")
        return array


@contextmanager
def opened(f: Path | BinaryIO, mapped: bool = False) -> Iterator[Source]:
    """Open a path, or take over the rest of an open file.

    Raises:
        ValueError: if an open file is to be mapped.
    """
    if isinstance(f, str | os.PathLike):
        with open(f, "rb") as file:
            yield Source(os.fspath(f), file, mapped)
        return
    if mapped:
        raise ValueError("mmap=True takes a path, not an open file")
    yield Source("the given file", io.BytesIO(f.read()))


def check_file(name: str, f: Any, method: str) -> None:
    """Refuse what is neither a path nor, if there is a ``method`` for it, an open file.

    Raises:
        TypeError, or ValueError for an empty path.
    """
    if not isinstance(f, str | os.PathLike) and not (method and hasattr(f, method)):
        raise TypeError(f"{name}() takes a path{' or an open file' * bool(method)}, got {f!r}")
    if f == "":
        raise ValueError(f"{name}() takes a path, got an empty string")

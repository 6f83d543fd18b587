"""Files that are there completely or not at all."""

import errno
import glob
import os
import secrets
import shutil
import sys
from collections.abc import Iterable
from typing import Any, BinaryIO

if sys.platform != "win32":
    import fcntl

__all__ = ["write_whole"]


def write_whole(path: str | os.PathLike[str], data: bytes | Iterable[Any]) -> None:
    """Write a file beside its place, and move it there once it is on the disk; so a crash leaves the old file, or the new one.

    What a writer that was killed left behind is removed when the same file is written again. A file that was there is
    replaced where it is, behind a link too, and keeps its permissions. A device or a pipe is written to.

    Args:
        data: the bytes, or parts of them, one after the other.

    Raises:
        OSError: if it cannot be written, or is a folder; what was begun is removed.
    """
    target = os.path.realpath(path)
    parts: Iterable[Any] = (data,) if isinstance(data, bytes) else data
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, "a folder cannot be written as a file", os.fspath(path))
    if os.path.exists(target) and not os.path.isfile(target):
        with open(target, "wb") as other:
            other.writelines(parts)
        return
    _remove_abandoned(target)
    file = _begun(target)
    try:
        with file:
            if os.path.exists(target):
                shutil.copymode(target, file.name)
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
            if sys.platform == "win32":
                file.close()  # an open file cannot be moved there
            os.replace(file.name, target)
    except BaseException:
        if os.path.exists(file.name):
            os.remove(file.name)
        raise
    if os.name == "posix":  # the new name must reach the disk too
        folder = os.open(os.path.dirname(target), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _begun(target: str) -> BinaryIO:
    """A new file beside the target, locked for as long as its writer lives."""
    while True:
        file = open(f"{target}.{secrets.token_hex(4)}.partial", "xb")  # noqa: SIM115 - the caller closes it
        if _locked(file, wait=True) is None or os.path.exists(file.name):
            return file
        file.close()  # it was taken for abandoned before it was locked


def _remove_abandoned(target: str) -> None:
    """Remove files of writers that are gone: nobody holds a lock on them."""
    for name in glob.glob(f"{glob.escape(target)}.????????.partial"):
        try:
            with open(name, "rb+") as file:
                if _locked(file, wait=False):
                    os.remove(name)
        except OSError:
            continue  # gone, or of another user


def _locked(file: Any, wait: bool) -> bool | None:
    """Lock a file: whether it is locked now, or None where there are no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True

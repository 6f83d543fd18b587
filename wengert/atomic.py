"""Files that are there completely or not at all."""

import os
import secrets

__all__ = ["write_whole"]


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file beside its place, and move it there once it is on the disk; so a crash leaves the old file, or the new one.

    Raises:
        OSError: if it cannot be written; what was begun is removed.
    """
    target = os.path.abspath(path)
    partial = f"{target}.{secrets.token_hex(4)}.partial"
    try:
        with open(partial, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        if os.path.exists(partial):
            os.remove(partial)
        raise
    if os.name == "posix":  # the new name must reach the disk too
        folder = os.open(os.path.dirname(target), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

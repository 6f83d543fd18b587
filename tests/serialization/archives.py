"""Zip archives as PyTorch writes them, changed."""

import io
import zipfile
from collections.abc import Callable

__all__ = ["archive_of", "pickle_of", "rewritten"]


def rewritten(data: bytes, change: Callable[[str, bytes], bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive with what ``change`` makes of each entry, and the right checksums."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", compression) as new:
        for info in old.infolist():
            new.writestr(info.filename, change(info.filename, old.read(info)))
    return out.getvalue()


def archive_of(pickled: bytes, storages: dict[str, bytes] | None = None) -> bytes:
    """Return an archive of a pickle and the bytes of storages."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as new:
        new.writestr("a/data.pkl", pickled)
        for key, data in (storages or {}).items():
            new.writestr(f"a/data/{key}", data)
    return out.getvalue()


def pickle_of(data: bytes) -> tuple[str, bytes]:
    """Return the name and the bytes of the pickle in an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        return name, archive.read(name)

"""The entries of a zip file that is stored without compression: where they are, and their bytes."""

import io
import math
import struct
import zipfile
import zlib
from typing import Any, NamedTuple

import numpy as np

from wengert.serialization.source import Source

__all__ = ["Archive", "Member"]

_LOCAL = struct.Struct("<4s5H3L2H")  # what stands before the bytes of an entry
_MOST_MEMBERS = 1_000_000


class Member(NamedTuple):
    """An entry: from byte ``start`` to ``stop`` of the file, its checksum, and why it is not read ("" if it is)."""

    name: str
    start: int
    stop: int
    checksum: int
    refused: str


class Archive:
    """A zip file whose entries lie apart; those that are compressed are not read, so none is larger than the file.

    Raises:
        ValueError: naming the file and what is wrong with it: it is cut short or damaged, or entries overlap.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        try:
            with zipfile.ZipFile(_Reader(source)) as file:
                found = file.infolist()
                begin = file.start_dir
        except (zipfile.BadZipFile, ValueError, LookupError, NotImplementedError, OverflowError, struct.error) as error:
            raise ValueError(
                f"{source.name} is not a complete zip file, as PyTorch writes ({source.size} bytes): {error}"
            ) from error
        if len(found) > _MOST_MEMBERS:
            raise ValueError(f"{source.name} has {len(found)} entries; at most {_MOST_MEMBERS} are read")
        self.members: dict[str, Member] = {}
        for info in found:
            if info.filename in self.members:
                raise ValueError(f"{source.name} has the entry {info.filename!r} twice")
            self.members[info.filename] = self._member(info)
        self._check_apart(begin)

    def array(self, member: Member, verify: bool) -> np.ndarray[Any, Any]:
        """Return the bytes of an entry, which may be written. ValueError if it is compressed or damaged."""
        if member.refused:
            raise ValueError(f"{self.source.name}: the entry {member.name!r} is {member.refused}; it is not read")
        array = self.source.array(member.start, member.stop)
        if verify and zlib.crc32(array.data) != member.checksum:
            raise ValueError(
                f"{self.source.name} is damaged: the entry {member.name!r} does not have its checksum; verify=False reads "
                "it all the same, for files written without checksums"
            )
        return array

    def _member(self, info: zipfile.ZipInfo) -> Member:
        refused = "encrypted" if info.flag_bits & 1 else ""
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            refused = "compressed, which PyTorch never does"
        start = info.header_offset
        if 0 <= start <= self.source.size - _LOCAL.size:
            mark, *_, names, extra = _LOCAL.unpack(self.source.read(start, start + _LOCAL.size))
            start += _LOCAL.size + names + extra
            if mark == b"PK\x03\x04" and start + info.compress_size <= self.source.size:
                return Member(info.filename, start, start + info.compress_size, info.CRC, refused)
        raise ValueError(f"{self.source.name} is damaged: the entry {info.filename!r} is not where the file says")

    def _check_apart(self, begin: int) -> None:
        """Refuse entries that overlap one another, or the table of entries, which begins at ``begin``."""
        before = sorted(self.members.values(), key=lambda member: member.stop, reverse=True)
        limit: float = begin if before else math.inf
        for member in before:
            if member.stop > limit:
                raise ValueError(f"{self.source.name}: the entry {member.name!r} overlaps another one; it is not read")
            limit = member.start


class _Reader(io.RawIOBase):
    """A source as a file, for ``zipfile``: never beyond its end."""

    def __init__(self, source: Source) -> None:
        self.source, self.at = source, 0

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; ValueError before the beginning."""
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.source.size}[whence]
        if self.at < 0:
            raise ValueError("a place before its beginning")
        return self.at

    def tell(self) -> int:
        """Return the place."""
        return self.at

    def read(self, size: int = -1) -> bytes:
        """Return as many bytes as there are."""
        stop = self.source.size if size < 0 else min(self.at + size, self.source.size)
        data = self.source.read(self.at, stop) if self.at < stop else b""
        self.at += len(data)
        return data

"""Flat dictionaries of tensors as safetensors files."""

import io
import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from wengert.array.dtype import DType, bool_, complex128
from wengert.atomic import write_whole
from wengert.core.tensor import Tensor, from_array, raw
from wengert.serialization.header import CHECKSUMS, Entry, Header, parse, written
from wengert.serialization.source import Path, Source, check_file, opened
from wengert.sparse.payload import is_sparse

__all__ = [
    "check",
    "from_bytes",
    "load_file",
    "pieces",
    "read_tensor",
    "read_tensors",
    "save_file",
    "to_bytes",
    "typed",
]


def save_file(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write a dictionary of tensors to a file.

    Args:
        tensors: names and tensors; non-contiguous ones are stored in row-major order. metadata: names and texts.

    Raises:
        TypeError: for a name that is no string or a value that is no tensor. ValueError: for two tensors that share
            memory (their values would be stored twice and come back apart), or complex128, which the format lacks.

    Example:
        >>> import os, tempfile
        >>> import wengert as wg
        >>> path = os.path.join(tempfile.mkdtemp(), "weights.safetensors")
        >>> wg.save_file({"w": wg.ones(2)}, path)
        >>> wg.load_file(path)
        {'w': tensor([1., 1.])}
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise TypeError(f"save_file() takes a path, got {path!r}")
    write_whole(path, pieces(tensors, metadata))


def load_file(path: Path, *, mmap: bool = False, verify: bool = True) -> dict[str, Tensor]:
    """Read all tensors of a file, each into memory of its own.

    Args:
        mmap: map the file into memory instead of reading it: the parts of a tensor are read when they are first used, and
            copied when they are written, so the file stays as it is. It must not be changed in place by others meanwhile.
        verify: compare the checksums, of the header alone with ``mmap``; files of other programs have none.

    Raises:
        FileNotFoundError: if there is none. ValueError: if it is damaged, cut short or of another format.
    """
    check_file("load_file", path, "")
    with opened(path, mmap) as source:
        return read_tensors(source, parse(source, verify), verify and not mmap)


def to_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return what :func:`save_file` would write. Errors as there.

    Example:
        >>> from wengert.serialization import from_bytes, to_bytes
        >>> import wengert as wg
        >>> from_bytes(to_bytes({"n": wg.tensor(3)}))
        {'n': tensor(3)}
    """
    return b"".join(pieces(tensors, metadata))


def from_bytes(data: bytes) -> dict[str, Tensor]:
    """Return the tensors in bytes of the format. ValueError if they are damaged or of another format."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"from_bytes() takes bytes, got {type(data).__name__}")
    source = Source("the given bytes", io.BytesIO(data))
    return read_tensors(source, parse(source, True), True)


# ---- writing ---------------------------------------------------------------------------


def pieces(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Return the parts of a file, one after the other: the header, then the bytes of each tensor."""
    check(tensors, metadata)
    parts = {name: np.ascontiguousarray(raw(t)).reshape(-1).view(np.uint8) for name, t in tensors.items()}
    header, order = written(tensors, parts, metadata or {})
    return iter([header, *(parts[name].data for name in order)])


def check(tensors: Any, metadata: Any) -> None:
    """Refuse what a file cannot hold."""
    for what, given in (("tensors", tensors), ("metadata", metadata)):
        if not isinstance(given, Mapping) and (given is not None or what == "tensors"):
            raise TypeError(f"{what} must be a dictionary, got {type(given).__name__}")
    for text in [item for pair in (metadata or {}).items() for item in pair]:
        if not isinstance(text, str):
            raise TypeError(f"metadata holds names and texts, got {text!r}")
    if CHECKSUMS in (metadata or {}):
        raise ValueError(f"the metadata '{CHECKSUMS}' is made when a file is written")
    for name, tensor in tensors.items():
        _check_tensor(name, tensor)
    _check_apart({name: raw(tensor) for name, tensor in tensors.items()})


def _check_tensor(name: Any, tensor: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"names of tensors must be strings, got {name!r}")
    if name == "__metadata__":
        raise ValueError("'__metadata__' cannot be the name of a tensor: the format keeps it for texts")
    if not isinstance(tensor, Tensor):
        raise TypeError(f"'{name}' is a {type(tensor).__name__}; only tensors can be stored here")
    if is_sparse(tensor):
        raise TypeError(
            f"'{name}' is a {tensor.layout} tensor, which safetensors files cannot hold; store its to_dense()"
        )
    if tensor.dtype is complex128:
        raise ValueError(f"'{name}' is complex128, which safetensors files cannot hold; store view_as_real() of it")


def _check_apart(arrays: dict[str, Any]) -> None:
    """Refuse tensors that share memory."""
    spans = sorted((*np.lib.array_utils.byte_bounds(array), name) for name, array in arrays.items() if array.size)
    reach: list[tuple[int, str]] = []
    for start, end, name in spans:
        reach = [(stop, other) for stop, other in reach if stop > start]
        for _, other in reach:
            if _shares(arrays[name], arrays[other]):
                raise ValueError(
                    f"'{other}' and '{name}' share memory: they would be stored twice and come back apart; leave one "
                    "out and tie them again after loading, or store a clone()"
                )
        reach.append((end, name))


def _shares(a: Any, b: Any) -> bool:
    effort: Any = 10_000  # candidate elements; the exact answer can take for ever
    try:
        return bool(np.shares_memory(a, b, max_work=effort))
    except np.exceptions.TooHardError:
        return True


# ---- reading ---------------------------------------------------------------------------


def read_tensors(source: Source, header: Header, verify: bool) -> dict[str, Tensor]:
    """Return all tensors of a file whose header was read."""
    return {name: read_tensor(source, name, entry, verify) for name, entry in header.entries.items()}


def read_tensor(source: Source, name: str, entry: Entry, verify: bool) -> Tensor:
    """Return one tensor of a file.

    Raises:
        ValueError: if its bytes do not have their checksum.
    """
    found = source.array(entry.start, entry.stop)
    if verify and entry.checksum is not None and zlib.crc32(found.data) != entry.checksum:
        raise ValueError(f"{source.name} is damaged: the values of '{name}' do not have their checksum")
    out: Tensor = from_array(typed(found, entry.dtype, entry.start).reshape(entry.shape))
    return out


def typed(found: np.ndarray[Any, Any], dtype: DType, start: int) -> np.ndarray[Any, Any]:
    """Return bytes that begin at ``start`` of a file as numbers."""
    if dtype is bool_:
        return found != 0  # other programs may write True as any byte
    if start % dtype.itemsize and not found.flags.owndata:
        found = found.copy()  # a mapped file in which numbers may begin anywhere
    return found.view(dtype.numpy)

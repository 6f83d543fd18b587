"""The header of a safetensors file: which tensors it holds and where, in JSON, and the checksums of all of it.

A file is the header's length in eight bytes, the header, and the tensors' bytes without holes. ``__metadata__`` of
the header is a dictionary of texts; files written here have the checksums there (CRC-32, in hexadecimal digits): of
the header itself, with this one as zeros, then of each tensor in the order of their bytes.
"""

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from wengert.array.dtype import DType, to_dtype
from wengert.serialization.source import Source

__all__ = ["CHECKSUMS", "Entry", "Header", "once", "parse", "written"]

_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64",
}  # fmt: skip
_CODES = {name: code for code, name in _DTYPES.items()}

CHECKSUMS = "wengert.checksums"
_BEFORE_CHECKSUM = f'"{CHECKSUMS}":"'.encode()
_MOST = 100_000_000  # bytes of a header: the format's own limit
_ALIGNMENT = 64
_LARGEST = 2**63 - 1
_MOST_DIMS = 64


class Entry(NamedTuple):
    """A tensor of a file: from byte ``start`` to ``stop`` of it, and the checksum if there is one."""

    dtype: DType
    shape: tuple[int, ...]
    start: int
    stop: int
    checksum: int | None


class Header(NamedTuple):
    """What a file holds."""

    entries: dict[str, Entry]
    metadata: dict[str, str]


# ---- reading ---------------------------------------------------------------------------


class _WrongError(ValueError):
    """The reason why a header is refused."""


def parse(source: Source, verify: bool) -> Header:
    """Read and check a header.

    Raises:
        ValueError: naming the file and what is wrong with it.
    """
    try:
        text = _text(source)
        found = json.loads(text, object_pairs_hook=once)
        if not isinstance(found, dict):
            raise _WrongError("the header is no dictionary")
        metadata = found.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
            raise _WrongError("the metadata is no dictionary of texts")
        entries = _entries(found, 8 + len(text), source.size)
        if verify and CHECKSUMS in metadata:
            entries = _with_checksums(entries, text, metadata[CHECKSUMS])
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, _WrongError) else f"the header is no JSON ({error})"
        raise ValueError(f"{source.name} is not a complete safetensors file ({source.size} bytes): {reason}") from error
    metadata.pop(CHECKSUMS, None)
    return Header(entries, metadata)


def _text(source: Source) -> bytes:
    if source.size < 8:
        raise _WrongError("it ends before its header")
    length = int.from_bytes(source.read(0, 8), "little")
    if length > _MOST:
        raise _WrongError(f"its first bytes, the header's length, say {length}, more than the {_MOST} of the format")
    if 8 + length > source.size:
        raise _WrongError(f"it ends before the end of its header of {length} bytes")
    text = source.read(8, 8 + length)
    if not text.startswith(b"{"):
        raise _WrongError("the header does not begin with '{'")
    return text


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dictionary of pairs, for ``json``. ValueError for a name that comes twice, of which it would keep one."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _WrongError(f"{name!r} comes twice")
        found[name] = value
    return found


def _entries(found: dict[str, Any], begin: int, size: int) -> dict[str, Entry]:
    entries = {name: _entry(name, value, begin) for name, value in found.items()}
    at = begin
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:4]):
        if entry.start != at:
            raise _WrongError(f"the bytes of '{name}' begin at {entry.start - begin}, those before end at {at - begin}")
        at = entry.stop
    if at != size:
        raise _WrongError(f"it should have {at} bytes")
    return entries


def _entry(name: str, value: Any, begin: int) -> Entry:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise _WrongError(f"'{name}' does not say dtype, shape and data_offsets")
    code, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    dtype = _DTYPES.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise _WrongError(f"'{name}' has dtype {code}; supported are {', '.join(_DTYPES)}")
    if not _are_sizes(shape) or len(shape) > _MOST_DIMS:
        raise _WrongError(f"'{name}' has the shape {shape}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _WrongError(f"'{name}' has the data_offsets {offsets}")
    known = to_dtype(dtype)
    if math.prod(size or 1 for size in shape) * known.itemsize > _LARGEST:
        raise _WrongError(f"'{name}' has the shape {shape}, which no memory can hold")
    if offsets[1] - offsets[0] != math.prod(shape) * known.itemsize:
        raise _WrongError(
            f"'{name}' has {offsets[1] - offsets[0]} bytes, which shape {shape} and dtype {code} do not fit"
        )
    return Entry(known, tuple(shape), begin + offsets[0], begin + offsets[1], None)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v <= _LARGEST for v in value)


def _with_checksums(entries: dict[str, Entry], text: bytes, digits: str) -> dict[str, Entry]:
    """The entries with their checksums, after comparing the header's own."""
    before, found, after = text.partition(_BEFORE_CHECKSUM)
    names = sorted(entries, key=lambda name: entries[name][2:4])
    own = b"%08x" % zlib.crc32(before + found + b"0" * 8 + after[8:])
    others = [int(word, 16) for word in digits.split(" ")[1:]] if after[:8] == own else []
    if after[:8] != own or len(others) != len(names):
        raise _WrongError(
            "the header does not have its checksum: it is damaged, or another program changed it; verify=False reads it "
            "all the same"
        )
    sums = dict(zip(names, others, strict=True))
    return {name: entry._replace(checksum=sums[name]) for name, entry in entries.items()}


# ---- writing ---------------------------------------------------------------------------


def written(tensors: Mapping[str, Any], parts: Mapping[str, np.ndarray[Any, Any]], metadata: Mapping[str, str]) -> Any:
    """Return the header of tensors whose bytes are ``parts``, and the names in the order in which these follow it."""
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))  # so that all are aligned
    starts, at = {}, 0
    for name in order:
        starts[name] = at
        at += parts[name].nbytes
    sums = " ".join(f"{zlib.crc32(parts[name].data):08x}" for name in order)
    entries = {
        name: {
            "dtype": _CODES[tensor.dtype.name], "shape": list(tensor.shape),
            "data_offsets": [starts[name], starts[name] + parts[name].nbytes],
        }
        for name, tensor in tensors.items()
    }  # fmt: skip
    texts = {CHECKSUMS: f"{'0' * 8} {sums}".rstrip(), **metadata}
    text = json.dumps({"__metadata__": texts, **entries}, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    before, found, after = text.partition(_BEFORE_CHECKSUM)
    text = before + found + b"%08x" % zlib.crc32(text) + after[8:]
    return len(text).to_bytes(8, "little") + text, order

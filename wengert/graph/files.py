"""Graphs in files: the text, and beside it the constants that do not stand in it; no code, and reading one runs none.

The format is that of safetensors (eight bytes of length, a header in JSON, the arrays), so that any reader of it finds the
constants under their names and the text under ``graph`` in the metadata. ``sha256`` there is the checksum of everything else.
Since the format has no complex128, such an array is stored as pairs of float64 and named under ``complex128``.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import numpy as np

from wengert.array.dtype import DTYPES, complex128, dtype_of, float64
from wengert.atomic import write_whole
from wengert.errors import GraphError
from wengert.graph.ir import Graph
from wengert.graph.parser import parse
from wengert.graph.text import show, stored

__all__ = ["Content", "load", "read", "save", "write"]

Path = str | os.PathLike[str]

_FORMAT: Final = "wengert graph 1"
_CODES: Final = {
    "bool": "BOOL", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "int8": "I8", "int16": "I16",
    "int32": "I32", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64",
}  # fmt: skip
_DTYPES: Final = {_CODES[d.name]: d for d in DTYPES if d.name in _CODES}


class Content:
    """What a file holds: texts by name, and arrays by name."""

    __slots__ = ("arrays", "texts")

    def __init__(self, texts: Mapping[str, str], arrays: Mapping[str, Any]) -> None:
        self.texts, self.arrays = dict(texts), dict(arrays)


def save(graph: Graph, path: Path) -> None:
    """Write a graph to a file, which is there completely or not at all.

    Raises:
        GraphError: if the graph breaks a rule, or holds what no file can: a random generator, an optimiser's formula, an
            argument of an operator that is an object of Python.
        OSError: if the file cannot be written.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "empty.graph")
        >>> save(Graph(), path)
        >>> print(load(path))
        graph {
          return
        }
    """
    write(path, packed(graph))


def packed(graph: Graph) -> Content:
    """Return what a file of a graph holds. Errors as for :func:`save`."""
    text, arrays = show(graph), stored(graph)
    parse(text, arrays)  # what cannot be read back is not written
    return Content({"graph": text}, arrays)


def load(path: Path) -> Graph:
    """Read a graph, and verify it.

    Raises:
        FileNotFoundError: if there is no such file.
        GraphError: if it is cut short, damaged or something else, or names an operator that is not declared here.
    """
    content = read(path)
    return parse(content.texts["graph"], content.arrays)


# ---- the format ----------------------------------------------------------------------


def write(path: Path, content: Content) -> None:
    """Write a file so that it is there completely or not at all, also after a crash."""
    write_whole(path, _to_bytes(content))


def read(path: Path) -> Content:
    """Read a file that :func:`write` has written. Errors as for :func:`load`."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return _from_bytes(data)
    except GraphError as error:
        raise GraphError(f"{os.fspath(path)}: {error}") from None


def _to_bytes(content: Content) -> bytes:
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    at = 0
    for name, array in content.arrays.items():
        pairs = dtype_of(array.dtype) is complex128
        plain = np.ascontiguousarray(array)
        data = plain.tobytes()
        shape = [*array.shape, 2] if pairs else list(array.shape)
        code = _CODES[(float64 if pairs else dtype_of(array.dtype)).name]
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    doubled = [name for name, array in content.arrays.items() if array.dtype == complex128.numpy]
    header["__metadata__"] = {**content.texts, "format": _FORMAT, "complex128": json.dumps(doubled)}
    body = b"".join(parts)
    header["__metadata__"]["sha256"] = _checksum(header, body)
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    return len(encoded).to_bytes(8, "little") + encoded + body


def _checksum(header: dict[str, Any], body: bytes) -> str:
    """Return the checksum of a header, leaving out the checksum in it, and the arrays."""
    metadata = {k: v for k, v in header["__metadata__"].items() if k != "sha256"}
    told = json.dumps({**header, "__metadata__": metadata}, sort_keys=True).encode()
    return hashlib.sha256(told + b"\n" + body).hexdigest()


def _refuse(problem: str) -> NoReturn:
    raise GraphError(f"this is no file of a graph, or a damaged one: {problem}") from None


def _from_bytes(data: bytes) -> Content:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        _refuse(f"it ends within its header, after {len(data)} bytes")
    try:
        header = json.loads(data[8 : 8 + length].decode())
    except (ValueError, RecursionError) as error:
        _refuse(f"its header is no JSON: {error}")
    metadata = header.pop("__metadata__", None) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        _refuse("its header names no texts")
    if metadata.get("format") != _FORMAT or "graph" not in metadata:
        _refuse(f"its format is {str(metadata.get('format'))[:40]!r}, not {_FORMAT!r}")
    body = data[8 + length :]
    if metadata.get("sha256") != _checksum({**header, "__metadata__": metadata}, body):
        _refuse("its checksum is another one")
    arrays = {name: _array(name, entry, body) for name, entry in header.items()}
    for name in _names(metadata.get("complex128", "[]")):
        if name not in arrays or arrays[name].dtype != np.float64 or arrays[name].shape[-1:] != (2,):
            _refuse(f"the array '{name}' does not hold pairs of float64")
        arrays[name] = arrays[name].view(np.complex128)[..., 0]
    return Content(metadata, arrays)


def _names(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found) or len(set(found)) < len(found):
        _refuse("its list of complex arrays is none")
    return found


def _array(name: str, entry: Any, body: bytes) -> Any:
    """Return an array in memory of its own."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        _refuse(f"the entry of the array '{name}' is none")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in _DTYPES:
        _refuse(f"the array '{name}' is of the unknown dtype {code!r}")
    if not (_sizes(shape) and _sizes(offsets) and len(offsets) == 2 and len(shape) <= 64):
        _refuse(f"the shape or the place of the array '{name}' is none")
    start, end = offsets
    dtype = _DTYPES[code].numpy
    if not start <= end <= len(body) or math.prod(shape) * dtype.itemsize != end - start:
        _refuse(f"the array '{name}' of shape {shape} does not lie within the file")
    return np.frombuffer(body[start:end], dtype).reshape(shape).copy()


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)

"""Saving and loading, in the safetensors format: tensors and text, never code.

``save_file`` and ``load_file`` take a flat dictionary of tensors, the format's own content. ``save`` and ``load`` take
nested dictionaries, lists, tuples, numbers, strings and tensors, such as a training state: the tensors are stored under
their paths and the rest as JSON beside them, so that any reader of the format still finds every tensor.

Files are written under another name in the same folder and renamed when complete: neither a reader nor a crash ever
meets half a file.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from wengert.array.dtype import complex128, to_dtype
from wengert.atomic import write_whole
from wengert.core.tensor import Tensor, from_array, raw

__all__ = ["from_bytes", "load", "load_file", "save", "save_file", "to_bytes"]

Path = str | os.PathLike[str]

_STRUCTURE = "wengert"  # the metadata entry that holds what is not a tensor
_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64",
}  # fmt: skip


def save_file(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write a dictionary of tensors to a file.

    Args:
        tensors: names and tensors; non-contiguous ones are stored in row-major order. metadata: names and texts.

    Raises:
        TypeError: for a name that is no string or a value that is no tensor. ValueError: for two tensors that share
            memory (their values would be stored twice and come back apart), or complex128, which the format lacks.
        ImportError: if the safetensors library is missing.

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
    write_whole(path, to_bytes(tensors, metadata))


def load_file(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file, each into memory of its own.

    Raises:
        FileNotFoundError: if there is none. ValueError: if it is corrupt, cut short or of another format.
        ImportError: if the safetensors library is missing.
    """
    return _read_tensors(_read(path), os.fspath(path))


def to_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return what :func:`save_file` would write. Errors as there.

    Example:
        >>> from wengert.serialization import from_bytes, to_bytes
        >>> import wengert as wg
        >>> from_bytes(to_bytes({"n": wg.tensor(3)}))
        {'n': tensor(3)}
    """
    for what, given in (("tensors", tensors), ("metadata", metadata)):
        if not isinstance(given, Mapping) and (given is not None or what == "tensors"):
            raise TypeError(f"{what} must be a dictionary, got {type(given).__name__}")
    arrays = {name: _array(name, tensor) for name, tensor in tensors.items()}
    _check_apart({name: raw(tensor) for name, tensor in tensors.items()})
    texts: list[Any] = [item for pair in (metadata or {}).items() for item in pair]
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"metadata holds names and texts, got {text!r}")
    data: bytes = _library().numpy.save(arrays, dict(metadata) if metadata else None)
    return data


def from_bytes(data: bytes) -> dict[str, Tensor]:
    """Return the tensors in bytes of the format. ValueError if they are corrupt or of another format."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"from_bytes() takes bytes, got {type(data).__name__}")
    return _read_tensors(data, "the given bytes")


def save(obj: Any, f: Path | BinaryIO) -> None:
    """Write nested dictionaries, lists, tuples, numbers, strings, None and tensors to a file.

    A tensor that occurs several times is stored once and is one tensor again after :func:`load`. Dictionaries come back
    as plain ones, parameters as plain tensors without gradients.

    Args:
        obj: for instance ``{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}``.
        f: a path, or a file open for writing bytes.

    Raises:
        TypeError: for any other object, naming where it is. ValueError, ImportError: as :func:`save_file`.

    Example:
        >>> import io
        >>> import wengert as wg
        >>> from wengert.serialization import load, save
        >>> f = io.BytesIO()
        >>> save({"step": 3, "state": [wg.ones(1), {0: None}]}, f)
        >>> _ = f.seek(0)
        >>> load(f)
        {'step': 3, 'state': [tensor([1.]), {0: None}]}
    """
    _check_file("save", f, "write")
    tensors: dict[str, Tensor] = {}
    structure = _pack(obj, "", tensors, {})
    data = to_bytes(tensors, {_STRUCTURE: json.dumps(structure)})
    if isinstance(f, str | os.PathLike):
        write_whole(f, data)
    else:
        f.write(data)


def load(f: Path | BinaryIO) -> Any:
    """Read what :func:`save` wrote; of any other safetensors file, a dictionary of its tensors.

    Raises:
        FileNotFoundError, ValueError, ImportError: as :func:`load_file`.
    """
    _check_file("load", f, "read")
    is_path = isinstance(f, str | os.PathLike)
    source = os.fspath(f) if is_path else "the given file"  # type: ignore[arg-type, unused-ignore]
    data = _read(f) if is_path else f.read()  # type: ignore[arg-type, union-attr, unused-ignore]
    tensors = _read_tensors(data, source)
    length = int.from_bytes(data[:8], "little")
    structure = json.loads(data[8 : 8 + length]).get("__metadata__", {}).get(_STRUCTURE)
    try:
        return tensors if structure is None else _unpack(json.loads(structure), tensors)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise ValueError(f"{source}: what is stored beside the tensors is damaged ({error!r})") from error


# ---- tensors ---------------------------------------------------------------------------


def _library() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            "saving and loading need the safetensors library; install it with: pip install wengert[demo]"
        ) from error
    return safetensors


def _array(name: Any, tensor: Any) -> Any:
    if not isinstance(name, str):
        raise TypeError(f"names of tensors must be strings, got {name!r}")
    if not isinstance(tensor, Tensor):
        raise TypeError(f"'{name}' is a {type(tensor).__name__}; only tensors can be stored here")
    if tensor.dtype is complex128:
        raise ValueError(f"'{name}' is complex128, which safetensors files cannot hold; store view_as_real() of it")
    array = raw(tensor)
    return np.ascontiguousarray(array).reshape(array.shape)


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


def _read_tensors(data: bytes, source: str) -> dict[str, Tensor]:
    library = _library()
    try:
        found = library.deserialize(bytes(data))
    except library.SafetensorError as error:
        raise ValueError(f"{source} is not a complete safetensors file ({len(data)} bytes): {error}") from error
    tensors = {}
    for name, entry in found:
        dtype = _DTYPES.get(entry["dtype"])
        if dtype is None:
            raise ValueError(f"{source}: '{name}' has dtype {entry['dtype']}; supported are {', '.join(_DTYPES)}")
        array = np.frombuffer(bytearray(entry["data"]), to_dtype(dtype).numpy).reshape(entry["shape"])
        tensors[name] = from_array(array)
    return tensors


# ---- files -----------------------------------------------------------------------------


def _check_file(name: str, f: Any, method: str) -> None:
    """Refuse what is neither a path nor an open file. TypeError, or ValueError for an empty path."""
    if not isinstance(f, str | os.PathLike) and not hasattr(f, method):
        raise TypeError(f"{name}() takes a path or an open file, got {f!r}")
    if f == "":
        raise ValueError(f"{name}() takes a path, got an empty string")


def _read(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# ---- structure -------------------------------------------------------------------------


def _pack(value: Any, path: str, tensors: dict[str, Tensor], names: dict[Any, str]) -> Any:
    """Return ``value`` as JSON; tensors go into ``tensors`` and are named."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        array = raw(value)
        identity = (array.ctypes.data, array.shape, array.strides, array.dtype) if array.size else id(value)
        if identity not in names:
            names[identity] = _free_name(path or "tensor", tensors)
            tensors[names[identity]] = value
        return {"tensor": names[identity]}
    if isinstance(value, Mapping):
        return {"dict": [[_key(k, path), _pack(v, _joined(path, k), tensors, names)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_pack(v, _joined(path, i), tensors, names) for i, v in enumerate(value)]}
    raise TypeError(
        f"cannot save a {type(value).__name__} (at '{path}'): only dictionaries, lists, tuples, numbers, strings, None "
        "and tensors"
    )


def _key(key: Any, path: str) -> Any:
    if key is None or isinstance(key, bool | int | float | str):
        return key
    raise TypeError(f"cannot save the dictionary key {key!r} (at '{path}'): keys must be strings or numbers")


def _joined(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _free_name(path: str, taken: Mapping[str, Any]) -> str:
    """``path``, or with a number if another tensor has that name."""
    name, number = path, 1
    while name in taken:
        number += 1
        name = f"{path}#{number}"
    return name


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    (kind, content), *_ = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _unpack(item, tensors) for key, item in content}
    items = [_unpack(item, tensors) for item in content]
    return items if kind == "list" else tuple(items)

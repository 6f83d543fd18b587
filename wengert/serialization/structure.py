"""Nested values as JSON and a flat dictionary of tensors."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from wengert.array.dtype import complex128
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, from_array, raw
from wengert.sparse.create import assembled
from wengert.sparse.payload import is_sparse

__all__ = ["pack", "unpack"]


def pack(value: Any, path: str, tensors: dict[str, Tensor], names: dict[Any, str]) -> Any:
    """Return ``value`` as JSON; tensors go into ``tensors`` and are named.

    Raises:
        TypeError: for what cannot be stored, naming where it is.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.bool_ | np.integer | np.floating) and value.dtype != np.longdouble:
        return value.item()
    if isinstance(value, complex | np.complexfloating):
        return {"complex": [float(value.real), float(value.imag)]}
    if isinstance(value, Tensor) and is_sparse(value):
        pattern = value._payload.pattern
        given = {name: from_array(array) for name, array in pattern.arrays().items()} | {
            "values": value._payload.entries
        }
        parts = [pack(part, _joined(path, name), tensors, names) for name, part in given.items()]
        return {"sparse": [pattern.layout.name, list(pattern.shape), pattern.coalesced, *parts]}
    if isinstance(value, Tensor):
        array = raw(value)
        identity = (array.ctypes.data, array.shape, array.strides, array.dtype) if array.size else id(value)
        if identity not in names:
            names[identity] = _free_name(path or "tensor", tensors)
            double = value.dtype is complex128  # which the format lacks
            tensors[names[identity]] = ops.view_as_real(value.detach()) if double else value
        return {"complex128" if value.dtype is complex128 else "tensor": names[identity]}
    if isinstance(value, Mapping):
        return {"dict": [[_key(k, path), pack(v, _joined(path, k), tensors, names)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [pack(v, _joined(path, i), tensors, names) for i, v in enumerate(value)]}
    raise TypeError(
        f"cannot save a {type(value).__name__} (at '{path}'): only dictionaries, lists, tuples, numbers, strings, None "
        f"and tensors; {_advice(value)}"
    )


def _advice(value: Any) -> str:
    """What to store instead."""
    if callable(getattr(value, "state_dict", None)):
        return "store its .state_dict()"
    if isinstance(value, np.ndarray):
        return "store wengert.from_numpy() of it"
    if isinstance(value, set | frozenset):
        return "store a list of its elements"
    return "store numbers, strings or tensors that it can be made of again"


def _key(key: Any, path: str) -> Any:
    if key is None or isinstance(key, bool | int | float | str):
        return key
    if isinstance(key, np.bool_ | np.integer):
        return key.item()
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


def unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return what was packed. LookupError, TypeError or ValueError if it was not packed here."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "complex128":
        return ops.view_as_complex(tensors[content])
    if kind == "complex":
        return complex(*content)
    if kind == "dict":
        return {key: unpack(item, tensors) for key, item in content}
    if kind == "sparse":
        name, shape, coalesced, *parts = content
        return assembled(name, tuple(shape), coalesced, *(unpack(part, tensors) for part in parts))
    if kind not in ("list", "tuple"):
        raise ValueError(f"unknown kind {kind!r}")
    items = [unpack(item, tensors) for item in content]
    return items if kind == "list" else tuple(items)

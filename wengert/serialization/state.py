"""Nested training states, and ``load`` for whatever file a state is in."""

import json
import os
from typing import Any, BinaryIO

from wengert.array.device import device
from wengert.atomic import write_whole
from wengert.core.tensor import Tensor
from wengert.serialization.header import parse
from wengert.serialization.pytorch import is_pytorch, read_pytorch
from wengert.serialization.source import Path, check_file, opened
from wengert.serialization.structure import pack, unpack
from wengert.serialization.tensors import pieces, read_tensors

__all__ = ["load", "save"]

_STRUCTURE = "wengert"  # the metadata entry that holds what is not a tensor


def save(obj: Any, f: Path | BinaryIO) -> None:
    """Write nested dictionaries, lists, tuples, numbers, strings, None and tensors to a file.

    A tensor that occurs several times is stored once and is one tensor again after :func:`load`. Dictionaries come back
    as plain ones, parameters as plain tensors without gradients, NumPy's numbers as Python's.

    Args:
        obj: for instance ``{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}``.
        f: a path, or a file open for writing bytes.

    Raises:
        TypeError: for any other object, naming where it is. ValueError: as :func:`save_file`; for an object that contains
            itself.

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
    check_file("save", f, "write")
    tensors: dict[str, Tensor] = {}
    try:
        structure = pack(obj, "", tensors, {})
    except RecursionError:
        raise ValueError("save(): the object contains itself, or is nested too deeply to be stored") from None
    parts = pieces(tensors, {_STRUCTURE: json.dumps(structure)})
    if isinstance(f, str | os.PathLike):
        write_whole(f, parts)
    else:
        for part in parts:
            f.write(part)


def load(
    f: Path | BinaryIO, map_location: Any = None, *, mmap: bool = False, verify: bool = True, weights_only: bool = True,
) -> Any:  # fmt: skip
    """Read what :func:`save` wrote; of any other safetensors file, a dictionary of its tensors.

    Files that PyTorch wrote are recognised by their content and read as by :func:`load_pytorch`.

    Args:
        map_location: where tensors are to live: a device or its name, or a dictionary from the devices of the file to others.
            Tensors live on ``"cpu"``, wherever a file has them from, so that nothing else is accepted.
        mmap, verify: as for :func:`load_file`. weights_only: must be True: nothing that is in a file is ever run.

    Raises:
        FileNotFoundError: if there is none. ValueError: if it is damaged, cut short or of another format.
        TypeError: for a ``map_location`` that is a function. RuntimeError: for one that is not the CPU.
    """
    check_file("load", f, "read")
    _check_location(map_location)
    if not weights_only:
        raise ValueError("load(weights_only=False) would run code from the file, which is never done here")
    with opened(f, mmap) as source:
        if is_pytorch(source):
            return read_pytorch(source, verify)
        header = parse(source, verify)
        tensors = read_tensors(source, header, verify and not mmap)
    if _STRUCTURE not in header.metadata:
        return tensors
    try:
        return unpack(json.loads(header.metadata[_STRUCTURE]), tensors)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise ValueError(f"{source.name}: what is stored beside the tensors is damaged ({error!r})") from error


def _check_location(map_location: Any) -> None:
    """Refuse to bring tensors anywhere but to the CPU."""
    for place in map_location.values() if isinstance(map_location, dict) else (map_location,):
        if callable(place):
            raise TypeError(
                "load(): map_location must be a device, its name, or a dictionary of devices, got a function, which would be "
                "called with storages, of which there are none here; pass 'cpu'"
            )
        if place is not None and device(place).index:
            raise RuntimeError(f"load(): map_location must be 'cpu', got {place!r}; bring tensors there with .to()")

"""The files that PyTorch's ``save`` writes: zip archives of a pickle and the bytes of each storage.

The pickle is read as data (:mod:`wengert.serialization.pickled`), with the names of this list and no others.
"""

import math
from collections import Counter, OrderedDict
from typing import Any, BinaryIO

import numpy as np

from wengert.array.device import device
from wengert.array.dtype import DTYPES, DType
from wengert.array.shape import Size
from wengert.core.tensor import Tensor, from_array, version_of
from wengert.serialization.archive import Archive, Member
from wengert.serialization.pickled import Allowed, PickleError, checked_key, read
from wengert.serialization.source import Path, Source, check_file, opened
from wengert.serialization.tensors import typed

__all__ = ["is_pytorch", "load_pytorch", "read_pytorch"]

_LARGEST = 2**63 - 1
_MOST_DIMS = 64


def load_pytorch(f: Path | BinaryIO, *, mmap: bool = False, verify: bool = True) -> Any:
    """Read a ``.pt`` or ``.pth`` file that PyTorch wrote, without running anything that is in it.

    Such a file holds a pickle, a program that may call any function. Here it is read as data: containers, numbers, texts,
    tensors, parameters, sizes, dtypes and devices. Any other name, such as a class of a model, is refused.

    Tensors of one storage share memory again. Parameters are plain tensors that require gradients. Tensors of other
    devices come to the CPU.

    Args:
        f: a path, or a file open for reading bytes. mmap: map the file into memory instead of reading it, as
            :func:`load_file` does. verify: compare the checksums.

    Raises:
        FileNotFoundError: if there is none. ValueError: naming the file and the reason, if it is damaged, cut short, in
            PyTorch's format before version 1.6, a TorchScript program, or holds something that is not on the list.

    Example:
        >>> import wengert as wg
        >>> wg.serialization.load_pytorch("resnet18.pt")["fc.bias"].shape  # doctest: +SKIP
        wengert.Size([1000])
    """
    check_file("load_pytorch", f, "read")
    with opened(f, mmap) as source:
        if not is_pytorch(source):
            raise ValueError(f"{source.name} is not a file that PyTorch wrote: it does not begin as a zip archive does")
        return read_pytorch(source, verify)


def is_pytorch(source: Source) -> bool:
    """Whether a file begins as a zip archive, or as a pickle; a safetensors file has a brace after eight bytes."""
    begin = source.read(0, min(9, source.size))
    return begin[8:] != b"{" and (begin.startswith(b"PK\x03\x04") or _is_pickle(begin))


def _is_pickle(begin: bytes) -> bool:
    return begin[:1] == b"\x80" and begin[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def read_pytorch(source: Source, verify: bool) -> Any:
    """Return what a file holds."""
    if _is_pickle(source.read(0, min(2, source.size))):
        raise ValueError(
            f"{source.name} is a plain pickle, as PyTorch wrote before version 1.6; it is not read, since that would run "
            "code. Write it again in PyTorch: torch.save(torch.load(path, weights_only=True), path)"
        )
    archive = Archive(source)
    prefixes = [
        name[: -len("data.pkl")] for name in archive.members if name.endswith("/data.pkl") and name.count("/") == 1
    ]
    if len(prefixes) != 1:
        raise ValueError(f"{source.name} is a zip file, but not one that PyTorch wrote: it has no data.pkl")
    if prefixes[0] + "constants.pkl" in archive.members:
        raise ValueError(
            f"{source.name} is a TorchScript program, which is not run here; save its weights in PyTorch: "
            "torch.save(torch.jit.load(path).state_dict(), other)"
        )
    try:
        storages = _Storages(archive, prefixes[0], verify)
        data = archive.array(archive.members[prefixes[0] + "data.pkl"], verify).tobytes()
        return read(data, _ALLOWED.get, storages.find)
    except PickleError as error:
        raise ValueError(f"{source.name} is refused: {error}") from error


# ---- storages --------------------------------------------------------------------------


class _Storage:
    """The numbers of a storage, and a tensor of all of them that knows when they are written to; bytes, without a dtype."""

    def __init__(self, values: np.ndarray[Any, Any], dtype: DType | None, whole: Tensor) -> None:
        self.values, self.dtype, self.whole = values, dtype, whole
        self._others: dict[Any, _Storage] = {}  # made once: a file may ask for them a million times

    def typed(self, dtype: DType) -> "_Storage":
        """Return its bytes as numbers."""
        if dtype not in self._others:
            self._others[dtype] = _Storage(typed(self.values, dtype, self.values.ctypes.data), dtype, self.whole)
        return self._others[dtype]

    def marked(self, name: str) -> "_Storage":
        """Return the numbers that stand for those of a tensor marked "conj" or "neg"."""
        if name not in self._others:
            values = np.conj(self.values) if name == "conj" else np.negative(self.values)
            self._others[name] = _Storage(values, self.dtype, from_array(values))
        return self._others[name]


class _Storages:
    """The storages of an archive, each read once."""

    def __init__(self, archive: Archive, prefix: str, verify: bool) -> None:
        self.archive, self.prefix, self.verify = archive, prefix, verify
        self.read: dict[str, tuple[np.ndarray[Any, Any], Tensor, Any]] = {}
        self.found: dict[tuple[str, DType | None], _Storage] = {}
        order = archive.members.get(prefix + "byteorder")
        self.order = b"little" if order is None else archive.array(order, verify).tobytes()
        if self.order not in (b"little", b"big"):
            raise PickleError(f"its byte order is {self.order[:20]!r}, neither little nor big")

    def find(self, identity: Any) -> _Storage:
        """Return the storage that a pickle calls ("storage", type, number, device, elements)."""
        if type(identity) is not tuple or len(identity) != 5 or identity[0] != "storage":
            raise PickleError(f"it asks for a {type(identity).__name__} in the place of a storage")
        _, kind, key, _, count = identity
        if type(kind) is not Allowed or kind.name not in _STORAGES or type(key) is not str or not _is_size(count):
            raise PickleError("it describes a storage wrongly")
        dtype = _STORAGES[kind.name]
        if (key, dtype) not in self.found:
            self.found[key, dtype] = self._storage(key, count, dtype)
        return self.found[key, dtype]

    def _storage(self, key: str, count: int, dtype: DType | None) -> _Storage:
        member = self.archive.members.get(f"{self.prefix}data/{key}")
        if member is None:
            raise PickleError(f"the storage {key!r} is missing")
        if count * (1 if dtype is None else dtype.itemsize) != member.stop - member.start:
            raise PickleError(
                f"the storage {key!r} has {member.stop - member.start} bytes, which {count} elements do not fit"
            )
        values, whole, known = self._values(key, member, dtype)
        if self.order == b"big" and (dtype is not known or dtype is None):
            raise PickleError(f"the storage {key!r} has numbers of several dtypes in big-endian order")
        return _Storage(values if dtype is None else typed(values, dtype, member.start), dtype, whole)

    def _values(self, key: str, member: Member, dtype: DType | None) -> tuple[np.ndarray[Any, Any], Tensor, Any]:
        if key not in self.read:
            values = self.archive.array(member, self.verify)
            if self.order == b"big" and dtype is not None:
                width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
                values = np.ascontiguousarray(values.reshape(-1, width)[:, ::-1]).reshape(-1)
            self.read[key] = values, from_array(values), dtype
        return self.read[key]


# ---- what a pickle may call ------------------------------------------------------------


def _tensor(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, metadata: Any = None
) -> Tensor:  # fmt: skip
    """A tensor on a storage, whose elements all lie in it."""
    if type(storage) is not _Storage or storage.dtype is None:
        raise PickleError("it makes a tensor of something else than a storage")
    if type(hooks) is not OrderedDict or hooks:
        raise PickleError("it has a tensor with hooks, which are code")
    if metadata is not None and (type(metadata) is not dict or set(metadata) - {"conj", "neg"}):
        raise PickleError("it has a tensor with marks other than 'conj' and 'neg'")
    _check_places(storage.values.size, offset, size, stride)
    for name, on in (metadata or {}).items():
        storage = storage.marked(name) if on else storage
    itemsize = storage.values.itemsize
    if math.prod(size):
        array = np.lib.stride_tricks.as_strided(storage.values[offset:], size, [step * itemsize for step in stride])
    else:
        array = np.empty(size, storage.values.dtype)
    out: Tensor = from_array(array)
    if array.base is not None:
        out._cell = version_of(storage.whole)
    return _with_gradients(out, requires_grad)


def _check_places(count: int, offset: Any, size: Any, stride: Any) -> None:
    """Refuse a view of a storage of ``count`` elements that leaves it."""
    known = type(size) in (tuple, Size) and type(stride) is tuple and all(map(_is_size, (offset, *size, *stride)))
    if not known or len(size) != len(stride) or len(size) > _MOST_DIMS or math.prod(size) > _LARGEST:
        raise PickleError("it describes the shape of a tensor wrongly")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if math.prod(size) else -1
    if last >= count:
        raise PickleError(
            f"it has a tensor of size {tuple(size)}, stride {stride} and offset {offset}, which ends at element {last} of a "
            f"storage of {count}"
        )


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _with_gradients(tensor: Tensor, requires_grad: Any) -> Tensor:
    if type(requires_grad) is not bool:
        raise PickleError("it does not say whether a tensor requires gradients")
    if requires_grad and not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        raise PickleError(f"it has a tensor of {tensor.dtype} that requires gradients")
    return tensor.requires_grad_() if requires_grad else tensor


def _tensor_of_bytes(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, dtype: Any, metadata: Any = None
) -> Tensor:  # fmt: skip
    """A tensor on a storage of bytes."""
    if type(storage) is not _Storage or storage.dtype is not None or not isinstance(dtype, DType):
        raise PickleError("it makes a tensor of something else than a storage of bytes")
    if storage.values.size % dtype.itemsize:
        raise PickleError(f"a storage of {storage.values.size} bytes holds no numbers of {dtype}")
    return _tensor(storage.typed(dtype), offset, size, stride, requires_grad, hooks, metadata)


def _parameter(data: Any, requires_grad: Any, hooks: Any, state: Any = None) -> Tensor:
    if not isinstance(data, Tensor) or type(hooks) is not OrderedDict or hooks:
        raise PickleError("it describes a parameter wrongly")
    return _with_attributes(_with_gradients(data, requires_grad), state)


def _of_type(function: Any, kind: Any, arguments: Any, state: Any) -> Tensor:
    """A tensor with attributes."""
    if (
        not isinstance(function, Allowed)
        or function.call not in (_tensor, _tensor_of_bytes)
        or type(arguments) is not tuple
    ):
        raise PickleError("it describes a tensor wrongly")
    if not isinstance(kind, Allowed) or kind.name not in _TENSOR_TYPES:
        raise PickleError("it has a subclass of tensors")
    return _with_attributes(function.call(*arguments), state)


def _with_attributes(tensor: Tensor, state: Any) -> Tensor:
    """Set what a user kept on a tensor, plain values that hide nothing that tensors have."""
    if state is not None and type(state) is not dict:
        raise PickleError("it describes the attributes of a tensor wrongly")
    for name, value in (state or {}).items():
        hides = any(name in vars(cls) for cls in type(tensor).__mro__)
        if type(name) is not str or hides or type(value) not in (bool, int, float, str, type(None)):
            raise PickleError(f"it sets the attribute {str(name)[:80]!r} of a tensor to a {type(value).__name__}")
        vars(tensor)[name] = value
    return tensor


def _ordered(pairs: Any = ()) -> OrderedDict[Any, Any]:
    return OrderedDict((checked_key(key), value) for key, value in pairs)


def _counter(counts: Any) -> "Counter[Any]":
    """What some schedules keep their milestones in."""
    if type(counts) is not dict or not all(map(_is_size, counts.values())):
        raise PickleError("it describes a counter wrongly")
    return Counter(counts)


def _size(values: Any) -> Size:
    if type(values) is not tuple or not all(map(_is_size, values)):
        raise PickleError("it describes a size wrongly")
    return Size(values)


def _device(kind: Any, index: Any = None) -> device:
    """The CPU, whatever it was: that is where the tensors are."""
    if type(kind) is not str or (index is not None and not _is_size(index)):
        raise PickleError("it describes a device wrongly")
    return device("cpu")


def _set(values: Any) -> set[Any]:
    return {checked_key(value) for value in values}


def _encoded(text: Any, encoding: Any) -> bytes:
    if type(text) is not str or encoding != "latin1":
        raise PickleError("it describes bytes wrongly")
    return text.encode("latin1")


def _number(real: Any, imaginary: Any) -> complex:
    if type(real) is not float or type(imaginary) is not float:
        raise PickleError("it describes a complex number wrongly")
    return complex(real, imaginary)


_KINDS = {
    "Bool": "bool", "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64", "Half": "float16",
    "BFloat16": "bfloat16", "Float": "float32", "Double": "float64", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}  # fmt: skip
_BY_NAME = {dtype.name: dtype for dtype in DTYPES}
_STORAGES: dict[str, DType | None] = {
    **{f"torch.{kind}Storage": _BY_NAME[name] for kind, name in _KINDS.items()},
    **{f"torch.cuda.{kind}Storage": _BY_NAME[name] for kind, name in _KINDS.items()},
    "torch.storage.UntypedStorage": None,
}
_TENSOR_TYPES = ("torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")
_FUNCTIONS: dict[str, Any] = {
    "collections.OrderedDict": _ordered,
    "collections.Counter": _counter,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_bytes,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _of_type,
    "torch.Size": _size,
    "torch.device": _device,
    "_codecs.encode": _encoded,
    "__builtin__.bytes": lambda: b"",
    "__builtin__.set": _set,
    "__builtin__.complex": _number,
    "builtins.bytes": lambda: b"",
    "builtins.set": _set,
    "builtins.complex": _number,
}
_ALLOWED = {
    **{name: Allowed(name, function) for name, function in _FUNCTIONS.items()},
    **{name: Allowed(name, None) for name in (*_STORAGES, *_TENSOR_TYPES)},
    **{f"torch.{dtype.name}": Allowed(f"torch.{dtype.name}", None, dtype) for dtype in DTYPES},
}

"""Tensors of another dtype: ``to`` and its short forms. A tensor that already fits is returned as it is."""

from typing import Any

from wengert.array.device import device as Device
from wengert.array.device import devices, index_of, to_device
from wengert.array.dtype import DTYPES, DType, to_dtype
from wengert.core.methods import attach
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.operators.devices import moved

__all__ = ["TYPE_NAMES", "converted"]

_SHORT = {
    "half": "float16", "bfloat16": "bfloat16", "float": "float32", "double": "float64", "byte": "uint8", "char": "int8",
    "short": "int16", "int": "int32", "long": "int64", "bool": "bool", "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip
_LONG = {"cfloat": "ComplexFloat", "cdouble": "ComplexDouble", "bfloat16": "BFloat16"}
TYPE_NAMES = {dtype: f"{_LONG.get(short, short.capitalize())}Tensor" for short, dtype in _SHORT.items()}
_TYPE_DTYPES = {name: dtype for dtype, name in TYPE_NAMES.items()}


def converted(tensor: Any, dtype: DType, copy: bool = False) -> Any:
    """Return ``tensor`` in ``dtype``: itself if it has that dtype and no copy is asked for."""
    if tensor.dtype is dtype:
        return ops.clone(tensor) if copy else tensor
    return ops.cast(tensor, dtype)


def _arranged(tensor: Any, memory_format: Any) -> Any:
    return tensor if memory_format is None else ops.contiguous(tensor, memory_format)


def to(
    self: Any, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False, copy: bool = False,
    memory_format: Any = None, other: Any = None,
) -> Any:  # fmt: skip
    """Return the tensor in another dtype: ``to(dtype)``, ``to(device)``, ``to(device, dtype)`` or ``to(other)``.

    It returns itself if nothing changes and ``copy`` is false; gradients pass through the cast and the move.

    Raises:
        RuntimeError: for a device that does not exist.
    """
    if args and ((isinstance(args[0], str | Device) and not _names_dtype(args[0])) or args[0] is None):
        device, args = args[0], args[1:]
    if args and isinstance(args[0], Tensor):
        other, args = args[0], args[1:]
    elif args and not isinstance(args[0], bool):
        dtype, args = args[0], args[1:]
    if len(args) > 2 or not all(isinstance(a, bool) for a in args):
        raise TypeError(f"to() takes a dtype, a device or a tensor, then non_blocking and copy; got {args!r} besides")
    copy = args[1] if len(args) == 2 else copy
    place = to_device(
        other.device if device is None and other is not None else self.device if device is None else device
    )
    target = other.dtype if other is not None else self.dtype if dtype is None else to_dtype(dtype)
    there = moved(self, place.index or 0)
    return _arranged(converted(there, target, copy and there is self), memory_format)


def _names_dtype(value: Any) -> bool:
    return isinstance(value, str) and value.rpartition(".")[2] in {d.name for d in DTYPES}


def _short(name: str, dtype: str) -> Any:
    def method(self: Any, memory_format: Any = None) -> Any:
        return _arranged(converted(self, to_dtype(dtype)), memory_format)

    method.__name__ = name
    method.__doc__ = f"Return the tensor as {dtype}."
    return method


def type_(self: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Return the tensor in another dtype; without one, PyTorch's name of its type: ``"wengert.FloatTensor"``."""
    if dtype is None:
        return f"wengert.{TYPE_NAMES.get(self.dtype.name, self.dtype.name.capitalize() + 'Tensor')}"
    named = _TYPE_DTYPES.get(str(dtype).rpartition(".")[2])  # "torch.LongTensor" as text, or wengert.LongTensor itself
    return converted(self, to_dtype(dtype if named is None else named))


def type_as(self: Any, other: Any) -> Any:
    """Return the tensor in the dtype of ``other``."""
    return converted(self, other.dtype)


def cpu(self: Any, memory_format: Any = None) -> Any:
    """Return the tensor on the first CPU device: itself if it is there."""
    return _arranged(moved(self, 0), memory_format)


def cuda(self: Any, device: Any = "cuda", non_blocking: bool = False, memory_format: Any = None) -> Any:
    """Refuse: there is no GPU.

    Raises:
        RuntimeError: always.
    """
    to_device("cuda")


def to_device_method(self: Any, device: Any, /, *, stream: Any = None) -> Any:
    """Return the tensor on a device, itself if it is there: the array API standard's way to move an array.

    Raises:
        RuntimeError: for a device that does not exist. ValueError: for a stream, of which the CPU has none.
    """
    if stream is not None:
        raise ValueError(f"to_device(): the CPU has no streams, got stream={stream!r}")
    return moved(self, to_device(device).index or 0)


def get_device(self: Any) -> int:
    """Return -1, PyTorch's number for the CPU; of another logical device its number."""
    return (index_of(self._payload.dtype) or -1) if devices.several else -1


def is_cpu(self: Any) -> bool:
    """True: every tensor is on the CPU."""
    return True


for _name, _dtype in _SHORT.items():
    attach(_name, _short(_name, _dtype))
attach("to", to)
attach("type", type_)
attach("type_as", type_as)
attach("to_device", to_device_method)
attach("cpu", cpu)
attach("cuda", cuda)
attach("get_device", get_device)
attach("is_cpu", property(is_cpu))
attach("is_cuda", property(lambda self: False, doc="False: every tensor is on the CPU."))

"""Data from elsewhere made a tensor: numbers in nested lists, NumPy arrays, DLPack exporters."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from wengert.array.device import on_host, to_device
from wengert.array.dtype import DType, dtype_of, promote_types, scalar_dtype, to_dtype
from wengert.core.devices import device_of, made_on
from wengert.core.methods import attach
from wengert.core.registry import ops
from wengert.core.state import given_away, thread
from wengert.core.tensor import Tensor, alias, from_array, raw
from wengert.errors import GradientLossWarning
from wengert.operators.create import creation, finished
from wengert.operators.devices import moved
from wengert.operators.to_dtype import converted
from wengert.settings import settings

__all__ = ["array_of"]


def _leaves(data: Any, found: set[DType], tensors: list[Any]) -> None:
    """Collect the dtypes of the numbers in nested lists, and the tensors among them."""
    if isinstance(data, list | tuple):
        kinds = set(map(type, data))
        if kinds <= {bool, int, float, complex}:
            found.update(scalar_dtype(kind(), settings.default_dtype) for kind in kinds)
            return
        for item in data:
            _leaves(item, found, tensors)
    elif isinstance(data, Tensor):
        found.add(data.dtype)
        tensors.append(data)
    elif isinstance(data, np.ndarray | np.generic):
        found.add(dtype_of(data.dtype))
    elif isinstance(data, bool | int | float | complex):
        found.add(scalar_dtype(data, settings.default_dtype))
    else:
        raise TypeError(
            f"a tensor is made of numbers, arrays, tensors and lists of them, not of {type(data).__name__}: {data!r}"
        )


def _plain(data: Any) -> Any:
    """Return nested lists with every tensor replaced by its array."""
    if isinstance(data, Tensor):
        return raw(data, "making a tensor of others")
    return [_plain(item) for item in data] if isinstance(data, list | tuple) else data


def _uneven(data: Any) -> Iterator[str]:
    """Yield what is wrong with nested lists that do not form a rectangle, the first place first."""
    level = [("data", data)]
    while level:
        first, size = level[0][0], _length(level[0][1])
        for place, item in level[1:]:
            if _length(item) != size:
                yield f"{place} has {_counted(_length(item))}, {first} has {_counted(size)}"
        level = [
            (f"{place}[{i}]", part) for place, item in level if _length(item) is not None for i, part in enumerate(item)
        ]


def _length(item: Any) -> int | None:
    return len(item) if isinstance(item, list | tuple) or getattr(item, "shape", None) else None


def _counted(length: int | None) -> str:
    return "no length (a number)" if length is None else f"length {length}"


def array_of(data: Any, dtype: DType | None, name: str) -> Any:
    """Return a new array of what ``data`` holds.

    Raises:
        ValueError: for ragged lists, naming the place. TypeError: for what is not a number.
        RuntimeError: for an integer that the dtype cannot hold.
    """
    if isinstance(data, Tensor | np.ndarray):
        array = raw(data, f"{name}()") if isinstance(data, Tensor) else data
        return np.array(array, (dtype or dtype_of(array.dtype)).numpy, order="C")
    if isinstance(data, range):
        data = list(data)
    elif hasattr(data, "__array__") and not isinstance(data, np.generic):  # a tensor or series of another library
        return array_of(np.asarray(data), dtype, name)
    found: set[DType] = set()
    tensors: list[Any] = []
    _leaves(data, found, tensors)
    if any(t.requires_grad for t in tensors):
        warnings.warn(
            f"{name}() copies numbers out of a tensor that requires grad, so they carry no gradient; "
            "use wengert.stack() to keep it, or detach() to say that it is meant",
            GradientLossWarning, stacklevel=4,
        )  # fmt: skip
    if dtype is None:
        dtype = settings.default_dtype
        for k, kind in enumerate(found):
            dtype = kind if k == 0 else promote_types(dtype, kind)
    try:
        return np.array(_plain(data) if tensors else data, dtype.numpy)
    except OverflowError as error:
        raise RuntimeError(f"{name}(): {error}; the dtype is {dtype}") from None
    except (ValueError, TypeError) as error:
        problem = next(_uneven(data), None)
        if problem is None:
            raise type(error)(f"{name}(): {error}") from None
        raise ValueError(f"{name}(): nested lists must be equally long at each depth, but {problem}") from None


def sharing(array: Any, name: str) -> Any:
    """Return a tensor on an array of the user's, which remains able to write there."""
    captures = thread.state.captures
    if captures is not None:
        captures.lent.share(array, f"that {name}() made")
    return from_array(array)


@creation
def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Return a new tensor with a copy of ``data``: a number, nested lists of numbers, an array or a tensor.

    Args:
        data: what to copy. dtype: of the result; without it Python floats give the default dtype, ints int64, and
            arrays and tensors keep theirs.
        requires_grad: whether the result is a leaf whose gradient is wanted.

    Raises:
        ValueError: if nested lists are not equally long; the message names the place.

    Example:
        >>> import wengert as wg
        >>> wg.tensor([[1, 2], [3, 4]]).shape
        wengert.Size([2, 2])
    """
    return finished(array_of(data, None if dtype is None else to_dtype(dtype), "tensor"), device, requires_grad)


@creation
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    """Return ``data`` as a tensor: a tensor itself, an array sharing its memory, anything else copied."""
    kind = None if dtype is None else to_dtype(dtype)
    if isinstance(data, Tensor):
        there = data if device is None else moved(data, to_device(device).index or 0)
        return there if kind is None else converted(there, kind)
    if isinstance(data, np.ndarray) and data.dtype.isnative and kind in (None, dtype_of(data.dtype)):
        return sharing(made_on(np.asarray(data), device), "as_tensor")
    return from_array(made_on(array_of(data, kind, "as_tensor"), device))


@creation
def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False
) -> Any:
    """Return ``obj`` as a tensor; ``copy`` says whether to copy: always, never, or (None) only if it must be."""
    to_device(device)
    if isinstance(obj, Tensor):
        result: Any = as_tensor(obj, dtype, device)
        result = ops.clone(result) if copy and result is obj else result
        shared = result is obj
        result = ops.detach(result) if result.requires_grad and not requires_grad else result
    else:
        if hasattr(obj, "__dlpack__") and not isinstance(obj, np.ndarray | np.generic):
            obj = np.from_dlpack(obj)
        result = tensor(obj, dtype=dtype, device=device) if copy else as_tensor(obj, dtype, device)
        shared = isinstance(obj, np.ndarray) and np.may_share_memory(obj, result._payload)
    if copy is False and not shared:
        raise ValueError(f"asarray(): {type(obj).__name__} cannot become a tensor of {result.dtype} without a copy")
    return result.requires_grad_() if requires_grad and not result.requires_grad else result


@creation
def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Any:
    """Return a one-dimensional tensor on the memory of an object with a buffer (bytes, bytearray, mmap, array …).

    Args:
        buffer: the object; a read-only one gives a tensor that refuses writes.
        dtype: of the elements. count: how many (-1: as many as fit). offset: bytes to skip first.

    Raises:
        ValueError: if the bytes after ``offset`` are not a whole number of elements, or fewer than ``count``.

    Example:
        >>> import wengert as wg
        >>> wg.frombuffer(bytearray(b"abc"), dtype=wg.uint8)
        tensor([97, 98, 99], dtype=wengert.uint8)
    """
    found = sharing(made_on(np.frombuffer(buffer, to_dtype(dtype).numpy, count, offset), None), "frombuffer")
    return found.requires_grad_() if requires_grad else found


@creation
def from_numpy(ndarray: Any) -> Any:
    """Return a tensor that shares the memory of a NumPy array; a read-only array gives a tensor that refuses writes.

    Raises:
        TypeError: if it is no array or holds what tensors cannot. ValueError: if its bytes are not in native order.
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"from_numpy() takes a NumPy array, got {type(ndarray).__name__}; use tensor() or as_tensor()")
    dtype_of(ndarray.dtype)
    if not ndarray.dtype.isnative:
        raise ValueError(
            f"from_numpy() cannot share memory of the foreign byte order {ndarray.dtype}; use tensor(), which copies"
        )
    return sharing(made_on(np.asarray(ndarray), None), "from_numpy")


@creation
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Any:
    """Return a tensor that shares the memory of an object with ``__dlpack__`` (an array of another library)."""
    to_device(device)
    if isinstance(ext_tensor, Tensor):
        if ext_tensor.requires_grad:
            raise RuntimeError("from_dlpack(): a tensor that requires grad would lose its gradient; use .detach()")
        return ops.clone(ext_tensor) if copy else alias(ext_tensor)
    if not hasattr(ext_tensor, "__dlpack__"):
        raise TypeError(f"from_dlpack() takes an object with __dlpack__, got {type(ext_tensor).__name__}")
    return from_numpy(np.from_dlpack(ext_tensor, copy=copy))


def exported(
    self: Any, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: Any = None,
    copy: bool | None = None,
) -> Any:  # fmt: skip
    """Return the tensor's memory as a DLPack capsule, for ``from_dlpack`` of another library.

    Raises:
        RuntimeError: if it requires a gradient, which would be lost. BufferError: if it cannot be given without a copy.
    """
    if self.requires_grad:
        raise RuntimeError("a tensor that requires grad cannot be exported by DLPack; use .detach()")
    array = on_host(raw(self, "DLPack export"))
    given_away(self, "__dlpack__()")
    if any(stride < 0 for stride in array.strides):  # some importers cannot read these
        if copy is False:
            raise BufferError("a tensor with negative strides cannot be exported by DLPack without a copy")
        array = array.copy()
    options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
    return array.__dlpack__(**{k: v for k, v in options.items() if v is not None})


def exported_device(self: Any) -> tuple[int, int]:
    """Return the device as DLPack counts them: (1, 0) is the CPU."""
    return (1, 0)


attach("__dlpack__", exported)
attach("__dlpack_device__", exported_device)


def new_tensor(self: Any, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Return a new tensor with a copy of ``data``, in this tensor's dtype unless another is given."""
    place = device_of(self) if device is None else device
    return tensor(data, dtype=self.dtype if dtype is None else dtype, device=place, requires_grad=requires_grad)


attach("new_tensor", new_tensor)

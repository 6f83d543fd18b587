"""Questions about tensors and dtypes, asked at the top level: ``is_tensor``, ``numel``, ``result_type`` and their kin."""

from typing import Any

from wengert.array.device import CPU, device, devices, to_device
from wengert.array.dtype import DType, dtype_of, result_dtype, to_dtype
from wengert.array.dtype import can_cast as castable
from wengert.array.shape import Size, size_of
from wengert.array.shape import broadcast_shapes as broadcast
from wengert.core.tensor import Tensor
from wengert.settings import settings

__all__ = [
    "are_deterministic_algorithms_enabled", "broadcast_shapes", "can_cast", "get_default_device", "is_inference",
    "is_same_size", "is_signed", "is_tensor", "numel", "result_type", "set_default_device", "typename",
    "use_deterministic_algorithms",
]  # fmt: skip


def _tensor(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}() takes a tensor, got {type(value).__name__}")
    return value


def is_tensor(obj: Any) -> bool:
    """Return whether ``obj`` is a tensor (a parameter is one)."""
    return isinstance(obj, Tensor)


def numel(input: Any) -> int:  # noqa: A002
    """Return the number of elements of a tensor.

    Example:
        >>> import wengert as wg
        >>> wg.numel(wg.zeros(2, 3))
        6
    """
    return _tensor("numel", input).numel()


def is_signed(input: Any) -> bool:  # noqa: A002
    """Return whether the dtype of a tensor can hold negative numbers."""
    return _tensor("is_signed", input).is_signed()


def is_inference(input: Any) -> bool:  # noqa: A002
    """Return whether a tensor was made in :class:`wengert.inference_mode`."""
    return _tensor("is_inference", input).is_inference()


def is_same_size(input: Any, other: Any) -> bool:  # noqa: A002
    """Return whether two tensors have the same shape."""
    return _tensor("is_same_size", input).shape == _tensor("is_same_size", other).shape


def typename(obj: Any) -> str:
    """Return the type of anything as text; of a tensor its legacy name, such as ``"wengert.FloatTensor"``."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    kind = obj if isinstance(obj, type) or hasattr(obj, "__qualname__") else type(obj)
    module = getattr(kind, "__module__", None)
    return kind.__qualname__ if module in (None, "builtins") else f"{module}.{kind.__qualname__}"


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """Return the dtype that an arithmetic operator on two tensors or numbers gives.

    Tensors with dimensions outrank 0-d tensors, and these Python numbers, unless the category (integer, float,
    complex) of the lower one is higher.

    Raises:
        TypeError: if an argument is neither a tensor nor a number.

    Example:
        >>> import wengert as wg
        >>> wg.result_type(wg.zeros(3, dtype=wg.int32), 1.0), wg.result_type(wg.zeros(3, dtype=wg.float16), wg.tensor(2.0))
        (wengert.float32, wengert.float16)
    """
    given = (tensor1, tensor2)
    tensors = [v for v in given if isinstance(v, Tensor)]
    return result_dtype(
        [dtype_of(t._payload.dtype) for t in tensors if t.ndim],
        [dtype_of(t._payload.dtype) for t in tensors if not t.ndim],
        [v for v in given if not isinstance(v, Tensor)],
        settings.default_dtype,
    )


def can_cast(from_: Any, to: Any) -> bool:
    """Return whether a result of dtype ``from_`` may be written into a tensor of dtype ``to``.

    It may where the category (bool, integer, float, complex) does not fall.

    Example:
        >>> import wengert as wg
        >>> wg.can_cast(wg.float64, wg.float32), wg.can_cast(wg.float32, wg.int64)
        (True, False)
    """
    return castable(to_dtype(from_), to_dtype(to))


def broadcast_shapes(*shapes: Any) -> Size:
    """Return the shape that all given shapes (tuples, or ints for one dimension) broadcast to.

    Raises:
        ShapeError: naming the shapes and the dimension that does not fit.

    Example:
        >>> import wengert as wg
        >>> wg.broadcast_shapes((2, 1), (3,), 1)
        wengert.Size([2, 3])
    """
    return Size(broadcast("broadcast_shapes", *(size_of(shape, "shape") for shape in shapes)))


def get_default_device() -> device:
    """Return the device on which tensors are made where none is named."""
    return to_device(f"cpu:{devices.default}") if devices.default else CPU


def set_default_device(device: Any) -> None:
    """Set the device on which tensors are made where none is named; None: the first.

    Raises:
        RuntimeError: for a device that does not exist.
    """
    devices.default = to_device(device).index or 0


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Make every run give the same digits (True), or let kernels be made in the background (False, as it is at first).

    Every kernel gives the same result each time, whatever the number of threads. But a native kernel rounds the last digit
    otherwise than NumPy, whose result is used until the kernel is there. With True a kernel is waited for where it is
    first needed: ``wengert.backends.native.mode`` becomes "wait".
    """
    if settings.native != "off":
        settings.native = "wait" if mode else "auto"


def are_deterministic_algorithms_enabled() -> bool:
    """Return whether two runs give the same digits."""
    return settings.native != "auto"

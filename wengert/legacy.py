"""PyTorch's oldest names: ``FloatTensor(2, 3)``, ``isinstance(x, LongTensor)``, ``Variable(x)``.

New code says ``tensor(..., dtype=..., requires_grad=...)``.
"""

from typing import Any

from wengert.array import dtype as dtypes
from wengert.array.dtype import DType
from wengert.core.devices import made_on
from wengert.core.legacy import legacy_array
from wengert.core.tensor import Tensor, alias, from_array
from wengert.operators.to_dtype import TYPE_NAMES

__all__ = [
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor",
    "LongTensor", "ShortTensor", "TensorType", "Variable", "VariableType",
]  # fmt: skip


class TensorType:
    """The tensors of one dtype. Calling it makes one: of sizes with unset elements, or with a copy of data.

    Example:
        >>> import wengert as wg
        >>> wg.LongTensor([1, 2])
        tensor([1, 2])
        >>> isinstance(wg.ones(2), wg.FloatTensor), wg.DoubleTensor(2, 3).shape
        (True, wengert.Size([2, 3]))
    """

    __slots__ = ("dtype", "name")

    def __init__(self, name: str, dtype: DType) -> None:
        self.name, self.dtype = name, dtype

    def __call__(self, *data: Any, device: Any = None) -> Any:
        return from_array(made_on(legacy_array(data, self.dtype.numpy), device))

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype is self.dtype

    def __repr__(self) -> str:
        return f"wengert.{self.name}"


class VariableType:
    """What tensors with a gradient were before tensors could have one. Calling it gives a leaf on the same memory.

    Example:
        >>> import wengert as wg
        >>> x = wg.autograd.Variable(wg.ones(2), requires_grad=True)
        >>> (x * x).sum().backward(); x.grad
        tensor([2., 2.])
    """

    __slots__ = ()

    def __call__(self, data: Any = None, requires_grad: bool = False) -> Any:
        if data is not None and not isinstance(data, Tensor):
            raise TypeError(f"Variable() takes a tensor, got {type(data).__name__}; make one with wengert.tensor()")
        leaf = from_array(legacy_array((), dtypes.float32.numpy)) if data is None else alias(data)
        return leaf.requires_grad_(requires_grad)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Tensor)


def _type(dtype: DType) -> TensorType:
    return TensorType(TYPE_NAMES[dtype.name], dtype)


BoolTensor, ByteTensor = _type(dtypes.bool_), _type(dtypes.uint8)
CharTensor, ShortTensor, IntTensor, LongTensor = (
    _type(dtypes.int8), _type(dtypes.int16), _type(dtypes.int32), _type(dtypes.int64)
)  # fmt: skip
HalfTensor, BFloat16Tensor = _type(dtypes.float16), _type(dtypes.bfloat16)
FloatTensor, DoubleTensor = _type(dtypes.float32), _type(dtypes.float64)
Variable = VariableType()

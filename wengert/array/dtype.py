"""The dtypes and PyTorch's rules for combining them.

A dtype here is a small object with PyTorch's name and properties; ``dtype.numpy`` is the NumPy dtype that stores it.
bfloat16 is stored by ``ml_dtypes``, which is imported when bfloat16 is first used.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from wengert.errors import DTypeError

__all__ = [
    "BOOL", "COMPLEX", "DTYPES", "FLOAT", "INTEGER", "DType", "bfloat16", "can_cast", "complex64", "complex128",
    "dtype_of", "finfo", "float16", "float32", "float64", "iinfo", "int8", "int16", "int32", "int64", "promote_types",
    "real_of", "result_dtype", "scalar_dtype", "to_dtype", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip

BOOL, INTEGER, FLOAT, COMPLEX = range(4)  # the categories of promotion, in rising order


class DType:
    """A dtype: ``wg.float32`` and so on. Compared by identity.

    Attributes:
        name: PyTorch's name without the package.
        category: BOOL, INTEGER, FLOAT or COMPLEX.
        itemsize: bytes of one element.
    """

    __slots__ = ("_numpy", "category", "itemsize", "name")

    def __init__(self, name: str, category: int, itemsize: int, numpy: Any = None) -> None:
        self.name = name
        self.category = category
        self.itemsize = itemsize
        self._numpy: np.dtype[Any] | None = None if numpy is None else np.dtype(numpy)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that stores it."""
        if self._numpy is None:
            import ml_dtypes

            self._numpy = np.dtype(ml_dtypes.bfloat16)
            _FROM_NUMPY[self._numpy] = self
        return self._numpy

    @property
    def is_floating_point(self) -> bool:
        """True for float16, bfloat16, float32 and float64."""
        return self.category == FLOAT

    @property
    def is_complex(self) -> bool:
        """True for complex64 and complex128."""
        return self.category == COMPLEX

    @property
    def is_signed(self) -> bool:
        """True if the dtype can hold negative numbers."""
        return self.category != BOOL and not self.name.startswith("uint")

    @property
    def is_half(self) -> bool:
        """True for the two-byte floats, whose kernels compute in float32."""
        return self.category == FLOAT and self.itemsize == 2

    def __repr__(self) -> str:
        return f"wengert.{self.name}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        return to_dtype, (self.name,)


bool_ = DType("bool", BOOL, 1, np.bool_)
uint8 = DType("uint8", INTEGER, 1, np.uint8)
uint16 = DType("uint16", INTEGER, 2, np.uint16)
uint32 = DType("uint32", INTEGER, 4, np.uint32)
uint64 = DType("uint64", INTEGER, 8, np.uint64)
int8 = DType("int8", INTEGER, 1, np.int8)
int16 = DType("int16", INTEGER, 2, np.int16)
int32 = DType("int32", INTEGER, 4, np.int32)
int64 = DType("int64", INTEGER, 8, np.int64)
float16 = DType("float16", FLOAT, 2, np.float16)
bfloat16 = DType("bfloat16", FLOAT, 2)
float32 = DType("float32", FLOAT, 4, np.float32)
float64 = DType("float64", FLOAT, 8, np.float64)
complex64 = DType("complex64", COMPLEX, 8, np.complex64)
complex128 = DType("complex128", COMPLEX, 16, np.complex128)

DTYPES = (
    bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64,
    float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip
_BY_NAME = {d.name: d for d in DTYPES}
_FROM_NUMPY = {d._numpy: d for d in DTYPES if d._numpy is not None}


def dtype_of(array_dtype: np.dtype[Any]) -> DType:
    """Return the DType that stores a NumPy dtype.

    Raises:
        TypeError: for a dtype that tensors cannot hold (strings, objects, dates, …).
    """
    found = _FROM_NUMPY.get(array_dtype)
    if found is None:
        if array_dtype.name == "bfloat16":
            return _FROM_NUMPY[bfloat16.numpy]
        native = array_dtype.newbyteorder("=")
        if native not in _FROM_NUMPY:
            names = ", ".join(_BY_NAME)
            raise TypeError(f"a tensor cannot hold elements of dtype {array_dtype}; it can hold: {names}")
        return _FROM_NUMPY[native]
    return found


def to_dtype(value: Any) -> DType:
    """Return ``value`` as a DType: a DType itself, its name, a NumPy dtype or scalar type, or bool/int/float/complex."""
    if isinstance(value, DType):
        return value
    if value is float:
        return float64
    if isinstance(value, str) and value.rpartition(".")[2] in _BY_NAME:
        return _BY_NAME[value.rpartition(".")[2]]
    if isinstance(value, str | type | np.dtype):
        try:
            return dtype_of(np.dtype(value))
        except TypeError:
            pass
    raise TypeError(f"expected a dtype such as wengert.float32, got {value!r}")


def scalar_dtype(value: Any, default_float: DType) -> DType:
    """Return the dtype of a Python scalar made into a tensor: bool, int64, the default float, or its complex."""
    if isinstance(value, bool | np.bool_):
        return bool_
    if isinstance(value, int | np.integer):
        return int64
    if isinstance(value, float | np.floating):
        return default_float
    if isinstance(value, complex | np.complexfloating):
        return complex128 if default_float is float64 else complex64
    raise TypeError(f"expected a Python number, got {type(value).__name__}")


def real_of(dtype: DType) -> DType:
    """Return the dtype of the real part of a complex dtype, and any other dtype itself."""
    if dtype is complex64:
        return float32
    return float64 if dtype is complex128 else dtype


def promote_types(a: Any, b: Any) -> DType:
    """Return the smallest dtype, by PyTorch's table, that both are cast to when they meet.

    A higher category wins (int64 with float16 is float16); float16 with bfloat16 is float32.

    Raises:
        DTypeError: for uint64 with a signed integer, which no integer dtype holds.
    """
    if a is b:
        return a
    if not isinstance(a, DType) or not isinstance(b, DType):
        return promote_types(to_dtype(a), to_dtype(b))
    if a.category != b.category:
        low, high = (a, b) if a.category < b.category else (b, a)
        if high is complex64 and low is float64:
            return complex128
        return high
    if a.category == INTEGER and uint64 in (a, b) and (a.is_signed or b.is_signed):
        raise DTypeError(f"no integer dtype holds both {a} and {b}; cast one of them first")
    if a.is_half and b.is_half:
        return float32
    if a.is_half or b.is_half:
        return b if a.is_half else a
    return dtype_of(np.promote_types(a.numpy, b.numpy))


def result_dtype(dims: Iterable[DType], zeros: Iterable[DType], scalars: Iterable[Any], default: DType) -> DType:
    """Return the dtype of an operation by PyTorch's three ranks of operands.

    Args:
        dims: dtypes of operands with at least one dimension.
        zeros: dtypes of 0-d tensor operands; they count only if their category is higher.
        scalars: Python numbers; they count only if their category is higher than both.
        default: the default float dtype, given to a Python float that does count.
    """
    ranks: list[DType] = []
    for rank in (dims, zeros, [scalar_dtype(s, default) for s in scalars]):
        found: DType | None = None
        for dtype in rank:
            found = dtype if found is None else promote_types(found, dtype)
        if found is not None:
            ranks.append(found)
    result = ranks[0]
    for lower in ranks[1:]:
        if lower.category > result.category:
            result = complex_of(result) if (result.category, lower.category) == (FLOAT, COMPLEX) else lower
    return result


def complex_of(dtype: DType) -> DType:
    """Return the complex dtype whose parts have a floating-point dtype (of float16 and bfloat16: complex64)."""
    return complex128 if dtype is float64 else complex64


def can_cast(source: DType, target: DType) -> bool:
    """True if a result of ``source`` may be written into a tensor of ``target`` (no fall to a lower category)."""
    return source.category <= target.category


class finfo:  # noqa: N801 - PyTorch's name
    """Machine limits of a floating-point dtype: ``eps``, ``min``, ``max``, ``tiny``, ``bits``, ``resolution``.

    Example:
        >>> import wengert as wg
        >>> wg.finfo(wg.float32).eps
        1.1920928955078125e-07
    """

    def __init__(self, dtype: DType | None = None) -> None:
        found = float32 if dtype is None else to_dtype(dtype)
        if found.category < FLOAT:
            raise TypeError(f"finfo() takes a floating-point dtype, got {found}; use iinfo() for integers")
        real = real_of(found)
        if real is bfloat16:
            import ml_dtypes

            info: Any = ml_dtypes.finfo(ml_dtypes.bfloat16)  # type: ignore[no-untyped-call]
        else:
            info = np.finfo(real.numpy)
        self.dtype = found.name
        self.bits = real.itemsize * 8
        self.eps, self.min, self.max = float(info.eps), float(info.min), float(info.max)
        self.tiny = self.smallest_normal = float(info.tiny)
        self.resolution = float(info.resolution)

    def __repr__(self) -> str:
        return f"finfo(min={self.min}, max={self.max}, eps={self.eps}, tiny={self.tiny}, dtype={self.dtype})"


class iinfo:  # noqa: N801 - PyTorch's name
    """Limits of an integer dtype: ``min``, ``max``, ``bits``."""

    def __init__(self, dtype: DType) -> None:
        found = to_dtype(dtype)
        if found.category != INTEGER:
            raise TypeError(f"iinfo() takes an integer dtype, got {found}; use finfo() for floats")
        info = np.iinfo(found.numpy)
        self.dtype, self.bits, self.min, self.max = found.name, found.itemsize * 8, int(info.min), int(info.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"

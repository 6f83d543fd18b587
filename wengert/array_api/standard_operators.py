"""Python's operators by the standard, where PyTorch's meaning is another one.

Tensors have PyTorch's operators, and in two points these cannot follow the standard as well: a tensor without dimensions
yields to one that has some (``float32 vector + float64 number-like`` is float32), and ``//`` of infinities is NaN. Code
written for the standard that relies on either asks for the standard's meaning, once for the process.
"""

from typing import Any

from wengert.array_api.elementwise import floor_divide
from wengert.core.inplace import adopt, check_writable
from wengert.core.methods import TensorMethods, attach
from wengert.environment import variable
from wengert.settings import settings

__all__ = ["use_standard_operators"]

_pytorch = {name: vars(TensorMethods)[name] for name in ("__floordiv__", "__rfloordiv__", "__ifloordiv__")}


def _floor_divide_inplace(self: Any, other: Any) -> Any:
    check_writable("floor_divide_", self)
    return adopt("floor_divide_", self, floor_divide(self, other))


_standard = {
    "__floordiv__": floor_divide,
    "__rfloordiv__": lambda self, other: floor_divide(other, self),
    "__ifloordiv__": _floor_divide_inplace,
}


def use_standard_operators(enabled: bool = True) -> None:
    """Let operators on tensors follow the array API standard where PyTorch's differ, or PyTorch again.

    It holds for the whole process. ``WENGERT_ARRAY_API=1`` in the environment switches it on when this namespace is first
    used.

    Example:
        >>> import wengert as wg
        >>> x, y = wg.ones(2), wg.tensor(1.0, dtype=wg.float64)
        >>> wg.array_api.use_standard_operators()
        >>> (x + y).dtype
        wengert.float64
        >>> wg.array_api.use_standard_operators(False)
        >>> (x + y).dtype
        wengert.float32
    """
    settings.standard_promotion = bool(enabled)
    for name, method in (_standard if enabled else _pytorch).items():
        attach(name, method)


if variable("WENGERT_ARRAY_API"):
    use_standard_operators()

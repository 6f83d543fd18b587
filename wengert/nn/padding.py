"""Padding layers: how much to add on each side, the last dimension first, and with what.

``padding`` is an int for all sides or one int per side: (left, right, top, bottom, front, back). Inputs are (N, C, *)
or (C, *). Negative sizes cut.
"""

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.module import Module
from wengert.nn.sizes import per_dim

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip

Size = int | tuple[int, ...]


class _Pad(Module):
    _dims: int
    _mode: str

    def __init__(self, padding: Size) -> None:
        super().__init__()
        self.padding = per_dim(padding, 2 * self._dims, "padding")

    def forward(self, input: Tensor) -> Tensor:
        """Return the padded input."""
        return ops.pad(input, self.padding, mode=self._mode)

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.padding}"


class _ConstantPad(_Pad):
    _mode = "constant"

    def __init__(self, padding: Size, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """Return the padded input."""
        return ops.pad(input, self.padding, mode="constant", value=self.value)

    def extra_repr(self) -> str:
        """The sizes and the value."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Adds ``value`` at both ends of the last dimension.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ConstantPad1d((1, 2), 9.0)(wg.zeros(1, 1))
        tensor([[9., 0., 9., 9.]])
    """

    _dims = 1


class ConstantPad2d(_ConstantPad):
    """Adds ``value`` around the last two dimensions.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ConstantPad2d(1, 9.0)(wg.zeros(1, 1, 2, 2)).shape
        wengert.Size([1, 1, 4, 4])
    """

    _dims = 2


class ConstantPad3d(_ConstantPad):
    """Adds ``value`` around the last three dimensions.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ConstantPad3d(1, 9.0)(wg.zeros(1, 1, 2, 2, 2)).shape
        wengert.Size([1, 1, 4, 4, 4])
    """

    _dims = 3


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Size) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad):
    """Adds zeros at both ends of the last dimension.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ZeroPad1d(1)(wg.ones(1, 1))
        tensor([[0., 1., 0.]])
    """

    _dims = 1


class ZeroPad2d(_ZeroPad):
    """Adds zeros around the last two dimensions.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ZeroPad2d((1, 0, 0, 0))(wg.ones(1, 1, 2, 2)).shape
        wengert.Size([1, 1, 2, 3])
    """

    _dims = 2


class ZeroPad3d(_ZeroPad):
    """Adds zeros around the last three dimensions.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ZeroPad3d(1)(wg.ones(1, 1, 2, 2, 2)).shape
        wengert.Size([1, 1, 4, 4, 4])
    """

    _dims = 3


class ReflectionPad1d(_Pad):
    """Mirrors the last dimension at its ends, the end elements once.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ReflectionPad1d(2)(wg.tensor([[1.0, 2.0, 3.0]]))
        tensor([[3., 2., 1., 2., 3., 2., 1.]])
    """

    _dims, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Mirrors the last two dimensions at their ends.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ReflectionPad2d(1)(wg.zeros(1, 1, 2, 2)).shape
        wengert.Size([1, 1, 4, 4])
    """

    _dims, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Mirrors the last three dimensions at their ends.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ReflectionPad3d(1)(wg.zeros(1, 1, 2, 2, 2)).shape
        wengert.Size([1, 1, 4, 4, 4])
    """

    _dims, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Repeats the end elements of the last dimension.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ReplicationPad1d((2, 1))(wg.tensor([[1.0, 2.0]]))
        tensor([[1., 1., 1., 2., 2.]])
    """

    _dims, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Repeats the end elements of the last two dimensions.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ReplicationPad2d(1)(wg.zeros(1, 1, 2, 2)).shape
        wengert.Size([1, 1, 4, 4])
    """

    _dims, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Repeats the end elements of the last three dimensions.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ReplicationPad3d(1)(wg.zeros(1, 1, 2, 2, 2)).shape
        wengert.Size([1, 1, 4, 4, 4])
    """

    _dims, _mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Continues the last dimension periodically.

    Example:
        >>> import wengert as wg
        >>> wg.nn.CircularPad1d(1)(wg.tensor([[1.0, 2.0, 3.0]]))
        tensor([[3., 1., 2., 3., 1.]])
    """

    _dims, _mode = 1, "circular"


class CircularPad2d(_Pad):
    """Continues the last two dimensions periodically.

    Example:
        >>> import wengert as wg
        >>> wg.nn.CircularPad2d(1)(wg.zeros(1, 1, 2, 2)).shape
        wengert.Size([1, 1, 4, 4])
    """

    _dims, _mode = 2, "circular"


class CircularPad3d(_Pad):
    """Continues the last three dimensions periodically.

    Example:
        >>> import wengert as wg
        >>> wg.nn.CircularPad3d(1)(wg.zeros(1, 1, 2, 2, 2)).shape
        wengert.Size([1, 1, 4, 4, 4])
    """

    _dims, _mode = 3, "circular"

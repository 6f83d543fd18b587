"""Pooling: one value per window (maximum, mean or power mean).

Sizes are ints or one int per dimension; ``stride`` defaults to ``kernel_size``; ``ceil_mode`` keeps a last, partial
window. Inputs are (N, C, *) or (C, *).
"""

from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.module import Module
from wengert.nn.sizes import per_dim

__all__ = [
    "AvgPool1d", "AvgPool2d", "AvgPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d",
    "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip

Size = int | tuple[int, ...]


class _MaxPool(Module):
    _shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def _pool(self, operator: Any, input: Tensor) -> Any:
        return operator(
            input, self.kernel_size, self.stride, self.padding, self.dilation,
            ceil_mode=self.ceil_mode, return_indices=self.return_indices,
        )  # fmt: skip


class MaxPool1d(_MaxPool):
    """The maximum of each window of (N, C, L); ties send the gradient to the first.

    Args:
        padding: how much -∞ to add on both sides. dilation: the distance between the elements of a window.
        return_indices: return (maxima, their positions), as :class:`MaxUnpool1d` wants them.

    Example:
        >>> import wengert as wg
        >>> wg.nn.MaxPool1d(2)(wg.tensor([[1.0, 3.0, 2.0, 5.0]]))
        tensor([[3., 5.]])
    """

    def forward(self, input: Tensor) -> Any:
        """Return the maxima."""
        return self._pool(ops.max_pool1d, input)


class MaxPool2d(_MaxPool):
    """The maximum of each window of (N, C, H, W); arguments as :class:`MaxPool1d`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.MaxPool2d(2)(wg.zeros(1, 3, 8, 8)).shape
        wengert.Size([1, 3, 4, 4])
    """

    def forward(self, input: Tensor) -> Any:
        """Return the maxima."""
        return self._pool(ops.max_pool2d, input)


class MaxPool3d(_MaxPool):
    """The maximum of each window of (N, C, D, H, W); arguments as :class:`MaxPool1d`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.MaxPool3d(2)(wg.zeros(1, 3, 4, 4, 4)).shape
        wengert.Size([1, 3, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Any:
        """Return the maxima."""
        return self._pool(ops.max_pool3d, input)


class _MaxUnpool(Module):
    _shown = ("kernel_size", "stride", "padding")
    _dims: int

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__()
        self.kernel_size = per_dim(kernel_size, self._dims, "kernel_size")
        self.stride = per_dim(kernel_size if stride is None else stride, self._dims, "stride")
        self.padding = per_dim(padding, self._dims, "padding")

    def _unpool(self, operator: Any, input: Tensor, indices: Tensor, output_size: Any) -> Tensor:
        return operator(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool):
    """Puts the maxima that :class:`MaxPool1d` returned back at their positions, zeros elsewhere.

    Example:
        >>> import wengert as wg
        >>> y, i = wg.nn.MaxPool1d(2, return_indices=True)(wg.tensor([[1.0, 3.0, 2.0, 5.0]]))
        >>> wg.nn.MaxUnpool1d(2)(y, i)
        tensor([[0., 3., 0., 5.]])
    """

    _dims = 1

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """Return the unpooled tensor; ``output_size`` chooses among the sizes that pool to the same size."""
        return self._unpool(ops.max_unpool1d, input, indices, output_size)


class MaxUnpool2d(_MaxUnpool):
    """Puts the maxima that :class:`MaxPool2d` returned back at their positions, zeros elsewhere.

    Example:
        >>> import wengert as wg
        >>> y, i = wg.nn.MaxPool2d(2, return_indices=True)(wg.ones(1, 1, 4, 4))
        >>> wg.nn.MaxUnpool2d(2)(y, i).sum()
        tensor(4.)
    """

    _dims = 2

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """Return the unpooled tensor; ``output_size`` chooses among the sizes that pool to the same size."""
        return self._unpool(ops.max_unpool2d, input, indices, output_size)


class MaxUnpool3d(_MaxUnpool):
    """Puts the maxima that :class:`MaxPool3d` returned back at their positions, zeros elsewhere.

    Example:
        >>> import wengert as wg
        >>> y, i = wg.nn.MaxPool3d(2, return_indices=True)(wg.ones(1, 1, 4, 4, 4))
        >>> wg.nn.MaxUnpool3d(2)(y, i).sum()
        tensor(8.)
    """

    _dims = 3

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """Return the unpooled tensor; ``output_size`` chooses among the sizes that pool to the same size."""
        return self._unpool(ops.max_unpool3d, input, indices, output_size)


class AvgPool1d(Module):
    """The mean of each window of (N, C, L).

    Args:
        padding: how many zeros to add on both sides. count_include_pad: whether they count in the mean.

    Example:
        >>> import wengert as wg
        >>> wg.nn.AvgPool1d(2)(wg.tensor([[1.0, 3.0, 2.0, 6.0]]))
        tensor([[2., 4.]])
    """

    _shown = ("kernel_size", "stride", "padding")

    def __init__(
        self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = per_dim(kernel_size, 1, "kernel_size")
        self.stride = per_dim(kernel_size if stride is None else stride, 1, "stride")
        self.padding = per_dim(padding, 1, "padding")
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """Return the means."""
        return ops.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )


class _AvgPool(Module):
    _shown = ("kernel_size", "stride", "padding")

    def __init__(
        self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def _pool(self, operator: Any, input: Tensor) -> Tensor:
        return operator(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip


class AvgPool2d(_AvgPool):
    """The mean of each window of (N, C, H, W).

    Args:
        padding, count_include_pad: as :class:`AvgPool1d`. divisor_override: divide by this instead of the count.

    Example:
        >>> import wengert as wg
        >>> wg.nn.AvgPool2d(2)(wg.ones(1, 1, 2, 2)).item()
        1.0
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the means."""
        return self._pool(ops.avg_pool2d, input)


class AvgPool3d(_AvgPool):
    """The mean of each window of (N, C, D, H, W); arguments as :class:`AvgPool2d`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.AvgPool3d(2)(wg.ones(1, 1, 2, 2, 2)).item()
        1.0
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the means."""
        return self._pool(ops.avg_pool3d, input)


class _LPPool(Module):
    _shown = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(
        self, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def _pool(self, operator: Any, input: Tensor) -> Tensor:
        return operator(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPool):
    """(Σ xᵖ)^(1/p) over each window of (N, C, L), p = ``norm_type``.

    Example:
        >>> import wengert as wg
        >>> wg.nn.LPPool1d(2, 2)(wg.tensor([[3.0, 4.0]]))
        tensor([[5.]])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the power sums' roots."""
        return self._pool(ops.lp_pool1d, input)


class LPPool2d(_LPPool):
    """(Σ xᵖ)^(1/p) over each window of (N, C, H, W), p = ``norm_type``.

    Example:
        >>> import wengert as wg
        >>> wg.nn.LPPool2d(2, 2)(wg.ones(1, 1, 2, 2)).item()
        2.0
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the power sums' roots."""
        return self._pool(ops.lp_pool2d, input)


class LPPool3d(_LPPool):
    """(Σ xᵖ)^(1/p) over each window of (N, C, D, H, W), p = ``norm_type``.

    Example:
        >>> import wengert as wg
        >>> wg.nn.LPPool3d(1, 2)(wg.ones(1, 1, 2, 2, 2)).item()
        8.0
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the power sums' roots."""
        return self._pool(ops.lp_pool3d, input)

"""Pooling to a given output size: windows are chosen to cover the input."""

from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.module import Module
from wengert.nn.sizes import number

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d",
]  # fmt: skip

Sizes = int | None | tuple[int | None, ...]


class _AdaptiveAvgPool(Module):
    _shown = ("output_size",)

    def __init__(self, output_size: Sizes) -> None:
        super().__init__()
        self.output_size = output_size


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means over ``output_size`` windows that cover (N, C, L).

    Example:
        >>> import wengert as wg
        >>> wg.nn.AdaptiveAvgPool1d(2)(wg.tensor([[1.0, 3.0, 2.0, 6.0]]))
        tensor([[2., 4.]])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the means."""
        return ops.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means over windows that cover (N, C, H, W); a size of None keeps the input's.

    Example:
        >>> import wengert as wg
        >>> wg.nn.AdaptiveAvgPool2d((1, None))(wg.zeros(1, 3, 8, 6)).shape
        wengert.Size([1, 3, 1, 6])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the means."""
        return ops.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means over windows that cover (N, C, D, H, W); a size of None keeps the input's.

    Example:
        >>> import wengert as wg
        >>> wg.nn.AdaptiveAvgPool3d(1)(wg.ones(1, 1, 2, 2, 2)).item()
        1.0
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the means."""
        return ops.adaptive_avg_pool3d(input, self.output_size)


class _AdaptiveMaxPool(Module):
    _shown = ("output_size",)

    def __init__(self, output_size: Sizes, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maxima over ``output_size`` windows that cover (N, C, L); with ``return_indices`` their positions too.

    Example:
        >>> import wengert as wg
        >>> wg.nn.AdaptiveMaxPool1d(2)(wg.tensor([[1.0, 3.0, 2.0, 6.0]]))
        tensor([[3., 6.]])
    """

    def forward(self, input: Tensor) -> Any:
        """Return the maxima."""
        return ops.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maxima over windows that cover (N, C, H, W); with ``return_indices`` their positions too.

    Example:
        >>> import wengert as wg
        >>> wg.nn.AdaptiveMaxPool2d(2)(wg.zeros(1, 3, 5, 7)).shape
        wengert.Size([1, 3, 2, 2])
    """

    def forward(self, input: Tensor) -> Any:
        """Return the maxima."""
        return ops.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maxima over windows that cover (N, C, D, H, W); with ``return_indices`` their positions too.

    Example:
        >>> import wengert as wg
        >>> wg.nn.AdaptiveMaxPool3d(1)(wg.ones(1, 1, 2, 2, 2)).item()
        1.0
    """

    def forward(self, input: Tensor) -> Any:
        """Return the maxima."""
        return ops.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _FractionalMaxPool(Module):
    _dims: int
    _random_samples: Tensor | None

    def __init__(
        self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"{type(self).__name__} takes exactly one of output_size and output_ratio")
        if output_ratio is not None:
            output_ratio = output_ratio if isinstance(output_ratio, tuple) else (output_ratio,) * self._dims
            if not all(0 < number(ratio, "output_ratio") < 1 for ratio in output_ratio):
                raise ValueError(f"output_ratio must lie between 0 and 1, got {output_ratio}")
        self.kernel_size = kernel_size
        self.output_size = output_size
        self.output_ratio = output_ratio
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)

    def _pool(self, operator: Any, input: Tensor) -> Any:
        return operator(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
            _random_samples=self._random_samples,
        )  # fmt: skip


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maxima over windows at random places that cover (N, C, H, W) (Graham, 2014).

    Args:
        output_size: the sizes wanted, or output_ratio: the output's share of the input's sizes.

    Example:
        >>> import wengert as wg
        >>> wg.nn.FractionalMaxPool2d(2, output_ratio=0.5)(wg.zeros(1, 1, 8, 8)).shape
        wengert.Size([1, 1, 4, 4])
    """

    _dims = 2

    def forward(self, input: Tensor) -> Any:
        """Return the maxima."""
        return self._pool(ops.fractional_max_pool2d, input)


class FractionalMaxPool3d(_FractionalMaxPool):
    """Maxima over windows at random places that cover (N, C, D, H, W); arguments as :class:`FractionalMaxPool2d`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.FractionalMaxPool3d(2, output_size=2)(wg.zeros(1, 1, 5, 5, 5)).shape
        wengert.Size([1, 1, 2, 2, 2])
    """

    _dims = 3

    def forward(self, input: Tensor) -> Any:
        """Return the maxima."""
        return self._pool(ops.fractional_max_pool3d, input)

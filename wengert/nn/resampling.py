"""Layers that resample positions: interpolation, and sliding blocks to columns and back."""

from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.module import Module

__all__ = ["Fold", "Unfold", "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]

Size = int | tuple[int, ...]


class Upsample(Module):
    """Interpolates (N, C, *) to a size, or by a factor.

    Args:
        size: the output sizes, or scale_factor: how much larger (a number, or one per dimension).
        mode: ``"nearest"``, ``"linear"``, ``"bilinear"``, ``"bicubic"`` or ``"trilinear"``.
        align_corners: whether the corner elements keep their places (not for ``"nearest"``).
        recompute_scale_factor: compute the factor again from the rounded output size.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Upsample(scale_factor=2)(wg.tensor([[[1.0, 2.0]]]))
        tensor([[[1., 1., 2., 2.]]])
    """

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        """Return the interpolated input."""
        return ops.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The factor or size, and the mode."""
        given = f"scale_factor={self.scale_factor}" if self.scale_factor is not None else f"size={self.size}"
        return f"{given}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """:class:`Upsample` of (N, C, H, W) with ``mode="nearest"``.

    Example:
        >>> import wengert as wg
        >>> wg.nn.UpsamplingNearest2d(4)(wg.zeros(1, 1, 2, 2)).shape
        wengert.Size([1, 1, 4, 4])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """:class:`Upsample` of (N, C, H, W) with ``mode="bilinear"`` and aligned corners.

    Example:
        >>> import wengert as wg
        >>> wg.nn.UpsamplingBilinear2d(scale_factor=2)(wg.zeros(1, 1, 2, 2)).shape
        wengert.Size([1, 1, 4, 4])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class Unfold(Module):
    """Cuts (N, C, H, W) into sliding blocks: (N, C · block size, number of blocks).

    Example:
        >>> import wengert as wg
        >>> wg.nn.Unfold(2)(wg.zeros(1, 3, 4, 4)).shape
        wengert.Size([1, 12, 9])
    """

    _shown = ("kernel_size", "dilation", "padding", "stride")

    def __init__(self, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """Return the blocks as columns."""
        return ops.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Module):
    """Adds blocks back at their places: the transpose of :class:`Unfold`.

    Args:
        output_size: (H, W) of the result. The others are those of :class:`Unfold`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Fold((4, 4), 2)(wg.ones(1, 12, 9)).shape
        wengert.Size([1, 3, 4, 4])
    """

    _shown = ("output_size", "kernel_size", "dilation", "padding", "stride")

    def __init__(
        self, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """Return the sum of the blocks."""
        return ops.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

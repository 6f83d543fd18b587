"""Layers that change the shape only."""

from collections.abc import Sequence
from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.module import Module

__all__ = ["ChannelShuffle", "Flatten", "PixelShuffle", "PixelUnshuffle", "Unflatten"]


class Flatten(Module):
    """Joins the dimensions from ``start_dim`` to ``end_dim`` into one.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Flatten()(wg.zeros(2, 3, 4)).shape
        wengert.Size([2, 12])
    """

    _shown = ("start_dim", "end_dim")

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input`` with the dimensions joined."""
        return ops.flatten(input, self.start_dim, self.end_dim)


class Unflatten(Module):
    """Splits dimension ``dim`` into ``unflattened_size``.

    Raises:
        TypeError: if ``dim`` is no int or ``unflattened_size`` no sequence of ints.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Unflatten(1, (3, 4))(wg.zeros(2, 12)).shape
        wengert.Size([2, 3, 4])
    """

    _shown = ("dim", "unflattened_size")

    def __init__(self, dim: Any, unflattened_size: Any) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError(f"dim must be an int, got {type(dim).__name__}; named dimensions are not supported")
        if not isinstance(unflattened_size, Sequence) or not all(isinstance(size, int) for size in unflattened_size):
            raise TypeError(f"unflattened_size must be a sequence of ints, got {unflattened_size!r}")
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input`` with the dimension split."""
        return ops.unflatten(input, self.dim, self.unflattened_size)


class PixelShuffle(Module):
    """Rearranges (*, C·r², H, W) to (*, C, H·r, W·r) for ``upscale_factor`` r (Shi et al., CVPR 2016).

    Example:
        >>> import wengert as wg
        >>> wg.nn.PixelShuffle(2)(wg.zeros(1, 8, 3, 3)).shape
        wengert.Size([1, 2, 6, 6])
    """

    _shown = ("upscale_factor",)

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """Return the rearranged tensor."""
        return ops.pixel_shuffle(input, self.upscale_factor)


class PixelUnshuffle(Module):
    """Rearranges (*, C, H·r, W·r) to (*, C·r², H, W) for ``downscale_factor`` r: undoes :class:`PixelShuffle`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.PixelUnshuffle(2)(wg.zeros(1, 2, 6, 6)).shape
        wengert.Size([1, 8, 3, 3])
    """

    _shown = ("downscale_factor",)

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """Return the rearranged tensor."""
        return ops.pixel_unshuffle(input, self.downscale_factor)


class ChannelShuffle(Module):
    """Interleaves ``groups`` groups of channels of (N, C, *).

    Example:
        >>> import wengert as wg
        >>> wg.nn.ChannelShuffle(2)(wg.arange(4.0).reshape(1, 4, 1)).flatten()
        tensor([0., 2., 1., 3.])
    """

    _shown = ("groups",)

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        """Return the tensor with its channels interleaved."""
        return ops.channel_shuffle(input, self.groups)

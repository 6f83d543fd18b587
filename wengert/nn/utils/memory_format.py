"""Weights of convolutions with their channels last in memory."""

from typing import Any

from wengert.nn.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module: Any, kinds: tuple[type, ...], memory_format: Any) -> Any:
    for part in module.modules():
        if isinstance(part, kinds):
            conv: Any = part
            conv.weight.data = conv.weight.detach().clone().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Lay the weights of all 2-d convolutions below a module out anew; return the module.

    Example:
        >>> import wengert as wg
        >>> conv = wg.nn.utils.convert_conv2d_weight_memory_format(wg.nn.Conv2d(2, 4, 3), wg.channels_last)
        >>> conv.weight.is_contiguous(memory_format=wg.channels_last)
        True
    """
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Lay the weights of all 3-d convolutions below a module out anew; return the module.

    Example:
        >>> import wengert as wg
        >>> conv = wg.nn.utils.convert_conv3d_weight_memory_format(wg.nn.Conv3d(2, 4, 3), wg.channels_last_3d)
        >>> conv.weight.is_contiguous(memory_format=wg.channels_last_3d)
        True
    """
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)

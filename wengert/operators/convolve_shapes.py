"""The shapes of convolutions and transposed convolutions, and which parameters fit which shapes."""

import math
from collections.abc import Sequence
from typing import Any

from wengert.core.operator import Spec
from wengert.errors import ShapeError
from wengert.operators.checks import same_dtype

__all__ = ["Sizes", "check_bias", "conv_shape", "conv_spec", "flops", "transposed_size"]

Sizes = Sequence[int]


def _check(name: str, weight: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> None:
    """Refuse parameters that no input fits."""
    for what, values, least in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)):
        if any(v < least for v in values):
            raise ShapeError(f"{name}(): {what} must be at least {least}, got {tuple(values)}")
    if any(k < 1 for k in weight[2:]):
        raise ShapeError(f"{name}(): the kernel must have at least 1 element per dimension, got shape {tuple(weight)}")
    if groups < 1:
        raise ShapeError(f"{name}(): groups must be at least 1, got {groups}")
    if not weight[0] or weight[0] % groups:
        raise ShapeError(
            f"{name}(): groups={groups} must divide the first size of the weight, got shape {tuple(weight)}"
        )


def conv_shape(
    input: Sizes, weight: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> tuple[int, ...]:
    """Return the shape of a convolution.

    Raises:
        ShapeError: if channels or groups do not fit, or the kernel is larger than the padded input.
    """
    name = f"conv{len(stride)}d"
    if len(weight) != len(input):
        raise ShapeError(
            f"{name}(): weight must have {len(input)} dimensions, (out, in / groups, *kernel), got {tuple(weight)}"
        )
    _check(name, weight, stride, padding, dilation, groups)
    if input[1] != weight[1] * groups:
        raise ShapeError(
            f"{name}(): weight of shape {tuple(weight)} with groups={groups} needs an input of {weight[1] * groups} "
            f"channels, got {input[1]} in shape {tuple(input)}"
        )
    reach = [d * (k - 1) + 1 for k, d in zip(weight[2:], dilation, strict=True)]
    padded = [s + 2 * p for s, p in zip(input[2:], padding, strict=True)]
    if any(r > s for r, s in zip(reach, padded, strict=True)):
        raise ShapeError(
            f"{name}(): the kernel is larger than the input: it reaches over {tuple(reach)} elements, the input has "
            f"{tuple(padded)} with its padding (input {tuple(input)}, weight {tuple(weight)})"
        )
    return (input[0], weight[0], *[(s - r) // t + 1 for s, r, t in zip(padded, reach, stride, strict=True)])


def check_bias(name: str, bias: Sizes, channels: int) -> None:
    """Refuse a bias that does not have one number per output channel."""
    if tuple(bias) != (channels,):
        raise ShapeError(
            f"{name}(): bias must have shape ({channels},), one number per output channel, got {tuple(bias)}"
        )


def conv_spec(
    input: Spec, weight: Spec, bias: Spec | None, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> Spec:
    """Return shape and dtype of a convolution.

    Raises:
        ShapeError: as :func:`conv_shape`, or for the bias. DTypeError: if the dtypes differ.
    """
    name = f"conv{len(stride)}d"
    same_dtype(name, input=input, weight=weight, bias=bias)
    shape = conv_shape(input.shape, weight.shape, stride, padding, dilation, groups)
    if bias is not None:
        check_bias(name, bias.shape, shape[1])
    return Spec(shape, input.dtype)


def flops(input: Spec, weight: Spec, bias: Any, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> int:
    """Return the floating-point operations of a convolution."""
    shape = conv_shape(input.shape, weight.shape, stride, padding, dilation, groups)
    return 2 * math.prod(shape) * math.prod(weight.shape[1:])


def transposed_size(
    name: str, input: Sizes, weight: Sizes, stride: Sizes, padding: Sizes, output_padding: Sizes, dilation: Sizes,
    groups: int,
) -> tuple[int, ...]:  # fmt: skip
    """Return the spatial shape of a transposed convolution.

    Raises:
        ShapeError: if channels or groups do not fit, or nothing would be left.
    """
    _check(name, weight, stride, padding, dilation, groups)
    if input[1] != weight[0]:
        raise ShapeError(
            f"{name}(): weight of shape {tuple(weight)}, (in, out / groups, *kernel), needs an input of {weight[0]} "
            f"channels, got {input[1]} in shape {tuple(input)}"
        )
    if any(o < 0 or o >= max(s, d) for o, s, d in zip(output_padding, stride, dilation, strict=True)):
        raise ShapeError(
            f"{name}(): output_padding must be smaller than stride or dilation, got output_padding "
            f"{tuple(output_padding)}, stride {tuple(stride)}, dilation {tuple(dilation)}"
        )
    sizes = zip(input[2:], weight[2:], stride, padding, output_padding, dilation, strict=True)
    found = tuple((n - 1) * s - 2 * p + d * (k - 1) + o + 1 for n, k, s, p, o, d in sizes)
    if any(size < 1 for size in found):
        raise ShapeError(
            f"{name}(): the result of shape {tuple(input)} would have spatial shape {found}; use less padding"
        )
    return found

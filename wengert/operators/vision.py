"""Rearrangements of images: pixels to channels and back, shuffled channels, windows as columns."""

import math
from collections.abc import Sequence
from typing import Any

from wengert.array.shape import as_int
from wengert.core.arguments import Number
from wengert.core.batch import folded
from wengert.core.families import composite, linear
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.kernels import convolution as kernels
from wengert.kernels.windows import window_count
from wengert.operators.checks import batched, per_dim

__all__ = ["channel_shuffle", "columns", "columns_transpose", "fold", "pixel_shuffle", "pixel_unshuffle", "unfold"]

_BOTH = ("", "nn.functional")


# ---- pixels and channels


def _factor(name: str, what: str, value: Any) -> int:
    factor = as_int(value, f"{name}(): {what}")
    if factor < 1:
        raise ValueError(f"{name}(): {what} must be positive, got {factor}")
    return factor


def _image(name: str, input: Any) -> tuple[tuple[int, ...], int, int, int]:
    """Return the leading sizes, channels, height and width of images (*, C, H, W)."""
    if input.ndim < 3:
        raise ShapeError(f"{name}(): input must be (*, C, H, W), got shape {tuple(input.shape)}")
    *lead, channels, height, width = input.shape
    return tuple(lead), channels, height, width


@composite(
    home=_BOTH,
    samples=lambda s: [
        s((1, 4, 2, 1), 2), s((9, 1, 2), 3), s((2, 2, 1, 2), 1), s((0, 4, 1, 1), 2),
        s.error(RuntimeError, "divisible by 9", (1, 4, 2, 2), 3),
        s.error(ValueError, "must be positive", (1, 4, 2, 2), 0), s.error(RuntimeError, r"\(\*, C, H, W\)", (2, 2), 1),
    ],
)  # fmt: skip
def pixel_shuffle(input: Any, upscale_factor: int) -> Any:
    """Return (*, C r², H, W) as (*, C, H r, W r): every r² channels become one of r times the height and width.

    Shi et al., "Real-time single image and video super-resolution using an efficient sub-pixel convolutional neural
    network", 2016.
    """
    r = _factor("pixel_shuffle", "upscale_factor", upscale_factor)
    lead, channels, height, width = _image("pixel_shuffle", input)
    if channels % (r * r):
        raise ShapeError(f"pixel_shuffle(): the channels of shape {tuple(input.shape)} must be divisible by {r * r}")
    split = ops.reshape(input, (*lead, channels // (r * r), r, r, height, width))
    n = len(lead)
    moved = ops.permute(split, (*range(n + 1), n + 3, n + 1, n + 4, n + 2))
    return ops.reshape(moved, (*lead, channels // (r * r), height * r, width * r))


@composite(
    home=_BOTH,
    samples=lambda s: [
        s((1, 1, 4, 2), 2), s((1, 3, 6), 3), s((2, 2, 1, 2), 1),
        s.error(RuntimeError, "divisible by 3", (1, 1, 2, 3), 3),
    ],
)  # fmt: skip
def pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    """Return (*, C, H r, W r) as (*, C r², H, W): the inverse of :func:`wengert.pixel_shuffle`."""
    r = _factor("pixel_unshuffle", "downscale_factor", downscale_factor)
    lead, channels, height, width = _image("pixel_unshuffle", input)
    if height % r or width % r:
        raise ShapeError(f"pixel_unshuffle(): height and width of shape {tuple(input.shape)} must be divisible by {r}")
    split = ops.reshape(input, (*lead, channels, height // r, r, width // r, r))
    n = len(lead)
    moved = ops.permute(split, (*range(n + 1), n + 2, n + 4, n + 1, n + 3))
    return ops.reshape(moved, (*lead, channels * r * r, height // r, width // r))


@composite(
    home=_BOTH,
    samples=lambda s: [
        s((1, 4, 2, 1), 2), s((2, 6, 1), 3), s((1, 3, 1, 1), 1),
        s.error(RuntimeError, "divisible by groups=3", (1, 4, 1), 3), s.error(RuntimeError, r"\(N, C, \*\)", (2, 2), 1),
    ],
)  # fmt: skip
def channel_shuffle(input: Any, groups: int) -> Any:
    """Return (N, C, *) with its channels dealt out anew: the first of each group, then the second of each, …"""
    g = _factor("channel_shuffle", "groups", groups)
    if input.ndim < 3:
        raise ShapeError(f"channel_shuffle(): input must be (N, C, *), got shape {tuple(input.shape)}")
    batch, channels, *rest = input.shape
    if channels % g:
        raise ShapeError(
            f"channel_shuffle(): the channels of shape {tuple(input.shape)} must be divisible by groups={g}"
        )
    split = ops.reshape(input, (batch, g, channels // g, *rest))
    return ops.reshape(ops.transpose(split, 1, 2), tuple(input.shape))


# ---- windows as columns


def _counts(name: str, size: Sequence[int], kernel: Any, dilation: Any, padding: Any, stride: Any) -> tuple[int, ...]:
    """Return how many windows fit into each spatial dimension.

    Raises:
        ShapeError: if there is none, or a parameter is out of range.
    """
    given = {"kernel_size": kernel, "dilation": dilation, "padding": padding, "stride": stride}
    for what, values in given.items():
        least = 0 if what == "padding" else 1
        if any(v < least for v in values):
            raise ShapeError(f"{name}(): {what} must be at least {least}, got {tuple(values)}")
    counts = tuple(map(window_count, size, kernel, stride, padding, dilation))
    if any(count < 1 for count in counts):
        raise ShapeError(f"{name}(): no window of {tuple(kernel)} fits into spatial shape {tuple(size)}")
    return counts


def _columns_spec(input: Spec, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Spec:
    counts = _counts("unfold", input.shape[2:], kernel, dilation, padding, stride)
    return Spec((input.shape[0], input.shape[1] * math.prod(kernel), math.prod(counts)), input.dtype)


def _folded_spec(input: Spec, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Spec:
    count, volume = math.prod(_counts("fold", size, kernel, dilation, padding, stride)), math.prod(kernel)
    batch, rows, columns = input.shape
    if rows % volume or columns != count:
        raise ShapeError(
            f"fold(): output_size {tuple(size)} and kernel_size {tuple(kernel)} need an input (N, C · {volume}, "
            f"{count}), got shape {tuple(input.shape)}"
        )
    return Spec((batch, rows // volume, *size), input.dtype)


_GEOMETRY = {"kernel": (2, 2), "dilation": (1, 1), "padding": (0, 0), "stride": (1, 1)}


@linear(
    transpose=lambda g, input_shape, kernel, dilation, padding, stride: ops.columns_transpose(
        g, tuple(input_shape[2:]), kernel, dilation, padding, stride
    ),
    batch=folded("input"),
    spec=_columns_spec,
    widen=False,
    home=(),
    samples=lambda s: [
        s((1, 2, 2, 3), **_GEOMETRY), s((2, 1, 3, 2), kernel=(2, 1), dilation=(2, 1), padding=(1, 0), stride=(2, 1)),
        s((0, 1, 2, 2), **_GEOMETRY), s((1, 1, 2, 2), **_GEOMETRY, kind="integer"),
    ],
)  # fmt: skip
def columns(input: Number, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """Return the windows of (N, C, *spatial) as columns: (N, C · window, windows)."""
    return kernels.unfold(input, kernel, dilation, padding, stride)


@linear(
    transpose=lambda g, kernel, dilation, padding, stride: ops.columns(g, kernel, dilation, padding, stride),
    batch=folded("input"),
    spec=_folded_spec,
    home=(),
    samples=lambda s: [
        s((1, 4, 2), size=(2, 3), **_GEOMETRY),
        s((1, 2, 4), size=(3, 2), kernel=(2, 1), dilation=(2, 1), padding=(1, 0), stride=(2, 1)),
        s((0, 4, 1), size=(2, 2), **_GEOMETRY),
    ],
)  # fmt: skip
def columns_transpose(input: Number, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """Add columns back into the windows they stand for, in spatial shape ``size``."""
    _folded_spec(input, size, kernel, dilation, padding, stride)
    return kernels.fold(input, size, kernel, dilation, padding, stride)


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((1, 2, 2, 3), 2), s((1, 3, 3), kernel_size=(2, 1), padding=1, stride=2),
        s.error(RuntimeError, "no window", (1, 1, 2, 2), 3), s.error(RuntimeError, r"\(N, C, H, W\)", (2, 2), 1),
    ],
)  # fmt: skip
def unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Return the windows of images (N, C, H, W) as columns: (N, C · KH · KW, windows).

    Example:
        >>> import wengert as wg
        >>> wg.nn.functional.unfold(wg.arange(4.0).reshape(1, 1, 2, 2), (1, 2))
        tensor([[[0., 2.],
                 [1., 3.]]])
    """
    given = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
    sizes = [per_dim("unfold", what, value, 2) for what, value in given.items()]
    _counts("unfold", input.shape[-2:], *sizes)
    return batched("unfold", 2, input, lambda x: ops.columns(x, *sizes))


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((1, 4, 2), output_size=(2, 3), kernel_size=2), s((4, 1), 2, 2),
        s((1, 2, 4), [3, 2], [2, 1], [2, 1], [1, 0], [2, 1]), s.error(RuntimeError, "need an input", (1, 4, 3), 2, 2),
        s.error(RuntimeError, r"\(N, C · window, windows\)", (4,), 2, 2),
    ],
)  # fmt: skip
def fold(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Add columns (N, C · KH · KW, windows) back into images (N, C, H, W) of spatial shape ``output_size``.

    It is the transpose of :func:`wengert.nn.functional.unfold`, not its inverse: where windows overlap, they add up.
    """
    if input.ndim not in (2, 3):
        raise ShapeError(f"fold(): input must be (N, C · window, windows) or without N, got shape {tuple(input.shape)}")
    given = {"output_size": output_size, "kernel_size": kernel_size, "dilation": dilation}
    given |= {"padding": padding, "stride": stride}
    sizes = [per_dim("fold", what, value, 2) for what, value in given.items()]
    if input.ndim == 2:
        return ops.squeeze(ops.columns_transpose(ops.unsqueeze(input, 0), *sizes), 0)
    return ops.columns_transpose(input, *sizes)

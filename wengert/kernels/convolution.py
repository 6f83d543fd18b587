"""Convolution over any number of spatial dimensions, and the two linear maps that are its transposes.

The windows of a block of images are copied side by side into a matrix that fits into the cache ("im2col"), and one
matrix product does the rest. A block is laid out in the order in which memory can be copied in long runs: with many
channels that is channels last, with few channels position by position. The result has the memory order of the input:
channels last if the input is, row-major otherwise.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wengert.errors import ShapeError
from wengert.kernels.precision import in_float32
from wengert.kernels.windows import check_geometry, taps, window_count, windows

__all__ = ["convolution", "convolution_input_grad", "convolution_weight_grad", "fold", "unfold"]

Array = NDArray[Any]
Block = tuple[slice, slice]


class Geometry(NamedTuple):
    """How windows lie over an input, apart from their number and the padding."""

    kernel: Sequence[int]
    stride: Sequence[int]
    dilation: Sequence[int]
    groups: int


# The matrix of one block, in bytes: small enough for the second-level cache, large enough for BLAS.
BLOCK_BYTES = 1 << 20


@in_float32
def convolution(
    x: Array, w: Array, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> Array:
    """Correlate ``x`` with the kernels ``w``, as ``torch.nn.functional.conv1d``, ``conv2d`` and ``conv3d`` do.

    Args:
        x: input of shape ``(N, C, *spatial)``.
        w: kernels of shape ``(O, C // groups, *kernel)``.
        stride, padding, dilation: one number for each spatial dimension; the padding is on both sides.
        groups: how many independent convolutions the channels are divided into.

    Returns:
        An array of shape ``(N, O, *counts)`` with ``counts = (spatial + 2 padding - dilation (kernel - 1) - 1) //
        stride + 1``, or 0 where no window fits.

    Raises:
        ShapeError: if the shapes, the groups and the parameters do not fit together.

    Example:
        >>> convolution(np.ones((1, 1, 4)), np.ones((1, 1, 3)), [1], [1], [1], 1)
        array([[[2., 3., 3., 2.]]])
    """
    _check("convolution", x.shape, w.shape, stride, padding, dilation, groups)
    counts = _counts(x.shape[2:], w.shape[2:], stride, padding, dilation)
    return _correlate(x, w, _both_sides(padding), counts, Geometry(w.shape[2:], stride, dilation, groups))


@in_float32
def convolution_input_grad(
    g: Array,
    w: Array,
    input_spatial_shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """Transpose of :func:`convolution` in its input; also the transposed convolution of ``g``.

    Args:
        g: cotangent of shape ``(N, O, *counts)``.
        w: kernels of shape ``(O, C // groups, *kernel)``.
        input_spatial_shape: spatial shape of the result. It may be larger than the windows reach (that is what
            ``output_padding`` of a transposed convolution asks for): the rest is zero.
        stride, padding, dilation, groups: as in :func:`convolution`.

    Returns:
        An array of shape ``(N, C, *input_spatial_shape)``.

    Raises:
        ShapeError: if the shapes do not fit together, or the windows do not fit into the padded input.

    Example:
        >>> convolution_input_grad(np.ones((1, 1, 2)), np.ones((1, 1, 2)), [5], [2], [0], [1], 1)
        array([[[1., 1., 1., 1., 0.]]])
    """
    kernel, counts, spatial = w.shape[2:], g.shape[2:], tuple(input_spatial_shape)
    x_shape = (len(g), w.shape[1] * groups, *spatial)
    _check("convolution_input_grad", x_shape, w.shape, stride, padding, dilation, groups)
    _check_windows("convolution_input_grad", g.shape, (len(g), len(w)), spatial, kernel, stride, padding, dilation)
    if all(s == 1 for s in stride) and w.shape[1] * groups >= len(w):
        # Every position of the input is itself a window over g: one product with long rows instead of one per tap.
        reach = [d * (k - 1) - p for k, p, d in zip(kernel, padding, dilation, strict=True)]
        pads = [
            (low, size + d * (k - 1) - count - low)
            for low, size, count, k, d in zip(reach, spatial, counts, kernel, dilation, strict=True)
        ]
        return _correlate(g, _adjoint_kernels(w, groups), pads, spatial, Geometry(kernel, stride, dilation, groups))
    return _scatter_taps(g, w, spatial, padding, Geometry(kernel, stride, dilation, groups))


@in_float32
def convolution_weight_grad(
    g: Array,
    x: Array,
    kernel_spatial_shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """Transpose of :func:`convolution` in its kernels.

    Args:
        g: cotangent of shape ``(N, O, *counts)``.
        x: input of shape ``(N, C, *spatial)``.
        kernel_spatial_shape: spatial shape of the kernels.
        stride, padding, dilation, groups: as in :func:`convolution`.

    Returns:
        An array of shape ``(O, C // groups, *kernel_spatial_shape)``.

    Raises:
        ShapeError: if the shapes do not fit together, or the windows do not fit into the padded input.

    Example:
        >>> convolution_weight_grad(np.ones((1, 1, 3)), np.arange(4.0).reshape(1, 1, 4), [2], [1], [0], [1], 1)
        array([[[3., 6.]]])
    """
    kernel, counts, outputs = tuple(kernel_spatial_shape), g.shape[2:], g.shape[1]
    w_shape = (outputs, x.shape[1] // max(groups, 1), *kernel)
    _check("convolution_weight_grad", x.shape, w_shape, stride, padding, dilation, groups)
    _check_windows(
        "convolution_weight_grad", g.shape, (len(x), outputs), x.shape[2:], kernel, stride, padding, dilation
    )
    geometry = Geometry(kernel, stride, dilation, groups)
    last = _channels_last_is_faster(x, counts, geometry)
    total = np.zeros((groups, outputs // groups, w_shape[1] * math.prod(kernel)), np.result_type(g, x))
    for block, columns in _columns(_padded(x, _both_sides(padding), last), counts, geometry, last):
        total += _matrix(_grouped(g, groups), block, channels_last=False) @ columns.mT
    if last:
        return np.ascontiguousarray(np.moveaxis(total.reshape(outputs, *kernel, w_shape[1]), -1, 1))
    return total.reshape(w_shape)


def unfold(
    x: Array, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Array:
    """Return the windows of ``x`` as columns, like ``torch.nn.functional.unfold``; the transpose of :func:`fold`.

    Args:
        x: array of shape ``(N, C, *spatial)``.
        kernel, dilation, padding, stride: one number for each spatial dimension.

    Returns:
        An array of shape ``(N, C * prod(kernel), prod(counts))``.

    Example:
        >>> unfold(np.arange(4).reshape(1, 1, 4), [2], [1], [0], [1])
        array([[[0, 1, 2],
                [1, 2, 3]]])
    """
    n = x.ndim - 2
    check_geometry("unfold", n, kernel=kernel, dilation=dilation, padding=padding, stride=stride)
    counts = _counts(x.shape[2:], kernel, stride, padding, dilation)
    padded = _padded(x, _both_sides(padding), channels_last=False)
    view = windows(padded, kernel, stride, dilation, counts)
    columns = view.transpose(0, 1, *range(2 + n, 2 + 2 * n), *range(2, 2 + n))
    return np.array(columns, order="C").reshape(len(x), x.shape[1] * math.prod(kernel), math.prod(counts))


@in_float32
def fold(
    columns: Array,
    output_size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Array:
    """Add columns back into the windows they stand for, like ``torch.nn.functional.fold``.

    Args:
        columns: array of shape ``(N, C * prod(kernel), prod(counts))``.
        output_size: spatial shape of the result.
        kernel, dilation, padding, stride: one number for each spatial dimension.

    Returns:
        An array of shape ``(N, C, *output_size)``.

    Raises:
        ShapeError: if the number of columns is not the number of windows in ``output_size``, or the number of rows is
            not a multiple of the kernel's size.

    Example:
        >>> fold(np.ones((1, 2, 3)), [4], [2], [1], [0], [1])
        array([[[1., 2., 2., 1.]]])
    """
    check_geometry("fold", len(output_size), kernel=kernel, dilation=dilation, padding=padding, stride=stride)
    counts = _counts(output_size, kernel, stride, padding, dilation)
    batch, rows, count = columns.shape
    volume = math.prod(kernel)
    if rows % volume or count != math.prod(counts):
        raise ShapeError(
            f"fold: columns of shape {columns.shape} do not fit: {math.prod(counts)} columns with a multiple of "
            f"{volume} rows are needed for output_size {tuple(output_size)} and kernel {tuple(kernel)}"
        )
    parts = columns.reshape(batch, rows // volume, *kernel, *counts)
    parts = np.moveaxis(parts, (0, 1), (len(kernel), len(kernel) + 1))  # (*kernel, N, C, *counts)
    out = np.zeros((batch, rows // volume, *output_size), columns.dtype)
    for tap, outputs, inputs in taps(output_size, counts, kernel, stride, padding, dilation):
        out[:, :, *inputs] += parts[tap][:, :, *outputs]
    return out


def _correlate(x: Array, w: Array, pads: Sequence[tuple[int, int]], counts: Sequence[int], geometry: Geometry) -> Array:
    """Convolve with padding that may differ between the two sides, or be negative."""
    groups, outputs = geometry.groups, len(w)
    last = _channels_last_is_faster(x, counts, geometry)
    kernels = np.moveaxis(w, 1, -1) if last else w
    weights = kernels.reshape(groups, outputs // groups, math.prod(w.shape[1:]))
    out = _empty((len(x), outputs, *counts), np.result_type(x, w), _is_channels_last(x))
    target = _grouped(out, groups)
    for block, columns in _columns(_padded(x, pads, last), counts, geometry, last):
        part = target[:, :, *block]
        part[...] = _product(weights, columns).reshape(part.shape)
    return out


def _scatter_taps(g: Array, w: Array, spatial: Sequence[int], padding: Sequence[int], geometry: Geometry) -> Array:
    """Add, for each position in the kernel, the product of its weights with ``g`` where the windows have it."""
    kernel, stride, dilation, groups = geometry
    counts, channels = g.shape[2:], w.shape[1]
    last = channels >= 4
    out = _empty((len(g), channels * groups, *spatial), np.result_type(g, w), last)
    out[...] = 0
    target, source = _grouped(out, groups), _grouped(g, groups)
    weights = w.reshape(groups, len(w) // groups, channels, *kernel)
    weights = np.ascontiguousarray(np.moveaxis(weights, (0, 2, 1), (-3, -2, -1)))  # (*kernel, G, C/G, O/G)
    kept = len(w) + channels * groups * (1 if last else math.prod(kernel))
    for images, rows in _blocks(len(g), counts, kept * g.itemsize):
        shape = (groups, channels, images.stop - images.start, rows.stop - rows.start, *counts[1:])
        shift = (padding[0] - rows.start * stride[0], *padding[1:])
        products = _tap_products(weights, _matrix(source, (images, rows), last), last)
        for tap, outputs, inputs in taps(spatial, shape[3:], kernel, stride, shift, dilation):
            target[:, :, images, *inputs] += products(tap).reshape(shape)[:, :, :, *outputs]
    return _padded(out, [(0, 0)] * len(spatial), _is_channels_last(g))


def _tap_products(weights: Array, matrix: Array, channels_last: bool) -> Callable[[tuple[int, ...]], Array]:
    """Return the function from a position in the kernel to the product of its weights with ``matrix``.

    With few channels the weights of all positions make one product worth the while of BLAS; with many, one product each
    gives sums of long rows.
    """
    if channels_last:
        return lambda tap: _product(weights[tap], matrix)
    *kernel, groups, channels, inner = weights.shape
    stacked = np.moveaxis(weights, -3, 0).reshape(groups, math.prod(kernel) * channels, inner)
    products = np.moveaxis((stacked @ matrix).reshape(groups, *kernel, channels, matrix.shape[-1]), 0, -3)
    return lambda tap: products[tap]


def _columns(x: Array, counts: Sequence[int], geometry: Geometry, channels_last: bool) -> Iterator[tuple[Block, Array]]:
    """Yield blocks of images and rows with the matrix of their windows: ``(G, C/G * kernel, positions)``."""
    kernel, stride, dilation, groups = geometry
    n = len(kernel)
    view = windows(_grouped(x, groups), kernel, stride, dilation, counts)  # (G, C/G, N, *counts, *kernel)
    window_axes, kernel_axes = range(2, 3 + n), range(3 + n, 3 + 2 * n)
    size = x.shape[1] // groups * math.prod(kernel)
    if channels_last:
        view = view.transpose(0, *window_axes, *kernel_axes, 1)
    else:
        view = view.transpose(0, 1, *kernel_axes, *window_axes)
    for images, rows in _blocks(len(x), counts, groups * size * x.itemsize):
        if channels_last:
            block = view[:, images, rows]
            yield (images, rows), block.reshape(groups, math.prod(block.shape[1 : 2 + n]), size).mT
        else:
            every: list[Any] = [slice(None)] * (2 + n)
            block = view[*every, images, rows]
            yield (images, rows), block.reshape(groups, size, math.prod(block.shape[2 + n :]))


def _blocks(images: int, counts: Sequence[int], position_bytes: int) -> Iterator[Block]:
    """Divide the positions of all images into blocks of about `BLOCK_BYTES`: several images, or some rows of one."""
    fitting = max(1, BLOCK_BYTES // max(1, position_bytes * math.prod(counts[1:])))
    step = max(1, fitting // max(1, counts[0]))
    for image in range(0, images, step):
        for row in range(0, counts[0], fitting):
            yield slice(image, min(image + step, images)), slice(row, min(row + fitting, counts[0]))


def _matrix(view: Array, block: Block, channels_last: bool) -> Array:
    """Copy a block of ``(G, C/G, N, *counts)`` into matrices ``(G, C/G, positions)`` in either memory order."""
    part = view[:, :, *block]
    shape = (*part.shape[:2], math.prod(part.shape[2:]))
    if channels_last:
        return np.moveaxis(part, 1, -1).reshape(shape[0], shape[2], shape[1]).mT
    return part.reshape(shape)


def _product(a: Array, b: Array) -> Array:
    """Return ``a @ b`` in the memory order of ``b``, which is the one that the caller goes on with."""
    return (b.mT @ a.mT).mT if b.mT.flags.c_contiguous else a @ b


def _channels_last_is_faster(x: Array, counts: Sequence[int], geometry: Geometry) -> bool:
    """Compare the lengths of the contiguous runs that are copied in either layout."""
    kernel, stride, dilation, groups = geometry
    run_of_channels: int = x.shape[1] // groups * (kernel[-1] if dilation[-1] == 1 else 1)
    if _is_channels_last(x) and groups == 1:
        return run_of_channels >= 4
    if math.prod(kernel) == 1 and all(s == 1 for s in stride):
        return run_of_channels > math.prod(counts)
    return run_of_channels > (counts[-1] if stride[-1] == 1 else 1)


def _is_channels_last(x: Array) -> bool:
    return bool(x.shape[1] > 1 and not x.flags.c_contiguous and np.moveaxis(x, 1, -1).flags.c_contiguous)


def _empty(shape: Sequence[int], dtype: Any, channels_last: bool) -> Array:
    if channels_last:
        return np.moveaxis(np.empty((shape[0], *shape[2:], shape[1]), dtype), -1, 1)
    return np.empty(shape, dtype)


def _padded(x: Array, pads: Sequence[tuple[int, int]], channels_last: bool) -> Array:
    """Return ``x`` padded with zeros (negative: cropped) in the memory order asked for, copied only if need be."""
    ordered = np.moveaxis(x, 1, -1) if channels_last else x
    if ordered.flags.c_contiguous and not any(low or high for low, high in pads):
        return x
    sizes = [size + low + high for size, (low, high) in zip(x.shape[2:], pads, strict=True)]
    out = _empty((*x.shape[:2], *sizes), x.dtype, channels_last)
    if any(low > 0 or high > 0 for low, high in pads):
        out[...] = 0
    inside = [slice(max(low, 0), size - max(high, 0)) for size, (low, high) in zip(sizes, pads, strict=True)]
    kept = [slice(max(-low, 0), size - max(-high, 0)) for size, (low, high) in zip(x.shape[2:], pads, strict=True)]
    out[:, :, *inside] = x[:, :, *kept]
    return out


def _both_sides(padding: Sequence[int]) -> list[tuple[int, int]]:
    return [(p, p) for p in padding]


def _grouped(x: Array, groups: int) -> Array:
    """View ``(N, C, *spatial)`` as ``(G, C / G, N, *spatial)``."""
    split = x.reshape(len(x), groups, x.shape[1] // groups, *x.shape[2:])
    return np.moveaxis(split, 0, 2)


def _adjoint_kernels(w: Array, groups: int) -> Array:
    """Exchange the input and output channels within each group, and turn the kernels round."""
    split = w.reshape(groups, len(w) // groups, *w.shape[1:])
    turned = np.flip(split.swapaxes(1, 2), tuple(range(3, split.ndim)))
    return np.ascontiguousarray(turned).reshape(groups * w.shape[1], len(w) // groups, *w.shape[2:])


def _counts(
    spatial: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:
    return tuple(map(window_count, spatial, kernel, stride, padding, dilation))


def _check(
    name: str,
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> None:
    """Raise unless input, kernels and parameters fit together."""
    if len(x_shape) < 3 or len(w_shape) != len(x_shape):
        raise ShapeError(
            f"{name}: input (N, C, *spatial) and weight (O, C/groups, *kernel) need the same number of dimensions, "
            f"at least 3, got {tuple(x_shape)} and {tuple(w_shape)}"
        )
    check_geometry(name, len(x_shape) - 2, kernel=w_shape[2:], stride=stride, padding=padding, dilation=dilation)
    if groups < 1 or w_shape[0] % groups or x_shape[1] != w_shape[1] * groups:
        raise ShapeError(
            f"{name}: with groups={groups}, weight of shape {tuple(w_shape)} needs {w_shape[1] * groups} input "
            f"channels and a number of output channels divisible by groups, got input of shape {tuple(x_shape)}"
        )


def _check_windows(
    name: str,
    g_shape: Sequence[int],
    leading: tuple[int, int],
    spatial: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> None:
    """Raise unless the cotangent has the batch, the channels and no more windows than fit."""
    counts = _counts(spatial, kernel, stride, padding, dilation)
    given = g_shape[2:]
    if (
        len(given) != len(counts)
        or tuple(g_shape[:2]) != leading
        or any(g > c for g, c in zip(given, counts, strict=True))
    ):
        raise ShapeError(
            f"{name}: a cotangent of shape {tuple(g_shape)} does not fit: at most {(*leading, *counts)} was expected "
            f"for spatial shape {tuple(spatial)}, kernel {tuple(kernel)}, stride {tuple(stride)}, "
            f"padding {tuple(padding)}, dilation {tuple(dilation)}"
        )

"""Pooling in one, two and three dimensions, by PyTorch's names: maxima, averages and power means over windows.

Inputs are (N, C, *spatial), or a single (C, *spatial).
"""

import math
from collections.abc import Sequence
from typing import Any

from wengert.core.families import composite
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.operators.checks import per_dim

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d",
    "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices",
    "max_pool3d", "max_pool3d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip

Sizes = Sequence[int]
_FUNCTIONAL = "nn.functional"
_BOTH = ("", "nn.functional")


# ---- maxima


def _check_input(name: str, input: Any, dims: int) -> None:
    """Refuse what is neither (N, C, *spatial) nor (C, *spatial)."""
    if input.ndim not in (dims + 1, dims + 2):
        axes = ", ".join(("D", "H", "W")[3 - dims :] if dims > 1 else ("L",))
        raise ShapeError(f"{name}(): input must be (N, C, {axes}) or (C, {axes}), got shape {tuple(input.shape)}")


def _windows(name: str, dims: int, kernel_size: Any, stride: Any, padding: Any) -> tuple[tuple[int, ...], ...]:
    kernel = per_dim(name, "kernel_size", kernel_size, dims)
    no_stride = stride is None or (isinstance(stride, Sequence) and not stride)
    return (
        kernel,
        kernel if no_stride else per_dim(name, "stride", stride, dims),
        per_dim(name, "padding", padding, dims),
    )


def _max_pool(
    dims: int, input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
    return_indices: bool,
) -> Any:  # fmt: skip
    name = f"max_pool{dims}d"
    _check_input(name, input, dims)
    kernel, stride, padding = _windows(name, dims, kernel_size, stride, padding)
    found = ops.max_pool(input, kernel, stride, padding, per_dim(name, "dilation", dilation, dims), bool(ceil_mode))
    return found if return_indices else found[0]


def _max_samples(dims: int, **options: Any) -> Any:
    size = (3, 4, 5)[3 - dims :] if dims < 3 else (2, 2, 3)
    return lambda s: [
        s((1, 2, *size), 2, **options), s((2, *size), kernel_size=2, stride=1, padding=1, **options),
        s((1, *size), 2, stride=2, ceil_mode=True, **options), s((1, *size), 1, dilation=2, **options),
        s.error(RuntimeError, r"must be \(N, C, ", (2,), 2),
        s.error(RuntimeError, "kernel_size takes an int", (1, *size), [2] * (dims + 1)),
    ]  # fmt: skip


@composite(home=_BOTH, samples=_max_samples(1))
def max_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """Return the maximum of each window of (N, C, L); see :func:`wengert.max_pool2d`."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@composite(home=_BOTH, samples=_max_samples(2))
def max_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """Return the maximum of each window of (N, C, H, W) or (C, H, W). Of equal maxima the first gets the gradient.

    Args:
        kernel_size, stride, padding, dilation: an int or two. ``stride`` is ``kernel_size`` if it is None; the
            padding, at most half a window, is never the maximum.
        ceil_mode: keep a last window that goes over the end. return_indices: return (maxima, flat positions).

    Raises:
        RuntimeError: if no window fits, or a parameter is out of range.

    Example:
        >>> import wengert as wg
        >>> wg.max_pool2d(wg.arange(16.0).reshape(1, 4, 4), 2)
        tensor([[[ 5.,  7.],
                 [13., 15.]]])
    """
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@composite(home=_BOTH, samples=_max_samples(3))
def max_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """Return the maximum of each window of (N, C, D, H, W); see :func:`wengert.max_pool2d`."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@composite(home=_BOTH, samples=_max_samples(1))
def max_pool1d_with_indices(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = True,
) -> Any:  # fmt: skip
    """Return the maximum of each window of (N, C, L) and its position."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, True)


@composite(home=_FUNCTIONAL, samples=_max_samples(2))
def max_pool2d_with_indices(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = True,
) -> Any:  # fmt: skip
    """Return the maximum of each window of (N, C, H, W) and its flat position."""
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, True)


@composite(home=_FUNCTIONAL, samples=_max_samples(3))
def max_pool3d_with_indices(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = True,
) -> Any:  # fmt: skip
    """Return the maximum of each window of (N, C, D, H, W) and its flat position."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, True)


# ---- averages


def _avg_pool(
    dims: int, input: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
    divisor: Any,
) -> Any:  # fmt: skip
    name = f"avg_pool{dims}d"
    _check_input(name, input, dims)
    kernel, stride, padding = _windows(name, dims, kernel_size, stride, padding)
    return ops.avg_pool(input, kernel, stride, padding, bool(ceil_mode), bool(count_include_pad), divisor)


def _avg_samples(dims: int) -> Any:
    size = (3, 4, 5)[3 - dims :] if dims < 3 else (2, 2, 3)
    return lambda s: [
        s((1, 2, *size), 2), s((2, *size), kernel_size=2, stride=1, padding=1),
        s((1, *size), 2, stride=2, ceil_mode=True), s((1, *size), 2, padding=1, count_include_pad=False),
        s((1, 1, *size), 2, kind="integer"),
    ]  # fmt: skip


@composite(home=_BOTH, samples=_avg_samples(1))
def avg_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:  # fmt: skip
    """Return the average of each window of (N, C, L); see :func:`wengert.nn.functional.avg_pool2d`."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@composite(
    home=_FUNCTIONAL, samples=lambda s: [*_avg_samples(2)(s), s((1, 2, 3), kernel_size=(1, 2), divisor_override=3)]
)
def avg_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
) -> Any:  # fmt: skip
    """Return the average of each window of (N, C, H, W) or (C, H, W).

    Args:
        kernel_size, stride, padding: an int or two. ``stride`` is ``kernel_size`` if it is None.
        ceil_mode: keep a last window that goes over the end.
        count_include_pad: whether the zeros of the padding count. divisor_override: divide by this number instead.

    Raises:
        RuntimeError: if no window fits, or a parameter is out of range.

    Example:
        >>> import wengert as wg
        >>> wg.nn.functional.avg_pool2d(wg.arange(16.0).reshape(1, 4, 4), 2)
        tensor([[[ 2.5000,  4.5000],
                 [10.5000, 12.5000]]])
    """
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@composite(home=_FUNCTIONAL, samples=_avg_samples(3))
def avg_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
) -> Any:  # fmt: skip
    """Return the average of each window of (N, C, D, H, W); see :func:`wengert.nn.functional.avg_pool2d`."""
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp_pool(dims: int, input: Any, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Any:
    """(Σ xᵖ)^(1/p), with value and gradient 0 where the sum is 0; the largest or smallest |x| if p is infinite."""
    if math.isinf(norm_type):
        sign = math.copysign(1, norm_type)
        return sign * _max_pool(dims, sign * ops.abs(input), kernel_size, stride, 0, 1, ceil_mode, False)
    mean = _avg_pool(dims, ops.pow(input, norm_type), kernel_size, stride, 0, ceil_mode, True, None)
    total = mean * math.prod(per_dim(f"lp_pool{dims}d", "kernel_size", kernel_size, dims))
    nothing = total == 0
    return ops.where(nothing, 0.0, ops.pow(ops.where(nothing, 1.0, total), 1 / norm_type))


def _lp_samples(dims: int) -> Any:
    size = (4, 3, 4)[3 - dims :] if dims < 3 else (2, 2, 2)
    return lambda s: [
        s((1, 2, *size), 2, 2), s((1, *size), 3.0, 2, stride=1, kind="positive"), s((1, *size), 2, 2, ceil_mode=True),
        s((1, *size), float("inf"), 2), s((1, *size), 1, 2),
    ]  # fmt: skip


@composite(
    home=_FUNCTIONAL, samples=lambda s: [*_lp_samples(1)(s), s(s.array([[3.0, 4.0, 0.0, 0.0]]), 2, 2, grad=False)]
)
def lp_pool1d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    """Return (Σ xᵖ)^(1/p) of each window of (N, C, L), p = ``norm_type``; the gradient is 0 where the sum is."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


@composite(home=_FUNCTIONAL, samples=_lp_samples(2))
def lp_pool2d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    """Return (Σ xᵖ)^(1/p) of each window of (N, C, H, W), p = ``norm_type``; the gradient is 0 where the sum is."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


@composite(home=_FUNCTIONAL, samples=_lp_samples(3))
def lp_pool3d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    """Return (Σ xᵖ)^(1/p) of each window of (N, C, D, H, W), p = ``norm_type``; the gradient is 0 where the sum is."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


# ---- given output sizes


def _output_size(name: str, input: Any, output_size: Any, dims: int) -> tuple[int, ...]:
    """Return the sizes of the result; None stands for the input's."""
    _check_input(name, input, dims)
    wanted = list(output_size) if isinstance(output_size, Sequence) else [output_size] * dims
    if len(wanted) != dims:
        raise ShapeError(f"{name}(): output_size takes one size or {dims}, got {tuple(wanted)}")
    have = input.shape[input.ndim - dims :]
    return per_dim(name, "output_size", [h if w is None else w for h, w in zip(have, wanted, strict=True)], dims)


def _adaptive_samples(dims: int) -> Any:
    size = (3, 4, 5)[3 - dims :] if dims < 3 else (2, 2, 3)
    return lambda s: [
        s((1, 2, *size), 2), s((1, *size), output_size=[3] * dims), s((2, *size), 1),
        s((1, *size), [None, *[2] * (dims - 1)] if dims > 1 else 3),
        s((0, 1, *size), 1), s.error(RuntimeError, "output_size takes", (1, *size), [2] * (dims + 1)),
    ]  # fmt: skip


@composite(home=_BOTH, samples=_adaptive_samples(1))
def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
    """Return averages over parts of (N, C, L); see :func:`wengert.nn.functional.adaptive_avg_pool2d`."""
    return ops.adaptive_avg_pool(input, _output_size("adaptive_avg_pool1d", input, output_size, 1))


@composite(home=_FUNCTIONAL, samples=_adaptive_samples(2))
def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    """Return averages over parts of (N, C, H, W) or (C, H, W), chosen so that the result has a given size.

    Part i of n parts of a dimension goes from ⌊i size / n⌋ to ⌈(i + 1) size / n⌉.

    Args:
        output_size: an int or two; None keeps the size of a dimension.

    Example:
        >>> import wengert as wg
        >>> wg.nn.functional.adaptive_avg_pool2d(wg.arange(6.0).reshape(1, 2, 3), (1, 2))
        tensor([[[2., 3.]]])
    """
    return ops.adaptive_avg_pool(input, _output_size("adaptive_avg_pool2d", input, output_size, 2))


@composite(home=_FUNCTIONAL, samples=_adaptive_samples(3))
def adaptive_avg_pool3d(input: Any, output_size: Any) -> Any:
    """Return averages over parts of (N, C, D, H, W); see :func:`wengert.nn.functional.adaptive_avg_pool2d`."""
    return ops.adaptive_avg_pool(input, _output_size("adaptive_avg_pool3d", input, output_size, 3))


def _adaptive_max_pool(dims: int, input: Any, output_size: Any, return_indices: bool) -> Any:
    found = ops.adaptive_max_pool(input, _output_size(f"adaptive_max_pool{dims}d", input, output_size, dims))
    return found if return_indices else found[0]


@composite(home=_FUNCTIONAL, samples=lambda s: [*_adaptive_samples(1)(s), s((1, 5), 2, return_indices=True)])
def adaptive_max_pool1d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Return maxima over the parts of :func:`wengert.adaptive_avg_pool1d`, or (maxima, positions)."""
    return _adaptive_max_pool(1, input, output_size, return_indices)


@composite(home=_FUNCTIONAL, samples=_adaptive_samples(2))
def adaptive_max_pool2d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Return maxima over the parts of :func:`wengert.nn.functional.adaptive_avg_pool2d`, or (maxima, positions)."""
    return _adaptive_max_pool(2, input, output_size, return_indices)


@composite(home=_FUNCTIONAL, samples=_adaptive_samples(3))
def adaptive_max_pool3d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Return maxima over the parts of :func:`wengert.nn.functional.adaptive_avg_pool3d`, or (maxima, positions)."""
    return _adaptive_max_pool(3, input, output_size, return_indices)


@composite(home=_FUNCTIONAL, samples=_adaptive_samples(1))
def adaptive_max_pool1d_with_indices(input: Any, output_size: Any, return_indices: bool = True) -> Any:
    """Return the maxima of :func:`wengert.nn.functional.adaptive_max_pool1d` and their positions."""
    return _adaptive_max_pool(1, input, output_size, True)


@composite(home=_FUNCTIONAL, samples=_adaptive_samples(2))
def adaptive_max_pool2d_with_indices(input: Any, output_size: Any, return_indices: bool = True) -> Any:
    """Return the maxima of :func:`wengert.nn.functional.adaptive_max_pool2d` and their flat positions."""
    return _adaptive_max_pool(2, input, output_size, True)


@composite(home=_FUNCTIONAL, samples=_adaptive_samples(3))
def adaptive_max_pool3d_with_indices(input: Any, output_size: Any, return_indices: bool = True) -> Any:
    """Return the maxima of :func:`wengert.nn.functional.adaptive_max_pool3d` and their flat positions."""
    return _adaptive_max_pool(3, input, output_size, True)


# ---- undoing maxima


def _unpooled_size(
    name: str, sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, output_size: Any
) -> tuple[int, ...]:
    """Return the spatial sizes that the maxima came from: the smallest, or ``output_size`` if it is near them.

    Raises:
        ValueError: if ``output_size`` differs by a stride or more from the smallest.
    """
    least = tuple((n - 1) * s - 2 * p + k for n, k, s, p in zip(sizes, kernel, stride, padding, strict=True))
    if output_size is None:
        return least
    wanted = tuple(output_size)
    if len(wanted) > len(least):
        wanted = wanted[len(wanted) - len(least) :]
    if len(wanted) != len(least):
        raise ValueError(f"{name}(): output_size must hold {len(least)} spatial sizes, got {tuple(output_size)}")
    if any(abs(w - n) >= s for w, n, s in zip(wanted, least, stride, strict=True)):
        raise ValueError(
            f"{name}(): output_size {wanted} must differ by less than a stride, {tuple(stride)}, from {least}"
        )
    return wanted


def _max_unpool(
    dims: int, input: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> Any:
    name = f"max_unpool{dims}d"
    _check_input(name, input, dims)
    kernel, stride, padding = _windows(name, dims, kernel_size, stride, padding)
    sizes = input.shape[input.ndim - dims :]
    return ops.max_unpool(input, indices, _unpooled_size(name, sizes, kernel, stride, padding, output_size))


@composite(
    home=_FUNCTIONAL,
    samples=lambda s: [
        s((1, 2), s.array([[1, 2]]), 2), s((1, 1, 2), s.array([[[0, 4]]]), 2, output_size=[5]),
        s((1, 2), s.array([[1, 3]]), 3, stride=2, padding=1, output_size=(4,)),
        s.error(ValueError, "less than a stride", (1, 2), s.array([[1, 2]]), 2, output_size=[9]),
        s.error(IndexError, "out of bounds", (1, 2), s.array([[1, 4]]), 2),
    ],
)  # fmt: skip
def max_unpool1d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Any:
    """Put maxima of (N, C, L) back at their positions; see :func:`wengert.nn.functional.max_unpool2d`."""
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


@composite(
    home=_FUNCTIONAL,
    samples=lambda s: [
        s((1, 1, 2), s.array([[[1, 2]]]), 2),
        s((1, 1, 1, 2), s.array([[[[0, 3]]]]), kernel_size=(2, 2)),
    ],
)
def max_unpool2d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Any:
    """Put maxima of (N, C, H, W) back at their positions, zeros elsewhere.

    It is a partial inverse of :func:`wengert.max_pool2d`.

    Args:
        input, indices: what ``max_pool2d(..., return_indices=True)`` returns.
        kernel_size, stride, padding: as given to it.
        output_size: the shape that was pooled, where several pool to this one.

    Raises:
        ValueError: for an ``output_size`` that does not pool to this one. IndexError: for a position outside of it.

    Example:
        >>> import wengert as wg
        >>> y, i = wg.max_pool2d(wg.arange(4.0).reshape(1, 2, 2), 2, return_indices=True)
        >>> wg.nn.functional.max_unpool2d(y, i, 2)
        tensor([[[0., 0.],
                 [0., 3.]]])
    """
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


@composite(home=_FUNCTIONAL, samples=lambda s: [s((1, 1, 1, 2), s.array([[[[1, 2]]]]), kernel_size=(1, 1, 2))])
def max_unpool3d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Any:
    """Put maxima of (N, C, D, H, W) back at their positions; see :func:`wengert.nn.functional.max_unpool2d`."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)

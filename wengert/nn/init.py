"""Filling tensors with starting values, in place and outside the tape.

The scaled schemes keep the variance of activations (``fan_in``) or gradients (``fan_out``) from layer to layer:
Glorot & Bengio, AISTATS 2010 (Xavier); He et al., ICCV 2015 (Kaiming); Saxe et al., ICLR 2014 (orthogonal);
Martens, ICML 2010 (sparse).
"""

import functools
import math
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.tape.modes import no_grad

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_",
    "orthogonal_", "skipped", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip

Filling = Callable[..., Tensor]


class _Skipping(threading.local):
    """Whether the functions of this module do nothing, in this thread."""

    depth = 0


_skipping = _Skipping()


@contextmanager
def skipped() -> Iterator[None]:
    """Leave tensors as they are inside the block: layers that are made in it keep whatever is in their memory.

    Example:
        >>> import wengert as wg
        >>> with wg.nn.init.skipped():
        ...     wg.nn.init.ones_(wg.zeros(2))
        tensor([0., 0.])
    """
    _skipping.depth += 1
    try:
        yield
    finally:
        _skipping.depth -= 1


def _filling(function: Filling) -> Filling:
    """Let a function that fills a tensor do nothing inside :func:`skipped`."""

    @functools.wraps(function)
    def fill(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return tensor if _skipping.depth else function(tensor, *args, **kwargs)

    return fill


_LINEAR = (
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid",
)  # fmt: skip


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """Return the factor by which weights must grow to make up for a non-linearity.

    Args:
        nonlinearity: ``"linear"``, ``"conv1d"`` …, ``"sigmoid"``, ``"tanh"``, ``"relu"``, ``"leaky_relu"``, ``"selu"``.
        param: the negative slope of ``leaky_relu`` (default 0.01).

    Raises:
        ValueError: for another name or a slope that is not a number.

    Example:
        >>> from wengert.nn.init import calculate_gain
        >>> calculate_gain("relu") == 2 ** 0.5
        True
    """
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity == "leaky_relu":
        if isinstance(param, bool) or not isinstance(param, int | float | None):
            raise ValueError(f"negative_slope {param!r} is not a number")
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    gains = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}
    if nonlinearity not in gains:
        raise ValueError(
            f"unknown nonlinearity '{nonlinearity}'; expected one of: {', '.join([*_LINEAR, 'leaky_relu', *gains])}"
        )
    return gains[nonlinearity]


@_filling
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fill ``tensor`` with numbers uniform on [a, b) and return it.

    Example:
        >>> import wengert as wg
        >>> bool((wg.nn.init.uniform_(wg.empty(100), -1, 2).abs() <= 2).all())
        True
    """
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


@_filling
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fill ``tensor`` with normal numbers and return it.

    Example:
        >>> import wengert as wg
        >>> wg.nn.init.normal_(wg.empty(10_000), mean=3.0, std=0.1).mean().round().item()
        3.0
    """
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


@_filling
def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Fill ``tensor`` with normal numbers kept to [a, b], by the inverse of the distribution function; return it.

    Example:
        >>> import wengert as wg
        >>> bool((wg.nn.init.trunc_normal_(wg.empty(1000), std=2.0, a=-1.0, b=1.0).abs() <= 1).all())
        True
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            f"trunc_normal_: the mean {mean} is more than 2 std from [{a}, {b}]; the values may be distributed wrongly",
            stacklevel=2,
        )
    low, high = (math.erf((edge - mean) / std / math.sqrt(2)) for edge in (a, b))
    with no_grad():
        tensor.uniform_(low, high, generator=generator).erfinv_()
        return tensor.mul_(std * math.sqrt(2)).add_(mean).clamp_(a, b)


@_filling
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill ``tensor`` with ``val`` and return it.

    Example:
        >>> import wengert as wg
        >>> wg.nn.init.constant_(wg.empty(2), 0.5)
        tensor([0.5000, 0.5000])
    """
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill ``tensor`` with ones and return it.

    Example:
        >>> import wengert as wg
        >>> wg.nn.init.ones_(wg.empty(2))
        tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill ``tensor`` with zeros and return it.

    Example:
        >>> import wengert as wg
        >>> wg.nn.init.zeros_(wg.empty(2))
        tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


@_filling
def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity (ones on the diagonal) and return it. ValueError unless it has 2 dimensions.

    Example:
        >>> import wengert as wg
        >>> wg.nn.init.eye_(wg.empty(2, 3))
        tensor([[1., 0., 0.],
                [0., 1., 0.]])
    """
    _check_ndim("eye_", tensor, (2,))
    with no_grad():
        tensor.zero_().diagonal().fill_(1.0)
    return tensor


@_filling
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill convolution weights so that each output channel copies an input channel; return the tensor.

    Args:
        tensor: of 3, 4 or 5 dimensions (out channels, in channels, kernel).
        groups: the number of groups of channels, each mapped on its own.

    Raises:
        ValueError: for another number of dimensions, or output channels that ``groups`` does not divide.

    Example:
        >>> import wengert as wg
        >>> x = wg.randn(1, 2, 5)
        >>> weight = wg.nn.init.dirac_(wg.empty(2, 2, 3))
        >>> bool((wg.nn.functional.conv1d(x, weight, padding=1) == x).all())
        True
    """
    _check_ndim("dirac_", tensor, (3, 4, 5))
    out_channels, in_channels, *kernel = tensor.shape
    if out_channels % groups:
        raise ValueError(f"dirac_: {out_channels} output channels are not divisible into {groups} groups")
    middle = tuple(size // 2 for size in kernel)
    per_group = out_channels // groups
    with no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(per_group, in_channels)):
                tensor[(group * per_group + channel, channel, *middle)] = 1.0
    return tensor


def _check_ndim(name: str, tensor: Tensor, allowed: tuple[int, ...]) -> None:
    if tensor.ndim not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise ValueError(f"{name}: expected a tensor of {wanted} dimensions, got shape {tuple(tensor.shape)}")


def _fans(tensor: Tensor) -> tuple[int, int]:
    """The numbers of inputs and outputs of one unit: channels times the size of the receptive field."""
    if tensor.ndim < 2:
        raise ValueError(f"fan-in and fan-out need a tensor of 2 or more dimensions, got shape {tuple(tensor.shape)}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fan(tensor: Tensor, mode: str) -> int:
    fans = dict(zip(("fan_in", "fan_out"), _fans(tensor), strict=True))
    if mode.lower() not in fans:
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', got '{mode}'")
    return fans[mode.lower()]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill ``tensor`` uniformly on [-a, a] with a = gain · √(6 / (fan_in + fan_out)) and return it.

    Example:
        >>> import wengert as wg
        >>> bool((wg.nn.init.xavier_uniform_(wg.empty(3, 3)).abs() <= 1).all())
        True
    """
    bound = gain * math.sqrt(6 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill ``tensor`` with normal numbers of std = gain · √(2 / (fan_in + fan_out)) and return it.

    Example:
        >>> import wengert as wg
        >>> round(wg.nn.init.xavier_normal_(wg.empty(300, 500)).std().item(), 2)  # √(2 / 800)
        0.05
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_fans(tensor))), generator)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Fill ``tensor`` uniformly on [-b, b] with b = gain · √(3 / fan) and return it.

    Args:
        a: the negative slope of the leaky ReLU that follows. mode: ``"fan_in"`` or ``"fan_out"``.
        nonlinearity: see :func:`calculate_gain`.

    Example:
        >>> import wengert as wg
        >>> bool((wg.nn.init.kaiming_uniform_(wg.empty(8, 6), nonlinearity="relu").abs() <= 1).all())
        True
    """
    root = math.sqrt(3)
    return _kaiming(tensor, a, mode, nonlinearity, lambda std: uniform_(tensor, -root * std, root * std, generator))


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Fill ``tensor`` with normal numbers of std = gain / √fan and return it; arguments as :func:`kaiming_uniform_`.

    Example:
        >>> import wengert as wg
        >>> round(wg.nn.init.kaiming_normal_(wg.empty(300, 200), nonlinearity="relu").std().item(), 2)  # √(2 / 200)
        0.1
    """
    return _kaiming(tensor, a, mode, nonlinearity, lambda std: normal_(tensor, 0.0, std, generator))


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str, fill: Callable[[float], Tensor]) -> Tensor:
    if 0 in tensor.shape:
        warnings.warn(f"initialising an empty tensor (shape {tuple(tensor.shape)}) does nothing", stacklevel=3)
        return tensor
    return fill(calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)))


@_filling
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Fill ``tensor``, seen as a matrix (first dimension × the rest), with orthonormal rows or columns; return it.

    Example:
        >>> import wengert as wg
        >>> w = wg.nn.init.orthogonal_(wg.empty(2, 3))
        >>> bool(wg.allclose(w @ w.T, wg.eye(2), atol=1e-6))
        True
    """
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: expected 2 or more dimensions, got shape {tuple(tensor.shape)}")
    if tensor.numel() == 0:
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    with no_grad():
        drawn = ops.empty(max(rows, columns), min(rows, columns), dtype=tensor.dtype).normal_(0, 1, generator=generator)
        q, r = ops.linalg_qr(drawn)
        q = q * r.diagonal().sign()  # makes the decomposition unique, hence the distribution uniform
        if rows < columns:
            q = q.t()
        return tensor.copy_(q.reshape(tensor.shape)).mul_(gain)


@_filling
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fill a matrix with normal numbers and set the fraction ``sparsity`` of each column to zero; return it.

    Example:
        >>> import wengert as wg
        >>> (wg.nn.init.sparse_(wg.empty(10, 2), sparsity=0.3) == 0).sum(0)
        tensor([3, 3])
    """
    _check_ndim("sparse_", tensor, (2,))
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[ops.randperm(rows, generator=generator)[:zeros], column] = 0.0
    return tensor

"""Normalisation layers as functions: batch, instance, group, layer and rms norm, and local response norm."""

import math
from typing import Any

from wengert.array.dtype import FLOAT, finfo, float32
from wengert.core.families import composite
from wengert.core.registry import ops
from wengert.core.tensor import wrote
from wengert.errors import DTypeError, ShapeError
from wengert.operators.checks import known

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm", "rows_layout"]

BATCH, GROUP = (0, 2, 3), (2, 3)


def _check_channels(name: str, input: Any, **values: Any) -> None:
    """Require per-channel tensors to hold one number for each channel of (N, C, …)."""
    for what, value in values.items():
        if value is not None and tuple(value.shape) != (input.shape[1],):
            raise ShapeError(
                f"{name}(): {what} must hold one number for each of the {input.shape[1]} channels of an input of shape "
                f"{tuple(input.shape)}, got shape {tuple(value.shape)}"
            )


def _channels(values: Any, ndim: int) -> Any:
    """Return one number per channel in a shape that goes with (N, C, …)."""
    return ops.reshape(values, (1, -1) + (1,) * (ndim - 2))


def _move(running: Any, value: Any, momentum: float) -> None:
    """Move a running statistic towards the batch's, in its own memory; nothing of it is recorded."""
    if running is None:
        return
    if running.dtype.category < FLOAT:
        raise DTypeError(f"batch_norm(): running statistics must be floating-point tensors, got {running.dtype}")
    array, new = known(running), known(value)
    if array is None or new is None:
        ops.copy_(running, ops.detach(running) * (1 - momentum) + momentum * ops.cast(value, running.dtype))
        return
    array *= 1 - momentum
    array += (momentum * new).astype(array.dtype)
    wrote(running, "batch_norm")


def _by_running(input: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Normalise by given statistics: one scale and one shift per channel."""
    scale = ops.rsqrt(var + eps)
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    out = input * _channels(ops.cast(scale, input.dtype), input.ndim)
    return out + _channels(ops.cast(shift, input.dtype), input.ndim)


def _batch_samples(s: Any) -> list[Any]:
    def running(count: int) -> tuple[Any, Any]:
        return s.tensor((count,), of="float32"), s.tensor((count,), low=0.5, high=2.0, of="float32")

    return [
        s((3, 2), None, None, (2,), (2,), True), s((3, 2, 2), None, None, None, None, True, eps=0.1),
        s((2, 2, 2, 1), None, None, (2,), None, True), s((3, 2), *running(2), (2,), (2,)),
        s((3, 2, 2), *running(2), None, (2,), eps=0.1), s((0, 2), *running(2)),
        s.error(ValueError, "more than 1 value", (1, 2), None, None, training=True),
        s.error(ValueError, "running_mean and running_var", (3, 2), None, None),
        s.error(ValueError, "one number for each", (3, 2), None, None, (3,), training=True),
        s.error(ValueError, r"\(N, C, …\)", (3,), None, None, training=True),
    ]  # fmt: skip


@composite(home="nn.functional", samples=_batch_samples)
def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Normalise each channel of (N, C, …) to mean 0 and variance 1, then scale and shift it.

    Args:
        running_mean, running_var: statistics of shape (C); used if not ``training``, else moved in place towards the
            batch's by ``momentum`` (the variance by the unbiased one). weight, bias: of shape (C).
        training: use the batch's own mean and (biased) variance. eps: added to the variance.

    Raises:
        ValueError: for one value per channel in training; for an ``eps`` that is negative or, in training, 0.

    Source: Ioffe & Szegedy, "Batch Normalization" (2015), algorithms 1 and 2.
    """
    if input.ndim < 2:
        if tuple(input.shape) == (0,):  # nothing to normalise, which PyTorch lets pass
            return ops.clone(input)
        raise ShapeError(f"batch_norm(): input must be (N, C, …), got shape {tuple(input.shape)}")
    _check_channels("batch_norm", input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if eps < 0 or (training and eps == 0):
        raise ValueError(f"batch_norm(): eps must be {'positive in training' if training else 'at least 0'}, got {eps}")
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("batch_norm(): running_mean and running_var are needed unless training=True")
        return _by_running(input, running_mean, running_var, weight, bias, eps)
    n, channels = input.shape[:2]
    length = math.prod(input.shape[2:])
    if n * length == 1:
        raise ValueError(
            f"batch_norm(): a batch needs more than 1 value per channel when training, got shape {tuple(input.shape)}"
        )
    out, mean, var = ops.normalized(
        input, weight, bias, layout=(n, channels, 1, length), axes=BATCH, eps=eps, center=True
    )
    if n * length:
        mean, var = (ops.reshape(ops.detach(moment), (channels,)) for moment in (mean, var))
        _move(running_mean, mean, momentum)
        _move(running_var, var * (n * length / (n * length - 1)), momentum)
    return out


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 2, 3)), s((2, 2, 3), None, None, (2,), (2,), eps=0.1), s((2, 2, 2, 2), weight=s.tensor((2,))),
        s((2, 2, 3), s.tensor((2,), of="float32"), s.tensor((2,), low=0.5, of="float32"), use_input_stats=False),
        s.error(ValueError, "more than 1 position", (2, 2, 1)),
        s.error(ValueError, "running_mean", (2, 2, 3), use_input_stats=False),
    ],
)  # fmt: skip
def instance_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Normalise each channel of each sample of (N, C, …) over its positions, then scale and shift it.

    The arguments are those of :func:`batch_norm`; running statistics move towards the mean over the samples.

    Raises:
        ValueError: for one position per channel.
    """
    if input.ndim < 2:
        raise ShapeError(f"instance_norm(): input must be (N, C, …), got shape {tuple(input.shape)}")
    _check_channels(
        "instance_norm", input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias
    )
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ValueError("instance_norm(): running_mean and running_var are needed unless use_input_stats=True")
        return _by_running(input, running_mean, running_var, weight, bias, eps)
    n, channels = input.shape[:2]
    length = math.prod(input.shape[2:])
    if length == 1:
        raise ValueError(f"instance_norm(): a channel needs more than 1 position, got shape {tuple(input.shape)}")
    layout = (n, channels, 1, length)
    out, mean, var = ops.normalized(input, weight, bias, layout=layout, axes=GROUP, eps=eps, center=True)
    if n * length:
        mean, var = (ops.mean(ops.detach(moment), (0, 2, 3)) for moment in (mean, var))
        _move(running_mean, mean, momentum)
        _move(running_var, var * (length / (length - 1)), momentum)
    return out


@composite(
    home=("", "nn.functional"),
    samples=lambda s: [
        s((2, 4, 3), 2), s((2, 4, 3), 2, (4,), (4,), eps=0.1), s((2, 4), 2, (4,)), s((2, 4, 2, 1), 4), s((0, 4), 2),
        s.error(ValueError, "groups of equal size", (2, 4, 3), 3),
        s.error(ValueError, "one number for each", (2, 4, 3), 2, (3,)),
    ],
)  # fmt: skip
def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Normalise ``num_groups`` groups of the channels of each sample of (N, C, …), then scale and shift each channel.

    Raises:
        ShapeError: if the channels do not divide into groups of equal size.

    Source: Wu & He, "Group Normalization" (2018).
    """
    if input.ndim < 2 or num_groups < 1 or input.shape[1] % num_groups:
        raise ShapeError(
            f"group_norm(): the channels of an input (N, C, …) must divide into {num_groups} groups of equal size, "
            f"got shape {tuple(input.shape)}"
        )
    _check_channels("group_norm", input, weight=weight, bias=bias)
    n, channels = input.shape[:2]
    layout = (n, num_groups, channels // num_groups, math.prod(input.shape[2:]))
    return ops.normalized(input, weight, bias, layout=layout, axes=GROUP, eps=eps, center=True)[0]


def rows_layout(name: str, input: Any, normalized_shape: Any, **values: Any) -> tuple[int, int, int, int]:
    """Return the layout in which each row holds the last dimensions ``normalized_shape``."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    lead = input.ndim - len(shape)
    if not shape or lead < 0 or tuple(input.shape[lead:]) != shape:
        raise ShapeError(
            f"{name}(): the last dimensions of an input of shape {tuple(input.shape)} are not normalized_shape={shape}"
        )
    for what, value in values.items():
        if value is not None and tuple(value.shape) != shape:
            raise ShapeError(f"{name}(): {what} must have shape normalized_shape={shape}, got {tuple(value.shape)}")
    return math.prod(input.shape[:lead]), 1, math.prod(shape), 1


@composite(
    home=("", "nn.functional"),
    samples=lambda s: [
        s((2, 3), normalized_shape=(3,)), s((2, 3), normalized_shape=(3,), weight=s.tensor((3,)), bias=s.tensor((3,))),
        s((2, 2, 3), normalized_shape=(2, 3), weight=s.tensor((2, 3)), eps=0.1), s((2, 3), [3], None, (3,)),
        s((3,), [3]), s((0, 3), [3], (3,)), s((2, 1), [1], (1,), grad=False),
        s.error(ValueError, "normalized_shape", (2, 3), 2),
        s.error(ValueError, "weight must have shape", (2, 3), 3, (2,)),
    ],
)  # fmt: skip
def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Normalise the last dimensions, which must be ``normalized_shape``, then scale and shift each of their elements.

    Raises:
        ShapeError: if shapes do not fit.

    Source: Ba, Kiros & Hinton, "Layer Normalization" (2016).
    """
    layout = rows_layout("layer_norm", input, normalized_shape, weight=weight, bias=bias)
    return ops.normalized(input, weight, bias, layout=layout, axes=GROUP, eps=eps, center=True)[0]


@composite(
    home=("", "nn.functional"),
    samples=lambda s: [
        s((2, 3), normalized_shape=(3,)), s((2, 3), [3], (3,)),
        s((2, 2, 3), normalized_shape=(2, 3), weight=s.tensor((2, 3)), eps=0.1), s((3,), [3]), s((0, 3), [3], (3,)),
        s((2, 3), [3], (3,), kind="complex"), s.error(ValueError, "normalized_shape", (2, 3), 2),
    ],
)  # fmt: skip
def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """Divide the last dimensions, which must be ``normalized_shape``, by their root mean square; then scale each one.

    Args:
        eps: added to the mean square; by default the epsilon of the dtype computed in (float32 for halves).

    Source: Zhang & Sennrich, "Root Mean Square Layer Normalization" (2019).
    """
    layout = rows_layout("rms_norm", input, normalized_shape, weight=weight)
    if eps is None:
        eps = finfo(float32 if input.dtype.is_half else input.dtype).eps
    if input.is_complex():  # the square, not the absolute square, as in PyTorch
        over = tuple(
            range(input.ndim - (1 if isinstance(normalized_shape, int) else len(normalized_shape)), input.ndim)
        )
        out = input * ops.rsqrt(ops.mean(ops.square(input), over, True) + eps)
        return out if weight is None else out * weight
    return ops.normalized(input, weight, layout=layout, axes=GROUP, eps=eps, center=False)[0]


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 4, 3), 3), s((2, 4, 3), 2, alpha=0.5, beta=0.5, k=2.0), s((2, 3, 2, 2), 5, alpha=1.0), s((2, 1, 2), 1),
        s.error(ValueError, "at least 3 dimensions", (2, 3), 2), s.error(ValueError, "size", (2, 3, 2), 0),
    ],
)  # fmt: skip
def local_response_norm(input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """Return x / (k + alpha · mean of x² over ``size`` neighbouring channels)^beta, channels outside counting as 0.

    Source: Krizhevsky, Sutskever & Hinton, "ImageNet Classification with Deep CNNs" (2012), section 3.3.
    """
    if input.ndim < 3:
        raise ShapeError(
            f"local_response_norm(): input must have at least 3 dimensions, got shape {tuple(input.shape)}"
        )
    if size < 1:
        raise ValueError(f"local_response_norm(): size must be at least 1, got {size}")
    squares = ops.square(input)

    def zeros(count: int) -> Any:
        return squares.new_zeros((input.shape[0], count, *input.shape[2:]))

    padded = ops.cat((zeros(size // 2), squares, zeros((size - 1) // 2)), 1)
    total = ops.narrow(padded, 1, 0, input.shape[1])
    for i in range(1, size):
        total = total + ops.narrow(padded, 1, i, input.shape[1])
    return input / (total * (alpha / size) + k) ** beta

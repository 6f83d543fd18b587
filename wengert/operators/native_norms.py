"""PyTorch's ``native_*_norm``: normalisation together with the statistics that it used."""

import math
from typing import Any

from wengert.core.families import composite
from wengert.core.registry import ops
from wengert.operators.normalize import BATCH, GROUP, rows_layout

__all__ = ["native_batch_norm", "native_group_norm", "native_layer_norm"]


def _statistics(input: Any, mean: Any, var: Any, eps: float, shape: Any) -> tuple[Any, Any]:
    """Return the mean and the reciprocal deviation in ``shape`` and the input's dtype."""
    spread = ops.rsqrt(var + eps)
    return ops.cast(ops.reshape(mean, shape), input.dtype), ops.cast(ops.reshape(spread, shape), input.dtype)


@composite(
    samples=lambda s: [
        s((2, 3), [3], None, None, 1e-5), s((2, 2, 3), [2, 3], s.tensor((2, 3)), s.tensor((2, 3)), 0.1),
        s.error(ValueError, "normalized_shape", (2, 3), [2], None, None, 1e-5),
    ],
)  # fmt: skip
def native_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """Return (:func:`layer_norm`, mean, reciprocal deviation); the last two have size 1 where it normalised."""
    layout = rows_layout("native_layer_norm", input, normalized_shape, weight=weight, bias=bias)
    out, mean, var = ops.normalized(input, weight, bias, layout=layout, axes=GROUP, eps=eps, center=True)
    inner = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    lead = input.shape[: input.ndim - inner]
    return (out, *_statistics(input, mean, var, eps, (*lead, *(1,) * inner)))


@composite(
    samples=lambda s: [
        s((2, 4, 3), None, None, 2, 4, 3, 2, 1e-5), s((2, 4, 3), (4,), (4,), 2, 4, 3, 2, 0.1),
        s.error(ValueError, "N, C and HxW", (2, 4, 3), None, None, 2, 3, 3, 1, 1e-5),
        s.error(RuntimeError, "weight must have 4 elements", (2, 4, 3), (3,), None, 2, 4, 3, 2, 1e-5),
    ],
)  # fmt: skip
def native_group_norm(
    input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Any, Any, Any]:
    """Return (:func:`group_norm`, mean, reciprocal deviation); the last two have shape (N, group).

    Args:
        N, C, HxW: the sizes of ``input``: samples, channels, positions. group: how many groups of channels.
    """
    if input.ndim < 2 or (N, C, HxW) != (*input.shape[:2], math.prod(input.shape[2:])) or group < 1 or C % group:
        raise ValueError(
            f"native_group_norm(): N, C and HxW = {N}, {C}, {HxW} must be the sizes of the input of shape "
            f"{tuple(input.shape)}, and C divisible by group={group}"
        )
    layout = (N, group, C // group, HxW)
    out, mean, var = ops.normalized(input, weight, bias, layout=layout, axes=GROUP, eps=eps, center=True)
    return (out, *_statistics(input, mean, var, eps, (N, group)))


@composite(
    samples=lambda s: [
        s((3, 2), None, None, None, None, True, 0.1, 1e-5),
        s((3, 2, 2), (2,), (2,), None, None, True, 0.1, 0.1),
        s((3, 2, 2), (2,), None, s.tensor((2,), of="float32"), s.tensor((2,), low=0.5, of="float32"), False, 0.1, 0.1),
    ],
)
def native_batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, Any, Any]:
    """Return (:func:`batch_norm`, mean, reciprocal deviation) of the batch; the last two are empty if not ``training``."""
    out = ops.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        return out, input.new_empty(0), input.new_empty(0)
    layout = (*input.shape[:2], 1, math.prod(input.shape[2:]))
    _, mean, var = ops.normalized(input, None, None, layout=layout, axes=BATCH, eps=eps, center=True)
    return (out, *_statistics(input, mean, var, eps, (input.shape[1],)))

"""Dropout: elements or channels set to 0 at random while training.

N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting" (2014).
"""

import math
from collections.abc import Callable
from typing import Any

from wengert.array.dtype import real_of
from wengert.core.families import composite
from wengert.core.generator import draw
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.kernels import sampling as kernels

__all__ = [
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout", "feature_dropout",
    "scaled_mask",
]  # fmt: skip


def scaled_mask(key: int, offset: int, shape: Any, dtype: Any, p: float) -> Any:
    """Draw a mask of ``shape``: 1/(1 − p) with probability 1 − p, else 0."""
    kept, used = kernels.bernoulli(key, offset, shape, dtype, 1.0 - p)
    return kept if p == 1.0 else kept * dtype.type(1.0 / (1.0 - p)), used


def _checked_rate(name: str, p: Any) -> float:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{name}(): p is a probability, between 0 and 1, got {p}")
    return float(p)


@composite(
    samples=lambda s: [s((2, 3), 0.5, False), s((2, 3), 0.0), s((0, 2)), s.error(ValueError, "probability", (2,), 1.5)],
    home=("", "nn.functional"),
)
def dropout(input: Any, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """While training, set elements to 0 with probability ``p`` and multiply the others by 1/(1 − p); else the input."""
    return _dropped("dropout", input, p, training, inplace, tuple(input.shape))


def _dropped(name: str, input: Any, p: Any, training: bool, inplace: bool, shape: tuple[int, ...]) -> Any:
    rate = _checked_rate(name, p)
    if not training or rate == 0.0:
        return input
    mask = draw(name, None, scaled_mask, shape, real_of(input.dtype).numpy, rate)
    return ops.mul_(input, mask) if inplace else ops.mul(input, mask)


def _channel_dropout(name: str, dims: tuple[int, ...]) -> Callable[..., Any]:
    """Declare dropout of whole channels for inputs of the given numbers of dimensions (the larger is batched)."""

    def function(input: Any, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if input.ndim not in dims:
            raise ShapeError(
                f"{name}(): expected {' or '.join(map(str, dims))} dimensions, got shape {tuple(input.shape)}"
            )
        lead = 2 if input.ndim == dims[-1] else 1
        shape = (*input.shape[:lead], *(1,) * (input.ndim - lead))
        return _dropped(name, input, p, training, inplace, shape)

    function.__name__ = name
    function.__doc__ = (
        "While training, set whole channels to 0 with probability ``p`` and scale the others by 1/(1 − p)."
    )
    function.__module__ = __name__
    shape = (2, *(3,) * (dims[-1] - 1))
    return composite(samples=lambda s: [s(shape, 0.5, False), s(shape, 0.0)], home="nn.functional")(function)


dropout1d = _channel_dropout("dropout1d", (2, 3))
dropout2d = _channel_dropout("dropout2d", (3, 4))
dropout3d = _channel_dropout("dropout3d", (4, 5))


@composite(samples=lambda s: [s((2, 3, 4), 0.5, False), s((2, 3), 0.0)], home=("", "nn.functional"))
def feature_dropout(input: Any, p: Any = 0.5, training: bool = True) -> Any:
    """While training, set whole channels (the first two dimensions) to 0 with probability ``p``."""
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    return _dropped("feature_dropout", input, p, training, False, shape)


@composite(samples=lambda s: [s((2, 3), 0.5, False), s((2, 3), 0.0)], home=("", "nn.functional"))
def alpha_dropout(input: Any, p: Any = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """Dropout that keeps mean and variance of SELU activations (G. Klambauer et al., 2017, §2)."""
    return _alpha_dropped("alpha_dropout", input, p, training, inplace, tuple(input.shape))


@composite(samples=lambda s: [s((2, 3, 4), 0.5, False), s((2, 3), 0.0)], home=("", "nn.functional"))
def feature_alpha_dropout(input: Any, p: Any = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """:func:`alpha_dropout` of whole channels, the first two dimensions."""
    if training and input.ndim < 2:
        raise ShapeError(
            f"feature_alpha_dropout(): input must have at least 2 dimensions, got shape {tuple(input.shape)}"
        )
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    return _alpha_dropped("feature_alpha_dropout", input, p, training, inplace, shape)


def _alpha_dropped(name: str, input: Any, p: Any, training: bool, inplace: bool, shape: tuple[int, ...]) -> Any:
    """Replace what is dropped by SELU's limit for -inf, then restore mean 0 and variance 1."""
    p = _checked_rate(name, p)
    if not training or p == 0.0:
        return input
    alpha = 1.7580993408473766
    a = 0.0 if p == 1.0 else 1.0 / math.sqrt((alpha * alpha * p + 1.0) * (1.0 - p))
    kept = draw(name, None, kernels.bernoulli, shape, real_of(input.dtype).numpy, 1.0 - p)
    noise = (1.0 - kept) * (-alpha * a) + alpha * a * p
    return ops.add_(ops.mul_(input, kept * a), noise) if inplace else input * (kept * a) + noise

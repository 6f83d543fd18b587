"""Activation functions of neural networks, element by element."""

from typing import Any

import numpy as np

from wengert.core.arguments import Anything, Real
from wengert.core.families import elementwise
from wengert.core.registry import ops

__all__ = ["relu", "sigmoid"]


def _kinked(s: Any) -> list[Any]:
    """The samples of functions with a kink at 0."""
    return [s((2, 3)), s(()), s((0,)), s((2,), low=20.0, high=90.0), s((2,), low=-90.0, high=-20.0),
            s(s.array([0.0, float("inf"), float("-inf"), float("nan")]), grad=False)]  # fmt: skip


@elementwise(
    derivative={"input": lambda g, out: ops.where(out > 0, g, 0)},
    home=("", "nn.functional"),
    samples=lambda s: [*_kinked(s), s((3,), kind="integer")],
)
def relu(input: Real) -> Any:
    """Return ``max(input, 0)``, element by element. The gradient at 0 is 0."""
    return np.maximum(input, 0, dtype=input.dtype)


def _sigmoid(input: Any) -> Any:
    """Return 1 / (1 + exp(-x)) by exp of negative numbers only."""
    if input.dtype.kind == "c":
        return 1 / (1 + np.exp(-input))
    small = np.exp(-np.abs(input))
    return np.where(input >= 0, 1, small) / (1 + small)


@elementwise(
    derivative={"input": lambda g, out: g * (out * (1 - out))},
    promote="float",
    flops=12,
    home=("", "nn.functional"),
    aliases=("special_expit",),
    samples=lambda s: [*_kinked(s), s((2,), kind="complex"), s((2,), kind="integer")],
)
def sigmoid(input: Anything) -> Any:
    """Return ``1 / (1 + exp(-input))``, element by element, without overflow. Derivative: s(1 - s)."""
    return _sigmoid(input)

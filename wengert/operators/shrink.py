"""Activations that move numbers towards 0: hardshrink, softshrink, tanhshrink and softsign."""

from typing import Any

import numpy as np

from wengert.core.arguments import Floating, Number
from wengert.core.families import elementwise
from wengert.core.registry import ops
from wengert.operators.activation import common, kinked

__all__ = ["hardshrink", "softshrink", "softsign", "tanhshrink"]


@elementwise(
    derivative={"input": lambda g, input, lambd: ops.where(ops.logical_and(input >= -lambd, input <= lambd), 0, g)},
    home=("", "nn.functional"),
    inplace=False,
    samples=lambda s: [*kinked(s), s((2, 3), 0.2), s((2, 3), lambd=-1.0)],
)
def hardshrink(input: Floating, lambd: float = 0.5) -> Any:
    """Return the elements, those in ``[-lambd, lambd]`` replaced by 0."""
    return np.where((input >= -lambd) & (input <= lambd), input.dtype.type(0), input)


@elementwise(
    derivative={"input": lambda g, input, lambd: ops.where(ops.logical_and(input >= -lambd, input <= lambd), 0, g)},
    home=("nn.functional",),
    inplace=False,
    samples=lambda s: [*kinked(s), s((2, 3), 0.2), s.error(ValueError, "lambd", (2,), -0.5)],
)
def softshrink(input: Floating, lambd: float = 0.5) -> Any:
    """Return the elements moved by ``lambd`` towards 0, those within it replaced by 0."""
    if lambd < 0:
        raise ValueError(f"softshrink(): lambd must not be negative, got {lambd}")
    bound = input.dtype.type(lambd)
    return np.sign(input) * np.maximum(np.abs(input) - bound, 0)


def _softsign_rule(g: Any, input: Any) -> Any:
    """g / (1 + |x|)²; of complex numbers g / (1 + r) - u r Re(ū g) / (1 + r)², where x = u r, for both modes."""
    r = ops.abs(input)
    if not input.is_complex():
        return g / ops.square(1 + r)
    u = ops.sgn(input)
    return g / (1 + r) - u * (r * ops.real(ops.conj(u) * g) / ops.square(1 + r))


@elementwise(
    derivative={"input": _softsign_rule},
    promote="float",
    holomorphic=False,
    flops=3,
    home=("nn.functional",),
    inplace=False,
    samples=lambda s: [*common(s), s((3,), kind="complex"), s((3,), kind="integer")],
)
def softsign(input: Number) -> Any:
    """Return ``input / (1 + |input|)``."""
    return input / (1 + np.abs(input))


@elementwise(
    derivative={"input": lambda g, input: g * ops.square(ops.tanh(input))},
    promote="float",
    flops=11,
    home=("nn.functional",),
    inplace=False,
    samples=lambda s: [*common(s), s(s.array([0.0, -1e-9])), s((3,), kind="complex"), s((3,), kind="integer")],
)
def tanhshrink(input: Number) -> Any:
    """Return ``input - tanh(input)``. Derivative: tanh²."""
    return input - np.tanh(input)

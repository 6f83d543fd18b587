"""The element-wise part of a step of an LSTM or GRU: what is left when the matrix products are done.

LSTM (Hochreiter & Schmidhuber, 1997; Gers et al., 2000), with gates before their non-linearity:

    c' = σ(f) c + σ(i) tanh(g),   h' = σ(o) tanh(c').

GRU (Cho et al., EMNLP 2014, with the reset gate after the product):

    n = tanh(x + σ(r) m),   h' = n + σ(z) (h - n).

Each is one element-wise operator, so that a step is a few calls eagerly and a single loop natively.
"""

from typing import Any

import numpy as np

from wengert.core.arguments import Floating
from wengert.core.families import elementwise
from wengert.core.registry import ops

__all__ = ["gru_state", "lstm_output", "lstm_state"]


def _sigmoid(x: Any) -> Any:
    """σ(x) = (1 + tanh(x / 2)) / 2, which cannot overflow."""
    half = x.dtype.type(0.5)
    return half * np.tanh(half * x) + half


def _sigmoid_slope(x: Any) -> Any:
    s = ops.sigmoid(x)
    return s * (1 - s)


def _tanh_slope(x: Any) -> Any:
    t = ops.tanh(x)
    return 1 - t * t


def _samples(count: int) -> Any:
    def samples(s: Any) -> list[Any]:
        shapes = [(2, 3)] * count
        return [
            s(*shapes),
            s(*shapes[1:], (3,)),
            s(*[()] * count),
            s(*[(0, 2)] * count),
            s(*shapes, low=-9.0, high=9.0),
        ]

    return samples


@elementwise(
    derivative={
        "input": lambda g, input, candidate: g * ops.tanh(candidate) * _sigmoid_slope(input),
        "forget": lambda g, forget, cell: g * cell * _sigmoid_slope(forget),
        "candidate": lambda g, input, candidate: g * ops.sigmoid(input) * _tanh_slope(candidate),
        "cell": lambda g, forget: g * ops.sigmoid(forget),
    },
    flops=24,
    inplace=False,
    home=(),
    samples=_samples(4),
)
def lstm_state(input: Floating, forget: Floating, candidate: Floating, cell: Floating) -> Any:
    """Return the new cell of an LSTM, σ(forget) · cell + σ(input) · tanh(candidate)."""
    return _sigmoid(forget) * cell + _sigmoid(input) * np.tanh(candidate)


@elementwise(
    derivative={
        "output": lambda g, output, cell: g * ops.tanh(cell) * _sigmoid_slope(output),
        "cell": lambda g, output, cell: g * ops.sigmoid(output) * _tanh_slope(cell),
    },
    flops=17,
    inplace=False,
    home=(),
    samples=_samples(2),
)
def lstm_output(output: Floating, cell: Floating) -> Any:
    """Return what an LSTM shows of its cell, σ(output) · tanh(cell)."""
    return _sigmoid(output) * np.tanh(cell)


def _fresh(reset: Any, entering: Any, product: Any) -> Any:
    return ops.tanh(entering + ops.sigmoid(reset) * product)


def _to_fresh(g: Any, update: Any, fresh: Any) -> Any:
    """The cotangent of what the tanh of a GRU is taken of."""
    return g * (1 - ops.sigmoid(update)) * (1 - fresh * fresh)


@elementwise(
    derivative={
        "reset": lambda g, reset, update, entering, product: (
            _to_fresh(g, update, _fresh(reset, entering, product)) * product * _sigmoid_slope(reset)
        ),
        "update": lambda g, reset, update, entering, product, hidden: (
            g * (hidden - _fresh(reset, entering, product)) * _sigmoid_slope(update)
        ),
        "entering": lambda g, reset, update, entering, product: _to_fresh(g, update, _fresh(reset, entering, product)),
        "product": lambda g, reset, update, entering, product: (
            _to_fresh(g, update, _fresh(reset, entering, product)) * ops.sigmoid(reset)
        ),
        "hidden": lambda g, update: g * ops.sigmoid(update),
    },
    flops=29,
    inplace=False,
    home=(),
    samples=_samples(5),
)
def gru_state(reset: Floating, update: Floating, entering: Floating, product: Floating, hidden: Floating) -> Any:
    """Return the new state of a GRU: n + σ(update) · (hidden - n), n = tanh(entering + σ(reset) · product)."""
    fresh = np.tanh(entering + _sigmoid(reset) * product)
    return fresh + _sigmoid(update) * (hidden - fresh)

"""Window functions for signals. Periodic windows of length n are symmetric ones of length n + 1 without the last point.

F. J. Harris, "On the use of windows for harmonic analysis with the discrete Fourier transform", Proc. IEEE 66 (1978).
"""

from typing import Any

import numpy as np

from wengert.array.dtype import to_dtype
from wengert.array.shape import as_int
from wengert.errors import DTypeError, ShapeError
from wengert.operators.create import creation, finished
from wengert.settings import settings

__all__: list[str] = []


def _window(name: str, length: Any, periodic: bool, formula: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    """Return ``formula`` of positions from 0 to 1, sampled ``length`` times."""
    count = as_int(length, "window_length")
    kind = settings.default_dtype if dtype is None else to_dtype(dtype)
    if count < 0:
        raise ShapeError(f"{name}(): window_length must not be negative, got {count}")
    if not kind.is_floating_point:
        raise DTypeError(f"{name}(): a window has a real floating-point dtype, not {kind}")
    if count < 2:
        return finished(np.ones(count, kind.numpy), device, requires_grad)
    positions = np.arange(count) / (count if periodic else count - 1)
    return finished(formula(positions).astype(kind.numpy), device, requires_grad)


def _cosines(*weights: float) -> Any:
    """Return the sum of cosines a₀ - a₁ cos 2πx + a₂ cos 4πx - …"""
    return lambda x: sum((-1) ** k * a * np.cos(2 * np.pi * k * x) for k, a in enumerate(weights))


@creation
def hann_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return the Hann window: (1 - cos 2πx) / 2."""
    return _window("hann_window", window_length, periodic, _cosines(0.5, 0.5), dtype, device, requires_grad)


@creation
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Any:  # fmt: skip
    """Return the Hamming window: alpha - beta cos 2πx."""
    return _window("hamming_window", window_length, periodic, _cosines(alpha, beta), dtype, device, requires_grad)


@creation
def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return the Blackman window: 0.42 - 0.5 cos 2πx + 0.08 cos 4πx."""
    return _window("blackman_window", window_length, periodic, _cosines(0.42, 0.5, 0.08), dtype, device, requires_grad)


@creation
def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return the Bartlett (triangular) window: 1 - |2x - 1|."""
    return _window(
        "bartlett_window", window_length, periodic, lambda x: 1 - np.abs(2 * x - 1), dtype, device, requires_grad
    )


@creation
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """Return the Kaiser window: I₀(beta √(1 - (2x - 1)²)) / I₀(beta), with the modified Bessel function I₀."""

    def formula(x: Any) -> Any:
        return np.i0(beta * np.sqrt(np.maximum(1 - (2 * x - 1) ** 2, 0))) / np.i0(beta)

    return _window("kaiser_window", window_length, periodic, formula, dtype, device, requires_grad)

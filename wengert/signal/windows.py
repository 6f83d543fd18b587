"""``wengert.signal.windows``: window functions under PyTorch's (and SciPy's) names.

Each has ``M`` points. A symmetric window (``sym``) is the same from both ends; a periodic one is the symmetric window of
M + 1 points without its last, for spectra. ``dtype`` is a real floating-point one, by default the default dtype.

F. J. Harris, "On the use of windows for harmonic analysis with the discrete Fourier transform", Proc. IEEE 66 (1978).

Example:
    >>> import wengert as wg
    >>> import wengert.signal
    >>> wengert.signal.windows.hann(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from wengert.array.dtype import to_dtype
from wengert.array.layout import strided
from wengert.array.shape import as_int
from wengert.errors import DTypeError, ShapeError
from wengert.operators.create import finished
from wengert.settings import settings

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip


def _window(name: str, M: Any, sym: bool, formula: Callable[[Any, int], Any], options: dict[str, Any]) -> Any:
    """Return ``formula`` of the points 0 … M - 1 of a symmetric window of the given number of points."""
    count = as_int(M, "M")
    dtype, layout = options.pop("dtype"), options.pop("layout")
    kind = settings.default_dtype if dtype is None else to_dtype(dtype)
    if count < 0:
        raise ShapeError(f"{name}(): M must not be negative, got {count}")
    if not kind.is_floating_point:
        raise DTypeError(f"{name}(): a window has a real floating-point dtype, not {kind}")
    if layout is not None and layout is not strided:
        raise ValueError(f"{name}(): layout must be wengert.strided, got {layout}")
    points = np.arange(count, dtype=np.float64)
    values = formula(points, count if sym else count + 1) if count > 1 else np.ones(count)
    return finished(values.astype(kind.numpy), options["device"], options["requires_grad"])


def bartlett(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return the Bartlett (triangular) window: 1 - |2n / (M - 1) - 1|."""
    options = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return _window("bartlett", M, sym, lambda n, m: 1 - np.abs(2 * n / (m - 1) - 1), options)


def blackman(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return the Blackman window: 0.42 - 0.5 cos 2πx + 0.08 cos 4πx, x = n / (M - 1)."""
    options = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return _window("blackman", M, sym, _cosines((0.42, 0.5, 0.08)), options)


def cosine(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return the cosine window: sin(π (n + 1/2) / M)."""
    options = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return _window("cosine", M, sym, lambda n, m: np.sin(np.pi * (n + 0.5) / m), options)


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Any:  # fmt: skip
    """Return the exponential (Poisson) window: exp(-|n - center| / tau).

    Args:
        center: the point of its peak, by default the middle; only for windows that are not symmetric.
        tau: how fast it falls.
    """
    if tau <= 0:
        raise ValueError(f"exponential(): tau must be positive, got {tau}")
    if sym and center is not None:
        raise ValueError("exponential(): a symmetric window has its center in the middle; give center with sym=False")
    options = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}

    def formula(n: Any, m: int) -> Any:
        return np.exp(-np.abs(n - ((m - 1) / 2 if center is None else center)) / tau)

    return _window("exponential", M, sym, formula, options)


def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """Return the Gaussian window: exp(-((n - (M - 1) / 2) / std)² / 2)."""
    if std <= 0:
        raise ValueError(f"gaussian(): std must be positive, got {std}")
    options = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return _window("gaussian", M, sym, lambda n, m: np.exp(-0.5 * ((n - (m - 1) / 2) / std) ** 2), options)


def _cosines(weights: Iterable[float]) -> Callable[[Any, int], Any]:
    """Return a₀ - a₁ cos 2πx + a₂ cos 4πx - … of x = n / (m - 1)."""
    signed = [(-1) ** k * a for k, a in enumerate(weights)]
    return lambda n, m: sum(a * np.cos(2 * np.pi * k * n / (m - 1)) for k, a in enumerate(signed))


def general_cosine(
    M: int, *, a: Iterable[float], sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """Return a sum of cosines: a₀ - a₁ cos 2πx + a₂ cos 4πx - …, x = n / (M - 1)."""
    weights = tuple(a)
    if not weights:
        raise ValueError("general_cosine(): a must hold at least one weight")
    options = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return _window("general_cosine", M, sym, _cosines(weights), options)


def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """Return the generalised Hamming window: alpha - (1 - alpha) cos 2πx, x = n / (M - 1)."""
    options = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return _window("general_hamming", M, sym, _cosines((alpha, 1 - alpha)), options)


def hamming(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return the Hamming window: 0.54 - 0.46 cos 2πx, x = n / (M - 1)."""
    options = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return _window("hamming", M, sym, _cosines((0.54, 0.46)), options)


def hann(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return the Hann window: (1 - cos 2πx) / 2, x = n / (M - 1)."""
    options = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return _window("hann", M, sym, _cosines((0.5, 0.5)), options)


def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """Return the Kaiser window: I₀(beta √(1 - (2n / (M - 1) - 1)²)) / I₀(beta), with the modified Bessel function I₀."""
    if beta < 0:
        raise ValueError(f"kaiser(): beta must not be negative, got {beta}")
    options = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}

    def formula(n: Any, m: int) -> Any:
        return np.i0(beta * np.sqrt(np.maximum(1 - (2 * n / (m - 1) - 1) ** 2, 0))) / np.i0(beta)

    return _window("kaiser", M, sym, formula, options)


def nuttall(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return Nuttall's window of minimal 4 terms (A. H. Nuttall, IEEE Trans. ASSP 29, 1981)."""
    options = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return _window("nuttall", M, sym, _cosines((0.3635819, 0.4891775, 0.1365995, 0.0106411)), options)

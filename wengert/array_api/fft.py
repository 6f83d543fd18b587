"""The extension ``fft``: discrete Fourier transforms and their frequencies."""

from typing import Any

from wengert.array_api.arguments import axes_in, axes_or_all, axis_in
from wengert.core.registry import ops

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip


# ---- one axis: ``n`` points, to which the array is cropped or padded with zeros


def fft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """Return the transform yₖ = Σⱼ xⱼ exp(-2πi j k / n); ``norm`` says where 1/n goes: "backward", "ortho", "forward"."""
    return ops.fft_fft(x, n, axis_in(axis, x.ndim), norm)


def ifft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """Return the inverse of :func:`fft`."""
    return ops.fft_ifft(x, n, axis_in(axis, x.ndim), norm)


def rfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """Return the first n // 2 + 1 frequencies of a real array; the others are their conjugates."""
    return ops.fft_rfft(x, n, axis_in(axis, x.ndim), norm)


def irfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """Return the inverse of :func:`rfft`: ``n`` real numbers, by default 2 (m - 1) of m frequencies."""
    return ops.fft_irfft(x, n, axis_in(axis, x.ndim), norm)


def hfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """Return the real transform of a Hermitian signal given by its first half."""
    return ops.fft_hfft(x, n, axis_in(axis, x.ndim), norm)


def ihfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """Return the inverse of :func:`hfft`."""
    return ops.fft_ihfft(x, n, axis_in(axis, x.ndim), norm)


# ---- several axes: without ``axes`` the last len(s), or all


def _axes(x: Any, axes: Any) -> tuple[int, ...] | None:
    return None if axes is None else axes_in(axes, x.ndim)


def fftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
    """Return the transform over several axes, of ``s`` points along each."""
    return ops.fft_fftn(x, s, _axes(x, axes), norm)


def ifftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
    """Return the inverse of :func:`fftn`."""
    return ops.fft_ifftn(x, s, _axes(x, axes), norm)


def rfftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
    """Return the transform of a real array over several axes, half of it along the last."""
    return ops.fft_rfftn(x, s, _axes(x, axes), norm)


def irfftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
    """Return the inverse of :func:`rfftn`."""
    return ops.fft_irfftn(x, s, _axes(x, axes), norm)


# ---- frequencies


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """Return the frequencies of :func:`fft` on ``n`` points ``d`` apart, in cycles per unit."""
    return ops.fft_fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """Return the frequencies of :func:`rfft` on ``n`` points ``d`` apart, in cycles per unit."""
    return ops.fft_rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: Any, /, *, axes: Any = None) -> Any:
    """Return the array with frequency zero moved to the middle of some axes; None means all."""
    return ops.fft_fftshift(x, axes_or_all(axes, x.ndim))


def ifftshift(x: Any, /, *, axes: Any = None) -> Any:
    """Return the inverse of :func:`fftshift`."""
    return ops.fft_ifftshift(x, axes_or_all(axes, x.ndim))

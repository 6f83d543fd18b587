"""Frequencies, shifted spectra, and spectra of pieces of a signal: the short-time Fourier transform and its inverse."""

from typing import Any

import numpy as np

from wengert.array.dtype import real_of
from wengert.array.shape import as_int, axes_of
from wengert.core.families import composite
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.operators.checks import anywhere
from wengert.settings import settings

__all__ = ["fft_fftfreq", "fft_fftshift", "fft_ifftshift", "fft_rfftfreq", "istft", "stft"]

# ---- frequencies


def _frequencies(values: Any, dtype: Any, requires_grad: bool) -> Any:
    return ops.tensor(values, dtype=settings.default_dtype if dtype is None else dtype, requires_grad=requires_grad)


@composite(samples=lambda s: [s(5), s(4, 0.5), s(1), s(3, dtype="float64"), s.error(ValueError, "at least 0", -1)])
def fft_fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Return the frequencies of :func:`wengert.fft.fft` of n samples d apart: 0, 1/(n d), …, then the negative ones.

    Example:
        >>> import wengert as wg
        >>> wg.fft.fftfreq(4)
        tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    _check_count("fft_fftfreq", n)
    return _frequencies(np.fft.fftfreq(n, d) if n else np.zeros(0), dtype, requires_grad)


@composite(samples=lambda s: [s(5), s(4, 0.5), s(1), s(3, dtype="float64")])
def fft_rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Return the frequencies of :func:`wengert.fft.rfft` of n samples d apart."""
    _check_count("fft_rfftfreq", n)
    return _frequencies(np.fft.rfftfreq(n, d) if n else np.zeros(1), dtype, requires_grad)


def _check_count(name: str, n: Any) -> None:
    if as_int(n, "n") < 0:
        raise ValueError(f"{name}(): n must be at least 0, got {n}")


def _shifted(input: Any, dim: Any, backward: bool) -> Any:
    dims = axes_of(dim, input.ndim)
    steps = [input.shape[d] // 2 for d in dims]
    return ops.roll(input, [-n for n in steps] if backward else steps, dims) if dims else ops.clone(input)


def _shift_samples(s: Any) -> list[Any]:
    return [s((5,)), s((4, 3)), s((4, 3), dim=1), s((2, 3, 2), dim=(0, 2)), s((3,), kind="integer"), s((0,))]


@composite(samples=_shift_samples)
def fft_fftshift(input: Any, dim: Any = None) -> Any:
    """Return the spectrum with frequency 0 moved to the middle of each dimension (of those in ``dim``)."""
    return _shifted(input, dim, backward=False)


@composite(samples=_shift_samples)
def fft_ifftshift(input: Any, dim: Any = None) -> Any:
    """Return what :func:`wengert.fft.fftshift` was made of."""
    return _shifted(input, dim, backward=True)


# ---- short-time transforms


def _framing(name: str, n_fft: int, hop_length: Any, win_length: Any, window: Any, like: Any) -> tuple[int, Any]:
    """Return the step between frames, and the window padded on both sides to ``n_fft`` points."""
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    if hop <= 0:
        raise ValueError(f"{name}(): hop_length must be positive, got {hop}")
    if not 0 < length <= n_fft:
        raise ValueError(f"{name}(): win_length must lie between 1 and n_fft={n_fft}, got {length}")
    if window is None:
        window = ops.ones(length, dtype=real_of(like.dtype))
    elif window.ndim != 1 or window.shape[0] != length:
        raise ShapeError(
            f"{name}(): window must be a vector of win_length={length} points, got shape {tuple(window.shape)}"
        )
    left = (n_fft - length) // 2
    return hop, ops.constant_pad_nd(window, (left, n_fft - length - left)) if length < n_fft else window


_WINDOW = [0.2, 0.8, 1.0, 0.5]


@composite(
    home="",
    method=True,
    samples=lambda s: [
        s((8,), 4, window=s.array(_WINDOW), return_complex=True),
        s((2, 9), 4, 2, 3, s.array([0.5, 1.0, 0.7]), return_complex=True),
        s((8,), 4, 3, window=s.array(_WINDOW), center=False, normalized=True, return_complex=True),
        s((8,), 4, window=s.array(_WINDOW), pad_mode="constant", return_complex=False),
        s((6,), 4, window=s.array(_WINDOW), onesided=False, return_complex=True),
        s(s.tensor((6,), kind="complex"), 4, window=s.array(_WINDOW), pad_mode="constant"),
        s.error(RuntimeError, "say return_complex", (8,), 4),
        s.error(RuntimeError, "n_fft", (3,), 4, center=False, return_complex=True),
        s.error(ValueError, "hop_length", (8,), 4, 0, return_complex=True),
        s.error(RuntimeError, "window must be", (8,), 4, window=s.array([1.0]), return_complex=True),
        s.error(RuntimeError, "onesided", s.tensor((6,), kind="complex"), 4, onesided=True),
    ],
)  # fmt: skip
def stft(
    input: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
    center: bool = True, pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Any:  # fmt: skip
    """Return the Fourier transforms of overlapping pieces of a signal, each weighted by a window.

    Args:
        input: (L,) or (B, L), real or complex. n_fft: points of a piece. hop_length: steps between pieces, n_fft // 4.
        win_length, window: points of the window (n_fft), padded to the middle of a piece, and its weights (ones).
        center: pad the signal by n_fft // 2 on both sides in ``pad_mode``, so that piece t lies around t · hop_length.
        normalized: scale by 1/√n_fft. onesided: only the n_fft // 2 + 1 frequencies that determine a real signal's.
        return_complex: must be given for real input; False gives real and imaginary parts in a last dimension.

    Returns:
        (B, frequencies, pieces), without B if the input has none.

    Raises:
        RuntimeError, ValueError: for sizes that do not fit, naming them.
    """
    if input.ndim not in (1, 2):
        raise ShapeError(f"stft(): input must be a signal (L,) or (B, L), got shape {tuple(input.shape)}")
    is_complex = input.is_complex() or (window is not None and window.is_complex())
    if return_complex is None and not is_complex:
        raise RuntimeError(
            "stft(): say return_complex=True for a real signal; wengert.view_as_real gives the old format"
        )
    half = not is_complex if onesided is None else onesided
    if half and is_complex:
        raise RuntimeError("stft(): onesided=True needs a real signal and a real window")
    hop, weights = _framing("stft", n_fft, hop_length, win_length, window, input)
    if center:
        input = ops.pad(input, (n_fft // 2, n_fft // 2), pad_mode)
    if not 0 < n_fft <= input.shape[-1]:
        raise ShapeError(f"stft(): n_fft={n_fft} must lie between 1 and the {input.shape[-1]} points of the signal")
    pieces = ops.sliding_windows(input, -1, n_fft, hop) * weights
    spectra = (ops.fft_rfft if half else ops.fft_fft)(pieces, norm="ortho" if normalized else "backward")
    found = ops.transpose(spectra, -1, -2)
    return ops.view_as_real(ops.clone(found)) if return_complex is False else found


def _overlapped(pieces: Any, hop: int) -> Any:
    """Add pieces (*, T, n) where they lie in the signal, ``hop`` apart."""
    count, n = pieces.shape[-2:]
    lead = tuple(pieces.shape[:-2])
    return ops.windows_transpose(pieces, len(lead), n, hop, (*lead, n + hop * (count - 1)))


@composite(
    home="",
    method=True,
    samples=lambda s: [
        s((3, 5), 4, window=s.array(_WINDOW), kind="complex"),
        s((2, 3, 4), 4, 2, window=s.array(_WINDOW), kind="complex", length=7),
        s((3, 5), 4, center=False, normalized=True, kind="complex"),
        s((4, 3), 4, window=s.array(_WINDOW), kind="complex", onesided=False),
        s((4, 3), 4, window=s.array(_WINDOW), kind="complex", return_complex=True),
        s((3, 3), 4, 2, window=s.array(_WINDOW), length=8, kind="complex"),
        s.error(RuntimeError, "complex", (3, 5), 4),
        s.error(RuntimeError, "must have 5 frequencies", (3, 5), 8, kind="complex"),
        s.error(RuntimeError, "is 0 somewhere", (3, 5), 4, 4, window=s.array([0.0, 1.0, 1.0, 0.0]), kind="complex"),
    ],
)  # fmt: skip
def istft(
    input: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
    center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None,
    return_complex: bool = False,
) -> Any:  # fmt: skip
    """Return the signal whose :func:`wengert.stft` is nearest to ``input`` (Griffin, Lim, 1984).

    Args:
        input: (B, frequencies, pieces), or without B; complex.
        length: of the signal; by default as far as the pieces reach.
        n_fft, hop_length, win_length, window, center, normalized, onesided: as given to ``stft``.
        return_complex: whether the signal was complex.

    Raises:
        RuntimeError: if the window leaves some point of the signal without weight, or the sizes do not fit.
    """
    if not input.is_complex() or input.ndim not in (2, 3):
        raise RuntimeError(
            f"istft(): input must be complex, (B, frequencies, pieces) or without B, got {input.dtype} of shape "
            f"{tuple(input.shape)}"
        )
    half = input.shape[-2] != n_fft if onesided is None else onesided
    wanted = n_fft // 2 + 1 if half else n_fft
    if input.shape[-2] != wanted:
        raise ShapeError(f"istft(): input must have {wanted} frequencies, got shape {tuple(input.shape)}")
    if half and return_complex:
        raise RuntimeError("istft(): return_complex=True needs all frequencies, onesided=False")
    hop, weights = _framing("istft", n_fft, hop_length, win_length, window, input)
    spectra = ops.transpose(input, -1, -2)
    norm = "ortho" if normalized else "backward"
    if return_complex:
        pieces = ops.fft_ifft(spectra, norm=norm)
    else:
        pieces = ops.fft_irfft(ops.narrow(spectra, -1, 0, n_fft // 2 + 1), n_fft, norm=norm)
    total = _overlapped(pieces * weights, hop)
    envelope = _overlapped(ops.expand(ops.square(weights), (pieces.shape[-2], n_fft)), hop)
    return _trimmed(total, envelope, n_fft // 2 if center else 0, length)


def _trimmed(total: Any, envelope: Any, edge: int, length: int | None) -> Any:
    """Cut out the signal, divide it by the sum of the squared windows, and pad what is missing."""
    end = total.shape[-1] - edge if length is None else min(edge + length, total.shape[-1])
    weight = ops.narrow(envelope, -1, edge, end - edge)
    if anywhere(ops.lt(ops.abs(weight), 1e-11)):
        raise RuntimeError(
            "istft(): the sum of the squared windows is 0 somewhere, so the signal is not determined there"
        )
    found = ops.narrow(total, -1, edge, end - edge) / weight
    missing = 0 if length is None else length - found.shape[-1]
    return ops.constant_pad_nd(found, (0, missing)) if missing > 0 else found

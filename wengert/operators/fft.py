"""Discrete Fourier transforms: three linear maps over any dimensions, and PyTorch's functions made of them.

``fft_complex`` takes complex to complex numbers, ``fft_real`` real to half of the complex spectrum (the other half is
its conjugate), ``fft_inverse_real`` such a half back to real numbers; padding and cropping come before. The scale is
part of the map, so the adjoint of a transform is the opposite transform with the same scale: ``norm`` changes places
between "backward" and "forward".

NumPy's transforms (pocketfft) keep single precision.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT, real_of
from wengert.array.shape import as_int, axes_of, axis_of
from wengert.core.arguments import Complex, Floating
from wengert.core.batch import front, shifted
from wengert.core.families import composite, linear
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import from_array
from wengert.errors import DTypeError, ShapeError
from wengert.operators.complex import complex_of
from wengert.settings import settings

__all__ = [
    "fft_complex", "fft_fft", "fft_fft2", "fft_fftn", "fft_hfft", "fft_hfft2", "fft_hfftn", "fft_ifft", "fft_ifft2",
    "fft_ifftn", "fft_ihfft", "fft_ihfft2", "fft_ihfftn", "fft_inverse_real", "fft_irfft", "fft_irfft2", "fft_irfftn",
    "fft_real", "fft_rfft", "fft_rfft2", "fft_rfftn",
]  # fmt: skip

# The norm with which the opposite transform has the same scale.
_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _norm(name: str, norm: Any) -> str:
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f"{name}(): norm must be 'backward', 'ortho' or 'forward', got {norm!r}")
    return norm or "backward"


# ---- the three maps


def _complex_spec(input: Spec, dim: Any, forward: Any, norm: Any) -> Spec:
    _norm("fft_complex", norm)
    return input


def _complex_samples(s: Any) -> list[Any]:
    return [
        s((5,), kind="complex", dim=(0,), forward=True, norm="backward"),
        s((2, 3), kind="complex", dim=(1,), forward=False, norm="backward"),
        s((2, 3), kind="complex", dim=(0, 1), forward=True, norm="ortho"),
        s((2, 2, 3), kind="complex", dim=(2, 0), forward=False, norm="forward"),
        s((0, 3), kind="complex", dim=(1,), forward=True, norm="forward"),
        s((1, 1), kind="complex", dim=(0, 1), forward=True, norm="backward"),
        s.error(ValueError, "norm must be", (2,), kind="complex", dim=(0,), forward=True, norm="unitary"),
    ]  # fmt: skip


@linear(
    transpose=lambda g, dim, forward, norm: ops.fft_complex(g, dim, not forward, _OPPOSITE[norm]),
    batch=front(dim=shifted),
    spec=_complex_spec,
    home=(),
    samples=_complex_samples,
)
def fft_complex(input: Complex, dim: Any, forward: Any, norm: Any) -> Any:
    """Return the forward or backward transform over the dimensions ``dim``."""
    _norm("fft_complex", norm)
    return (np.fft.fftn if forward else np.fft.ifftn)(input, axes=dim, norm=norm)


def _weights(size: int, half: int, inside: float, dtype: Any, dim: int, ndim: int) -> Any:
    """Return 1 for the frequencies that are their own mirror image (0, and size / 2) and ``inside`` for the others."""
    weights = np.full(half, inside, real_of(dtype).numpy)
    weights[0] = 1
    if size % 2 == 0:
        weights[-1] = 1
    return from_array(weights.reshape([half if i == dim else 1 for i in range(ndim)]))


def _half_spec(input: Spec, dim: Any, norm: Any) -> Spec:
    _norm("fft_real", norm)
    shape = list(input.shape)
    shape[dim[-1]] = shape[dim[-1]] // 2 + 1
    return Spec(tuple(shape), complex_of(input.dtype))


def _real_transpose(g: Any, input_shape: Any, dim: Any, norm: Any) -> Any:
    weights = _weights(input_shape[dim[-1]], g.shape[dim[-1]], 0.5, g.dtype, dim[-1], g.ndim)
    return ops.fft_inverse_real(g * weights, input_shape[dim[-1]], dim, _OPPOSITE[norm])


@linear(
    transpose=_real_transpose,
    batch=front(dim=shifted),
    spec=_half_spec,
    home=(),
    samples=lambda s: [
        s((5,), dim=(0,), norm="backward"), s((4,), dim=(0,), norm="ortho"), s((2, 3), dim=(0, 1), norm="forward"),
        s((4, 3), dim=(1, 0), norm="backward"), s((0, 3), dim=(1,), norm="backward"),
        s((1,), dim=(0,), norm="backward"), s((2,), dim=(0,), norm="forward"),
        s.error(ValueError, "norm must be", (2,), dim=(0,), norm="unitary"),
    ],
)  # fmt: skip
def fft_real(input: Floating, dim: Any, norm: Any) -> Any:
    """Return the forward transform of real numbers, the non-negative frequencies of the last of ``dim`` only."""
    _norm("fft_real", norm)
    return np.fft.rfftn(input, axes=dim, norm=norm)


def _inverse_spec(input: Spec, size: Any, dim: Any, norm: Any) -> Spec:
    _norm("fft_inverse_real", norm)
    shape = list(input.shape)
    shape[dim[-1]] = size
    return Spec(tuple(shape), real_of(input.dtype))


def _inverse_transpose(g: Any, size: Any, dim: Any, norm: Any) -> Any:
    found = ops.fft_real(g, dim, _OPPOSITE[norm])
    return found * _weights(size, found.shape[dim[-1]], 2.0, found.dtype, dim[-1], g.ndim)


@linear(
    transpose=_inverse_transpose,
    batch=front(dim=shifted),
    spec=_inverse_spec,
    home=(),
    samples=lambda s: [
        s((3,), kind="complex", size=5, dim=(0,), norm="backward"),
        s((3,), kind="complex", size=4, dim=(0,), norm="ortho"),
        s((3, 2), kind="complex", size=2, dim=(0, 1), norm="forward"),
        s((2, 3), kind="complex", size=3, dim=(1, 0), norm="backward"),
        s((1,), kind="complex", size=1, dim=(0,), norm="backward"),
        s((0, 2), kind="complex", size=3, dim=(1,), norm="backward"),
        s.error(ValueError, "norm must be", (2,), kind="complex", size=3, dim=(0,), norm="unitary"),
    ],
)  # fmt: skip
def fft_inverse_real(input: Complex, size: Any, dim: Any, norm: Any) -> Any:
    """Return the backward transform of half a spectrum, ``size`` real numbers along the last of ``dim``."""
    _norm("fft_inverse_real", norm)
    sizes = [input.shape[d] for d in dim[:-1]]
    return np.fft.irfftn(input, s=[*sizes, size], axes=dim, norm=norm)


# ---- arguments


def _dims(name: str, input: Any, s: Any, dim: Any) -> tuple[tuple[int, ...], list[int | None]]:
    """Return the dimensions and the sizes wanted of them (None: as they are).

    Raises:
        ShapeError: if both are given in different numbers. RuntimeError: if a dimension is given twice.
    """
    wanted = None if s is None else [as_int(n, "s") for n in (s if isinstance(s, Sequence) else (s,))]
    if dim is not None and dim != () and not input.ndim:
        raise IndexError(f"{name}(): dim={dim} names a dimension of a tensor that has none")
    if dim is not None:
        dims = axes_of(tuple(dim) if isinstance(dim, Sequence) else (dim,), input.ndim) if dim != () else ()
    elif wanted is None:
        dims = tuple(range(input.ndim))
    elif len(wanted) <= input.ndim:
        dims = tuple(range(input.ndim - len(wanted), input.ndim))
    else:
        raise ShapeError(
            f"{name}(): {len(wanted)} sizes were given for a tensor of {input.ndim} dimensions: s={tuple(wanted)}"
        )
    if wanted is not None and len(wanted) != len(dims):
        raise ShapeError(f"{name}(): s={tuple(wanted)} and dim={dims} must have the same length")
    return dims, [None] * len(dims) if wanted is None else [None if n == -1 else n for n in wanted]


def _resized(name: str, input: Any, dims: Sequence[int], sizes: Sequence[int | None]) -> Any:
    """Pad with zeros, or crop, at the end of each dimension."""
    pad = [0] * (2 * input.ndim)
    for d, size in zip(dims, sizes, strict=True):
        new = input.shape[d] if size is None else size
        if new < 1:
            raise ShapeError(
                f"{name}(): dimension {d} must have at least 1 point, got {new} for shape {tuple(input.shape)}"
            )
        pad[2 * (input.ndim - 1 - d) + 1] = new - input.shape[d]
    return ops.constant_pad_nd(input, pad) if any(pad) else input


def _inexact(input: Any) -> Any:
    return input if input.dtype.category >= FLOAT else input.to(settings.default_dtype)


def _as_complex(input: Any) -> Any:
    input = _inexact(input)
    return input if input.is_complex() else input.to(complex_of(input.dtype))


def _as_real(name: str, input: Any) -> Any:
    if input.is_complex():
        raise DTypeError(f"{name}(): expected a real tensor, got {input.dtype}; use the complex transform, or .real")
    return _inexact(input)


def _some(name: str, dims: Sequence[int]) -> None:
    if not dims:
        raise ShapeError(f"{name}(): at least one dimension must be transformed")


def _complex_transform(name: str, input: Any, s: Any, dim: Any, forward: bool, norm: Any) -> Any:
    dims, sizes = _dims(name, input, s, dim)
    mode = _norm(name, norm)
    x = _as_complex(_resized(name, input, dims, sizes))
    return ops.fft_complex(x, dims, forward, mode) if dims else ops.clone(x)


def _real_transform(name: str, input: Any, s: Any, dim: Any, norm: Any) -> Any:
    dims, sizes = _dims(name, input, s, dim)
    _some(name, dims)
    return ops.fft_real(_resized(name, _as_real(name, input), dims, sizes), dims, _norm(name, norm))


def _inverse_real_transform(name: str, input: Any, s: Any, dim: Any, norm: Any) -> Any:
    dims, sizes = _dims(name, input, s, dim)
    _some(name, dims)
    last = sizes[-1]
    size = 2 * (input.shape[dims[-1]] - 1) if last is None else last
    if size < 1:
        raise ShapeError(
            f"{name}(): dimension {dims[-1]} must have at least 1 point, got {size}; say how many with n or s"
        )
    x = _as_complex(_resized(name, input, dims, [*sizes[:-1], size // 2 + 1]))
    return ops.fft_inverse_real(x, size, dims, _norm(name, norm))


def _hermitian_transform(name: str, input: Any, s: Any, dim: Any, norm: Any) -> Any:
    """A forward transform to real numbers is the backward one of the conjugate, with the scale of the forward one."""
    return _inverse_real_transform(name, ops.conj(_inexact(input)), s, dim, _OPPOSITE[_norm(name, norm)])


def _inverse_hermitian_transform(name: str, input: Any, s: Any, dim: Any, norm: Any) -> Any:
    return ops.conj(_real_transform(name, input, s, dim, _OPPOSITE[_norm(name, norm)]))


# ---- one dimension


def _along(name: str, input: Any, dim: Any) -> tuple[int]:
    """Return the one dimension of a transform as a tuple."""
    if not input.ndim:
        raise IndexError(f"{name}(): dim={dim} names a dimension of a tensor that has none")
    return (axis_of(dim, input.ndim),)


def _line_samples(s: Any) -> list[Any]:
    return [
        s((5,)), s((2, 3)), s((2, 3), 5), s((2, 3), n=2, dim=0), s((3,), norm="ortho"), s((2, 3), norm="forward"),
        s((4,), kind="complex"), s((1,)), s((2,), kind="integer"),
        s.error(ValueError, "norm must be", (3,), norm="unit"), s.error(RuntimeError, "at least 1 point", (3,), 0),
        s.error(IndexError, "out of range", (3,), dim=1), s.error(IndexError, "has none", ()),
    ]  # fmt: skip


def _real_line_samples(s: Any) -> list[Any]:
    return [
        s((5,)), s((2, 4)), s((2, 3), 5), s((3, 2), n=2, dim=0), s((3,), norm="ortho"), s((4,), norm="forward"),
        s((1,)), s((2,), kind="integer"), s.error(TypeError, "expected a real tensor", (3,), kind="complex"),
    ]  # fmt: skip


def _half_line_samples(s: Any) -> list[Any]:
    return [
        s((3,), kind="complex"), s((2, 3), kind="complex"), s((2, 3), 5, kind="complex"),
        s((3, 2), n=2, dim=0, kind="complex"), s((3,), norm="ortho", kind="complex"),
        s((3,), norm="forward", kind="complex"), s((3,)), s((1,), 1), s((3,), kind="integer"),
        s((3,), 8, kind="complex"), s.error(RuntimeError, "say how many", (1,)),
    ]  # fmt: skip


@composite(samples=_line_samples)
def fft_fft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """Return the discrete Fourier transform yₖ = Σⱼ xⱼ exp(-2πi j k / n) along ``dim``.

    Args:
        n: crop to, or pad with zeros to, this length first.
        norm: ``"backward"`` (no scale, the default), ``"ortho"`` (1/√n) or ``"forward"`` (1/n).

    Raises:
        ValueError: for an unknown norm. RuntimeError: for no points. IndexError: for a dimension that is not there.

    Example:
        >>> import wengert as wg
        >>> wg.fft.fft(wg.tensor([1.0, 0.0, 0.0, 0.0]))
        tensor([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j])
    """
    return _complex_transform("fft_fft", input, n, _along("fft_fft", input, dim), True, norm)


@composite(samples=_line_samples)
def fft_ifft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """Return the inverse of :func:`wengert.fft.fft`: with ``norm="backward"`` the scale is 1/n."""
    return _complex_transform("fft_ifft", input, n, _along("fft_ifft", input, dim), False, norm)


@composite(samples=_real_line_samples)
def fft_rfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """Return the non-negative frequencies, n // 2 + 1 of them, of :func:`wengert.fft.fft` of a real tensor."""
    return _real_transform("fft_rfft", input, n, _along("fft_rfft", input, dim), norm)


@composite(samples=_half_line_samples)
def fft_irfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """Return the inverse of :func:`wengert.fft.rfft`: n real numbers, by default 2 (m - 1) from m frequencies.

    The imaginary parts of frequency 0, and of n/2 if n is even, are ignored.
    """
    return _inverse_real_transform("fft_irfft", input, n, _along("fft_irfft", input, dim), norm)


@composite(samples=_half_line_samples)
def fft_hfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """Return the real transform of a Hermitian signal given by its first half; n is the number of results."""
    return _hermitian_transform("fft_hfft", input, n, _along("fft_hfft", input, dim), norm)


@composite(samples=_real_line_samples)
def fft_ihfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """Return the inverse of :func:`wengert.fft.hfft`: the first half of a Hermitian signal."""
    return _inverse_hermitian_transform("fft_ihfft", input, n, _along("fft_ihfft", input, dim), norm)


# ---- several dimensions


def _plane_samples(s: Any) -> list[Any]:
    return [
        s((2, 3)),
        s((2, 3), s=(3, 2)),
        s((2, 2, 3), dim=(0, 2), norm="ortho"),
        s((2, 2), kind="complex"),
        s((3, 2), s=(-1, 4), norm="forward"),
    ]


def _many_samples(s: Any) -> list[Any]:
    return [
        *_plane_samples(s), s((2, 3, 2)), s((2, 3, 2), s=(2,)), s((2, 3), dim=0), s((2, 3), dim=()), s(()),
        s.error(RuntimeError, "same length", (2, 3), s=(2, 2), dim=(0,)),
        s.error(RuntimeError, "same dimension twice", (2, 3), dim=(0, 0)),
        s.error(RuntimeError, "sizes were given", (2,), s=(2, 2)),
    ]  # fmt: skip


def _real_plane_samples(s: Any) -> list[Any]:
    return [
        s((2, 3)),
        s((2, 3), s=(3, 2)),
        s((2, 2, 3), dim=(0, 2), norm="ortho"),
        s((3, 2), s=(-1, 4), norm="forward"),
        s((2, 3), dim=(1, 0)),
    ]


def _real_many_samples(s: Any) -> list[Any]:
    return [
        *_real_plane_samples(s),
        s((2, 3, 2)),
        s((2, 3, 2), s=(2,)),
        s((2, 3), dim=0),
        s.error(RuntimeError, "at least one", (2, 3), dim=()),
    ]


def _half_plane_samples(s: Any) -> list[Any]:
    return [
        s((2, 3), kind="complex"), s((2, 3), s=(3, 5), kind="complex"),
        s((2, 2, 3), dim=(2, 0), norm="ortho", kind="complex"), s((3, 2)),
        s((3, 2), s=(-1, 3), norm="forward", kind="complex"),
    ]  # fmt: skip


def _half_many_samples(s: Any) -> list[Any]:
    return [
        *_half_plane_samples(s),
        s((2, 3, 2), kind="complex"),
        s((2, 3, 2), s=(3,), kind="complex"),
        s.error(RuntimeError, "at least one", (2, 3), dim=()),
    ]


@composite(samples=_plane_samples)
def fft_fft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Any:
    """Return the Fourier transform over two dimensions; see :func:`wengert.fft.fft`."""
    return _complex_transform("fft_fft2", input, s, dim, True, norm)


@composite(samples=_many_samples)
def fft_fftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
    """Return the Fourier transform over several dimensions, by default all; see :func:`wengert.fft.fft`."""
    return _complex_transform("fft_fftn", input, s, dim, True, norm)


@composite(samples=_plane_samples)
def fft_ifft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Any:
    """Return the inverse Fourier transform over two dimensions; see :func:`wengert.fft.ifft`."""
    return _complex_transform("fft_ifft2", input, s, dim, False, norm)


@composite(samples=_many_samples)
def fft_ifftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
    """Return the inverse Fourier transform over several dimensions, by default all; see :func:`wengert.fft.ifft`."""
    return _complex_transform("fft_ifftn", input, s, dim, False, norm)


@composite(samples=_real_plane_samples)
def fft_rfft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Any:
    """Return the Fourier transform of a real tensor over two dimensions; see :func:`wengert.fft.rfft`."""
    return _real_transform("fft_rfft2", input, s, dim, norm)


@composite(samples=_real_many_samples)
def fft_rfftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
    """Return the Fourier transform of a real tensor over several dimensions; see :func:`wengert.fft.rfft`."""
    return _real_transform("fft_rfftn", input, s, dim, norm)


@composite(samples=_half_plane_samples)
def fft_irfft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Any:
    """Return the inverse of a real transform over two dimensions; see :func:`wengert.fft.irfft`."""
    return _inverse_real_transform("fft_irfft2", input, s, dim, norm)


@composite(samples=_half_many_samples)
def fft_irfftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
    """Return the inverse of a real transform over several dimensions, by default all; see :func:`wengert.fft.irfft`."""
    return _inverse_real_transform("fft_irfftn", input, s, dim, norm)


@composite(samples=_half_plane_samples)
def fft_hfft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Any:
    """Return the real transform of a Hermitian signal over two dimensions; see :func:`wengert.fft.hfft`."""
    return _hermitian_transform("fft_hfft2", input, s, dim, norm)


@composite(samples=_half_many_samples)
def fft_hfftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
    """Return the real transform of a Hermitian signal over several dimensions; see :func:`wengert.fft.hfft`."""
    return _hermitian_transform("fft_hfftn", input, s, dim, norm)


@composite(samples=_real_plane_samples)
def fft_ihfft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Any:
    """Return the Hermitian signal of a real transform over two dimensions; see :func:`wengert.fft.ihfft`."""
    return _inverse_hermitian_transform("fft_ihfft2", input, s, dim, norm)


@composite(samples=_real_many_samples)
def fft_ihfftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
    """Return the Hermitian signal of a real transform over several dimensions; see :func:`wengert.fft.ihfft`."""
    return _inverse_hermitian_transform("fft_ihfftn", input, s, dim, norm)

"""Interpolation: images, signals and volumes of other sizes. It is linear."""

from collections.abc import Sequence
from typing import Any

from wengert.array.shape import as_int
from wengert.core.arguments import Floating, Real
from wengert.core.families import composite, linear
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.kernels import resize as kernels

__all__ = ["interpolate", "resized", "resized_transpose", "upsample", "upsample_bilinear", "upsample_nearest"]

Sizes = Sequence[int]


def _other_size(shape: Sizes, size: Sizes) -> tuple[int, ...]:
    return (*shape[: len(shape) - len(size)], *size)


def _mode(mode: str, align_corners: bool = False, scales: Any = None, antialias: bool = False) -> dict[str, Any]:
    return {"mode": mode, "align_corners": align_corners, "scales": scales, "antialias": antialias}


def _resized_spec(input: Spec, size: Sizes, mode: str, align_corners: Any, scales: Any, antialias: Any) -> Spec:
    kernels.check_resize("interpolate", mode, input.shape, size, antialias, input.dtype.numpy)
    return Spec(_other_size(input.shape, size), input.dtype)


def _transpose_spec(input: Spec, size: Sizes, mode: str, align_corners: Any, scales: Any, antialias: Any) -> Spec:
    shape, spatial = _other_size(input.shape, size), input.shape[input.ndim - len(size) :]
    kernels.check_resize("interpolate_input_grad", mode, shape, spatial, antialias, input.dtype.numpy)
    return Spec(shape, input.dtype)


@linear(
    transpose=lambda g, input_shape, size, mode, align_corners, scales, antialias: ops.resized_transpose(
        g, tuple(input_shape[len(input_shape) - len(size) :]), mode, align_corners, scales, antialias
    ),
    batch="front",
    spec=_resized_spec,
    home=(),
    samples=lambda s: [
        s((2, 3), size=(5,), **_mode("nearest")), s((1, 4), size=(3,), **_mode("linear")),
        s((1, 3, 2), size=(2, 3), **_mode("bilinear", True)), s((1, 4, 3), size=(2, 5), **_mode("bicubic")),
        s((1, 5), size=(2,), **_mode("area")), s((1, 2, 2, 2), size=(3, 1, 2), **_mode("trilinear")),
        s((1, 4, 4), size=(2, 3), **_mode("bilinear", antialias=True)),
        s((1, 3), size=(4,), **_mode("linear", scales=(1.5,))), s((1, 4), size=(6,), **_mode("nearest-exact")),
        s.error(ValueError, "mode must be", (1, 4), size=(2,), **_mode("lanczos")),
        s.error(RuntimeError, "is for 2 spatial", (1, 4), size=(2,), **_mode("bilinear")),
        s.error(RuntimeError, "must be positive", (1, 4), size=(0,), **_mode("nearest")),
        s.error(ValueError, "has no antialiasing", (1, 4), size=(2,), **_mode("nearest", antialias=True)),
        s.error(TypeError, "takes floating-point", (1, 4), size=(2,), **_mode("linear"), kind="integer"),
    ],
)  # fmt: skip
def resized(input: Real, size: Any, mode: str, align_corners: Any, scales: Any, antialias: Any) -> Any:
    """Return the tensor with its last dimensions interpolated to ``size``."""
    return kernels.interpolate(input, size, mode, align_corners, scales, antialias)  # type: ignore[arg-type]


@linear(
    transpose=lambda g, input_shape, size, mode, align_corners, scales, antialias: ops.resized(
        g, tuple(input_shape[len(input_shape) - len(size) :]), mode, align_corners, scales, antialias
    ),
    batch="front",
    spec=_transpose_spec,
    home=(),
    samples=lambda s: [
        s((2, 5), size=(3,), **_mode("nearest")), s((1, 2, 3), size=(3, 2), **_mode("bilinear", True)),
        s((1, 2), size=(5,), **_mode("area")), s((1, 2, 5), size=(4, 3), **_mode("bicubic")),
        s((1, 4), size=(3,), **_mode("linear", scales=(1.5,))),
        s.error(ValueError, "mode must be", (1, 4), size=(2,), **_mode("lanczos")),
        s.error(RuntimeError, "is for 2 spatial", (1, 4), size=(2,), **_mode("bilinear")),
    ],
)  # fmt: skip
def resized_transpose(input: Floating, size: Any, mode: str, align_corners: Any, scales: Any, antialias: Any) -> Any:
    """Spread interpolated values over what they were made of: the transpose of ``resized``."""
    return kernels.interpolate_input_grad(input, size, mode, align_corners, scales, antialias)  # type: ignore[arg-type]


_PLAIN = ("nearest", "nearest-exact", "area")


def _target(input: Any, size: Any, scale_factor: Any, recompute: Any) -> tuple[tuple[int, ...], Any]:
    """Return the new sizes, and the scale factors to compute positions with (None: those of the sizes)."""
    dims = input.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ValueError(
            f"interpolate(): give either size or scale_factor, got size={size} and scale_factor={scale_factor}"
        )
    given = size if scale_factor is None else scale_factor
    values = list(given) if isinstance(given, Sequence) else [given] * dims
    if len(values) != dims:
        raise ValueError(
            f"interpolate(): expected {dims} {'sizes' if scale_factor is None else 'factors'} for an input "
            f"(N, C, *spatial) of shape {tuple(input.shape)}, got {tuple(values)}"
        )
    if scale_factor is None:
        if recompute:
            raise ValueError("interpolate(): recompute_scale_factor=True has no meaning with size")
        return tuple(as_int(v, "size") for v in values), None
    sizes = tuple(int(n * float(v)) for n, v in zip(input.shape[2:], values, strict=True))
    return sizes, None if recompute else tuple(float(v) for v in values)


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((1, 2, 3), 5), s((1, 1, 4), scale_factor=1.5, mode="linear"),
        s((1, 1, 2, 3), [3, 2], mode="bilinear", align_corners=True),
        s((1, 1, 3, 2), scale_factor=[2.0, 1.5], mode="bicubic"), s((1, 1, 4, 2), scale_factor=0.5, mode="area"),
        s((1, 1, 2, 2, 2), 3, mode="trilinear"), s((1, 1, 4, 4), 2, mode="bilinear", antialias=True),
        s((1, 1, 5), scale_factor=1.3, mode="linear", recompute_scale_factor=True),
        s((1, 1, 3, 3), 2, mode="nearest-exact"), s.error(ValueError, "either size or scale_factor", (1, 1, 2)),
        s.error(ValueError, "align_corners", (1, 1, 2), 3, align_corners=True),
        s.error(ValueError, "expected 1 sizes", (1, 1, 2), [2, 2]),
        s.error(ValueError, "antialias", (1, 1, 2), 3, mode="linear", antialias=True),
        s.error(ValueError, "mode must be", (1, 1, 2), 3, mode="cubic"),
    ],
)  # fmt: skip
def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Any:  # fmt: skip
    """Return (N, C, *spatial) resized to new spatial sizes.

    Args:
        size: the new sizes, or scale_factor: the factors; one number, or one per dimension.
        mode: ``"nearest"``, ``"nearest-exact"``, ``"area"``, ``"linear"`` (1-d), ``"bilinear"`` and ``"bicubic"``
            (2-d) or ``"trilinear"`` (3-d).
        align_corners: keep the centres of the corner elements in place instead of the borders; linear and cubic modes.
        recompute_scale_factor: compute positions from the sizes, not from the given factors.
        antialias: widen the filter when shrinking; ``"bilinear"`` and ``"bicubic"``.

    Raises:
        ValueError, RuntimeError: for arguments that do not go together, naming them.

    Example:
        >>> import wengert as wg
        >>> wg.nn.functional.interpolate(wg.tensor([[[1.0, 2.0]]]), scale_factor=2, mode="linear")
        tensor([[[1.0000, 1.2500, 1.7500, 2.0000]]])
    """
    if input.ndim < 3:
        raise ShapeError(f"interpolate(): input must be (N, C, *spatial), got shape {tuple(input.shape)}")
    if mode in _PLAIN and align_corners is not None:
        raise ValueError(f"interpolate(): align_corners has no meaning for mode={mode!r}; leave it out")
    if antialias and (mode not in ("bilinear", "bicubic") or input.ndim != 4):
        raise ValueError(
            f"interpolate(): antialias=True needs mode 'bilinear' or 'bicubic' and a 4-d input, got mode={mode!r}"
        )
    sizes, scales = _target(input, size, scale_factor, recompute_scale_factor or (mode == "area" and size is None))
    return ops.resized(input, sizes, mode, bool(align_corners), scales, bool(antialias))


@composite(home="nn.functional", samples=lambda s: [s((1, 1, 2, 3), scale_factor=2)])
def upsample(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Any:
    """Return a tensor resized; :func:`wengert.nn.functional.interpolate` is its successor."""
    return ops.interpolate(input, size, scale_factor, mode, align_corners)


@composite(home="nn.functional", samples=lambda s: [s((1, 1, 2, 3), [3, 4])])
def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Return a tensor resized to the nearest elements; see :func:`wengert.nn.functional.interpolate`."""
    return ops.interpolate(input, size, scale_factor, "nearest")


@composite(home="nn.functional", samples=lambda s: [s((1, 1, 2, 3), [3, 4])])
def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Return images resized bilinearly with aligned corners; see :func:`wengert.nn.functional.interpolate`."""
    return ops.interpolate(input, size, scale_factor, "bilinear", True)

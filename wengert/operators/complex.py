"""Complex numbers: parts, conjugates, modulus and angle, and their views as pairs of real numbers.

Gradients of real functions of complex tensors follow PyTorch's convention: the cotangent is the conjugate Wirtinger
derivative, so that ``z - lr * z.grad`` descends. Derivatives at 0 of functions that have none there are 0.
"""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import COMPLEX, DType, complex64, complex128, dtype_of, float64, real_of
from wengert.array.shape import broadcast_shapes
from wengert.core.arguments import Anything, Complex, Floating
from wengert.core.families import composite, elementwise, linear, operator
from wengert.core.methods import attach
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import DTypeError, ShapeError

__all__ = [
    "angle", "complex", "conj_physical", "imag", "polar", "real", "resolve_conj", "resolve_neg", "view_as_complex",
    "view_as_real",
]  # fmt: skip


def complex_of(dtype: DType) -> DType:
    """Return the complex dtype whose parts hold ``dtype``."""
    return complex128 if dtype is float64 else complex64


# ---- views of the parts


def _part_spec(input: Spec) -> Spec:
    return Spec(input.shape, real_of(input.dtype))


def _complexes(s: Any) -> list[Any]:
    return [
        s((2, 3), kind="complex"),
        s((), kind="complex"),
        s((0, 2), kind="complex"),
        s.error(TypeError, "complex tensor", (2,)),
    ]


@linear(
    transpose=lambda g, input_dtype: ops.cast(g, input_dtype),
    batch="front",
    spec=_part_spec,
    view=True,
    home=(),
    samples=_complexes,
)
def real_part(input: Complex) -> Any:
    """Return a view of the real parts of a complex tensor."""
    return input.real


@linear(
    transpose=lambda g, input_dtype: ops.cast(g, input_dtype) * 1j,
    batch="front",
    spec=_part_spec,
    view=True,
    home=(),
    samples=_complexes,
)
def imaginary_part(input: Complex) -> Any:
    """Return a view of the imaginary parts of a complex tensor."""
    return input.imag


@composite(samples=lambda s: [s((2, 3), kind="complex"), s((2, 3)), s((), kind="complex"), s((2,), kind="integer")])
def real(input: Any) -> Any:
    """Return a view of the real parts; a real tensor is its own real part."""
    return ops.real_part(input) if input.dtype.category == COMPLEX else input


@composite(samples=_complexes)
def imag(input: Any) -> Any:
    """Return a view of the imaginary parts of a complex tensor.

    Raises:
        TypeError: for a real tensor.
    """
    return ops.imaginary_part(input)


def _part(name: str) -> property:
    """Return the tensor attribute that reads a part of a tensor and, assigned to, writes it."""
    return property(
        lambda tensor: getattr(ops, name)(tensor),
        lambda tensor, value: getattr(ops, name)(tensor).copy_(value),
        doc=f"A view of its {name} parts; see :func:`wengert.{name}`.",
    )


attach("real", _part("real"))
attach("imag", _part("imag"))


def _paired(input: Spec) -> Spec:
    return Spec((*input.shape, 2), real_of(input.dtype))


@linear(
    transpose=lambda g: ops.complex(ops.select(g, -1, 0), ops.select(g, -1, 1)),
    batch="front",
    spec=_paired,
    view=True,
    method=False,
    samples=_complexes,
)
def view_as_real(input: Complex) -> Any:
    """Return a view of a complex tensor as real numbers, with a last dimension of size 2: real and imaginary part."""
    return input[..., np.newaxis].view(input.real.dtype)


def _unpaired(input: Spec) -> Spec:
    if not input.shape or input.shape[-1] != 2:
        raise ShapeError(f"view_as_complex(): the last dimension must have size 2, got shape {tuple(input.shape)}")
    return Spec(input.shape[:-1], complex_of(input.dtype))


def _in_pairs(array: Any) -> bool:
    """True if real and imaginary parts lie side by side, and pairs at whole multiples of their size."""
    size = array.dtype.itemsize
    return not array.size or (array.strides[-1] == size and not any(s % (2 * size) for s in array.strides[:-1]))


@linear(
    transpose=lambda g: ops.view_as_real(g),
    batch="front",
    spec=_unpaired,
    view=True,
    home=(),
    samples=lambda s: [
        s((3, 2)), s((2,)), s((0, 2)), s((2, 3, 2)), s.error(ValueError, "size 2", (2, 3)),
        s.error(ValueError, "size 2", ()),
    ],
)  # fmt: skip
def joined(input: Floating) -> Any:
    """Return pairs of real numbers as complex numbers: a view where the pairs lie side by side in memory."""
    spec = _unpaired(Spec(input.shape, dtype_of(input.dtype)))
    pairs = input if _in_pairs(input) else np.ascontiguousarray(input)
    return pairs.view(spec.dtype.numpy).reshape(spec.shape)


@composite(
    samples=lambda s: [
        s((0, 2), of="float32", grad=False), s.error(ValueError, "size 2", (2, 4)), s.error(ValueError, "side by side", (2, 3)),
        s.error(TypeError, "floating tensor", (2,), kind="integer"),
    ],
)  # fmt: skip
def view_as_complex(input: Any) -> Any:
    """Return a view of a float tensor, whose last dimension holds real and imaginary parts, as complex numbers.

    Raises:
        ShapeError: if the last dimension has not size 2, or its pairs do not lie side by side in memory.
        TypeError: for a dtype other than float32 and float64.
    """
    if input.dtype.is_half:
        raise DTypeError(f"view_as_complex(): takes float32 or float64, got {input.dtype}")
    if not _in_pairs(input._payload):
        raise ShapeError(
            f"view_as_complex(): the pairs must lie side by side in memory, but shape {tuple(input.shape)} has strides "
            f"{input.stride()}; make a copy with .contiguous()"
        )
    return ops.joined(input)


# ---- making complex numbers


def _joined_spec(name: str) -> Any:
    def spec(real: Spec, imag: Spec) -> Spec:
        if real.dtype is not imag.dtype:
            raise DTypeError(f"{name}(): both tensors must have one dtype, got {real.dtype} and {imag.dtype}")
        return Spec(broadcast_shapes(name, real.shape, imag.shape), complex_of(real.dtype))

    return spec


def _pairs(s: Any) -> list[Any]:
    return [
        s((2, 3), (2, 3)), s((2, 1), (3,)), s((), (2,)), s((0,), (1,)), s((2,), (2,), of="float32", grad=False),
        s.error(ValueError, "broadcast", (2,), (3,)),
        s.error(TypeError, "one dtype", s.tensor((2,)), s.tensor((2,), of="float32")),
        s.error(TypeError, "floating tensor", (2,), (2,), kind="integer"),
    ]  # fmt: skip


def _same_dtype(name: str, first: Any, second: Any) -> None:
    if first.dtype != second.dtype:
        raise DTypeError(f"{name}(): both tensors must have one dtype, got {first.dtype} and {second.dtype}")


@operator(
    vjp={"real": lambda g: ops.real(g), "imag": lambda g: ops.imag(g)},
    jvp={"real": lambda t: ops.complex(t, ops.zeros_like(t)), "imag": lambda t: ops.complex(ops.zeros_like(t), t)},
    spec=_joined_spec("complex"),
    batch="broadcast",
    method=False,
    samples=_pairs,
)
def complex(real: Floating, imag: Floating) -> Any:
    """Return complex numbers of the given real and imaginary parts, two tensors of one float dtype."""
    _same_dtype("complex", real, imag)
    out = np.empty(np.broadcast_shapes(real.shape, imag.shape), np.result_type(real, np.complex64))
    out.real, out.imag = real, imag
    return out


@operator(
    vjp={
        "abs": lambda g, angle: ops.real(ops.conj(ops.polar(ops.ones_like(angle), angle)) * g),
        "angle": lambda g, out: ops.imag(ops.conj(out) * g),
    },
    jvp={
        "abs": lambda t, angle: t * ops.polar(ops.ones_like(angle), angle),
        "angle": lambda t, out: t * (out * 1j),
    },
    spec=lambda abs, angle: _joined_spec("polar")(abs, angle),
    batch="broadcast",
    method=False,
    samples=_pairs,
)
def polar(abs: Floating, angle: Floating) -> Any:
    """Return complex numbers of the given modulus and angle (radians): ``abs * exp(1j * angle)``."""
    _same_dtype("polar", abs, angle)
    out = np.empty(np.broadcast_shapes(abs.shape, angle.shape), np.result_type(abs, np.complex64))
    out.real, out.imag = abs * np.cos(angle), abs * np.sin(angle)
    return out


# ---- angle, conjugates


def _angle_cotangent(g: Any, input: Any) -> Any:
    """Return i·g·z / |z|², and 0 for z = 0 and for real numbers."""
    if not input.is_complex():
        return ops.zeros_like(g)
    size = ops.real(input * ops.conj(input))
    return ops.where(size == 0, 0, g * (input * 1j) / ops.where(size == 0, 1, size))


def _angle_tangent(t: Any, input: Any) -> Any:
    """Return Im(t / z), and 0 for z = 0 and for real numbers."""
    if not input.is_complex():
        return ops.zeros_like(t)
    return ops.imag(t / ops.where(input == 0, math.inf, input))


@elementwise(
    derivative={"input": _angle_tangent},
    vjp={"input": _angle_cotangent},
    promote="float",
    result="real",
    flops=20,
    inplace=False,
    samples=lambda s: [
        s((2, 3), kind="complex"), s((2, 3)), s((), kind="complex"), s((3,), kind="integer"), s((2,), kind="boolean"),
        s((0,)), s(s.array([0.0, -0.0, -1.0, float("nan"), float("-inf")]), grad=False),
        s(s.array([0j, -1 + 0j, -1j]), grad=False),
    ],
)  # fmt: skip
def angle(input: Anything) -> Any:
    """Return the angle of each complex number in radians; π for negative real numbers and 0 for the others."""
    if input.dtype.kind == "c":
        return np.arctan2(input.imag, input.real)
    return np.where(np.isnan(input), input, np.where(input < 0, input.dtype.type(math.pi), input.dtype.type(0)))


@composite(method=True, inplace=True, samples=lambda s: [s((2, 3), kind="complex"), s((2,)), s((2,), kind="integer")])
def conj_physical(input: Any) -> Any:
    """Return the complex conjugate of each element, as :func:`wengert.conj`, which is never lazy here."""
    return ops.conj(input)


@composite(method=True, samples=lambda s: [s((2,), kind="complex"), s((2,))])
def resolve_conj(input: Any) -> Any:
    """Return the tensor itself: conjugates are computed at once, there is no conjugate bit to resolve."""
    return input


@composite(method=True, samples=lambda s: [s((2,), kind="complex"), s((2,))])
def resolve_neg(input: Any) -> Any:
    """Return the tensor itself: negatives are computed at once, there is no negative bit to resolve."""
    return input

"""rsqrt, cbrt, pow, hypot, fmod."""

from wengert.codegen.vecmath.parts import sqrt
from wengert.loops.scalar import Scalar, const

__all__ = ["rsqrt"]


def rsqrt(x: Scalar) -> Scalar:
    """1 / √x."""
    return const(1.0, x.dtype) / sqrt(x)

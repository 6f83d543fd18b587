"""float16 and bfloat16 to float32 and back, as operations on bits; exact, and rounded to nearest even.

Processors that convert float16 themselves do; these expressions are for the others, and for bfloat16.
"""

from wengert.loops.scalar import Scalar, bits, cast, const, select

__all__ = ["narrow_double", "pack_bfloat16", "pack_float16", "unpack_bfloat16", "unpack_float16"]


def unpack_bfloat16(x: Scalar) -> Scalar:
    """Return a bfloat16 as a float32: its bits are the upper half."""
    return bits(cast(bits(x, "u16"), "u32") << 16, "f32")


def pack_bfloat16(x: Scalar) -> Scalar:
    """Return a float32 as a bfloat16: add half a unit (less one if the kept part is even) and cut; a NaN stays one."""
    u = bits(x, "u32")
    rounded = (u + ((u >> 16) & 1) + 0x7FFF) >> 16
    quiet = (u >> 16) | 0x40
    return bits(cast(select(x.ne(x), quiet, rounded), "u16"), "bf16")


def unpack_float16(x: Scalar) -> Scalar:
    """Return a float16 as a float32: move the bits, let one multiplication put the exponent right, subnormals too."""
    h = cast(bits(x, "u16"), "u32")
    magnitude = bits((h & 0x7FFF) << 13, "f32") * 2.0**112
    special = bits((h & 0x7FFF) << 13 | 0x7F800000, "f32")
    found = select((h & 0x7C00).eq(0x7C00), special, magnitude)
    return bits(bits(found, "u32") | (h & 0x8000) << 16, "f32")


def pack_float16(x: Scalar) -> Scalar:
    """Return a float32 as a float16."""
    u = bits(x, "u32")
    sign, a = (u >> 16) & 0x8000, u & 0x7FFFFFFF
    normal = (a + ((a >> 13) & 1) + 0xFFF - (112 << 23)) >> 13
    small = bits(bits(a, "f32") + 0.5, "u32") - 0x3F000000  # adding 0.5 rounds a subnormal result to its last place
    found = select(a.lt(113 << 23), small, normal)
    found = select(a.ge(0x477FF000), const(0x7C00, "u32"), found)
    found = select(a.gt(0x7F800000), (a >> 13 & 0x3FF) | 0x7E00, found)
    return bits(cast(found | sign, "u16"), "f16")


def narrow_double(x: Scalar) -> Scalar:
    """Return a float64 as a float32 rounded to odd, so that rounding it again to a half is rounding once.

    Source: S. Boldo and G. Melquiond, "Emulation of FMA and correctly rounded sums" (2008), section 3.
    """
    y = cast(x, "f32")
    back, u = cast(y, "f64"), bits(y, "u32")
    inexact = back.ne(x) & x.eq(x) & (u & 1).eq(0) & abs(x).ne(float("inf"))
    further = abs(back).gt(abs(x))
    return bits(select(inexact, select(further, u - 1, u + 1), u), "f32")

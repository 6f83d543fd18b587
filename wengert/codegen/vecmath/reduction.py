"""Arguments of trigonometric functions reduced to r + low = x - n·π/2, |r| ≤ π/4.

Up to a bound by three parts of π/2 and fused multiply-adds, of which the first is exact (W. J. Cody and W. Waite, 1980;
S. Boldo, M. Daumas, R.-C. Li, Formally verified argument reduction with a fused multiply-add, 2009). Behind it, up to
the largest float, by as many digits of 2/π as count (M. H. Payne and R. N. Hanek, Radian reduction for trigonometric
functions, SIGNUM 1983): x is an integer X times 2^k, and (X·2^k)·(2/π) mod 4 needs only 2^k·(2/π) mod 4, which a table
holds as the sum of four floats.
"""

from fractions import Fraction
from typing import Final, NamedTuple

from wengert.codegen.vecmath.parts import FORMATS, fast_two_sum, fma, nearest, rint, two_product, two_sum
from wengert.loops.scalar import Scalar, bits, const, lookup, select

__all__ = ["LIMIT", "Reduced", "reduce", "reduce_huge", "reduce_pair"]

# π/2 in four parts.
HALF_PI: Final = {
    "f32": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15, 1.056299898220315e-23),
    "f64": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33, 5.562271104316826e-50),
}
TWO_OVER_PI: Final = 0.6366197723675814
LIMIT: Final = {"f32": 2.0**17, "f64": 2.0**30}  # of the first method


class Reduced(NamedTuple):
    """x = n·π/2 + r + low; n is in the two lowest bits of an integer."""

    n: Scalar
    r: Scalar
    low: Scalar


def reduce(x: Scalar) -> tuple[Scalar, Scalar]:
    """Return n and r for an x in [0, LIMIT]."""
    first, second, third, _ = HALF_PI[x.dtype]
    n, whole = nearest(x, TWO_OVER_PI)
    return whole, fma(n, -third, fma(n, -second, fma(n, -first, x)))  # the innermost is exact


def reduce_pair(x: Scalar) -> Reduced:
    """Return n, r and what the rounding of r lost for an x in [0, LIMIT]."""
    first, second, third, _ = HALF_PI[x.dtype]
    n, whole = nearest(x, TWO_OVER_PI)
    product = two_product(n, const(-second, x.dtype))
    high, low = two_sum(fma(n, -first, x), product.high)
    r = fma(n, -third, high)
    return Reduced(whole, r, fma(n, -third, high - r) + (low + product.low))


# The first 1200 bits of 2/π behind the point.
DIGITS: Final = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1deb1cb129a73ee8"
    "8235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f46"
    "3f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b",
    16,
)
FIRST, STEP, ROWS = 16, 32, 32  # the row of a number in [2^(16 + 32·k), 2^(16 + 32·(k + 1))) is k


def _columns() -> list[tuple[float, ...]]:
    """Return the parts of 2^(16 + 32·row - 52)·(2/π) mod 4, a column per part."""
    two_over_pi = Fraction(DIGITS, 1 << 1200)
    rows = []
    for row in range(ROWS):
        rest, parts = two_over_pi * Fraction(2) ** (FIRST + STEP * row - 52) % 4, []
        for _ in range(4):
            parts.append(float(rest))
            rest -= Fraction(parts[-1])
        rows.append(parts)
    return list(zip(*rows, strict=True))


COLUMNS: Final = _columns()


def _modulo4(x: Scalar) -> Scalar:
    """Return x less the nearest multiple of 4, exactly."""
    return fma(rint(x * 0.25), -4.0, x)


def reduce_huge(x: Scalar) -> Reduced:
    """Return a float64 x ≥ 2^16 reduced, with |low| far below the rounding of r; inf and nan give nan."""
    form = FORMATS["f64"]
    exponent = bits(bits(x, "u64") >> form.digits, "i64") - (form.bias + FIRST)
    row = select(exponent.lt(0), 0, exponent) >> 5
    unit = bits((-row << (5 + form.digits)) + (form.bias + 52 - FIRST << form.digits), "f64")
    whole = x * unit  # an integer below 2^85
    products = [two_product(whole, lookup(column, row, "f64")) for column in COLUMNS[:3]]
    first = two_sum(_modulo4(products[0].high), _modulo4(products[0].low))
    second = two_sum(first.high, _modulo4(products[1].high))
    n, count = nearest(second.high, 1.0)
    high, low = second.high - n, const(0.0, "f64")
    for term in (first.low, second.low, products[1].low, products[2].high):
        high, lost = two_sum(high, term)
        low = low + lost
    low = low + fma(whole, lookup(COLUMNS[3], row, "f64"), products[2].low)
    turn = fast_two_sum(high, low)
    product = two_product(turn.high, const(HALF_PI["f64"][0], "f64"))
    rest = fma(turn.high, HALF_PI["f64"][1], fma(turn.low, HALF_PI["f64"][0], product.low))
    return Reduced(count, *fast_two_sum(product.high, rest))

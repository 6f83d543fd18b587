"""Bessel functions of order 0 and 1, and the Airy function.

Derivatives are taken from the NIST Digital Library of Mathematical Functions (§9.2, §10.6, §10.29).
"""

import math
from typing import Any

from wengert.core.arguments import Real
from wengert.core.families import composite, elementwise
from wengert.core.registry import ops
from wengert.kernels import airy, bessel
from wengert.kernels.blocks import Unary
from wengert.operators.special import half_line_samples, line_samples

__all__ = [
    "airy_ai_prime", "i0", "special_airy_ai", "special_bessel_j0", "special_bessel_j1", "special_bessel_y0",
    "special_bessel_y1", "special_i0e", "special_i1", "special_i1e", "special_modified_bessel_k0",
    "special_modified_bessel_k1", "special_scaled_modified_bessel_k0", "special_scaled_modified_bessel_k1",
    "special_spherical_bessel_j0",
]  # fmt: skip


# ---- J, Y and I


def _odd_slope(g: Any, x: Any, even: Any, out: Any) -> Any:
    """Return g · (even - out / x), whose limit at 0 is g / 2: the derivative of J1 and I1 in terms of J0 and I0."""
    zero = x == 0
    return g * ops.where(zero, 0.5, even - out / ops.where(zero, 1, x))


@elementwise(
    Unary(bessel.i0),
    derivative={"input": lambda g, input: g * ops.special_i1(input)},
    promote="float",
    flops=40,
    aliases=("special_i0", "special_modified_bessel_i0"),
    samples=line_samples,
)
def i0(input: Real) -> Any:
    """Return the modified Bessel function of the first kind of order 0."""


@elementwise(
    Unary(bessel.i0e),
    derivative={"input": lambda g, input, out: g * (ops.special_i1e(input) - ops.sgn(input) * out)},
    promote="float",
    flops=40,
    inplace=False,
    samples=lambda s: [
        *line_samples(s)[:4],
        s(s.array([0.0, math.inf, -math.inf]), grad=False),
        s((2,), low=9.0, high=30.0),
    ],
)
def special_i0e(input: Real) -> Any:
    """Return exp(-|x|) I0(x)."""


@elementwise(
    Unary(bessel.i1),
    derivative={"input": lambda g, input, out: _odd_slope(g, input, ops.i0(input), out)},
    promote="float",
    flops=40,
    aliases=("special_modified_bessel_i1",),
    method=False,
    inplace=False,
    samples=line_samples,
)
def special_i1(input: Real) -> Any:
    """Return the modified Bessel function of the first kind of order 1."""


@elementwise(
    Unary(bessel.i1e),
    derivative={
        "input": lambda g, input, out: _odd_slope(g, input, ops.special_i0e(input), out) - g * ops.sgn(input) * out
    },
    promote="float",
    flops=40,
    inplace=False,
    samples=lambda s: [
        *line_samples(s)[:4],
        s(s.array([0.0, math.inf, -math.inf]), grad=False),
        s((2,), low=9.0, high=30.0),
    ],
)
def special_i1e(input: Real) -> Any:
    """Return exp(-|x|) I1(x)."""


@elementwise(
    Unary(bessel.j0),
    derivative={"input": lambda g, input: g * -ops.special_bessel_j1(input)},
    promote="float",
    flops=80,
    inplace=False,
    samples=line_samples,
)  # fmt: skip
def special_bessel_j0(input: Real) -> Any:
    """Return the Bessel function of the first kind of order 0."""


@elementwise(
    Unary(bessel.j1),
    derivative={"input": lambda g, input, out: _odd_slope(g, input, ops.special_bessel_j0(input), out)},
    promote="float",
    flops=80,
    inplace=False,
    samples=line_samples,
)
def special_bessel_j1(input: Real) -> Any:
    """Return the Bessel function of the first kind of order 1."""


@elementwise(
    Unary(bessel.y0),
    derivative={"input": lambda g, input: g * -ops.special_bessel_y1(input)},
    promote="float",
    flops=90,
    inplace=False,
    samples=half_line_samples,
)  # fmt: skip
def special_bessel_y0(input: Real) -> Any:
    """Return the Bessel function of the second kind of order 0: -inf at 0, nan below."""


@elementwise(
    Unary(bessel.y1),
    derivative={"input": lambda g, input, out: g * (ops.special_bessel_y0(input) - out / input)},
    promote="float",
    flops=90,
    inplace=False,
    samples=half_line_samples,
)
def special_bessel_y1(input: Real) -> Any:
    """Return the Bessel function of the second kind of order 1: -inf at 0, nan below."""


@composite(samples=lambda s: [s((2, 3)), s(s.array([0.0, 1e-9, 40.0]))])
def special_spherical_bessel_j0(input: Real) -> Any:
    """Return the spherical Bessel function of order 0, sin(x) / x."""
    return ops.sinc(input / math.pi)


# ---- K


@elementwise(
    Unary(bessel.k0),
    derivative={"input": lambda g, input: g * -ops.special_modified_bessel_k1(input)},
    promote="float",
    flops=60,
    inplace=False,
    samples=half_line_samples,
)
def special_modified_bessel_k0(input: Real) -> Any:
    """Return the modified Bessel function of the second kind of order 0: inf at 0, nan below."""


@elementwise(
    Unary(bessel.k1),
    derivative={"input": lambda g, input, out: g * -(ops.special_modified_bessel_k0(input) + out / input)},
    promote="float",
    flops=60,
    inplace=False,
    samples=half_line_samples,
)
def special_modified_bessel_k1(input: Real) -> Any:
    """Return the modified Bessel function of the second kind of order 1: inf at 0, nan below."""


@elementwise(
    Unary(bessel.k0e),
    derivative={"input": lambda g, input, out: g * (out - ops.special_scaled_modified_bessel_k1(input))},
    promote="float",
    flops=60,
    inplace=False,
    samples=half_line_samples,
)
def special_scaled_modified_bessel_k0(input: Real) -> Any:
    """Return exp(x) K0(x), which does not underflow: inf at 0, nan below."""


@elementwise(
    Unary(bessel.k1e),
    derivative={
        "input": lambda g, input, out: g * (out - out / input - ops.special_scaled_modified_bessel_k0(input)),
    },
    promote="float",
    flops=60,
    inplace=False,
    samples=half_line_samples,
)
def special_scaled_modified_bessel_k1(input: Real) -> Any:
    """Return exp(x) K1(x), which does not underflow: inf at 0, nan below."""


# ---- Airy's function


@elementwise(
    Unary(airy.airy_ai),
    derivative={"input": lambda g, input: g * ops.airy_ai_prime(input)},
    promote="float",
    flops=80,
    inplace=False,
    samples=lambda s: [*line_samples(s), s((3,), low=-9.0, high=-3.0), s((3,), low=3.0, high=9.0)],
)
def special_airy_ai(input: Real) -> Any:
    """Return the Airy function Ai(x), the solution of y'' = x y that decays on the right; 0 at both infinities.

    Example:
        >>> import wengert as wg
        >>> wg.special.airy_ai(wg.tensor([-1.0, 0.0, 1.0]))
        tensor([0.5356, 0.3550, 0.1353])
    """


@elementwise(
    Unary(airy.airy_ai_prime),
    derivative={"input": lambda g, input: g * (input * ops.special_airy_ai(input))},
    promote="float",
    flops=80,
    inplace=False,
    home=(),
    samples=lambda s: [*line_samples(s), s((3,), low=-9.0, high=-3.0), s((3,), low=3.0, high=9.0)],
)
def airy_ai_prime(input: Real) -> Any:
    """Return the derivative of the Airy function Ai."""

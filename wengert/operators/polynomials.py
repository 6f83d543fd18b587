"""Classical orthogonal polynomials of a tensor of orders, under PyTorch's names.

The derivative of each is a polynomial of lower order of its own or of a wider family, so that nothing is divided and
the ends of the interval have theirs too: T'ₙ = n Uₙ₋₁, P'ₙ and U'ₙ are Gegenbauer polynomials, L'ₙ a Laguerre polynomial
of parameter 1, H'ₙ = 2n Hₙ₋₁ (NIST Digital Library of Mathematical Functions, §18.9(iii)). There is none in the order,
which is cut to a whole number; those of a negative order are 0.
"""

from collections.abc import Callable
from typing import Any

from wengert.core.arguments import Int, RealOrScalar
from wengert.core.families import elementwise
from wengert.core.registry import ops
from wengert.kernels import polynomials

__all__ = [
    "gegenbauer", "laguerre", "special_chebyshev_polynomial_t", "special_chebyshev_polynomial_u",
    "special_chebyshev_polynomial_v", "special_chebyshev_polynomial_w", "special_hermite_polynomial_h",
    "special_hermite_polynomial_he", "special_laguerre_polynomial_l", "special_legendre_polynomial_p",
    "special_shifted_chebyshev_polynomial_t", "special_shifted_chebyshev_polynomial_u",
    "special_shifted_chebyshev_polynomial_v", "special_shifted_chebyshev_polynomial_w",
]  # fmt: skip


def _samples(s: Any) -> list[Any]:
    inf, nan = float("inf"), float("nan")
    return [
        s((2, 3), s.array([[0], [3]])), s((2,), 4), s(0.3, s.array([0, 1, 2, 5])), s((), s.array(2)), s((0,), s.array([1])),
        s(s.array([1.0, -1.0, 0.0]), 5), s((2,), s.array([2.7, -0.5]), wrt=[0]),
        s(s.tensor((2,), kind="integer"), s.array([2, 3])),
        s((2,), 12, low=3.0, high=4.0), s((2,), -1, grad=False), s(s.array([inf, -inf, nan]), 3, grad=False),
        s((2,), s.array([nan, inf]), grad=False), s.error(ValueError, "up to order 100000", (2,), 1_000_000),
        s.error(TypeError, "real tensor", s.tensor((2,), kind="complex"), 1),
    ]  # fmt: skip


def _polynomial(slope: Callable[[Any, Any], Any], flops: int = 100) -> Callable[[Any], Any]:
    """Declare a polynomial with the derivative ``slope(input, n)``, n cut to a whole number."""
    return elementwise(
        derivative={"input": lambda g, input, n: g * slope(input, _whole(n))},
        promote="float",
        flops=flops,
        inplace=False,
        samples=_samples,
    )


def _shifted(slope: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Declare a polynomial in 2x - 1, of which ``slope`` is the derivative."""
    return _polynomial(lambda x, n: 2 * slope(2 * x - 1, n))


def _whole(n: Any) -> Any:
    return ops.trunc(n) if hasattr(n, "dtype") else float(int(n))


# ---- the families that derivatives lead to


def _with_parameter(s: Any, *orders: Any) -> list[Any]:
    return [s((2, 3), s.array([[0], [3]]), order=o) for o in orders] + [
        s(s.array([1.0, -1.0, 0.0]), 4, order=orders[0])
    ]


@elementwise(
    derivative={"input": lambda g, input, n, order: g * (2 * order * ops.gegenbauer(input, n - 1, order + 1))},
    promote="float",
    flops=100,
    inplace=False,
    home=(),
    samples=lambda s: _with_parameter(s, 0.5, 1, 2, 3.5),
)
def gegenbauer(input: RealOrScalar, n: RealOrScalar, order: Any) -> Any:
    """Return the Gegenbauer polynomial Cₙ(x) of parameter ``order``."""
    return polynomials.gegenbauer(input, n, order)


@elementwise(
    derivative={"input": lambda g, input, n, order: -g * ops.laguerre(input, n - 1, order + 1)},
    promote="float",
    flops=100,
    inplace=False,
    home=(),
    samples=lambda s: _with_parameter(s, 0, 1, 2),
)
def laguerre(input: RealOrScalar, n: RealOrScalar, order: Int) -> Any:
    """Return the Laguerre polynomial Lₙ(x) of parameter ``order``."""
    return polynomials.laguerre(input, n, order)


# ---- Chebyshev


def _t_slope(x: Any, n: Any) -> Any:
    return n * ops.gegenbauer(x, n - 1, 1)


def _u_slope(x: Any, n: Any) -> Any:
    return 2 * ops.gegenbauer(x, n - 1, 2)


def _v_slope(x: Any, n: Any) -> Any:
    return _u_slope(x, n) - _u_slope(x, n - 1)


def _w_slope(x: Any, n: Any) -> Any:
    return _u_slope(x, n) + _u_slope(x, n - 1)


@_polynomial(_t_slope)
def special_chebyshev_polynomial_t(input: RealOrScalar, n: RealOrScalar) -> Any:
    """Return the Chebyshev polynomial of the first kind Tₙ(x), for x = cos θ equal to cos nθ.

    Raises:
        ValueError: for an order beyond 100000.

    Example:
        >>> import wengert as wg
        >>> wg.special.chebyshev_polynomial_t(wg.tensor(0.5), wg.tensor([0, 1, 2]))
        tensor([ 1.0000,  0.5000, -0.5000])
    """
    return polynomials.chebyshev_t(input, n)


@_polynomial(_u_slope)
def special_chebyshev_polynomial_u(input: RealOrScalar, n: RealOrScalar) -> Any:
    """Return the Chebyshev polynomial of the second kind Uₙ(x), for x = cos θ equal to sin (n+1)θ / sin θ."""
    return polynomials.gegenbauer(input, n, 1)


@_polynomial(_v_slope)
def special_chebyshev_polynomial_v(input: RealOrScalar, n: RealOrScalar) -> Any:
    """Return the Chebyshev polynomial of the third kind Vₙ(x), for x = cos θ equal to cos (n+½)θ / cos ½θ."""
    return polynomials.chebyshev_v(input, n)


@_polynomial(_w_slope)
def special_chebyshev_polynomial_w(input: RealOrScalar, n: RealOrScalar) -> Any:
    """Return the Chebyshev polynomial of the fourth kind Wₙ(x), for x = cos θ equal to sin (n+½)θ / sin ½θ."""
    return polynomials.chebyshev_w(input, n)


@_shifted(_t_slope)
def special_shifted_chebyshev_polynomial_t(input: RealOrScalar, n: RealOrScalar) -> Any:
    """Return the shifted Chebyshev polynomial of the first kind, Tₙ(2x - 1), whose interval is [0, 1]."""
    return polynomials.chebyshev_t(2 * input - 1, n)


@_shifted(_u_slope)
def special_shifted_chebyshev_polynomial_u(input: RealOrScalar, n: RealOrScalar) -> Any:
    """Return the shifted Chebyshev polynomial of the second kind, Uₙ(2x - 1), whose interval is [0, 1]."""
    return polynomials.gegenbauer(2 * input - 1, n, 1)


@_shifted(_v_slope)
def special_shifted_chebyshev_polynomial_v(input: RealOrScalar, n: RealOrScalar) -> Any:
    """Return the shifted Chebyshev polynomial of the third kind, Vₙ(2x - 1), whose interval is [0, 1]."""
    return polynomials.chebyshev_v(2 * input - 1, n)


@_shifted(_w_slope)
def special_shifted_chebyshev_polynomial_w(input: RealOrScalar, n: RealOrScalar) -> Any:
    """Return the shifted Chebyshev polynomial of the fourth kind, Wₙ(2x - 1), whose interval is [0, 1]."""
    return polynomials.chebyshev_w(2 * input - 1, n)


# ---- Legendre, Laguerre, Hermite


@_polynomial(lambda x, n: ops.gegenbauer(x, n - 1, 1.5))
def special_legendre_polynomial_p(input: RealOrScalar, n: RealOrScalar) -> Any:
    """Return the Legendre polynomial Pₙ(x)."""
    return polynomials.gegenbauer(input, n, 0.5)


@_polynomial(lambda x, n: -ops.laguerre(x, n - 1, 1))
def special_laguerre_polynomial_l(input: RealOrScalar, n: RealOrScalar) -> Any:
    """Return the Laguerre polynomial Lₙ(x)."""
    return polynomials.laguerre(input, n, 0)


@_polynomial(lambda x, n: 2 * n * ops.special_hermite_polynomial_h(x, n - 1))
def special_hermite_polynomial_h(input: RealOrScalar, n: RealOrScalar) -> Any:
    """Return the physicists' Hermite polynomial Hₙ(x)."""
    return polynomials.hermite_h(input, n)


@_polynomial(lambda x, n: n * ops.special_hermite_polynomial_he(x, n - 1))
def special_hermite_polynomial_he(input: RealOrScalar, n: RealOrScalar) -> Any:
    """Return the probabilists' Hermite polynomial Heₙ(x)."""
    return polynomials.hermite_he(input, n)

"""Special functions under SciPy's names and with its arguments.

The standard does not list them; ``scipy.special``, called on an array of any library, looks for them here before it
turns to NumPy. So its functions, and all of SciPy that is written with them, keep the gradients of tensors.
"""

from typing import Any

from wengert.array.shape import as_int
from wengert.array_api.arguments import promoted
from wengert.core.registry import ops

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "gammainc", "gammaincc", "gammaln", "i0", "i0e",
    "i1", "i1e", "j0", "j1", "kl_div", "log_ndtr", "logit", "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "sinc",
    "xlog1py", "xlogy", "y0", "y1", "zeta",
]  # fmt: skip


# ---- error functions and the normal distribution


def erf(x: Any, /) -> Any:
    """Return the error function."""
    return ops.special_erf(x)


def erfc(x: Any, /) -> Any:
    """Return 1 - erf(x), exact for large x."""
    return ops.special_erfc(x)


def erfcx(x: Any, /) -> Any:
    """Return exp(x²) erfc(x)."""
    return ops.special_erfcx(x)


def erfinv(y: Any, /) -> Any:
    """Return the inverse of erf."""
    return ops.special_erfinv(y)


def ndtr(x: Any, /) -> Any:
    """Return the distribution function of the standard normal distribution."""
    return ops.special_ndtr(x)


def log_ndtr(x: Any, /) -> Any:
    """Return log(ndtr(x)), without underflow."""
    return ops.special_log_ndtr(x)


def ndtri(y: Any, /) -> Any:
    """Return the inverse of ndtr."""
    return ops.special_ndtri(y)


# ---- gamma functions


def gammaln(x: Any, /) -> Any:
    """Return log |Γ(x)|."""
    return ops.special_gammaln(x)


def multigammaln(a: Any, d: int, /) -> Any:
    """Return the logarithm of the multivariate gamma function of dimension ``d``."""
    return ops.special_multigammaln(a, as_int(d, "d"))


def psi(x: Any, /) -> Any:
    """Return the derivative of log Γ."""
    return ops.special_psi(x)


digamma = psi


def polygamma(n: int, x: Any, /) -> Any:
    """Return the ``n``-th derivative of psi."""
    return ops.special_polygamma(as_int(n, "n"), x)


def gammainc(a: Any, x: Any, /) -> Any:
    """Return the regularised lower incomplete gamma function P(a, x)."""
    return ops.special_gammainc(*promoted("gammainc", a, x))


def gammaincc(a: Any, x: Any, /) -> Any:
    """Return the regularised upper incomplete gamma function Q(a, x) = 1 - P(a, x)."""
    return ops.special_gammaincc(*promoted("gammaincc", a, x))


def zeta(x: Any, q: Any = 1, /) -> Any:
    """Return the Hurwitz zeta function Σₖ (k + q)^(-x)."""
    return ops.special_zeta(*promoted("zeta", x, q))


# ---- Bessel functions


def i0(x: Any, /) -> Any:
    """Return the modified Bessel function of order 0."""
    return ops.special_i0(x)


def i0e(x: Any, /) -> Any:
    """Return exp(-|x|) i0(x)."""
    return ops.special_i0e(x)


def i1(x: Any, /) -> Any:
    """Return the modified Bessel function of order 1."""
    return ops.special_i1(x)


def i1e(x: Any, /) -> Any:
    """Return exp(-|x|) i1(x)."""
    return ops.special_i1e(x)


def j0(x: Any, /) -> Any:
    """Return the Bessel function of the first kind of order 0."""
    return ops.special_bessel_j0(x)


def j1(x: Any, /) -> Any:
    """Return the Bessel function of the first kind of order 1."""
    return ops.special_bessel_j1(x)


def y0(x: Any, /) -> Any:
    """Return the Bessel function of the second kind of order 0."""
    return ops.special_bessel_y0(x)


def y1(x: Any, /) -> Any:
    """Return the Bessel function of the second kind of order 1."""
    return ops.special_bessel_y1(x)


# ---- entropies, logistic functions and other elementary ones


def entr(x: Any, /) -> Any:
    """Return -x log x, 0 at 0, -inf below."""
    return ops.special_entr(x)


def kl_div(x: Any, y: Any, /) -> Any:
    """Return x log(x / y) - x + y, which is y at x = 0; infinite where it is not defined, NaN beside NaN."""
    x, y = promoted("kl_div", x, y)
    value = ops.special_xlogy(x, x) - ops.special_xlogy(x, y) - x + y
    outside = ops.logical_or(ops.lt(x, 0), ops.lt(y, 0))
    return ops.where(ops.logical_and(outside, ops.logical_not(ops.isnan(x + y))), float("inf"), value)


def exp2(x: Any, /) -> Any:
    """Return 2 to the power x."""
    return ops.special_exp2(x)


def expit(x: Any, /) -> Any:
    """Return the logistic function 1 / (1 + exp(-x))."""
    return ops.special_expit(x)


def logit(x: Any, /) -> Any:
    """Return log(x / (1 - x))."""
    return ops.special_logit(x)


def sinc(x: Any, /) -> Any:
    """Return sin(πx) / (πx)."""
    return ops.special_sinc(x)


def xlogy(x: Any, y: Any, /) -> Any:
    """Return x log y, 0 at x = 0."""
    return ops.special_xlogy(*promoted("xlogy", x, y))


def xlog1py(x: Any, y: Any, /) -> Any:
    """Return x log(1 + y), 0 at x = 0."""
    return ops.special_xlog1py(*promoted("xlog1py", x, y))

"""The polynomials of ``wengert.codegen.vecmath``: what each approximates, where, and with how many terms.

``python -m wengert.testing.fits`` prints ``wengert/codegen/vecmath/coefficients.py``; with names as arguments, those alone.
"""

import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from mpmath import mp

from wengert.testing.minimax import Spec, fit

__all__ = ["SPECS", "source"]

HALF_LN2: Final = 0.3466  # a little above ln 2 / 2: what rounding leaves
SQRT_HALF, SQRT_TWO = 0.7071, 1.41422


def _after(function: Any, known: Any, power: int) -> Any:
    """Return (function(t) - known(t)) / t^power, computed with enough digits that the difference may cancel."""

    def rest(t: Any) -> Any:
        with mp.workdps(2 * mp.dps + 20):
            value = (function(t) - known(t)) / t**power
        return +value

    return rest


def _even(function: Any, known: Any, power: int) -> Any:
    """Return (function(x) - known(x)) / x^power as a function of t = x²."""
    rest = _after(function, known, power)
    return lambda t: rest(mp.sqrt(t))


def _exponential() -> Iterator[tuple[str, Spec]]:
    # exp(r) = 1 + r + r² q(r), also for expm1; 2^r = 1 + r q(r)
    yield "EXP", Spec(
        _after(mp.exp, lambda r: 1 + r, 2), -HALF_LN2, HALF_LN2, {"f32": 5, "f64": 11, "wide": 6},
        lambda r: r**2 / abs(mp.expm1(r)),
    )  # fmt: skip
    yield "EXP2", Spec(
        _after(lambda r: 2**r, lambda r: 1, 1), -0.5001, 0.5001, {"f32": 6, "f64": 12, "wide": 7},
        lambda r: abs(r) / 2**r, parts=1,
    )  # fmt: skip
    # z^(-1/3), where iteration begins
    yield "CBRT", Spec(lambda z: z ** (-1 / mp.mpf(3)), 1, 8, {"f32": 6, "f64": 6})
    # sinh(x) = x + x³ p(x²)
    yield (
        "SINH",
        Spec(_even(mp.sinh, lambda x: x, 3), 0, 1, {"f32": 4, "f64": 7}, lambda t: t**1.5 / mp.sinh(mp.sqrt(t))),
    )


def _atanh_rest(power: int) -> Any:
    """Return what remains of log((1 + s) / (1 - s)) = 2s + 2s³/3 + … as a function of s²."""
    known = (lambda s: 2 * s) if power == 3 else (lambda s: 2 * s + 2 * s**3 / 3)
    return _even(lambda s: 2 * mp.atanh(s), known, power)


def _logarithm() -> Iterator[tuple[str, Spec]]:
    # log(1 + f) = f - f²/2 + f³ p(f)
    yield "LOG_STRAIGHT", Spec(
        _after(mp.log1p, lambda f: f - f**2 / 2, 3), SQRT_HALF - 1, SQRT_TWO - 1, {"f32": 9},
        lambda f: abs(f**3 / mp.log1p(f)),
    )  # fmt: skip
    # log((1 + s) / (1 - s)) = 2s + s³ p(s²) = 2s + 2s³/3 + s⁵ p(s²)
    yield "LOG", Spec(_atanh_rest(3), 0, 0.02945, {"f64": 7, "wide": 4}, lambda t: t)
    yield "LOG_PAIR", Spec(_atanh_rest(5), 0, 0.02945, {"f64": 7}, lambda t: t * t)
    # log2((1 + s) / (1 - s)) = s p(s²)
    yield "LOG2", Spec(_even(lambda s: 2 * mp.atanh(s) / mp.ln2, lambda s: 0, 1), 0, 0.02945, {"wide": 5})


def _trigonometric() -> Iterator[tuple[str, Spec]]:
    # sin(r) = r + r³ p(r²), cos(r) = 1 - r²/2 + r⁴ p(r²), tan(r) = r + r³ p(r²)
    yield "SIN", Spec(_even(mp.sin, lambda r: r, 3), 0, 0.64, {"f32": 3, "f64": 6}, lambda t: t)
    yield "COS", Spec(_even(mp.cos, lambda r: 1 - r**2 / 2, 4), 0, 0.64, {"f32": 3, "f64": 6}, lambda t: t**2)
    yield "TAN", Spec(_even(mp.tan, lambda r: r, 3), 0, 0.62, {"wide": 8}, lambda t: t)
    # sin(πr) / (πr) = 1 + t p(t), t = r²
    yield "SINC", Spec(
        _after(lambda t: mp.sincpi(mp.sqrt(t)), lambda t: 1, 1), 0, 0.25, {"f32": 5, "f64": 9},
        lambda t: t / mp.sincpi(mp.sqrt(t)),
    )  # fmt: skip
    # atan(x) = x + x³ p(x²), asin(x) = x + x³ p(x²)
    yield "ATAN", Spec(_even(mp.atan, lambda x: x, 3), 0, 0.304, {"f32": 6, "f64": 13}, lambda t: t)
    yield "ASIN", Spec(_even(mp.asin, lambda x: x, 3), 0, 0.2501, {"f32": 5, "f64": 12}, lambda t: t)


def _erfcx(a: Any) -> Any:
    return mp.exp(a * a) * mp.erfc(a)


def _whole_line_erfc(q: Any) -> Any:
    a = 4 * (1 + q) / (1 - q)
    return (1 + 2 * a) * _erfcx(a)


def _whole_line_ndtr(q: Any) -> Any:
    y = 6 * (1 + q) / (1 - q)
    return (1 + 1.5 * y) * _erfcx(y / mp.sqrt(2)) / 2


def _error_function() -> Iterator[tuple[str, Spec]]:
    # erf(x) = x p(x²) for small x; erf(x) = 1 - exp(-p(x)) behind
    yield "ERF_NEAR", Spec(_even(mp.erf, lambda x: 0, 1), 0, 1, {"f32": 7, "f64": 12}, parts=1)
    for name, end, terms in (("ERF_FAR", 3.95, {"f32": 7}), ("ERF_FAR64", 5.95, {"f64": 18})):
        yield name, Spec(lambda a: -mp.log(mp.erfc(a)), 1, end, terms, lambda a: mp.erfc(a) / mp.erf(a))
    # (1 + 2a) exp(a²) erfc(a) = p(q), q = (a - 4) / (a + 4); (1 + 3y/2) exp(y²/2) Φ(-y) = p(q), q = (y - 6) / (y + 6);
    # and their derivatives, roughly
    for name, function, end in (("ERFC", _whole_line_erfc, 0.75), ("NDTR", _whole_line_ndtr, 0.74)):
        yield name, Spec(function, -1, end, {"f64": 22}, parts=1)
        slope = partial(mp.diff, function)
        yield f"{name}_SLOPE", Spec(slope, -0.999, end, {"f64": 5}, lambda q: 1)
    # exp(a²) erfc(a) = t p(t), t = 1 / (1 + 2a/5)
    yield "ERFCX", Spec(lambda t: _erfcx((1 / t - 1) * 2.5) / t, 0.19, 1, {"wide": 11})


def _erfinv_ratio(w: Any) -> Any:
    """Return erfinv(x) / x where w = -log(1 - x²)."""
    x = mp.sqrt(-mp.expm1(-w))
    y = mp.erfinv(x)
    for _ in range(2):  # Newton's steps on log erfc: near 1 mpmath's erfinv has few digits
        tail = mp.erfc(y)
        y += tail * mp.log(tail / (mp.exp(-w) / (1 + x))) * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
    return y / x


def _erfinv() -> Iterator[tuple[str, Spec]]:
    # erfinv(x) = x p(w - 5/2) for w = -log(1 - x²) ≤ 5, and x p(√w - 17/4) behind
    yield "ERFINV_NEAR", Spec(lambda v: _erfinv_ratio(v + 2.5), -2.5, 2.5, {"f64": 22}, parts=1)
    yield "ERFINV_FAR", Spec(lambda v: _erfinv_ratio((v + 4.25) ** 2), -2.02, 1.86, {"f64": 34}, parts=1)


def _stirling_rest(t: Any) -> Any:
    """Return x (lgamma(x) - ((x - 1/2) log x - x + log(2π) / 2)) where t = 1 / x²."""
    x = 1 / mp.sqrt(t)
    return x * (mp.loggamma(x) - ((x - 0.5) * mp.log(x) - x + mp.log(2 * mp.pi) / 2))


def _digamma_rest(t: Any) -> Any:
    """Return x² (log x - 1/(2x) - digamma(x)) where t = 1 / x²."""
    x = 1 / mp.sqrt(t)
    return x * x * (mp.log(x) - 1 / (2 * x) - mp.digamma(x))


def _gamma() -> Iterator[tuple[str, Spec]]:
    # lgamma(2 + t) = t p(t); digamma(1 + u) = (u - root) p(u - 1/2)
    with mp.workdps(60):
        root = mp.findroot(mp.digamma, 1.4616321449683623) - 1
    yield "LGAMMA", Spec(lambda t: mp.loggamma(2 + t) / t, -0.5, 0.5, {"f64": 20}, parts=1)
    yield "DIGAMMA", Spec(lambda v: mp.digamma(1.5 + v) / (v + 0.5 - root), -0.5, 0.5, {"f64": 22}, parts=1)
    # what is left of the asymptotic series, in 1/x²
    yield "LGAMMA_FAR", Spec(_stirling_rest, 1e-6, 1 / 16, {"f64": 11})
    yield "DIGAMMA_FAR", Spec(_digamma_rest, 1e-6, 1 / 16, {"f64": 12})
    # πr cot(πr) = (1 - 4r²) p(r²)
    yield (
        "COTANGENT",
        Spec(lambda t: mp.pi * mp.sqrt(t) / mp.tan(mp.pi * mp.sqrt(t)) / (1 - 4 * t), 0, 0.25, {"f64": 15}, parts=1),
    )


SPECS: Final[dict[str, Spec]] = {
    **dict(_exponential()), **dict(_logarithm()), **dict(_trigonometric()), **dict(_error_function()),
    **dict(_erfinv()), **dict(_gamma()),
}  # fmt: skip

HEADER: Final = '''"""Coefficients of the polynomials, constant term first, as ``python -m wengert.testing.fits`` prints them.

"wide" are float64 polynomials for results in float32. Where a coefficient has a correction, both stand in order.
"""

from typing import Final

'''


def _table(name: str, spec: Spec) -> str:
    lines = [f"{name}: Final = {{"]
    for kind in spec.terms:
        numbers = ", ".join(map(repr, fit(spec, kind))) + ","
        lines += [
            f'    "{kind}": (',
            *textwrap.wrap(numbers, 116, initial_indent=" " * 8, subsequent_indent=" " * 8),
            "    ),",
        ]
    return "\n".join([*lines, "}  # fmt: skip", ""])


def source(*names: str) -> str:
    """Return the text of coefficients.py, or the tables of some polynomials."""
    tables = [_table(name, SPECS[name]) for name in names or SPECS]
    return ("" if names else HEADER) + "\n".join(tables)


if __name__ == "__main__":
    sys.stdout.write(source(*sys.argv[1:]))

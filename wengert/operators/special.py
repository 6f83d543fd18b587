"""Special functions: error functions, the gamma family, x·log y. Kernels: :mod:`wengert.kernels`.

Derivatives are taken from the NIST Digital Library of Mathematical Functions (chapters 5, 7, 8, 25).
"""

import math
from typing import Any

import numpy as np

from wengert.array.shape import as_int
from wengert.core.arguments import Int, Real, RealOrScalar
from wengert.core.families import composite, elementwise
from wengert.core.methods import attach
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, from_array
from wengert.kernels import gamma, gammainc, special
from wengert.kernels.blocks import Unary

__all__ = [
    "digamma", "erf", "erfc", "erfinv", "half_line_samples", "igamma", "igammac", "lgamma", "line_samples", "logit",
    "mvlgamma", "polygamma", "special_entr", "special_erfcx", "special_log_ndtr", "special_log_softmax",
    "special_logsumexp", "special_ndtr", "special_ndtri", "special_softmax", "special_xlog1py", "special_zeta", "xlogy",
]  # fmt: skip

_ROOT_PI = math.sqrt(math.pi)


def line_samples(s: Any) -> list[Any]:
    """The samples of functions defined on the whole line."""
    inf, nan = math.inf, math.nan
    return [
        s((2, 3)), s(()), s((0,)), s((2,), low=-6.0, high=6.0), s(s.array([0.0, 0.5, 1e-9])), s((3,), kind="integer"),
        s((2,), kind="boolean"), s(s.array([inf, -inf, nan, -0.0]), grad=False),
        s.error(TypeError, "real tensor", (2,), kind="complex"),
    ]  # fmt: skip


def half_line_samples(s: Any) -> list[Any]:
    """The samples of functions of positive numbers."""
    return [
        s((2, 3), kind="positive"), s((), kind="positive"), s((0,)), s((3,), low=3.0, high=30.0),
        s((3,), kind="integer", low=1), s(s.array([0.0, math.inf, math.nan]), grad=False),
        s.error(TypeError, "real tensor", (2,), kind="complex"),
    ]  # fmt: skip


# ---- error functions and the normal distribution


@elementwise(
    Unary(special.erf),
    lowering="erf",
    derivative={"input": lambda g, input: g * (ops.exp(-(input * input)) * (2 / _ROOT_PI))},
    promote="float",
    flops=40,
    aliases=("special_erf",),
    samples=line_samples,
)
def erf(input: Real) -> Any:
    """Return the error function 2/√π ∫₀ˣ exp(-t²) dt of each element."""


@elementwise(
    Unary(special.erfc),
    lowering="erfc",
    derivative={"input": lambda g, input: g * (ops.exp(-(input * input)) * (-2 / _ROOT_PI))},
    promote="float",
    flops=60,
    aliases=("special_erfc",),
    samples=line_samples,
)
def erfc(input: Real) -> Any:
    """Return 1 - erf(x), exact to rounding in the right tail."""


@elementwise(
    Unary(special.erfcx),
    derivative={"input": lambda g, input, out: g * (2 * input * out - 2 / _ROOT_PI)},
    promote="float",
    flops=60,
    inplace=False,
    samples=line_samples,
)
def special_erfcx(input: Real) -> Any:
    """Return exp(x²) erfc(x), which stays finite where erfc underflows."""


@elementwise(
    Unary(special.erfinv),
    lowering="erfinv", derivative={"input": lambda g, out: g * (ops.exp(out * out) * (_ROOT_PI / 2))},
    promote="float",
    flops=60,
    aliases=("special_erfinv",),
    samples=lambda s: [
        s((2, 3), low=-0.9, high=0.9), s((), low=-0.9, high=0.9), s((0,)), s(s.array([0.999, -0.99, 1e-9])),
        s(s.array([1.0, -1.0, 1.5, math.nan]), grad=False),
    ],
)  # fmt: skip
def erfinv(input: Real) -> Any:
    """Return the inverse of erf: ±inf at ±1, nan beyond."""


@elementwise(
    Unary(special.ndtr),
    lowering="ndtr",
    derivative={"input": lambda g, input: g * (ops.exp(input * input * -0.5) / math.sqrt(2 * math.pi))},
    promote="float",
    flops=60,
    inplace=False,
    samples=line_samples,
)
def special_ndtr(input: Real) -> Any:
    """Return the distribution function Φ of the standard normal distribution."""


@elementwise(
    Unary(special.log_ndtr),
    derivative={"input": lambda g, input: g * (math.sqrt(2 / math.pi) / ops.special_erfcx(input * -math.sqrt(0.5)))},
    promote="float",
    flops=80,
    inplace=False,
    samples=lambda s: [*line_samples(s), s((3,), low=-30.0, high=-8.0)],
)
def special_log_ndtr(input: Real) -> Any:
    """Return log Φ(x), exact to rounding in both tails."""


@elementwise(
    Unary(special.ndtri),
    derivative={"input": lambda g, out: g * (ops.exp(out * out * 0.5) * math.sqrt(2 * math.pi))},
    promote="float",
    flops=60,
    inplace=False,
    samples=lambda s: [
        s((2, 3), low=0.02, high=0.98), s((), low=0.1, high=0.9), s((0,)),
        s(s.array([0.0, 1.0, -0.5, 1.5, math.nan]), grad=False),
    ],
)  # fmt: skip
def special_ndtri(input: Real) -> Any:
    """Return the quantile of the standard normal distribution, the inverse of ndtr: ∓inf at 0 and 1, nan beyond."""


# ---- the gamma family


@elementwise(
    Unary(gamma.lgamma),
    lowering="lgamma",
    derivative={"input": lambda g, input: g * ops.digamma(input)},
    promote="float",
    flops=60,
    aliases=("special_gammaln",),
    samples=lambda s: [
        *half_line_samples(s),
        s(s.array([-0.5, -1.3, -7.6])),
        s(s.array([-1.0, -math.inf]), grad=False),
    ],
)
def lgamma(input: Real) -> Any:
    """Return log |Γ(x)|: inf at 0 and the negative integers."""


@elementwise(
    Unary(gamma.digamma),
    lowering="digamma",
    derivative={"input": lambda g, input: g * ops.polygamma(1, input)},
    promote="float",
    flops=60,
    aliases=("special_digamma", "special_psi"),
    samples=lambda s: [*half_line_samples(s), s(s.array([-0.5, -1.3, -7.6])), s(s.array([-1.0, -0.0]), grad=False)],
)
def digamma(input: Real) -> Any:
    """Return the derivative of log Γ(x): -inf at 0, nan at the negative integers."""


@elementwise(
    derivative={"input": lambda g, n, input: g * ops.polygamma(n + 1, input)},
    promote="float",
    flops=200,
    aliases=("special_polygamma",),
    method=False,
    inplace=False,
    samples=lambda s: [
        s(0, (3,), kind="positive"), s(1, (2, 3), kind="positive"), s(2, (3,), kind="positive"),
        s(4, (), kind="positive"), s(1, (0,)), s(1, s.array([-0.5, -1.3])), s(3, s.array([-0.5, -1.3])),
        s(1, (2,), kind="integer", low=1), s(1, s.array([0.0, math.inf, math.nan]), grad=False),
        s.error(ValueError, "negative", -1, (2,)),
    ],
)  # fmt: skip
def polygamma(n: Int, input: Real) -> Any:
    """Return the n-th derivative of digamma, (-1)ⁿ⁺¹ n! ζ(n + 1, x).

    Raises:
        ValueError: if n is negative.
    """
    if n < 0:
        raise ValueError(f"polygamma(): n must not be negative, got {n}")
    return gamma.polygamma(n, input)


def _polygamma_method(self: Any, n: int) -> Any:
    """Return the n-th derivative of digamma of this tensor; see :func:`wengert.polygamma`."""
    return ops.polygamma(n, self)


def _polygamma_into(self: Any, n: int) -> Any:
    """Put the n-th derivative of digamma in the place of each element."""
    return self.copy_(ops.polygamma(n, ops.clone(self)))


for _name, _method in (("polygamma", _polygamma_method), ("polygamma_", _polygamma_into)):
    _method.__name__ = _method.__qualname__ = _name
    attach(_name, _method)


@composite(
    method=True,
    inplace=True,
    aliases=("special_multigammaln",),
    samples=lambda s: [
        s((2, 3), 1, low=1.0, high=3.0), s((3,), 3, low=1.5, high=4.0), s((2,), 2, kind="integer", low=2),
        s.error(ValueError, "p", (2,), 0),
    ],
)  # fmt: skip
def mvlgamma(input: Any, p: int) -> Any:
    """Return the logarithm of the multivariate gamma function of dimension ``p``: p(p-1)/4 log π + Σ log Γ(x - i/2)."""
    if not 1 <= as_int(p, "mvlgamma(): p") <= 1_000_000:
        raise ValueError(f"mvlgamma(): p must lie between 1 and 1000000, got {p}")
    total = ops.lgamma(input) + p * (p - 1) / 4 * math.log(math.pi)
    for i in range(1, p):
        total = total + ops.lgamma(input - i / 2)
    return total


def _gamma_density(a: Any, x: Any) -> Any:
    """Return xᵃ⁻¹ e⁻ˣ / Γ(a)."""
    return ops.exp(ops.xlogy(a - 1, x) - x - ops.lgamma(a))


def _shape_and_point(s: Any) -> list[Any]:
    """The samples of the incomplete gamma functions, whose derivative is known in the second argument only."""
    return [
        s(s.array([0.5, 1.0, 2.0, 30.0]), (4,), kind="positive", wrt=[1]),
        s(s.array([[0.5], [3.0]]), (3,), kind="positive", wrt=[1]),
        s(s.array([0.0, 1.0, 1.0, -1.0]), s.array([1.0, 0.0, math.inf, 1.0]), grad=False), s((0,), (1,), grad=False),
        s(s.array([2, 3]), s.array([1, 2])),
    ]  # fmt: skip


@elementwise(
    derivative={"other": lambda g, input, other: g * _gamma_density(input, other)},
    promote="float",
    flops=300,
    aliases=("special_gammainc",),
    samples=_shape_and_point,
)
def igamma(input: Real, other: Real) -> Any:
    """Return the regularised lower incomplete gamma function 1/Γ(a) ∫₀ˣ tᵃ⁻¹ e⁻ᵗ dt, a = ``input``, x = ``other``.

    It has a derivative in ``other`` only.
    """
    return gammainc.gammainc(input, other)


@elementwise(
    derivative={"other": lambda g, input, other: -g * _gamma_density(input, other)},
    promote="float",
    flops=300,
    aliases=("special_gammaincc",),
    samples=_shape_and_point,
)
def igammac(input: Real, other: Real) -> Any:
    """Return the regularised upper incomplete gamma function 1 - igamma(input, other), exact where it is small.

    It has a derivative in ``other`` only.
    """
    return gammainc.gammaincc(input, other)


@elementwise(
    derivative={"other": lambda g, input, other: g * (-input * ops.special_zeta(input + 1, other))},
    promote="float",
    flops=200,
    method=False,
    inplace=False,
    samples=lambda s: [
        s(s.array([1.5, 2.0, 30.0]), (3,), kind="positive", grad=False), s(2.0, (2, 3), kind="positive"),
        s(s.array([2.0]), 1.0, grad=False), s(s.array([1.0, 0.5, 2.0]), s.array([1.0, 1.0, 0.0]), grad=False),
        s((0,), (1,), grad=False), s(s.array([2, 3]), s.array([1, 2])),
    ],
)  # fmt: skip
def special_zeta(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return the Hurwitz zeta function Σ (q + k)⁻ˢ, k = 0, 1, …, with s = ``input`` and q = ``other``.

    It has a derivative in ``other`` only.
    """
    return gamma.zeta(input, other)


# ---- x·log y, entropy, logit


@elementwise(
    derivative={"input": lambda g, input: g * (-1 - ops.log(input))},
    promote="float",
    flops=12,
    inplace=False,
    samples=lambda s: [*half_line_samples(s)[:5], s(s.array([0.0, -1.0, math.nan]), grad=False)],
)
def special_entr(input: Real) -> Any:
    """Return -x log x: 0 at 0, -inf below."""
    inside = np.where(input == 0, 1, input)
    return np.where(input < 0, -np.inf, -inside * np.log(inside))


def _like(value: Any, tensor: Any) -> Any:
    """Return a number as a tensor of another's dtype, and a tensor itself."""
    return value if isinstance(value, Tensor) else from_array(np.asarray(value, tensor.dtype.numpy))


def _guarded(input: Any, argument: Any, g: Any) -> Any:
    """Return the argument of the logarithm, 1 where both factors of x·log y vanish or have no meaning."""
    argument = _like(argument, g)
    return ops.where(ops.logical_and(_like(input, g) == 0, argument <= 0), 1, argument)


def _log_products(s: Any) -> list[Any]:
    inf, nan = math.inf, math.nan
    return [
        s((2, 3), (3,), kind="positive"), s((2,), 0.3, kind="positive"), s(0.3, (2,), kind="positive"),
        s((3,), (3,), kind="integer", low=1),
        s(s.array([0.0, 0.0, 0.0, nan]), s.array([0.0, -1.0, nan, 1.0]), grad=False), s((0,), (1,)),
        s(s.array([0.0, 1.0]), s.array([2.0, 3.0])), s(s.array([0.0, -2.0]), s.array([inf, 0.5]), grad=False),
    ]  # fmt: skip


@elementwise(
    derivative={
        "input": lambda g, input, other: g * ops.log(_guarded(input, other, g)),
        "other": lambda g, input, other: g * (input / _guarded(input, other, g)),
    },
    promote="float",
    flops=12,
    aliases=("special_xlogy",),
    samples=_log_products,
)
def xlogy(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return ``input * log(other)``, and 0 where ``input`` is 0, unless ``other`` is nan."""
    return np.where((input == 0) & ~np.isnan(other), 0, input * np.log(other))


@elementwise(
    derivative={
        "input": lambda g, input, other: g * ops.log1p(_guarded(input, other + 1, g) - 1),
        "other": lambda g, input, other: g * (input / _guarded(input, other + 1, g)),
    },
    promote="float",
    flops=12,
    method=False,
    inplace=False,
    samples=lambda s: [*_log_products(s), s(s.array([0.0, 2.0]), s.array([-1.0, 1e-12]), grad=False)],
)
def special_xlog1py(input: RealOrScalar, other: RealOrScalar) -> Any:
    """Return ``input * log(1 + other)``, and 0 where ``input`` is 0, unless ``other`` is nan."""
    return np.where((input == 0) & ~np.isnan(other), 0, input * np.log1p(other))


def _logit_slope(g: Any, input: Any, eps: Any) -> Any:
    low, beyond = (0, math.nan) if eps is None else (eps, 0)
    inside = ops.logical_and(input >= low, input <= 1 - low)
    x = ops.where(inside, input, 0.5)
    return ops.where(inside, g / (x * (1 - x)), beyond)


@elementwise(
    derivative={"input": _logit_slope},
    promote="float",
    flops=12,
    aliases=("special_logit",),
    samples=lambda s: [
        s((2, 3), low=0.05, high=0.95), s((), low=0.1, high=0.9), s((0,)), s((2, 3), low=0.05, high=0.95, eps=0.3),
        s((2, 3), eps=1e-3), s(s.array([0.0, 1.0, -0.5, 1.5, math.nan]), grad=False), s(s.array([0.5, 0.5 + 1e-12])),
        s(s.array([1e-12]), grad=False),
    ],
)  # fmt: skip
def logit(input: Real, eps: float | None = None) -> Any:
    """Return ``log(input / (1 - input))``, the inverse of the sigmoid.

    Args:
        eps: first bring the elements into ``[eps, 1 - eps]``; without it the result is nan outside [0, 1].
    """
    x = input if eps is None else np.clip(input, eps, 1 - eps)
    middle = np.abs(x - 0.5) < 0.25
    return np.where(middle, 2 * np.arctanh(2 * x - 1), np.log(x) - np.log1p(-x))


# ---- functions of rows, under their names in torch.special


@composite(samples=lambda s: [s((2, 3), 1), s((2, 3), -2, dtype="float32", grad=False)])
def special_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Return exp(x) / Σ exp(x) along ``dim``; see :func:`wengert.softmax`."""
    return ops.softmax(input, dim, dtype)


@composite(samples=lambda s: [s((2, 3), 1), s((2, 3), -2, dtype="float32", grad=False)])
def special_log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Return the logarithm of the softmax along ``dim``; see :func:`wengert.log_softmax`."""
    return ops.log_softmax(input, dim, dtype)


@composite(samples=lambda s: [s((2, 3), 1), s((2, 3), dim=(0, 1), keepdim=True)])
def special_logsumexp(input: Any, dim: Any, keepdim: bool = False) -> Any:
    """Return log Σ exp(x) over ``dim``; see :func:`wengert.logsumexp`."""
    return ops.logsumexp(input, dim, keepdim)

"""Vector mathematics: at most 2 ulp from the exact result everywhere, and C99's results at the ends."""

import math
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest

from wengert.codegen.vecmath import EXPANSIONS, expand
from wengert.loops.scalar import BINARY_MATH, UNARY_MATH, make, postorder, var
from wengert.testing import ulp

NAMES = (*UNARY_MATH, *BINARY_MATH)
LIMIT = 2.0
inf, nan = math.inf, math.nan


@cache
def native(name: str, dtype: str) -> Any:
    return ulp.native(name, dtype)


def ulps_of_single(got: Any, want: Any) -> Any:
    """Return errors in ulp of float32 results beside float64 ones; the signs of zeros and infinities count."""
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    unit = 2.0 ** (np.maximum(np.frexp(np.where(np.isfinite(want), want, 1))[1] - 1, -126) - 23.0)
    with np.errstate(all="ignore"):
        return np.where(same, 0, np.abs(got - want) / unit)


@pytest.mark.parametrize("name", NAMES)
def test_float64_is_within_two_ulp_of_the_exact_result(name: str) -> None:
    found = ulp.worst(name, "f64", 270, native(name, "f64"))
    assert found.error <= LIMIT, found


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_within_two_ulp_of_float64(name: str) -> None:
    arguments = ulp.points(name, "f32", 200_000)
    got = native(name, "f32")(*arguments)
    want = native(name, "f64")(*(a.astype(np.float64) for a in arguments))
    errors = ulps_of_single(got, want)
    k = int(np.nanargmax(np.where(np.isnan(errors), inf, errors)))
    assert errors[k] <= LIMIT, ([a[k] for a in arguments], got[k], want[k])


def test_every_function_is_made_of_machine_operations() -> None:
    assert set(EXPANSIONS) == set(NAMES)
    for name in NAMES:
        for dtype in ("f32", "f64"):
            node = make(name, tuple(var(f"x{k}", dtype) for k in range(2 if name in BINARY_MATH else 1)))
            expansion = expand(node)
            assert expansion.dtype == dtype
            assert not {x.op for x in postorder([expansion])} & set(EXPANSIONS), name


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match="f16; cast the argument first"):
        expand(make("exp", (var("x", "f16"),)))


# ---- the ends of the domain

ENDS = (-inf, -1.0, -0.0, 0.0, 1.0, inf, nan)
AT_ENDS = {
    "exp": (0, 1 / math.e, 1, 1, math.e, inf, nan),
    "exp2": (0, 0.5, 1, 1, 2, inf, nan),
    "expm1": (-1, 1 / math.e - 1, -0.0, 0.0, math.e - 1, inf, nan),
    "log": (nan, nan, -inf, -inf, 0, inf, nan),
    "log2": (nan, nan, -inf, -inf, 0, inf, nan),
    "log10": (nan, nan, -inf, -inf, 0, inf, nan),
    "log1p": (nan, -inf, -0.0, 0.0, math.log(2), inf, nan),
    "sin": (nan, -math.sin(1), -0.0, 0.0, math.sin(1), nan, nan),
    "cos": (nan, math.cos(1), 1, 1, math.cos(1), nan, nan),
    "tan": (nan, -math.tan(1), -0.0, 0.0, math.tan(1), nan, nan),
    "asin": (nan, -math.pi / 2, -0.0, 0.0, math.pi / 2, nan, nan),
    "acos": (nan, math.pi, math.pi / 2, math.pi / 2, 0.0, nan, nan),
    "atan": (-math.pi / 2, -math.pi / 4, -0.0, 0.0, math.pi / 4, math.pi / 2, nan),
    "sinh": (-inf, -math.sinh(1), -0.0, 0.0, math.sinh(1), inf, nan),
    "cosh": (inf, math.cosh(1), 1, 1, math.cosh(1), inf, nan),
    "tanh": (-1, -math.tanh(1), -0.0, 0.0, math.tanh(1), 1, nan),
    "asinh": (-inf, -math.asinh(1), -0.0, 0.0, math.asinh(1), inf, nan),
    "acosh": (nan, nan, nan, nan, 0.0, inf, nan),
    "atanh": (nan, -inf, -0.0, 0.0, inf, nan, nan),
    "erf": (-1, -math.erf(1), -0.0, 0.0, math.erf(1), 1, nan),
    "erfc": (2, math.erfc(-1), 1, 1, math.erfc(1), 0, nan),
    "erfinv": (nan, -inf, -0.0, 0.0, inf, nan, nan),
    "lgamma": (inf, inf, inf, inf, 0, inf, nan),
    "digamma": (nan, nan, inf, -inf, -0.5772156649015329, inf, nan),
    "rsqrt": (nan, nan, -inf, inf, 1, 0, nan),
    "cbrt": (-inf, -1, -0.0, 0.0, 1, inf, nan),
    "sigmoid": (0, 1 / (1 + math.e), 0.5, 0.5, 1 / (1 + 1 / math.e), 1, nan),
    "softplus": (0, math.log1p(1 / math.e), math.log(2), math.log(2), math.log1p(math.e), inf, nan),
    "log_sigmoid": (-inf, -math.log1p(math.e), -math.log(2), -math.log(2), -math.log1p(1 / math.e), -0.0, nan),
    "gelu": (nan, -0.15865525393145707, -0.0, 0.0, 0.8413447460685429, inf, nan),
    "gelu_tanh": (nan, -0.15880800939172324, -0.0, 0.0, 0.8411919906082768, inf, nan),
    "silu": (nan, -1 / (1 + math.e), -0.0, 0.0, 1 / (1 + 1 / math.e), inf, nan),
    "ndtr": (0, 0.15865525393145707, 0.5, 0.5, 0.8413447460685429, 1, nan),
    "sinc": (nan, 0, 1, 1, 0, nan, nan),
}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", UNARY_MATH)
def test_the_ends_of_a_function(name: str, dtype: str) -> None:
    kind = ulp.DTYPES[dtype]
    got = native(name, dtype)(np.array(ENDS, kind))
    want = np.array(AT_ENDS[name], kind)
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(kind).eps, atol=0)
    signs = (want == 0) & (name != "sinc")
    np.testing.assert_array_equal(np.signbit(got)[signs], np.signbit(want)[signs])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    ("name", "peer"),
    [("pow", np.power), ("atan2", np.arctan2), ("hypot", np.hypot), ("fmod", np.fmod), ("logaddexp", np.logaddexp)],
)
def test_the_ends_of_a_function_of_two(name: str, peer: Any, dtype: str) -> None:
    kind = ulp.DTYPES[dtype]
    info = np.finfo(kind)
    ends = [0.0, 1, 2, 3, 0.5, 2.5, 1e30, float(info.max), float(info.smallest_subnormal), float(info.tiny), inf]
    grid = np.meshgrid(*[np.array([*ends, *(-x for x in ends), nan], kind)] * 2)
    first, second = (axis.ravel() for axis in grid)
    got = native(name, dtype)(first, second)
    with np.errstate(all="ignore"):
        want = peer(first.astype(np.longdouble), second.astype(np.longdouble)).astype(kind)
    np.testing.assert_allclose(got, want, rtol=2 * info.eps, atol=2 * info.smallest_subnormal)
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)])


# ---- exact results, hard arguments


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_what_is_exact_is_exact(dtype: str) -> None:
    kind = ulp.DTYPES[dtype]
    info = np.finfo(kind)
    powers = np.arange(info.minexp - info.nmant, info.maxexp).astype(kind)
    two = np.ldexp(kind.type(1), powers.astype(int))
    np.testing.assert_array_equal(native("exp2", dtype)(powers), two)
    np.testing.assert_array_equal(native("log2", dtype)(two), powers)
    whole = np.arange(-200, 201).astype(kind)
    np.testing.assert_array_equal(native("cbrt", dtype)(whole**3), whole)
    for k in range(4):
        np.testing.assert_array_equal(native("pow", dtype)(whole, np.full_like(whole, k)), whole**k)
    assert native("cos", dtype)(np.zeros(1, kind)) == 1
    np.testing.assert_array_equal(native("lgamma", dtype)(np.array([1, 2], kind)), 0)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_fmod_is_exact(dtype: str) -> None:
    x, y = ulp.points("fmod", dtype, 100_000)
    got = native("fmod", dtype)(x, y)
    want = np.fmod(x, y)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def nearest_to_multiples_of_half_pi() -> list[float]:
    """Return the float64 numbers of every tenth exponent that come closest to a multiple of π/2 (continued fractions)."""
    found = []
    with mpmath.mp.workprec(1400):
        for exponent in range(0, 1024, 10):
            rest = mpmath.pi / 2 / mpmath.mpf(2) ** (exponent - 52)
            before, now = 1, int(rest)
            numerator = []
            while now < 1 << 53:
                numerator.append(now)
                rest = 1 / (rest - int(rest))
                before, now = now, int(rest) * now + before
            found += [math.ldexp(n, exponent - 52) for n in numerator if n >= 1 << 52]
    return found


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_arguments_next_to_multiples_of_half_pi(name: str) -> None:
    arguments = np.array(nearest_to_multiples_of_half_pi())
    assert arguments.size > 50
    values = native(name, "f64")(arguments)
    worst = max(ulp.ulps(name, "f64", v, x) for v, x in zip(values.tolist(), arguments.tolist(), strict=True))
    assert worst <= LIMIT


def test_results_do_not_depend_on_the_width_of_vectors() -> None:
    for name in ("exp", "tan", "erfc", "pow"):
        for dtype in ("f32", "f64"):
            arguments = ulp.points(name, dtype, 3000)
            np.testing.assert_array_equal(ulp.native(name, dtype, 16)(*arguments), native(name, dtype)(*arguments))

"""The meaning of kernels: against NumPy, and the operations against exact arithmetic."""

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.loops.programs import program
from wengert.errors import KernelError
from wengert.loops.evaluate import evaluate, iterations
from wengert.loops.numerics import OPERATIONS, convert, numpy_dtype, reinterpret
from wengert.loops.scalar import BINARY_MATH, OPS, UNARY_MATH
from wengert.loops.text import parse

X = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)


def run(name: str, shape: tuple[int, ...], **arrays: Any) -> Any:
    y = np.full(shape, 7, np.float32)
    evaluate(program(name), {**arrays, "y": y})
    return y


def test_softmax() -> None:
    e = np.exp(X - X.max(1, keepdims=True))
    np.testing.assert_allclose(run("softmax", X.shape, x=X), e / e.sum(1, keepdims=True), rtol=1e-6)


def test_any_strides() -> None:
    wide = np.zeros((10, 7), np.float32)[::2][::-1]
    evaluate(program("copy"), {"x": X[0, ::-1], "y": wide[0]})
    np.testing.assert_array_equal(wide[0], X[0, ::-1])
    np.testing.assert_array_equal(run("transpose", (7, 5), x=X), X.T)


def test_folds() -> None:
    np.testing.assert_allclose(run("columns", (7,), x=X), X.sum(0), rtol=1e-5)
    np.testing.assert_allclose(run("total", (), x=X[0]), X[0].sum() + 14 + X[0].mean(), rtol=1e-5)
    np.testing.assert_allclose(run("running", (7,), x=X[0]), np.cumsum(X[0]), rtol=1e-5)
    assert run("total", (), x=X[0, :0]) == 0


def test_guards() -> None:
    w = np.array([1, 2, 3], np.float32)
    np.testing.assert_allclose(run("convolve", (7,), x=X[0], w=w), np.convolve(X[0], w[::-1], "same"), rtol=1e-5)


def test_scatter_adds_every_duplicate() -> None:
    y = np.ones(3, np.float32)
    evaluate(program("scatter"), {"at": np.array([2, 0, 2, 2]), "x": np.array([1, 2, 3, 4], np.float32), "y": y})
    np.testing.assert_array_equal(y, [3, 1, 9])


def test_stages() -> None:
    np.testing.assert_array_equal(run("reverse", X.shape, x=X), X[:, ::-1] * 2)


FOLDS = {
    "sum": lambda x: x.sum(), "prod": lambda x: x.prod(), "max": lambda x: x.max(), "min": lambda x: x.min(),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["i32", "u8", "f64", "i64"])
@pytest.mark.parametrize("monoid", FOLDS)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 13])
def test_every_simple_fold(dtype: str, monoid: str, n: int) -> None:
    x = np.random.default_rng(n).integers(0, 9, n).astype(numpy_dtype(dtype))
    kernel = parse(f"kernel f(x: {dtype}[n], out y: {dtype}[])\n  fold i in 0:n\n    s = {monoid}(x[i])\n  y[] = s\n")
    y = np.empty((), x.dtype)
    evaluate(kernel, {"x": x, "y": y})
    assert y == FOLDS[monoid](x).astype(x.dtype)


@pytest.mark.parametrize(
    "values", [[3, 9, 9, 1], [math.nan, 2], [5, math.nan, 9, math.nan], [-math.inf], [math.inf, math.inf], [-0.0, 0.0]]
)
def test_the_place_of_the_largest_is_the_first(values: list[float]) -> None:
    kernel = parse(
        "kernel f(x: f64[n], out y: f64[2])\n  fold i in 0:n\n    s = argmax(x[i], i)\n  y[0] = s\n  y[1] = f64(s.1)\n"
    )
    y = np.empty(2)
    evaluate(kernel, {"x": np.array(values, np.float64), "y": y})
    np.testing.assert_array_equal(y, [np.max(values), np.argmax(values)])


def test_running_pairs() -> None:
    kernel = parse(
        "kernel f(x: f64[n], out y: f64[4])\n  fold i in 0:n\n    w = welford(1.0_f64, x[i], 0.0_f64)\n"
        "    l = log_sum_exp(x[i], 1.0_f64)\n  y[0] = w\n  y[1] = w.1\n  y[2] = w.2\n  y[3] = l + log(l.1)\n"
    )
    x = np.random.default_rng(0).normal(size=101)
    y = np.empty(4)
    evaluate(kernel, {"x": x, "y": y})
    np.testing.assert_allclose(y, [101, x.mean(), x.var() * 101, np.log(np.exp(x).sum())], rtol=1e-13)


def test_iterations_in_order() -> None:
    """A recurrence, and a store that is read in the same iteration."""
    kernel = parse("kernel f(inout x: i64[n])\n  for i in 2:n\n    x[i] = x[i - 1] + x[i - 2]\n    x[i] = x[i] + 0\n")
    x = np.array([0, 1, 0, 0, 0, 0, 0, 0])
    evaluate(kernel, {"x": x})
    np.testing.assert_array_equal(x, [0, 1, 1, 2, 3, 5, 8, 13])


def test_the_last_store_to_an_element_stays() -> None:
    kernel = parse("kernel f(out y: i64[1], out z: i64[2])\n  for i in 0:5\n    y[0] = i\n    z[i % 2] = i\n")
    y, z = np.zeros(1, np.int64), np.zeros(2, np.int64)
    evaluate(kernel, {"y": y, "z": z})
    assert (y[0], list(z)) == (4, [4, 3])


# ---- what is refused


def refused(text: str, message: str, **arrays: Any) -> None:
    params = {"a": np.float32(1)} if ", a: f32" in text else {}
    with pytest.raises(KernelError) as caught:
        evaluate(parse(text), arrays, params=params)
    assert message in str(caught.value)


def test_accesses_outside() -> None:
    x = np.arange(3, dtype=np.int64)
    refused(
        "kernel f(x: i64[n], out y: i64[n])\n  for i in 0:n\n    y[i] = x[i + 1]\n",
        "index 3 is outside of dimension 0 of x, which has 3",
        x=x,
        y=x,
    )
    refused(
        "kernel f(x: i64[n], out y: i64[n])\n  for i in 0:n\n    y[i - 1] = x[i]\n",
        "index -1 is outside of dimension 0 of y",
        x=x,
        y=x,
    )
    refused(
        "kernel f(x: i64[n], out y: i64[n])\n  y[0] = i64{1, 2}[n]\n",
        "index 3 is outside of dimension 0 of the table",
        x=x,
        y=x,
    )
    refused(
        "kernel f(x: i64[n], out y: i64[n])\n  stage s: i64[n]\n  s[n] = 1\n",
        "of s, which has 3 elements\n   3 |   s[n] = 1",
        x=x,
        y=x,
    )


def test_reads_before_writes() -> None:
    x = np.arange(3, dtype=np.int64)
    text = (
        "kernel f(x: i64[n], out y: i64[n])\n  for i in 0:n\n    y[i] = x[i] if i != 1\n"
        "  for i in 0:n\n    y[i] = y[i] + 1\n"
    )
    refused(text, "'y' is read where nothing has been written", x=x, y=x.copy())


def test_arguments_that_do_not_fit() -> None:
    x = np.arange(3, dtype=np.int64)
    text = "kernel f(x: i64[n], y: f32[n, 2], a: f32)\n"
    refused(text, "'y' is f32[3, 2], got an array float32[4, 2]", x=x, y=np.zeros((4, 2), np.float32))
    refused(text, "'x' is i64[3], got an array int32[3]", x=x.astype(np.int32), y=np.zeros((3, 2), np.float32))
    refused(text, "no array is given for 'y'", x=x)
    with pytest.raises(KernelError, match="no value is given for k, a"):
        evaluate(parse("kernel f[k](a: f32)\n"), {})


def test_the_range_of_a_call() -> None:
    text = "kernel f(out y: f32[n, m])\n  parallel i in 1:n step 2\n    parallel j in 0:m\n      y[i, j] = 0.0\n"
    assert iterations(parse(text), {"n": 8, "m": 5}) == 20
    assert iterations(parse(text), {"n": 0, "m": 5}) == 0
    assert iterations(program("copy"), {"n": 8}) == 1


# ---- operations


def test_every_operation_has_a_meaning() -> None:
    leaves = {"const", "var", "index", "param", "size", "load", "lookup", "cast", "bits"}
    assert set(OPERATIONS) == set(OPS) - leaves


EDGE = np.array([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 5e-324, 1e308, 3.5, -2.5])


def test_minimum_and_maximum() -> None:
    for a in EDGE:
        for b in EDGE:
            low, high = (
                float(OPERATIONS["minimum"](np.float64(a), np.float64(b))),
                float(OPERATIONS["maximum"](np.float64(a), np.float64(b))),
            )
            if math.isnan(a) or math.isnan(b):
                assert math.isnan(low)
                assert math.isnan(high)
            else:
                assert (repr(low), repr(high)) == (repr(float(a if a < b else b)), repr(float(a if a > b else b)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fma_rounds_once(dtype: Any) -> None:
    r = np.random.default_rng(1)
    a, b = (r.normal(size=2000).astype(dtype) for _ in range(2))
    c = (-a * b).astype(dtype) * dtype(1.0)  # cancellation shows a second rounding
    c[::2] = r.normal(size=1000).astype(dtype) * dtype(1e-6)
    found = OPERATIONS["fma"](a, b, c)
    for x, y, z, f in zip(a, b, c, found, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        step = Fraction(float(np.spacing(np.abs(f))))
        assert abs(Fraction(float(f)) - exact) <= step / 2


def test_fma_of_odd_values() -> None:
    def fma(a: float, b: float, c: float) -> float:
        return float(OPERATIONS["fma"](np.float64(a), np.float64(b), np.float64(c)))

    with np.errstate(all="ignore"):
        assert math.isnan(fma(math.inf, 0, 1))
        assert fma(1e308, 10, -math.inf) == -math.inf
        assert fma(1e308, 10, 0) == math.inf
        assert fma(-1e308, 10, 0) == -math.inf
        assert repr(fma(0.0, -1.0, 0.0)) == "0.0"
        assert repr(fma(0.0, -1.0, -0.0)) == "-0.0"
        assert fma(2.0, 3.0, -6.0) == 0


def test_conversions() -> None:
    x = np.array([math.nan, math.inf, -math.inf, 1e30, -1e30, 2.9, -2.9, 127.9, 128, -128.9, -129, 255.5, 256])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(convert(x, "i8"), [0, 0, 0, 0, 0, 2, -2, 127, -128, -128, 127, -1, 0])
        np.testing.assert_array_equal(convert(x, "u8"), [0, 0, 0, 0, 0, 2, 254, 127, 128, 128, 127, 255, 0])
        np.testing.assert_array_equal(
            convert(np.array([2.0**63, -(2.0**63), 2.0**62, math.nan]), "i64"), [-(2**63), -(2**63), 2**62, -(2**63)]
        )
        np.testing.assert_array_equal(convert(np.array([2.0**64, 2.0**63, -1.0]), "u64"), [0, 2**63, 2**64 - 1])
        np.testing.assert_array_equal(convert(np.array([2.0**31, -3e9], np.float32), "i32"), [-(2**31)] * 2)
        np.testing.assert_array_equal(convert(np.array([3e9, -1.0], np.float32), "u32"), [3_000_000_000, 2**32 - 1])
        np.testing.assert_array_equal(convert(np.array([300, -1]), "u8"), [44, 255])
        np.testing.assert_array_equal(convert(np.array([math.nan, 0.0, -0.0, 0.1]), "bool"), [True, False, False, True])
        np.testing.assert_array_equal(convert(np.array([1e300]), "f32"), [math.inf])


def test_a_double_is_rounded_once_to_bfloat16() -> None:
    """1 + 2⁻⁸ + 2⁻⁴⁰ lies just above the middle of two bfloat16 numbers; by way of float32 it would be on it."""
    x = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 1 + 2.0**-8 - 2.0**-40, math.inf, math.nan])
    found = convert(x, "bf16")
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found.astype(np.float64), [1 + 2.0**-7, 1.0, 1.0, math.inf, math.nan])


def test_integers_wrap_and_never_trap() -> None:
    with np.errstate(all="ignore"):
        low = np.int32(-(2**31))
        assert OPERATIONS["quotient"](low, np.int32(-1)) == low
        assert OPERATIONS["remainder"](low, np.int32(-1)) == 0
        assert OPERATIONS["quotient"](np.int32(7), np.int32(0)) == 0
        assert OPERATIONS["remainder"](np.int32(7), np.int32(0)) == 0
        assert [int(OPERATIONS["quotient"](np.int32(a), np.int32(b))) for a, b in ((7, 2), (-7, 2), (7, -2))] == [
            3,
            -4,
            -4,
        ]
        assert [int(OPERATIONS["remainder"](np.int32(a), np.int32(b))) for a, b in ((7, 2), (-7, 2), (7, -2))] == [
            1,
            1,
            -1,
        ]
        assert OPERATIONS["add"](np.uint8(200), np.uint8(100)) == 44
        assert OPERATIONS["abs"](low) == low
        assert OPERATIONS["shl"](np.int32(1), np.int32(32)) == 0
        assert OPERATIONS["shr"](np.int32(-8), np.int32(40)) == -1
        assert OPERATIONS["shr"](np.uint8(128), np.uint8(9)) == 0


def test_bits_are_kept() -> None:
    assert reinterpret(np.float32(1), "u32") == 0x3F800000
    assert repr(float(reinterpret(np.int64(-(2**63)), "f64"))) == "-0.0"


@pytest.mark.parametrize("name", [*UNARY_MATH, *BINARY_MATH])
def test_functions_of_float32_are_rounded_once(name: str) -> None:
    x = np.linspace(0.05, 0.95, 19).astype(np.float32)
    args = (x, x[::-1])[: OPS[name].arity]
    with np.errstate(invalid="ignore"):  # acosh is not defined here
        found = OPERATIONS[name](*args)
        expected = OPERATIONS[name](*(a.astype(np.float64) for a in args)).astype(np.float32)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)

"""What each scalar operation means, on NumPy arrays: the reference that generated code is compared with.

Mathematical functions of float32 are computed in float64 and rounded; the other operations are exact or correctly rounded.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np

from wengert.kernels.gamma import digamma, lgamma
from wengert.kernels.special import erf, erfc, erfinv, ndtr
from wengert.loops.scalar import DTYPES, is_integer

__all__ = ["OPERATIONS", "convert", "numpy_dtype", "reinterpret"]


@lru_cache(maxsize=len(DTYPES))
def numpy_dtype(name: str) -> Any:
    """Return NumPy's dtype of a name in ``scalar.DTYPES``."""
    if name == "bf16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    if name == "bool":
        return np.dtype(np.bool_)
    return np.dtype(f"{ {'f': 'float', 'i': 'int', 'u': 'uint'}[name[0]] }{name[1:]}")


def _in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compute in float64, and round once to the dtype of the operands."""

    def compute(*args: Any) -> Any:
        return np.asarray(function(*(np.asarray(a, np.float64) for a in args))).astype(args[0].dtype)[()]

    return compute


def _extreme(better: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``minimum`` and ``maximum``: a NaN wins, and of two that are equal (zeros of either sign too) the second."""

    def compute(a: Any, b: Any) -> Any:
        return np.where(better(a, b) | (a != a), a, b)[()]

    return compute


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return a + b and its rounding error, exactly (D. Knuth, TAOCP 2, section 4.2.2)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _to_odd(x: Any, rest: Any) -> Any:
    """Return float64 x + rest, where x is the nearest to it, rounded to odd instead (Boldo and Melquiond 2008)."""
    bits = np.asarray(x, np.float64).view(np.int64)
    even = (bits & 1) == 0
    away = (rest > 0) == (x > 0)
    moved = np.where(away, bits + 1, bits - 1).view(np.float64)
    return np.where(even & (rest != 0) & np.isfinite(x), moved, x)


def _fma_exact(a: float, b: float, c: float) -> float:
    if not (np.isfinite(a) and np.isfinite(b)):
        return a * b + c
    if not np.isfinite(c):
        return c  # a · b may only seem to overflow
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c  # exact, and its zero has the right sign
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def fma(a: Any, b: Any, c: Any) -> Any:
    """Return a · b + c rounded once."""
    if a.dtype == np.float32:
        product = np.asarray(a, np.float64) * np.asarray(b, np.float64)  # exact: 48 bits
        total, rest = _two_sum(product, np.asarray(c, np.float64))
        return _to_odd(total, rest).astype(np.float32)
    a, b, c = np.broadcast_arrays(a, b, c)
    return np.array([_fma_exact(*each) for each in zip(a.flat, b.flat, c.flat, strict=True)], np.float64).reshape(
        a.shape
    )


def _gelu_tanh(x: Any) -> Any:
    """x · sigmoid(2u), which is ½x(1 + tanh u) without its cancellation for negative x."""
    return x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


_MATH: Final[dict[str, Callable[..., Any]]] = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
                                            "sinh", "cosh", "tanh", "cbrt", "hypot", "fmod", "logaddexp", "sinc")},
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "atan2": np.arctan2, "pow": np.power, "erf": erf, "erfc": erfc, "erfinv": erfinv, "ndtr": ndtr,
    "lgamma": lgamma, "digamma": digamma,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(0, x),
    "log_sigmoid": lambda x: -np.logaddexp(0, -x),
    "gelu": lambda x: x * ndtr(x),
    "gelu_tanh": _gelu_tanh,
    "silu": lambda x: x / (1 + np.exp(-x)),
}  # fmt: skip

# Every operation with operands, but for the conversions: operands → result, all of one dtype.
OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    **{name: _in_double(function) for name, function in _MATH.items()},
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "quotient": np.floor_divide, "remainder": np.remainder,
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "fma": fma,
    "minimum": _extreme(np.less), "maximum": _extreme(np.greater),
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "copysign": np.copysign,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.bitwise_not,
    "shl": np.left_shift, "shr": np.right_shift,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "select": np.where, "rarely": np.where,
}  # fmt: skip


def convert(x: Any, dtype: str) -> Any:
    """Return a value of another dtype; integers wrap, and floats are converted as :func:`_to_integer` says."""
    new = numpy_dtype(dtype)
    if dtype == "bool":
        return x != 0
    if is_integer(dtype) and x.dtype.kind not in "iub":
        return _to_integer(np.asarray(x, np.float64), dtype, new)
    if dtype == "bf16" and x.dtype == np.float64:
        x = _odd_single(x)
    return x.astype(new)


def _to_integer(x: Any, dtype: str, new: Any) -> Any:
    """Convert as x86, and NumPy there: by way of 32 or 64 bits, the least number of which stands for what they cannot hold."""
    word = np.int32 if DTYPES[dtype] < 32 or dtype == "i32" else np.int64
    limit = -float(np.iinfo(word).min)
    large = (x >= limit) if dtype == "u64" else np.False_
    x = np.where(large, x - limit, x)
    found = np.where(np.abs(x) < limit, x, -limit).astype(word).astype(new)
    return np.where(large, found ^ new.type(1 << DTYPES[dtype] - 1), found)[()] if dtype == "u64" else found[()]


def _odd_single(x: Any) -> Any:
    """Return a float64 as a float32 rounded to odd: rounding that again rounds once."""
    y = x.astype(np.float32)
    bits = y.view(np.int32)
    back = y.astype(np.float64)
    inexact = (back != x) & (x == x) & ((bits & 1) == 0) & np.isfinite(x)
    moved = np.where(np.abs(back) > np.abs(x), bits - 1, bits + 1).astype(np.int32)
    return np.where(inexact, moved, bits).astype(np.int32).view(np.float32)


def reinterpret(x: Any, dtype: str) -> Any:
    """Return the same bits as another dtype."""
    return x.view(numpy_dtype(dtype))

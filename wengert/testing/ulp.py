"""How far vector mathematics is from the exact result, in units in the last place, and how fast it is beside NumPy.

``python -m wengert.testing.ulp`` prints the table for every function, ``… --points 20000 exp lgamma`` for some. Exact results
are mpmath's, with 50 digits. Points are of three kinds: uniform in intervals that matter for a function, of every
exponent of the format, and close to places where it is hard (zeros, poles, multiples of π/2).
"""

import argparse
import ctypes
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from mpmath import mp, mpf

from wengert.codegen.emit import emit
from wengert.codegen.engine import load as load_library
from wengert.codegen.target import host
from wengert.loops.ir import Buffer, Kernel, Loop, Store, load
from wengert.loops.ir import size as size_of_dimension
from wengert.loops.scalar import BINARY_MATH, UNARY_MATH, const, index, make, size_of

__all__ = ["DOMAINS", "EXACT", "Compiled", "Domain", "Worst", "exact", "main", "native", "points", "ulps", "worst"]

Array = np.ndarray[Any, Any]

DTYPES: Final[dict[str, Any]] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


def native(name: str, dtype: str, vector_bytes: int | None = None) -> "Compiled":
    """Return a function as compiled for this machine: arrays of ``dtype`` to an array.

    Args:
        vector_bytes: the width of vectors, the machine's by default.
    """
    arity = 2 if name in BINARY_MATH else 1
    names = [f"x{k}" for k in range(arity)]
    buffers = [Buffer("y", dtype, ("n",), (1,), "out"), *(Buffer(x, dtype, ("n",), (1,)) for x in names)]
    value = make(name, tuple(load(b, "i") for b in buffers[1:]))
    lanes = (vector_bytes or host().vector_bytes) // size_of(dtype)
    body = Loop("i", const(0, "i64"), size_of_dimension("n"), (Store("y", (index("i"),), value),), lanes=lanes)
    kernel = Kernel(name, tuple(buffers), ("n",), (body,))
    return Compiled(load_library(emit(kernel, "compute"), ["compute"]), DTYPES[dtype])


class Compiled:
    """A kernel of one output as a function of arrays of its dtype, all of one size."""

    def __init__(self, library: Any, dtype: Any) -> None:
        self._dtype = dtype
        self._call = library.function("compute", None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

    def __call__(self, *arguments: Any, out: Array | None = None) -> Array:
        arrays = [np.ascontiguousarray(a, self._dtype) for a in arguments]
        result = np.empty_like(arrays[0]) if out is None else out
        slots = np.array([result.ctypes.data, *(a.ctypes.data for a in arrays), result.size], np.int64)
        self._call(slots.ctypes.data, 0, 1)
        return result


# ---- exact results


def _refined_erfinv(x: Any) -> Any:
    y = mp.erfinv(x)
    for _ in range(2):  # mpmath's result has few digits near ±1
        lack = mp.erf(y) - x if abs(x) < 0.5 else mp.sign(x) * (1 - abs(x) - mp.erfc(abs(y)))
        y -= lack * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
    return y


def _log_gamma(x: Any) -> Any:
    return mp.loggamma(x) if x > 0 else mp.log(mp.pi / abs(x * mp.sinpi(x))) - mp.loggamma(-x)


def _logaddexp(a: Any, b: Any) -> Any:
    return max(a, b) + mp.log1p(mp.exp(-abs(a - b)))


def _gelu_tanh(x: Any) -> Any:
    return x / (1 + mp.exp(-2 * mp.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3)))


EXACT: Final[dict[str, Callable[..., Any]]] = {
    **{n: getattr(mp, n) for n in ("exp", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
                                   "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "digamma", "atan2", "hypot")},
    "exp2": lambda x: mpf(2) ** x, "log2": lambda x: mp.log(x) / mp.ln2, "log10": lambda x: mp.log(x) / mp.ln10,
    "erfinv": _refined_erfinv, "lgamma": _log_gamma, "rsqrt": lambda x: 1 / mp.sqrt(x),
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)), "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "softplus": lambda x: mp.log1p(mp.exp(x)), "log_sigmoid": lambda x: -mp.log1p(mp.exp(-x)),
    "gelu": lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2, "gelu_tanh": _gelu_tanh, "silu": lambda x: x / (1 + mp.exp(-x)),
    "ndtr": lambda x: mp.erfc(-x / mp.sqrt(2)) / 2, "sinc": mp.sincpi, "pow": lambda x, y: x**y,
    "fmod": lambda x, y: mpf(math.fmod(x, y)), "logaddexp": _logaddexp,
}  # fmt: skip

# What an error is compared with where terms of this size cancel; otherwise the result.
TERMS: Final[dict[str, Callable[..., Any]]] = {
    "lgamma": lambda x: abs(mp.loggamma(-x)) if x < 0 else mpf(0),
    "digamma": lambda x: abs(mp.digamma(-x) - 1 / x) if x < 0 else mpf(0),
    "logaddexp": lambda a, b: abs(max(a, b)),
}


def exact(name: str, *arguments: float) -> Any:
    """Return the exact result for finite arguments in the domain, an mpmath number."""
    with mp.workdps(50):
        return EXACT[name](*map(mpf, arguments))


def ulps(name: str, dtype: str, value: float, *arguments: float) -> float:
    """Return the error of a value in units in the last place of the exact result; 0 if that overflows as the value does."""
    info = np.finfo(DTYPES[dtype])
    with mp.workdps(50):
        want = exact(name, *arguments)
        size = max(abs(want), TERMS[name](*map(mpf, arguments))) if name in TERMS else abs(want)
        if math.isinf(value):
            value = math.copysign(2.0 ** (info.maxexp - 1), value)  # half the next power, as the last is no float
            over = abs(want) >= mpf(float(info.max)) * (1 + mpf(2) ** (-info.nmant - 2))
            return 0.0 if over and (want > 0) == (value > 0) else math.inf
        exponent = max(mp.frexp(size)[1] - 1 if size else info.minexp, int(info.minexp))
        return float(abs(mpf(value) - want) / mp.ldexp(1, exponent - info.nmant))


# ---- points


class Domain(NamedTuple):
    """Where a function is measured.

    Attributes:
        intervals: with uniform points; speed is measured on the first. low, high: the bounds of points of every exponent.
        hard: places that points are put close to.
    """

    intervals: tuple[tuple[float, float], ...]
    low: float = -math.inf
    high: float = math.inf
    hard: tuple[float, ...] = (0.0,)


_QUARTERS: Final = tuple(k * math.pi / 2 for k in (*range(1, 9), 100, 12345, 10**6, 10**9))

DOMAINS: Final[dict[str, Domain]] = {
    "exp": Domain(((-5, 5), (-104, 89), (-746, 710))), "exp2": Domain(((-5, 5), (-150, 128), (-1075, 1024))),
    "expm1": Domain(((-1, 1), (-40, 89), (-40, 710))), "log": Domain(((0.1, 5), (0.9, 1.1)), 0, hard=(1,)),
    "log2": Domain(((0.1, 5), (0.9, 1.1)), 0, hard=(1,)), "log10": Domain(((0.1, 5), (0.9, 1.1)), 0, hard=(1,)),
    "log1p": Domain(((-0.9, 5), (-1, 0)), -1), "sin": Domain(((-5, 5), (-1e5, 1e5)), hard=_QUARTERS),
    "cos": Domain(((-5, 5), (-1e5, 1e5)), hard=_QUARTERS), "tan": Domain(((-5, 5), (-1e5, 1e5)), hard=_QUARTERS),
    "asin": Domain(((-1, 1),), -1, 1, (-1, -0.5, 0.5, 1)), "acos": Domain(((-1, 1),), -1, 1, (-1, -0.5, 0.5, 1)),
    "atan": Domain(((-4, 4),), hard=(0.55, 1.82)), "sinh": Domain(((-5, 5), (-1.1, 1.1), (-89.4, 89.4), (-710, 710))),
    "cosh": Domain(((-5, 5), (-89.4, 89.4), (-710, 710))), "tanh": Domain(((-5, 5), (-0.7, 0.7), (-20, 20))),
    "asinh": Domain(((-4, 4),)), "acosh": Domain(((1, 6), (1, 1.01)), 1, hard=(1,)),
    "atanh": Domain(((-1, 1),), -1, 1, (-1, 1)), "erf": Domain(((-3, 3), (-6, 6))),
    "erfc": Domain(((-3, 3), (-6, 10), (0, 27.3)), -1e6, 1e6), "erfinv": Domain(((-0.95, 0.95),), -1, 1, (-1, 1)),
    "lgamma": Domain(((0.1, 10), (-10, 0), (3, 300), (1.4, 1.6)), 0, hard=(1, 2, 4, 1e-300)),
    "digamma": Domain(((0.1, 10), (-10, 0), (3, 300)), 0, hard=(1.4616321449683623, 1, 2, 4, 1e-300)),
    "rsqrt": Domain(((0.1, 10),), 0), "cbrt": Domain(((-10, 10),)), "sigmoid": Domain(((-5, 5), (-104, 20), (-746, 0))),
    "softplus": Domain(((-5, 5), (-104, 20), (-746, 0))), "log_sigmoid": Domain(((-5, 5), (-20, 104), (0, 746))),
    "gelu": Domain(((-3, 3), (-15, 6), (-38.7, 0)), -1e6, 1e6), "gelu_tanh": Domain(((-3, 3), (-12, 6), (-22, 0))),
    "silu": Domain(((-5, 5), (-107, 20), (-750, 0))), "ndtr": Domain(((-3, 3), (-15, 6), (-38.7, 0)), -1e6, 1e6),
    "sinc": Domain(((-5, 5), (-1000, 1000)), -1e15, 1e15, (1, 2, 7, 100)),
    "pow": Domain(((0.1, 5), (0.5, 2)), 0, hard=(1,)), "atan2": Domain(((-3, 3),)), "hypot": Domain(((-3, 3),)),
    "fmod": Domain(((-9, 9),)), "logaddexp": Domain(((-3, 3), (-60, 60)), -1e4, 1e4),
}  # fmt: skip


def _of_every_exponent(generator: Any, kind: Any, count: int) -> Array:
    words = generator.integers(0, 1 << (8 * kind.itemsize), count, np.uint64 if kind.itemsize == 8 else np.uint32)
    values = words.view(kind)
    return values[np.isfinite(values)].astype(np.float64)


def _close_to(generator: Any, places: Sequence[float], kind: Any, count: int) -> Array:
    steps = generator.integers(-64, 65, (len(places), max(1, count // len(places))))
    return (np.array(places)[:, None] * (1 + steps * float(np.finfo(kind).eps))).ravel()


def points(name: str, dtype: str, count: int) -> tuple[Array, ...]:
    """Return about ``count`` arguments inside the domain of a function, an array for each of its arguments."""
    generator = np.random.default_rng([*name.encode()])
    domain, kind, share = DOMAINS[name], DTYPES[dtype], count // 3
    columns: list[Array] = []
    for _ in range(2 if name in BINARY_MATH else 1):
        parts = [generator.uniform(*ends, share // len(domain.intervals)) for ends in domain.intervals]
        parts += [_of_every_exponent(generator, kind, share), _close_to(generator, domain.hard, kind, share)]
        columns.append(generator.permutation(np.concatenate(parts)))
    with np.errstate(all="ignore"):
        columns = [c[: min(map(len, columns))].astype(kind) for c in columns]
        if name == "pow":  # exponents with which the result is in range
            reach = math.log(float(np.finfo(kind).max)) * generator.uniform(-1.05, 1, len(columns[0]))
            columns[1] = (reach / np.log(columns[0].astype(np.float64))).astype(kind)
        inside = np.isfinite(columns).all(axis=0)
        for column in columns if name == "logaddexp" else columns[:1]:
            inside &= (column > domain.low) & (column < domain.high)
        if name in ("lgamma", "digamma"):  # their poles
            inside &= (columns[0] > 0) | (columns[0] != np.floor(columns[0]))
        if name == "fmod":
            inside &= columns[1] != 0
    return tuple(c[inside] for c in columns)


class Worst(NamedTuple):
    """The largest error in ulp, and the arguments that have it."""

    error: float
    arguments: tuple[float, ...]


def worst(name: str, dtype: str, count: int, function: Callable[..., Array] | None = None) -> Worst:
    """Return the largest error of a compiled function over its points."""
    columns = points(name, dtype, count)
    values = (function or native(name, dtype))(*columns)
    found = Worst(-1.0, ())
    for value, *arguments in zip(values.tolist(), *(c.tolist() for c in columns), strict=True):
        error = ulps(name, dtype, value, *arguments)
        if not error <= found.error:  # a NaN counts too
            found = Worst(error, tuple(arguments))
    return found


# ---- speed, and the table

_NUMPY: Final[dict[str, Callable[..., Any]]] = {
    **{n: getattr(np, n) for n in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh",
                                   "tanh", "cbrt", "hypot", "fmod", "logaddexp", "sinc")},
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "atan2": np.arctan2, "pow": np.power, "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)), "softplus": lambda x: np.logaddexp(x.dtype.type(0), x),
    "log_sigmoid": lambda x: -np.logaddexp(x.dtype.type(0), -x),
}  # fmt: skip


def nanoseconds(function: Callable[..., Any], arguments: Sequence[Array], **options: Any) -> float:
    """Return the median time per element."""
    times = []
    for _ in range(31):
        begin = time.perf_counter()
        function(*arguments, **options)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) / arguments[0].size * 1e9


def row(name: str, dtype: str, count: int) -> str:
    """Return a line of the table: the worst error and where, and nanoseconds per element here and in NumPy."""
    function = native(name, dtype)
    found = worst(name, dtype, count, function)
    generator, ends = np.random.default_rng(0), DOMAINS[name].intervals[0]
    arguments = [generator.uniform(*ends, 1 << 14).astype(DTYPES[dtype]) for _ in points(name, dtype, 30)]
    if name == "pow":
        arguments[1] -= 2
    ours = nanoseconds(function, arguments, out=np.empty_like(arguments[0]))
    peer = f"{nanoseconds(_NUMPY[name], arguments):8.2f}" if name in _NUMPY else "       –"
    where = ", ".join(map(repr, found.arguments))
    return f"{name:12} {dtype}  {found.error:6.3f}  {ours:8.2f} {peer}   {where}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m wengert.testing.ulp", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="function", help="the functions; all by default")
    parser.add_argument("--points", type=int, default=3000, help="how many points, for each function and format")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(EXACT))
    if unknown:
        parser.error(f"no functions {', '.join(unknown)}; there are {', '.join(EXACT)}")
    print("function     format  ulp    ns here ns NumPy   at")
    for name in options.names or (*UNARY_MATH, *BINARY_MATH):
        for dtype in DTYPES:
            print(row(name, dtype, options.points), flush=True)


if __name__ == "__main__":
    main()

"""Normalisation: layer and rms norm, group and instance norm, batch norm, forward and backward.

The input is seen as (n, groups, channels, length), as :mod:`wengert.operators.normalized` has it. Moments are taken in
float64, in which the square of no float32 overflows, in two passes (and the rounding of the mean is taken out of the
variance). With d = x - mean, r = (var + eps)^(-1/2), u = g·w and M the mean over the n elements of a group,

    y = d·r·w + b,    dx = r·u - r·M(u) - r³·d·M(u·d) + (g_mean + 2·g_var·d) / n.

Sums over samples are partial sums of a fixed number of samples each, added up by :func:`column_sums`: they do not depend on
the number of threads.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from wengert.loops.ir import Buffer, Kernel, Loop, Param, Statement, Store, bound, load, size
from wengert.loops.rows import UNROLL, Lines, Reduction, arithmetic, chunked
from wengert.loops.scalar import Scalar, cast, const, index, make, param, select

__all__ = [
    "SAMPLES", "batch_norm", "batch_norm_backward", "column_sums", "columns_norm", "columns_norm_backward", "group_norm",
    "group_norm_backward", "layer_norm", "layer_norm_backward",
]  # fmt: skip

SAMPLES: Final = 64  # whose contributions to the gradients of weight and bias are summed in the dtype of the elements

LEAST: Final = 1e-30
MOST: Final = 1e30  # between which no square that matters has left the range of float32

EPS: Final = Param("eps", "f64")
F64: Final = "f64"

Fold = Callable[..., Loop]


def fma(a: Scalar, b: Scalar, c: Scalar) -> Scalar:
    """Return a·b + c."""
    return make("fma", (a, b, c))


class Moments(NamedTuple):
    """Mean and variance in float64, and the loops that find them."""

    mean: Scalar
    var: Scalar
    loops: tuple[Statement, ...]


def moments(fold: Fold, x: Scalar, count: Scalar, center: bool = True, *, wide: bool = False) -> Moments:
    """Return the moments of what ``fold`` runs over; without ``center`` the mean square.

    Those of float32 are sums of float32 (unless ``wide``), and are taken again in float64 where squares may have left the
    range of float32: then the loop runs, whose last argument says so.
    """
    if x.dtype == F64 or wide:
        return _moments(fold, cast(x, F64), count, center, "")
    quick = _moments(fold, x, count, center, "")
    usual = quick.var.gt(LEAST) & quick.var.lt(MOST)

    def otherwise(*reductions: Reduction) -> Loop:
        loop = fold(*reductions)
        return replace(loop, stop=select(usual, loop.start, loop.stop))

    exact = _moments(otherwise, cast(x, F64), count, center, "exact_")
    mean, var = (select(usual, a, b) for a, b in zip(quick[:2], exact[:2], strict=True))
    return Moments(mean, var, (*quick.loops, *exact.loops))


def _moments(fold: Fold, x: Scalar, count: Scalar, center: bool, prefix: str) -> Moments:
    """Return the moments of x by sums in its dtype; what the rounding of the mean left is added to it."""
    if not center:
        square = Reduction(f"{prefix}square", "sum", x * x)
        return Moments(const(0, F64), square.result / count, (fold(square),))
    total = Reduction(f"{prefix}total", "sum", x)
    near = cast(total.result / count, x.dtype)
    off = x - near
    rest, square = Reduction(f"{prefix}rest", "sum", off), Reduction(f"{prefix}square", "sum", off * off)
    gap, close = rest.result / count, cast(near, F64)
    mean = select(close.gt(-math.inf) & close.lt(math.inf), close + gap, close)  # of infinite numbers: no gap to them
    return Moments(mean, square.result / count - gap * gap, (fold(total), fold(rest, square)))


def spread(var: Scalar) -> Scalar:
    """Return (var + eps)^(-1/2)."""
    return 1.0 / make("sqrt", (var + param("eps", F64),))


def deviation(x: Scalar, mean: Scalar, factor: Scalar, center: bool) -> Scalar:
    """Return (x - mean)·factor in the dtype of x, with the digits of a float64 mean."""
    scale = cast(factor, x.dtype)
    if not center:
        return x * scale
    near = cast(mean, x.dtype)
    if x.dtype == F64:
        return (x - near) * scale
    return fma(x - near, scale, cast((cast(near, F64) - mean) * factor, x.dtype))


def affine(unit: Scalar, weight: Scalar | None, bias: Scalar | None) -> Scalar:
    """Return unit·weight + bias."""
    if weight is None:
        return unit if bias is None else unit + bias
    return unit * weight if bias is None else fma(unit, weight, bias)


class Arrays:
    """The arguments of a kernel: buffers by name, and their elements in the dtype of the computation.

    Args:
        dtype: of the elements of x, y, g and dx. dims: the sizes of these, the last of which lies in memory as neighbours.
    """

    def __init__(self, dtype: str, dims: Sequence[str]) -> None:
        self.dtype, self.wide, self.dims = dtype, arithmetic(dtype), tuple(dims)
        self.buffers: list[Buffer] = []

    def add(self, name: str, dtype: str, dims: Sequence[str], role: str = "in") -> Buffer:
        """Add a buffer whose last dimension is neighbours in memory."""
        strides = (*(None,) * (len(dims) - 1), 1)
        self.buffers.append(Buffer(name, dtype, tuple(dims), strides, role))
        return self.buffers[-1]

    def full(self, name: str, *at: str) -> Scalar:
        """Add an input with all elements and return one."""
        return cast(load(self.add(name, self.dtype, self.dims), *at), self.wide)

    def some(self, name: str, dtype: str | None, dims: Sequence[str], *at: str | Scalar) -> Scalar | None:
        """Add an input, unless its dtype is None, and return an element in the dtype of the computation."""
        return None if dtype is None else cast(load(self.add(name, dtype, dims), *at), self.wide)

    def moment(self, name: str, dims: Sequence[str], *at: str) -> Scalar:
        """Add a moment that is given, and return it."""
        return load(self.add(name, F64, dims), *at)


def nest(*loops: tuple[str, str], body: Sequence[Statement]) -> Loop:
    """Return parallel loops over whole sizes: (variable, size), outermost first."""
    for variable, limit in reversed(loops):
        body = (Loop(variable, bound(0), bound(limit), tuple(body), parallel=True),)
    found = body[0]
    assert isinstance(found, Loop)
    return found


def each(variable: str, limit: str, *body: Statement, lanes: int = 1) -> Loop:
    """Return a loop over a whole size."""
    return Loop(variable, bound(0), bound(limit), body, lanes=lanes)


def along(variable: str, limit: str, lanes: int) -> Fold:
    """Return a function that folds along a size, in vectors."""
    return lambda *reductions: chunked(variable, bound(0), size(limit), reductions, lanes=lanes, unroll=UNROLL)


def float_of(*sizes: str) -> Scalar:
    """Return the product of sizes as a float64."""
    found = size(sizes[0])
    for name in sizes[1:]:
        found = found * size(name)
    return cast(found, F64)


# ---- layer norm: each element of a group has a weight


LAYER: Final = ("n", "groups", "channels")


def layer_norm(dtype: str, weight: str | None, bias: str | None, center: bool, lanes: int) -> Kernel:
    """(x, weight, bias) → (y, mean, var), where the length is 1; weight and bias may be absent."""
    a, row = Arrays(dtype, LAYER), ("i", "group")
    x = a.full("x", "i", "group", "k")
    w, b = (a.some(n, d, LAYER[1:], "group", "k") for n, d in (("weight", weight), ("bias", bias)))
    y = a.add("y", dtype, LAYER, "out")
    mean, var = (a.add(n, F64, LAYER[:2], "out") for n in ("mean", "var"))
    found = moments(along("k", "channels", lanes), x, float_of("channels"), center)
    unit = deviation(x, found.mean, spread(found.var), center)
    at = tuple(map(index, row))
    body = (
        *found.loops, Store(mean.name, at, found.mean), Store(var.name, at, found.var),
        each("k", "channels", Store(y.name, (*at, index("k")), cast(affine(unit, w, b), dtype)), lanes=lanes),
    )  # fmt: skip
    return Kernel("layer_norm", tuple(a.buffers), LAYER, (nest(("i", "n"), ("group", "groups"), body=body),), (EPS,))


def layer_norm_backward(dtype: str, weight: str | None, center: bool, lanes: int) -> Kernel:
    """(g, x, weight, mean, var, g_mean, g_var) → dx, and sums over ``SAMPLES`` samples of what goes to weight and bias."""
    a, row = Arrays(dtype, LAYER), ("i", "group")
    g, x = a.full("g", "i", "group", "k"), a.full("x", "i", "group", "k")
    w = a.some("weight", weight, LAYER[1:], "group", "k")
    mean, var, to_mean, to_var = (a.moment(n, LAYER[:2], *row) for n in ("mean", "var", "g_mean", "g_var"))
    a.add("dx", dtype, LAYER, "out")
    sums = [a.add(n, a.wide, ("blocks", *LAYER[1:]), "inout") for n in ("to_weight", "to_bias")]
    count, r = float_of("channels"), spread(var)
    unit, u = deviation(x, mean, r, center), g if w is None else g * w
    total, product = Reduction("total", "sum", u), Reduction("product", "sum", u * unit)
    constant = (to_mean - r * total.result) / count if center else const(0, F64)
    linear = (2.0 * to_var / r - r * product.result) / count
    slope, linear, constant = (cast(v, a.wide) for v in (r, linear, constant))
    dx = fma(u, slope, fma(unit, linear, constant))
    at, block = (index("i"), index("group"), index("k")), make("quotient", (index("first"), const(SAMPLES, "i64")))
    part = block, index("group"), index("k")
    adds = [Store(b.name, part, v, add=True) for b, v in zip(sums, (g * unit, g), strict=True)]
    clear = [Store(b.name, part, const(0, a.wide)) for b in sums]
    reductions = (total, product) if center else (product,)
    rows = each(
        "group", "groups", along("k", "channels", lanes)(*reductions),
        each("k", "channels", Store("dx", at, cast(dx, dtype)), *adds, lanes=lanes),
    )  # fmt: skip
    body = (
        each("group", "groups", each("k", "channels", *clear, lanes=lanes)),
        Loop("i", index("first"), make("minimum", (index("first") + SAMPLES, size("n"))), (rows,)),
    )
    blocks = Loop("first", bound(0), bound("n"), body, step=SAMPLES, parallel=True)
    return Kernel("layer_norm_backward", tuple(a.buffers), (*LAYER, "blocks"), (blocks,), (EPS,))


def column_sums(dtype: str, result: str, lanes: int) -> Kernel:
    """Two times: parts → their sums over the first dimension, in float64."""
    lines = Lines(True, lanes)
    buffers: list[Buffer] = []
    body: list[Statement] = []
    for name in ("weight", "bias"):
        parts, out = lines.elements(f"{name}_parts", dtype), lines.single(name, result, "out")
        total = Reduction(f"{name}_total", "sum", cast(lines.read(parts, dtype), F64))
        buffers += [parts, out]
        body += [lines.fold(total), Store(name, lines.line, cast(total.result, result))]
    return lines.kernel("column_sums", buffers, body)


# ---- group norm: the positions of a channel share a weight


GROUP: Final = ("n", "groups", "channels", "length")


def group_norm(dtype: str, weight: str | None, bias: str | None, center: bool, lanes: int) -> Kernel:
    """(x, x as (n, groups, all), weight, bias) → (y, mean, var)."""
    a, row = Arrays(dtype, GROUP), ("i", "group")
    x = a.full("x", "i", "group", "k", "l")
    whole = cast(load(a.add("flat", dtype, ("n", "groups", "all")), "i", "group", "j"), a.wide)
    w, b = (a.some(n, d, GROUP[1:3], "group", "k") for n, d in (("weight", weight), ("bias", bias)))
    y = a.add("y", dtype, GROUP, "out")
    mean, var = (a.add(n, F64, GROUP[:2], "out") for n in ("mean", "var"))
    found = moments(along("j", "all", lanes), whole, float_of("all"), center)
    r, at = spread(found.var), tuple(map(index, row))
    result = shifted(x, found.mean, r if w is None else r * cast(w, F64), b, center)
    body = (
        *found.loops, Store(mean.name, at, found.mean), Store(var.name, at, found.var),
        each("k", "channels", each(
            "l", "length", Store(y.name, (*at, index("k"), index("l")), cast(result, dtype)), lanes=lanes)),
    )  # fmt: skip
    sizes = (*GROUP, "all")
    return Kernel("group_norm", tuple(a.buffers), sizes, (nest(("i", "n"), ("group", "groups"), body=body),), (EPS,))


def shifted(x: Scalar, mean: Scalar, factor: Scalar, bias: Scalar | None, center: bool) -> Scalar:
    """Return (x - mean)·factor + bias, one multiplication and one addition after the mean is taken out."""
    scale, near = cast(factor, x.dtype), cast(mean, x.dtype)
    if not center:
        return x * scale if bias is None else fma(x, scale, bias)
    shift = (cast(near, F64) - mean) * factor
    shift = shift if bias is None else shift + cast(bias, F64)
    return fma(x - near, scale, cast(shift, x.dtype))


def group_norm_backward(dtype: str, weight: str | None, center: bool, lanes: int) -> Kernel:
    """(g, x, weight, mean, var, g_mean, g_var) → dx, and of each sample what goes to weight and bias."""
    a, row = Arrays(dtype, GROUP), ("i", "group")
    g, x = (a.full(n, "i", "group", "k", "l") for n in ("g", "x"))
    w = a.some("weight", weight, GROUP[1:3], "group", "k")
    w = const(1, F64) if w is None else cast(w, F64)
    mean, var, to_mean, to_var = (a.moment(n, GROUP[:2], *row) for n in ("mean", "var", "g_mean", "g_var"))
    a.add("dx", dtype, GROUP, "out")
    for name in ("to_weight", "to_bias"):
        a.add(name, F64, GROUP[:3], "out")
    r = spread(var)
    off = deviation(x, mean, const(1, F64), center)
    total, product = Reduction("total", "sum", g), Reduction("product", "sum", g * off)
    totals, products = Reduction("totals", "sum", total.result * w), Reduction("products", "sum", product.result * w)
    linear = 2.0 * to_var - r * r * r * products.result
    constant = to_mean - r * totals.result if center else const(0, F64)
    line = Line(off, g, linear / float_of("channels", "length"), constant / float_of("channels", "length"), r * w)
    at = tuple(map(index, (*row, "k")))
    sums = (
        along("l", "length", lanes)(total, product),
        Store("to_weight", at, product.result * r), Store("to_bias", at, total.result),
    )  # fmt: skip
    body = (
        chunked("k", bound(0), size("channels"), (totals, products), sums),
        each("k", "channels", each("l", "length", Store("dx", (*at, index("l")), line.cast(dtype)), lanes=lanes)),
    )
    loops = (nest(("i", "n"), ("group", "groups"), body=body),)
    return Kernel("group_norm_backward", tuple(a.buffers), GROUP, loops, (EPS,))


class Line(NamedTuple):
    """The cotangent of x: off·linear + constant + g·slope; the last three are the same for many elements."""

    off: Scalar
    g: Scalar
    linear: Scalar
    constant: Scalar
    slope: Scalar

    def cast(self, dtype: str) -> Scalar:
        """Return it in the dtype it has in memory."""
        linear, constant, slope = (cast(v, self.g.dtype) for v in self[2:])
        return cast(fma(self.g, slope, fma(self.off, linear, constant)), dtype)


# ---- batch norm: moments of each channel over samples and positions


BATCH: Final = ("n", "channels", "length")


def over_samples(lanes: int) -> Fold:
    """Return a function that folds over the positions of all samples."""

    def fold(*reductions: Reduction) -> Loop:
        inner = [r._replace(name=f"{r.name}_row") for r in reductions]
        sums = [r._replace(value=i.result) for r, i in zip(reductions, inner, strict=True)]
        return chunked("i", bound(0), size("n"), sums, [along("l", "length", lanes)(*inner)])

    return fold


def batch_norm(dtype: str, weight: str | None, bias: str | None, lanes: int) -> Kernel:
    """(x, weight, bias) → (y, mean, var), for lengths above 1."""
    a = Arrays(dtype, BATCH)
    x = a.full("x", "i", "c", "l")
    w, b = (a.some(n, d, BATCH[1:2], "c") for n, d in (("weight", weight), ("bias", bias)))
    a.add("y", dtype, BATCH, "out")
    for name in ("mean", "var"):
        a.add(name, F64, BATCH[1:2], "out")
    found = moments(over_samples(lanes), x, float_of("n", "length"))
    r, at = spread(found.var), tuple(map(index, "icl"))
    y = shifted(x, found.mean, r if w is None else r * cast(w, F64), b, True)
    body = (
        *found.loops, Store("mean", (index("c"),), found.mean), Store("var", (index("c"),), found.var),
        each("i", "n", each("l", "length", Store("y", at, cast(y, dtype)), lanes=lanes)),
    )  # fmt: skip
    return Kernel("batch_norm", tuple(a.buffers), BATCH, (nest(("c", "channels"), body=body),), (EPS,))


def _batch_cotangent(
    x: Scalar, g: Scalar, w: Scalar | None, count: Scalar, given: Sequence[Scalar]
) -> tuple[Line, tuple[Reduction, Reduction], Scalar]:
    """Return the cotangent of x, the sums that it needs, and r; ``given``: mean, var, and their cotangents."""
    mean, var, to_mean, to_var = given
    r = spread(var)
    off = deviation(x, mean, const(1, F64), True)
    total, product = Reduction("total", "sum", g), Reduction("product", "sum", g * off)
    slope = r if w is None else r * cast(w, F64)
    linear = (2.0 * to_var - slope * r * r * product.result) / count
    constant = (to_mean - slope * total.result) / count
    return Line(off, g, linear, constant, slope), (total, product), r


def batch_norm_backward(dtype: str, weight: str | None, lanes: int) -> Kernel:
    """(g, x, weight, mean, var, g_mean, g_var) → (dx, to_weight, to_bias)."""
    a = Arrays(dtype, BATCH)
    g, x = (a.full(n, "i", "c", "l") for n in ("g", "x"))
    w = a.some("weight", weight, BATCH[1:2], "c")
    given = [a.moment(n, BATCH[1:2], "c") for n in ("mean", "var", "g_mean", "g_var")]
    a.add("dx", dtype, BATCH, "out")
    for name in ("to_weight", "to_bias"):
        a.add(name, a.wide, BATCH[1:2], "out")
    line, (total, product), r = _batch_cotangent(x, g, w, float_of("n", "length"), given)
    at, channel = tuple(map(index, "icl")), (index("c"),)
    body = (
        over_samples(lanes)(total, product),
        Store("to_weight", channel, cast(product.result * r, a.wide)),
        Store("to_bias", channel, cast(total.result, a.wide)),
        each("i", "n", each("l", "length", Store("dx", at, line.cast(dtype)), lanes=lanes)),
    )
    return Kernel("batch_norm_backward", tuple(a.buffers), BATCH, (nest(("c", "channels"), body=body),), (EPS,))


def columns_norm(dtype: str, weight: str | None, bias: str | None, lanes: int) -> Kernel:
    """batch_norm of a length of 1: channels lie side by side."""
    lines, wide = Lines(True, lanes), arithmetic(dtype)
    x, y = lines.elements("x", dtype), lines.elements("y", dtype, "out")
    given = {n: lines.single(n, d) for n, d in (("weight", weight), ("bias", bias)) if d is not None}
    w, b = (lines.read(given[n], wide) if n in given else None for n in ("weight", "bias"))
    mean, var = (lines.single(n, F64, "out") for n in ("mean", "var"))
    found = moments(lines.fold, lines.read(x, wide), float_of("size"), wide=True)
    r = spread(found.var)
    result = shifted(lines.read(x, wide), found.mean, r if w is None else r * cast(w, F64), b, True)
    body = (
        *found.loops, Store("mean", lines.line, found.mean), Store("var", lines.line, found.var),
        lines.each(Store("y", lines.element(), cast(result, dtype))),
    )  # fmt: skip
    return lines.kernel("columns_norm", [x, *given.values(), y, mean, var], body, EPS)


def columns_norm_backward(dtype: str, weight: str | None, lanes: int) -> Kernel:
    """batch_norm_backward of a length of 1."""
    lines, wide = Lines(True, lanes), arithmetic(dtype)
    g, x, dx = (lines.elements(n, dtype, "out" if n == "dx" else "in") for n in ("g", "x", "dx"))
    given = [] if weight is None else [lines.single("weight", weight)]
    w = lines.read(given[0], wide) if given else None
    moments_ = [lines.single(n, F64) for n in ("mean", "var", "g_mean", "g_var")]
    sums = [lines.single(n, wide, "out") for n in ("to_weight", "to_bias")]
    line, (total, product), r = _batch_cotangent(
        lines.read(x, wide), lines.read(g, wide), w, float_of("size"), [lines.read(m, F64) for m in moments_]
    )
    body = (
        lines.fold(total, product),
        Store("to_weight", lines.line, cast(product.result * r, wide)),
        Store("to_bias", lines.line, cast(total.result, wide)),
        lines.each(Store("dx", lines.element(), line.cast(dtype))),
    )
    return lines.kernel("columns_norm_backward", [g, x, *given, *moments_, dx, *sums], body, EPS)

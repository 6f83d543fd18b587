"""Softmax and its kin along lines: the exponentials are taken once, of numbers that are at most 0.

The sum over a line leaves out one element that equals the largest: log(Σ exp(x - m)) is then the log1p of it, and a
logarithm near 0 keeps its digits.
"""

from collections.abc import Callable
from typing import NamedTuple

from wengert.loops.ir import Kernel, Loop, Param, Statement, Store, size
from wengert.loops.rows import Lines, Reduction, arithmetic
from wengert.loops.scalar import Scalar, cast, const, make, param, select

__all__ = [
    "class_loss",
    "class_loss_backward",
    "log_softmax",
    "log_softmax_backward",
    "logsumexp",
    "softmax",
    "softmax_backward",
]


def exp(x: Scalar) -> Scalar:
    """Return the exponential."""
    return make("exp", (x,))


def divide_by(divisor: Scalar) -> Callable[[Scalar], Scalar]:
    """Return the division by a number of which there is one for many: a product, and what rounding it left.

    P. Markstein, "IA-64 and Elementary Functions" (2000), section 8.1: it rounds correctly, but for subnormal quotients.
    """
    reciprocal = 1.0 / divisor

    def divided(x: Scalar) -> Scalar:
        quotient = x * reciprocal
        rest = make("fma", (-quotient, divisor, x))
        return make("fma", (rest, reciprocal, quotient))

    return divided


def softmax(x_dtype: str, y_dtype: str, across: bool, lanes: int) -> Kernel:
    """y = exp(x - m) / Σ exp(x - m), with m the largest x."""
    lines, dtype = Lines(across, lanes), arithmetic(y_dtype)
    x, y = lines.elements("x", x_dtype), lines.elements("y", y_dtype, "out")
    top = Reduction("top", "largest", lines.read(x, dtype))
    term = exp(lines.read(x, dtype) - top.result)
    total = Reduction("total", "sum", term)
    divided = divide_by(cast(total.result, dtype))
    if y_dtype == dtype:  # the result's memory holds the terms
        body: tuple[Loop, ...] = (
            lines.fold(total, body=[Store("y", lines.element(), term)]),
            lines.each(Store("y", lines.element(), divided(lines.read(y, dtype)))),
        )
    else:
        body = lines.fold(total), lines.each(Store("y", lines.element(), cast(divided(term), y_dtype)))
    return lines.kernel("softmax", [x, y], [lines.fold(top), *body])


class Logarithm(NamedTuple):
    """The logarithm of Σ exp(x) along a line, as the largest x and what comes on top of it; others: the sum without m's."""

    top: Scalar
    rest: Scalar
    others: Scalar
    loops: tuple[Loop, ...]


def log_sum(lines: Lines, x: Scalar) -> Logarithm:
    """Return it, and the loops that find it."""
    top = Reduction("top", "largest", x)
    equal = x.eq(top.result)
    others = Reduction("others", "sum", select(equal, 0.0, exp(x - top.result)))
    count = Reduction("count", "sum", select(equal, const(1, x.dtype), 0.0))
    infinite = top.result - top.result  # NaN for a largest x of inf or -inf, which then counts once
    again = cast(count.result - 1.0, x.dtype) + infinite
    tail = cast(others.result, x.dtype) + select(count.result.gt(1.0), again, 0.0)
    return Logarithm(top.result, make("log1p", (tail,)), others.result, (lines.fold(top), lines.fold(others, count)))


def log_softmax(x_dtype: str, y_dtype: str, across: bool, lanes: int) -> Kernel:
    """y = x - m - log1p(Σ exp(x - m)), the sum over all but one of the largest."""
    lines, dtype = Lines(across, lanes), arithmetic(y_dtype)
    x, y = lines.elements("x", x_dtype), lines.elements("y", y_dtype, "out")
    found = log_sum(lines, lines.read(x, dtype))
    result = cast(lines.read(x, dtype) - found.top - found.rest, y_dtype)
    return lines.kernel("log_softmax", [x, y], [*found.loops, lines.each(Store("y", lines.element(), result))])


def logsumexp(x_dtype: str, across: bool, lanes: int) -> Kernel:
    """y = m + log1p(Σ exp(x - m)) of each line, the sum over all but one of the largest; m itself, if it is infinite."""
    lines, dtype = Lines(across, lanes), arithmetic(x_dtype)
    x, y = lines.elements("x", x_dtype), lines.single("y", x_dtype, "out")
    found = log_sum(lines, lines.read(x, dtype))
    sound = (found.top - found.top).eq(0.0) | found.others.ne(found.others)  # a NaN beside an infinite x is one of them
    result = select(sound, found.top + found.rest, found.top)
    return lines.kernel("logsumexp", [x, y], [*found.loops, Store("y", lines.line, cast(result, x_dtype))])


def softmax_backward(g_dtype: str, across: bool, lanes: int) -> Kernel:
    """dx = g·y - y·Σ g·y."""
    lines, dtype = Lines(across, lanes), arithmetic(g_dtype)
    g, y, dx = (lines.elements(n, g_dtype, "out" if n == "dx" else "in") for n in ("g", "y", "dx"))
    product = lines.read(g, dtype) * lines.read(y, dtype)
    total = Reduction("total", "sum", product)
    result = product - lines.read(y, dtype) * cast(total.result, dtype)
    return lines.kernel(
        "softmax_backward",
        [g, y, dx],
        [lines.fold(total), lines.each(Store("dx", lines.element(), cast(result, g_dtype)))],
    )


def log_softmax_backward(g_dtype: str, across: bool, lanes: int) -> Kernel:
    """dx = g - exp(y)·Σ g."""
    lines, dtype = Lines(across, lanes), arithmetic(g_dtype)
    g, y, dx = (lines.elements(n, g_dtype, "out" if n == "dx" else "in") for n in ("g", "y", "dx"))
    total = Reduction("total", "sum", lines.read(g, dtype))
    result = lines.read(g, dtype) - exp(lines.read(y, dtype)) * cast(total.result, dtype)
    return lines.kernel(
        "log_softmax_backward",
        [g, y, dx],
        [lines.fold(total), lines.each(Store("dx", lines.element(), cast(result, g_dtype)))],
    )


def class_loss(x_dtype: str, across: bool, lanes: int) -> Kernel:
    """loss = log Σ exp(x) - x[target], 0 where the target is the param ``ignored``; lse = log Σ exp(x) in float64."""
    lines, dtype = Lines(across, lanes), arithmetic(x_dtype)
    x, target = lines.elements("x", x_dtype), lines.single("target", "i64")
    loss, lse = lines.single("loss", x_dtype, "out"), lines.single("lse", "f64", "out")
    found = log_sum(lines, lines.read(x, dtype))
    valid, place = _target(lines.read(target, "i64"))
    below = lines.read(x, dtype, place) - found.top
    lost = cast(select(valid, found.rest - below, 0.0), x_dtype)
    whole = cast(found.top, "f64") + cast(found.rest, "f64")
    stores = Store("loss", lines.line, lost), Store("lse", lines.line, whole)
    return lines.kernel("class_loss", [x, target, loss, lse], [*found.loops, *stores], Param("ignored", "i64"))


def _target(target: Scalar) -> tuple[Scalar, Scalar]:
    """Return whether a target counts, and the class to read: inside the line, whatever another thread writes there."""
    valid = target.ne(param("ignored", "i64"))
    place = make("minimum", (make("maximum", (select(valid, target, 0), const(0, "i64"))), size("size") - 1))
    return valid, place


def class_loss_backward(x_dtype: str, across: bool, lanes: int) -> Kernel:
    """dx = exp(x - lse)·(g + q), but expm1(-loss)·g + exp(-loss)·q at the target; q is the cotangent of lse."""
    lines, dtype = Lines(across, lanes), arithmetic(x_dtype)
    x, dx, target = lines.elements("x", x_dtype), lines.elements("dx", x_dtype, "out"), lines.single("target", "i64")
    g, loss = (lines.single(n, x_dtype) for n in ("g", "loss"))
    q, lse = (lines.single(n, "f64") for n in ("q", "lse"))
    valid, place = _target(lines.read(target, "i64"))
    s = select(valid, lines.read(g, dtype), 0.0)
    extra = lines.read(q, dtype)
    both, minus = s + extra, -lines.read(loss, dtype)
    nothing = both.eq(0.0) & s.eq(0.0)  # a line without weight, whatever is in it
    own = make("expm1", (minus,)) * s + select(extra.eq(0.0), 0.0, exp(minus) * extra)
    high = lines.read(lse, dtype)
    low = cast(lines.read(lse, "f64") - cast(high, "f64"), dtype)
    p = exp(lines.read(x, dtype) - high - low) * both
    at_class = cast(select(nothing, 0.0, own), x_dtype)
    body: list[Statement] = [
        lines.each(Store("dx", lines.element(), cast(select(nothing, 0.0, p), x_dtype))),
        Store("dx", lines.element(place), at_class, guard=valid),
    ]
    return lines.kernel("class_loss_backward", [x, dx, target, g, q, loss, lse], body, Param("ignored", "i64"))

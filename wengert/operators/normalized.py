"""The one normalisation behind batch, layer, group, instance and rms norm, with fused kernels and its derivatives.

The input is seen as (N, G, K, L): N samples, G groups of K channels of L positions, with a weight and a bias for each
of the G·K channels. Moments are taken over ``axes``: (0, 2, 3) for batch norm (G channels, K = 1), else (2, 3)
(layer and rms norm: G = L = 1). With d = x - mean, r = (var + eps)^(-1/2) and M the mean over the axes,

    out = d r w + b,
    dx = r (u - M(u)) - r³ d M(u d) + ..., u = g w.

The kernels pass over one block of samples at a time while it is in cache. Moments are found in two passes over it and
combined as in Chan, Golub & LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances"
(1979); they are kept in float64, in which the square of no float32 overflows.
"""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import float32, float64
from wengert.core.arguments import Floating
from wengert.core.families import operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.operators.along import blocks
from wengert.operators.normalized_batch import normalized_backward_batch, normalized_batch

__all__ = ["normalized", "normalized_backward"]

Layout = tuple[int, int, int, int]
BATCH, GROUP = (0, 2, 3), (2, 3)  # the axes of moments


def _moment_shape(layout: Layout, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if i in axes else n for i, n in enumerate(layout))


def _seen(array: Any, layout: Layout) -> Any:
    """Return an array in the layout, contiguous and at least float32."""
    wide = array.astype(np.float32) if array.dtype.itemsize == 2 else array
    return np.ascontiguousarray(wide).reshape(layout)


def _channels(values: Any, layout: Layout, dtype: Any) -> Any:
    """Return a weight or bias as (1, G, K, 1), or None."""
    return None if values is None else values.astype(dtype, copy=False).reshape(1, layout[1], layout[2], 1)


# ---- moments


def _row_moments(x: Any, out: Any, center: bool) -> tuple[Any, Any]:
    """Return mean and variance of each row of (rows, n), and leave the deviations in ``out``."""
    n = x.shape[1]
    if not center:
        np.copyto(out, x)
        return np.zeros(len(x)), np.einsum("ij,ij->i", x, x).astype(np.float64) / n
    mean = np.einsum("ij->i", x) / x.dtype.type(n)
    np.subtract(x, mean[:, None], out=out)
    rest = np.einsum("ij->i", out).astype(np.float64) / n  # what the rounding of the mean left
    var = np.einsum("ij,ij->i", out, out).astype(np.float64) / n - rest * rest
    if (rest * rest > 1e-10 * var).any():
        out -= rest[:, None].astype(x.dtype)
    return mean + rest, var


def _exact_moments(x: Any, axes: Any, center: bool) -> tuple[Any, Any]:
    """Return mean and variance computed in float64 throughout: the slow way, for squares that overflow float32."""
    exact = x.astype(np.float64)
    mean = _mean(exact, axes) if center else 0.0
    return mean, _mean(np.square(exact - mean), axes)


def _mean(x: Any, axes: Any) -> Any:
    """Return the mean over axes, which stay; NaN of nothing, without NumPy's warning."""
    total = np.add.reduce(x, axis=axes, keepdims=True)
    return total / np.float64(x.size / total.size if total.size else 1)


def _batch_moments(x: Any) -> tuple[Any, Any]:
    """Return mean and variance of each channel of (N, C, L), from those of its samples."""
    n, channels, length = x.shape
    if length == 1:
        means, squares = x[:, :, 0].astype(np.float64), 0.0
    else:
        means, sums = np.empty((n, channels)), np.empty((n, channels))
        for block in blocks(n, channels * length):
            part = x[block]
            middle = np.einsum("ncl->nc", part) / x.dtype.type(length)
            off = part - middle[:, :, None]
            rest = np.einsum("ncl->nc", off).astype(np.float64) / length  # what the rounding of the mean left
            means[block] = middle + rest
            sums[block] = np.einsum("ncl,ncl->nc", off, off) - length * rest * rest
        squares = sums.sum(0)
    mean = means.sum(0) / np.float64(n)
    var = (squares + length * np.square(means - mean).sum(0)) / (n * length)
    return mean, var


# ---- kernels


def _batch_forward(x: Any, out: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any]:
    n, channels = x.shape[:2]
    if not x.size:
        nothing = np.full((1, channels, 1, 1), np.nan)
        return nothing, nothing
    rows, found = x.reshape(n, channels, -1), out.reshape(n, channels, -1)
    mean, var = _batch_moments(rows)
    if not np.isfinite(var).all():
        mean, var = (m.reshape(-1) for m in _exact_moments(rows, (0, 2), True))
    scale = 1 / np.sqrt(var + eps)
    scale = scale if weight is None else scale * weight.reshape(-1)
    near = mean.astype(x.dtype)
    shift = (near - mean) * scale + (0.0 if bias is None else bias.reshape(-1))
    near, scale, shift = (v.astype(x.dtype)[:, None] for v in (near, scale, shift))
    for block in blocks(n, rows[:1].size):
        y = found[block]
        np.subtract(rows[block], near, out=y)
        np.multiply(y, scale, out=y)
        np.add(y, shift, out=y)
    return mean.reshape(1, channels, 1, 1), var.reshape(1, channels, 1, 1)


def _group_forward(x: Any, out: Any, weight: Any, bias: Any, eps: float, center: bool) -> tuple[Any, Any]:
    n, groups, channels, length = x.shape
    mean, var = np.empty((n, groups, 1, 1)), np.empty((n, groups, 1, 1))
    for block in blocks(n, x[:1].size):
        part, y = x[block], out[block]
        rows = (len(part) * groups, channels * length)
        middle, spread = _row_moments(part.reshape(rows), y.reshape(rows), center)
        mean[block], var[block] = middle.reshape(-1, groups, 1, 1), spread.reshape(-1, groups, 1, 1)
        if not np.isfinite(spread).all():
            mean[block], var[block] = _exact_moments(part, (2, 3), center)
            np.subtract(part, mean[block], out=y, casting="same_kind")
        scale = (1 / np.sqrt(var[block] + eps)).astype(x.dtype)
        if weight is not None and length > 1:
            scale = scale * weight
        np.multiply(y, scale, out=y)
        if weight is not None and length == 1:
            np.multiply(y, weight, out=y)
        if bias is not None:
            np.add(y, bias, out=y)
    return mean, var


def _batch_backward(g: Any, x: Any, weight: Any, mean: Any, r: Any, extra: Any) -> tuple[Any, Any, Any]:
    n, channels = x.shape[:2]
    if not x.size:
        return x, np.zeros(channels), np.zeros(channels)
    grows, rows = g.reshape(n, channels, -1), x.reshape(n, channels, -1)
    length = rows.shape[2]
    count = n * length
    near = mean.reshape(-1).astype(x.dtype)[:, None]
    sums, products = np.zeros(channels), np.zeros(channels)
    for block in blocks(n, channels * length):
        off = rows[block] - near
        sums += np.einsum("ncl->nc", grows[block]).sum(0, dtype=np.float64)
        products += np.einsum("ncl,ncl->nc", grows[block], off).sum(0, dtype=np.float64)
    r = r.reshape(-1)
    products -= (mean.reshape(-1) - near[:, 0]) * sums
    slope = r if weight is None else r * weight.reshape(-1)
    linear = (2 * extra[1].reshape(-1) - slope * r * r * products) / count
    constant = (extra[0].reshape(-1) - slope * sums) / count - linear * (mean.reshape(-1) - near[:, 0])
    slope, linear, constant = (v.astype(x.dtype)[:, None] for v in (slope, linear, constant))
    out = np.empty_like(rows)
    for block in blocks(n, channels * length):
        dx = out[block]
        np.subtract(rows[block], near, out=dx)
        np.multiply(dx, linear, out=dx)
        np.add(dx, constant, out=dx)
        np.add(dx, grows[block] * slope, out=dx)
    return out, products * r, sums


def _group_backward(g: Any, x: Any, weight: Any, mean: Any, r: Any, extra: Any, center: bool) -> tuple[Any, Any, Any]:
    """The positions of a channel share a weight: sums over them come first."""
    n, groups, channels, length = x.shape
    count = channels * length
    w = np.ones((1, groups, channels, 1)) if weight is None else weight.astype(np.float64)
    to_weight, to_bias = np.zeros((groups, channels)), np.zeros((groups, channels))
    out = np.empty_like(x)
    for block in blocks(n, x[:1].size):
        part, dx, scale = g[block], out[block], r[block]
        off = x[block] - mean[block].astype(x.dtype) if center else x[block]
        sums = np.einsum("ngkl->ngk", part)[..., None].astype(np.float64)
        products = np.einsum("ngkl,ngkl->ngk", part, off)[..., None].astype(np.float64)
        to_weight += (products * scale).sum((0, 3))
        to_bias += sums.sum((0, 3))
        linear = 2 * extra[1][block] - scale**3 * (products * w).sum(2, keepdims=True)
        np.multiply(off, (linear / count).astype(x.dtype), out=dx)
        if center:
            constant = extra[0][block] - scale * (sums * w).sum(2, keepdims=True)
            dx += (constant / count).astype(x.dtype)
        dx += part * (scale * w).astype(x.dtype)
    return out, to_weight, to_bias


def _layer_backward(g: Any, x: Any, weight: Any, mean: Any, r: Any, extra: Any, center: bool) -> tuple[Any, Any, Any]:
    """Every element of a row has its own weight (L = 1)."""
    n, groups, channels, _ = x.shape
    g, x, out = (a.reshape(n, groups, channels) for a in (g, x, np.empty_like(x)))
    mean, r, to_mean, to_var = (a.reshape(n, groups, 1) for a in (mean, r, *extra))
    w = None if weight is None else weight.reshape(1, groups, channels)
    to_weight, to_bias = np.zeros((groups, channels)), np.zeros((groups, channels))
    for block in blocks(n, x[:1].size):
        part, u, scale = g[block], out[block], r[block].astype(x.dtype)
        unit = x[block] - mean[block].astype(x.dtype) if center else x[block].copy()
        unit *= scale
        to_weight += np.einsum("ngk,ngk->gk", part, unit)
        to_bias += np.add.reduce(part, axis=0)
        np.multiply(part, 1 if w is None else w, out=u)
        along = np.einsum("ngk,ngk->ng", u, unit)[..., None]
        linear = np.divide(2 * to_var[block], r[block], where=to_var[block] != 0, out=np.zeros_like(r[block]))
        unit *= ((linear - r[block] * along) / channels).astype(x.dtype)
        if center:
            total = np.einsum("ngk->ng", u)[..., None]
            unit += ((to_mean[block] - r[block] * total) / channels).astype(x.dtype)
        u *= scale
        u += unit
    return out, to_weight, to_bias


# ---- the operators


def _normalized_spec(
    input: Spec, weight: Any, bias: Any, *, layout: Layout, axes: tuple[int, ...], eps: float, center: bool
) -> tuple[Spec, Spec, Spec]:
    moments, count = Spec(_moment_shape(layout, axes), float64), layout[1] * layout[2]
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and math.prod(value.shape) != count:
            raise ShapeError(f"normalized(): {name} must have {count} elements, got shape {tuple(value.shape)}")
    return input, moments, moments


def _affine(value: Any, layout: Any, dtype: Any) -> Any:
    """Return a weight as a tensor of shape (1, G, K, 1), or the number 1."""
    return 1.0 if value is None else ops.cast(ops.reshape(value, (1, layout[1], layout[2], 1)), dtype)


class Frame:
    """What every rule starts from: deviations d, the reciprocal r of their spread, the mean M over the axes."""

    def __init__(self, input: Any, mean: Any, var: Any, layout: Any, axes: Any, eps: Any, center: Any) -> None:
        self.dtype = float32 if input.dtype.is_half else input.dtype
        self.layout, self.axes, self.center = layout, axes, center
        self.count = math.prod(layout[i] for i in axes)
        x = self.seen(input)
        self.d = x - ops.cast(mean, self.dtype) if center else x
        self.r = ops.cast(ops.rsqrt(var + eps), self.dtype)

    def seen(self, value: Any) -> Any:
        """Return a tensor in the layout and the dtype of the computation."""
        return ops.cast(ops.reshape(value, self.layout), self.dtype)

    def moment(self, value: Any) -> Any:
        """Return a moment's cotangent or tangent in the dtype of the computation."""
        return ops.cast(value, self.dtype)

    def mean(self, value: Any) -> Any:
        """Return the mean over the axes."""
        return ops.mean(value, self.axes, True)

    def centered(self, value: Any) -> Any:
        """Return the value less its mean, if the mean is taken out at all."""
        return value - self.mean(value) if self.center else value

    def channels(self, value: Any) -> Any:
        """Return the sum for each channel."""
        return ops.reshape(ops.sum(value, (0, 3)), (self.layout[1] * self.layout[2],))


def _normalized_vjp(
    g: Any, needs: Any, input: Any, weight: Any, mean: Any, var: Any, layout: Any, axes: Any, eps: float, center: Any,
    weight_shape: Any, bias_shape: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    dx, dw, db = ops.normalized_backward(
        g[0], g[1], g[2], input, mean, var, weight, layout=layout, axes=axes, eps=eps, center=center
    )
    return dx, ops.reshape(dw, weight_shape) if needs[1] else None, ops.reshape(db, bias_shape) if needs[2] else None


def _normalized_jvp(
    tangents: Any, input: Any, weight: Any, mean: Any, var: Any, layout: Any, axes: Any, eps: float, center: Any
) -> tuple[Any, Any, Any]:
    f = Frame(input, mean, var, layout, axes, eps, center)
    t = f.seen(ops.zeros_like(input) if tangents["input"] is None else tangents["input"])
    slope = f.mean(f.d * t)
    pushed = f.r * (f.centered(t) - f.d * (f.r * f.r * slope)) * _affine(weight, layout, f.dtype)
    if tangents["weight"] is not None:
        pushed = pushed + f.d * f.r * _affine(tangents["weight"], layout, f.dtype)
    if tangents["bias"] is not None:
        pushed = pushed + _affine(tangents["bias"], layout, f.dtype)
    middle = f.mean(t) if center else ops.zeros_like(slope)
    return (
        ops.cast(ops.reshape(pushed, input.shape), input.dtype),
        ops.cast(middle, mean.dtype),
        ops.cast(2 * slope, var.dtype),
    )


def _layouts(s: Any) -> list[Any]:
    def sample(shape: Any, layout: Any, axes: Any, weight: Any = None, bias: Any = None, center: bool = True) -> Any:
        return s(shape, weight, bias, layout=layout, axes=axes, eps=1e-2, center=center)

    return [
        sample((3, 2, 2), (3, 2, 1, 2), BATCH, (2,), (2,)), sample((3, 2), (3, 2, 1, 1), BATCH, (2,)),
        sample((3, 2, 2), (3, 2, 1, 2), BATCH, None, (2,)), sample((2, 4, 2), (2, 2, 2, 2), GROUP, (4,), (4,)),
        sample((2, 4), (2, 2, 2, 1), GROUP, (4,), (4,)), sample((3, 4), (3, 1, 4, 1), GROUP, (4,), (4,)),
        sample((3, 4), (3, 1, 4, 1), GROUP), sample((2, 2, 3), (2, 2, 1, 3), GROUP),
        sample((3, 4), (3, 1, 4, 1), GROUP, (4,), center=False), sample((2, 4, 2), (2, 2, 2, 2), GROUP, center=False),
        sample((0, 4), (0, 1, 4, 1), GROUP, (4,), (4,)),
    ]  # fmt: skip


@operator(
    outputs=("out", "mean", "var"),
    vjp=_normalized_vjp,
    jvp=_normalized_jvp,
    batch=normalized_batch,
    spec=_normalized_spec,
    widen=False,
    home=(),
    samples=_layouts,
)
def normalized(
    input: Floating, weight: Floating = None, bias: Floating = None, *, layout: Any, axes: Any, eps: float, center: Any
) -> Any:
    """Return (out, mean, var): the input, seen in ``layout``, normalised over ``axes``; ``center``: subtract the mean.

    Without ``center`` (rms norm) the mean returned is 0 and ``var`` is the mean square.
    """
    x = _seen(input, layout)
    out = np.empty_like(x)
    w, b = _channels(weight, layout, x.dtype), _channels(bias, layout, x.dtype)
    if axes == BATCH:
        mean, var = _batch_forward(x, out, w, b, eps)
    else:
        mean, var = _group_forward(x, out, w, b, eps, center)
    return out.reshape(input.shape).astype(input.dtype, copy=False), mean, var


def _backward_vjp(
    h: Any, needs: Any, g: Any, g_var: Any, input: Any, mean: Any, var: Any, weight: Any, layout: Any, axes: Any,
    eps: Any, center: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Of dx = r (u - M(u)) - r³ d M(u d) + (g_mean + 2 g_var d) / n, dw = Σ g d r and db = Σ g, where u = g w."""
    f = Frame(input, mean, var, layout, axes, eps, center)
    w, gs, hs = _affine(weight, layout, f.dtype), f.seen(g), f.seen(h[0])
    hw, hb = _affine(h[1], layout, f.dtype), _affine(h[2], layout, f.dtype)
    u, gv, r, d = gs * w, f.moment(g_var), f.r, f.d
    ud, hd = f.mean(u * d), f.mean(hs * d)
    to_u = r * f.centered(hs) - r**3 * d * hd
    to_d = (2 / f.count) * gv * hs - r**3 * (hs * ud + u * hd) + hw * gs * r
    to_r = ops.sum(hs * f.centered(u) + hw * gs * d, axes, True) - 3 * f.count * r * r * hd * ud
    found = (
        ops.reshape(to_u * w + hw * d * r + hb, input.shape),
        f.mean(hs) if center else ops.zeros_like(hd),
        2 * hd,
        ops.reshape(to_d, input.shape),
        -ops.sum(to_d, axes, True) if center else ops.zeros_like(hd),
        -0.5 * r**3 * to_r,
        None if weight is None else ops.reshape(f.channels(to_u * gs), weight.shape),
    )
    return tuple(value if need else None for value, need in zip(found, needs, strict=True))


def _backward_jvp(
    tangents: Any, g: Any, g_mean: Any, g_var: Any, input: Any, mean: Any, var: Any, weight: Any, layout: Any,
    axes: Any, eps: Any, center: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    f = Frame(input, mean, var, layout, axes, eps, center)

    def tangent(name: str, like: Any) -> Any:
        return ops.zeros_like(like) if tangents[name] is None else tangents[name]

    w, gs, gv, r, d = _affine(weight, layout, f.dtype), f.seen(g), f.moment(g_var), f.r, f.d
    tw = 0.0 if tangents["weight"] is None else _affine(tangents["weight"], layout, f.dtype)
    tg, td = f.seen(tangent("g", g)), f.seen(tangent("input", input))
    if center:
        td = td - f.moment(tangent("mean", mean))
    tr = -0.5 * r**3 * f.moment(tangent("var", var))
    u, tu = gs * w, tg * w + gs * tw
    ud, tud = f.mean(u * d), f.mean(tu * d + u * td)
    pushed = tr * f.centered(u) + r * f.centered(tu) - r**3 * (td * ud + d * tud) - 3 * r * r * tr * d * ud
    moments = 2 * (f.moment(tangent("g_var", g_var)) * d + gv * td)
    if center:
        moments = moments + f.moment(tangent("g_mean", g_mean))
    dx = ops.cast(ops.reshape(pushed + moments / f.count, input.shape), input.dtype)
    return dx, f.channels(tg * d * r + gs * (td * r + d * tr)), f.channels(tg)


def _backward_spec(
    g: Spec, g_mean: Spec, g_var: Spec, input: Spec, mean: Spec, var: Spec, weight: Any, *, layout: Layout, axes: Any,
    eps: float, center: bool,
) -> tuple[Spec, Spec, Spec]:  # fmt: skip
    one = Spec((layout[1] * layout[2],), float32 if input.dtype.is_half else input.dtype)
    return input, one, one


def _cotangents(s: Any) -> list[Any]:
    def sample(shape: Any, layout: Any, axes: Any, weight: Any = None, center: bool = True) -> Any:
        moments = _moment_shape(layout, axes)
        var = s.tensor(moments, low=0.5, high=2.0)
        return s(
            shape, moments, moments, shape, moments, var, weight, layout=layout, axes=axes, eps=1e-2, center=center
        )

    return [
        sample((3, 2, 2), (3, 2, 1, 2), BATCH, (2,)), sample((3, 2), (3, 2, 1, 1), BATCH),
        sample((2, 4, 2), (2, 2, 2, 2), GROUP, (4,)), sample((2, 4), (2, 2, 2, 1), GROUP, (4,)),
        sample((3, 4), (3, 1, 4, 1), GROUP), sample((2, 2, 3), (2, 2, 1, 3), GROUP),
        sample((3, 4), (3, 1, 4, 1), GROUP, (4,), center=False), sample((2, 4, 2), (2, 2, 2, 2), GROUP, center=False),
    ]  # fmt: skip


@operator(
    outputs=("to_input", "to_weight", "to_bias"),
    vjp=_backward_vjp,
    jvp=_backward_jvp,
    batch=normalized_backward_batch,
    spec=_backward_spec,
    widen=False,
    home=(),
    samples=_cotangents,
)
def normalized_backward(
    g: Floating, g_mean: Floating, g_var: Floating, input: Floating, mean: Floating, var: Floating,
    weight: Floating = None, *, layout: Any, axes: Any, eps: float, center: Any,
) -> Any:  # fmt: skip
    """Return the cotangents of input, weight and bias (the last two by channel) for those of normalized's results."""
    x = _seen(input, layout)
    cotangent = _seen(g, layout).astype(x.dtype, copy=False)
    r = 1 / np.sqrt(var + eps)
    arguments = (cotangent, x, _channels(weight, layout, x.dtype), mean, r, (g_mean, g_var))
    if axes == BATCH:
        dx, dw, db = _batch_backward(*arguments)
    elif layout[3] == 1:
        dx, dw, db = _layer_backward(*arguments, center)
    else:
        dx, dw, db = _group_backward(*arguments, center)
    sums = (v.reshape(-1).astype(x.dtype) for v in (dw, db))
    return (dx.reshape(input.shape).astype(input.dtype, copy=False), *sums)

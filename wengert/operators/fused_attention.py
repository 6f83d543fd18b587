"""Attention as one operator, softmax(scale · Q Kᵀ + mask) V: what is kept for its derivative is one number per query.

With P the weights and lse the logarithm of the sum that they were divided by, P = exp(scale · Q Kᵀ + mask - lse) is
computed again. For a cotangent g of the result and q of lse, with D = Σ g · out - q along the last dimension and
dS = P ∘ (g Vᵀ - D),

    dV = Pᵀ g,   dQ = scale · dS K,   dK = scale · dSᵀ Q,   dmask = dS.

T. Dao et al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness" (2022), appendix B.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from wengert.array.dtype import BOOL, float64
from wengert.core.apply import execute
from wengert.core.arguments import Anything, Floating
from wengert.core.batch import aligned, expanded
from wengert.core.families import operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import from_array
from wengert.errors import ShapeError

__all__ = ["fits_scores", "fused_attention", "fused_attention_backward"]


def fits_scores(mask: Any, scores: Any) -> bool:
    """True if a mask of a shape broadcasts to scores of a shape, (…, queries, keys), without changing it."""
    tail = scores[len(scores) - len(mask) :] if len(mask) <= len(scores) else ()
    return len(tail) == len(mask) and all(m in (1, s) for m, s in zip(mask, tail, strict=True))


def _check(query: Any, key: Any, value: Any, mask: Any) -> None:
    """Require shapes that go together.

    Raises:
        ShapeError: if they do not.
    """
    lead, shapes = query[:-2], (*query[:-2], query[-2], key[-2])
    fit = key[:-2] == lead == value[:-2] and query[-1] == key[-1] and key[-2] == value[-2]
    if not fit or (mask is not None and not fits_scores(mask, shapes)):
        raise ShapeError(
            f"fused_attention(): takes query (…, L, E), key (…, S, E), value (…, S, V) and a mask that broadcasts to "
            f"(…, L, S), got shapes {tuple(query)}, {tuple(key)}, {tuple(value)}"
            + ("" if mask is None else f" and {tuple(mask)}")
        )


def _spec(query: Spec, key: Spec, value: Spec, mask: Any = None, scale: Any = 1.0, is_causal: Any = False) -> Any:
    _check(query.shape, key.shape, value.shape, None if mask is None else mask.shape)
    return Spec((*query.shape[:-1], value.shape[-1]), query.dtype), Spec(query.shape[:-1], float64)


# ---- kernels


def _wide(array: Any) -> Any:
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


def _turned(array: Any) -> Any:
    return np.swapaxes(array, -1, -2)


def _scores(query: Any, key: Any, mask: Any, scale: float, is_causal: bool) -> Any:
    """Return scale · Q Kᵀ + mask, -inf where a key takes no part."""
    out = np.matmul(query, _turned(key))
    out *= out.dtype.type(scale)
    if mask is not None and mask.dtype.kind == "b":
        np.copyto(out, -np.inf, where=~mask)
    elif mask is not None:
        out += mask
    if is_causal:
        np.copyto(out, -np.inf, where=~np.tri(*out.shape[-2:], dtype=np.bool_))
    return out


def _finite(top: Any) -> Any:
    """Return what to subtract from scores: 0 where all of them are -inf."""
    return np.where(np.isneginf(top), 0, top)


# ---- rules


class Parts(NamedTuple):
    """What the rules are made of: weights P, g Vᵀ - D, dS."""

    weights: Any
    rest: Any
    slopes: Any


def _t(x: Any) -> Any:
    return ops.transpose(x, -1, -2)


def _column(x: Any, like: Any) -> Any:
    return ops.unsqueeze(ops.cast(x, like.dtype), -1)


def _weights(query: Any, key: Any, mask: Any, lse: Any, scale: Any, is_causal: Any) -> Any:
    """Return the weights, computed again; for queries that no key is left to they are 0."""
    s = ops.matmul(query, _t(key)) * scale
    if mask is not None:
        s = ops.where(mask, s, -math.inf) if mask.dtype.category == BOOL else s + mask
    if is_causal:
        seen = np.tri(*s.shape[-2:], dtype=np.bool_)
        s = ops.where(from_array(seen), s, -math.inf)
    return ops.exp(s - _column(ops.where(ops.eq(lse, -math.inf), 0.0, lse), s))


def _parts(g: Any, g_lse: Any, value: Any, out: Any, weights: Any) -> Parts:
    rest = ops.matmul(g, _t(value)) - ops.sum(g * out, -1, True) + _column(g_lse, g)
    return Parts(weights, rest, weights * rest)


def _summed_to(x: Any, shape: Any) -> Any:
    """Return the cotangent of what was broadcast from a shape."""
    missing = x.ndim - len(shape)
    x = ops.sum(x, tuple(range(missing))) if missing else x
    same = tuple(i for i, n in enumerate(shape) if n == 1 and x.shape[i] != 1)
    return ops.sum(x, same, True) if same else x


def _vjp(
    g: Any, needs: Any, query: Any, key: Any, value: Any, mask: Any, out: Any, lse: Any, scale: Any, is_causal: Any
) -> tuple[Any, ...]:
    found = ops.fused_attention_backward(
        g[0], g[1], query, key, value, out, lse, mask, scale=scale, is_causal=is_causal
    )
    to_mask = None
    if needs[3]:
        parts = _parts(g[0], g[1], value, out, _weights(query, key, mask, lse, scale, is_causal))
        to_mask = ops.cast(_summed_to(parts.slopes, mask.shape), mask.dtype)
    return (*found, to_mask)


def _jvp(
    tangents: Any, query: Any, key: Any, value: Any, mask: Any, lse: Any, scale: Any, is_causal: Any
) -> tuple[Any, Any]:
    weights = _weights(query, key, mask, lse, scale, is_causal)
    slopes = _scores_tangent(tangents, query, key, weights, scale)
    total = ops.sum(weights * slopes, -1, True)
    pushed = ops.matmul(weights * (slopes - total), value)
    if tangents["value"] is not None:
        pushed = pushed + ops.matmul(weights, tangents["value"])
    return pushed, ops.cast(ops.squeeze(total, -1), lse.dtype)


def _scores_tangent(tangents: Any, query: Any, key: Any, like: Any, scale: Any) -> Any:
    """Return the tangent of the scores."""
    found = ops.zeros_like(like)
    if tangents["query"] is not None:
        found = found + ops.matmul(tangents["query"], _t(key)) * scale
    if tangents["key"] is not None:
        found = found + ops.matmul(query, _t(tangents["key"])) * scale
    return found if tangents["mask"] is None else found + tangents["mask"]


def _backward_vjp(
    h: Any, needs: Any, g: Any, g_lse: Any, query: Any, key: Any, value: Any, out: Any, lse: Any, mask: Any, scale: Any,
    is_causal: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Go back through the formulas of the module, from dV, dQ and dK to what they are made of."""
    hq, hk, hv = h
    p, rest, slopes = _parts(g, g_lse, value, out, _weights(query, key, mask, lse, scale, is_causal))
    to_slopes = (ops.matmul(hq, _t(key)) + ops.matmul(query, _t(hk))) * scale
    to_rest = to_slopes * p
    total = ops.sum(to_rest, -1, True)
    to_scores = (ops.matmul(g, _t(hv)) + to_slopes * rest) * p
    found = (
        ops.matmul(p, hv) + ops.matmul(to_rest, value) - total * out,
        ops.cast(ops.squeeze(total, -1), g_lse.dtype),
        (ops.matmul(to_scores, key) + ops.matmul(slopes, hk)) * scale,
        (ops.matmul(_t(to_scores), query) + ops.matmul(_t(slopes), hq)) * scale,
        ops.matmul(_t(to_rest), g),
        -total * g,
        -ops.cast(ops.sum(to_scores, -1), lse.dtype),
        None if not needs[7] else ops.cast(_summed_to(to_scores, mask.shape), mask.dtype),
    )
    return tuple(value if need else None for value, need in zip(found, needs, strict=True))


def _backward_jvp(
    tangents: Any, g: Any, g_lse: Any, query: Any, key: Any, value: Any, out: Any, lse: Any, mask: Any, scale: Any,
    is_causal: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    def tangent(name: str, like: Any) -> Any:
        found = tangents[name]
        return ops.zeros_like(like) if found is None else found

    p, rest, slopes = _parts(g, g_lse, value, out, _weights(query, key, mask, lse, scale, is_causal))
    tg, tq, tk, tv = (tangent(n, x) for n, x in (("g", g), ("query", query), ("key", key), ("value", value)))
    shift = _scores_tangent(tangents, query, key, p, scale) - _column(tangent("lse", lse), p)
    tp = p * shift
    inner = ops.sum(tg * out + g * tangent("out", out), -1, True) - _column(tangent("g_lse", g_lse), g)
    t_slopes = tp * rest + p * (ops.matmul(tg, _t(value)) + ops.matmul(g, _t(tv)) - inner)
    return (
        (ops.matmul(t_slopes, key) + ops.matmul(slopes, tk)) * scale,
        (ops.matmul(_t(t_slopes), query) + ops.matmul(_t(slopes), tq)) * scale,
        ops.matmul(_t(tp), g) + ops.matmul(_t(p), tg),
    )


def _batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Put the batch in front of every tensor; a mask that all examples share stays as it is."""
    at = op.signature.index["mask"]
    specs = [
        Spec(v.shape[bool(b) :], v.dtype) if hasattr(v, "shape") else v for v, b in zip(values, batched, strict=True)
    ]
    op.infer(specs)
    given = list(values)
    for i in op.signature.inputs:
        if i != at:
            given[i] = given[i] if batched[i] else expanded(given[i], size)
    if given[at] is not None and batched[at]:
        given[at] = aligned(given[at], given[op.signature.index["query"]].ndim - 1)
    return execute(op, given)


# ---- operators


def _products(query: Any, key: Any, width: int) -> int:
    """Return the operations of matrix products over all pairs of a query and a key, of so many elements in all."""
    return 2 * math.prod(query.shape[:-1]) * int(key.shape[-2]) * width


def _samples(s: Any) -> list[Any]:
    some = s.array([[True, False, True], [True, True, True]])
    return [
        s((2, 3), (4, 3), (4, 2)), s((2, 2, 3), (2, 4, 3), (2, 4, 2), scale=0.5), s((3, 2), (3, 2), (3, 2), is_causal=True),
        s((2, 3), (4, 3), (4, 3), is_causal=True), s((2, 2, 3), (2, 3, 3), (2, 3, 2), (2, 3)),
        s((2, 2, 3), (2, 3, 3), (2, 3, 2), (2, 1, 3)), s((2, 3), (3, 3), (3, 2), some),
        s((1, 2, 3), (1, 2, 3), (1, 2, 2), s.array([[False, False], [True, True]]), grad=False),
        s((0, 3), (2, 3), (2, 2)), s((2, 3), (0, 3), (0, 2), grad=False), s((0, 2, 3), (0, 2, 3), (0, 2, 3)),
        s.error(RuntimeError, "takes query", (2, 3), (2, 2), (2, 3)),
        s.error(RuntimeError, "takes query", (2, 3), (3, 3), (3, 3), (3, 3)),
    ]  # fmt: skip


@operator(
    outputs=("out", "lse"),
    vjp=_vjp,
    jvp=_jvp,
    batch=_batch,
    spec=_spec,
    cost=lambda query, key, value, *_: _products(query, key, key.shape[-1] + value.shape[-1]),
    widen=False,
    home=(),
    samples=_samples,
)
def fused_attention(
    query: Floating, key: Floating, value: Floating, mask: Anything = None, scale: Any = 1.0, is_causal: Any = False
) -> Any:
    """Return (softmax(scale · Q Kᵀ + mask) V, the logarithm of the sum in the softmax, in float64).

    A boolean mask says which keys take part; causal: query i sees the keys 0 to i. For a query that no key is left to the
    result is 0, and the logarithm -inf.
    """
    _check(query.shape, key.shape, value.shape, None if mask is None else mask.shape)
    s = _scores(_wide(query), _wide(key), mask, scale, is_causal)
    top = _finite(np.maximum.reduce(s, axis=-1, keepdims=True, initial=-np.inf)).astype(s.dtype)
    np.subtract(s, top, out=s)
    np.exp(s, out=s)
    total = np.add.reduce(s, axis=-1, keepdims=True)
    some = total != 0
    logs = np.full(total.shape, -np.inf)
    np.log(total, out=logs, where=some, dtype=np.float64)
    np.divide(s, total, out=s, where=some)
    out = np.matmul(s, _wide(value)).astype(query.dtype, copy=False)
    return out, (logs + top)[..., 0]


def _backward_spec(
    g: Spec, g_lse: Spec, query: Spec, key: Spec, value: Spec, out: Spec, lse: Spec, mask: Any = None, scale: Any = 1.0,
    is_causal: Any = False,
) -> Any:  # fmt: skip
    return query, key, value


def _backward_samples(s: Any) -> list[Any]:
    def sample(lead: Any, q: int, n: int, e: int, v: int, mask: Any = None, **options: Any) -> Any:
        rows, one = (*lead, q, v), (*lead, q)
        return s(
            rows,
            one,
            (*lead, q, e),
            (*lead, n, e),
            (*lead, n, v),
            rows,
            s.tensor(one, low=1.0, high=2.0),
            mask,
            **options,
        )

    some = s.array([[True, False, True], [True, True, True]])
    return [
        sample((), 2, 4, 3, 2), sample((2,), 2, 3, 3, 2, (2, 3), scale=0.5), sample((), 3, 3, 2, 2, is_causal=True),
        sample((2,), 2, 3, 2, 2, (2, 1, 3)), sample((), 2, 3, 2, 2, some), sample((0,), 2, 3, 2, 2),
    ]  # fmt: skip


@operator(
    outputs=("to_query", "to_key", "to_value"),
    vjp=_backward_vjp,
    jvp=_backward_jvp,
    batch=_batch,
    spec=_backward_spec,
    cost=lambda g, g_lse, query, key, value, *_: _products(query, key, 3 * key.shape[-1] + 2 * value.shape[-1]),
    widen=False,
    home=(),
    samples=_backward_samples,
)
def fused_attention_backward(
    g: Floating, g_lse: Floating, query: Floating, key: Floating, value: Floating, out: Floating, lse: Floating,
    mask: Anything = None, scale: Any = 1.0, is_causal: Any = False,
) -> Any:  # fmt: skip
    """Return the cotangents of query, key and value for those of fused_attention's results."""
    dtype = query.dtype
    g, query, key, value, out = (_wide(a) for a in (g, query, key, value, out))
    p = _scores(query, key, mask, scale, is_causal)
    top = _finite(lse)[..., None]
    high = top.astype(p.dtype)
    p -= high
    p -= (top - high).astype(p.dtype)
    np.exp(p, out=p)
    to_value = np.matmul(_turned(p), g)
    slopes = np.matmul(g, _turned(value))
    slopes -= (np.einsum("...v,...v->...", g, out) - g_lse).astype(p.dtype)[..., None]
    slopes *= p
    slopes *= p.dtype.type(scale)
    found = np.matmul(slopes, key), np.matmul(_turned(slopes), query), to_value
    return tuple(a.astype(dtype, copy=False) for a in found)

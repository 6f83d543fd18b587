"""Scaled dot-product attention: softmax(Q Kᵀ / √d + mask) V (Vaswani et al., "Attention is all you need", 2017)."""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import BOOL, FLOAT
from wengert.core.apply import execute
from wengert.core.arguments import Anything, Floating
from wengert.core.batch import aligned, expanded
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import DTypeError, ShapeError
from wengert.operators.along import blocks
from wengert.operators.fused_attention import fits_scores

__all__ = ["attention_weights", "scaled_dot_product_attention"]


def _weights_spec(scores: Spec, mask: Spec | None = None, scale: float = 1.0, is_causal: bool = False) -> Spec:
    if mask is not None and not fits_scores(tuple(mask.shape), tuple(scores.shape)):
        raise ShapeError(
            f"scaled_dot_product_attention(): attn_mask of shape {tuple(mask.shape)} does not broadcast to the scores' "
            f"shape {tuple(scores.shape)}, (…, queries, keys)"
        )
    return scores


def _weights_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    scores, mask, *options = values
    scores = scores if batched[0] else expanded(scores, size)
    if mask is not None:
        _weights_spec(Spec(scores.shape[1:], scores.dtype), Spec(mask.shape[bool(batched[1]) :], mask.dtype))
        mask = aligned(mask, scores.ndim - 1) if batched[1] else mask
    return execute(op, [scores, mask, *options])


@operator(
    vjp={
        "scores": lambda g, out, scale: ops.softmax_backward(g, out, -1) * scale,
        "mask": lambda g, out: ops.softmax_backward(g, out, -1),
    },
    jvp={
        "scores": lambda t, out, scale: ops.softmax_backward(t * scale, out, -1),
        "mask": lambda t, out: ops.softmax_backward(ops.expand(t, out.shape), out, -1),
    },
    batch=_weights_batch,
    spec=_weights_spec,
    home=(),
    samples=lambda s: [
        s((2, 3)), s((2, 2, 3), (2, 3), scale=0.5), s((2, 3, 3), is_causal=True, scale=2.0),
        s((1, 2, 3), s.array([[True, False, True], [True, True, True]])),
        s((2, 3), s.array([[-np.inf, 0.0, 1.0], [0.5, -np.inf, -np.inf]]), grad=False),
        s((2, 3), s.array([[False] * 3, [True] * 3]), grad=False), s((0, 3)), s((2, 0)), s((2, 3), is_causal=True),
        s.error(RuntimeError, "does not broadcast", (2, 3), (3, 3)),
    ],
)  # fmt: skip
def attention_weights(scores: Floating, mask: Anything = None, scale: Any = 1.0, is_causal: Any = False) -> Any:
    """Return softmax(scale · scores + mask) along the last dimension; a row without any key left is zero.

    A boolean mask says which keys take part. Causal: query i sees the keys 0 to i.
    """
    _weights_spec(scores, mask)
    keys = scores.shape[-1]
    out = np.multiply(scores, scores.dtype.type(scale), order="C")
    if mask is not None and mask.dtype.kind == "b":
        np.copyto(out, -np.inf, where=~mask)
    elif mask is not None:
        out += mask
    if is_causal:
        np.copyto(out, -np.inf, where=~np.tri(scores.shape[-2], keys, dtype=bool))
    rows = out.reshape(math.prod(out.shape[:-1]), keys)
    for block in blocks(len(rows), keys) if out.size else ():
        _softmax(rows[block])
    return out


def _softmax(x: Any) -> None:
    """Turn rows into their softmax, in place; rows of -inf into zeros."""
    largest = np.maximum.reduce(x, axis=1, keepdims=True)
    largest[np.isneginf(largest)] = 0
    np.subtract(x, largest, out=x)
    np.exp(x, out=x)
    total = np.add.reduce(x, axis=1, keepdims=True)
    total[total == 0] = 1
    np.divide(x, total, out=x)


def _check(query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ShapeError(f"scaled_dot_product_attention(): the tensors need at least 2 dimensions, got {shapes}")
    if not query.dtype is key.dtype is value.dtype:
        raise DTypeError(
            f"scaled_dot_product_attention(): the tensors must have one dtype, got {query.dtype}, {key.dtype} and "
            f"{value.dtype} for query, key and value"
        )
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            "scaled_dot_product_attention(): query and key need the same last size, key and value the same second to "
            f"last size, got {shapes}"
        )
    if attn_mask is None:
        return
    if is_causal:
        raise RuntimeError("scaled_dot_product_attention(): give attn_mask or is_causal=True, not both")
    if attn_mask.dtype.category != BOOL and attn_mask.dtype is not query.dtype:
        raise DTypeError(
            f"scaled_dot_product_attention(): attn_mask must be bool or of the query's dtype, {query.dtype}, got "
            f"{attn_mask.dtype}"
        )


def _fused(query: Any, key: Any, value: Any, mask: Any) -> bool:
    """Whether attention is one operator: no tensor is broadcast, but the mask."""
    lead = tuple(query.shape[:-2])
    same = lead == tuple(key.shape[:-2]) == tuple(value.shape[:-2]) and query.dtype.category == FLOAT
    return same and (mask is None or fits_scores(tuple(mask.shape), (*lead, query.shape[-2], key.shape[-2])))


def _repeated(heads: int, x: Any) -> Any:
    """Return keys or values with each head repeated for the queries that share it."""
    if x.ndim < 3 or heads % x.shape[-3]:
        raise ShapeError(
            f"scaled_dot_product_attention(): enable_gqa needs a number of query heads, {heads}, divisible by that of "
            f"keys and values, got shape {tuple(x.shape)}"
        )
    return ops.repeat_interleave(x, heads // x.shape[-3], -3)


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 3), (4, 3), (4, 2)), s((2, 2, 3), (2, 4, 3), (2, 4, 2), is_causal=True),
        s((1, 2, 2, 3), (1, 2, 3, 3), (1, 2, 3, 3), (2, 3)),
        s((2, 3), (2, 3), (2, 3), s.array([[True, False], [True, True]])),
        s((2, 3), (2, 3), (2, 2), s.array([[False, False], [True, True]]), grad=False),
        s((2, 3), (4, 3), (4, 2), scale=2.0), s((1, 4, 2, 3), (1, 2, 2, 3), (1, 2, 2, 3), enable_gqa=True),
        s((0, 2, 3), (0, 4, 3), (0, 4, 2)), s((2, 3), (0, 3), (0, 2)),
        s.error(RuntimeError, "same last size", (2, 3), (2, 2), (2, 3)),
        s.error(RuntimeError, "not both", (2, 3), (2, 3), (2, 3), (2, 2), is_causal=True),
        s.error(RuntimeError, "at least 2 dimensions", (3,), (2, 3), (2, 3)),
        s.error(RuntimeError, "divisible", (3, 2, 2), (2, 2, 2), (2, 2, 2), enable_gqa=True),
    ],
)  # fmt: skip
def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Return softmax(scale · Q Kᵀ + mask) V.

    Args:
        query: (…, L, E). key: (…, S, E). value: (…, S, V).
        attn_mask: broadcastable to (…, L, S); a bool says which keys take part, numbers are added to the scores.
        dropout_p: set this share of the weights to zero, and scale the others up.
        is_causal: query i sees the keys 0 to i only.
        scale: 1/√E by default. enable_gqa: several query heads (dimension -3) share a head of keys and values.

    Returns:
        (…, L, V); zeros for a query that no key is left to.

    Raises:
        RuntimeError: for shapes that do not fit, or a mask beside ``is_causal``. TypeError: for different dtypes.

    Example:
        >>> import wengert as wg
        >>> q, k, v = wg.zeros(1, 2), wg.ones(2, 2), wg.tensor([[1.0], [3.0]])
        >>> wg.nn.functional.scaled_dot_product_attention(q, k, v)
        tensor([[2.]])
    """
    _check(query, key, value, attn_mask, is_causal)
    if enable_gqa:
        key, value = _repeated(query.shape[-3], key), _repeated(query.shape[-3], value)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if not dropout_p and _fused(query, key, value, attn_mask):
        return ops.fused_attention(query, key, value, attn_mask, float(factor), bool(is_causal))[0]
    scores = ops.matmul(query, ops.transpose(key, -1, -2))
    weights = ops.attention_weights(scores, attn_mask, factor, bool(is_causal))
    if dropout_p:
        weights = ops.dropout(weights, dropout_p)
    return ops.matmul(weights, value)

"""Attention in several heads as a function (Vaswani et al., "Attention is all you need", 2017, section 3.2.2)."""

import math
from typing import Any

from wengert.array.dtype import BOOL
from wengert.core.families import composite
from wengert.core.registry import ops
from wengert.errors import DTypeError, ShapeError

__all__ = ["multi_head_attention_forward"]

NAME = "multi_head_attention_forward()"


def _check(query: Any, key: Any, value: Any, embed_dim: int, heads: int, separate: bool) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
        raise ShapeError(f"{NAME}: query, key and value must be (L, N, E) or (L, E), got {shapes}")
    if query.shape[-1] != embed_dim:
        raise ShapeError(f"{NAME}: query must have embedding size {embed_dim}, got {shapes}")
    if heads < 1 or embed_dim % heads:
        raise ValueError(f"{NAME}: num_heads={heads} must divide the embedding size {embed_dim}")
    if (key.shape[:-1] if separate else key.shape) != (value.shape[:-1] if separate else value.shape):
        raise ShapeError(f"{NAME}: key and value must have the same shape, got {shapes}")


def _projected(inputs: list[Any], packed: Any, weights: tuple[Any, Any, Any], bias: Any) -> Any:
    """Return queries, keys and values through their linear maps: three weights, or one that holds them all."""
    if packed is not None and inputs[0] is inputs[1] is inputs[2]:
        return ops.chunk(ops.linear(inputs[0], packed, bias), 3, -1)
    if packed is not None:
        weights = ops.chunk(packed, 3)
    biases = (None,) * 3 if bias is None else ops.chunk(bias, 3)
    return [ops.linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)]


def _additive(name: str, mask: Any, dtype: Any) -> Any:
    """Return a mask as numbers to add to scores: -inf where a boolean mask is True."""
    if mask is None or mask.dtype.is_floating_point:
        return mask
    if mask.dtype.category != BOOL:
        raise DTypeError(f"{NAME}: {name} must be a bool or floating-point tensor, got {mask.dtype}")
    return ops.masked_fill(ops.zeros(mask.shape, dtype=dtype), mask, -math.inf)


def _score_mask(attn_mask: Any, padding: Any, dtype: Any, shape: tuple[int, int, int, int], extra: int) -> Any:
    """Return one mask of shape (N · heads or 1, L, S) for both, grown by ``extra`` keys that all may see; or None."""
    batch, heads, queries, keys = shape
    mask, padding = _additive("attn_mask", attn_mask, dtype), _additive("key_padding_mask", padding, dtype)
    if mask is not None:
        if mask.ndim == 2:
            mask = ops.unsqueeze(mask, 0)
        if tuple(mask.shape) not in ((1, queries, keys), (batch * heads, queries, keys)):
            raise ShapeError(
                f"{NAME}: attn_mask must have shape {(queries, keys)} or {(batch * heads, queries, keys)}, got "
                f"{tuple(attn_mask.shape)}"
            )
        mask = ops.pad(mask, (0, extra)) if extra else mask
    if padding is None:
        return mask
    if tuple(padding.shape) != (batch, keys):
        raise ShapeError(f"{NAME}: key_padding_mask must have shape {(batch, keys)}, got {tuple(padding.shape)}")
    padding = ops.pad(padding, (0, extra)) if extra else padding
    padding = ops.repeat_interleave(padding, heads, 0)[:, None, :]
    return padding if mask is None else mask + padding


def _heads(x: Any, heads: int) -> Any:
    """Turn (L, N, E) into (N · heads, L, E / heads)."""
    length, batch, width = x.shape
    return ops.transpose(ops.reshape(x, (length, batch * heads, width // heads)), 0, 1)


def _extended(x: Any, bias: Any, static: Any, heads: int, zero: bool) -> Any:
    """Return keys or values in heads: a learnt one appended, given ones in their place, and a zero appended."""
    if bias is not None:
        if static is not None:
            raise ValueError(f"{NAME}: give a bias or static keys and values, not both")
        x = ops.cat((x, ops.expand(ops.reshape(bias, (1, 1, -1)), (1, *x.shape[1:]))), 0)
    x = _heads(x, heads) if static is None else static
    if zero:
        x = ops.cat((x, x.new_zeros((x.shape[0], 1, x.shape[2]))), 1)
    return x


def _weighted(q: Any, k: Any, v: Any, mask: Any, dropout: float) -> tuple[Any, Any]:
    """Return (softmax(q kᵀ / √d + mask) v, the weights)."""
    scores = ops.bmm(q / math.sqrt(q.shape[-1]), ops.transpose(k, 1, 2))
    weights = ops.softmax(scores if mask is None else scores + mask, -1)
    if dropout:
        weights = ops.dropout(weights, dropout)
    return ops.bmm(weights, v), weights


def _samples(s: Any) -> list[Any]:
    def call(query: Any, key: Any, heads: int, *extra: Any, **options: Any) -> Any:
        bias_k, bias_v, zero = extra or (None, None, False)
        return s(query, key, key, 4, heads, (12, 4), (12,), bias_k, bias_v, zero, 0.0, (4, 4), (4,), **options)

    mask = s.array([[False, True, False], [False, False, True]])
    return [
        call((2, 2, 4), (3, 2, 4), 2), call((2, 4), (3, 4), 1), call((2, 2, 4), (3, 2, 4), 2, need_weights=False),
        call((2, 1, 4), (3, 1, 4), 2, (1, 1, 4), (1, 1, 4), True, attn_mask=mask, average_attn_weights=False),
        call((2, 2, 4), (3, 2, 4), 2, key_padding_mask=s.array([[False, False, True], [False] * 3])),
        s.error(ValueError, "must divide", (2, 4), (3, 4), (3, 4), 4, 3, (12, 4), None, None, None, False, 0.0, (4, 4), None),
    ]  # fmt: skip


@composite(home="nn.functional", samples=_samples)
def multi_head_attention_forward(
    query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int, in_proj_weight: Any, in_proj_bias: Any,
    bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float, out_proj_weight: Any, out_proj_bias: Any,
    training: bool = True, key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Any = None, k_proj_weight: Any = None,
    v_proj_weight: Any = None, static_k: Any = None, static_v: Any = None, average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """Return (output, weights) of attention in several heads: what :class:`wengert.nn.MultiheadAttention` computes.

    Args:
        query: (L, N, E) or (L, E). key, value: (S, N, E) or (S, E).
        in_proj_weight, in_proj_bias: the three input maps in one, (3 E, E) and (3 E); with ``use_separate_proj_weight``
            the weights are ``q_proj_weight``, ``k_proj_weight`` and ``v_proj_weight``.
        bias_k, bias_v: a key and a value to append. add_zero_attn: append a key and a value of zeros.
        key_padding_mask: (N, S); True, or -inf, for keys that do not count. attn_mask: (L, S) or (N · heads, L, S);
            True for pairs that do not count, or numbers that are added to the scores.
        static_k, static_v: keys and values in heads, (N · heads, S, E / heads), in place of the projected ones.
        need_weights: also return the weights, (N, L, S), averaged over the heads unless ``average_attn_weights`` is
            False, (N, heads, L, S). is_causal: a promise that ``attn_mask``, which must be given, is causal.

    Raises:
        RuntimeError, ValueError: for shapes that do not fit.
    """
    _check(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    if is_causal and attn_mask is None:
        raise RuntimeError(f"{NAME}: is_causal says what attn_mask is; give the mask too")
    if (bias_k is None) != (bias_v is None):
        raise ValueError(f"{NAME}: give bias_k and bias_v both, or neither")
    alone, inputs = query.ndim == 2, [query, key, value]
    if alone:
        batched = {id(x): ops.unsqueeze(x, 1) for x in inputs}
        inputs = [batched[id(x)] for x in inputs]
        key_padding_mask = None if key_padding_mask is None else ops.unsqueeze(key_padding_mask, 0)
    packed = None if use_separate_proj_weight else in_proj_weight
    q, k, v = _projected(inputs, packed, (q_proj_weight, k_proj_weight, v_proj_weight), in_proj_bias)
    length, batch, width = inputs[0].shape
    q = _heads(q, num_heads)
    k, v = (_extended(x, b, s, num_heads, add_zero_attn) for x, b, s in ((k, bias_k, static_k), (v, bias_v, static_v)))
    extra = int(bias_k is not None) + int(add_zero_attn)
    shape = (batch, num_heads, length, k.shape[1] - extra)
    mask = _score_mask(attn_mask, key_padding_mask, query.dtype, shape, extra)
    dropout = dropout_p if training else 0.0
    if need_weights:
        shown, weights = _weighted(q, k, v, mask, dropout)
    else:
        causal = is_causal and key_padding_mask is None and not extra
        shown, weights = ops.scaled_dot_product_attention(q, k, v, None if causal else mask, dropout, causal), None
    out = ops.linear(ops.reshape(ops.transpose(shown, 0, 1), (length, batch, width)), out_proj_weight, out_proj_bias)
    if weights is not None:
        weights = ops.reshape(weights, (batch, num_heads, length, k.shape[1]))
        weights = ops.mean(weights, 1) if average_attn_weights else weights
    if alone:
        out, weights = ops.squeeze(out, 1), None if weights is None else ops.squeeze(weights, 0)
    return out, weights

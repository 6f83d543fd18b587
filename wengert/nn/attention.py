"""Attention in several heads, with its learned maps (Vaswani et al., "Attention is all you need", 2017)."""

from typing import Any

from wengert.array.shape import as_int
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn import init
from wengert.nn.linear import Linear
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter, unset

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """concat(head_1 … head_h) W_o + b_o, head_i = softmax(q_i k_iᵀ / √d) v_i with q_i, k_i, v_i linear in the inputs.

    Args:
        embed_dim: features of queries and output. num_heads: h, which divides ``embed_dim``; d = embed_dim / h.
        dropout: in training, the probability of dropping a weight. bias: add biases in the four linear maps.
        add_bias_kv: append a learned key and a learned value. add_zero_attn: append a key and a value of zeros.
        kdim, vdim: features of keys and values (default: ``embed_dim``).
        batch_first: tensors are (N, L, E) instead of (L, N, E).

    Shape:
        query (L, N, E), key (S, N, kdim), value (S, N, vdim), output (L, N, E), weights (N, L, S); all also without N.
        ``in_proj_weight`` is (3 E, E); with other ``kdim`` or ``vdim`` there are ``q_proj_weight``, ``k_proj_weight``
        and ``v_proj_weight`` instead.

    Raises:
        ValueError: if ``num_heads`` does not divide ``embed_dim``, or one of them is not positive.

    Example:
        >>> import wengert as wg
        >>> x = wg.zeros(2, 5, 8)
        >>> output, weights = wg.nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x)
        >>> output.shape, weights.shape
        (wengert.Size([2, 5, 8]), wengert.Size([2, 5, 5]))
    """

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        width, heads = as_int(embed_dim, "embed_dim"), as_int(num_heads, "num_heads")
        if width <= 0 or heads <= 0 or width % heads:
            raise ValueError(
                f"embed_dim and num_heads must be positive, and num_heads divide embed_dim, got {embed_dim} and {num_heads}"
            )
        super().__init__()
        self.embed_dim = width
        self.kdim = width if kdim is None else kdim
        self.vdim = width if vdim is None else vdim
        self.num_heads = heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = width // heads
        self._qkv_same_embed_dim = self.kdim == self.vdim == width
        apart = not self._qkv_same_embed_dim
        self.register_parameter("q_proj_weight", unset((width, width), device, dtype, apart))
        self.register_parameter("k_proj_weight", unset((width, self.kdim), device, dtype, apart))
        self.register_parameter("v_proj_weight", unset((width, self.vdim), device, dtype, apart))
        self.register_parameter("in_proj_weight", unset((3 * width, width), device, dtype, not apart))
        self.register_parameter("in_proj_bias", unset(3 * width, device, dtype, bias))
        self.out_proj = Linear(width, width, bias, device, dtype)
        self.register_parameter("bias_k", unset((1, 1, width), device, dtype, add_bias_kv))
        self.register_parameter("bias_v", unset((1, 1, width), device, dtype, add_bias_kv))
        self.add_zero_attn = add_zero_attn
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new starting values: Xavier's, and 0 for the biases."""
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        self.out_proj.reset_parameters()
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Return (output, weights); the weights are None unless ``need_weights``.

        Args:
            key_padding_mask: (N, S), or (S,) without a batch: True for keys that do not count, or numbers that are added.
            attn_mask: (L, S) or (N · heads, L, S): True for pairs that do not count, or numbers that are added.
            average_attn_weights: average the weights over the heads; otherwise they are (N, heads, L, S).
            is_causal: a promise that ``attn_mask``, which must be given, is causal.
        """
        turned = self.batch_first and query.ndim == 3
        if turned:
            given = {id(x): ops.transpose(x, 0, 1) for x in (query, key, value)}
            query, key, value = (given[id(x)] for x in (query, key, value))
        output, weights = ops.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k,
            self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, self.training,
            key_padding_mask, need_weights, attn_mask, not self._qkv_same_embed_dim, self.q_proj_weight,
            self.k_proj_weight, self.v_proj_weight, None, None, average_attn_weights, is_causal,
        )  # fmt: skip
        return (ops.transpose(output, 0, 1) if turned else output), weights

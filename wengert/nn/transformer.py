"""The transformer: encoder and decoder layers, their stacks, and both together.

Vaswani et al., "Attention is all you need", NeurIPS 2017; with ``norm_first`` as in Xiong et al., ICML 2020.
"""

import copy
from collections.abc import Callable
from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn import init
from wengert.nn.attention import MultiheadAttention
from wengert.nn.containers import ModuleList
from wengert.nn.dropout import Dropout
from wengert.nn.linear import Linear
from wengert.nn.module import Module
from wengert.nn.normalization import LayerNorm

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

Activation = str | Callable[[Any], Any]


class _Layer(Module):
    """What encoder and decoder layers share: self-attention, the feed-forward block, norms around each block.

    Args:
        attentions: the names of the attentions; each block has a norm and a dropout of its own.
    """

    _attentions: tuple[str, ...]

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        for name in self._attentions:
            attention = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **place)
            self.add_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **place)
        self.norm_first = norm_first
        blocks = range(1, len(self._attentions) + 2)
        for k in blocks:
            self.add_module(f"norm{k}", LayerNorm(d_model, layer_norm_eps, bias=bias, **place))
        for k in blocks:
            self.add_module(f"dropout{k}", Dropout(dropout))
        self.activation = _activation(activation)

    def _around(self, number: int, x: Any, block: Callable[[Any], Any]) -> Any:
        """Return x plus a block's result, normalised after that or (``norm_first``) before the block."""
        norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        if self.norm_first:
            return x + dropout(block(norm(x)))
        return norm(x + dropout(block(x)))

    def _feed_forward(self, x: Any) -> Any:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a feed-forward block; each is added to its input, with dropout, and normalised.

    Args:
        d_model: features. nhead: heads of the attention. dim_feedforward: features between the two linear maps.
        dropout: probability of dropping, in training. activation: ``"relu"``, ``"gelu"`` or a function.
        layer_norm_eps: added to the variance. batch_first: tensors are (N, L, E) instead of (L, N, E).
        norm_first: normalise before each block, not after it. bias: whether linear maps and norms add one.

    Raises:
        RuntimeError: for another activation. ValueError: if ``nhead`` does not divide ``d_model``.

    Example:
        >>> import wengert as wg
        >>> wg.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(wg.zeros(2, 5, 8)).shape
        wengert.Size([2, 5, 8])
    """

    _attentions = ("self_attn",)
    self_attn: MultiheadAttention

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Return the layer's result; the masks are those of :class:`MultiheadAttention`."""

        def attend(x: Any) -> Any:
            return self.self_attn(
                x, x, x, attn_mask=src_mask, key_padding_mask=src_key_padding_mask, need_weights=False,
                is_causal=is_causal,
            )[0]  # fmt: skip

        return self._around(2, self._around(1, src, attend), self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's result, then a feed-forward block; as :class:`TransformerEncoderLayer`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.TransformerDecoderLayer(8, 2, 16)(wg.zeros(4, 2, 8), wg.zeros(5, 2, 8)).shape
        wengert.Size([4, 2, 8])
    """

    _attentions = ("self_attn", "multihead_attn")
    self_attn: MultiheadAttention
    multihead_attn: MultiheadAttention

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Return the layer's result; ``tgt_`` masks are for the self-attention, ``memory_`` masks for the other."""

        def attend(x: Any) -> Any:
            return self.self_attn(
                x, x, x, attn_mask=tgt_mask, key_padding_mask=tgt_key_padding_mask, need_weights=False,
                is_causal=tgt_is_causal,
            )[0]  # fmt: skip

        def look(x: Any) -> Any:
            return self.multihead_attn(
                x, memory, memory, attn_mask=memory_mask, key_padding_mask=memory_key_padding_mask, need_weights=False,
                is_causal=memory_is_causal,
            )[0]  # fmt: skip

        return self._around(3, self._around(2, self._around(1, tgt, attend), look), self._feed_forward)


class _Stack(Module):
    """Copies of a layer, one above the other."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def _normed(self, x: Any) -> Any:
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """``num_layers`` copies of an encoder layer, and a norm at the end.

    Args:
        encoder_layer: the layer that is copied. norm: a module for the result, or None.
        enable_nested_tensor, mask_check: accepted for PyTorch's sake; padding is always computed.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.TransformerEncoderLayer(8, 2, 16)
        >>> wg.nn.TransformerEncoder(layer, 2)(wg.zeros(5, 2, 8)).shape
        wengert.Size([5, 2, 8])
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(encoder_layer, num_layers, norm)
        self.enable_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """Return the result of the last layer; masks as in :class:`TransformerEncoderLayer`."""
        x = src
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, bool(is_causal))
        found: Tensor = self._normed(x)
        return found


class TransformerDecoder(_Stack):
    """``num_layers`` copies of a decoder layer, and a norm at the end.

    Args:
        decoder_layer: the layer that is copied. norm: a module for the result, or None.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.TransformerDecoderLayer(8, 2, 16)
        >>> wg.nn.TransformerDecoder(layer, 2)(wg.zeros(4, 2, 8), wg.zeros(5, 2, 8)).shape
        wengert.Size([4, 2, 8])
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Return the result of the last layer; masks as in :class:`TransformerDecoderLayer`."""
        x = tgt
        for layer in self.layers:
            x = layer(
                x, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, bool(tgt_is_causal),
                memory_is_causal,
            )  # fmt: skip
        found: Tensor = self._normed(x)
        return found


class Transformer(Module):
    """An encoder of the source and a decoder of the target.

    Args:
        d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias: those of
            :class:`TransformerEncoderLayer`. num_encoder_layers, num_decoder_layers: how many of each.
        custom_encoder, custom_decoder: modules in place of the usual stacks.

    Raises:
        RuntimeError: for sources and targets that do not go together.

    Example:
        >>> import wengert as wg
        >>> model = wg.nn.Transformer(8, 2, 1, 1, 16)
        >>> mask = model.generate_square_subsequent_mask(4)
        >>> model(wg.zeros(5, 2, 8), wg.zeros(4, 2, 8), tgt_mask=mask, tgt_is_causal=True).shape
        wengert.Size([4, 2, 8])
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1, activation: Activation = "relu",
        custom_encoder: Any = None, custom_decoder: Any = None, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        options = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
        )  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, **place)

        self.encoder: Any = custom_encoder
        if custom_encoder is None:
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*options, **place), num_encoder_layers, norm())
        self.decoder: Any = custom_decoder
        if custom_decoder is None:
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*options, **place), num_decoder_layers, norm())
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew, by Xavier's uniform scheme; biases and norms stay as they are."""
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Return the decoder's result for a source (S, N, E) and a target (T, N, E)."""
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError(
                f"source and target must have the same batch size, got {src.shape[batch]} and {tgt.shape[batch]}"
            )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError(
                f"source and target must have {self.d_model} features, got {src.shape[-1]} and {tgt.shape[-1]}"
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        found: Tensor = self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
            memory_is_causal,
        )  # fmt: skip
        return found

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """Return the causal mask (sz, sz), -inf above the diagonal and 0 elsewhere.

        Example:
            >>> import wengert as wg
            >>> wg.nn.Transformer.generate_square_subsequent_mask(2)
            tensor([[0., -inf],
                    [0., 0.]])
        """
        return ops.triu(ops.full((sz, sz), float("-inf"), device=device, dtype=dtype), 1)


def _activation(given: Activation) -> Any:
    if isinstance(given, str):
        if given not in ("relu", "gelu"):
            raise RuntimeError(f"activation must be 'relu', 'gelu' or a function, got {given!r}")
        return getattr(ops, given)
    return given

"""Attention layers and transformers beside PyTorch's: state, values, weights, gradients and refusals."""

from typing import Any

import numpy as np
import pytest
import torch

import wengert as wg
from tests.peers.test_recurrent import compare, leaf

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")

RNG = np.random.default_rng(0)
CAUSAL = np.triu(np.ones((4, 4), dtype=bool), 1)
PADDED = np.array([[False, False, True], [False, False, False]])


def pair(kind: str, *args: Any, **options: Any) -> tuple[Any, Any]:
    """The same module twice: ours with the peer's state."""
    mine, peer = (getattr(lib.nn, kind)(*args, **options).double() for lib in (wg, torch))
    assert list(mine.state_dict()) == list(peer.state_dict())
    assert [n for n, _ in mine.named_modules()] == [n for n, _ in peer.named_modules()]
    mine.load_state_dict({n: wg.from_numpy(v.detach().numpy().copy()) for n, v in peer.state_dict().items()})
    return mine, peer


def both(value: Any) -> tuple[Any, Any]:
    return (wg.tensor(value), torch.tensor(value)) if isinstance(value, np.ndarray) else (value, value)


ATTENTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}), ({"bias": False}, {"average_attn_weights": False}), ({"batch_first": True}, {"need_weights": False}),
    ({"add_bias_kv": True}, {"key_padding_mask": PADDED}),
    ({"add_bias_kv": True, "add_zero_attn": True, "batch_first": True}, {"attn_mask": CAUSAL[:, 1:]}),
    ({"add_zero_attn": True}, {"attn_mask": RNG.normal(size=(4, 4, 3)), "need_weights": False}),
    ({"kdim": 5, "vdim": 7}, {}), ({"kdim": 5, "add_bias_kv": True}, {"key_padding_mask": PADDED, "need_weights": False}),
    ({"vdim": 5, "batch_first": True, "bias": False}, {"key_padding_mask": PADDED * -9.0}),
    ({}, {"key_padding_mask": PADDED, "attn_mask": CAUSAL[:, 1:]}),
]  # fmt: skip


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize(("options", "call"), ATTENTIONS, ids=str)
def test_attention(options: dict[str, Any], call: dict[str, Any], batched: bool) -> None:
    mine, peer = pair("MultiheadAttention", 6, 2, **options)
    call = dict(call)
    if not batched and "key_padding_mask" in call:
        call["key_padding_mask"] = call["key_padding_mask"][0]
    if not batched and np.ndim(call.get("attn_mask", 0)) == 3:
        call["attn_mask"] = call["attn_mask"][:2]
    sizes = ((4, 6), (3, options.get("kdim", 6)), (3, options.get("vdim", 6)))
    order = (2, 0, 1) if options.get("batch_first") else (0, 2, 1)
    shapes = [(*(np.array([n, e, 2])[list(order)]),) if batched else (n, e) for n, e in sizes]
    inputs = [leaf(RNG.normal(size=shape)) for shape in shapes]
    results = tuple(
        m(*(x[k] for x in inputs), **{n: both(v)[k] for n, v in call.items()}) for k, m in enumerate((mine, peer))
    )
    compare((results[0], results[1]), inputs, (mine, peer))


@pytest.mark.parametrize("weights", [True, False])
def test_self_attention(weights: bool) -> None:
    mine, peer = pair("MultiheadAttention", 6, 3)
    x = leaf(RNG.normal(size=(4, 2, 6)))
    results = tuple(
        m(x[k], x[k], x[k], attn_mask=both(CAUSAL)[k], need_weights=weights, is_causal=True)
        for k, m in enumerate((mine, peer))
    )
    compare((results[0], results[1]), [x], (mine, peer))


LAYERS: list[dict[str, Any]] = [
    {}, {"batch_first": True, "activation": "gelu"}, {"norm_first": True, "bias": False}, {"layer_norm_eps": 0.1},
]  # fmt: skip


def model(kind: str, lib: Any, options: dict[str, Any]) -> Any:
    settings = {"dropout": 0.0, **options}
    nn = lib.nn
    if kind == "TransformerEncoder":
        layer = nn.TransformerEncoderLayer(6, 2, 8, **settings)
        made = nn.TransformerEncoder(layer, 2, nn.LayerNorm(6), enable_nested_tensor=False)
    elif kind == "TransformerDecoder":
        made = nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8, **settings), 2)
    elif kind == "Transformer":
        made = nn.Transformer(6, 2, 1, 2, 8, **settings)
    else:
        made = getattr(nn, kind)(6, 2, 8, **settings)
    return made.double()


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("options", LAYERS, ids=str)
@pytest.mark.parametrize(
    "kind",
    ["TransformerEncoderLayer", "TransformerDecoderLayer", "TransformerEncoder", "TransformerDecoder", "Transformer"],
)
def test_transformers(kind: str, options: dict[str, Any], masked: bool) -> None:
    mine, peer = (model(kind, lib, options) for lib in (wg, torch))
    assert list(mine.state_dict()) == list(peer.state_dict())
    assert [n for n, _ in mine.named_modules()] == [n for n, _ in peer.named_modules()]
    mine.load_state_dict({n: wg.from_numpy(v.detach().numpy().copy()) for n, v in peer.state_dict().items()})
    source, target = (leaf(RNG.normal(size=(2, n, 6) if options.get("batch_first") else (n, 2, 6))) for n in (3, 4))
    calls: dict[str, Any] = {}
    if masked and kind.startswith("TransformerEncoder"):
        calls = {"src_key_padding_mask": PADDED}
    elif masked:
        calls = {"tgt_mask": CAUSAL, "memory_key_padding_mask": PADDED, "tgt_is_causal": True}
    inputs = [source] if "Encoder" in kind else [source, target] if kind == "Transformer" else [target, source]
    results = tuple(
        m(*(x[k] for x in inputs), **{n: both(v)[k] for n, v in calls.items()}) for k, m in enumerate((mine, peer))
    )
    compare((results[0], results[1]), inputs, (mine, peer))


def test_mask_of_the_past() -> None:
    got, want = (lib.nn.Transformer.generate_square_subsequent_mask(4) for lib in (wg, torch))
    np.testing.assert_array_equal(got.numpy(), want.numpy())


REFUSED: dict[str, Any] = {
    "heads": lambda lib: lib.nn.MultiheadAttention(6, 4),
    "width": lambda lib: lib.nn.MultiheadAttention(0, 1),
    "query": lambda lib: lib.nn.MultiheadAttention(6, 2)(*[lib.ones(3, 2, 5)] * 3),
    "mask": lambda lib: lib.nn.MultiheadAttention(6, 2)(*[lib.ones(3, 2, 6)] * 3, attn_mask=lib.zeros(2, 3)),
    "causal without mask": lambda lib: lib.nn.MultiheadAttention(6, 2)(*[lib.ones(3, 2, 6)] * 3, is_causal=True),
    "activation": lambda lib: lib.nn.TransformerEncoderLayer(6, 2, activation="elu"),
    "batches": lambda lib: lib.nn.Transformer(6, 2, 1, 1, 8)(lib.ones(3, 2, 6), lib.ones(3, 1, 6)),
    "features": lambda lib: lib.nn.Transformer(6, 2, 1, 1, 8)(lib.ones(3, 2, 5), lib.ones(3, 2, 5)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    for lib in (wg, torch):
        with pytest.raises((ValueError, RuntimeError, AssertionError)):
            REFUSED[name](lib)

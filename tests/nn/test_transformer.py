"""Attention and transformers: what masks mean, what two ways give alike, and what is refused."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn

RNG = np.random.default_rng(0)
CAUSAL = nn.Transformer.generate_square_subsequent_mask(4, dtype=wg.float64)


def data(*shape: int) -> Any:
    return wg.tensor(RNG.normal(size=shape))


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)


def attention(**options: Any) -> Any:
    m = nn.MultiheadAttention(6, 2, **options).double()
    with wg.no_grad():
        for p in m.parameters():
            p.copy_(data(*p.shape))
    return m


def test_formula() -> None:
    m, x = attention(), data(4, 1, 6)
    w, b = m.in_proj_weight.detach().numpy(), m.in_proj_bias.detach().numpy()
    q, k, v = (p.reshape(4, 2, 3).transpose(1, 0, 2) for p in np.split(x.numpy()[:, 0] @ w.T + b, 3, 1))
    scores = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(3))
    weights = scores / scores.sum(-1, keepdims=True)
    joined = (weights @ v).transpose(1, 0, 2).reshape(4, 6)
    out, mean = m(x, x, x)
    want = joined @ m.out_proj.weight.detach().numpy().T + m.out_proj.bias.detach().numpy()
    np.testing.assert_allclose(out[:, 0].detach().numpy(), want, rtol=1e-10)
    np.testing.assert_allclose(mean[0].detach().numpy(), weights.mean(0), rtol=1e-10)


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True, "add_zero_attn": True}, {"kdim": 5, "vdim": 3}], ids=str)
def test_ways_that_give_the_same(options: dict[str, Any]) -> None:
    m = attention(**options)
    q, k, v = data(4, 2, 6), data(3, 2, m.kdim), data(3, 2, m.vdim)
    hidden = wg.tensor([[False, False, True], [False, True, False]])
    out, _ = m(q, k, v, key_padding_mask=hidden)
    close(m(q, k, v, key_padding_mask=hidden, need_weights=False)[0], out)
    close(m(q, k, v, key_padding_mask=wg.where(hidden, -np.inf, 0.0).double())[0], out)
    close(m(q, k, v, attn_mask=hidden[:, None].expand(2, 4, 3).repeat_interleave(2, 0))[0], out)
    for n in range(2):
        close(m(q[:, n], k[:, n], v[:, n], key_padding_mask=hidden[n])[0], out[:, n])
    m.batch_first = True
    close(m(*(x.transpose(0, 1) for x in (q, k, v)), key_padding_mask=hidden)[0].transpose(0, 1), out)


def test_a_causal_mask_hides_the_future() -> None:
    m, x = attention(), data(4, 2, 6)
    y = x.clone()
    y[2:] = data(2, 2, 6)
    for weights in (True, False):
        first, second = (m(z, z, z, attn_mask=CAUSAL, need_weights=weights, is_causal=True)[0] for z in (x, y))
        close(first[:2], second[:2])
        assert not np.allclose(first[2:].detach().numpy(), second[2:].detach().numpy())


@pytest.mark.parametrize("norm_first", [True, False])
def test_transformer(norm_first: bool) -> None:
    model = nn.Transformer(6, 2, 2, 2, 8, dropout=0.1, norm_first=norm_first).double().eval()
    source, target = data(3, 2, 6), data(4, 2, 6)
    want = model(source, target, tgt_mask=CAUSAL, tgt_is_causal=True)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        close(twin(source, target, tgt_mask=CAUSAL), want)
    memory = model.encoder(source)
    close(model.decoder(target, memory, CAUSAL), want)
    assert not np.allclose(model.train()(source, target, tgt_mask=CAUSAL).detach().numpy(), want.detach().numpy())
    first, second = model.encoder.layers
    assert first.linear1.weight is not second.linear1.weight
    assert repr(nn.TransformerEncoderLayer(4, 2, 5, activation=nn.GELU())).count("GELU") == 1


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (lambda: nn.MultiheadAttention(6, 4), ValueError, "num_heads"),
    (lambda: nn.MultiheadAttention(0, 1), ValueError, "positive"),
    (lambda: attention()(*[data(3, 2, 5)] * 3), RuntimeError, "size 6"),
    (lambda: attention()(*[data(3, 2, 6)] * 3, attn_mask=wg.zeros(2, 3)), RuntimeError, "attn_mask"),
    (lambda: attention()(*[data(3, 2, 6)] * 3, key_padding_mask=wg.zeros(3, 2)), RuntimeError, "key_padding_mask"),
    (lambda: attention()(*[data(3, 2, 6)] * 3, is_causal=True), RuntimeError, "give the mask"),
    (lambda: nn.TransformerEncoderLayer(6, 2, activation="elu"), RuntimeError, "'gelu'"),
    (lambda: nn.Transformer(6, 2, 1, 1, 8)(wg.ones(3, 2, 6), wg.ones(3, 1, 6)), RuntimeError, "batch"),
    (lambda: nn.Transformer(6, 2, 1, 1, 8)(wg.ones(3, 2, 5), wg.ones(3, 2, 6)), RuntimeError, "6 features"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED)
def test_refusals(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as found:
        call()
    assert text in str(found.value)

"""Layers beside PyTorch's: names, text, values, gradients and state after training and evaluation."""

from typing import Any

import numpy as np
import pytest
import torch

import wengert as wg
import wengert.nn

LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("Linear", (3, 4), {}, (5, 3)),
    ("Linear", (3, 4), {"bias": False}, (2, 5, 3)),
    ("Conv1d", (2, 4, 4), {"padding": "same", "padding_mode": "reflect"}, (1, 2, 9)),
    ("Conv2d", (2, 4, 3), {"padding": "same", "groups": 2, "padding_mode": "circular", "dilation": 2}, (1, 2, 7, 7)),
    ("Conv2d", (2, 4, (3, 2)), {"padding": (1, 2), "stride": 2}, (2, 2, 7, 7)),
    ("Conv3d", (2, 4, 3), {"padding": (1, 2, 1), "padding_mode": "replicate"}, (1, 2, 5, 5, 5)),
    ("ConvTranspose1d", (2, 4, 3), {"dilation": 2}, (2, 5)),
    ("ConvTranspose2d", (2, 4, 3), {"output_padding": 1, "stride": 2}, (1, 2, 4, 4)),
    ("ConvTranspose3d", (2, 4, 2), {"groups": 2}, (1, 2, 3, 3, 3)),
    ("MaxPool1d", (2,), {"ceil_mode": True, "padding": 1}, (1, 2, 7)),
    ("MaxPool2d", (2,), {}, (1, 2, 6, 6)),
    ("MaxPool3d", (2,), {"stride": 1}, (1, 2, 4, 4, 4)),
    ("AvgPool1d", (3,), {}, (1, 2, 9)),
    ("AvgPool2d", ((2, 3),), {"padding": (1, 1), "count_include_pad": False}, (1, 2, 6, 6)),
    ("AvgPool3d", (2,), {"divisor_override": 3}, (1, 2, 4, 4, 4)),
    ("LPPool1d", (2.0, 3), {}, (1, 2, 9)),
    ("LPPool2d", (2.0, 3), {"ceil_mode": True}, (1, 2, 7, 7)),
    ("AdaptiveAvgPool1d", (3,), {}, (1, 2, 7)),
    ("AdaptiveAvgPool2d", ((2, None),), {}, (1, 2, 6, 6)),
    ("AdaptiveMaxPool1d", (3,), {}, (1, 2, 7)),
    ("AdaptiveMaxPool2d", (3,), {}, (1, 2, 7, 7)),
    ("ReflectionPad1d", (2,), {}, (1, 2, 7)),
    ("ReflectionPad2d", ((1, 2, 0, 1),), {}, (1, 2, 7, 7)),
    ("ReplicationPad3d", (1,), {}, (1, 2, 3, 3, 3)),
    ("ConstantPad2d", (1, 3.0), {}, (1, 2, 3, 3)),
    ("ZeroPad2d", (1,), {}, (1, 2, 3, 3)),
    ("CircularPad3d", (1,), {}, (1, 1, 2, 2, 2)),
    ("BatchNorm1d", (3,), {}, (4, 3)),
    ("BatchNorm1d", (3,), {"affine": False, "track_running_stats": False}, (4, 3, 5)),
    ("BatchNorm2d", (3,), {"momentum": None}, (4, 3, 2, 2)),
    ("BatchNorm3d", (3,), {"eps": 1e-3}, (4, 3, 2, 2, 2)),
    ("InstanceNorm1d", (3,), {}, (3, 4)),
    ("InstanceNorm2d", (3,), {"affine": True, "track_running_stats": True}, (4, 3, 4, 4)),
    ("LayerNorm", (3,), {}, (2, 3)),
    ("LayerNorm", ([2, 3],), {"bias": False}, (4, 2, 3)),
    ("GroupNorm", (2, 4), {}, (3, 4, 5)),
    ("RMSNorm", (4,), {}, (3, 4)),
    ("LocalResponseNorm", (2,), {}, (1, 4, 5)),
    ("Flatten", (), {}, (2, 3, 4)),
    ("Unflatten", (1, (3, 4)), {}, (2, 12)),
    ("PixelShuffle", (2,), {}, (1, 4, 2, 2)),
    ("PixelUnshuffle", (2,), {}, (1, 1, 4, 4)),
    ("ChannelShuffle", (2,), {}, (1, 4, 2, 2)),
    ("Upsample", (), {"scale_factor": 2}, (1, 1, 3)),
    ("Upsample", (), {"size": (5, 7), "mode": "bicubic", "align_corners": False}, (1, 1, 3, 3)),
    ("UpsamplingBilinear2d", (4,), {}, (1, 1, 2, 2)),
    ("UpsamplingNearest2d", (), {"scale_factor": 3}, (1, 1, 2, 2)),
    ("Fold", ((4, 4), 2), {}, (1, 12, 9)),
    ("Unfold", (2,), {"padding": 1}, (1, 3, 4, 4)),
    ("GELU", (), {"approximate": "tanh"}, (3, 4)),
    ("Threshold", (0.1, 2.0), {}, (3, 4)),
    ("Softmax2d", (), {}, (1, 3, 4, 4)),
    ("Softmax", (1,), {}, (3, 4)),
    ("Softmin", (0,), {}, (3, 4)),
    ("LogSoftmax", (-1,), {}, (3, 4)),
    ("PReLU", (4,), {}, (3, 4)),
    ("RReLU", (), {}, (3, 4)),
    ("Dropout", (0.0,), {}, (3, 4)),
    *((name, (), {}, (3, 4)) for name in (
        "ReLU", "ReLU6", "ELU", "CELU", "SELU", "GLU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
        "Identity", "LeakyReLU", "LogSigmoid", "Mish", "SiLU", "Sigmoid", "Softplus", "Softshrink", "Softsign", "Tanh",
        "Tanhshrink",
    )),
    *((name, (), {"inplace": True}, (3, 4)) for name in ("ReLU", "ELU", "SiLU", "Hardtanh", "LeakyReLU")),
]  # fmt: skip


def label(case: tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]) -> str:
    name, args, options, _ = case
    return f"{name}({', '.join([*map(str, args), *(f'{k}={v}' for k, v in options.items())])})"


def copy_state(module: Any, peer: Any) -> None:
    """Give the peer's parameters and buffers to our module."""
    state = {name: wg.from_numpy(value.detach().numpy().copy()) for name, value in peer.state_dict().items()}
    assert repr(module.load_state_dict(state)) == "<All keys matched successfully>"


@pytest.mark.parametrize("case", LAYERS, ids=label)
def test_layers(case: tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]) -> None:
    name, args, options, shape = case
    mine, peer = (getattr(lib.nn, name)(*args, **options).double() for lib in (wg, torch))
    assert repr(mine) == repr(peer)
    assert list(mine.state_dict()) == list(peer.state_dict())
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in peer.named_parameters()]
    copy_state(mine, peer)
    for mode in (True, False):
        if name == "RReLU" and mode:
            continue  # random slopes
        mine.train(mode)
        peer.train(mode)
        data = np.random.default_rng(1).normal(size=shape)
        x, y = wg.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
        out, want = mine(x * 1), peer(y * 1)
        np.testing.assert_allclose(out.detach().numpy(), want.detach().numpy(), rtol=1e-9, atol=1e-12)
        rtol = 1e-7 if name == "Hardsigmoid" else 1e-9  # the peer keeps 1/6 in float32
        if out.requires_grad:
            (out**2).sum().backward()
            (want**2).sum().backward()
            np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=rtol, atol=1e-11)
    for (key, p), q in zip(mine.named_parameters(), peer.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-9, atol=1e-11, err_msg=key)
    for (key, p), q in zip(mine.state_dict().items(), peer.state_dict().values(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-12, err_msg=key)


TABLES: list[tuple[str, dict[str, Any]]] = [
    ("Embedding", {}), ("Embedding", {"padding_idx": 2}), ("Embedding", {"max_norm": 1.0}),
    ("Embedding", {"scale_grad_by_freq": True}), ("EmbeddingBag", {"mode": "sum"}), ("EmbeddingBag", {"mode": "mean"}),
    ("EmbeddingBag", {"mode": "max", "padding_idx": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), TABLES, ids=str)
def test_tables(name: str, options: dict[str, Any]) -> None:
    mine, peer = (getattr(lib.nn, name)(5, 3, **options).double() for lib in (wg, torch))
    assert repr(mine) == repr(peer)
    copy_state(mine, peer)
    indices = [[1, 2, 2], [4, 0, 1]]
    out, want = mine(wg.tensor(indices)), peer(torch.tensor(indices))
    np.testing.assert_allclose(out.detach().numpy(), want.detach().numpy(), rtol=1e-9)
    (out**2).sum().backward()
    (want**2).sum().backward()
    np.testing.assert_allclose(mine.weight.grad.numpy(), peer.weight.grad.numpy(), rtol=1e-9)
    np.testing.assert_allclose(mine.weight.detach().numpy(), peer.weight.detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("batched", [True, False])
def test_adaptive_log_softmax(batched: bool) -> None:
    mine, peer = (
        lib.nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3, 7], div_value=2.0, head_bias=True).double() for lib in (wg, torch)
    )
    assert repr(mine) == repr(peer)
    copy_state(mine, peer)
    data, labels = np.random.default_rng(0).normal(size=(5, 6)), np.array([0, 4, 11, 2, 8])
    data, labels = (data, labels) if batched else (data[1], labels[1])
    x, y = wg.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    got, want = mine(x, wg.tensor(labels)), peer(y, torch.tensor(labels))
    np.testing.assert_allclose(got.output.detach().numpy(), want.output.detach().numpy(), rtol=1e-9)
    got.loss.backward()
    want.loss.backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-9, atol=1e-12)
    for p, q in zip(mine.parameters(), peer.parameters(), strict=True):
        if q.grad is not None:
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-9, atol=1e-12)
    if batched:
        np.testing.assert_allclose(mine.log_prob(x).detach().numpy(), peer.log_prob(y).detach().numpy(), rtol=1e-9)
        assert mine.predict(x).tolist() == peer.predict(y).tolist()


def test_text_of_containers_and_losses() -> None:
    def model(nn: Any) -> Any:
        return nn.Sequential(
            nn.Linear(2, 3),
            nn.ModuleDict({"a": nn.ReLU(), "b": nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1), nn.Tanh()])}),
            nn.Sequential(),
            nn.CrossEntropyLoss(),
            nn.MaxUnpool2d(2),
            nn.FractionalMaxPool2d(2, output_ratio=0.5),
            nn.AlphaDropout(),
            nn.CosineSimilarity(),
            nn.Bilinear(1, 2, 3),
        )

    assert repr(model(wg.nn)) == repr(model(torch.nn))


def hooked(lib: Any) -> list[Any]:
    """What hooks of two nested modules are called with, in order."""
    inner, outer = lib.nn.Linear(3, 2).double(), None
    outer = lib.nn.Sequential(inner, lib.nn.Tanh())
    with lib.no_grad():
        for i, p in enumerate(outer.parameters()):
            p.fill_(0.1 * (i + 1))
    seen: list[Any] = []

    def grads(gs: Any) -> Any:
        return [None if g is None else g.numpy().round(12).tolist() for g in gs]

    for name, m in (("inner", inner), ("outer", outer)):
        m.register_forward_pre_hook(lambda mod, args, n=name: seen.append((n, "pre", tuple(args[0].shape))))
        m.register_forward_hook(lambda mod, args, out, n=name: seen.append((n, "post", tuple(out.shape))))
        m.register_full_backward_pre_hook(lambda mod, go, n=name: seen.append((n, "backward pre", grads(go))))
        m.register_full_backward_hook(lambda mod, gi, go, n=name: seen.append((n, "backward", grads(gi), grads(go))))
    x = lib.tensor([[1.0, -2.0, 0.5]], dtype=lib.float64, requires_grad=True)
    (outer(x) ** 2).sum().backward()
    seen.append(grads([x.grad, *(p.grad for p in outer.parameters())]))
    return seen


def test_hooks_are_called_in_the_same_order_with_the_same_gradients() -> None:
    mine, peer = hooked(wg), hooked(torch)
    assert [s[:2] for s in mine[:-1]] == [s[:2] for s in peer[:-1]]
    flat = [str(s) for s in mine]
    assert flat == [str(s) for s in peer]


def test_every_name_that_this_version_promises_is_there() -> None:
    later = {
        "RNN", "LSTM", "GRU", "RNNBase", "RNNCell", "LSTMCell", "GRUCell", "RNNCellBase", "MultiheadAttention",
        "Transformer", "TransformerEncoder", "TransformerDecoder", "TransformerEncoderLayer", "TransformerDecoderLayer",
        "SyncBatchNorm", "LinearCrossEntropyLoss", "LinearCrossEntropyOptions",
        "Container",
    }  # fmt: skip
    names = {n for n in torch.nn.modules.__all__ if not n.startswith("Lazy")}
    assert sorted(names - later - set(wg.nn.__all__)) == []

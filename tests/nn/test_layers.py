"""Layers against formulas written in NumPy, and what they refuse."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import erf, log_softmax, softmax

import wengert as wg
from wengert import nn

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4)) * 2


def tensor(a: Any) -> Any:
    return wg.tensor(a, dtype=wg.float64)


def close(got: Any, want: Any, **options: Any) -> None:
    np.testing.assert_allclose(got.detach().numpy(), want, **{"rtol": 1e-9, "atol": 1e-12, **options})


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


# ---- activations

ACTIVATIONS = {
    "ReLU": (nn.ReLU(), lambda x: np.maximum(x, 0)),
    "ReLU6": (nn.ReLU6(), lambda x: np.clip(x, 0, 6)),
    "ELU": (nn.ELU(0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    "CELU": (nn.CELU(0.5), lambda x: np.maximum(x, 0) + np.minimum(0, 0.5 * np.expm1(x / 0.5))),
    "SELU": (nn.SELU(), lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))),
    "GELU": (nn.GELU(), lambda x: x * (1 + erf(x / math.sqrt(2))) / 2),
    "GELU tanh": (
        nn.GELU("tanh"), lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "SiLU": (nn.SiLU(), lambda x: x * sigmoid(x)),
    "Mish": (nn.Mish(), lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "Sigmoid": (nn.Sigmoid(), sigmoid),
    "LogSigmoid": (nn.LogSigmoid(), lambda x: -np.log1p(np.exp(-x))),
    "Tanh": (nn.Tanh(), np.tanh),
    "Tanhshrink": (nn.Tanhshrink(), lambda x: x - np.tanh(x)),
    "Softsign": (nn.Softsign(), lambda x: x / (1 + abs(x))),
    "Softplus": (nn.Softplus(beta=2.0), lambda x: np.log1p(np.exp(2 * x)) / 2),
    "Hardsigmoid": (nn.Hardsigmoid(), lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "Hardswish": (nn.Hardswish(), lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "Hardtanh": (nn.Hardtanh(-0.5, 1.5), lambda x: np.clip(x, -0.5, 1.5)),
    "Hardshrink": (nn.Hardshrink(0.7), lambda x: np.where(abs(x) > 0.7, x, 0)),
    "Softshrink": (nn.Softshrink(0.7), lambda x: np.sign(x) * np.maximum(abs(x) - 0.7, 0)),
    "LeakyReLU": (nn.LeakyReLU(0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
    "PReLU": (nn.PReLU().double(), lambda x: np.where(x > 0, x, 0.25 * x)),
    "RReLU": (nn.RReLU().eval(), lambda x: np.where(x > 0, x, (1 / 8 + 1 / 3) / 2 * x)),
    "Threshold": (nn.Threshold(0.3, 9.0), lambda x: np.where(x > 0.3, x, 9.0)),
    "GLU": (nn.GLU(), lambda x: x[:, :2] * sigmoid(x[:, 2:])),
    "Softmax": (nn.Softmax(1), lambda x: softmax(x, 1)),
    "Softmax default": (nn.Softmax(), lambda x: softmax(x, 1)),
    "Softmin": (nn.Softmin(0), lambda x: softmax(-x, 0)),
    "LogSoftmax": (nn.LogSoftmax(-1), lambda x: log_softmax(x, -1)),
    "Identity": (nn.Identity(), lambda x: x),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    layer, formula = ACTIVATIONS[name]
    close(layer(tensor(X)), formula(X))


@pytest.mark.parametrize(
    "layer",
    [nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU, nn.Mish, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.ELU, nn.CELU,
     nn.LeakyReLU, lambda inplace: nn.Threshold(0.1, 0.5, inplace)],
)  # fmt: skip
def test_in_place_activations(layer: Any) -> None:
    want = layer(inplace=False)(tensor(X))
    leaf = tensor(X).requires_grad_()
    x = leaf * 1
    y = layer(inplace=True)(x)
    assert y is x
    close(x, want.numpy())
    x.sum().backward()
    other = tensor(X).requires_grad_()
    layer(inplace=False)(other).sum().backward()
    close(leaf.grad, other.grad.numpy())
    with pytest.raises(RuntimeError, match="leaf"):
        layer(inplace=True)(leaf)


def test_softmax2d() -> None:
    x = RNG.normal(size=(2, 3, 4, 4))
    close(nn.Softmax2d()(tensor(x)), softmax(x, 1))
    close(nn.Softmax2d()(tensor(x[0])), softmax(x[0], 0))
    with pytest.raises(ValueError, match="Softmax2d"):
        nn.Softmax2d()(tensor(X))


# ---- linear maps


def test_linear_and_bilinear() -> None:
    m = nn.Linear(4, 2).double()
    close(m(tensor(X)), X @ m.weight.detach().numpy().T + m.bias.detach().numpy())
    close(nn.Linear(4, 0).double()(tensor(X)), np.zeros((3, 0)))
    b = nn.Bilinear(4, 3, 2).double()
    y = RNG.normal(size=(3, 3))
    want = np.einsum("ni,kij,nj->nk", X, b.weight.detach().numpy(), y) + b.bias.detach().numpy()
    close(b(tensor(X), tensor(y)), want)
    assert nn.Linear(4, 2, bias=False).bias is None


# ---- normalisation


def test_batch_norm_statistics() -> None:
    m = nn.BatchNorm2d(3, momentum=0.2).double()
    mean, var = np.zeros(3), np.ones(3)
    for k in range(3):
        x = RNG.normal(size=(4, 3, 2, 2)) * 3 + k
        batch_mean, batch_var = x.mean((0, 2, 3)), x.var((0, 2, 3))
        want = (x - batch_mean[:, None, None]) / np.sqrt(batch_var[:, None, None] + 1e-5)
        close(m(tensor(x)), want)
        mean = 0.8 * mean + 0.2 * batch_mean
        var = 0.8 * var + 0.2 * x.var((0, 2, 3), ddof=1)
    close(m.running_mean, mean)
    close(m.running_var, var)
    assert m.num_batches_tracked.item() == 3
    x = RNG.normal(size=(1, 3, 2, 2))
    close(m.eval()(tensor(x)), (x - mean[:, None, None]) / np.sqrt(var[:, None, None] + 1e-5))
    assert m.num_batches_tracked.item() == 3
    m.reset_running_stats()
    assert (m.running_mean.tolist(), m.running_var.tolist(), m.num_batches_tracked.item()) == ([0.0] * 3, [1.0] * 3, 0)


@pytest.mark.parametrize(("eps", "training"), [(-1.0, True), (0.0, True), (-1.0, False)])
def test_batch_norm_refuses_an_eps_that_gives_nan(eps: float, training: bool) -> None:
    with pytest.raises(ValueError, match=r"eps must be .*, got"):
        nn.BatchNorm1d(3, eps=eps).train(training)(wg.ones(2, 3))


def test_batch_norm_without_momentum_averages() -> None:
    m = nn.BatchNorm1d(1, momentum=None).double()
    xs = [RNG.normal(size=(4, 1)) for _ in range(3)]
    for x in xs:
        m(tensor(x))
    close(m.running_mean, [np.mean([x.mean() for x in xs])])
    close(m.running_var, [np.mean([x.var(ddof=1) for x in xs])])


def test_batch_norm_without_statistics_uses_the_batch_in_evaluation() -> None:
    m = nn.BatchNorm1d(4, track_running_stats=False, affine=False).eval()
    want = (X - X.mean(0)) / np.sqrt(X.var(0) + 1e-5)
    close(m(tensor(X)), want)
    assert list(m.state_dict()) == []


@pytest.mark.parametrize("bias", [True, False])
def test_affine_norms(bias: bool) -> None:
    m = nn.LayerNorm((2, 4), bias=bias).double()
    with wg.no_grad():
        m.weight.uniform_()
    x = RNG.normal(size=(3, 2, 4))
    flat = x.reshape(3, -1)
    want = ((flat - flat.mean(1, keepdims=True)) / np.sqrt(flat.var(1, keepdims=True) + 1e-5)).reshape(x.shape)
    close(m(tensor(x)), want * m.weight.detach().numpy())
    assert (m.bias is None) != bias


def test_group_instance_and_rms_norm() -> None:
    x = RNG.normal(size=(2, 6, 5))
    groups = x.reshape(2, 3, -1)
    want = ((groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)).reshape(x.shape)
    close(nn.GroupNorm(3, 6, affine=False)(tensor(x)), want)
    want = (x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + 1e-5)
    close(nn.InstanceNorm1d(6)(tensor(x)), want)
    close(nn.InstanceNorm1d(6)(tensor(x[0])), want[0])
    close(nn.RMSNorm(5, eps=1e-3).double()(tensor(x)), x / np.sqrt((x**2).mean(2, keepdims=True) + 1e-3))
    tiny = x * 1e-9
    eps = np.finfo(np.float64).eps
    close(nn.RMSNorm(5).double()(tensor(tiny)), tiny / np.sqrt((tiny**2).mean(2, keepdims=True) + eps))


def test_instance_norm_tracks() -> None:
    m = nn.InstanceNorm1d(2, track_running_stats=True, momentum=1.0).double()
    x = RNG.normal(size=(3, 2, 5))
    m(tensor(x))
    close(m.running_mean, x.mean(2).mean(0))
    close(m.running_var, x.var(2, ddof=1).mean(0))


def test_local_response_norm() -> None:
    x = RNG.normal(size=(1, 5, 3))
    padded = np.pad(x**2, ((0, 0), (1, 1), (0, 0)))
    mean = sum(padded[:, i : i + 5] for i in range(3)) / 3
    close(nn.LocalResponseNorm(3, alpha=0.5, beta=0.7, k=2.0)(tensor(x)), x / (2 + 0.5 * mean) ** 0.7)


@pytest.mark.parametrize(
    ("layer", "shape", "match"),
    [
        (nn.BatchNorm1d(3), (3,), r"BatchNorm1d takes \(N, C\) or \(N, C, L\), got shape \(3,\)"),
        (nn.BatchNorm2d(3), (1, 3, 3), "BatchNorm2d"),
        (nn.BatchNorm3d(3), (1, 3, 3), "BatchNorm3d"),
        (nn.BatchNorm1d(3), (1, 3), "more than 1 value per channel|Expected more|one value"),
        (nn.InstanceNorm2d(3), (3, 3), "InstanceNorm2d"),
        (nn.InstanceNorm1d(3, affine=True), (1, 4, 5), "made for 3 channels, got 4"),
    ],
    ids=str,
)
def test_norms_refuse(layer: Any, shape: tuple[int, ...], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        layer(wg.zeros(*shape))


def test_group_norm_refuses_groups_that_do_not_divide() -> None:
    with pytest.raises(ValueError, match="divisible"):
        nn.GroupNorm(2, 3)


# ---- dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_rate_and_scale(p: float) -> None:
    wg.manual_seed(0)
    y = nn.Dropout(p)(wg.ones(40_000)).numpy()
    assert abs((y != 0).mean() - (1 - p)) < 0.02
    np.testing.assert_allclose(y[y != 0], 1 / (1 - p), rtol=1e-5)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_channel_dropout(dims: int) -> None:
    wg.manual_seed(0)
    y = (
        (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)[dims - 1](0.5)(wg.ones(40, 25, *(4,) * dims))
        .numpy()
        .reshape(1000, -1)
    )
    assert (y == y[:, :1]).all()
    assert set(np.unique(y)) == {0.0, 2.0}
    assert abs((y[:, 0] != 0).mean() - 0.5) < 0.06


@pytest.mark.parametrize("layer", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_keeps_mean_and_variance(layer: Any) -> None:
    wg.manual_seed(0)
    y = layer(0.3)(wg.randn(2000, 50)).numpy()
    assert abs(y.mean()) < 0.03
    assert abs(y.std() - 1) < 0.03


def test_dropout_in_evaluation_and_in_place() -> None:
    x = wg.ones(3)
    for layer in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout):
        assert layer(0.5).eval()(x) is x
    y = wg.ones(100)
    assert nn.Dropout(0.5, inplace=True)(y) is y
    assert (y.numpy() == 0).any()
    for p in (-0.1, 1.5):
        with pytest.raises(ValueError, match="between 0 and 1"):
            nn.Dropout(p)


# ---- embeddings


def test_embedding_rows_and_gradients() -> None:
    m = nn.Embedding(5, 3, padding_idx=1).double()
    indices = wg.tensor([[1, 2], [2, 4]])
    close(m(indices), m.weight.detach().numpy()[[[1, 2], [2, 4]]])
    m(indices).sum().backward()
    assert m.weight.grad.tolist() == [[0.0] * 3, [0.0] * 3, [2.0] * 3, [0.0] * 3, [1.0] * 3]
    m.zero_grad()
    m.scale_grad_by_freq = True
    m(indices).sum().backward()
    assert m.weight.grad[2].tolist() == [1.0] * 3


def test_embedding_max_norm_rescales_only_what_is_looked_up() -> None:
    m = nn.Embedding.from_pretrained(tensor([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]]), freeze=False, max_norm=1.0)
    close(m(wg.tensor([0, 1])), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)
    close(m.weight, [[0.6, 0.8], [0.3, 0.4], [6.0, 8.0]], rtol=1e-6)
    assert m.weight.requires_grad
    assert not nn.Embedding.from_pretrained(tensor([[1.0]])).weight.requires_grad


@pytest.mark.parametrize(("mode", "fold"), [("sum", np.sum), ("mean", np.mean), ("max", np.max)])
def test_embedding_bag(mode: str, fold: Any) -> None:
    table = RNG.normal(size=(5, 3))
    m = nn.EmbeddingBag.from_pretrained(tensor(table), mode=mode)
    want = [fold(table[[1, 2, 4]], 0), fold(table[[4, 3, 2]], 0)]
    close(m(wg.tensor([[1, 2, 4], [4, 3, 2]])), want)
    close(m(wg.tensor([1, 2, 4, 4, 3, 2]), wg.tensor([0, 3])), want)
    last = nn.EmbeddingBag.from_pretrained(tensor(table), mode=mode, include_last_offset=True)
    close(last(wg.tensor([1, 2, 4, 4, 3, 2]), wg.tensor([0, 3, 6])), want)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: nn.Embedding(3, 2, padding_idx=3), ValueError),
        (lambda: nn.Embedding(3, 2, padding_idx=-4), ValueError),
        (lambda: nn.Embedding(3, 2, _weight=wg.ones(2, 2)), ValueError),
        (lambda: nn.Embedding.from_pretrained(wg.ones(2)), ValueError),
        (lambda: nn.EmbeddingBag(3, 2, mode="min"), ValueError),
    ],
)
def test_bad_embeddings(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


# ---- shapes, pooling, padding, resampling


@pytest.mark.parametrize(
    ("layer", "shape", "want"),
    [
        (nn.Flatten(), (2, 3, 4), (2, 12)),
        (nn.Flatten(0, 1), (2, 3, 4), (6, 4)),
        (nn.Unflatten(1, (3, 4)), (2, 12), (2, 3, 4)),
        (nn.Unflatten(-1, (3, -1)), (2, 12), (2, 3, 4)),
        (nn.PixelShuffle(3), (1, 9, 2, 2), (1, 1, 6, 6)),
        (nn.PixelUnshuffle(3), (1, 1, 6, 6), (1, 9, 2, 2)),
        (nn.MaxPool1d(3, 2, padding=1, ceil_mode=True), (1, 2, 8), (1, 2, 5)),
        (nn.MaxPool2d((2, 3), dilation=2), (1, 2, 9, 9), (1, 2, 4, 2)),
        (nn.MaxPool3d(2), (1, 2, 4, 4, 4), (1, 2, 2, 2, 2)),
        (nn.AvgPool1d(3), (2, 9), (2, 3)),
        (nn.AvgPool2d(3, stride=1, padding=1), (1, 2, 5, 5), (1, 2, 5, 5)),
        (nn.AvgPool3d((1, 2, 2)), (1, 2, 4, 4, 4), (1, 2, 4, 2, 2)),
        (nn.LPPool1d(2, 3), (1, 2, 9), (1, 2, 3)),
        (nn.LPPool2d(2, (1, 3)), (1, 2, 9, 9), (1, 2, 9, 3)),
        (nn.LPPool3d(2, 2), (1, 2, 4, 4, 4), (1, 2, 2, 2, 2)),
        (nn.AdaptiveAvgPool1d(3), (1, 2, 7), (1, 2, 3)),
        (nn.AdaptiveAvgPool2d((None, 2)), (1, 2, 7, 6), (1, 2, 7, 2)),
        (nn.AdaptiveAvgPool3d(2), (1, 2, 5, 5, 5), (1, 2, 2, 2, 2)),
        (nn.AdaptiveMaxPool1d(3), (1, 2, 7), (1, 2, 3)),
        (nn.AdaptiveMaxPool2d(2), (1, 2, 7, 6), (1, 2, 2, 2)),
        (nn.AdaptiveMaxPool3d(2), (1, 2, 5, 5, 5), (1, 2, 2, 2, 2)),
        (nn.FractionalMaxPool2d(2, output_size=(3, 4)), (1, 2, 7, 9), (1, 2, 3, 4)),
        (nn.FractionalMaxPool3d(2, output_ratio=0.5), (1, 2, 6, 6, 6), (1, 2, 3, 3, 3)),
        (nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), (1, 2, 3, 3), (1, 2, 6, 6)),
        (nn.Upsample(size=5), (1, 2, 3), (1, 2, 5)),
        (nn.UpsamplingNearest2d(scale_factor=2), (1, 2, 3, 3), (1, 2, 6, 6)),
        (nn.UpsamplingBilinear2d((4, 5)), (1, 2, 3, 3), (1, 2, 4, 5)),
        (nn.Unfold((2, 3), stride=2), (1, 2, 6, 7), (1, 12, 9)),
        (nn.Fold((6, 7), (2, 3), stride=2), (1, 12, 9), (1, 2, 6, 7)),
        (nn.ZeroPad3d((1, 0, 2, 0, 3, 0)), (1, 2, 2, 2, 2), (1, 2, 5, 4, 3)),
    ],
    ids=repr,
)
def test_shapes(layer: Any, shape: tuple[int, ...], want: tuple[int, ...]) -> None:
    assert tuple(layer(wg.randn(*shape)).shape) == want


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(
    ("kind", "mode"), [("Reflection", "reflect"), ("Replication", "edge"), ("Circular", "wrap"), ("Zero", "constant")]
)
def test_padding(dims: int, kind: str, mode: str) -> None:
    sizes = (1, 2, 2, 1, 0, 1)[: 2 * dims]
    x = RNG.normal(size=(1, 2, *(4, 5, 3)[:dims]))
    pairs = [(sizes[2 * i], sizes[2 * i + 1]) for i in reversed(range(dims))]
    close(getattr(nn, f"{kind}Pad{dims}d")(sizes)(tensor(x)), np.pad(x, ((0, 0), (0, 0), *pairs), mode=mode))
    constant = getattr(nn, f"ConstantPad{dims}d")(sizes, 7.0)
    close(constant(tensor(x)), np.pad(x, ((0, 0), (0, 0), *pairs), constant_values=7.0))
    with pytest.raises(ValueError, match="padding takes"):
        getattr(nn, f"{kind}Pad{dims}d")((1,) * (2 * dims + 1))


def test_pooling_with_indices_and_back() -> None:
    x = tensor(RNG.normal(size=(1, 2, 6, 6)))
    y, indices = nn.MaxPool2d(2, return_indices=True)(x)
    back = nn.MaxUnpool2d(2)(y, indices)
    kept = back != 0
    assert kept.sum().item() == y.numel()
    close(back[kept], x[kept].numpy())
    assert tuple(nn.MaxUnpool2d(2)(y, indices, output_size=(7, 7)).shape) == (1, 2, 7, 7)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.FractionalMaxPool2d(2),
        lambda: nn.FractionalMaxPool2d(2, output_size=2, output_ratio=0.5),
        lambda: nn.FractionalMaxPool2d(2, output_ratio=1.5),
        lambda: nn.Hardtanh(1.0, 1.0),
        lambda: nn.Bilinear(0, 1, 1),
    ],
)  # fmt: skip
def test_bad_numbers(make: Any) -> None:
    with pytest.raises(ValueError):
        make()


@pytest.mark.parametrize("arguments", [("1", (2,)), (1, 2), (1, ("a",))], ids=str)
def test_bad_unflatten(arguments: Any) -> None:
    with pytest.raises(TypeError):
        nn.Unflatten(*arguments)


def test_distances() -> None:
    a, b = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
    cos = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    close(nn.CosineSimilarity()(tensor(a), tensor(b)), cos)
    close(
        nn.PairwiseDistance(p=3.0, keepdim=True)(tensor(a), tensor(b)), np.linalg.norm(a - b + 1e-6, 3, axis=1)[:, None]
    )

"""Starting values: bounds, moments and structure, and the defaults of layers."""

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn
from wengert.nn import init


@pytest.fixture(autouse=True)
def seed() -> None:
    wg.manual_seed(0)


CONV = (100, 50, 3, 3)  # fan in 450, fan out 900


@pytest.mark.parametrize(
    ("fill", "shape", "bound"),
    [
        (lambda t: init.uniform_(t, -0.7, 0.7), (200, 100), 0.7),
        (lambda t: init.xavier_uniform_(t, gain=2.0), (200, 100), 2 * math.sqrt(6 / 300)),
        (lambda t: init.xavier_uniform_(t), CONV, math.sqrt(6 / 1350)),
        (lambda t: init.kaiming_uniform_(t, nonlinearity="relu"), CONV, math.sqrt(6 / 450)),
        (lambda t: init.kaiming_uniform_(t, a=0.2, mode="fan_out"), CONV, math.sqrt(6 / 1.04 / 900)),
    ],
)
def test_uniform_schemes(fill: Any, shape: tuple[int, ...], bound: float) -> None:
    t = wg.empty(*shape, requires_grad=True)
    assert fill(t) is t
    assert t.is_leaf
    a = t.detach().numpy()
    assert 0.98 * bound < abs(a).max() <= bound * (1 + 1e-6)
    assert abs(a.std() / (bound / math.sqrt(3)) - 1) < 0.02
    assert abs(a.mean()) < 0.02 * bound


@pytest.mark.parametrize(
    ("fill", "shape", "mean", "std"),
    [
        (lambda t: init.normal_(t, 1.0, 0.3), (200, 100), 1.0, 0.3),
        (lambda t: init.xavier_normal_(t, gain=2.0), (200, 100), 0.0, 2 * math.sqrt(2 / 300)),
        (lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"), CONV, 0.0, math.sqrt(2 / 900)),
    ],
)
def test_normal_schemes(fill: Any, shape: tuple[int, ...], mean: float, std: float) -> None:
    t = wg.empty(*shape)
    assert fill(t) is t
    a = t.numpy()
    assert abs(a.std() / std - 1) < 0.02
    assert abs(a.mean() - mean) < 0.02 * std
    assert abs(((a - mean) ** 4).mean() / std**4 - 3) < 0.15


def test_trunc_normal() -> None:
    t = init.trunc_normal_(wg.empty(20_000), mean=0.5, std=1.0, a=-0.5, b=1.0)
    a = t.numpy()
    assert a.min() >= -0.5
    assert a.max() <= 1.0
    assert abs(a.mean() - 0.2888) < 0.01  # by the density of the normal at the two ends
    with pytest.warns(UserWarning, match="2 std"):
        init.trunc_normal_(wg.empty(10), mean=9.0)


def test_constants_and_identities() -> None:
    assert init.constant_(wg.empty(2), 3.5).tolist() == [3.5, 3.5]
    assert init.ones_(wg.empty(2)).tolist() == [1.0, 1.0]
    assert init.zeros_(wg.empty(2)).tolist() == [0.0, 0.0]
    assert init.eye_(wg.empty(2, 3)).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_dirac_makes_a_convolution_the_identity(dims: int, groups: int) -> None:
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](4, 4, 3, padding=1, groups=groups, bias=False)
    init.dirac_(conv.weight, groups)
    x = wg.randn(1, 4, *(5,) * dims)
    np.testing.assert_allclose(conv(x).detach().numpy(), x.numpy(), atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 3)], ids=str)
def test_orthogonal(shape: tuple[int, ...]) -> None:
    a = init.orthogonal_(wg.empty(*shape), gain=2.0).numpy().reshape(shape[0], -1)
    product = a @ a.T if a.shape[0] <= a.shape[1] else a.T @ a
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)


def test_sparse() -> None:
    a = init.sparse_(wg.empty(10, 200), sparsity=0.25, std=0.5).numpy()
    assert ((a == 0).sum(0) == 3).all()
    assert abs(a[a != 0].std() - 0.5) < 0.03


def test_generator_decides_the_values() -> None:
    fills = [
        init.uniform_,
        init.normal_,
        init.trunc_normal_,
        init.xavier_uniform_,
        init.kaiming_normal_,
        init.orthogonal_,
    ]
    for fill in fills:
        a, b = (fill(wg.empty(4, 4), generator=wg.Generator().manual_seed(7)) for _ in range(2))
        assert bool((a == b).all()), fill


def test_gains() -> None:
    values = {"linear": 1, "conv2d": 1, "sigmoid": 1, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}
    for name, value in values.items():
        assert init.calculate_gain(name) == pytest.approx(value)
    assert init.calculate_gain("leaky_relu") == pytest.approx(math.sqrt(2 / 1.0001))
    assert init.calculate_gain("leaky_relu", 0.2) == pytest.approx(math.sqrt(2 / 1.04))


@pytest.mark.parametrize(
    "make",
    [
        lambda: init.calculate_gain("swish"),
        lambda: init.calculate_gain("leaky_relu", "x"),
        lambda: init.xavier_uniform_(wg.empty(3)),
        lambda: init.kaiming_uniform_(wg.empty(3, 3), mode="fan"),
        lambda: init.eye_(wg.empty(3)),
        lambda: init.dirac_(wg.empty(3, 3)),
        lambda: init.dirac_(wg.empty(3, 3, 3), groups=2),
        lambda: init.orthogonal_(wg.empty(3)),
        lambda: init.sparse_(wg.empty(3), 0.5),
    ],
)  # fmt: skip
def test_bad_arguments(make: Any) -> None:
    with pytest.raises(ValueError):
        make()


def test_empty_tensors() -> None:
    with pytest.warns(UserWarning, match="empty"):
        init.kaiming_uniform_(wg.empty(0, 3))
    assert init.orthogonal_(wg.empty(0, 3)).numel() == 0


@pytest.mark.parametrize(
    ("layer", "bound"),
    [
        (lambda: nn.Linear(400, 100), 1 / math.sqrt(400)),
        (lambda: nn.Bilinear(400, 5, 20), 1 / math.sqrt(400)),
        (lambda: nn.Conv2d(16, 64, 5), 1 / math.sqrt(16 * 25)),
        (lambda: nn.Conv1d(16, 64, 25, groups=4), 1 / math.sqrt(4 * 25)),
        (lambda: nn.ConvTranspose2d(64, 16, 5), 1 / math.sqrt(16 * 25)),
    ],
    ids=["Linear", "Bilinear", "Conv2d", "Conv1d groups", "ConvTranspose2d"],
)
def test_default_bounds(layer: Any, bound: float) -> None:
    m = layer()
    for p in m.parameters():
        a = abs(p.detach().numpy())
        assert a.max() <= bound * (1 + 1e-6)
        assert a.max() > 0.8 * bound


def test_default_constants_and_tables() -> None:
    for m in (nn.BatchNorm2d(3), nn.LayerNorm(3), nn.GroupNorm(1, 3), nn.InstanceNorm1d(3, affine=True)):
        assert (m.weight.tolist(), m.bias.tolist()) == ([1.0] * 3, [0.0] * 3)
    assert nn.PReLU(2).weight.tolist() == [0.25, 0.25]
    table = nn.Embedding(500, 100, padding_idx=-1).weight.detach().numpy()
    assert (table[-1] == 0).all()
    assert abs(table[:-1].std() - 1) < 0.02


@pytest.mark.parametrize("dtype", [wg.float64, wg.float16], ids=str)
def test_layers_take_a_dtype(dtype: Any) -> None:
    for m in (nn.Linear(2, 2, dtype=dtype), nn.Conv1d(2, 2, 1, dtype=dtype), nn.BatchNorm1d(2, dtype=dtype),
              nn.LayerNorm(2, dtype=dtype), nn.Embedding(2, 2, dtype=dtype), nn.PReLU(dtype=dtype)):  # fmt: skip
        assert all(p.dtype is dtype for p in m.parameters())

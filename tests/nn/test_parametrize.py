"""Weights that are computed when they are read: parametrizations, norms, orthogonal matrices, pruning; fusion; lazy layers."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn
from wengert.nn.utils import parametrizations, parametrize, prune

RNG = np.random.default_rng(0)


class Symmetric(nn.Module):
    """A matrix made of its upper triangle."""

    def forward(self, x: Any) -> Any:
        return x.triu() + x.triu(1).T

    def right_inverse(self, a: Any) -> Any:
        return a.triu()


class Doubled(nn.Module):
    """No inverse."""

    def forward(self, x: Any) -> Any:
        return 2 * x


class RankOne(nn.Module):
    """A matrix made of two vectors."""

    def forward(self, x: Any, y: Any) -> Any:
        return x[:, None] * y

    def right_inverse(self, a: Any) -> Any:
        return a[:, 0] / a[0, 0], a[0]


class Wider(nn.Module):
    """Another shape."""

    def forward(self, x: Any) -> Any:
        return wg.cat((x, x))


def linear(*sizes: int) -> Any:
    m = nn.Linear(*sizes).double()
    with wg.no_grad():
        m.weight.copy_(wg.tensor(RNG.normal(size=tuple(m.weight.shape))))
    return m


def test_a_parametrized_weight() -> None:
    m = linear(3, 3)
    before, x = m.weight.detach().numpy().copy(), wg.tensor(RNG.normal(size=(2, 3)))
    assert parametrize.register_parametrization(m, "weight", Symmetric()) is m
    want = np.triu(before) + np.triu(before, 1).T
    np.testing.assert_allclose(m.weight.detach().numpy(), want)
    np.testing.assert_allclose(m(x).detach().numpy(), x.numpy() @ want.T + m.bias.detach().numpy())
    m(x).sum().backward()
    slope = np.ones((2, 3)).T @ x.numpy()
    np.testing.assert_allclose(
        m.parametrizations.weight.original.grad.numpy(), np.triu(slope) + np.triu(slope.T, 1), rtol=1e-12
    )
    m.weight = wg.tensor(before + before.T)
    np.testing.assert_allclose(m.weight.detach().numpy(), before + before.T)
    assert [n for n, _ in m.named_parameters()] == ["bias", "parametrizations.weight.original"]
    for twin in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert bool((twin.weight == m.weight).all())
        twin.weight = wg.zeros(3, 3, dtype=wg.float64)
        assert not bool((twin.weight == m.weight).all())
    parametrize.remove_parametrizations(m, "weight")
    assert list(m.state_dict()) == ["bias", "weight"]
    np.testing.assert_allclose(m.weight.detach().numpy(), before + before.T)
    assert not parametrize.is_parametrized(m)
    assert isinstance(m.weight, nn.Parameter)


def test_chains_and_several_originals() -> None:
    m = linear(3, 3)
    before = m.weight.detach().numpy().copy()
    parametrize.register_parametrization(m, "weight", Symmetric())
    parametrize.register_parametrization(m, "weight", Doubled())
    np.testing.assert_allclose(m.weight.detach().numpy(), 2 * (np.triu(before) + np.triu(before, 1).T))
    with pytest.raises(RuntimeError, match="right_inverse"):
        m.weight = wg.zeros(3, 3, dtype=wg.float64)
    n = parametrize.register_parametrization(linear(3, 2), "weight", RankOne())
    assert [tuple(p.shape) for p in n.parametrizations.weight.parameters()] == [(2,), (3,)]
    assert np.linalg.matrix_rank(n.weight.detach().numpy()) == 1
    with pytest.raises(ValueError, match="2 tensors"):
        parametrize.remove_parametrizations(n, "weight", leave_parametrized=False)
    other = parametrize.transfer_parametrizations_and_params(n, linear(3, 2))
    assert bool((other.weight == n.weight).all())
    value = parametrize.remove_parametrizations(n, "weight").weight
    assert (np.linalg.matrix_rank(value.detach().numpy()), value.requires_grad) == (1, True)
    assert parametrize.type_before_parametrizations(other) is nn.Linear


def test_values_are_cached_in_a_block() -> None:
    m = parametrize.register_parametrization(linear(2, 2), "weight", Symmetric())
    with parametrize.cached():
        with parametrize.cached():
            first = m.weight
        assert m.weight is first
    assert m.weight is not first


def test_buffers() -> None:
    m = nn.BatchNorm1d(2)
    parametrize.register_parametrization(m, "running_mean", Doubled())
    assert "parametrizations.running_mean.original" in dict(m.named_buffers())
    parametrize.remove_parametrizations(m, "running_mean", leave_parametrized=False)
    assert list(dict(m.named_buffers())) == ["running_var", "num_batches_tracked", "running_mean"]


def test_what_parametrizations_refuse() -> None:
    m = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="no parameter"):
        parametrize.register_parametrization(m, "weights", Doubled())
    with pytest.raises(ValueError, match="unsafe=True"):
        parametrize.register_parametrization(m, "weight", Wider())
    assert list(m.state_dict()) == ["weight", "bias"]
    parametrize.register_parametrization(m, "weight", Doubled())
    with pytest.raises(ValueError, match="unsafe=True"):
        parametrize.register_parametrization(m, "weight", Wider())
    parametrize.register_parametrization(m, "weight", Wider(), unsafe=True)
    assert m.weight.shape == (4, 2)
    with pytest.raises(ValueError, match="not parametrized"):
        parametrize.remove_parametrizations(m, "bias")
    with pytest.raises(ValueError, match="at least one"):
        parametrize.ParametrizationList([], m.bias)


@pytest.mark.parametrize("make", [parametrizations.weight_norm, nn.utils.weight_norm])
@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(make: Any, dim: int | None) -> None:
    m = linear(4, 3)
    before = m.weight.detach().numpy().copy()
    make(m, dim=dim)
    np.testing.assert_allclose(m.weight.detach().numpy(), before, rtol=1e-12)
    g, v = (p for n, p in m.named_parameters() if n != "bias")
    with wg.no_grad():
        g.fill_(2.0)
        v.mul_(3.0)
    norms = np.linalg.norm(before, axis=None if dim is None else 1 - dim, keepdims=dim is not None)
    np.testing.assert_allclose(m.weight.detach().numpy(), 2 * before / norms, rtol=1e-12)


@pytest.mark.parametrize("make", [parametrizations.spectral_norm, nn.utils.spectral_norm])
def test_spectral_norm(make: Any) -> None:
    m = make(linear(4, 3), n_power_iterations=50)
    for _ in range(3):
        weight = m.weight
    assert np.linalg.norm(weight.detach().numpy(), 2) == pytest.approx(1, rel=1e-8)
    m.eval()
    assert bool((m.weight == m.weight).all())
    with pytest.raises(ValueError, match="positive"):
        make(linear(4, 3), n_power_iterations=0)


def test_older_norms_are_taken_away() -> None:
    for make, remove in (
        (nn.utils.weight_norm, nn.utils.remove_weight_norm), (nn.utils.spectral_norm, nn.utils.remove_spectral_norm),
    ):  # fmt: skip
        m = make(linear(4, 3)).eval()
        value = m.weight.detach().numpy()
        with pytest.raises(RuntimeError, match="already"):
            make(m)
        with pytest.raises(AttributeError, match="cannot be assigned"):
            m.weight = wg.zeros(3, 4)
        assert list(remove(m).state_dict()) == ["bias", "weight"]
        np.testing.assert_allclose(m.weight.detach().numpy(), value, rtol=1e-12)
        with pytest.raises(ValueError, match="no "):
            remove(m)


@pytest.mark.parametrize("trivial", [True, False])
@pytest.mark.parametrize("way", ["matrix_exp", "cayley", "householder", None])
@pytest.mark.parametrize("sizes", [(3, 3), (4, 2), (2, 4)])
def test_orthogonal(sizes: tuple[int, int], way: str | None, trivial: bool) -> None:
    m = parametrizations.orthogonal(linear(*sizes), orthogonal_map=way, use_trivialization=trivial)
    x = wg.tensor(RNG.normal(size=(2, sizes[0])))
    for _ in range(2):
        (m(x) ** 3).sum().backward()
        with wg.no_grad():
            for p in m.parameters():
                p.sub_(0.05 * p.grad)
        q = m.weight.detach().numpy()
        q = q if q.shape[0] >= q.shape[1] else q.T
        np.testing.assert_allclose(q.T @ q, np.eye(q.shape[1]), atol=1e-10)


def test_assigning_an_orthogonal_matrix() -> None:
    q = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
    m = parametrizations.orthogonal(linear(3, 3))
    m.weight = wg.tensor(q)
    np.testing.assert_allclose(m.weight.detach().numpy(), q, atol=1e-12)
    m = parametrizations.orthogonal(linear(3, 3), orthogonal_map="cayley", use_trivialization=False)
    with pytest.raises(NotImplementedError, match="use_trivialization"):
        m.weight = wg.tensor(q)
    with pytest.raises(ValueError, match="matrix"):
        parametrizations.orthogonal(nn.Linear(2, 2), "bias")
    with pytest.raises(ValueError, match="'cayley'"):
        parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="givens")


# ---- pruning


def weights(*values: Any) -> Any:
    m = nn.Linear(len(values[0]), len(values)).double()
    with wg.no_grad():
        m.weight.copy_(wg.tensor(values, dtype=wg.float64))
    return m


def test_pruned_weights_are_trained_where_they_are_left() -> None:
    m = prune.l1_unstructured(weights([1, -4], [3, 2]), "weight", 0.5)
    assert m.weight.tolist() == [[0, -4], [3, 0]]
    m(wg.ones(1, 2, dtype=wg.float64)).sum().backward()
    assert m.weight_orig.grad.tolist() == [[0, 1], [1, 0]]
    with wg.no_grad():
        m.weight_orig.mul_(2)
    assert m.weight.tolist() == [[0, -8], [6, 0]]
    twin = copy.deepcopy(m)
    assert prune.is_pruned(nn.Sequential(twin))
    assert prune.remove(m, "weight").weight.tolist() == [[0, -8], [6, 0]]
    assert [n for n, _ in m.named_parameters()] == ["bias", "weight"]
    assert twin.weight.tolist() == [[0, -8], [6, 0]]


def test_pruning_again_takes_of_what_is_left() -> None:
    m = prune.ln_structured(weights([1, 1, 9], [8, 1, 9]), "weight", 1, 2, dim=1)
    assert m.weight.tolist() == [[1, 0, 9], [8, 0, 9]]
    prune.l1_unstructured(m, "weight", 2)
    assert m.weight.tolist() == [[0, 0, 9], [0, 0, 9]]
    prune.custom_from_mask(m, "weight", wg.tensor([[1, 1, 0], [1, 1, 1]]))
    assert m.weight.tolist() == [[0, 0, 0], [0, 0, 9]]
    prune.random_structured(m, "weight", 1, dim=1)
    assert m.weight.abs().sum().item() == 0


def test_importance_and_global_pruning() -> None:
    m, n = weights([1, 2]), weights([3, 4])
    prune.l1_unstructured(m, "weight", 1, importance_scores=wg.tensor([[5.0, 1.0]]))
    assert m.weight.tolist() == [[1, 0]]
    prune.global_unstructured([(m, "weight"), (n, "weight")], prune.L1Unstructured, amount=2)
    assert (m.weight.tolist(), n.weight.tolist()) == ([[0, 0]], [[0, 4]])
    assert prune.L1Unstructured(1).prune(wg.tensor([2.0, 1.0])).tolist() == [2, 0]


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (lambda m: prune.l1_unstructured(m, "weight", 1.5), ValueError, "between 0 and 1"),
    (lambda m: prune.l1_unstructured(m, "weight", -1), ValueError, "negative"),
    (lambda m: prune.l1_unstructured(m, "weight", "all"), TypeError, "amount"),
    (lambda m: prune.l1_unstructured(m, "weight", 5), ValueError, "4 that there are"),
    (lambda m: prune.l1_unstructured(m, "weights", 1), AttributeError, "weights"),
    (lambda m: prune.l1_unstructured(m, "weight", 1, wg.ones(3)), ValueError, "importance_scores"),
    (lambda m: prune.ln_structured(m, "bias", 1, 2, 0), ValueError, "2 or more"),
    (lambda m: prune.ln_structured(m, "weight", 1, 2, 4), IndexError, "dim"),
    (lambda m: prune.custom_from_mask(m, "weight", wg.ones(3)), ValueError, "mask"),
    (lambda m: prune.global_unstructured(3, prune.Identity), TypeError, "pairs"),
    (lambda m: prune.global_unstructured([(m, "weight")], prune.RandomStructured, amount=1), TypeError, "structured"),
    (lambda m: prune.remove(m, "weight"), ValueError, "not pruned"),
    (lambda m: prune.PruningContainer("a"), TypeError, "BasePruningMethod"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED)
def test_pruning_refuses(call: Any, kind: type[Exception], text: str) -> None:
    m = nn.Linear(2, 2)
    with pytest.raises(kind) as found:
        call(m)
    assert text in str(found.value)
    assert list(m.state_dict()) == ["weight", "bias"]


# ---- fusion, lazy layers, no starting values


def test_fusion() -> None:
    conv, bn = nn.Conv2d(2, 3, 2).double(), nn.BatchNorm2d(3).double()
    x = wg.tensor(RNG.normal(size=(4, 2, 3, 3)))
    bn(conv(x))
    with pytest.raises(ValueError, match="eval"):
        nn.utils.fuse_conv_bn_eval(conv, bn)
    want = bn.eval()(conv.eval()(x))
    np.testing.assert_allclose(nn.utils.fuse_conv_bn_eval(conv, bn)(x).detach().numpy(), want.detach().numpy())
    with pytest.raises(ValueError, match="3 outputs"):
        nn.utils.fuse_linear_bn_eval(nn.Linear(2, 3).eval(), nn.BatchNorm1d(2).eval())
    with pytest.raises(ValueError, match="statistics"):
        nn.utils.fuse_conv_bn_eval(conv, nn.BatchNorm2d(3, track_running_stats=False).eval())


def test_lazy_layers() -> None:
    lazy = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2)).double()
    assert lazy[0].weight.dtype is wg.float64
    for use in (lambda p: p.exp(), lambda p: p + 1, lambda p: p.tolist(), lambda p: p.shape, lambda p: p.numel()):
        with pytest.raises((RuntimeError, ValueError), match="call the lazy module once"):
            use(lazy[0].weight)
    twin = copy.deepcopy(lazy)
    twin.load_state_dict(pickle.loads(pickle.dumps(lazy)).state_dict())
    x = wg.tensor(RNG.normal(size=(2, 3, 4, 4)))
    lazy(x).sum().backward()
    assert [type(m).__name__ for m in lazy] == ["Conv2d", "BatchNorm2d", "Flatten", "Linear"]
    assert all(type(p) is nn.Parameter and p.grad is not None for p in lazy.parameters())
    twin.load_state_dict(lazy.state_dict())
    assert bool((twin(x) == lazy(x)).all())
    assert repr(twin) == repr(lazy)
    with pytest.raises(RuntimeError, match="once before compiling"):
        wg.compile(nn.LazyLinear(2))(wg.ones(1, 3))
    with pytest.raises(RuntimeError, match="dimensions"):
        nn.LazyConv1d(2, 3)(wg.ones(3))
    with pytest.raises(ValueError, match="divisible"):
        nn.LazyConv1d(2, 3, groups=2)(wg.ones(3, 5))


def test_lazy_modules_of_ones_own() -> None:
    class Scale(nn.lazy.LazyModuleMixin):
        def __init__(self, fill: bool) -> None:
            super().__init__()
            self.fill = fill
            self.factor = nn.UninitializedParameter()

        def initialize_parameters(self, x: Any) -> None:
            if self.fill:
                self.factor.materialize(x.shape)
                nn.init.ones_(self.factor)

        def forward(self, x: Any) -> Any:
            return x * self.factor

    assert Scale(True)(wg.ones(2)).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="left something"):
        Scale(False)(wg.ones(2))


def test_no_starting_values() -> None:
    wg.manual_seed(0)
    before = wg.get_rng_state()
    m = nn.utils.skip_init(nn.LSTM, 2, 3, num_layers=2)
    assert bool((before == wg.get_rng_state()).all())
    assert m.weight_hh_l1.shape == (12, 3)
    assert nn.init.ones_(wg.zeros(2)).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="'device'"):
        nn.utils.skip_init(nn.ReLU)
    with pytest.raises(RuntimeError, match="class of modules"):
        nn.utils.skip_init(dict)
    assert nn.Linear(2, 3).to_empty(device="cpu").weight.shape == (3, 2)

"""Parametrizations, older weight norms, pruning, fusion and lazy layers beside PyTorch's."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.utils.parametrizations
import torch.nn.utils.parametrize
import torch.nn.utils.prune

import wengert as wg

RNG = np.random.default_rng(0)
LIBS = (wg, torch)


def load(mine: Any, peer: Any) -> None:
    """Give our module the peer's state, key by key."""
    assert list(mine.state_dict()) == list(peer.state_dict())
    state = {n: wg.from_numpy(v.detach().numpy().copy()) for n, v in peer.state_dict().items()}
    assert repr(mine.load_state_dict(state)) == "<All keys matched successfully>"


def compare(mine: Any, peer: Any, shape: tuple[int, ...]) -> None:
    """Values, gradients and the state afterwards."""
    data, results = RNG.normal(size=shape), []
    for lib, module in zip(LIBS, (mine, peer), strict=True):
        x = lib.tensor(data, requires_grad=True)
        out = module(x)
        (out**3).sum().backward()
        grads = {n: p.grad.numpy() for n, p in module.named_parameters()}
        state = {n: v.numpy() for n, v in module.state_dict().items()}
        results.append(
            {"out": out.detach().numpy(), "x": x.grad.numpy(), **grads, **{f"{n}'": v for n, v in state.items()}}
        )
    assert list(results[0]) == list(results[1])
    for name in results[0]:
        np.testing.assert_allclose(results[0][name], results[1][name], rtol=1e-7, atol=1e-10, err_msg=name)


LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda lib: lib.nn.Linear(4, 3), (2, 4)), "wide": (lambda lib: lib.nn.Linear(3, 5), (2, 3)),
    "square": (lambda lib: lib.nn.Linear(3, 3), (2, 3)), "convolution": (lambda lib: lib.nn.Conv2d(2, 3, 2), (1, 2, 4, 4)),
    "transposed": (lambda lib: lib.nn.ConvTranspose1d(2, 3, 2), (1, 2, 4)),
}  # fmt: skip
WAYS: dict[str, Any] = {
    "weight norm": lambda lib, m: lib.nn.utils.parametrizations.weight_norm(m),
    "weight norm, dim 1": lambda lib, m: lib.nn.utils.parametrizations.weight_norm(m, dim=1),
    "weight norm, whole": lambda lib, m: lib.nn.utils.parametrizations.weight_norm(m, dim=None),
    "weight norm of the bias": lambda lib, m: lib.nn.utils.parametrizations.weight_norm(m, "bias"),
    "spectral norm": lambda lib, m: lib.nn.utils.parametrizations.spectral_norm(m, n_power_iterations=2),
    "spectral norm, dim 1": lambda lib, m: lib.nn.utils.parametrizations.spectral_norm(m, dim=1),
    "spectral norm of the bias": lambda lib, m: lib.nn.utils.parametrizations.spectral_norm(m, "bias"),
    "older spectral norm": lambda lib, m: lib.nn.utils.spectral_norm(m),
    "older spectral norm, dim 1": lambda lib, m: lib.nn.utils.spectral_norm(m, dim=1, n_power_iterations=3),
    "older weight norm": lambda lib, m: lib.nn.utils.weight_norm(m),
    "older weight norm, whole": lambda lib, m: lib.nn.utils.weight_norm(m, dim=None),
    "pruned": lambda lib, m: lib.nn.utils.prune.random_unstructured(m, "weight", 0.4),
    **{
        f"orthogonal, {way}, {trivial}": (
            lambda lib, m, way=way, trivial=trivial: lib.nn.utils.parametrizations.orthogonal(
                m, orthogonal_map=way, use_trivialization=trivial
            )
        )
        for way in (None, "matrix_exp", "cayley", "householder") for trivial in (True, False)
    },
}  # fmt: skip


def _says_something(way: str, layer: str) -> bool:
    """Batches of small matrices say nothing that matrices do not; a vector has no second dimension for outputs."""
    if way.startswith("orthogonal"):
        return layer not in ("convolution", "transposed")
    return (way, layer) != ("spectral norm of the bias", "transposed")


PAIRS = [(way, layer) for way in WAYS for layer in LAYERS if _says_something(way, layer)]


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning", "ignore:.*flattened.*:UserWarning")
@pytest.mark.parametrize(("way", "layer"), PAIRS)
def test_weights_that_are_computed(way: str, layer: str) -> None:
    make, shape = LAYERS[layer]
    mine, peer = (WAYS[way](lib, make(lib).double()) for lib in LIBS)
    load(mine, peer)
    compare(mine, peer, shape)
    compare(mine.eval(), peer.eval(), shape) if way.startswith("spectral") else None


def test_states_of_the_older_weight_norm_are_taken() -> None:
    with pytest.warns(FutureWarning):
        old = torch.nn.utils.weight_norm(torch.nn.Linear(4, 3).double())
    mine = wg.nn.utils.parametrizations.weight_norm(wg.nn.Linear(4, 3).double())
    mine.load_state_dict({n: wg.from_numpy(v.detach().numpy()) for n, v in old.state_dict().items()})
    np.testing.assert_allclose(mine.weight.detach().numpy(), old.weight.detach().numpy(), rtol=1e-12)


def symmetric(lib: Any) -> Any:
    class Symmetric(lib.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.triu() + x.triu(1).T

        def right_inverse(self, a: Any) -> Any:
            return a.triu()

    return Symmetric()


def doubled(lib: Any) -> Any:
    class Doubled(lib.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return 2 * x

        def right_inverse(self, a: Any) -> Any:
            return a / 2

    return Doubled()


def test_parametrizations_of_ones_own() -> None:
    data, seen = RNG.normal(size=(3, 3)), []
    for lib in LIBS:
        p, m = lib.nn.utils.parametrize, lib.nn.Linear(3, 3).double()
        with lib.no_grad():
            m.weight.copy_(lib.tensor(data))
        p.register_parametrization(m, "weight", symmetric(lib))
        p.register_parametrization(m, "weight", doubled(lib))
        names = [n for n, _ in m.named_parameters()]
        values = [m.weight.detach().numpy().copy()]
        m.weight = lib.tensor(data + data.T)
        values += [m.weight.detach().numpy().copy(), m.parametrizations.weight.original.detach().numpy().copy()]
        assert p.is_parametrized(m)
        assert not p.is_parametrized(m, "bias")
        with p.cached():
            assert m.weight is m.weight
        assert m.weight is not m.weight
        p.remove_parametrizations(m, "weight", leave_parametrized=False)
        assert not p.is_parametrized(m)
        values.append(m.weight.detach().numpy())
        seen.append((names, values, list(m.state_dict())))
    assert seen[0][0] == seen[1][0]
    assert seen[0][2] == seen[1][2]
    np.testing.assert_allclose(seen[0][1], seen[1][1], rtol=1e-12)


PRUNED: dict[str, Any] = {
    "l1": lambda p, m: p.l1_unstructured(m, "weight", 5),
    "l1, a share": lambda p, m: p.l1_unstructured(m, "weight", 0.3),
    "l1 twice": lambda p, m: p.l1_unstructured(p.l1_unstructured(m, "weight", 0.5), "weight", 0.5),
    "rows": lambda p, m: p.ln_structured(m, "weight", 1, 2, 0),
    "columns, then elements": lambda p, m: p.l1_unstructured(p.ln_structured(m, "weight", 0.5, 1, -1), "weight", 2),
    "elements, then columns": lambda p, m: p.ln_structured(p.l1_unstructured(m, "weight", 2), "weight", 1, float("inf"), 1),
    "identity": lambda p, m: p.identity(m, "bias"),
    "both parameters": lambda p, m: p.l1_unstructured(p.l1_unstructured(m, "bias", 1), "weight", 2),
    "together": lambda p, m: p.global_unstructured([(m, "weight"), (m, "bias")], p.L1Unstructured, amount=6),
    "then together": lambda p, m: p.global_unstructured(
        [(p.l1_unstructured(m, "weight", 3), "weight"), (m, "bias")], p.L1Unstructured, amount=0.5
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", PRUNED)
def test_pruning(way: str) -> None:
    peer = torch.nn.Linear(4, 3).double()
    mine = wg.nn.Linear(4, 3).double()
    load(mine, peer)
    for lib, module in zip(LIBS, (mine, peer), strict=True):
        PRUNED[way](lib.nn.utils.prune, module)
    assert wg.nn.utils.prune.is_pruned(mine)
    compare(mine, peer, (2, 4))
    for name in [n.removesuffix("_mask") for n in mine.state_dict() if n.endswith("_mask")]:
        for lib, module in zip(LIBS, (mine, peer), strict=True):
            lib.nn.utils.prune.remove(module, name)
    assert not wg.nn.utils.prune.is_pruned(mine)
    assert list(mine.state_dict()) == list(peer.state_dict())
    compare(mine, peer, (2, 4))


def test_random_pruning_counts() -> None:
    for lib in LIBS:
        p, m = lib.nn.utils.prune, lib.nn.Linear(6, 4)
        p.random_unstructured(m, "weight", 10)
        assert int(m.weight_mask.sum()) == 14
        p.random_structured(p.identity(n := lib.nn.Linear(6, 4), "bias"), "weight", 2, 0)
        assert sorted(n.weight_mask.sum(1).tolist()) == [0, 0, 6, 6]
    m = wg.nn.Linear(4, 2)
    for wrong in (1.5, -1, 9):
        with pytest.raises(ValueError, match="amount"):
            wg.nn.utils.prune.l1_unstructured(m, "weight", wrong)
    assert list(m.state_dict()) == ["weight", "bias"]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_fusion(affine: bool, bias: bool) -> None:
    for kind, norm, shape in (("Conv2d", "BatchNorm2d", (1, 2, 5, 5)), ("ConvTranspose2d", "BatchNorm2d", (1, 2, 5, 5)),
                              ("Linear", "BatchNorm1d", (4, 2))):  # fmt: skip
        if kind == "Linear" and not affine:
            continue  # the peer needs the norm's weights here
        fused = []
        args = (2, 3) if kind == "Linear" else (2, 3, 2)
        peers = getattr(torch.nn, kind)(*args, bias=bias).double(), getattr(torch.nn, norm)(3, affine=affine).double()
        peers[1](torch.tensor(RNG.normal(size=(4, 3, *shape[2:])) * 3))
        for lib in LIBS:
            pair = [getattr(lib.nn, kind)(*args, bias=bias).double(), getattr(lib.nn, norm)(3, affine=affine).double()]
            for module, peer in zip(pair, peers, strict=True):
                if lib is wg:
                    load(module, peer)
            pair = [m.eval() for m in (pair if lib is wg else peers)]
            fuse = lib.nn.utils.fusion if lib is torch else lib.nn.utils
            fused.append(
                fuse.fuse_linear_bn_eval(*pair) if kind == "Linear" else fuse.fuse_conv_bn_eval(*pair, "T" in kind)
            )
        assert list(fused[0].state_dict()) == list(fused[1].state_dict())
        for a, b in zip(fused[0].parameters(), fused[1].parameters(), strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10)
            assert a.requires_grad == b.requires_grad


LAZY: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("LazyLinear", (3,), {}, (2, 4)), ("LazyLinear", (3,), {"bias": False}, (4,)),
    ("LazyConv1d", (4, 3), {"groups": 2}, (1, 2, 8)), ("LazyConv2d", (4, 3), {"padding": 1}, (2, 6, 6)),
    ("LazyConv3d", (4, 2), {"bias": False}, (1, 2, 3, 3, 3)), ("LazyConvTranspose1d", (4, 3), {"stride": 2}, (1, 2, 5)),
    ("LazyConvTranspose2d", (4, 3), {"groups": 2}, (1, 2, 5, 5)), ("LazyConvTranspose3d", (4, 2), {}, (1, 2, 3, 3, 3)),
    ("LazyBatchNorm1d", (), {}, (5, 3)), ("LazyBatchNorm2d", (), {"affine": False}, (2, 3, 4, 4)),
    ("LazyBatchNorm3d", (), {"track_running_stats": False}, (2, 3, 2, 2, 2)), ("LazyInstanceNorm1d", (), {}, (2, 3, 4)),
    ("LazyInstanceNorm2d", (), {"bias": False}, (2, 3, 4, 4)), ("LazyInstanceNorm3d", (), {}, (2, 3, 2, 2, 2)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
@pytest.mark.parametrize(("name", "args", "options", "shape"), LAZY, ids=str)
def test_lazy_layers(name: str, args: Any, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    mine, peer = (getattr(lib.nn, name)(*args, **options) for lib in LIBS)
    assert repr(mine) == repr(peer)
    assert list(mine.state_dict()) == list(peer.state_dict())
    data = RNG.normal(size=shape).astype(np.float32)
    mine(wg.tensor(data))
    peer(torch.tensor(data))
    assert repr(mine) == repr(peer)
    load(mine, peer)
    fresh = getattr(wg.nn, name)(*args, **options)
    load(fresh, peer)  # a state says the shapes too
    assert [tuple(p.shape) for p in fresh.parameters()] == [tuple(p.shape) for p in peer.parameters()]
    fresh(wg.tensor(data))
    assert repr(fresh) == repr(peer)
    assert isinstance(fresh, getattr(wg.nn, name.removeprefix("Lazy")))
    compare(mine.double(), peer.double(), shape)


@pytest.mark.parametrize(
    ("options", "target"),
    [({}, [1, 0]), ({"bias": True, "ignore_index": 0}, [1, 0]), ({"out_features": (2,), "bias": True}, [[1, 0], [2, 1]]),
     ({"label_smoothing": 0.1, "reduction": "sum"}, [1, 2])],
    ids=str,
)  # fmt: skip
def test_linear_cross_entropy(options: dict[str, Any], target: Any) -> None:
    mine, peer = (lib.nn.LinearCrossEntropyLoss(4, 3, **options).double() for lib in LIBS)
    assert repr(mine) == repr(peer)
    load(mine, peer)
    data, losses = RNG.normal(size=(2, 4)), []
    for lib, module in zip(LIBS, (mine, peer), strict=True):
        loss = module(lib.tensor(data), lib.tensor(target))
        loss.backward()
        losses.append([loss.detach().numpy(), *(p.grad.numpy() for p in module.parameters())])
    for a, b in zip(*losses, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_convolutions(dims: int) -> None:
    options: dict[str, Any] = {"stride": 2, "padding": 1, "dilation": 1, "groups": 2}
    x, w = RNG.normal(size=(2, 4, *(5, 4, 3)[:dims])), RNG.normal(size=(6, 2, *(2, 3, 2)[:dims]))
    g = RNG.normal(
        size=tuple(getattr(torch.nn.functional, f"conv{dims}d")(torch.tensor(x), torch.tensor(w), **options).shape)
    )
    for kind, args in (("input", (x.shape, w, g)), ("weight", (x, w.shape, g))):
        got, want = (
            getattr(lib.nn.grad, f"conv{dims}d_{kind}")(
                *(lib.tensor(a) if isinstance(a, np.ndarray) else a for a in args), **options
            )
            for lib in LIBS
        )
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-9, atol=1e-12)

"""Recurrent layers, cells and packed sequences beside PyTorch's: text, state, values, gradients and refusals."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import wengert as wg

KINDS = ("RNN", "LSTM", "GRU")
OPTIONS: list[dict[str, Any]] = [
    {}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "bidirectional": True}, {"batch_first": True},
    {"num_layers": 3, "batch_first": True, "bias": False},
]  # fmt: skip
LAYERS = [
    *itertools.product(KINDS, OPTIONS), ("RNN", {"nonlinearity": "relu", "num_layers": 2}), ("LSTM", {"proj_size": 2}),
    ("LSTM", {"proj_size": 3, "num_layers": 2, "bidirectional": True}), ("LSTM", {"proj_size": 1, "bias": False}),
]  # fmt: skip
RNG = np.random.default_rng(0)


def pair(kind: str, *args: Any, **options: Any) -> tuple[Any, Any]:
    """The same module twice: ours with the peer's state."""
    mine, peer = (getattr(lib.nn, kind)(*args, **options).double() for lib in (wg, torch))
    assert repr(mine) == repr(peer)
    assert list(mine.state_dict()) == list(peer.state_dict())
    mine.load_state_dict({n: wg.from_numpy(v.detach().numpy().copy()) for n, v in peer.state_dict().items()})
    return mine, peer


def leaf(data: Any) -> tuple[Any, Any]:
    return wg.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)


def flat(result: Any) -> list[Any]:
    if isinstance(result, tuple | list):
        return [part for r in result for part in flat(r)]
    return [] if result is None else [result]


def compare(results: tuple[Any, Any], leaves: list[tuple[Any, Any]], modules: tuple[Any, Any]) -> None:
    got, want = (flat(r) for r in results)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)
    for parts in (got, want):
        sum(((k + 1) * (p**2)).sum() for k, p in enumerate(parts) if p.is_floating_point()).backward()
    for a, b in [*leaves, *zip(modules[0].parameters(), modules[1].parameters(), strict=True)]:
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-8, atol=1e-11)


def start(kind: str, options: dict[str, Any], *batch: int) -> list[tuple[Any, Any]]:
    rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    sizes = [options.get("proj_size") or 4, 4][: 2 if kind == "LSTM" else 1]
    return [leaf(RNG.normal(size=(rows, *batch, size))) for size in sizes]


def given(states: list[tuple[Any, Any]], which: int) -> Any:
    parts = tuple(s[which] for s in states)
    return parts if len(parts) > 1 else parts[0]


@pytest.mark.parametrize("form", ["default state", "state", "unbatched", "packed", "packed unsorted, state"])
@pytest.mark.parametrize(("kind", "options"), LAYERS, ids=str)
def test_layers(kind: str, options: dict[str, Any], form: str) -> None:
    mine, peer = pair(kind, 3, 4, **options)
    shape = (5, 3) if form == "unbatched" else (2, 5, 3) if options.get("batch_first") else (5, 2, 3)
    x = leaf(RNG.normal(size=shape))
    states = [] if form in ("default state", "packed") else start(kind, options, *(() if form == "unbatched" else (2,)))
    results = []
    for which, (lib, module) in enumerate(((wg, mine), (torch, peer))):
        inputs: Any = x[which]
        if "packed" in form:
            lengths = [3, 5] if "unsorted" in form else [5, 2]
            pack = lib.nn.utils.rnn.pack_padded_sequence
            inputs = pack(inputs, lengths, bool(options.get("batch_first")), enforce_sorted="unsorted" not in form)
        results.append(module(inputs, given(states, which)) if states else module(inputs))
    compare((results[0], results[1]), [x, *states], (mine, peer))


@pytest.mark.parametrize("batch", [(2,), ()])
@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize(
    ("kind", "options"),
    [("RNNCell", {}), ("RNNCell", {"nonlinearity": "relu", "bias": False}), ("LSTMCell", {}), ("LSTMCell", {"bias": False}),
     ("GRUCell", {}), ("GRUCell", {"bias": False})],
    ids=str,
)  # fmt: skip
def test_cells(kind: str, options: dict[str, Any], state: bool, batch: tuple[int, ...]) -> None:
    mine, peer = pair(kind, 3, 4, **options)
    x = leaf(RNG.normal(size=(*batch, 3)))
    states = [leaf(RNG.normal(size=(*batch, 4))) for _ in range(2 if kind == "LSTMCell" else 1)] if state else []
    results = tuple(m(x[k], given(states, k)) if states else m(x[k]) for k, m in enumerate((mine, peer)))
    if kind != "RNNCell" or state:
        compare((results[0], results[1]), [x, *states], (mine, peer))
    else:
        np.testing.assert_allclose(results[0].detach().numpy(), results[1].detach().numpy(), rtol=1e-9)


def test_sequences() -> None:
    lists = [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]]
    for batch_first, side in itertools.product((True, False), ("left", "right")):
        got, want = (
            lib.nn.utils.rnn.pad_sequence([lib.tensor(s) for s in lists], batch_first, 7.0, side) for lib in (wg, torch)
        )
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    for lib in (wg, torch):
        u = lib.nn.utils.rnn
        packed = u.pack_sequence([lib.tensor(s) for s in lists], enforce_sorted=False)
        assert packed.data.tolist() == [4, 1, 3, 5, 2, 6]
        assert packed.batch_sizes.tolist() == [3, 2, 1]
        assert packed.sorted_indices.tolist() == [2, 0, 1]
        assert packed.unsorted_indices.tolist() == [1, 2, 0]
        assert [s.tolist() for s in u.unpack_sequence(packed)] == lists
        padded, lengths = u.pad_packed_sequence(packed, True, -1.0, 4)
        assert padded.tolist() == [[1, 2, -1, -1], [3, -1, -1, -1], [4, 5, 6, -1]]
        assert lengths.tolist() == [2, 1, 3]
        assert [s.tolist() for s in u.unpad_sequence(padded, lengths, batch_first=True)] == lists
        assert packed.double().data.dtype is lib.float64
        assert packed.to(lib.float32) is packed


def refused(call: Any) -> list[Any]:
    kinds = []
    for lib in (wg, torch):
        with pytest.raises((TypeError, ValueError, RuntimeError)) as found:
            call(lib)
        kinds.append(found.type)
    return kinds


REFUSED: dict[str, Any] = {
    "dtype": lambda lib: lib.nn.LSTM(3, 4)(lib.ones(5, 2, 3, dtype=lib.float64)),
    "features": lambda lib: lib.nn.GRU(3, 4)(lib.ones(5, 2, 2)),
    "dimensions": lambda lib: lib.nn.GRU(3, 4)(lib.ones(5, 1, 2, 3)),
    "no steps": lambda lib: lib.nn.RNN(3, 4)(lib.ones(0, 2, 3)),
    "state's batch": lambda lib: lib.nn.GRU(3, 4)(lib.ones(5, 2, 3), lib.ones(1, 3, 4)),
    "state's dimensions": lambda lib: lib.nn.GRU(3, 4)(lib.ones(5, 2, 3), lib.ones(1, 4)),
    "cell's size": lambda lib: lib.nn.LSTM(3, 4)(lib.ones(5, 2, 3), (lib.ones(1, 2, 4), lib.ones(1, 2, 3))),
    "projection": lambda lib: lib.nn.LSTM(3, 4, proj_size=4),
    "hidden": lambda lib: lib.nn.LSTM(3, 0),
    "dropout": lambda lib: lib.nn.LSTM(3, 4, 2, dropout=1.5),
    "non-linearity": lambda lib: lib.nn.RNN(3, 4, nonlinearity="elu"),
    "flag": lambda lib: lib.nn.RNN(3, 4, batch_first=1),
    "cell's input": lambda lib: lib.nn.GRUCell(3, 4)(lib.ones(2, 2, 3)),
    "cell's features": lambda lib: lib.nn.GRUCell(3, 4)(lib.ones(2, 2)),
    "cell's state": lambda lib: lib.nn.RNNCell(3, 4)(lib.ones(2, 3), lib.ones(2, 2, 4)),
    "unsorted": lambda lib: lib.nn.utils.rnn.pack_padded_sequence(lib.ones(3, 2), [2, 3]),
    "no length": lambda lib: lib.nn.utils.rnn.pack_padded_sequence(lib.ones(3, 2), [2, 0]),
    "lengths": lambda lib: lib.nn.utils.rnn.pack_padded_sequence(lib.ones(3, 2), [2]),
    "total length": lambda lib: lib.nn.utils.rnn.pad_packed_sequence(
        lib.nn.utils.rnn.pack_sequence([lib.ones(3)]), total_length=2
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    mine, peer = refused(REFUSED[name])
    assert issubclass(mine, peer)


def test_dropout_lies_between_layers() -> None:
    with pytest.warns(UserWarning, match="num_layers=1"):
        wg.nn.LSTM(3, 4, dropout=0.5)
    module = wg.nn.LSTM(3, 4, 2, dropout=1.0)
    x = wg.ones(5, 2, 3)
    with wg.no_grad():
        dropped, kept = module(x)[0], module.eval()(x)[0]
    module.dropout = 0.0
    assert not bool((dropped == kept).any())
    assert bool((module.train()(x)[0] == kept).all())


def test_double_backward() -> None:
    for kind in KINDS:
        mine, peer = pair(kind, 3, 4)
        grads = []
        for lib, module in ((wg, mine), (torch, peer)):
            x = lib.tensor(np.linspace(-1, 1, 30).reshape(5, 2, 3), requires_grad=True)
            (g,) = lib.autograd.grad((module(x)[0] ** 2).sum(), x, create_graph=True)
            (g**2).sum().backward()
            grads.append([x.grad.numpy(), *(p.grad.numpy() for p in module.parameters())])
        for a, b in zip(*grads, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-11)

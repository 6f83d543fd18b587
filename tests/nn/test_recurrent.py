"""Recurrent layers: against formulas in NumPy, each packed sequence alone, transforms, compiling, and what is refused."""

import copy
import itertools
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn
from wengert.nn.utils.rnn import (
    PackedSequence,
    invert_permutation,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
    unpad_sequence,
)

KINDS = ("RNN", "LSTM", "GRU")
RNG = np.random.default_rng(0)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def by_hand(kind: str, x: Any, w: dict[str, Any]) -> Any:
    """What a layer shows, by the formulas of its docstring."""
    size = w["weight_hh_l0"].shape[1]
    h = c = np.zeros((x.shape[1], size))
    shown = []
    for now in x:
        entering = now @ w["weight_ih_l0"].T + w["bias_ih_l0"]
        across = h @ w["weight_hh_l0"].T + w["bias_hh_l0"]
        if kind == "RNN":
            h = np.tanh(entering + across)
        elif kind == "LSTM":
            i, f, g, o = np.split(entering + across, 4, 1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            (xr, xz, xn), (hr, hz, hn) = np.split(entering, 3, 1), np.split(across, 3, 1)
            n, z = np.tanh(xn + sigmoid(xr + hr) * hn), sigmoid(xz + hz)
            h = (1 - z) * n + z * h
        shown.append(h)
    return np.stack(shown)


def layer(kind: str, **options: Any) -> Any:
    return getattr(nn, kind)(3, 4, **options).double()


def data(*shape: int) -> Any:
    return wg.tensor(RNG.normal(size=shape))


@pytest.mark.parametrize("kind", KINDS)
def test_formulas(kind: str) -> None:
    m, x = layer(kind), data(5, 2, 3)
    want = by_hand(kind, x.numpy(), {n: p.detach().numpy() for n, p in m.named_parameters()})
    np.testing.assert_allclose(m(x)[0].detach().numpy(), want, rtol=1e-10)
    cell = getattr(nn, f"{kind}Cell")(3, 4).double()
    cell.load_state_dict({n.removesuffix("_l0"): v for n, v in m.state_dict().items()})
    state: Any = None
    for now in x:
        state = cell(now, state)
    np.testing.assert_allclose((state[0] if kind == "LSTM" else state).detach().numpy(), want[-1], rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_are_each_computed_alone(kind: str) -> None:
    m = layer(kind, num_layers=2, bidirectional=True)
    sequences = [data(n, 3).requires_grad_() for n in (2, 4, 3)]
    output, state = m(pack_sequence(sequences, enforce_sorted=False))
    (output.data**2).sum().backward()
    grads = [s.grad for s in sequences] + [p.grad for p in m.parameters()]
    m.zero_grad()
    for k, (sequence, got) in enumerate(zip(sequences, unpack_sequence(output), strict=True)):
        sequence.grad = None
        want, last = m(sequence)
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-10)
        for a, b in zip(*(s if kind == "LSTM" else (s,) for s in (state, last)), strict=True):
            np.testing.assert_allclose(a[:, k].detach().numpy(), b.detach().numpy(), rtol=1e-10)
        (want**2).sum().backward()
    for a, b in zip(grads, [s.grad for s in sequences] + [p.grad for p in m.parameters()], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_transforms(kind: str) -> None:
    m = layer(kind, bidirectional=True)
    xs, t = data(3, 4, 2, 3), data(4, 2, 3)

    def shown(x: Any) -> Any:
        return m(x)[0]

    one = xs[0]
    want = np.stack([shown(x).detach().numpy() for x in xs])
    np.testing.assert_allclose(wg.func.vmap(shown)(xs).detach().numpy(), want, rtol=1e-10)
    step = 1e-6
    slope = (shown(one + step * t) - shown(one - step * t)).detach().numpy() / (2 * step)
    np.testing.assert_allclose(wg.func.jvp(shown, (one,), (t,))[1].detach().numpy(), slope, rtol=1e-6, atol=1e-8)
    parameters = {n: p.detach() for n, p in m.named_parameters()}
    each = wg.func.vmap(
        lambda x: wg.func.grad(lambda p: (wg.func.functional_call(m, p, (x,))[0] ** 2).sum())(parameters)
    )(xs)
    for k, x in enumerate(xs):
        m.zero_grad()
        (shown(x) ** 2).sum().backward()
        for name, p in m.named_parameters():
            np.testing.assert_allclose(each[name][k].numpy(), p.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_compiled() -> None:
    m, x = layer("LSTM"), data(2, 2, 3)

    def step(x: Any) -> Any:
        m.zero_grad()
        loss = (m(x)[0] ** 2).sum()
        loss.backward()
        return loss

    want = step(x).item()
    grads = [p.grad.numpy() for p in m.parameters()]
    compiled = wg.compile(step)
    for _ in range(2):
        assert compiled(x).item() == pytest.approx(want, rel=1e-12)
        for p, g in zip(m.parameters(), grads, strict=True):
            np.testing.assert_allclose(p.grad.numpy(), g, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind: str) -> None:
    m = layer(kind)
    assert wg.autograd.gradgradcheck(lambda x: m(x)[0], (data(2, 1, 3).requires_grad_(),))


def test_dropout_between_layers() -> None:
    with pytest.warns(UserWarning, match="num_layers=1"):
        nn.LSTM(3, 4, dropout=0.5)
    m, x = layer("GRU", num_layers=2, dropout=1.0), data(4, 2, 3)
    dropped, kept = m(x)[0], m.eval()(x)[0]
    assert not bool((dropped == kept).any())
    assert bool((m(x)[0] == kept).all())


def test_copies_and_starting_values() -> None:
    m = nn.LSTM(2, 16, num_layers=2, bias=False)
    assert max(p.abs().max().item() for p in m.parameters()) <= 0.25
    assert [[tuple(p.shape) for p in ps] for ps in m.all_weights] == [[(64, 2), (64, 16)], [(64, 16), (64, 16)]]
    m.flatten_parameters()
    twin = copy.deepcopy(m)
    x = wg.ones(3, 1, 2)
    assert twin.weight_ih_l0 is not m.weight_ih_l0
    assert bool((twin(x)[0] == m(x)[0]).all())


def test_sequences() -> None:
    lists = [[1, 2], [3], [4, 5, 6]]
    given = [wg.tensor(s) for s in lists]
    packed = pack_sequence(given, enforce_sorted=False)
    assert (packed.data.tolist(), packed.batch_sizes.tolist()) == ([4, 1, 3, 5, 2, 6], [3, 2, 1])
    assert (packed.sorted_indices.tolist(), packed.unsorted_indices.tolist()) == ([2, 0, 1], [1, 2, 0])
    assert [s.tolist() for s in unpack_sequence(packed)] == lists
    assert pad_sequence(given, padding_value=7).tolist() == [[1, 3, 4], [2, 7, 5], [7, 7, 6]]
    assert pad_sequence(given, True, padding_side="left").tolist() == [[0, 1, 2], [0, 0, 3], [4, 5, 6]]
    padded, lengths = pad_packed_sequence(packed, padding_value=-1, total_length=4)
    assert padded.T.tolist() == [[1, 2, -1, -1], [3, -1, -1, -1], [4, 5, 6, -1]]
    assert [s.tolist() for s in unpad_sequence(padded, lengths)] == lists
    assert packed.double().data.dtype is wg.float64
    assert packed.to(wg.int64) is packed
    assert invert_permutation(None) is None
    again = PackedSequence((packed.data, packed.batch_sizes))
    assert (again.sorted_indices, again.is_cuda) == (None, False)
    for dtype, name in itertools.product(
        (wg.float32,), ("float", "half", "long", "int", "short", "char", "byte", "cpu")
    ):
        assert getattr(packed.to(dtype), name)().data.tolist() == packed.data.tolist()


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (lambda: nn.LSTM(3, 4)(wg.ones(5, 2, 3, dtype=wg.float64)), ValueError, "dtype"),
    (lambda: nn.GRU(3, 4)(wg.ones(5, 2, 2)), RuntimeError, "3 features"),
    (lambda: nn.GRU(3, 4)(wg.ones(5, 1, 2, 3)), ValueError, "(T, N, C)"),
    (lambda: nn.RNN(3, 4)(wg.ones(0, 2, 3)), RuntimeError, "at least one step"),
    (lambda: nn.GRU(3, 4)(wg.ones(5, 2, 3), wg.ones(1, 3, 4)), RuntimeError, "(1, 2, 4)"),
    (lambda: nn.GRU(3, 4)(wg.ones(5, 2, 3), wg.ones(1, 4)), RuntimeError, "3 dimensions"),
    (lambda: nn.GRU(3, 4)(wg.ones(5, 2, 3), (wg.ones(1, 2, 4),)), TypeError, "one tensor"),
    (lambda: nn.LSTM(3, 4)(wg.ones(5, 2, 3), wg.ones(1, 2, 4)), TypeError, "pair"),
    (lambda: nn.LSTM(3, 4)(wg.ones(5, 3), (wg.ones(1, 4), wg.ones(1, 1, 4))), RuntimeError, "c_0"),
    (lambda: nn.LSTM(3, 4, proj_size=4), ValueError, "proj_size"),
    (lambda: nn.RNNBase("GRU", 3, 4, proj_size=2), ValueError, "only an LSTM"),
    (lambda: nn.RNNBase("ELMAN", 3, 4), ValueError, "RNN_TANH"),
    (lambda: nn.LSTM(3, 0), ValueError, "greater than zero"),
    (lambda: nn.LSTM(3.5, 2), TypeError, "input_size"),
    (lambda: nn.LSTM(3, 4, 2, dropout=1.5), ValueError, "probability"),
    (lambda: nn.RNN(3, 4, nonlinearity="elu"), ValueError, "'relu'"),
    (lambda: nn.RNN(3, 4, batch_first=1), TypeError, "bool"),
    (lambda: nn.GRUCell(3, 4)(wg.ones(2, 2, 3)), ValueError, "GRUCell"),
    (lambda: nn.GRUCell(3, 4)(wg.ones(2, 2)), RuntimeError, "3 features"),
    (lambda: nn.RNNCell(3, 4)(wg.ones(2, 3), wg.ones(2, 3)), RuntimeError, "(2, 4)"),
    (lambda: nn.RNNCell(3, 4)(wg.ones(2, 3), wg.ones(2, 2, 4)), ValueError, "1 or 2"),
    (lambda: nn.LSTMCell(3, 4)(wg.ones(2, 3), wg.ones(2, 4)), TypeError, "pair"),
    (lambda: nn.RNNCell(3, 4, nonlinearity="elu")(wg.ones(3)), RuntimeError, "'relu'"),
    (lambda: pack_padded_sequence(wg.ones(3, 2), [2, 3]), RuntimeError, "enforce_sorted=False"),
    (lambda: pack_padded_sequence(wg.ones(3, 2), [2, 0]), RuntimeError, "greater than 0"),
    (lambda: pack_padded_sequence(wg.ones(3, 2), [2]), RuntimeError, "1 lengths"),
    (lambda: pack_padded_sequence(wg.ones(3, 2), [4, 2]), RuntimeError, "3 steps"),
    (lambda: pack_padded_sequence(wg.ones(3, 2), 4), TypeError, "lengths"),
    (lambda: pack_padded_sequence(wg.ones(3), [3]), RuntimeError, "(T, N, …)"),
    (lambda: pad_packed_sequence(pack_sequence([wg.ones(3)]), total_length=2), ValueError, "3 steps"),
    (lambda: pad_sequence([]), RuntimeError, "no sequences"),
    (lambda: pad_sequence(3), RuntimeError, "list"),
    (lambda: pad_sequence([wg.ones(2, 3), wg.ones(2, 4)]), RuntimeError, "first dimension"),
    (lambda: pad_sequence([wg.ones(2)], padding_side="top"), ValueError, "'left'"),
    (lambda: unpad_sequence(wg.ones(2, 3), [1]), ValueError, "1 lengths"),
    (lambda: PackedSequence(wg.ones(2)), TypeError, "pair"),
    (lambda: nn.GRU(1, 4)(pack_sequence([wg.ones(3)])), RuntimeError, "2 dimensions"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED)
def test_refusals(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as found:
        call()
    assert text in str(found.value)

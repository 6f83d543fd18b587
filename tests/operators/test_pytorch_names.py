"""Operators that are there for PyTorch's names: against NumPy, itertools, and the operators they are made of."""

import itertools

import numpy as np
import pytest

import wengert as wg
import wengert.nn.functional as F
from wengert.array.layout import channels_last, channels_last_3d
from wengert.operators.linear_cross_entropy import LinearCrossEntropyOptions

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 6))


@pytest.mark.parametrize("correction", [0, 1, 2])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_cov(correction, kind):
    x = X + 1j * X[::-1] if kind == "complex" else X
    repeats, weights = np.array([1, 2, 0, 1, 3, 1]), RNG.random(6)
    for options in ({}, {"fweights": repeats}, {"aweights": weights}, {"fweights": repeats, "aweights": weights}):
        want = np.cov(x, ddof=correction, **options)
        got = wg.cov(wg.tensor(x), correction=correction, **{k: wg.tensor(v) for k, v in options.items()})
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)


def test_corrcoef():
    np.testing.assert_allclose(wg.corrcoef(wg.tensor(X)).numpy(), np.corrcoef(X), rtol=1e-12)
    assert wg.corrcoef(wg.tensor(X[0])).item() == 1


@pytest.mark.parametrize("r", [0, 1, 2, 3, 4, 5])
def test_combinations(r):
    x = wg.arange(4)
    if r:
        assert wg.combinations(x, r).tolist() == [list(c) for c in itertools.combinations(range(4), r)]
        repeated = wg.combinations(x, r, with_replacement=True)
        assert repeated.tolist() == [list(c) for c in itertools.combinations_with_replacement(range(4), r)]
    else:
        assert tuple(wg.combinations(x, r).shape) == (0,)


def test_histogramdd():
    points, edges = RNG.random((20, 2)), ([0.0, 0.3, 1.0], [0.1, 0.2, 0.5, 0.9])
    for bins, theirs in ((list(map(wg.tensor, edges)), edges), ([2, 3], [2, 3]), (4, 4)):
        want, want_edges = np.histogramdd(points, theirs)
        got, got_edges = wg.histogramdd(wg.tensor(points), bins)
        np.testing.assert_array_equal(got.numpy(), want)
        for g, w in zip(got_edges, want_edges, strict=True):
            np.testing.assert_allclose(g.numpy(), w, rtol=1e-6)


def test_unravel_index():
    index = np.array([[0, 23], [7, 12]])
    for got, want in zip(
        wg.unravel_index(wg.tensor(index), (2, 3, 4)), np.unravel_index(index, (2, 3, 4)), strict=True
    ):
        np.testing.assert_array_equal(got.numpy(), want)


def test_hash_tensor_is_the_exclusive_or_of_the_bits():
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    want = np.bitwise_xor.reduce(x.astype(np.float64).view(np.uint64), 1)
    np.testing.assert_array_equal(wg.hash_tensor(wg.tensor(x), 1).numpy(), want)
    assert wg.hash_tensor(wg.tensor([5, 3], dtype=wg.int8)).item() == 6


def test_nonzero_static_cuts_and_fills():
    x = wg.tensor([[0, 1], [1, 1]])
    assert wg.nonzero_static(x, size=2).tolist() == [[0, 1], [1, 0]]
    assert wg.nonzero_static(x, size=4, fill_value=9).tolist() == [[0, 1], [1, 0], [1, 1], [9, 9]]


@pytest.mark.parametrize(
    "copy",
    [
        lambda x: wg.view_copy(x, (3, 2)), lambda x: wg.t_copy(x), lambda x: wg.narrow_copy(x, 1, 0, 2),
        lambda x: wg.unbind_copy(x)[0], lambda x: wg.expand_copy(x, (2, 3)), lambda x: wg.diagonal_copy(x),
        lambda x: wg.unsafe_split(x, 1)[0], lambda x: wg.as_strided_copy(x, (2,), (1,)),
    ],
)  # fmt: skip
def test_copies_share_no_memory(copy):
    x = wg.arange(6.0).reshape(2, 3)
    out = copy(x)
    assert out._base is None
    assert not np.shares_memory(out.numpy(), x.numpy())


@pytest.mark.parametrize(("shape", "form"), [((2, 3, 4, 5), channels_last), ((2, 3, 2, 2, 2), channels_last_3d)])
def test_memory_formats(shape, form):
    x = wg.randn(shape)
    for y in (x.contiguous(memory_format=form), x.clone(memory_format=form), x.to(memory_format=form)):
        assert y.stride(1) == 1
        assert y.stride(-1) == shape[1]
        np.testing.assert_array_equal(y.numpy(), x.numpy())
        assert y.contiguous(memory_format=form) is y
        assert y.contiguous().is_contiguous()
    assert wg.empty(shape, memory_format=form).stride(1) == 1
    assert wg.zeros_like(x, memory_format=form).stride(1) == 1
    with pytest.raises(ValueError, match="needs a tensor of"):
        wg.ones(2).contiguous(memory_format=form)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("chunk", [1, 2, 5, 7])
def test_cross_entropy_in_chunks_is_that_of_all_rows(reduction, chunk):
    parts = {}
    for options in (None, LinearCrossEntropyOptions(batch_chunk_size=chunk)):
        rng = np.random.default_rng(1)
        tensors = [wg.tensor(rng.standard_normal(s), requires_grad=True) for s in ((5, 3), (4, 3), (4,))]
        x, w, b = tensors
        loss = F.linear_cross_entropy(
            x, w, wg.tensor([0, 3, 1, 1, 2]), linear_bias=b, reduction=reduction, ignore_index=1,
            weight=wg.tensor([1.0, 2.0, 0.5, 1.5]).double(), options=options,
        )  # fmt: skip
        parts[options is None] = [loss, *wg.autograd.grad(loss.sum(), tensors)]
    for whole, chunked in zip(parts[True], parts[False], strict=True):
        np.testing.assert_allclose(chunked.detach().numpy(), whole.detach().numpy(), rtol=1e-12, atol=1e-15)


def test_chunks_of_cross_entropy():
    assert LinearCrossEntropyOptions().rows(64, 8, 64) == 4
    assert LinearCrossEntropyOptions(chunking_method="aspect_ratio:1").rows(64, 8, 64) == 8
    assert LinearCrossEntropyOptions(chunking_method=None).rows(64, 8, 64) == 64
    with pytest.raises(ValueError, match="positive int"):
        LinearCrossEntropyOptions(batch_chunk_size=0)
    with pytest.raises(ValueError, match="chunking_method"):
        LinearCrossEntropyOptions(chunking_method="halves")
    with pytest.warns(UserWarning, match="options are ignored"):
        F.linear_cross_entropy(
            wg.ones(1, 2), wg.ones(2, 2), wg.tensor([0]), label_smoothing=0.1, options=LinearCrossEntropyOptions()
        )


def test_complex_log_sums_do_not_overflow():
    z = wg.tensor([900 + 1j, 899 - 2j, -900 + 0.5j])
    want = 900 + np.log(np.exp(z.numpy().astype(np.complex128) - 900).sum())
    np.testing.assert_allclose(wg.logsumexp(z.to(wg.complex128), 0).item(), want, rtol=1e-12)
    np.testing.assert_allclose(wg.logcumsumexp(z.to(wg.complex128), 0)[-1].item(), want, rtol=1e-12)
    np.testing.assert_allclose(wg.logaddexp(z[0], z[1]).item(), want, rtol=1e-6)
    assert wg.sigmoid(wg.tensor([-900 + 1j, 900 + 1j])).tolist() == [0, 1]


def test_multi_head_attention_is_that_of_each_head():
    rng = np.random.default_rng(2)
    q, k, w, b, out = (wg.tensor(rng.standard_normal(s)) for s in ((3, 2, 4), (5, 2, 4), (12, 4), (12,), (4, 4)))
    got, weights = F.multi_head_attention_forward(q, k, k, 4, 2, w, b, None, None, False, 0.0, out, None)
    heads = []
    for part in (slice(0, 2), slice(2, 4)):
        maps = [F.linear(x, w[4 * i :][part], b[4 * i :][part]).transpose(0, 1) for i, x in enumerate((q, k, k))]
        heads.append(F.scaled_dot_product_attention(*maps))
    want = F.linear(wg.cat(heads, -1).transpose(0, 1), out)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-10)
    np.testing.assert_allclose(weights.sum(-1).numpy(), np.ones((2, 3)))

"""Losses beside PyTorch: their own samples, weights, reductions, dtypes and second derivatives."""

import numpy as np
import pytest
import torch

import wengert as wg
from tests.peers.compare import compare
from tests.peers.differences import DIFFERENT, explained
from wengert.core.registry import operators

FILES = {"binary", "class_margins", "cross_entropy", "ctc", "loss"}
OPERATORS = [name for name, op in operators().items() if op.function.__module__.rpartition(".")[2] in FILES]


@pytest.mark.parametrize("name", OPERATORS)
def test_samples_agree_with_pytorch(name):
    unexplained = [d for d in compare(name) if not explained(name, d)]
    assert not unexplained, "\n".join(unexplained)


@pytest.mark.parametrize("name", sorted(set(DIFFERENT) & set(OPERATORS)))
def test_every_explained_difference_still_exists(name):
    assert any(explained(name, d) for d in compare(name)), f"{name} now agrees with PyTorch: drop it from the table"


def derivatives(module, call, x):
    """Return a loss, its gradient, and the gradient of the gradient's square, as arrays."""
    loss = call(module, x)
    (g,) = module.autograd.grad(loss.sum(), (x,), create_graph=True)
    (h,) = module.autograd.grad((g * g).sum(), (x,))
    return [v.detach().numpy() for v in (loss, g, h)]


def both(call, array, dtype="float64", rtol=1e-9):
    ours = derivatives(wg, call, wg.tensor(array, dtype=getattr(wg, dtype), requires_grad=True))
    theirs = derivatives(torch, call, torch.tensor(array, dtype=getattr(torch, dtype), requires_grad=True))
    for got, want in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


DRAWS = np.random.default_rng(0)
LOGITS, VOLUME = DRAWS.standard_normal((5, 4)), DRAWS.standard_normal((2, 4, 3, 2))
CLASSES, PIXELS = [0, 3, -100, 1, 1], DRAWS.integers(0, 4, (2, 3, 2)).tolist()
WEIGHTS = [0.5, 1.0, 2.0, 0.25]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize(("logits", "target"), [(LOGITS, CLASSES), (VOLUME, PIXELS), (LOGITS[0], 2)])
def test_cross_entropy(logits, target, smoothing, weighted, reduction):
    def call(m, x):
        weight = m.tensor(WEIGHTS, dtype=x.dtype) if weighted else None
        return m.nn.functional.cross_entropy(
            x, m.tensor(target), weight, reduction=reduction, label_smoothing=smoothing, ignore_index=-100
        )

    both(call, logits)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_with_probabilities(smoothing, weighted, reduction):
    share = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)

    def call(m, x):
        weight = m.tensor(WEIGHTS, dtype=x.dtype) if weighted else None
        q = m.tensor(share, dtype=x.dtype)
        return m.nn.functional.cross_entropy(x, q, weight, reduction=reduction, label_smoothing=smoothing)

    both(call, LOGITS[::-1].copy())


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("logits", "target"), [(LOGITS, CLASSES), (VOLUME, PIXELS)])
def test_weighted_nll_loss(logits, target, reduction):
    both(lambda m, x: m.nn.functional.nll_loss(
        x.log_softmax(1), m.tensor(target), m.tensor(WEIGHTS, dtype=x.dtype), reduction=reduction), logits)  # fmt: skip


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("positive", [False, True])
def test_weighted_binary_cross_entropy(weighted, positive, reduction):
    share = 1 / (1 + np.exp(-LOGITS))

    def call(m, x):
        w = m.tensor(WEIGHTS, dtype=x.dtype)
        options = {"weight": w if weighted else None, "reduction": reduction}
        y = m.tensor(share[::-1].copy(), dtype=x.dtype)
        if positive:
            return m.nn.functional.binary_cross_entropy_with_logits(x, y, pos_weight=w, **options)
        return m.nn.functional.binary_cross_entropy(x.sigmoid(), y, **options)

    both(call, LOGITS)


@pytest.mark.parametrize("p", [1, 2])
def test_weighted_multi_margin_loss(p):
    def run(m, x):
        loss = m.nn.functional.multi_margin_loss(x, m.tensor([0, 3, 2, 1, 1]), p, 0.7, m.tensor(WEIGHTS, dtype=x.dtype))
        (g,) = m.autograd.grad(loss, (x,))
        return loss.detach().numpy(), g.numpy()

    ours, theirs = run(wg, wg.tensor(LOGITS, requires_grad=True)), run(torch, torch.tensor(LOGITS, requires_grad=True))
    for got, want in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("blank", [0, 3])
def test_ctc_behind_log_softmax(blank, reduction):
    logits = np.random.default_rng(1).standard_normal((7, 3, 4))
    targets = [[1, 2, 2], [2, 1, 1], [1, 1, 1]]

    def run(m, x):
        logp = m.nn.functional.log_softmax(x, 2)
        lengths = m.tensor([7, 5, 6]), m.tensor([3, 2, 1])
        loss = m.nn.functional.ctc_loss(logp, m.tensor(targets), *lengths, blank, reduction)
        (g,) = m.autograd.grad(loss.sum(), (x,))
        return loss.detach().numpy(), g.numpy()

    ours, theirs = run(wg, wg.tensor(logits, requires_grad=True)), run(torch, torch.tensor(logits, requires_grad=True))
    for got, want in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_cross_entropy_in_low_precision(dtype):
    def run(m):
        x = m.tensor(LOGITS).to(getattr(m, dtype)).requires_grad_()
        loss = m.nn.functional.cross_entropy(x, m.tensor(CLASSES))
        loss.backward()
        return str(loss.dtype).rpartition(".")[2], loss.item(), x.grad.to(m.float32).numpy()

    ours, theirs = run(wg), run(torch)
    tolerance = {"float16": 3e-3, "bfloat16": 2e-2, "float32": 1e-6}[dtype]
    assert ours[0] == theirs[0]
    np.testing.assert_allclose(ours[1], theirs[1], rtol=tolerance)
    np.testing.assert_allclose(ours[2], theirs[2], rtol=tolerance, atol=tolerance)

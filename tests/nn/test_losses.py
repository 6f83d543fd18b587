"""Losses against formulas written in NumPy, in every reduction."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, log_softmax

import wengert as wg
from wengert import nn

RNG = np.random.default_rng(1)
A, B = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
P, Q = RNG.uniform(0.05, 0.95, size=(3, 4)), RNG.uniform(0.05, 0.95, size=(3, 4))
SIGN = np.where(RNG.uniform(size=(3, 4)) > 0.5, 1.0, -1.0)
Y = np.array([2, 0, 3])
W = np.array([0.5, 1.0, 2.0, 0.25])
PICK = np.arange(3)


def t(a: Any) -> Any:
    a = np.asarray(a)
    return wg.tensor(a, dtype=wg.float64 if a.dtype.kind == "f" else wg.int64)


def huber(d: Any, delta: float) -> Any:
    return np.where(abs(d) <= delta, d * d / 2, delta * (abs(d) - delta / 2))


def rows_norm(d: Any) -> Any:
    return np.linalg.norm(d + 1e-6, axis=1)


def cos(a: Any, b: Any) -> Any:
    return (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def margins(x: Any, y: Any, p: int, margin: float, w: Any) -> Any:
    gap = np.maximum(0, margin - x[PICK, y][:, None] + x) ** p * w[y][:, None]
    gap[PICK, y] = 0
    return gap.sum(1) / x.shape[1]


UNREDUCED = {
    "L1": (nn.L1Loss, {}, (A, B), abs(A - B)),
    "MSE": (nn.MSELoss, {}, (A, B), (A - B) ** 2),
    "SmoothL1": (nn.SmoothL1Loss, {"beta": 0.5}, (A, B), huber(A - B, 0.5) / 0.5),
    "Huber": (nn.HuberLoss, {"delta": 0.7}, (A, B), huber(A - B, 0.7)),
    "KLDiv": (nn.KLDivLoss, {}, (A, P), P * (np.log(P) - A)),
    "KLDiv log": (nn.KLDivLoss, {"log_target": True}, (A, np.log(P)), P * (np.log(P) - A)),
    "PoissonNLL": (nn.PoissonNLLLoss, {}, (A, P), np.exp(A) - P * A),
    "PoissonNLL plain": (nn.PoissonNLLLoss, {"log_input": False}, (P, Q), P - Q * np.log(P + 1e-8)),
    "PoissonNLL full": (
        nn.PoissonNLLLoss, {"full": True}, (A, 3 * P),
        np.exp(A) - 3 * P * A
        + np.where(3 * P > 1, 3 * P * np.log(3 * P) - 3 * P + 0.5 * np.log(2 * math.pi * 3 * P), 0),
    ),
    "GaussianNLL": (nn.GaussianNLLLoss, {}, (A, B, P), 0.5 * (np.log(P) + (A - B) ** 2 / P)),
    "SoftMargin": (nn.SoftMarginLoss, {}, (A, SIGN), np.log1p(np.exp(-SIGN * A))),
    "HingeEmbedding": (
        nn.HingeEmbeddingLoss, {"margin": 0.8}, (P, SIGN), np.where(SIGN == 1, P, np.maximum(0, 0.8 - P)),
    ),
    "MarginRanking": (
        nn.MarginRankingLoss, {"margin": 0.3}, (A, B, SIGN), np.maximum(0, -SIGN * (A - B) + 0.3),
    ),
    "CosineEmbedding": (
        nn.CosineEmbeddingLoss, {"margin": 0.1}, (A, B, SIGN[:, 0]),
        np.where(SIGN[:, 0] == 1, 1 - cos(A, B), np.maximum(0, cos(A, B) - 0.1)),
    ),
    "TripletMargin": (
        nn.TripletMarginLoss, {"margin": 0.5}, (A, B, P), np.maximum(0, rows_norm(A - B) - rows_norm(A - P) + 0.5),
    ),
    "TripletMargin swap": (
        nn.TripletMarginLoss, {"swap": True}, (A, B, P),
        np.maximum(0, rows_norm(A - B) - np.minimum(rows_norm(A - P), rows_norm(B - P)) + 1),
    ),
    "TripletMarginWithDistance": (
        nn.TripletMarginWithDistanceLoss, {"distance_function": lambda x, y: (x - y).abs().sum(-1)}, (A, B, P),
        np.maximum(0, abs(A - B).sum(1) - abs(A - P).sum(1) + 1),
    ),
    "TripletMarginWithDistance default": (
        nn.TripletMarginWithDistanceLoss, {}, (A, B, P), np.maximum(0, rows_norm(A - B) - rows_norm(A - P) + 1),
    ),
    "BCE": (nn.BCELoss, {}, (P, Q), -(Q * np.log(P) + (1 - Q) * np.log(1 - P))),
    "BCE weight": (nn.BCELoss, {"weight": t(W)}, (P, Q), -W * (Q * np.log(P) + (1 - Q) * np.log(1 - P))),
    "BCEWithLogits": (
        nn.BCEWithLogitsLoss, {"pos_weight": t(W)}, (A, Q), -(W * Q * np.log(expit(A)) + (1 - Q) * np.log(expit(-A))),
    ),
    "MultiMargin": (nn.MultiMarginLoss, {"p": 2, "margin": 0.6, "weight": t(W)}, (A, Y), margins(A, Y, 2, 0.6, W)),
    "MultiLabelSoftMargin": (
        nn.MultiLabelSoftMarginLoss, {}, (A, Q), -(Q * np.log(expit(A)) + (1 - Q) * np.log(expit(-A))).mean(1),
    ),
    "MultiLabelMargin": (
        nn.MultiLabelMarginLoss, {}, (np.array([[0.1, 0.2, 0.4, 0.8]]), np.array([[3, 0, -1, 1]])), np.array([0.85]),
    ),  # ((1 - 0.8 + 0.2) + (1 - 0.8 + 0.4) + (1 - 0.1 + 0.2) + (1 - 0.1 + 0.4)) / 4
}  # fmt: skip


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("name", UNREDUCED)
def test_losses(name: str, reduction: str) -> None:
    cls, options, arguments, each = UNREDUCED[name]
    got = cls(reduction=reduction, **options)(*map(t, arguments))
    want = {"none": each, "sum": each.sum(), "mean": each.mean()}[reduction]
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-9, atol=1e-12)


def test_kl_batchmean() -> None:
    got = nn.KLDivLoss(reduction="batchmean")(t(A), t(P))
    np.testing.assert_allclose(got.item(), (P * (np.log(P) - A)).sum() / 3, rtol=1e-9)


LOGP = log_softmax(A, 1)


@pytest.mark.parametrize(
    ("layer", "target", "want"),
    [
        (nn.NLLLoss(reduction="none"), Y, -A[PICK, Y]),
        (nn.NLLLoss(weight=t(W)), Y, -(W[Y] * A[PICK, Y]).sum() / W[Y].sum()),
        (nn.NLLLoss(ignore_index=0), Y, -(A[0, 2] + A[2, 3]) / 2),
        (nn.NLLLoss2d(reduction="sum"), Y, -A[PICK, Y].sum()),
        (nn.CrossEntropyLoss(), Y, -LOGP[PICK, Y].mean()),
        (nn.CrossEntropyLoss(weight=t(W)), Y, -(W[Y] * LOGP[PICK, Y]).sum() / W[Y].sum()),
        (nn.CrossEntropyLoss(label_smoothing=0.2), Y, -(0.8 * LOGP[PICK, Y] + 0.05 * LOGP.sum(1)).mean()),
        (nn.CrossEntropyLoss(), P, -(P * LOGP).sum(1).mean()),
    ],
    ids=["nll", "nll weight", "nll ignore", "nll sum", "ce", "ce weight", "ce smoothing", "ce probabilities"],
)
def test_class_losses(layer: Any, target: Any, want: Any) -> None:
    np.testing.assert_allclose(layer(t(A), t(target)).numpy(), want, rtol=1e-9)


def test_ctc_against_all_alignments() -> None:
    steps, classes = 4, 3
    logp = log_softmax(RNG.normal(size=(steps, 1, classes)), 2)
    label = [1, 2]
    total = 0.0
    for path in np.ndindex(*(classes,) * steps):
        merged = [c for i, c in enumerate(path) if i == 0 or c != path[i - 1]]
        if [c for c in merged if c] == label:
            total += math.exp(sum(logp[i, 0, c] for i, c in enumerate(path)))
    got = nn.CTCLoss(reduction="sum")(t(logp), t([label]), t([steps]), t([2]))
    np.testing.assert_allclose(got.item(), -math.log(total), rtol=1e-9)
    short = nn.CTCLoss(reduction="sum", zero_infinity=True)(t(logp[:1]), t([label]), t([1]), t([2]))
    assert short.item() == 0.0


def test_weights_are_buffers() -> None:
    m = nn.CrossEntropyLoss(weight=wg.ones(3))
    assert list(m.state_dict()) == ["weight"]
    assert m.double().weight.dtype is wg.float64
    assert list(nn.BCEWithLogitsLoss(pos_weight=wg.ones(2)).state_dict()) == ["pos_weight"]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: nn.L1Loss(reduction="avg"), ValueError),
        (lambda: nn.MSELoss(size_average=True), TypeError),
        (lambda: nn.NLLLoss(reduce=False), TypeError),
        (lambda: nn.TripletMarginLoss(margin=0), ValueError),
        (lambda: nn.TripletMarginWithDistanceLoss(margin=-1), ValueError),
        (lambda: nn.MultiMarginLoss(p=3), ValueError),
        (lambda: nn.CrossEntropyLoss(ignore_index=1)(wg.ones(2, 3), wg.ones(2, 3)), ValueError),
        (lambda: nn.GaussianNLLLoss()(wg.ones(2, 3, 4), wg.ones(2, 3, 4), wg.ones(1, 3, 1)), ValueError),
        (lambda: nn.GaussianNLLLoss()(wg.ones(2, 3), wg.ones(2, 3), wg.ones(2, 5)), ValueError),
    ],
)
def test_bad_arguments(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def test_adaptive_log_softmax_is_a_distribution_and_its_loss_the_mean() -> None:
    m = nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3, 7], div_value=2.0).double()
    x, labels = t(RNG.normal(size=(4, 6))), t([0, 4, 11, 2])
    logp = m.log_prob(x).detach().numpy()
    np.testing.assert_allclose(np.exp(logp).sum(1), 1.0, rtol=1e-12)
    output, loss = m(x, labels)
    np.testing.assert_allclose(output.detach().numpy(), logp[np.arange(4), [0, 4, 11, 2]], rtol=1e-12)
    np.testing.assert_allclose(loss.item(), -output.mean().item(), rtol=1e-12)
    assert m.predict(x).tolist() == logp.argmax(1).tolist()
    loss.backward()
    assert all(p.grad is not None for p in m.parameters())


@pytest.mark.parametrize("cutoffs", [[], [0, 3], [3, 3], [5, 4], [12]], ids=str)
def test_bad_cutoffs(cutoffs: list[int]) -> None:
    with pytest.raises(ValueError, match="cutoffs"):
        nn.AdaptiveLogSoftmaxWithLoss(6, 12, cutoffs)


@pytest.mark.parametrize(
    ("shape", "labels"), [((2, 6), [1]), ((2, 6), [1, 12]), ((2, 6), [-1, 0]), ((1, 2, 6), [[1, 2]])]
)
def test_bad_targets(shape: tuple[int, ...], labels: list[Any]) -> None:
    with pytest.raises(ValueError, match="target"):
        nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3])(wg.zeros(*shape), wg.tensor(labels))

"""Metrics against scikit-learn's values, on the whole and batch by batch."""

import io
import math
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

import wengert as wg
from wengert.metrics import AUROC, F1, Accuracy, ConfusionMatrix, Mean, Metric, Perplexity, Precision, Recall

RNG = np.random.default_rng(7)
CLASSES = 4
TARGETS = RNG.integers(0, CLASSES, 60)
SCORES = np.round(RNG.normal(size=(60, CLASSES)) + 1.2 * np.eye(CLASSES)[TARGETS], 1)  # rounded, so that some are equal
FOUND = SCORES.argmax(axis=1)
TWO, TWO_SCORES = (TARGETS > 1).astype(np.int64), SCORES[:, 2]
TWO_FOUND = (TWO_SCORES > 0.5).astype(np.int64)
LABELS = range(CLASSES)
ORDER = np.argsort(-SCORES, axis=1, kind="stable")


def perplexity() -> float:
    return math.exp(sk.log_loss(TARGETS, np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True), labels=LABELS))


CASES: dict[str, tuple[Any, Any, Any, Any]] = {
    "accuracy": (Accuracy, SCORES, TARGETS, sk.accuracy_score(TARGETS, FOUND)),
    "accuracy of classes": (Accuracy, FOUND, TARGETS, sk.accuracy_score(TARGETS, FOUND)),
    "top 2": (lambda: Accuracy(2), SCORES, TARGETS, (ORDER[:, :2] == TARGETS[:, None]).any(axis=1).mean()),
    "top 4": (lambda: Accuracy(4), SCORES, TARGETS, 1.0),
    "confusion": (lambda: ConfusionMatrix(4), SCORES, TARGETS, sk.confusion_matrix(TARGETS, FOUND)),
    "precision, binary": (lambda: Precision(average="binary"), TWO_FOUND, TWO, sk.precision_score(TWO, TWO_FOUND)),
    "recall, binary": (lambda: Recall(average="binary"), TWO_FOUND, TWO, sk.recall_score(TWO, TWO_FOUND)),
    "f1, binary": (lambda: F1(average="binary"), TWO_FOUND, TWO, sk.f1_score(TWO, TWO_FOUND)),
    "auroc": (AUROC, TWO_SCORES, TWO, sk.roc_auc_score(TWO, TWO_SCORES)),
    "auroc, classes": (
        lambda: AUROC(4), SCORES, TARGETS,
        np.mean([sk.roc_auc_score(i == TARGETS, SCORES[:, i]) for i in LABELS]),
    ),
    "perplexity": (Perplexity, SCORES, TARGETS, perplexity()),
    "mean": (Mean, TWO_SCORES, np.ones(60), TWO_SCORES.mean()),
    "weighted mean": (Mean, TWO_SCORES, TARGETS, np.average(TWO_SCORES, weights=TARGETS)),
    **{
        f"{make.__name__}, {average}": (
            lambda make=make, average=average: make(CLASSES, average), SCORES, TARGETS,
            reference(TARGETS, FOUND, average=average),
        )
        for make, reference in ((Precision, sk.precision_score), (Recall, sk.recall_score), (F1, sk.f1_score))
        for average in ("micro", "macro", "weighted", None)
    },
}  # fmt: skip


def value(metric: Metric) -> Any:
    result = metric.compute()
    return result.numpy() if isinstance(result, wg.Tensor) else result


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    make, scores, targets, want = CASES[name]
    whole = make()
    whole.update(wg.tensor(scores, requires_grad=scores.dtype.kind == "f"), wg.tensor(targets))
    np.testing.assert_allclose(value(whole), want, rtol=1e-12)

    parts = make(), make()
    for i, start in enumerate(range(0, 60, 7)):
        parts[i % 2].update(scores[start : start + 7], targets[start : start + 7])
    file = io.BytesIO()
    wg.save(parts[1].state_dict(), file)
    file.seek(0)
    loaded = make()
    loaded.load_state_dict(wg.load(file))
    np.testing.assert_allclose(value(parts[0].merge(loaded)), want, rtol=1e-12)

    whole.reset()
    whole.update(scores[:30], targets[:30])
    whole.update(scores[30:], targets[30:])
    np.testing.assert_allclose(value(whole), want, rtol=1e-12)
    whole.reset()
    if not isinstance(whole, ConfusionMatrix) or isinstance(whole, Precision | Recall | F1):
        with pytest.raises(ValueError, match=f"{type(whole).__name__} was given no"):
            whole.compute()


@pytest.mark.parametrize("make", [Precision, Recall, F1])
def test_a_class_without_samples(make: Any) -> None:
    found, targets = np.array([0, 1, 1]), np.array([0, 0, 1])
    reference = {Precision: sk.precision_score, Recall: sk.recall_score, F1: sk.f1_score}[make]
    for division in (0.0, 1.0):
        metric = make(3, zero_division=division)
        metric.update(found, targets)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = reference(targets, found, average="macro", labels=range(3), zero_division=division)
        assert metric.compute() == pytest.approx(want, rel=1e-12)


def test_more_dimensions_and_targets_that_do_not_count() -> None:
    scores, targets = SCORES[:24].reshape(2, 12, CLASSES).transpose(0, 2, 1), TARGETS[:24].reshape(2, 12).copy()
    targets[0, :5] = -100
    counted = slice(5, 24)
    accuracy, perplexity = Accuracy(ignore_index=-100), Perplexity()
    for metric in (accuracy, perplexity):
        metric.update(wg.tensor(scores), wg.tensor(targets))
    assert accuracy.compute() == pytest.approx((FOUND[counted] == TARGETS[counted]).mean())
    loss = wg.nn.functional.cross_entropy(wg.tensor(scores), wg.tensor(targets))
    assert perplexity.compute() == pytest.approx(math.exp(loss.item()), rel=1e-12)


def test_lower_precision_and_large_scores() -> None:
    perplexity = Perplexity()
    perplexity.update(wg.tensor([[1000.0, 0.0]], dtype=wg.float16), wg.tensor([1]))
    assert perplexity.compute() == math.inf
    perplexity.update(wg.tensor([[math.nan, 0.0]]), wg.tensor([1]))
    assert math.isnan(perplexity.compute())
    auroc = AUROC()
    auroc.update(wg.tensor([1.0, 2.0, 3.0], dtype=wg.bfloat16), wg.tensor([False, True, True]))
    assert auroc.compute() == 1.0


def test_scores_of_nan_are_never_right() -> None:
    accuracy = Accuracy()
    accuracy.update(wg.full((5, 3), math.nan), wg.tensor([0, 1, 2, 0, 1]))
    assert accuracy.compute() == 0.0


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Accuracy(0), ValueError, "top_k"),
        (lambda: Accuracy(2).update(FOUND, TARGETS), ValueError, "needs scores"),
        (lambda: Accuracy().update(SCORES, TARGETS[:3]), ValueError, r"\(60, 4\) and \(3,\)"),
        (lambda: Accuracy().update(np.zeros((2, 5, 4)), np.zeros((2, 5), int)), ValueError, "flatten"),
        (lambda: Accuracy().update(SCORES, TARGETS + 1), ValueError, "0 to 3, got 4"),
        (lambda: Accuracy().update(TWO_SCORES, TWO), TypeError, "threshold"),
        (lambda: Accuracy().update(SCORES, TARGETS + 0.5), TypeError, "float64"),
        (lambda: Accuracy().update(FOUND, FOUND[:3]), ValueError, "do not fit"),
        (lambda: ConfusionMatrix(1), ValueError, "classes"),
        (lambda: ConfusionMatrix(3).update(FOUND, TARGETS), ValueError, "0 to 2, got 3"),
        (lambda: ConfusionMatrix(4).update(SCORES * np.nan, TARGETS), ValueError, "NaN"),
        (lambda: F1(3, "median"), ValueError, "median"),
        (lambda: F1(3, "binary"), ValueError, "class 1 of 2"),
        (lambda: AUROC(1), ValueError, "classes"),
        (lambda: AUROC().update(SCORES, TARGETS), ValueError, "do not fit"),
        (lambda: AUROC().update(TWO_SCORES, TARGETS), ValueError, "0 to 1"),
        (lambda: AUROC(3).update(SCORES, TARGETS), ValueError, "got 4"),
        (lambda: AUROC().update(TWO_SCORES * np.nan, TWO), ValueError, "NaN"),
        (lambda: Mean().update(1.0, weight=-1), ValueError, "negative"),
        (lambda: F1(3).merge(Recall(3)), TypeError, "a F1 is merged with its like"),
        (lambda: F1(3).merge(F1(4)), ValueError, "the same classes, got 3 and 4"),
    ],
)
def test_metrics_refuse(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()


def test_an_area_needs_both_classes() -> None:
    auroc = AUROC()
    auroc.update(np.array([0.5]), np.array([1]))
    with pytest.raises(ValueError, match="class 1 and others, got 1 and 0"):
        auroc.compute()


def test_public_names() -> None:
    assert wg.metrics.F1 is F1
    assert repr(F1(3)) == "F1(classes=3, average='macro', zero_division=0.0, ignore_index=None)"
    with pytest.raises(AttributeError, match="Accuracy"):
        _ = wg.metrics.accuracy

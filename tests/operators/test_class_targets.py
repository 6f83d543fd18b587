"""What losses of classes say of scores and targets whose dtype does not fit, and that any integers are class indices."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn
from wengert.nn import functional as F

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 3))
CLASSES = np.array([0, 2, 1, 2])
WEIGHT, LINEAR = np.array([0.5, 1.0, 2.0]), RNG.normal(size=(3, 3))
OPTIONS = nn.LinearCrossEntropyOptions(batch_chunk_size=2)

LOSSES: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "cross_entropy": ("cross_entropy", F.cross_entropy),
    "weighted": ("cross_entropy", lambda x, y: F.cross_entropy(x, y, wg.tensor(WEIGHT, dtype=x.dtype))),
    "smoothed": ("cross_entropy", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)),
    "CrossEntropyLoss": ("cross_entropy", nn.CrossEntropyLoss()),
    "nll_loss": ("nll_loss", F.nll_loss),
    "weighted nll_loss": ("nll_loss", lambda x, y: F.nll_loss(x, y, wg.tensor(WEIGHT, dtype=x.dtype))),
    "NLLLoss": ("nll_loss", nn.NLLLoss(reduction="none")),
    "multi_margin_loss": ("multi_margin_loss", F.multi_margin_loss),
    "linear_cross_entropy": (
        "linear_cross_entropy", lambda x, y: F.linear_cross_entropy(x, wg.tensor(LINEAR, dtype=x.dtype), y)
    ),
    "in chunks": (
        "linear_cross_entropy",
        lambda x, y: F.linear_cross_entropy(x, wg.tensor(LINEAR, dtype=x.dtype), y, options=OPTIONS),
    ),
}  # fmt: skip
INTEGERS = [wg.int8, wg.int16, wg.int32, wg.uint8, wg.uint16, wg.uint32, wg.uint64]
NO_INTEGERS = [wg.float32, wg.float64, wg.float16, wg.bool, wg.complex64]
NO_FLOATS = [wg.int64, wg.uint8, wg.bool, wg.complex128]


def labels(y: Any) -> Any:
    """Return class indices as the labels that multilabel_margin_loss takes, one in each row."""
    return wg.stack((y, y, y), 1)


LABELS = ("multilabel_margin_loss", lambda x, y: F.multilabel_margin_loss(x, labels(y)))
ALL = LOSSES | {
    "multilabel_margin_loss": LABELS,
    "MultiLabelMarginLoss": (LABELS[0], lambda x, y: nn.MultiLabelMarginLoss()(x, labels(y))),
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", ALL)
def test_integers_of_any_kind_are_class_indices(name: str, dtype: Any) -> None:
    loss, found = ALL[name][1], []
    for kind in (wg.int64, dtype):
        x = wg.tensor(X, requires_grad=True)
        value = loss(x, wg.tensor(CLASSES, dtype=kind))
        found.append((value, *wg.autograd.grad(value.sum(), x)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one.detach().numpy(), other.detach().numpy())


def test_an_index_without_a_sign_may_be_ignored() -> None:
    y = wg.tensor([0, 200, 1, 2], dtype=wg.uint8)
    for loss in (F.nll_loss, F.cross_entropy):
        wanted = loss(wg.tensor(X[[0, 2, 3]]), y[wg.tensor([0, 2, 3])])
        assert loss(wg.tensor(X), y, ignore_index=200).item() == pytest.approx(wanted.item(), rel=1e-12)


@pytest.mark.parametrize("dtype", NO_INTEGERS, ids=str)
@pytest.mark.parametrize("name", ALL)
def test_targets_that_are_no_integers(name: str, dtype: Any) -> None:
    public, loss = ALL[name]
    with pytest.raises(RuntimeError) as error:
        loss(wg.tensor(X), wg.tensor(CLASSES).to(dtype))
    text = str(error.value)
    assert text.startswith(f"{public}(): target must hold class indices, as integers, got {dtype} of shape (4,"), text
    assert ".long()" in text
    assert ("or give probabilities" in text) is (public in ("cross_entropy", "linear_cross_entropy"))


@pytest.mark.parametrize("dtype", NO_FLOATS, ids=str)
@pytest.mark.parametrize("name", ALL)
def test_scores_that_are_no_floats(name: str, dtype: Any) -> None:
    public, loss = ALL[name]
    with pytest.raises(RuntimeError) as error:
        loss(wg.ones(4, 3).to(dtype), wg.tensor(CLASSES))
    text = str(error.value)
    assert text.startswith(f"{public}(): input must hold "), text
    assert f"as floating-point numbers, got {dtype} of shape (4, 3); " in text
    assert ("abs()" if dtype.is_complex else ".float()") in text


ONE_HOT = np.eye(3)[CLASSES]


@pytest.mark.parametrize("name", ["cross_entropy", "weighted", "smoothed", "CrossEntropyLoss", "linear_cross_entropy"])
@pytest.mark.parametrize("dtype", NO_FLOATS, ids=str)
def test_probabilities_that_are_no_floats(name: str, dtype: Any) -> None:
    public, loss = LOSSES[name]
    text = rf"^{public}\(\): a target of the input's shape, \(4, 3\), holds probabilities, .* got {dtype}; .* class indices"
    with pytest.raises(RuntimeError, match=text):
        loss(wg.tensor(X), wg.tensor(ONE_HOT).to(dtype))
    assert loss(wg.tensor(X), wg.tensor(ONE_HOT, dtype=wg.float32)).ndim == 0


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: F.cross_entropy([[0.0, 1.0]], wg.tensor([0])), TypeError, r"^cross_entropy\(\): argument 'input' must be a"),
    (lambda: F.cross_entropy(wg.tensor(X), [0, 1]), TypeError, r"^cross_entropy\(\): argument 'target' must be a tensor, got"),
    (lambda: F.nll_loss(wg.tensor(X), [0, 1]), TypeError, r"^nll_loss\(\): argument 'target' must be a tensor, got"),
    (lambda: F.nll_loss(wg.tensor(X), wg.tensor(ONE_HOT)), ValueError, r"^nll_loss\(\).* takes class indices of shape \(4,\)"),
    (
        lambda: F.multi_margin_loss(wg.tensor(X), wg.tensor(ONE_HOT)), ValueError,
        r"^multi_margin_loss\(\): takes scores .* one class index",
    ),
    (
        lambda: F.linear_cross_entropy(wg.tensor(X), wg.tensor(LINEAR).float(), wg.tensor(CLASSES)), RuntimeError,
        r"^linear_cross_entropy\(\): input and linear_weight must have the same dtype, got wengert.float64 and wengert.float32",
    ),
    (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(3, 5, [2])(wg.ones(2, 3), wg.ones(2)), RuntimeError,
        r"^AdaptiveLogSoftmaxWithLoss\(\): target must hold class indices, .*\.long\(\)",
    ),
])  # fmt: skip
def test_what_else_does_not_fit(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss", "linear_cross_entropy"])
def test_inside_of_transforms_and_autocast(name: str) -> None:
    public, loss = LOSSES[name]
    for run in (lambda x, y: wg.func.vmap(loss)(x[None], y[None]), lambda x, y: wg.func.grad(lambda x: loss(x, y))(x)):
        with pytest.raises(RuntimeError, match=rf"{public}\(\): target must hold class indices"):
            run(wg.tensor(X), wg.tensor(CLASSES).double())
    with wg.autocast("cpu"):
        found = F.linear_cross_entropy(wg.ones(2, 3).bfloat16(), wg.ones(4, 3), wg.tensor([0, 1]))
    assert found.item() == pytest.approx(np.log(4), rel=1e-2)

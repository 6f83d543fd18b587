"""``wengert.masked`` against NumPy on the elements that count, row by row."""

import numpy as np
import pytest

import wengert as wg
import wengert.masked

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 5))
MASK = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 1, 1]], bool)
NOTHING = np.zeros((1, 3), bool)


def softmax(row):
    power = np.exp(row - row.max())
    return power / power.sum()


REDUCTIONS = {
    "sum": np.sum, "prod": np.prod, "amax": np.max, "amin": np.min, "mean": np.mean,
    "var": lambda r: np.var(r, ddof=1) if len(r) > 1 else np.nan, "std": lambda r: np.std(r, ddof=1) if len(r) > 1 else np.nan,
    "norm": np.linalg.norm, "median": lambda r: np.sort(r)[(len(r) - 1) // 2], "logsumexp": lambda r: np.log(np.exp(r).sum()),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
def test_rows_are_reduced_over_what_the_mask_lets_through(name):
    want = [REDUCTIONS[name](row[kept]) for row, kept in zip(X, MASK, strict=True)]
    function = getattr(wg.masked, name)
    with np.errstate(all="ignore"):
        got = function(wg.tensor(X), dim=1, mask=wg.tensor(MASK))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)
    poisoned = np.where(MASK, X, np.nan)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(function(wg.tensor(poisoned), dim=1, mask=wg.tensor(MASK)).numpy(), want, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "want"),
    [("sum", 0), ("prod", 1), ("amax", -np.inf), ("amin", np.inf), ("logsumexp", -np.inf), ("norm", 0), ("mean", np.nan),
     ("median", np.nan), ("var", np.nan), ("std", np.nan)],
)  # fmt: skip
def test_nothing_reduces_to_the_identity(name, want):
    with np.errstate(all="ignore"):
        got = getattr(wg.masked, name)(wg.ones(1, 3), dim=1, mask=wg.tensor(NOTHING))
    np.testing.assert_equal(got.item(), want)


@pytest.mark.parametrize("name", ["softmax", "softmin", "log_softmax", "normalize"])
def test_normalisations_leave_the_others_out(name):
    function = {
        "softmax": softmax, "softmin": lambda r: softmax(-r), "log_softmax": lambda r: np.log(softmax(r)),
        "normalize": lambda r: r / np.linalg.norm(r),
    }[name]  # fmt: skip
    want = np.full_like(X, -np.inf if name == "log_softmax" else 0)
    for row, kept, out in zip(X, MASK, want, strict=True):
        out[kept] = function(row[kept])
    args = (2.0, 1) if name == "normalize" else (1,)
    np.testing.assert_allclose(
        getattr(wg.masked, name)(wg.tensor(X), *args, mask=wg.tensor(MASK)).numpy(), want, rtol=1e-12
    )


def test_running_sums_and_places():
    x, mask = wg.tensor([[1.0, 5.0, 2.0]]), wg.tensor([[True, False, True]])
    assert wg.masked.cumsum(x, 1, mask=mask).tolist() == [[1, 1, 3]]
    assert wg.masked.cumprod(x, 1, mask=mask).tolist() == [[1, 1, 2]]
    assert wg.masked.argmax(x, 1, mask=mask).tolist() == [2]
    assert wg.masked.argmin(x, 1, mask=mask).tolist() == [0]
    assert wg.masked.amax(wg.tensor([3, 9]), 0, mask=wg.tensor([True, False])).item() == 3
    assert wg.masked.logaddexp(x, x, other_mask=wg.tensor([False])).tolist() == x.tolist()


def test_gradients_are_zero_where_the_mask_is_false():
    x = wg.tensor(np.where(MASK, X, np.inf), requires_grad=True)
    wg.masked.mean(x, mask=wg.tensor(MASK)).backward()
    np.testing.assert_allclose(x.grad.numpy(), np.where(MASK, 1 / MASK.sum(), 0))


def test_errors():
    with pytest.raises(ValueError, match="mask of 2 dimensions cannot be broadcast"):
        wg.masked.sum(wg.ones(2), mask=wg.ones(1, 2))
    with pytest.raises(TypeError, match="pass dtype="):
        wg.masked.mean(wg.tensor([1, 2]))
    with pytest.raises(ValueError, match="either unbiased or correction"):
        wg.masked.var(wg.ones(2), 0, True, correction=1)
    with pytest.raises(ValueError, match="has no median"):
        wg.masked.median(wg.tensor([1, 2]), mask=wg.tensor([False, False]))

"""Losses and normalisation at their edges: expected values from mpmath, from enumeration, or by hand."""

import itertools
import math

import mpmath
import numpy as np
import pytest

import wengert as wg
from wengert.nn import functional as F

INF, NAN = math.inf, math.nan
mpmath.mp.dps = 60


def t(data, dtype=wg.float64):
    return wg.tensor(data, dtype=dtype, requires_grad=True)


def gradient(out, *inputs):
    """Return the gradient of the sum of a result, as arrays."""
    found = wg.autograd.grad(out.sum(), inputs, retain_graph=True)
    arrays = [g.to(wg.float64).numpy() for g in found]
    return arrays[0] if len(arrays) == 1 else arrays


def values(x):
    return x.detach().to(wg.float64).numpy()


# ---- cross-entropy


@pytest.mark.parametrize(
    "row", [[40.0, 0.0, 0.0], [-1e4, 1e4, 0.0], [1e4, 1e4 - 1, -1e4], [0.1, 0.2, 0.3], [100.0] * 3]
)
@pytest.mark.parametrize("target", [0, 1, 2])
def test_cross_entropy_of_extreme_logits(row, target):
    exact = [mpmath.mpf(v) for v in row]
    total = sum(mpmath.exp(v - max(exact)) for v in exact)
    p = [mpmath.exp(v - max(exact)) / total for v in exact]
    x = t([row])
    loss = F.cross_entropy(x, wg.tensor([target]))
    np.testing.assert_allclose(values(loss), float(-mpmath.log(p[target])), rtol=1e-14)
    slope = [float(p[c] - (c == target)) for c in range(3)]
    np.testing.assert_allclose(gradient(loss, x), [slope], rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("dtype", [wg.float16, wg.bfloat16, wg.float32])
def test_cross_entropy_keeps_small_losses_in_low_precision(dtype):
    x = t([[12.0, 0.0]], dtype)
    loss = F.cross_entropy(x, wg.tensor([0]))
    small = math.log1p(math.exp(-12))
    np.testing.assert_allclose(values(loss), small, rtol=1e-2)
    np.testing.assert_allclose(gradient(loss, x), [[-small, small]], rtol=1e-2)


def test_mean_over_more_rows_than_a_half_can_count():
    x = t(np.zeros((70000, 2)), wg.float16)
    np.testing.assert_allclose(values(F.cross_entropy(x, wg.zeros(70000, dtype=wg.int64))), math.log(2), rtol=1e-3)


def test_cross_entropy_at_a_large_offset_in_float32():
    logits = np.array([[3.0, 1.0, -2.0]])
    shifted = t(logits + 8192, wg.float32)
    loss = F.cross_entropy(shifted, wg.tensor([1]))
    p = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(gradient(loss, shifted), p - [[0, 1, 0]], rtol=1e-6)


def test_cross_entropy_of_masked_classes():
    x = t([[-INF, 0.0, 0.0], [-INF, -INF, 3.0]])
    loss = F.cross_entropy(x, wg.tensor([1, 2]), reduction="none")
    np.testing.assert_allclose(values(loss), [math.log(2), 0.0], rtol=1e-15)
    np.testing.assert_allclose(gradient(loss, x), [[0.0, -0.5, 0.5], [0.0, 0.0, 0.0]], rtol=1e-15)
    soft = F.cross_entropy(x, wg.tensor([[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]], dtype=wg.float64), reduction="none")
    np.testing.assert_allclose(values(soft), [math.log(2), 0.0], rtol=1e-15)
    np.testing.assert_allclose(gradient(soft, x), np.zeros((2, 3)), atol=1e-16)


def test_ignored_rows_do_not_leak_and_may_be_all():
    x = t([[NAN, INF, -INF], [0.0, 0.0, 0.0]])
    loss = F.cross_entropy(x, wg.tensor([-100, 1]))
    np.testing.assert_allclose(values(loss), math.log(3), rtol=1e-15)
    third = 1 / 3
    np.testing.assert_allclose(gradient(loss, x), [[0.0] * 3, [third, third - 1, third]], rtol=1e-14)
    assert math.isnan(F.cross_entropy(x, wg.tensor([-100, -100])).item())
    assert F.cross_entropy(x, wg.tensor([-100, -100]), reduction="sum").item() == 0


@pytest.mark.parametrize("bad", [-4, 3])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss, F.multi_margin_loss])
def test_a_target_out_of_range_is_named(loss, bad, reduction):
    with pytest.raises(IndexError, match=f"target {bad} is out of range"):
        loss(wg.zeros(2, 3), wg.tensor([0, bad]), reduction=reduction)


@pytest.mark.parametrize(
    "loss", [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.binary_cross_entropy, F.kl_div, F.soft_margin_loss, F.nll_loss]
)
def test_legacy_arguments_are_refused(loss):
    with pytest.raises(TypeError, match="reduction="):
        loss(wg.zeros(2), wg.zeros(2), size_average=True)
    with pytest.raises(ValueError, match=r"'none', .*'mean' or 'sum', got 'elementwise_mean'"):
        loss(wg.zeros(2), wg.zeros(2), reduction="elementwise_mean")


# ---- binary cross-entropy


@pytest.mark.parametrize("x", [-1e4, -40.0, -1.0, 0.0, 1e-8, 40.0, 700.0, 1e4])
@pytest.mark.parametrize("y", [0.0, 0.3, 1.0])
def test_binary_cross_entropy_with_extreme_logits(x, y):
    exact = mpmath.mpf(x)
    up, down = mpmath.log1p(mpmath.exp(exact)), mpmath.log1p(mpmath.exp(-exact))
    logit = t(x)
    loss = F.binary_cross_entropy_with_logits(logit, wg.tensor(y, dtype=wg.float64))
    np.testing.assert_allclose(values(loss), float(mpmath.mpf(y) * down + (1 - mpmath.mpf(y)) * up), rtol=1e-14)
    sigmoid = 1 / (1 + mpmath.exp(-exact))
    slope = (1 - mpmath.mpf(y)) * sigmoid - mpmath.mpf(y) / (1 + mpmath.exp(exact))
    np.testing.assert_allclose(gradient(loss, logit), float(slope), rtol=1e-13)


def test_binary_cross_entropy_of_infinite_logits():
    x = t([INF, -INF])
    loss = F.binary_cross_entropy_with_logits(x, wg.tensor([1.0, 0.0], dtype=wg.float64), reduction="none")
    np.testing.assert_array_equal(values(loss), [0.0, 0.0])
    np.testing.assert_array_equal(gradient(loss, x), [0.0, 0.0])


def test_binary_cross_entropy_at_certain_probabilities():
    p, y = t([0.0, 0.0, 1.0, 1.0]), t([0.0, 1.0, 0.0, 1.0])
    loss = F.binary_cross_entropy(p, y, reduction="none")
    np.testing.assert_array_equal(values(loss), [0.0, 100.0, 100.0, 0.0])
    to_p, to_y = gradient(loss, p, y)
    np.testing.assert_array_equal(to_p, [0.0, -1e12, 1e12, 0.0])
    np.testing.assert_array_equal(to_y, [100.0, 100.0, -100.0, -100.0])
    with pytest.raises(RuntimeError, match=r"between 0 and 1, got 1\.5"):
        F.binary_cross_entropy(wg.tensor([0.5, 1.5]), wg.tensor([0.0, 1.0]))


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_second_derivative_of_binary_cross_entropy(reduction):
    p, y = t([0.2, 0.7, 0.4]), np.array([1.0, 0.0, 0.3])
    loss = F.binary_cross_entropy(p, wg.tensor(y), reduction=reduction)
    (g,) = wg.autograd.grad(loss, (p,), create_graph=True)
    exact = y / values(p) ** 2 + (1 - y) / (1 - values(p)) ** 2
    np.testing.assert_allclose(gradient(g, p), exact / (3 if reduction == "mean" else 1), rtol=1e-12)


def test_margins_far_out():
    x = t([1e4, -1e4])
    loss = F.soft_margin_loss(x, wg.tensor([1, 1]), reduction="none")
    np.testing.assert_array_equal(values(loss), [0.0, 1e4])
    np.testing.assert_array_equal(gradient(loss, x), [0.0, -1.0])


# ---- regression and divergences


def test_huber_of_infinite_differences_has_a_finite_slope():
    x = t([INF, -INF, 1e300, 0.5])
    loss = F.huber_loss(x, wg.zeros(4, dtype=wg.float64), reduction="none")
    np.testing.assert_array_equal(values(loss), [INF, INF, 1e300, 0.125])
    np.testing.assert_array_equal(gradient(loss, x), [1.0, -1.0, 1.0, 0.5])


def test_mean_of_the_divergence_is_over_its_terms():
    x, y = t([[-1.0, -2.0]]), t([[-0.5, -0.25]])
    terms = np.exp([-0.5, -0.25]) * [0.5, 1.75]
    np.testing.assert_allclose(values(F.kl_div(x, y, log_target=True)), terms.mean(), rtol=1e-15)


def test_divergence_of_impossible_events_is_zero():
    x, y = t([[-1.0, -2.0]]), t([[0.0, 1.0]])
    loss = F.kl_div(x, y, reduction="batchmean")
    assert loss.item() == 2.0
    np.testing.assert_array_equal(gradient(loss, x), [[0.0, -1.0]])


def test_a_shape_that_only_broadcasts_is_warned_of():
    with pytest.warns(UserWarning, match="broadcast"):
        F.mse_loss(wg.zeros(3, 1), wg.zeros(3))


# ---- connectionist temporal classification


def enumerated(log_probs, target, blank):
    """Return log p of a target: the sum over all paths that spell it, one by one."""
    frames, classes = log_probs.shape
    total = mpmath.mpf(0)
    for path in itertools.product(range(classes), repeat=frames):
        spelled = [c for c, _ in itertools.groupby(path) if c != blank]
        if spelled == list(target):
            total += mpmath.exp(sum(mpmath.mpf(float(log_probs[k, c])) for k, c in enumerate(path)))
    return float(mpmath.log(total)) if total else -INF


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize(("frames", "target"), [(4, (1,)), (4, (1, 1)), (3, ()), (5, (1, 0)), (2, (1, 1))])
def test_ctc_sums_over_every_alignment(frames, target, blank):
    target = tuple(2 - c if blank == 0 else c for c in target)
    logits = np.random.default_rng(frames).standard_normal((frames, 3))
    logp = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    loss = F.ctc_loss(t(logp), wg.tensor(target, dtype=wg.int64), [frames], [len(target)], blank, reduction="none")
    np.testing.assert_allclose(values(loss), -enumerated(logp, target, blank), rtol=1e-13)


def test_ctc_of_padded_and_of_joined_targets():
    logp = t(np.log(np.random.default_rng(0).uniform(0.1, 1, (5, 2, 3))))
    rows = F.ctc_loss(logp, wg.tensor([[1, 2], [2, 0]]), wg.tensor([5, 3]), wg.tensor([2, 1]), reduction="none")
    joined = F.ctc_loss(logp, wg.tensor([1, 2, 2]), [5, 3], [2, 1], reduction="none")
    np.testing.assert_array_equal(values(rows), values(joined))
    np.testing.assert_allclose(values(rows)[1], -enumerated(values(logp)[:3, 1], (2,), 0), rtol=1e-13)
    np.testing.assert_array_equal(gradient(rows, logp)[3:, 1], 0)


def test_ctc_gradient_is_finite_beside_impossible_labels():
    logp = t([[[-INF, 0.0, -INF]], [[math.log(0.5), math.log(0.5), -INF]], [[0.0, -INF, -INF]]])
    loss = F.ctc_loss(logp, wg.tensor([[1]]), [3], [1], reduction="sum")
    np.testing.assert_allclose(values(loss), 0.0, atol=1e-15)
    np.testing.assert_allclose(gradient(loss, logp)[:, 0], [[0, -1, 0], [-0.5, -0.5, 0], [-1, 0, 0]], rtol=1e-14)


def test_ctc_without_any_alignment():
    logp = t(np.log(np.full((2, 1, 3), 1 / 3)))
    arguments = (logp, wg.tensor([[1, 1]]), [2], [2])
    assert F.ctc_loss(*arguments).item() == INF
    loss = F.ctc_loss(*arguments, zero_infinity=True)
    assert loss.item() == 0
    np.testing.assert_array_equal(gradient(loss, logp), 0)


# ---- normalisation


@pytest.mark.parametrize("scale", [1.0, 1e15, 1e30])
def test_normalisation_does_not_depend_on_the_size_of_its_input(scale):
    x = t([[scale, -scale, scale, -scale]], wg.float32)
    want = [[1.0, -1.0, 1.0, -1.0]]
    for out in (
        F.layer_norm(x, (4,)),
        F.batch_norm(x.reshape(4, 1), None, None, training=True),
        F.batch_norm(x.reshape(2, 1, 2), None, None, training=True),
        F.group_norm(x.reshape(1, 2, 2), 1),
        F.rms_norm(x, (4,)),
    ):
        np.testing.assert_allclose(values(out).reshape(1, 4), want, rtol=1e-5)
        assert np.isfinite(gradient(out[0, 0], x)).all()


@pytest.mark.parametrize("shape", [(64, 1), (8, 1, 8)])
def test_normalisation_far_from_zero(shape):
    x = (1e4 + np.arange(64) * 1e-3).astype(np.float32)
    exact = x.astype(np.float64)
    want = (exact - exact.mean()) / np.sqrt(exact.var() + 1e-5)
    out = F.batch_norm(t(x.reshape(shape), wg.float32), None, None, training=True)
    np.testing.assert_allclose(values(out).ravel(), want, atol=2e-4)
    np.testing.assert_allclose(values(F.layer_norm(t(x, wg.float32), (64,))), want, atol=2e-4)
    np.testing.assert_allclose(values(F.group_norm(t(x.reshape(1, 2, 32), wg.float32), 1)).ravel(), want, atol=2e-4)


def test_running_statistics_move_by_the_momentum():
    x = np.random.default_rng(0).standard_normal((5, 2, 3))
    mean, var = wg.zeros(2), wg.ones(2)
    F.batch_norm(t(x), mean, var, training=True, momentum=0.25)
    np.testing.assert_allclose(mean.numpy(), 0.25 * x.mean((0, 2)), rtol=1e-6)
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * x.var((0, 2), ddof=1), rtol=1e-6)
    mean, var = wg.zeros(2), wg.ones(2)
    F.instance_norm(t(x), mean, var, momentum=0.25)
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * x.var(2, ddof=1).mean(0), rtol=1e-6)
    assert not mean.requires_grad


def test_one_value_per_channel_is_refused_in_training():
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        F.batch_norm(wg.ones(1, 3), None, None, training=True)
    F.batch_norm(wg.ones(1, 3), wg.zeros(3), wg.ones(3))


def test_constant_rows_are_normalised_to_the_bias():
    x, b = t([[2.0, 2.0, 2.0]]), t([1.0, 2.0, 3.0])
    out = F.layer_norm(x, (3,), bias=b)
    np.testing.assert_array_equal(values(out), [[1.0, 2.0, 3.0]])
    assert np.isfinite(gradient(out, x)).all()

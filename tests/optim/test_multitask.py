"""Several losses: the projections of PCGrad, the weights of GradNorm and of uncertainty, against their papers' formulas."""

import math

import numpy as np
import pytest

import wengert as wg
from wengert import nn
from wengert.optim.multitask import GradNorm, UncertaintyWeighting, pcgrad

RNG = np.random.default_rng(2)


def linear_losses(w, b, slopes):
    """Losses whose gradients are given: a row is that of a task, for ``w`` (2, 3) and ``b`` (2,)."""
    return [(w.reshape(-1) * wg.tensor(s[:6])).sum() + (b * wg.tensor(s[6:])).sum() for s in slopes]


def test_two_tasks_lose_what_conflicts():
    g, h = RNG.standard_normal(8), RNG.standard_normal(8)
    h -= g * (g @ h + 1.0) / (g @ g)  # their product is -1
    w, b = (nn.Parameter(wg.zeros(*shape, dtype=wg.float64)) for shape in ((2, 3), (2,)))
    assert pcgrad(linear_losses(w, b, [g, h]), [w, b]) == 2
    want = g + h + h / (h @ h) + g / (g @ g)
    np.testing.assert_allclose(np.concatenate([w.grad.numpy().ravel(), b.grad.numpy()]), want, rtol=1e-12)


def test_without_conflict_it_is_the_sum_and_adds_to_what_is_there():
    g = np.abs(RNG.standard_normal((3, 8)))
    w, b = (nn.Parameter(wg.zeros(*shape, dtype=wg.float64)) for shape in ((2, 3), (2,)))
    for _ in range(2):
        assert pcgrad(linear_losses(w, b, g), [w, b]) == 0
    np.testing.assert_allclose(w.grad.numpy().ravel(), 2 * g.sum(0)[:6], rtol=1e-12)
    np.testing.assert_allclose(b.grad.numpy(), 2 * g.sum(0)[6:], rtol=1e-12)


def test_many_tasks_are_projected_in_the_order_of_the_generator():
    slopes = RNG.standard_normal((5, 8))
    found = []
    for seed in (1, 1, 2):
        w, b = (nn.Parameter(wg.zeros(*shape, dtype=wg.float64)) for shape in ((2, 3), (2,)))
        pcgrad(linear_losses(w, b, slopes), [w, b], generator=wg.Generator().manual_seed(seed))
        found.append(np.concatenate([w.grad.numpy().ravel(), b.grad.numpy()]))
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.allclose(found[0], found[2])


def test_a_task_may_leave_a_parameter_out():
    p, q = nn.Parameter(wg.tensor([2.0])), nn.Parameter(wg.tensor([3.0]))
    pcgrad([(p**2).sum(), (p * q).sum()], [p, q])
    np.testing.assert_allclose([p.grad.item(), q.grad.item()], [4 + 3, 2])


def test_uncertainty_has_its_least_value_where_variances_are_twice_the_losses():
    losses = [wg.tensor(0.3), wg.tensor(4.0)]
    total = UncertaintyWeighting(2)
    o = wg.optim.LBFGS(total.parameters(), max_iter=50, line_search_fn="strong_wolfe")

    def closure():
        o.zero_grad()
        loss = total(losses)
        loss.backward()
        return loss

    o.step(closure)
    np.testing.assert_allclose(total.log_variance.tolist(), [math.log(0.6), math.log(8.0)], rtol=1e-3)


def test_gradnorm_s_weights_have_the_gradients_of_equation_2():
    w = nn.Parameter(wg.tensor([1.0, -2.0], dtype=wg.float64))
    balance = GradNorm(2, [w], alpha=1.5)
    for scale in (1.0, 0.5):
        w.grad = None
        losses = [3 * (w**2).sum() * scale, (w[0] ** 2).sum()]
        balance.backward(losses)
        np.testing.assert_allclose(w.grad.numpy(), [6 * scale + 2, -12 * scale], rtol=1e-6)
    norms = np.array([3 * math.sqrt(20) / 2, 2.0])
    rates = np.array([0.5, 1.0])
    target = norms.mean() * (rates / rates.mean()) ** 1.5
    np.testing.assert_allclose(balance.weights.grad.tolist(), norms * np.sign(norms - target), rtol=1e-6)


def test_gradnorm_goes_on_from_its_state():
    """Progress is relative to the first losses, which a training that is resumed must not take anew."""
    w = nn.Parameter(wg.tensor([1.0, -2.0]))
    balance, again = (GradNorm(2, [w], alpha=1.5) for _ in range(2))
    balance.backward([2 * (w**2).sum(), w[0] ** 2])
    again.load_state_dict(balance.state_dict())
    assert again.first.tolist() == [10.0, 1.0]
    for each in (balance, again):
        each.backward([(w**2).sum(), w[0] ** 2])
    assert again.weights.grad.tolist() == balance.weights.grad.tolist()


def test_gradnorm_refuses_weights_none_of_which_is_positive():
    balance = GradNorm(2, [nn.Parameter(wg.ones(1))])
    with wg.no_grad():
        balance.weights.fill_(-3.0)
    with pytest.raises(RuntimeError, match=r"\[-3\.0, -3\.0\].*lower the learning rate"):
        balance.renormalize()


def test_gradnorm_balances_tasks_of_unequal_size():
    w = nn.Parameter(wg.zeros(2))
    balance = GradNorm(2, [w], alpha=0.0)
    model, weights = wg.optim.SGD([w], lr=0.001), wg.optim.Adam(balance.parameters(), lr=0.02)
    for _ in range(200):
        model.zero_grad()
        balance.backward([10 * (w[0] - 1) ** 2 + 1, (w[1] - 1) ** 2 + 1])
        weights.step()
        balance.renormalize()
        model.step()
    assert balance.weights[0].item() < 0.5 < 1.5 < balance.weights[1].item()
    np.testing.assert_allclose(balance.weights.sum().item(), 2.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pcgrad([], [wg.zeros(1)]), "got 0 and 1"),
        (lambda: UncertaintyWeighting(0), "at least 1, got 0"),
        (lambda: UncertaintyWeighting(2)([wg.tensor(1.0)]), "weighs 2 losses, got 1"),
        (lambda: GradNorm(2, []).backward([wg.tensor(1.0)]), "weighs 2 losses, got 1"),
    ],
)
def test_wrong_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()

"""Optimisers that see more than single elements: Muon, Adafactor and L-BFGS against what their papers say."""

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn, optim

RNG = np.random.default_rng(4)


def parameter(value: Any, dtype: Any = wg.float64) -> Any:
    return nn.Parameter(wg.tensor(value, dtype=dtype))


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (4, 4)])
def test_muon_moves_by_a_nearly_orthogonal_matrix(shape: tuple[int, int]) -> None:
    p = parameter(np.zeros(shape))
    p.grad = wg.tensor(RNG.standard_normal(shape))
    optim.Muon([p], lr=1.0, weight_decay=0.0).step()
    moved = p.detach().numpy() / math.sqrt(max(1, shape[0] / shape[1]))
    u, _, vt = np.linalg.svd(p.grad.numpy(), full_matrices=False)
    sizes = np.linalg.svd(moved, compute_uv=False)
    assert np.all((sizes > 0.6) & (sizes < 1.3))
    along = np.diag(u.T @ moved @ vt.T)  # the directions are those of the gradient
    assert np.all(along < -0.6)


def test_muon_s_momentum_decay_and_rate() -> None:
    p, q = parameter(np.eye(3) * 2), parameter(np.eye(3) * 2)
    slow, fast = (
        optim.Muon([p], lr=0.1, weight_decay=0.5, ns_steps=0),
        optim.Muon([q], lr=0.2, weight_decay=0.0, ns_steps=0),
    )
    p.grad = q.grad = wg.eye(3, dtype=wg.float64) * 8
    slow.step()
    fast.step()
    share = 1 / math.sqrt(3)  # without iterations the update is the gradient over its norm, in bfloat16
    np.testing.assert_allclose(np.diag(p.detach().numpy()), 2 * 0.95 - 0.1 * share, rtol=1e-2)
    np.testing.assert_allclose(np.diag(q.detach().numpy()), 2 - 0.2 * share, rtol=1e-2)
    np.testing.assert_allclose(slow.state[p]["momentum_buffer"].numpy(), np.eye(3) * 8 * 0.05)


def adafactor(w: Any, grads: Any, lr: float, decay: float) -> Any:
    """Algorithm 4 of the paper with PyTorch's choices, on a matrix."""
    eps, row, column = np.finfo(w.dtype).eps, np.zeros((w.shape[0], 1)), np.zeros((1, w.shape[1]))
    for t, g in enumerate(grads, 1):
        size = max(1e-3, np.sqrt(np.mean(w**2))) * min(lr, 1 / math.sqrt(t))
        w = w * (1 - lr * decay)
        beta = 1 - t**-0.8
        row = beta * row + (1 - beta) * np.mean(g**2, 1, keepdims=True)
        column = beta * column + (1 - beta) * np.mean(g**2, 0, keepdims=True)
        u = g / np.sqrt(np.maximum(row @ column / max(row.mean(), eps), eps**2))
        w = w - size * u / max(1.0, np.sqrt(np.mean(u**2)))
    return w


def test_adafactor_keeps_a_row_and_a_column() -> None:
    start, grads = RNG.standard_normal((5, 3)), RNG.standard_normal((6, 5, 3))
    p = parameter(start)
    o = optim.Adafactor([p], lr=0.3, weight_decay=0.1)
    for g in grads:
        p.grad = wg.tensor(g)
        o.step()
    np.testing.assert_allclose(p.detach().numpy(), adafactor(start, grads, 0.3, 0.1), rtol=1e-9)
    assert o.state[p]["row_var"].shape == (5, 1)
    assert o.state[p]["col_var"].shape == (1, 3)


@pytest.mark.parametrize(
    "make", [lambda p: optim.Muon(p, lr=0.1), lambda p: optim.Adafactor(p, lr=0.1)], ids=["muon", "adafactor"]
)
def test_compiled_steps_are_those_of_eager_whatever_the_rate(make: Any) -> None:
    def train(wrap: Any) -> tuple[list[Any], Any]:
        wg.manual_seed(0)
        model = nn.Linear(6, 4, bias=False)
        o = make(model.parameters())
        schedule = optim.lr_scheduler.ExponentialLR(o, 0.5)
        x, y = wg.randn(8, 6), wg.randn(8, 4)

        def step() -> Any:
            o.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            o.step()
            return loss

        run = wrap(step)
        losses = []
        for _ in range(6):
            losses.append(run().item())
            schedule.step()
        return losses, run

    eager, _ = train(lambda f: f)
    compiled, run = train(lambda f: wg.compile(f, fullgraph=True))
    np.testing.assert_allclose(compiled, eager, rtol=1e-3)
    assert run.retraces == []


def quadratic(size: int) -> tuple[Any, Any, Any]:
    a = RNG.standard_normal((size, size))
    matrix, b = a @ a.T + np.eye(size), RNG.standard_normal(size)
    return wg.tensor(matrix), wg.tensor(b), np.linalg.solve(matrix, b)


def test_lbfgs_solves_a_quadratic() -> None:
    matrix, b, want = quadratic(6)
    x, y = parameter(np.zeros(4)), parameter(np.zeros(2))
    o = optim.LBFGS([x, y], max_iter=60, tolerance_grad=1e-10, tolerance_change=1e-16, line_search_fn="strong_wolfe")

    def closure() -> Any:
        o.zero_grad()
        z = wg.cat([x, y])
        loss = 0.5 * z.dot(matrix @ z) - b.dot(z)
        loss.backward()
        return loss

    assert o.step(closure).item() == 0.0  # the loss at the start
    got = np.concatenate([x.tolist(), y.tolist()])
    assert np.linalg.norm(got - want) < 1e-7 * np.linalg.norm(want)  # a loss that is flat to rounding says no more
    assert len(o.state[x]["old_dirs"]) <= 100


def test_lbfgs_keeps_as_much_history_as_it_is_told() -> None:
    matrix, b, _ = quadratic(8)
    x = parameter(np.zeros(8))
    o = optim.LBFGS([x], max_iter=9, history_size=3, line_search_fn="strong_wolfe", tolerance_change=0.0)

    def closure() -> Any:
        o.zero_grad()
        loss = 0.5 * x.dot(matrix @ x) - b.dot(x)
        loss.backward()
        return loss

    o.step(closure)
    assert [len(o.state[x][name]) for name in ("old_dirs", "old_stps", "ro")] == [3, 3, 3]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: optim.Muon([parameter([1.0])]), r"takes matrices, got a parameter of shape \(1,\)"),
        (lambda: optim.Muon([parameter([[1.0]])], adjust_lr_fn="mine"), "got 'mine'"),
        (lambda: optim.Muon([parameter([[1.0]])], ns_steps=100), "from 0 to 99, got 100"),
        (lambda: optim.Adafactor([parameter([1.0])], d=0.5), "d must be at least 1, got 0.5"),
        (lambda: optim.Adafactor([parameter([1.0])], beta2_decay=0.5), "beta2_decay must be at most 0, got 0.5"),
        (lambda: optim.LBFGS([parameter([1.0])], line_search_fn="armijo"), "got 'armijo'"),
        (lambda: optim.LBFGS([{"params": [parameter([1.0])]}, {"params": [parameter([1.0])]}]), "one parameter group"),
    ],
)
def test_wrong_options_are_named(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_lbfgs_needs_a_function() -> None:
    o = optim.LBFGS([parameter([1.0])])
    with pytest.raises(TypeError, match="a function that computes the loss"):
        o.step()

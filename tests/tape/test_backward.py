"""Backward and grad: each test is a sentence about the tape."""

import gc
import threading
import warnings

import numpy as np
import pytest

import wengert as wg
from wengert.errors import AnomalyError, GradientLossWarning, GraphFreedError


def leaf(data, dtype=wg.float64):
    return wg.tensor(data, dtype=dtype, requires_grad=True)


def test_the_worked_example_of_the_readme():
    x, y = wg.tensor(2.0), wg.tensor(8.0)
    w, b = leaf(3.0, wg.float32), leaf(0.5, wg.float32)
    loss = (x * w + b - y) ** 2
    loss.backward()
    assert loss.item() == 2.25
    assert w.grad.item() == -6.0
    with wg.no_grad():
        w.sub_(0.1 * w.grad)
    assert w.item() == pytest.approx(3.6)


def test_gradients_over_several_paths_add_up():
    x = leaf([1.0, -2.0, 3.0])
    (x * x + 3 * x + x.sum() * x).sum().backward()
    v = np.array([1.0, -2.0, 3.0])
    np.testing.assert_allclose(x.grad.numpy(), 2 * v + 3 + 2 * v.sum())


def test_backward_accumulates_over_calls():
    x = leaf(3.0)
    (x * x).backward()
    (x * x).backward()
    assert x.grad.item() == 12.0


def test_a_million_chained_operators_neither_overflow_nor_leak_when_freed():
    x = leaf(1.0)
    y = x
    for _ in range(1_000_000):
        y = y + 1e-9
    y.backward()
    assert x.grad.item() == 1.0
    del y


def test_a_long_saved_chain_is_freed_without_recursion():
    x = leaf(1.0)
    y = x
    for _ in range(200_000):
        y = y * 1.0000001
    del y
    assert x.grad is None


def test_the_cotangent_given_by_the_user_is_not_aliased():
    x = leaf([1.0, 2.0])
    g = wg.tensor([5.0, 6.0], dtype=wg.float64)
    x.backward(g)
    g.zero_()
    np.testing.assert_array_equal(x.grad.numpy(), [5.0, 6.0])


def test_two_leaves_never_share_their_gradient():
    a, b = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    (a + b).backward(wg.ones(2, dtype=wg.float64))
    a.grad.mul_(10)
    np.testing.assert_array_equal(b.grad.numpy(), [1.0, 1.0])


def test_an_exponential_number_of_paths_takes_linear_time():
    x = leaf(1.0)
    y = x
    for _ in range(200):
        y = y * 0.5 + y * 0.5
    y.backward()
    assert x.grad.item() == pytest.approx(1.0)


def test_second_backward_is_refused_and_names_the_first():
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    y.backward()  # the first backward
    with pytest.raises(GraphFreedError, match=r"mul\(\).*(.|\n)*the first backward"):
        y.backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 4.0])


def test_retain_graph_allows_a_second_backward():
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_array_equal(x.grad.numpy(), [4.0, 8.0])


def test_create_graph_keeps_the_graph_and_records_the_gradient():
    x = leaf(1.5)
    y = x**5
    for _ in range(4):
        (y,) = wg.autograd.grad(y, x, create_graph=True)
    assert y.item() == pytest.approx(120 * 1.5)


def test_create_graph_without_retain_frees_the_first_graph():
    x = leaf([2.0])
    y = (x**3).sum()
    wg.autograd.grad(y, x, create_graph=True, retain_graph=False)
    with pytest.raises(GraphFreedError):
        wg.autograd.grad(y, x)


def test_backward_inputs_limits_where_gradients_go():
    x, y = leaf([2.0]), leaf([3.0])
    h = x * y
    h.sum().backward(inputs=[x])
    assert x.grad.item() == 3.0
    assert y.grad is None


def test_backward_inputs_may_be_a_computed_tensor():
    x = leaf([2.0])
    h = x * 3
    (h * h).sum().backward(inputs=[h])
    assert h.grad.item() == 12.0
    assert x.grad is None


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: wg.tensor(1.0).backward(), RuntimeError, "does not require grad"),
        (lambda x: (x * 2).backward(), RuntimeError, "scalar outputs"),
        (lambda x: (x * 2).backward(wg.ones(3, dtype=wg.float64)), RuntimeError, r"shape \(3,\)"),
        (lambda x: (x * 2).backward([1.0, 1.0]), TypeError, "must be tensors"),
        (lambda x: wg.autograd.grad((x * 2).sum(), wg.tensor(1.0)), RuntimeError, "does not require grad"),
        (lambda x: wg.autograd.grad((x * 2).sum(), leaf(1.0)), RuntimeError, "allow_unused"),
        (lambda x: wg.autograd.grad([(x * 2).sum()], x, grad_outputs=[None, None]), RuntimeError, "1 outputs but 2"),
        (lambda x: wg.autograd.grad(x.sum(), x, allow_unused=False, materialize_grads=True), ValueError, "materialize"),
        (lambda x: (x * 2).sum().backward(inputs=[]), RuntimeError, "empty"),
        (lambda x: wg.autograd.grad(x.sum(), x, is_grads_batched=True), ValueError, "batch in dimension 0"),
    ],
)
def test_wrong_requests_are_refused_with_what_to_do(call, error, message):
    with pytest.raises(error, match=message):
        call(leaf([1.0, 2.0]))


def test_grad_leaves_the_grad_attributes_alone():
    x, y = leaf([2.0]), leaf([3.0])
    gx, gy = wg.autograd.grad((x * y).sum(), [x, y])
    assert gx.item() == 3.0
    assert gy.item() == 2.0
    assert x.grad is None
    assert y.grad is None
    assert not gx.requires_grad


def test_grad_takes_and_returns_dictionaries():
    x, y = leaf([2.0]), leaf([3.0])
    found = wg.autograd.grad((x * y).sum(), {"x": x, "y": y})
    assert found["x"].item() == 3.0
    assert found["y"].item() == 2.0


def test_unused_inputs_give_none_or_zeros_on_request():
    x, y = leaf([2.0]), leaf([3.0, 4.0])
    assert wg.autograd.grad((x * 2).sum(), [x, y], allow_unused=True)[1] is None
    np.testing.assert_array_equal(
        wg.autograd.grad((x * 2).sum(), [x, y], materialize_grads=True)[1].numpy(), [0.0, 0.0]
    )


def test_a_gradient_edge_stands_for_its_tensor():
    x = leaf([2.0])
    y = x * x
    edge = wg.autograd.graph.get_gradient_edge(y)
    (g,) = wg.autograd.grad((y * 3).sum(), edge)
    assert g.item() == 3.0
    (g,) = wg.autograd.grad(edge, x, grad_outputs=wg.ones(1, dtype=wg.float64))
    assert g.item() == 4.0


def test_gradients_take_the_dtype_of_their_leaf():
    a, b = leaf([1.0, 2.0], wg.float32), leaf([3.0, 4.0])
    (a * b).sum().backward()
    assert a.grad.dtype is wg.float32
    assert b.grad.dtype is wg.float64


@pytest.mark.parametrize(
    ("shape_a", "shape_b"), [((3, 1), (1, 4)), ((), (2, 3)), ((2, 3), ()), ((1,), (5, 2, 1)), ((0, 1), (1,))]
)
def test_broadcasting_is_undone(shape_a, shape_b):
    a, b = leaf(np.ones(shape_a)), leaf(np.ones(shape_b))
    (a * b).sum().backward()
    assert a.grad.shape == shape_a
    assert b.grad.shape == shape_b
    size = np.broadcast(np.ones(shape_a), np.ones(shape_b)).size
    assert float(a.grad.sum()) == size
    assert float(b.grad.sum()) == size


def test_grad_refuses_values_that_do_not_fit():
    x = leaf([1.0, 2.0])
    for bad, error in (
        (wg.ones(3, dtype=wg.float64), RuntimeError),
        (wg.ones(2), RuntimeError),
        ([1.0, 2.0], TypeError),
        (x, RuntimeError),
    ):
        with pytest.raises(error):
            x.grad = bad


def test_integers_cannot_require_gradients():
    with pytest.raises(RuntimeError, match="floating-point"):
        wg.tensor([1, 2]).requires_grad_()
    with pytest.raises(RuntimeError, match="floating-point"):
        wg.tensor([1, 2], requires_grad=True)


def test_a_computed_tensor_cannot_lose_its_history_silently():
    with pytest.raises(RuntimeError, match="detach"):
        (leaf(1.0) * 2).requires_grad_(False)


def test_reading_a_value_is_silent_and_converting_it_warns():
    x = leaf(2.0)
    y = x * 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert y.item() == 6.0
        assert "6." in repr(y)
        assert f"{y:.1f}" == "6.0"
        assert y.tolist() == 6.0
    for convert in (float, int, complex):
        with pytest.warns(GradientLossWarning, match="carries no gradient"):
            convert(y)
    with pytest.raises(RuntimeError, match="detach"):
        np.asarray(y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with wg.no_grad():
            assert float(y) == 6.0


def test_anomaly_mode_names_the_operator_and_its_line():
    x = leaf([0.0, 1.0])
    with wg.autograd.detect_anomaly():
        y = x.sqrt() * 0.0  # the line that is named
        with pytest.raises(AnomalyError, match=r"sqrt\(\).*the line that is named|sqrt"):
            (y * float("inf")).sum().backward()


def test_modes_are_per_thread():
    seen = []

    def work():
        seen.append(wg.is_grad_enabled())

    with wg.no_grad():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == [True]


def test_backward_runs_in_several_threads_at_once():
    results = []

    def work():
        x = leaf(np.ones(1000))
        for _ in range(20):
            x.grad = None
            (x * x).sum().backward()
        results.append(float(x.grad.sum()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [2000.0] * 4


def test_ten_thousand_steps_without_the_collector_do_not_grow():
    rng = np.random.default_rng(0)
    w = wg.tensor(rng.standard_normal((8, 4)), requires_grad=True)
    x = wg.tensor(rng.standard_normal((16, 8)))

    def step():
        loss = ((x @ w).tanh() ** 2).mean()
        v = (w.t() * 2)[0]
        (loss + v.sum() * 0).backward()
        with wg.no_grad():
            w.sub_(w.grad * 0.01)
        w.grad = None

    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            step()
        before = len(gc.get_objects())
        for _ in range(10_000):
            step()
        assert len(gc.get_objects()) - before < 50
    finally:
        gc.enable()


def test_double_backward_steps_without_the_collector_do_not_grow():
    x = leaf(np.ones(4))

    def step():
        (g,) = wg.autograd.grad((x**3).sum(), x, create_graph=True)
        (g * g).sum().backward()
        x.grad = None

    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            step()
        before = len(gc.get_objects())
        for _ in range(1000):
            step()
        assert len(gc.get_objects()) - before < 50
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "join",
    [
        lambda a, b: wg.stack([a, b])[1],
        lambda a, b: wg.cat([a.reshape(1), b.reshape(1)])[1],
        lambda a, b: _assigned(a, b)[1],
    ],
    ids=["stack", "cat", "setitem"],
)
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_part_that_is_not_looked_at_cannot_poison_the_others(join, create_graph):
    x, y = leaf(1.0), leaf(0.0)
    out = join(x * y / y, x + y)
    gx, gy = wg.autograd.grad(out, (x, y), create_graph=create_graph)
    assert gx.item() == 1.0
    assert gy.item() == 1.0


def _assigned(a, b):
    z = wg.zeros(2, dtype=wg.float64)
    z[0] = a
    z[1] = b
    return z


def test_an_input_that_only_gets_a_structural_zero_has_zeros_for_a_gradient():
    x, y = leaf(2.0), leaf(3.0)
    out = wg.stack([x * x, y])[1]
    gx, gy = wg.autograd.grad(out, (x, y))
    assert gx.item() == 0.0
    assert gy.item() == 1.0
    wg.stack([x * x, y])[1].backward()
    assert x.grad.item() == 0.0

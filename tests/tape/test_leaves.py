"""Leaves: what is switched off and on again, hooks on their nodes, gradients held by the user, threads that share them."""

import copy
import sys
import threading

import numpy as np
import pytest

import wengert as wg


def leaf(data):
    return wg.tensor(data, dtype=wg.float64, requires_grad=True)


def test_a_leaf_switched_off_after_recording_receives_nothing():
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    loss = (x * y).sum()
    x.requires_grad_(False)
    loss.backward()
    assert x.grad is None
    np.testing.assert_array_equal(y.grad.numpy(), [1.0, 2.0])


def test_a_leaf_switched_off_and_on_is_the_same_leaf():
    x = leaf([1.0, 2.0])
    loss = (x * x).sum()
    x.requires_grad_(False)
    x.requires_grad_(True)
    np.testing.assert_array_equal(wg.autograd.grad(loss, x, retain_graph=True)[0].numpy(), [2.0, 4.0])
    loss.backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 4.0])


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_outlive_freezing(register):
    x, calls = leaf([1.0, 2.0]), []
    getattr(x, register)(lambda t: calls.append(1))
    x.requires_grad = False
    x.requires_grad = True
    (x * x).sum().backward()
    assert calls == [1]


def test_hooks_on_the_accumulating_node_run_around_it():
    x, order = leaf([1.0]), []
    node = (x * 2).grad_fn.next_functions[0][0]
    node.register_prehook(lambda grads: order.append("pre") or (grads[0] * 3,))
    node.register_hook(lambda inputs, outputs: order.append(("post", inputs, outputs[0].item())))
    x.register_hook(lambda g: order.append("tensor"))
    x.register_post_accumulate_grad_hook(lambda t: order.append("accumulated"))
    (x * 2).sum().backward()
    assert order == ["tensor", "pre", "accumulated", ("post", (), 6.0)]
    assert x.grad.item() == 6.0
    assert wg.autograd.grad((x * 2).sum(), x)[0].item() == 2.0


def test_a_gradient_held_as_an_expanded_view_is_not_written():
    x = leaf([1.0, 2.0])
    one = wg.ones(1, dtype=wg.float64)
    x.grad = one.expand(2)
    (x * wg.tensor([1.0, 5.0], dtype=wg.float64)).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 6.0])
    assert one.item() == 1.0


@pytest.mark.parametrize("size", [1, 20_000])
def test_threads_that_share_a_leaf_lose_no_gradient(size):
    x = leaf(np.ones(size))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work():
        for _ in range(50):
            (x * 1.0).sum().backward()

    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert set(x.grad.numpy().tolist()) == {200.0}


def test_a_view_retains_its_gradient_after_its_base_is_written():
    x = leaf([1.0, 2.0])
    y = x * 1
    view = y[:1]
    view.retain_grad()
    y.mul_(3)
    view.sum().backward()
    np.testing.assert_array_equal(view.grad.numpy(), [1.0])
    np.testing.assert_array_equal(x.grad.numpy(), [3.0, 0.0])


def test_a_leaf_that_requires_grad_takes_no_integer_data():
    x = leaf([1.0, 2.0])
    with pytest.raises(RuntimeError, match="floating-point"):
        x.data = wg.tensor([1, 2])


def test_a_deep_copy_copies_attributes_too():
    x = leaf([1.0])
    x.notes = [1]
    copied = copy.deepcopy(x)
    copied.notes.append(2)
    assert x.notes == [1]


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        (lambda x: x.unbind(0)[0], [[1.0, 1.0], [0.0, 0.0]]),
        (lambda x: x.split(1)[1], [[0.0, 0.0], [1.0, 1.0]]),
        (lambda x: x.chunk(2, 1)[0], [[1.0, 0.0], [1.0, 0.0]]),
        (lambda x: next(iter(x)), [[1.0, 1.0], [0.0, 0.0]]),
    ],
)
def test_parts_that_are_not_used_get_zeros_in_every_order(part, wanted):
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    part(x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), wanted)
    (g,) = wg.autograd.grad((part(x) ** 3).sum(), x, create_graph=True)
    (h,) = wg.autograd.grad((g * g).sum(), x)
    np.testing.assert_allclose(h.numpy(), 36 * x.detach().numpy() ** 3 * wanted)


def test_a_gradient_that_will_never_be_is_warned_of():
    x = wg.ones(2, requires_grad=True)
    y, kept = x * 2, x * 3
    kept.retain_grad()
    with pytest.warns(wg.errors.GradientLossWarning, match="retain_grad") as warned:
        assert y.grad is None
    assert warned[0].filename == __file__
    assert x.grad is None
    assert kept.grad is None
    assert x.detach().grad is None
    (y + kept).sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]
    assert kept.grad.tolist() == [1.0, 1.0]


def test_a_leafs_node_says_of_what_it_is():
    node = wg.ones(2, 3, requires_grad=True).sum().grad_fn.next_functions[0][0]
    assert repr(node) == "<AccumulateGrad of a tensor that is gone>"
    x = wg.ones(2, 3, requires_grad=True)
    assert repr(x.sum().grad_fn.next_functions[0][0]) == "<AccumulateGrad of float32[2, 3]>"

"""Checkpointing: the gradients of the function itself, from nothing but its arguments."""

import threading
from collections import namedtuple

import numpy as np
import pytest

import wengert as wg
from tests.transforms.checkpointing import Counted, W, agree, gradients, leaf, nested, with_inner_grad
from wengert.utils.checkpoint import checkpoint, checkpoint_sequential, is_recomputing, set_checkpoint_early_stop

Pair = namedtuple("Pair", "first second")


def with_no_grad(x):
    with wg.no_grad():
        scale = x.abs().sum()
    return (x / scale).tanh()


def with_inplace(x):
    y = x * 2
    y.add_(1)
    y[0] = x[1] ** 2
    return y.sin()


def with_views(x):
    parts = x.exp().unbind(0)
    return wg.stack([p.flip(0) for p in parts]).t().cos()


FUNCTIONS = {
    "chain": lambda x: x.sin().exp().tanh(),
    "closure": lambda x: (x @ W).tanh() @ W,
    "identity": lambda x: x,
    "several uses": lambda x: x * x.sin() + x.exp() * x,
    "sorted": lambda x: x.sort().values * x.exp(),
    "inner grad": with_inner_grad,
    "no_grad": with_no_grad,
    "in place": with_inplace,
    "views": with_views,
    "nested": nested,
    "softmax": lambda x: x.softmax(-1).log_softmax(0) * x,
    "indexing": lambda x: x.exp()[wg.tensor([0, 2, 0])].cumsum(0),
    "complex": lambda x: wg.complex(x, x.sin()).exp().abs(),
    "detached": lambda x: x.sin() * x.exp().detach(),
}


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_gradients_are_those_of_the_function_itself(function, early_stop):
    with set_checkpoint_early_stop(early_stop):
        agree(function, leaf(3, 3))


def test_parameters_of_a_module_get_their_gradients():
    net = wg.nn.Sequential(wg.nn.Linear(3, 5), wg.nn.Tanh(), wg.nn.Linear(5, 2)).double()
    x = leaf(4, 3)
    net(x).sum().backward()
    expected = [p.grad.numpy() for p in (x, *net.parameters())]
    for p in (x, *net.parameters()):
        p.grad = None
    checkpoint(net, x.detach()).sum().backward()  # no argument requires a gradient
    assert x.grad is None
    for p, g in zip(net.parameters(), expected[1:], strict=True):
        np.testing.assert_array_equal(p.grad.numpy(), g)


def test_arguments_may_be_trees_and_keywords():
    a, b, c, d = (leaf(3, seed=i) for i in range(4))

    def function(pair, *, table, power=1):
        return pair.first * table["c"][0].exp() + (pair.second[0] ** power) * table["d"]

    def direct(a, b, c, d):
        return function(Pair(a, [b]), table={"c": (c,), "d": d}, power=3)

    def checkpointed(a, b, c, d):
        return checkpoint(function, Pair(a, [b]), table={"c": (c,), "d": d}, power=3)

    for expected, found in zip(gradients(direct, a, b, c, d), gradients(checkpointed, a, b, c, d), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_results_may_be_trees():
    x = leaf(3)
    found = checkpoint(lambda x: {"a": x.sin(), "b": (x.exp(), 3)}, x)
    assert found["b"][1] == 3
    (g,) = wg.autograd.grad((found["a"] + found["b"][0]).sum(), x)
    np.testing.assert_allclose(g.numpy(), np.cos(x.detach().numpy()) + np.exp(x.detach().numpy()))


def test_an_argument_that_the_function_empties_is_given_again():
    """Containers are taken apart when the function is called, so that it cannot spoil its own recomputation."""
    x = leaf(3)
    (g,) = wg.autograd.grad(checkpoint(lambda stack: stack.pop().sin().exp(), [x]).sum(), x)
    values = x.detach().numpy()
    np.testing.assert_allclose(g.numpy(), np.exp(np.sin(values)) * np.cos(values))


# ---- how often it is computed


def test_it_is_computed_again_once_per_backward():
    f, x = Counted(lambda x: x.sin().exp().tanh()), leaf(3)
    y = checkpoint(f, x).sum()
    assert f.calls == 1
    y.backward(retain_graph=True)
    assert (f.calls, f.ends) == (2, 1)  # left early: the result of tanh is the last that is wanted
    first = x.grad.clone()
    y.backward(retain_graph=True)
    assert f.calls == 3
    y.backward()
    assert f.calls == 4
    np.testing.assert_allclose(x.grad.numpy(), 3 * first.numpy())
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_it_is_left_as_soon_as_everything_wanted_is_computed():
    seen = []

    def function(x):
        y = x.sin()
        seen.append("sin")
        z = y.exp()
        seen.append("exp")
        return z.sum() + 1

    y = checkpoint(function, leaf(3))
    y.backward()
    assert seen == ["sin", "exp", "sin"]
    seen.clear()
    with set_checkpoint_early_stop(False):
        y = checkpoint(function, leaf(3))
    y.backward()
    assert seen == ["sin", "exp", "sin", "exp"]
    seen.clear()
    checkpoint(function, leaf(3), early_stop=False).backward()
    assert seen == ["sin", "exp", "sin", "exp"]


def test_it_is_not_computed_again_where_nothing_is_wanted():
    f, x = Counted(lambda x: x + 1), leaf(3)
    checkpoint(f, x).sum().backward()
    assert f.calls == 1
    with wg.no_grad():
        assert not checkpoint(f, x).requires_grad
    with wg.inference_mode():
        checkpoint(f, x)
    assert f.calls == 3
    checkpoint(f, x.detach())
    assert f.calls == 4


def test_nested_checkpoints_are_each_computed_again_once():
    inner, middle = Counted(lambda x: x.sin().exp()), Counted(lambda x: checkpoint(inner, x.cos()).tanh() * x)
    outer = Counted(lambda x: checkpoint(middle, x.exp()).sin())
    checkpoint(outer, leaf(3)).sum().backward()
    # A level is computed again for the one inside it, which is then left before it starts, or runs once more.
    assert (outer.calls, middle.calls, inner.calls) == (2, 3, 4)


def test_second_derivatives():
    x = leaf(3)
    for function in (lambda x: x.sin().exp(), nested, with_inner_grad):
        expected, found = (
            wg.autograd.grad(wg.autograd.grad(f(x).sum(), x, create_graph=True)[0].pow(2).sum(), x)[0].numpy()
            for f in (function, lambda x, function=function: checkpoint(function, x))
        )
        np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert wg.autograd.gradgradcheck(lambda x: checkpoint(lambda x: (x @ x.t()).exp(), x), (leaf(2, 2),))


def test_a_backward_inside_the_function_computes_what_there_is_so_far():
    f = Counted(with_inner_grad)
    x = leaf(3)
    y = checkpoint(f, x).sum()
    assert f.calls == 2
    y.backward()
    assert f.calls == 3


def test_parts_of_the_graph_may_be_walked_on_their_own():
    f = Counted(lambda x: (x.sin().exp(), x.cos().exp()))
    x = leaf(3)
    a, b = checkpoint(f, x)
    values = x.detach().numpy()
    np.testing.assert_allclose(wg.autograd.grad(b.sum(), x)[0].numpy(), -np.exp(np.cos(values)) * np.sin(values))
    assert f.calls == 2
    np.testing.assert_allclose(wg.autograd.grad(a.sum(), x)[0].numpy(), np.exp(np.sin(values)) * np.cos(values))
    assert (f.calls, f.ends) == (3, 1)


def test_backward_may_run_in_another_thread():
    x = leaf(3)
    y = checkpoint(lambda x: x.sin().exp(), x).sum()
    with wg.no_grad():
        thread = threading.Thread(target=y.backward)
        thread.start()
        thread.join()
    values = x.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), np.exp(np.sin(values)) * np.cos(values))


def test_a_function_can_tell_that_it_is_computed_again():
    seen = []
    checkpoint(lambda x: seen.append(is_recomputing()) or x.sin(), leaf(3)).sum().backward()
    assert seen == [False, True]
    assert not is_recomputing()


def test_an_error_in_the_recomputation_names_the_function_and_leaves_no_trace():
    calls = []

    def function(x):
        if calls:
            raise KeyError("lost")
        calls.append(1)
        return x.sin()

    y = checkpoint(function, leaf(3))
    with pytest.raises(KeyError, match="lost") as caught:
        y.sum().backward()
    assert any("computing again" in note and "function, called at" in note for note in caught.value.__notes__)
    state = wg.core.state.thread.state
    assert (state.grad, state.slow, state.saved_hooks, state.watchers, is_recomputing()) == (True, False, [], (), False)


def test_an_except_clause_of_the_function_does_not_stop_the_stop():
    caught = []

    def function(x):
        try:
            return x.sin().exp()
        except Exception as error:
            caught.append(error)
            raise

    checkpoint(function, leaf(3)).sum().backward()
    assert not caught


# ---- chains


@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_a_chain_is_cut_into_segments(segments):
    functions = [Counted(f) for f in (wg.sin, wg.exp, wg.tanh, wg.cos, wg.sin)]
    x = leaf(4)
    (expected,) = gradients(lambda x: x.sin().exp().tanh().cos().sin(), x)
    y = checkpoint_sequential(functions, segments, x)
    np.testing.assert_array_equal(wg.autograd.grad(y.sum(), x)[0].numpy(), expected)
    last = len(functions) // segments * (segments - 1)
    assert [f.calls for f in functions] == [2] * last + [1] * (5 - last)


def test_a_chain_of_modules_gives_their_gradients():
    net = wg.nn.Sequential(*[wg.nn.Linear(3, 3) for _ in range(4)]).double()
    x = leaf(2, 3)
    expected = wg.autograd.grad(net(x).sum(), [x, *net.parameters()])
    found = wg.autograd.grad(checkpoint_sequential(net, 2, x, preserve_rng_state=False).sum(), [x, *net.parameters()])
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(b.numpy(), a.numpy())


@pytest.mark.parametrize(
    ("functions", "segments", "text"),
    [(wg.nn.Linear(3, 3), 1, "a Sequential or a list of functions, got Linear"), ([wg.sin, 3], 1, r"functions\[1\] must be"),
     ([wg.sin], 1.5, "segments must be an int, got 1.5")],
)  # fmt: skip
def test_a_chain_is_of_functions(functions, segments, text):
    with pytest.raises(TypeError, match=text):
        checkpoint_sequential(functions, segments, leaf(3))


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="function must be a function, got Tensor"):
        checkpoint(leaf(3), leaf(3))


@pytest.mark.parametrize(
    ("segments", "options", "text"),
    [(0, {}, "segments must be from 1 to the number of functions, 2; got 0"), (3, {}, "2; got 3"),
     (1, {"keep": 1}, "has no option 'keep'"), (2, {"use_reentrant": True}, "pass use_reentrant=False")],
)  # fmt: skip
def test_a_chain_refuses_what_it_cannot_do(segments, options, text):
    with pytest.raises(ValueError, match=text):
        checkpoint_sequential([wg.sin, wg.exp], segments, leaf(3), **options)

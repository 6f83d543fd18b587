"""Checkpointing: the gradients of the function itself, from nothing but its arguments."""

import gc
import threading
import weakref
from collections import namedtuple
from contextlib import contextmanager

import numpy as np
import pytest

import wengert as wg
from wengert.autograd.graph import disable_saved_tensors_hooks, save_on_disk, saved_tensors_hooks
from wengert.core.generator import Generator
from wengert.utils.checkpoint import (
    checkpoint,
    checkpoint_sequential,
    is_recomputing,
    set_checkpoint_early_stop,
)

Pair = namedtuple("Pair", "first second")


def leaf(*shape, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape)
    return wg.tensor(values, dtype=wg.float64, requires_grad=True)


class Counted:
    """A function that counts how often it is called, and how often it ends."""

    def __init__(self, function):
        self.function, self.calls, self.ends = function, 0, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        result = self.function(*args, **kwargs)
        self.ends += 1
        return result


def gradients(function, *leaves):
    found = wg.autograd.grad(function(*leaves).sum(), leaves, allow_unused=True)
    return [None if g is None else g.numpy() for g in found]


def agree(function, *leaves):
    """The checkpointed function has the gradients of the function itself, to the last bit."""
    for expected, found in zip(
        gradients(function, *leaves), gradients(lambda *args: checkpoint(function, *args), *leaves), strict=True
    ):
        assert (expected is None) == (found is None)
        if expected is not None:
            np.testing.assert_array_equal(found, expected)


W = leaf(3, 3, seed=5)


def with_inner_grad(x):
    y = x.exp()
    (g,) = wg.autograd.grad(y.sum(), x, create_graph=True)
    return y.sin() * g


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


def nested(x):
    return checkpoint(lambda x: checkpoint(lambda x: x.sin().exp(), x).cos() * x, x.tanh()).exp()


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


# ---- memory


@contextmanager
def watched_arrays():
    """Note, weakly, every array that a float operator saves for backward."""
    seen = []

    def note(tensor):
        seen.append(weakref.ref(tensor._payload))
        return tensor.detach()

    with saved_tensors_hooks(note, lambda tensor: tensor):
        yield seen


def test_nothing_is_kept_but_the_arguments():
    inside = []

    def function(x):
        for _ in range(4):
            x = x.sin()
            inside.append(weakref.ref(x._payload))
        return x + 0

    gc.disable()
    try:
        x = leaf(1000)
        y = checkpoint(function, x)
        assert [ref() for ref in inside] == [None] * 4
        with watched_arrays() as seen:
            checkpoint(function, x * 2)
        assert len(seen) == 1  # x * 2
        inside.clear()
        y.sum().backward()
        assert [ref() for ref in inside] == [None] * len(inside)
    finally:
        gc.enable()


@pytest.mark.parametrize("keep", [False, True])
def test_backward_frees_what_it_computed_again_as_it_goes(keep):
    refs, alive = [], []

    def layer(x):
        y = x.sin().cos()
        refs.append(weakref.ref(y._payload))
        return y.exp() * x

    x = y = leaf(100)
    for _ in range(6):
        y = checkpoint(layer, y, early_stop=False)
        y.register_hook(lambda g: alive.append(sum(ref() is not None for ref in refs)))
    y.sum().backward(retain_graph=keep)
    assert len(alive) == 6
    assert max(alive) <= 1
    assert sum(ref() is not None for ref in refs) == 0
    assert x.grad is not None


def test_the_tape_holds_the_function_and_its_arguments_no_longer_than_needed():
    class Function:
        def __call__(self, x):
            return x.sin().exp()

    gc.disable()
    try:
        function, x = Function(), leaf(3)
        held, argument = weakref.ref(function), x * 2
        payload = weakref.ref(argument._payload)
        y = checkpoint(function, argument)
        del function, argument
        assert held() is not None
        assert payload() is not None
        y.sum().backward()
        assert held() is None
        assert payload() is None
        y = checkpoint(Function(), x * 2)
        del y  # never walked
        held = weakref.ref(z := checkpoint(Function(), x * 2))
        del z
        assert held() is None
    finally:
        gc.enable()


# ---- random numbers


def test_random_numbers_are_drawn_again_and_the_stream_is_not_disturbed():
    def function(x):
        return wg.nn.functional.dropout(x * 1, 0.5) * wg.rand(len(x))

    def run(call):
        wg.manual_seed(7)
        x = wg.ones(200, requires_grad=True)
        y = call(function, x)
        between = wg.rand(3)
        y.sum().backward()
        return x.grad, y.detach(), between, wg.rand(3)

    expected, found = run(lambda f, x: f(x)), run(checkpoint)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(b.numpy(), a.numpy())
    np.testing.assert_array_equal(found[0].numpy(), found[1].numpy())


def test_generators_among_the_arguments_and_the_threads_own_are_put_back_too():
    g = Generator().manual_seed(3)
    x = wg.ones(50, requires_grad=True)
    y = checkpoint(lambda x, generator: x * wg.rand(50, generator=generator) * x, x, generator=g)
    after = g.get_state()
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * y.detach().numpy())
    assert g.get_state().tolist() == after.tolist()

    state = wg.core.state.thread.state
    state.generator = own = Generator().manual_seed(4)
    try:
        y = checkpoint(lambda x: x * wg.rand(50) * x, x)
        state.generator = None
        before = own.offset, wg.default_generator.offset
        x.grad = None
        y.sum().backward()
        assert (own.offset, wg.default_generator.offset) == before
        assert state.generator is None
    finally:
        state.generator = None
    np.testing.assert_allclose(x.grad.numpy(), 2 * y.detach().numpy())


def test_seeds_set_inside_leave_the_stream_as_it_was():
    def function(x):
        wg.manual_seed(11)
        return x * wg.rand(5) * x

    x = wg.ones(5, requires_grad=True)
    y = checkpoint(function, x)
    wg.manual_seed(1)
    y.sum().backward()
    state = wg.get_rng_state().tolist()
    wg.manual_seed(1)
    assert state == wg.get_rng_state().tolist()
    np.testing.assert_allclose(x.grad.numpy(), 2 * y.detach().numpy())


def test_random_numbers_may_be_left_alone():
    x = wg.ones(100, requires_grad=True)
    wg.manual_seed(0)
    y = checkpoint(lambda x: wg.nn.functional.dropout(x * 1, 0.5), x, preserve_rng_state=False)
    y.sum().backward()
    assert not bool((x.grad == y.detach()).all())


# ---- what it meets


def test_saved_tensor_hooks_outside_see_the_arguments_alone():
    packed = []
    x = leaf(3)
    argument = x * 2
    with saved_tensors_hooks(lambda t: packed.append(t.tolist()) or t.detach(), lambda t: t):
        y = checkpoint(lambda x: x.sin().exp(), argument)
    assert packed == [argument.tolist()]
    (g,) = wg.autograd.grad(y.sum(), x)
    values = argument.detach().numpy()
    np.testing.assert_allclose(g.numpy(), 2 * np.exp(np.sin(values)) * np.cos(values))


def test_saved_tensor_hooks_inside_the_function_take_what_is_theirs():
    def function(x):
        y = x.sin()
        with saved_tensors_hooks(lambda t: t.numpy().copy(), wg.from_numpy):
            z = y.exp()
        return z.tanh()

    agree(function, leaf(3))


def test_its_arguments_may_go_to_files(tmp_path):
    x = leaf(3, 3)
    expected = gradients(lambda x: nested(x * 2), x)
    with save_on_disk(tmp_path, min_bytes=0):
        y = checkpoint(nested, x * 2)
    assert len(list(tmp_path.iterdir())) == 1
    np.testing.assert_array_equal(wg.autograd.grad(y.sum(), x)[0].numpy(), expected[0])
    assert not list(tmp_path.iterdir())


def test_where_hooks_are_refused_it_is_too():
    with disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"):
        checkpoint(lambda x: x.sin(), leaf(3))
    y = checkpoint(nested, leaf(3))
    with disable_saved_tensors_hooks("not here"):
        y.sum().backward()


@pytest.mark.parametrize("change", [lambda x: x.mul_(2), lambda x: x.copy_(wg.ones(3))])
def test_an_argument_changed_since_is_refused_and_both_lines_named(change):
    x = leaf(3)
    argument = x * 2
    y = checkpoint(lambda x: x.sin().exp(), argument)
    change(argument)
    with pytest.raises(
        RuntimeError, match=r"(?s)an argument .* given: shape \(3,\), version 0.*changed: by (mul|copy)_\(\)"
    ):
        y.sum().backward()


def test_a_leaf_changed_since_is_refused_even_if_backward_does_not_need_it():
    """A changed bias makes another activation: the recomputation would differentiate another function."""
    w, b, x = leaf(3), leaf(3, seed=1), leaf(3, seed=2)
    y = checkpoint(lambda x: ((x * w) + b).tanh() ** 2, x)
    with wg.no_grad():
        b.sub_(0.1)
    with pytest.raises(RuntimeError, match=r"(?s)a leaf.*used: by add\(\), version 0.*changed: by sub_\(\)"):
        y.sum().backward()


def test_leaves_that_the_function_itself_writes_are_its_own_affair():
    w, x = leaf(3), leaf(3, seed=1)

    def function(x):
        with wg.no_grad():
            w.clamp_(-1, 1)
        return (x * w).exp()

    y = checkpoint(function, x).sum()
    for _ in range(2):
        y.backward(retain_graph=True)
    with wg.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match=r"used: by clamp\(\), version 3, .*\n.*changed: by mul_"):
        y.backward()


def test_what_is_overwritten_inside_the_function_after_it_was_saved_is_refused():
    def function(x):
        y = x.exp()
        z = y * 2
        y.mul_(3)
        return z + y

    with pytest.raises(RuntimeError, match=r"changed in place inside a checkpointed function by mul_\(\)"):
        checkpoint(function, leaf(3), early_stop=False).sum().backward()
    x = leaf(3)  # left before it is overwritten, it has the right values
    (g,) = wg.autograd.grad(checkpoint(function, x).sum(), x)
    np.testing.assert_allclose(g.numpy(), 5 * np.exp(x.detach().numpy()))


def test_contexts_of_the_users_are_entered_for_each_run():
    order = []

    @contextmanager
    def noted(name):
        order.append(name)
        yield
        order.append(f"{name} end")

    checkpoint(lambda x: x.sin(), leaf(3), context_fn=lambda: (noted("forward"), noted("again"))).sum().backward()
    assert order == ["forward", "forward end", "again"]


def test_a_context_that_swallows_the_functions_error_is_refused():
    class Swallow:
        def __enter__(self):
            return None

        def __exit__(self, *error):
            return True

    with pytest.raises(RuntimeError, match="suppressed an exception"):
        checkpoint(lambda x: 1 / 0, leaf(3), context_fn=lambda: (Swallow(), Swallow()))


def test_functions_with_a_rule_of_their_own():
    class Square(wg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            (again,) = ctx.saved_tensors
            return g * (x + again)

    agree(lambda x: Square.apply(x.sin()).exp(), leaf(3))


BAD = [
    ({"use_reentrant": True}, ValueError, "use_reentrant=True.*pass use_reentrant=False"),
    ({"context_fn": lambda: None}, TypeError, "context_fn must return two contexts, .* got NoneType"),
    ({"context_fn": 3}, TypeError, "context_fn must be a function, got int"),
    ({"determinism_check": "bits"}, ValueError, "determinism_check must be 'default' or 'none', got 'bits'"),
]


@pytest.mark.parametrize(("options", "error", "text"), BAD)
def test_bad_options_are_refused(options, error, text):
    with pytest.raises(error, match=text):
        checkpoint(lambda x: x.sin(), leaf(3), **options)


# ---- inside transforms

DERIVATIVES = {
    "grad": lambda f: wg.func.grad(lambda x: f(x).sum()),
    "vjp": lambda f: lambda x: wg.func.vjp(f, x)[1](wg.ones(3, 3, dtype=wg.float64))[0],
    "jvp": lambda f: lambda x: wg.func.jvp(f, (x,), (x * 2,))[1],
    "vmap": lambda f: lambda x: wg.func.vmap(f)(wg.stack([x, x + 1])),
    "vmap of grad": lambda f: lambda x: wg.func.vmap(wg.func.grad(lambda x: f(x).sum()))(wg.stack([x, x + 1])),
    "grad of vmap": lambda f: wg.func.grad(lambda x: wg.func.vmap(f)(wg.stack([x, x + 1])).pow(2).sum()),
    "grad of grad": lambda f: wg.func.grad(lambda x: wg.func.grad(lambda x: f(x).sum())(x).pow(2).sum()),
    "jacrev": lambda f: wg.func.jacrev(f),
    "jacfwd": lambda f: wg.func.jacfwd(f),
    "hessian": lambda f: wg.func.hessian(lambda x: f(x).sum()),
    "jvp of grad": lambda f: lambda x: wg.func.jvp(wg.func.grad(lambda x: f(x).sum()), (x,), (x,))[1],
    "grad of jvp": lambda f: wg.func.grad(lambda x: wg.func.jvp(f, (x,), (x,))[1].pow(2).sum()),
    "grad of vmap of grad": lambda f: wg.func.grad(
        lambda x: wg.func.vmap(wg.func.grad(lambda x: f(x).sum()))(wg.stack([x, x + 1])).pow(2).sum()
    ),
}


@pytest.mark.parametrize("function", [lambda x: (x @ W).sin().exp(), nested], ids=["chain", "nested"])
@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES)
def test_transforms_of_a_checkpointed_function(derivative, function):
    x = leaf(3, 3).detach()
    expected = derivative(function)(x)
    found = derivative(lambda x: checkpoint(function, x))(x)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-13)


@pytest.mark.parametrize("function", [lambda x: (x @ W).sin().exp(), nested], ids=["chain", "nested"])
@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES)
def test_a_transform_may_be_checkpointed(derivative, function):
    x = leaf(3, 3)
    taken = derivative(function)
    (expected,) = wg.autograd.grad(taken(x).sin().sum(), x)
    (found,) = wg.autograd.grad(checkpoint(taken, x).sin().sum(), x)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-13)


@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES)
def test_a_transform_of_a_checkpoint_stays_connected_to_what_is_outside(derivative):
    x, w = leaf(3, 3), leaf(3, 3, seed=9)

    def function(x):
        return (x @ w).sin().exp()

    expected = wg.autograd.grad(derivative(function)(x).sin().sum(), (x, w))
    found = wg.autograd.grad(derivative(lambda x: checkpoint(function, x))(x).sin().sum(), (x, w))
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-13)


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

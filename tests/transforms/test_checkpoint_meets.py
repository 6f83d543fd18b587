"""Checkpointing: hooks, modes, writes, contexts, rules of users, and transforms inside and outside of it."""

from contextlib import contextmanager

import numpy as np
import pytest

import wengert as wg
from tests.transforms.checkpointing import W, agree, gradients, leaf, nested
from wengert.autograd.graph import disable_saved_tensors_hooks, save_on_disk, saved_tensors_hooks
from wengert.utils.checkpoint import checkpoint


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

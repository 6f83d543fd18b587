"""What the tests of checkpointing share: a leaf, a function that counts, functions with something to them."""

import numpy as np

import wengert as wg
from wengert.utils.checkpoint import checkpoint


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


def nested(x):
    return checkpoint(lambda x: checkpoint(lambda x: x.sin().exp(), x).cos() * x, x.tanh()).exp()

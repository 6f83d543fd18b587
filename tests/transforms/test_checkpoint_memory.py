"""Checkpointing: what is kept until backward, and what backward keeps."""

import gc
import weakref
from contextlib import contextmanager

import pytest

from tests.transforms.checkpointing import leaf
from wengert.autograd.graph import saved_tensors_hooks
from wengert.utils.checkpoint import checkpoint


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

"""Checkpointing: random numbers are drawn again as they were."""

import numpy as np

import wengert as wg
from wengert.core.generator import Generator
from wengert.utils.checkpoint import checkpoint


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

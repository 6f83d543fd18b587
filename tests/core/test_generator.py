"""Random numbers: the same seed gives the same numbers, whatever happens around it."""

import copy
import pickle
import threading

import numpy as np
import pytest

import wengert as wg

DRAWS = {
    "rand": lambda g: wg.rand(5, generator=g),
    "randn": lambda g: wg.randn(5, generator=g),
    "randint": lambda g: wg.randint(0, 100, (5,), generator=g),
    "randperm": lambda g: wg.randperm(9, generator=g),
    "normal": lambda g: wg.normal(wg.zeros(4), 2.0, generator=g),
    "bernoulli": lambda g: wg.bernoulli(wg.full((9,), 0.5), generator=g),
    "multinomial": lambda g: wg.multinomial(wg.tensor([0.1, 0.6, 0.3]), 2, generator=g),
    "poisson": lambda g: wg.poisson(wg.full((5,), 3.0), g),
    "uniform_": lambda g: wg.zeros(5).uniform_(-1, 1, generator=g),
    "normal_": lambda g: wg.zeros(5).normal_(generator=g),
    "exponential_": lambda g: wg.zeros(5).exponential_(generator=g),
    "bernoulli_": lambda g: wg.zeros(9).bernoulli_(0.3, generator=g),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_seed_fixes_the_numbers_and_the_stream_moves_on(name):
    g = wg.Generator().manual_seed(3)
    first, second = DRAWS[name](g), DRAWS[name](g)
    again = DRAWS[name](wg.Generator().manual_seed(3))
    np.testing.assert_array_equal(first.numpy(), again.numpy())
    assert first.shape == second.shape


@pytest.mark.parametrize("name", DRAWS)
def test_a_state_continues_where_it_was_taken(name):
    g = wg.Generator().manual_seed(3)
    wg.rand(7, generator=g)
    state = g.get_state()
    want = DRAWS[name](g)
    other = wg.Generator()
    other.set_state(state)
    np.testing.assert_array_equal(DRAWS[name](other).numpy(), want.numpy())


def test_a_generator_is_independent_of_the_default_one():
    g = wg.Generator().manual_seed(5)
    a = wg.rand(4, generator=g)
    wg.rand(100)
    np.testing.assert_array_equal(wg.rand(4, generator=g.manual_seed(5)).numpy(), a.numpy())


def test_split_gives_different_streams_and_the_same_each_time():
    def streams():
        return [wg.rand(8, generator=g).numpy() for g in wg.Generator().manual_seed(1).split(4)]

    first, again = streams(), streams()
    np.testing.assert_array_equal(first, again)
    assert len({s.tobytes() for s in first}) == 4
    parent = wg.Generator().manual_seed(1)
    assert {g.key for g in parent.split(2)}.isdisjoint({g.key for g in parent.split(2)})


def test_threads_with_their_own_generators_give_the_numbers_of_one_thread():
    found = {}

    def work(i):
        g = wg.Generator().manual_seed(i)
        found[i] = [wg.rand(50, generator=g).numpy() for _ in range(20)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(4):
        g = wg.Generator().manual_seed(i)
        np.testing.assert_array_equal(found[i], [wg.rand(50, generator=g).numpy() for _ in range(20)])


def test_fork_rng_leaves_the_default_stream_alone():
    wg.manual_seed(4)
    want = wg.rand(3)
    wg.manual_seed(4)
    with wg.random.fork_rng():
        wg.rand(100)
    np.testing.assert_array_equal(wg.rand(3).numpy(), want.numpy())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: wg.Generator("cuda"), RuntimeError, "cpu"),
        (lambda: wg.Generator().manual_seed(1.5), TypeError, "int"),
        (lambda: wg.Generator().set_state(wg.zeros(2)), ValueError, "uint64"),
        (lambda: wg.rand(2, generator=3), TypeError, "Generator"),
        (lambda: wg.rand(-1), RuntimeError, "negative"),
        (lambda: wg.rand(2, dtype=wg.int64), RuntimeError, "randint"),
        (lambda: wg.randint(5, 5, (2,)), ValueError, "low"),
        (lambda: wg.randint(5), TypeError, "size"),
        (lambda: wg.bernoulli(wg.tensor([1.5])), ValueError, "p"),
        (lambda: wg.multinomial(wg.tensor([0.0, 1.0]), 2), ValueError, "multinomial"),
        (lambda: wg.zeros(2).uniform_(1, 0), ValueError, "from"),
        (lambda: wg.nn.functional.dropout(wg.ones(2), 1.5), ValueError, "probability"),
    ],
)
def test_wrong_requests_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_dropout_scales_what_it_keeps_and_drops_the_rest():
    wg.manual_seed(0)
    x = wg.ones(10_000, requires_grad=True)
    y = wg.nn.functional.dropout(x, 0.25)
    values = np.unique(y.detach().numpy())
    np.testing.assert_allclose(values, [0.0, 4 / 3], rtol=1e-6)
    assert abs(float((y == 0).sum()) / 10_000 - 0.25) < 0.02
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_a_copied_or_pickled_generator_continues_at_the_same_place(copied):
    g = wg.Generator().manual_seed(7)
    wg.rand(5, generator=g)
    other = copied(g)
    np.testing.assert_array_equal(wg.rand(5, generator=other).numpy(), wg.rand(5, generator=g).numpy())
    assert other.initial_seed() == 7

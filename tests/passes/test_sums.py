"""Sums of products over few rows become one product over all of them."""

import numpy as np
import pytest

import wengert as wg
from tests.passes.captured import captured, names, same
from wengert.passes.sums import LEAST, MOST


def drawn(*shape, seed=0):
    return wg.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def recurrent(steps, rows=3, reads=True):
    """Return the gradient of matrices that each of some steps uses, and arguments."""

    def loss(w, u, x):
        h, seen = x[0], []
        entering = x @ u if reads else x
        for e in entering.unbind(0):
            h = (e + h @ w).tanh()
            seen.append(h)
        return (seen[-1] * seen[0]).sum()

    return wg.func.grad(loss, argnums=(0, 1) if reads else (0,)), (
        drawn(4, 4), drawn(4, 4, seed=1), drawn(steps, rows, 4, seed=2),
    )  # fmt: skip


def products(graph):
    """Return how many products over rows there are, those with something fused to them, too."""
    return sum(name.count("rows_product") for name in names(graph))


@pytest.mark.parametrize("steps", [LEAST - 1, LEAST, 7, 40])
@pytest.mark.parametrize("reads", [True, False])
def test_gradients_of_recurrent_steps(steps, reads):
    function, arguments = recurrent(steps, reads=reads)
    graph, arrays = captured(function, *arguments)
    found = same(graph, arrays, exact=False)
    assert products(found) == (steps if steps < LEAST else 1) + reads
    if reads and steps >= LEAST:
        assert names(found).count("stack") == 2  # one of them is there for the other matrix, too


def test_long_products_stay_apart():
    function, arguments = recurrent(5, rows=MOST + 1, reads=False)
    found = same(*captured(function, *arguments), exact=False)
    assert products(found) == 5


def sum_of(*terms):
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def pairs(count, shapes=((3, 2), (3, 5))):
    return [(drawn(*shapes[0], seed=2 * k), drawn(*shapes[1], seed=2 * k + 1)) for k in range(count)]


def flat(given):
    return [array for pair in given for array in pair]


def in_pairs(given):
    return list(zip(given[::2], given[1::2], strict=True))


def weights(given):
    """Return gradients of a matrix by products over rows, one for each pair."""
    return [wg.func.vjp(lambda w, x=x: x @ w, wg.zeros(2, 5, dtype=wg.float64))[1](g)[0] for x, g in in_pairs(given)]


CASES = {
    "a sum": (lambda *given: sum_of(*weights(given)), 6, 1),
    "a balanced sum": (lambda *given: (lambda t: ((t[0] + t[1]) + (t[2] + t[3])) + (t[4] + t[5]))(weights(given)), 6, 1),
    "with something else": (lambda *given: sum_of(given[0][:2] @ given[1][:2], *weights(given), given[1][:2] * 2), 6, 1),
    "partial sums that are returned": (
        lambda *given: (lambda t: (sum_of(*t[:2]), sum_of(sum_of(*t[:2]), *t[2:])))(weights(given)), 6, 3,
    ),
    "a product that is returned": (lambda *given: (lambda t: (t[3], sum_of(*t)))(weights(given)), 6, 2),
    "one pair again and again": (lambda *given: sum_of(*weights((given[0], given[1], given[0], given[3]) * 4)), 6, None),
    "a sum times two": (lambda *given: sum_of(*weights(given)) * 2 + 1, 5, 1),
    "two sums": (lambda *given: (sum_of(*weights(given[:8])), sum_of(*weights(given[8:]))), 8, 2),
    "a sum that is stacked": (
        lambda *given: wg.stack([sum_of(*weights(given[:8])), sum_of(*weights(given[8:]))]), 8, 2,
    ),
    "differences": (lambda *given: sum_of(*weights(given[:8])) - sum_of(*weights(given[8:])), 8, 2),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_what_is_joined(what):
    function, count, left = CASES[what]
    found = same(*captured(function, *flat(pairs(count))), exact=False)
    if left is not None:
        assert products(found) == left


def test_operands_that_stand_together_are_read_there_in_their_order():
    def function(*given):
        found = sum_of(*weights(given))
        return found, wg.stack([given[k] for k in (4, 0, 2, 8, 6)]).cos()

    found = same(*captured(function, *flat(pairs(5))), exact=False)
    assert products(found) == 1
    assert names(found).count("stack") == 2


def test_compiled_recurrent_steps_train_as_eager_ones():
    found = []
    for compiled in (False, True):
        wg.manual_seed(3)
        cell, head = wg.nn.LSTMCell(5, 8, dtype=wg.float64), wg.nn.Linear(8, 2, dtype=wg.float64)
        parameters = [*cell.parameters(), *head.parameters()]
        optimizer = wg.optim.SGD(parameters, lr=0.1)

        def step(x, y, cell=cell, head=head, optimizer=optimizer):
            optimizer.zero_grad()
            state = None
            for entering in x.unbind(0):
                state = cell(entering, state)
            loss = wg.nn.functional.cross_entropy(head(state[0]), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = wg.compile(step, fullgraph=True) if compiled else step
        x, y = drawn(20, 4, 5), wg.tensor([0, 1, 1, 0])
        losses = [run(x, y).item() for _ in range(10)]
        found.append((losses, [p.detach().numpy() for p in parameters]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)

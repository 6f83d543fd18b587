"""A batch of no examples: every operator gives nothing in the shape of its results, and gradients of zero."""

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import func
from wengert.core.registry import operators
from wengert.nn import functional as F
from wengert.testing.case import Case
from wengert.testing.opcheck_transforms import jvp, vjp
from wengert.testing.samples import ErrorSample, samples_of

STRIDED = {"as_strided_copy"}  # needs memory that is filled


def none_of(array: Any) -> Any:
    """Return a batch of no examples like an array."""
    return wg.from_numpy(np.empty((0, *array.shape), array.dtype))


@pytest.mark.parametrize(
    "name",
    [name for name, op in operators().items() if op.name == name and op.batch != "refuse" and name not in STRIDED],
)
def test_shapes_and_dtypes(name: str) -> None:
    op = operators()[name]
    for case in [Case(op, s) for s in samples_of(op) if not isinstance(s, ErrorSample)][:4]:
        if not case.arrays:
            continue
        got = func.vmap(case.run, randomness="same")(*map(none_of, case.arrays))
        assert [(tuple(g.shape), g.dtype) for g in got] == [((0, *w.shape), w.dtype) for w in case.results]
        if not case.forward:
            continue

        def derivatives(*given: Any, case: Any = case) -> Any:
            run, floats = case.of_floats(given), tuple(given[i] for i in case.places)
            values, pull = vjp(run, *floats)
            return (*pull(values), *jvp(run, floats, floats)[1])

        inputs = [case.arrays[i] for i in case.places]
        found = func.vmap(derivatives, randomness="same")(*map(none_of, case.arrays))
        assert [tuple(t.shape) for t in found[: len(inputs)]] == [(0, *a.shape) for a in inputs]


SHARED = [
    (lambda x, w: F.conv1d(x, w), (2, 4), (3, 2, 2)),
    (lambda x, w: F.linear(x, w), (2, 4), (3, 4)),
    (lambda x, w: F.layer_norm(x, (4,), w), (2, 4), (4,)),
    (lambda x, w: F.fold(x * w.sum(), 2, 1), (3, 4), (2,)),
    (lambda x, w: wg.linalg.solve(x, w), (2, 2), (2,)),
    (lambda x, w: wg.cat([x, w]).sort(0).values, (2,), (3,)),
    (lambda x, w: wg.stack([x, w])[1] / x.log(), (2,), (2,)),
]


@pytest.mark.parametrize(("function", "example", "shared"), SHARED)
def test_gradients_are_zero(function: Any, example: Any, shared: Any) -> None:
    x, w = wg.zeros(0, *example, requires_grad=True), wg.ones(shared, requires_grad=True)
    func.vmap(function, (0, None))(x, w).sum().backward()
    assert x.grad is not None
    assert tuple(x.grad.shape) == (0, *example)
    assert w.grad is not None
    np.testing.assert_array_equal(w.grad.numpy(), np.zeros(shared))
    gradient = func.grad(lambda w: func.vmap(function, (0, None))(x.detach(), w).sum())
    np.testing.assert_array_equal(gradient(w.detach()).numpy(), np.zeros(shared))


def test_nested() -> None:
    x = wg.zeros(3, 0, 2, 4)
    assert func.vmap(func.vmap(lambda x: F.conv1d(x, wg.ones(5, 2, 2))))(x).shape == (3, 0, 5, 3)
    assert func.vmap(func.vmap(lambda x: F.conv1d(x, wg.ones(5, 2, 2)), in_dims=0), in_dims=1)(x).shape == (0, 3, 5, 3)
    assert func.vmap(func.jacrev(lambda x: F.layer_norm(x, (4,))))(x[0]).shape == (0, 2, 4, 2, 4)


def test_errors_are_those_of_one_example() -> None:
    with pytest.raises(RuntimeError, match="conv1d"):
        func.vmap(lambda x: F.conv1d(x, wg.ones(5, 3, 2)))(wg.zeros(0, 2, 4))
